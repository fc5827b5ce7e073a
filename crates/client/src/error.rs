//! What can go wrong, by who must act.

use std::io;

use steadfast_wire::nfs3::NfsStat3;
use steadfast_wire::nfs4::NfsStat4;
use steadfast_xdr::XdrError;

use crate::object::{Attributes, Wcc};
use crate::operation4::Failure4;
use crate::reply::{AcceptedError, Denial};

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// No reply came in time.
    #[error("no reply within {waited_ms} ms")]
    TimedOut {
        /// How long was waited.
        waited_ms: u64,
    },
    /// The reply is no XDR of its type.
    #[error("the reply to {procedure} cannot be decoded: {error}")]
    Malformed {
        /// The procedure's name in its RFC.
        procedure: &'static str,
        /// What is wrong.
        error: XdrError,
    },
    /// The reply goes on after its end.
    #[error("the reply to {procedure} has {bytes} bytes too many")]
    TrailingBytes {
        /// The procedure's name in its RFC.
        procedure: &'static str,
        /// How many.
        bytes: usize,
    },
    /// The reply promises what cannot be (a count beyond what was asked for, say).
    #[error("the reply to {procedure} contradicts the call: {why}")]
    Contradiction {
        /// The procedure's name in its RFC.
        procedure: &'static str,
        /// What contradicts.
        why: &'static str,
    },
    /// A record larger than [`crate::RECORD_BYTES_MAX`] was announced.
    #[error("the server announced a record of {bytes} bytes")]
    RecordTooLong {
        /// Its bytes, as far as they were announced.
        bytes: usize,
    },
    /// More replies wait to be claimed than [`crate::UNCLAIMED_MAX`].
    #[error("too many replies that nobody asked for")]
    TooManyUnclaimed,
    /// The server accepted the call but did not execute it.
    #[error("the server did not execute the call: {0}")]
    Accepted(AcceptedError),
    /// The server rejected the call.
    #[error("the server rejected the call: {0}")]
    Denied(Denial),
    /// The server executed the call, and it failed.
    #[error(transparent)]
    Failed(Box<Failure>),
    /// The server executed a COMPOUND, and an operation of it failed.
    #[error(transparent)]
    Operation(Box<Failure4>),
    /// All slots of the session are in use, or were lost with requests that got no reply.
    #[error("no slot of the session is free")]
    NoFreeSlot,
    /// MOUNT refused.
    #[error("MOUNT failed with status {0}")]
    Mount(u32),
    /// A list grew beyond its bound.
    #[error("a list in the reply to {procedure} is longer than {max} entries")]
    ListTooLong {
        /// The procedure's name in its RFC.
        procedure: &'static str,
        /// The bound.
        max: usize,
    },
}

/// A result whose status is not `NFS3_OK`, with what came beside the status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{procedure} failed with {status:?}")]
pub struct Failure {
    /// The procedure's name in its RFC.
    pub procedure: &'static str,
    /// Why.
    pub status: NfsStat3,
    /// Attributes of the object, where the procedure tells them in failures.
    pub attributes: Option<Attributes>,
    /// Before and after of the object or directory to be changed.
    pub wcc: Wcc,
    /// The same of RENAME's second directory.
    pub second_wcc: Wcc,
}

impl ClientError {
    /// The status of a call that was executed and failed.
    pub fn status(&self) -> Option<NfsStat3> {
        match self {
            Self::Failed(failure) => Some(failure.status),
            _ => None,
        }
    }

    /// The status of an operation of a COMPOUND that failed.
    pub fn status4(&self) -> Option<NfsStat4> {
        match self {
            Self::Operation(failure) => Some(failure.status),
            _ => None,
        }
    }

    /// Whether the server does not have the program that was called, or not in this version.
    pub fn is_program_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Accepted(
                AcceptedError::ProgramUnavailable | AcceptedError::ProgramMismatch { .. }
            )
        )
    }

    /// Whether the server has the program, and not the procedure that was called.
    pub fn is_procedure_unavailable(&self) -> bool {
        matches!(self, Self::Accepted(AcceptedError::ProcedureUnavailable))
    }

    /// Whether the server does not have what was called.
    pub fn is_unavailable(&self) -> bool {
        self.is_program_unavailable() || self.is_procedure_unavailable()
    }

    /// A time-out after this long.
    pub(crate) fn timed_out(waited: std::time::Duration) -> Self {
        Self::TimedOut { waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX) }
    }
}
