//! Unit ring: the running log over a medium in memory: room, order, failures, damage, threads.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{FILE_SYSTEM, HOST, UUID, commit, found, medium, new_log, put, start, superblock};
use steadfast_intent_log::recovery::{Decision, Known, Observed, Refusal, decide};
use steadfast_intent_log::testing::{Fault, MemoryMedium};
use steadfast_intent_log::{
    BLOCK_BYTES, Batch, End, Extent, Identity, IntentLog, Lsn, Medium, Position, Reader, Refused,
    SuperblockCopy, SuperblockFault, adopt, count_record_like, format, inspect, survey,
};

fn decision(medium: &MemoryMedium, known: Known, host: [u8; 16], is_there: bool) -> Decision {
    let facts = inspect(medium);
    let found = facts.superblock().map(|superblock| survey(medium, superblock));
    let record_like = count_record_like(medium);
    let observed = Observed::new(&facts, found.as_ref(), record_like, known, &host, |_| is_there);
    decide(&observed).1
}

#[test]
fn a_full_log_refuses_until_it_is_checkpointed() {
    let (medium, log) = new_log(8);
    let mut puts = 0;
    let refused = loop {
        match put(&log, &[7; 3000]) {
            Ok(_) => puts += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(puts, 8, "a block each at the worst");
    assert_eq!(refused, Refused::Full { wanted_bytes: 4096, free_bytes: 0 });
    let stable = commit(&log, &medium);
    // In one batch they need less.
    assert_eq!(log.usage().used_bytes, 6 * BLOCK_BYTES as u64);
    assert!(log.admit(9000).is_err());
    log.checkpointed(0, stable);
    assert!(log.superblock_is_due());
    assert!(log.admit(9000).is_err(), "room comes back with superblocks");
    let first = log.superblock(false);
    medium.write_at(first.offset(), &first.encode().expect("fits")).expect("written");
    log.superblock_written(&first);
    assert!(log.admit(9000).is_err(), "with both of them");
    log.write_superblocks(&medium, false).expect("written");
    assert!(!log.superblock_is_due());
    log.cancel(log.admit(9000).expect("room"));
    assert_eq!(log.usage().counters.fullness_refusals, 4);
    assert_eq!(
        log.admit(8 * BLOCK_BYTES).err().map(|e| e.to_string()).as_deref(),
        Some("a record of 32768 bytes is too large for the intent log")
    );
    assert!(matches!(log.admit(3 << 20), Err(Refused::TooLarge { .. })));
}

#[test]
fn the_ring_is_gone_round_many_times() {
    let (medium, log) = new_log(7);
    let mut kept = Vec::new();
    for round in 0..2000_usize {
        let payload = vec![round as u8; round * 37 % 6000];
        put(&log, &payload).expect("room");
        let stable = commit(&log, &medium);
        kept.push(payload);
        if round % 3 == 2 {
            kept.retain(|payload| !payload.is_empty());
            assert_eq!(found(&medium), kept, "round {round}");
            log.checkpointed(0, stable);
            log.write_superblocks(&medium, false).expect("written");
            kept.clear();
        }
    }
    assert!(log.usage().counters.device_bytes > 100 * 7 * BLOCK_BYTES as u64);
}

#[test]
fn a_batch_across_the_end_is_two_writes_and_padded_with_zeros() {
    let (medium, log) = new_log(8);
    put(&log, &vec![1; 20_000]).expect("room");
    let stable = commit(&log, &medium);
    log.checkpointed(0, stable);
    log.write_superblocks(&medium, false).expect("written");
    // Memory that was used before must not reach the medium.
    let mut batch = Batch::default();
    put(&log, &[2; 4 * BLOCK_BYTES]).expect("room");
    assert!(log.take_batch(&mut batch));
    let writes: Vec<(u64, usize)> =
        batch.writes().map(|(offset, blocks)| (offset, blocks.len())).collect();
    assert_eq!(writes, [((128 << 10) + 5 * 4096, 3), (128 << 10, 2)]);
    batch.write_to(&medium).expect("written");
    assert_eq!(log.written(&batch), Lsn(2));
    assert_eq!(found(&medium), [vec![2; 4 * BLOCK_BYTES]]);
    log.checkpointed(0, Lsn(2));
    log.write_superblocks(&medium, false).expect("written");
    put(&log, &[3; 10]).expect("room");
    assert!(log.take_batch(&mut batch));
    assert_eq!((batch.bytes(), batch.record_count()), (BLOCK_BYTES, 1));
    let (_, blocks) = batch.writes().next().expect("a write");
    assert!(steadfast_intent_log::Block::bytes_of(blocks)[58..].iter().all(|byte| *byte == 0));
}

#[test]
fn batches_become_stable_in_order_and_are_few_at_a_time() {
    let (medium, log) = new_log(40);
    let mut batches = Vec::new();
    for number in 0..9 {
        put(&log, &[number; 10]).expect("room");
        let mut batch = Batch::default();
        if log.take_batch(&mut batch) {
            batches.push(batch);
        }
    }
    assert_eq!(batches.len(), 8);
    let first = batches.remove(0);
    for batch in &batches {
        batch.write_to(&medium).expect("written");
        assert_eq!(log.written(batch), Lsn(0));
    }
    // All of it could go, but the first is still being written.
    log.checkpointed(0, log.last());
    log.write_superblocks(&medium, false).expect("written");
    assert_eq!(log.usage().used_bytes, 8 * BLOCK_BYTES as u64);
    first.write_to(&medium).expect("written");
    assert_eq!(log.written(&first), Lsn(8));
    assert_eq!(commit(&log, &medium), Lsn(9));
}

#[test]
fn nothing_is_written_before_both_superblocks_know_of_it() {
    let medium = medium(8);
    let superblock = format(&medium, UUID, HOST, 5).expect("written");
    let found = survey(&medium, &superblock);
    let log = IntentLog::resume(&superblock, &found, HOST, 5).expect("numbers are left");
    let mut batch = Batch::default();
    log.register(FILE_SYSTEM, b"/srv").expect("room");
    put(&log, b"a").expect("room");
    let write_one = || {
        let next = log.superblock(false);
        medium.write_at(next.offset(), &next.encode().expect("fits")).expect("written");
        log.superblock_written(&next);
    };
    assert!(!log.take_batch(&mut batch));
    write_one();
    assert!(!log.take_batch(&mut batch));
    write_one();
    assert!(log.take_batch(&mut batch));
    log.register(Identity { uuid: [8; 16], kind: 2 }, b"/new").expect("room");
    put(&log, b"b").expect("room");
    assert!(log.superblock_is_due());
    assert!(!log.take_batch(&mut batch));
    log.write_superblocks(&medium, false).expect("written");
    assert!(log.take_batch(&mut batch));
}

#[test]
fn after_a_failed_write_nothing_becomes_stable() {
    let (medium, log) = new_log(16);
    put(&log, b"a").expect("room");
    commit(&log, &medium);
    let (mut failing, mut other) = (Batch::default(), Batch::default());
    put(&log, b"b").expect("room");
    assert!(log.take_batch(&mut failing));
    put(&log, b"c").expect("room");
    assert!(log.take_batch(&mut other));
    medium.fault_at(0, Fault::Fail(0));
    assert!(failing.write_to(&medium).is_err());
    log.failed();
    other.write_to(&medium).expect("written");
    assert_eq!(log.written(&other), Lsn(1));
    assert_eq!(log.admit(1).err(), Some(Refused::Failed));
    assert!(!log.take_batch(&mut other));
    assert!(!log.write_superblocks(&medium, true).expect("written"), "it is not clean");
    assert_eq!(found(&medium), [b"a"]);
    // All was flushed: the log says so, and the next start replays nothing.
    medium.fault_at(0, Fault::Fail(1));
    assert!(log.give_up(&medium).is_err());
    assert_eq!(decision(&medium, Known::GivenUp, HOST, true), Decision::Format);
    log.give_up(&medium).expect("written");
    assert!(superblock(&medium).is_clean);
    // For good, whoever writes superblocks.
    assert!(!log.superblock_is_due());
    log.failed();
    assert!(log.write_superblocks(&medium, false).expect("written"));
    assert_eq!(decision(&medium, Known::Ours, HOST, true), Decision::Start);
    let last = log.last();
    let log = start(&medium);
    assert!(put(&log, b"d").expect("room") > last);
    commit(&log, &medium);
    assert_eq!(found(&medium), [b"d"]);
}

#[test]
fn either_superblock_alone_is_enough() {
    for slot in 0..2_u64 {
        let (medium, log) = new_log(8);
        // Round the ring, so that what an old superblock might call live is written over.
        for round in 0..40_u8 {
            put(&log, &[round; 5000]).expect("room");
            commit(&log, &medium);
            if round % 2 == 1 {
                log.checkpointed(0, log.stable().previous());
                log.write_superblocks(&medium, false).expect("written");
            }
        }
        let next = log.superblock(false);
        medium.write_at(next.offset(), &next.encode().expect("fits")).expect("written");
        log.superblock_written(&next);
        put(&log, &[99; 5000]).expect("room");
        commit(&log, &medium);
        medium.flip(8 * (slot * (64 << 10) + 100));
        assert_eq!(found(&medium), [vec![39; 5000], vec![99; 5000]], "without copy {slot}");
    }
    // Room that only the newer copy gives back is not used.
    let (medium, log) = new_log(4);
    put(&log, &[1; 5000]).expect("room");
    commit(&log, &medium);
    log.checkpointed(0, Lsn(1));
    let next = log.superblock(false);
    medium.write_at(next.offset(), &next.encode().expect("fits")).expect("written");
    log.superblock_written(&next);
    assert!(put(&log, &[2; 9000]).is_err());
    put(&log, &[2; 5000]).expect("room");
    commit(&log, &medium);
    medium.flip(8 * (next.offset() + 100));
    assert_eq!(found(&medium), [vec![1; 5000], vec![2; 5000]]);
}

#[test]
fn records_of_an_older_epoch_are_not_seen_even_if_the_lsn_fits() {
    let (medium, log) = new_log(8);
    for _ in 0..3 {
        put(&log, b"of the first epoch").expect("room");
        commit(&log, &medium);
    }
    drop(log);
    // As if the new epoch had begun before them, with the same numbers.
    let mut wrong = superblock(&medium);
    (wrong.sequence, wrong.epoch) = (wrong.sequence + 1, wrong.epoch + 1);
    medium.write_at(wrong.offset(), &wrong.encode().expect("fits")).expect("written");
    assert_eq!(found(&medium), Vec::<Vec<u8>>::new());
    assert!(matches!(
        survey(&medium, &superblock(&medium)).end,
        End::Gap { found: steadfast_intent_log::Found::OtherEpoch(1), .. }
    ));
}

#[test]
fn a_log_with_something_under_way_is_not_clean() {
    let (medium, log) = new_log(8);
    let admission = log.admit(10).expect("room");
    assert!(!log.write_superblocks(&medium, true).expect("written"));
    let lsn = log.reserve(admission, 0);
    assert!(!log.write_superblocks(&medium, true).expect("written"));
    log.void(lsn);
    assert!(!log.write_superblocks(&medium, true).expect("written"));
    commit(&log, &medium);
    assert!(!log.write_superblocks(&medium, true).expect("written"), "not checkpointed");
    log.checkpointed(0, lsn);
    assert!(log.write_superblocks(&medium, true).expect("written"));
    assert_eq!(log.admit(1).err(), Some(Refused::Closed));
    assert_eq!(decision(&medium, Known::Ours, HOST, true), Decision::Start);
    // Changed its mind.
    log.write_superblocks(&medium, false).expect("written");
    put(&log, b"a").expect("room");
    commit(&log, &medium);
    assert_eq!(found(&medium), [b"a"]);
}

#[test]
fn a_superblock_that_is_torn_leaves_the_other() {
    for sectors in 0..16 {
        let (medium, log) = new_log(16);
        let entry = |number| Identity { uuid: [number; 16], kind: 3 };
        // A table of more than one sector.
        for number in 10..40 {
            log.register(entry(number), &[b'p'; 40]).expect("room");
        }
        log.write_superblocks(&medium, false).expect("written");
        let before = superblock(&medium);
        put(&log, b"a").expect("room");
        commit(&log, &medium);
        for number in 40..50 {
            log.register(entry(number), &[b'q'; 40]).expect("room");
        }
        medium.fault_at(0, Fault::Fail(sectors));
        assert!(log.write_superblocks(&medium, false).is_err());
        let after = superblock(&medium);
        assert!(after == before || after.sequence == before.sequence + 1);
        assert_eq!(found(&medium), [b"a"]);
        // The next one goes to the same place.
        let again = log.superblock(false);
        assert_eq!(again.sequence, before.sequence + 1);
    }
}

#[test]
fn damage_is_told_from_a_crash() {
    let (medium, log) = new_log(64);
    for number in 0..5_u8 {
        put(&log, &[number; 100]).expect("room");
        commit(&log, &medium);
    }
    let end = |medium: &MemoryMedium| survey(medium, &superblock(medium)).end;
    assert!(matches!(end(&medium), End::Gap { expected: Lsn(6), .. }));
    let bit = |block: u64| 8 * ((128 << 10) + block * 4096 + 60);
    // The last one may not have been written, for all that can be known.
    medium.flip(bit(4));
    assert!(matches!(end(&medium), End::Gap { expected: Lsn(5), .. }));
    medium.flip(bit(4));
    // Of this one it is known that it was.
    medium.flip(bit(1));
    let found = end(&medium);
    assert!(matches!(found, End::Damage { expected: Lsn(2), stable: Lsn(4), .. }), "{found}");
    assert!(found.to_string().contains("records 2 to 4 were stable"), "{found}");
    let refused = decision(&medium, Known::Ours, HOST, true);
    assert_eq!(refused, Decision::Refuse(Refusal::RecordsDamaged(1)));
    medium.flip(bit(1));
    log.write_superblocks(&medium, false).expect("written");
    medium.flip(bit(4));
    assert!(matches!(end(&medium), End::Damage { expected: Lsn(5), .. }), "the superblock knows");
    medium.flip(bit(4));
    // What cannot be read beyond the end does not matter; what cannot before it does.
    medium.lose_block((128 << 10) + 5 * 4096 + 4096);
    assert!(matches!(end(&medium), End::Gap { expected: Lsn(6), .. }));
    medium.lose_block((128 << 10) + 2 * 4096);
    assert!(matches!(end(&medium), End::Unreadable { expected: Lsn(3), .. }));
    let refused = decision(&medium, Known::Ours, HOST, true);
    assert_eq!(refused, Decision::Refuse(Refusal::RecordsUnreadable(2)));
}

#[test]
fn media_as_they_are_found() {
    let blank = medium(16);
    assert_eq!(decision(&blank, Known::Unknown, HOST, true), Decision::Format);
    let (crashed, log) = new_log(16);
    let end = crashed.image();
    assert_eq!(decision(&crashed, Known::Ours, HOST, true), Decision::Replay);
    put(&log, b"a").expect("room");
    commit(&log, &crashed);
    let live = crashed.image();
    assert_eq!(decision(&crashed, Known::Ours, HOST, true), Decision::Replay);
    let refused = |known, host, is_there| decision(&crashed, known, host, is_there);
    let refuse = Decision::Refuse;
    assert_eq!(refused(Known::Ours, HOST, false), refuse(Refusal::NoFileSystems(1)));
    assert_eq!(refused(Known::Unknown, HOST, true), refuse(Refusal::Unknown(1)));
    assert_eq!(refused(Known::Ours, [1; 16], true), refuse(Refusal::OtherHost(1)));
    let adopted = adopt(&crashed, &superblock(&crashed), [1; 16]).expect("written");
    assert_eq!(superblock(&crashed), adopted);
    assert_eq!(decision(&crashed, Known::Ours, [1; 16], true), Decision::Replay);
    // An empty one of another host may be in use there.
    let open = MemoryMedium::from_image(end);
    let found = decision(&open, Known::Ours, [1; 16], true);
    assert_eq!(found, refuse(Refusal::OtherHostOpen(0)));
    // The superblocks are lost.
    let mut image = live.clone();
    image[..128 << 10].fill(0);
    let found = decision(&MemoryMedium::from_image(image), Known::Ours, HOST, true);
    assert_eq!(found, refuse(Refusal::SuperblocksLost(1)));
    let mut image = live.clone();
    (image[100], image[(64 << 10) + 100]) = (image[100] ^ 1, image[(64 << 10) + 100] ^ 1);
    let damaged = MemoryMedium::from_image(image.clone());
    assert!(matches!(
        inspect(&damaged).copies,
        [
            SuperblockCopy::Faulty(SuperblockFault::Damaged),
            SuperblockCopy::Faulty(SuperblockFault::Damaged)
        ]
    ));
    let found = decision(&damaged, Known::Ours, HOST, true);
    assert_eq!(found, refuse(Refusal::SuperblocksDamaged(1)));
    image[128 << 10..].fill(0);
    let unfinished = MemoryMedium::from_image(image);
    assert_eq!(decision(&unfinished, Known::Ours, HOST, true), Decision::Format);
    // Somebody made a file system of it, or began to.
    let mut image = live.clone();
    image[..4096].fill(0x53);
    let found = decision(&MemoryMedium::from_image(image.clone()), Known::Ours, HOST, true);
    assert_eq!(found, refuse(Refusal::HalfForeign(1)));
    image[64 << 10..][..4096].fill(0x53);
    let found = decision(&MemoryMedium::from_image(image), Known::Ours, HOST, true);
    assert_eq!(found, refuse(Refusal::Foreign(1)));
    // Sizes.
    let smaller = MemoryMedium::from_image(live[..(128 << 10) + 8 * 4096].to_vec());
    let found = decision(&smaller, Known::Ours, HOST, true);
    assert_eq!(found, refuse(Refusal::RingTruncated(1)));
    let mut larger = live;
    larger.resize((128 << 10) + 32 * 4096, 0);
    let larger = MemoryMedium::from_image(larger);
    assert_eq!(decision(&larger, Known::Ours, HOST, true), Decision::Replay);
    assert!(format(&MemoryMedium::new(200 << 10 >> 1), UUID, HOST, 5).is_err());
}

#[test]
fn another_log_on_the_same_medium_is_not_seen() {
    let (medium, log) = new_log(8);
    for _ in 0..4 {
        put(&log, b"of the first").expect("room");
        commit(&log, &medium);
    }
    let other = *b"other-id the end";
    format(&medium, other, HOST, 5).expect("written");
    let log = start(&medium);
    assert_eq!(log.epoch(), 1);
    assert_eq!(found(&medium), Vec::<Vec<u8>>::new());
    put(&log, b"of the second").expect("room");
    commit(&log, &medium);
    assert_eq!(found(&medium), [b"of the second"]);
}

#[test]
fn records_are_read_back_while_the_log_runs() {
    let (medium, log) = new_log(16);
    put(&log, b"a").expect("room");
    commit(&log, &medium);
    put(&log, b"b").expect("room");
    commit(&log, &medium);
    put(&log, b"not stable").expect("room");
    log.checkpointed(0, Lsn(1));
    let mut reader = Reader::new(&medium, log.extent());
    let payloads: Vec<_> = reader.by_ref().map(|record| (record.is_live, record.payload)).collect();
    assert_eq!(payloads, [(true, b"b".to_vec())]);
    assert!(matches!(reader.end(), Some(End::Clean)));
    assert_eq!(reader.position(), Position(4096 + 56));
    assert!(!log.forget(0), "it has live records");
    assert!(!log.forget(77));
    let other = log.register(Identity { uuid: [8; 16], kind: 2 }, b"/new").expect("room");
    log.write_superblocks(&medium, false).expect("written");
    assert!(log.forget(other));
    assert!(log.superblock_is_due());
}

#[test]
fn batches_are_bounded() {
    let (medium, log) = new_log(4096);
    let mut batch = Batch::default();
    for _ in 0..1500 {
        put(&log, b"").expect("room");
    }
    assert!(log.take_batch(&mut batch));
    assert_eq!((batch.first(), batch.record_count()), (Lsn(1), 1024));
    batch.write_to(&medium).expect("written");
    log.written(&batch);
    commit(&log, &medium);
    for _ in 0..30 {
        put(&log, &vec![1; 50_000]).expect("room");
    }
    put(&log, &vec![2; 2 << 20]).expect("room");
    let mut sizes = Vec::new();
    while log.take_batch(&mut batch) {
        batch.write_to(&medium).expect("written");
        log.written(&batch);
        sizes.push(batch.bytes());
    }
    assert!(sizes[..2].iter().all(|bytes| *bytes <= 1 << 20), "{sizes:?}");
    assert!(sizes[2] > 2 << 20, "a large record goes alone: {sizes:?}");
    let found = survey(&medium, &superblock(&medium));
    assert_eq!((found.records, found.live_records(), found.last), (1531, 31, Lsn(1531)));
}

#[test]
fn usage_is_counted() {
    let (medium, log) = new_log(16);
    for _ in 0..3 {
        put(&log, &[1; 8]).expect("room");
    }
    assert_eq!(log.usage().promised_bytes, 3 * 4096);
    commit(&log, &medium);
    log.note_write(1000);
    let usage = log.usage();
    assert_eq!((usage.stable, usage.last, usage.batches_in_flight), (Lsn(3), Lsn(3), 0));
    assert_eq!((usage.counters.records, usage.counters.payload_bytes), (3, 24));
    assert_eq!((usage.counters.batches, usage.counters.device_bytes), (1, 4096));
    assert_eq!((usage.counters.records_per_batch.0[1], usage.write_ns.0[9]), (1, 1));
    let of_it = &usage.file_systems[0];
    assert_eq!((of_it.live_records, of_it.live_bytes), (3, 3 * 56));
    assert_eq!((of_it.first_live, of_it.last), (Some(Lsn(1)), Lsn(3)));
}

#[test]
fn many_threads_write_and_several_commit() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 500;
    let (medium, log) = new_log(4096);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let committers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut batch = Batch::default();
                    while !is_done.load(Ordering::Acquire) || log.stable() < log.last() {
                        if log.take_batch(&mut batch) {
                            batch.write_to(&medium).expect("written");
                            log.written(&batch);
                        } else {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let admission = log.admit(100).expect("room");
                        let lsn = log.reserve(admission, 0);
                        let payload = [lsn.0.to_le_bytes(), writer.to_le_bytes()].concat();
                        if number % 7 == 0 {
                            log.void(lsn)
                        } else {
                            log.complete(lsn, payload)
                        };
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        is_done.store(true, Ordering::Release);
        for committer in committers {
            committer.join().expect("no panic");
        }
    });
    assert_eq!(log.stable(), Lsn(WRITERS * EACH));
    let records: Vec<_> = Reader::new(&medium, Extent::of(&superblock(&medium))).collect();
    assert_eq!(records.len() as u64, WRITERS * EACH);
    for (record, lsn) in records.iter().zip(1_u64..) {
        assert_eq!(record.lsn, Lsn(lsn));
        assert!(record.payload.is_empty() || record.payload[..8] == lsn.to_le_bytes());
    }
    assert_eq!(log.usage().promised_bytes, 0);
}

/// With superblocks that are older than what is in the ring, a record of the epoch after theirs may be just
/// where the next one begins, with just its first LSN.
#[test]
fn a_later_epoch_is_not_taken_for_the_next_one() {
    let (medium, log) = new_log(8);
    put(&log, &[7; 100]).expect("room");
    commit(&log, &medium);
    let old = superblock(&medium);
    let resumed =
        |old| IntentLog::resume(old, &survey(&medium, old), HOST, 1).expect("numbers are left");
    let later = resumed(&old);
    later.register(FILE_SYSTEM, b"/srv").expect("room");
    later.write_superblocks(&medium, false).expect("written");
    put(&later, &[8; 100]).expect("room");
    commit(&later, &medium);
    assert_eq!(survey(&medium, &old).epoch_beyond, later.epoch());
    let next = resumed(&old);
    assert!(next.epoch() > later.epoch());
    next.write_superblocks(&medium, false).expect("written");
    assert_eq!(survey(&medium, &superblock(&medium)).records, 0);
}
