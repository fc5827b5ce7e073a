//! Callbacks: who is told that a lock is free, by which connection, and what its answers do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use steadfast_engine::{CallbackSender, ReplyBuffer, Verdict};
use steadfast_wire::nfs4::{
    BackchannelCtl4Args, BindConnToSession4Args, CallbackCompoundHead4, CallbackNotifyLock4Args,
    CallbackOp4, CallbackSec4, CallbackSequence4Args, CallbackSequence4Result, CreateSession4Args,
    Lock4Args, LockOwner4, LockType4, LockU4Args, Locker4, NfsStat4, Op4, Open4Args, OpenClaim4,
    OpenHow4, ReclaimComplete4Args, StateId4,
};
use steadfast_wire::rpc::{AuthSys, CallHeader};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::compounds::{Ops, stateid, words, xdr};
use crate::harness::{Client, Host, Sender, Server, channel, create_session, exchange, sender};

pub(crate) const HAS_BACK_CHANNEL: u32 = 0x2;
const MAY_NOTIFY_LOCK: u32 = 0x20;
const PATH_DOWN: u32 = 0x1;
const FAULT: u32 = 0x400;
pub(crate) const PROGRAM: u32 = 0x4000_0001;
const SECOND: u64 = 1_000;

/// What was sent by which connection. Some connections are gone.
#[derive(Default)]
pub(crate) struct Wires {
    pub(crate) sent: Mutex<Vec<(u64, Vec<u8>)>>,
    pub(crate) gone: Mutex<HashSet<u64>>,
}

impl CallbackSender for Wires {
    fn send(&self, connection: u64, message: &[u8]) -> bool {
        let is_there = !self.gone.lock().unwrap().contains(&connection);
        if is_there {
            self.sent.lock().unwrap().push((connection, message.to_vec()));
        }
        is_there
    }
}

/// A callback as its client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    connection: u64,
    xid: u32,
    uid: u32,
    minor: u32,
    session: [u8; 16],
    slot: u32,
    sequence: u32,
    handle: Vec<u8>,
    owner: Vec<u8>,
}

fn read(connection: u64, message: &[u8]) -> Told {
    let mut r = Reader::new(message);
    let header = CallHeader::decode(&mut r).unwrap();
    assert_eq!((header.rpcvers, header.prog, header.vers, header.proc_), (2, PROGRAM, 1, 1));
    let mut body = Reader::new(header.cred.body);
    let (_stamp, _name, uid) = (body.u32(), body.opaque(255).map(drop), body.u32().unwrap());
    let head = CallbackCompoundHead4::decode(&mut r).unwrap();
    assert_eq!((head.callback_ident, head.operations), (0, 2));
    assert_eq!(CallbackOp4::decode(&mut r), Ok(CallbackOp4::Sequence));
    let sequence = CallbackSequence4Args::decode(&mut r).unwrap();
    assert!(!sequence.cachethis && sequence.slotid <= sequence.highest_slotid);
    assert_eq!(CallbackOp4::decode(&mut r), Ok(CallbackOp4::NotifyLock));
    let notify = CallbackNotifyLock4Args::decode(&mut r).unwrap();
    assert!(r.is_empty());
    Told {
        connection,
        xid: header.xid,
        uid,
        minor: head.minorversion,
        session: sequence.sessionid,
        slot: sequence.slotid,
        sequence: sequence.sequenceid,
        handle: notify.object.to_vec(),
        owner: notify.lock_owner.owner.to_vec(),
    }
}

impl Told {
    /// The reply by which a client takes it.
    fn taken(&self) -> Vec<u8> {
        let result = CallbackSequence4Result {
            sessionid: self.session,
            sequenceid: self.sequence,
            slotid: self.slot,
            highest_slotid: 7,
            target_highest_slotid: 7,
        };
        let mut reply = words(&[self.xid, 1, 0, 0, 0, 0, 0, 0, 2, 11, 0]);
        reply.extend(xdr(|w| result.encode(w)));
        reply.extend(words(&[13, 0]));
        reply
    }

    /// The reply by which `CB_SEQUENCE` fails.
    fn fails(&self, status: NfsStat4) -> Vec<u8> {
        let status = status as u32;
        words(&[self.xid, 1, 0, 0, 0, 0, status, 0, 1, 11, status])
    }
}

struct Bench {
    server: Server,
    wires: Arc<Wires>,
    file: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let server = Server::new();
        let wires = Arc::new(Wires::default());
        server.engine.set_callback_sender(Arc::clone(&wires) as _);
        let root = Client::new(&server, b"maker", sender(99)).handle(&[b"a"]);
        let file = server.make_file(&root, b"f", 0o666);
        Self { server, wires, file }
    }

    /// A client that wants callbacks by its connection.
    fn client(&self, owner: &[u8], connection: u64) -> Client<'_> {
        let from = sender(connection);
        let (id, sequence) = exchange(&self.server, owner, &from);
        let sys = |uid| CallbackSec4::Sys(AuthSys::new(b"m", uid, 1, &[]));
        let arguments = CreateSession4Args {
            flags: HAS_BACK_CHANNEL,
            cb_program: PROGRAM,
            sec_parms: vec![CallbackSec4::None, sys(77)],
            ..create_session(id, sequence)
        };
        let ops = Ops::new().op(Op4::CreateSession, &arguments);
        let mut created = self.server.run(&from, &ops).succeeds();
        created.ok(Op4::CreateSession);
        let (session, _, flags) =
            created.take(|r| (r.array().unwrap(), r.u32().unwrap(), r.u32().unwrap()));
        assert_eq!(flags, HAS_BACK_CHANNEL);
        let client = Client {
            server: &self.server,
            from,
            id,
            session,
            sequence: std::cell::Cell::new(0),
            minor: 1,
        };
        let complete = ReclaimComplete4Args { one_fs: false };
        client.run(&Ops::new().op(Op4::ReclaimComplete, &complete)).succeeds();
        client
    }

    fn tick(&self, ms: u64) {
        self.server.now_ms.set(self.server.now_ms.get() + ms);
        self.server.engine.tick(self.server.now_ms.get());
    }

    /// What was sent since this was asked last.
    fn told(&self) -> Vec<Told> {
        let sent = std::mem::take(&mut *self.wires.sent.lock().unwrap());
        sent.iter().map(|(connection, message)| read(*connection, message)).collect()
    }

    fn told_one(&self) -> Told {
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:?}");
        told[0].clone()
    }

    /// A message arrives that is no call; whether its connection may send such.
    fn answers(&self, from: &Sender, reply: &[u8]) -> bool {
        let mut buffer = ReplyBuffer::default();
        let now_ms = self.server.now_ms.get();
        let verdict =
            self.server.engine.call(&mut Host::free(), &from.peer, now_ms, reply, &mut buffer);
        assert!(buffer.bytes.is_empty());
        match verdict {
            Verdict::Silent => true,
            Verdict::HangUp(_) => false,
            _ => panic!("a reply was executed"),
        }
    }
}

/// An open and the lock of one owner.
struct Locker<'b, 's> {
    bench: &'b Bench,
    client: &'b Client<'s>,
    open: StateId4,
    lock: Option<StateId4>,
    open_flags: u32,
}

impl<'b, 's> Locker<'b, 's> {
    fn new(bench: &'b Bench, client: &'b Client<'s>) -> Self {
        let open = Open4Args {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            clientid: 0,
            owner: b"opener",
            openhow: OpenHow4::NoCreate,
            claim: OpenClaim4::Fh,
        };
        let mut reply = client.run(&Ops::put(&bench.file).op(Op4::Open, &open)).succeeds();
        reply.ok(Op4::PutFh);
        reply.ok(Op4::Open);
        let open = reply.take(stateid);
        let change_info_bytes = 20;
        let open_flags = reply.take(|r| {
            r.fixed_opaque(change_info_bytes).unwrap();
            r.u32().unwrap()
        });
        Self { bench, client, open, lock: None, open_flags }
    }

    /// Asks for a write lock on all, and waits for it if need be; whether it has it.
    fn locks(&mut self) -> bool {
        let lock_owner = LockOwner4 { clientid: 0, owner: b"locker" };
        let locker =
            Locker4::Open { open_seqid: 0, open_stateid: self.open, lock_seqid: 0, lock_owner };
        let arguments = Lock4Args {
            locktype: LockType4::WriteWaiting,
            reclaim: false,
            offset: 0,
            length: u64::MAX,
            locker,
        };
        let mut reply = self.client.run(&Ops::put(&self.bench.file).op(Op4::Lock, &arguments));
        if reply.status == NfsStat4::Denied as u32 {
            return false;
        }
        assert_eq!(reply.status, 0);
        reply.ok(Op4::PutFh);
        reply.ok(Op4::Lock);
        self.lock = Some(reply.take(stateid));
        true
    }

    fn unlocks(&mut self) {
        let arguments = LockU4Args {
            locktype: LockType4::Write,
            seqid: 0,
            lock_stateid: self.lock.take().unwrap(),
            offset: 0,
            length: u64::MAX,
        };
        self.client.run(&Ops::put(&self.bench.file).op(Op4::LockU, &arguments)).succeeds();
    }
}

/// `SEQ4_STATUS_*` of the next request.
pub(crate) fn flags(client: &Client<'_>) -> u32 {
    let message = client.next(false, &Ops::new());
    let reply = client.server.send(&client.from, &message).unwrap();
    let mut r = Reader::new(&reply[reply.len() - 4..]);
    r.u32().unwrap()
}

pub(crate) fn bind(client: &Client<'_>, from: &Sender, dir: u32) -> Result<u32, u32> {
    let arguments =
        BindConnToSession4Args { sessionid: client.session, dir, use_conn_in_rdma_mode: false };
    let ops = Ops::new().op(Op4::BindConnToSession, &arguments);
    let mut reply = client.server.run(from, &ops);
    if reply.status != 0 {
        return Err(reply.status);
    }
    reply.ok(Op4::BindConnToSession);
    Ok(reply.take(|r| {
        r.fixed_opaque(16).unwrap();
        r.u32().unwrap()
    }))
}

#[test]
fn who_waits_for_a_lock_is_told_when_it_is_free() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let mut holder = Locker::new(&bench, &plain);
    let mut waiter = Locker::new(&bench, &waits);
    assert_eq!(holder.open_flags & MAY_NOTIFY_LOCK, 0);
    assert_eq!(waiter.open_flags & MAY_NOTIFY_LOCK, MAY_NOTIFY_LOCK);
    for sequence in 1..4 {
        assert!(holder.locks());
        assert!(!waiter.locks());
        assert_eq!(bench.told(), []);
        holder.unlocks();
        let told = bench.told_one();
        let expected = Told {
            connection: 2,
            xid: told.xid,
            uid: 77,
            minor: 1,
            session: waits.session,
            slot: 0,
            sequence,
            handle: bench.file.clone(),
            owner: b"locker".to_vec(),
        };
        assert_eq!(told, expected);
        assert!(bench.answers(&waits.from, &told.taken()));
        assert!(!holder.locks(), "it is kept for who waits");
        assert!(waiter.locks());
        waiter.unlocks();
    }
    assert_eq!(flags(&waits), 0);
}

#[test]
fn a_callback_goes_by_another_connection_when_its_own_is_gone() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let mut holder = Locker::new(&bench, &plain);
    let mut waiter = Locker::new(&bench, &waits);
    let spare = sender(3);
    assert_eq!(bind(&waits, &spare, 7), Ok(3));
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let first = bench.told_one();
    assert_eq!(first.connection, 3, "the connection bound last");
    // Its peer closes it before it answers.
    bench.server.engine.closed(&spare.peer);
    let again = bench.told_one();
    assert_eq!(again, Told { connection: 2, ..first.clone() });
    // The other one brings nothing.
    bench.tick(SECOND);
    assert_eq!((bench.told(), flags(&waits)), (vec![], 0));
    bench.tick(5 * SECOND);
    assert_eq!((bench.told(), flags(&waits)), (vec![], PATH_DOWN));
    // The first connection that is bound again has it as it was.
    let third = sender(4);
    assert_eq!(bind(&waits, &third, 3), Ok(3));
    assert_eq!(flags(&waits), 0);
    bench.tick(SECOND);
    let last = bench.told_one();
    assert_eq!(last, Told { connection: 4, ..first });
    // Nobody else answers for it, and what comes late is ignored.
    assert!(bench.answers(&waits.from, &last.taken()), "it was bound, and may be late");
    assert!(!bench.answers(&plain.from, &last.taken()), "it was never bound");
    assert!(bench.answers(&third, &last.taken()));
    assert!(bench.answers(&third, &last.taken()), "twice");
    assert!(bench.answers(&third, &words(&[last.xid, 1])), "cut short");
    bench.tick(10 * SECOND);
    assert_eq!(bench.told(), []);
}

#[test]
fn a_connection_that_is_gone_unseen_is_found_when_it_is_used() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let mut holder = Locker::new(&bench, &plain);
    let mut waiter = Locker::new(&bench, &waits);
    assert!(holder.locks() && !waiter.locks());
    bench.wires.gone.lock().unwrap().insert(2);
    holder.unlocks();
    assert_eq!((bench.told(), flags(&waits)), (vec![], PATH_DOWN));
    bench.wires.gone.lock().unwrap().clear();
    assert_eq!(bind(&waits, &waits.from, 2), Ok(2));
    bench.tick(SECOND);
    assert_eq!((bench.told_one().sequence, flags(&waits)), (1, 0));
}

#[test]
fn what_a_client_answers_decides_what_follows() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let mut holder = Locker::new(&bench, &plain);
    let mut waiter = Locker::new(&bench, &waits);
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    // It has no time: the same again, by the same sequence id.
    let busy = bench.told_one();
    assert!(bench.answers(&waits.from, &busy.fails(NfsStat4::Delay)));
    assert_eq!(bench.told(), []);
    bench.tick(SECOND);
    let again = bench.told_one();
    assert_eq!((again.slot, again.sequence), (0, 1));
    assert!(bench.answers(&waits.from, &again.taken()));
    // It was executed, and the answer was lost.
    assert!(waiter.locks());
    waiter.unlocks();
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let second = bench.told_one();
    assert_eq!(second.sequence, 2);
    assert!(bench.answers(&waits.from, &second.fails(NfsStat4::RetryUncachedRep)));
    assert_eq!(flags(&waits), 0);
    assert!(waiter.locks());
    waiter.unlocks();
    // It does not know the session.
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let third = bench.told_one();
    assert_eq!(third.sequence, 3);
    assert!(bench.answers(&waits.from, &third.fails(NfsStat4::BadSession)));
    assert_eq!(flags(&waits), PATH_DOWN | FAULT);
    bench.tick(SECOND);
    assert_eq!(bench.told(), []);
}

#[test]
fn a_client_that_serves_no_callbacks_gets_no_more_until_it_says_so() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let mut holder = Locker::new(&bench, &plain);
    let mut waiter = Locker::new(&bench, &waits);
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let told = bench.told_one();
    let no_program = 1;
    assert!(bench.answers(&waits.from, &words(&[told.xid, 1, 0, 0, 0, no_program])));
    assert_eq!(flags(&waits), 0);
    assert!(waiter.locks());
    waiter.unlocks();
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    bench.tick(SECOND);
    assert_eq!(bench.told(), []);
    assert_eq!(bind(&waits, &waits.from, 2), Err(NfsStat4::Inval as u32));
    assert_eq!(bind(&waits, &waits.from, 3), Ok(1), "for requests only");
    let anew = |sec_parms| BackchannelCtl4Args { cb_program: PROGRAM, sec_parms };
    let gss = anew(vec![CallbackSec4::Gss(1, b"from us", b"to us")]);
    let refused = waits.run(&Ops::new().op(Op4::BackchannelCtl, &gss));
    refused.fails(Op4::BackchannelCtl, NfsStat4::NoEnt);
    let sys = CallbackSec4::Sys(AuthSys::new(b"m", 5, 1, &[]));
    let ops = Ops::new().op(Op4::BackchannelCtl, &anew(vec![sys]));
    waits.run(&ops).succeeds();
    assert_eq!(bind(&waits, &waits.from, 7), Ok(3));
    assert!(waiter.locks());
    waiter.unlocks();
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let told = bench.told_one();
    assert_eq!((told.uid, told.sequence), (5, 1), "the first was not executed");
}

#[test]
fn no_back_channel_is_granted_that_could_not_be_used() {
    let bench = Bench::new();
    let cases: [(_, fn(&mut CreateSession4Args<'static>)); 3] = [
        (b"a", |session| session.sec_parms = vec![CallbackSec4::Gss(1, b"a", b"b")]),
        (b"b", |session| session.back.maxoperations = 1),
        (b"c", |_| {}),
    ];
    for (owner, change) in cases {
        let from = sender(5);
        let (id, sequence) = exchange(&bench.server, owner, &from);
        let mut arguments = create_session(id, sequence);
        (arguments.flags, arguments.back) = (HAS_BACK_CHANNEL, channel());
        change(&mut arguments);
        let ops = Ops::new().op(Op4::CreateSession, &arguments);
        let mut created = bench.server.run(&from, &ops).succeeds();
        created.ok(Op4::CreateSession);
        let flags = created.take(|r| {
            r.fixed_opaque(20).unwrap();
            r.u32().unwrap()
        });
        assert_eq!(flags, if owner == b"c" { HAS_BACK_CHANNEL } else { 0 });
    }
}

/// A client that waits for a lock which another one holds.
fn told_of_a_lock<'b, 's>(
    bench: &'b Bench,
    plain: &'b Client<'s>,
    waits: &'b Client<'s>,
) -> (Locker<'b, 's>, Locker<'b, 's>, Told) {
    let (mut holder, mut waiter) = (Locker::new(bench, plain), Locker::new(bench, waits));
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let told = bench.told_one();
    (holder, waiter, told)
}

#[test]
fn a_callback_that_was_sent_twice_keeps_its_sequence_id_whatever_is_said_of_the_second() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let (_holder, _waiter, first) = told_of_a_lock(&bench, &plain, &waits);
    // The client executes it, and the connection is gone before the answer is there.
    let spare = sender(3);
    bench.server.engine.closed(&waits.from.peer);
    assert_eq!(bind(&waits, &spare, 7), Ok(3));
    bench.tick(SECOND);
    let second = bench.told_one();
    assert_eq!((second.sequence, second.xid), (first.sequence, first.xid));
    assert!(bench.answers(&spare, &second.fails(NfsStat4::Delay)));
    bench.tick(SECOND);
    let third = bench.told_one();
    assert_eq!(third, second, "the same again");
    assert!(bench.answers(&spare, &third.taken()));
    bench.tick(SECOND);
    assert_eq!(bench.told(), []);
}

#[test]
fn a_slot_is_free_again_when_a_client_has_refused_callbacks() {
    let bench = Bench::new();
    let (plain, waits) = (Client::new(&bench.server, b"plain", sender(1)), bench.client(b"w", 2));
    let sys = || CallbackSec4::Sys(AuthSys::new(b"m", 5, 1, &[]));
    let anew = BackchannelCtl4Args { cb_program: PROGRAM, sec_parms: vec![sys()] };
    let mut slots = HashSet::new();
    // As often as there are slots, and more: one callback is under way while another one is refused.
    for round in 0..10 {
        let (mut holder, mut waiter, first) = told_of_a_lock(&bench, &plain, &waits);
        assert!(waiter.locks());
        waiter.unlocks();
        assert!(holder.locks() && !waiter.locks());
        holder.unlocks();
        let second = bench.told_one();
        slots.extend([first.slot, second.slot]);
        let no_program = 1;
        assert!(bench.answers(&waits.from, &words(&[second.xid, 1, 0, 0, 0, no_program])));
        bench.tick(SECOND);
        waits.run(&Ops::new().op(Op4::BackchannelCtl, &anew)).succeeds();
        assert_eq!(bind(&waits, &waits.from, 7), Ok(3), "{round}");
        bench.tick(SECOND);
        // What was given up is told by another callback, if it is of use.
        for told in bench.told() {
            assert!(bench.answers(&waits.from, &told.taken()));
        }
        assert!(waiter.locks());
        waiter.unlocks();
    }
    assert!(slots.len() <= 2, "{slots:?}");
}

#[test]
fn sessions_that_are_gone_take_no_room_of_a_connection() {
    let bench = Bench::new();
    let spare = sender(9);
    for round in 0..100_u8 {
        let client = bench.client(&[b'c', round], 2);
        assert_eq!(bind(&client, &spare, 7), Ok(3), "{round}");
        let destroy = steadfast_wire::nfs4::DestroySession4Args { sessionid: client.session };
        bench.server.run(&client.from, &Ops::new().op(Op4::DestroySession, &destroy)).succeeds();
    }
}

#[test]
fn nothing_is_bound_to_a_connection_that_is_closed() {
    let bench = Bench::new();
    let waits = bench.client(b"w", 2);
    let spare = sender(3);
    bench.server.engine.closed(&spare.peer);
    assert_eq!(bind(&waits, &spare, 3), Ok(1), "for requests only");
    bench.server.engine.closed(&waits.from.peer);
    assert_eq!(flags(&waits), PATH_DOWN);
}

#[test]
fn a_channel_that_is_too_small_takes_no_callbacks_whatever_its_program() {
    let bench = Bench::new();
    let from = sender(5);
    let (id, sequence) = exchange(&bench.server, b"w", &from);
    let mut arguments = create_session(id, sequence);
    arguments.back.maxoperations = 1;
    let ops = Ops::new().op(Op4::CreateSession, &arguments);
    let mut created = bench.server.run(&from, &ops).succeeds();
    created.ok(Op4::CreateSession);
    let session = created.take(|r| r.array().unwrap());
    let server = &bench.server;
    let sequence = std::cell::Cell::new(0);
    let client = Client { server, from, id, session, sequence, minor: 1 };
    let sys = CallbackSec4::Sys(AuthSys::new(b"m", 5, 1, &[]));
    let anew = BackchannelCtl4Args { cb_program: PROGRAM, sec_parms: vec![sys] };
    client.run(&Ops::new().op(Op4::BackchannelCtl, &anew)).succeeds();
    assert_eq!(bind(&client, &client.from, 3), Ok(1), "for requests only");
}
