//! What has not left yet, by sequence and by file. Pure.
//!
//! Each file has extents: which record has the newest bytes of which range. A later write, or a
//! truncation, cuts those before it. A record of which nothing is left is *superseded*: it is not
//! sent any more. A truncation is an extent of zeros from the new size on, so that what the server
//! still has there does not shine through.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::format::{Header, Sequence};
use crate::notes::{Outcome, Stamp};
use crate::record::{Change, Decoded, Kind};

/// What is known of a record without reading it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) position: u64,
    pub(crate) previous: Sequence,
    pub(crate) frame_bytes: u64,
    pub(crate) time_ns: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Arc<[u32]>,
    pub(crate) path: Arc<[u8]>,
    /// Of a rename.
    pub(crate) to_path: Option<Arc<[u8]>>,
    pub(crate) objects: [Option<Arc<[u8]>>; 2],
    /// Of a write, and of a truncation (length 0).
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) hash: [u8; 32],
    pub(crate) outcome: Option<Outcome>,
    /// Handles of what was made, in the order in which they were noted, each once.
    pub(crate) handles: Vec<Arc<[u8]>>,
    /// Bytes of which it has the newest version.
    live_bytes: u64,
    pub(crate) is_superseded: bool,
    effect: Effect,
    can_be_superseded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Data,
    Truncate(u64),
}

impl Entry {
    /// Of a record that has no place yet.
    pub(crate) fn new(kind: Kind, decoded: &Decoded<'_>) -> Self {
        let record = &decoded.record;
        let (effect, offset, can_be_superseded) = match &record.change {
            Change::Write { offset, .. } => (Effect::Data, *offset, true),
            Change::SetAttr { attributes, .. } => match attributes.size {
                Some(size) => (Effect::Truncate(size), size, attributes.is_size_only()),
                None => (Effect::None, 0, false),
            },
            _ => (Effect::None, 0, false),
        };
        Self {
            kind,
            position: 0,
            previous: Sequence(0),
            frame_bytes: 0,
            time_ns: record.time_ns,
            uid: record.uid,
            gid: record.gid,
            groups: decoded.groups.as_slice().into(),
            path: record.path.into(),
            to_path: match record.change {
                Change::Rename { to_path, .. } => Some(to_path.into()),
                _ => None,
            },
            objects: record.objects().map(|object| object.map(Into::into)),
            offset,
            length: decoded.data_bytes,
            hash: decoded.hash,
            outcome: record.order.map(|order| Outcome { order: Some(order), ..Outcome::default() }),
            handles: Vec::new(),
            live_bytes: 0,
            is_superseded: false,
            effect,
            can_be_superseded,
        }
    }

    /// The record has got its place.
    pub(crate) fn stands_at(&mut self, header: &Header) {
        self.position = header.position;
        self.previous = header.previous;
        self.frame_bytes = header.frame_bytes();
    }

    /// The server's answer. It may come again: a replay that makes an object anew gets another handle.
    pub(crate) fn note(&mut self, outcome: Outcome) {
        if !outcome.handle.is_empty() {
            self.handles.retain(|known| **known != *outcome.handle);
            self.handles.push(outcome.handle.as_slice().into());
        }
        self.outcome = Some(outcome);
    }

    /// The object that stamps of it are of.
    pub(crate) fn stamped(&self) -> Option<&Arc<[u8]>> {
        self.objects[0].as_ref()
    }

    /// What it changes of its file.
    fn range(&self) -> Option<Range<u64>> {
        match self.effect {
            Effect::None => None,
            Effect::Data => Some(self.offset..self.offset.saturating_add(u64::from(self.length))),
            Effect::Truncate(size) => Some(size..u64::MAX),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    sequence: Sequence,
    is_zero: bool,
}

#[derive(Debug, Default)]
struct FileState {
    extents: BTreeMap<u64, Extent>,
    records: BTreeSet<Sequence>,
    /// The newest one, and the position of a frame that has it.
    stamp: Option<(Stamp, u64)>,
    /// Up to this sequence its changes are older than one that was sent around the journal.
    bypassed: Sequence,
}

/// A piece of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    pub(crate) sequence: Sequence,
    pub(crate) is_zero: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    records: BTreeMap<Sequence, Entry>,
    files: HashMap<Arc<[u8]>, FileState>,
    pub(crate) superseded_bytes: u64,
}

impl Index {
    /// Adds a record, the newest of all. Returns those that it has superseded.
    pub(crate) fn insert(&mut self, sequence: Sequence, mut entry: Entry) -> Vec<Sequence> {
        let superseded = self.cut_by(&entry);
        for object in entry.objects.iter_mut().flatten() {
            // One copy of a handle for all its records.
            if let Some((known, _)) = self.files.get_key_value(object) {
                *object = Arc::clone(known);
            }
            self.files.entry(Arc::clone(object)).or_default().records.insert(sequence);
        }
        if let (Some(range), Some(file)) = (entry.range(), &entry.objects[0])
            && !range.is_empty()
            && let Some(state) = self.files.get_mut(file)
        {
            entry.live_bytes = range.end - range.start;
            let is_zero = entry.effect != Effect::Data;
            state.extents.insert(range.start, Extent { end: range.end, sequence, is_zero });
        }
        self.records.insert(sequence, entry);
        superseded
    }

    /// What a record does to those before it. It is not added: this is for one that has left, too.
    pub(crate) fn cut_by(&mut self, entry: &Entry) -> Vec<Sequence> {
        let (Some(range), Some(file)) = (entry.range(), &entry.objects[0]) else {
            return Vec::new();
        };
        let Some(state) = self.files.get_mut(file) else { return Vec::new() };
        let mut superseded = Vec::new();
        for (sequence, bytes) in state.cut(&range) {
            let Some(owner) = self.records.get_mut(&sequence) else { continue };
            owner.live_bytes = owner.live_bytes.saturating_sub(bytes);
            if owner.kind == Kind::Write {
                self.superseded_bytes += bytes;
            }
            if owner.live_bytes == 0 && owner.can_be_superseded {
                owner.is_superseded = true;
                superseded.push(sequence);
            }
        }
        superseded
    }

    /// Removes a record that leaves.
    pub(crate) fn remove(&mut self, sequence: Sequence) -> Option<Entry> {
        let entry = self.records.remove(&sequence)?;
        if let (Some(range), Some(file)) = (entry.range(), &entry.objects[0])
            && let Some(state) = self.files.get_mut(file)
        {
            let of_it: Vec<u64> = state
                .extents
                .range(range)
                .filter(|(_, extent)| extent.sequence == sequence)
                .map(|(start, _)| *start)
                .collect();
            for start in of_it {
                state.extents.remove(&start);
            }
        }
        for object in entry.objects.iter().flatten() {
            if let Some(state) = self.files.get_mut(object) {
                state.records.remove(&sequence);
                if state.records.is_empty() {
                    self.files.remove(object);
                }
            }
        }
        Some(entry)
    }

    pub(crate) fn get(&self, sequence: Sequence) -> Option<&Entry> {
        self.records.get(&sequence)
    }

    pub(crate) fn get_mut(&mut self, sequence: Sequence) -> Option<&mut Entry> {
        self.records.get_mut(&sequence)
    }

    /// The oldest record: the ring's tail is here.
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.records.first_key_value().map(|(_, entry)| entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Sequence, &Entry)> {
        self.records.iter().map(|(sequence, entry)| (*sequence, entry))
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// The records of an object, in order.
    pub(crate) fn of(&self, object: &[u8]) -> impl Iterator<Item = (Sequence, &Entry)> {
        let records = self.files.get(object).into_iter().flat_map(|state| &state.records);
        records.filter_map(|sequence| Some((*sequence, self.records.get(sequence)?)))
    }

    /// Notes a stamp of an object that has records. Answers come in any order: the server's clock
    /// tells which is newer.
    pub(crate) fn note_stamp(&mut self, object: &[u8], stamp: Stamp, position: u64) {
        let Some(state) = self.files.get_mut(object) else { return };
        if state.stamp.is_none_or(|(known, _)| known.changed <= stamp.changed) {
            state.stamp = Some((stamp, position));
        }
    }

    pub(crate) fn stamp(&self, object: &[u8]) -> Option<Stamp> {
        Some(self.files.get(object)?.stamp?.0)
    }

    /// The stamps of which all frames are before a position.
    pub(crate) fn stamps_before(&self, position: u64) -> Vec<(Arc<[u8]>, Stamp)> {
        let is_before = |(_, at): &(Stamp, u64)| *at < position;
        let stamps = self.files.iter().filter_map(|(object, state)| {
            state.stamp.filter(is_before).map(|(stamp, _)| (Arc::clone(object), stamp))
        });
        stamps.collect()
    }

    /// A stamp has been written again.
    pub(crate) fn stamp_moved(&mut self, object: &[u8], position: u64) {
        if let Some(state) = self.files.get_mut(object)
            && let Some((_, at)) = &mut state.stamp
        {
            *at = position;
        }
    }

    /// A change of this object was, or is going to be, sent around the journal.
    pub(crate) fn bypass(&mut self, object: &[u8], up_to: Sequence) {
        if let Some(state) = self.files.get_mut(object) {
            state.bypassed = state.bypassed.max(up_to);
        }
    }

    /// The last record of an object that nobody knows to be older than a change around the journal.
    pub(crate) fn last_unbypassed(&self, object: &[u8]) -> Option<Sequence> {
        let state = self.files.get(object)?;
        state.records.last().copied().filter(|last| *last > state.bypassed)
    }

    /// Whether a change of an object of this record was sent around the journal after it.
    pub(crate) fn is_bypassed(&self, sequence: Sequence, entry: &Entry) -> bool {
        let mut objects = entry.objects.iter().flatten();
        objects.any(|object| self.files.get(object).is_some_and(|state| state.bypassed >= sequence))
    }

    /// The ranges of which a write has the newest bytes.
    pub(crate) fn live_ranges(&self, sequence: Sequence, entry: &Entry) -> Vec<Range<u64>> {
        let (Some(range), Some(file)) = (entry.range(), &entry.objects[0]) else {
            return Vec::new();
        };
        let Some(state) = self.files.get(file).filter(|_| entry.kind == Kind::Write) else {
            return Vec::new();
        };
        state
            .extents
            .range(range)
            .filter(|(_, extent)| extent.sequence == sequence)
            .map(|(start, extent)| *start..extent.end)
            .collect()
    }

    /// What is pending of a range, in order.
    pub(crate) fn overlay(&self, file: &[u8], range: &Range<u64>) -> Vec<Piece> {
        let Some(state) = self.files.get(file) else { return Vec::new() };
        let before = state.extents.range(..range.start).next_back();
        let inside = state.extents.range(range.start..range.end.max(range.start));
        before
            .into_iter()
            .chain(inside)
            .map(|(start, extent)| Piece {
                range: (*start).max(range.start)..extent.end.min(range.end),
                sequence: extent.sequence,
                is_zero: extent.is_zero,
            })
            .filter(|piece| !piece.range.is_empty())
            .collect()
    }
}

impl FileState {
    /// Takes a range from all extents. Returns who lost how many bytes.
    fn cut(&mut self, range: &Range<u64>) -> Vec<(Sequence, u64)> {
        if range.is_empty() {
            return Vec::new();
        }
        let mut lost = Vec::new();
        if let Some((&start, &extent)) = self.extents.range(..range.start).next_back()
            && extent.end > range.start
        {
            self.extents.insert(start, Extent { end: range.start, ..extent });
            lost.push((extent.sequence, extent.end.min(range.end) - range.start));
            if extent.end > range.end {
                self.extents.insert(range.end, extent);
            }
        }
        let inside: Vec<(u64, Extent)> =
            self.extents.range(range.clone()).map(|(start, extent)| (*start, *extent)).collect();
        for (start, extent) in inside {
            self.extents.remove(&start);
            lost.push((extent.sequence, extent.end.min(range.end) - start));
            if extent.end > range.end {
                self.extents.insert(range.end, extent);
            }
        }
        lost
    }
}
