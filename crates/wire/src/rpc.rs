//! ONC RPC version 2 (RFC 5531): the heads of calls and replies.

use smallvec::SmallVec;
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::codec::{numbers, structure};

/// No authentication.
pub const AUTH_NONE: u32 = 0;
/// UNIX identity.
pub const AUTH_SYS: u32 = 1;
/// Security by a mechanism of the GSS-API (RFC 2203).
pub const RPCSEC_GSS: u32 = 6;
/// Longest body of credentials and verifiers in bytes (RFC 5531 §8.2).
pub const AUTH_BYTES_MAX: usize = 400;
/// Longest name of a machine in bytes, and most groups, of `AUTH_SYS` (RFC 5531 appendix A).
pub const MACHINE_BYTES_MAX: usize = 255;
/// See [`MACHINE_BYTES_MAX`].
pub const GROUPS_MAX: usize = 16;
/// The version of RPC that there is.
pub const RPC_VERSION: u32 = 2;

/// `msg_type` of a call.
const CALL: u32 = 0;
/// And of a reply.
const REPLY: u32 = 1;
/// `reply_stat` of a call that was accepted, and of one that was not.
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

numbers! {
    /// Why credentials are refused (`auth_stat`, RFC 5531 §9).
    pub enum AuthStat, "auth_stat" {
        /// The credentials are malformed.
        BadCred = 1,
        /// The client must begin a new session.
        RejectedCred = 2,
        /// The verifier is malformed.
        BadVerf = 3,
        /// The verifier is expired or was replayed.
        RejectedVerf = 4,
        /// The flavour is too weak for this server.
        TooWeak = 5,
    }
}

structure! {
    /// Credentials or a verifier (`opaque_auth`).
    #[derive(Copy)]
    pub struct OpaqueAuth<'a> {
        /// The flavour's number.
        pub flavor: u32,
        /// What the flavour makes of it.
        pub body: &'a [u8]; max AUTH_BYTES_MAX,
    }
}

impl OpaqueAuth<'_> {
    /// `AUTH_NONE`, which has no body.
    pub const NONE: Self = Self { flavor: AUTH_NONE, body: &[] };
}

structure! {
    /// The body of `AUTH_SYS` credentials (`authsys_parms`, RFC 5531 appendix A).
    pub struct AuthSys<'a> {
        /// Any number.
        pub stamp: u32,
        /// The client's name for itself.
        pub machinename: &'a [u8]; max MACHINE_BYTES_MAX,
        /// User.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Supplementary groups.
        pub gids: SmallVec<[u32; GROUPS_MAX]>; max GROUPS_MAX,
    }
}

impl<'a> AuthSys<'a> {
    /// A user, a group and supplementary groups.
    pub fn new(machinename: &'a [u8], uid: u32, gid: u32, gids: &[u32]) -> Self {
        Self { stamp: 0, machinename, uid, gid, gids: SmallVec::from_slice(gids) }
    }
}

/// The head of a call (RFC 5531 §9); arguments follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// What the reply will repeat.
    pub xid: u32,
    /// Version of RPC; 2 is the only one, and checking it the server's business, which has a
    /// reply for others.
    pub rpcvers: u32,
    /// The program.
    pub prog: u32,
    /// The program's version.
    pub vers: u32,
    /// The procedure's number.
    pub proc_: u32,
    /// Who calls.
    pub cred: OpaqueAuth<'a>,
    /// What proves it.
    pub verf: OpaqueAuth<'a>,
}

impl<'a> Decode<'a> for CallHeader<'a> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let xid = r.u32()?;
        match r.u32()? {
            CALL => {}
            value => return Err(XdrError::BadValue { what: "msg_type", value }),
        }
        Ok(Self {
            xid,
            rpcvers: r.u32()?,
            prog: r.u32()?,
            vers: r.u32()?,
            proc_: r.u32()?,
            cred: Decode::decode(r)?,
            verf: Decode::decode(r)?,
        })
    }
}

impl Encode for CallHeader<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        for word in [self.xid, CALL, self.rpcvers, self.prog, self.vers, self.proc_] {
            w.u32(word);
        }
        self.cred.encode(w);
        self.verf.encode(w);
    }
}

/// Why a call was executed or not (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStat {
    /// It was; results follow.
    Success,
    /// The program is not served.
    ProgUnavail,
    /// The program's version is not served: versions from `low` to `high` are.
    ProgMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// There is no such procedure.
    ProcUnavail,
    /// The arguments cannot be decoded.
    GarbageArgs,
    /// The server is at fault.
    SystemErr,
    /// A number that RFC 5531 does not have.
    Other(u32),
}

impl<'a> Decode<'a> for AcceptStat {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            0 => Self::Success,
            1 => Self::ProgUnavail,
            2 => Self::ProgMismatch { low: r.u32()?, high: r.u32()? },
            3 => Self::ProcUnavail,
            4 => Self::GarbageArgs,
            5 => Self::SystemErr,
            other => Self::Other(other),
        })
    }
}

impl Encode for AcceptStat {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::Success => w.u32(0),
            Self::ProgUnavail => w.u32(1),
            Self::ProgMismatch { low, high } => {
                w.u32(2);
                w.u32(low);
                w.u32(high);
            }
            Self::ProcUnavail => w.u32(3),
            Self::GarbageArgs => w.u32(4),
            Self::SystemErr => w.u32(5),
            Self::Other(other) => w.u32(other),
        }
    }
}

/// Why a call was rejected (`reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectStat {
    /// The version of RPC is not spoken: versions from `low` to `high` are.
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The credentials are refused: an `auth_stat`, of which there are more than [`AuthStat`] has.
    AuthError(u32),
    /// A number that RFC 5531 does not have.
    Other(u32),
}

impl<'a> Decode<'a> for RejectStat {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            0 => Self::RpcMismatch { low: r.u32()?, high: r.u32()? },
            1 => Self::AuthError(r.u32()?),
            other => Self::Other(other),
        })
    }
}

impl Encode for RejectStat {
    fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::RpcMismatch { low, high } => {
                w.u32(0);
                w.u32(low);
                w.u32(high);
            }
            Self::AuthError(why) => {
                w.u32(1);
                w.u32(why);
            }
            Self::Other(other) => w.u32(other),
        }
    }
}

/// What the head of a reply says (`reply_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus<'a> {
    /// The call was accepted.
    Accepted {
        /// What proves that the server says so.
        verf: OpaqueAuth<'a>,
        /// What became of the call.
        stat: AcceptStat,
    },
    /// It was not.
    Denied(RejectStat),
}

/// The head of a reply (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader<'a> {
    /// Of the call.
    pub xid: u32,
    /// What became of it.
    pub status: ReplyStatus<'a>,
}

impl ReplyHeader<'_> {
    /// The head of a reply to a call that was accepted, without a verifier.
    #[inline]
    pub const fn accepted(xid: u32, stat: AcceptStat) -> Self {
        Self { xid, status: ReplyStatus::Accepted { verf: OpaqueAuth::NONE, stat } }
    }

    /// The reply to a call that was rejected.
    pub const fn denied(xid: u32, stat: RejectStat) -> Self {
        Self { xid, status: ReplyStatus::Denied(stat) }
    }

    /// Whether the call was executed: results follow.
    pub fn is_success(&self) -> bool {
        matches!(self.status, ReplyStatus::Accepted { stat: AcceptStat::Success, .. })
    }
}

impl<'a> Decode<'a> for ReplyHeader<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let xid = r.u32()?;
        match r.u32()? {
            REPLY => {}
            value => return Err(XdrError::BadValue { what: "msg_type", value }),
        }
        let status = match r.u32()? {
            ACCEPTED => {
                ReplyStatus::Accepted { verf: Decode::decode(r)?, stat: Decode::decode(r)? }
            }
            DENIED => ReplyStatus::Denied(Decode::decode(r)?),
            value => return Err(XdrError::BadValue { what: "reply_stat", value }),
        };
        Ok(Self { xid, status })
    }
}

impl Encode for ReplyHeader<'_> {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.xid);
        w.u32(REPLY);
        match &self.status {
            ReplyStatus::Accepted { verf, stat } => {
                w.u32(ACCEPTED);
                verf.encode(w);
                stat.encode(w);
            }
            ReplyStatus::Denied(stat) => {
                w.u32(DENIED);
                stat.encode(w);
            }
        }
    }
}
