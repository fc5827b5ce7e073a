//! The file that tells which clients have state, as a power cut or a failing disk leaves it: whatever
//! it has comes to records that are written and read again as they are, and to a state that tells
//! the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_state::{ClientRecords, Settings, State};

fn check(records: &ClientRecords) {
    assert_eq!(ClientRecords::read_file(&records.file()).as_ref(), Ok(records));
    let state = State::new(Settings::new(1));
    state.restore_records(0, records);
    let is_in_grace = state.is_in_grace(0);
    assert_eq!(is_in_grace, state.reclaiming_clients() > 0);
    state.tick(1_000_000);
    assert!(!state.is_in_grace(1_000_000));
    let (mut left, mut events) = (records.clone(), Vec::new());
    state.take_records(&mut events);
    left.add(&events).expect("what a state tells are events");
    assert!(left.is_empty(), "nobody has come");
}

fuzz_target!(|input: &[u8]| {
    if let Ok(records) = ClientRecords::read_file(input) {
        check(&records);
    }
    let mut records = ClientRecords::default();
    let is_whole = records.add(input).is_ok();
    check(&records);
    // The same events in frames, of which the last is cut off.
    let mut file = ClientRecords::default().file();
    file.extend(ClientRecords::frame(2, input));
    let read = ClientRecords::read_file(&file);
    assert_eq!(read.as_ref().ok(), is_whole.then_some(&records));
    file.pop();
    // What is left of it may have a whole frame in it.
    if let Ok(read) = ClientRecords::read_file(&file) {
        assert!(read.is_empty());
    }
});
