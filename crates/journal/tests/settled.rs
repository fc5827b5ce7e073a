//! Unit ring: what leaves, and what comes back when the server refuses a change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, of which some have one")]

mod common;

use std::ops::Range;

use common::{medium, open, open_image, options, pending, truncate, write};
use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::{Content, Journal, OpenError, Options, Sequence, Settled, care};

const ALL: Sequence = Sequence(u64::MAX);

fn ranges(journal: &Journal) -> Vec<(u64, Vec<Range<u64>>)> {
    journal.pending().into_iter().map(|one| (one.sequence.0, one.ranges)).collect()
}

/// A journal as it is after a crash.
fn after_crash(journal: &Journal, medium: &MemoryMedium) -> Journal {
    journal.maintain().unwrap();
    open_image(medium.image()).0
}

#[test]
fn a_superseded_write_is_pending_again_if_the_later_one_is_refused() {
    let medium = medium(64);
    let (journal, _) = open(&medium);
    let old = journal.append(&write(b"f", 10, &[1; 50])).unwrap();
    let new = journal.append(&write(b"f", 0, &[2; 100])).unwrap();
    journal.sync(ALL).unwrap();
    assert_eq!(pending(&journal), [new]);
    // A crash in between changes nothing.
    let journals = [after_crash(&journal, &medium), journal];
    for journal in journals {
        assert_eq!(pending(&journal), [new]);
        journal.settled([new], Settled::Refused);
        assert_eq!(ranges(&journal), [(old.0, vec![10..60])]);
        let overlay = journal.read_pending(b"f", 0..100).unwrap();
        assert_eq!(overlay.len(), 1);
        assert_eq!(overlay[0].content, Content::Data(vec![1; 50]));
        assert_eq!(journal.status().statistics.superseded_bytes, 0);
    }
    // Nor does one that comes after.
    let (journal, _) = open(&medium);
    journal.settled([new], Settled::Refused);
    assert_eq!(ranges(&after_crash(&journal, &medium)), [(old.0, vec![10..60])]);
    journal.settled([old], Settled::Stable);
    assert_eq!(journal.status().pending_records, 0);
    assert_eq!(after_crash(&journal, &medium).status().pending_records, 0);
}

#[test]
fn a_superseded_write_leaves_when_the_server_has_the_later_one() {
    let medium = medium(64);
    let (journal, _) = open(&medium);
    journal.append(&write(b"f", 10, &[1; 50])).unwrap();
    let new = journal.append(&write(b"f", 0, &[2; 100])).unwrap();
    journal.sync(ALL).unwrap();
    assert_eq!(journal.status().pending_records, 2);
    journal.stable([new]);
    assert_eq!(journal.status().pending_records, 0);
    assert_eq!(after_crash(&journal, &medium).status().pending_records, 0);
}

/// The part that was cut may have been sent never.
#[test]
fn a_write_that_was_cut_stays_until_the_cutter_is_settled() {
    for is_truncation in [true, false] {
        let medium = medium(64);
        let (journal, _) = open(&medium);
        let old = journal.append(&write(b"f", 0, &[1; 100])).unwrap();
        let cutter = if is_truncation { truncate(b"f", 40) } else { write(b"f", 40, &[2; 100]) };
        let cutter = journal.append(&cutter).unwrap();
        journal.sync(ALL).unwrap();
        journal.stable([old]);
        assert_eq!(pending(&journal), [cutter]);
        let again = after_crash(&journal, &medium);
        assert_eq!(pending(&again), [cutter]);
        again.settled([cutter], Settled::Refused);
        assert_eq!(ranges(&again), [(old.0, vec![40..100])]);
        journal.stable([cutter]);
        assert_eq!(journal.status().pending_records, 0);
    }
}

#[test]
fn what_the_server_has_does_not_come_back() {
    let medium = medium(64);
    let (journal, _) = open(&medium);
    let first = journal.append(&write(b"f", 0, &[1; 100])).unwrap();
    let second = journal.append(&write(b"f", 20, &[2; 60])).unwrap();
    let third = journal.append(&write(b"f", 50, &[3; 100])).unwrap();
    journal.sync(ALL).unwrap();
    journal.stable([second]);
    let journals = [after_crash(&journal, &medium), journal];
    for journal in journals {
        assert_eq!(pending(&journal), [first, third]);
        journal.settled([third], Settled::Refused);
        // Of the second the server has what was its own; of the first, the rest.
        let expected = [(first.0, vec![0..20, 80..100]), (second.0, vec![50..80])];
        assert_eq!(ranges(&journal), expected);
    }
    // A truncation is done as a whole.
    let (journal, _) = open(&common::medium(64));
    let first = journal.append(&write(b"f", 0, &[1; 100])).unwrap();
    let cut = journal.append(&truncate(b"f", 40)).unwrap();
    let last = journal.append(&write(b"f", 60, &[3; 20])).unwrap();
    journal.stable([cut]);
    journal.settled([last], Settled::Refused);
    assert_eq!(ranges(&journal), [(first.0, vec![0..40])]);
}

/// What cannot be noted is pending again after a crash: then the journal is not closed in order.
#[test]
fn closing_tells_that_what_has_left_could_not_be_noted() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    journal.append(&write(b"first", 0, &[1; 100])).unwrap();
    journal.sync(ALL).unwrap();
    let mut sequences = Vec::new();
    while let Ok(sequence) = journal.append(&write(b"f", sequences.len() as u64 * 1000, &[1; 900]))
    {
        sequences.push(sequence);
    }
    journal.sync(ALL).unwrap();
    // Each frame that says what has left takes a block of the reserve, until there is none.
    let (last, others) = sequences.split_last().unwrap();
    for sequence in others {
        journal.stable([*sequence]);
        journal.maintain().unwrap();
    }
    journal.stable([*last]);
    let left = pending(&journal).len();
    let refused = journal.close().unwrap_err();
    assert!(refused.to_string().contains("pending again"), "{refused}");
    let (again, recovered) = open(&medium);
    assert!(recovered.was_clean && pending(&again).len() > left);
}

fn in_directory() -> (tempfile::TempDir, Options) {
    (tempfile::tempdir().unwrap(), Options { ring_bytes: 1 << 20, ..options() })
}

#[test]
fn a_journal_is_read_without_a_write() {
    let (directory, options) = in_directory();
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    let sequence = journal.append(&write(b"f", 0, b"data")).unwrap();
    journal.sync(sequence).unwrap();
    let refused = Journal::open_read_only(directory.path());
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    journal.close().unwrap();
    std::fs::remove_file(directory.path().join("lock")).unwrap();
    let files = || {
        let mut found: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        found.sort();
        found
    };
    let before = files();
    let (journal, recovered) = Journal::open_read_only(directory.path()).unwrap();
    assert!(recovered.was_clean);
    assert_eq!(pending(&journal), [sequence]);
    assert!(journal.read(sequence).unwrap().is_some());
    assert!(journal.append(&write(b"f", 0, b"more")).is_err());
    assert!(journal.bypass(b"f").is_err());
    journal.stable([sequence]);
    assert!(journal.pending().is_empty());
    journal.close().unwrap();
    assert_eq!(care::verify(directory.path()).unwrap().checked_records, 1);
    assert_eq!(care::look(directory.path()).unwrap().pending.len(), 1);
    assert_eq!(files(), before);
}

#[test]
fn a_fifo_in_the_place_of_a_file_is_refused_at_once() {
    let (directory, options) = in_directory();
    for name in ["ring", "lock"] {
        let (journal, _) = Journal::open(directory.path(), &options).unwrap();
        journal.close().unwrap();
        let path = directory.path().join(name);
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(care::look(directory.path()).is_err(), "{name}");
        assert!(care::verify(directory.path()).is_err(), "{name}");
        assert!(Journal::open(directory.path(), &options).is_err(), "{name}");
        std::fs::remove_file(&path).unwrap();
    }
}

/// A superblock that says 32 GiB does not fill the disk.
#[test]
fn a_ring_that_was_cut_off_is_not_made_longer_than_is_usual() {
    let (directory, options) = in_directory();
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    journal.close().unwrap();
    let ring = directory.path().join("ring");
    let mut bytes = std::fs::read(&ring).unwrap();
    bytes.truncate(8192);
    bytes[56..64].copy_from_slice(&(32u64 << 30).to_le_bytes());
    bytes.resize(3 * 4096, 0);
    steadfast_journal::testing::seal(&mut bytes);
    std::fs::write(&ring, &bytes).unwrap();
    let refused = Journal::open(directory.path(), &options).unwrap_err();
    assert!(matches!(refused, OpenError::CutOff { .. }), "{refused}");
    assert_eq!(std::fs::metadata(&ring).unwrap().len(), bytes.len() as u64);
}

#[test]
fn a_path_is_discarded_as_it_is_shown() {
    let (directory, options) = in_directory();
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    for name in [b"/a\n".as_slice(), b"/b\n"] {
        journal.append(&write(name, 0, b"x")).unwrap();
    }
    journal.close().unwrap();
    assert_eq!(care::discard(directory.path(), Some(b"/a\\x0a")).unwrap().len(), 1);
    assert_eq!(care::discard(directory.path(), Some(b"/b\n")).unwrap().len(), 1);
}
