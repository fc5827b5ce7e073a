//! Unit ring. NLM and NSM through the bytes of their messages: each procedure, each status, both widths, both
//! forms. Ring: unit.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_engine::{
    CallHost, Complaint, Engine, EngineConfig, Export, ExportTable, LockRefusal, Outbound,
    OutboundCall, Peer, ReplyBuffer, Room, StorageId, SuspendedCall, Transport, Transports,
    Verdict,
};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::model::ModelFs;
use steadfast_vfs::{FileSystem, FlushDomain, FsError, StorageSource};
use steadfast_wire::nlm::{NlmStat, ShareAccess, ShareMode, v1, v4};
use steadfast_wire::nsm;
use steadfast_xdr::{Decode, Encode, Reader, Writer};

mod monitor;
mod reservations;

const NLM: u32 = steadfast_wire::nlm::PROGRAM;
const NSM: u32 = nsm::PROGRAM;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// How many bytes precede the results of an accepted call.
const HEADER_BYTES: usize = 24;

/// A host with this much room for who waits for storage.
struct Host(Room);

impl CallHost for Host {
    fn room_to_wait(&mut self, _: StorageId) -> Room {
        self.0
    }

    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

/// A file system that may have to be opened first.
struct Disk {
    storage: ModelFs,
    is_asleep: AtomicBool,
}

impl StorageSource for Disk {
    fn opened(&self) -> Option<&dyn FileSystem> {
        (!self.is_asleep.load(Ordering::Relaxed)).then_some(&self.storage as _)
    }

    fn open(&self) -> Result<&dyn FileSystem, FsError> {
        Ok(&self.storage)
    }

    fn expected_domain(&self) -> Option<FlushDomain> {
        Some(self.storage.domain())
    }
}

/// Notes what it is to send and to record.
#[derive(Default)]
struct Sent {
    calls: Mutex<Vec<OutboundCall>>,
    recorded: Mutex<Vec<Vec<u8>>>,
    is_disk_full: AtomicBool,
}

impl Outbound for Sent {
    fn send(&self, call: OutboundCall) {
        self.calls.lock().unwrap().push(call);
    }

    fn record(&self, name: &[u8], _: IpAddr) -> bool {
        self.recorded.lock().unwrap().push(name.to_vec());
        !self.is_disk_full.load(Ordering::Relaxed)
    }

    fn own_name(&self) -> &'static str {
        "server"
    }

    fn state_number(&self) -> u32 {
        5
    }
}

struct Server {
    engine: Engine,
    /// With the share `/a`.
    disk: Arc<Disk>,
    /// For who waits for it.
    room: Cell<Room>,
    sent: Arc<Sent>,
    xid: Cell<u32>,
    now_ms: Cell<u64>,
    /// Of the last call.
    complaint: RefCell<Option<Complaint>>,
}

fn xdr(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn peer(address: &str, transport: Transport) -> Peer {
    Peer::new(
        format!("{address}:700").parse().unwrap(),
        "10.0.0.254:2049".parse().unwrap(),
        transport,
    )
}

fn export(id: u64, path: &str, is_read_only: bool, storage: &Arc<Disk>) -> Export {
    let rights = Rights { squash: Squash::None, is_read_only, ..Rights::default() };
    let rule = ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) };
    let share = Share {
        id: ShareId(id),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(vec![rule].into()),
    };
    Export { share: Arc::new(share), storage: Arc::clone(storage) as _ }
}

impl Server {
    fn new() -> Self {
        let config = EngineConfig {
            instance: 1,
            nfs2: true,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: false,
            handle_key: [3; 16],
            write_verifier: 1,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let disk = |id| {
            let (storage, is_asleep) = (ModelFs::new(id, 0o777), AtomicBool::new(false));
            Arc::new(Disk { storage, is_asleep })
        };
        let (disk, other) = (disk(1), disk(2));
        let exports = vec![export(1, "/a", false, &disk), export(2, "/ro", true, &other)];
        let engine = Engine::new(config, ExportTable::new(exports));
        let sent = Arc::new(Sent::default());
        engine.set_outbound(Arc::clone(&sent) as _);
        let (room, xid, now_ms) = (Cell::new(Room::Free), Cell::new(0), Cell::new(0));
        let complaint = RefCell::default();
        Self { engine, disk, room, sent, xid, now_ms, complaint }
    }

    /// A call by a user.
    fn message_of(
        &self,
        uid: u32,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
    ) -> Vec<u8> {
        self.xid.set(self.xid.get() + 1);
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        let words = [self.xid.get(), 0, 2, program, version, procedure, 1, 20, 0, 0, uid, uid, 0];
        for word in words.into_iter().chain([0, 0]) {
            w.u32(word);
        }
        message.extend_from_slice(arguments);
        message
    }

    /// The results of a call by a user.
    fn call_as(
        &self,
        uid: u32,
        peer: &Peer,
        numbers: (u32, u32, u32),
        arguments: &[u8],
    ) -> Vec<u8> {
        self.send(peer, &self.message_of(uid, numbers, arguments)).unwrap()
    }

    /// The results of a call; `Err` if it has none, with what is to be done with it later.
    fn send(&self, peer: &Peer, message: &[u8]) -> Result<Vec<u8>, Option<SuspendedCall>> {
        let mut reply = ReplyBuffer::default();
        let (now_ms, mut host) = (self.now_ms.get(), Host(self.room.get()));
        let verdict = self.engine.call(&mut host, peer, now_ms, message, &mut reply);
        *self.complaint.borrow_mut() = reply.complaint.take();
        match verdict {
            Verdict::Replied => Ok(reply.bytes.split_off(HEADER_BYTES)),
            Verdict::Parked(call) => {
                let mut bytes = Vec::new();
                self.engine.settle(call, Ok(()), now_ms, &mut bytes);
                Ok(bytes.split_off(HEADER_BYTES))
            }
            Verdict::Silent => Err(None),
            Verdict::Suspended(call) => Err(Some(call)),
            other @ Verdict::HangUp(_) => panic!("{other:?}"),
        }
    }

    fn call(&self, peer: &Peer, numbers: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        self.call_as(0, peer, numbers, arguments)
    }

    fn root(&self, path: &[u8]) -> Vec<u8> {
        let mut arguments = Vec::new();
        Writer::new(&mut arguments).opaque(path);
        let reply = self.call(&peer("10.0.0.1", Transport::Tcp), (MOUNT, 3, 1), &arguments);
        Reader::new(&reply[4..]).opaque(64).unwrap().to_vec()
    }

    /// The handle of a new file in `/a`, which belongs to root and has this mode.
    fn file(&self, name: &[u8], mode: u32) -> Vec<u8> {
        let mut arguments = Vec::new();
        let mut w = Writer::new(&mut arguments);
        w.opaque(&self.root(b"/a"));
        w.opaque(name);
        for word in [0, 1, mode, 0, 0, 0, 0, 0] {
            w.u32(word);
        }
        let reply = self.call(&peer("10.0.0.1", Transport::Tcp), (NFS, 3, 8), &arguments);
        let mut r = Reader::new(&reply);
        assert_eq!((r.u32(), r.bool()), (Ok(0), Ok(true)));
        r.opaque(64).unwrap().to_vec()
    }

    fn stat(&self, client: &Client, version: u32, procedure: u32, arguments: &[u8]) -> NlmStat {
        let reply = self.call(&client.peer, (NLM, version, procedure), arguments);
        let mut r = Reader::new(&reply);
        let res = v4::Res::decode(&mut r).unwrap();
        assert_eq!(res.cookie, b"cook");
        res.stat
    }

    fn lock(&self, client: &Client, svid: u32, exclusive: bool, block: bool) -> NlmStat {
        self.stat(client, 4, 2, &xdr(&client.lock_args(svid, exclusive, block)))
    }

    fn unlock(&self, client: &Client, svid: u32) -> NlmStat {
        self.stat(client, 4, 4, &xdr(&v4::UnlockArgs { cookie: b"cook", lock: client.lock(svid) }))
    }

    fn sent(&self) -> Vec<OutboundCall> {
        std::mem::take(&mut *self.sent.calls.lock().unwrap())
    }
}

/// A host with a file that it locks.
struct Client {
    name: &'static str,
    peer: Peer,
    handle: Vec<u8>,
}

impl Client {
    fn new(number: u8, name: &'static str, handle: &[u8]) -> Self {
        let peer = peer(&format!("10.0.0.{number}"), Transport::Tcp);
        Self { name, peer, handle: handle.to_vec() }
    }

    fn lock(&self, svid: u32) -> v4::Lock<'_> {
        let (caller_name, fh) = (self.name.as_bytes(), &*self.handle);
        v4::Lock { caller_name, fh, oh: b"owner", svid, offset: 5, length: 0 }
    }

    fn lock_args(&self, svid: u32, exclusive: bool, block: bool) -> v4::LockArgs<'_> {
        let lock = self.lock(svid);
        v4::LockArgs { cookie: b"cook", block, exclusive, lock, reclaim: false, state: 3 }
    }

    fn test_args(&self, svid: u32, exclusive: bool) -> v4::TestArgs<'_> {
        v4::TestArgs { cookie: b"cook", exclusive, lock: self.lock(svid) }
    }
}

fn two() -> (Server, Client, Client) {
    let server = Server::new();
    let handle = server.file(b"f", 0o666);
    let clients = (Client::new(1, "one", &handle), Client::new(2, "two", &handle));
    (server, clients.0, clients.1)
}

#[test]
fn a_lock_excludes_others_until_it_is_given_up() {
    let (server, one, two) = two();
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(server.lock(&two, 1, false, false), NlmStat::Denied);
    let tested = server.call(&two.peer, (NLM, 4, 1), &xdr(&two.test_args(1, false)));
    let holder = v4::Holder { exclusive: true, svid: 1, oh: b"owner", offset: 5, length: 0 };
    let denied = v4::TestRes::Denied { cookie: b"cook", holder };
    assert_eq!(v4::TestRes::decode(&mut Reader::new(&tested)), Ok(denied));
    assert_eq!(server.unlock(&one, 1), NlmStat::Granted);
    assert_eq!(server.stat(&two, 4, 1, &xdr(&two.test_args(1, true))), NlmStat::Granted);
    assert_eq!(server.lock(&two, 1, false, false), NlmStat::Granted);
    assert_eq!(server.lock(&one, 1, false, false), NlmStat::Granted);
    // Each host is recorded once, before its first lock.
    let recorded = server.sent.recorded.lock().unwrap().clone();
    assert_eq!(recorded, [b"one", b"two"]);
    assert_eq!(server.engine.hosts_with_locks().len(), 2);
}

#[test]
fn who_waits_is_told_when_it_has_the_lock() {
    let (server, one, two) = two();
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(server.lock(&two, 9, true, true), NlmStat::Blocked);
    assert!(server.sent().is_empty());
    assert_eq!(server.unlock(&one, 1), NlmStat::Granted);
    let sent = server.sent();
    let [call] = &*sent else { panic!("{sent:?}") };
    assert_eq!(
        (call.to.to_string(), call.from.to_string(), call.transport),
        ("10.0.0.2".to_owned(), "10.0.0.254".to_owned(), Transport::Tcp)
    );
    assert_eq!((call.program, call.version, call.procedure), (NLM, 4, 5));
    let granted = v4::TestArgs::decode(&mut Reader::new(&call.arguments)).unwrap();
    assert_eq!(granted.lock, v4::Lock { caller_name: b"server", ..two.lock(9) });
    assert!(granted.exclusive);
    let grant = call.grant.as_ref().unwrap();
    assert!(server.engine.is_grant_unanswered(grant));
    assert!(server.engine.answer_grant(grant, b"nonsense").is_err());
    assert!(server.engine.is_grant_unanswered(grant));
    let res = |stat| xdr(&v4::Res { cookie: granted.cookie, stat });
    server.engine.answer_grant(grant, &res(NlmStat::Granted)).unwrap();
    assert!(!server.engine.is_grant_unanswered(grant));
    assert_eq!(server.lock(&one, 1, true, true), NlmStat::Blocked);
    assert_eq!(server.unlock(&two, 9), NlmStat::Granted);

    // A client that does not want it any more does not keep it.
    let grant = server.sent().pop().unwrap().grant.unwrap();
    assert!(server.engine.begin_call_about_grant(&grant));
    server.engine.answer_grant(&grant, &res(NlmStat::Denied)).unwrap();
    assert_eq!(server.lock(&two, 9, true, false), NlmStat::Granted);
}

#[test]
fn who_cancels_is_not_told() {
    let (server, one, two) = two();
    let cancel = |exclusive| {
        let lock = two.lock(9);
        let cancel = v4::CancelArgs { cookie: b"cook", block: true, exclusive, lock };
        server.stat(&two, 4, 3, &xdr(&cancel))
    };
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(server.lock(&two, 9, true, true), NlmStat::Blocked);
    assert_eq!(cancel(false), NlmStat::Denied);
    assert_eq!(cancel(true), NlmStat::Granted);
    assert_eq!(cancel(true), NlmStat::Denied);
    assert_eq!(server.unlock(&one, 1), NlmStat::Granted);
    assert!(server.sent().is_empty());
    assert!(server.engine.hosts_with_locks().is_empty());
}

#[test]
fn who_finds_no_place_to_wait_is_told_to_ask_again() {
    let (server, one, two) = two();
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    for svid in 0..64 {
        assert_eq!(server.lock(&two, svid, true, true), NlmStat::Blocked);
    }
    // Linux tries again after this, and gives «no locks» to the program.
    let three = Client::new(3, "three", &one.handle);
    assert_eq!(server.lock(&two, 64, true, true), NlmStat::DeniedGracePeriod);
    assert_eq!(server.lock(&three, 1, true, true), NlmStat::DeniedGracePeriod);
    assert_eq!(server.lock(&three, 1, true, false), NlmStat::Denied);
}

#[test]
fn versions_1_and_3_have_numbers_of_32_bits() {
    let (server, one, two) = two();
    for version in [1, 3] {
        let lock = |client: &Client, block| {
            let v4::LockArgs { cookie, exclusive, lock, reclaim, state, .. } =
                client.lock_args(1, true, block);
            let lock = lock.into();
            xdr(&v1::LockArgs { cookie, block, exclusive, lock, reclaim, state })
        };
        assert_eq!(server.stat(&one, version, 2, &lock(&one, false)), NlmStat::Granted);
        assert_eq!(server.stat(&two, version, 2, &lock(&two, true)), NlmStat::Blocked);
        let v4::TestArgs { cookie, exclusive, lock: wide } = two.test_args(1, true);
        let test = xdr(&v1::TestArgs { cookie, exclusive, lock: wide.into() });
        let tested = server.call(&two.peer, (NLM, version, 1), &test);
        let holder = v1::Holder { exclusive: true, svid: 1, oh: b"owner", offset: 5, length: 0 };
        let denied = v1::TestRes::Denied { cookie: b"cook", holder };
        assert_eq!(v1::TestRes::decode(&mut Reader::new(&tested)), Ok(denied));
        let unlock = |client: &Client| {
            let lock = client.lock(1).into();
            xdr(&v1::UnlockArgs { cookie: b"cook", lock })
        };
        assert_eq!(server.stat(&one, version, 4, &unlock(&one)), NlmStat::Granted);
        let call = server.sent().pop().unwrap();
        assert_eq!(call.version, version);
        let granted = v1::TestArgs::decode(&mut Reader::new(&call.arguments)).unwrap();
        assert_eq!((granted.lock.svid, granted.lock.offset, granted.lock.length), (1, 5, 0));
        assert_eq!(server.stat(&two, version, 4, &unlock(&two)), NlmStat::Granted);
        // Statuses that they do not know.
        let forged = Client::new(1, "one", b"forged");
        let lock = lock(&forged, false);
        assert_eq!(server.stat(&forged, version, 2, &lock), NlmStat::DeniedNoLocks);
    }
}

#[test]
fn a_grant_of_32_bits_has_the_numbers_of_the_request() {
    let (server, one, two) = two();
    for (offset, length) in [(10, u32::MAX), (u32::MAX, u32::MAX), (0, 0), (3, 4)] {
        let lock = |client: &Client, block| {
            let v4::LockArgs { cookie, exclusive, lock, reclaim, state, .. } =
                client.lock_args(1, true, block);
            let lock = v1::Lock { offset, length, ..lock.into() };
            xdr(&v1::LockArgs { cookie, block, exclusive, lock, reclaim, state })
        };
        assert_eq!(server.stat(&one, 3, 2, &lock(&one, false)), NlmStat::Granted);
        assert_eq!(server.stat(&two, 3, 2, &lock(&two, true)), NlmStat::Blocked);
        for client in [&one, &two] {
            let lock = v1::Lock { offset, length, ..client.lock(1).into() };
            let unlock = xdr(&v1::UnlockArgs { cookie: b"cook", lock });
            assert_eq!(server.stat(client, 3, 4, &unlock), NlmStat::Granted);
        }
        let call = server.sent().pop().unwrap();
        let granted = v1::TestArgs::decode(&mut Reader::new(&call.arguments)).unwrap();
        assert_eq!((granted.lock.offset, granted.lock.length), (offset, length));
    }
}

#[test]
fn messages_get_their_results_by_a_call() {
    let (server, one, _) = two();
    let empty = |procedure, arguments: &[u8]| {
        assert!(server.call(&one.peer, (NLM, 4, procedure), arguments).is_empty());
        server.sent().pop()
    };
    let result = |call: OutboundCall, procedure| {
        assert_eq!((call.version, call.procedure), (4, procedure));
        assert!(call.grant.is_none() && call.to.to_string() == "10.0.0.1");
        let res = v4::Res::decode(&mut Reader::new(&call.arguments)).unwrap();
        assert_eq!(res.cookie, b"cook");
        res.stat
    };
    let lock = xdr(&one.lock_args(1, true, false));
    assert_eq!(result(empty(7, &lock).unwrap(), 12), NlmStat::Granted);
    let test = xdr(&one.test_args(2, true));
    assert_eq!(result(empty(6, &test).unwrap(), 11), NlmStat::Denied);
    let cancel =
        v4::CancelArgs { cookie: b"cook", block: true, exclusive: true, lock: one.lock(1) };
    assert_eq!(result(empty(8, &xdr(&cancel)).unwrap(), 13), NlmStat::Denied);
    let unlock = xdr(&v4::UnlockArgs { cookie: b"cook", lock: one.lock(1) });
    assert_eq!(result(empty(9, &unlock).unwrap(), 14), NlmStat::Granted);
    // What is said to clients is nothing to a server.
    assert_eq!(server.stat(&one, 4, 5, &test), NlmStat::Denied);
    for procedure in 10..=15 {
        assert!(empty(procedure, &test).is_none());
    }
}

#[test]
fn statuses_say_why_there_is_no_lock() {
    let (server, one, _) = two();
    let lock =
        |handle: &[u8], exclusive| server.lock(&Client::new(1, "one", handle), 1, exclusive, false);
    assert_eq!(lock(b"forged", false), NlmStat::StaleHandle);
    assert_eq!(lock(&server.root(b"/a"), false), NlmStat::Failed);
    let read_only = server.root(b"/ro");
    assert_eq!(lock(&read_only, true), NlmStat::ReadOnlyFs);
    assert_eq!(lock(&read_only, false), NlmStat::Failed, "a directory");
    let mut args = one.lock_args(1, true, false);
    (args.lock.offset, args.lock.length) = (u64::MAX, 2);
    assert_eq!(server.stat(&one, 4, 2, &xdr(&args)), NlmStat::TooBig);
    // Who may read may lock, and who may write may lock for writing; the owner may anyhow.
    let by = |uid, mode: u32, exclusive| {
        let name = format!("{uid}-{mode:o}-{exclusive}");
        let client = Client::new(1, "one", &server.file(name.as_bytes(), mode));
        let args = xdr(&client.lock_args(1, exclusive, false));
        let reply = server.call_as(uid, &client.peer, (NLM, 4, 2), &args);
        v4::Res::decode(&mut Reader::new(&reply)).unwrap().stat
    };
    assert_eq!(by(1000, 0o600, false), NlmStat::Failed);
    assert_eq!(by(1000, 0o604, true), NlmStat::Granted);
    assert_eq!(by(1000, 0o602, true), NlmStat::Granted);
    assert_eq!(by(1000, 0o602, false), NlmStat::Failed);
    assert_eq!(by(0, 0, true), NlmStat::Granted);
    server.sent.is_disk_full.store(true, Ordering::Relaxed);
    let two = Client::new(2, "two", &server.file(b"disk", 0o666));
    assert_eq!(server.lock(&two, 1, true, false), NlmStat::DeniedNoLocks);
}

/// A user of Linux is told ENOLCK and nothing else.
#[test]
fn why_there_is_no_lock_is_logged() {
    let (server, one, two) = two();
    let complaint = || server.complaint.borrow_mut().take();
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(complaint(), None);
    assert_eq!(server.lock(&two, 1, true, false), NlmStat::Denied, "nobody's fault");
    assert_eq!(complaint(), None);
    let refused = |why| Some(Complaint::LockRefused { operation: "LOCK", why });
    let directory = Client::new(1, "one", &server.root(b"/a"));
    assert_eq!(server.lock(&directory, 1, false, false), NlmStat::Failed);
    assert_eq!(complaint(), refused(LockRefusal::NoRight));
    server.sent.is_disk_full.store(true, Ordering::Relaxed);
    let three = Client::new(3, "three", &server.file(b"disk", 0o666));
    assert_eq!(server.lock(&three, 1, true, false), NlmStat::DeniedNoLocks);
    assert_eq!(complaint(), refused(LockRefusal::NotRecorded));
}

#[test]
fn a_late_duplicate_changes_nothing() {
    let (server, one, _) = two();
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    let xid = server.xid.get();
    assert_eq!(server.unlock(&one, 1), NlmStat::Granted);
    server.xid.set(xid - 1);
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted, "as it was");
    assert!(server.engine.hosts_with_locks().is_empty());
}

#[test]
fn in_grace_only_what_was_held_before_is_locked() {
    let (server, one, two) = two();
    server.now_ms.set(1000);
    server.engine.tick(1000);
    server.engine.begin_grace(90_000);
    assert!(server.engine.is_in_grace());
    let reclaim = |client: &Client| {
        let args = v4::LockArgs { reclaim: true, ..client.lock_args(1, true, false) };
        server.stat(client, 4, 2, &xdr(&args))
    };
    assert_eq!(server.lock(&one, 1, true, true), NlmStat::DeniedGracePeriod);
    let test = xdr(&one.test_args(1, true));
    assert_eq!(server.stat(&one, 4, 1, &test), NlmStat::DeniedGracePeriod);
    assert_eq!(reclaim(&two), NlmStat::Granted);
    assert_eq!(reclaim(&one), NlmStat::Denied);
    server.now_ms.set(91_000);
    assert_eq!(server.lock(&one, 1, true, true), NlmStat::Blocked);
    assert_eq!(reclaim(&two), NlmStat::DeniedGracePeriod);
    assert_eq!(server.unlock(&two, 1), NlmStat::Granted);
}

#[test]
fn who_takes_a_lock_again_is_never_told_that_it_cannot_be_known_yet() {
    let (server, one, _) = two();
    server.engine.begin_grace(90_000);
    let args = |reclaim| xdr(&v4::LockArgs { reclaim, ..one.lock_args(1, true, false) });
    let lock = |procedure, reclaim| {
        server.send(&one.peer, &server.message_of(0, (NLM, 4, procedure), &args(reclaim)))
    };
    server.disk.is_asleep.store(true, Ordering::Relaxed);
    for procedure in [2, 7] {
        server.room.set(Room::None);
        assert!(matches!(lock(procedure, true), Err(None)), "Linux would take it for a refusal");
        server.room.set(Room::Later);
        let Err(Some(suspended)) = lock(procedure, true) else { panic!("it is executed again") };
        let mut reply = Vec::new();
        server.engine.refuse(suspended, &mut reply);
        assert!(reply.is_empty());
        assert!(server.sent().is_empty());
    }
    assert!(lock(2, false).is_ok(), "others may be told to come again");
    let share = v4::ShareArgs {
        cookie: b"cook",
        caller_name: b"one",
        fh: &one.handle,
        oh: b"owner",
        mode: ShareMode::DenyNone,
        access: ShareAccess::Read,
        reclaim: true,
    };
    let share = server.message_of(0, (NLM, 4, 20), &xdr(&share));
    server.room.set(Room::None);
    assert!(matches!(server.send(&one.peer, &share), Err(None)));
    // The same call comes again, and is executed.
    let message = server.message_of(0, (NLM, 4, 2), &args(true));
    assert!(matches!(server.send(&one.peer, &message), Err(None)));
    server.room.set(Room::Free);
    let reply = server.send(&one.peer, &message).unwrap();
    assert_eq!(v4::Res::decode(&mut Reader::new(&reply)).unwrap().stat, NlmStat::Granted);
    assert!(server.send(&one.peer, &share).is_ok());
}

#[test]
fn a_message_that_is_executed_again_has_one_result() {
    let (server, one, _) = two();
    server.disk.is_asleep.store(true, Ordering::Relaxed);
    server.room.set(Room::Later);
    let lock = server.message_of(0, (NLM, 4, 7), &xdr(&one.lock_args(1, true, false)));
    assert!(matches!(server.send(&one.peer, &lock), Err(Some(_))));
    assert!(server.sent().is_empty());
    let test = server.message_of(0, (NLM, 4, 6), &xdr(&one.test_args(1, true)));
    assert!(matches!(server.send(&one.peer, &test), Err(Some(_))));
    assert!(server.sent().is_empty());
    server.room.set(Room::Free);
    server.send(&one.peer, &test).unwrap();
    assert_eq!(server.sent().len(), 1);
}

#[test]
fn who_has_lost_its_rights_can_give_up_what_it_has() {
    let (server, one, two) = two();
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(server.lock(&two, 1, true, true), NlmStat::Blocked);
    let share = |procedure| {
        let args = v4::ShareArgs {
            cookie: b"cook",
            caller_name: b"one",
            fh: &one.handle,
            oh: b"owner",
            mode: ShareMode::DenyNone,
            access: ShareAccess::Read,
            reclaim: false,
        };
        server.stat(&one, 4, procedure, &xdr(&args))
    };
    assert_eq!(share(20), NlmStat::Granted);
    let mut export = export(1, "/a", false, &server.disk);
    Arc::make_mut(&mut export.share).rules = Arc::new(vec![].into());
    server.engine.set_exports(ExportTable::new(vec![export]));
    assert_eq!(server.lock(&one, 2, false, false), NlmStat::Failed);
    // Any user can call from other ports, and has to have the rights.
    let user = Peer::new("10.0.0.1:4000".parse().unwrap(), one.peer.local, Transport::Tcp);
    let (name, handle) = (one.name, one.handle.clone());
    assert_eq!(server.unlock(&Client { name, peer: user, handle }, 1), NlmStat::Failed);
    let cancel =
        v4::CancelArgs { cookie: b"cook", block: true, exclusive: true, lock: two.lock(1) };
    assert_eq!(server.stat(&two, 4, 3, &xdr(&cancel)), NlmStat::Granted);
    assert_eq!(server.unlock(&one, 1), NlmStat::Granted);
    assert_eq!(share(21), NlmStat::Granted);
    assert!(server.engine.hosts_with_locks().is_empty());
}
