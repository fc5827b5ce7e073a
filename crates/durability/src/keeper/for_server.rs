//! The keeper as the server sees it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use steadfast_runtime::{LogActivity, ParkedReply, ReplyLog, ReplySender, ServerLink};

use super::{IntentLogKeeper, Phase, room_wait};

impl ReplyLog for IntentLogKeeper {
    fn start(self: Arc<Self>, server: ServerLink) -> io::Result<()> {
        Self::start(&self, server)
    }

    fn rouse(&self) {
        self.wakeup.rouse();
    }

    fn hold(&self) {
        self.wakeup.hold();
    }

    fn release(&self) {
        self.wakeup.release();
    }

    fn is_for_the_taking(&self) -> bool {
        self.is_for_the_taking()
    }

    fn commit_once(&self, sender: &mut ReplySender) {
        self.commit_once(sender);
    }

    fn park(&self, calls: &mut dyn Iterator<Item = (u64, ParkedReply)>) {
        self.park(calls);
    }

    fn log_reply(&self, behind: &[u8]) -> Option<u64> {
        self.log_reply(behind)
    }

    fn take_room_wait_ns(&self) -> u64 {
        room_wait::take_ns()
    }

    fn activity(&self, during: Duration) -> LogActivity {
        let is_on = self.phase() == Phase::On;
        // Whoever sends replies must not wait here for a checkpoint.
        let has_checkpoint = self.requests.was_any(during, is_on);
        // Nor for those who log changes.
        let (taken_bytes, ring_bytes) = self.log.taken();
        let percent = u128::from(taken_bytes) * 100 / u128::from(ring_bytes.max(1));
        LogActivity {
            has_checkpoint,
            is_off: !is_on,
            fill_percent: u8::try_from(percent).unwrap_or(100).min(100),
            has_fault: self.faulty.may_have_any(),
        }
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }
}
