//! The file of client records as bytes: a head of 8 bytes, then frames of events.
//!
//! | bytes of a frame | |
//! |---|---|
//! | 4 | length of the events |
//! | 4 | CRC32C of what follows |
//! | 8 | number of the frame in its file, from 1 on |
//! | | events ([`ClientRecords::add`]) |
//!
//! Assumed of the medium: what was flushed stays, and of what was not, any bytes may be there. A file
//! begins with one frame, which is flushed before the file gets its name. So the last of further
//! frames may be cut off: nobody was told of it, and what comes before it counts. If a whole frame
//! follows one that is damaged, then flushed bytes are gone. Whoever was struck off there could
//! reclaim what others have got since. So nobody may reclaim then. Damage of the last frame looks
//! like a frame that was cut off.

use thiserror::Error;

use super::ClientRecords;

/// With the version at its end.
const MAGIC: [u8; 8] = *b"SFCLREC\x01";
const FRAME_HEAD_BYTES: usize = 16;

/// Why a file does not tell who is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordsError {
    /// It is another file, or of another version.
    #[error("it does not begin as a file of client records")]
    Head,
    /// A checksum in what was flushed is wrong.
    #[error("a part of it is damaged")]
    Damaged,
    /// A later version wrote it.
    #[error("it has entries that this version does not know")]
    Unknown,
}

impl ClientRecords {
    /// Reads a file.
    ///
    /// # Errors
    /// [`RecordsError`], when it cannot be known who is recorded.
    pub fn read_file(bytes: &[u8]) -> Result<Self, RecordsError> {
        let mut rest = bytes.strip_prefix(&MAGIC[..]).ok_or(RecordsError::Head)?;
        let (mut records, mut number) = (Self::default(), 1);
        while let Some((events, behind)) = frame(rest, number) {
            records.add(events).map_err(|_| RecordsError::Unknown)?;
            (rest, number) = (behind, number + 1);
        }
        if number == 1 || has_frame(rest, number) {
            return Err(RecordsError::Damaged);
        }
        Ok(records)
    }

    /// A file of these records, with one frame.
    pub fn file(&self) -> Vec<u8> {
        let mut events = Vec::new();
        self.append(&mut events);
        let mut file = MAGIC.to_vec();
        file.extend(Self::frame(1, &events));
        file
    }

    /// The frame of a file that has this number.
    pub fn frame(number: u64, events: &[u8]) -> Vec<u8> {
        let mut summed = Vec::with_capacity(FRAME_HEAD_BYTES + events.len());
        summed.extend_from_slice(&number.to_le_bytes());
        summed.extend_from_slice(events);
        // No frame has 4 GiB: all clients together have less than 64 MiB, and 8 MiB of what they have lost.
        let length = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend_from_slice(&crc32c::crc32c(&summed).to_le_bytes());
        frame.append(&mut summed);
        frame
    }
}

/// The events of the first frame, if it is whole and has this number, and what follows it.
fn frame(bytes: &[u8], number: u64) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (summed, behind) = rest.split_at_checked(length.checked_add(8)?)?;
    let (found, events) = summed.split_first_chunk::<8>()?;
    let is_whole =
        u64::from_le_bytes(*found) == number && crc32c::crc32c(summed) == u32::from_le_bytes(*sum);
    is_whole.then_some((events, behind))
}

/// Whether a whole frame is anywhere behind the frame of this number, which is not whole.
fn has_frame(bytes: &[u8], number: u64) -> bool {
    (1..bytes.len()).any(|at| {
        let bytes = bytes.get(at..).unwrap_or(&[]);
        let found = bytes.get(8..FRAME_HEAD_BYTES).and_then(|found| found.try_into().ok());
        let found = found.map_or(0, u64::from_le_bytes);
        // So many frames there are at most.
        let is_likely = found > number && found - number <= bytes.len() as u64;
        is_likely && frame(bytes, found).is_some()
    })
}
