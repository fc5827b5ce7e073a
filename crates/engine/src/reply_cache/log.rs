//! The replies of a shard, in the order in which their calls finished: a log of segments, the
//! oldest of which is dropped as a whole, and an index into it. So an entry costs its reply, a
//! head of 52 bytes and its place in the index, and no allocation.

use std::collections::VecDeque;

use hashbrown::HashTable;

use super::Execution;
use super::key::{CallKey, KEY_BYTES};

/// Bytes of a segment, once the log has some; of its first ones, less.
pub(super) const SEGMENT_BYTES: usize = 16 << 10;
const SEGMENT_BYTES_MIN: usize = 512;
/// The key, the connection, and the reply's length.
const HEAD_BYTES: usize = KEY_BYTES + CONNECTION_BYTES + 4;
const CONNECTION_BYTES: usize = 8;

#[derive(Debug)]
struct Segment {
    /// Never grown beyond its capacity.
    bytes: Vec<u8>,
    entries: usize,
    newest_ms: u64,
}

/// An entry as it lies in a segment.
struct Entry<'l> {
    key: &'l [u8],
    connection: u64,
    reply: &'l [u8],
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

    fn entry(segments: &VecDeque<Segment>, first: u32, place: Place) -> Option<Entry<'_>> {
        let segment = segments.get(place.segment.wrapping_sub(first) as usize)?;
        let (key, rest) =
            segment.bytes.get(place.offset as usize..)?.split_at_checked(KEY_BYTES)?;
        let (connection, rest) = rest.split_first_chunk::<CONNECTION_BYTES>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let reply = rest.get(..u32::from_le_bytes(*length) as usize)?;
        Some(Entry { key, connection: u64::from_le_bytes(*connection), reply })
    }

    /// The reply of an execution.
    pub(super) fn find(&self, execution: &Execution) -> Option<&[u8]> {
        let entry = |place: &Place| Self::entry(&self.segments, self.first, *place);
        entry(self.place(execution)?).map(|entry| entry.reply)
    }

    fn place(&self, execution: &Execution) -> Option<&Place> {
        let bytes = execution.key.to_bytes();
        self.index.find(execution.key.hash_number(), |place| {
            Self::entry(&self.segments, self.first, *place)
                .is_some_and(|entry| entry.connection == execution.connection && entry.key == bytes)
        })
    }

    /// Tells the connections that executed this call, until one is what is looked for.
    pub(super) fn find_connection(
        &self,
        key: &CallKey,
        mut is_it: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let bytes = key.to_bytes();
        let entry = |place: &Place| Self::entry(&self.segments, self.first, *place);
        let found = self.index.find(key.hash_number(), |place| {
            entry(place).is_some_and(|entry| entry.key == bytes && is_it(entry.connection))
        });
        entry(found?).map(|entry| entry.connection)
    }

    /// The reply of an execution is another connection's from now on.
    pub(super) fn give(&mut self, execution: &Execution, connection: u64) {
        let Some(place) = self.place(execution).copied() else { return };
        let segment = self.segments.get_mut(place.segment.wrapping_sub(self.first) as usize);
        let offset = place.offset as usize + KEY_BYTES;
        let bytes = segment.and_then(|segment| segment.bytes.get_mut(offset..));
        if let Some(bytes) = bytes.and_then(|bytes| bytes.first_chunk_mut()) {
            *bytes = connection.to_le_bytes();
        }
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
    pub(super) fn append(&mut self, execution: &Execution, now_ms: u64, reply: &[u8]) {
        let Execution { key, connection } = execution;
        let number = self.first.wrapping_add(self.segments.len() as u32).wrapping_sub(1);
        let Some(segment) = self.segments.back_mut() else { return };
        let place = Place { segment: number, offset: segment.bytes.len() as u32 };
        segment.bytes.extend_from_slice(&key.to_bytes());
        segment.bytes.extend_from_slice(&connection.to_le_bytes());
        segment.bytes.extend_from_slice(&(reply.len() as u32).to_le_bytes());
        segment.bytes.extend_from_slice(reply);
        segment.entries += 1;
        // A call's clock is that of its start: what came before it may be newer.
        segment.newest_ms = segment.newest_ms.max(now_ms);
        let (segments, first) = (&self.segments, self.first);
        let hash = |place: &Place| {
            Self::entry(segments, first, *place)
                .map_or(0, |entry| CallKey::hash_number_of(entry.key))
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
        while let Some(Entry { key, reply, .. }) = Self::entry(&self.segments, self.first, place) {
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
            Self::entry(segments, first, *place)
                .map_or(0, |entry| CallKey::hash_number_of(entry.key))
        });
        self.segments.shrink_to(2 * self.segments.len());
    }
}
