//! Attributes that were being set when a process was killed: what is read is written alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_recovery::AttributesUnderWay;

fuzz_target!(|bytes: &[u8]| {
    let Some(under_way) = AttributesUnderWay::decode(bytes) else { return };
    let mut again = Vec::new();
    under_way.encode(&mut again);
    assert_eq!(AttributesUnderWay::decode(&again), Some(under_way));
});
