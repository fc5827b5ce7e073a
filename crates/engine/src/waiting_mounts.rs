//! MOUNT calls that wait for a name service: nobody can answer them yet, and no thread waits with
//! them. They are executed again when more is known, and answered as it is then.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::Engine;
use crate::call::{CallHost, Peer, ReplyBuffer, ReplySink, Verdict};

/// Most calls that wait at once; further ones are told to fail.
const CALLS_MAX: usize = 20_000;
/// How long one waits before it is answered as things are, in ms: less than clients do.
const PATIENCE_MS: u64 = 8_000;

/// Calls that wait.
#[derive(Default)]
pub(crate) struct WaitingMounts(Mutex<Vec<WaitingMount>>);

struct WaitingMount {
    record: Box<[u8]>,
    peer: Peer,
    sink: Box<dyn ReplySink>,
    /// When it came.
    since_ms: u64,
}

impl WaitingMounts {
    /// Keeps a call, unless there are too many.
    pub(crate) fn keep(
        &self,
        record: &[u8],
        peer: &Peer,
        sink: Box<dyn ReplySink>,
        since_ms: u64,
    ) -> bool {
        let mut calls = self.0.lock();
        if calls.len() >= CALLS_MAX {
            return false;
        }
        let peer = Peer::new(peer.address, peer.local, peer.transport);
        calls.push(WaitingMount { record: record.into(), peer, sink, since_ms });
        true
    }
}

impl Engine {
    /// How many MOUNT calls wait for a name service.
    pub fn waiting_mounts(&self) -> usize {
        self.waiting_mounts.0.lock().len()
    }

    /// Executes again what waits for a name service: to be called when its answers have come, and
    /// about once a second. May open storage, and wait for a disk.
    pub fn retry_waiting_mounts(&self) {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        let calls = std::mem::take(&mut *self.waiting_mounts.0.lock());
        for WaitingMount { record, peer, sink, since_ms } in calls {
            let mut host = Retrying { sink: Some(sink) };
            let mut reply = ReplyBuffer::default();
            let may_wait = now_ms.saturating_sub(since_ms) < PATIENCE_MS;
            let verdict = self.call_once(
                &mut host,
                &peer,
                now_ms,
                &record,
                &mut reply,
                may_wait.then_some(since_ms),
            );
            // What waits on has taken the sink with it.
            if let (Verdict::Replied, Some(sink)) = (verdict, host.sink) {
                sink.send(&reply.bytes);
            }
        }
    }
}

/// The host of a call that is executed again.
struct Retrying {
    sink: Option<Box<dyn ReplySink>>,
}

impl CallHost for Retrying {
    fn may_block(&mut self) {}

    fn will_block(&mut self) {}

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        self.sink.take()
    }
}
