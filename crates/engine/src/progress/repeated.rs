//! Requests that came again while they were being executed: whoever has connected again gets the
//! reply by the new connection, since the old one may be gone.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use steadfast_state::SessionId;
use steadfast_xdr::Writer;

use crate::reply::ReplySink;

/// Repetitions that wait at the most. More than that no honest clients send: the oldest goes, and
/// its client asks again.
const WAITING_MAX: usize = 4096;

/// Repetitions that wait for a reply.
#[derive(Default)]
pub(crate) struct Repeated {
    /// How many there are, so that nobody takes the lock for none.
    count: AtomicUsize,
    waiting: Mutex<Vec<Waiting>>,
}

/// One of them.
pub(crate) struct Waiting {
    pub(crate) session: SessionId,
    pub(crate) slot: u32,
    pub(crate) xid: u32,
    pub(crate) connection: u64,
    pub(crate) sink: Box<dyn ReplySink>,
}

impl Repeated {
    /// Keeps a repetition until the request ends. A former one by the same connection goes.
    pub(crate) fn keep(&self, waiting: Waiting) {
        let mut all = self.waiting.lock();
        let is_same = |other: &Waiting| {
            (other.session, other.slot, other.connection)
                == (waiting.session, waiting.slot, waiting.connection)
        };
        all.retain(|other| !is_same(other));
        if all.len() >= WAITING_MAX {
            all.remove(0);
        }
        all.push(waiting);
        self.count.store(all.len(), Ordering::SeqCst);
    }

    /// Takes out those that wait for the request of a slot.
    pub(crate) fn take(&self, session: &SessionId, slot: u32) -> Vec<Waiting> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut all = self.waiting.lock();
        let is_of = |waiting: &mut Waiting| waiting.session == *session && waiting.slot == slot;
        let taken = all.extract_if(.., is_of).collect();
        self.count.store(all.len(), Ordering::SeqCst);
        taken
    }
}

impl Waiting {
    /// Sends the result as the reply to this repetition, unless the request came by the same
    /// connection: there its own reply goes.
    pub(super) fn answer(self, executed_for: u64, result: &[u8]) {
        if self.connection == executed_for {
            return;
        }
        let mut reply = Vec::with_capacity(result.len() + 64);
        steadfast_rpc::accepted_success(&mut Writer::new(&mut reply), self.xid);
        reply.extend_from_slice(result);
        self.sink.send(&reply);
    }
}
