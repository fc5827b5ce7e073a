//! Property ring: replies of COMPOUND are read as RFC 8881 has them; whatever else a server
//! answers is refused, and nothing makes the client panic or wait without end.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use proptest::prelude::*;
use steadfast_client::nfs4::{
    ClientSettings, Compound, CompoundReply, LINUX_ATTRIBUTES, Nfs4Client, Session4, Slots,
};
use steadfast_client::{
    ClientError, FileHandle, Identity, Procedure, Reply, ReplyBody, RpcTransport,
};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, ChannelAttributes4, CreateSession4Result, ExchangeId4Result, NfsStat4,
    Op4, Sequence4Result, StateId4, StateProtectResult4,
};
use steadfast_xdr::{Encode, Writer};

const SESSION: [u8; 16] = *b"0123456789abcdef";
const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };

/// The reply to SEQUENCE, PUTROOTFH, LOOKUP, GETFH, GETATTR of size and mode, ACCESS and READ; by
/// hand from RFC 8881 §16.2.2 and §18.
const WHOLE: &[u8] = b"\0\0\0\0\0\0\0\x02hi\0\0\0\0\0\x07\
    \0\0\0\x35\0\0\0\x000123456789abcdef\0\0\0\x05\0\0\0\x02\0\0\0\x3f\0\0\0\x0f\0\0\0\0\
    \0\0\0\x18\0\0\0\0\
    \0\0\0\x0f\0\0\0\0\
    \0\0\0\x0a\0\0\0\0\0\0\0\x05\x01\x02\x03\x04\x05\0\0\0\
    \0\0\0\x09\0\0\0\0\0\0\0\x02\0\0\0\x10\0\0\0\x02\0\0\0\x0c\
    \0\0\0\x01\0\0\0\0\0\0\x01\xed\
    \0\0\0\x03\0\0\0\0\0\0\0\x3f\0\0\0\x01\
    \0\0\0\x19\0\0\0\0\0\0\0\x01\0\0\0\x03abc\0";

fn read_whole(bytes: &[u8]) -> Result<(), ClientError> {
    let mut reply = CompoundReply::parse(bytes)?;
    let sequence = reply.sequence()?;
    reply.done(Op4::PutRootFh)?;
    reply.done(Op4::Lookup)?;
    let handle = reply.handle()?;
    let attributes = reply.attributes()?;
    let access = reply.access()?;
    let read = reply.read()?;
    reply.end()?;
    assert_eq!((reply.tag(), reply.operations(), reply.status()), (&b"hi"[..], 7, NfsStat4::Ok));
    let slot = (sequence.sessionid, sequence.sequenceid, sequence.slotid);
    assert_eq!(slot, (SESSION, 5, 2));
    assert_eq!((sequence.highest_slotid, sequence.target_highest_slotid), (63, 15));
    assert_eq!(handle, FileHandle(vec![1, 2, 3, 4, 5]));
    assert_eq!((attributes.size, attributes.mode), (Some(1 << 32), Some(0o755)));
    assert_eq!((access.supported, access.access), (0x3f, 1));
    assert_eq!((read.eof, read.data), (true, &b"abc"[..]));
    Ok(())
}

#[test]
fn a_whole_reply_is_read_and_not_if_cut_off_or_too_long() {
    read_whole(WHOLE).unwrap();
    for cut in 0..WHOLE.len() {
        assert!(read_whole(&WHOLE[..cut]).is_err(), "{cut}");
    }
    let error = read_whole(&[WHOLE, &[0; 4]].concat()).unwrap_err();
    assert!(matches!(error, ClientError::TrailingBytes { bytes: 4, .. }), "{error}");
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

const PUT_ROOT: u32 = Op4::PutRootFh as u32;
const LOOKUP: u32 = Op4::Lookup as u32;
const NO_ENT: u32 = NfsStat4::NoEnt as u32;

/// Reads the results of PUTROOTFH and LOOKUP.
fn read_two(reply: &[u32]) -> Result<(), ClientError> {
    let bytes = words(reply);
    let mut reply = CompoundReply::parse(&bytes)?;
    reply.done(Op4::PutRootFh)?;
    reply.done(Op4::Lookup)?;
    reply.end()
}

#[test]
fn failures_name_operation_and_status() {
    read_two(&[0, 0, 2, PUT_ROOT, 0, LOOKUP, 0]).unwrap();
    let error = read_two(&[NO_ENT, 0, 2, PUT_ROOT, 0, LOOKUP, NO_ENT]).unwrap_err();
    assert_eq!(error.to_string(), "LOOKUP (operation 1) failed with NoEnt");
    assert_eq!((error.status4(), error.status()), (Some(NfsStat4::NoEnt), None));
    // One that the server does not know, and a COMPOUND of which it executes nothing.
    let illegal = NfsStat4::OpIllegal as u32;
    let error = read_two(&[illegal, 0, 2, PUT_ROOT, 0, 10044, illegal]).unwrap_err();
    assert_eq!(error.to_string(), "LOOKUP (operation 1) failed with OpIllegal");
    let error = read_two(&[NfsStat4::MinorVersMismatch as u32, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "COMPOUND (operation 0) failed with MinorVersMismatch");
}

#[test]
fn replies_that_contradict_themselves_are_refused() {
    let why = |reply: &[u32]| match read_two(reply).unwrap_err() {
        ClientError::Contradiction { why, .. } => why,
        error => panic!("{error}"),
    };
    let of_other = why(&[0, 0, 2, PUT_ROOT, 0, Op4::GetFh as u32, 0]);
    assert_eq!(of_other, "the result of another operation than was called");
    assert_eq!(why(&[0, 0, 1, PUT_ROOT, 0]), "fewer operations than in the call");
    let too_many = why(&[0, 0, 3, PUT_ROOT, 0, LOOKUP, 0, LOOKUP, 0]);
    assert_eq!(too_many, "more operations than in the call");
    let goes_on = why(&[0, 0, 2, PUT_ROOT, NO_ENT, LOOKUP, 0]);
    assert_eq!(goes_on, "it goes on after an operation that failed");
    for reply in [[0, 0, 2, PUT_ROOT, 0, LOOKUP, NO_ENT], [NO_ENT, 0, 2, PUT_ROOT, 0, LOOKUP, 0]] {
        assert_eq!(why(&reply), "its status is not that of its last operation");
    }
    let trailing = read_two(&[NO_ENT, 0, 2, PUT_ROOT, 0, LOOKUP, NO_ENT, 7]).unwrap_err();
    assert!(matches!(trailing, ClientError::TrailingBytes { bytes: 4, .. }), "{trailing}");
}

/// Of LOCK: a write lock on bytes 1 to 2 of owner "me" of client 9.
#[test]
fn a_denied_lock_tells_whose() {
    let (lock, denied) = (Op4::Lock as u32, NfsStat4::Denied as u32);
    let bytes = words(&[denied, 0, 1, lock, denied, 0, 1, 0, 2, 2, 0, 9, 2, 0x6d65_0000]);
    let mut reply = CompoundReply::parse(&bytes).unwrap();
    let ClientError::Operation(failure) = reply.stateid(Op4::Lock).unwrap_err() else { panic!() };
    let told = failure.denied.unwrap();
    assert_eq!((told.offset, told.length, told.clientid), (1, 2, 9));
    assert_eq!(told.owner, b"me");
}

/// Answers calls with these results, in order; keeps the calls' arguments.
#[derive(Default)]
struct Scripted {
    results: VecDeque<Vec<u8>>,
    calls: Vec<Vec<u8>>,
}

impl RpcTransport for Scripted {
    fn exchange(
        &mut self,
        _procedure: Procedure,
        _identity: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        self.calls.push(arguments.to_vec());
        let message = self.results.pop_front().ok_or(ClientError::Closed)?;
        Ok(Reply { xid: 0, body: ReplyBody::Success { results_at: 0 }, message })
    }
}

/// Answers every call with these results.
struct Canned<'a>(&'a [u8]);

impl RpcTransport for Canned<'_> {
    fn exchange(
        &mut self,
        _procedure: Procedure,
        _identity: &Identity,
        _arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        let body = ReplyBody::Success { results_at: 0 };
        Ok(Reply { xid: 0, body, message: self.0.to_vec() })
    }
}

/// An operation, its status, and what follows that.
type OpResult<'r> = (Op4, NfsStat4, &'r dyn Fn(&mut Writer<'_>));

/// A reply of these operations' results, with no tag.
fn results(results: &[OpResult<'_>]) -> Vec<u8> {
    let status = results.last().map_or(NfsStat4::Ok, |(_, status, _)| *status);
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    for word in [status as u32, 0, results.len() as u32] {
        w.u32(word);
    }
    for (op, status, body) in results {
        w.u32(*op as u32);
        w.u32(*status as u32);
        body(&mut w);
    }
    bytes
}

fn nothing(_: &mut Writer<'_>) {}

fn told(sequenceid: u32) -> Sequence4Result {
    Sequence4Result {
        sessionid: SESSION,
        sequenceid,
        slotid: 0,
        highest_slotid: 3,
        target_highest_slotid: 3,
        status_flags: 0,
    }
}

/// The reply of a request in slot 0.
fn in_slot(sequence: u32, others: &[OpResult<'_>]) -> Vec<u8> {
    let sequence = move |w: &mut Writer<'_>| told(sequence).encode(w);
    let first: OpResult<'_> = (Op4::Sequence, NfsStat4::Ok, &sequence);
    results(&[&[first], others].concat())
}

fn channel() -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 4096,
        maxoperations: 8,
        maxrequests: 4,
        rdma_ird: Vec::new(),
    }
}

/// What a server says to a client that connects.
fn welcome() -> [Vec<u8>; 3] {
    let known = |w: &mut Writer<'_>| {
        let known = ExchangeId4Result {
            clientid: 77,
            sequenceid: 9,
            flags: 0x1_0000,
            state_protect: StateProtectResult4::None,
            server_minor_id: 0,
            server_major_id: b"server",
            server_scope: b"scope",
            server_impl_id: Vec::new(),
        };
        known.encode(w);
    };
    let made = |w: &mut Writer<'_>| {
        let (fore, back) = (channel(), channel());
        let made = CreateSession4Result { sessionid: SESSION, sequence: 9, flags: 0, fore, back };
        made.encode(w);
    };
    [
        results(&[(Op4::ExchangeId, NfsStat4::Ok, &known)]),
        results(&[(Op4::CreateSession, NfsStat4::Ok, &made)]),
        in_slot(1, &[(Op4::ReclaimComplete, NfsStat4::Ok, &nothing)]),
    ]
}

fn connected(replies: impl IntoIterator<Item = Vec<u8>>) -> Nfs4Client<Scripted> {
    let mut transport = Scripted::default();
    transport.results.extend(welcome());
    transport.results.extend(replies);
    Nfs4Client::connect(transport, Identity::None, &ClientSettings::default()).unwrap()
}

#[test]
fn a_client_connects_walks_reads_and_leaves() {
    let handle = |w: &mut Writer<'_>| w.opaque(b"handle");
    let data = |w: &mut Writer<'_>| {
        w.bool(false);
        w.opaque(b"data");
    };
    let ok = NfsStat4::Ok;
    let mut client = connected([
        in_slot(2, &[(Op4::PutRootFh, ok, &nothing), (Op4::GetFh, ok, &handle)]),
        in_slot(
            3,
            &[
                (Op4::PutFh, ok, &nothing),
                (Op4::Lookup, ok, &nothing),
                (Op4::Lookup, ok, &nothing),
                (Op4::GetFh, ok, &handle),
            ],
        ),
        in_slot(4, &[(Op4::PutFh, ok, &nothing), (Op4::Read, ok, &data)]),
        results(&[(Op4::DestroySession, ok, &nothing)]),
        results(&[(Op4::DestroyClientId, NfsStat4::Delay, &nothing)]),
        results(&[(Op4::DestroyClientId, ok, &nothing)]),
    ]);
    let found = client.lookup_path(b"/srv//share/").unwrap();
    assert_eq!(found, FileHandle(b"handle".to_vec()));
    let read = client.read(&found, ANONYMOUS, 0, 4).unwrap();
    assert_eq!((read.data, read.eof), (b"data".to_vec(), false));
    let transport = client.destroy().unwrap();
    // The second request of the walk: SEQUENCE of slot 0 and sequence id 3.
    let expected = Slots::new(SESSION, 4);
    let mut walk = Vec::new();
    let mut w = Writer::new(&mut walk);
    for word in [0, 1, 5, Op4::Sequence as u32] {
        w.u32(word);
    }
    w.fixed_opaque(&expected.session());
    for word in [3, 0, 0, 0] {
        w.u32(word);
    }
    assert_eq!(transport.calls[4][..walk.len()], walk);
    assert!(transport.results.is_empty());
}

#[test]
fn a_slot_moves_only_if_sequence_succeeds() {
    let ok = NfsStat4::Ok;
    let handle = |w: &mut Writer<'_>| w.opaque(b"h");
    let root: [OpResult<'_>; 2] = [(Op4::PutRootFh, ok, &nothing), (Op4::GetFh, ok, &handle)];
    let mut client = connected([
        results(&[(Op4::Sequence, NfsStat4::Delay, &nothing)]),
        in_slot(2, &[(Op4::PutRootFh, NfsStat4::Delay, &nothing)]),
        in_slot(3, &root),
        // The result of another request.
        in_slot(9, &root),
    ]);
    for _ in 0..2 {
        assert_eq!(client.root().unwrap_err().status4(), Some(NfsStat4::Delay));
    }
    client.root().unwrap();
    let error = client.root().unwrap_err();
    assert!(matches!(error, ClientError::Contradiction { procedure: "SEQUENCE", .. }), "{error}");
}

#[test]
fn requests_without_replies_take_their_slots_with_them() {
    let mut client = connected([]);
    for _ in 0..4 {
        assert!(matches!(client.root(), Err(ClientError::Closed)));
    }
    assert!(matches!(client.root(), Err(ClientError::NoFreeSlot)));
}

#[test]
fn a_listing_that_never_ends_is_refused() {
    // One entry with cookie 7 and no attributes; or none; and yet not the end.
    let same = |w: &mut Writer<'_>| {
        w.zeros(8);
        for word in [1, 0, 7, 1, 0x6100_0000, 0, 0, 0, 0] {
            w.u32(word);
        }
    };
    let none = |w: &mut Writer<'_>| w.zeros(16);
    let put = (Op4::PutFh, NfsStat4::Ok, &nothing as &dyn Fn(&mut Writer<'_>));
    let page = |sequence, list: &dyn Fn(&mut Writer<'_>)| {
        in_slot(sequence, &[put, (Op4::ReadDir, NfsStat4::Ok, list)])
    };
    let directory = FileHandle(b"d".to_vec());
    for replies in [vec![page(2, &same), page(3, &same)], vec![page(2, &none)]] {
        let error =
            connected(replies).read_directory(&directory, LINUX_ATTRIBUTES, 4096).unwrap_err();
        let is_refused = matches!(error, ClientError::Contradiction { procedure: "READDIR", .. });
        assert!(is_refused, "{error}");
    }
}

#[test]
fn attributes_that_nobody_asked_for_are_refused() {
    let size = |w: &mut Writer<'_>| {
        for word in [1, 0x10, 8, 0, 5] {
            w.u32(word);
        }
    };
    let ok = NfsStat4::Ok;
    let mut client =
        connected([in_slot(2, &[(Op4::PutFh, ok, &nothing), (Op4::GetAttr, ok, &size)])]);
    let mode = Bitmap4::of(&[Attribute4::Mode]);
    let error = client.attributes(&FileHandle(vec![1]), mode).unwrap_err();
    assert!(matches!(error, ClientError::Contradiction { procedure: "GETATTR", .. }), "{error}");
}

/// Bytes that look like XDR often enough to get somewhere: small numbers, and noise.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => (0_u32..2).prop_map(u32::to_be_bytes),
        3 => (0_u32..60).prop_map(u32::to_be_bytes),
        1 => any::<u32>().prop_map(u32::to_be_bytes),
    ];
    (prop::collection::vec(word, 0..120), prop::collection::vec(any::<u8>(), 0..4))
        .prop_map(|(words, tail)| [words.concat(), tail].concat())
}

/// Lets every method of the client read these results.
fn read_by_all(bytes: &[u8]) {
    let client = || {
        let slots = Slots::new([0; 16], 2);
        let session = Session4 { clientid: 1, fore: channel(), slots, minor_version: 1 };
        Nfs4Client::with_session(Canned(bytes), Identity::None, session)
    };
    let object = FileHandle(vec![1]);
    let _ = Nfs4Client::connect(Canned(bytes), Identity::None, &ClientSettings::default());
    let _ = client().lookup_path(b"a/b");
    let _ = client().lookup(&object, b"a", LINUX_ATTRIBUTES);
    let _ = client().attributes(&object, LINUX_ATTRIBUTES);
    let _ = client().access(&object, 1);
    let _ = client().read(&object, ANONYMOUS, 0, 4096);
    let _ = client().open_for_reading(&object, b"a");
    let _ = client().close(&object, ANONYMOUS);
    let _ = client().read_directory(&object, LINUX_ATTRIBUTES, 4096);
    let _ = client().read_link(&object);
}

/// Lets every reader of one operation's result read these results.
fn read_alone(op: Op4, bytes: &[u8]) {
    let Ok(mut reply) = CompoundReply::parse(bytes) else { return };
    let _ = match op {
        Op4::Sequence => reply.sequence().map(drop),
        Op4::ExchangeId => reply.exchange_id().map(drop),
        Op4::CreateSession => reply.create_session().map(drop),
        Op4::BindConnToSession => reply.bind_conn_to_session().map(drop),
        Op4::GetFh => reply.handle().map(drop),
        Op4::GetAttr => reply.attributes().map(drop),
        Op4::Access => reply.access().map(drop),
        Op4::Open => reply.open().map(drop),
        Op4::Close | Op4::OpenDowngrade | Op4::Lock | Op4::LockU => reply.stateid(op).map(drop),
        Op4::Read => reply.read().map(drop),
        Op4::Write => reply.write().map(drop),
        Op4::Commit => reply.commit().map(drop),
        Op4::Create => reply.create().map(drop),
        Op4::Remove | Op4::Link => reply.change(op).map(drop),
        Op4::Rename => reply.rename().map(drop),
        Op4::SetAttr => reply.set_attributes().map(drop),
        Op4::ReadDir => reply.listing().map(drop),
        Op4::ReadLink => reply.link().map(drop),
        Op4::SecInfo | Op4::SecInfoNoName => reply.security(op).map(drop),
        Op4::TestStateId => reply.test_stateid().map(drop),
        _ => reply.done(op),
    };
    let _ = reply.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_results_are_read_or_refused(bytes in likely_bytes()) {
        read_by_all(&bytes);
        for op in Op4::ALL {
            read_alone(*op, &bytes);
        }
    }

    /// The same, from where the results proper begin.
    #[test]
    fn any_results_of_an_operation_are_read_or_refused(bytes in likely_bytes()) {
        for op in Op4::ALL {
            for status in [NfsStat4::Ok, NfsStat4::Denied] {
                let head = words(&[status as u32, 0, 1, *op as u32, status as u32]);
                read_alone(*op, &[head, bytes.clone()].concat());
            }
        }
    }

    #[test]
    fn damaged_replies_are_read_or_refused(at in 0..WHOLE.len(), byte in any::<u8>()) {
        let mut bytes = WHOLE.to_vec();
        bytes[at] = byte;
        let mut reply = CompoundReply::parse(&bytes).ok();
        while let Some(Ok(Some((op, _)))) = reply.as_mut().map(CompoundReply::next_op) {
            prop_assert!(Op4::ALL.contains(&op));
        }
        read_by_all(&bytes);
    }
}

/// The properties above would hold of a builder that makes nothing.
#[test]
fn requests_by_hand_are_sent_as_they_are() {
    let mut client = connected([results(&[])]);
    let compound = Compound::new().tagged(b"t").raw(99, b"1234");
    assert_eq!(client.send(&compound).unwrap().len(), 12);
    let (transport, session) = client.into_parts();
    assert_eq!(transport.calls.last().unwrap(), &compound.arguments());
    assert_eq!((session.clientid, session.slots.count()), (77, 4));
}
