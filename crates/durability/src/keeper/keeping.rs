//! Replies on their way to the store: those of calls that have no record of their own, and the ring's before
//! its tail passes them.

use steadfast_intent_log::NO_FILE_SYSTEM;
use steadfast_recovery::{Action, Change};

use super::IntentLogKeeper;

/// While the store cannot be written replies stay in the ring, unless it is as full as this, in
/// percent.
const REPLIES_FILL_PERCENT: u64 = 25;

impl IntentLogKeeper {
    /// Logs the reply to a call that was flushed and has no record of its own, so that it outlives the
    /// server. Returns the LSN that the reply waits for; `None` if nothing is logged now. Never waits
    /// for room: who flushes may be waited for by who makes it.
    pub(super) fn log_reply(&self, behind: &[u8]) -> Option<u64> {
        let logged = self.gate.pass_if_on(|| {
            let mut record = Vec::with_capacity(behind.len() + 16);
            Change::new(Action::Nothing).encode(&mut record);
            let change_bytes = record.len();
            record.extend_from_slice(behind);
            let Ok(admission) = self.log.admit(record.len()) else {
                // The log is full.
                self.requests.want();
                self.state_files.replies().gather(std::iter::once(behind));
                let _told = self.state_files.replies().flush();
                return None;
            };
            let lsn = self.log.reserve(admission, NO_FILE_SYSTEM);
            if self.log.complete_with(lsn, record, change_bytes) {
                self.wakeup.note_work();
            }
            Some(lsn.0)
        });
        logged.flatten()
    }

    /// Has replies in the store, so that the log's tail can pass them.
    pub(super) fn keep_replies(&self) {
        // What is stable was gathered before.
        let up_to = self.log.stable();
        let (used, all) = self.log.fill();
        let may_wait = used * 100 <= all * REPLIES_FILL_PERCENT;
        let is_closing = self.running.is_closing();
        if self.state_files.replies().flush().is_err() && may_wait && !is_closing {
            return;
        }
        self.log.retain((!is_closing).then(|| up_to.next()));
    }
}
