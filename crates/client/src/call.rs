//! Calls as bytes (RFC 5531 §9) and as records of a stream (§11).

use steadfast_rpc::record::{MARK_BYTES, Mark, fill_in_mark};
use steadfast_wire::rpc::{AUTH_SYS, AuthSys, CallHeader, OpaqueAuth, RPC_VERSION};
use steadfast_xdr::{Encode, Writer};

/// Whom a call claims to come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// `AUTH_NONE`.
    None,
    /// `AUTH_SYS`. More than 16 groups are encoded as given, for the server to refuse.
    Sys {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Supplementary groups.
        gids: Vec<u32>,
    },
    /// Credentials of any flavour and body, for tests of what a server refuses.
    Raw {
        /// The flavour's number.
        flavour: u32,
        /// The body as it is.
        body: Vec<u8>,
    },
}

impl Identity {
    /// `AUTH_SYS` without supplementary groups.
    pub fn user(uid: u32, gid: u32) -> Self {
        Self::Sys { uid, gid, gids: Vec::new() }
    }

    /// Root by `AUTH_SYS`.
    pub fn root() -> Self {
        Self::user(0, 0)
    }

    /// Writes a call's head with these credentials.
    fn head(&self, xid: u32, procedure: Procedure, w: &mut Writer<'_>) {
        let mut body = Vec::new();
        let cred = match self {
            Self::None => OpaqueAuth::NONE,
            Self::Sys { uid, gid, gids } => {
                body.reserve(64);
                AuthSys::new(b"steadfast", *uid, *gid, gids).encode(&mut Writer::new(&mut body));
                OpaqueAuth { flavor: AUTH_SYS, body: &body }
            }
            Self::Raw { flavour, body } => OpaqueAuth { flavor: *flavour, body },
        };
        let Procedure { program: prog, version: vers, number: proc_, .. } = procedure;
        let verf = OpaqueAuth::NONE;
        CallHeader { xid, rpcvers: RPC_VERSION, prog, vers, proc_, cred, verf }.encode(w);
    }
}

/// A procedure of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure's number.
    pub number: u32,
    /// The procedure's name in its RFC, for messages.
    pub name: &'static str,
}

/// Appends a call's message, without record mark.
pub fn append_call(
    message: &mut Vec<u8>,
    xid: u32,
    procedure: Procedure,
    identity: &Identity,
    arguments: &[u8],
) {
    identity.head(xid, procedure, &mut Writer::new(message));
    message.extend_from_slice(arguments);
}

/// Arguments: the bytes that `write` writes.
pub(crate) fn encoded(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    write(&mut Writer::new(&mut bytes));
    bytes
}

/// Appends a call as a record of one fragment, with its mark.
pub fn append_record(
    record: &mut Vec<u8>,
    xid: u32,
    procedure: Procedure,
    identity: &Identity,
    arguments: &[u8],
) {
    let start = record.len();
    record.extend_from_slice(&[0; MARK_BYTES]);
    append_call(record, xid, procedure, identity, arguments);
    fill_in_mark(record.get_mut(start..).unwrap_or(&mut []));
}

/// A call that is built once and sent many times, with another xid, and other arguments where
/// they have a fixed place.
#[derive(Clone, Debug)]
pub struct CallTemplate {
    record: Vec<u8>,
    arguments_at: usize,
}

impl CallTemplate {
    /// A call with these arguments, which `payload_bytes` more bytes will follow on the wire.
    pub fn new(
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
        payload_bytes: usize,
    ) -> Self {
        let mut record = vec![0; MARK_BYTES];
        append_call(&mut record, 0, procedure, identity, arguments);
        let mark = Mark::whole(record.len() - MARK_BYTES + payload_bytes);
        if let Some(place) = record.first_chunk_mut() {
            *place = mark.to_bytes();
        }
        let arguments_at = record.len() - arguments.len();
        Self { record, arguments_at }
    }

    /// The record, with its mark, as it goes on the wire before any payload.
    pub fn record(&self) -> &[u8] {
        &self.record
    }

    /// Where in [`CallTemplate::record`] the arguments begin.
    pub fn arguments_at(&self) -> usize {
        self.arguments_at
    }

    /// Appends the record with this xid.
    pub fn append(&self, xid: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.record);
        if let Some(place) = out.get_mut(start + 4..start + 8) {
            place.copy_from_slice(&xid.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_encoded_as_rfc_5531_says() {
        let procedure = Procedure { program: 100_003, version: 3, number: 1, name: "GETATTR" };
        let mut message = Vec::new();
        append_call(&mut message, 0x0102_0304, procedure, &Identity::None, &[9, 9, 9, 9]);
        let words: Vec<u32> = message
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [0x0102_0304, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 0x0909_0909]);
    }

    #[test]
    fn a_template_patches_the_xid_and_counts_the_payload() {
        let procedure = Procedure { program: 1, version: 2, number: 3, name: "" };
        let template = CallTemplate::new(procedure, &Identity::root(), &[7; 8], 100);
        let mut out = vec![0xff];
        template.append(42, &mut out);
        let record = &out[1..];
        let mark = u32::from_be_bytes(record[..4].try_into().unwrap());
        assert_eq!(mark & 0x7fff_ffff, (record.len() - 4 + 100) as u32);
        assert_eq!(record[4..8], 42_u32.to_be_bytes());
        assert_eq!(record[template.arguments_at()..], [7; 8]);
    }
}
