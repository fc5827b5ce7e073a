//! Media of an intent log as short inputs: superblocks and the beginnings of blocks, the rest zeros.
//!
//! ```text
//! flags, blocks of the ring, then pieces: block (one byte), length (two bytes), bytes
//! ```
//! Blocks 0 and 1 are the superblocks, those from 2 on are of the ring.

use steadfast_intent_log::testing::{MemoryMedium, seal};

const SUPERBLOCK_BYTES: usize = 64 << 10;
const RING_OFFSET: usize = 2 * SUPERBLOCK_BYTES;
const BLOCK_BYTES: usize = 4096;
/// Blocks of the ring, at the most.
const BLOCKS_MAX: usize = 48;
/// The checksums are made right.
const IS_SEALED: u8 = 1;

fn place(block: usize) -> usize {
    match block {
        0 => 0,
        1 => SUPERBLOCK_BYTES,
        _ => RING_OFFSET + (block - 2) * BLOCK_BYTES,
    }
}

/// The medium of an input.
pub fn expand(input: &[u8]) -> Option<MemoryMedium> {
    let ([flags, blocks], mut rest) = input.split_first_chunk::<2>()?;
    let blocks = usize::from(*blocks) % (BLOCKS_MAX + 1);
    let mut image = vec![0; RING_OFFSET + blocks * BLOCK_BYTES];
    while let Some(([block, low, high], after)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (bytes, after) = after.split_at(length);
        let start = place(usize::from(*block) % (blocks + 2));
        let end = (start + length).min(image.len());
        image[start..end].copy_from_slice(&bytes[..end - start]);
        rest = after;
    }
    if flags & IS_SEALED != 0 {
        let (superblocks, ring) = image.split_at_mut(RING_OFFSET);
        let (a, b) = superblocks.split_at_mut(SUPERBLOCK_BYTES);
        seal([a, b], ring);
    }
    Some(MemoryMedium::from_image(image))
}

/// The input of a medium.
///
/// # Panics
/// If it is larger than inputs can be.
pub fn compact(medium: &MemoryMedium) -> Vec<u8> {
    let image = medium.image();
    let blocks = (image.len() - RING_OFFSET) / BLOCK_BYTES;
    assert!(blocks <= BLOCKS_MAX);
    let mut input = vec![IS_SEALED, blocks as u8];
    for block in 0..blocks + 2 {
        let bytes = &image[place(block)..][..BLOCK_BYTES];
        let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if length > 0 {
            input.push(block as u8);
            input.extend_from_slice(&(length as u16).to_le_bytes());
            input.extend_from_slice(&bytes[..length]);
        }
    }
    input
}
