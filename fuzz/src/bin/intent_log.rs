//! A medium with anything on it: superblocks, scan, decision, the next epoch; and the same bytes as
//! a set-aside file. See `steadfast_fuzz::intent_log` for the shape of inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_fuzz::intent_log::expand;
use steadfast_intent_log::aside::AsideReader;
use steadfast_intent_log::recovery::{Decision, Known, Observed, decide};
use steadfast_intent_log::{
    Batch, Block, End, Extent, Identity, IntentLog, Lsn, Medium, Reader, Superblock,
    count_record_like, inspect, survey,
};

const HOST: [u8; 16] = [9; 16];

fn read(medium: &dyn Medium, superblock: &Superblock) {
    let mut reader = Reader::new(medium, Extent::of(superblock));
    let mut next = superblock.tail_lsn;
    let mut bytes = 0;
    for record in &mut reader {
        assert_eq!(record.lsn, next, "LSNs are consecutive");
        next = next.next();
        bytes += record.payload.len() as u64;
        assert!(bytes <= superblock.ring_bytes && bytes <= medium.bytes());
    }
    assert!(reader.position() <= superblock.tail.plus(superblock.ring_bytes));
    if let Some(End::Clean) = reader.end() {
        assert!(superblock.is_clean || superblock.ends_at.is_some());
    }
    assert!(reader.next().is_none());
}

/// The next epoch has nothing of the one before, and works.
fn go_on(medium: &dyn Medium, superblock: &Superblock) {
    let found = survey(medium, superblock);
    let Ok(log) = IntentLog::resume(superblock, &found, HOST, 1) else { return };
    assert!(log.last() >= found.last && log.epoch() > superblock.epoch);
    let Ok(index) = log.register(Identity::default(), b"/srv") else { return };
    log.write_superblocks(medium, false).expect("what was read can be written");
    let facts = inspect(medium);
    let written = facts.superblock().expect("it was written");
    assert_eq!(survey(medium, written).records, 0);
    let Ok(admission) = log.admit(100) else { return };
    let lsn = log.reserve(admission, index);
    assert!(log.complete(lsn, vec![1; 100]));
    let mut batch = Batch::default();
    assert!(log.take_batch(&mut batch));
    // The ring may be recorded larger than the medium is.
    if batch.write_to(medium).is_ok() {
        assert_eq!(log.written(&batch), lsn);
        assert_eq!(survey(medium, written).live_records(), 1);
    }
}

fn set_aside(bytes: &[u8]) {
    let mut reader = AsideReader::default();
    let mut records = 0;
    for piece in bytes.chunks(1000) {
        reader.push(piece);
        while let Ok(Some(_)) = reader.next() {
            records += 1;
        }
    }
    assert!(records <= bytes.len() / 48 + 2);
    let _ = reader.finish();
}

fuzz_target!(|input: &[u8]| {
    set_aside(input.get(2..).unwrap_or_default());
    let Some(medium) = expand(input) else { return };
    let before = medium.image();
    let facts = inspect(&medium);
    let record_like = count_record_like(&medium);
    assert!(record_like <= medium.bytes() / 48);
    let superblock = facts.superblock();
    let found = superblock.map(|superblock| survey(&medium, superblock));
    let is_there = |index: u32| index % 2 == 0;
    let observed = Observed::new(&facts, found.as_ref(), record_like, Known::Ours, &HOST, is_there);
    let (label, decision) = decide(&observed);
    assert!(!label.is_empty());
    if let Some(superblock) = superblock {
        let blocks = superblock.encode().expect("what was read can be written");
        let again = Superblock::decode(Block::bytes_of(&blocks), superblock.slot());
        assert_eq!(again.as_ref(), Ok(superblock));
        assert!(superblock.tail_lsn > Lsn(0));
        read(&medium, superblock);
        assert_eq!(medium.image(), before, "looking changes nothing");
        go_on(&medium, superblock);
    } else {
        assert!(matches!(decision, Decision::Format | Decision::Refuse(_)));
    }
});
