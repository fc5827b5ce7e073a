//! Marks on file systems, of how far the log had got with each ([`steadfast_intent_log::mark`]):
//! written before each flush of a checkpoint, for the start to compare (`compared.rs`).

use steadfast_intent_log::{FileSystemEntry, Lsn, MARK_SLOT_BYTES, Mark, MarkPlace};
use steadfast_vfs::{FileSystemSync, FsError};

use crate::compared::{now_ms, time_shown};
use crate::hex;
use crate::listing::shown;

use super::{IntentLogKeeper, Phase};

/// A mark that is written, and not yet known to be stable.
struct Written {
    place: MarkPlace,
    slot: usize,
}

impl IntentLogKeeper {
    /// Flushes a file system, with a mark that says up to where. On return its changes up to `up_to`,
    /// which have all been applied, are stable.
    pub(super) fn sync_marked(
        &self,
        entry: &FileSystemEntry,
        sync: &dyn FileSystemSync,
        up_to: Lsn,
    ) -> Result<(), FsError> {
        self.sync_with(entry, sync, up_to, entry.tail)
    }

    /// A file system has been flushed up to here, and is left to others: nothing of it is to be
    /// replayed, whatever copy of the log comes back.
    pub(super) fn mark_flushed(
        &self,
        entry: &FileSystemEntry,
        sync: &dyn FileSystemSync,
        up_to: Lsn,
    ) -> Result<(), FsError> {
        self.sync_with(entry, sync, up_to, up_to)
    }

    fn sync_with(
        &self,
        entry: &FileSystemEntry,
        sync: &dyn FileSystemSync,
        up_to: Lsn,
        flushed: Lsn,
    ) -> Result<(), FsError> {
        let written = self.write_mark(entry, sync, up_to, flushed);
        sync.sync()?;
        if let Some(Written { place, slot }) = written {
            self.marks.note_stable(entry.index, slot);
            self.log.marked(entry.index, place);
        }
        Ok(())
    }

    /// `None` if it cannot be written: then the file system keeps the one that it has. To be called by
    /// who holds `flushing`, or once nobody else flushes.
    fn write_mark(
        &self,
        entry: &FileSystemEntry,
        sync: &dyn FileSystemSync,
        applied: Lsn,
        flushed: Lsn,
    ) -> Option<Written> {
        let epoch = self.log.epoch();
        let (before, stable_slot) = self.marks.last_written(entry.index).unwrap_or_else(|| {
            let found = sync.read_mark().ok().and_then(|bytes| Mark::found(&bytes));
            found.map_or((0, None), |(mark, slot)| (mark.sequence, Some(slot)))
        });
        let (sequence, slot) = (before + 1, usize::from(stable_slot == Some(0)));
        let mark = Mark {
            log: *self.state_files.uuid(),
            host: self.log.host(),
            file_system: entry.identity,
            sequence,
            epoch,
            applied,
            stable: self.log.stable().min(applied),
            flushed: flushed.min(applied),
            time_ms: now_ms(),
        };
        let written = sync.write_mark((slot * MARK_SLOT_BYTES) as u64, &mark.encode());
        let is_news =
            self.marks.note_written(entry.index, written.map(|()| (sequence, stable_slot)));
        if let Err(error) = written
            && is_news
        {
            tracing::warn!(
                "{}: the intent log's mark cannot be written to its file system: {error}; \
                 if the state directory is restored from an older copy, that is not noticed \
                 here",
                shown(entry)
            );
        }
        written.ok().map(|()| Written { place: mark.place(), slot })
    }

    /// Marks all file systems that are served as flushed up to the last change; the flush that makes
    /// the marks stable is done too. For when the log is left. The first failure of a flush, which
    /// may be told only once by the kernel.
    pub(super) fn mark_all_flushed(&self) -> Result<(), (FileSystemEntry, FsError)> {
        let mut outcome = Ok(());
        for usage in self.log.usage().file_systems {
            let sync = self.file_systems.sync_of(usage.entry.index);
            if let Some(sync) = sync
                && let Err(error) = self.mark_flushed(&usage.entry, &*sync, self.log.last())
            {
                tracing::warn!("{}: cannot be flushed: {error}", shown(&usage.entry));
                if outcome.is_ok() {
                    outcome = Err((usage.entry, error));
                }
            }
        }
        outcome
    }

    /// A file system begins to be used. If it does not carry the mark that the log knows of, it was
    /// rolled back, or served otherwise, while the log had nothing of it. The log forgets that mark, so
    /// that the next start does not take what is logged from here on for older or newer than the disk.
    pub(super) fn begin_marks(&self, index: u32, sync: &dyn FileSystemSync) {
        if self.marks.has(index) {
            return;
        }
        let usages = self.log.usage().file_systems;
        let Some(usage) = usages.iter().find(|usage| usage.entry.index == index) else { return };
        let entry = &usage.entry;
        // One that cannot be read, as by a thread that has taken a client's identity, is unknown.
        let found = sync.read_mark().ok().and_then(|bytes| Mark::found(&bytes));
        let found = found.map(|(mark, _)| mark).filter(|mark| mark.file_system == entry.identity);
        let ours = found.filter(|mark| mark.log == *self.state_files.uuid());
        if entry.mark.is_some_and(|known| ours.is_none_or(|mark| mark.place() < known)) {
            self.log.unmarked(index);
        }
        if let Some(mark) = found.filter(|mark| mark.log != *self.state_files.uuid()) {
            tracing::info!(
                "{}: was served with another intent log ({}) until {}; is served with this one from \
                 now on",
                shown(entry),
                hex(&mark.log),
                time_shown(mark.time_ms)
            );
        }
        self.marks.begin(index);
        self.requests.want_marks();
    }

    /// Marks those that have begun to be used.
    pub(super) fn mark_those_due(&self) {
        for index in self.marks.take_due() {
            self.mark_now(index);
        }
    }

    fn mark_now(&self, index: u32) {
        let _flushing = self.file_systems.flushing();
        if self.phase() != Phase::On || self.faulty.has(index) {
            return;
        }
        let usages = self.log.usage().file_systems;
        let Some(usage) = usages.iter().find(|usage| usage.entry.index == index) else { return };
        let Some(sync) = self.file_systems.sync_of(index) else { return };
        if let Err(error) = self.sync_marked(&usage.entry, &*sync, self.log.last()) {
            self.note_faulty(index, &usage.entry.path, error);
        }
    }
}
