//! The superblock: what a log is, whose it is, and where its live records begin.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version |
//! | 12..16 | CRC-32C of bytes 0..12 |
//! | 16..20 | length of all that follows, in bytes |
//! | 20..24 | CRC-32C of bytes 16..20 and of all that follows this field |
//! | 24..40 | uuid of the log |
//! | 40..56 | id of the host |
//! | 56..64 | sequence number |
//! | 64..72 | epoch |
//! | 72..80 | write verifier |
//! | 80..88 | bytes of the ring |
//! | 88..96 | tail: position |
//! | 96..104 | tail: LSN of the record that begins there |
//! | 104..112 | the LSN that was stable |
//! | 112..116 | flags: bit 0, clean |
//! | 116..120 | number of file systems |
//! | 120.. | file systems: index u32, kind u32, uuid 16 bytes, tail LSN u64, length of the path u32, path, zeros up to a multiple of 8 |
//! | then | sections: kind u32, length in bytes u32, that many bytes, zeros up to a multiple of 8 |
//!
//! A reader passes over a section whose kind it does not know, and one that knows no sections over
//! all of them: so an older program reads this superblock, and this one an older program's.
//!
//! | section | |
//! |---|---|
//! | 1 | the last mark known to be on each file system, in their order: epoch u64, LSN u64; zeros if there is none. Left out if there is no room |
//! | 2 | the last LSN that counts, u64: the administrator has given up what follows |
//!
//! The first 16 bytes are the same in all versions, with a checksum of their own, so that a newer
//! log is told from a damaged one. There is no head: of a clean log it is the tail, as nothing is
//! live; of another one, the scan finds it.
//!
//! Two copies are written alternately; the intact one with the higher sequence number counts. Its
//! parity says where a copy belongs, so the copy that counts is never written over.

use thiserror::Error;

use crate::format::{Lsn, NUMBER_MAX, Position, RING_BYTES_MIN, SUPERBLOCK_BYTES};
use crate::mark::MarkPlace;
use crate::medium::{AlignedBuffer, BLOCK_BYTES, Block};
use crate::record::{ALIGNMENT, Fields};

const MAGIC: [u8; 8] = *b"SfIntLog";
/// The version of the format that this code writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;
const PREFIX_BYTES: usize = 16;
const CHECKED_FROM: usize = 24;
const FIXED_BYTES: usize = 120;
const ENTRY_BYTES: usize = 36;
const IS_CLEAN: u32 = 1;
const SECTION_HEAD_BYTES: usize = 8;
const MARKS_SECTION: u32 = 1;
const MARK_BYTES: usize = 16;
const ENDS_AT_SECTION: u32 = 2;
/// The longest path kept of a file system: the kernel's bound.
pub const PATH_BYTES_MAX: usize = 4096;
/// Indices of file systems are below this. With paths of usual length, as many fit.
pub const FILE_SYSTEMS_MAX: u32 = 640;

/// What a file system is known by, wherever it is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Its uuid, or what stands for one.
    pub uuid: [u8; 16],
    /// Which sort of file system, by the kernel's magic number.
    pub kind: u32,
}

/// A file system of which the log may have records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemEntry {
    /// The number that its records carry.
    pub index: u32,
    /// What it is known by.
    pub identity: Identity,
    /// Where it was mounted when it was seen last.
    pub path: Vec<u8>,
    /// Its records up to this one are of no use any more: it is stable beyond them.
    pub tail: Lsn,
    /// The last mark that is known to be on it. `None` too if a version wrote this that knew no marks.
    pub mark: Option<MarkPlace>,
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The log's identity, random. Its low 8 bytes are in each record.
    pub uuid: [u8; 16],
    /// The host that uses the log.
    pub host: [u8; 16],
    /// Which of two copies counts: the higher.
    pub sequence: u64,
    /// Of the records that count.
    pub epoch: u64,
    /// Whether the log was closed with nothing live in it.
    pub is_clean: bool,
    /// The write verifier that clients were told last.
    pub write_verifier: u64,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Where the first record that may be live begins, or would.
    pub tail: Position,
    /// The LSN of that record.
    pub tail_lsn: Lsn,
    /// The LSN that was stable when this was written: records up to it must be found.
    pub stable: Lsn,
    /// The file systems that records may belong to.
    pub file_systems: Vec<FileSystemEntry>,
    /// Records after this one do not count, whatever there is: the administrator has given them up.
    pub ends_at: Option<Lsn>,
}

/// The table of file systems does not fit into a superblock: some have to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the intent log's table of file systems is full ({entries} of them): stop serving some, or \
     flush and remove those that are gone"
)]
pub struct TableFull {
    /// How many there are.
    pub entries: usize,
}

/// Why a copy of the superblock does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum SuperblockFault {
    /// Nothing was ever written there.
    #[error("all zeros")]
    Zeroed,
    /// Something else was.
    #[error("not of an intent log")]
    Foreign,
    /// A checksum is wrong: it was torn by a crash, or is damaged.
    #[error("torn or damaged")]
    Damaged,
    /// It is intact and says what cannot be.
    #[error("contradictory")]
    Contradictory,
    /// Another version of the format.
    #[error("of format version {0}, this program reads version {FORMAT_VERSION}")]
    OtherVersion(u32),
}

/// The low 8 bytes of a log's uuid, as records have them.
pub(crate) fn log_id(uuid: &[u8; 16]) -> u64 {
    Fields(uuid).u64()
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Bytes of a superblock with paths of these lengths.
pub(crate) fn encoded_bytes(paths: impl Iterator<Item = usize>) -> usize {
    FIXED_BYTES + paths.map(|bytes| padded(ENTRY_BYTES + bytes)).sum::<usize>()
}

impl Superblock {
    /// Which copy this one is written to, by its sequence number: 0 or 1.
    pub fn slot(&self) -> usize {
        usize::from(!self.sequence.is_multiple_of(2))
    }

    /// Where on the medium it is written to.
    pub fn offset(&self) -> u64 {
        (self.slot() * SUPERBLOCK_BYTES) as u64
    }

    /// The superblock in blocks, as it is written.
    pub fn encode(&self) -> Result<Vec<Block>, TableFull> {
        let full = TableFull { entries: self.file_systems.len() };
        let length = encoded_bytes(self.file_systems.iter().map(|entry| entry.path.len()));
        if length > SUPERBLOCK_BYTES
            || self.file_systems.iter().any(|entry| entry.path.len() > PATH_BYTES_MAX)
        {
            return Err(full);
        }
        let length = length + self.ends_at.map_or(0, |_| SECTION_HEAD_BYTES + 8);
        let marks_bytes = SECTION_HEAD_BYTES + self.file_systems.len() * MARK_BYTES;
        // A full table of a version without marks stays readable; then marks are not compared.
        let has_marks = self.file_systems.iter().any(|entry| entry.mark.is_some())
            && length + marks_bytes <= SUPERBLOCK_BYTES;
        let length = if has_marks { length + marks_bytes } else { length };
        if length > SUPERBLOCK_BYTES {
            return Err(full);
        }
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&((length - CHECKED_FROM) as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&self.host);
        for number in [
            self.sequence,
            self.epoch,
            self.write_verifier,
            self.ring_bytes,
            self.tail.0,
            self.tail_lsn.0,
            self.stable.0,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let flags = if self.is_clean { IS_CLEAN } else { 0 };
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&(self.file_systems.len() as u32).to_le_bytes());
        for entry in &self.file_systems {
            bytes.extend_from_slice(&entry.index.to_le_bytes());
            bytes.extend_from_slice(&entry.identity.kind.to_le_bytes());
            bytes.extend_from_slice(&entry.identity.uuid);
            bytes.extend_from_slice(&entry.tail.0.to_le_bytes());
            bytes.extend_from_slice(&(entry.path.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&entry.path);
            bytes.resize(padded(bytes.len()), 0);
        }
        if let Some(last) = self.ends_at {
            push_section(&mut bytes, ENDS_AT_SECTION, &last.0.to_le_bytes());
        }
        if has_marks {
            push_section(&mut bytes, MARKS_SECTION, &self.marks());
        }
        debug_assert_eq!(bytes.len(), length, "the length computed is the length written");
        seal(&mut bytes);
        let mut blocks = vec![Block::ZERO; length.div_ceil(BLOCK_BYTES)];
        if let Some(room) = Block::bytes_of_mut(&mut blocks).get_mut(..length) {
            room.copy_from_slice(&bytes);
        }
        Ok(blocks)
    }

    /// The section of marks.
    fn marks(&self) -> Vec<u8> {
        let numbers = self
            .file_systems
            .iter()
            .flat_map(|entry| entry.mark.map_or([0, 0], |mark| [mark.epoch, mark.applied.0]));
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    fn read_section(&mut self, kind: u32, bytes: &[u8]) {
        let mut fields = Fields(bytes);
        match kind {
            MARKS_SECTION => {
                for entry in &mut self.file_systems {
                    let mark = MarkPlace { epoch: fields.u64(), applied: Lsn(fields.u64()) };
                    // No mark is of epoch 0: the first that is used is 1.
                    entry.mark = (mark.epoch > 0).then_some(mark);
                }
            }
            ENDS_AT_SECTION => self.ends_at = Some(Lsn(fields.u64())),
            _ => {}
        }
    }

    /// Reads a copy from its place, 0 or 1.
    pub fn decode(bytes: &[u8], slot: usize) -> Result<Self, SuperblockFault> {
        let mut fields = Fields(bytes);
        let (magic, version, prefix_crc) = (fields.array::<8>(), fields.u32(), fields.u32());
        if magic != MAGIC {
            let is_zeroed = bytes.iter().all(|byte| *byte == 0);
            // A new log whose first block did not reach the medium looks foreign too; then no
            // record was written yet, and it is for the operator to say so.
            return Err(if is_zeroed { SuperblockFault::Zeroed } else { SuperblockFault::Foreign });
        }
        if bytes.get(..PREFIX_BYTES - 4).map(crc32c::crc32c) != Some(prefix_crc) {
            return Err(SuperblockFault::Damaged);
        }
        if version != FORMAT_VERSION {
            return Err(SuperblockFault::OtherVersion(version));
        }
        let (length, crc) = (fields.u32(), fields.u32());
        let body = fields.bytes(length as usize).ok_or(SuperblockFault::Damaged)?;
        if checksum(length, body) != crc {
            return Err(SuperblockFault::Damaged);
        }
        let superblock = Self::decode_body(body).ok_or(SuperblockFault::Contradictory)?;
        if superblock.slot() != slot || !superblock.is_consistent() {
            return Err(SuperblockFault::Contradictory);
        }
        Ok(superblock)
    }

    fn decode_body(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        if body.len() < FIXED_BYTES - CHECKED_FROM {
            return None;
        }
        let mut superblock = Self {
            uuid: fields.array(),
            host: fields.array(),
            sequence: fields.u64(),
            epoch: fields.u64(),
            write_verifier: fields.u64(),
            ring_bytes: fields.u64(),
            tail: Position(fields.u64()),
            tail_lsn: Lsn(fields.u64()),
            stable: Lsn(fields.u64()),
            is_clean: fields.u32() & IS_CLEAN != 0,
            file_systems: Vec::new(),
            ends_at: None,
        };
        let entries = fields.u32();
        for _ in 0..entries {
            if fields.0.len() < ENTRY_BYTES {
                return None;
            }
            let (index, kind, uuid) = (fields.u32(), fields.u32(), fields.array());
            let (tail, path_bytes) = (Lsn(fields.u64()), fields.u32() as usize);
            let path = fields.bytes(path_bytes)?.to_vec();
            fields.bytes(padded(ENTRY_BYTES + path_bytes) - ENTRY_BYTES - path_bytes)?;
            let identity = Identity { uuid, kind };
            superblock.file_systems.push(FileSystemEntry {
                index,
                identity,
                path,
                tail,
                mark: None,
            });
        }
        while !fields.0.is_empty() {
            let (kind, bytes) = (fields.u32(), fields.u32() as usize);
            let section = fields.bytes(bytes)?;
            superblock.read_section(kind, section);
            fields.bytes(padded(bytes).checked_sub(bytes)?.min(fields.0.len()))?;
        }
        Some(superblock)
    }

    /// Whether the numbers can be: what is computed with them later does not overflow.
    fn is_consistent(&self) -> bool {
        let block = BLOCK_BYTES as u64;
        let numbers = [
            self.sequence,
            self.epoch,
            self.ring_bytes,
            self.tail.0,
            self.tail_lsn.0,
            self.stable.0,
        ];
        let mut indices: Vec<u32> = self.file_systems.iter().map(|entry| entry.index).collect();
        indices.sort_unstable();
        numbers.into_iter().all(|number| number < NUMBER_MAX)
            && self.ring_bytes >= RING_BYTES_MIN
            && self.ring_bytes.is_multiple_of(block)
            && self.tail.0.is_multiple_of(block)
            && self.tail_lsn > Lsn(0)
            && self.stable.next() >= self.tail_lsn
            && (!self.is_clean || self.stable.next() == self.tail_lsn)
            && indices.windows(2).all(|pair| pair.first() != pair.last())
            && self.file_systems.iter().all(|entry| {
                entry.index < FILE_SYSTEMS_MAX
                    && entry.path.len() <= PATH_BYTES_MAX
                    && entry.tail.0 < NUMBER_MAX
            })
    }
}

fn push_section(bytes: &mut Vec<u8>, kind: u32, section: &[u8]) {
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&(section.len() as u32).to_le_bytes());
    bytes.extend_from_slice(section);
    bytes.resize(padded(bytes.len()), 0);
}

fn checksum(length: u32, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), body)
}

/// Writes the checksums into the bytes of a superblock. For those who make superblocks by hand:
/// tests, and fuzzing that would never guess a checksum.
pub(crate) fn seal(bytes: &mut [u8]) {
    if bytes.len() < FIXED_BYTES {
        return;
    }
    let prefix_crc = crc32c::crc32c(&bytes[..PREFIX_BYTES - 4]);
    bytes[PREFIX_BYTES - 4..PREFIX_BYTES].copy_from_slice(&prefix_crc.to_le_bytes());
    let length = Fields(&bytes[PREFIX_BYTES..]).u32();
    if let Some(body) = bytes[CHECKED_FROM..].get(..length as usize) {
        let crc = checksum(length, body);
        bytes[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Room for one copy.
pub(crate) fn copy_buffer() -> AlignedBuffer {
    let mut buffer = AlignedBuffer::default();
    buffer.resize(SUPERBLOCK_BYTES);
    buffer
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
