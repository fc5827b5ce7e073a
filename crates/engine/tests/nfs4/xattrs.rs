//! Extended attributes (RFC 8276), and objects that are made with a umask (RFC 8275).

use steadfast_wire::nfs4::{
    Access4Args, Attribute4, Bitmap4, Create4Args, CreateType4, Fattr4, GetAttr4Args,
    ListXattrs4Args, NfsStat4, Op4, Open4Args, OpenClaim4, OpenHow4, SetAttr4Args, SetXattr4Args,
    SetXattrOption4, StateId4, XattrName4Args,
};
use steadfast_xdr::{Decode, Encode};

use crate::compounds::{Ops, Reply, words};
use crate::harness::{Client, Server, everything, export, rule, sender, share};

fn client(server: &Server) -> Client<'_> {
    let mut client = Client::new(server, b"c", sender(1));
    client.minor = 2;
    client
}

fn at(client: &Client<'_>, object: &[u8], op: Op4, arguments: &impl Encode) -> Reply {
    let mut reply = client.run(&Ops::put(object).op(op, arguments));
    reply.ok(Op4::PutFh);
    if reply.status == 0 {
        reply.ok(op);
    }
    reply
}

fn set<'a>(option: SetXattrOption4, name: &'a [u8], value: &'a [u8]) -> SetXattr4Args<'a> {
    SetXattr4Args { option, name, value }
}

fn named(name: &[u8]) -> XattrName4Args<'_> {
    XattrName4Args { name }
}

/// Names and cookie of a part of the list, and whether it is the last.
fn list(
    client: &Client<'_>,
    object: &[u8],
    cookie: u64,
    maxcount: u32,
) -> (Vec<Vec<u8>>, u64, bool) {
    let mut reply =
        at(client, object, Op4::ListXattrs, &ListXattrs4Args { cookie, maxcount }).succeeds();
    reply.take(|r| {
        let (cookie, count) = (r.u64().unwrap(), r.u32().unwrap());
        let names = (0..count).map(|_| r.opaque(300).unwrap().to_vec()).collect();
        (names, cookie, r.bool().unwrap())
    })
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    for object in [&root, &file] {
        let create = set(SetXattrOption4::Create, b"colour", b"red");
        let replace = set(SetXattrOption4::Replace, b"colour", b"blue");
        at(&client, object, Op4::SetXattr, &replace).fails(Op4::SetXattr, NfsStat4::NoXattr);
        let mut reply = at(&client, object, Op4::SetXattr, &create).succeeds();
        let (is_atomic, before, after) =
            reply.take(|r| (r.bool().unwrap(), r.u64().unwrap(), r.u64().unwrap()));
        assert!(is_atomic && before != after);
        at(&client, object, Op4::SetXattr, &create).fails(Op4::SetXattr, NfsStat4::Exist);
        at(&client, object, Op4::SetXattr, &replace).succeeds();
        let mut reply = at(&client, object, Op4::GetXattr, &named(b"colour")).succeeds();
        assert_eq!(reply.take(|r| r.opaque(100).unwrap().to_vec()), b"blue");
        at(&client, object, Op4::SetXattr, &set(SetXattrOption4::Either, b"e", b"")).succeeds();
        let (mut names, _, is_end) = list(&client, object, 0, 1000);
        names.sort();
        assert_eq!((names, is_end), (vec![b"colour".to_vec(), b"e".to_vec()], true));
        let mut reply = at(&client, object, Op4::RemoveXattr, &named(b"colour")).succeeds();
        let again = reply.take(|r| (r.bool().unwrap(), r.u64().unwrap(), r.u64().unwrap()));
        assert!(again.0 && again.1 != again.2);
        for op in [Op4::GetXattr, Op4::RemoveXattr] {
            at(&client, object, op, &named(b"colour")).fails(op, NfsStat4::NoXattr);
        }
    }
}

#[test]
fn what_makes_no_attribute_is_refused() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    for (name, status) in [
        (&b""[..], NfsStat4::Inval),
        (b"a\0b", NfsStat4::BadChar),
        (&[b'n'; 251], NfsStat4::NameTooLong),
    ] {
        for op in [Op4::GetXattr, Op4::RemoveXattr] {
            at(&client, &file, op, &named(name)).fails(op, status);
        }
        let set = set(SetXattrOption4::Either, name, b"");
        at(&client, &file, Op4::SetXattr, &set).fails(Op4::SetXattr, status);
    }
    let longest = [b'n'; 250];
    at(&client, &file, Op4::SetXattr, &set(SetXattrOption4::Either, &longest, b"")).succeeds();
    let large = vec![7; (64 << 10) + 1];
    let set_large = set(SetXattrOption4::Either, b"large", &large);
    at(&client, &file, Op4::SetXattr, &set_large).fails(Op4::SetXattr, NfsStat4::Xattr2Big);
    let set_largest = set(SetXattrOption4::Either, b"large", &large[1..]);
    at(&client, &file, Op4::SetXattr, &set_largest).succeeds();
    let mut reply = at(&client, &file, Op4::GetXattr, &named(b"large")).succeeds();
    assert_eq!(reply.take(|r| r.opaque(1 << 20).unwrap().len()), 64 << 10);
    let wrong = Ops::put(&file).raw(Op4::SetXattr as u32, &words(&[3, 0, 0]));
    client.run(&wrong).fails(Op4::SetXattr, NfsStat4::BadXdr);
    let link = server.make_symlink(&root, b"l");
    let set = set(SetXattrOption4::Either, b"x", b"");
    at(&client, &link, Op4::SetXattr, &set).fails(Op4::SetXattr, NfsStat4::Perm);
    // The pseudo file system has none.
    let pseudo = || Ops::new().bare(Op4::PutRootFh);
    client.run(&pseudo().op(Op4::GetXattr, &named(b"x"))).fails(Op4::GetXattr, NfsStat4::NoXattr);
    client.run(&pseudo().op(Op4::SetXattr, &set)).fails(Op4::SetXattr, NfsStat4::RoFs);
    let listed = pseudo().op(Op4::ListXattrs, &ListXattrs4Args { cookie: 0, maxcount: 100 });
    client.run(&listed).succeeds();
    for op in [Op4::GetXattr, Op4::RemoveXattr] {
        client.run(&Ops::new().op(op, &named(b"x"))).fails(op, NfsStat4::NoFileHandle);
    }
}

#[test]
fn lists_come_in_parts_and_each_name_once() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    let mut expected: Vec<Vec<u8>> =
        (0..50_usize).map(|n| format!("{n}-{}", "x".repeat(n)).into_bytes()).collect();
    for name in &expected {
        at(&client, &file, Op4::SetXattr, &set(SetXattrOption4::Create, name, b"v")).succeeds();
    }
    let (mut all, mut cookie, mut parts) = (Vec::new(), 0, 0);
    loop {
        let (names, next, is_end) = list(&client, &file, cookie, 200);
        all.extend(names);
        parts += 1;
        if is_end {
            break;
        }
        // What was told may go meanwhile.
        at(&client, &file, Op4::RemoveXattr, &named(&all[all.len() - 1])).succeeds();
        cookie = next;
    }
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
    assert!(parts > 5);
    for maxcount in [0, 15, 16 + 4] {
        let list = ListXattrs4Args { cookie: 0, maxcount };
        at(&client, &file, Op4::ListXattrs, &list).fails(Op4::ListXattrs, NfsStat4::TooSmall);
    }
    let beyond = list(&client, &file, u64::MAX, 200);
    assert_eq!((beyond.0, beyond.2), (Vec::new(), true));
}

#[test]
fn who_may_do_what_is_as_with_data() {
    let mut read_only = everything();
    read_only.is_read_only = true;
    let server = Server::of(vec![
        export(share(1, "/a", vec![rule("127.0.0.0", everything())])),
        export(share(2, "/ro", vec![rule("127.0.0.0", read_only)])),
    ]);
    let mut client = client(&server);
    let root = client.handle(&[b"a"]);
    let read = server.make_file(&root, b"r", 0o644);
    let secret = server.make_file(&root, b"s", 0o600);
    let either = set(SetXattrOption4::Either, b"x", b"1");
    at(&client, &read, Op4::SetXattr, &either).succeeds();
    at(&client, &secret, Op4::SetXattr, &either).succeeds();
    let access = |client: &Client<'_>, object: &[u8], asked| {
        let mut reply = at(client, object, Op4::Access, &Access4Args { access: asked }).succeeds();
        reply.take(|r| (r.u32().unwrap(), r.u32().unwrap()))
    };
    assert_eq!(access(&client, &read, 0x1c0), (0x1c0, 0x1c0));
    let ro = client.handle(&[b"ro"]);
    assert_eq!(access(&client, &ro, 0x1c0), (0x1c0, 0x140));
    at(&client, &ro, Op4::SetXattr, &either).fails(Op4::SetXattr, NfsStat4::RoFs);
    at(&client, &ro, Op4::RemoveXattr, &named(b"x")).fails(Op4::RemoveXattr, NfsStat4::RoFs);
    client.from.uid = 1000;
    assert_eq!(access(&client, &read, 0x1c0), (0x1c0, 0x140));
    assert_eq!(access(&client, &secret, 0x1c0), (0x1c0, 0));
    at(&client, &read, Op4::GetXattr, &named(b"x")).succeeds();
    at(&client, &read, Op4::SetXattr, &either).fails(Op4::SetXattr, NfsStat4::Access);
    at(&client, &read, Op4::RemoveXattr, &named(b"x")).fails(Op4::RemoveXattr, NfsStat4::Access);
    at(&client, &secret, Op4::GetXattr, &named(b"x")).fails(Op4::GetXattr, NfsStat4::Access);
    let list = ListXattrs4Args { cookie: 0, maxcount: 100 };
    at(&client, &secret, Op4::ListXattrs, &list).fails(Op4::ListXattrs, NfsStat4::Access);
    // Before minor version 2 nobody may ask.
    client.minor = 1;
    let reply = at(&client, &read, Op4::Access, &Access4Args { access: 0x40 });
    reply.fails(Op4::Access, NfsStat4::Inval);
}

#[test]
fn objects_are_made_with_a_mode_that_is_masked() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let vals = words(&[0o666, 0o027]);
    let masked = Fattr4 { attrmask: Bitmap4::of(&[Attribute4::ModeUmask]), attr_vals: &vals };
    let mode = |name: &[u8]| {
        let wanted = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::Mode]) };
        let ops = Ops::put(&root).look_up(name).op(Op4::GetAttr, &wanted);
        let mut reply = client.run(&ops).succeeds();
        for op in [Op4::PutFh, Op4::Lookup, Op4::GetAttr] {
            reply.ok(op);
        }
        reply.take(|r| {
            Bitmap4::decode(r).unwrap();
            r.opaque(4).unwrap().to_vec()
        })
    };
    for (name, openhow) in [
        (&b"unchecked"[..], OpenHow4::Unchecked(masked)),
        (b"guarded", OpenHow4::Guarded(masked)),
        (b"exclusive", OpenHow4::Exclusive41([7; 8], masked)),
    ] {
        let open = Open4Args {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            clientid: 0,
            owner: b"o",
            openhow,
            claim: OpenClaim4::Null(name),
        };
        at(&client, &root, Op4::Open, &open).succeeds();
        assert_eq!(mode(name), words(&[0o640]));
    }
    let create =
        Create4Args { objtype: CreateType4::Directory, objname: b"directory", createattrs: masked };
    at(&client, &root, Op4::Create, &create).succeeds();
    assert_eq!(mode(b"directory"), words(&[0o640]));
    let stateid = StateId4 { seqid: 0, other: [0; 12] };
    let set = SetAttr4Args { stateid, obj_attributes: masked };
    let mut ops = Ops::put(&root).op(Op4::SetAttr, &set);
    let reply = client.run(&ops);
    assert_eq!(reply.status, NfsStat4::Inval as u32);
    ops = Ops::put(&root).op(
        Op4::GetAttr,
        &GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::SuppAttrExclCreat]) },
    );
    let mut reply = client.run(&ops).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    let told = reply.take(|r| {
        Bitmap4::decode(r).unwrap();
        Bitmap4::decode(&mut steadfast_xdr::Reader::new(r.opaque(100).unwrap())).unwrap()
    });
    assert!(told.has(Attribute4::ModeUmask));
}
