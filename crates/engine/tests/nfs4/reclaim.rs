//! After a loss of all state: who may reclaim, what waits until they have, and what is stable before
//! which reply leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_engine::{ClientRecords, Delegations, Export, Outbound, OutboundCall, RecordKeeper};
use steadfast_vfs::model::ModelFs;
use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    DestroySession4Args, Lock4Args, LockOwner4, LockType4, Locker4, NfsStat4, Op4, Open4Args,
    OpenClaim4, OpenHow4, Read4Args, ReclaimComplete4Args, Remove4Args, Rename4Args, StateId4,
    Write4Args,
};
use steadfast_xdr::Reader;

use crate::compounds::{HEADER_BYTES, Ops, Reply, stateid, xdr};
use crate::harness::{Client, Sender, Server, channel, everything, rule, sender, share};
use crate::v40::{self, ANONYMOUS, Client0};
use crate::v40_owners::lock_by_nlm;

const LEASE_MS: u64 = 90_000;
const JUKEBOX: u32 = 10_008;
const RESTART_RECLAIM_NEEDED: u32 = 0x100;

/// A disk that may be full.
#[derive(Default)]
struct Disk {
    records: Mutex<ClientRecords>,
    is_full: AtomicBool,
}

impl RecordKeeper for Disk {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) -> bool {
        let mut events = Vec::new();
        take(&mut events);
        self.records.lock().unwrap().add(&events).unwrap();
        !self.is_full.load(Ordering::Relaxed)
    }
}

impl Disk {
    fn owners(&self) -> Vec<String> {
        let records = self.records.lock().unwrap();
        let owners = records.iter().map(|(_, record)| record.owner.clone());
        owners.map(|owner| String::from_utf8(owner.into()).unwrap()).collect()
    }
}

/// A machine whose server loses its state.
pub(crate) struct Machine {
    disk: Arc<Disk>,
    model: Arc<ModelFs>,
    exports: Vec<Export>,
    instance: u32,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let all = vec![rule("127.0.0.0", everything())];
        let model = Arc::new(ModelFs::new(1, 0o777));
        let storage = Arc::clone(&model) as _;
        let exports = vec![Export { share: Arc::new(share(1, "/a", all)), storage }];
        Self { disk: Arc::default(), model, exports, instance: 0 }
    }

    /// Its file system has another number from now on.
    pub(crate) fn renumber(&mut self) {
        self.model = Arc::new(self.model.renumbered(77));
        self.exports[0].storage = Arc::clone(&self.model) as _;
    }

    /// Whether its disk is full from now on.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.disk.is_full.store(is_full, Ordering::Relaxed);
    }

    fn start(&mut self) -> Server {
        self.start_with(Delegations::None)
    }

    pub(crate) fn start_with(&mut self, delegations: Delegations) -> Server {
        self.instance += 1;
        let mut server = Server::delegating(self.instance, self.exports.clone(), delegations);
        let records = self.disk.records.lock().unwrap().clone();
        assert!(server.engine.keep_records(0, &records, Arc::clone(&self.disk) as _));
        server
    }
}

pub(crate) fn reclaiming<'s>(server: &'s Server, owner: &[u8]) -> Client<'s> {
    Client::with(server, owner, sender(1), channel())
}

fn open(claim: OpenClaim4<'_>) -> Ops {
    let arguments = Open4Args {
        seqid: 0,
        share_access: 3,
        share_deny: 2,
        clientid: 0,
        owner: b"o",
        openhow: OpenHow4::NoCreate,
        claim,
    };
    Ops::new().op(Op4::Open, &arguments)
}

fn lock(open_stateid: StateId4, reclaim: bool) -> Ops {
    let locker = Locker4::Open {
        open_seqid: 0,
        open_stateid,
        lock_seqid: 0,
        lock_owner: LockOwner4 { clientid: 0, owner: b"l" },
    };
    let locktype = LockType4::Write;
    Ops::new().op(Op4::Lock, &Lock4Args { locktype, reclaim, offset: 0, length: 9, locker })
}

#[track_caller]
fn opened(reply: Reply) -> StateId4 {
    let mut reply = reply.succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::Open);
    reply.take(stateid)
}

fn complete(client: &Client<'_>) -> Reply {
    client.run(&Ops::new().op(Op4::ReclaimComplete, &ReclaimComplete4Args { one_fs: false }))
}

/// `sr_status_flags` of a SEQUENCE.
fn flags(client: &Client<'_>) -> u32 {
    let message = client.next(false, &Ops::new().bare(Op4::PutRootFh));
    let mut reply = Reply::read(&client.server.send(&client.from, &message).unwrap());
    reply.ok(Op4::Sequence);
    reply.take(|r| {
        r.fixed_opaque(32).unwrap();
        r.u32().unwrap()
    })
}

/// A machine after a loss: `c` had `f` open.
fn with_loss() -> (Machine, Vec<u8>, Vec<u8>) {
    let mut machine = Machine::new();
    let server = machine.start();
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o444);
    assert!(machine.disk.owners().is_empty(), "it has nothing yet");
    let mine = server.make_file(&root, b"g", 0o644);
    opened(client.run(&Ops::put(&mine).then(&open(OpenClaim4::Fh))));
    assert_eq!(machine.disk.owners(), ["c"], "before the reply");
    (machine, root, file)
}

#[test]
fn what_was_had_is_reclaimed_and_nothing_else_is_given() {
    let (mut machine, root, file) = with_loss();
    let server = machine.start();
    let (client, other) = (reclaiming(&server, b"c"), Client::new(&server, b"d", sender(2)));
    assert_eq!((flags(&client), flags(&other)), (RESTART_RECLAIM_NEEDED, 0));
    let by_name = Ops::put(&root).then(&open(OpenClaim4::Null(b"f")));
    other.run(&by_name).fails(Op4::Open, NfsStat4::Grace);
    client.run(&by_name).fails(Op4::Open, NfsStat4::Grace);
    let reclaim = Ops::put(&file).then(&open(OpenClaim4::Previous(0)));
    other.run(&reclaim).fails(Op4::Open, NfsStat4::NoGrace);
    let delegated = Ops::put(&file).then(&open(OpenClaim4::Previous(3)));
    client.run(&delegated).fails(Op4::Open, NfsStat4::Inval);
    // What conflicts with what may be reclaimed waits.
    let remove = Ops::put(&root).op(Op4::Remove, &Remove4Args { target: b"f" });
    other.run(&remove).fails(Op4::Remove, NfsStat4::Grace);
    let rename = Rename4Args { oldname: b"f", newname: b"h" };
    let rename = Ops::put(&root).bare(Op4::SaveFh).op(Op4::Rename, &rename);
    other.run(&rename).fails(Op4::Rename, NfsStat4::Grace);
    let read = Read4Args { stateid: ANONYMOUS, offset: 0, count: 1 };
    let read = Ops::put(&file).op(Op4::Read, &read);
    other.run(&read).fails(Op4::Read, NfsStat4::Grace);

    // Its owner may have made it, open for writing, though its mode does not let him write.
    let id = opened(client.run(&reclaim));
    client.run(&Ops::put(&file).then(&lock(id, false))).fails(Op4::Lock, NfsStat4::Grace);
    client.run(&Ops::put(&file).then(&lock(id, true))).succeeds();
    assert!(server.engine.is_in_grace());
    complete(&client).succeeds();
    assert!(!server.engine.is_in_grace());
    assert_eq!(machine.disk.owners(), ["c"]);
    assert_eq!(flags(&client), 0);
    client.run(&reclaim).fails(Op4::Open, NfsStat4::NoGrace);
    client.run(&Ops::put(&file).then(&lock(id, true))).fails(Op4::Lock, NfsStat4::NoGrace);
    // It denies writing only.
    other.run(&read).succeeds();
    other.run(&remove).succeeds();
}

#[test]
fn a_conflict_of_those_who_reclaim_is_told() {
    let mut machine = Machine::new();
    let server = machine.start();
    let root = Client::new(&server, b"x", sender(1)).handle(&[b"a"]);
    let (one, two) = (server.make_file(&root, b"f", 0o644), server.make_file(&root, b"g", 0o644));
    for (owner, file) in [(b"c", &one), (b"d", &two)] {
        let client = Client::new(&server, owner, sender(1));
        opened(client.run(&Ops::put(file).then(&open(OpenClaim4::Fh))));
    }
    let server = machine.start();
    let (client, liar) = (reclaiming(&server, b"c"), reclaiming(&server, b"d"));
    let reclaim = Ops::put(&one).then(&open(OpenClaim4::Previous(0)));
    // It may have lost the first reply.
    let id = opened(client.run(&reclaim));
    let again = opened(client.run(&reclaim));
    assert_eq!(again, StateId4 { seqid: id.seqid + 1, ..id });
    liar.run(&reclaim).fails(Op4::Open, NfsStat4::ReclaimConflict);
    complete(&client).succeeds();
    assert!(server.engine.is_in_grace(), "the other may still reclaim");
    complete(&liar).succeeds();
    assert!(!server.engine.is_in_grace());
}

#[test]
fn minor_version_0_reclaims_without_confirming_its_owner() {
    let mut machine = Machine::new();
    let server = machine.start();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    client.open(&root, b"f");
    assert_eq!(machine.disk.owners(), ["c"]);
    let server = machine.start();
    let other = Client0::new(&server, b"d", sender(2));
    let client = Client0::new(&server, b"c", sender(1));
    let file = client.handle(&[b"a", b"f"]);
    let reclaim = |client: &Client0<'_>| {
        let arguments = v40::open_arguments(client.id, b"o", client.next(), b"");
        let arguments = Open4Args { claim: OpenClaim4::Previous(0), ..arguments };
        client.run(&Ops::put(&file).op(Op4::Open, &arguments))
    };
    let new = |client: &Client0<'_>| {
        let arguments = v40::open_arguments(client.id, b"o", client.next(), b"f");
        client.run(&Ops::put(&root).op(Op4::Open, &arguments))
    };
    reclaim(&other).fails(Op4::Open, NfsStat4::NoGrace);
    new(&other).fails(Op4::Open, NfsStat4::Grace);
    let (id, flags) = v40::opened(reclaim(&client));
    assert_eq!(flags & 2, 0, "nothing to confirm");
    client.run(&Ops::put(&file).then(&v40::write(id, b"data"))).succeeds();
    // It does not say when it has all: a lease has to pass.
    new(&client).fails(Op4::Open, NfsStat4::Grace);
    server.now_ms.set(LEASE_MS);
    reclaim(&client).fails(Op4::Open, NfsStat4::NoGrace);
    new(&client).succeeds();
    assert_eq!(machine.disk.owners(), ["c"], "the old list is gone");
}

#[test]
fn nobody_is_told_of_what_he_got_before_the_records_are_stable() {
    let mut machine = Machine::new();
    let server = machine.start();
    let one = Client::new(&server, b"c", sender(1));
    let root = one.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    let ops = Ops::put(&file).then(&open(OpenClaim4::Fh));
    machine.disk.is_full.store(true, Ordering::Relaxed);
    one.run(&ops).fails(Op4::Open, NfsStat4::Delay);
    one.run(&ops).fails(Op4::Open, NfsStat4::Delay);
    one.run(&Ops::at(&[b"a"])).succeeds();
    machine.disk.is_full.store(false, Ordering::Relaxed);
    let id = opened(one.run(&ops));
    one.run(&Ops::put(&file).then(&lock(id, false))).succeeds();
    assert_eq!(machine.disk.owners(), ["c"]);

    // Another one gets it when the lease is over: who had it is struck off first.
    server.now_ms.set(LEASE_MS + 1);
    let two = Client::new(&server, b"d", sender(2));
    machine.disk.is_full.store(true, Ordering::Relaxed);
    two.run(&ops).fails(Op4::Open, NfsStat4::Delay);
    machine.disk.is_full.store(false, Ordering::Relaxed);
    opened(two.run(&ops));
    assert_eq!(machine.disk.owners(), ["d"]);
}

#[test]
fn what_a_silent_client_denied_is_free_when_its_record_is_gone() {
    let mut machine = Machine::new();
    let server = machine.start();
    let one = Client::new(&server, b"c", sender(1));
    let root = one.handle(&[b"a"]);
    let files = [b"f", b"g"].map(|name| server.make_file(&root, name, 0o666));
    for file in &files {
        opened(one.run(&Ops::put(file).then(&open(OpenClaim4::Fh))));
    }
    server.now_ms.set(LEASE_MS + 1);
    let two = Client::new(&server, b"d", sender(2));
    machine.disk.is_full.store(true, Ordering::Relaxed);
    let write =
        Write4Args { stateid: ANONYMOUS, offset: 0, stable: StableHow::FileSync, data: b"x" };
    let write = |file: &[u8]| two.run(&Ops::put(file).op(Op4::Write, &write));
    let by_nfs3 = |file: &[u8]| {
        let body = xdr(|w| {
            w.opaque(file);
            for word in [0, 0, 1, 2] {
                w.u32(word);
            }
            w.opaque(b"x");
        });
        let reply = server.send(&two.from, &server.message(&two.from, 3, 7, &body)).unwrap();
        Reader::new(&reply[HEADER_BYTES..]).u32().unwrap()
    };
    // Also the second time, when it has been struck off.
    for _ in 0..2 {
        for file in &files {
            write(file).fails(Op4::Write, NfsStat4::Delay);
            assert_eq!(by_nfs3(file), JUKEBOX);
        }
    }
    machine.disk.is_full.store(false, Ordering::Relaxed);
    write(&files[0]).succeeds();
    assert!(machine.disk.owners().is_empty());
    assert_eq!(by_nfs3(&files[1]), 0);
}

/// Who sends calls to clients.
#[derive(Default)]
struct Sent(Mutex<Vec<OutboundCall>>);

impl Outbound for Sent {
    fn send(&self, call: OutboundCall) {
        self.0.lock().unwrap().push(call);
    }

    fn record(&self, _: &[u8], _: std::net::IpAddr) -> bool {
        true
    }

    fn own_name(&self) -> &'static str {
        "server"
    }

    fn state_number(&self) -> u32 {
        1
    }
}

#[test]
fn a_grant_is_told_once_the_record_is_stable_of_who_has_lost_the_lock() {
    const BLOCKED: u32 = 3;
    let mut machine = Machine::new();
    let server = machine.start();
    let sent = Arc::new(Sent::default());
    server.engine.set_outbound(Arc::clone(&sent) as _);
    let one = Client::new(&server, b"c", sender(1));
    let root = one.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o666);
    let id = opened(one.run(&Ops::put(&file).then(&open(OpenClaim4::Fh))));
    one.run(&Ops::put(&file).then(&lock(id, false))).succeeds();
    assert_eq!(lock_by_nlm(&server, &file, b"o", true), BLOCKED);
    machine.disk.is_full.store(true, Ordering::Relaxed);
    for tick in 1..4 {
        server.engine.tick(LEASE_MS + 1000 * tick);
        assert!(sent.0.lock().unwrap().is_empty());
    }
    machine.disk.is_full.store(false, Ordering::Relaxed);
    server.engine.tick(LEASE_MS + 4000);
    assert!(machine.disk.owners().is_empty());
    assert_eq!(sent.0.lock().unwrap().len(), 1, "it is not forgotten");
}

#[test]
fn another_user_does_not_say_for_a_client_that_it_has_all() {
    let (mut machine, _, file) = with_loss();
    let server = machine.start();
    let liar = Sender { uid: 77, ..sender(2) };
    let liar = Client::with(&server, b"c", liar, channel());
    complete(&liar).succeeds();
    assert!(server.engine.is_in_grace(), "it may still reclaim");
    // It has nothing, and gives way.
    let destroy = DestroySession4Args { sessionid: liar.session };
    server.run(&liar.from, &Ops::new().op(Op4::DestroySession, &destroy)).succeeds();
    let client = reclaiming(&server, b"c");
    opened(client.run(&Ops::put(&file).then(&open(OpenClaim4::Previous(0)))));
    complete(&client).succeeds();
    assert!(!server.engine.is_in_grace());
}
