//! The NFS server as a value.
//!
//! [`Engine::call`] takes one RPC call's bytes and either appends the reply's bytes to a
//! [`ReplyBuffer`] or parks the call until what it promises is stable. Who receives and sends
//! those bytes, on which thread and when, is the runtime's business; what a file is, the
//! storage's ([`steadfast_vfs::FileSystem`]).
//!
//! A call's way: [`Engine::call`] reads the RPC header and the credentials, and finds the procedure
//! in the table of programs (`programs`; the rows are in `nfs3`, `nfsacl`, `nlm`, `mount` and others). Its
//! arguments are decoded (`program`), and the duplicate request cache (`reply_cache`) is asked if
//! a repetition must not be executed. The procedure finds its objects through `call` (handle, share,
//! rights, squashing), appends its result to the reply, and gives what that promises to the reply
//! barrier. Then the reply goes out, or is parked.
//!
//! A module imports lower ones only. From the top: `dispatch`; `programs`; the protocols, `nfs4` together with
//! `compound`, and `nfs2` with `nfs3`, whose procedures it has; `call` together with `program`; `host` and
//! `verdict`; what a call of one protocol does to the state of others (`gate`, `effects`, `delegations`,
//! `local_locks`, `local_guards`, `callback`); the values that these keep (`progress`, `promises`, `waits`, `reply_cache`,
//! `begun_replies`, `record_keeper`); plain types, with the transports that `rpcbind` tells. What the calls of all
//! protocols share is defined here (`Shared`), and each module adds what it does with it.
//!
//! This crate must never do I/O: no sockets, files, clock, randomness, threads or globals. Time
//! and randomness are arguments.
#![forbid(unsafe_code)]

mod access_memo;
mod begun_outcomes;
mod begun_replies;
mod call;
mod call_mark;
mod callback;
mod change_attribute;
pub mod clients;
mod complaint;
mod compound;
mod compound_operation;
mod config;
mod delegations;
mod dispatch;
mod effects;
mod export;
mod gate;
mod host;
mod identity;
mod journaling_clients;
mod local_guards;
mod local_locks;
mod mount;
mod nfs2;
mod nfs3;
mod nfs4;
mod nfsacl;
mod nlm;
mod nsm;
mod operation;
mod outbound;
mod peer;
mod program;
mod programs;
mod progress;
mod promises;
mod pseudo;
mod record;
mod record_keeper;
mod recovery;
mod reply;
mod reply_cache;
mod rpcbind;
mod state_keeper;
mod verdict;
mod waiting;
mod waits;
mod wire_handle;
mod write_verifier;

pub use begun_replies::BegunReplies;
pub use call_mark::call_of_mark;
pub use callback::CallbackSender;
pub use complaint::{Complaint, HangUp, LockRefusal, MountRefusal};
pub use compound_operation::{CompoundOperation, CompoundOperations};
pub use config::{EngineConfig, IdMapping};
pub use delegations::Delegations;
pub use export::{Export, ExportTable};
pub use host::{CallHost, Room, Stage, StorageId};
pub use journaling_clients::{JournalId, JournalRecord, JournalingClient, JournalingCounts};
pub use local_guards::LocalGuard;
pub use local_locks::LocksTaken;
pub use operation::{OperationId, OperationName};
pub use outbound::{Grant, Outbound, OutboundCall};
pub use peer::{Peer, Transport};
pub use program::{OptionalVersions, ServedOver, ServedVersion};
pub use programs::to_register;
pub use progress::under_way::may_be_under_way;
pub use promises::Awaited;
pub use record::{BEHIND_CHANGE_BYTES_MAX, call_of, kept_as};
pub use record_keeper::RecordKeeper;
pub use reply::{CallFacts, CallSubject, ReplyBuffer, ReplySink};
pub use reply_cache::{MemoryPressure, ReplyCacheUsage};
pub use rpcbind::transports::{Netid, Transports};
pub use state_keeper::StateKeeper;
pub use steadfast_shares::ShareId;
pub use steadfast_state::{
    ClientRecords, DelegationCounts, Image as StateImage, ImageError as StateImageError,
};
pub use verdict::{ParkedCall, SuspendedCall, Verdict};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use steadfast_shares::{Authority, Decision, Flavor, RulesOnly};
use steadfast_state::State;
use steadfast_vfs::FsError;
use steadfast_xdr::Writer;

use crate::callback::Callbacks;
use crate::journaling_clients::JournalingClients;
use crate::local_guards::LocalGuards;
use crate::local_locks::LocalLocks;
use crate::mount::list::MountList;
use crate::nfs4::Nfs4;
use crate::recovery::Compressions;
use crate::reply_cache::ReplyCache;
use crate::rpcbind::counts::CallCounts;
use crate::verdict::Kept;
use crate::waits::Waits;
use crate::wire_handle::HandleSealer;
use crate::write_verifier::WriteVerifier;

/// What an engine counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// What the duplicate request cache keeps.
    pub reply_cache: ReplyCacheUsage,
    /// How often the write verifier changed because a flush failed.
    pub verifier_changes: u64,
    /// Delegations that were granted, recalled, returned and revoked.
    pub delegations: DelegationCounts,
}

/// The server's protocols and state, shared by all workers.
///
/// A worker calls [`Engine::call`] for each message, on any thread, many at once. What it parks is
/// given to [`Engine::settle`] once its obligation is met or cannot be, what it suspends is called
/// again or given to [`Engine::refuse`]; both exactly once. [`Engine::flush_failed`] comes before
/// [`Engine::settle`] of the calls that a failed flush was for. None of them waits, but for what
/// `call` tells its [`CallHost`].
pub struct Engine {
    shared: Shared,
    /// The version given last to an export, by whoever changes the table.
    version: Mutex<u64>,
    /// At the last tick.
    now_ms: AtomicU64,
    replies: ReplyCache,
}

/// What the calls of all protocols share: configuration, exports, keys, counters, and what each protocol keeps.
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) sealer: HandleSealer,
    pub(crate) exports: ArcSwap<ExportTable>,
    pub(crate) authority: Arc<dyn Authority>,
    /// Who has mounted what.
    pub(crate) mounts: MountList,
    pub(crate) rpcbind_calls: CallCounts,
    /// What clients of all protocols have opened and locked.
    pub(crate) state: Arc<State>,
    /// What of their locks local processes see.
    pub(crate) local_locks: LocalLocks,
    /// What keeps local processes from files that are delegated.
    pub(crate) local_guards: LocalGuards,
    /// Where that is kept beyond the process, if it is.
    pub(crate) state_keeper: Option<Arc<dyn StateKeeper>>,
    /// Where it is kept who has state, if it is.
    pub(crate) record_keeper: Option<Arc<dyn RecordKeeper>>,
    /// If NFSv4 is served.
    pub(crate) nfs4: Option<Nfs4>,
    /// Who sends calls to clients.
    pub(crate) outbound: OnceLock<Arc<dyn Outbound>>,
    /// What clients are told.
    pub(crate) callbacks: Callbacks,
    /// Calls that wait for clients, or for names.
    pub(crate) waits: Arc<Waits>,
    /// Clients that keep a journal.
    pub(crate) journaling_clients: JournalingClients,
    /// READs whose data is being compressed.
    pub(crate) compressions: Compressions,
    /// Locks that hosts were told of.
    pub(crate) grants: AtomicU64,
    /// That of WRITE and COMMIT.
    pub(crate) verifier: WriteVerifier,
}

impl Shared {
    fn new(config: EngineConfig, exports: ExportTable, authority: Arc<dyn Authority>) -> Self {
        let state = Arc::new(State::new(nfs4::settings(&config)));
        state.watch_locks();
        let local_guards = LocalGuards::new(config.local_guard, &state);
        let nfs4 = config.nfs4.then(|| Nfs4::new(Arc::clone(&state), &config.handle_key));
        Self {
            sealer: HandleSealer::new(&config.handle_key),
            exports: ArcSwap::from_pointee(exports),
            authority,
            mounts: MountList::default(),
            rpcbind_calls: CallCounts::default(),
            state,
            local_locks: LocalLocks::default(),
            local_guards,
            state_keeper: None,
            record_keeper: None,
            nfs4,
            outbound: OnceLock::new(),
            callbacks: Callbacks::default(),
            waits: Arc::default(),
            journaling_clients: JournalingClients::default(),
            compressions: Compressions::default(),
            grants: AtomicU64::new(0),
            verifier: WriteVerifier::new(config.write_verifier),
            config,
        }
    }

    /// Which of the optional versions are served.
    pub(crate) fn optional_versions(&self) -> OptionalVersions {
        OptionalVersions { nfs2: self.config.nfs2, nfs4: self.nfs4.is_some() }
    }
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
            version: Mutex::new(version),
            now_ms: AtomicU64::new(0),
            replies: ReplyCache::new(config.reply_cache_bytes_max, config.reply_cache_history_ms),
            shared: Shared::new(config, exports, authority),
        }
    }

    /// Serves another table of exports from the next call on.
    pub fn set_exports(&self, mut exports: ExportTable) {
        let mut version = self.version.lock();
        *version = exports.number(*version);
        let exports = Arc::new(exports);
        self.shared.exports.store(Arc::clone(&exports));
        self.shared.forget_locks_beside(&exports);
        self.shared.local_guards.forget_beside(&exports);
    }

    /// The exports served now.
    pub fn exports(&self) -> Arc<ExportTable> {
        self.shared.exports.load_full()
    }

    /// What a call of the peer's finds that he may do on a share; `None` if it is not served.
    pub fn access(&self, peer: &Peer, share: ShareId, flavor: Flavor) -> Option<Decision> {
        let exports = self.shared.exports.load();
        let exported = exports.exported(share)?;
        Some(peer.memo.decide(&*self.shared.authority, exported, &peer.question(flavor)))
    }

    /// Whether NFSv2 has room for the handles of a share; `None` if it is not served, or the share's storage
    /// is not open.
    pub fn fits_nfs2(&self, share: ShareId) -> Option<bool> {
        let exports = self.shared.exports.load();
        let storage = exports.by_id(share)?.storage.opened().filter(|_| self.shared.config.nfs2)?;
        let root = storage.root().ok()?.handle;
        Some(self.shared.sealer.seal_fixed(share, &root).is_some())
    }

    /// Ages the caches; to be called about once a second with the clock that
    /// [`Engine::call`] gets.
    pub fn tick(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
        self.shared.local_guards.tick(now_ms);
        self.shared.state.tick(now_ms);
        self.shared.renew_state();
        // Also that the grace period is over. If that fails it is tried again.
        self.shared.keep_records();
        self.shared.send_effects(now_ms);
        self.shared.settle_deferred_locks();
        self.shared.tick_callbacks(now_ms);
        // Who was asked and does not answer has something recalled.
        self.shared.send_effects(now_ms);
        // Storage that could not be opened for a mount may be there now.
        self.shared.waits.wake_for_names();
        self.replies.expire(now_ms);
        if let Some(nfs4) = &self.shared.nfs4 {
            nfs4.outcomes.expire(now_ms, self.shared.config.reply_cache_history_ms);
        }
    }

    /// Has clients told what the state wants them to be told: as at the end of each call, for who makes none. May wait for
    /// the disk that has the state's records.
    pub fn send_effects(&self) {
        self.shared.send_effects(self.now_ms.load(Ordering::Relaxed));
    }

    /// How short of memory the machine is, from now on: the caches do with less.
    pub fn set_memory_pressure(&self, pressure: MemoryPressure) {
        self.replies.set_pressure(pressure);
    }

    /// So many calls at once may compress what is read, from now on; 1 before it is told.
    pub fn set_compressions_max(&self, calls: usize) {
        self.shared.compressions.set_running_max(calls);
    }

    /// What is counted.
    pub fn statistics(&self) -> EngineStatistics {
        EngineStatistics {
            reply_cache: self.replies.usage(),
            verifier_changes: self.shared.verifier.changes(),
            delegations: self.shared.state.delegation_counts(),
        }
    }

    /// The port at which clients find NFS.
    pub fn nfs_port(&self) -> u16 {
        self.shared.config.nfs_port
    }

    /// The write verifier now (RFC 1813 §3.3.7): another number after each flush that failed.
    pub fn write_verifier(&self) -> u64 {
        self.shared.verifier.now()
    }

    /// How many calls wait for clients, or for name services.
    pub fn waiting_calls(&self) -> usize {
        self.shared.waits.count()
    }

    /// Something is known about names that was not: calls that waited for it are executed again. Never
    /// waits, and may be called on any thread.
    pub fn names_are_known(&self) {
        self.shared.waits.wake_for_names();
    }

    /// Changes the write verifier: a flush failed, and unstable data may be lost with it. To be
    /// called before the same object can be flushed again: that flush may succeed only because
    /// the failure was reported already, and a COMMIT that waits for it must not get the old
    /// verifier (RFC 1813 §3.3.21).
    pub fn flush_failed(&self) {
        self.shared.verifier.change();
    }

    /// Takes what stands behind a change in the intent log, after a crash: the call, should it come
    /// again, gets the result that it got or would have got, and is not executed again. Of a COMPOUND
    /// that may be one operation.
    pub fn remember_replayed(&self, behind_change: &[u8], now_ms: u64) {
        if let Some(nfs4) = &self.shared.nfs4
            && nfs4.outcomes.remember(behind_change, now_ms)
        {
            return;
        }
        if let Some((key, result)) = record::read(behind_change) {
            self.replies.restore(&key, now_ms, result);
        }
    }

    /// Appends the reply that tells the client of a call that was suspended to try later, and does so
    /// with its duplicates: it will not be executed. Appends nothing if the call has no such reply
    /// (NFSv2; a lock that a host takes again): its client sends it again. If it is gone, it does not
    /// ([`SuspendedCall::of_nobody`]).
    pub fn refuse(&self, call: SuspendedCall, reply: &mut Vec<u8>) {
        let SuspendedCall { xid, result, kept, wait, .. } = call;
        if let Some(wait) = wait {
            self.shared.wait_is_refused(self.now_ms.load(Ordering::Relaxed), &wait);
        }
        let Some(result) = result else {
            if let Some(Kept::Execution(execution)) = kept {
                self.replies.abandon(&execution);
            }
            return;
        };
        match kept {
            Some(Kept::Execution(execution)) => self.replies.forget(&execution, &result),
            Some(Kept::Run(suspended)) => {
                if let Some(nfs4) = &self.shared.nfs4 {
                    let now_ms = self.now_ms.load(Ordering::Relaxed);
                    let (repeated, replies) = (&nfs4.repeated, &self.replies);
                    suspended.refuse(&self.shared, repeated, replies, now_ms, &result);
                }
            }
            None => {}
        }
        steadfast_rpc::accepted_success(&mut Writer::new(reply), xid);
        reply.extend(result);
    }

    /// Appends the reply of a parked call whose obligation was met, or could not be: then it
    /// fails. Of a failure [`Engine::flush_failed`] was told before.
    pub fn settle(
        &self,
        call: Box<ParkedCall>,
        outcome: Result<(), FsError>,
        now_ms: u64,
        reply: &mut Vec<u8>,
    ) {
        let ParkedCall { xid, mut result, verifiers_at, operation, execution, mut run, .. } = *call;
        steadfast_rpc::accepted_success(&mut Writer::new(reply), xid);
        let start = reply.len();
        match outcome {
            Ok(()) => {
                reply.extend(result);
                for at in verifiers_at {
                    let place = reply.get_mut(start + at..).and_then(<[u8]>::first_chunk_mut::<8>);
                    if let Some(place) = place {
                        *place = self.shared.verifier.now().to_be_bytes();
                    }
                }
            }
            Err(error) => {
                // The call was executed: told to come again it would be executed again, and fail
                // by what it did the first time.
                let error = match error {
                    FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => FsError::Io,
                    error => error,
                };
                if let Some(run) = &mut run {
                    run.fail(&mut result, nfs4::status::number(error));
                    reply.extend(result);
                } else if let Some(operation) = operation {
                    operation.fail(&mut Writer::new(reply), error);
                }
            }
        }
        if let Some(run) = &mut run {
            run.take_back_before_reply(&self.shared);
        }
        let result = reply.get(start..).unwrap_or(&[]);
        if let Some(execution) = &execution {
            self.replies.finish(execution, now_ms, result);
        }
        if let (Some(run), Some(nfs4)) = (run, &self.shared.nfs4) {
            run.finish(&self.shared, &nfs4.repeated, result);
        }
        if outcome.is_err() {
            // What was taken back others may have waited for.
            self.shared.send_effects(now_ms);
        }
    }
}
