//! What tests of the running log begin with.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, unreachable_pub, reason = "no test uses all of it")]

use steadfast_intent_log::testing::MemoryMedium;
use steadfast_intent_log::{
    BLOCK_BYTES, Batch, Extent, Identity, IntentLog, Lsn, Reader, Refused, Superblock, format,
    inspect, survey,
};

pub const HOST: [u8; 16] = [9; 16];
pub const UUID: [u8; 16] = *b"log-id!!the rest";
pub const FILE_SYSTEM: Identity = Identity { uuid: [1; 16], kind: 2 };

pub fn medium(ring_blocks: usize) -> MemoryMedium {
    MemoryMedium::new((128 << 10) + ring_blocks * BLOCK_BYTES)
}

pub fn superblock(medium: &MemoryMedium) -> Superblock {
    inspect(medium).superblock().expect("one counts").clone()
}

pub fn start(medium: &MemoryMedium) -> IntentLog {
    let superblock = superblock(medium);
    let found = survey(medium, &superblock);
    let log = IntentLog::resume(&superblock, &found, HOST, 5).expect("numbers are left");
    assert_eq!(log.register(FILE_SYSTEM, b"/srv"), Ok(0));
    log.write_superblocks(medium, false).expect("written");
    log
}

pub fn new_log(ring_blocks: usize) -> (MemoryMedium, IntentLog) {
    let medium = medium(ring_blocks);
    format(&medium, UUID, HOST, 5).expect("written");
    let log = start(&medium);
    (medium, log)
}

pub fn put(log: &IntentLog, payload: &[u8]) -> Result<Lsn, Refused> {
    let admission = log.admit(payload.len())?;
    let lsn = log.reserve(admission, 0);
    log.complete(lsn, payload.to_vec());
    Ok(lsn)
}

pub fn commit(log: &IntentLog, medium: &MemoryMedium) -> Lsn {
    let mut batch = Batch::default();
    while log.take_batch(&mut batch) {
        batch.write_to(medium).expect("written");
        log.written(&batch);
    }
    log.stable()
}

pub fn found(medium: &MemoryMedium) -> Vec<Vec<u8>> {
    let records = Reader::new(medium, Extent::of(&superblock(medium)));
    records.filter(|record| record.is_live).map(|record| record.payload).collect()
}
