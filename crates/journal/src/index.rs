//! What has not left yet, by sequence and by file. Pure.
//!
//! Each file has extents: which record has the newest bytes of which range. A later write, or a
//! truncation, cuts those before it. A record of which nothing is left is *superseded*: it is not
//! sent any more. A truncation is an extent of zeros from the new size on, so that what the server
//! still has there does not shine through.
//!
//! A cut is for good only when the server has the later record stable: then the range is *done* for
//! all records up to that one, and a record that is done leaves. If the server refuses the later
//! record, the older ones have their bytes again. So what was cut stays until then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::format::{DATA_BYTES_MAX, Header, Sequence};
use crate::notes::{Outcome, Stamp};
use crate::ranges;
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
    /// What of its range the server has stable, or newer bytes.
    done: Vec<Range<u64>>,
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
            done: Vec::new(),
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

    /// Nothing of it is to be sent.
    pub(crate) fn is_superseded(&self) -> bool {
        self.can_be_superseded
            && self.live_bytes == 0
            && self.range().is_some_and(|it| !it.is_empty())
    }

    /// Part of its range is done.
    fn add_done(&mut self, range: &Range<u64>) {
        if let Some(own) = self.range() {
            ranges::add(&mut self.done, ranges::common(&own, range));
        }
    }

    fn is_done(&self) -> bool {
        self.can_be_superseded && self.range().is_some_and(|own| self.done == [own])
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
    /// Writes that have lost bytes to later records, by where they begin; and truncations that have.
    cut_writes: BTreeSet<(u64, Sequence)>,
    cut_truncations: BTreeSet<Sequence>,
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
    /// File data of all records, before compression.
    pub(crate) data_bytes: u64,
}

impl Index {
    /// Adds a record, the newest of all.
    pub(crate) fn insert(&mut self, sequence: Sequence, mut entry: Entry) {
        self.cut_by(&entry);
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
        self.data_bytes += u64::from(entry.length);
        self.records.insert(sequence, entry);
    }

    /// What a record does to those before it.
    fn cut_by(&mut self, entry: &Entry) {
        let (Some(range), Some(file)) = (entry.range(), &entry.objects[0]) else { return };
        let Some(state) = self.files.get_mut(file) else { return };
        for (sequence, bytes) in state.cut(&range) {
            let Some(owner) = self.records.get_mut(&sequence) else { continue };
            owner.live_bytes = owner.live_bytes.saturating_sub(bytes);
            if owner.kind == Kind::Write {
                self.superseded_bytes += bytes;
            }
            match owner.effect {
                Effect::Data => state.cut_writes.insert((owner.offset, sequence)),
                _ => state.cut_truncations.insert(sequence),
            };
        }
    }

    /// The server has a record stable: of a write, that of it which no later record had superseded.
    /// Returns those that have left; of a write that is superseded in part, it may be none.
    pub(crate) fn settle(&mut self, sequence: Sequence) -> Vec<Sequence> {
        let Some(entry) = self.records.get(&sequence) else { return Vec::new() };
        let live = match entry.effect {
            Effect::None => Vec::new(),
            Effect::Data => self.live_ranges(sequence, entry),
            Effect::Truncate(_) => entry.range().into_iter().collect(),
        };
        self.done(sequence, &live, entry.effect != Effect::Data)
    }

    /// A record is known to have left.
    pub(crate) fn settle_whole(&mut self, sequence: Sequence) {
        let Some(entry) = self.records.get(&sequence) else { return };
        let range = entry.range();
        self.done(sequence, range.as_slice(), true);
    }

    fn done(&mut self, sequence: Sequence, done: &[Range<u64>], is_whole: bool) -> Vec<Sequence> {
        let mut left = Vec::new();
        for range in done {
            for older in self.cut_before(sequence, range) {
                let Some(entry) = self.records.get_mut(&older) else { continue };
                entry.add_done(range);
                if entry.is_done() {
                    left.push(older);
                }
            }
        }
        let Some(entry) = self.records.get_mut(&sequence) else { return left };
        for range in done {
            entry.add_done(range);
        }
        if is_whole || entry.is_done() {
            left.push(sequence);
        } else {
            entry.live_bytes = 0;
            self.take_extents(sequence);
        }
        for which in &left {
            self.remove(*which);
        }
        left
    }

    /// Records before this one that have lost bytes, and are about this range. The newest first.
    fn cut_before(&self, sequence: Sequence, range: &Range<u64>) -> Vec<Sequence> {
        let file = self.records.get(&sequence).and_then(|entry| entry.objects[0].as_ref());
        let Some(state) = file.and_then(|file| self.files.get(file)) else { return Vec::new() };
        // No write begins further before its end.
        let first = (range.start.saturating_sub(DATA_BYTES_MAX as u64), Sequence(0));
        let writes = state.cut_writes.range(first..(range.end, Sequence(0)));
        let mut found: Vec<Sequence> = writes
            .map(|(_, which)| *which)
            .chain(state.cut_truncations.iter().copied())
            .filter(|which| {
                let own = self.records.get(which).and_then(Entry::range);
                *which < sequence && own.is_some_and(|own| !ranges::common(&own, range).is_empty())
            })
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    /// The server has refused a record: those before it have their bytes again. Says whether it was
    /// there.
    pub(crate) fn refuse(&mut self, sequence: Sequence) -> bool {
        let mut gaps = self.take_extents(sequence);
        let hull = match (gaps.first(), gaps.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        };
        for older in self.cut_before(sequence, &hull) {
            let Some(entry) = self.records.get_mut(&older) else { continue };
            let (Some(own), Some(file)) = (entry.range(), &entry.objects[0]) else { continue };
            let Some(state) = self.files.get_mut(file) else { continue };
            let mut parts: Vec<_> = gaps.iter().map(|gap| ranges::common(gap, &own)).collect();
            parts.retain(|part| !part.is_empty());
            // What is done for this one is done for all before it, too.
            gaps = ranges::without(&gaps, &own);
            for done in &entry.done {
                parts = ranges::without(&parts, done);
            }
            let is_zero = entry.effect != Effect::Data;
            for part in parts {
                let bytes = part.end - part.start;
                entry.live_bytes += bytes;
                if !is_zero {
                    self.superseded_bytes = self.superseded_bytes.saturating_sub(bytes);
                }
                state
                    .extents
                    .insert(part.start, Extent { end: part.end, sequence: older, is_zero });
            }
        }
        self.remove(sequence).is_some()
    }

    /// Takes the extents of a record. Returns where they were.
    fn take_extents(&mut self, sequence: Sequence) -> Vec<Range<u64>> {
        let Some(entry) = self.records.get(&sequence) else { return Vec::new() };
        let (Some(range), Some(file)) = (entry.range(), &entry.objects[0]) else {
            return Vec::new();
        };
        let Some(state) = self.files.get_mut(file) else { return Vec::new() };
        let of_it = state.extents.range(range).filter(|(_, extent)| extent.sequence == sequence);
        let taken: Vec<_> = of_it.map(|(start, extent)| *start..extent.end).collect();
        for range in &taken {
            state.extents.remove(&range.start);
        }
        taken
    }

    /// Removes a record that leaves.
    fn remove(&mut self, sequence: Sequence) -> Option<Entry> {
        self.take_extents(sequence);
        let entry = self.records.remove(&sequence)?;
        self.data_bytes = self.data_bytes.saturating_sub(u64::from(entry.length));
        if let Some(state) = entry.objects[0].as_ref().and_then(|file| self.files.get_mut(file)) {
            state.cut_writes.remove(&(entry.offset, sequence));
            state.cut_truncations.remove(&sequence);
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

    /// The oldest record's sequence, and when it was made.
    pub(crate) fn oldest(&self) -> Option<(Sequence, u64)> {
        self.records.first_key_value().map(|(sequence, entry)| (*sequence, entry.time_ns))
    }

    pub(crate) fn get(&self, sequence: Sequence) -> Option<&Entry> {
        self.records.get(&sequence)
    }

    /// All of these sequences that are there.
    pub(crate) fn between(&self, first: Sequence, last: Sequence) -> Vec<Sequence> {
        self.records.range(first..=last).map(|(sequence, _)| *sequence).collect()
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
