//! Reading records: from the tail on, one after the other, until there is no next one.
//!
//! After a record the reader looks at the next multiple of 8 (the batch goes on), then at the next
//! block boundary (a new batch begins), for exactly the next LSN of this epoch; else the log ends
//! there. Why nothing else is taken for a record: [`crate::record`].
//!
//! A log that was in use ends in a gap: a batch that was not written, or not wholly. That is as it
//! should be if nobody was told that what is missing is stable. A damaged medium makes a gap too,
//! among records that were stable. To tell them apart each record says which LSN was stable when
//! it was laid out: one found beyond the gap that says so of the missing one proves the damage
//! ([`End::Damage`]), and so does the superblock. (Damage to the very last batches cannot be told
//! from a crash.)

use std::collections::BTreeMap;
use std::fmt;

use crate::format::{
    BATCH_BYTES_MAX, BATCHES_IN_FLIGHT_MAX, Lsn, PAYLOAD_BYTES_MAX, Position, pieces,
};
use crate::medium::{AlignedBuffer, BLOCK_BYTES, Medium, MediumError};
use crate::record::{HEADER_BYTES, Header, NoHeader, Record, is_intact};
use crate::superblock::{FileSystemEntry, Superblock, log_id};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// How far beyond a gap it is searched for proof of damage: twice what can be in flight.
const SEARCH_BYTES: u64 =
    2 * BATCHES_IN_FLIGHT_MAX as u64 * (PAYLOAD_BYTES_MAX + BATCH_BYTES_MAX) as u64;

/// What there is to read of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub(crate) log_id: u64,
    pub(crate) epoch: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) tail: Position,
    pub(crate) tail_lsn: Lsn,
    /// Up to this one, records must be found.
    pub(crate) stable: Lsn,
    /// Up to this one, they are of interest.
    pub(crate) until: Option<Lsn>,
    pub(crate) file_systems: BTreeMap<u32, Lsn>,
}

impl Extent {
    /// The last record that was known to be stable.
    pub fn stable(&self) -> Lsn {
        self.stable
    }

    pub(crate) fn tails(entries: &[FileSystemEntry]) -> BTreeMap<u32, Lsn> {
        entries.iter().map(|entry| (entry.index, entry.tail)).collect()
    }

    /// What a superblock that was found says is to be read.
    pub fn of(superblock: &Superblock) -> Self {
        Self {
            log_id: log_id(&superblock.uuid),
            epoch: superblock.epoch,
            ring_bytes: superblock.ring_bytes,
            tail: superblock.tail,
            tail_lsn: superblock.tail_lsn,
            stable: superblock.stable,
            until: match (superblock.is_clean, superblock.ends_at) {
                (true, _) => Some(superblock.stable),
                (false, ends_at) => ends_at,
            },
            file_systems: Self::tails(&superblock.file_systems),
        }
    }
}

/// What is where the next record should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeros.
    Zeros,
    /// Something that is no record.
    OtherBytes,
    /// A record of another log.
    OtherLog,
    /// A record of another epoch.
    OtherEpoch(u64),
    /// Another record of this epoch.
    OtherLsn(Lsn),
    /// The record, with a length that cannot be.
    Length,
    /// The record, with a wrong checksum.
    Checksum,
    /// The ring is full.
    RingEnd,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("zeros"),
            Self::OtherBytes => f.write_str("no record"),
            Self::OtherLog => f.write_str("a record of another log"),
            Self::OtherEpoch(epoch) => write!(f, "a record of epoch {epoch}"),
            Self::OtherLsn(lsn) => write!(f, "record {lsn}"),
            Self::Length => f.write_str("the record with a wrong length"),
            Self::Checksum => f.write_str("the record with a wrong checksum"),
            Self::RingEnd => f.write_str("the end of the ring"),
        }
    }
}

/// Why there are no more records.
#[derive(Debug)]
pub enum End {
    /// All that there is was read: the log is clean, or runs.
    Clean,
    /// The next record is not there.
    Gap {
        /// Where it was looked for last.
        at: Position,
        /// Its number.
        expected: Lsn,
        /// What is there.
        found: Found,
    },
    /// The next record is not there, and it was stable.
    Damage {
        /// Where it was looked for last.
        at: Position,
        /// Its number.
        expected: Lsn,
        /// What is there.
        found: Found,
        /// The LSN up to which records were stable, at least.
        stable: Lsn,
    },
    /// The medium cannot be read there.
    Unreadable {
        /// Where the next record would be.
        at: Position,
        /// Its number.
        expected: Lsn,
        /// What the medium said.
        error: MediumError,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("complete"),
            Self::Gap { at, expected, found } => {
                write!(f, "ends before record {expected}: {found} at {at}")
            }
            Self::Damage { at, expected, found, stable } => write!(
                f,
                "damaged: records {expected} to {stable} were stable, but there is {found} at {at}"
            ),
            Self::Unreadable { at, expected, error } => {
                write!(f, "record {expected} cannot be read at {at}: {error}")
            }
        }
    }
}

/// An iterator over records, with the place of each, that says in the end why there are no more.
pub struct Reader<'a> {
    medium: &'a dyn Medium,
    extent: Extent,
    /// Where the next record begins if the batch goes on.
    position: Position,
    next: Lsn,
    window: AlignedBuffer,
    window_at: Position,
    window_blocks: usize,
    end: Option<End>,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extent, position, next, end, .. } = self;
        write!(f, "Reader {{ {extent:?}, at {position}, next {next}, {end:?} }}")
    }
}

impl<'a> Reader<'a> {
    /// A reader of what there is.
    pub fn new(medium: &'a dyn Medium, extent: Extent) -> Self {
        Self {
            medium,
            position: extent.tail,
            next: extent.tail_lsn,
            extent,
            window: AlignedBuffer::default(),
            window_at: Position(0),
            window_blocks: 0,
            end: None,
        }
    }

    /// As [`Reader::end`], to keep.
    pub(crate) fn into_end(self) -> Option<End> {
        self.end
    }

    /// Why there are no more records, once there are none.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The end of the record read last.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The first position that is not in the ring at the same time as the tail.
    pub(crate) fn limit(&self) -> Position {
        self.extent.tail.plus(self.extent.ring_bytes)
    }

    /// Bytes at a position. The caller has made sure that they are before the limit.
    fn fetch(&mut self, at: Position, bytes: usize) -> Result<&[u8], MediumError> {
        let window_end = self.window_at.plus((self.window_blocks * BLOCK_BYTES) as u64);
        if at < self.window_at || at.plus(bytes as u64) > window_end {
            let from = at.block_before();
            let needed = at.plus(bytes as u64).block_after().since(from) as usize / BLOCK_BYTES;
            let there = usize::try_from(self.limit().since(from)).unwrap_or(usize::MAX);
            let wanted = needed.max((READ_BYTES / BLOCK_BYTES).min(there / BLOCK_BYTES));
            // What is read ahead may lie beyond the log's end, and be damaged there.
            if self.fill(from, wanted).is_err() {
                self.fill(from, needed)?;
            }
        }
        let place = at.since(self.window_at) as usize;
        let beyond = MediumError::Beyond { offset: at.0, bytes: bytes as u64 };
        self.window.bytes().get(place..place + bytes).ok_or(beyond)
    }

    fn fill(&mut self, from: Position, blocks: usize) -> Result<(), MediumError> {
        self.window_blocks = 0;
        self.window.resize(blocks * BLOCK_BYTES);
        for (offset, range) in pieces(from, blocks, self.extent.ring_bytes) {
            let into = self.window.blocks_mut().get_mut(range).unwrap_or_default();
            self.medium.read_at(offset, into)?;
        }
        (self.window_at, self.window_blocks) = (from, blocks);
        Ok(())
    }

    /// The epoch of the intact record of this log, if there is one, where an epoch that begins now puts
    /// its first batch; else 0.
    pub(crate) fn epoch_beyond(&mut self) -> u64 {
        let at = self.position.max(self.extent.tail).block_after();
        let Ok(bytes) = self.fetch(at, HEADER_BYTES) else { return 0 };
        let mut header_bytes = [0; HEADER_BYTES];
        header_bytes.copy_from_slice(bytes);
        let Ok(header) = Header::decode(&header_bytes) else { return 0 };
        if header.log_id != self.extent.log_id
            || header.record_bytes() as u64 > self.extent.ring_bytes
        {
            return 0;
        }
        let whole = self.fetch(at, HEADER_BYTES + header.payload_bytes as usize);
        let payload = whole.ok().and_then(|whole| whole.get(HEADER_BYTES..));
        payload.filter(|payload| is_intact(&header_bytes, payload)).map_or(0, |_| header.epoch)
    }

    /// The intact record of this log and epoch at a position, if it is the one wanted.
    fn look(
        &mut self,
        at: Position,
        is_wanted: impl Fn(Lsn) -> bool,
    ) -> Result<Result<(Header, &[u8]), Found>, MediumError> {
        let limit = self.limit();
        if at.plus(HEADER_BYTES as u64) > limit {
            return Ok(Err(Found::RingEnd));
        }
        let mut header_bytes = [0; HEADER_BYTES];
        header_bytes.copy_from_slice(self.fetch(at, HEADER_BYTES)?);
        let header = match Header::decode(&header_bytes) {
            Ok(header) => header,
            Err(NoHeader::Zeros) => return Ok(Err(Found::Zeros)),
            Err(NoHeader::OtherBytes) => return Ok(Err(Found::OtherBytes)),
            Err(NoHeader::Length) => return Ok(Err(Found::Length)),
        };
        if header.log_id != self.extent.log_id {
            return Ok(Err(Found::OtherLog));
        }
        if header.epoch != self.extent.epoch {
            return Ok(Err(Found::OtherEpoch(header.epoch)));
        }
        if !is_wanted(header.lsn) {
            return Ok(Err(Found::OtherLsn(header.lsn)));
        }
        if at.plus(header.record_bytes() as u64) > limit {
            return Ok(Err(Found::Length));
        }
        let whole = self.fetch(at, HEADER_BYTES + header.payload_bytes as usize)?;
        let payload = whole.get(HEADER_BYTES..).unwrap_or_default();
        if !is_intact(&header_bytes, payload) {
            return Ok(Err(Found::Checksum));
        }
        Ok(Ok((header, payload)))
    }

    /// The next record, or why there is none.
    fn read(&mut self) -> Result<Record, End> {
        let expected = self.next;
        if self.extent.until.is_some_and(|until| expected > until) {
            return Err(End::Clean);
        }
        let places = [self.position, self.position.block_after()];
        let mut found = Found::OtherBytes;
        let mut at = self.position;
        for (number, place) in places.into_iter().enumerate() {
            // If the batch ends on a boundary both are one.
            if number > 0 && (place == at || matches!(found, Found::Checksum | Found::Length)) {
                break;
            }
            at = place;
            match self.look(place, |lsn| lsn == expected) {
                Ok(Ok((header, payload))) => {
                    let payload = payload.to_vec();
                    return Ok(self.accept(place, &header, payload));
                }
                Ok(Err(other)) => found = other,
                Err(error) => return Err(End::Unreadable { at: place, expected, error }),
            }
        }
        let stable = self.stable_beyond(at, expected).max(self.extent.stable);
        if stable >= expected {
            return Err(End::Damage { at, expected, found, stable });
        }
        Err(End::Gap { at, expected, found })
    }

    fn accept(&mut self, at: Position, header: &Header, payload: Vec<u8>) -> Record {
        self.position = at.plus(header.record_bytes() as u64);
        self.next = header.lsn.next();
        let tail = self.extent.file_systems.get(&header.file_system);
        // Of a file system that is not in the table any more nothing was left to replay.
        let is_live = !payload.is_empty() && tail.is_some_and(|tail| header.lsn > *tail);
        Record { lsn: header.lsn, file_system: header.file_system, is_live, payload }
    }

    /// The intact records of this log and epoch that lie behind the place where the reader has ended,
    /// and come after the record that it missed. For who has to know what is given up with them.
    pub(crate) fn each_beyond(&mut self, take: &mut dyn FnMut(Record)) {
        let expected = self.next;
        let limit = self.limit();
        let mut at = self.position;
        while at < limit {
            // In a batch, records follow each other; the next batch begins at a block.
            let mut next = at.plus(1).block_after();
            if let Ok(Ok((header, payload))) = self.look(at, |lsn| lsn > expected) {
                let payload = payload.to_vec();
                let tail = self.extent.file_systems.get(&header.file_system);
                let is_live = !payload.is_empty() && tail.is_some_and(|tail| header.lsn > *tail);
                let (lsn, file_system) = (header.lsn, header.file_system);
                next = at.plus(header.record_bytes() as u64);
                take(Record { lsn, file_system, is_live, payload });
            } else if at != at.block_before() {
                next = at.block_after();
            } else if let Some(bytes) = self.skipped_bytes(at) {
                // A damaged record, or the one that is missed: what follows it in its batch may be
                // intact.
                next = at.plus(bytes);
            }
            at = next;
        }
    }

    /// Bytes of the record at a position by its header, intact or not, if it is of this log.
    fn skipped_bytes(&mut self, at: Position) -> Option<u64> {
        if at.plus(HEADER_BYTES as u64) > self.limit() {
            return None;
        }
        let header = Header::decode(self.fetch(at, HEADER_BYTES).ok()?.first_chunk()?).ok()?;
        let is_ours = header.log_id == self.extent.log_id && header.epoch == self.extent.epoch;
        (is_ours && at.plus(header.record_bytes() as u64) <= self.limit())
            .then_some(header.record_bytes() as u64)
    }

    /// The highest LSN that a later record near beyond a gap says was stable.
    fn stable_beyond(&mut self, gap: Position, expected: Lsn) -> Lsn {
        let mut at = gap.block_after();
        let limit = self.limit().min(gap.plus(SEARCH_BYTES));
        let mut stable = Lsn(0);
        while at < limit {
            if let Ok(Ok((header, _))) = self.look(at, |lsn| lsn > expected) {
                stable = stable.max(header.stable);
            }
            at = at.plus(BLOCK_BYTES as u64);
        }
        stable
    }
}

impl Iterator for Reader<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.end.is_some() {
            return None;
        }
        match self.read() {
            Ok(record) => Some(record),
            Err(end) => {
                self.end = Some(end);
                None
            }
        }
    }
}

impl Reader<'_> {
    /// Bytes of the intact record of whatever log at a position.
    pub(crate) fn any_record_bytes(&mut self, at: Position) -> Option<u64> {
        if at.plus(HEADER_BYTES as u64) > self.limit() {
            return None;
        }
        let header = self.fetch(at, HEADER_BYTES).ok()?;
        let header = Header::decode(header.first_chunk()?).ok()?;
        (self.extent.log_id, self.extent.epoch) = (header.log_id, header.epoch);
        let found = self.look(at, |_| true).ok()?.ok();
        found.map(|(header, _)| header.record_bytes() as u64)
    }
}
