//! Unit ring: what is noted beside the records: the server's answers, and changes around the journal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use common::{medium, open, open_image, options, pending, record, write};
use steadfast_intent_log::testing::Fault;
use steadfast_journal::{
    AppendError, Attributes, Change, Journal, Options, Outcome, Sequence, Stamp, Time,
};

const ALL: Sequence = Sequence(u64::MAX);

fn stamp(seconds: i64) -> Stamp {
    let changed = Time { seconds, nanoseconds: 5 };
    Stamp { size: 100, modified: Time::default(), changed }
}

fn after(seconds: i64) -> Outcome {
    Outcome { before: Some(stamp(0)), after: Some(stamp(seconds)), ..Outcome::default() }
}

#[test]
fn the_newest_stamp_of_an_object_is_known_while_it_has_records() {
    let medium = medium(64);
    let (journal, _) = open(&medium);
    let first = journal.append(&write(b"f", 0, b"one")).unwrap();
    let second = journal.append(&write(b"f", 10, b"two")).unwrap();
    assert_eq!(journal.last_stamp(b"f"), None);
    journal.note_outcome(second, after(20)).unwrap();
    // Answers come in any order.
    journal.note_outcome(first, after(10)).unwrap();
    assert_eq!(journal.last_stamp(b"f"), Some(stamp(20)));
    assert_eq!(journal.pending()[0].outcome, Some(after(10)));
    journal.sync(ALL).unwrap();
    let third = journal.append(&write(b"f", 20, b"three")).unwrap();
    journal.sync(ALL).unwrap();
    journal.stable([first, second]);
    // The record that had the stamp leaves, and its place is written over again and again.
    for round in 0..200 {
        let sequence = journal.append(&write(b"g", round * 10_000, &[1; 9000])).unwrap();
        journal.sync(sequence).unwrap();
        journal.stable([sequence]);
        if round % 7 == 0 {
            let (again, _) = open_image(medium.image());
            assert_eq!(again.last_stamp(b"f"), Some(stamp(20)), "round {round}");
        }
        // The oldest record moves, so that the ring goes round.
        if round % 3 == 0 {
            journal.stable(journal.pending_of(b"f").iter().map(|one| one.sequence));
            assert_eq!(journal.last_stamp(b"f"), None);
            let next = journal.append(&write(b"f", 20, b"three")).unwrap();
            journal.note_outcome(next, after(20)).unwrap();
            let last = journal.append(&write(b"f", 30, b"four")).unwrap();
            journal.sync(last).unwrap();
            journal.stable([next]);
        }
    }
    assert!(third < ALL);
    journal.close().unwrap();
    let (again, _) = open(&medium);
    assert_eq!(again.last_stamp(b"f"), Some(stamp(20)));
    assert_eq!(again.last_stamp(b"g"), None);
}

#[test]
fn a_stamp_is_carried_when_the_tail_passes_it() {
    let medium = medium(64);
    let (journal, _) = open(&medium);
    let first = journal.append(&write(b"f", 0, b"one")).unwrap();
    journal.note_outcome(first, after(7)).unwrap();
    journal.sync(ALL).unwrap();
    let second = journal.append(&write(b"f", 10, b"two")).unwrap();
    journal.sync(second).unwrap();
    journal.stable([first]);
    // The tail is behind the frame of the stamp now.
    journal.maintain().unwrap();
    let (again, _) = open_image(medium.image());
    assert_eq!(pending(&again), [second]);
    assert_eq!(again.last_stamp(b"f"), Some(stamp(7)));
}

#[test]
fn all_handles_of_what_was_made_are_known_in_order() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    let attributes = Attributes::default();
    let change = Change::Mkdir { parent: b"d", name: b"n", attributes };
    let made = journal.append(&record(b"/d/n", change)).unwrap();
    for handle in [b"old".as_slice(), b"new", b"new", b""] {
        let outcome = Outcome { handle: handle.to_vec(), ..Outcome::default() };
        journal.note_outcome(made, outcome).unwrap();
    }
    let is_known = |journal: &Journal| {
        let pending = &journal.pending()[0];
        let handles: Vec<&[u8]> = pending.handles.iter().map(AsRef::as_ref).collect();
        assert_eq!(handles, [b"old".as_slice(), b"new"]);
        assert_eq!(*pending.groups, [100, 27]);
        let stored = journal.read(made).unwrap().unwrap();
        assert_eq!(stored.record().groups, [100, 27]);
    };
    is_known(&journal);
    journal.sync(ALL).unwrap();
    is_known(&open_image(medium.image()).0);
}

fn doubts(journal: &Journal) -> Vec<bool> {
    journal.pending().iter().map(|one| one.may_be_superseded).collect()
}

#[test]
fn a_change_around_a_full_ring_is_marked_for_its_object() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    assert_eq!(journal.bypass(b"f"), Ok(()));
    let mut count = 0;
    for file in [b"f", b"g"].into_iter().cycle() {
        match journal.append(&write(file, count * 5000, &[1; 5000])) {
            Ok(_) => count += 1,
            Err(AppendError::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let writes = || medium.writes();
    journal.sync(ALL).unwrap();
    let before = writes();
    // What has no records needs no mark; a mark is enough until there are newer records.
    journal.bypass(b"h").unwrap();
    assert_eq!(writes(), before);
    journal.bypass(b"f").unwrap();
    assert!(writes() > before);
    let before = writes();
    journal.bypass(b"f").unwrap();
    assert_eq!(writes(), before);
    let expected: Vec<bool> = journal.pending().iter().map(|one| *one.path == *b"f").collect();
    assert_eq!(doubts(&journal), expected);
    let (again, recovered) = open_image(medium.image());
    assert!(recovered.was_bypassed);
    assert_eq!(doubts(&again), expected);
    // No room is left for another frame: all are marked.
    journal.bypass(b"g").unwrap();
    assert!(doubts(&journal).iter().all(|is| *is));
    let (again, recovered) = open_image(medium.image());
    assert!(recovered.was_bypassed && doubts(&again).iter().all(|is| *is));
    // Newer ones are not.
    again.stable(pending(&again));
    again.append(&write(b"f", 0, b"new")).unwrap();
    assert_eq!(doubts(&again), [false]);
    again.close().unwrap();
}

#[test]
fn a_change_around_a_ring_that_has_failed_is_marked() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    let first = journal.append(&write(b"f", 0, b"first")).unwrap();
    journal.sync(first).unwrap();
    let second = journal.append(&write(b"f", 3, b"second")).unwrap();
    medium.fault_at(0, Fault::Fail(0));
    assert!(journal.sync(second).is_err());
    assert_eq!(journal.bypass(b"f"), Ok(()));
    let (again, recovered) = open_image(medium.image());
    assert!(recovered.was_bypassed);
    assert_eq!(pending(&again), [first]);
    assert_eq!(doubts(&again), [true]);
    // Nowhere.
    let other = common::medium(16);
    let (journal, _) = open(&other);
    let first = journal.append(&write(b"f", 0, b"first")).unwrap();
    journal.sync(first).unwrap();
    for write in 0..4 {
        other.fault_at(write, Fault::Fail(0));
    }
    assert!(journal.bypass(b"f").is_err());
}

/// The ring is unwritable, its directory is not.
#[test]
fn a_file_beside_the_ring_marks_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { ring_bytes: 1 << 20, ..options() };
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    let sequence = journal.append(&write(b"f", 0, b"first")).unwrap();
    journal.sync(sequence).unwrap();
    journal.close().unwrap();
    std::fs::write(directory.path().join("bypassed"), b"").unwrap();
    for is_closed in [false, true] {
        let (journal, recovered) = Journal::open(directory.path(), &options).unwrap();
        assert!(recovered.was_bypassed, "{is_closed}");
        assert_eq!(doubts(&journal), [true]);
        assert!(!directory.path().join("bypassed").exists());
        if is_closed {
            journal.close().unwrap();
        }
    }
}
