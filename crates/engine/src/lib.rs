//! The NFS server as a value.
//!
//! [`Engine::call`] takes one RPC call's bytes and either appends the reply's bytes to a
//! [`ReplyBuffer`] or parks the call until what it promises is stable. Who receives and sends
//! those bytes, on which thread and when, is the runtime's business; what a file is, the
//! storage's ([`steadfast_vfs::FileSystem`]).
//!
//! A call's way: [`Engine::call`] reads the RPC header and the credentials, asks the duplicate
//! request cache (`reply_cache`) if the row of the operation table (`operation`) says so, and
//! hands over to the protocol (`nfs3`, `nfsacl`, `mount`, `rpcbind`). A procedure finds its
//! objects through `session` (handle, share, rights, squashing) and gives its result to the
//! reply barrier, which lets it out or parks it.
//!
//! This crate must never do I/O: no sockets, files, clock, randomness, threads or globals. Time
//! and randomness are arguments.
#![forbid(unsafe_code)]

mod access_memo;
mod begun_replies;
mod call;
mod dispatch;
mod export;
mod mount;
mod nfs3;
mod nfsacl;
mod operation;
mod record;
mod reply_cache;
mod rpcbind;
mod session;
mod waiting_mounts;
mod wire_handle;

pub use begun_replies::BegunReplies;
pub use call::{
    Awaited, CallFacts, CallHost, Complaint, HangUp, MountRefusal, ParkedCall, Peer, PutOffCall,
    ReplyBuffer, ReplySink, Room, Stage, StorageId, Transport, Verdict,
};
pub use export::{Export, ExportTable};
pub use operation::{OperationId, OperationName};
pub use record::{BEHIND_CHANGE_BYTES_MAX, call_of};
pub use reply_cache::{MemoryPressure, ReplyCacheUsage};
pub use rpcbind::Transports;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use steadfast_shares::{Authority, Decision, Flavor, RulesOnly, ShareId};
use steadfast_vfs::FsError;

use crate::mount::MountList;
use crate::reply_cache::ReplyCache;
use crate::waiting_mounts::WaitingMounts;
use crate::wire_handle::HandleSealer;

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
    /// How long the duplicate request cache is to keep a reply, in ms: longer than a client waits
    /// before it asks again.
    pub reply_cache_history_ms: u64,
    /// Port that MOUNT and NFS answer on, for rpcbind replies.
    pub nfs_port: u16,
    /// What MOUNT and NFS are served on, for rpcbind replies.
    pub transports: Transports,
}

/// What an engine counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// What the duplicate request cache keeps.
    pub reply_cache: ReplyCacheUsage,
    /// How often the write verifier changed because a flush failed.
    pub verifier_changes: u64,
}

/// The server's protocols and state, shared by all workers.
pub struct Engine {
    config: EngineConfig,
    sealer: HandleSealer,
    exports: ArcSwap<ExportTable>,
    /// The version given last to an export, by whoever changes the table.
    version: Mutex<u64>,
    authority: Arc<dyn Authority>,
    waiting_mounts: WaitingMounts,
    /// At the last tick.
    now_ms: AtomicU64,
    replies: ReplyCache,
    mounts: MountList,
    rpcbind_calls: rpcbind::CallCounts,
    verifier_changes: AtomicU64,
}

impl Engine {
    /// An engine that serves these exports by their rules alone: names in them are nobody's.
    pub fn new(config: EngineConfig, exports: ExportTable) -> Self {
        Self::with_authority(config, exports, Arc::new(RulesOnly))
    }

    /// An engine that serves these exports to whom the authority lets in.
    pub fn with_authority(
        config: EngineConfig,
        mut exports: ExportTable,
        authority: Arc<dyn Authority>,
    ) -> Self {
        let version = exports.number(0);
        Self {
            sealer: HandleSealer::new(&config.handle_key),
            exports: ArcSwap::from_pointee(exports),
            version: Mutex::new(version),
            authority,
            waiting_mounts: WaitingMounts::default(),
            now_ms: AtomicU64::new(0),
            replies: ReplyCache::new(config.reply_cache_bytes_max, config.reply_cache_history_ms),
            mounts: MountList::default(),
            rpcbind_calls: rpcbind::CallCounts::default(),
            verifier_changes: AtomicU64::new(0),
            config,
        }
    }

    /// Serves another table of exports from the next call on.
    pub fn set_exports(&self, mut exports: ExportTable) {
        let mut version = self.version.lock();
        *version = exports.number(*version);
        self.exports.store(Arc::new(exports));
    }

    /// The exports served now.
    pub fn exports(&self) -> Arc<ExportTable> {
        self.exports.load_full()
    }

    /// What a call of the peer's finds that he may do on a share; `None` if it is not served.
    pub fn access(&self, peer: &Peer, share: ShareId, flavor: Flavor) -> Option<Decision> {
        let exports = self.exports.load();
        let exported = exports.exported(share)?;
        Some(peer.memo.decide(&*self.authority, exported, &peer.question(flavor)))
    }

    /// Ages the caches; to be called about once a second with the clock that
    /// [`Engine::call`] gets.
    pub fn tick(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
        self.replies.expire(now_ms);
    }

    /// How short of memory the machine is, from now on: the caches do with less.
    pub fn set_memory_pressure(&self, pressure: MemoryPressure) {
        self.replies.set_pressure(pressure);
    }

    /// What is counted.
    pub fn statistics(&self) -> EngineStatistics {
        EngineStatistics {
            reply_cache: self.replies.usage(),
            verifier_changes: self.verifier_changes.load(Ordering::Relaxed),
        }
    }

    /// The write verifier now (RFC 1813 §3.3.7): another number after each flush that failed.
    pub fn write_verifier(&self) -> u64 {
        // An odd factor keeps all verifiers of one start distinct.
        let changes = self.verifier_changes.load(Ordering::SeqCst);
        self.config.write_verifier.wrapping_add(changes.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Changes the write verifier: a flush failed, and unstable data may be lost with it. To be
    /// called before the same object can be flushed again: that flush may succeed only because
    /// the failure was reported already, and a COMMIT that waits for it must not get the old
    /// verifier (RFC 1813 §3.3.21).
    pub fn flush_failed(&self) {
        self.verifier_changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes what stands behind a change in the intent log, after a crash: the call, should it come
    /// again, gets the reply that it got or would have got, and is not executed again.
    pub fn remember_replayed(&self, behind_change: &[u8], now_ms: u64) {
        if let Some((key, reply)) = record::read(behind_change) {
            self.replies.restore(&key, now_ms, reply);
        }
    }

    /// Appends the reply that tells the client of a call that was put off to try later, and does so
    /// with its duplicates: it will not be executed.
    pub fn refuse(&self, call: PutOffCall, reply: &mut Vec<u8>) {
        let PutOffCall { reply: refusal, key } = call;
        if let Some(key) = key {
            self.replies.forget(&key, &refusal);
        }
        reply.extend(refusal);
    }

    /// Appends the reply of a parked call whose obligation was met, or could not be: then it
    /// fails. Of a failure [`Engine::flush_failed`] was told before.
    pub fn settle(
        &self,
        call: ParkedCall,
        outcome: Result<(), FsError>,
        now_ms: u64,
        reply: &mut Vec<u8>,
    ) {
        let start = reply.len();
        match outcome {
            Ok(()) => {
                let mut whole = call.reply;
                reply.append(&mut whole);
                if call.ends_with_verifier
                    && let Some(place) = reply.last_chunk_mut::<8>()
                {
                    *place = self.write_verifier().to_be_bytes();
                }
            }
            Err(error) => {
                // The call was executed: told to come again it would be executed again, and fail
                // by what it did the first time.
                let error = match error {
                    FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => FsError::Io,
                    error => error,
                };
                dispatch::append_failure(reply, call.xid, error, call.failure_words);
            }
        }
        if let Some(key) = &call.key {
            self.replies.finish(key, now_ms, reply.get(start..).unwrap_or(&[]));
        }
    }
}
