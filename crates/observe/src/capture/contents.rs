//! What of a message is no content of files: it begins with that, as contents come last, but in COMPOUNDs.
//!
//! [`Limiter`] sees the calls and replies of all connections in their order. It knows NFS 2, 3 and 4, and the programs
//! beside it. Of what it does not know, the head of RPC is left. Symbolic links, names and owners are not contents.
//!
//! What results a reply has is told by who executed its call ([`Executed`]). It is not concluded from a call with the same
//! number: calls are lost, and numbers used again.

use std::collections::HashMap;
use std::net::SocketAddr;

use steadfast_wire::nfs2::NfsFh2;
use steadfast_wire::nfs3::{self, NfsFh3};
use steadfast_wire::recovery::{self, READZ, WRITEZ};
use steadfast_wire::rpc::{CallHeader, RPCSEC_GSS, ReplyHeader, ReplyStatus};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::compound::contents::{self as compound, goes_on};
use super::handle::Names;
use super::messages::{self, Arguments};
use super::programs::{self, COMPOUND, OperationKey};

/// Calls that wait for their replies; twice as many are kept at most.
const CALLS_MAX: usize = 1 << 16;
/// What is left of a message whose head cannot be read.
const HEAD_BYTES: usize = 24;
const FATTR2_BYTES: usize = 68;
const FATTR3_BYTES: usize = 84;

/// A message, as who captures it at the server knows it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The client.
    pub client: SocketAddr,
    /// The address of the server that the client uses.
    pub server: SocketAddr,
    /// Whether the server has sent it.
    pub is_sent: bool,
    /// Its whole length in bytes.
    pub length: usize,
    /// Of a reply of the server: what was executed, if it is known.
    pub executed: Option<Executed>,
    /// What there is of it.
    pub bytes: &'a [u8],
}

/// A procedure that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Number of the procedure.
    pub procedure: u32,
}

/// What is said of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// So many of its first bytes have no contents of files.
    pub head_bytes: usize,
    /// Whether it is a call.
    pub is_call: bool,
    /// Whether it is a call of an operation that was asked for, or the reply to one.
    pub is_wanted: bool,
}

/// What the results of a call have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    NoContents,
    Read2,
    Read3,
    Readz,
    Compound,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    is_wanted: bool,
    /// Whether its program is known.
    is_known: bool,
}

type Key = (SocketAddr, SocketAddr, bool, u32);

/// Tells of each message how much of it is no content.
#[derive(Debug, Default)]
pub struct Limiter {
    names: Names,
    /// Names of operations that are asked for; none for all.
    wanted: Vec<String>,
    young: HashMap<Key, Call>,
    old: HashMap<Key, Call>,
}

impl Limiter {
    /// One that looks for these operations, or for all if there are none.
    pub fn new(wanted: Vec<String>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Looks at the next message.
    pub fn limit(&mut self, message: &Message<'_>) -> Limited {
        let mut words = Reader::new(message.bytes);
        let (Ok(xid), Ok(kind)) = (words.u32(), words.u32()) else {
            let is_wanted = self.wanted.is_empty();
            return Limited { head_bytes: message.bytes.len().min(8), is_call: false, is_wanted };
        };
        // Who is called answers in the other direction.
        let key = |is_sent| (message.client, message.server, is_sent, xid);
        let is_cut = message.bytes.len() < message.length;
        let is_call = kind == 0;
        let (head_bytes, is_wanted) = if is_call {
            let (begin, is_known) = of_call(message.bytes, &mut self.names, is_cut);
            let is_wanted = self.is_wanted(message.bytes);
            self.remember(key(message.is_sent), Call { is_wanted, is_known });
            (begin, is_wanted)
        } else {
            let call = self.take(&key(!message.is_sent));
            let results = match (message.is_sent, message.executed) {
                (true, Some(executed)) => results_of(executed),
                // The server calls its clients by programs without contents alone, whichever call this answers.
                (false, _) if call.is_some_and(|call| call.is_known) => Results::NoContents,
                _ => Results::Unknown,
            };
            let is_wanted = call.map_or(self.wanted.is_empty(), |call| call.is_wanted);
            (of_reply(message.bytes, results, is_cut), is_wanted)
        };
        Limited { head_bytes: head_bytes.min(message.bytes.len()), is_call, is_wanted }
    }

    fn is_wanted(&mut self, bytes: &[u8]) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        let Some((_, call)) = messages::call(bytes, &mut self.names) else { return false };
        let part = |number| OperationKey { is_part: true, number, ..call.key };
        let parts: Vec<OperationKey> = match &call.arguments {
            Arguments::Compound(compound) => compound.numbers().map(part).collect(),
            _ => Vec::new(),
        };
        let names = parts.iter().chain([&call.key]).filter_map(OperationKey::name);
        let is_asked_for =
            |name: &str| self.wanted.iter().any(|one| one.eq_ignore_ascii_case(name));
        names.into_iter().any(is_asked_for)
    }

    fn remember(&mut self, key: Key, call: Call) {
        if self.young.len() >= CALLS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, call);
    }

    fn take(&mut self, key: &Key) -> Option<Call> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }
}

/// Where contents begin in a call, and whether its program is known.
fn of_call(bytes: &[u8], names: &mut Names, is_cut: bool) -> (usize, bool) {
    let all = bytes.len();
    let mut r = Reader::new(bytes);
    let header = match CallHeader::decode(&mut r) {
        Ok(header) => header,
        Err(error) if goes_on(is_cut, error) => return (all, false),
        Err(_) => return (HEAD_BYTES, false),
    };
    let begin = r.position();
    if header.cred.flavor == RPCSEC_GSS || !programs::is_known(header.prog, header.vers) {
        return (begin, false);
    }
    let head_bytes = match (header.prog, header.vers, header.proc_) {
        (nfs3::PROGRAM, 2, 8) => behind::<NfsFh2<'_>>(&mut r, 12 + 4).unwrap_or(all),
        (nfs3::PROGRAM, 3, 7) | (recovery::PROGRAM, 1, WRITEZ) => {
            behind::<NfsFh3<'_>>(&mut r, 8 + 4 + 4 + 4).unwrap_or(begin)
        }
        (nfs3::PROGRAM, 4, COMPOUND) => compound::of_call(&mut r, names, is_cut).unwrap_or(all),
        _ => all,
    };
    (head_bytes, true)
}

/// What the results of a procedure have.
fn results_of(executed: Executed) -> Results {
    let Executed { program, version, procedure } = executed;
    match (program, version, procedure) {
        (nfs3::PROGRAM, 2, 6) => Results::Read2,
        (nfs3::PROGRAM, 3, 6) => Results::Read3,
        (recovery::PROGRAM, 1, READZ) => Results::Readz,
        (nfs3::PROGRAM, 4, COMPOUND) => Results::Compound,
        _ if programs::is_known(program, version) => Results::NoContents,
        _ => Results::Unknown,
    }
}

/// The place so far behind a value.
fn behind<'a, T: Decode<'a>>(r: &mut Reader<'a>, bytes: usize) -> Result<usize, XdrError> {
    T::decode(r).map(|_| r.position() + bytes)
}

/// Where contents begin in the reply to a call.
fn of_reply(bytes: &[u8], results: Results, is_cut: bool) -> usize {
    let all = bytes.len();
    let mut r = Reader::new(bytes);
    let header = match ReplyHeader::decode(&mut r) {
        Ok(header) => header,
        Err(error) if goes_on(is_cut, error) => return all,
        Err(_) => return HEAD_BYTES,
    };
    let begin = r.position();
    // What Kerberos protects is not known.
    let is_protected = matches!(
        header.status,
        ReplyStatus::Accepted { verf, .. } if verf.flavor == RPCSEC_GSS
    );
    if !header.is_success() || is_protected {
        return begin;
    }
    // A failure has no contents.
    let is_read = r.clone().u32().is_ok_and(|status| status == 0);
    match results {
        Results::NoContents => all,
        Results::Unknown => begin,
        Results::Compound => compound::of_reply(&mut r, is_cut).unwrap_or(all),
        Results::Read2 | Results::Read3 | Results::Readz if !is_read => all,
        // Attributes and the length.
        Results::Read2 => begin + 4 + FATTR2_BYTES + 4,
        // Attributes if they are there, count, end and length. READZ tells whether it is compressed, too.
        Results::Read3 | Results::Readz => {
            let _status = r.u32();
            let attributes = match r.bool() {
                Ok(true) => FATTR3_BYTES,
                _ => 0,
            };
            let kind = if results == Results::Readz { 4 } else { 0 };
            begin + 4 + 4 + attributes + 4 + 4 + kind + 4
        }
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
