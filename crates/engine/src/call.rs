//! What goes in and out of [`crate::Engine::call`].

use std::net::SocketAddr;
use std::sync::Arc;

use steadfast_shares::{Flavor, Question};
use steadfast_vfs::{FileRange, Flush, FlushDomain, FsError};

use crate::access_memo::AccessMemo;
use crate::operation::OperationId;
use crate::record;
use crate::reply_cache::Execution;

/// The first port that everybody may use.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// How a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A record of a TCP connection.
    Tcp,
    /// A UDP datagram.
    Udp,
}

/// Who calls, as the socket tells it: one a connection, so that what was found out about the
/// client is known at its next call.
#[derive(Debug)]
pub struct Peer {
    /// The client's address and port.
    pub address: SocketAddr,
    /// Our address and port that it spoke to.
    pub local: SocketAddr,
    /// How.
    pub transport: Transport,
    /// Tells connections apart whose ports are the same: a client that connects again may do so
    /// from its old port. 0 for datagrams.
    number: u64,
    pub(crate) memo: AccessMemo,
}

/// By which way a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    address: SocketAddr,
    transport: Transport,
    number: u64,
}

impl Origin {
    /// The connection's number; of all datagrams the same.
    pub(crate) fn connection(&self) -> u64 {
        self.number
    }
}

/// Where the reply of a call can be sent later, by whoever has it.
pub trait ReplySink: Send {
    /// Sends one RPC message. Never waits: what cannot be sent is lost.
    fn send(self: Box<Self>, reply: &[u8]);
}

impl Peer {
    /// A peer about which nothing is known yet.
    pub fn new(address: SocketAddr, local: SocketAddr, transport: Transport) -> Self {
        Self { address, local, transport, number: 0, memo: AccessMemo::default() }
    }

    /// The same peer on a connection of this number, which no other living one has.
    #[must_use]
    pub fn on_connection(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// The number of the connection, 0 for datagrams.
    pub fn connection(&self) -> u64 {
        self.number
    }

    /// What rules are asked about him when he says who he is by this flavour.
    pub(crate) fn question(&self, flavor: Flavor) -> Question {
        let from_privileged_port = self.address.port() < PRIVILEGED_PORTS_END;
        Question { client: self.address.ip(), flavor, from_privileged_port }
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin { address: self.address, transport: self.transport, number: self.number }
    }
}

/// What a call waits for when it waits for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StorageId(pub u64);

impl StorageId {
    /// All storage of which it is not known yet, or not any more, which it is.
    pub const UNKNOWN: Self = Self(1 << 63);
}

impl From<FlushDomain> for StorageId {
    fn from(domain: FlushDomain) -> Self {
        Self(u64::from(domain.0))
    }
}

/// Whether a call may wait for its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Free,
    /// So many calls do that nobody would be left for calls to other storage: this one is to be
    /// executed again later, from its beginning ([`Verdict::PutOff`]).
    Later,
    /// It has found no place for a while, or none of those has come back meanwhile: its client is
    /// to try later (JUKEBOX).
    None,
}

/// What the engine tells its host while a call runs.
pub trait CallHost {
    /// The call is about to wait for this storage, or might: whether it may. Asked before the host
    /// is told so; what the call changes has not been begun.
    fn room_to_wait(&mut self, _storage: StorageId) -> Room {
        Room::Free
    }

    /// Whether the call is one that was put off before ([`Verdict::PutOff`]), and is executed again.
    fn was_put_off(&self) -> bool {
        false
    }

    /// The call is about to do something that may put the thread to sleep (a change, a cold
    /// read): let others take over the connection's further calls should it last. Cheap; may be
    /// called more than once.
    fn may_block(&mut self);

    /// As [`CallHost::may_block`], for what the kernel most likely has in memory (names, objects):
    /// the thread sleeps so seldom that replies to others may wait for this call.
    fn seldom_blocks(&mut self) {
        self.may_block();
    }

    /// An object is being opened: as [`CallHost::seldom_blocks`], or, while the host finds that
    /// this takes long, as [`CallHost::will_block`].
    fn opens(&mut self) {
        self.will_block();
    }

    /// That object is open, or cannot be opened.
    fn has_opened(&mut self) {}

    /// The call is certain to wait for the disk: others must take over now.
    fn will_block(&mut self);

    /// Where the call's reply can be sent later. Asked for when it is a duplicate of a call that
    /// is being executed; `None`: it gets no reply.
    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        None
    }

    /// Seconds since 1970, for who asks what time it is; `None` if the host has no clock.
    fn unix_time_s(&self) -> Option<u32> {
        None
    }

    /// Whether a connection of the same client address is gone, so that the client of this call may
    /// have been the one that used it (the table in `reply_cache` says what that means). May wait
    /// for the peer of that connection. Seldom asked: both have sent the same call.
    fn is_gone(&mut self, _connection: u64) -> bool {
        true
    }

    /// The call's time is spent on this from here on. The engine has no clock: whoever wants to
    /// know how long a stage lasts looks at one here. Called for every call, so a host that does
    /// not measure this one must return at once.
    fn stage(&mut self, _stage: Stage) {}
}

/// What the time of a call that is being executed is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// RPC header, credentials, duplicate request cache, arguments. Every call begins with it.
    Decode,
    /// The handle's MAC, the share's rights, the caller's identity; for a change also lending
    /// the seat.
    Access,
    /// The storage's operation, and the encoding of its result.
    Storage,
}

/// What the engine found out about a call, for who counts calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFacts {
    /// The client's number for it.
    pub xid: u32,
    /// What was called.
    pub operation: OperationId,
    /// Whether the reply is a failure, of RPC or of the procedure.
    pub is_error: bool,
}

impl Default for CallFacts {
    fn default() -> Self {
        Self { xid: 0, operation: OperationId::OTHER, is_error: false }
    }
}

/// Replies of a batch of calls, in the order in which they are to be sent.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    /// RPC messages (and what the runtime puts between them).
    pub bytes: Vec<u8>,
    /// File ranges that belong into `bytes`: each before the byte of that index. Ascending.
    pub files: Vec<(usize, FileRange)>,
    /// Whether [`ReplyBuffer::files`] may be used (TCP, and the sender can).
    pub may_place_files: bool,
    /// What was wrong with the last call, if anything: to be logged, rate-limited, with the
    /// peer's address. The engine sets it, the runtime takes it.
    pub complaint: Option<Complaint>,
    /// What is known of the last call. The engine sets it.
    pub facts: CallFacts,
}

impl ReplyBuffer {
    /// Bytes of all replies, file ranges included.
    pub fn length(&self) -> usize {
        let files: usize = self.files.iter().map(|(_, range)| range.length as usize).sum();
        self.bytes.len() + files
    }
}

/// What a peer did wrong in a call that was answered all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Complaint {
    /// Arguments that could not be decoded.
    #[error("sent {operation} arguments that could not be decoded (program {program})")]
    GarbageArguments {
        /// RPC program.
        program: u32,
        /// The procedure's name in its RFC.
        operation: &'static str,
    },
    /// Credentials that could not be decoded or are not served.
    #[error(
        "sent credentials of flavour {flavour}, or a verifier, that are malformed or not served"
    )]
    BadCredentials {
        /// RPC authentication flavour.
        flavour: u32,
    },
    /// Another RPC version than 2.
    #[error("speaks RPC version {version}, which nobody does")]
    RpcVersion {
        /// The version.
        version: u32,
    },
    /// A handle whose MAC is not ours.
    #[error("sent a handle that this server did not make")]
    ForgedHandle,
    /// Nothing wrong: its call could not wait for its storage ([`Room::None`]).
    #[error(
        "is told to try later (JUKEBOX): so many calls wait for disks that one for share {path} \
         found no place; look whether its disk, or another, hangs"
    )]
    StorageHangs {
        /// The share's path.
        path: Arc<str>,
    },
    /// A mount that was refused, and why.
    #[error("may not mount {path:?}: {why}")]
    MountRefused {
        /// What it asked for, as far as it is told.
        path: String,
        /// Why.
        why: MountRefusal,
    },
    /// A change for which the file system has no room.
    #[error("was refused {operation} on share {path:?}: {why}")]
    NoRoom {
        /// The procedure's name in its RFC.
        operation: &'static str,
        /// The share's path.
        path: Arc<str>,
        /// What there is not enough of.
        why: &'static str,
    },
}

/// Why a mount was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MountRefusal {
    /// There is no such share.
    #[error("there is no share of this path; `steadfast share list` has them")]
    NoShare,
    /// The share takes no new clients.
    #[error("the share takes no new clients (draining)")]
    Draining,
    /// No rule of the share is for this client.
    #[error(
        "no rule of the share gives this client access; `steadfast share explain CLIENT PATH` says \
         what decides"
    )]
    NoAccess,
    /// The path leads nowhere within the share.
    #[error("there is no such directory in the share: {0}")]
    NoDirectory(FsError),
    /// It cannot be said now.
    #[error("its names are not known yet, or its disk is not there: {0}")]
    NotNow(FsError),
    /// Something else is wrong.
    #[error("{0}")]
    Failed(FsError),
}

/// Why a connection must be closed: what follows in the stream cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HangUp {
    /// Too short to be an RPC message, or not a call.
    #[error("sent something that is not an RPC call")]
    NotACall,
}

/// What became of a call.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// One reply was appended.
    Replied,
    /// The call may not wait for its storage now ([`Room::Later`]), and has changed nothing. The
    /// host executes it again later, telling so ([`CallHost::was_put_off`]), or has its client told
    /// to try later ([`crate::Engine::refuse`]). Until then its duplicates find it in progress.
    PutOff(PutOffCall),
    /// The reply waits for stability: meet the obligation, then [`crate::Engine::settle`].
    Parked(ParkedCall),
    /// No reply is due (a duplicate of a call still in progress).
    Silent,
    /// Close the connection (TCP) or drop the datagram (UDP).
    HangUp(HangUp),
}

/// A call that was put off.
#[derive(Debug)]
pub struct PutOffCall {
    /// The reply that tells its client to try later.
    pub(crate) reply: Vec<u8>,
    /// Under which the duplicate request cache has it in progress.
    pub(crate) key: Option<Execution>,
}

impl PutOffCall {
    /// A call that no engine put off, for tests of whoever executes it again.
    pub fn for_test(reply: Vec<u8>) -> Self {
        Self { reply, key: None }
    }

    /// The reply that tells its client to try later, for the same tests.
    pub fn reply(&self) -> &[u8] {
        &self.reply
    }
}

/// What a parked call waits for.
#[derive(Debug)]
pub enum Awaited {
    /// Objects must be flushed.
    Flush(Flush),
    /// The intent log must be stable up to this LSN.
    Lsn(u64),
}

/// A call that was executed, and whose reply waits until what it tells is stable.
#[derive(Debug)]
pub struct ParkedCall {
    /// What must come first.
    pub awaited: Awaited,
    /// The reply for success.
    pub(crate) reply: Vec<u8>,
    /// Whether its last eight bytes are the write verifier.
    pub(crate) ends_with_verifier: bool,
    /// What the reply for failure is made of.
    pub(crate) xid: u32,
    /// See [`crate::operation::Operation::failure_words`].
    pub(crate) failure_words: usize,
    /// Under which the duplicate request cache expects the reply.
    pub(crate) key: Option<Execution>,
}

impl ParkedCall {
    /// A parked call that no engine made, for tests of whoever meets obligations.
    pub fn for_test(awaited: Awaited, reply: Vec<u8>) -> Self {
        Self { awaited, reply, ends_with_verifier: false, xid: 0, failure_words: 0, key: None }
    }

    /// The reply for success, for the same tests.
    pub fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// What a record of the log is to have for this call, which was flushed and has none: the call and
    /// its reply for success. `None` if the call may be executed again.
    pub fn behind_change(&self) -> Option<Vec<u8>> {
        let key = self.key.as_ref().filter(|_| !self.ends_with_verifier)?;
        let mut behind = Vec::new();
        record::append(&mut behind, Some(&key.key), &self.reply);
        record::call_of(&behind).is_some().then_some(behind)
    }
}
