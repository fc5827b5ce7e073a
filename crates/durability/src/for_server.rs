//! The keeper as the server sees it.

use std::io;
use std::sync::Arc;

use steadfast_runtime::{ParkedReply, ReplyLog, ReplySender, ServerLink};

use super::IntentLogKeeper;

impl ReplyLog for IntentLogKeeper {
    fn start(self: Arc<Self>, server: ServerLink) -> io::Result<()> {
        Self::start(&self, server)
    }

    fn rouse(&self) {
        self.rouse();
    }

    fn hold(&self) {
        self.hold();
    }

    fn release(&self) {
        self.release();
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

    fn is_idle(&self) -> bool {
        self.is_idle()
    }
}
