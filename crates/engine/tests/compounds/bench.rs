//! An engine that serves NFSv4.1, and a client of it that makes COMPOUNDs by hand.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};

use steadfast_engine::{
    Awaited, CallHost, Complaint, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer,
    ReplySink, Room, StateImage, StateKeeper, StorageId, SuspendedCall, Transport, Transports,
    Verdict,
};
use steadfast_shares::{
    Authority, ClientPattern, ClientRule, Decision, Groups, Question, Rights, RuleSet, RulesOnly,
    Share, ShareId, Squash,
};
use steadfast_vfs::model::{FlushLog, ModelFs};
use steadfast_wire::nfs4::{NfsStat4, Op4};
use steadfast_xdr::{Reader, Writer};

pub(crate) const NFS: u32 = 100_003;
/// Bytes of RPC's header before a result.
pub(crate) const HEADER_BYTES: usize = 24;

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) flushes: Arc<FlushLog>,
    storage: Arc<ModelFs>,
    kept: Arc<Kept>,
    /// It is not known who may read what is for reading only.
    pub(crate) is_pending: Arc<AtomicU64>,
    next_xid: std::cell::Cell<u32>,
}

/// What a killed process leaves of the state.
#[derive(Default)]
struct Kept {
    events: Mutex<Vec<u8>>,
}

impl StateKeeper for Kept {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) {
        take(&mut self.events.lock().unwrap());
    }

    fn renew(&self, note_all: &dyn Fn(), take: &dyn Fn(&mut Vec<u8>)) {
        if self.events.lock().unwrap().is_empty() {
            note_all();
        }
        self.keep(take);
    }
}

/// Decides by the rules alone, if its number is even: else it does not know of shares for reading.
struct Told(Arc<AtomicU64>);

impl Authority for Told {
    fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision {
        let is_for_reading = rules.grant(0).is_some_and(|rights| rights.is_read_only);
        if is_for_reading && self.epoch() % 2 == 1 {
            return Decision::Pending;
        }
        RulesOnly.decide(rules, question)
    }

    fn epoch(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn groups(&self, user: u32) -> Groups {
        RulesOnly.groups(user)
    }
}

fn share(id: u64, path: &str, network: &str, rights: Rights) -> Arc<Share> {
    let pattern = ClientPattern::Network { network: network.parse().unwrap(), prefix_bits: 8 };
    let rule = ClientRule { pattern, grants: Arc::new([rights]) };
    Arc::new(Share {
        id: ShareId(id),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(vec![rule].into()),
    })
}

impl Bench {
    /// Serves `/srv/a` for changes, `/srv/ro` for reading, `/other/hidden` to others.
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(ModelFs::new(1, 0o777)), StateImage::default())
    }

    /// Another process of the same server, after this one was killed.
    pub(crate) fn restarted(&self) -> Self {
        self.restarted_with(self.image())
    }

    /// The same, if this one had kept so much of the state.
    pub(crate) fn restarted_with(&self, image: StateImage) -> Self {
        let next = Self::over(Arc::clone(&self.storage), image);
        next.next_xid.set(self.next_xid.get());
        next
    }

    /// What this process has kept of the state.
    pub(crate) fn image(&self) -> StateImage {
        let mut image = StateImage::default();
        image.add(&self.kept.events.lock().unwrap()).unwrap();
        image
    }

    fn over(storage: Arc<ModelFs>, image: StateImage) -> Self {
        let rights = Rights { squash: Squash::None, ..Rights::default() };
        let read_only = Rights { is_read_only: true, ..rights.clone() };
        let flushes = storage.flush_log();
        let export = |share, storage: &Arc<ModelFs>| Export { share, storage: storage.clone() };
        let exports = ExportTable::new(vec![
            export(share(1, "/srv/a", "127.0.0.0", rights.clone()), &storage),
            export(share(2, "/srv/ro", "127.0.0.0", read_only), &storage),
            export(share(3, "/other/hidden", "10.0.0.0", rights), &storage),
        ]);
        let config = EngineConfig {
            instance: 5,
            nfs2: false,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: true,
            handle_key: [9; 16],
            write_verifier: 77,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let is_pending = Arc::<AtomicU64>::default();
        let authority = Arc::new(Told(Arc::clone(&is_pending)));
        let mut engine = Engine::with_authority(config, exports, authority);
        let kept = Arc::new(Kept::default());
        engine.keep_state(0, image, Arc::clone(&kept) as _);
        Self { engine, flushes, storage, kept, is_pending, next_xid: std::cell::Cell::new(1) }
    }

    /// One RPC message to procedure 1 of version 4.
    pub(crate) fn message(&self, compound: &[u8]) -> Vec<u8> {
        let xid = self.next_xid.get() + 1;
        self.next_xid.set(xid);
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [xid, 0, 2, NFS, 4, 1, 1] {
            w.u32(word);
        }
        w.opaque_of(|w| {
            w.u32(0);
            w.opaque(b"client");
            for word in [0, 0, 0] {
                w.u32(word);
            }
        });
        w.u32(0);
        w.u32(0);
        message.extend_from_slice(compound);
        message
    }

    /// Sends a message; the result, flushed if it must be.
    pub(crate) fn send(&self, peer: &Peer, message: &[u8]) -> Vec<u8> {
        let mut reply = ReplyBuffer::default();
        let verdict = self.engine.call(&mut Free::default(), peer, 0, message, &mut reply);
        self.settled(verdict, reply).unwrap()
    }

    /// What comes of a verdict when all is flushed that it waits for.
    pub(crate) fn settled(&self, verdict: Verdict, mut reply: ReplyBuffer) -> Option<Vec<u8>> {
        match verdict {
            Verdict::Replied => {}
            Verdict::Parked(mut call) => {
                let outcome = loop {
                    let Awaited::Flush(flush) = &call.awaited else { panic!("there is no log") };
                    let flushed =
                        flush.targets.iter().try_for_each(|(target, what)| target.flush(*what));
                    if flushed.is_err() || !call.go_on() {
                        break flushed;
                    }
                };
                self.engine.settle(call, outcome, 0, &mut reply.bytes);
            }
            Verdict::Silent => return None,
            verdict @ (Verdict::Suspended(_) | Verdict::HangUp(_)) => panic!("{verdict:?}"),
        }
        Some(reply.bytes[HEADER_BYTES..].to_vec())
    }
}

pub(crate) fn peer(connection: u64) -> Peer {
    let from = ([127, 0, 0, 1], 700 + connection as u16).into();
    Peer::new(from, "127.0.0.1:2049".parse().unwrap(), Transport::Tcp).on_connection(connection)
}

/// A host that lets everybody wait; goes on with a call that was suspended, if it is given one.
#[derive(Default)]
pub(crate) struct Free {
    pub(crate) suspended: Option<SuspendedCall>,
    pub(crate) sent: Option<mpsc::Sender<Vec<u8>>>,
}

struct Sink(mpsc::Sender<Vec<u8>>);

impl ReplySink for Sink {
    fn send(self: Box<Self>, reply: &[u8]) {
        self.0.send(reply.to_vec()).unwrap();
    }
}

impl CallHost for Free {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        self.sent.clone().map(|sent| Box::new(Sink(sent)) as _)
    }
}

/// A host that keeps calls which wait for a client.
#[derive(Default)]
pub(crate) struct Keeps {
    pub(crate) suspended: Option<SuspendedCall>,
    pub(crate) woken: Arc<Woken>,
}

/// Whether a call was woken.
#[derive(Default)]
pub(crate) struct Woken(pub(crate) AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl CallHost for Keeps {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, _: u64) -> Option<Waker> {
        Some(Waker::from(Arc::clone(&self.woken)))
    }
}

/// A host whose storage hangs. It has heard whether the call is suspended.
#[derive(Default)]
pub(crate) struct Hangs {
    pub(crate) suspended: Option<SuspendedCall>,
    pub(crate) is_suspended: bool,
}

impl CallHost for Hangs {
    fn room_to_wait(&mut self, _: StorageId) -> Room {
        Room::None
    }

    fn will_suspend(&mut self) {
        self.is_suspended = true;
    }

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

/// A host that has no room for anybody who waits, after so many who had.
#[derive(Default)]
pub(crate) struct Full {
    pub(crate) suspended: Option<SuspendedCall>,
    pub(crate) had_room: u32,
}

impl CallHost for Full {
    fn room_to_wait(&mut self, _: StorageId) -> Room {
        match self.had_room.checked_sub(1) {
            Some(left) => {
                self.had_room = left;
                Room::Free
            }
            None => Room::Later,
        }
    }

    fn seldom_blocks(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn may_block(&mut self) {
        panic!("it may not");
    }

    fn will_block(&mut self) {
        panic!("it may not");
    }
}

/// Operations of a COMPOUND.
#[derive(Clone, Default)]
pub(crate) struct Ops {
    bytes: Vec<u8>,
    count: u32,
}

impl Ops {
    pub(crate) fn op(mut self, op: Op4, arguments: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut w = Writer::new(&mut self.bytes);
        w.u32(op as u32);
        arguments(&mut w);
        self.count += 1;
        self
    }

    pub(crate) fn plain(self, op: Op4) -> Self {
        self.op(op, |_| {})
    }

    pub(crate) fn lookup(self, name: &str) -> Self {
        self.op(Op4::Lookup, |w| w.opaque(name.as_bytes()))
    }

    pub(crate) fn put(self, handle: &[u8]) -> Self {
        self.op(Op4::PutFh, |w| w.opaque(handle))
    }

    /// OPEN of a name for both, made if it is missing.
    pub(crate) fn open(self, owner: &[u8], name: &str) -> Self {
        self.op(Op4::Open, |w| {
            for word in [0, 3, 0] {
                w.u32(word);
            }
            w.u64(0);
            w.opaque(owner);
            let (creates, unchecked, words, values) = (1, 0, 0, 0);
            for word in [creates, unchecked, words, values] {
                w.u32(word);
            }
            w.u32(0);
            w.opaque(name.as_bytes());
        })
    }

    /// OPEN of a name for both, whose file is cut if it is there.
    pub(crate) fn open_cut(self, owner: &[u8], name: &str) -> Self {
        self.op(Op4::Open, |w| {
            for word in [0, 3, 0] {
                w.u32(word);
            }
            w.u64(0);
            w.opaque(owner);
            let (creates, unchecked, words, size) = (1, 0, 1, 1 << 4);
            for word in [creates, unchecked, words, size] {
                w.u32(word);
            }
            w.opaque(&[0; 8]);
            w.u32(0);
            w.opaque(name.as_bytes());
        })
    }

    /// OPEN of the current file for reading.
    pub(crate) fn open_current(self, owner: &[u8]) -> Self {
        self.op(Op4::Open, |w| {
            for word in [0, 1, 0] {
                w.u32(word);
            }
            w.u64(0);
            w.opaque(owner);
            let (creates_not, claim_current) = (0, 4);
            w.u32(creates_not);
            w.u32(claim_current);
        })
    }

    /// WRITE by the current stateid.
    /// Locks the current file by the current stateid, as a new lock-owner.
    pub(crate) fn lock_by_open(self, owner: &[u8]) -> Self {
        self.op(Op4::Lock, |w| {
            let (write_lock, reclaims, is_new) = (2, false, true);
            w.u32(write_lock);
            w.bool(reclaims);
            w.u64(0);
            w.u64(u64::MAX);
            w.bool(is_new);
            w.u32(0);
            w.u32(1);
            w.fixed_opaque(&[0; 12]);
            w.u32(0);
            w.u64(0);
            w.opaque(owner);
        })
    }

    pub(crate) fn write(self, data: &[u8]) -> Self {
        self.op(Op4::Write, |w| {
            w.u32(1);
            w.zeros(12);
            w.u64(0);
            let stable = 2;
            w.u32(stable);
            w.opaque(data);
        })
    }

    pub(crate) fn compound(&self) -> Vec<u8> {
        self.compound_of(1, b"tag")
    }

    pub(crate) fn compound_of(&self, minor: u32, tag: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        w.opaque(tag);
        w.u32(minor);
        w.u32(self.count);
        bytes.extend_from_slice(&self.bytes);
        bytes
    }
}

/// A client with a session.
pub(crate) struct Client<'b> {
    pub(crate) bench: &'b Bench,
    pub(crate) peer: Peer,
    pub(crate) session: [u8; 16],
    pub(crate) sequence: u32,
}

impl<'b> Client<'b> {
    pub(crate) fn new(bench: &'b Bench, owner: &str) -> Self {
        Self::with_kept_bytes(bench, owner, 1 << 12)
    }

    /// With a session that keeps replies of so many bytes.
    pub(crate) fn with_kept_bytes(bench: &'b Bench, owner: &str, kept_bytes: u32) -> Self {
        let peer = peer(1);
        let exchange = Ops::default().op(Op4::ExchangeId, |w| {
            w.fixed_opaque(&[7; 8]);
            w.opaque(owner.as_bytes());
            for _flags_protection_implementation in 0..3 {
                w.u32(0);
            }
        });
        let result = Result4::of(&bench.send(&peer, &bench.message(&exchange.compound())));
        let mut r = Reader::new(&result.bytes);
        assert_eq!((r.u32(), r.u32()), (Ok(Op4::ExchangeId as u32), Ok(0)));
        let (client, sequence) = (r.u64().unwrap(), r.u32().unwrap());
        let create = Ops::default().op(Op4::CreateSession, |w| {
            w.u64(client);
            w.u32(sequence);
            w.u32(0);
            for _fore_and_back in 0..2 {
                for word in [0, 1 << 20, 1 << 20, kept_bytes, 16, 8, 0] {
                    w.u32(word);
                }
            }
            w.u32(0);
            w.u32(0);
        });
        let result = Result4::of(&bench.send(&peer, &bench.message(&create.compound())));
        let mut r = Reader::new(&result.bytes);
        assert_eq!((r.u32(), r.u32()), (Ok(Op4::CreateSession as u32), Ok(0)));
        let mut client = Self { bench, peer, session: r.array().unwrap(), sequence: 0 };
        let nothing_left = client.next(false).op(Op4::ReclaimComplete, |w| w.bool(false));
        let said = client.send(&nothing_left);
        assert!(said.status == 0 || kept_bytes < 200, "{said:?}");
        client
    }

    /// The same client, when the server was started again.
    pub(crate) fn at(&self, bench: &'b Bench) -> Self {
        let (session, sequence) = (self.session, self.sequence);
        Self { bench, peer: peer(self.peer.connection() + 100), session, sequence }
    }

    /// SEQUENCE for the next request of slot 0, to be followed by others.
    pub(crate) fn next(&mut self, is_kept: bool) -> Ops {
        self.sequence += 1;
        self.again(is_kept)
    }

    /// SEQUENCE as it was sent last.
    pub(crate) fn again(&self, is_kept: bool) -> Ops {
        self.sequence_of(0, self.sequence, is_kept)
    }

    pub(crate) fn sequence_of(&self, slot: u32, sequence: u32, is_kept: bool) -> Ops {
        Ops::default().op(Op4::Sequence, |w| {
            w.fixed_opaque(&self.session);
            for word in [sequence, slot, slot] {
                w.u32(word);
            }
            w.bool(is_kept);
        })
    }

    /// Sends operations that begin with SEQUENCE.
    pub(crate) fn send(&self, ops: &Ops) -> Result4 {
        let message = self.bench.message(&ops.compound());
        Result4::of(&self.bench.send(&self.peer, &message))
    }

    /// What is complained of when such operations are sent.
    pub(crate) fn complaint(&self, ops: &Ops) -> Option<Complaint> {
        let message = self.bench.message(&ops.compound());
        let mut reply = ReplyBuffer::default();
        let verdict =
            self.bench.engine.call(&mut Free::default(), &self.peer, 0, &message, &mut reply);
        assert!(matches!(verdict, Verdict::Replied));
        reply.complaint
    }

    /// The handle of a path from the root.
    pub(crate) fn handle(&mut self, path: &[&str]) -> Vec<u8> {
        let mut ops = self.next(false).plain(Op4::PutRootFh);
        for name in path {
            ops = ops.lookup(name);
        }
        let result = self.send(&ops.plain(Op4::GetFh));
        assert_eq!(result.status, NfsStat4::Ok as u32, "{path:?}");
        let at = result.bytes.windows(8).rposition(|it| it == [0, 0, 0, 10, 0, 0, 0, 0]).unwrap();
        Reader::new(&result.bytes[at + 8..]).opaque(128).unwrap().to_vec()
    }
}

/// The result of a COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Result4 {
    pub(crate) status: u32,
    pub(crate) tag: Vec<u8>,
    pub(crate) count: u32,
    /// Of the operations.
    pub(crate) bytes: Vec<u8>,
}

impl Result4 {
    pub(crate) fn of(result: &[u8]) -> Self {
        let mut r = Reader::new(result);
        let status = r.u32().unwrap();
        let tag = r.opaque(1 << 20).unwrap().to_vec();
        let count = r.u32().unwrap();
        Self { status, tag, count, bytes: result[r.position()..].to_vec() }
    }

    /// Status, and how many operations were executed.
    pub(crate) fn ended(&self) -> (u32, u32) {
        (self.status, self.count)
    }

    /// Number and status of the last operation, of which a failure says nothing more.
    pub(crate) fn last(&self) -> (u32, u32) {
        let at = self.bytes.len() - 8;
        let mut r = Reader::new(&self.bytes[at..]);
        (r.u32().unwrap(), r.u32().unwrap())
    }
}

pub(crate) fn failed(status: NfsStat4, count: u32) -> (u32, u32) {
    (status as u32, count)
}

pub(crate) fn done(count: u32) -> (u32, u32) {
    failed(NfsStat4::Ok, count)
}
