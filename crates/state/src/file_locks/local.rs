//! What is locked by anybody, for local processes to see.

use super::{Asking, FileLocks};
use crate::ranges::{LockKind, Span};

impl FileLocks {
    /// A range was locked or freed.
    pub(super) fn note_change(&mut self, span: Span) {
        self.changed = Some(self.changed.map_or(span, |known| known.hull(span)));
    }

    /// So many ranges were freed, wherever they were.
    pub(super) fn note_change_anywhere(&mut self, count: usize) {
        if count > 0 {
            self.note_change(Span { start: 0, end: u64::MAX });
        }
    }

    /// From the first to the last byte of what was locked or freed since this was asked.
    pub(crate) fn take_changed(&mut self) -> Option<Span> {
        self.changed.take()
    }

    /// What of a span is locked by anybody, in order; parts of one kind that touch are one.
    pub(crate) fn parts(&self, span: Span) -> Vec<(Span, LockKind)> {
        let within =
            |held: Span| Span { start: held.start.max(span.start), end: held.end.min(span.end) };
        let of = |kind| joined(self.ranges.of_kind(kind, span).map(within));
        let (writes, mut parts) = (of(LockKind::Write), Vec::new());
        for read in of(LockKind::Read) {
            // What is written of it goes.
            let mut start = Some(read.start);
            let place = writes.partition_point(|write| write.end < read.start);
            let later = writes.get(place..).unwrap_or(&[]);
            for write in later.iter().take_while(|write| write.start <= read.end) {
                if let Some(from) = start.filter(|from| *from < write.start) {
                    parts.push((Span { start: from, end: write.start - 1 }, LockKind::Read));
                }
                start = write.end.checked_add(1);
            }
            if let Some(from) = start.filter(|from| *from <= read.end) {
                parts.push((Span { start: from, end: read.end }, LockKind::Read));
            }
        }
        parts.extend(writes.into_iter().map(|write| (write, LockKind::Write)));
        parts.sort_unstable_by_key(|(span, _)| span.start);
        parts
    }

    /// Somebody stands in order for a lock until it is granted it, but not before a time; whether it
    /// does.
    pub(crate) fn hold_back(&mut self, asking: &Asking<'_>, until_ms: u64) -> bool {
        self.refresh(asking.time);
        if !asking.is_waited_for {
            return false;
        }
        self.remember(asking);
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.is_of(asking));
        let Some(waiter) = waiter else { return false };
        waiter.held_back_until_ms = until_ms;
        true
    }
}

/// The same bytes, in order, those that overlap or touch being one. They begin in order.
fn joined(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.end == u64::MAX || span.start <= last.end + 1 => {
                last.end = last.end.max(span.end);
            }
            _ => joined.push(span),
        }
    }
    joined
}
