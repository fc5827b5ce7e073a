//! Replies on their way to the store: those of calls that have no record of their own, and the ring's before
//! its tail passes them.

use std::sync::atomic::Ordering;

use steadfast_intent_log::NO_FILE_SYSTEM;
use steadfast_recovery::{Action, Change};

use super::{IntentLogKeeper, Phase};

/// While the store cannot be written replies stay in the ring, unless it is as full as this, in
/// percent.
const REPLIES_FILL_PERCENT: u64 = 25;

impl IntentLogKeeper {
    /// Logs the reply to a call that was flushed and has no record of its own, so that it outlives the
    /// server. Returns the LSN that the reply waits for; `None` if nothing is logged now. Never waits
    /// for room: who flushes may be waited for by who makes it.
    pub(super) fn log_reply(&self, behind: &[u8]) -> Option<u64> {
        self.passed.fetch_add(1, Ordering::SeqCst);
        let lsn = (self.phase() == Phase::On).then(|| {
            let mut record = Vec::with_capacity(behind.len() + 16);
            Change::new(Action::Nothing).encode(&mut record);
            let change_bytes = record.len();
            record.extend_from_slice(behind);
            let Ok(admission) = self.log.admit(record.len()) else {
                // The log is full.
                self.want_checkpoint();
                self.replies.gather(std::iter::once(behind));
                let _told = self.replies.flush();
                return None;
            };
            let lsn = self.log.reserve(admission, NO_FILE_SYSTEM);
            if self.log.complete_with(lsn, record, change_bytes) {
                self.has_work.store(true, Ordering::SeqCst);
            }
            Some(lsn.0)
        });
        self.passed.fetch_sub(1, Ordering::SeqCst);
        lsn.flatten()
    }

    /// Has replies in the store, so that the log's tail can pass them.
    pub(super) fn keep_replies(&self) {
        // What is stable was gathered before.
        let up_to = self.log.stable();
        let (used, all) = self.log.fill();
        let may_wait = used * 100 <= all * REPLIES_FILL_PERCENT;
        let is_closing = self.is_closing.load(Ordering::SeqCst);
        if self.replies.flush().is_err() && may_wait && !is_closing {
            return;
        }
        self.log.retain((!is_closing).then(|| up_to.next()));
    }
}
