//! NLM, version 4 (RFC 1813 appendix II): locks of NFSv3 clients.
//!
//! No call here asks the server to call back (GRANTED): a client that waits asks again.

use steadfast_wire::nlm::v4::{LockArgs, Res, TestArgs, TestRes, UnlockArgs};
use steadfast_wire::nlm::{self, v1, v4};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use crate::call::{Identity, Procedure, encoded};
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::transport::RpcTransport;

pub use steadfast_wire::nlm::NlmStat;

/// The RPC program of NLM.
pub const NLM: u32 = nlm::PROGRAM;

const fn nlm4(number: u32, name: &'static str) -> Procedure {
    Procedure { program: NLM, version: 4, number, name }
}

/// NULL.
pub const NULL: Procedure = nlm4(0, "NULL");
/// TEST.
pub const TEST: Procedure = nlm4(1, "TEST");
/// LOCK.
pub const LOCK: Procedure = nlm4(2, "LOCK");
/// UNLOCK.
pub const UNLOCK: Procedure = nlm4(4, "UNLOCK");
/// `NM_LOCK`: LOCK of a client that nobody monitors.
pub const NM_LOCK: Procedure = nlm4(22, "NM_LOCK");
/// `FREE_ALL`.
pub const FREE_ALL: Procedure = nlm4(23, "FREE_ALL");

/// A range of a file, and who locks it.
#[derive(Clone, Copy, Debug)]
pub struct Lock<'a> {
    /// The client's name for itself.
    pub caller_name: &'a [u8],
    /// The file.
    pub file: &'a FileHandle,
    /// The owner; the client alone knows what it means.
    pub owner: &'a [u8],
    /// The owner's number. Some servers compare owners by it alone.
    pub number: u32,
    /// The first byte.
    pub offset: u64,
    /// How many bytes. 0 stands for all that follow.
    pub length: u64,
}

impl<'a> Lock<'a> {
    fn wire(&self) -> v4::Lock<'a> {
        v4::Lock {
            caller_name: self.caller_name,
            fh: self.file.as_bytes(),
            oh: self.owner,
            svid: self.number,
            offset: self.offset,
            length: self.length,
        }
    }
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// A write lock.
    pub is_exclusive: bool,
    /// The client had it before the server restarted.
    pub is_reclaim: bool,
    /// The server is not to watch whether the client restarts (`NM_LOCK`).
    pub is_unmonitored: bool,
}

/// A lock that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// A write lock.
    pub is_exclusive: bool,
    /// The owner's number.
    pub number: u32,
    /// The owner.
    pub owner: Vec<u8>,
    /// The first byte.
    pub offset: u64,
    /// How many bytes. 0 stands for all that follow.
    pub length: u64,
}

/// What TEST tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tested {
    /// This lock is in the way.
    Held(Holder),
    /// The lock can be had ([`NlmStat::Granted`]), or why nobody knows.
    Other(NlmStat),
}

/// Calls come from one connection each in its turn, so the cookie need not tell results apart.
const COOKIE: &[u8] = b"sf";

fn decoded<'r, T: Decode<'r>>(procedure: Procedure, bytes: &'r [u8]) -> Result<T, ClientError> {
    let procedure = procedure.name;
    let mut r = Reader::new(bytes);
    let told = T::decode(&mut r).map_err(|error| ClientError::Malformed { procedure, error })?;
    match r.remaining() {
        0 => Ok(told),
        bytes => Err(ClientError::TrailingBytes { procedure, bytes }),
    }
}

fn status(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    procedure: Procedure,
    arguments: &impl Encode,
) -> Result<NlmStat, ClientError> {
    let arguments = encoded(|w: &mut Writer<'_>| arguments.encode(w));
    let results = transport.call(procedure, identity, &arguments)?;
    decoded::<Res<'_>>(procedure, &results).map(|res| res.stat)
}

/// NULL: whether the server has NLM 4 at this port.
///
/// # Errors
/// See [`ClientError`]; [`ClientError::is_program_unavailable`] if it has not.
pub fn null(transport: &mut impl RpcTransport) -> Result<(), ClientError> {
    transport.call(NULL, &Identity::None, &[]).map(drop)
}

/// TEST: which lock is in the way of this one.
///
/// # Errors
/// See [`ClientError`].
pub fn test(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    lock: &Lock<'_>,
    is_exclusive: bool,
) -> Result<Tested, ClientError> {
    let arguments = TestArgs { cookie: COOKIE, exclusive: is_exclusive, lock: lock.wire() };
    let arguments = encoded(|w: &mut Writer<'_>| arguments.encode(w));
    let results = transport.call(TEST, identity, &arguments)?;
    Ok(match decoded(TEST, &results)? {
        TestRes::Denied { holder, .. } => Tested::Held(Holder {
            is_exclusive: holder.exclusive,
            number: holder.svid,
            owner: holder.oh.to_vec(),
            offset: holder.offset,
            length: holder.length,
        }),
        TestRes::Other(res) => Tested::Other(res.stat),
    })
}

/// LOCK or `NM_LOCK`, which does not wait: a lock that another owner has is [`NlmStat::Denied`].
///
/// # Errors
/// See [`ClientError`].
pub fn lock(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    lock: &Lock<'_>,
    how: How,
) -> Result<NlmStat, ClientError> {
    let arguments = LockArgs {
        cookie: COOKIE,
        block: false,
        exclusive: how.is_exclusive,
        lock: lock.wire(),
        reclaim: how.is_reclaim,
        // Of a client without a monitor. Steadfast frees its locks by its name; other servers may do so only when its
        // host's monitor tells them of a restart.
        state: 0,
    };
    let procedure = if how.is_unmonitored { NM_LOCK } else { LOCK };
    status(transport, identity, procedure, &arguments)
}

/// UNLOCK. A range that nobody has locked is [`NlmStat::Granted`], too.
///
/// # Errors
/// See [`ClientError`].
pub fn unlock(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    lock: &Lock<'_>,
) -> Result<NlmStat, ClientError> {
    status(transport, identity, UNLOCK, &UnlockArgs { cookie: COOKIE, lock: lock.wire() })
}

/// `FREE_ALL`: all locks of a client are freed. A server may go by the address instead of the name, and
/// free those of other clients at the same address.
///
/// # Errors
/// See [`ClientError`].
pub fn free_all(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    name: &[u8],
) -> Result<(), ClientError> {
    let arguments = v1::Notify { name, state: 0 };
    let arguments = encoded(|w: &mut Writer<'_>| arguments.encode(w));
    transport.call(FREE_ALL, identity, &arguments).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Reply, ReplyBody};

    /// A server that answers with these results, and keeps what it was asked.
    struct Server {
        results: Vec<u8>,
        asked: Vec<(Procedure, Vec<u8>)>,
    }

    impl Server {
        fn new(results: Vec<u8>) -> Self {
            Self { results, asked: Vec::new() }
        }
    }

    impl RpcTransport for Server {
        fn exchange(
            &mut self,
            procedure: Procedure,
            _: &Identity,
            arguments: &[u8],
        ) -> Result<Reply, ClientError> {
            self.asked.push((procedure, arguments.to_vec()));
            let body = ReplyBody::Success { results_at: 0 };
            Ok(Reply { xid: 0, message: self.results.clone(), body })
        }
    }

    fn a_lock(file: &FileHandle) -> Lock<'_> {
        Lock { caller_name: b"name", file, owner: b"owner", number: 7, offset: 1, length: 0 }
    }

    #[test]
    fn a_lock_is_asked_for_without_waiting() {
        let res = Res { cookie: COOKIE, stat: NlmStat::Denied };
        let mut server = Server::new(encoded(|w: &mut Writer<'_>| res.encode(w)));
        let file = FileHandle(vec![1, 2, 3, 4]);
        for is_unmonitored in [false, true] {
            let how = How { is_exclusive: true, is_reclaim: true, is_unmonitored };
            let told = lock(&mut server, &Identity::root(), &a_lock(&file), how).unwrap();
            assert_eq!(told, NlmStat::Denied);
        }
        let numbers: Vec<_> = server.asked.iter().map(|(procedure, _)| procedure.number).collect();
        assert_eq!(numbers, [2, 22]);
        let asked: LockArgs<'_> = decoded(LOCK, &server.asked[0].1).unwrap();
        assert!(!asked.block && asked.exclusive && asked.reclaim);
        assert_eq!((asked.lock.svid, asked.lock.offset, asked.lock.length), (7, 1, 0));
        assert_eq!((asked.lock.fh, asked.lock.caller_name), (&[1, 2, 3, 4][..], &b"name"[..]));
    }

    #[test]
    fn a_holder_is_told_and_nonsense_is_refused() {
        let holder = v4::Holder { exclusive: true, svid: 3, oh: b"o", offset: 5, length: 6 };
        let res = TestRes::Denied { cookie: COOKIE, holder };
        let mut server = Server::new(encoded(|w: &mut Writer<'_>| res.encode(w)));
        let file = FileHandle(vec![9]);
        let told = test(&mut server, &Identity::root(), &a_lock(&file), true).unwrap();
        let Tested::Held(told) = told else { panic!("{told:?}") };
        assert_eq!((told.number, told.offset, told.length), (3, 5, 6));
        server.results.push(0);
        assert!(test(&mut server, &Identity::root(), &a_lock(&file), true).is_err());
        server.results.truncate(3);
        assert!(unlock(&mut server, &Identity::root(), &a_lock(&file)).is_err());
    }
}
