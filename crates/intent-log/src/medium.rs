//! What the intent log is written on: a file, a block device, memory.
//!
//! The log writes and reads whole blocks at block boundaries, from memory that is aligned like
//! them, so that a medium may go around the page cache (`O_DIRECT`). The alignment is in the type:
//! who has a `&[Block]` has memory that fits.

use thiserror::Error;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes of a block: the unit of writing. The largest sector in use; what a device tears is
/// smaller (the tests tear at 512 bytes).
pub const BLOCK_BYTES: usize = 4096;

/// A block in memory, aligned like one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Block([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == BLOCK_BYTES);

impl Block {
    /// A block of zeros.
    pub const ZERO: Self = Self([0; BLOCK_BYTES]);

    /// The bytes of blocks that follow each other.
    pub fn bytes_of(blocks: &[Self]) -> &[u8] {
        blocks.as_bytes()
    }

    /// As [`Block::bytes_of`], to be written to.
    pub fn bytes_of_mut(blocks: &mut [Self]) -> &mut [u8] {
        blocks.as_mut_bytes()
    }
}

/// Why a medium did not read or write.
#[derive(Debug, Error)]
pub enum MediumError {
    /// The place is not on the medium.
    #[error("{bytes} bytes at {offset} are not on the medium")]
    Beyond {
        /// Where.
        offset: u64,
        /// How much was to be read or written.
        bytes: u64,
    },
    /// The device or the file system below it failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A place of a fixed size that keeps what is written to it.
///
/// What the log relies on: a write is stable when [`Medium::write_at`] returns without error;
/// until then, and after an error, any subset of its 512-byte sectors may be there after a power
/// loss; other sectors are not touched by it. What comes back damaged is recognised, not repaired.
pub trait Medium: Send + Sync {
    /// The size.
    fn bytes(&self) -> u64;

    /// Reads blocks. `offset` is a multiple of [`BLOCK_BYTES`].
    fn read_at(&self, offset: u64, into: &mut [Block]) -> Result<(), MediumError>;

    /// Writes blocks; they are stable when this returns. `offset` is a multiple of
    /// [`BLOCK_BYTES`].
    fn write_at(&self, offset: u64, from: &[Block]) -> Result<(), MediumError>;
}

/// Blocks that are used again and again: memory grows to what was needed most, and is not zeroed
/// between uses.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer {
    blocks: Vec<Block>,
    used: usize,
}

impl AlignedBuffer {
    /// Makes room for as many bytes, rounded up to blocks. What was in the buffer stays, as far as
    /// it fits; nothing is known about the rest.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.used = bytes.div_ceil(BLOCK_BYTES);
        if self.blocks.len() < self.used {
            self.blocks.resize(self.used, Block::new_zeroed());
        }
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        self.blocks.get(..self.used).unwrap_or_default()
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.blocks.get_mut(..self.used).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        Block::bytes_of(self.blocks())
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        Block::bytes_of_mut(self.blocks_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::{AlignedBuffer, BLOCK_BYTES};

    #[test]
    fn buffers_are_aligned_whole_blocks_and_keep_their_memory() {
        let mut buffer = AlignedBuffer::default();
        assert!(buffer.bytes().is_empty());
        buffer.resize(BLOCK_BYTES + 1);
        assert_eq!(buffer.bytes().len(), 2 * BLOCK_BYTES);
        assert_eq!(buffer.bytes().as_ptr().align_offset(BLOCK_BYTES), 0);
        buffer.bytes_mut().fill(7);
        let place = buffer.bytes().as_ptr();
        buffer.resize(1);
        assert_eq!(buffer.bytes(), [7; BLOCK_BYTES]);
        assert_eq!(buffer.bytes().as_ptr(), place);
    }
}
