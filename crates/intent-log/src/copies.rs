//! The two copies of the superblock on a medium: making them, reading them, choosing.

use crate::format::{Lsn, Position, RING_OFFSET, ring_bytes_of};
use crate::medium::{Block, Medium, MediumError};
use crate::superblock::{Superblock, SuperblockFault, TableFull, copy_buffer};
use thiserror::Error;

/// Why superblocks were not written.
#[derive(Debug, Error)]
pub enum WriteSuperblockError {
    /// The medium has no room for a log.
    #[error("{bytes} bytes are too few for an intent log: it needs more than {RING_OFFSET}")]
    TooSmall {
        /// Its size.
        bytes: u64,
    },
    /// There are too many file systems.
    #[error(transparent)]
    TableFull(#[from] TableFull),
    /// The medium failed.
    #[error("the superblock of the intent log cannot be written: {0}")]
    Medium(#[from] MediumError),
}

/// One copy, as it was found.
#[derive(Debug)]
pub enum SuperblockCopy {
    /// It counts, if the other has not a higher sequence number.
    Valid(Box<Superblock>),
    /// It was read, and does not count.
    Faulty(SuperblockFault),
    /// It was not read.
    Unreadable(MediumError),
}

/// What the superblocks of a medium say.
#[derive(Debug)]
pub struct Facts {
    /// The size of the medium.
    pub medium_bytes: u64,
    /// Copies A and B.
    pub copies: [SuperblockCopy; 2],
}

impl Facts {
    /// The superblock that counts.
    pub fn superblock(&self) -> Option<&Superblock> {
        let valid = self.copies.iter().filter_map(|copy| match copy {
            SuperblockCopy::Valid(superblock) => Some(&**superblock),
            SuperblockCopy::Faulty(_) | SuperblockCopy::Unreadable(_) => None,
        });
        valid.max_by_key(|superblock| superblock.sequence)
    }

    /// The newest other version of the format that a copy has.
    pub fn other_version(&self) -> Option<u32> {
        let versions = self.copies.iter().filter_map(|copy| match copy {
            SuperblockCopy::Faulty(SuperblockFault::OtherVersion(version)) => Some(*version),
            _ => None,
        });
        versions.max()
    }
}

/// Reads both copies of the superblock. Never fails: what went wrong is among the facts.
pub fn inspect(medium: &dyn Medium) -> Facts {
    let copy = |slot: usize| {
        let mut buffer = copy_buffer();
        let offset = slot as u64 * (RING_OFFSET / 2);
        if let Err(error) = medium.read_at(offset, buffer.blocks_mut()) {
            return SuperblockCopy::Unreadable(error);
        }
        match Superblock::decode(Block::bytes_of(buffer.blocks()), slot) {
            Ok(superblock) => SuperblockCopy::Valid(Box::new(superblock)),
            Err(fault) => SuperblockCopy::Faulty(fault),
        }
    };
    Facts { medium_bytes: medium.bytes(), copies: [copy(0), copy(1)] }
}

/// Makes a new log, with nothing in it: writes both superblocks. What the medium has in the ring
/// does not matter, as the uuid is new and random. Returns the superblock to begin with:
/// [`crate::IntentLog::resume`].
pub fn format(
    medium: &dyn Medium,
    uuid: [u8; 16],
    host: [u8; 16],
    write_verifier: u64,
) -> Result<Superblock, WriteSuperblockError> {
    let bytes = medium.bytes();
    let superblock = new_superblock(bytes, uuid, host, write_verifier)?;
    write_both(medium, Superblock { sequence: 0, ..superblock })
}

/// The superblock that [`format()`] will write last to a medium of so many bytes: for a log that is
/// formatted later.
pub fn new_superblock(
    bytes: u64,
    uuid: [u8; 16],
    host: [u8; 16],
    write_verifier: u64,
) -> Result<Superblock, WriteSuperblockError> {
    let ring_bytes = ring_bytes_of(bytes).ok_or(WriteSuperblockError::TooSmall { bytes })?;
    Ok(Superblock {
        uuid,
        host,
        sequence: 1,
        epoch: 0,
        is_clean: true,
        write_verifier,
        ring_bytes,
        tail: Position(0),
        tail_lsn: Lsn(1),
        stable: Lsn(0),
        file_systems: Vec::new(),
        ends_at: None,
    })
}

/// Makes a log that was found the log of this host, and nothing else: what is live in it stays so,
/// and is for the next start to replay.
pub fn adopt(
    medium: &dyn Medium,
    found: &Superblock,
    host: [u8; 16],
) -> Result<Superblock, WriteSuperblockError> {
    let sequence = found.sequence + 1;
    write_both(medium, Superblock { host, sequence, ..found.clone() })
}

/// Writes what is found of a log with something of it changed, by the administrator's decision: the
/// file systems, or where it ends. What is live in it and not given up is for the next start.
pub fn amend(medium: &dyn Medium, amended: Superblock) -> Result<Superblock, WriteSuperblockError> {
    let sequence = amended.sequence + 1;
    write_both(medium, Superblock { sequence, ..amended })
}

/// Writes a superblock and its successor, so that both copies say the same.
fn write_both(
    medium: &dyn Medium,
    mut superblock: Superblock,
) -> Result<Superblock, WriteSuperblockError> {
    medium.write_at(superblock.offset(), &superblock.encode()?)?;
    superblock.sequence += 1;
    medium.write_at(superblock.offset(), &superblock.encode()?)?;
    Ok(superblock)
}
