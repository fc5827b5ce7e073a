//! The seam to an intent log: where replies wait until what they tell is stable there.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Shared;
use super::parked::{ParkedReply, ReplySender};
use crate::statistics::LogActivity;

/// An intent log as the server sees it. Any thread may call; what may block says so.
pub trait ReplyLog: Send + Sync {
    /// Starts what writes the log. Replies that wait are sent through the server from then on.
    ///
    /// # Errors
    /// When a thread cannot be started.
    fn start(self: Arc<Self>, server: ServerLink) -> io::Result<()>;

    /// Has what was logged written, as soon as somebody can.
    fn rouse(&self);

    /// Those that log more in a moment have what was logged written together with that, until
    /// [`ReplyLog::release`].
    fn hold(&self);

    /// Takes one [`ReplyLog::hold`] back.
    fn release(&self);

    /// Whether nobody writes the log, so that who has something to write may do it itself, by
    /// [`ReplyLog::commit_once`].
    fn is_for_the_taking(&self) -> bool;

    /// Writes what was logged, and sends what waited for it. Blocks.
    fn commit_once(&self, sender: &mut ReplySender);

    /// Takes over calls, each with the LSN that it waits for.
    fn park(&self, calls: &mut dyn Iterator<Item = (u64, ParkedReply)>);

    /// Logs the reply to a change that was flushed and has no record of its own: `call_and_reply` is as the
    /// engine appends it to a record ([`steadfast_engine::ParkedCall::behind_change`]). Returns the LSN that the reply
    /// waits for; `None` if nothing is logged now.
    fn log_reply(&self, call_and_reply: &[u8]) -> Option<u64>;

    /// How long this thread has waited for the log to take changes since this was asked last, in ns.
    fn take_room_wait_ns(&self) -> u64 {
        0
    }

    /// What it has done during the last so much time, for who tells why a call was slow. Seldom asked.
    fn activity(&self, _during: Duration) -> LogActivity {
        LogActivity::default()
    }

    /// Whether no reply waits.
    fn is_idle(&self) -> bool;
}

/// A running server, for those who send its replies. Keeps nothing of it alive.
#[derive(Clone, Debug)]
pub struct ServerLink(Weak<Shared>);

impl ServerLink {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Sends replies; `None` if the server has ended.
    pub fn reply_sender(&self) -> Option<ReplySender> {
        self.0.upgrade().map(|shared| ReplySender::new(&shared))
    }

    /// Data that nobody was told to be stable may be lost: clients are to send it again.
    pub fn note_loss(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.service.flush_failed();
        }
    }
}
