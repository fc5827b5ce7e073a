//! Unit ring: leaving a log and going on with it, with a crash at every step of that.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

mod common;

use common::{HOST, commit, found, new_log, put, superblock};
use steadfast_intent_log::recovery::{Decision, Known, Observed, decide};
use steadfast_intent_log::testing::{Fault, MemoryMedium};
use steadfast_intent_log::{
    BLOCK_BYTES, Batch, IntentLog, RenewError, Superblock, inspect, survey,
};

fn decision(medium: &MemoryMedium, known: Known) -> Decision {
    let facts = inspect(medium);
    let found = facts.superblock().map(|superblock| survey(medium, superblock));
    decide(&Observed::new(&facts, found.as_ref(), 0, known, &HOST, |_| true)).1
}

/// A log with records that were stable, one that was written after the device failed, and one
/// that nobody wrote. The failure is known, and all is flushed.
fn failed() -> (MemoryMedium, IntentLog) {
    let (medium, log) = new_log(16);
    for byte in 1..5 {
        put(&log, &[byte; 1000]).expect("room");
        commit(&log, &medium);
    }
    put(&log, &[5; 1000]).expect("room");
    let mut batch = Batch::default();
    assert!(log.take_batch(&mut batch));
    put(&log, &[6; 1000]).expect("room");
    medium.fault_at(0, Fault::Fail(u64::MAX));
    assert!(batch.write_to(&medium).is_err());
    log.failed();
    (medium, log)
}

#[test]
fn a_log_that_was_given_up_or_closed_begins_anew() {
    for is_given_up in [true, false] {
        let (medium, log) = if is_given_up { failed() } else { new_log(16) };
        assert_eq!(log.renew(), Err(RenewError::NotLeft));
        if is_given_up {
            assert!(log.has_failed());
            log.give_up(&medium).expect("written");
        } else {
            let stable = put(&log, b"flushed").expect("room");
            commit(&log, &medium);
            log.checkpointed(0, stable);
            assert!(log.write_superblocks(&medium, true).expect("written"));
        }
        assert!(log.wrote(&superblock(&medium)));
        assert_eq!(decision(&medium, Known::Ours), Decision::Start);
        let (last, epoch) = (log.last(), log.epoch());
        log.renew().expect("left");
        assert!(!log.has_failed());
        assert_eq!((log.stable(), log.last(), log.epoch()), (last, last, epoch + 1));
        // Nothing is written before both superblocks are.
        let lsn = put(&log, b"new").expect("room");
        assert_eq!(lsn, last.next());
        assert!(!log.take_batch(&mut Batch::default()));
        log.write_superblocks(&medium, false).expect("written");
        assert_eq!(commit(&log, &medium), lsn);
        assert_eq!(found(&medium), [b"new"]);
        // All room is there again.
        assert_eq!(log.usage().promised_bytes, 0);
        assert_eq!(log.usage().used_bytes, BLOCK_BYTES as u64);
        log.checkpointed(0, lsn);
        assert!(log.write_superblocks(&medium, true).expect("written"));
    }
}

/// `known` is what the state directory says of the epoch that was left, if its superblock counts.
fn crash_at_every_write_of_a_renewal(medium: &MemoryMedium, log: &IntentLog, known: Known) {
    let left = log.epoch();
    for (write, sectors) in (0..2).flat_map(|write| [0, 1, u64::MAX].map(|bits| (write, bits))) {
        log.renew().expect("left");
        put(log, b"not before both superblocks say the epoch").expect("room");
        assert!(!log.take_batch(&mut Batch::default()));
        medium.fault_at(write, Fault::Fail(sectors));
        assert!(log.write_superblocks(medium, false).is_err());
        // The machine stops here.
        let epoch = superblock(medium).epoch;
        let is_of_another = epoch > left;
        let known = if is_of_another { Known::Ours } else { known };
        match decision(medium, known) {
            Decision::Format => assert_eq!(known, Known::GivenUp),
            Decision::Start => assert!(!is_of_another),
            Decision::Replay => assert_eq!(found(medium), [b""; 0], "{write} {sectors}"),
            other => panic!("{other:?} at {write} {sectors}"),
        }
        // It does not, and the log is left again; this is remembered elsewhere.
        log.failed();
        medium.fault_at(0, Fault::Fail(0));
        assert!(log.give_up(medium).is_err());
    }
    log.renew().expect("left");
    log.write_superblocks(medium, false).expect("written");
    put(log, b"at last").expect("room");
    commit(log, medium);
    assert_eq!(found(medium), [b"at last"]);
}

#[test]
fn a_crash_while_a_log_is_renewed_replays_nothing() {
    let (medium, log) = failed();
    log.give_up(&medium).expect("written");
    crash_at_every_write_of_a_renewal(&medium, &log, Known::Ours);
    // It could not be marked as empty: what was stable in it can still be read.
    let (medium, log) = failed();
    medium.fault_at(0, Fault::Fail(0));
    assert!(log.give_up(&medium).is_err());
    assert_eq!(found(&medium).len(), 5);
    crash_at_every_write_of_a_renewal(&medium, &log, Known::GivenUp);
}

#[test]
fn a_medium_that_somebody_else_wrote_is_noticed() {
    let (medium, log) = failed();
    log.give_up(&medium).expect("written");
    let ours = superblock(&medium);
    assert!(log.wrote(&ours));
    for other in [
        Superblock { host: [1; 16], ..ours.clone() },
        Superblock { uuid: [1; 16], ..ours.clone() },
        Superblock { epoch: ours.epoch + 1, ..ours.clone() },
        Superblock { sequence: ours.sequence + 2, ..ours.clone() },
        Superblock { ring_bytes: ours.ring_bytes / 2, ..ours.clone() },
    ] {
        assert!(!log.wrote(&other), "{other:?}");
    }
}
