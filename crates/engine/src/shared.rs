//! What the calls of all protocols share: configuration, exports, keys, counters.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use steadfast_shares::Authority;
use steadfast_state::State;

use crate::callback::Callbacks;
use crate::delegations::Delegations;
use crate::export::ExportTable;
use crate::journaling_clients::JournalingClients;
use crate::local_locks::LocalLocks;
use crate::mount::list::MountList;
use crate::nfs4::{self, Nfs4};
use crate::outbound::Outbound;
use crate::peer::Transport;
use crate::program::OptionalVersions;
use crate::record_keeper::RecordKeeper;
use crate::rpcbind::counts::CallCounts;
use crate::rpcbind::transports::Transports;
use crate::state_keeper::StateKeeper;
use crate::waits::Waits;
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
    /// Counts the times that the server lost what it knew of clients: another number each time.
    pub instance: u32,
    /// Whether NFSv2 is served.
    pub nfs2: bool,
    /// Whether NFSv4 is served.
    pub nfs4: bool,
    /// Which delegations are granted.
    pub delegations: Delegations,
}

/// What all calls share.
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
    /// Locks that hosts were told of.
    pub(crate) grants: AtomicU64,
    verifier_changes: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        config: EngineConfig,
        exports: ExportTable,
        authority: Arc<dyn Authority>,
    ) -> Self {
        let state = Arc::new(State::new(nfs4::settings(config.instance, config.delegations)));
        state.watch_locks();
        let nfs4 = config.nfs4.then(|| Nfs4::new(Arc::clone(&state), &config.handle_key));
        Self {
            sealer: HandleSealer::new(&config.handle_key),
            exports: ArcSwap::from_pointee(exports),
            authority,
            mounts: MountList::default(),
            rpcbind_calls: CallCounts::default(),
            state,
            local_locks: LocalLocks::default(),
            state_keeper: None,
            record_keeper: None,
            nfs4,
            outbound: OnceLock::new(),
            callbacks: Callbacks::default(),
            waits: Arc::default(),
            journaling_clients: JournalingClients::default(),
            grants: AtomicU64::new(0),
            verifier_changes: AtomicU64::new(0),
            config,
        }
    }

    /// Which of the optional versions are served.
    pub(crate) fn optional_versions(&self) -> OptionalVersions {
        OptionalVersions { nfs2: self.config.nfs2, nfs4: self.nfs4.is_some() }
    }

    /// The same over a transport: NFSv4 needs one that heeds congestion (RFC 8881 §2.9.1).
    pub(crate) fn optional_versions_over(&self, transport: Transport) -> OptionalVersions {
        let OptionalVersions { nfs2, nfs4 } = self.optional_versions();
        OptionalVersions { nfs2, nfs4: nfs4 && transport == Transport::Tcp }
    }

    /// Keeps what was noted of the state: to be called before a client is told of it.
    pub(crate) fn keep_state(&self) {
        if let Some(keeper) = &self.state_keeper
            && self.state.has_unkept_events()
        {
            let taken = Cell::new(0);
            keeper.keep(&|events| taken.set(self.state.take_events(events)));
            self.state.events_are_kept(taken.get());
        }
    }

    /// The same, once a second; and the keeper may make room.
    pub(crate) fn renew_state(&self) {
        if let Some(keeper) = &self.state_keeper {
            let taken = Cell::new(0);
            keeper.renew(&|| self.state.note_all(), &|events| {
                taken.set(self.state.take_events(events));
            });
            self.state.events_are_kept(taken.get());
        }
    }

    /// The write verifier now (RFC 1813 §3.3.7): another number after each flush that failed.
    pub(crate) fn write_verifier(&self) -> u64 {
        // An odd factor keeps all verifiers of one start distinct.
        let changes = self.verifier_changes();
        self.config.write_verifier.wrapping_add(changes.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// How often the write verifier changed because a flush failed.
    pub(crate) fn verifier_changes(&self) -> u64 {
        self.verifier_changes.load(Ordering::SeqCst)
    }

    /// Changes the write verifier.
    pub(crate) fn change_verifier(&self) {
        self.verifier_changes.fetch_add(1, Ordering::SeqCst);
    }
}
