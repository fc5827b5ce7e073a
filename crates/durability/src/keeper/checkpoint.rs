//! Checkpoints: file systems are made stable, so that the log needs their records no more.

use std::sync::Arc;
use std::time::Instant;

use steadfast_intent_log::{FileSystemEntry, FileSystemUsage};
use steadfast_vfs::{FileSystemSync, FsError};

use crate::aside;
use crate::mutation::{self, Mutation};

use super::moments::IDLE_MARK;
use super::pace::LogLoad;
use super::requests::{Due, LastCheckpoint};
use super::{FULL_WAIT, IntentLogKeeper, Phase};

/// Of a log that is as full as this, in percent, a checkpoint takes no heed of the log's own writes: soon
/// they would wait for room.
const HURRY_FILL_PERCENT: u64 = 60;

/// Of the time between checkpoints, what one may take to have data written.
const TIME_SHARE: f64 = 0.8;

impl IntentLogKeeper {
    /// What the checkpointer does, until it is stopped.
    pub(super) fn checkpoint_all(&self) {
        let interval = self.settings.options.checkpoint_interval;
        let mut by_time = Instant::now() + interval;
        loop {
            let meanwhile = || {
                self.mark_moment();
                self.wakeup.rouse();
            };
            match self.requests.next(by_time, IDLE_MARK, meanwhile) {
                Due::End => return,
                Due::Marks => self.mark_those_due(),
                Due::Checkpoint => {
                    self.checkpoint_by_request();
                    by_time = Instant::now() + interval;
                    if let Some(trial) = self.switch.next_trial() {
                        // Somebody else may be at it.
                        by_time = by_time.min(trial.max(Instant::now() + FULL_WAIT));
                    }
                }
            }
        }
    }

    /// One checkpoint, or a look at whether a log that was left can be used again.
    fn checkpoint_by_request(&self) {
        let begun = Instant::now();
        let is_on = self.phase() == Phase::On;
        if is_on {
            self.checkpoint();
        } else {
            self.come_back_if_well();
        }
        // If somebody registers one just now, it is done there, or the next time.
        if let Some(_one) = self.file_systems.try_registering() {
            self.let_file_systems_go();
        }
        self.requests.note_ended(is_on.then(|| LastCheckpoint::ended_now(begun)));
    }

    /// Asks for a checkpoint that begins now, and waits for it. `true` if nothing is left in the
    /// log of what was in it.
    pub fn checkpoint_now(&self) -> bool {
        if self.running.has_threads() {
            self.requests.want_and_wait();
        } else {
            self.checkpoint();
        }
        self.faulty.is_empty()
    }

    pub(super) fn checkpoint(&self) {
        let before = self.log.last().0;
        for usage in self.log.usage().file_systems {
            let index = usage.entry.index;
            let has_failed = || {
                let sync = self.file_systems.sync_of(index);
                sync.is_some_and(|sync| sync.has_failed())
            };
            if usage.first_live.is_none() && !has_failed() {
                continue;
            }
            let sync = self.file_systems.sync_of(index);
            if let Some(sync) = sync.filter(|_| !self.faulty.has(index)) {
                self.write_back(&*sync, usage.live_bytes);
            }
            let _flushing = self.file_systems.flushing();
            // It may have been let go meanwhile, and its number be another's.
            let usages = self.log.usage().file_systems;
            let is_it = |one: &FileSystemUsage| {
                (one.entry.index, one.entry.identity) == (index, usage.entry.identity)
            };
            if !usages.iter().any(is_it) {
                continue;
            }
            if self.faulty.has(index) {
                self.set_aside(&usage.entry);
                continue;
            }
            // Without any it was let go meanwhile.
            let Some(sync) = self.file_systems.sync_of(index) else { continue };
            // All of them have been applied.
            let up_to = self.log.last();
            let is_skipped = mutation::is_on(Mutation::UnsyncedCheckpoints);
            match if is_skipped { Ok(()) } else { self.sync_marked(&usage.entry, &*sync, up_to) } {
                Ok(()) => self.log.checkpointed(index, up_to),
                Err(error) => self.note_faulty(index, &usage.entry.path, error),
            }
        }
        self.note_marks_covered(before);
        self.keep_replies();
        self.write_superblocks_if_due();
    }

    /// Has data written to the disk at the pace that the log's own writes allow, so that the flush that
    /// follows has less to do at once.
    fn write_back(&self, sync: &dyn FileSystemSync, logged_bytes: u64) {
        let load = || LogLoad { batches: self.log.writes(), write_ns: self.writes.recent_ns() };
        let mut pace = self.pace.lock();
        let time = self.settings.options.checkpoint_interval.mul_f64(TIME_SHARE);
        pace.begin(load(), logged_bytes, time);
        let mut marked = Instant::now();
        sync.write_back(&mut |bytes| {
            if self.is_hurried() {
                return false;
            }
            if marked.elapsed() >= IDLE_MARK {
                marked = Instant::now();
                self.mark_moment();
                self.wakeup.rouse();
            }
            let pause = pace.pause_after(bytes, load());
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            true
        });
    }

    /// Whether a checkpoint is to end as soon as it can: somebody waits for it, or the log fills up.
    fn is_hurried(&self) -> bool {
        let (used, all) = self.log.fill();
        used * 100 > all * HURRY_FILL_PERCENT
            || self.requests.is_hurried()
            || self.running.is_closing()
    }

    /// Lets go file systems that no share uses any more, so that they can be unmounted: flushed, or,
    /// if that fails, with what they may have lost set aside. To be called by who holds
    /// `registering`: nobody may register one meanwhile.
    pub(super) fn let_file_systems_go(&self) {
        if self.phase() == Phase::Closing {
            return;
        }
        let left = self.file_systems.left();
        let usages = self.log.usage().file_systems;
        for usage in usages.iter().filter(|usage| left.contains(&usage.entry.index)) {
            let (index, path) = (usage.entry.index, &usage.entry.path);
            if self.phase() == Phase::On {
                self.flush_last(&usage.entry);
            }
            {
                // Nobody writes a mark meanwhile, as its number may be another's from here on.
                let _flushing = self.file_systems.flushing();
                // If it could not be set aside, that is tried again.
                if !self.log.forget(index) {
                    continue;
                }
                self.file_systems.remove(index);
                self.marks.forget(index);
            }
            if self.faulty.has(index) {
                // What was written meanwhile, or had not reached the disk, may be replayed over.
                self.running.note_loss();
            }
            let was_faulty = self.faulty.let_go(index);
            if self.phase() == Phase::On {
                self.write_superblocks_if_due();
            }
            let path = String::from_utf8_lossy(path);
            if was_faulty {
                tracing::warn!(
                    "{path}: no share uses its file system any more. It could not be flushed; the \
                     operations that it may lack are kept in the state directory, and are replayed \
                     when it is served again"
                );
            } else {
                tracing::info!(
                    "{path}: flushed, and can be unmounted: no share uses its file system any more"
                );
            }
        }
    }

    fn flush_last(&self, entry: &FileSystemEntry) {
        let _flushing = self.file_systems.flushing();
        let index = entry.index;
        if !self.faulty.has(index) {
            let sync = self.file_systems.sync_of(index);
            let up_to = self.log.last();
            let flush = |sync: Arc<dyn FileSystemSync>| {
                self.sync_marked(entry, &*sync, up_to)?;
                self.mark_flushed(entry, &*sync, up_to)
            };
            match sync.map_or(Err(FsError::Stale), flush) {
                Ok(()) => return self.log.checkpointed(index, up_to),
                Err(error) => self.note_faulty(index, &entry.path, error),
            }
        }
        let usages = self.log.usage().file_systems;
        if usages.iter().any(|usage| usage.entry.index == index && usage.first_live.is_some()) {
            self.set_aside(entry);
        }
    }

    /// Has the superblocks say how far the log has got, if somebody waits for that or it makes room.
    pub(super) fn write_superblocks_if_due(&self) {
        let writing = self.superblocks.lock(&self.log, &self.medium);
        if !self.log.superblock_is_due() {
            return;
        }
        if let Err(error) = writing.write() {
            self.superblocks.note_fault(format!("cannot be written: {error}"));
        }
        // Records may have waited for it; or a committer has to leave the log.
        self.note_complete();
    }

    /// A file system could not be flushed: what it may have lost is in the log, and stays there.
    pub(super) fn note_faulty(&self, index: u32, path: &[u8], error: FsError) {
        // Data that was not logged may be lost with it, and who opens its file after a repair is not
        // told.
        self.running.note_loss();
        let usages = self.log.usage().file_systems;
        let entry = usages.iter().map(|usage| &usage.entry).find(|entry| entry.index == index);
        // It may have been let go meanwhile.
        let Some(identity) = entry.map(|entry| entry.identity) else { return };
        let interval = self.settings.options.device_retry_interval;
        let interval = self.faulty.note(index, identity, error.to_string(), interval);
        let path = String::from_utf8_lossy(path);
        tracing::error!(
            "{path}: its file system cannot be flushed: {error}. Nothing acknowledged is lost: the \
             operations stay in the intent log. Changes of this file system wait, others go on; it is \
             tried again every {} s. Look for errors of its disk in the kernel's messages. To unmount \
             it for a repair, remove its shares, and add them again afterwards",
            interval.as_secs()
        );
    }

    /// Keeps the records of a faulty file system elsewhere, so that they do not fill the log.
    pub(super) fn set_aside(&self, entry: &FileSystemEntry) {
        let extent = self.log.extent();
        let log = (self.state_files.uuid(), self.log.epoch());
        let directory = self.state_files.directory();
        match aside::set_aside(directory, &*self.medium, &extent, log, entry, None) {
            Ok(None) => {}
            Ok(Some((path, last))) => {
                tracing::warn!(
                    "{}: the operations that its file system may lack are kept in {}; they are replayed \
                     before it is served again",
                    String::from_utf8_lossy(&entry.path),
                    path.display()
                );
                self.log.checkpointed(entry.index, last);
            }
            Err(error) => tracing::error!(
                "{}: the operations that its file system may lack cannot be kept in the state \
                 directory: {error}. They stay in the intent log, which may become full; make room in \
                 the state directory",
                String::from_utf8_lossy(&entry.path)
            ),
        }
    }

    /// Waits until a record is stable, or the log has been left.
    pub(super) fn wait_stable(&self, lsn: u64) {
        self.waiting.wait_until(|| self.log.stable().0 >= lsn || self.phase() == Phase::Off);
    }
}
