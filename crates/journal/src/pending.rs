//! What must still be sent: records as an index and the ring have them.

use std::ops::Range;
use std::sync::Arc;

use steadfast_intent_log::{BLOCK_BYTES, Block, Medium};

use crate::errors::ReadError;
use crate::format::{HEADER_BYTES, Header, RING_OFFSET, Sequence, block_after, block_before};
use crate::index::{Entry, Index};
use crate::notes::Outcome;
use crate::record::{self, Change, Kind, Record};

/// A record that has not left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its number.
    pub sequence: Sequence,
    /// What it is.
    pub kind: Kind,
    /// When the change was made, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Who made it.
    pub uid: u32,
    /// Who made it.
    pub gid: u32,
    /// Its other groups.
    pub groups: Arc<[u32]>,
    /// The path of the object as the user knows it.
    pub path: Arc<[u8]>,
    /// Of a rename, the path then.
    pub to_path: Option<Arc<[u8]>>,
    /// Handles of the objects that it is found by.
    pub objects: [Option<Arc<[u8]>>; 2],
    /// Of a write, where it begins; of a truncation, the size.
    pub offset: u64,
    /// Of a write, its length in bytes.
    pub length: u32,
    /// Of a write, the BLAKE3 hash of its data.
    pub hash: [u8; 32],
    /// Of a write, the ranges of the file that no later record has superseded: only these are to be
    /// sent.
    pub ranges: Vec<Range<u64>>,
    /// What the server has answered, if that was noted.
    pub outcome: Option<Outcome>,
    /// All handles that what was made has had, the newest last: a replay that makes it anew notes
    /// another one (`Journal::note_outcome`). Later records may name any of them.
    pub handles: Vec<Arc<[u8]>>,
    /// A later change may have superseded this one: a record that was lost to damage of the ring, or a
    /// change that was sent around the journal (`Journal::bypass`). Compare with what the server has
    /// before it is sent.
    pub may_be_superseded: bool,
}

/// A record as it was read from the journal.
#[derive(Clone, Debug)]
pub struct Stored {
    kind: Kind,
    flags: u8,
    payload: Vec<u8>,
    groups: Vec<u32>,
    data: Vec<u8>,
}

impl Stored {
    /// The record.
    pub fn record(&self) -> Record<'_> {
        let Some(decoded) = record::decode(self.kind, self.flags, &self.payload) else {
            unreachable!("it was decoded when it was read")
        };
        let mut record = Record { groups: &self.groups, ..decoded.record };
        if let Change::Write { data, .. } = &mut record.change {
            *data = &self.data;
        }
        record
    }
}

/// A piece of a file that is newer than what the server has stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// Where it begins in the file.
    pub offset: u64,
    /// What is there.
    pub content: Content,
}

/// What a piece of an overlay has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data that was written.
    Data(Vec<u8>),
    /// The file was truncated before this place: so many bytes are zeros, or beyond its end.
    Zeros(u64),
}

/// The records of an index that are to be sent.
pub(crate) fn list<'a>(
    index: &'a Index,
    entries: impl Iterator<Item = (Sequence, &'a Entry)>,
    doubtful_before: Sequence,
) -> Vec<Pending> {
    entries
        .filter(|(_, entry)| !entry.is_superseded())
        .map(|(sequence, entry)| Pending {
            sequence,
            kind: entry.kind,
            time_ns: entry.time_ns,
            uid: entry.uid,
            gid: entry.gid,
            groups: Arc::clone(&entry.groups),
            path: Arc::clone(&entry.path),
            to_path: entry.to_path.clone(),
            objects: entry.objects.clone(),
            offset: entry.offset,
            length: entry.length,
            hash: entry.hash,
            ranges: index.live_ranges(sequence, entry),
            outcome: entry.outcome.clone(),
            handles: entry.handles.clone(),
            may_be_superseded: sequence < doubtful_before || index.is_bypassed(sequence, entry),
        })
        .collect()
}

/// Reads the record that an entry says is in the ring.
pub(crate) fn read_entry(
    medium: &dyn Medium,
    ring_bytes: u64,
    sequence: Sequence,
    position: u64,
    frame_bytes: u64,
) -> Result<Vec<u8>, ReadError> {
    let from = block_before(position);
    let blocks = ((block_after(position + frame_bytes) - from) / BLOCK_BYTES as u64) as usize;
    let mut read = vec![Block::ZERO; blocks];
    let at = from % ring_bytes;
    let before_end = ((ring_bytes - at) / BLOCK_BYTES as u64).min(blocks as u64) as usize;
    let (first, second) = read.split_at_mut(before_end);
    for (offset, piece) in [(RING_OFFSET + at, first), (RING_OFFSET, second)] {
        if !piece.is_empty() {
            medium.read_at(offset, piece).map_err(|error| ReadError::Medium(error.to_string()))?;
        }
    }
    let start = (position - from) as usize;
    let frame = Block::bytes_of(&read).get(start..start + frame_bytes as usize);
    let frame = frame.ok_or(ReadError::Damaged(sequence))?;
    let header = frame.first_chunk().and_then(Header::decode);
    let is_right = header.is_some_and(|header| {
        let payload = frame.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize);
        (header.position, header.sequence) == (position, sequence)
            && payload.is_some_and(|payload| crc32c::crc32c(payload) == header.payload_crc)
    });
    if is_right { Ok(frame.to_vec()) } else { Err(ReadError::Damaged(sequence)) }
}

/// The record of a frame that is whole.
pub(crate) fn stored(
    sequence: Sequence,
    frame: &[u8],
    is_hash_checked: bool,
) -> Result<Stored, ReadError> {
    let read = || {
        let header = Header::decode(frame.first_chunk()?)?;
        let payload = frame.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize)?;
        let kind = Kind::of_code(header.kind)?;
        let decoded = record::decode(kind, header.flags, payload)?;
        let data = if is_hash_checked {
            record::plain_data(&decoded, header.flags)?
        } else {
            record::unchecked_data(&decoded, header.flags)?
        };
        let (flags, groups) = (header.flags, decoded.groups);
        Some(Stored { kind, flags, payload: payload.to_vec(), groups, data })
    };
    read().ok_or(ReadError::Damaged(sequence))
}
