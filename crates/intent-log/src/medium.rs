//! What the intent log is written on: a file, a block device, memory.
//!
//! The log writes and reads whole blocks at block boundaries, from memory that is aligned like
//! them, so that a medium may go around the page cache (`O_DIRECT`). The alignment is in the type:
//! who has a `&[Block]` has memory that fits.

use std::fmt;
use std::ops::Range;

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

/// As much memory as a huge page has, aligned like one: the kernel can give a buffer of these huge
/// pages, which go to a device as one piece.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(0x20_0000))]
struct LargeBlock([u8; LARGE_BLOCK_BYTES]);

const LARGE_BLOCK_BYTES: usize = 2 << 20;

/// What is told of new memory, before it is written to.
pub type MemoryAdvice = fn(&Range<*const u8>);

enum Memory {
    Blocks(Vec<Block>),
    /// What of it is new is told of.
    LargeBlocks(Vec<LargeBlock>, MemoryAdvice),
}

/// Blocks that are used again and again: memory grows to what was needed most, and is not zeroed
/// between uses.
pub(crate) struct AlignedBuffer {
    memory: Memory,
    used: usize,
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Default for AlignedBuffer {
    fn default() -> Self {
        Self { memory: Memory::Blocks(Vec::new()), used: 0 }
    }
}

impl AlignedBuffer {
    /// A buffer of large blocks. When it grows, what it has is copied, and only what is added is told
    /// of.
    pub(crate) fn with_advice(advice: MemoryAdvice) -> Self {
        Self { memory: Memory::LargeBlocks(Vec::new(), advice), used: 0 }
    }

    /// Makes room for as many bytes, rounded up to blocks. What was in the buffer stays, as far as
    /// it fits; nothing is known about the rest.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.used = bytes.div_ceil(BLOCK_BYTES);
        match &mut self.memory {
            Memory::Blocks(blocks) => {
                if blocks.len() < self.used {
                    blocks.resize(self.used, Block::new_zeroed());
                }
            }
            Memory::LargeBlocks(blocks, advice) => {
                let wanted = (self.used * BLOCK_BYTES).div_ceil(LARGE_BLOCK_BYTES);
                let more = wanted.saturating_sub(blocks.len());
                if more > 0 {
                    blocks.reserve(more);
                    let memory = blocks.spare_capacity_mut().as_ptr_range();
                    advice(&(memory.start.cast()..memory.end.cast()));
                    // One after the other on the stack they would be too large for it.
                    let is_zeroed = LargeBlock::extend_vec_zeroed(blocks, more);
                    assert!(is_zeroed.is_ok(), "there was room for {more} already");
                }
            }
        }
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        let bytes = match &self.memory {
            Memory::Blocks(blocks) => blocks.as_bytes(),
            Memory::LargeBlocks(blocks, _) => blocks.as_bytes(),
        };
        let used = bytes.get(..self.used * BLOCK_BYTES);
        used.and_then(|bytes| <[Block]>::ref_from_bytes(bytes).ok()).unwrap_or_default()
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        let bytes = match &mut self.memory {
            Memory::Blocks(blocks) => blocks.as_mut_bytes(),
            Memory::LargeBlocks(blocks, _) => blocks.as_mut_bytes(),
        };
        let used = bytes.get_mut(..self.used * BLOCK_BYTES);
        used.and_then(|bytes| <[Block]>::mut_from_bytes(bytes).ok()).unwrap_or_default()
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
    use std::cell::RefCell;

    use super::{AlignedBuffer, BLOCK_BYTES, LARGE_BLOCK_BYTES};

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

    #[test]
    fn large_units_are_told_of_before_they_are_used_and_only_then() {
        thread_local! {
            static TOLD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        }
        let mut buffer = AlignedBuffer::with_advice(|memory| {
            let bytes = memory.end.addr() - memory.start.addr();
            assert_eq!(
                (memory.start.addr() % LARGE_BLOCK_BYTES, bytes % LARGE_BLOCK_BYTES),
                (0, 0)
            );
            TOLD.with_borrow_mut(|told| told.push(bytes));
        });
        buffer.resize(BLOCK_BYTES + 1);
        assert_eq!(buffer.blocks().len(), 2);
        buffer.bytes_mut().fill(7);
        buffer.resize(LARGE_BLOCK_BYTES);
        buffer.resize(3 * LARGE_BLOCK_BYTES + 1);
        assert_eq!(buffer.bytes().len(), 3 * LARGE_BLOCK_BYTES + BLOCK_BYTES);
        assert_eq!(buffer.bytes()[..2 * BLOCK_BYTES], [7; 2 * BLOCK_BYTES]);
        assert_eq!(buffer.bytes().last(), Some(&0));
        // All that was new: nothing of it was in use.
        assert_eq!(TOLD.take(), [LARGE_BLOCK_BYTES, 3 * LARGE_BLOCK_BYTES]);
    }
}
