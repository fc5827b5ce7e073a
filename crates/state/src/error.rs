//! The ways in which a call on the state fails.

use thiserror::Error;

/// Why a call failed: one variant a status of RFC 8881 §15.1, named after it.
///
/// A call that fails has changed nothing, if its method does not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum StateError {
    /// `NFS4ERR_CLID_INUSE`.
    #[error("the client owner is in use by another principal")]
    ClientInUse,
    /// `NFS4ERR_STALE_CLIENTID`.
    #[error("no client has this client id")]
    StaleClientId,
    /// `NFS4ERR_NOENT`: an update of a record that is not confirmed.
    #[error("no confirmed client has this owner")]
    NoEntry,
    /// `NFS4ERR_NOT_SAME`: an update with another verifier.
    #[error("the client's record has another verifier")]
    NotSame,
    /// `NFS4ERR_PERM`: an update by another principal.
    #[error("the client's record belongs to another principal")]
    NotPermitted,
    /// `NFS4ERR_SEQ_MISORDERED`.
    #[error("the sequence id is neither the slot's nor the next one")]
    SequenceMisordered,
    /// `NFS4ERR_SEQ_FALSE_RETRY`.
    #[error("another request had this slot and sequence id")]
    FalseRetry,
    /// `NFS4ERR_BADSESSION`.
    #[error("no session has this session id")]
    BadSession,
    /// `NFS4ERR_BADSLOT`.
    #[error("the session has no such slot")]
    BadSlot,
    /// `NFS4ERR_BAD_HIGH_SLOT`.
    #[error("the highest slot that the client uses is above the session's")]
    BadHighSlot,
    /// `NFS4ERR_REQ_TOO_BIG`.
    #[error("the request is larger than the session allows")]
    RequestTooBig,
    /// `NFS4ERR_TOO_MANY_OPS`.
    #[error("the request has more operations than the session allows")]
    TooManyOperations,
    /// `NFS4ERR_TOOSMALL`.
    #[error("the channel that the client asks for is too small")]
    TooSmall,
    /// `NFS4ERR_DELAY`: a bound of [`crate::Limits`] is reached.
    #[error("a limit of the server is reached")]
    TryLater,
    /// `NFS4ERR_CLIENTID_BUSY`.
    #[error("the client has sessions or opens")]
    ClientIdBusy,
    /// `NFS4ERR_BAD_STATEID`.
    #[error("the stateid names nothing that this client has at this file")]
    BadStateId,
    /// `NFS4ERR_OLD_STATEID`.
    #[error("the stateid's seqid is older than the latest")]
    OldStateId,
    /// `NFS4ERR_STALE_STATEID`, of minor version 0: the stateid is of before the server lost what it
    /// knew.
    #[error("the stateid is of another instance of the server")]
    StaleStateId,
    /// `NFS4ERR_BAD_SEQID`, of minor version 0.
    #[error("the owner's sequence id is neither the last nor the next one")]
    BadSequence,
    /// `NFS4ERR_RESOURCE`, of minor version 0: another request of the owner is being executed. The
    /// sequence id is not used.
    #[error("another request of the owner is under way")]
    OwnerBusy,
    /// `NFS4ERR_EXPIRED`: the client's state went while the request was under way.
    #[error("the client's lease has expired and its state is gone")]
    Expired,
    /// `NFS4ERR_SHARE_DENIED`.
    #[error("the share conflicts with another open of the file")]
    ShareDenied,
    /// `NFS4ERR_LOCKED`: an I/O without an open that another open denies.
    #[error("another open denies the access")]
    Locked,
    /// `NFS4ERR_DELAY`: somebody has a delegation that conflicts, and is asked to return it.
    #[error("a delegation that conflicts is being recalled")]
    Recalling,
    /// `NFS4ERR_DELEG_REVOKED`.
    #[error("the delegation was revoked")]
    DelegationRevoked,
    /// `NFS4ERR_OPENMODE`.
    #[error("the open does not allow the access")]
    OpenMode,
    /// `NFS4ERR_LOCKS_HELD`: an open has to be closed, not freed; a lock stateid has locks.
    #[error("the stateid is in use")]
    LocksHeld,
    /// `NFS4ERR_COMPLETE_ALREADY`.
    #[error("the client has completed its reclaim before")]
    CompleteAlready,
    /// `NFS4ERR_GRACE`.
    #[error("the server is in its grace period")]
    Grace,
    /// `NFS4ERR_NO_GRACE`.
    #[error("there is nothing that this client may reclaim")]
    NoGrace,
    /// `NFS4ERR_INVAL`.
    #[error("the arguments contradict each other or a limit of the protocol")]
    Invalid,
}
