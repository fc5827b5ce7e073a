//! Owners by name (RFC 8881 §5.9): what is taken, what is told, and who waits for a name service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use steadfast_engine::{CallHost, IdMapping, ReplyBuffer, StorageId, SuspendedCall, Verdict};
use steadfast_engine::{Export, Room};
use steadfast_shares::{
    AccountKind, AccountName, Authority, Decision, Groups, HostName, NameOf, NumberOf, Question,
    RuleSet, RulesOnly,
};
use steadfast_wire::nfs4::{
    Ace4, Attribute4, Bitmap4, Create4Args, CreateType4, Fattr4, GetAttr4Args, NfsStat4, Op4,
    Open4Args, OpenClaim4, OpenHow4, ReadDir4Args, SetAttr4Args, StateId4, Verify4Args,
};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::compounds::{Ops, Reply, xdr};
use crate::harness::{Client, Server, everything, export, rule, sender, share};

use AccountKind::{Group, User};

/// A name service: slow as long as it is, and otherwise as its table says.
#[derive(Default)]
struct Names {
    table: Vec<(AccountKind, &'static str, u32)>,
    is_slow: AtomicBool,
    asked: Mutex<HashMap<String, u32>>,
}

impl Names {
    fn new() -> Arc<Self> {
        let table = vec![
            (User, "jane", 1000),
            (User, "minus", u32::MAX),
            (Group, "staff", 50),
            (Group, "jane", 2000),
        ];
        Arc::new(Self { table, ..Self::default() })
    }

    fn note(&self, asked: String) {
        *self.asked.lock().unwrap().entry(asked).or_default() += 1;
    }

    /// Who was asked for, in order.
    fn take_asked(&self) -> Vec<String> {
        let mut asked: Vec<_> =
            self.asked.lock().unwrap().drain().map(|(asked, _)| asked).collect();
        asked.sort();
        asked
    }

    fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::SeqCst)
    }

    fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::SeqCst);
    }
}

impl Authority for Names {
    fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision {
        RulesOnly.decide(rules, question)
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn groups(&self, uid: u32) -> Groups {
        RulesOnly.groups(uid)
    }

    fn number_of(&self, kind: AccountKind, name: &AccountName) -> NumberOf {
        self.note(format!("{kind} {name}"));
        if self.is_slow() {
            return NumberOf::NotYet;
        }
        let mut table = self.table.iter();
        let found = table.find(|(of, known, _)| (*of, *known) == (kind, name.as_str()));
        found.map_or(NumberOf::Nobody, |(.., number)| NumberOf::Is(*number))
    }

    fn name_of(&self, kind: AccountKind, number: u32) -> NameOf {
        self.note(format!("{kind} {number}"));
        if self.is_slow() {
            return NameOf::NotYet;
        }
        let found = self.table.iter().find(|(of, _, known)| (*of, *known) == (kind, number));
        found.map_or(NameOf::None, |(_, name, _)| NameOf::Is(AccountName::new(name).unwrap()))
    }
}

fn server(names: &Arc<Names>, tells_names: bool, exports: Vec<Export>) -> Server {
    let domain = HostName::new("example.com");
    Server::naming(exports, IdMapping { domain, tells_names }, Arc::clone(names) as _)
}

fn all() -> Vec<Export> {
    vec![export(share(1, "/a", vec![rule("127.0.0.0", everything())]))]
}

fn owners(user: &str, group: &str) -> Vec<u8> {
    xdr(|w| {
        w.opaque(user.as_bytes());
        w.opaque(group.as_bytes());
    })
}

const BOTH: &[Attribute4] = &[Attribute4::Owner, Attribute4::OwnerGroup];

fn fattr<'v>(attributes: &[Attribute4], attr_vals: &'v [u8]) -> Fattr4<'v> {
    Fattr4 { attrmask: Bitmap4::of(attributes), attr_vals }
}

fn setattr(object: &[u8], obj_attributes: Fattr4<'_>) -> Ops {
    let stateid = StateId4 { seqid: 0, other: [0; 12] };
    Ops::put(object).op(Op4::SetAttr, &SetAttr4Args { stateid, obj_attributes })
}

fn chown(client: &Client<'_>, object: &[u8], user: &str, group: &str) -> Reply {
    client.run(&setattr(object, fattr(BOTH, &owners(user, group))))
}

fn getattr(object: &[u8]) -> Ops {
    let arguments = GetAttr4Args { attr_request: Bitmap4::of(BOTH) };
    Ops::put(object).op(Op4::GetAttr, &arguments)
}

/// Reads owner and group of attributes.
fn both(r: &mut Reader<'_>) -> (String, String) {
    assert_eq!(Bitmap4::decode(r).unwrap(), Bitmap4::of(BOTH));
    let mut values = Reader::new(r.opaque(4096).unwrap());
    let mut text = || String::from_utf8(values.opaque(1024).unwrap().to_vec()).unwrap();
    (text(), text())
}

fn told_by(mut reply: Reply) -> (String, String) {
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    reply.take(both)
}

fn told(client: &Client<'_>, object: &[u8]) -> (String, String) {
    told_by(client.run(&getattr(object)).succeeds())
}

fn texts(user: &str, group: &str) -> (String, String) {
    (user.to_owned(), group.to_owned())
}

/// Keeps calls that wait, as long as it is patient.
#[derive(Default)]
struct Keeps {
    suspended: Option<SuspendedCall>,
    is_impatient: bool,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl CallHost for Keeps {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn room_to_wait(&mut self, _: StorageId) -> Room {
        Room::Free
    }

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, _: u64) -> Option<Waker> {
        (!self.is_impatient).then(|| Waker::from(Arc::clone(&self.woken)))
    }
}

/// Executes a message; the call, if it waits, or what is told, without SEQUENCE's result.
fn wait(client: &Client<'_>, message: &[u8], host: &mut Keeps) -> Result<SuspendedCall, Reply> {
    let mut reply = ReplyBuffer::default();
    let Server { engine, now_ms, .. } = client.server;
    match engine.call(host, &client.from.peer, now_ms.get(), message, &mut reply) {
        Verdict::Suspended(call) => return Ok(call),
        Verdict::Replied => {}
        Verdict::Parked(call) => engine.settle(call, Ok(()), 0, &mut reply.bytes),
        verdict => panic!("{verdict:?}"),
    }
    let mut reply = Reply::read(&reply.bytes);
    reply.ok(Op4::Sequence);
    reply.take(|r| r.fixed_opaque(36).map(drop)).unwrap();
    Err(reply)
}

#[test]
fn owners_are_taken_by_name_and_told_by_number() {
    let names = Names::new();
    let server = server(&names, false, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    chown(&client, &file, "jane@example.com", "staff@EXAMPLE.com").succeeds();
    assert_eq!(told(&client, &file), texts("1000", "50"));
    chown(&client, &file, "7", "jane@example.com").succeeds();
    assert_eq!(told(&client, &file), texts("7", "2000"));
    assert_eq!(names.take_asked(), ["group jane", "group staff", "user jane"]);
    // Nobody is asked about numbers.
    chown(&client, &file, "8", "9").succeeds();
    assert_eq!((told(&client, &file), names.take_asked().len()), (texts("8", "9"), 0));
    for (user, group) in [
        ("joe@example.com", "50"),
        ("1000", "joe@example.com"),
        ("staff@example.com", "50"),
        ("minus@example.com", "50"),
        ("jane@example.org", "50"),
        ("jane", "50"),
        ("jane@example.com", "01"),
        ("jane@example.com", "@example.com"),
    ] {
        chown(&client, &file, user, group).fails_setting(NfsStat4::BadOwner);
    }
    chown(&client, &file, "jane@example.com", "").fails_setting(NfsStat4::Inval);
    assert_eq!(told(&client, &file), texts("8", "9"), "nothing is set of what fails");
    chown(&client, &file, "jane@example.com", "staff@example.com").succeeds();
    assert_eq!(told(&client, &file), texts("1000", "50"));
}

impl Reply {
    /// SETATTR tells what it has set, also when it fails.
    #[track_caller]
    fn fails_setting(&self, status: NfsStat4) {
        let mut r = Reader::new(&self.body);
        let put = (r.u32().unwrap(), r.u32().unwrap());
        assert_eq!(put.0, Op4::Sequence as u32);
        r.fixed_opaque(36).unwrap();
        assert_eq!((r.u32().unwrap(), r.u32().unwrap()), (Op4::PutFh as u32, 0));
        assert_eq!((r.u32().unwrap(), r.u32().unwrap()), (Op4::SetAttr as u32, status as u32));
        assert!(Bitmap4::decode(&mut r).unwrap().is_empty());
        assert_eq!(self.status, status as u32);
    }
}

#[test]
fn what_is_made_has_the_owners_that_are_named() {
    let names = Names::new();
    let server = server(&names, false, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let values = owners("jane@example.com", "staff@example.com");
    let create = |name: &'static [u8], values: &[u8]| {
        let createattrs = fattr(BOTH, values);
        let create = Create4Args { objtype: CreateType4::Directory, objname: name, createattrs };
        client.run(&Ops::put(&root).op(Op4::Create, &create))
    };
    let open = |name: &'static [u8], openhow: OpenHow4<'_>| {
        let open = Open4Args {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            clientid: 0,
            owner: b"o",
            openhow,
            claim: OpenClaim4::Null(name),
        };
        client.run(&Ops::put(&root).op(Op4::Open, &open))
    };
    create(b"d", &values).succeeds();
    open(b"u", OpenHow4::Unchecked(fattr(BOTH, &values))).succeeds();
    open(b"g", OpenHow4::Guarded(fattr(BOTH, &values))).succeeds();
    open(b"e", OpenHow4::Exclusive41([1; 8], fattr(BOTH, &values))).succeeds();
    for name in [b"d", b"u", b"g", b"e"] {
        assert_eq!(told(&client, &client.handle(&[b"a", name])), texts("1000", "50"));
    }
    let values = owners("joe@example.com", "50");
    create(b"x", &values).fails(Op4::Create, NfsStat4::BadOwner);
    let reply = open(b"x", OpenHow4::Unchecked(fattr(BOTH, &values)));
    reply.fails(Op4::Open, NfsStat4::BadOwner);
    let reply = client.run(&Ops::put(&root).look_up(b"x"));
    reply.fails(Op4::Lookup, NfsStat4::NoEnt);
}

fn list(entries: &[(u32, &str)]) -> Vec<u8> {
    xdr(|w| {
        w.u32(entries.len() as u32);
        for (flag, who) in entries {
            Ace4 { kind: 0, flag: *flag, access_mask: 1, who: who.as_bytes() }.encode(w);
        }
    })
}

/// For whom the entries of an object's list are.
fn list_of(client: &Client<'_>, object: &[u8]) -> Vec<String> {
    let arguments = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::Acl]) };
    let ops = Ops::put(object).op(Op4::GetAttr, &arguments);
    let mut reply = client.run(&ops).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    reply.take(|r| {
        assert!(Bitmap4::decode(r).unwrap().has(Attribute4::Acl));
        let mut values = Reader::new(r.opaque(1 << 16).unwrap());
        let count = values.u32().unwrap();
        let whos = (0..count).map(|_| Ace4::decode(&mut values).unwrap().who.to_vec());
        whos.map(|who| String::from_utf8(who).unwrap()).collect()
    })
}

#[test]
fn lists_are_taken_and_told_by_name() {
    const GROUP: u32 = 0x40;
    let names = Names::new();
    for tells_names in [false, true] {
        let server = server(&names, tells_names, all());
        let client = Client::new(&server, b"c", sender(1));
        let root = client.handle(&[b"a"]);
        let file = server.make_file(&root, b"f", 0o600);
        let acl = |entries| setattr_acl(&client, &file, entries);
        acl(&[
            (0, "OWNER@"),
            (0, "jane@example.com"),
            (0, "1001"),
            (GROUP, "jane@example.com"),
            (0, "EVERYONE@"),
        ])
        .succeeds();
        let (jane, janes) =
            if tells_names { ("jane@example.com", "jane@example.com") } else { ("1000", "2000") };
        let expected = ["OWNER@", jane, "1001", "GROUP@", janes, "EVERYONE@"];
        assert_eq!(list_of(&client, &file), expected, "{tells_names}");
        acl(&[(0, "OWNER@"), (0, "joe@example.com")]).fails_setting(NfsStat4::BadOwner);
        acl(&[(GROUP, "jane@example.org")]).fails_setting(NfsStat4::BadOwner);
    }
}

fn setattr_acl(client: &Client<'_>, object: &[u8], entries: &[(u32, &str)]) -> Reply {
    client.run(&setattr(object, fattr(&[Attribute4::Acl], &list(entries))))
}

#[test]
fn a_name_that_is_looked_up_is_waited_for_without_a_thread() {
    let names = Names::new();
    let server = server(&names, false, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    names.set_slow(true);
    let values = owners("jane@example.com", "staff@example.com");
    let message = client.next(false, &setattr(&file, fattr(BOTH, &values)));
    let mut host = Keeps::default();
    let mut call = wait(&client, &message, &mut host).unwrap();
    // Both are looked up before any is waited for.
    assert_eq!(names.take_asked(), ["group staff", "user jane"]);
    assert_eq!(server.engine.waiting_calls(), 1);
    for _ in 0..6 {
        assert!(!host.woken.0.load(Ordering::SeqCst));
        server.engine.names_are_known();
        assert!(host.woken.0.load(Ordering::SeqCst));
        host = Keeps { suspended: Some(call), ..Keeps::default() };
        call = wait(&client, &message, &mut host).unwrap();
    }
    names.set_slow(false);
    let mut host = Keeps { suspended: Some(call), ..Keeps::default() };
    assert_eq!(wait(&client, &message, &mut host).unwrap_err().status, 0);
    assert_eq!(server.engine.waiting_calls(), 0);
    assert_eq!(told(&client, &file), texts("1000", "50"));
}

#[test]
fn a_name_service_that_fails_has_the_client_ask_again_and_sets_nothing() {
    let names = Names::new();
    let server = server(&names, false, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    chown(&client, &file, "7", "8").succeeds();
    names.set_slow(true);
    let values = owners("jane@example.com", "staff@example.com");
    let message = client.next(false, &setattr(&file, fattr(BOTH, &values)));
    let call = wait(&client, &message, &mut Keeps::default()).unwrap();
    let mut host = Keeps { suspended: Some(call), is_impatient: true, woken: Arc::default() };
    let reply = wait(&client, &message, &mut host).unwrap_err();
    assert_eq!((reply.status, server.engine.waiting_calls()), (NfsStat4::Delay as u32, 0));
    assert_eq!(told(&client, &file), texts("7", "8"));
    // What is wrong anyhow is told at once.
    chown(&client, &file, "jane@example.com", "staff@example.org")
        .fails_setting(NfsStat4::BadOwner);
    // Numbers need nobody.
    chown(&client, &file, "9", "10").succeeds();
    assert_eq!(told(&client, &file), texts("9", "10"));
}

#[test]
fn who_may_not_use_the_share_has_nobody_looked_up() {
    let names = Names::new();
    let mut exports = all();
    exports.push(export(share(2, "/b", vec![rule("10.0.0.0", everything())])));
    let server = server(&names, false, exports);
    let client = Client::new(&server, b"c", sender(1));
    let mut elsewhere = sender(2);
    let local = "127.0.0.1:2049".parse().unwrap();
    elsewhere.peer = steadfast_engine::Peer::new(
        "10.0.0.1:700".parse().unwrap(),
        local,
        steadfast_engine::Transport::Tcp,
    )
    .on_connection(2);
    let other = Client::new(&server, b"d", elsewhere);
    let handle = other.handle(&[b"b"]);
    let reply = chown(&client, &handle, "jane@example.com", "50");
    reply.fails(Op4::PutFh, NfsStat4::Access);
    // In the pseudo file system nothing is set.
    let root = client.handle(&[]);
    chown(&client, &root, "jane@example.com", "50").fails_setting(NfsStat4::RoFs);
    assert!(names.take_asked().is_empty());
}

#[test]
fn owners_are_told_by_name_if_that_is_asked_for() {
    let names = Names::new();
    let server = server(&names, true, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    chown(&client, &file, "1000", "50").succeeds();
    assert_eq!(told(&client, &file), texts("jane@example.com", "staff@example.com"));
    // What was told is taken.
    let (user, group) = told(&client, &file);
    chown(&client, &file, &user, &group).succeeds();
    let values = owners(&user, &group);
    let same = Verify4Args { obj_attributes: fattr(BOTH, &values) };
    client.run(&Ops::put(&file).op(Op4::Verify, &same)).succeeds();
    // Who has no name is told by number.
    chown(&client, &file, "1001", "50").succeeds();
    assert_eq!(told(&client, &file), texts("1001", "staff@example.com"));
    // Who is not asked for is not looked up.
    names.take_asked();
    let arguments = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::OwnerGroup]) };
    client.run(&Ops::put(&file).op(Op4::GetAttr, &arguments)).succeeds();
    assert_eq!(names.take_asked(), ["group 50"]);
}

#[test]
fn getattr_waits_for_a_name_and_tells_the_number_when_it_may_not() {
    let names = Names::new();
    let server = server(&names, true, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    chown(&client, &file, "1000", "50").succeeds();
    names.set_slow(true);
    let message = client.next(false, &getattr(&file));
    let call = wait(&client, &message, &mut Keeps::default()).unwrap();
    names.set_slow(false);
    let mut host = Keeps { suspended: Some(call), ..Keeps::default() };
    let reply = wait(&client, &message, &mut host).unwrap_err();
    assert_eq!(told_by(reply), texts("jane@example.com", "staff@example.com"));
    names.set_slow(true);
    let message = client.next(false, &getattr(&file));
    let call = wait(&client, &message, &mut Keeps::default()).unwrap();
    let mut host = Keeps { suspended: Some(call), is_impatient: true, woken: Arc::default() };
    let reply = wait(&client, &message, &mut host).unwrap_err();
    assert_eq!(told_by(reply), texts("1000", "50"));
    // Behind a change, too, nothing waits.
    let message = client
        .next(false, &setattr(&file, fattr(BOTH, &owners("1000", "50"))).then(&getattr(&file)));
    let mut reply = wait(&client, &message, &mut Keeps::default()).unwrap_err();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::SetAttr);
    reply.take(|r| Bitmap4::decode(r).unwrap());
    assert_eq!(told_by(reply), texts("1000", "50"));
    assert_eq!(server.engine.waiting_calls(), 0);
}

#[test]
fn a_listing_never_waits_for_names_and_asks_for_each_once() {
    let names = Names::new();
    let server = server(&names, true, all());
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    for n in 0..40_u32 {
        let file = server.make_file(&root, format!("f{n}").as_bytes(), 0o640);
        chown(&client, &file, "1000", "50").succeeds();
    }
    let listing = ReadDir4Args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 0,
        maxcount: 64 << 10,
        attr_request: Bitmap4::of(BOTH),
    };
    for is_slow in [true, false] {
        names.set_slow(is_slow);
        names.take_asked();
        let message = client.next(false, &Ops::put(&root).op(Op4::ReadDir, &listing));
        let mut reply = wait(&client, &message, &mut Keeps::default()).unwrap_err();
        assert_eq!(names.asked.lock().unwrap().values().max(), Some(&1));
        assert_eq!(names.take_asked(), ["group 50", "user 1000"]);
        reply.ok(Op4::PutFh);
        reply.ok(Op4::ReadDir);
        let expected = if is_slow {
            texts("1000", "50")
        } else {
            texts("jane@example.com", "staff@example.com")
        };
        let count = reply.take(|r| {
            r.fixed_opaque(8).unwrap();
            let mut count = 0;
            while r.bool().unwrap() {
                r.u64().unwrap();
                r.opaque(10).unwrap();
                assert_eq!(both(r), expected);
                count += 1;
            }
            count
        });
        assert_eq!(count, 40);
    }
}
