//! Unit ring: what a client asks for is done, or it is told that it is not: attributes, ACLs, guards.
#![allow(clippy::unwrap_used)]

mod common;

use steadfast_engine::{CallHost, Engine, Peer, ReplyBuffer, Transport, Verdict};
use steadfast_xdr::{Reader, Writer};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFSACL: u32 = 100_227;

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
        bytes[24..].to_vec()
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
