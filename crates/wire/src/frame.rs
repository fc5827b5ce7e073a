//! Data of files as one zstd frame (RFC 8878), as READZ and WRITEZ of the recovery program carry it
//! (docs/recovery.md).
//!
//! A reader says how long the data has to be, and gets it whole or not at all. A frame cannot make it hold more
//! than that: the output has its room before anything is decompressed, and is what a frame refers back into,
//! so that no window is allocated, whatever its header asks for.

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

/// What a frame begins with (RFC 8878 §3.1.1). Skippable frames and those of old formats begin with other bytes.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Shorter data is not worth a frame, in bytes.
pub const DATA_BYTES_MIN: usize = 512;
/// Level 1 of zstd(1), whose negative levels are faster still: it is to keep up with a link.
const LEVEL: i32 = 1;

/// Why bytes are not taken for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// They are no frame, or more than one.
    #[error("this is not one zstd frame")]
    NotOneFrame,
    /// The frame's header has another length than the data is to have, or none.
    #[error("the frame does not say that its data is as long as it has to be")]
    OtherLength,
    /// The frame cannot be decompressed to that length, or its checksum is wrong.
    #[error("the frame is damaged")]
    Damaged,
}

/// The data as a frame with its length and a checksum; `None` if that would not be shorter by an eighth, or the
/// data is shorter than [`DATA_BYTES_MIN`].
pub fn compress(data: &[u8]) -> Option<Vec<u8>> {
    if data.len() < DATA_BYTES_MIN {
        return None;
    }
    let mut compressor = Compressor::new(LEVEL).ok()?;
    compressor.include_checksum(true).ok()?;
    // It fails where this is not enough.
    let mut frame = Vec::with_capacity(data.len() - data.len() / 8);
    compressor.compress_to_buffer(data, &mut frame).ok()?;
    Some(frame)
}

/// The data of a frame, which has to be so many bytes. The caller bounds that number.
///
/// # Errors
/// See [`FrameError`].
pub fn decompress(frame: &[u8], data_bytes: usize) -> Result<Vec<u8>, FrameError> {
    if !frame.starts_with(&MAGIC) || zstd_safe::find_frame_compressed_size(frame) != Ok(frame.len())
    {
        return Err(FrameError::NotOneFrame);
    }
    match zstd_safe::get_frame_content_size(frame) {
        Ok(Some(bytes)) if usize::try_from(bytes) == Ok(data_bytes) => {}
        _ => return Err(FrameError::OtherLength),
    }
    let mut data = Vec::with_capacity(data_bytes);
    let written = Decompressor::new()
        .and_then(|mut decompressor| decompressor.decompress_to_buffer(frame, &mut data));
    match written {
        Ok(bytes) if bytes == data_bytes && data.len() == data_bytes => Ok(data),
        _ => Err(FrameError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    //! Unit and property rings: what is decompressed is what was compressed, or an error.
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: usize) -> Vec<u8> {
        let lines =
            (0..).map(|line| format!("{line}: the quick brown fox jumps over the lazy dog\n"));
        lines.flat_map(String::into_bytes).take(bytes).collect()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn text_becomes_less_than_half_and_comes_back() {
        for bytes in [DATA_BYTES_MIN, 4096, 65_537, 1 << 20] {
            let data = text(bytes);
            let frame = compress(&data).expect("text is compressed");
            assert!(frame.len() * 2 < data.len(), "{bytes}: {}", frame.len());
            assert_eq!(decompress(&frame, data.len()), Ok(data));
        }
    }

    #[test]
    fn what_does_not_become_shorter_by_an_eighth_stays() {
        for bytes in [DATA_BYTES_MIN, 4096, 1 << 20] {
            assert_eq!(compress(&noise(bytes)), None);
        }
        assert_eq!(compress(&text(DATA_BYTES_MIN - 1)), None, "not worth it");
        // Just enough zeros at the end: a seventh is saved. And just too few.
        let mut data = noise(1 << 20);
        data.extend(vec![0; (1 << 20) / 6]);
        let frame = compress(&data).expect("an eighth is saved");
        assert!(frame.len() <= data.len() - data.len() / 8);
        data.truncate((1 << 20) + (1 << 20) / 9);
        assert_eq!(compress(&data), None);
    }

    #[test]
    fn another_length_than_the_frame_says_is_refused() {
        let data = text(10_000);
        let frame = compress(&data).expect("text is compressed");
        for bytes in [0, 1, 9_999, 10_001, 1 << 30, usize::MAX] {
            assert_eq!(decompress(&frame, bytes), Err(FrameError::OtherLength), "{bytes}");
        }
        // A frame that does not say how long its data is.
        let mut compressor = Compressor::new(1).expect("a compressor");
        compressor.include_contentsize(false).expect("it can leave that out");
        let frame = compressor.compress(&data).expect("compressed");
        assert_eq!(decompress(&frame, data.len()), Err(FrameError::OtherLength));
    }

    #[test]
    fn a_bomb_is_given_no_more_room_than_it_was_to_have() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).expect("zeros are compressed");
        assert!(bomb.len() < 10_000, "{}", bomb.len());
        assert_eq!(decompress(&bomb, 1 << 20), Err(FrameError::OtherLength));
        // Its header lies: 4 bytes behind the descriptor are the length (RFC 8878 §3.1.1.1).
        let mut lying = bomb.clone();
        let length = (64_u32 << 20).to_le_bytes();
        let at = lying.windows(4).position(|four| four == length).expect("the length is there");
        lying.splice(at..at + 4, (1_u32 << 20).to_le_bytes());
        let told = zstd_safe::get_frame_content_size(&lying);
        assert!(matches!(told, Ok(Some(bytes)) if bytes == 1 << 20), "it lies");
        assert_eq!(decompress(&lying, 1 << 20), Err(FrameError::Damaged));
    }

    #[test]
    fn only_one_whole_frame_is_taken() {
        let data = text(5000);
        let frame = compress(&data).expect("text is compressed");
        let twice = [frame.clone(), frame.clone()].concat();
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0][..], &frame].concat();
        let longer = [&frame[..], &[0]].concat();
        for wrong in [&twice[..], &skippable, &skippable[..8], &longer, &[], &MAGIC, &frame[1..]] {
            assert_eq!(decompress(wrong, data.len()), Err(FrameError::NotOneFrame));
        }
        for cut in 4..frame.len() {
            assert!(decompress(&frame[..cut], data.len()).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let data = text(2000);
        let frame = compress(&data).expect("text is compressed");
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // The descriptor has a bit without meaning, which changes no data.
            let read = decompress(&damaged, data.len());
            assert!(read.is_err() || read.as_ref() == Ok(&data), "{bit}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_give_more(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            has_magic: bool,
            wanted in 0_usize..5000,
        ) {
            let frame = if has_magic { [&MAGIC[..], &bytes].concat() } else { bytes };
            if let Ok(data) = decompress(&frame, wanted) {
                prop_assert_eq!(data.len(), wanted);
            }
        }
    }
}
