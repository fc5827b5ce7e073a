//! A file system's mark of how far the log had got with it: whatever the bytes of its file, the mark
//! that is read is written alike, and no other slot has a later one; what follows from it for the
//! file system's records is decided for any log.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_intent_log::recovery::marks::{Fate, MarkFacts, fate, is_aside_older};
use steadfast_intent_log::{Lsn, MARK_SLOT_BYTES, Mark, MarkPlace};

/// What a log of these numbers would do with the file system.
fn decide(found: Option<&Mark>, numbers: [u8; 4]) {
    let mark = found.copied();
    let [epoch, last, known_epoch, known_applied] = numbers.map(u64::from);
    let log = mark.map_or([0; 16], |mark| mark.log);
    let facts = MarkFacts {
        log: &log,
        identity: mark.map(|mark| mark.file_system).unwrap_or_default(),
        epoch,
        last: Lsn(last),
        known: (known_epoch > 0)
            .then_some(MarkPlace { epoch: known_epoch, applied: Lsn(known_applied) }),
        found,
    };
    let (_, decided) = fate(&facts);
    if let (Fate::Replay(flushed), Some(mark)) = (decided, mark) {
        assert!(mark.epoch <= epoch, "records of an epoch after the log's are not replayed");
        assert!(flushed == Lsn(0) || flushed == mark.flushed);
        assert!(!is_aside_older(&mark, &log, epoch, Lsn(last)));
    }
}

fn check(bytes: &[u8]) -> Option<Mark> {
    let (mark, slot) = Mark::found(bytes)?;
    let at = slot * MARK_SLOT_BYTES;
    let again = mark.encode();
    // What is not covered by a field may differ, and is lost.
    assert!(bytes[at..].len() >= again.len());
    assert_eq!(Mark::found(&again), Some((mark, 0)));
    if let Some((first, _)) = Mark::found(&bytes[..bytes.len().min(MARK_SLOT_BYTES)]) {
        assert!(first.sequence <= mark.sequence);
    }
    Some(mark)
}

fuzz_target!(|bytes: &[u8]| {
    let (numbers, bytes) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], bytes));
    decide(check(bytes).as_ref(), *numbers);
    // Inputs seldom have a right checksum, nor two slots: the same bytes as a mark.
    let Some((fields, rest)) = bytes.split_first_chunk::<16>() else { return };
    let number = |at: usize| u64::from(u16::from_le_bytes([fields[at], fields[at + 1]]));
    let mark = Mark {
        log: *fields,
        host: [1; 16],
        file_system: Default::default(),
        sequence: number(0),
        epoch: number(2) % 256,
        applied: Lsn(number(4) % 256),
        stable: Lsn(number(6) % 256),
        flushed: Lsn(number(8) % 256),
        time_ms: number(10),
    };
    let mut file = vec![0; 2 * MARK_SLOT_BYTES];
    let encoded = mark.encode();
    file[..encoded.len()].copy_from_slice(&encoded);
    let length = rest.len().min(MARK_SLOT_BYTES);
    file[MARK_SLOT_BYTES..][..length].copy_from_slice(&rest[..length]);
    let found = check(&file).expect("one was just written");
    assert!(found.sequence >= mark.sequence);
    decide(Some(&found), *numbers);
});
