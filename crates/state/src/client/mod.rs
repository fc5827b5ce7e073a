//! A client: its lease, and what it has: opens, locks and delegations, the owners of minor version 0, the paths
//! by which it can be called.

mod callback_paths;
pub(crate) mod host_data;
pub(crate) mod lock_owner;
pub(crate) mod locks;
pub(crate) mod lost_delegations;
pub(crate) mod opens;
pub(crate) mod owners;
mod unsettled;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use self::callback_paths::CallbackPaths;
use self::host_data::HostData;
use self::opens::ClientOpens;
use self::owners::Owners;
use crate::image::{Event, Journal};
use crate::{ClientId, StateError};

/// A delegation was revoked (`SEQ4_STATUS_RECALLABLE_STATE_REVOKED`).
const REVOKED: u32 = 0x40;

/// Whether a client has a lease.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// NFSv4: it has a lease.
    Nfs4,
    /// NLM: it keeps what it has until it, or its monitor, says otherwise.
    Host(Arc<HostData>),
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NFSv4, minor version 0.
    Nfs40,
    /// NFSv4, a later minor version: a session may be of any.
    Nfs41,
    /// NLM, beside NFSv3.
    Nlm,
}

impl Protocol {
    pub(crate) fn of(kind: &Kind, is_set: bool) -> Self {
        match kind {
            Kind::Host(_) => Self::Nlm,
            Kind::Nfs4 if is_set => Self::Nfs40,
            Kind::Nfs4 => Self::Nfs41,
        }
    }
}

/// Whether stable storage tells that a client has state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recorded {
    Not,
    /// It reclaims what it had, and may not have all of it yet.
    InPart,
    /// It has all that it will have of before.
    Whole,
}

const UNKNOWN: u8 = 0;
const FORMER: u8 = 1;
const NOT_FORMER: u8 = 2;

/// A client: one life of one host, as its `EXCHANGE_ID` or `SETCLIENTID` named it; or a host that
/// speaks NLM.
pub struct Client {
    id: ClientId,
    kind: Kind,
    renewed_ms: AtomicU64,
    /// The state's.
    clock_ms: Arc<AtomicU64>,
    pub(crate) journal: Arc<Journal>,
    has_completed_reclaim: AtomicBool,
    /// A [`Recorded`].
    recorded: AtomicU8,
    /// Whether it had state before the last loss, once that was looked up: [`UNKNOWN`], [`FORMER`],
    /// [`NOT_FORMER`].
    former: AtomicU8,
    pub(crate) opens: Mutex<ClientOpens>,
    /// Of minor version 0: its owners, with their sequence ids.
    pub(crate) owners: Mutex<Owners>,
    /// Locks that it waits for. Other clients' requests count it down.
    pub(crate) waits: AtomicU32,
    pub(crate) callback_paths: CallbackPaths,
    /// Delegations that were revoked and that it has not acknowledged (`FREE_STATEID`).
    pub(crate) revoked: AtomicU32,
}

impl Client {
    pub(crate) fn new(
        id: ClientId,
        kind: Kind,
        now_ms: u64,
        clock_ms: Arc<AtomicU64>,
        journal: Arc<Journal>,
    ) -> Self {
        Self {
            id,
            kind,
            clock_ms,
            journal,
            renewed_ms: AtomicU64::new(now_ms),
            has_completed_reclaim: AtomicBool::new(false),
            recorded: AtomicU8::new(Recorded::Not as u8),
            former: AtomicU8::new(UNKNOWN),
            opens: Mutex::new(ClientOpens::default()),
            owners: Mutex::new(Owners::default()),
            waits: AtomicU32::new(0),
            callback_paths: CallbackPaths::default(),
            revoked: AtomicU32::new(0),
        }
    }

    /// Its id.
    pub fn id(&self) -> ClientId {
        self.id
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it had state before the last loss, if that was noted.
    pub(crate) fn is_former(&self) -> Option<bool> {
        match self.former.load(Ordering::Relaxed) {
            UNKNOWN => None,
            former => Some(former == FORMER),
        }
    }

    pub(crate) fn note_former(&self, is_former: bool) {
        let former = if is_former { FORMER } else { NOT_FORMER };
        self.former.store(former, Ordering::Relaxed);
    }

    /// The client was heard: its lease begins anew.
    pub fn renew(&self, now_ms: u64) {
        // Most requests come in the same ms as another: they leave the cache line shared.
        if self.renewed_ms.load(Ordering::Relaxed) != now_ms {
            self.renewed_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// A request of the client is finished: its lease begins anew, as of the last tick (RFC 8881
    /// §8.3).
    pub(crate) fn renew_at_end(&self) {
        let clock_ms = self.clock_ms.load(Ordering::Relaxed);
        if clock_ms > self.renewed_ms() {
            self.renewed_ms.store(clock_ms, Ordering::Relaxed);
        }
    }

    /// The latest time that is known: that of the last tick, or of the client's last request.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::Relaxed).max(self.renewed_ms())
    }

    /// When it was last heard.
    pub(crate) fn renewed_ms(&self) -> u64 {
        self.renewed_ms.load(Ordering::Relaxed)
    }

    /// How long ago it was last heard, in ms. A host is never silent: it has no lease to renew.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        match self.kind {
            Kind::Nfs4 => now_ms.saturating_sub(self.renewed_ms()),
            Kind::Host(_) => 0,
        }
    }

    /// What is known of it, if it speaks NLM.
    pub(crate) fn host(&self) -> Option<&Arc<HostData>> {
        match &self.kind {
            Kind::Nfs4 => None,
            Kind::Host(data) => Some(data),
        }
    }

    /// Whether `RECLAIM_COMPLETE` was sent.
    pub fn has_completed_reclaim(&self) -> bool {
        self.has_completed_reclaim.load(Ordering::Relaxed)
    }

    /// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`, or nothing.
    pub(crate) fn revoked_status(&self) -> u32 {
        if self.revoked.load(Ordering::Relaxed) > 0 { REVOKED } else { 0 }
    }

    pub(crate) fn recorded(&self) -> Recorded {
        match self.recorded.load(Ordering::Acquire) {
            0 => Recorded::Not,
            1 => Recorded::InPart,
            _ => Recorded::Whole,
        }
    }

    /// The caller has noted it, under the lock of the records.
    pub(crate) fn set_recorded(&self, recorded: Recorded) {
        self.recorded.store(recorded as u8, Ordering::Release);
    }

    /// It had sent `RECLAIM_COMPLETE` before the server was started again.
    pub(crate) fn restore_reclaim(&self) {
        self.has_completed_reclaim.store(true, Ordering::Relaxed);
    }

    /// `RECLAIM_COMPLETE` for all file systems.
    ///
    /// # Errors
    /// [`StateError::CompleteAlready`] the second time.
    pub fn complete_reclaim(&self) -> Result<(), StateError> {
        if self.has_completed_reclaim.swap(true, Ordering::Relaxed) {
            return Err(StateError::CompleteAlready);
        }
        self.journal.note(&Event::ReclaimComplete(self.id));
        Ok(())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:016x})", self.id.0)
    }
}
