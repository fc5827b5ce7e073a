//! Changes of a file system that were acknowledged before they were stable (`async` of exports(5)), and
//! how those of others get along with them.
//!
//! A change that is promised to be stable may depend on one that is not: a file is made in a directory
//! that an `async` caller made just before. The log has no record of the directory, and replay could not
//! make the file. So a file system is at any time in one of two states:
//!
//! - It has `async` changes that are not known to be on the disk. Then whoever is promised something
//!   has the whole file system flushed instead of having the change logged or its objects flushed.
//! - It has records in the log since it was last flushed. Then `async` changes are logged too, in their
//!   order, so that replay does not meet changes that it does not know of; nobody waits for these records.
//!
//! A flush of the whole file system ends both. Where all callers are `async` nothing is ever logged; where
//! none is, all this costs a look at counters that nobody changes.
//!
//! Either side says what it is about to do before it looks at what the other one does, and all in one
//! order (`SeqCst`): of two that meet, at least one sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of one file system's changes, by its device number.
#[derive(Debug, Default)]
pub(crate) struct AsyncChanges {
    /// Changes that are being made.
    under_way: AtomicU64,
    /// Changes that were made.
    ended: AtomicU64,
    /// How many of them were on the disk when the whole was last flushed.
    flushed: AtomicU64,
    /// Whether the log got records since the last flush began that succeeded.
    has_records: AtomicBool,
    /// Flushes of the whole that go on: records of before them count until they end.
    flushes: AtomicU64,
}

/// An `async` change while it is made.
#[derive(Debug)]
pub(crate) struct AsyncChange {
    changes: Arc<AsyncChanges>,
    counts: bool,
}

impl AsyncChange {
    /// It is not made, or gets a record.
    pub(crate) fn cancel(mut self) {
        self.counts = false;
    }
}

impl Drop for AsyncChange {
    fn drop(&mut self) {
        // In this order: it is seen by one or the other.
        if self.counts {
            self.changes.ended.fetch_add(1, Ordering::SeqCst);
        }
        self.changes.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A flush of the whole file system while it goes on.
#[derive(Debug)]
pub(crate) struct WholeFlush<'a> {
    changes: &'a AsyncChanges,
    ended: u64,
    had_records: bool,
    is_done: bool,
}

impl WholeFlush<'_> {
    /// It has succeeded.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for WholeFlush<'_> {
    fn drop(&mut self) {
        if self.is_done {
            self.changes.flushed.fetch_max(self.ended, Ordering::SeqCst);
        } else if self.had_records {
            self.changes.has_records.store(true, Ordering::SeqCst);
        }
        self.changes.flushes.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncChanges {
    /// A change begins that nobody is promised to be stable. To be kept until it has been made.
    pub(crate) fn begin(self: &Arc<Self>) -> AsyncChange {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        AsyncChange { changes: Arc::clone(self), counts: true }
    }

    /// Whether a crash might be followed by a replay of records that such a change, once it has
    /// [begun](AsyncChanges::begin), must come after.
    pub(crate) fn has_records(&self) -> bool {
        // Once more after the flushes: one that fails puts back what it has taken, and then ends.
        self.has_records.load(Ordering::SeqCst)
            || self.flushes.load(Ordering::SeqCst) > 0
            || self.has_records.load(Ordering::SeqCst)
    }

    /// Whether there are changes that are not known to be on the disk.
    pub(crate) fn are_unstable(&self) -> bool {
        // In this order; see the end of a change.
        self.under_way.load(Ordering::SeqCst) > 0
            || self.ended.load(Ordering::SeqCst) != self.flushed.load(Ordering::SeqCst)
    }

    /// Whether a change that was made just now, under the locks that order its objects, may get its
    /// record: all that it depends on is on the disk, or in the log.
    pub(crate) fn may_log(&self) -> bool {
        if self.are_unstable() {
            return false;
        }
        if !self.has_records.load(Ordering::SeqCst) {
            self.has_records.store(true, Ordering::SeqCst);
            return !self.are_unstable();
        }
        true
    }

    /// A change that [may](AsyncChanges::may_log) have a record got it. A flush may have begun in between.
    pub(crate) fn note_record(&self) {
        if !self.has_records.load(Ordering::SeqCst) {
            self.has_records.store(true, Ordering::SeqCst);
        }
    }

    /// A flush of the whole file system is about to begin.
    pub(crate) fn flush(&self) -> WholeFlush<'_> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        WholeFlush {
            changes: self,
            ended: self.ended.load(Ordering::SeqCst),
            had_records: self.has_records.swap(false, Ordering::SeqCst),
            is_done: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_had_ended_before_it() {
        let changes = Arc::new(AsyncChanges::default());
        assert!(!changes.are_unstable());
        let first = changes.begin();
        assert!(changes.are_unstable());
        // It may be there or not: it counts when it has ended.
        changes.flush().done();
        assert!(changes.are_unstable());
        drop(first);
        assert!(changes.are_unstable());
        drop(changes.flush());
        assert!(changes.are_unstable(), "it failed");
        let flush = changes.flush();
        drop(changes.begin());
        flush.done();
        assert!(changes.are_unstable(), "the second came later");
        changes.flush().done();
        assert!(!changes.are_unstable());
    }

    #[test]
    fn a_file_system_has_records_or_unstable_changes() {
        let changes = Arc::new(AsyncChanges::default());
        assert!(changes.may_log());
        assert!(changes.has_records());
        drop(changes.flush());
        assert!(changes.has_records(), "it failed");
        let flush = changes.flush();
        assert!(changes.has_records(), "until it ends");
        flush.done();
        assert!(!changes.has_records());
        let change = changes.begin();
        assert!(!changes.may_log());
        change.cancel();
        assert!(!changes.are_unstable());
        let change = changes.begin();
        drop(change);
        assert!(!changes.may_log() && !changes.has_records());
        changes.flush().done();
        assert!(changes.may_log() && changes.has_records());
    }
}
