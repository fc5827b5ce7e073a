//! A record of the intent log from the change on: what is read is written alike, but for what is not
//! told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_recovery::Change;

fuzz_target!(|bytes: &[u8]| {
    let Ok((change, behind)) = Change::decode(bytes) else { return };
    assert!(bytes.ends_with(behind));
    let mut again = Vec::new();
    change.encode(&mut again);
    assert_eq!(again, bytes[..bytes.len() - behind.len()]);
    assert!(again.len() <= change.encoded_bytes_max());
    let (read, rest) = Change::decode(&again).expect("what was written is read");
    assert!(rest.is_empty());
    assert_eq!(read, change);
});
