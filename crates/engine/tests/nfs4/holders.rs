//! What others are told of a file that is delegated to write: its holder is asked by CB_GETATTR (RFC 8881 §10.4.3), and
//! keeps its delegation if it has changed nothing.

use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, CallbackCompoundHead4, CallbackGetAttr4Args, CallbackOp4,
    CallbackSequence4Args, CallbackSequence4Result, Fattr4, GetAttr4Args, NfsStat4, Op4, StateId4,
    Verify4Args,
};
use steadfast_wire::rpc::CallHeader;
use steadfast_xdr::{Decode, Encode, Reader};

use crate::compounds::{HEADER_BYTES, Ops, words, xdr};
use crate::delegations::{BOTH, Bench, READ, SECOND, delegated, open, returns};
use crate::gate::{by_stateid, nfs3};
use crate::harness::{Client, sender};
use crate::idmap::{Keeps, wait};

const DELAY: u32 = NfsStat4::Delay as u32;
const JUKEBOX: u32 = 10008;
const LOOK: Bitmap4 = Bitmap4::of(&[
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);
const ASKED: Bitmap4 = Bitmap4::of(&[Attribute4::Change, Attribute4::Size]);

/// A CB_GETATTR as its client reads it.
#[derive(Clone, Debug)]
struct Question {
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

    /// A reply of which CB_SEQUENCE succeeds.
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

    fn tells(&self, change: u64, size: u64) -> Vec<u8> {
        let attr_vals = xdr(|w| {
            w.u64(change);
            w.u64(size);
        });
        let told = Fattr4 { attrmask: ASKED, attr_vals: &attr_vals };
        self.reply(NfsStat4::Ok, &xdr(|w| told.encode(w)))
    }
}

fn questions(bench: &Bench) -> Vec<Question> {
    let sent = std::mem::take(&mut *bench.wires.sent.lock().unwrap());
    sent.iter().map(|(connection, message)| Question::read(*connection, message)).collect()
}

#[track_caller]
fn question(bench: &Bench) -> Question {
    // It waits until the reply that grants the delegation must have gone out.
    bench.tick(SECOND);
    let questions = questions(bench);
    assert_eq!(questions.len(), 1, "{questions:?}");
    questions[0].clone()
}

/// The attributes of [`LOOK`], in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    change: u64,
    size: u64,
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

fn getattr(file: &[u8]) -> Ops {
    Ops::put(file).op(Op4::GetAttr, &GetAttr4Args { attr_request: LOOK })
}

fn told(client: &Client<'_>, file: &[u8]) -> Result<Told, u32> {
    read_told(client.run(&getattr(file)))
}

fn read_told(mut reply: crate::compounds::Reply) -> Result<Told, u32> {
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

/// Size and mtime by NFSv3.
fn told_by_nfs3(bench: &Bench) -> Result<(u64, u32), u32> {
    let from = sender(2);
    let body = xdr(|w| w.opaque(&bench.file));
    let message = bench.server.message(&from, 3, 1, &body);
    let reply = bench.server.send(&from, &message).unwrap();
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

/// What VERIFY says of these attributes.
fn verified(client: &Client<'_>, file: &[u8], told: Told) -> u32 {
    let values = told.values();
    let obj_attributes = Fattr4 { attrmask: LOOK, attr_vals: &values };
    client.run(&Ops::put(file).op(Op4::Verify, &Verify4Args { obj_attributes })).status
}

#[test]
fn a_holder_that_has_changed_nothing_keeps_its_delegation() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    let stored = told(&one, &bench.file).unwrap();
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    assert_eq!(told_by_nfs3(&bench), Err(JUKEBOX));
    let question = question(&bench);
    assert_eq!((question.connection, question.wanted), (1, ASKED));
    assert_eq!(question.handle, bench.file);
    bench.answers(&one.from, &question.tells(stored.change, stored.size));
    // All who look see what the storage has.
    assert_eq!(told(&two, &bench.file), Ok(stored));
    assert_eq!(told_by_nfs3(&bench), Ok((stored.size, stored.mtime.0 as u32)));
    assert_eq!(verified(&two, &bench.file, stored), 0);
    // After a while it is asked again.
    bench.tick(2 * SECOND);
    assert_eq!(verified(&two, &bench.file, stored), DELAY);
    let again = self::question(&bench);
    bench.answers(&one.from, &again.tells(stored.change, stored.size));
    assert_eq!(verified(&two, &bench.file, stored), 0);
    // What it writes at the server makes the answer void; it may go on telling what it was given.
    assert_eq!(by_stateid(&one, &bench.file, delegation)[1], 0);
    let written = told(&one, &bench.file).unwrap();
    assert_eq!(told(&two, &bench.file), Err(DELAY), "the answer is of before");
    let last = self::question(&bench);
    bench.answers(&one.from, &last.tells(stored.change, written.size));
    assert_eq!(told(&two, &bench.file), Ok(written));
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!(told(&two, &bench.file), Ok(written));
    bench.tick(20 * SECOND);
    assert_eq!(questions(&bench).len(), 0);
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!((counts.asked, counts.recalled, counts.returned), (3, 0, 1));
}

#[test]
fn a_holder_that_has_changed_something_returns_its_delegation() {
    for (change, size) in [(1, 0), (0, 1)] {
        let bench = Bench::new();
        let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
        let delegation = delegated(&one, &bench.file, BOTH);
        let stored = told(&one, &bench.file).unwrap();
        assert_eq!(told(&two, &bench.file), Err(DELAY));
        let question = question(&bench);
        let answer = question.tells(stored.change + change, stored.size + size);
        bench.answers(&one.from, &answer);
        assert_eq!(told(&two, &bench.file), Err(DELAY));
        assert_eq!(bench.recalls()[0].stateid, delegation, "at once");
        assert_eq!(told_by_nfs3(&bench), Err(JUKEBOX));
        assert_eq!(by_stateid(&one, &bench.file, delegation)[1], 0);
        let written = told(&one, &bench.file).unwrap();
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert_eq!(told(&two, &bench.file), Ok(written));
    }
}

/// Nobody looks any more, and the holder says nothing.
#[test]
fn a_silent_holder_has_it_recalled_though_nobody_waits() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    bench.tick(SECOND);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    assert_eq!(questions(&bench).len(), 1);
    for _ in 0..2 {
        assert_eq!(bench.server.engine.statistics().delegations.recalled, 0);
        bench.tick(SECOND);
    }
    assert_eq!(bench.recalls()[0].stateid, delegation);
}

/// Beyond the bound of questions the delegation is recalled at once, and a recall finds a slot.
#[test]
fn questions_crowd_out_no_recalls() {
    const FILES: usize = 20;
    const QUESTIONS: usize = 16;
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let files: Vec<Vec<u8>> = (0..FILES)
        .map(|number| bench.server.make_file(&bench.root, format!("{number}").as_bytes(), 0o666))
        .collect();
    for file in &files {
        delegated(&one, file, BOTH);
    }
    bench.tick(SECOND);
    for file in &files {
        assert_eq!(told(&two, file), Err(DELAY));
    }
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!((counts.asked, counts.recalled), (FILES as u64, (FILES - QUESTIONS) as u64));
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
    assert!(recalls > 0, "{} messages", sent.len());
}

/// What wakes a call that waits, whatever the holder says.
#[test]
fn an_error_wakes_who_waits() {
    for status in [NfsStat4::BadHandle, NfsStat4::BadStateId, NfsStat4::ServerFault] {
        let bench = Bench::new();
        let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
        let delegation = delegated(&one, &bench.file, BOTH);
        bench.tick(SECOND);
        let message = two.next(false, &getattr(&bench.file));
        let mut host = Keeps::default();
        let call = wait(&two, &message, &mut host).unwrap();
        let asked = questions(&bench).pop().unwrap();
        bench.answers(&one.from, &asked.reply(status, &[]));
        assert!(host.is_woken(), "{status:?}");
        assert_eq!(bench.recalls()[0].stateid, delegation);
        // It goes on waiting, for the return.
        host.suspended = Some(call);
        let call = wait(&two, &message, &mut host).unwrap();
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        host.suspended = Some(call);
        assert_eq!(wait(&two, &message, &mut host).unwrap_err().status, 0);
    }
}

#[test]
fn a_file_that_its_holder_has_not_changed_is_told_as_it_is() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    delegated(&one, &bench.file, BOTH);
    let stored = told(&one, &bench.file).unwrap();
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    let question = question(&bench);
    bench.answers(&one.from, &question.tells(stored.change, stored.size));
    assert_eq!(told(&two, &bench.file), Ok(stored));
    // What the holder does not change needs nobody's answer.
    bench.tick(2 * SECOND);
    let kind = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::Type, Attribute4::Mode]) };
    two.run(&Ops::put(&bench.file).op(Op4::GetAttr, &kind)).succeeds();
    bench.tick(SECOND);
    assert_eq!(questions(&bench).len(), 0);
}

#[test]
fn a_holder_that_answers_nonsense_returns_its_delegation() {
    type Answer = fn(&Question) -> Vec<u8>;
    let rows: [(&str, Answer); 6] = [
        ("an error", |q| q.reply(NfsStat4::BadHandle, &[])),
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
        let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
        let delegation = delegated(&one, &bench.file, BOTH);
        bench.tick(SECOND);
        assert_eq!(told(&two, &bench.file), Err(DELAY), "{name}");
        let asked = questions(&bench).pop().expect("it knows of its delegation");
        bench.answers(&one.from, &answer(&asked));
        assert_eq!(bench.server.engine.statistics().delegations.recalled, 1, "{name}");
        if name != "that it takes no callbacks" {
            assert_eq!(bench.recalls()[0].stateid, delegation, "{name}: at once");
        }
        assert_eq!(told(&two, &bench.file), Err(DELAY), "{name}");
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert!(told(&two, &bench.file).is_ok(), "{name}");
    }
}

#[test]
fn who_has_no_time_is_asked_again() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    delegated(&one, &bench.file, BOTH);
    let stored = told(&one, &bench.file).unwrap();
    bench.tick(SECOND);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    let asked = questions(&bench).pop().unwrap();
    bench.answers(&one.from, &asked.reply(NfsStat4::Delay, &[]));
    let again = question(&bench);
    bench.answers(&one.from, &again.tells(stored.change, stored.size));
    assert_eq!(told(&two, &bench.file), Ok(stored));
}

#[test]
fn who_does_not_answer_in_time_has_it_recalled() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    bench.tick(SECOND);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    assert_eq!(questions(&bench).len(), 1);
    bench.tick(SECOND);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    assert_eq!(questions(&bench).len(), 0, "one question a file");
    bench.tick(SECOND);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    assert_eq!(bench.recalls()[0].stateid, delegation);
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert!(told(&two, &bench.file).is_ok());
}

/// What waits is the calls alone, and one answer is for all.
#[test]
fn calls_wait_for_the_answer_without_a_thread() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let three = bench.client(b"three", 3);
    delegated(&one, &bench.file, BOTH);
    let stored = told(&one, &bench.file).unwrap();
    bench.tick(SECOND);
    let waiting = [&two, &three].map(|client| {
        let message = client.next(false, &getattr(&bench.file));
        let mut host = Keeps::default();
        let call = wait(client, &message, &mut host).unwrap();
        assert!(!host.is_woken());
        (client, message, host, call)
    });
    assert_eq!(bench.server.engine.waiting_calls(), 2);
    let mut asked = questions(&bench);
    assert_eq!(asked.len(), 1);
    bench.answers(&one.from, &asked.remove(0).tells(stored.change, stored.size));
    for (client, message, mut host, call) in waiting {
        assert!(host.is_woken());
        host.suspended = Some(call);
        let reply = wait(client, &message, &mut host).unwrap_err();
        assert_eq!(read_told(reply), Ok(stored));
    }
    assert_eq!((bench.server.engine.waiting_calls(), questions(&bench).len()), (0, 0));
}

#[test]
fn who_waits_for_an_answer_goes_on_when_the_delegation_is_returned() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let delegation = delegated(&one, &bench.file, BOTH);
    bench.tick(SECOND);
    let message = two.next(false, &getattr(&bench.file));
    let mut host = Keeps::default();
    let call = wait(&two, &message, &mut host).unwrap();
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert!(host.is_woken());
    host.suspended = Some(call);
    assert_eq!(wait(&two, &message, &mut host).unwrap_err().status, 0);
}

#[test]
fn a_kill_recalls_as_nobody_knows_what_was_given() {
    let bench = Bench::new();
    let one = bench.client(b"one", 1);
    let delegation = delegated(&one, &bench.file, BOTH);
    let (from, id, session, sequence) = (one.from, one.id, one.session, one.sequence);
    let bench = bench.restarted();
    let server = &bench.server;
    let one = Client { server, from, id, session, sequence, minor: 1 };
    assert_eq!(crate::callbacks::bind(&one, &one.from, 7), Ok(3));
    let two = bench.client(b"two", 2);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    assert_eq!(bench.recalled().stateid, delegation);
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

/// Nobody answers for another.
#[test]
fn a_stranger_s_answer_is_none() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    delegated(&one, &bench.file, BOTH);
    let stored = told(&one, &bench.file).unwrap();
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    let asked = question(&bench);
    let answer = asked.tells(stored.change, stored.size);
    bench.answers(&two.from, &answer);
    assert_eq!(told(&two, &bench.file), Err(DELAY));
    bench.answers(&one.from, &answer);
    assert_eq!(told(&two, &bench.file), Ok(stored));
}
