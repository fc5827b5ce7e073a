//! RPC record marking, reply envelopes and credentials (RFC 5531).
#![forbid(unsafe_code)]

pub mod record;

use smallvec::SmallVec;
use steadfast_wire::rpc::{AUTH_NONE, AUTH_SYS, AuthStat, OpaqueAuth};
use steadfast_xdr::{Reader, Writer};

fn accepted(w: &mut Writer<'_>, xid: u32, accept_stat: u32) {
    w.u32(xid);
    w.u32(1);
    w.u32(0);
    w.u32(AUTH_NONE);
    w.u32(0);
    w.u32(accept_stat);
}

/// The head of a successful reply; results follow.
#[inline]
pub fn accepted_success(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, 0);
}

/// `PROG_UNAVAIL`.
pub fn prog_unavail(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, 1);
}

/// `PROG_MISMATCH` with the versions that are served.
pub fn prog_mismatch(w: &mut Writer<'_>, xid: u32, low: u32, high: u32) {
    accepted(w, xid, 2);
    w.u32(low);
    w.u32(high);
}

/// `PROC_UNAVAIL`.
pub fn proc_unavail(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, 3);
}

/// `GARBAGE_ARGS`.
pub fn garbage_args(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, 4);
}

/// `SYSTEM_ERR`.
pub fn system_err(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, 5);
}

/// `RPC_MISMATCH` with the RPC versions that are spoken.
pub fn rpc_mismatch(w: &mut Writer<'_>, xid: u32, low: u32, high: u32) {
    w.u32(xid);
    w.u32(1);
    w.u32(1);
    w.u32(0);
    w.u32(low);
    w.u32(high);
}

/// `AUTH_ERROR`.
pub fn auth_error(w: &mut Writer<'_>, xid: u32, why: AuthStat) {
    w.u32(xid);
    w.u32(1);
    w.u32(1);
    w.u32(1);
    w.u32(why as u32);
}

/// Who calls, as the credentials say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// Nobody in particular.
    None,
    /// A UNIX identity, as claimed by the client.
    Sys(SysIdentity<'a>),
}

/// The contents of `AUTH_SYS` credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysIdentity<'a> {
    /// The client's name for itself.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    gids: SmallVec<[u32; 16]>,
}

impl SysIdentity<'_> {
    /// Supplementary groups.
    pub fn gids(&self) -> &[u32] {
        &self.gids
    }
}

impl<'a> Credentials<'a> {
    /// Reads credentials.
    ///
    /// # Errors
    /// `BadCred` for a malformed body, `RejectedCred` for a flavour that is not served.
    pub fn decode(auth: &OpaqueAuth<'a>) -> Result<Self, AuthStat> {
        match auth.flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => sys(auth.body).ok_or(AuthStat::BadCred).map(Self::Sys),
            _ => Err(AuthStat::RejectedCred),
        }
    }
}

fn sys(body: &[u8]) -> Option<SysIdentity<'_>> {
    let mut r = Reader::new(body);
    let _stamp = r.u32().ok()?;
    let machine = r.opaque(255).ok()?;
    let (uid, gid) = (r.u32().ok()?, r.u32().ok()?);
    let count = r.u32().ok()?;
    if count > 16 {
        return None;
    }
    let mut gids = SmallVec::new();
    for _ in 0..count {
        gids.push(r.u32().ok()?);
    }
    Some(SysIdentity { machine, uid, gid, gids })
}
