//! RPC messages as clients send and read them.

use steadfast_wire::rpc::{CallHeader, OpaqueAuth};
use steadfast_xdr::{Encode, Reader, Writer, XdrError};

use crate::Checked;

const AUTH_SYS: u32 = 1;
/// Of a reply: xid, message type, reply status, verifier (two words), accept status.
pub(crate) const REPLY_HEADER_BYTES: usize = 24;

/// A reply, accepted, no verifier, success.
const SUCCESS: [u8; REPLY_HEADER_BYTES - 4] =
    [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What a client asks for: a call without its xid.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) arguments: Vec<u8>,
    /// What it is, for the history.
    pub(crate) what: String,
}

impl Request {
    /// A call of NFSv3.
    pub(crate) fn of_3(procedure: u32, arguments: &impl Encode, what: String) -> Self {
        Self { program: 100_003, version: 3, procedure, arguments: encoded(arguments), what }
    }

    /// The message.
    pub(crate) fn message(&self, xid: u32) -> Vec<u8> {
        let mut cred = Vec::new();
        let mut w = Writer::new(&mut cred);
        w.u32(0);
        w.opaque(b"client");
        for number in [0, 0, 0] {
            w.u32(number);
        }
        let header = CallHeader {
            xid,
            rpcvers: 2,
            prog: self.program,
            vers: self.version,
            proc_: self.procedure,
            cred: OpaqueAuth { flavor: AUTH_SYS, body: &cred },
            verf: OpaqueAuth { flavor: 0, body: &[] },
        };
        let mut message = encoded(&header);
        message.extend_from_slice(&self.arguments);
        message
    }
}

pub(crate) fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// The xid of a message.
pub(crate) fn xid(message: &[u8]) -> u32 {
    Reader::new(message).u32().unwrap_or(0)
}

/// Whether a message is a call.
pub(crate) fn is_call(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0; 4])
}

/// The results of a reply that must say success.
pub(crate) fn results(reply: &[u8]) -> Checked<&[u8]> {
    match reply.split_at_checked(REPLY_HEADER_BYTES) {
        Some((head, results)) if head.get(4..) == Some(&SUCCESS[..]) => Ok(results),
        _ => Err(format!("an RPC reply that says no success: {reply:?}")),
    }
}

pub(crate) fn unreadable(error: XdrError) -> String {
    format!("a reply cannot be read: {error}")
}
