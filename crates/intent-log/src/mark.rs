//! Marks: how far a log had got with a file system, kept on that file system.
//!
//! A mark is written before the flush of a checkpoint, so that the flush makes it stable. At the
//! start it tells a log that is older than its file systems (a state directory that was restored, a
//! root disk that was rolled back), a file system that is older than its log (a data disk that was
//! rolled back), and one that another log served: [`crate::recovery::marks`].
//!
//! Two slots of [`MARK_SLOT_BYTES`], of which the intact one with the higher sequence number counts.
//! A mark goes to the slot that does not hold the last one known to be stable.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version |
//! | 12..16 | CRC-32C of bytes 0..12 and 16..128 |
//! | 16..32 | uuid of the log |
//! | 32..48 | id of the host |
//! | 48..64 | uuid of the file system |
//! | 64..68 | kind of the file system |
//! | 68..72 | zeros |
//! | 72..80 | sequence number |
//! | 80..88 | epoch |
//! | 88..96 | the LSN that was applied last |
//! | 96..104 | the LSN that was stable in the log |
//! | 104..112 | the LSN up to which the file system was flushed |
//! | 112..120 | time, in ms since 1970 |
//! | 120..128 | zeros |

use crate::format::{Lsn, NUMBER_MAX};
use crate::record::Fields;
use crate::superblock::Identity;

/// Bytes from the beginning of one slot to the next.
pub const MARK_SLOT_BYTES: usize = 4096;
/// Bytes of all slots.
pub const MARK_FILE_BYTES: usize = 2 * MARK_SLOT_BYTES;
const MAGIC: [u8; 8] = *b"SfFsMark";
const VERSION: u32 = 1;
const BYTES: usize = 128;
const CRC_AT: usize = 12;

/// How far a log had got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The log.
    pub log: [u8; 16],
    /// The host that used it.
    pub host: [u8; 16],
    /// The file system that it was written to.
    pub file_system: Identity,
    /// Which of two slots counts: the higher.
    pub sequence: u64,
    /// The log's epoch.
    pub epoch: u64,
    /// The LSN reserved last: the flush that follows makes all up to it stable.
    pub applied: Lsn,
    /// The LSN up to which the log's records were stable, so that a log that is not older has them.
    pub stable: Lsn,
    /// Up to this one, a flush that had ended before has made everything stable.
    pub flushed: Lsn,
    /// When it was written, in ms since 1970.
    pub time_ms: u64,
}

/// A place in the history of one log, as a mark has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkPlace {
    /// The log's epoch.
    pub epoch: u64,
    /// The LSN applied last.
    pub applied: Lsn,
}

impl Mark {
    /// Where it stands in the history of its log.
    pub fn place(&self) -> MarkPlace {
        MarkPlace { epoch: self.epoch, applied: self.applied }
    }

    /// The mark as it is written at the beginning of a slot.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.log);
        bytes.extend_from_slice(&self.host);
        bytes.extend_from_slice(&self.file_system.uuid);
        bytes.extend_from_slice(&self.file_system.kind.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for number in [
            self.sequence,
            self.epoch,
            self.applied.0,
            self.stable.0,
            self.flushed.0,
            self.time_ms,
            0,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let mut whole = [0; BYTES];
        debug_assert_eq!(bytes.len(), BYTES, "the fields fill the mark");
        whole.copy_from_slice(&bytes);
        let crc = checksum(&whole);
        whole[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        whole
    }

    /// The mark in a slot, if there is an intact one.
    fn decode(slot: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = slot.first_chunk()?;
        let mut fields = Fields(bytes);
        let (magic, version, crc) = (fields.array::<8>(), fields.u32(), fields.u32());
        if magic != MAGIC || version != VERSION || crc != checksum(bytes) {
            return None;
        }
        let (log, host, uuid, kind) =
            (fields.array(), fields.array(), fields.array(), fields.u32());
        fields.u32();
        let mark = Self {
            log,
            host,
            file_system: Identity { uuid, kind },
            sequence: fields.u64(),
            epoch: fields.u64(),
            applied: Lsn(fields.u64()),
            stable: Lsn(fields.u64()),
            flushed: Lsn(fields.u64()),
            time_ms: fields.u64(),
        };
        let numbers = [mark.sequence, mark.epoch, mark.applied.0, mark.stable.0, mark.flushed.0];
        numbers.into_iter().all(|number| number < NUMBER_MAX / 2).then_some(mark)
    }

    /// The mark that counts of those in the slots, and its slot.
    pub fn found(bytes: &[u8]) -> Option<(Self, usize)> {
        let slots = bytes.chunks(MARK_SLOT_BYTES).take(2).enumerate();
        let marks = slots.filter_map(|(slot, bytes)| Some((Self::decode(bytes)?, slot)));
        marks.max_by_key(|(mark, _)| mark.sequence)
    }
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CRC_AT]);
    crc32c::crc32c_append(before, &bytes[CRC_AT + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sequence: u64) -> Mark {
        Mark {
            log: [1; 16],
            host: [2; 16],
            file_system: Identity { uuid: [3; 16], kind: 0xef53 },
            sequence,
            epoch: 5,
            applied: Lsn(60),
            stable: Lsn(50),
            flushed: Lsn(40),
            time_ms: 1_700_000_000_000,
        }
    }

    fn slots(marks: [Option<Mark>; 2]) -> Vec<u8> {
        let mut bytes = vec![0; MARK_FILE_BYTES];
        for (slot, mark) in marks.into_iter().enumerate() {
            if let Some(mark) = mark {
                bytes[slot * MARK_SLOT_BYTES..][..BYTES].copy_from_slice(&mark.encode());
            }
        }
        bytes
    }

    #[test]
    fn the_intact_one_with_the_higher_number_counts() {
        assert_eq!(Mark::found(&[]), None);
        assert_eq!(Mark::found(&slots([None, None])), None);
        let mut bytes = slots([Some(mark(8)), Some(mark(7))]);
        assert_eq!(Mark::found(&bytes), Some((mark(8), 0)));
        for bit in 0..8 * BYTES {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::found(&bytes), Some((mark(7), 1)), "{bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // Cut short, the other one still counts.
        assert_eq!(Mark::found(&bytes[..MARK_SLOT_BYTES + 9]), Some((mark(8), 0)));
    }

    /// The format, byte for byte: marks outlive versions of this program.
    #[test]
    fn a_mark_of_the_first_version_is_read() {
        let bytes = mark(9).encode();
        assert_eq!(&bytes[..12], b"SfFsMark\x01\0\0\0");
        assert_eq!(bytes[16..68], [&[1; 16][..], &[2; 16], &[3; 16], &[0x53, 0xef, 0, 0]].concat());
        let numbers: Vec<u64> = bytes[72..120].chunks(8).map(|eight| Fields(eight).u64()).collect();
        assert_eq!(numbers, [9, 5, 60, 50, 40, 1_700_000_000_000]);
        assert_eq!(Fields(&bytes[12..]).u32(), 0x8e8c_4503);
    }
}
