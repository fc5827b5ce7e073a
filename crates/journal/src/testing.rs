//! For fuzzing, which would never guess a checksum.

use crate::format::{HEADER_BYTES, Header, MAGIC, SUPERBLOCK_BYTES};

/// Writes the right checksums into the superblocks of an image, and into what begins as a frame in
/// its ring.
pub fn seal(image: &mut [u8]) {
    let (first, rest) = image.split_at_mut(SUPERBLOCK_BYTES.min(image.len()));
    let (ring, last) = rest.split_at_mut(rest.len().saturating_sub(SUPERBLOCK_BYTES));
    for superblock in [first, last].into_iter().filter(|it| it.len() == SUPERBLOCK_BYTES) {
        let (checked, crc) = superblock.split_at_mut(SUPERBLOCK_BYTES - 4);
        if checked.iter().any(|byte| *byte != 0) {
            crc.copy_from_slice(&crc32c::crc32c(checked).to_le_bytes());
        }
    }
    let mut at = 0;
    while let Some(frame) = ring.get_mut(at..).filter(|rest| rest.len() >= HEADER_BYTES) {
        at += 8;
        if !frame.starts_with(&MAGIC) {
            continue;
        }
        let (header, rest) = frame.split_at_mut(HEADER_BYTES);
        let Ok(header) = <&mut [u8; HEADER_BYTES]>::try_from(header) else { return };
        let mut fields = Header::fields(header);
        if let Some(payload) = rest.get(..fields.payload_bytes as usize) {
            fields.payload_crc = crc32c::crc32c(payload);
            *header = fields.encode();
        }
    }
}
