//! Process ring: NFSv2 over UDP and TCP against the real program, on ext4, XFS and btrfs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use common::{PATIENCE, Place, Running, utf8};
use intent_log_support::{Logged, btrfs, kill, xfs};
use steadfast_client::{
    ClientError, Identity, Procedure, RpcConnection, RpcDatagram, RpcTransport,
};
use steadfast_wire::mount::{DirPath, FhStatus};
use steadfast_wire::nfs2::{
    Create2Args, DirOpArgs2, NfsFh2, NfsTime2, Read2Args, Readdir2Args, Rename2Args, Sattr2,
    Setattr2Args, UNSET, Write2Args,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

type Handle = [u8; 32];

const UNCHANGED: Sattr2 = {
    let unset = NfsTime2 { seconds: UNSET, useconds: UNSET };
    Sattr2 { mode: UNSET, uid: UNSET, gid: UNSET, size: UNSET, atime: unset, mtime: unset }
};
/// Where results have the size: after the status and five words, and behind a handle.
const SIZE_AT: usize = 4 + 5 * 4;

fn xdr(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A small client, over whatever carries calls.
struct Client<T> {
    transport: T,
    root: Handle,
}

fn numbered(program: u32, version: u32, number: u32) -> Procedure {
    Procedure { program, version, number, name: "of version 2" }
}

fn mnt(transport: &mut impl RpcTransport, version: u32, path: &str) -> FhStatus {
    let arguments = xdr(&DirPath { path: path.as_bytes() });
    let procedure = numbered(100_005, version, 1);
    let result = transport.call(procedure, &Identity::root(), &arguments).unwrap();
    FhStatus::decode(&mut Reader::new(&result)).unwrap()
}

impl<T: RpcTransport> Client<T> {
    fn mount(mut transport: T, path: &str) -> Self {
        match mnt(&mut transport, 1, path) {
            FhStatus::Ok(root) => Self { transport, root },
            FhStatus::Failed(status) => panic!("{path}: {status}"),
        }
    }

    fn call(&mut self, number: u32, arguments: &[u8]) -> Vec<u8> {
        let procedure = numbered(100_003, 2, number);
        self.transport.call(procedure, &Identity::root(), arguments).unwrap()
    }

    fn status(&mut self, number: u32, arguments: &impl Encode) -> u32 {
        word(&self.call(number, &xdr(arguments)), 0)
    }

    fn create(&mut self, name: &str) -> Handle {
        let root = self.root;
        let where_ = DirOpArgs2 { dir: NfsFh2(&root), name: name.as_bytes() };
        let attributes = Sattr2 { mode: 0o100_644, size: 0, ..UNCHANGED };
        let result = self.call(9, &xdr(&Create2Args { where_, attributes }));
        assert_eq!(word(&result, 0), 0);
        result[4..36].try_into().unwrap()
    }

    fn lookup(&mut self, name: &str) -> Handle {
        let root = self.root;
        let result = self.call(4, &xdr(&DirOpArgs2 { dir: NfsFh2(&root), name: name.as_bytes() }));
        assert_eq!(word(&result, 0), 0);
        result[4..36].try_into().unwrap()
    }

    fn read(&mut self, file: &Handle, offset: u32) -> Result<Vec<u8>, u32> {
        let arguments = Read2Args { file: NfsFh2(file), offset, count: 8192, totalcount: 0 };
        let result = self.call(6, &xdr(&arguments));
        match word(&result, 0) {
            0 => Ok(Reader::new(&result[72..]).opaque(8192).unwrap().to_vec()),
            status => Err(status),
        }
    }

    fn write(&mut self, file: &Handle, offset: u32, data: &[u8]) -> u32 {
        let arguments =
            Write2Args { file: NfsFh2(file), beginoffset: 0, offset, totalcount: 0, data };
        self.status(8, &arguments)
    }

    /// A page: names, the cookie to go on by, whether it is the last.
    fn page(&mut self, cookie: u32, count: u32) -> (Vec<Vec<u8>>, u32, bool) {
        let root = self.root;
        let result = self.call(16, &xdr(&Readdir2Args { dir: NfsFh2(&root), cookie, count }));
        assert!(result.len() <= count as usize);
        let mut r = Reader::new(&result);
        assert_eq!(r.u32().unwrap(), 0);
        let (mut names, mut cookie) = (Vec::new(), cookie);
        while r.bool().unwrap() {
            r.u32().unwrap();
            names.push(r.opaque(255).unwrap().to_vec());
            cookie = r.u32().unwrap();
            assert!(cookie < 1 << 31);
        }
        (names, cookie, r.bool().unwrap())
    }
}

fn by_tcp(server: SocketAddr) -> RpcConnection {
    RpcConnection::connect(server, PATIENCE).unwrap()
}

fn by_udp(server: SocketAddr) -> RpcDatagram {
    RpcDatagram::connect(server, steadfast_client::Retransmission::default()).unwrap()
}

/// What old devices do all day.
fn works(client: &mut Client<impl RpcTransport>) {
    let root = client.root;
    assert!(client.call(0, b"").is_empty());
    let file = client.create("file");
    let data: Vec<u8> = (0..20_000_u32).map(|index| (index % 251) as u8).collect();
    for (index, chunk) in data.chunks(8192).enumerate() {
        assert_eq!(client.write(&file, index as u32 * 8192, chunk), 0);
    }
    let mut read = Vec::new();
    loop {
        let chunk = client.read(&file, read.len() as u32).unwrap();
        if chunk.is_empty() {
            break;
        }
        read.extend(chunk);
    }
    assert!(read == data);
    assert_eq!(client.lookup("file"), file);
    let place = |name: &'static [u8]| DirOpArgs2 { dir: NfsFh2(&root), name };
    assert_eq!(client.status(11, &Rename2Args { from: place(b"file"), to: place(b"moved") }), 0);
    let set = Setattr2Args {
        file: NfsFh2(&file),
        attributes: Sattr2 { mode: 0o600, size: 5, ..UNCHANGED },
    };
    let result = client.call(2, &xdr(&set));
    assert_eq!((word(&result, 0), word(&result, SIZE_AT)), (0, 5));
    assert_eq!(client.status(10, &place(b"moved")), 0);
    assert_eq!(word(&client.call(1, &file), 0), 70, "STALE");
    assert_eq!(word(&client.call(17, &root), 4), 8192);
}

#[test]
fn it_works_over_udp_and_tcp() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash", "--nfs2"]);
    let path = utf8(&place.share);
    works(&mut Client::mount(by_udp(running.address), path));
    works(&mut Client::mount(by_tcp(running.address), path));
    assert!(matches!(mnt(&mut by_tcp(running.address), 2, path), FhStatus::Ok(_)));

    // 5 GiB, of which NFSv2 sees the first two.
    let large = std::fs::File::create(place.share.join("large")).unwrap();
    large.set_len(5 << 30).unwrap();
    let mut client = Client::mount(by_tcp(running.address), path);
    let file = client.lookup("large");
    assert_eq!(word(&client.call(1, &file), SIZE_AT), 0x7fff_ffff);
    assert_eq!(client.read(&file, 0x7fff_fff0).unwrap(), [0; 15]);
    assert_eq!(client.read(&file, 0x8000_0000), Err(27));
    assert_eq!(client.write(&file, 0x7fff_ffff, b"x"), 27);
    // A client that sends back what it was shown does not mean to cut it.
    let set = |size| Setattr2Args {
        file: NfsFh2(&file),
        attributes: Sattr2 { mode: 0o600, size, ..UNCHANGED },
    };
    assert_eq!(client.status(2, &set(0x7fff_ffff)), 27);
    assert_eq!(large.metadata().unwrap().len(), 5 << 30);
    assert_eq!(client.status(2, &set(0)), 0);
    assert_eq!(large.metadata().unwrap().len(), 0);
}

#[test]
fn it_is_off_unless_it_is_asked_for() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let refused = by_tcp(running.address).call(numbered(100_003, 2, 0), &Identity::root(), b"");
    assert!(matches!(refused, Err(ClientError::Accepted(_))), "{refused:?}");
}

/// By the file system's own order, in pages of any size, and over a restart in the middle.
#[test]
fn a_large_directory_is_told_whole_and_once() {
    let place = Place::new();
    std::fs::create_dir_all(&place.share).unwrap();
    let mut expected: BTreeSet<Vec<u8>> = [b".".to_vec(), b"..".to_vec()].into();
    for number in 0..3000 {
        let name = format!("a name of some length {number}");
        std::fs::write(place.share.join(&name), b"").unwrap();
        expected.insert(name.into_bytes());
    }
    let words = [utf8(&place.share), "--no-root-squash", "--nfs2"];
    let mut running = Running::start(&place, 0, &words);
    for count in [400, 1024, 8192] {
        let path = utf8(&place.share);
        let mut client = Client::mount(by_udp(running.address), path);
        let (mut names, mut cookie) = (BTreeSet::new(), 0);
        for pages in 0.. {
            assert!(pages < 3002);
            if names.len() > 1000 && names.len() < 1400 && pages % 3 == 0 {
                kill(running);
                running = Running::start(&place, 0, &words);
                client = Client { transport: by_udp(running.address), root: client.root };
            }
            let (page, next, is_end) = client.page(cookie, count);
            cookie = next;
            for name in page {
                assert!(names.insert(name.clone()), "{} twice", name.escape_ascii());
            }
            if is_end {
                break;
            }
        }
        assert!(names == expected, "{} of {} names", names.len(), expected.len());
        assert_eq!(client.page(cookie, count), (vec![], cookie, true));
    }
    // What is removed between pages leaves nothing out.
    let mut client = Client::mount(by_tcp(running.address), utf8(&place.share));
    let mut cookie = 0;
    loop {
        let (page, next, is_end) = client.page(cookie, 1024);
        for name in page.iter().filter(|name| name.len() > 2) {
            let root = client.root;
            assert_eq!(client.status(10, &DirOpArgs2 { dir: NfsFh2(&root), name }), 0);
        }
        cookie = next;
        if is_end {
            break;
        }
    }
    assert_eq!(std::fs::read_dir(&place.share).unwrap().count(), 0);
}

/// Calls whose repetition would fail or do harm, over a kill.
#[test]
fn replies_outlive_a_kill() {
    let Some(mut logged) = Logged::new() else { return };
    let text = std::fs::read_to_string(&logged.configuration).unwrap();
    logged.configuration =
        logged.place.write("with-nfs2.toml", &format!("[server]\nnfs2 = true\n{text}"));
    let running = logged.start();
    let path = utf8(&logged.place.share);
    let mut client = Client::mount(by_tcp(running.address), path);
    let root = client.root;
    let removed = client.create("to remove");
    let moved = client.create("to move");
    assert_eq!(client.write(&moved, 0, b"stable"), 0);
    let place = |name: &'static [u8]| DirOpArgs2 { dir: NfsFh2(&root), name };
    let calls = [
        (10, xdr(&place(b"to remove"))),
        (11, xdr(&Rename2Args { from: place(b"to move"), to: place(b"moved") })),
        (14, xdr(&Create2Args { where_: place(b"dir"), attributes: UNCHANGED })),
        (9, xdr(&Create2Args { where_: place(b"made"), attributes: UNCHANGED })),
    ];
    let messages: Vec<Vec<u8>> = (77_u32..)
        .zip(&calls)
        .map(|(xid, (number, arguments))| {
            let mut message = Vec::new();
            let procedure = numbered(100_003, 2, *number);
            let identity = Identity::root();
            steadfast_client::append_call(&mut message, xid, procedure, &identity, arguments);
            message
        })
        .collect();
    let replies: Vec<Vec<u8>> =
        messages.iter().map(|message| asked(running.address, message)).collect();
    assert!(replies.iter().all(|reply| word(reply, 24) == 0));
    kill(running);
    let running = logged.start();
    for (message, reply) in messages.iter().zip(&replies) {
        assert_eq!(&asked(running.address, message), reply);
    }
    let mut client = Client { transport: by_tcp(running.address), root };
    assert_eq!(client.lookup("moved"), moved);
    assert_eq!(client.read(&moved, 0).unwrap(), b"stable");
    assert_eq!(word(&client.call(1, &removed), 0), 70);
}

/// The reply to a message that is sent as it is.
fn asked(server: SocketAddr, message: &[u8]) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut stream = steadfast_client::reserved::stream(server, PATIENCE).unwrap();
    let mark = 0x8000_0000 | message.len() as u32;
    stream.write_all(&[&mark.to_be_bytes()[..], message].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

#[test]
fn xfs_fits_and_btrfs_is_refused() {
    let place = Place::new();
    let (image, other) = (place.directory.path().join("xfs"), place.directory.path().join("btrfs"));
    let long = place.directory.path().canonicalize().unwrap().join("long");
    let (Some(_xfs), Some(_btrfs)) = (xfs(&image, &place.share), btrfs(&other, &long, 30)) else {
        return;
    };
    let words = [utf8(&place.share), utf8(&long), "--no-root-squash", "--nfs2"];
    let running = Running::start(&place, 0, &words);
    works(&mut Client::mount(by_udp(running.address), utf8(&place.share)));
    let refused = mnt(&mut by_udp(running.address), 1, utf8(&long));
    assert!(matches!(refused, FhStatus::Failed(_)), "{refused:?}");
    let log = Running::log_with(&place, "more than 32 bytes");
    assert!(log.contains("NFSv3 or NFSv4"), "{log}");
}
