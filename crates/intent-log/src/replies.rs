//! The format of the reply store: the replies to calls that were executed, kept apart from the
//! data that went with them, so that they outlive the ring of the log, crashes and restarts.
//!
//! A store is a number of segments, each a file that grows at its end. All integers are
//! little-endian.
//!
//! | bytes of the head | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version |
//! | 4 | CRC-32C of what follows |
//! | 8 | sequence number: segments are read in its order |
//! | 8 | zeros |
//!
//! | bytes of an entry | |
//! |---|---|
//! | 4 | length of the payload, 1 to [`ENTRY_BYTES_MAX`] |
//! | 4 | CRC-32C of the time and the payload |
//! | 8 | the time: ms for which servers have run on this store |
//! | | the payload, and zeros up to a multiple of 8 bytes |
//!
//! A payload is what stands behind a change in a record of the log. What it means is the engine's.
//!
//! A crash may leave the last entries torn, or zeros for them: that ends a segment. Where a later
//! entry is whole, what is before it is damage; it is left out, and reported.

use thiserror::Error;

const MAGIC: [u8; 8] = *b"SfReply\0";
/// The version of this format.
pub const REPLIES_VERSION: u32 = 1;
/// Bytes of a segment's head.
pub const REPLIES_HEAD_BYTES: usize = 32;
/// The largest payload, in bytes.
pub const ENTRY_BYTES_MAX: usize = 4096;
const ENTRY_HEAD_BYTES: usize = 16;
const ALIGNMENT: usize = 8;

/// Why a segment cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// It does not begin as one.
    #[error("this is no file of replies")]
    Foreign,
    /// Another version.
    #[error("the file of replies has format version {0}, this program reads {REPLIES_VERSION}")]
    OtherVersion(u32),
    /// The head is damaged, or was never written as a whole.
    #[error("the head of the file of replies is damaged")]
    Head,
}

/// An entry of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'s> {
    /// For how long servers had run on the store.
    pub uptime_ms: u64,
    /// What was kept.
    pub payload: &'s [u8],
}

/// Appends the head of a segment.
pub fn write_segment_head(into: &mut Vec<u8>, sequence: u64) {
    let mut rest = [0; 16];
    if let Some(place) = rest.first_chunk_mut() {
        *place = sequence.to_le_bytes();
    }
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&REPLIES_VERSION.to_le_bytes());
    into.extend_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
    into.extend_from_slice(&rest);
}

/// How many bytes an entry takes.
pub fn entry_bytes(payload_bytes: usize) -> usize {
    ENTRY_HEAD_BYTES + payload_bytes.next_multiple_of(ALIGNMENT)
}

/// Appends an entry; `false` if its payload is empty or too large.
pub fn write_entry(into: &mut Vec<u8>, uptime_ms: u64, payload: &[u8]) -> bool {
    if payload.is_empty() || payload.len() > ENTRY_BYTES_MAX {
        return false;
    }
    into.reserve(entry_bytes(payload.len()));
    into.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    into.extend_from_slice(&checksum(uptime_ms, payload).to_le_bytes());
    into.extend_from_slice(&uptime_ms.to_le_bytes());
    into.extend_from_slice(payload);
    into.resize(into.len() + payload.len().next_multiple_of(ALIGNMENT) - payload.len(), 0);
    true
}

fn checksum(uptime_ms: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&uptime_ms.to_le_bytes()), payload)
}

/// The entries of a segment, in their order.
#[derive(Clone, Debug)]
pub struct Segment<'s> {
    /// Its place in the order of segments.
    pub sequence: u64,
    rest: &'s [u8],
    damaged_bytes: usize,
}

impl<'s> Segment<'s> {
    /// A segment by its bytes.
    ///
    /// # Errors
    /// Why it is none.
    pub fn new(bytes: &'s [u8]) -> Result<Self, SegmentError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) {
            // Its length may have become stable before its bytes.
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            return Err(if is_empty { SegmentError::Head } else { SegmentError::Foreign });
        }
        let (head, rest) =
            bytes.split_first_chunk::<REPLIES_HEAD_BYTES>().ok_or(SegmentError::Head)?;
        let version = number_32(head, 8).ok_or(SegmentError::Head)?;
        if version != REPLIES_VERSION {
            return Err(SegmentError::OtherVersion(version));
        }
        let (crc, checked) = (number_32(head, 12), head.get(16..).unwrap_or_default());
        if crc != Some(crc32c::crc32c(checked)) {
            return Err(SegmentError::Head);
        }
        let sequence = number_64(head, 16).ok_or(SegmentError::Head)?;
        Ok(Self { sequence, rest, damaged_bytes: 0 })
    }

    /// Bytes before the last entry so far that are none.
    pub fn damaged_bytes(&self) -> usize {
        self.damaged_bytes
    }
}

impl<'s> Iterator for Segment<'s> {
    type Item = Entry<'s>;

    fn next(&mut self) -> Option<Entry<'s>> {
        let mut skipped = 0;
        loop {
            let rest = self.rest.get(skipped..).filter(|rest| !rest.is_empty())?;
            if let Some((entry, bytes)) = first_entry(rest) {
                self.damaged_bytes += skipped;
                self.rest = rest.get(bytes..).unwrap_or_default();
                return Some(entry);
            }
            // What follows may be whole. A damaged length says nothing of where.
            skipped += ALIGNMENT;
        }
    }
}

fn first_entry(bytes: &[u8]) -> Option<(Entry<'_>, usize)> {
    let length = number_32(bytes, 0)? as usize;
    if length == 0 || length > ENTRY_BYTES_MAX {
        return None;
    }
    let (crc, uptime_ms) = (number_32(bytes, 4)?, number_64(bytes, 8)?);
    let payload = bytes.get(ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + length)?;
    let is_whole = crc == checksum(uptime_ms, payload);
    is_whole.then_some((Entry { uptime_ms, payload }, entry_bytes(length)))
}

fn number_32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn number_64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(entries: &[(u64, Vec<u8>)]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        write_segment_head(&mut bytes, 7);
        let mut ends = vec![bytes.len()];
        for (uptime_ms, payload) in entries {
            assert!(write_entry(&mut bytes, *uptime_ms, payload));
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn read(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, usize) {
        let mut segment = Segment::new(bytes).expect("a segment");
        let entries = segment.by_ref().map(|entry| (entry.uptime_ms, entry.payload.to_vec()));
        let entries = entries.collect();
        (entries, segment.damaged_bytes())
    }

    fn entries() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
        let payload = prop::collection::vec(any::<u8>(), 1..600);
        prop::collection::vec((any::<u64>(), payload), 0..12)
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(entries in entries()) {
            let (bytes, _) = segment(&entries);
            prop_assert_eq!(Segment::new(&bytes).map(|segment| segment.sequence), Ok(7));
            prop_assert_eq!(read(&bytes), (entries, 0));
        }

        /// Cut off anywhere, with whatever a file system leaves behind that.
        #[test]
        fn a_torn_end_costs_what_is_torn(
            entries in entries(),
            cut in any::<prop::sample::Index>(),
            zeros in 0..5_000_usize,
        ) {
            let (mut bytes, ends) = segment(&entries);
            bytes.truncate(REPLIES_HEAD_BYTES + cut.index(bytes.len() - REPLIES_HEAD_BYTES + 1));
            let mut whole = ends.iter().skip(1).filter(|end| **end <= bytes.len()).count();
            bytes.resize(bytes.len() + zeros, 0);
            // Of an entry that ends with zeros these may have been cut off.
            whole += usize::from(read(&bytes).0.len() > whole);
            prop_assert_eq!(read(&bytes), (entries[..whole].to_vec(), 0));
        }

        /// A damaged byte costs the entry that has it, and is told if there is one behind it.
        #[test]
        fn damage_costs_the_entry_that_has_it(
            entries in entries(),
            at in any::<prop::sample::Index>(),
            flip in 1..=255_u8,
        ) {
            prop_assume!(!entries.is_empty());
            let (mut bytes, ends) = segment(&entries);
            let at = REPLIES_HEAD_BYTES + at.index(bytes.len() - REPLIES_HEAD_BYTES);
            bytes[at] ^= flip;
            let hit = ends.iter().filter(|end| **end <= at).count() - 1;
            let (found, damaged) = read(&bytes);
            // Padding is not looked at.
            if found.len() == entries.len() {
                prop_assert_eq!((found, damaged), (entries, 0));
            } else {
                let is_last = hit + 1 == entries.len();
                let mut left = entries;
                left.remove(hit);
                prop_assert_eq!(found, left);
                prop_assert_eq!(damaged, if is_last { 0 } else { ends[hit + 1] - ends[hit] });
            }
        }

        #[test]
        fn no_bytes_are_trusted(bytes in prop::collection::vec(any::<u8>(), 0..400), has_head: bool) {
            let (mut all, _) = segment(&[]);
            if !has_head {
                all.clear();
            }
            all.extend(bytes);
            if let Ok(segment) = Segment::new(&all) {
                for entry in segment {
                    prop_assert!(!entry.payload.is_empty());
                }
            }
        }
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let (bytes, _) = segment(&[(1, vec![2; 30])]);
        let changed = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 2;
            Segment::new(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(changed(3), SegmentError::Foreign);
        assert_eq!(changed(8), SegmentError::OtherVersion(3));
        assert_eq!(changed(13), SegmentError::Head);
        assert_eq!(changed(17), SegmentError::Head);
        for length in [0, 5, 31] {
            assert_eq!(Segment::new(&bytes[..length]).unwrap_err(), SegmentError::Head);
        }
        assert_eq!(Segment::new(&[0; 500]).unwrap_err(), SegmentError::Head);
        assert_eq!(Segment::new(b"steadfast, not at all").unwrap_err(), SegmentError::Foreign);
        let mut into = Vec::new();
        assert!(!write_entry(&mut into, 1, &[]) && !write_entry(&mut into, 1, &[1; 4097]));
        assert!(into.is_empty());
    }
}
