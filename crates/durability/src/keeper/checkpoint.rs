//! Checkpoints: file systems are made stable, so that the log needs their records no more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use steadfast_intent_log::{FileSystemEntry, FileSystemUsage};
use steadfast_vfs::{FileSystemSync, FsError};

use crate::aside;
use crate::mutation::{self, Mutation};

use super::moments::IDLE_MARK;
use super::pace::LogLoad;
use super::status::LastCheckpoint;
use super::{FULL_WAIT, IntentLogKeeper, Phase};

/// Of a log that is as full as this, in percent, a checkpoint takes no heed of the log's own writes: soon
/// they would wait for room.
const HURRY_FILL_PERCENT: u64 = 60;

/// Of the time between checkpoints, what one may take to have data written.
const TIME_SHARE: f64 = 0.8;

impl IntentLogKeeper {
    pub(super) fn checkpoint_all(&self) {
        let mut next = Instant::now() + self.options.checkpoint_interval;
        loop {
            {
                let mut state = self.checkpointing.lock();
                while !state.is_wanted && !state.is_stopping && !state.are_marks_due {
                    let look = next.min(Instant::now() + IDLE_MARK);
                    if self.checkpoint_wanted.wait_until(&mut state, look).timed_out() {
                        if look == next {
                            break;
                        }
                        parking_lot::MutexGuard::unlocked(&mut state, || {
                            self.mark_moment();
                            self.rouse();
                        });
                    }
                }
                if state.is_stopping {
                    return;
                }
                if std::mem::take(&mut state.are_marks_due) {
                    drop(state);
                    self.mark_those_due();
                    continue;
                }
                state.is_wanted = false;
                state.begun += 1;
                state.is_waited_for = state.waited_for == state.begun;
            }
            let begun = Instant::now();
            let is_on = self.phase() == Phase::On;
            if is_on {
                self.checkpoint();
            } else {
                self.come_back_if_well();
            }
            // If somebody registers one just now, it is done there, or the next time.
            if let Some(_one) = self.registering.try_lock() {
                self.let_file_systems_go();
            }
            {
                let mut state = self.checkpointing.lock();
                state.ended = state.begun;
                if is_on {
                    state.count += 1;
                    state.last = Some(LastCheckpoint::ended_now(begun));
                }
            }
            self.checkpoint_ended.notify_all();
            drop(self.space.lock());
            self.space_grew.notify_all();
            next = Instant::now() + self.options.checkpoint_interval;
            if let Some(trial) = self.switch.next_trial() {
                // Somebody else may be at it.
                next = next.min(trial.max(Instant::now() + FULL_WAIT));
            }
        }
    }

    /// Asks for a checkpoint that begins now, and waits for it. `true` if nothing is left in the
    /// log of what was in it.
    pub fn checkpoint_now(&self) -> bool {
        if self.threads.lock().is_empty() {
            self.checkpoint();
            return self.faults.lock().is_empty();
        }
        let wanted = {
            let mut state = self.checkpointing.lock();
            state.is_wanted = true;
            state.waited_for = state.begun + 1;
            // The one that runs is in the way.
            state.is_waited_for = true;
            state.waited_for
        };
        self.checkpoint_wanted.notify_all();
        let mut state = self.checkpointing.lock();
        while state.ended < wanted && !state.is_stopping {
            self.checkpoint_ended.wait(&mut state);
        }
        drop(state);
        self.faults.lock().is_empty()
    }

    pub(super) fn want_checkpoint(&self) {
        self.checkpointing.lock().is_wanted = true;
        self.checkpoint_wanted.notify_all();
    }

    pub(super) fn checkpoint(&self) {
        let before = self.log.last().0;
        for usage in self.log.usage().file_systems {
            let index = usage.entry.index;
            let has_failed = || {
                let sync = self.served.lock().sync_of(index);
                sync.is_some_and(|sync| sync.has_failed())
            };
            if usage.first_live.is_none() && !has_failed() {
                continue;
            }
            let sync = self.served.lock().sync_of(index);
            if let Some(sync) = sync.filter(|_| !self.faults.lock().has(index)) {
                self.write_back(&*sync, usage.live_bytes);
            }
            let _flushing = self.flushing.lock();
            // It may have been let go meanwhile, and its number be another's.
            let usages = self.log.usage().file_systems;
            let is_it = |one: &FileSystemUsage| {
                (one.entry.index, one.entry.identity) == (index, usage.entry.identity)
            };
            if !usages.iter().any(is_it) {
                continue;
            }
            if self.faults.lock().has(index) {
                self.set_aside(&usage.entry);
                continue;
            }
            // Without any it was let go meanwhile.
            let Some(sync) = self.served.lock().sync_of(index) else { continue };
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
        let load = || LogLoad {
            batches: self.log.writes(),
            write_ns: self.recent_write_ns.load(Ordering::Relaxed),
        };
        let mut pace = self.pace.lock();
        let time = self.options.checkpoint_interval.mul_f64(TIME_SHARE);
        pace.begin(load(), logged_bytes, time);
        let mut marked = Instant::now();
        sync.write_back(&mut |bytes| {
            if self.is_hurried() {
                return false;
            }
            if marked.elapsed() >= IDLE_MARK {
                marked = Instant::now();
                self.mark_moment();
                self.rouse();
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
            || {
                let state = self.checkpointing.lock();
                state.is_waited_for || state.is_stopping
            }
            || self.is_closing()
    }

    /// Lets go file systems that no share uses any more, so that they can be unmounted: flushed, or,
    /// if that fails, with what they may have lost set aside. To be called by who holds
    /// `registering`: nobody may register one meanwhile.
    pub(super) fn let_file_systems_go(&self) {
        if self.phase() == Phase::Closing {
            return;
        }
        let left = self.served.lock().left();
        let usages = self.log.usage().file_systems;
        for usage in usages.iter().filter(|usage| left.contains(&usage.entry.index)) {
            let (index, path) = (usage.entry.index, &usage.entry.path);
            if self.phase() == Phase::On {
                self.flush_last(&usage.entry);
            }
            {
                // Nobody writes a mark meanwhile, as its number may be another's from here on.
                let _flushing = self.flushing.lock();
                // If it could not be set aside, that is tried again.
                if !self.log.forget(index) {
                    continue;
                }
                self.served.lock().remove(index);
                self.forget_mark(index);
            }
            if self.faults.lock().has(index) {
                // What was written meanwhile, or had not reached the disk, may be replayed over.
                self.note_loss();
            }
            // The number may be another's from here on.
            let mut faults = self.faults.lock();
            let was_faulty = faults.let_go(index, Instant::now());
            self.has_faulty.store(!faults.is_empty(), Ordering::SeqCst);
            drop(faults);
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
        let _flushing = self.flushing.lock();
        let index = entry.index;
        if !self.faults.lock().has(index) {
            let sync = self.served.lock().sync_of(index);
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

    pub(super) fn write_superblocks_if_due(&self) {
        let _one = self.superblocks.lock();
        if !self.log.superblock_is_due() {
            return;
        }
        if let Err(error) = self.log.write_superblocks(&*self.medium, false) {
            *self.superblock_fault.lock() = Some(format!("cannot be written: {error}"));
        }
        // Records may have waited for it; or a committer has to leave the log.
        self.note_complete();
    }

    /// Has clients send again what they were not told to be stable.
    pub(super) fn note_loss(&self) {
        if let Some(server) = self.server.get() {
            server.note_loss();
        }
    }

    /// A file system could not be flushed: what it may have lost is in the log, and stays there.
    pub(super) fn note_faulty(&self, index: u32, path: &[u8], error: FsError) {
        // Data that was not logged may be lost with it, and who opens its file after a repair is not
        // told.
        self.note_loss();
        let usages = self.log.usage().file_systems;
        let entry = usages.iter().map(|usage| &usage.entry).find(|entry| entry.index == index);
        // It may have been let go meanwhile.
        let Some(identity) = entry.map(|entry| entry.identity) else { return };
        let (interval, now) = (self.options.device_retry_interval, Instant::now());
        let interval = self.faults.lock().note(index, identity, error.to_string(), interval, now);
        self.has_faulty.store(true, Ordering::SeqCst);
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
        let log = (&self.uuid, self.log.epoch());
        match aside::set_aside(&self.state_directory, &*self.medium, &extent, log, entry, None) {
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

    pub(super) fn wait_stable(&self, lsn: u64) {
        let mut lock = self.stable_lock.lock();
        while self.log.stable().0 < lsn && self.phase() != Phase::Off {
            self.stable_grew.wait(&mut lock);
        }
    }
}
