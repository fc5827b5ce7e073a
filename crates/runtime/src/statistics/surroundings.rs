//! What goes on around a call while it is served, for who tells why it was slow.

use std::time::Duration;

use super::top::TopRoom;

/// What an intent log does that can make calls slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogActivity {
    /// A checkpoint ran.
    pub has_checkpoint: bool,
    /// Changes are not logged now, so that each is flushed by itself.
    pub is_off: bool,
    /// How full the ring of records is, in percent.
    pub fill_percent: u8,
    /// A file system takes no changes, since writing to it has failed.
    pub has_fault: bool,
}

/// What else went on when a reply was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSurroundings {
    /// Of the intent log.
    pub log: LogActivity,
    /// Calls that waited for a flush to begin.
    pub parked: u64,
    /// Bytes of replies that waited for their peers to read.
    pub waiting_bytes: u64,
}

/// The server around those who count.
pub(crate) trait Surroundings {
    /// A call that took as long as this, in ns, is recorded in any case.
    fn slow_call_ns(&self) -> u64;

    /// For who looks at what is called now.
    fn top_room(&self) -> &TopRoom;

    /// What goes on now; of the log, what it has done during the last so much time. Seldom asked.
    fn of_call(&self, during: Duration) -> CallSurroundings;
}
