//! ONC RPC version 2 (RFC 5531): the heads of calls and replies.

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

/// What the head of a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    /// The call was accepted: `accept_stat`. Results follow if it is 0.
    Accepted(u32),
    /// It was not: `reject_stat`.
    Denied(u32),
}

/// The head of a reply (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Of the call.
    pub xid: u32,
    /// What became of it.
    pub status: ReplyStatus,
}

impl<'a> Decode<'a> for ReplyHeader {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let xid = r.u32()?;
        match r.u32()? {
            REPLY => {}
            value => return Err(XdrError::BadValue { what: "msg_type", value }),
        }
        let status = match r.u32()? {
            ACCEPTED => {
                let _verifier = OpaqueAuth::decode(r)?;
                ReplyStatus::Accepted(r.u32()?)
            }
            DENIED => ReplyStatus::Denied(r.u32()?),
            value => return Err(XdrError::BadValue { what: "reply_stat", value }),
        };
        Ok(Self { xid, status })
    }
}

impl Encode for ReplyHeader {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.xid);
        w.u32(REPLY);
        match self.status {
            ReplyStatus::Accepted(status) => {
                w.u32(ACCEPTED);
                OpaqueAuth { flavor: AUTH_NONE, body: &[] }.encode(w);
                w.u32(status);
            }
            ReplyStatus::Denied(status) => {
                w.u32(DENIED);
                w.u32(status);
            }
        }
    }
}
