//! RPC record marking, reply envelopes and credentials (RFC 5531).
#![forbid(unsafe_code)]

pub mod record;

use steadfast_wire::rpc::{
    AUTH_NONE, AUTH_SYS, AcceptStat, AuthStat, AuthSys, OpaqueAuth, RejectStat, ReplyHeader,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

/// The head of a successful reply; results follow.
#[inline]
pub fn accepted_success(w: &mut Writer<'_>, xid: u32) {
    ReplyHeader::accepted(xid, AcceptStat::Success).encode(w);
}

/// `PROG_UNAVAIL`.
pub fn prog_unavail(w: &mut Writer<'_>, xid: u32) {
    ReplyHeader::accepted(xid, AcceptStat::ProgUnavail).encode(w);
}

/// `PROG_MISMATCH` with the versions that are served.
pub fn prog_mismatch(w: &mut Writer<'_>, xid: u32, low: u32, high: u32) {
    ReplyHeader::accepted(xid, AcceptStat::ProgMismatch { low, high }).encode(w);
}

/// `PROC_UNAVAIL`.
pub fn proc_unavail(w: &mut Writer<'_>, xid: u32) {
    ReplyHeader::accepted(xid, AcceptStat::ProcUnavail).encode(w);
}

/// `GARBAGE_ARGS`.
pub fn garbage_args(w: &mut Writer<'_>, xid: u32) {
    ReplyHeader::accepted(xid, AcceptStat::GarbageArgs).encode(w);
}

/// `SYSTEM_ERR`.
pub fn system_err(w: &mut Writer<'_>, xid: u32) {
    ReplyHeader::accepted(xid, AcceptStat::SystemErr).encode(w);
}

/// `RPC_MISMATCH` with the RPC versions that are spoken.
pub fn rpc_mismatch(w: &mut Writer<'_>, xid: u32, low: u32, high: u32) {
    ReplyHeader::denied(xid, RejectStat::RpcMismatch { low, high }).encode(w);
}

/// `AUTH_ERROR`.
pub fn auth_error(w: &mut Writer<'_>, xid: u32, why: AuthStat) {
    ReplyHeader::denied(xid, RejectStat::AuthError(why as u32)).encode(w);
}

/// Who calls, as the credentials say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// Nobody in particular.
    None,
    /// A UNIX identity, as claimed by the client.
    Sys(AuthSys<'a>),
}

impl<'a> Credentials<'a> {
    /// Reads credentials.
    ///
    /// # Errors
    /// `BadCred` for a malformed body, `RejectedCred` for a flavour that is not served.
    pub fn decode(auth: &OpaqueAuth<'a>) -> Result<Self, AuthStat> {
        match auth.flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => AuthSys::decode(&mut Reader::new(auth.body))
                .map(Self::Sys)
                .map_err(|_| AuthStat::BadCred),
            _ => Err(AuthStat::RejectedCred),
        }
    }
}
