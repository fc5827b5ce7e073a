//! What the engine must know of an operation before it runs, and its number.
//!
//! Each procedure has its row ([`Operation`]) beside its code, so that none can forget a rule. The
//! engine applies the columns: rows that change are refused on a read-only share, and a call whose
//! obligation failed is answered with a failure body of the row's shape.

use steadfast_vfs::FsError;
use steadfast_xdr::Writer;

/// One row: what is known of an operation before it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The procedure's name in the RFC.
    pub(crate) name: &'static str,
    /// Whether it changes something: refused on read-only shares.
    pub(crate) is_changing: bool,
    /// Whether the caller's credentials must be good. NULL does no work and asks for no identity
    /// (RFC 1813 §3.3.0).
    pub(crate) asks_identity: bool,
    /// Whether it is answered while the share waits for clients that bring back what was lost
    /// (`journaling_clients.rs`): it tells nothing of files, and changes none. Locks are taken again.
    pub(crate) is_answered_while_recovering: bool,
    /// How its result tells of a failure; `None` if it cannot fail once its arguments are decoded.
    pub(crate) failure: Option<Failure>,
}

/// The shape of a result that tells of a failure: a status, then words of zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// The protocol's number for an error. 0 is success.
    pub(crate) status: fn(FsError) -> u32,
    /// How many 32-bit words of zero follow when nothing is known of the objects (absent
    /// attributes).
    pub(crate) words: usize,
    /// Whether the protocol has no status for "later", as NFSv2: then the number that stands for it
    /// never leaves the server. The call gets no reply, and its client sends it again.
    pub(crate) is_silent_for_now: bool,
}

impl Operation {
    /// A procedure that changes nothing and begins its results with a status.
    pub(crate) const fn reads(
        name: &'static str,
        status: fn(FsError) -> u32,
        words: usize,
    ) -> Self {
        let failure = Some(Failure { status, words, is_silent_for_now: false });
        Self {
            name,
            is_changing: false,
            asks_identity: true,
            is_answered_while_recovering: false,
            failure,
        }
    }

    /// A procedure that changes something.
    pub(crate) const fn changes(
        name: &'static str,
        status: fn(FsError) -> u32,
        words: usize,
    ) -> Self {
        Self { is_changing: true, ..Self::reads(name, status, words) }
    }

    /// The same procedure, answered while a share waits for clients that bring back what was lost.
    pub(crate) const fn while_recovering(self) -> Self {
        Self { is_answered_while_recovering: true, ..self }
    }

    /// The same procedure of a protocol that has no status for "later".
    pub(crate) const fn silent_for_now(self) -> Self {
        match self.failure {
            Some(failure) => {
                let failure = Some(Failure { is_silent_for_now: true, ..failure });
                Self { failure, ..self }
            }
            None => self,
        }
    }

    /// A procedure that cannot fail once its arguments are decoded.
    pub(crate) const fn answers(name: &'static str) -> Self {
        Self {
            name,
            is_changing: false,
            asks_identity: true,
            is_answered_while_recovering: true,
            failure: None,
        }
    }

    /// NULL.
    pub(crate) const fn null() -> Self {
        Self { asks_identity: false, ..Self::answers("NULL") }
    }

    /// Appends the result that tells of an error, nothing being known of the objects. A row that
    /// cannot fail appends nothing.
    pub(crate) fn fail(&self, w: &mut Writer<'_>, error: FsError) {
        let Some(Failure { status, words, .. }) = self.failure else { return };
        w.u32(status(error));
        for _ in 0..words {
            w.u32(0);
        }
    }

    /// Whether a result tells of a failure.
    pub(crate) fn is_failure(&self, result: &[u8]) -> bool {
        self.failure.is_some() && status_of(result).is_some_and(|status| status != 0)
    }

    /// Whether a result is none that a client may see: it tells of "later", for which the protocol has
    /// no status.
    pub(crate) fn stays_silent(&self, result: &[u8]) -> bool {
        self.failure.is_some_and(|failure| failure.is_silent_for_now)
            && self.tells_of(result, FsError::TryLater)
    }

    /// Whether a result may tell of this error: it does, or has no failure that the engine could read.
    pub(crate) fn may_tell_of(&self, result: &[u8], error: FsError) -> bool {
        self.failure.is_none() || self.tells_of(result, error)
    }

    /// Whether a result tells of this error.
    pub(crate) fn tells_of(&self, result: &[u8], error: FsError) -> bool {
        self.failure.is_some_and(|failure| status_of(result) == Some((failure.status)(error)))
    }
}

fn status_of(result: &[u8]) -> Option<u32> {
    result.first_chunk().map(|status| u32::from_be_bytes(*status))
}

/// An operation that the server knows, numbered without gaps, or [`OperationId::OTHER`]: who counts
/// calls needs an array and no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub(crate) u16);

impl OperationId {
    /// Less than [`OperationId::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What an operation is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationName {
    /// The protocol: `nfs`, `nfsacl`, `nlm`, `mount`, `nsm`, `rpcbind`, `recovery`, or `other`.
    pub protocol: &'static str,
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Number of the procedure.
    pub procedure: u32,
    /// Its name in the RFC.
    pub procedure_name: &'static str,
}
