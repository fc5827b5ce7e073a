//! Delegations by whole COMPOUNDs: who gets one, what recalls it, what becomes of who does not return it.

use std::sync::{Arc, Mutex};

use steadfast_engine::{
    Delegations, Export, LocalGuard, ReplyBuffer, StateImage, StateKeeper, Verdict,
};
use steadfast_vfs::model::ModelFs;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, CallbackCompoundHead4, CallbackOp4, CallbackRecall4Args, CallbackSec4,
    CallbackSequence4Args, CallbackSequence4Result, Close4Args, CreateSession4Args,
    DelegReturn4Args, Fattr4, FreeStateId4Args, GetAttr4Args, Link4Args, NfsStat4, Op4, Open4Args,
    Open4Result, OpenClaim4, OpenDelegation4, OpenHow4, Read4Args, ReclaimComplete4Args,
    Remove4Args, Rename4Args, SpaceLimit4, StateId4, TestStateId4Args,
};
use steadfast_wire::rpc::CallHeader;
use steadfast_xdr::{Decode, Encode, Reader};

use crate::callbacks::{HAS_BACK_CHANNEL, PROGRAM, Wires, bind, flags};
use crate::compounds::{Ops, words, xdr};
use crate::gate::{by_stateid, nfs3};
use crate::harness::{
    Client, Host, Sender, Server, create_session, everything, exchange, rule, sender, share,
};
use crate::reclaim::{Machine, reclaiming};
use crate::taking_back::without_flush;

pub(crate) const READ: u32 = 1;
pub(crate) const BOTH: u32 = 3;
pub(crate) const WANT_ANY: u32 = 0x300;
const WANT_NONE: u32 = 0x400;
const JUKEBOX: u32 = 10008;
const REVOKED: u32 = 0x40;
pub(crate) const SECOND: u64 = 1_000;
const LEASE_MS: u64 = 90_000;
const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
const DELAY: u32 = NfsStat4::Delay as u32;
const GONE: u32 = NfsStat4::DelegRevoked as u32;

/// Keeps the state as an image.
#[derive(Default)]
struct Kept(Mutex<StateImage>);

impl StateKeeper for Kept {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) {
        let mut image = self.0.lock().unwrap();
        let mut events = Vec::new();
        take(&mut events);
        image.add(&events).unwrap();
    }

    fn renew(&self, _: &dyn Fn(), take: &dyn Fn(&mut Vec<u8>)) {
        self.keep(take);
    }
}

pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) wires: Arc<Wires>,
    kept: Arc<Kept>,
    pub(crate) exports: Vec<Export>,
    pub(crate) model: Arc<ModelFs>,
    guard: LocalGuard,
    pub(crate) root: Vec<u8>,
    pub(crate) file: Vec<u8>,
}

/// A recall as its client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recall {
    connection: u64,
    xid: u32,
    pub(crate) sequence: CallbackSequence4Args,
    pub(crate) stateid: StateId4,
    handle: Vec<u8>,
}

fn read(connection: u64, message: &[u8]) -> Recall {
    let mut r = Reader::new(message);
    let header = CallHeader::decode(&mut r).unwrap();
    assert_eq!(header.prog, PROGRAM);
    assert_eq!(CallbackCompoundHead4::decode(&mut r).unwrap().operations, 2);
    assert_eq!(CallbackOp4::decode(&mut r), Ok(CallbackOp4::Sequence));
    let sequence = CallbackSequence4Args::decode(&mut r).unwrap();
    assert_eq!(CallbackOp4::decode(&mut r), Ok(CallbackOp4::Recall));
    let CallbackRecall4Args { stateid, truncate, fh } = Decode::decode(&mut r).unwrap();
    assert!(r.is_empty() && !truncate);
    Recall { connection, xid: header.xid, sequence, stateid, handle: fh.to_vec() }
}

impl Recall {
    /// The reply of a client that takes the callback, with the status of `CB_RECALL`.
    fn answer(&self, status: NfsStat4) -> Vec<u8> {
        let CallbackSequence4Args { sessionid, sequenceid, slotid, .. } = self.sequence;
        let result = CallbackSequence4Result {
            sessionid,
            sequenceid,
            slotid,
            highest_slotid: 7,
            target_highest_slotid: 7,
        };
        let status = status as u32;
        let mut reply = words(&[self.xid, 1, 0, 0, 0, 0, status, 0, 2, 11, 0]);
        reply.extend(xdr(|w| result.encode(w)));
        reply.extend(words(&[CallbackOp4::Recall as u32, status]));
        reply
    }
}

fn started(
    exports: &[Export],
    image: StateImage,
    kept: &Arc<Kept>,
    wires: &Arc<Wires>,
    guard: LocalGuard,
) -> Server {
    let mut server = Server::guarding(7, exports.to_vec(), Delegations::Write, guard);
    server.engine.keep_state(0, image, Arc::clone(kept) as _);
    server.engine.set_callback_sender(Arc::clone(wires) as _);
    server
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::guarding(LocalGuard::None)
    }

    pub(crate) fn guarding(guard: LocalGuard) -> Self {
        let all = vec![rule("127.0.0.0", everything())];
        let model = Arc::new(ModelFs::new(1, 0o777));
        let storage = Arc::clone(&model) as _;
        let exports = vec![Export { share: Arc::new(share(1, "/a", all)), storage }];
        let (kept, wires) = (Arc::<Kept>::default(), Arc::<Wires>::default());
        let server = started(&exports, StateImage::default(), &kept, &wires, guard);
        let root = Client::new(&server, b"maker", sender(99)).handle(&[b"a"]);
        let file = server.make_file(&root, b"f", 0o666);
        Self { server, wires, kept, exports, model, guard, root, file }
    }

    /// The same server after a kill.
    pub(crate) fn restarted(self) -> Self {
        let image = self.kept.0.lock().unwrap().clone();
        let server = started(&self.exports, image, &self.kept, &self.wires, self.guard);
        server.now_ms.set(self.server.now_ms.get());
        Self { server, ..self }
    }

    /// A client that can be called by its connection.
    pub(crate) fn client(&self, owner: &[u8], connection: u64) -> Client<'_> {
        let from = sender(connection);
        let (id, sequence) = exchange(&self.server, owner, &from);
        let arguments = CreateSession4Args {
            flags: HAS_BACK_CHANNEL,
            cb_program: PROGRAM,
            sec_parms: vec![CallbackSec4::None],
            ..create_session(id, sequence)
        };
        let ops = Ops::new().op(Op4::CreateSession, &arguments);
        let mut created = self.server.run(&from, &ops).succeeds();
        created.ok(Op4::CreateSession);
        let session = created.take(|r| r.array().unwrap());
        let sequence = std::cell::Cell::new(0);
        let client = Client { server: &self.server, from, id, session, sequence, minor: 1 };
        let complete = ReclaimComplete4Args { one_fs: false };
        client.run(&Ops::new().op(Op4::ReclaimComplete, &complete)).succeeds();
        client
    }

    pub(crate) fn tick(&self, ms: u64) {
        self.server.now_ms.set(self.server.now_ms.get() + ms);
        self.server.engine.tick(self.server.now_ms.get());
    }

    pub(crate) fn recalls(&self) -> Vec<Recall> {
        let sent = std::mem::take(&mut *self.wires.sent.lock().unwrap());
        sent.iter().map(|(connection, message)| read(*connection, message)).collect()
    }

    #[track_caller]
    pub(crate) fn recalled(&self) -> Recall {
        // It waits until the reply that grants it must have gone out.
        self.tick(SECOND);
        let recalls = self.recalls();
        assert_eq!(recalls.len(), 1, "{recalls:?}");
        recalls[0].clone()
    }

    pub(crate) fn answers(&self, from: &Sender, reply: &[u8]) {
        let mut buffer = ReplyBuffer::default();
        let now_ms = self.server.now_ms.get();
        let verdict =
            self.server.engine.call(&mut Host::free(), &from.peer, now_ms, reply, &mut buffer);
        assert!(matches!(verdict, Verdict::Silent) && buffer.bytes.is_empty());
    }
}

fn open_ops(access: u32, claim: OpenClaim4<'_>) -> Ops {
    let arguments = Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: 0,
        clientid: 0,
        owner: b"o",
        openhow: OpenHow4::NoCreate,
        claim,
    };
    Ops::new().op(Op4::Open, &arguments)
}

/// Opens a file: its stateid and what is delegated; or the status.
pub(crate) fn open(
    client: &Client<'_>,
    file: &[u8],
    access: u32,
    claim: OpenClaim4<'_>,
) -> Result<(StateId4, OpenDelegation4<'static>), u32> {
    let mut reply = client.run(&Ops::put(file).then(&open_ops(access, claim)));
    if reply.status != 0 {
        return Err(reply.failure().1);
    }
    reply.ok(Op4::PutFh);
    reply.ok(Op4::Open);
    Ok(reply.take(|r| {
        let result = Open4Result::decode(r).unwrap();
        let delegation = match result.delegation {
            OpenDelegation4::Read { stateid, recall, permissions } => {
                assert!(permissions.who.is_empty());
                let permissions = steadfast_wire::nfs4::Ace4 { who: b"", ..permissions };
                OpenDelegation4::Read { stateid, recall, permissions }
            }
            OpenDelegation4::Write { stateid, recall, space_limit, permissions } => {
                assert!(permissions.who.is_empty());
                // What is closed is flushed.
                assert_eq!(space_limit, SpaceLimit4::Size(0));
                let permissions = steadfast_wire::nfs4::Ace4 { who: b"", ..permissions };
                OpenDelegation4::Write { stateid, recall, space_limit, permissions }
            }
            OpenDelegation4::None => OpenDelegation4::None,
            OpenDelegation4::NoneButTells(why, tells) => OpenDelegation4::NoneButTells(why, tells),
            OpenDelegation4::NoneSince(why) => OpenDelegation4::NoneSince(why),
        };
        (result.stateid, delegation)
    }))
}

pub(crate) fn delegated(client: &Client<'_>, file: &[u8], access: u32) -> StateId4 {
    match open(client, file, access, OpenClaim4::Fh).unwrap().1 {
        OpenDelegation4::Read { stateid, .. } if access == READ => stateid,
        OpenDelegation4::Write { stateid, .. } if access == BOTH => stateid,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn returns(client: &Client<'_>, file: &[u8], stateid: StateId4) -> u32 {
    let ops = Ops::put(file).op(Op4::DelegReturn, &DelegReturn4Args { stateid });
    client.run(&ops).status
}

#[test]
fn a_delegation_is_recalled_returned_and_the_other_goes_on() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    assert_eq!(open(&two, &bench.file, READ, OpenClaim4::Fh), Err(DELAY));
    assert_eq!(bench.recalls(), [], "the reply that grants it comes first");
    let recall = bench.recalled();
    assert_eq!((recall.connection, recall.stateid), (1, delegation));
    assert_eq!(recall.handle, bench.file);
    bench.answers(&one.from, &recall.answer(NfsStat4::Ok));
    assert_eq!(open(&two, &bench.file, READ, OpenClaim4::Fh), Err(DELAY));
    // What it has opened by itself, it tells now.
    let by_it = open(&one, &bench.file, BOTH, OpenClaim4::DelegCurFh(delegation)).unwrap();
    assert_eq!(by_it.1, OpenDelegation4::None);
    let close = Close4Args { seqid: 0, open_stateid: by_it.0 };
    one.run(&Ops::put(&bench.file).op(Op4::Close, &close)).succeeds();
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!(returns(&one, &bench.file, delegation), NfsStat4::BadStateId as u32);
    let (_, none) = open(&two, &bench.file, READ | WANT_ANY, OpenClaim4::Fh).unwrap();
    assert_eq!(none, OpenDelegation4::NoneButTells(1, false), "it was recalled a moment ago");
    bench.tick(20 * SECOND);
    assert_eq!((bench.recalls(), flags(&one)), (vec![], 0));
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!((counts.granted_write, counts.recalled, counts.returned), (1, 1, 1));
}

/// OPEN of a name, by which the file is made or cut.
pub(crate) fn open_cut(name: &[u8], share_access: u32) -> Ops {
    let attrmask = Bitmap4::of(&[Attribute4::Size]);
    let arguments = Open4Args {
        seqid: 0,
        share_access,
        share_deny: 0,
        clientid: 0,
        owner: b"o",
        openhow: OpenHow4::Unchecked(Fattr4 { attrmask, attr_vals: &[0; 8] }),
        claim: OpenClaim4::Null(name),
    };
    Ops::new().op(Op4::Open, &arguments)
}

#[test]
fn an_open_that_failed_delegates_nothing() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let message = one.next(false, &Ops::put(&bench.root).then(&open_cut(b"new", BOTH)));
    without_flush(&bench.server, &one.from, &message).fails(Op4::Open, NfsStat4::Io);
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!(counts.granted_write, 1, "it had been granted");
    let file = one.handle(&[b"a", b"new"]);
    open(&two, &file, BOTH, OpenClaim4::Fh).unwrap();
    bench.tick(SECOND);
    assert_eq!(bench.recalls(), []);
}

#[test]
fn an_open_that_is_denied_anyhow_recalls_nothing() {
    let bench = Bench::new();
    let clients = [b"1", b"2", b"3"].map(|owner| bench.client(owner, u64::from(owner[0])));
    let [holder, denies, writes] = &clients;
    delegated(holder, &bench.file, READ);
    let deny_write = Open4Args {
        seqid: 0,
        share_access: READ,
        share_deny: 2,
        clientid: 0,
        owner: b"o",
        openhow: OpenHow4::NoCreate,
        claim: OpenClaim4::Fh,
    };
    denies.run(&Ops::put(&bench.file).op(Op4::Open, &deny_write)).succeeds();
    let plain = Ops::put(&bench.file).then(&open_ops(BOTH, OpenClaim4::Fh));
    for ops in [plain, Ops::put(&bench.root).then(&open_cut(b"f", BOTH))] {
        writes.run(&ops).fails(Op4::Open, NfsStat4::ShareDenied);
    }
    bench.tick(SECOND);
    assert_eq!(bench.recalls(), []);
    assert_eq!(bench.server.engine.statistics().delegations.recalled, 0);
}

#[test]
fn wishes_decide_first() {
    let bench = Bench::new();
    let one = bench.client(b"one", 1);
    let told = |access| open(&one, &bench.file, access, OpenClaim4::Fh).unwrap().1;
    assert_eq!(told(READ | WANT_NONE), OpenDelegation4::NoneSince(0));
    assert!(matches!(told(READ | WANT_ANY), OpenDelegation4::Read { .. }));
    assert_eq!(told(READ), OpenDelegation4::None, "it has one");
    assert_eq!(told(BOTH | WANT_ANY), OpenDelegation4::NoneSince(5), "it is not upgraded");
    let bad = open(&one, &bench.file, READ | 0x600, OpenClaim4::Fh);
    assert_eq!(bad, Err(NfsStat4::Inval as u32));
    // Who cannot be called gets none.
    let silent = Client::new(&bench.server, b"silent", sender(9));
    let told = open(&silent, &bench.file, READ | WANT_ANY, OpenClaim4::Fh);
    assert!(told.is_err() || matches!(told, Ok((_, OpenDelegation4::NoneButTells(2, false)))));
    // A program with another's rights is not written unseen.
    let program = bench.server.make_file(&bench.root, b"p", 0o4755);
    let (_, told) = open(&one, &program, BOTH | WANT_ANY, OpenClaim4::Fh).unwrap();
    assert_eq!(told, OpenDelegation4::NoneSince(4));
}

#[test]
fn what_others_do_recalls_whatever_they_speak() {
    type Act = fn(&Bench, &Client<'_>) -> u32;
    let rows: [(&str, Act, u32); 11] = [
        (
            "REMOVE",
            |b, c| {
                let remove = Remove4Args { target: b"f" };
                c.run(&Ops::put(&b.root).op(Op4::Remove, &remove)).status
            },
            DELAY,
        ),
        ("RENAME away", |b, c| rename(b, c, b"f", b"x"), DELAY),
        ("RENAME over it", |b, c| rename(b, c, b"g", b"f"), DELAY),
        (
            "LINK",
            |b, c| {
                let ops = Ops::put(&b.file).bare(Op4::SaveFh).then(&Ops::put(&b.root));
                c.run(&ops.op(Op4::Link, &Link4Args { newname: b"l" })).status
            },
            DELAY,
        ),
        ("anonymous WRITE", |b, c| by_stateid(c, &b.file, ANONYMOUS)[1], DELAY),
        ("SETATTR", |b, c| by_stateid(c, &b.file, ANONYMOUS)[2], DELAY),
        (
            "OPEN",
            |b, c| c.run(&Ops::put(&b.root).then(&open_ops(BOTH, OpenClaim4::Null(b"f")))).status,
            DELAY,
        ),
        ("NFSv3 WRITE", |b, _| nfs3(&b.server, 7, &b.file, b"", &[0, 0, 1, 2, 1, 0]), JUKEBOX),
        (
            "NFSv3 SETATTR",
            |b, _| nfs3(&b.server, 2, &b.file, b"", &[1, 0o644, 0, 0, 0, 0, 0, 0]),
            JUKEBOX,
        ),
        ("NFSv3 REMOVE", |b, _| nfs3(&b.server, 12, &b.root, b"f", &[]), JUKEBOX),
        (
            "NFSv3 CREATE",
            |b, _| nfs3(&b.server, 8, &b.root, b"f", &[0, 0, 0, 0, 1, 0, 0, 0, 0]),
            JUKEBOX,
        ),
    ];
    for (name, act, later) in rows {
        let bench = Bench::new();
        let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
        bench.server.make_file(&bench.root, b"g", 0o666);
        let delegation = delegated(&one, &bench.file, READ);
        for _ in 0..2 {
            assert_eq!(act(&bench, &two), later, "{name}");
        }
        assert_eq!(bench.recalled().stateid, delegation, "{name}");
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert_eq!(act(&bench, &two), 0, "{name}");
    }
}

fn rename(bench: &Bench, client: &Client<'_>, from: &[u8], to: &[u8]) -> u32 {
    let ops = Ops::put(&bench.root).bare(Op4::SaveFh);
    let names = Rename4Args { oldname: from, newname: to };
    client.run(&ops.op(Op4::Rename, &names)).status
}

#[test]
fn who_writes_unseen_is_asked_before_others_read() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let size = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::Size]) };
    let kind = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::Type]) };
    let ask = |client: &Client<'_>, asked| {
        client.run(&Ops::put(&bench.file).op(Op4::GetAttr, asked)).status
    };
    let delegation = delegated(&one, &bench.file, BOTH);
    assert_eq!((ask(&one, &size), ask(&two, &kind)), (0, 0));
    // By itself it needs no open.
    let read = Read4Args { stateid: delegation, offset: 0, count: 1 };
    one.run(&Ops::put(&bench.file).op(Op4::Read, &read)).succeeds();
    assert_eq!(by_stateid(&one, &bench.file, delegation), [0; 3]);
    bench.tick(SECOND);
    assert_eq!(bench.recalls(), []);
    assert_eq!(nfs3(&bench.server, 6, &bench.file, b"", &[0, 0, 1]), JUKEBOX);
    assert_eq!(ask(&two, &size), DELAY);
    assert_eq!(nfs3(&bench.server, 1, &bench.file, b"", &[]), JUKEBOX);
    assert_eq!(bench.recalled().stateid, delegation);
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!((ask(&two, &size), nfs3(&bench.server, 1, &bench.file, b"", &[])), (0, 0));
}

#[test]
fn a_recall_finds_its_way_and_ends_in_time() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    bench.wires.gone.lock().unwrap().insert(1);
    assert_eq!(open(&two, &bench.file, READ, OpenClaim4::Fh), Err(DELAY));
    bench.tick(2 * SECOND);
    assert_eq!(bench.recalls(), [], "its connection is gone");
    let spare = sender(3);
    assert_eq!(bind(&one, &spare, 7), Ok(3));
    let recall = bench.recalled();
    assert_eq!(recall.connection, 3);
    // It does not know the delegation, perhaps not yet: it is asked again.
    bench.answers(&spare, &recall.answer(NfsStat4::BadStateId));
    for _ in 0..4 {
        bench.tick(SECOND);
        assert_eq!(bench.recalls(), []);
    }
    bench.tick(SECOND);
    let again = bench.recalled();
    bench.answers(&spare, &again.answer(NfsStat4::Ok));
    // It is alive, and does not return it.
    for _ in 0..9 {
        assert_eq!(flags(&one), 0);
        assert_eq!(open(&two, &bench.file, READ, OpenClaim4::Fh), Err(DELAY));
        bench.tick(10 * SECOND);
        assert_eq!(bench.recalls(), []);
    }
    assert_eq!(flags(&one), REVOKED);
    assert!(open(&two, &bench.file, READ, OpenClaim4::Fh).is_ok());
    assert_eq!(returns(&one, &bench.file, delegation), GONE);
    assert_eq!(by_stateid(&one, &bench.file, delegation), [GONE; 3]);
    let test = TestStateId4Args { stateids: vec![delegation] };
    let mut tested = one.run(&Ops::new().op(Op4::TestStateId, &test)).succeeds();
    tested.ok(Op4::TestStateId);
    assert_eq!(tested.take(|r| (r.u32().unwrap(), r.u32().unwrap())), (1, GONE));
    let free = Ops::new().op(Op4::FreeStateId, &FreeStateId4Args { stateid: delegation });
    one.run(&free).succeeds();
    one.run(&free).fails(Op4::FreeStateId, NfsStat4::BadStateId);
    assert_eq!(flags(&one), 0);
}

#[test]
fn who_is_dead_is_not_waited_for() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    delegated(&one, &bench.file, BOTH);
    assert_eq!(open(&two, &bench.file, BOTH, OpenClaim4::Fh), Err(DELAY));
    for _ in 0..9 {
        bench.tick(LEASE_MS / 9);
        flags(&two);
    }
    bench.tick(SECOND);
    assert!(open(&two, &bench.file, BOTH, OpenClaim4::Fh).is_ok());
}

#[test]
fn a_kill_keeps_the_delegation_and_its_recall() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    let was = |client: Client<'_>| (client.from, client.id, client.session, client.sequence);
    let (one, two) = (was(one), was(two));
    let bench = bench.restarted();
    let (one, two) = [one, two]
        .map(|(from, id, session, sequence)| Client {
            server: &bench.server,
            from,
            id,
            session,
            sequence,
            minor: 1,
        })
        .into();
    assert_eq!(open(&two, &bench.file, READ, OpenClaim4::Fh), Err(DELAY));
    bench.tick(SECOND);
    assert_eq!(bench.recalls(), [], "its connection is not bound yet");
    let was = |client: Client<'_>| (client.from, client.id, client.session, client.sequence);
    let (one, two) = (was(one), was(two));
    let bench = bench.restarted();
    let (one, two) = [one, two]
        .map(|(from, id, session, sequence)| Client {
            server: &bench.server,
            from,
            id,
            session,
            sequence,
            minor: 1,
        })
        .into();
    // Nobody asks again, and it is recalled all the same.
    assert_eq!(bind(&one, &one.from, 7), Ok(3));
    assert_eq!(flags(&one), 0);
    bench.tick(11 * SECOND);
    let recall = bench.recalls().pop().unwrap();
    assert_eq!(recall.stateid, delegation);
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert!(open(&two, &bench.file, READ, OpenClaim4::Fh).is_ok());
}

/// After a loss of all state.
#[test]
fn who_had_a_delegation_has_it_again() {
    let mut machine = Machine::new();
    let server = machine.start_with(Delegations::Write);
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o666);
    open(&client, &file, BOTH, OpenClaim4::Fh).unwrap();
    let server = machine.start_with(Delegations::Write);
    let client = reclaiming(&server, b"c");
    let told = open(&client, &file, BOTH, OpenClaim4::Previous(2)).unwrap().1;
    let OpenDelegation4::Write { stateid, recall: false, .. } = told else { panic!("{told:?}") };
    let complete = ReclaimComplete4Args { one_fs: false };
    client.run(&Ops::new().op(Op4::ReclaimComplete, &complete)).succeeds();
    assert_eq!(nfs3(&server, 6, &file, b"", &[0, 0, 1]), JUKEBOX);
    assert_eq!(returns(&client, &file, stateid), 0);
    // A server that grants none any more gives none back, and the open all the same.
    let server = machine.start_with(Delegations::None);
    let client = reclaiming(&server, b"c");
    let told = open(&client, &file, BOTH, OpenClaim4::Previous(2)).unwrap().1;
    assert_eq!(told, OpenDelegation4::None);
}

#[test]
fn none_is_granted_if_the_settings_say_none() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o666);
    let told = open(&client, &file, READ | WANT_ANY, OpenClaim4::Fh).unwrap().1;
    assert_eq!(told, OpenDelegation4::NoneButTells(2, false));
    let stateid = StateId4 { seqid: 1, other: [3; 12] };
    assert_eq!(returns(&client, &file, stateid), NfsStat4::BadStateId as u32);
}
