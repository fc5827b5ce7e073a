//! Proves that fuzzing can find something: a planted bug behind comparisons that random bytes
//! pass once in 2^90 times, and that coverage feedback passes one by one. `run.sh canary` fails
//! unless it is found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_xdr::{Reader, XdrError};

fn planted(bytes: &[u8]) -> Result<(), XdrError> {
    let mut r = Reader::new(bytes);
    if r.u32()? != 100_003 {
        return Ok(());
    }
    if r.u32()? != 3 {
        return Ok(());
    }
    let handle = r.opaque(64)?;
    assert!(handle.len() != 8, "the canary was found");
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = planted(bytes);
});
