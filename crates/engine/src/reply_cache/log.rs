//! The replies of a shard, in the order in which their calls finished: a log of segments, the
//! oldest of which is dropped as a whole, and an index into it. So an entry costs its reply, a
//! head of 36 bytes and its place in the index, and no allocation.

use std::collections::VecDeque;

use hashbrown::HashTable;

use super::key::{CallKey, KEY_BYTES};

/// Bytes of a segment, once the log has some; of its first ones, less.
pub(super) const SEGMENT_BYTES: usize = 16 << 10;
const SEGMENT_BYTES_MIN: usize = 512;
/// The key, and the reply's length.
const HEAD_BYTES: usize = KEY_BYTES + 4;

#[derive(Debug)]
struct Segment {
    /// Never grown beyond its capacity.
    bytes: Vec<u8>,
    entries: usize,
    newest_ms: u64,
}

/// Where an entry's head begins: the number of the segment since the log began, and the place in
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: u32,
    offset: u32,
}

/// The log. Segments are counted from the first ever, modulo 2^32.
#[derive(Debug, Default)]
pub(super) struct Log {
    segments: VecDeque<Segment>,
    first: u32,
    index: HashTable<Place>,
    segment_bytes: usize,
}

impl Log {
    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.segment_bytes + self.index.allocation_size()
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    fn entry(segments: &VecDeque<Segment>, first: u32, place: Place) -> Option<(&[u8], &[u8])> {
        let segment = segments.get(place.segment.wrapping_sub(first) as usize)?;
        let (key, rest) =
            segment.bytes.get(place.offset as usize..)?.split_at_checked(KEY_BYTES)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        Some((key, rest.get(..u32::from_le_bytes(*length) as usize)?))
    }

    /// The reply of a call.
    pub(super) fn find(&self, key: &CallKey) -> Option<&[u8]> {
        let bytes = key.to_bytes();
        let entry = |place: &Place| Self::entry(&self.segments, self.first, *place);
        let is_it = |place: &Place| entry(place).is_some_and(|(key, _)| key == bytes);
        entry(self.index.find(key.hash_number(), is_it)?).map(|(_, reply)| reply)
    }

    /// Bytes of the segment that has to be added before this reply can be appended, if one has.
    pub(super) fn wanted_segment(&self, reply: &[u8]) -> Option<usize> {
        let entry = HEAD_BYTES + reply.len();
        let has_room = self
            .segments
            .back()
            .is_some_and(|last| last.bytes.capacity() - last.bytes.len() >= entry);
        // Small logs have small segments: many shards are in little use.
        let usual = (self.segment_bytes / 2).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES);
        (!has_room).then_some(usual.max(entry))
    }

    /// Adds an empty segment.
    pub(super) fn add_segment(&mut self, bytes: usize) {
        let bytes = Vec::with_capacity(bytes);
        self.segment_bytes += bytes.capacity();
        self.segments.push_back(Segment { bytes, entries: 0, newest_ms: 0 });
    }

    /// Appends a reply to the last segment, which must have room.
    pub(super) fn append(&mut self, key: &CallKey, now_ms: u64, reply: &[u8]) {
        let number = self.first.wrapping_add(self.segments.len() as u32).wrapping_sub(1);
        let Some(segment) = self.segments.back_mut() else { return };
        let place = Place { segment: number, offset: segment.bytes.len() as u32 };
        segment.bytes.extend_from_slice(&key.to_bytes());
        segment.bytes.extend_from_slice(&(reply.len() as u32).to_le_bytes());
        segment.bytes.extend_from_slice(reply);
        segment.entries += 1;
        // A call's clock is that of its start: what came before it may be newer.
        segment.newest_ms = segment.newest_ms.max(now_ms);
        let (segments, first) = (&self.segments, self.first);
        let hash = |place: &Place| {
            Self::entry(segments, first, *place).map_or(0, |(key, _)| CallKey::hash_number_of(key))
        };
        self.index.insert_unique(key.hash_number(), place, hash);
    }

    /// When the last call of the oldest segment finished.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.segments.front().map(|segment| segment.newest_ms)
    }

    /// Drops the oldest segment; how many replies were in it.
    pub(super) fn drop_oldest(&mut self) -> usize {
        let mut place = Place { segment: self.first, offset: 0 };
        while let Some((key, reply)) = Self::entry(&self.segments, self.first, place) {
            let hash = CallKey::hash_number_of(key);
            if let Ok(found) = self.index.find_entry(hash, |other| *other == place) {
                found.remove();
            }
            place.offset += (HEAD_BYTES + reply.len()) as u32;
        }
        let Some(gone) = self.segments.pop_front() else { return 0 };
        self.segment_bytes -= gone.bytes.capacity();
        self.first = self.first.wrapping_add(1);
        gone.entries
    }

    /// Gives back what the index needs no more.
    pub(super) fn shrink_index(&mut self) {
        if self.index.capacity() <= 4 * self.index.len().max(4) {
            return;
        }
        let (segments, first) = (&self.segments, self.first);
        self.index.shrink_to(2 * self.index.len(), |place| {
            Self::entry(segments, first, *place).map_or(0, |(key, _)| CallKey::hash_number_of(key))
        });
        self.segments.shrink_to(2 * self.segments.len());
    }
}
