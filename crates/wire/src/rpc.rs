//! ONC RPC version 2 (RFC 5531).

use steadfast_xdr::{Decode, Reader, XdrError};

/// No authentication.
pub const AUTH_NONE: u32 = 0;
/// UNIX identity.
pub const AUTH_SYS: u32 = 1;

/// Why credentials are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u32)]
pub enum AuthStat {
    BadCred = 1,
    RejectedCred = 2,
    BadVerf = 3,
    RejectedVerf = 4,
    TooWeak = 5,
}

/// Credentials or verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OpaqueAuth<'a> {
    pub flavor: u32,
    pub body: &'a [u8],
}

impl<'a> Decode<'a> for OpaqueAuth<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { flavor: r.u32()?, body: r.opaque(400)? })
    }
}

/// The head of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CallHeader<'a> {
    pub xid: u32,
    pub rpcvers: u32,
    pub prog: u32,
    pub vers: u32,
    pub proc_: u32,
    pub cred: OpaqueAuth<'a>,
    pub verf: OpaqueAuth<'a>,
}

impl<'a> Decode<'a> for CallHeader<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let xid = r.u32()?;
        match r.u32()? {
            0 => {}
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
