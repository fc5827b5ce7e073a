//! What the tests share.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::{
    Attributes, Change, Journal, Options, RING_OFFSET, Record, Recovered, Sequence,
};

/// A medium with a ring of so many blocks.
pub(crate) fn medium(ring_blocks: u64) -> Arc<MemoryMedium> {
    Arc::new(MemoryMedium::new((RING_OFFSET + (ring_blocks + 1) * 4096) as usize))
}

/// Of one server and share.
pub(crate) fn options() -> Options {
    Options { mount_options: b"rw".to_vec(), ..Options::new("server", "/share") }
}

pub(crate) fn open(medium: &Arc<MemoryMedium>) -> (Journal, Recovered) {
    Journal::on_medium(Arc::clone(medium) as _, &options(), [7; 16]).expect("a journal")
}

pub(crate) fn open_image(image: Vec<u8>) -> (Journal, Recovered) {
    open(&Arc::new(MemoryMedium::from_image(image)))
}

pub(crate) fn record<'a>(path: &'a [u8], change: Change<'a>) -> Record<'a> {
    Record { time_ns: 1, uid: 1000, gid: 100, groups: &[100, 27], order: None, path, change }
}

pub(crate) fn write<'a>(file: &'a [u8], offset: u64, data: &'a [u8]) -> Record<'a> {
    record(file, Change::Write { file, offset, data })
}

pub(crate) fn truncate(file: &[u8], size: u64) -> Record<'_> {
    let attributes = Attributes { size: Some(size), ..Attributes::default() };
    record(file, Change::SetAttr { object: file, attributes })
}

/// The sequences that must still be sent.
pub(crate) fn pending(journal: &Journal) -> Vec<Sequence> {
    journal.pending().iter().map(|pending| pending.sequence).collect()
}

/// What the records say, as text that can be compared.
pub(crate) fn contents(journal: &Journal) -> Vec<(Sequence, String)> {
    let read = |sequence| {
        let stored = journal.read(sequence).expect("it reads").expect("it is there");
        format!("{:?}", stored.record())
    };
    pending(journal).into_iter().map(|sequence| (sequence, read(sequence))).collect()
}
