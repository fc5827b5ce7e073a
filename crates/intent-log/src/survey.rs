//! What a scan finds, without the payloads: for the decision what to do, and for `steadfast log
//! status`.

use std::collections::BTreeMap;

use crate::format::{Lsn, Position, ring_bytes_of};
use crate::medium::Medium;
use crate::record::Record;
use crate::scan::{End, Extent, Reader};
use crate::superblock::Superblock;

/// Live records of one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveRecords {
    /// How many.
    pub records: u64,
    /// How many of them are operations; others are notes for replay.
    pub operations: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// The first.
    pub first: Lsn,
    /// The last.
    pub last: Lsn,
}

/// What a scan found.
#[derive(Debug)]
pub struct Survey {
    /// The last record found; the one before the tail's if there are none.
    pub last: Lsn,
    /// Where it ends.
    pub position: Position,
    /// The epoch of a record behind it, where the next epoch begins; 0 if there is none. It may be of a
    /// later epoch than the superblock's: the next one must not take it for its own.
    pub epoch_beyond: u64,
    /// All records found, also those that are not live.
    pub records: u64,
    /// The live ones, by the index of their file system.
    pub live: BTreeMap<u32, LiveRecords>,
    /// Why there are no more.
    pub end: End,
}

impl Survey {
    /// How many operations are in live records.
    pub fn live_operations(&self) -> u64 {
        self.live.values().map(|live| live.operations).sum()
    }

    /// How many live records there are.
    pub fn live_records(&self) -> u64 {
        self.live.values().map(|live| live.records).sum()
    }
}

/// Reads all records once, to see what there is; each is an operation.
pub fn survey(medium: &dyn Medium, superblock: &Superblock) -> Survey {
    survey_operations(medium, superblock, &|_| true)
}

/// As [`survey()`], with records of which some, by their payloads, are operations.
pub fn survey_operations(
    medium: &dyn Medium,
    superblock: &Superblock,
    is_operation: &dyn Fn(&[u8]) -> bool,
) -> Survey {
    let mut reader = Reader::new(medium, Extent::of(superblock));
    let mut last = superblock.tail_lsn.previous();
    let mut records = 0;
    let mut live = BTreeMap::<u32, LiveRecords>::new();
    for record in &mut reader {
        last = record.lsn;
        records += 1;
        if record.is_live {
            let of_this = live
                .entry(record.file_system)
                .or_insert_with(|| LiveRecords { first: record.lsn, ..LiveRecords::default() });
            of_this.records += 1;
            of_this.operations += u64::from(is_operation(&record.payload));
            of_this.payload_bytes += record.payload.len() as u64;
            of_this.last = record.lsn;
        }
    }
    let position = reader.position();
    let epoch_beyond = reader.epoch_beyond();
    let end = reader.into_end().unwrap_or(End::Clean);
    Survey { last, position, epoch_beyond, records, live, end }
}

/// Gives each intact live record: `true` for those that a scan reaches, in order, and `false` for
/// those behind the damage, or the unreadable place, at which it ends, if it does.
pub fn each_live(medium: &dyn Medium, superblock: &Superblock, take: &mut dyn FnMut(Record, bool)) {
    let mut reader = Reader::new(medium, Extent::of(superblock));
    for record in &mut reader {
        if record.is_live {
            take(record, true);
        }
    }
    if matches!(reader.end(), Some(End::Damage { .. } | End::Unreadable { .. })) {
        reader.each_beyond(&mut |record| {
            if record.is_live {
                take(record, false);
            }
        });
    }
}

/// Counts what looks like records of any log in the ring of a medium, whatever the superblocks say:
/// intact records at the beginning of batches, and those that follow them. For a medium that lost
/// its superblocks.
pub fn count_record_like(medium: &dyn Medium) -> u64 {
    let Some(ring_bytes) = ring_bytes_of(medium.bytes()) else { return 0 };
    let extent = Extent {
        log_id: 0,
        epoch: 0,
        ring_bytes,
        tail: Position(0),
        tail_lsn: Lsn(1),
        stable: Lsn(0),
        until: None,
        file_systems: BTreeMap::new(),
    };
    let mut reader = Reader::new(medium, extent);
    let (mut count, mut at) = (0, Position(0));
    while at < reader.limit() {
        let mut record_at = at;
        while let Some(bytes) = reader.any_record_bytes(record_at) {
            count += 1;
            record_at = record_at.plus(bytes);
        }
        at = record_at.max(at.plus(1)).block_after();
    }
    count
}
