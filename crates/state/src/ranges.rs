//! The byte ranges of one file that owners hold, split and joined as POSIX has it.
//!
//! The ranges of one owner never overlap. Each has a tag, which says by what it was made; ranges
//! that touch are joined if kind and tag are the same. Nothing here knows what an owner is.

use std::collections::BTreeMap;

use crate::error::StateError;
use crate::range_index::RangeIndex;

/// What a lock permits others (RFC 8881 §18.10.3, `nfs_lock_type4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// Other read locks.
    Read,
    /// Nothing.
    Write,
}

impl LockKind {
    /// Whether two owners cannot have these for the same byte.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// Bytes from the first to the last. `start` is never above `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// All from the first byte of both to the last.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// What both have.
    pub(crate) fn clipped(self, other: Self) -> Option<Self> {
        let common = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (common.start <= common.end).then_some(common)
    }
}

/// Bytes of a file, as LOCK names them (RFC 8881 §18.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub offset: u64,
    /// How many bytes. [`u64::MAX`] stands for all that follow.
    pub length: u64,
}

impl LockRange {
    /// Whether a lock can be of these bytes: there is one, and the last is none behind 2^64 - 1.
    pub fn is_possible(self) -> bool {
        self.span().is_ok()
    }

    pub(crate) fn span(self) -> Result<Span, StateError> {
        let end = match (self.length, self.offset.checked_add(self.length)) {
            (u64::MAX, _) => u64::MAX,
            (1.., Some(behind)) => behind - 1,
            _ => return Err(StateError::Invalid),
        };
        Ok(Span { start: self.offset, end })
    }
}

impl From<Span> for LockRange {
    fn from(span: Span) -> Self {
        let length = if span.end == u64::MAX { u64::MAX } else { span.end - span.start + 1 };
        Self { offset: span.start, length }
    }
}

/// What is kept of a range beside its first byte and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held<T> {
    end: u64,
    tag: T,
}

/// Where the ranges of an owner are found among those of all owners.
struct Indexed<'a, O> {
    index: &'a mut RangeIndex<O>,
    owner: &'a O,
}

/// The ranges of all owners, by kind.
#[derive(Clone, Debug)]
struct Indexes<O> {
    reads: RangeIndex<O>,
    writes: RangeIndex<O>,
}

impl<O> Indexes<O> {
    fn of<'a>(&'a mut self, owner: &'a O, kind: LockKind) -> Indexed<'a, O> {
        let index = match kind {
            LockKind::Read => &mut self.reads,
            LockKind::Write => &mut self.writes,
        };
        Indexed { index, owner }
    }
}

/// Ranges of one owner and kind by their first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OfKind<T>(BTreeMap<u64, Held<T>>);

impl<T: Copy + PartialEq> OfKind<T> {
    /// The range that begins before `byte` and reaches the byte before it.
    fn before(&self, byte: u64) -> Option<(u64, Held<T>)> {
        let (start, held) = self.0.range(..byte).next_back()?;
        (held.end >= byte - 1).then_some((*start, *held))
    }

    /// The range with the byte after `byte`.
    fn after(&self, byte: u64) -> Option<(u64, Held<T>)> {
        let next = byte.checked_add(1)?;
        let (start, held) = self.0.range(..=next).next_back()?;
        (held.end >= next).then_some((*start, *held))
    }

    /// All that overlap `span`, from the first on.
    fn within(&self, span: Span) -> impl Iterator<Item = Span> {
        let first = self.0.range(..span.start).next_back();
        let first = first.filter(|(_, held)| held.end >= span.start);
        let rest = self.0.range(span.start..=span.end);
        first.into_iter().chain(rest).map(|(start, held)| Span { start: *start, end: held.end })
    }

    fn growth_of_clear(&self, span: Span) -> isize {
        self.within(span).fold(0, |growth, held| {
            growth + isize::from(held.start < span.start && held.end > span.end)
                - isize::from(span.contains(held))
        })
    }

    fn put<O: Ord + Clone>(&mut self, indexed: &mut Indexed<'_, O>, start: u64, held: Held<T>) {
        self.0.insert(start, held);
        indexed.index.add(indexed.owner, Span { start, end: held.end });
    }

    fn take<O: Ord + Clone>(&mut self, indexed: &mut Indexed<'_, O>, start: u64) {
        self.0.remove(&start);
        indexed.index.remove(indexed.owner, start);
    }

    fn clear<O: Ord + Clone>(&mut self, mut indexed: Indexed<'_, O>, span: Span) {
        let first = self.before(span.start).filter(|(_, held)| held.end >= span.start);
        if let Some((start, held)) = first {
            self.put(&mut indexed, start, Held { end: span.start - 1, ..held });
            if held.end > span.end {
                self.put(&mut indexed, span.end + 1, held);
            }
        }
        while let Some((start, held)) = self.0.range(span.start..=span.end).next() {
            let (start, held) = (*start, *held);
            self.take(&mut indexed, start);
            if held.end > span.end {
                self.put(&mut indexed, span.end + 1, held);
            }
        }
    }

    fn clear_tag<O: Ord + Clone>(&mut self, indexed: &mut Indexed<'_, O>, tag: T) {
        self.0.retain(|start, held| {
            let stays = held.tag != tag;
            if !stays {
                indexed.index.remove(indexed.owner, *start);
            }
            stays
        });
    }

    /// What `span` is joined with, on either side.
    fn joined(&self, span: Span, tag: T) -> [Option<(u64, Held<T>)>; 2] {
        [self.before(span.start), self.after(span.end)]
            .map(|range| range.filter(|(_, held)| held.tag == tag))
    }

    /// Adds `span`, which was cleared, and joins it with what [`OfKind::joined`] had found before.
    fn add<O: Ord + Clone>(
        &mut self,
        mut indexed: Indexed<'_, O>,
        span: Span,
        tag: T,
        joined: [Option<(u64, Held<T>)>; 2],
    ) {
        let [before, after] = joined;
        let start = before.map_or(span.start, |(start, _)| start);
        let end = after.map_or(span.end, |(_, held)| held.end);
        if after.is_some() {
            // What is behind `span` begins there, after the clearing.
            self.take(&mut indexed, span.end.saturating_add(1));
        }
        self.put(&mut indexed, start, Held { end, tag });
    }
}

/// The ranges of one owner.
///
/// The kinds are apart, so that what overlaps conflicts: nobody has to walk over read locks to
/// judge another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned<T> {
    reads: OfKind<T>,
    writes: OfKind<T>,
}

impl<T: Copy + PartialEq> Owned<T> {
    fn new() -> Self {
        Self { reads: OfKind(BTreeMap::new()), writes: OfKind(BTreeMap::new()) }
    }

    fn count(&self) -> usize {
        self.reads.0.len() + self.writes.0.len()
    }

    fn of(&self, kind: LockKind) -> &OfKind<T> {
        match kind {
            LockKind::Read => &self.reads,
            LockKind::Write => &self.writes,
        }
    }

    fn growth_of_clear(&self, span: Span) -> isize {
        self.reads.growth_of_clear(span) + self.writes.growth_of_clear(span)
    }

    fn clear<O: Ord + Clone>(&mut self, indexes: &mut Indexes<O>, owner: &O, span: Span) {
        self.reads.clear(indexes.of(owner, LockKind::Read), span);
        self.writes.clear(indexes.of(owner, LockKind::Write), span);
    }

    fn growth_of_set(&self, span: Span, kind: LockKind, tag: T) -> isize {
        let joined = self.of(kind).joined(span, tag).into_iter().flatten().count();
        // At most two.
        self.growth_of_clear(span) + 1 - joined.cast_signed()
    }

    fn set<O: Ord + Clone>(
        &mut self,
        indexes: &mut Indexes<O>,
        owner: &O,
        span: Span,
        kind: LockKind,
        tag: T,
    ) {
        let joined = self.of(kind).joined(span, tag);
        self.clear(indexes, owner, span);
        let of_kind = match kind {
            LockKind::Read => &mut self.reads,
            LockKind::Write => &mut self.writes,
        };
        of_kind.add(indexes.of(owner, kind), span, tag, joined);
    }

    fn iter(&self) -> impl Iterator<Item = (Span, LockKind, T)> {
        [LockKind::Read, LockKind::Write].into_iter().flat_map(move |kind| {
            self.of(kind)
                .0
                .iter()
                .map(move |(start, held)| (Span { start: *start, end: held.end }, kind, held.tag))
        })
    }

    /// Whether one of them keeps others from `span`.
    fn keeps(&self, span: Span, kind: LockKind) -> bool {
        self.writes.within(span).next().is_some()
            || kind == LockKind::Write && self.reads.within(span).next().is_some()
    }
}

/// A range that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range<O> {
    pub(crate) owner: O,
    pub(crate) span: Span,
    pub(crate) kind: LockKind,
}

impl<O: Clone> Range<&O> {
    pub(crate) fn cloned(&self) -> Range<O> {
        Range { owner: self.owner.clone(), span: self.span, kind: self.kind }
    }
}

/// The ranges of one file.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<O, T> {
    /// An owner without ranges is not here.
    owners: BTreeMap<O, Owned<T>>,
    indexes: Indexes<O>,
}

impl<O, T> Default for Ranges<O, T> {
    fn default() -> Self {
        let indexes = Indexes { reads: RangeIndex::default(), writes: RangeIndex::default() };
        Self { owners: BTreeMap::new(), indexes }
    }
}

impl<O: Ord + Clone, T: Copy + PartialEq> Ranges<O, T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// By how many ranges [`Ranges::set`] makes them more.
    pub(crate) fn growth_of_set(&self, owner: &O, span: Span, kind: LockKind, tag: T) -> isize {
        self.owners.get(owner).map_or(1, |owned| owned.growth_of_set(span, kind, tag))
    }

    /// Gives an owner a range, whatever others hold. What it had there is replaced.
    pub(crate) fn set(&mut self, owner: &O, span: Span, kind: LockKind, tag: T) {
        if !self.owners.contains_key(owner) {
            self.owners.insert(owner.clone(), Owned::new());
        }
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.set(&mut self.indexes, owner, span, kind, tag);
        }
    }

    /// By how many ranges [`Ranges::clear`] makes them more.
    pub(crate) fn growth_of_clear(&self, owner: &O, span: Span) -> isize {
        self.owners.get(owner).map_or(0, |owned| owned.growth_of_clear(span))
    }

    /// Takes a range from an owner, whatever it has of it.
    pub(crate) fn clear(&mut self, owner: &O, span: Span) {
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.clear(&mut self.indexes, owner, span);
            if owned.count() == 0 {
                self.owners.remove(owner);
            }
        }
    }

    /// Takes all ranges with this tag from an owner; how many they were.
    pub(crate) fn clear_tag(&mut self, owner: &O, tag: T) -> usize {
        let Some(owned) = self.owners.get_mut(owner) else { return 0 };
        let before = owned.count();
        owned.reads.clear_tag(&mut self.indexes.of(owner, LockKind::Read), tag);
        owned.writes.clear_tag(&mut self.indexes.of(owner, LockKind::Write), tag);
        let cleared = before - owned.count();
        if owned.count() == 0 {
            self.owners.remove(owner);
        }
        cleared
    }

    /// What an owner has of a range; write locks last.
    pub(crate) fn within(&self, owner: &O, span: Span) -> Vec<(Span, LockKind, T)> {
        let Some(owned) = self.owners.get(owner) else { return Vec::new() };
        let kinds = [LockKind::Read, LockKind::Write].into_iter();
        let within = kinds.flat_map(|kind| {
            let of_kind = owned.of(kind);
            of_kind.within(span).filter_map(move |held| {
                let tag = of_kind.0.get(&held.start)?.tag;
                Some((held.clipped(span)?, kind, tag))
            })
        });
        within.collect()
    }

    /// Whether an owner has a range with this tag.
    pub(crate) fn has_tag(&self, owner: &O, tag: T) -> bool {
        let Some(owned) = self.owners.get(owner) else { return false };
        owned.reads.0.values().chain(owned.writes.0.values()).any(|held| held.tag == tag)
    }

    /// What keeps an owner from a range: all ranges of others that conflict; write locks first.
    pub(crate) fn conflicts<'a>(
        &'a self,
        owner: &'a O,
        span: Span,
        kind: LockKind,
    ) -> impl Iterator<Item = Range<&'a O>> {
        let of = |index: &'a RangeIndex<O>, kind| {
            index.overlapping(span).map(move |(owner, span)| Range { owner, span, kind })
        };
        let reads = (kind == LockKind::Write).then(|| of(&self.indexes.reads, LockKind::Read));
        let conflicts =
            of(&self.indexes.writes, LockKind::Write).chain(reads.into_iter().flatten());
        conflicts.filter(move |range| range.owner != owner)
    }

    /// All ranges of a kind that overlap a span, whoever has them, by their first bytes.
    pub(crate) fn of_kind(&self, kind: LockKind, span: Span) -> impl Iterator<Item = Span> {
        let index = match kind {
            LockKind::Read => &self.indexes.reads,
            LockKind::Write => &self.indexes.writes,
        };
        index.overlapping(span).map(|(_, span)| span)
    }

    /// Whether a range of `owner` keeps others from `span`.
    pub(crate) fn keeps(&self, owner: &O, span: Span, kind: LockKind) -> bool {
        let owned = self.owners.get(owner);
        owned.is_some_and(|owned| owned.keeps(span, kind))
    }

    /// What an owner has of a range, whole or in part.
    pub(crate) fn held_by(&self, owner: &O, span: Span) -> Vec<(Span, LockKind)> {
        let Some(owned) = self.owners.get(owner) else { return Vec::new() };
        let of = |kind| owned.of(kind).within(span).map(move |span| (span, kind));
        of(LockKind::Read).chain(of(LockKind::Write)).collect()
    }

    /// The owners from this one on.
    pub(crate) fn owners_from<'a>(
        &'a self,
        owner: &O,
    ) -> impl Iterator<Item = &'a O> + use<'a, O, T> {
        self.owners.range(owner..).map(|(owner, _)| owner)
    }

    /// All ranges, by owner; its read locks first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<&O>> {
        self.owners.iter().flat_map(|(owner, owned)| {
            owned.iter().map(move |(span, kind, _)| Range { owner, span, kind })
        })
    }

    /// The ranges of one owner, with their tags; its read locks first.
    pub(crate) fn of_owner(&self, owner: &O) -> impl Iterator<Item = (Span, LockKind, T)> {
        self.owners.get(owner).into_iter().flat_map(Owned::iter)
    }
}

/// The index follows from what owners have.
impl<O: PartialEq, T: PartialEq> PartialEq for Ranges<O, T> {
    fn eq(&self, other: &Self) -> bool {
        self.owners == other.owners
    }
}

impl<O: Eq, T: Eq> Eq for Ranges<O, T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LockKind, LockRange, Ranges, Span};
    use crate::error::StateError;

    const MAX: u64 = u64::MAX;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    fn kind(is_write: bool) -> LockKind {
        if is_write { LockKind::Write } else { LockKind::Read }
    }

    fn listed(ranges: &Ranges<u8, u8>) -> Vec<(u8, u64, u64, LockKind)> {
        let mut listed: Vec<_> = ranges
            .iter()
            .map(|range| (*range.owner, range.span.start, range.span.end, range.kind))
            .collect();
        listed.sort_unstable();
        listed
    }

    #[test]
    fn ranges_are_split_and_joined() {
        use LockKind::{Read, Write};
        let mut ranges: Ranges<u8, u8> = Ranges::default();
        ranges.set(&1, span(0, MAX), Read, 0);
        ranges.set(&1, span(10, 19), Write, 0);
        let split = [(1, 0, 9, Read), (1, 10, 19, Write), (1, 20, MAX, Read)];
        assert_eq!(listed(&ranges), split);
        ranges.set(&1, span(10, 19), Read, 0);
        assert_eq!(listed(&ranges), [(1, 0, MAX, Read)]);
        ranges.clear(&1, span(1, MAX - 1));
        assert_eq!(listed(&ranges), [(1, 0, 0, Read), (1, MAX, MAX, Read)]);
        ranges.set(&1, span(1, MAX - 1), Read, 1);
        assert_eq!(listed(&ranges).len(), 3, "what another open has locked stays apart");
        assert_eq!(ranges.clear_tag(&1, 0), 2);
        assert_eq!(listed(&ranges), [(1, 1, MAX - 1, Read)]);
        ranges.clear(&1, span(0, MAX));
        assert!(ranges.is_empty());
    }

    #[test]
    fn twenty_thousand_ranges_are_judged_without_a_walk() {
        const COUNT: u64 = 20_000;
        let mut ranges: Ranges<u8, u8> = Ranges::default();
        for number in 0..COUNT {
            ranges.set(&1, span(number * 4, number * 4 + 1), LockKind::Read, 0);
        }
        // With a walk these would look at 8 * 10^9 ranges.
        for _ in 0..400_000 {
            assert_eq!(ranges.conflicts(&2, span(0, MAX), LockKind::Read).count(), 0);
        }
        for number in 0..400_000 {
            let at = number % COUNT * 4;
            let mut conflicts = ranges.conflicts(&2, span(at + 1, MAX), LockKind::Write);
            let first = conflicts.next().map(|range| range.span);
            assert_eq!(first, Some(span(at, at + 1)));
        }
    }

    const OWNERS: u8 = 3;
    /// Bytes at either end of the file that can be named; those between them go together.
    const EDGE: usize = 9;
    const PLACES: usize = 2 * EDGE + 1;

    /// The bytes from one place to another.
    fn between(first: usize, last: usize) -> Span {
        let behind = |place: usize| (PLACES - 1 - place) as u64;
        let start = if first <= EDGE { first as u64 } else { MAX - behind(first) };
        let end = if last < EDGE { last as u64 } else { MAX - behind(last) };
        span(start, end)
    }

    /// What each owner has of each place.
    #[derive(Default)]
    struct Model([[Option<(LockKind, u8)>; PLACES]; OWNERS as usize]);

    impl Model {
        /// The longest runs of one kind and tag.
        fn runs(&self, owner: u8) -> Vec<(usize, usize, LockKind)> {
            let places = &self.0[usize::from(owner)];
            let mut runs: Vec<(usize, usize, LockKind)> = Vec::new();
            for (place, held) in places.iter().enumerate() {
                match (held, runs.last_mut()) {
                    (Some(_), Some(run)) if run.1 + 1 == place && places[run.1] == *held => {
                        run.1 = place;
                    }
                    (Some((kind, _)), _) => runs.push((place, place, *kind)),
                    (None, _) => (),
                }
            }
            runs
        }

        fn listed(&self) -> Vec<(u8, u64, u64, LockKind)> {
            let runs = |owner| {
                self.runs(owner).into_iter().map(move |(first, last, kind)| {
                    let span = between(first, last);
                    (owner, span.start, span.end, kind)
                })
            };
            (0..OWNERS).flat_map(runs).collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn ranges_are_as_an_array_of_bytes_has_them(
            steps in proptest::collection::vec(
                (0..8_u8, 0..OWNERS, 0..PLACES, 0..PLACES, any::<bool>(), 0..2_u8),
                0..60,
            )
        ) {
            let mut ranges: Ranges<u8, u8> = Ranges::default();
            let mut model = Model::default();
            for (step, owner, one, other, is_write, tag) in steps {
                let (first, last, kind) = (one.min(other), one.max(other), kind(is_write));
                let span = between(first, last);
                let before = ranges.iter().count();
                let places = &mut model.0[usize::from(owner)];
                let growth = match step {
                    0..4 => {
                        let growth = ranges.growth_of_set(&owner, span, kind, tag);
                        ranges.set(&owner, span, kind, tag);
                        places[first..=last].fill(Some((kind, tag)));
                        growth
                    }
                    4..7 => {
                        let growth = ranges.growth_of_clear(&owner, span);
                        ranges.clear(&owner, span);
                        places[first..=last].fill(None);
                        growth
                    }
                    _ => {
                        let is_tagged = |held: &Option<(_, u8)>| held.is_some_and(|h| h.1 == tag);
                        let has_tag = places.iter().any(is_tagged);
                        prop_assert_eq!(ranges.has_tag(&owner, tag), has_tag);
                        places.iter_mut().filter(|held| is_tagged(held)).for_each(|h| *h = None);
                        -ranges.clear_tag(&owner, tag).cast_signed()
                    }
                };
                prop_assert_eq!(before.cast_signed() + growth, ranges.iter().count().cast_signed());
                prop_assert_eq!(listed(&ranges), model.listed());
                prop_assert_eq!(ranges.is_empty(), model.listed().is_empty());
                let mut expected: Vec<_> = (0..OWNERS)
                    .filter(|other| *other != owner)
                    .flat_map(|other| model.runs(other).into_iter().map(move |run| (other, run)))
                    .filter(|(_, (from, to, held))| {
                        *from <= last && first <= *to && held.conflicts(kind)
                    })
                    .map(|(other, (from, to, held))| {
                        let span = between(from, to);
                        (other, span.start, span.end, held)
                    })
                    .collect();
                let mut found: Vec<_> = ranges
                    .conflicts(&owner, span, kind)
                    .map(|range| (*range.owner, range.span.start, range.span.end, range.kind))
                    .collect();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(&found, &expected);
                for other in (0..OWNERS).filter(|other| *other != owner) {
                    let keeps = expected.iter().any(|(owner, ..)| *owner == other);
                    prop_assert_eq!(ranges.keeps(&other, span, kind), keeps);
                }
            }
        }
    }

    #[test]
    fn ranges_begin_and_end_within_64_bits() {
        let rows = [
            ((0, 0), None),
            ((5, 0), None),
            ((0, 1), Some((0, 0))),
            ((5, 10), Some((5, 14))),
            ((0, MAX), Some((0, MAX))),
            ((MAX, MAX), Some((MAX, MAX))),
            ((7, MAX), Some((7, MAX))),
            ((0, MAX - 1), Some((0, MAX - 2))),
            ((1, MAX - 1), Some((1, MAX - 1))),
            ((2, MAX - 1), None),
            ((MAX - 1, 1), Some((MAX - 1, MAX - 1))),
            ((MAX, 1), None),
        ];
        for ((offset, length), expected) in rows {
            let range = LockRange { offset, length };
            let expected = expected.map(|(start, end)| Span { start, end });
            assert_eq!(range.span(), expected.ok_or(StateError::Invalid), "{range:?}");
            if let Some(span) = expected {
                assert_eq!(LockRange::from(span).span(), Ok(span));
            }
        }
    }
}
