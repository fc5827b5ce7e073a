//! Unit ring: the journal in use: full, failing, shared by threads, in a directory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{medium, open, open_image, options, pending, truncate, write};
use steadfast_intent_log::testing::{Fault, MemoryMedium};
use steadfast_intent_log::{Block, Medium, MediumError};
use steadfast_journal::{
    AppendError, Change, Content, Journal, OpenError, Options, Outcome, RING_OFFSET, Record,
    Sequence, Settled, Stamp, care,
};

#[test]
fn a_full_ring_refuses_and_drops_nothing() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    let data = vec![1; 5000];
    let mut appended = Vec::new();
    let refused = loop {
        match journal.append(&write(b"f", appended.len() as u64 * 5000, &data)) {
            Ok(sequence) => appended.push(sequence),
            Err(error) => break error,
        }
    };
    let AppendError::Full { must_leave_bytes, wanted_bytes } = refused else { panic!("{refused}") };
    assert!(must_leave_bytes > 0 && wanted_bytes > 5000);
    assert_eq!(pending(&journal), appended);
    assert!(!journal.wait_for_room(5000, Duration::from_millis(5)));
    // One in the middle gives no room, as it is not at the tail.
    journal.sync(appended[3]).unwrap();
    journal.stable([appended[3]]);
    assert!(journal.append(&write(b"g", 0, &data)).is_err());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| journal.wait_for_room(5000, Duration::from_secs(60)));
        journal.stable([appended[0], appended[1]]);
        assert!(waiting.join().unwrap());
    });
    journal.append(&write(b"g", 0, &data)).unwrap();
    let status = journal.status();
    assert_eq!((status.statistics.full_waits, status.statistics.left_records), (2, 3));
    let (load, left) = (journal.load(), pending(&journal));
    assert_eq!(load.oldest.map(|(sequence, _)| sequence), left.first().copied());
    assert_eq!((load.pending_records, load.used_bytes), (left.len() as u64, status.used_bytes));
    assert_eq!(load.pending_bytes, (left.len() * data.len()) as u64);
    let large = vec![0; 1 << 20];
    let refused = journal.append(&write(b"g", 0, &large));
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })), "{refused:?}");
}

/// What is done with a journal, and the record that may grow.
type Act<'a> = &'a dyn Fn(&Journal, Sequence);

#[test]
fn writes_that_follow_each_other_are_one_record_until_it_is_flushed_or_anything_else_is_done() {
    let medium = medium(64);
    let (journal, _) = open(&medium);
    let first = journal.append_growing(&write(b"f", 10, b"ab")).unwrap();
    assert!(journal.grow(first, &write(b"f", 12, b"cd")));
    for (other, why) in [
        (write(b"f", 13, b"x"), "not where it ends"),
        (write(b"g", 14, b"x"), "another file"),
        (Record { uid: 7, ..write(b"f", 14, b"x") }, "another user"),
        (Record { groups: &[1], ..write(b"f", 14, b"x") }, "other groups"),
    ] {
        assert!(!journal.grow(first, &other), "{why}");
    }
    assert!(!journal.grow(Sequence(first.0 - 1), &write(b"f", 14, b"x")), "another record");
    assert!(journal.grow(first, &write(b"f", 14, b"ef")));
    journal.sync(first).unwrap();
    assert!(!journal.grow(first, &write(b"f", 16, b"x")), "it was promised");
    // Each of these ends it: a later change comes after it, and nothing of it is missed.
    let acts: [Act<'_>; 7] = [
        &|journal, _| assert!(journal.append(&write(b"g", 0, b"x")).is_ok()),
        &|journal, _| assert!(journal.append_growing(&write(b"g", 0, b"x")).is_ok()),
        &|journal, _| assert!(journal.append(&truncate(b"f", 3)).is_ok()),
        &|journal, of| journal.note_outcome(of, Outcome::default()).unwrap(),
        &|journal, _| journal.maintain().unwrap(),
        &|journal, of| journal.settled([of], Settled::Refused),
        &|journal, of| assert!(pending(journal).contains(&of)),
    ];
    for (number, act) in acts.iter().enumerate() {
        let growing = journal.append_growing(&write(b"f", 100, b"ab")).unwrap();
        act(&journal, growing);
        assert!(!journal.grow(growing, &write(b"f", 102, b"x")), "{number}");
    }
    drop(journal);
    let (journal, _) = open(&medium);
    let stored = journal.read(first).unwrap().unwrap();
    assert_eq!(stored.record().change, write(b"f", 10, b"abcdef").change);
}

#[test]
fn much_is_written_though_nobody_syncs() {
    let medium = medium(2048);
    let (journal, _) = open(&medium);
    std::thread::scope(|scope| {
        let ahead = scope.spawn(|| journal.write_ahead(Duration::from_secs(60)));
        for number in 0..11 {
            assert!(!ahead.is_finished());
            journal.append(&write(b"f", number * 100_000, &vec![1; 100_000])).unwrap();
        }
        ahead.join().unwrap().unwrap();
    });
    assert_eq!(journal.status().statistics.flushes, 1);
    journal.append(&write(b"f", 0, b"little")).unwrap();
    journal.write_ahead(Duration::from_millis(1)).unwrap();
    assert_eq!(journal.status().statistics.flushes, 1);
}

#[test]
fn a_record_does_not_grow_beyond_a_bound_nor_beyond_the_room() {
    for (blocks, most) in [(1024, 256 << 10), (16, 14 * 4096)] {
        let medium = medium(blocks);
        let (journal, _) = open(&medium);
        let data = [7; 1000];
        let mut end = 1000;
        let record = journal.append_growing(&write(b"f", 0, &data)).unwrap();
        while journal.grow(record, &write(b"f", end, &data)) {
            end += 1000;
        }
        assert!(end <= most && end + 2 * 4096 > most, "{end} of {most}");
        journal.sync(record).unwrap();
        drop(journal);
        let (journal, _) = open(&medium);
        let overlays = journal.read_pending(b"f", 0..u64::MAX).unwrap();
        assert!(
            matches!(&overlays[..], [one] if one.content == Content::Data(vec![7; end as usize]))
        );
    }
}

#[test]
fn a_ring_goes_round_for_ever_while_records_leave() {
    let medium = medium(8);
    let (journal, _) = open(&medium);
    for round in 0..2000u64 {
        let sequence = journal.append(&write(b"f", round * 10, &[round as u8; 1500])).unwrap();
        if round % 3 == 0 {
            journal.sync(sequence).unwrap();
        }
        journal.stable([sequence]);
    }
    // The same bytes again and again: superseded ones leave with the one that the server has.
    for round in 0..2000u64 {
        let sequence = journal.append(&write(b"f", 0, &[round as u8; 1500]));
        let sequence = sequence.expect("what is superseded makes room");
        journal.sync(sequence).unwrap();
        if round % 3 == 2 {
            assert_eq!(pending(&journal), [sequence]);
            journal.stable([sequence]);
        }
    }
    assert_eq!(pending(&journal).len(), 1);
    // One that is superseded waits for the one that the server does not have yet.
    let load = journal.load();
    assert_eq!((load.pending_records, load.pending_bytes), (2, 2 * 1500));
    let statistics = journal.status().statistics;
    assert_eq!(statistics.superseded_bytes, (2000 - 2000 / 3 - 1) * 1500);
}

#[test]
fn a_medium_that_fails_is_told_and_what_was_stable_is_readable() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    let first = journal.append(&write(b"f", 0, b"first")).unwrap();
    journal.sync(first).unwrap();
    let second = journal.append(&write(b"f", 3, b"second")).unwrap();
    medium.fault_at(0, Fault::Fail(0));
    assert!(journal.sync(second).is_err());
    let refused = journal.append(&write(b"f", 0, b"third"));
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    assert!(journal.status().failed.is_some());
    assert!(journal.sync(first).is_ok(), "that was stable before");
    let bytes: Vec<u8> = journal
        .read_pending(b"f", 0..100)
        .unwrap()
        .into_iter()
        .flat_map(|overlay| match overlay.content {
            Content::Data(data) => data,
            Content::Zeros(_) => Vec::new(),
        })
        .collect();
    assert_eq!(bytes, b"firsecond");
    assert_eq!(pending(&journal), [first, second]);
    assert!(!journal.wait_for_room(10, Duration::from_secs(60)));
    assert!(journal.maintain().is_err() && journal.close().is_err());
}

#[test]
fn threads_append_and_sync_at_the_same_time() {
    let medium = medium(4096);
    let (journal, _) = open(&medium);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let journal = &journal;
            scope.spawn(move || {
                for round in 0..50 {
                    let (file, data) = ([thread], [thread; 100]);
                    let sequence = journal.append(&write(&file, round * 100, &data)).unwrap();
                    journal.sync(sequence).unwrap();
                    assert!(journal.status().stable >= sequence);
                    if round % 2 == 0 {
                        journal.stable([sequence]);
                    }
                }
            });
        }
    });
    assert_eq!(journal.status().pending_objects, 8);
    let (again, recovered) = open_image(medium.image());
    assert!(recovered.damage.is_empty());
    let found = pending(&again);
    assert!(pending(&journal).iter().all(|sequence| found.contains(sequence)));
}

/// A medium whose writes wait until a gate is open.
struct Gated {
    medium: Arc<MemoryMedium>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Medium for Gated {
    fn bytes(&self) -> u64 {
        self.medium.bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [Block]) -> Result<(), MediumError> {
        self.medium.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[Block]) -> Result<(), MediumError> {
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap();
        }
        self.medium.write_at(offset, from)
    }
}

/// However they meet: what is appended while a flush is under way shares the next one.
#[test]
fn threads_share_flushes() {
    const THREADS: u8 = 16;
    let opened = Condvar::new();
    let gated = Arc::new(Gated { medium: medium(256), is_open: Mutex::new(true), opened });
    let medium = Arc::clone(&gated) as Arc<dyn Medium>;
    let (journal, _) = Journal::on_medium(medium, &options(), [7; 16]).unwrap();
    let before = journal.status().statistics.flushes;
    *gated.is_open.lock().unwrap() = false;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || {
                let sequence = journal.append(&write(&[thread], 0, &[thread; 100])).unwrap();
                journal.sync(sequence).unwrap();
            });
        }
        // One of them is writing, and all have appended.
        while journal.status().statistics.records < u64::from(THREADS) {
            std::thread::yield_now();
        }
        *gated.is_open.lock().unwrap() = true;
        gated.opened.notify_all();
    });
    let flushes = journal.status().statistics.flushes - before;
    assert!((1..=2).contains(&flushes), "{flushes} flushes of {THREADS} threads");
}

#[test]
fn outcomes_and_options_outlive_a_crash() {
    let medium = medium(16);
    let (journal, _) = open(&medium);
    let attributes = steadfast_journal::Attributes::default();
    let change = Change::Create { parent: b"d", name: b"n", verifier: [1; 8], attributes };
    let created = journal.append(&common::record(b"/d/n", change)).unwrap();
    let outcome = Outcome {
        handle: b"new".to_vec(),
        order: Some(5),
        verifier: Some([2; 8]),
        before: None,
        after: Some(Stamp { size: 7, ..Stamp::default() }),
    };
    journal.note_outcome(created, outcome.clone()).unwrap();
    journal.sync(Sequence(u64::MAX)).unwrap();
    let (again, recovered) = open_image(medium.image());
    assert_eq!(again.pending_of(b"d")[0].outcome, Some(outcome));
    assert!(!recovered.was_clean);
    assert_eq!(recovered.previous_mount_options, b"rw");
}

#[test]
fn a_truncation_hides_what_is_behind_it() {
    let (journal, _) = open(&medium(16));
    let written = journal.append(&write(b"f", 0, &[7; 100])).unwrap();
    journal.append(&truncate(b"f", 40)).unwrap();
    let overlays = journal.read_pending(b"f", 30..60).unwrap();
    let found: Vec<_> = overlays.iter().map(|it| (it.offset, it.content.clone())).collect();
    assert_eq!(found, [(30, Content::Data(vec![7; 10])), (40, Content::Zeros(20))]);
    let sent = journal.pending_of(b"f");
    assert_eq!(sent[0].sequence, written);
    assert_eq!((sent[0].ranges.len(), &sent[0].ranges[0]), (1, &(0..40)));
}

fn in_directory() -> (tempfile::TempDir, Options) {
    let options = Options { ring_bytes: 1 << 20, ..options() };
    (tempfile::tempdir().unwrap(), options)
}

#[test]
fn one_process_has_a_journal_and_others_look() {
    let (directory, options) = in_directory();
    let (journal, recovered) = Journal::open(directory.path(), &options).unwrap();
    assert!(recovered.is_new);
    let sequence = journal.append(&write(b"f", 0, b"data")).unwrap();
    journal.sync(sequence).unwrap();
    let refused = Journal::open(directory.path(), &options).unwrap_err();
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    assert!(matches!(care::discard(directory.path(), None), Err(OpenError::InUse { .. })));
    assert!(matches!(care::verify(directory.path()), Err(OpenError::InUse { .. })));
    let look = care::look(directory.path()).unwrap();
    assert!(look.owner.is_some() && !look.is_clean);
    assert_eq!((look.pending.len(), look.damage.len()), (1, 0));
    journal.close().unwrap();
    let other = Options { share: b"/other".to_vec(), ..options.clone() };
    let refused = Journal::open(directory.path(), &other).unwrap_err();
    assert!(matches!(refused, OpenError::OtherShare { .. }), "{refused}");
    let verified = care::verify(directory.path()).unwrap();
    assert_eq!((verified.checked_records, verified.damaged.len()), (1, 0));
    assert!(verified.manifest.is_whole && verified.manifest.different.is_empty());
    assert!(verified.look.owner.is_none() && verified.look.is_clean);
}

#[test]
fn a_manifest_names_what_the_ring_has_lost() {
    let (directory, options) = in_directory();
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    for name in [b"a".as_slice(), b"b", b"c"] {
        let sequence = journal.append(&write(name, 0, &[1; 50])).unwrap();
        journal.sync(sequence).unwrap();
    }
    journal.maintain().unwrap();
    journal.close().unwrap();
    let ring = directory.path().join("ring");
    let mut bytes = std::fs::read(&ring).unwrap();
    bytes[RING_OFFSET as usize + 4096 + 100] ^= 1;
    std::fs::write(&ring, bytes).unwrap();
    let verified = care::verify(directory.path()).unwrap();
    assert_eq!(verified.look.damage.len(), 1);
    let [lost] = verified.manifest.lost.as_slice() else { panic!("{verified:?}") };
    assert!(lost.text.ends_with("\tb"), "{lost:?}");
    let manifest = directory.path().join("manifest");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\t50\t", "\t51\t")).unwrap();
    let found = care::verify(directory.path()).unwrap().manifest;
    assert!(!found.is_whole && found.different.len() == 2, "{found:?}");
}

#[test]
fn what_is_discarded_is_gone_and_the_rest_stays() {
    let (directory, options) = in_directory();
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    for name in [b"a".as_slice(), b"b", b"a"] {
        journal.append(&write(name, 10, b"x")).unwrap();
        journal.append(&truncate(name, 5)).unwrap();
    }
    journal.close().unwrap();
    let discarded = care::discard(directory.path(), Some(b"a")).unwrap();
    assert!(discarded.iter().all(|one| *one.path == *b"a") && !discarded.is_empty());
    let rest = care::look(directory.path()).unwrap().pending;
    assert!(rest.iter().all(|one| *one.path == *b"b") && !rest.is_empty());
    assert_eq!(care::discard(directory.path(), None).unwrap().len(), rest.len());
    assert_eq!(care::look(directory.path()).unwrap().pending.len(), 0);
}

/// An empty ring in the place of one whose disk is not there would hide what is pending.
#[test]
fn a_ring_that_cannot_be_seen_is_not_replaced() {
    let (directory, options) = in_directory();
    let at = directory.path();
    for is_new in [true, false] {
        let (journal, recovered) = Journal::open(at, &options).unwrap();
        assert_eq!(recovered.is_new, is_new);
        journal.close().unwrap();
    }
    let ring = at.join("ring");
    std::fs::remove_file(&ring).unwrap();
    std::os::unix::fs::symlink(at.join("of a disk that is not there"), &ring).unwrap();
    assert!(Journal::open(at, &options).is_err());
    assert!(ring.is_symlink());
}

/// Whoever prints the status waits for nobody who waits for it.
#[test]
fn the_status_is_told_while_the_manifest_is_written() {
    let (directory, options) = in_directory();
    let options = Options { manifest_interval: Duration::ZERO, ..options };
    let (journal, _) = Journal::open(directory.path(), &options).unwrap();
    let journal = Arc::new(journal);
    let (tell, told) = std::sync::mpsc::channel();
    for is_status in [true, false] {
        let (journal, tell) = (Arc::clone(&journal), tell.clone());
        std::thread::spawn(move || {
            for round in 0..200_000 {
                if is_status {
                    journal.status();
                } else {
                    if round % 2000 == 0 {
                        let sequence = journal.append(&write(b"f", 0, b"x")).unwrap();
                        journal.stable([sequence]);
                    }
                    journal.maintain().unwrap();
                }
            }
            let _ = tell.send(());
        });
    }
    for _ in 0..2 {
        told.recv_timeout(Duration::from_secs(60)).expect("neither waits for the other");
    }
}
