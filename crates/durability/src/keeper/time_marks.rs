//! When a time mark is due: of marks and operations it knows the LSNs, and of the time what it is told.

use std::time::{Duration, Instant};

/// Between two marks, while operations come.
const MARK_EVERY: Duration = Duration::from_millis(20);

/// Which marks were written.
///
/// A mark is due while operations come that no checkpoint has covered, and not more often than every
/// [`MARK_EVERY`]. Marks themselves are no operations: they call for no others.
#[derive(Debug, Default)]
pub(super) struct TimeMarks {
    at: Option<Instant>,
    /// The last LSN when the last was written, its own included.
    last: u64,
    /// The last LSN that is of something else.
    operation: u64,
    /// A checkpoint has covered the LSNs up to this.
    checkpointed: u64,
}

impl TimeMarks {
    /// Whether the last was written just now.
    pub(super) fn is_early(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| now.duration_since(at) < MARK_EVERY)
    }

    /// Whether a log up to this LSN has operations that no checkpoint has covered.
    pub(super) fn is_needed(&mut self, last: u64) -> bool {
        if last > self.last {
            self.operation = last;
        }
        self.operation > self.checkpointed
    }

    /// Marks are being written, at the end of a log up to this LSN.
    pub(super) fn begin(&mut self, now: Instant, last: u64) {
        (self.at, self.last) = (Some(now), last);
    }

    /// So many were written, up to this LSN.
    pub(super) fn end(&mut self, count: u64, to: u64) {
        if to > self.last + count {
            // Operations came between.
            self.operation = to;
        }
        self.last = self.last.max(to);
    }

    /// A checkpoint has covered all LSNs up to this.
    pub(super) fn cover(&mut self, up_to: u64) {
        self.checkpointed = self.checkpointed.max(up_to);
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring, on a virtual clock.

    use super::*;

    #[test]
    fn a_mark_is_due_while_operations_come_that_no_checkpoint_has_covered() {
        let (mut marks, mut now) = (TimeMarks::default(), Instant::now());
        assert!(!marks.is_needed(0), "there is nothing");
        assert!(!marks.is_early(now) && marks.is_needed(5));
        marks.begin(now, 5);
        marks.end(2, 7);
        assert!(marks.is_early(now));
        now += MARK_EVERY;
        assert!(!marks.is_early(now) && marks.is_needed(7), "the operation is not covered yet");
        marks.cover(5);
        assert!(!marks.is_needed(7), "only marks came since");
        assert!(marks.is_needed(8));
        marks.begin(now, 8);
        // An operation has LSN 9.
        marks.end(2, 11);
        marks.cover(8);
        assert!(marks.is_needed(11));
    }
}
