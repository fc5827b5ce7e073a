//! Unit ring: what a client asks for is done, or it is told that it is not: attributes, ACLs, guards. And what it is
//! told are the messages of `wire`, byte by byte.
#![allow(clippy::unwrap_used)]

mod common;

use steadfast_engine::{CallHost, Engine, Peer, ReplyBuffer, Transport, Verdict};
use steadfast_wire::nfs3::{
    Access3Args, Access3Res, Changed3Res, Commit3Args, Commit3Res, Create3Args, CreateHow3,
    DirOpArgs3, Fsinfo3Res, Fsstat3Res, Getattr3Res, Link3Args, Link3Res, Lookup3Res, Made3Res,
    Mkdir3Args, Mknod3Args, MknodData3, NfsFh3, Pathconf3Res, Read3Args, Read3Res, Readdir3Args,
    Readdir3Res, Readdirplus3Args, Readdirplus3Res, Readlink3Res, Rename3Args, Rename3Res, Sattr3,
    SetTime3, Setattr3Args, StableHow, Symlink3Args, SymlinkData3, Write3Args, Write3Res,
};
use steadfast_wire::nfsacl::{Getacl3Res, Setacl3Res};
use steadfast_wire::{mount, rpcbind};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFSACL: u32 = 100_227;
const RPCBIND: u32 = 100_000;

const OK: u32 = 0;
const ACCES: u32 = 13;
const INVAL: u32 = 22;
const NOT_SYNC: u32 = 10_002;

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

struct Client {
    engine: Engine,
    peer: Peer,
    next_xid: u32,
}

impl Client {
    fn new() -> Self {
        let [address, local] = ["127.0.0.1:700", "127.0.0.1:2049"].map(|at| at.parse().unwrap());
        let peer = Peer::new(address, local, Transport::Tcp);
        Self { engine: common::engine(), peer, next_xid: 1 }
    }

    /// The results of a call by root.
    fn call(&mut self, procedure: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        self.next_xid += 1;
        let (program, version, procedure) = procedure;
        let sys = words(&[0, 0, 0, 0, 0]);
        let head = words(&[self.next_xid, 0, 2, program, version, procedure, 1]);
        let message = [head, opaque(&sys), words(&[0, 0]), arguments.to_vec()].concat();
        let mut reply = ReplyBuffer::default();
        let bytes = match self.engine.call(&mut Host, &self.peer, 0, &message, &mut reply) {
            Verdict::Replied => reply.bytes,
            Verdict::Parked(call) => {
                let mut bytes = Vec::new();
                self.engine.settle(call, Ok(()), 0, &mut bytes);
                bytes
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(bytes[8..24], [0; 16], "not accepted, or no success");
        let results = bytes[24..].to_vec();
        assert!(is_of_wire((program, version, procedure), &results), "{results:?}");
        results
    }

    fn status(&mut self, procedure: (u32, u32, u32), arguments: &[u8]) -> u32 {
        Reader::new(&self.call(procedure, arguments)).u32().unwrap()
    }

    fn root(&mut self) -> Vec<u8> {
        let results = self.call((MOUNT, 3, 1), &opaque(b"/a"));
        let mut r = Reader::new(&results);
        assert_eq!(r.u32().unwrap(), OK);
        r.opaque(64).unwrap().to_vec()
    }

    fn made(&mut self, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let results = self.call((NFS, 3, procedure), arguments);
        let mut r = Reader::new(&results);
        assert_eq!((r.u32().unwrap(), r.bool().unwrap()), (OK, true));
        r.opaque(64).unwrap().to_vec()
    }
}

/// Whether bytes are a message of this type, and nothing else.
fn is<'a, T: Decode<'a> + Encode>(bytes: &'a [u8]) -> bool {
    let mut r = Reader::new(bytes);
    T::decode(&mut r).is_ok_and(|message| xdr(&message) == bytes) && r.is_empty()
}

/// Whether results are what `wire` has for a procedure.
fn is_of_wire(procedure: (u32, u32, u32), results: &[u8]) -> bool {
    match procedure {
        (NFS, 3, 1) => is::<Getattr3Res>(results),
        (NFS, 3, 2 | 12 | 13) => is::<Changed3Res>(results),
        (NFS, 3, 3) => is::<Lookup3Res<'_>>(results),
        (NFS, 3, 4) => is::<Access3Res>(results),
        (NFS, 3, 5) => is::<Readlink3Res<'_>>(results),
        (NFS, 3, 6) => is::<Read3Res<'_>>(results),
        (NFS, 3, 7) => is::<Write3Res>(results),
        (NFS, 3, 8..=11) => is::<Made3Res<'_>>(results),
        (NFS, 3, 14) => is::<Rename3Res>(results),
        (NFS, 3, 15) => is::<Link3Res>(results),
        (NFS, 3, 16) => is::<Readdir3Res<'_>>(results),
        (NFS, 3, 17) => is::<Readdirplus3Res<'_>>(results),
        (NFS, 3, 18) => is::<Fsstat3Res>(results),
        (NFS, 3, 19) => is::<Fsinfo3Res>(results),
        (NFS, 3, 20) => is::<Pathconf3Res>(results),
        (NFS, 3, 21) => is::<Commit3Res>(results),
        (NFSACL, 3, 1) => is::<Getacl3Res>(results),
        (NFSACL, 3, 2) => is::<Setacl3Res>(results),
        (MOUNT, 1 | 2, 1) => is::<mount::FhStatus>(results),
        (MOUNT, 3, 1) => is::<mount::MountRes3<'_>>(results),
        (MOUNT, _, 2) => is::<mount::MountList<'_>>(results),
        (MOUNT, _, 5) => is::<mount::Exports<'_>>(results),
        (RPCBIND, 2, 4) => is::<rpcbind::MappingList>(results),
        (RPCBIND, 3 | 4, 4) => is::<rpcbind::BindingList<'_>>(results),
        (RPCBIND, 4, 11) => is::<rpcbind::AddressList<'_>>(results),
        _ => panic!("no type for {procedure:?}"),
    }
}

fn xdr(message: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).opaque(data);
    bytes
}

/// `sattr3`, of which nothing is set but this.
#[derive(Clone, Copy, Default)]
struct Settings {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u32>,
    /// Nanoseconds of a client's time.
    atime: Option<u32>,
    mtime: Option<u32>,
}

impl Settings {
    fn bytes(self) -> Vec<u8> {
        let optional = |word: Option<u32>| word.map_or(words(&[0]), |word| words(&[1, word]));
        let size = self.size.map_or(words(&[0]), |size| words(&[1, 0, size]));
        let time = |ns: Option<u32>| ns.map_or(words(&[0]), |ns| words(&[2, 1000, ns]));
        let [mode, uid, gid] = [self.mode, self.uid, self.gid].map(optional);
        [mode, uid, gid, size, time(self.atime), time(self.mtime)].concat()
    }
}

#[test]
fn attributes_are_set_or_refused() {
    let mut client = Client::new();
    let root = client.root();
    let place = |name: &str| [opaque(&root), opaque(name.as_bytes())].concat();
    let guarded = [place("file"), words(&[1]), Settings::default().bytes()].concat();
    let file = client.made(8, &guarded);
    let none = Settings::default();
    for (index, (set, setattr, file_and_directory, others)) in [
        (none, OK, OK, OK),
        (Settings { mode: Some(0o640), ..none }, OK, OK, OK),
        (Settings { uid: Some(5), gid: Some(6), ..none }, OK, OK, OK),
        (Settings { atime: Some(0), mtime: Some(999_999_999), ..none }, OK, OK, OK),
        // No time, and before anything else is set.
        (Settings { mode: Some(0), atime: Some(1_000_000_000), ..none }, INVAL, INVAL, INVAL),
        (Settings { mode: Some(0), mtime: Some(u32::MAX), ..none }, INVAL, INVAL, INVAL),
        // Nobody: not to be changed to, and not given to.
        (Settings { mode: Some(0), uid: Some(u32::MAX), ..none }, INVAL, OK, OK),
        (Settings { mode: Some(0), gid: Some(u32::MAX), ..none }, INVAL, OK, OK),
        // What has no size takes none; a directory's is its own business.
        (Settings { size: Some(0), ..none }, OK, OK, OK),
        (Settings { size: Some(9), ..none }, OK, OK, INVAL),
    ]
    .into_iter()
    .enumerate()
    {
        let before = client.call((NFS, 3, 1), &opaque(&file));
        let arguments = [opaque(&file), set.bytes(), words(&[0])].concat();
        assert_eq!(client.status((NFS, 3, 2), &arguments), setattr, "SETATTR {index}");
        if setattr != OK {
            assert_eq!(client.call((NFS, 3, 1), &opaque(&file)), before, "{index}");
        }
        let name = |kind: &str| place(&format!("{kind}-{index}"));
        let fifo = words(&[7]);
        for (procedure, arguments, expected) in [
            (8, [name("unchecked"), words(&[0]), set.bytes()].concat(), file_and_directory),
            (8, [name("guarded"), words(&[1]), set.bytes()].concat(), file_and_directory),
            (9, [name("dir"), set.bytes()].concat(), file_and_directory),
            (10, [name("link"), set.bytes(), opaque(b"to")].concat(), others),
            (11, [name("fifo"), fifo, set.bytes()].concat(), others),
        ] {
            let status = client.status((NFS, 3, procedure), &arguments);
            assert_eq!(status, expected, "procedure {procedure}, {index}");
        }
    }
}

#[test]
fn a_guard_that_is_no_time_is_not_the_objects() {
    let mut client = Client::new();
    let root = client.root();
    let set = Settings { mode: Some(0o700), ..Settings::default() }.bytes();
    let guard = words(&[1, 1000, 1_500_000_000]);
    let arguments = [opaque(&root), set, guard].concat();
    assert_eq!(client.status((NFS, 3, 2), &arguments), NOT_SYNC);
}

#[test]
fn acls_are_set_or_refused() {
    let mut client = Client::new();
    let root = client.root();
    let place = [opaque(&root), opaque(b"file")].concat();
    let file = client.made(8, &[place, words(&[1]), Settings::default().bytes()].concat());
    let list = |count: u32, flags: u32| {
        let entries = [(1, 0, 6), (4, 0, 4), (0x10, 0, 4), (0x20, 0, 0)];
        let entries = entries.map(|(kind, id, bits)| words(&[kind | flags, id, bits])).concat();
        [words(&[count, 4]), entries].concat()
    };
    let empty = words(&[0, 0]);
    for (what, object, mask, access, default, expected) in [
        ("nothing", &file, 0, list(4, 0), list(4, 0x1000), OK),
        ("an access list", &file, 1, list(4, 0), empty.clone(), OK),
        ("one that is not as long as it says", &file, 1, list(5, 0), empty.clone(), INVAL),
        ("one that is not there", &file, 1, list(0, 0), empty.clone(), INVAL),
        ("a default list of a file", &file, 4, empty.clone(), list(4, 0x1000), ACCES),
        ("both of a file", &file, 5, list(4, 0), list(4, 0x1000), ACCES),
        ("none for a file", &file, 4, empty.clone(), empty.clone(), OK),
        ("a default list of a directory", &root, 4, empty.clone(), list(4, 0x1000), OK),
        ("and its end", &root, 4, empty.clone(), empty.clone(), OK),
        ("what there is not", &file, 16, list(4, 0), empty.clone(), INVAL),
    ] {
        let arguments = [opaque(object), words(&[mask]), access, default].concat();
        assert_eq!(client.status((NFSACL, 3, 2), &arguments), expected, "{what}");
    }
}

/// All procedures of NFSv3, done and refused.
#[test]
fn results_of_nfs3_are_those_of_wire() {
    let mut client = Client::new();
    let root = client.root();
    let dir = NfsFh3(&root);
    let place = |name: &'static [u8]| DirOpArgs3 { dir, name };
    let (atime, mtime) = (SetTime3::DontChange, SetTime3::SetToServerTime);
    let set = Sattr3 { mode: Some(0o600), uid: None, gid: None, size: None, atime, mtime };
    let create = |name| Create3Args { where_: place(name), how: CreateHow3::Unchecked(set) };
    let file = client.made(8, &xdr(&create(b"file")));
    let file = NfsFh3(&file);
    let symlink = SymlinkData3 { symlink_attributes: set, symlink_data: b"file" };
    let link = client.made(10, &xdr(&Symlink3Args { where_: place(b"link"), symlink }));
    let (stable, data) = (StableHow::Unstable, b"data");
    let (cookie, cookieverf, dircount, maxcount) = (0, [0; 8], 4096, 4096);
    let calls = [
        (1, xdr(&dir)),
        (2, xdr(&Setattr3Args { object: file, new_attributes: set, guard: None })),
        (3, xdr(&place(b"file"))),
        (4, xdr(&Access3Args { object: file, access: 0x3f })),
        (5, xdr(&NfsFh3(&link))),
        (7, xdr(&Write3Args { file, offset: 0, count: 4, stable, data })),
        (6, xdr(&Read3Args { file, offset: 1, count: 9 })),
        (21, xdr(&Commit3Args { file, offset: 0, count: 0 })),
        (8, xdr(&create(b"other"))),
        (9, xdr(&Mkdir3Args { where_: place(b"dir"), attributes: set })),
        (10, xdr(&Symlink3Args { where_: place(b"second"), symlink })),
        (11, xdr(&Mknod3Args { where_: place(b"fifo"), what: MknodData3::Fifo(set) })),
        (14, xdr(&Rename3Args { from: place(b"other"), to: place(b"renamed") })),
        (15, xdr(&Link3Args { file, link: place(b"name") })),
        (16, xdr(&Readdir3Args { dir, cookie, cookieverf, count: maxcount })),
        (17, xdr(&Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount })),
        (12, xdr(&place(b"renamed"))),
        (13, xdr(&place(b"dir"))),
        (18, xdr(&dir)),
        (19, xdr(&dir)),
        (20, xdr(&dir)),
    ];
    for (procedure, arguments) in &calls {
        assert_eq!(client.status((NFS, 3, *procedure), arguments), OK, "{procedure}");
    }
    // A handle that is none.
    for (procedure, mut arguments) in calls {
        arguments[8] ^= 0x55;
        assert_ne!(client.status((NFS, 3, procedure), &arguments), OK, "{procedure}");
    }
}

#[test]
fn lists_of_mount_and_rpcbind_are_those_of_wire() {
    let mut client = Client::new();
    client.root();
    for version in [1, 3] {
        for procedure in [2, 5] {
            assert_ne!(client.call((MOUNT, version, procedure), &[]), words(&[0]));
        }
    }
    assert_eq!(client.status((MOUNT, 1, 1), &opaque(b"/none")), 2);
    assert_eq!(client.status((MOUNT, 3, 1), &opaque(b"/none")), 2);
    for version in [2, 3, 4] {
        assert_ne!(client.call((RPCBIND, version, 4), &[]), words(&[0]));
    }
    let (prog, vers) = (NFS, 3);
    let wanted = rpcbind::Binding { prog, vers, netid: b"", addr: b"", owner: b"" };
    assert_ne!(client.call((RPCBIND, 4, 11), &xdr(&wanted)), words(&[0]));
}
