//! Committers: write whatever is complete, send the replies that wait for it, and leave the log when
//! it cannot be written.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_intent_log::{BATCHES_IN_FLIGHT_MAX, Batch};
use steadfast_runtime::{ParkedReply, ReplySender, ServerLink};
use steadfast_sys::memory::prefer_huge_pages;
use steadfast_sys::scheduling;

use crate::known::{note_given_up, note_known};
use crate::mutation::{self, Mutation};

use super::{
    COMMITTERS, DRAIN_POLL, FULL_WAIT, INLINE_WRITE_NS_MAX, IntentLogKeeper, Phase, RETRY,
};

/// What workers hold while a committer sleeps waits no longer for more.
const HELD_MAX: Duration = Duration::from_millis(1);
/// How long a committer may run while others want its CPU: shorter than a worker, so that it gets it
/// at once.
const SLICE: Duration = Duration::from_micros(100);
/// In steps of niceness.
const PRECEDENCE: i32 = 10;

/// The device reads a batch of many records as one piece.
fn new_batch() -> Batch {
    Batch::with_advice(prefer_huge_pages)
}

impl IntentLogKeeper {
    /// There may be something to write, or to send.
    pub(super) fn note_complete(&self) {
        self.has_work.store(true, Ordering::SeqCst);
        self.rouse();
    }

    /// Has what is complete written now: wakes a committer if there is something for it and it
    /// sleeps.
    pub(super) fn rouse(&self) {
        if self.has_work.load(Ordering::SeqCst) {
            self.is_wanted.store(true, Ordering::SeqCst);
            if self.sleeping.load(Ordering::SeqCst) > 0 {
                let _work = self.work.lock();
                self.wake.notify_one();
            }
        }
    }

    /// A worker goes on executing calls before it has written what those before have logged: a
    /// batch of many costs hardly more than one of few. Until [`IntentLogKeeper::release`].
    pub(super) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker that has held what was logged wants it written.
    pub(super) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::SeqCst);
        self.rouse();
    }

    /// Whether a committer should write what is complete, rather than wait for more.
    fn is_to_write(&self) -> bool {
        self.is_wanted.load(Ordering::SeqCst)
            || (self.has_work.load(Ordering::SeqCst) && self.holders.load(Ordering::SeqCst) == 0)
    }

    /// What is complete is to be on its way to the device while further calls are executed, not
    /// after them.
    ///
    /// # Errors
    /// When the server may not; it does without.
    pub(super) fn go_before_workers() -> std::io::Result<()> {
        // No loss on a kernel that does not know slices.
        let _ = scheduling::set_slice(SLICE);
        scheduling::go_before_others(PRECEDENCE)
    }

    pub(super) fn commit_all(&self) {
        let Some(mut sender) = self.server.get().and_then(ServerLink::reply_sender) else { return };
        let mut batch = new_batch();
        loop {
            self.is_wanted.store(false, Ordering::SeqCst);
            self.has_work.store(false, Ordering::SeqCst);
            if self.write_batch(&mut batch, &mut sender) {
                // What came meanwhile, perhaps before the mark was taken away.
                if self.log.has_complete() {
                    self.has_work.store(true, Ordering::SeqCst);
                }
                if self.is_to_write() {
                    continue;
                }
            }
            let mut is_stopping = self.work.lock();
            if *is_stopping {
                return;
            }
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            if !self.is_to_write() {
                if self.has_work.load(Ordering::SeqCst) {
                    // However long those who hold it go on.
                    self.wake.wait_for(&mut is_stopping, HELD_MAX);
                } else {
                    self.wake.wait(&mut is_stopping);
                }
            }
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether no committer is at work, so that who has something to write may do it itself: that
    /// saves the time until a thread is awake. Not worth it on a slow device, where the caller
    /// would be away from its other work for long.
    pub(super) fn is_for_the_taking(&self) -> bool {
        self.has_work.load(Ordering::SeqCst)
            && self.sleeping.load(Ordering::SeqCst) == COMMITTERS
            && self.recent_write_ns.load(Ordering::Relaxed) <= INLINE_WRITE_NS_MAX
    }

    /// What a committer does, once, by another thread.
    pub(super) fn commit_once(&self, sender: &mut ReplySender) {
        let mut batch = self.spare_batches.lock().pop().unwrap_or_else(new_batch);
        self.has_work.store(false, Ordering::SeqCst);
        self.write_batch(&mut batch, sender);
        let mut spare = self.spare_batches.lock();
        if spare.len() < BATCHES_IN_FLIGHT_MAX {
            spare.push(batch);
        }
        drop(spare);
        // What came meanwhile; or did not fit into one batch.
        if self.log.has_complete() {
            self.note_complete();
        }
        self.rouse();
    }

    /// Writes what is complete; `false` if there is nothing.
    pub(super) fn write_batch(&self, batch: &mut Batch, sender: &mut ReplySender) -> bool {
        // Who leaves takes other locks.
        let fault = self.superblock_fault.lock().take();
        if let Some(why) = fault {
            self.leave(&why, sender);
        }
        self.mark_moment();
        self.writing.fetch_add(1, Ordering::SeqCst);
        if !self.log.take_batch(batch) {
            self.writing.fetch_sub(1, Ordering::SeqCst);
            // Parked after what they wait for was stable.
            self.settle_stable(sender);
            return false;
        }
        if self.log.has_complete() {
            // What did not fit is wanted as much.
            self.has_work.store(true, Ordering::SeqCst);
            self.is_wanted.store(true, Ordering::SeqCst);
        }
        let begun = Instant::now();
        let written = batch.write_to(&*self.medium);
        self.writing.fetch_sub(1, Ordering::SeqCst);
        match written {
            Ok(()) => {
                let write_ns = begun.elapsed().as_nanos() as u64;
                self.log.note_write(write_ns);
                let recent = self.recent_write_ns.load(Ordering::Relaxed);
                self.recent_write_ns.store((3 * recent + write_ns) / 4, Ordering::Relaxed);
                // Before the tail can pass them.
                self.replies.gather(batch.behind());
                self.log.written(batch);
                self.settle_stable(sender);
                drop(self.stable_lock.lock());
                self.stable_grew.notify_all();
            }
            Err(error) => self.leave(&format!("cannot be written: {error}"), sender),
        }
        true
    }

    /// Replies that wait for LSNs up to this one may be sent.
    fn answerable(&self) -> u64 {
        if self.phase() == Phase::Off || mutation::is_on(Mutation::EarlyReplies) {
            return u64::MAX;
        }
        self.log.stable().0
    }

    /// What is stable is not under way any more.
    fn forget_noted(&self) {
        if !self.has_noted.swap(false, Ordering::SeqCst) {
            return;
        }
        let (stable, mut noted) = (self.answerable(), self.noted.lock());
        noted.retain(|(lsn, _)| lsn.0 > stable);
        if !noted.is_empty() {
            self.has_noted.store(true, Ordering::SeqCst);
        }
    }

    /// Sends the replies of what is stable.
    pub(super) fn settle_stable(&self, sender: &mut ReplySender) {
        self.forget_noted();
        let ready = {
            let mut parked = self.parked.lock();
            let stable = self.answerable();
            if parked.first().is_none_or(|first| first > stable) {
                return;
            }
            self.settling.fetch_add(1, Ordering::SeqCst);
            parked.take(stable)
        };
        sender.send_stable(ready.into_iter());
        self.settling.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes over calls that wait for these LSNs.
    pub(super) fn park(&self, calls: impl Iterator<Item = (u64, ParkedReply)>) {
        let first = {
            let mut parked = self.parked.lock();
            for (lsn, call) in calls {
                parked.insert(lsn, call);
            }
            parked.first()
        };
        // Stable already: who made it so may have looked before these came.
        if first.is_some_and(|first| first <= self.answerable()) {
            self.note_complete();
        }
    }

    /// Leaves the log after a write failed: makes everything stable without it, and goes on so.
    pub(super) fn leave(&self, why: &str, sender: &mut ReplySender) {
        self.log.failed();
        {
            let _gate = self.gate.lock();
            if self.phase() != Phase::On {
                return;
            }
            self.phase.store(Phase::Closing as u8, Ordering::SeqCst);
        }
        tracing::error!(
            "the intent log {why}: flushing all file systems; from then on changes are flushed one \
             by one, which is slower and as safe"
        );
        // What has passed the gate is applied before everything is flushed, and its record, which
        // nobody will write, is complete.
        if self.drain() && self.flush_and_give_up(why) {
            self.settle_stable(sender);
        }
    }

    /// With the gate closed: waits until nothing is half in the log. `false` if the server is
    /// stopped before.
    pub(super) fn drain(&self) -> bool {
        while self.passed.load(Ordering::SeqCst) > 0 || self.writing.load(Ordering::SeqCst) > 0 {
            if self.is_stopping() {
                return false;
            }
            std::thread::sleep(DRAIN_POLL);
        }
        true
    }

    /// With the gate closed, and nothing half in a log that has failed: makes everything stable
    /// without it, and opens the gate. `false` if that cannot be done.
    pub(super) fn flush_and_give_up(&self, why: &str) -> bool {
        // The kernel tells of lost data once, so a second attempt would prove nothing.
        let _flushing = self.flushing.lock();
        let syncs = self.served.lock().syncs();
        let is_flushed = syncs.iter().all(|one| one.sync().is_ok())
            && !self.has_faulty.load(Ordering::SeqCst)
            && self.mark_all_flushed().is_ok();
        if !is_flushed {
            self.switch.note_stuck(why);
            tracing::error!(
                "a file system cannot be flushed, and the intent log, which has what that may have \
                 lost, cannot be written: changes wait until both are repaired and the server is \
                 started again"
            );
            return false;
        }
        // What the ring had of them is not read any more.
        let _told = self.replies.flush();
        if !self.give_up() {
            return false;
        }
        self.switch.note_left(why, self.options.device_retry_interval);
        self.open_gate(Phase::Off);
        true
    }

    /// Sees to it that what is in the log will never be replayed: the file systems have all of it,
    /// and go on changing. `false` if the server is stopped before that could be noted anywhere.
    pub(super) fn give_up(&self) -> bool {
        let _one = self.superblocks.lock();
        // The server goes on telling its verifier, and may crash: the next start must have another.
        self.log.set_write_verifier(self.untold_write_verifier);
        loop {
            let Err(error) = self.log.give_up(&*self.medium) else {
                // That it is closed is known from the log too.
                let _ = note_known(&self.state_directory, &self.uuid, false);
                return true;
            };
            let Err(also) = self.note_given_up() else {
                tracing::warn!("the intent log cannot be marked as empty: {error}");
                // Should it not be there at the next start, nothing is missing.
                let _ = note_known(&self.state_directory, &self.uuid, false);
                return true;
            };
            tracing::error!(
                "the intent log cannot be marked as empty: {error}; nor can that be noted in the \
                 state directory: {also}; changes wait until one of them can be written"
            );
            let begun = Instant::now();
            while begun.elapsed() < RETRY {
                if self.is_stopping() {
                    return false;
                }
                std::thread::sleep(FULL_WAIT);
            }
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.work.lock()
    }

    pub(super) fn note_given_up(&self) -> std::io::Result<()> {
        note_given_up(&self.state_directory, &self.uuid, self.log.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::switch_tests::start;

    #[test]
    fn what_is_held_is_written_when_it_is_released_or_wanted() {
        let place = tempfile::tempdir().expect("a directory");
        let keeper = start(place.path()).keeper;
        let is_written = || keeper.is_wanted.store(false, Ordering::SeqCst);
        keeper.rouse();
        assert!(!keeper.is_to_write(), "there is nothing");
        for _worker in 0..2 {
            keeper.hold();
        }
        keeper.has_work.store(true, Ordering::SeqCst);
        assert!(!keeper.is_to_write(), "more is to come");
        // Somebody waits for it, or has no more.
        for wants in [IntentLogKeeper::rouse, IntentLogKeeper::release] {
            wants(&keeper);
            assert!(keeper.is_to_write());
            is_written();
            assert!(!keeper.is_to_write(), "another worker has more");
        }
        keeper.release();
        is_written();
        assert!(keeper.is_to_write(), "what came meanwhile is nobody's to hold");
    }
}
