//! Access control lists (RFC 8881 §6) as clients set and read them.

use steadfast_wire::nfs4::{
    Ace4, Attribute4, Bitmap4, Create4Args, CreateType4, Fattr4, GetAttr4Args, NfsStat4, Op4,
    Open4Args, OpenClaim4, OpenHow4, ReadDir4Args, SetAttr4Args, StateId4, Verify4Args,
};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::compounds::{Ops, Reply, words, xdr};
use crate::harness::{Client, Server, sender};

const READ: u32 = 0x1;
const WRITE: u32 = 0x6;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
/// What everybody may do, and what the owner may beside.
const ALL: u32 = 0x12_0080;
const OWNER: u32 = 0x4_0100;
const GROUP: u32 = 0x40;
const INHERITED: u32 = 0x3;

/// An entry: whether it denies, its flags, rights, and whose they are.
type Entry = (u32, u32, u32, &'static str);

fn client(server: &Server) -> Client<'_> {
    let mut client = Client::new(server, b"c", sender(1));
    client.minor = 2;
    client
}

fn list(entries: &[Entry]) -> Vec<u8> {
    xdr(|w| {
        w.u32(entries.len() as u32);
        for &(kind, flag, access_mask, who) in entries {
            Ace4 { kind, flag, access_mask, who: who.as_bytes() }.encode(w);
        }
    })
}

fn acl(values: &[u8]) -> Fattr4<'_> {
    Fattr4 { attrmask: Bitmap4::of(&[Attribute4::Acl]), attr_vals: values }
}

fn set(client: &Client<'_>, object: &[u8], obj_attributes: Fattr4<'_>) -> Reply {
    let stateid = StateId4 { seqid: 0, other: [0; 12] };
    let arguments = SetAttr4Args { stateid, obj_attributes };
    client.run(&Ops::put(object).op(Op4::SetAttr, &arguments))
}

/// The attributes that are told, and their values.
fn told(client: &Client<'_>, ops: Ops, wanted: &[Attribute4]) -> (Bitmap4, Vec<u8>) {
    let attributes = GetAttr4Args { attr_request: Bitmap4::of(wanted) };
    let mut reply = client.run(&ops.op(Op4::GetAttr, &attributes)).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    reply.take(|r| (Bitmap4::decode(r).unwrap(), r.opaque(1 << 20).unwrap().to_vec()))
}

fn read_list(r: &mut Reader<'_>) -> Vec<(u32, u32, u32, String)> {
    let count = r.u32().unwrap();
    let entries = (0..count).map(|_| {
        let Ace4 { kind, flag, access_mask, who } = Ace4::decode(r).unwrap();
        (kind, flag, access_mask, String::from_utf8(who.to_vec()).unwrap())
    });
    entries.collect()
}

fn list_of(client: &Client<'_>, object: &[u8]) -> Vec<(u32, u32, u32, String)> {
    let (mask, values) = told(client, Ops::put(object), &[Attribute4::Acl]);
    assert!(mask.has(Attribute4::Acl));
    read_list(&mut Reader::new(&values))
}

fn mode_of(client: &Client<'_>, object: &[u8]) -> Vec<u8> {
    told(client, Ops::put(object), &[Attribute4::Mode]).1
}

fn owned(entries: &[Entry]) -> Vec<(u32, u32, u32, String)> {
    entries.iter().map(|&(kind, flag, mask, who)| (kind, flag, mask, who.to_owned())).collect()
}

#[test]
fn a_list_that_is_set_is_told_and_verified() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    assert_eq!(
        list_of(&client, &file),
        owned(&[
            (0, 0, READ | WRITE | ALL | OWNER, "OWNER@"),
            (0, GROUP, READ | ALL, "GROUP@"),
            (0, 0, ALL, "EVERYONE@"),
        ])
    );
    let wanted = [
        (0, 0, READ | WRITE | ALL | OWNER, "OWNER@"),
        (1, 0, EXECUTE, "1000"),
        (0, 0, READ | WRITE | ALL, "1000"),
        (0, GROUP, READ | ALL, "GROUP@"),
        (0, GROUP, READ | EXECUTE | ALL, "50"),
        (0, 0, READ | ALL, "EVERYONE@"),
    ];
    let values = list(&wanted);
    set(&client, &file, acl(&values)).succeeds();
    // The owner may be in group 50, and was not given what that may.
    let mut told = vec![(1, 0, EXECUTE, "OWNER@")];
    told.extend(wanted);
    assert_eq!(list_of(&client, &file), owned(&told));
    let values = list(&told);
    // The mask is what named users and groups may have at most.
    assert_eq!(mode_of(&client, &file), words(&[0o674]));
    let verify = |op, values: &[u8]| {
        client.run(&Ops::put(&file).op(op, &Verify4Args { obj_attributes: acl(values) }))
    };
    verify(Op4::Verify, &values).succeeds();
    verify(Op4::NVerify, &values).fails(Op4::NVerify, NfsStat4::Same);
    verify(Op4::Verify, &list(&wanted)).fails(Op4::Verify, NfsStat4::NotSame);
    // A mode and a list: the list says what is permitted.
    let both = [list(&[(0, 0, READ, "OWNER@")]), words(&[0o4755])].concat();
    let attrmask = Bitmap4::of(&[Attribute4::Acl, Attribute4::Mode]);
    set(&client, &file, Fattr4 { attrmask, attr_vals: &both }).succeeds();
    assert_eq!(mode_of(&client, &file), words(&[0o4400]));
}

#[test]
fn a_list_that_is_refused_changes_nothing() {
    let server = Server::new();
    let mut client = client(&server);
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    let link = server.make_symlink(&root, b"l");
    let before = list_of(&client, &file);
    for (entries, status) in [
        (vec![(2, 0, READ, "OWNER@")], NfsStat4::AttrNotSupp),
        (vec![(0, 0, READ, "root@example")], NfsStat4::BadOwner),
        (vec![(0, 0, 0x2, "1000")], NfsStat4::AttrNotSupp),
        (vec![(1, 0, ALL, "EVERYONE@")], NfsStat4::AttrNotSupp),
        (vec![(0, INHERITED, READ, "1000")], NfsStat4::Inval),
        (vec![(0, 0, READ, "1000"); 1025], NfsStat4::FBig),
    ] {
        let values = [list(&entries), words(&[0o777])].concat();
        let attrmask = Bitmap4::of(&[Attribute4::Acl, Attribute4::Mode]);
        let reply = set(&client, &file, Fattr4 { attrmask, attr_vals: &values });
        assert_eq!(reply.status, status as u32);
        assert_eq!(list_of(&client, &file), before);
    }
    let values = list(&[(0, 0, READ, "1000")]);
    assert_eq!(set(&client, &file, acl(&values[..9])).status, NfsStat4::BadXdr as u32);
    assert_eq!(set(&client, &link, acl(&values)).status, NfsStat4::Inval as u32);
    client.from.uid = 1000;
    assert_eq!(set(&client, &file, acl(&values)).status, NfsStat4::Perm as u32);
    assert_eq!(list_of(&client, &file), before);
    // The pseudo file system has no lists.
    let wanted = [Attribute4::SupportedAttrs, Attribute4::Acl, Attribute4::AclSupport];
    let attributes = GetAttr4Args { attr_request: Bitmap4::of(&wanted) };
    let pseudo = Ops::new().bare(Op4::PutRootFh);
    let mut reply = client.run(&pseudo.op(Op4::GetAttr, &attributes)).succeeds();
    reply.ok(Op4::PutRootFh);
    reply.ok(Op4::GetAttr);
    reply.take(|r| {
        assert!(!Bitmap4::decode(r).unwrap().has(Attribute4::Acl));
        let mut values = Reader::new(r.opaque(100).unwrap());
        assert!(!Bitmap4::decode(&mut values).unwrap().has(Attribute4::Acl));
        assert_eq!(values.u32(), Ok(0));
    });
    let verify = Verify4Args { obj_attributes: acl(&values) };
    let pseudo = Ops::new().bare(Op4::PutRootFh).op(Op4::Verify, &verify);
    client.run(&pseudo).fails(Op4::Verify, NfsStat4::AttrNotSupp);
}

#[test]
fn a_directory_has_a_list_that_is_inherited() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let all = READ | WRITE | EXECUTE | DELETE_CHILD;
    let wanted = [
        (0, 0, all | ALL | OWNER, "OWNER@"),
        (0, GROUP, READ | EXECUTE | ALL, "GROUP@"),
        (0, 0, ALL, "EVERYONE@"),
        (0, INHERITED | 0x8, all | ALL | OWNER, "OWNER@"),
        (0, INHERITED | 0x8, READ | ALL, "1000"),
        (0, INHERITED | 0x8 | GROUP, ALL, "GROUP@"),
        (0, INHERITED | 0x8, ALL, "EVERYONE@"),
    ];
    let values = list(&wanted);
    let createattrs = acl(&values);
    let create = Create4Args { objtype: CreateType4::Directory, objname: b"d", createattrs };
    client.run(&Ops::put(&root).op(Op4::Create, &create)).succeeds();
    let directory = client.handle(&[b"a", b"d"]);
    assert_eq!(list_of(&client, &directory), owned(&wanted));
    set(&client, &directory, acl(&list(&wanted[..3]))).succeeds();
    assert_eq!(list_of(&client, &directory), owned(&wanted[..3]));
    // A list of the directory tells the lists of what is in it.
    let listing = ReadDir4Args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 4096,
        maxcount: 4096,
        attr_request: Bitmap4::of(&[Attribute4::Acl]),
    };
    let mut reply = client.run(&Ops::put(&root).op(Op4::ReadDir, &listing)).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::ReadDir);
    reply.take(|r| {
        r.fixed_opaque(8).unwrap();
        assert!(r.bool().unwrap());
        r.u64().unwrap();
        assert_eq!(r.opaque(10).unwrap(), b"d");
        assert!(Bitmap4::decode(r).unwrap().has(Attribute4::Acl));
        let mut values = Reader::new(r.opaque(4096).unwrap());
        assert_eq!(read_list(&mut values), owned(&wanted[..3]));
    });
}

/// The first entries of a directory with their lists: their number, the last cookie, whether those were all.
fn listed_with_acls(client: &Client<'_>, directory: &[u8], cookie: u64) -> (usize, u64, bool) {
    let listing = ReadDir4Args {
        cookie,
        cookieverf: [0; 8],
        dircount: 0,
        maxcount: 256 << 10,
        attr_request: Bitmap4::of(&[Attribute4::Acl]),
    };
    let mut reply = client.run(&Ops::put(directory).op(Op4::ReadDir, &listing)).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::ReadDir);
    reply.take(|r| {
        r.fixed_opaque(8).unwrap();
        let (mut count, mut last) = (0, cookie);
        while r.bool().unwrap() {
            last = r.u64().unwrap();
            r.opaque(10).unwrap();
            assert!(Bitmap4::decode(r).unwrap().has(Attribute4::Acl));
            r.opaque(4096).unwrap();
            count += 1;
        }
        (count, last, r.bool().unwrap())
    })
}

#[test]
fn many_entries_are_told_with_their_lists_in_several_replies() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    for number in 0..300 {
        server.make_file(&root, number.to_string().as_bytes(), 0o600);
    }
    let (mut all, mut cookie, mut replies) = (0, 0, 0);
    loop {
        let (count, last, is_end) = listed_with_acls(&client, &root, cookie);
        (all, cookie, replies) = (all + count, last, replies + 1);
        assert!(count <= 128, "{count}");
        if is_end {
            break;
        }
    }
    assert_eq!((all, replies), (300, 3));
}

#[test]
fn a_file_is_made_with_a_list() {
    let server = Server::new();
    let client = client(&server);
    let root = client.handle(&[b"a"]);
    let wanted = [
        (0, 0, READ | WRITE | ALL | OWNER, "OWNER@"),
        (0, 0, READ | ALL, "1000"),
        (0, GROUP, ALL, "GROUP@"),
        (0, 0, ALL, "EVERYONE@"),
    ];
    let (values, refused) = (list(&wanted), list(&[(1, 0, ALL, "EVERYONE@")]));
    let open = |name, openhow| {
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
    open(b"u", OpenHow4::Unchecked(acl(&values))).succeeds();
    open(b"g", OpenHow4::Guarded(acl(&values))).succeeds();
    for name in [b"u", b"g"] {
        assert_eq!(list_of(&client, &client.handle(&[b"a", name])), owned(&wanted));
    }
    // The verifier of an exclusive create is not kept with a list.
    let exclusive = OpenHow4::Exclusive41([7; 8], acl(&values));
    open(b"e", exclusive).fails(Op4::Open, NfsStat4::Inval);
    open(b"r", OpenHow4::Guarded(acl(&refused))).fails(Op4::Open, NfsStat4::AttrNotSupp);
    for name in [b"e", b"r"] {
        client.run(&Ops::put(&root).look_up(name)).fails(Op4::Lookup, NfsStat4::NoEnt);
    }
    let link =
        Create4Args { objtype: CreateType4::Link(b"to"), objname: b"l", createattrs: acl(&values) };
    let reply = client.run(&Ops::put(&root).op(Op4::Create, &link));
    reply.fails(Op4::Create, NfsStat4::Inval);
}
