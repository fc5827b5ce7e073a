//! Unit ring: what has to be broken within a journal.
#![allow(clippy::unwrap_used)]

use steadfast_intent_log::testing::MemoryMedium;

use super::*;
use crate::record::Change;

#[test]
fn a_record_that_gets_no_frame_is_not_promised() {
    let medium = Arc::new(MemoryMedium::new(RING_OFFSET as usize + 64 * BLOCK_BYTES));
    let options = Options::new("server", "/share");
    let (journal, _) = Journal::on_medium(medium, &options, [7; 16]).unwrap();
    let change = Change::Write { file: b"f", offset: 0, data: b"data" };
    let record =
        Record { time_ns: 1, uid: 0, gid: 0, groups: &[], order: None, path: b"/f", change };
    let sequence = journal.append_growing(&record).unwrap();
    journal.state.lock().growing.as_mut().unwrap().spoil();
    assert!(journal.sync(sequence).is_err());
}
