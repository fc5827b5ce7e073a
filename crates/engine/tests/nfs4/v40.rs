//! Minor version 0: clients without sessions, and what it does not have.

use std::cell::Cell;

use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, CallbackClient4, ClientInUse4, Close4Args, Fattr4, GetAttr4Args,
    Lookup4Args, NfsStat4, Op4, Open4Args, OpenClaim4, OpenConfirm4Args, OpenHow4, Read4Args,
    Renew4Args, SecInfo4Args, SetClientId4Args, SetClientIdConfirm4Args, StateId4, Write4Args,
};
use steadfast_xdr::{Decode, Reader};

use crate::compounds::{Ops, Reply, stateid};
use crate::harness::{Client, Host, Sender, Server, everything, export, rule, sender, share};

pub(crate) const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };

/// A client of minor version 0.
pub(crate) struct Client0<'s> {
    pub(crate) server: &'s Server,
    pub(crate) from: Sender,
    pub(crate) id: u64,
    /// Of its open-owner.
    pub(crate) seqid: Cell<u32>,
}

pub(crate) fn run0(server: &Server, from: &Sender, ops: &Ops) -> Reply {
    let message = server.compound(from, b"", 0, ops);
    Reply::read(&server.send(from, &message).unwrap())
}

fn set_client(name: &[u8], verifier: u8) -> SetClientId4Args<'_> {
    let callback = CallbackClient4 { program: 1, netid: b"tcp", address: b"127.0.0.1.8.1" };
    SetClientId4Args { verifier: [verifier; 8], id: name, callback, callback_ident: 1 }
}

/// SETCLIENTID: id, and what confirms it.
fn set(server: &Server, from: &Sender, name: &[u8], verifier: u8) -> (u64, [u8; 8]) {
    let ops = Ops::new().op(Op4::SetClientId, &set_client(name, verifier));
    let mut reply = run0(server, from, &ops).succeeds();
    reply.ok(Op4::SetClientId);
    reply.take(|r| (r.u64().unwrap(), r.array().unwrap()))
}

fn confirm(clientid: u64, confirm: [u8; 8]) -> Ops {
    Ops::new().op(Op4::SetClientIdConfirm, &SetClientIdConfirm4Args { clientid, confirm })
}

pub(crate) fn open_arguments<'a>(
    clientid: u64,
    owner: &'a [u8],
    seqid: u32,
    name: &'a [u8],
) -> Open4Args<'a> {
    Open4Args {
        seqid,
        share_access: 3,
        share_deny: 0,
        clientid,
        owner,
        openhow: OpenHow4::NoCreate,
        claim: OpenClaim4::Null(name),
    }
}

pub(crate) fn created() -> OpenHow4<'static> {
    OpenHow4::Unchecked(Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] })
}

pub(crate) fn read(stateid: StateId4) -> Ops {
    Ops::new().op(Op4::Read, &Read4Args { stateid, offset: 0, count: 10 })
}

pub(crate) fn write(stateid: StateId4, data: &[u8]) -> Ops {
    let stable = StableHow::FileSync;
    Ops::new().op(Op4::Write, &Write4Args { stateid, offset: 0, stable, data })
}

pub(crate) fn close(open_stateid: StateId4, seqid: u32) -> Ops {
    Ops::new().op(Op4::Close, &Close4Args { seqid, open_stateid })
}

pub(crate) fn confirm_open(open_stateid: StateId4, seqid: u32) -> Ops {
    Ops::new().op(Op4::OpenConfirm, &OpenConfirm4Args { open_stateid, seqid })
}

/// Stateid and flags of an OPEN behind PUTFH.
#[track_caller]
pub(crate) fn opened(mut reply: Reply) -> (StateId4, u32) {
    assert_eq!(reply.status, 0, "{reply:?}");
    reply.ok(Op4::PutFh);
    reply.ok(Op4::Open);
    reply.take(|r| {
        let id = stateid(r);
        r.fixed_opaque(20).unwrap();
        (id, r.u32().unwrap())
    })
}

/// The stateid that the second operation told.
#[track_caller]
pub(crate) fn second(mut reply: Reply, op: Op4) -> StateId4 {
    assert_eq!(reply.status, 0, "{reply:?}");
    reply.ok(Op4::PutFh);
    reply.ok(op);
    reply.take(stateid)
}

impl<'s> Client0<'s> {
    pub(crate) fn new(server: &'s Server, name: &[u8], from: Sender) -> Self {
        let (id, verifier) = set(server, &from, name, 1);
        run0(server, &from, &confirm(id, verifier)).succeeds();
        Self { server, from, id, seqid: Cell::new(0) }
    }

    #[track_caller]
    pub(crate) fn run(&self, ops: &Ops) -> Reply {
        run0(self.server, &self.from, ops)
    }

    pub(crate) fn next(&self) -> u32 {
        self.seqid.set(self.seqid.get() + 1);
        self.seqid.get()
    }

    pub(crate) fn handle(&self, names: &[&[u8]]) -> Vec<u8> {
        self.run(&Ops::at(names).bare(Op4::GetFh)).succeeds().handle()
    }

    /// Makes a file and opens it by owner `o`, which is confirmed.
    pub(crate) fn open(&self, dir: &[u8], name: &[u8]) -> StateId4 {
        let arguments = open_arguments(self.id, b"o", self.next(), name);
        let arguments = Open4Args { openhow: created(), ..arguments };
        let ops = Ops::put(dir).op(Op4::Open, &arguments);
        let (id, flags) = opened(self.run(&ops));
        if flags & 2 == 0 {
            return id;
        }
        let file = self.handle(&[b"a", name]);
        let ops = Ops::put(&file).then(&confirm_open(id, self.next()));
        second(self.run(&ops), Op4::OpenConfirm)
    }
}

#[test]
fn a_client_is_set_and_confirmed() {
    let server = Server::new();
    let from = sender(1);
    let (id, verifier) = set(&server, &from, b"c", 1);
    let renew = |clientid| Ops::new().op(Op4::Renew, &Renew4Args { clientid });
    run0(&server, &from, &renew(id)).fails(Op4::Renew, NfsStat4::StaleClientId);
    let wrong = confirm(id, [0; 8]);
    run0(&server, &from, &wrong).fails(Op4::SetClientIdConfirm, NfsStat4::StaleClientId);
    for _again in 0..2 {
        run0(&server, &from, &confirm(id, verifier)).succeeds();
        run0(&server, &from, &renew(id)).succeeds();
    }
    // The same life of the client keeps its id; another one gets another.
    let (again, update) = set(&server, &from, b"c", 1);
    assert_eq!(again, id);
    assert_ne!(update, verifier);
    run0(&server, &from, &confirm(id, update)).succeeds();
    let (other, verifier) = set(&server, &from, b"c", 2);
    assert_ne!(other, id);
    run0(&server, &from, &renew(id)).succeeds();
    run0(&server, &from, &confirm(other, verifier)).succeeds();
    run0(&server, &from, &renew(id)).fails(Op4::Renew, NfsStat4::Expired);
    run0(&server, &from, &renew(other)).succeeds();
    let nobody = Ops::new().op(Op4::SetClientId, &set_client(b"", 1));
    run0(&server, &from, &nobody).fails(Op4::SetClientId, NfsStat4::Inval);
}

#[test]
fn a_name_in_use_is_told_with_the_address_of_who_uses_it() {
    let server = Server::new();
    let one = Client0::new(&server, b"c", sender(1));
    let root = one.handle(&[b"a"]);
    one.open(&root, b"f");
    let mut other = sender(2);
    other.uid = 5;
    let ops = Ops::new().op(Op4::SetClientId, &set_client(b"c", 9));
    let mut reply = run0(&server, &other, &ops);
    assert_eq!((reply.status, reply.count), (NfsStat4::ClIdInUse as u32, 1));
    let head = reply.take(|r| (r.u32().unwrap(), r.u32().unwrap()));
    assert_eq!(head, (Op4::SetClientId as u32, NfsStat4::ClIdInUse as u32));
    let told = reply.body[8..].to_vec();
    let told = ClientInUse4::decode(&mut Reader::new(&told)).unwrap();
    assert_eq!(told, ClientInUse4 { netid: b"tcp", address: b"127.0.0.1.0.0" });
    // A client with sessions may have the same name.
    let sessions = Client::new(&server, b"c", other);
    sessions.run(&Ops::at(&[])).succeeds();
}

#[test]
fn minor_version_0_has_operations_of_its_own_and_none_of_later_ones() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    for number in 40..=75 {
        let ops = Ops::new().raw(number, &[]);
        client.run(&ops).fails(Op4::Illegal, NfsStat4::OpIllegal);
    }
    let later = Client::new(&server, b"c", sender(1));
    for op in [Op4::OpenConfirm, Op4::Renew, Op4::SetClientId, Op4::ReleaseLockOwner] {
        later.run(&Ops::new().bare(op)).fails(op, NfsStat4::NotSupp);
    }
    // Ids of one kind are no ids of the other.
    let clientid = later.id;
    let ops = Ops::new().op(Op4::Renew, &Renew4Args { clientid });
    client.run(&ops).fails(Op4::Renew, NfsStat4::StaleClientId);
    let mut many = Ops::new();
    for _ in 0..200 {
        many = many.bare(Op4::PutRootFh);
    }
    let reply = client.run(&many);
    reply.fails(Op4::PutRootFh, NfsStat4::Resource);
    assert_eq!(reply.count, 129);
}

#[test]
fn attributes_and_statuses_are_those_of_minor_version_0() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    server.make_fifo(&root, b"p");
    server.make_symlink(&root, b"l");
    let wanted = Bitmap4::of(&[Attribute4::SupportedAttrs, Attribute4::SuppAttrExclCreat]);
    let ops = Ops::put(&root).op(Op4::GetAttr, &GetAttr4Args { attr_request: wanted });
    let mut reply = client.run(&ops).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    let told = reply.take(|r| Bitmap4::decode(r).unwrap());
    assert_eq!(told, Bitmap4::of(&[Attribute4::SupportedAttrs]));
    let supported = reply.take(|r| {
        r.u32().unwrap();
        Bitmap4::decode(r).unwrap()
    });
    assert_eq!(supported.words()[2], 0);
    for (name, open, readlink) in
        [(&b"p"[..], NfsStat4::SymLink, NfsStat4::Inval), (b"l", NfsStat4::SymLink, NfsStat4::Ok)]
    {
        let arguments = open_arguments(client.id, b"x", 1, name);
        client.run(&Ops::put(&root).op(Op4::Open, &arguments)).fails(Op4::Open, open);
        let handle = client.handle(&[b"a", name]);
        let ops = Ops::put(&handle).then(&read(ANONYMOUS));
        client.run(&ops).fails(Op4::Read, NfsStat4::Inval);
        let ops = Ops::put(&handle).then(&write(ANONYMOUS, b"x"));
        client.run(&ops).fails(Op4::Write, NfsStat4::Inval);
        let reply = client.run(&Ops::put(&handle).bare(Op4::ReadLink));
        assert_eq!(reply.status, readlink as u32);
    }
    // SECINFO leaves the current object as it was.
    let ops = Ops::put(&root).op(Op4::SecInfo, &SecInfo4Args { name: b"p" });
    let look = Lookup4Args { objname: b"p" };
    client.run(&ops.op(Op4::Lookup, &look)).succeeds();
}

#[test]
fn opens_say_nothing_that_came_later() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let no_attributes = Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] };
    let plain = open_arguments(client.id, b"x", 1, b"f");
    let exclusive41 = OpenHow4::Exclusive41([1; 8], no_attributes);
    let cases = [
        (Open4Args { claim: OpenClaim4::Fh, ..plain }, NfsStat4::BadXdr),
        (Open4Args { openhow: exclusive41, ..plain }, NfsStat4::BadXdr),
        (Open4Args { share_access: 0x403, ..plain }, NfsStat4::Inval),
        (Open4Args { claim: OpenClaim4::Previous(0), ..plain }, NfsStat4::NoGrace),
        (Open4Args { claim: OpenClaim4::DelegatePrev(b"f"), ..plain }, NfsStat4::NotSupp),
        (Open4Args { clientid: 1, ..plain }, NfsStat4::StaleClientId),
    ];
    for (arguments, status) in cases {
        client.run(&Ops::put(&root).op(Op4::Open, &arguments)).fails(Op4::Open, status);
    }
    // An exclusive create may come again, in another COMPOUND even.
    let exclusive = Open4Args { openhow: OpenHow4::Exclusive([1; 8]), ..plain };
    for seqid in [7, 9] {
        let arguments = Open4Args { seqid, ..exclusive };
        opened(client.run(&Ops::put(&root).op(Op4::Open, &arguments)));
    }
    let other = Open4Args { openhow: OpenHow4::Exclusive([2; 8]), seqid: 11, ..plain };
    client.run(&Ops::put(&root).op(Op4::Open, &other)).fails(Op4::Open, NfsStat4::Exist);
}

#[test]
fn special_stateids_need_no_client() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    client.run(&Ops::put(&file).then(&write(ANONYMOUS, b"data"))).succeeds();
    let bypass = StateId4 { seqid: u32::MAX, other: [0xff; 12] };
    client.run(&Ops::put(&file).then(&read(bypass))).succeeds();
    let current = StateId4 { seqid: 1, other: [0; 12] };
    client.run(&Ops::put(&file).then(&read(current))).fails(Op4::Read, NfsStat4::BadStateId);
    // What others deny is denied to nobody, too.
    let denying = Open4Args { share_deny: 2, ..open_arguments(client.id, b"x", 1, b"f") };
    let (id, _) = opened(client.run(&Ops::put(&root).op(Op4::Open, &denying)));
    client.run(&Ops::put(&file).then(&confirm_open(id, 2))).succeeds();
    let denied = Ops::put(&file).then(&write(ANONYMOUS, b"data"));
    client.run(&denied).fails(Op4::Write, NfsStat4::Locked);
}

#[test]
fn an_expired_client_is_told_so() {
    let server = Server::new();
    let one = Client0::new(&server, b"one", sender(1));
    let two = Client0::new(&server, b"two", sender(2));
    let root = one.handle(&[b"a"]);
    let id = one.open(&root, b"f");
    let file = one.handle(&[b"a", b"f"]);
    let mut denying = open_arguments(two.id, b"x", 1, b"f");
    denying.share_deny = 3;
    let denying = Ops::put(&root).op(Op4::Open, &denying);
    two.run(&denying).fails(Op4::Open, NfsStat4::ShareDenied);
    // Nobody needs what it has: it goes on after its lease.
    server.now_ms.set(91_000);
    one.run(&Ops::put(&file).then(&read(id))).succeeds();
    server.now_ms.set(200_000);
    let mut denying = open_arguments(two.id, b"x", 2, b"f");
    denying.share_deny = 3;
    opened(two.run(&Ops::put(&root).op(Op4::Open, &denying)));
    one.run(&Ops::put(&file).then(&read(id))).fails(Op4::Read, NfsStat4::Expired);
    let renew = Ops::new().op(Op4::Renew, &Renew4Args { clientid: one.id });
    one.run(&renew).fails(Op4::Renew, NfsStat4::Expired);
    let again = Ops::put(&root).op(Op4::Open, &open_arguments(one.id, b"o", 3, b"f"));
    one.run(&again).fails(Op4::Open, NfsStat4::Expired);
}

#[test]
fn after_a_restart_ids_are_stale() {
    let all = || vec![export(share(1, "/a", vec![rule("127.0.0.0", everything())]))];
    let before = Server::of_instance(7, all());
    let client = Client0::new(&before, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let after = Server::of_instance(8, all());
    let file = after.make_file(&root, b"f", 0o644);
    let from = sender(1);
    let renew = Ops::new().op(Op4::Renew, &Renew4Args { clientid: client.id });
    run0(&after, &from, &renew).fails(Op4::Renew, NfsStat4::StaleClientId);
    let stale = Ops::put(&file).then(&read(id));
    run0(&after, &from, &stale).fails(Op4::Read, NfsStat4::StaleStateId);
    let closing = Ops::put(&file).then(&close(id, 3));
    run0(&after, &from, &closing).fails(Op4::Close, NfsStat4::StaleStateId);
    let client = Client0::new(&after, b"c", sender(1));
    let reclaim =
        Open4Args { claim: OpenClaim4::Previous(0), ..open_arguments(client.id, b"o", 1, b"f") };
    let ops = Ops::put(&file).op(Op4::Open, &reclaim);
    client.run(&ops).fails(Op4::Open, NfsStat4::NoGrace);
    client.seqid.set(1);
    client.open(&root, b"f");
}

#[test]
fn a_request_that_comes_again_is_not_executed_again() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let arguments = Open4Args {
        openhow: OpenHow4::Guarded(Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] }),
        ..open_arguments(client.id, b"o", 1, b"new")
    };
    let ops = Ops::put(&root).op(Op4::Open, &arguments).bare(Op4::GetFh);
    let message = server.compound(&client.from, b"tag", 0, &ops);
    let first = server.send(&client.from, &message).unwrap();
    Reply::read(&first).succeeds();
    assert_eq!(server.send(&client.from, &message).unwrap(), first);
    // By another connection, since the first is gone.
    assert_eq!(server.send(&sender(2), &message).unwrap(), first);
    let remove =
        Ops::put(&root).op(Op4::Remove, &steadfast_wire::nfs4::Remove4Args { target: b"new" });
    let message = server.compound(&client.from, b"", 0, &remove);
    let first = server.send(&client.from, &message).unwrap();
    Reply::read(&first).succeeds();
    assert_eq!(server.send(&client.from, &message).unwrap(), first);
    client.run(&remove).fails(Op4::Remove, NfsStat4::NoEnt);
}

#[test]
fn what_had_to_wait_is_executed_once() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    server.make_file(&root, b"f", 0o644);
    let open = open_arguments(client.id, b"o", 1, b"f");
    let make = |name: &'static [u8]| {
        let mut bytes = Vec::new();
        steadfast_xdr::Encode::encode(
            &steadfast_wire::nfs4::Create4Args {
                objtype: steadfast_wire::nfs4::CreateType4::Directory,
                objname: name,
                createattrs: Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] },
            },
            &mut steadfast_xdr::Writer::new(&mut bytes),
        );
        Ops::new().raw(Op4::Create as u32, &bytes)
    };
    let ops = Ops::put(&root).op(Op4::Open, &open).then(&Ops::put(&root)).then(&make(b"d"));
    for waits in 0..4 {
        let message = server.compound(&client.from, &[waits as u8], 0, &ops);
        let mut host = Host { waits, suspended: None };
        let Err(mut suspended) = server.send_by(&mut host, &client.from, &message) else {
            break;
        };
        // A copy that comes meanwhile gets no reply, or waits as well.
        let copy = server.send_by(&mut Host { waits: 0, suspended: None }, &client.from, &message);
        assert!(!matches!(copy, Ok(Some(_))), "{copy:?}");
        for _ in 0..2 {
            let mut host = Host { waits: 0, suspended: Some(suspended) };
            suspended = match server.send_by(&mut host, &client.from, &message) {
                Err(suspended) => suspended,
                Ok(reply) => panic!("{reply:?}"),
            };
        }
        if waits == 1 {
            // Told to try later: what was done is kept, and told again.
            let mut refused = Vec::new();
            server.engine.refuse(suspended, &mut refused);
            let reply = Reply::read(&refused);
            assert_eq!(reply.status, NfsStat4::Delay as u32);
            continue;
        }
        let mut host = Host { waits: usize::MAX, suspended: Some(suspended) };
        let reply = server.send_by(&mut host, &client.from, &message).unwrap().unwrap();
        let first = Reply::read(&reply);
        assert!(first.status == 0 || first.status == NfsStat4::Exist as u32, "{first:?}");
        assert_eq!(server.send(&client.from, &message).unwrap(), reply);
    }
}
