//! Which ranges of a file the owners of this mount hold, as POSIX has it: an owner's new lock takes the place of
//! its old ones, ranges of one kind that touch are one, and owners with read locks share.

use std::ops::RangeInclusive;

/// The last byte that a file can have.
pub(crate) const LAST: u64 = i64::MAX as u64;

/// Who holds locks: the kernel's number of a process's table of files, or of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

/// What a lock keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Write locks.
    Read,
    /// All locks of others.
    Write,
}

/// Bytes of a file, the last one among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Span {
    pub(crate) const ALL: Self = Self { first: 0, last: LAST };

    /// `None` if nothing is in it. What lies behind the last byte of a file is left out.
    pub(crate) fn new(first: u64, last: u64) -> Option<Self> {
        let last = last.min(LAST);
        (first <= last).then_some(Self { first, last })
    }

    /// Offset and length as NLM has them: a length of 0 stands for all that follow.
    pub(crate) fn on_the_wire(self) -> (u64, u64) {
        let length = if self.last >= LAST { 0 } else { self.last - self.first + 1 };
        (self.first, length)
    }

    /// Offset and length as NFSv4 has them: all ones for all that follow.
    pub(crate) fn as_nfs4(self) -> (u64, u64) {
        match self.on_the_wire() {
            (first, 0) => (first, u64::MAX),
            range => range,
        }
    }

    pub(crate) fn meets(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// From the first byte of either to the last one of either.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Whether it meets the other one, or one begins where the other one ends.
    fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    fn within(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    fn bytes(self) -> RangeInclusive<u64> {
        self.first..=self.last
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) owner: Owner,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

impl Held {
    /// Whether a lock of this owner is kept out by it.
    pub(crate) fn keeps_out(&self, owner: Owner, span: Span, kind: Kind) -> bool {
        let is_strong = self.kind == Kind::Write || kind == Kind::Write;
        self.owner != owner && is_strong && self.span.meets(span)
    }
}

/// The locks of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// By owner, then by place. Those of one owner do not overlap. Servers bound how many there can be.
    held: Vec<Held>,
}

impl Table {
    /// Gives an owner a lock of this kind, or takes what it has there.
    pub(crate) fn set(&mut self, owner: Owner, span: Span, kind: Option<Kind>) {
        let mut merged = span;
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for held in self.held.drain(..) {
            if held.owner != owner {
                kept.push(held);
            } else if Some(held.kind) == kind && held.span.touches(span) {
                merged.first = merged.first.min(held.span.first);
                merged.last = merged.last.max(held.span.last);
            } else {
                let before = span.first.checked_sub(1);
                let before = before.and_then(|last| Span::new(held.span.first, last));
                let after = span.last.checked_add(1);
                let after = after.and_then(|first| Span::new(first, held.span.last));
                let parts = [before, after].into_iter().flatten();
                kept.extend(parts.filter_map(|part| {
                    let span = part.within(held.span)?;
                    Some(Held { span, ..held })
                }));
            }
        }
        if let Some(kind) = kind {
            kept.push(Held { owner, span: merged, kind });
        }
        kept.sort_by_key(|held| (held.owner, *held.span.bytes().start()));
        self.held = kept;
    }

    /// The first lock that keeps this one out.
    pub(crate) fn conflict(&self, owner: Owner, span: Span, kind: Kind) -> Option<Held> {
        self.held.iter().find(|held| held.keeps_out(owner, span, kind)).copied()
    }

    /// What an owner has of a span: its bytes from the first to the last one, with the kind of its lock there.
    pub(crate) fn parts(&self, owner: Owner, span: Span) -> Vec<(Span, Option<Kind>)> {
        let mut parts = Vec::new();
        let mut next = Some(span.first);
        for held in self.held.iter().filter(|held| held.owner == owner) {
            let (Some(first), Some(own)) = (next, held.span.within(span)) else { continue };
            if let Some(last) = own.first.checked_sub(1)
                && let Some(gap) = Span::new(first, last)
            {
                parts.push((gap, None));
            }
            parts.push((own, Some(held.kind)));
            next = own.last.checked_add(1);
        }
        if let Some(gap) = next.and_then(|first| Span::new(first, span.last)) {
            parts.push((gap, None));
        }
        parts
    }

    /// The locks of an owner.
    pub(crate) fn of(&self, owner: Owner) -> impl Iterator<Item = Held> {
        self.held.iter().filter(move |held| held.owner == owner).copied()
    }

    /// Whether an owner has a lock in a span.
    pub(crate) fn has(&self, owner: Owner, span: Span) -> bool {
        self.of(owner).any(|held| held.span.meets(span))
    }

    /// How many locks there are.
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests;
