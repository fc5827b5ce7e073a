//! Where things are on the medium, and how they are numbered.
//!
//! ```text
//! 0          64 KiB      128 KiB                                        128 KiB + ring bytes
//! | superblock A | superblock B | ring: batch batch batch … (round and round) |
//! ```
//!
//! All integers are little-endian. A [`Position`] counts the bytes written into the ring since the
//! log was created, and only grows: full and empty cannot be confused, and "later" is a comparison.

use std::ops::Range;

use crate::medium::BLOCK_BYTES;

/// Bytes kept for one copy of the superblock.
pub const SUPERBLOCK_BYTES: usize = 64 << 10;
/// Where the ring begins on the medium.
pub const RING_OFFSET: u64 = 2 * SUPERBLOCK_BYTES as u64;
/// The smallest ring. Tests and fuzzing like it small; `steadfast` asks for far more.
pub const RING_BYTES_MIN: u64 = 4 * BLOCK_BYTES as u64;
/// The largest payload of a record: the largest WRITE (1 MiB), its reply, and as much again.
pub const PAYLOAD_BYTES_MAX: usize = 2 << 20;
/// The largest batch, unless a single record is larger. Devices reach their throughput with less;
/// a larger batch would make those who wait for its first record wait for its last.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Records to a batch, at the most. It bounds how long the lock is held to take them.
pub const BATCH_RECORDS_MAX: usize = 1024;
/// Batches that are written at the same time. What may be missing before a record that is on the
/// medium is bounded by this.
pub const BATCHES_IN_FLIGHT_MAX: usize = 8;
/// The index of records that are of no file system: there for their replies, and never live.
pub const NO_FILE_SYSTEM: u32 = u32::MAX - 1;
/// Sequence numbers, epochs, LSNs and positions are below this, so that sums of them do not
/// overflow. At ten million records a second it lasts for 14,000 years.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

const _: () = assert!(RING_OFFSET.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(BATCH_BYTES_MAX.is_multiple_of(BLOCK_BYTES));

/// The number of a record: consecutive, from 1 on, never used twice in the life of a log. Of
/// records that are not there (before the first), 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The one before; of none, none.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in the ring: bytes written into it since the log was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub u64);

impl Position {
    /// So many bytes further.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Bytes from an earlier position to this one; 0 from a later one.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This position, or the next block boundary if it is not on one.
    #[must_use]
    pub fn block_after(self) -> Self {
        // Positions are far below the end of u64.
        Self(self.0.checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(u64::MAX))
    }

    /// The block boundary at or before this position.
    #[must_use]
    pub(crate) fn block_before(self) -> Self {
        Self(self.0 - self.0 % BLOCK_BYTES as u64)
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How large a ring a medium of this size has room for; `None` if it is too small for a log.
pub fn ring_bytes_of(medium_bytes: u64) -> Option<u64> {
    let bytes = medium_bytes.checked_sub(RING_OFFSET)?;
    let bytes = (bytes - bytes % BLOCK_BYTES as u64).min(NUMBER_MAX);
    (bytes >= RING_BYTES_MIN).then_some(bytes)
}

/// Where so many blocks at a position lie on the medium: offset there, range of the blocks. Two
/// pieces where they cross the end of the ring, else one. `position` is on a block boundary, and
/// they are not more than the ring has.
pub(crate) fn pieces(
    position: Position,
    blocks: usize,
    ring_bytes: u64,
) -> impl Iterator<Item = (u64, Range<usize>)> {
    let place = position.0 % ring_bytes;
    let before_end = usize::try_from((ring_bytes - place) / BLOCK_BYTES as u64)
        .unwrap_or(usize::MAX)
        .min(blocks);
    [(RING_OFFSET + place, 0..before_end), (RING_OFFSET, before_end..blocks)]
        .into_iter()
        .filter(|(_, range)| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, Position, RING_BYTES_MIN, RING_OFFSET, pieces, ring_bytes_of};

    #[test]
    fn the_ring_is_what_is_left_in_whole_blocks() {
        assert_eq!(ring_bytes_of(0), None);
        assert_eq!(ring_bytes_of(RING_OFFSET + RING_BYTES_MIN - 1), None);
        assert_eq!(ring_bytes_of(RING_OFFSET + RING_BYTES_MIN + 4095), Some(RING_BYTES_MIN));
        assert!(ring_bytes_of(u64::MAX).is_some());
    }

    #[test]
    fn blocks_across_the_end_are_two_pieces() {
        let block = BLOCK_BYTES as u64;
        let found =
            |position, blocks| pieces(Position(position), blocks, 4 * block).collect::<Vec<_>>();
        assert_eq!(found(0, 4), [(RING_OFFSET, 0..4)]);
        assert_eq!(found(5 * block, 3), [(RING_OFFSET + block, 0..3)]);
        assert_eq!(found(6 * block, 4), [(RING_OFFSET + 2 * block, 0..2), (RING_OFFSET, 2..4)]);
    }

    #[test]
    fn blocks_before_and_after() {
        assert_eq!(Position(4096).block_after(), Position(4096));
        assert_eq!(Position(4097).block_after(), Position(8192));
        assert_eq!(Position(4097).block_before(), Position(4096));
        assert_eq!(Position(u64::MAX).block_after(), Position(u64::MAX));
    }
}
