//! Replies (RFC 5531 §9).

use steadfast_wire::rpc::{AcceptStat, RejectStat, ReplyHeader, ReplyStatus};
use steadfast_xdr::{Decode, Reader, XdrError};

/// Why an accepted call was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptedError {
    /// `PROG_UNAVAIL`.
    #[error("the program is not served")]
    ProgramUnavailable,
    /// `PROG_MISMATCH`.
    #[error("the program is served in versions {low} to {high} only")]
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// `PROC_UNAVAIL`.
    #[error("there is no such procedure")]
    ProcedureUnavailable,
    /// `GARBAGE_ARGS`.
    #[error("the arguments could not be decoded")]
    GarbageArguments,
    /// `SYSTEM_ERR`.
    #[error("the server is at fault")]
    SystemError,
}

/// Why a call was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// `RPC_MISMATCH`.
    #[error("RPC versions {low} to {high} only")]
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// `AUTH_ERROR` with its `auth_stat`.
    #[error("authentication error {0}")]
    Auth(u32),
}

/// What a reply says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// The call was executed; the results begin at this byte of the message.
    Success {
        /// Where the results begin.
        results_at: usize,
    },
    /// Accepted, not executed.
    Accepted(AcceptedError),
    /// Rejected.
    Denied(Denial),
}

/// A reply's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The xid of the call it answers.
    pub xid: u32,
    /// What it says.
    pub body: ReplyBody,
    /// The whole message.
    pub message: Vec<u8>,
}

impl Reply {
    /// The results of a call that was executed.
    pub fn results(&self) -> Option<&[u8]> {
        match self.body {
            ReplyBody::Success { results_at } => self.message.get(results_at..),
            ReplyBody::Accepted(_) | ReplyBody::Denied(_) => None,
        }
    }
}

/// Reads a reply's head: the xid and what it says.
///
/// # Errors
/// When the bytes are no RPC reply.
pub fn parse_reply(message: &[u8]) -> Result<(u32, ReplyBody), XdrError> {
    let mut r = Reader::new(message);
    let header = ReplyHeader::decode(&mut r)?;
    let accepted = |error| Ok(ReplyBody::Accepted(error));
    let body = match header.status {
        ReplyStatus::Accepted { stat, .. } => match stat {
            AcceptStat::Success => Ok(ReplyBody::Success { results_at: r.position() }),
            AcceptStat::ProgUnavail => accepted(AcceptedError::ProgramUnavailable),
            AcceptStat::ProgMismatch { low, high } => {
                accepted(AcceptedError::ProgramMismatch { low, high })
            }
            AcceptStat::ProcUnavail => accepted(AcceptedError::ProcedureUnavailable),
            AcceptStat::GarbageArgs => accepted(AcceptedError::GarbageArguments),
            AcceptStat::SystemErr => accepted(AcceptedError::SystemError),
            AcceptStat::Other(value) => Err(XdrError::BadValue { what: "accept_stat", value }),
        },
        ReplyStatus::Denied(RejectStat::RpcMismatch { low, high }) => {
            Ok(ReplyBody::Denied(Denial::RpcMismatch { low, high }))
        }
        ReplyStatus::Denied(RejectStat::AuthError(why)) => Ok(ReplyBody::Denied(Denial::Auth(why))),
        ReplyStatus::Denied(RejectStat::Other(value)) => {
            Err(XdrError::BadValue { what: "reject_stat", value })
        }
    };
    Ok((header.xid, body?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn every_kind_of_reply_is_told_apart() {
        let body = |w: &[u32]| parse_reply(&words(w)).map(|(_, body)| body);
        assert_eq!(body(&[7, 1, 0, 0, 0, 0, 5]), Ok(ReplyBody::Success { results_at: 24 }));
        assert_eq!(
            body(&[7, 1, 0, 0, 0, 2, 3, 4]),
            Ok(ReplyBody::Accepted(AcceptedError::ProgramMismatch { low: 3, high: 4 }))
        );
        assert_eq!(
            body(&[7, 1, 1, 0, 2, 2]),
            Ok(ReplyBody::Denied(Denial::RpcMismatch { low: 2, high: 2 }))
        );
        assert_eq!(body(&[7, 1, 1, 1, 5]), Ok(ReplyBody::Denied(Denial::Auth(5))));
        assert!(body(&[7, 0, 0, 0, 0, 0]).is_err());
        assert!(body(&[7, 1, 0, 0, 0]).is_err());
        assert!(body(&[7, 1, 0, 0, 0, 9]).is_err());
    }
}
