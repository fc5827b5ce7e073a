//! The byte ranges of one file that owners hold, split and joined as POSIX has it.
//!
//! The ranges of one owner never overlap. Each has a tag, which says by what it was made; ranges
//! that touch are joined if kind and tag are the same. Nothing here knows what an owner is.

use std::collections::BTreeMap;

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
}

/// What is kept of a range beside its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held<T> {
    end: u64,
    kind: LockKind,
    tag: T,
}

/// The ranges of one owner by their first bytes.
#[derive(Debug)]
struct Owned<T>(BTreeMap<u64, Held<T>>);

impl<T: Copy + PartialEq> Owned<T> {
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
    fn within(&self, span: Span) -> impl Iterator<Item = (Span, Held<T>)> {
        let first = self.0.range(..span.start).next_back();
        let first = first.filter(|(_, held)| held.end >= span.start);
        let rest = self.0.range(span.start..=span.end);
        first.into_iter().chain(rest).map(|(start, held)| {
            let span = Span { start: *start, end: held.end };
            (span, *held)
        })
    }

    /// By how many ranges [`Owned::clear`] makes them more.
    fn growth_of_clear(&self, span: Span) -> isize {
        self.within(span).fold(0, |growth, (held, _)| {
            growth + isize::from(held.start < span.start && held.end > span.end)
                - isize::from(span.contains(held))
        })
    }

    fn clear(&mut self, span: Span) {
        if let Some((start, held)) = self.before(span.start).filter(|(_, h)| h.end >= span.start) {
            self.0.insert(start, Held { end: span.start - 1, ..held });
            if held.end > span.end {
                self.0.insert(span.end + 1, held);
            }
        }
        while let Some((start, held)) = self.0.range(span.start..=span.end).next() {
            let (start, held) = (*start, *held);
            self.0.remove(&start);
            if held.end > span.end {
                self.0.insert(span.end + 1, held);
            }
        }
    }

    /// What `span` is joined with, on either side.
    fn joined(&self, span: Span, kind: LockKind, tag: T) -> [Option<(u64, Held<T>)>; 2] {
        [self.before(span.start), self.after(span.end)]
            .map(|range| range.filter(|(_, held)| held.kind == kind && held.tag == tag))
    }

    fn growth_of_set(&self, span: Span, kind: LockKind, tag: T) -> isize {
        let joined = self.joined(span, kind, tag).into_iter().flatten().count();
        // At most two.
        self.growth_of_clear(span) + 1 - joined.cast_signed()
    }

    fn set(&mut self, span: Span, kind: LockKind, tag: T) {
        let [before, after] = self.joined(span, kind, tag);
        self.clear(span);
        let start = before.map_or(span.start, |(start, _)| start);
        let end = after.map_or(span.end, |(_, held)| held.end);
        if after.is_some() {
            // What is behind `span` begins there, after the clearing.
            self.0.remove(&span.end.saturating_add(1));
        }
        self.0.insert(start, Held { end, kind, tag });
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
#[derive(Debug)]
pub(crate) struct Ranges<O, T> {
    /// An owner without ranges is not here.
    owners: BTreeMap<O, Owned<T>>,
}

impl<O, T> Default for Ranges<O, T> {
    fn default() -> Self {
        Self { owners: BTreeMap::new() }
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
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.set(span, kind, tag);
        } else {
            let held = Held { end: span.end, kind, tag };
            self.owners.insert(owner.clone(), Owned(BTreeMap::from([(span.start, held)])));
        }
    }

    /// By how many ranges [`Ranges::clear`] makes them more.
    pub(crate) fn growth_of_clear(&self, owner: &O, span: Span) -> isize {
        self.owners.get(owner).map_or(0, |owned| owned.growth_of_clear(span))
    }

    /// Takes a range from an owner, whatever it has of it.
    pub(crate) fn clear(&mut self, owner: &O, span: Span) {
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.clear(span);
            if owned.0.is_empty() {
                self.owners.remove(owner);
            }
        }
    }

    /// Takes all ranges with this tag from an owner; how many they were.
    pub(crate) fn clear_tag(&mut self, owner: &O, tag: T) -> usize {
        let Some(owned) = self.owners.get_mut(owner) else { return 0 };
        let before = owned.0.len();
        owned.0.retain(|_, held| held.tag != tag);
        let cleared = before - owned.0.len();
        if owned.0.is_empty() {
            self.owners.remove(owner);
        }
        cleared
    }

    /// Whether an owner has a range with this tag.
    pub(crate) fn has_tag(&self, owner: &O, tag: T) -> bool {
        let owned = self.owners.get(owner);
        owned.is_some_and(|owned| owned.0.values().any(|held| held.tag == tag))
    }

    /// What keeps an owner from a range: of each other owner the first range that conflicts.
    pub(crate) fn conflicts<'a>(
        &'a self,
        owner: &'a O,
        span: Span,
        kind: LockKind,
    ) -> impl Iterator<Item = Range<&'a O>> {
        self.owners
            .iter()
            .filter(move |(other, _)| *other != owner)
            .filter_map(move |(owner, owned)| conflict_with(owner, owned, span, kind))
    }

    /// Whether a range of `owner` keeps others from `span`.
    pub(crate) fn keeps(&self, owner: &O, span: Span, kind: LockKind) -> bool {
        let owned = self.owners.get(owner);
        owned.is_some_and(|owned| conflict_with(owner, owned, span, kind).is_some())
    }

    /// All ranges, by owner.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<&O>> {
        self.owners.iter().flat_map(|(owner, owned)| {
            owned.0.iter().map(move |(start, held)| Range {
                owner,
                span: Span { start: *start, end: held.end },
                kind: held.kind,
            })
        })
    }
}

fn conflict_with<'a, O, T: Copy + PartialEq>(
    owner: &'a O,
    owned: &Owned<T>,
    span: Span,
    kind: LockKind,
) -> Option<Range<&'a O>> {
    let mut within = owned.within(span);
    let (span, held) = within.find(|(_, held)| held.kind.conflicts(kind))?;
    Some(Range { owner, span, kind: held.kind })
}
