//! What the runtime drives: the engine, or a toy in tests.

use steadfast_engine::{CallHost, Engine, ParkedCall, Peer, ReplyBuffer, SuspendedCall, Verdict};
use steadfast_vfs::FsError;

/// A server of RPC calls, called by many threads at once.
pub trait Service: Send + Sync + 'static {
    /// Executes one call; see [`Engine::call`]. `now_ms` is the runtime's monotonic clock.
    fn call(
        &self,
        host: &mut dyn CallHost,
        peer: &Peer,
        now_ms: u64,
        record: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict;

    /// Appends the reply of a parked call whose obligation was met, or could not be. The
    /// flusher has taken the obligation's targets out.
    fn settle(
        &self,
        call: Box<ParkedCall>,
        outcome: Result<(), FsError>,
        now_ms: u64,
        reply: &mut Vec<u8>,
    );

    /// Appends the reply that tells the client of a call that was suspended to try later, or nothing
    /// if it gets none; see [`Engine::refuse`].
    fn refuse(&self, call: SuspendedCall, reply: &mut Vec<u8>);

    /// A flush failed: data that was answered as unstable may be lost. Called before anybody
    /// else can flush the same object, since the kernel may report the failure only this once.
    fn flush_failed(&self) {}

    /// The connection of this peer is closed, as far as the service is concerned: calls of it may
    /// still be under way. See [`Engine::closed`].
    fn closed(&self, _peer: &Peer) {}

    /// Called about once a second.
    fn tick(&self, _now_ms: u64) {}
}

impl Service for Engine {
    fn call(
        &self,
        host: &mut dyn CallHost,
        peer: &Peer,
        now_ms: u64,
        record: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        Self::call(self, host, peer, now_ms, record, reply)
    }

    fn refuse(&self, call: SuspendedCall, reply: &mut Vec<u8>) {
        Self::refuse(self, call, reply);
    }

    fn settle(
        &self,
        call: Box<ParkedCall>,
        outcome: Result<(), FsError>,
        now_ms: u64,
        reply: &mut Vec<u8>,
    ) {
        Self::settle(self, call, outcome, now_ms, reply);
    }

    fn flush_failed(&self) {
        Self::flush_failed(self);
    }

    fn closed(&self, peer: &Peer) {
        Self::closed(self, peer);
    }

    fn tick(&self, now_ms: u64) {
        Self::tick(self, now_ms);
    }
}
