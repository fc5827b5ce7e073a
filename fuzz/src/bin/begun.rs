//! Marks of calls that had begun when the server was killed: whatever the bytes of their file, what is
//! read of them is written alike, and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_intent_log::begun::{BegunFile, begin_mark, end_mark, write_begun_head};
use steadfast_recovery::BegunCall;

/// What the marks of a file are.
fn check(bytes: &[u8]) {
    let Some(found) = BegunFile::new(bytes) else { return };
    let (run, tag) = (found.run, found.tag());
    let payloads: Vec<_> = found.collect();
    let mut again = Vec::new();
    write_begun_head(&mut again, &run, tag);
    for payload in &payloads {
        let mut entry = Vec::new();
        begin_mark(&mut entry);
        entry.extend_from_slice(payload);
        assert!(end_mark(&mut entry, tag));
        again.extend_from_slice(&entry);
        check_call(payload);
    }
    assert!(again.len() <= bytes.len() + 63);
    assert!(BegunFile::new(&again).expect("it was just written").eq(payloads));
}

fn check_call(payload: &[u8]) {
    let Some(call) = BegunCall::decode(payload) else { return };
    let mut again = Vec::new();
    call.encode(&mut again);
    assert_eq!(BegunCall::decode(&again), Some(call));
}

fuzz_target!(|bytes: &[u8]| {
    check_call(bytes);
    check(bytes);
    // Behind a head that is right, which is seldom found.
    let mut file = Vec::new();
    write_begun_head(&mut file, &[b'r'; 36], *b"fuzztag!");
    file.extend_from_slice(bytes);
    check(&file);
});
