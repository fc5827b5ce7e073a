//! What others are told of a file that is delegated to write: its holder is asked by `CB_GETATTR` (RFC 8881 §10.4.3), and
//! keeps its delegation if it has changed nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use steadfast_engine::{CallHost, ReplyBuffer, SuspendedCall, Verdict};
use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, CallbackCompoundHead4, CallbackGetAttr4Args, CallbackOp4,
    CallbackSequence4Args, CallbackSequence4Result, Fattr4, GetAttr4Args, NfsStat4, Op4, StateId4,
    Verify4Args, Write4Args,
};
use steadfast_wire::rpc::CallHeader;
use steadfast_xdr::{Decode, Encode, Reader};

use crate::compounds::{HEADER_BYTES, Ops, Reply, words, xdr};
use crate::delegations::{BOTH, Bench, READ, SECOND, delegated, open, returns};
use crate::gate::{by_stateid, nfs3};
use crate::harness::{Client, Sender, sender};

const DELAY: u32 = NfsStat4::Delay as u32;
const JUKEBOX: u32 = 10008;
const LOOK: Bitmap4 = Bitmap4::of(&[
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);
const ASKED: Bitmap4 = Bitmap4::of(&[Attribute4::Change, Attribute4::Size]);

/// A `CB_GETATTR` as its client reads it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    connection: u64,
    xid: u32,
    sequence: CallbackSequence4Args,
    handle: Vec<u8>,
    wanted: Bitmap4,
}

impl Question {
    fn read(connection: u64, message: &[u8]) -> Self {
        let mut r = Reader::new(message);
        let xid = CallHeader::decode(&mut r).unwrap().xid;
        assert_eq!(CallbackCompoundHead4::decode(&mut r).unwrap().operations, 2);
        assert_eq!(CallbackOp4::decode(&mut r), Ok(CallbackOp4::Sequence));
        let sequence = CallbackSequence4Args::decode(&mut r).unwrap();
        assert_eq!(CallbackOp4::decode(&mut r), Ok(CallbackOp4::GetAttr));
        let CallbackGetAttr4Args { fh, attr_request } = Decode::decode(&mut r).unwrap();
        assert!(r.is_empty());
        Self { connection, xid, sequence, handle: fh.to_vec(), wanted: attr_request }
    }

    /// A reply of which `CB_SEQUENCE` succeeds.
    fn reply(&self, status: NfsStat4, rest: &[u8]) -> Vec<u8> {
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
        reply.extend(words(&[CallbackOp4::GetAttr as u32, status]));
        reply.extend_from_slice(rest);
        reply
    }

    pub(crate) fn tells(&self, change: u64, size: u64) -> Vec<u8> {
        let attr_vals = xdr(|w| {
            w.u64(change);
            w.u64(size);
        });
        let told = Fattr4 { attrmask: ASKED, attr_vals: &attr_vals };
        self.reply(NfsStat4::Ok, &xdr(|w| told.encode(w)))
    }
}

/// A reply of which `CB_SEQUENCE` fails.
fn not_sequenced(question: &Question, status: NfsStat4) -> Vec<u8> {
    let status = status as u32;
    words(&[question.xid, 1, 0, 0, 0, 0, status, 0, 1, CallbackOp4::Sequence as u32, status])
}

fn questions(bench: &Bench) -> Vec<Question> {
    let sent = std::mem::take(&mut *bench.wires.sent.lock().unwrap());
    sent.iter().map(|(connection, message)| Question::read(*connection, message)).collect()
}

#[track_caller]
pub(crate) fn question(bench: &Bench) -> Question {
    let questions = questions(bench);
    assert_eq!(questions.len(), 1, "{questions:?}");
    questions[0].clone()
}

/// The attributes of [`LOOK`], in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) change: u64,
    pub(crate) size: u64,
    ctime: (i64, u32),
    mtime: (i64, u32),
}

impl Told {
    fn read(values: &[u8]) -> Self {
        let mut r = Reader::new(values);
        let (change, size) = (r.u64().unwrap(), r.u64().unwrap());
        let mut time = || (r.i64().unwrap(), r.u32().unwrap());
        let (ctime, mtime) = (time(), time());
        assert!(r.is_empty());
        Self { change, size, ctime, mtime }
    }

    fn values(self) -> Vec<u8> {
        xdr(|w| {
            w.u64(self.change);
            w.u64(self.size);
            for (seconds, nanoseconds) in [self.ctime, self.mtime] {
                w.i64(seconds);
                w.u32(nanoseconds);
            }
        })
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Keeps a call that waits, as long as its patience lasts.
pub(crate) struct Patient<'b> {
    now_ms: &'b Cell<u64>,
    since_ms: Option<u64>,
    is_impatient: bool,
    pub(crate) suspended: Option<SuspendedCall>,
    woken: Arc<Woken>,
    until_ms: u64,
}

impl CallHost for Patient<'_> {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, patience_ms: u64) -> Option<Waker> {
        let now_ms = self.now_ms.get();
        let until_ms = self.since_ms.unwrap_or(now_ms) + patience_ms;
        if self.is_impatient || until_ms <= now_ms {
            return None;
        }
        (self.until_ms, self.woken) = (until_ms, Arc::default());
        Some(Waker::from(Arc::clone(&self.woken)))
    }
}

/// A call that may wait.
pub(crate) struct Waiting<'b> {
    bench: &'b Bench,
    from: Sender,
    message: Vec<u8>,
    pub(crate) host: Patient<'b>,
    reply: Option<Vec<u8>>,
}

impl<'b> Waiting<'b> {
    pub(crate) fn new(bench: &'b Bench, from: &Sender, message: Vec<u8>) -> Self {
        let host = Patient {
            now_ms: &bench.server.now_ms,
            since_ms: None,
            is_impatient: false,
            suspended: None,
            woken: Arc::default(),
            until_ms: 0,
        };
        let from = sender(from.peer.connection());
        let mut waiting = Self { bench, from, message, host, reply: None };
        waiting.execute();
        waiting
    }

    /// A GETATTR.
    pub(crate) fn look(bench: &'b Bench, client: &Client<'_>, file: &[u8]) -> Self {
        Self::new(bench, &client.from, client.next(false, &getattr(file)))
    }

    /// A GETATTR of NFSv3.
    fn look_by_nfs3(bench: &'b Bench) -> Self {
        let from = sender(2);
        let body = xdr(|w| w.opaque(&bench.file));
        let message = bench.server.message(&from, 3, 1, &body);
        Self::new(bench, &from, message)
    }

    fn execute(&mut self) {
        let now_ms = self.bench.server.now_ms.get();
        let (peer, mut reply) = (&self.from.peer, ReplyBuffer::default());
        let engine = &self.bench.server.engine;
        match engine.call(&mut self.host, peer, now_ms, &self.message, &mut reply) {
            Verdict::Suspended(call) => {
                self.host.suspended = Some(call);
                self.host.since_ms.get_or_insert(now_ms);
            }
            Verdict::Replied => self.reply = Some(reply.bytes),
            verdict => panic!("{verdict:?}"),
        }
    }

    /// Executes it again if it was woken or its time is over.
    fn goes_on(&mut self) {
        let is_over = self.bench.server.now_ms.get() >= self.host.until_ms;
        if self.reply.is_none() && (is_over || self.host.woken.0.load(Ordering::SeqCst)) {
            self.execute();
        }
    }

    /// Whether it waits still.
    pub(crate) fn waits(&mut self) -> bool {
        self.goes_on();
        self.reply.is_none()
    }

    #[track_caller]
    pub(crate) fn replied(&mut self) -> Vec<u8> {
        self.goes_on();
        let Some(reply) = self.reply.take() else { panic!("it waits") };
        reply
    }

    #[track_caller]
    pub(crate) fn told(&mut self) -> Result<Told, u32> {
        let mut reply = Reply::read(&self.replied());
        reply.ok(Op4::Sequence);
        reply.take(|r| r.fixed_opaque(36).map(drop)).unwrap();
        read_told(reply)
    }

    /// Size and mtime.
    #[track_caller]
    fn told_by_nfs3(&mut self) -> Result<(u64, u32), u32> {
        let reply = self.replied();
        let mut r = Reader::new(&reply[HEADER_BYTES..]);
        match r.u32().unwrap() {
            0 => {
                let kind_mode_links_owners = 5 * 4;
                r.fixed_opaque(kind_mode_links_owners).unwrap();
                let size = r.u64().unwrap();
                let used_device_fsid_fileid_atime = 5 * 8;
                r.fixed_opaque(used_device_fsid_fileid_atime).unwrap();
                Ok((size, r.u32().unwrap()))
            }
            status => Err(status),
        }
    }
}

fn getattr(file: &[u8]) -> Ops {
    Ops::put(file).op(Op4::GetAttr, &GetAttr4Args { attr_request: LOOK })
}

/// What the holder itself is told, or who is not made to wait.
pub(crate) fn told(client: &Client<'_>, file: &[u8]) -> Result<Told, u32> {
    read_told(client.run(&getattr(file)))
}

fn read_told(mut reply: Reply) -> Result<Told, u32> {
    if reply.status != 0 {
        return Err(reply.failure().1);
    }
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    Ok(reply.take(|r| {
        let told = Fattr4::decode(r).unwrap();
        assert_eq!(told.attrmask, LOOK);
        Told::read(told.attr_vals)
    }))
}

/// A bench whose first client has had a delegation for a while; and what the file is like.
pub(crate) fn held(bench: &Bench) -> (Client<'_>, Client<'_>, StateId4, Told) {
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    let stored = told(&one, &bench.file).unwrap();
    bench.tick(SECOND);
    (one, two, delegation, stored)
}

#[test]
fn a_holder_that_has_changed_nothing_keeps_its_delegation() {
    let bench = Bench::new();
    let (one, two, delegation, stored) = held(&bench);
    let three = bench.client(b"three", 3);
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    let asked = question(&bench);
    assert_eq!((asked.connection, asked.wanted), (1, ASKED));
    assert_eq!(asked.handle, bench.file);
    // These come later: one question more is for both, whatever protocol they speak.
    let mut by_nfs3 = Waiting::look_by_nfs3(&bench);
    let values = stored.values();
    let obj_attributes = Fattr4 { attrmask: LOOK, attr_vals: &values };
    let verify = Ops::put(&bench.file).op(Op4::Verify, &Verify4Args { obj_attributes });
    let mut verifies = Waiting::new(&bench, &three.from, three.next(false, &verify));
    assert_eq!(bench.server.engine.waiting_calls(), 3);
    assert!(questions(&bench).is_empty());
    bench.answers(&one.from, &asked.tells(stored.change, stored.size));
    assert_eq!(looks.told(), Ok(stored));
    assert!(by_nfs3.waits() && verifies.waits());
    let asked = question(&bench);
    bench.answers(&one.from, &asked.tells(stored.change, stored.size));
    assert_eq!(by_nfs3.told_by_nfs3(), Ok((stored.size, stored.mtime.0 as u32)));
    assert_eq!(Reply::read(&verifies.replied()).status, 0);
    assert_eq!((bench.server.engine.waiting_calls(), questions(&bench).len()), (0, 0));
    // What it writes at the server it has written; it may go on telling what it was given.
    assert_eq!(by_stateid(&one, &bench.file, delegation)[1], 0);
    let written = told(&one, &bench.file).unwrap();
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    bench.answers(&one.from, &question(&bench).tells(stored.change, written.size));
    assert_eq!(looks.told(), Ok(written));
    // What the holder does not change needs nobody's answer.
    let kind = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::Type, Attribute4::Mode]) };
    two.run(&Ops::put(&bench.file).op(Op4::GetAttr, &kind)).succeeds();
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!(told(&two, &bench.file), Ok(written));
    bench.tick(20 * SECOND);
    assert_eq!(questions(&bench).len(), 0);
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!((counts.asked, counts.unasked), (3, 0));
    assert_eq!((counts.recalled, counts.returned), (0, 1));
}

/// Close-to-open: what is written after an answer is seen by whoever looks then.
#[test]
fn an_answer_is_never_used_again() {
    let bench = Bench::new();
    let (one, two, delegation, stored) = held(&bench);
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    bench.answers(&one.from, &question(&bench).tells(stored.change, stored.size));
    assert_eq!(looks.told(), Ok(stored));
    // The holder writes by itself.
    let mut by_nfs3 = Waiting::look_by_nfs3(&bench);
    let asked = question(&bench);
    assert!(by_nfs3.waits());
    bench.answers(&one.from, &asked.tells(stored.change + 1, stored.size + 1));
    assert!(by_nfs3.waits());
    assert_eq!(bench.recalls()[0].stateid, delegation);
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert!(by_nfs3.told_by_nfs3().is_ok());
}

#[test]
fn two_looks_of_one_call_are_two() {
    let bench = Bench::new();
    let (one, two, _, stored) = held(&bench);
    let ops = getattr(&bench.file).then(&getattr(&bench.file));
    let mut looks = Waiting::new(&bench, &two.from, two.next(false, &ops));
    for _ in 0..2 {
        assert!(looks.waits());
        bench.answers(&one.from, &question(&bench).tells(stored.change, stored.size));
    }
    let mut reply = Reply::read(&looks.replied());
    assert_eq!((reply.status, reply.count), (0, 5));
    reply.ok(Op4::Sequence);
}

#[test]
fn a_holder_that_has_changed_something_returns_its_delegation() {
    for (change, size) in [(1, 0), (0, 1)] {
        let bench = Bench::new();
        let (one, two, delegation, stored) = held(&bench);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let answer = question(&bench).tells(stored.change + change, stored.size + size);
        bench.answers(&one.from, &answer);
        assert!(looks.waits());
        assert_eq!(bench.recalls()[0].stateid, delegation, "at once");
        assert_eq!(by_stateid(&one, &bench.file, delegation)[1], 0);
        let written = told(&one, &bench.file).unwrap();
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert_eq!(looks.told(), Ok(written));
    }
}

/// In the first second after the grant the holder may not know of it. Who looks then has it asked later.
#[test]
fn a_look_just_after_the_grant_waits_before_anybody_is_asked() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    let given = told(&one, &bench.file).unwrap().change;
    bench.tick(600);
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    // It writes to the server before it is asked: that makes no answer void.
    assert_eq!(by_stateid(&one, &bench.file, delegation)[1], 0);
    let stored = told(&one, &bench.file).unwrap();
    assert_ne!(stored.change, given);
    bench.tick(399);
    assert!(looks.waits() && questions(&bench).is_empty());
    let now_ms = bench.server.now_ms.get();
    // No longer than that second.
    bench.server.now_ms.set(now_ms + 1);
    assert!(looks.waits());
    bench.answers(&one.from, &question(&bench).tells(given, stored.size));
    assert_eq!(looks.told(), Ok(stored));
    assert_eq!(bench.server.engine.statistics().delegations.recalled, 0);
}

#[test]
fn who_does_not_answer_in_time_has_it_recalled() {
    // Somebody waits, or nobody does any more.
    for is_waiting in [true, false] {
        let bench = Bench::new();
        let (one, two, delegation, _) = held(&bench);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let asked = question(&bench);
        let recalled = || bench.server.engine.statistics().delegations.recalled;
        let now_ms = bench.server.now_ms.get();
        bench.server.now_ms.set(now_ms + 999);
        assert!(looks.waits() && recalled() == 0);
        if is_waiting {
            bench.server.now_ms.set(now_ms + 1_100);
            assert!(looks.waits() && recalled() == 1);
        } else {
            bench.tick(1);
            assert_eq!(recalled(), 1);
        }
        assert_eq!(bench.recalls()[0].stateid, delegation);
        bench.answers(&one.from, &asked.tells(0, 0));
        assert!(looks.waits(), "it waits for the return now");
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert!(looks.told().is_ok());
    }
}

/// Without a slot the delegation is recalled at once, and a recall finds one.
#[test]
fn questions_crowd_out_no_recalls() {
    const FILES: usize = 20;
    /// The back channel has eight slots.
    const QUESTIONS: usize = 7;
    let bench = Bench::new();
    let one = bench.client(b"one", 1);
    let files: Vec<Vec<u8>> = (0..FILES)
        .map(|number| bench.server.make_file(&bench.root, format!("{number}").as_bytes(), 0o666))
        .collect();
    for file in &files {
        delegated(&one, file, BOTH);
    }
    bench.tick(SECOND);
    let others: Vec<Client<'_>> =
        (0..FILES as u8).map(|it| bench.client(&[it], 10 + u64::from(it))).collect();
    let looks: Vec<Waiting<'_>> = std::iter::zip(&others, &files)
        .map(|(other, file)| Waiting::look(&bench, other, file))
        .collect();
    assert_eq!(bench.server.engine.waiting_calls(), looks.len());
    let counts = bench.server.engine.statistics().delegations;
    let lost = (FILES - QUESTIONS) as u64;
    assert_eq!((counts.asked, counts.unasked, counts.recalled), (FILES as u64, lost, lost));
    let sent = std::mem::take(&mut *bench.wires.sent.lock().unwrap());
    let is_recall = |message: &[u8]| {
        let mut r = Reader::new(message);
        CallHeader::decode(&mut r).unwrap();
        CallbackCompoundHead4::decode(&mut r).unwrap();
        CallbackOp4::decode(&mut r).unwrap();
        CallbackSequence4Args::decode(&mut r).unwrap();
        CallbackOp4::decode(&mut r).unwrap() == CallbackOp4::Recall
    };
    let recalls = sent.iter().filter(|(_, message)| is_recall(message)).count();
    assert_eq!((recalls, sent.len()), (1, 8));
}

/// Each time it would be another look, for which no answer counts.
#[test]
fn who_cannot_wait_has_it_recalled() {
    let bench = Bench::new();
    let (one, two, delegation, _) = held(&bench);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!((counts.unasked, counts.recalled), (1, 1));
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    let sent = std::mem::take(&mut *bench.wires.sent.lock().unwrap());
    assert_eq!(sent.len(), 2, "a question and a recall");
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert!(told(&two, &bench.file).is_ok());
}

#[test]
fn a_holder_without_a_connection_has_it_recalled() {
    // Before the question, or after.
    for is_asked in [false, true] {
        let bench = Bench::new();
        let (one, two, delegation, _) = held(&bench);
        let mut looks = is_asked.then(|| Waiting::look(&bench, &two, &bench.file));
        bench.server.engine.closed(&one.from.peer);
        let mut looks = looks.take().unwrap_or_else(|| Waiting::look(&bench, &two, &bench.file));
        // Who waits hears of it with the next call, or tick.
        assert!(!looks.host.woken.0.load(Ordering::SeqCst));
        bench.tick(1);
        assert_eq!(looks.host.woken.0.load(Ordering::SeqCst), is_asked);
        assert!(looks.waits());
        let counts = bench.server.engine.statistics().delegations;
        assert_eq!((counts.asked, counts.unasked), (u64::from(is_asked), 1));
        assert_eq!(counts.recalled, 1, "{is_asked}");
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert!(looks.told().is_ok());
    }
}

#[test]
fn whatever_is_no_answer_has_it_recalled() {
    type Answer = fn(&Question) -> Vec<u8>;
    let rows: [(&str, Answer); 9] = [
        ("no such file", |q| q.reply(NfsStat4::BadHandle, &[])),
        ("no such delegation", |q| q.reply(NfsStat4::BadStateId, &[])),
        ("a fault", |q| q.reply(NfsStat4::ServerFault, &[])),
        ("no time", |q| q.reply(NfsStat4::Delay, &[])),
        ("nothing", |q| q.reply(NfsStat4::Ok, &[])),
        ("no size", |q| q.reply(NfsStat4::Ok, &words(&[1, 8, 8, 0, 1]))),
        ("what was not asked for", |q| {
            q.reply(NfsStat4::Ok, &words(&[2, 0x18, 2, 20, 0, 1, 0, 1, 7]))
        }),
        ("a size that no file has", |q| q.tells(1, 1 << 63)),
        ("that it takes no callbacks", |q| words(&[q.xid, 1, 0, 0, 0, 1])),
    ];
    for (name, answer) in rows {
        let bench = Bench::new();
        let (one, two, delegation, _) = held(&bench);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let asked = question(&bench);
        bench.answers(&one.from, &answer(&asked));
        assert!(looks.host.woken.0.load(Ordering::SeqCst), "{name}");
        assert_eq!(bench.server.engine.statistics().delegations.recalled, 1, "{name}");
        if name != "that it takes no callbacks" {
            assert_eq!(bench.recalls()[0].stateid, delegation, "{name}: at once");
        }
        assert!(looks.waits(), "{name}: for the return");
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert!(looks.told().is_ok(), "{name}");
    }
}

#[test]
fn who_waits_for_an_answer_goes_on_when_the_delegation_is_returned() {
    let bench = Bench::new();
    let (one, two, delegation, stored) = held(&bench);
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    assert!(looks.waits());
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!(looks.told(), Ok(stored));
}

/// Nobody knows what it was given: it is right if it tells what the storage has.
#[test]
fn a_holder_of_before_a_kill_is_asked_too() {
    for has_written in [false, true] {
        let bench = Bench::new();
        let (one, _, delegation, given) = held(&bench);
        if has_written {
            assert_eq!(by_stateid(&one, &bench.file, delegation)[1], 0);
        }
        let stored = told(&one, &bench.file).unwrap();
        let (from, id, session, sequence) = (one.from, one.id, one.session, one.sequence);
        let bench = bench.restarted();
        let server = &bench.server;
        let one = Client { server, from, id, session, sequence, minor: 1 };
        assert_eq!(crate::callbacks::bind(&one, &one.from, 7), Ok(3));
        bench.tick(SECOND);
        let two = bench.client(b"other", 2);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let asked = question(&bench);
        bench.answers(&one.from, &asked.tells(given.change, stored.size));
        if has_written {
            assert!(looks.waits());
            assert_eq!(bench.recalls()[0].stateid, delegation);
        } else {
            assert_eq!(looks.told(), Ok(stored));
        }
    }
}

#[test]
fn data_and_opens_recall_as_before() {
    type Act = fn(&Bench, &Client<'_>) -> u32;
    const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
    let rows: [Act; 3] = [
        |b, _| nfs3(&b.server, 6, &b.file, b"", &[0, 0, 1]),
        |b, c| by_stateid(c, &b.file, ANONYMOUS)[0],
        |b, c| open(c, &b.file, READ, steadfast_wire::nfs4::OpenClaim4::Fh).err().unwrap_or(0),
    ];
    for act in rows {
        let bench = Bench::new();
        let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
        let delegation = delegated(&one, &bench.file, BOTH);
        assert!([DELAY, JUKEBOX].contains(&act(&bench, &two)));
        assert_eq!(bench.recalled().stateid, delegation);
    }
}

/// After a restart nobody knows whether the last callback of a slot has arrived.
#[test]
fn a_question_out_of_order_is_asked_once_more() {
    for is_given_up in [false, true] {
        let bench = Bench::new();
        let (one, two, _, stored) = held(&bench);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let last = question(&bench);
        bench.answers(&one.from, &last.tells(stored.change, stored.size));
        assert_eq!(looks.told(), Ok(stored));
        drop(looks);
        let (from, id, session, sequence) = (one.from, one.id, one.session, one.sequence);
        let bench = bench.restarted();
        let server = &bench.server;
        let one = Client { server, from, id, session, sequence, minor: 1 };
        assert_eq!(crate::callbacks::bind(&one, &one.from, 7), Ok(3));
        bench.tick(SECOND);
        let two = bench.client(b"other", 2);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let asked = question(&bench);
        assert_eq!(asked.sequence.sequenceid, last.sequence.sequenceid + 1);
        if is_given_up {
            bench.tick(SECOND);
            assert!(looks.waits());
            assert_eq!(bench.recalls().len(), 1);
        }
        bench.answers(&one.from, &not_sequenced(&asked, NfsStat4::SeqMisordered));
        assert!(looks.waits());
        if !is_given_up {
            let again = question(&bench);
            assert_eq!(again.sequence.sequenceid, last.sequence.sequenceid);
            bench.answers(&one.from, &again.tells(stored.change, stored.size));
            assert_eq!(looks.told(), Ok(stored));
        }
        assert!(bench.wires.sent.lock().unwrap().is_empty());
        let counts = bench.server.engine.statistics().delegations;
        assert_eq!((counts.unasked, counts.recalled), (0, u64::from(is_given_up)));
    }
}

/// It has not looked at what was asked.
#[test]
fn who_has_no_time_for_callbacks_is_asked_again() {
    // How often it has none; then it answers, or a second is over.
    for (times, is_ready) in [(1, true), (2, true), (1, false), (2, false)] {
        let bench = Bench::new();
        let (one, two, delegation, stored) = held(&bench);
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let mut asked = question(&bench);
        let recalled = || bench.server.engine.statistics().delegations.recalled;
        for time in 1..=times {
            bench.answers(&one.from, &not_sequenced(&asked, NfsStat4::Delay));
            assert!(looks.waits() && questions(&bench).is_empty() && recalled() == 0);
            if is_ready || time < times {
                bench.tick(400);
                let again = question(&bench);
                assert_eq!((again.xid, &again.sequence), (asked.xid, &asked.sequence));
                asked = again;
            }
        }
        if is_ready {
            bench.answers(&one.from, &asked.tells(stored.change, stored.size));
            assert_eq!((looks.told(), recalled()), (Ok(stored), 0));
            continue;
        }
        bench.tick(SECOND);
        let recalls = bench.recalls();
        assert_eq!((recalls.len(), recalls[0].stateid, recalled()), (1, delegation, 1));
        // Of what was sent once it is certain that its number is not used.
        let (last, next) = (&asked.sequence, &recalls[0].sequence);
        assert_eq!((next.slotid, next.sequenceid), (last.slotid, last.sequenceid + times - 1));
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert_eq!(looks.told(), Ok(stored));
    }
}

/// Its host has no room for it: asked once more, it would be another look each time.
#[test]
fn a_look_that_is_refused_has_the_delegation_recalled() {
    for (is_by_nfs3, is_of_nobody) in [(false, false), (true, false), (false, true), (true, true)] {
        let bench = Bench::new();
        let (one, two, delegation, _) = held(&bench);
        let three = bench.client(b"three", 3);
        let look = |client| {
            if is_by_nfs3 {
                Waiting::look_by_nfs3(&bench)
            } else {
                Waiting::look(&bench, client, &bench.file)
            }
        };
        let looks = [look(&two), look(&three)];
        let calls = looks.map(|mut looks| looks.host.suspended.take().unwrap());
        question(&bench);
        for call in calls {
            let call = if is_of_nobody { call.of_nobody() } else { call };
            let mut reply = Vec::new();
            bench.server.engine.refuse(call, &mut reply);
            let status = Reader::new(&reply[HEADER_BYTES..]).u32();
            assert_eq!(status, Ok(if is_by_nfs3 { JUKEBOX } else { DELAY }));
        }
        let counts = bench.server.engine.statistics().delegations;
        let expected = u64::from(!is_of_nobody);
        assert_eq!((counts.unasked, counts.recalled), (expected, expected));
        assert_eq!(bench.server.engine.waiting_calls(), 0);
        if !is_of_nobody {
            assert_eq!(bench.recalls()[0].stateid, delegation, "at once");
            assert_eq!(returns(&one, &bench.file, delegation), 0);
            assert!(told(&two, &bench.file).is_ok());
        }
    }
}

fn writes(client: &Client<'_>, file: &[u8], stateid: StateId4, offset: u64) {
    let write = Write4Args { stateid, offset, stable: StableHow::FileSync, data: b"x" };
    client.run(&Ops::put(file).op(Op4::Write, &write)).succeeds();
}

/// What it writes at the server it may take for written, and tell so, before it is.
#[test]
fn a_holder_that_writes_meanwhile_is_asked_once_more() {
    for is_again in [false, true] {
        let bench = Bench::new();
        let (one, two, delegation, given) = held(&bench);
        writes(&one, &bench.file, delegation, 0);
        let recalled = || bench.server.engine.statistics().delegations.recalled;
        let mut looks = Waiting::look(&bench, &two, &bench.file);
        let asked = question(&bench);
        writes(&one, &bench.file, delegation, 0);
        bench.answers(&one.from, &asked.tells(given.change, 1));
        assert!(looks.waits() && recalled() == 0);
        let asked = question(&bench);
        if is_again {
            writes(&one, &bench.file, delegation, 0);
        }
        bench.answers(&one.from, &asked.tells(given.change, 1));
        if is_again {
            assert!(looks.waits() && recalled() == 1);
        } else {
            assert_eq!(looks.told(), Ok(told(&one, &bench.file).unwrap()));
            assert_eq!(recalled(), 0);
        }
    }
}

/// Then its answer has another size than the file has by now. docs/nfsv4.md says so.
#[test]
fn a_holder_that_appends_meanwhile_has_it_recalled() {
    let bench = Bench::new();
    let (one, two, delegation, given) = held(&bench);
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    let answer = question(&bench).tells(given.change, given.size);
    bench.answers(&one.from, &answer);
    writes(&one, &bench.file, delegation, given.size);
    assert!(looks.waits());
    assert_eq!(bench.server.engine.statistics().delegations.recalled, 1);
    assert_eq!(bench.recalls()[0].stateid, delegation);
}

/// Nobody answers for another.
#[test]
fn a_stranger_s_answer_is_none() {
    let bench = Bench::new();
    let (one, two, _, stored) = held(&bench);
    let mut looks = Waiting::look(&bench, &two, &bench.file);
    let answer = question(&bench).tells(stored.change, stored.size);
    bench.answers(&two.from, &answer);
    assert!(looks.waits());
    bench.answers(&one.from, &answer);
    assert_eq!(looks.told(), Ok(stored));
}
