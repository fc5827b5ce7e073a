//! Which ranges of which files were locked or freed, for whoever shows locks to local processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::FileKey;
use crate::file_locks::FileLocks;
use crate::ranges::Span;

/// The files of which ranges were locked or freed since somebody asked.
#[derive(Debug, Default)]
pub(crate) struct ChangedLocks {
    is_watched: AtomicBool,
    has_some: AtomicBool,
    /// From the first to the last byte that changed; in an order that is the same in each run.
    spans: Mutex<BTreeMap<FileKey, Span>>,
}

impl ChangedLocks {
    /// From now on changes are noted: somebody asks for them.
    pub(crate) fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Whether anything may have.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// What has changed since this was asked last.
    pub(crate) fn take(&self) -> BTreeMap<FileKey, Span> {
        if !self.has_some() {
            return BTreeMap::new();
        }
        let mut spans = self.spans.lock();
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *spans)
    }

    /// Takes up what has changed of a file's locks.
    pub(crate) fn collect(&self, file: &FileKey, locks: &mut FileLocks) {
        if let Some(span) = locks.take_changed() {
            self.note(file, span);
        }
    }

    /// Nobody has or wants anything of a file any more.
    pub(crate) fn note_empty(&self, file: &FileKey) {
        self.note(file, Span { start: 0, end: u64::MAX });
    }

    fn note(&self, file: &FileKey, span: Span) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        self.spans
            .lock()
            .entry(*file)
            .and_modify(|known| *known = known.hull(span))
            .or_insert(span);
        self.has_some.store(true, Ordering::Release);
    }
}
