//! The NFS server as a value.
//!
//! [`Engine::call`] takes one RPC call's bytes and either appends the reply's bytes to a
//! [`ReplyBuffer`] or parks the call until what it promises is stable. Who receives and sends
//! those bytes, on which thread and when, is the runtime's business; what a file is, the
//! storage's ([`steadfast_vfs::FileSystem`]).
//!
//! This crate must never do I/O: no sockets, files, clock, randomness, threads or globals. Time
//! and randomness are arguments.
#![forbid(unsafe_code)]

mod call;
mod export;

pub use call::{CallHost, Complaint, HangUp, ParkedCall, Peer, ReplyBuffer, Transport, Verdict};
pub use export::{Export, ExportTable};

use std::sync::Arc;

use steadfast_vfs::FsError;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Key of the MAC in handles; kept in the state directory, the same after a restart.
    pub handle_key: [u8; 16],
    /// The write verifier to begin with: differs after every restart that may have lost
    /// unstable data.
    pub write_verifier: u64,
    /// Largest READ and WRITE over TCP, in bytes.
    pub transfer_bytes_max: u32,
    /// Bound of the duplicate request cache, in bytes.
    pub reply_cache_bytes_max: usize,
    /// Port that MOUNT and NFS answer on, for rpcbind replies.
    pub nfs_port: u16,
}

/// The server's protocols and state, shared by all workers.
pub struct Engine {}

impl Engine {
    /// An engine that serves these exports.
    pub fn new(_config: EngineConfig, _exports: ExportTable) -> Self {
        Self {}
    }

    /// Serves another table of exports from the next call on.
    pub fn set_exports(&self, _exports: ExportTable) {}

    /// The exports served now.
    pub fn exports(&self) -> Arc<ExportTable> {
        Arc::default()
    }

    /// Executes one call: `record` is one whole RPC message without record marks.
    ///
    /// With [`Verdict::Replied`] exactly one RPC message has been appended to `reply` (the
    /// caller adds the record mark). `now_ms` is any monotonic clock.
    pub fn call(
        &self,
        _host: &mut dyn CallHost,
        _peer: &Peer,
        _now_ms: u64,
        _record: &[u8],
        _reply: &mut ReplyBuffer,
    ) -> Verdict {
        Verdict::Silent
    }

    /// Appends the reply of a parked call whose obligation was met, or could not be: then the
    /// write verifier changes and the call fails.
    pub fn settle(
        &self,
        _call: ParkedCall,
        _outcome: Result<(), FsError>,
        _now_ms: u64,
        _reply: &mut Vec<u8>,
    ) {
    }
}
