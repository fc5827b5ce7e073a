//! Committers: write whatever is complete, send the replies that wait for it, and leave the log when
//! it cannot be written.

use std::time::{Duration, Instant};

use steadfast_intent_log::Batch;
use steadfast_runtime::{ParkedReply, ReplySender};
use steadfast_sys::scheduling;

use crate::mutation::{self, Mutation};

use super::writes::new_batch;
use super::{DRAIN_POLL, FULL_WAIT, IntentLogKeeper, Phase};

/// Between two attempts to note that the log was given up.
const RETRY: Duration = Duration::from_secs(10);
/// How long a committer may run while others want its CPU: shorter than a worker, so that it gets it
/// at once.
const SLICE: Duration = Duration::from_micros(100);
/// In steps of niceness.
const PRECEDENCE: i32 = 10;

impl IntentLogKeeper {
    /// There may be something to write, or to send, now.
    pub(super) fn note_complete(&self) {
        self.wakeup.note_work();
        self.wakeup.rouse();
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

    /// What a committer does, until it is stopped.
    pub(super) fn commit_all(&self) {
        let Some(mut sender) = self.running.reply_sender() else { return };
        let mut batch = new_batch();
        loop {
            self.wakeup.begin_look();
            if self.write_batch(&mut batch, &mut sender) {
                // What came meanwhile, perhaps before the mark was taken away.
                if self.log.has_complete() {
                    self.wakeup.note_work();
                }
                if self.wakeup.is_to_write() {
                    continue;
                }
            }
            if !self.wakeup.sleep() {
                return;
            }
        }
    }

    /// Whether no committer is at work, so that who has something to write may do it itself: that
    /// saves the time until a thread is awake. Not worth it on a slow device.
    pub(super) fn is_for_the_taking(&self) -> bool {
        self.wakeup.is_for_the_taking() && self.writes.are_fast()
    }

    /// What a committer does, once, by another thread.
    pub(super) fn commit_once(&self, sender: &mut ReplySender) {
        let mut batch = self.writes.borrow_batch();
        self.wakeup.take_work();
        self.write_batch(&mut batch, sender);
        self.writes.give_back(batch);
        // What came meanwhile; or did not fit into one batch.
        if self.log.has_complete() {
            self.note_complete();
        }
        self.wakeup.rouse();
    }

    /// Writes what is complete; `false` if there is nothing.
    pub(super) fn write_batch(&self, batch: &mut Batch, sender: &mut ReplySender) -> bool {
        // Who leaves takes other locks.
        if let Some(why) = self.superblocks.take_fault() {
            self.leave(&why, sender);
        }
        self.mark_moment();
        self.writes.begin();
        if !self.log.take_batch(batch) {
            self.writes.end();
            // Parked after what they wait for was stable.
            self.settle_stable(sender);
            return false;
        }
        if self.log.has_complete() {
            // What did not fit is wanted as much.
            self.wakeup.note_wanted();
        }
        let begun = Instant::now();
        let written = batch.write_to(&*self.medium);
        self.writes.end();
        match written {
            Ok(()) => {
                let write_ns = begun.elapsed().as_nanos() as u64;
                self.log.note_write(write_ns);
                self.writes.note_ns(write_ns);
                // Before the tail can pass them.
                self.state_files.replies().gather(batch.behind());
                self.log.written(batch);
                self.settle_stable(sender);
                self.waiting.note_grown();
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

    /// Sends the replies of what is stable, which is not under way any more.
    pub(super) fn settle_stable(&self, sender: &mut ReplySender) {
        self.state_files.noted().forget_stable(|| self.answerable());
        let send = |ready: Vec<ParkedReply>| sender.send_stable(ready.into_iter());
        self.waiting.send_stable(|| self.answerable(), send);
    }

    /// Takes over calls that wait for these LSNs.
    pub(super) fn park(&self, calls: impl Iterator<Item = (u64, ParkedReply)>) {
        let first = self.waiting.park(calls);
        // Stable already: who made it so may have looked before these came.
        if first.is_some_and(|first| first <= self.answerable()) {
            self.note_complete();
        }
    }

    /// Leaves the log after a write failed: makes everything stable without it, and goes on so.
    pub(super) fn leave(&self, why: &str, sender: &mut ReplySender) {
        self.log.failed();
        if !self.gate.close(Phase::On) {
            return;
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
        while !self.gate.is_empty() || self.writes.are_under_way() {
            if self.wakeup.is_stopping() {
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
        let _flushing = self.file_systems.flushing();
        let syncs = self.file_systems.syncs();
        let is_flushed = syncs.iter().all(|one| one.sync().is_ok())
            && !self.faulty.has_any()
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
        let _told = self.state_files.replies().flush();
        if !self.give_up() {
            return false;
        }
        self.switch.note_left(why, self.settings.options.device_retry_interval);
        self.open_gate(Phase::Off);
        true
    }

    /// Sees to it that what is in the log will never be replayed: the file systems have all of it,
    /// and go on changing. `false` if the server is stopped before that could be noted anywhere.
    pub(super) fn give_up(&self) -> bool {
        let writing = self.superblocks.lock(&self.log, &self.medium);
        // The server goes on telling its verifier, and may crash: the next start must have another.
        self.log.set_write_verifier(self.settings.untold_write_verifier);
        loop {
            let Err(error) = writing.give_up() else {
                // That it is closed is known from the log too.
                let _ = self.state_files.note_closed();
                return true;
            };
            let Err(also) = self.note_given_up() else {
                tracing::warn!("the intent log cannot be marked as empty: {error}");
                // Should it not be there at the next start, nothing is missing.
                let _ = self.state_files.note_closed();
                return true;
            };
            tracing::error!(
                "the intent log cannot be marked as empty: {error}; nor can that be noted in the \
                 state directory: {also}; changes wait until one of them can be written"
            );
            let begun = Instant::now();
            while begun.elapsed() < RETRY {
                if self.wakeup.is_stopping() {
                    return false;
                }
                std::thread::sleep(FULL_WAIT);
            }
        }
    }

    /// Notes that nothing of the epochs so far is to be replayed.
    pub(super) fn note_given_up(&self) -> std::io::Result<()> {
        self.state_files.note_given_up(self.log.epoch())
    }
}
