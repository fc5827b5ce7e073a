//! File contents that tell which file and offset they belong to.
//!
//! A file's byte at offset `o` is the pattern's at `(shift(file) + o) mod period`, so that any
//! slice of a file is a slice of one buffer that never changes, and any eight bytes can be checked
//! on their own.

use std::sync::OnceLock;

/// After so many bytes the pattern repeats.
pub const PERIOD_BYTES: usize = 1 << 20;

/// The longest slice that [`slice()`] gives, in bytes.
pub const SLICE_BYTES_MAX: usize = 4 << 20;

/// So many files differ at every offset.
pub const FILES: usize = PERIOD_BYTES / 8;

/// Bytes between the beginnings of two files' contents in the pattern: an odd multiple of eight,
/// so that no two of [`FILES`] begin in the same place.
const SHIFT_BYTES: usize = 1016;

fn buffer() -> &'static [u8] {
    static BUFFER: OnceLock<Vec<u8>> = OnceLock::new();
    BUFFER.get_or_init(|| {
        let words = (PERIOD_BYTES + SLICE_BYTES_MAX) / 8;
        let mut bytes = Vec::with_capacity(words * 8);
        for index in 0..words {
            let word = (index % (PERIOD_BYTES / 8)) as u64;
            bytes.extend_from_slice(&word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        }
        bytes
    })
}

/// What a file holds from `offset` on; at most [`SLICE_BYTES_MAX`].
pub fn slice(file: usize, offset: u64, bytes: usize) -> &'static [u8] {
    let start = start(file, offset);
    buffer().get(start..start + bytes).unwrap_or(&[])
}

fn start(file: usize, offset: u64) -> usize {
    let offset = (offset % PERIOD_BYTES as u64) as usize;
    (file % PERIOD_BYTES * SHIFT_BYTES % PERIOD_BYTES + offset) % PERIOD_BYTES
}

/// Whether `data` is what the file holds from `offset` on, looking at a few places.
pub fn matches_sampled(file: usize, offset: u64, data: &[u8]) -> bool {
    let step = (data.len() / 4).max(64);
    let expected = slice(file, offset, data.len().min(SLICE_BYTES_MAX));
    if expected.len() != data.len() {
        return false;
    }
    let tail = data.len().saturating_sub(16);
    expected.get(tail..) == data.get(tail..)
        && expected
            .chunks(step)
            .zip(data.chunks(step))
            .all(|(a, b)| a.get(..16.min(a.len())) == b.get(..16.min(b.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_tell_file_and_offset() {
        let data = slice(3, 12_345, 70_000).to_vec();
        assert!(matches_sampled(3, 12_345, &data));
        assert!(matches_sampled(3, 12_345 + PERIOD_BYTES as u64, &data));
        assert!(!matches_sampled(4, 12_345, &data));
        assert!(!matches_sampled(3, 12_346, &data));
        assert!(!matches_sampled(3, 12_353, &data));
        let mut damaged = data.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(!matches_sampled(3, 12_345, &damaged));
    }

    #[test]
    fn the_pattern_does_not_break_where_it_repeats() {
        let across = slice(0, PERIOD_BYTES as u64 - 8, 16);
        assert_eq!(across[8..], slice(0, 0, 8)[..]);
    }
}
