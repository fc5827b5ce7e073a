//! Process ring: NFSv3 over UDP with datagrams that are lost, repeated and reordered, against the
//! real program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::time::Duration;

use nfs3_support::{Fixture, PATIENCE};
use steadfast_client::{
    CreateHow3, Identity, Nfs3Client, NfsStat3, Procedure, Reply, Retransmission, RpcDatagram,
    Settings, StableHow, arguments, mount, procedure,
};

fn datagram(f: &Fixture) -> RpcDatagram {
    RpcDatagram::connect(f.address(), Retransmission::default()).unwrap()
}

/// Sends a call's datagram so many times and returns every reply that comes; at least one must.
fn send(socket: &mut RpcDatagram, message: &[u8], xid: u32, times: usize) -> Vec<Reply> {
    for _ in 0..times {
        socket.send(message).unwrap();
    }
    let mut replies = Vec::new();
    while replies.len() < times {
        // A repetition of a call under way is dropped in silence, so the last ones may not come.
        let wait = if replies.is_empty() { PATIENCE } else { Duration::from_millis(300) };
        match socket.receive(wait).unwrap() {
            Some(reply) if reply.xid == xid => replies.push(reply),
            Some(_) => {}
            None => break,
        }
    }
    assert!(!replies.is_empty(), "no reply");
    replies
}

fn status(reply: &Reply) -> u32 {
    u32::from_be_bytes(reply.results().unwrap()[..4].try_into().unwrap())
}

#[test]
fn everything_works_over_udp() {
    let f = Fixture::new();
    let mut socket = datagram(&f);
    let path = common::utf8(&f.place.share).to_owned();
    let root = mount::mnt(&mut socket, &Identity::root(), path.as_bytes()).unwrap().handle;
    assert_eq!(root, f.root);
    let mut client = Nfs3Client::new(socket, Identity::root());
    client.null().unwrap();
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let file = client.create(&root, b"a", &how).unwrap().handle.unwrap();
    let data: Vec<u8> = (0..32_768_u32).map(|index| (index % 253) as u8).collect();
    client.write(&file, 0, &data, StableHow::FileSync).unwrap();
    assert!(client.read(&file, 0, 32_768).unwrap().data == data);
    // More than fits a datagram is cut.
    let cut = client.read(&file, 0, 1 << 20).unwrap();
    assert!(data.starts_with(&cut.data) && cut.data.len() >= 8192);
    let info = client.fsinfo(&root).unwrap();
    assert!(info.read_max <= 60_000 && info.read_max >= 8192, "{}", info.read_max);
    for plus in [false, true] {
        let names: Vec<_> =
            client.entries(&root, plus, 1 << 20).map(|entry| entry.unwrap().name).collect();
        assert_eq!(names.len(), 3);
    }
    client.remove(&root, b"a").unwrap();
}

#[test]
fn a_repeated_change_is_made_once_and_answered_alike() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("file");
    f.file("to remove");
    f.file("to move");
    f.directory("to rmdir");
    let mut socket = datagram(&f);
    let new = CreateHow3::Guarded(Settings::mode(0o644).0);
    let calls: Vec<(Procedure, Vec<u8>)> = vec![
        (procedure::CREATE, arguments::create(&root, b"created", &new)),
        (procedure::MKDIR, arguments::mkdir(&root, b"directory", &Settings::mode(0o755))),
        (procedure::SYMLINK, arguments::symlink(&root, b"symlink", b"x", &Settings::default())),
        (procedure::LINK, arguments::link(&file, &root, b"link")),
        (procedure::RENAME, arguments::rename(&root, b"to move", &root, b"moved")),
        (procedure::REMOVE, arguments::place(&root, b"to remove")),
        (procedure::RMDIR, arguments::place(&root, b"to rmdir")),
    ];
    for (procedure, arguments) in calls {
        let (xid, message) = socket.prepare(procedure, &Identity::root(), &arguments);
        let first = send(&mut socket, &message, xid, 1);
        assert_eq!(status(&first[0]), 0, "{procedure:?}");
        // The reply was lost on its way, so the client asks again; some more come late.
        for _ in 0..3 {
            assert_eq!(send(&mut socket, &message, xid, 1), first, "{procedure:?}");
        }
    }
}

#[test]
fn a_burst_of_one_call_is_one_change() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let mut socket = datagram(&f);
    for turn in 0..20 {
        let name = format!("n{turn}").into_bytes();
        let new = CreateHow3::Guarded(Settings::mode(0o644).0);
        let arguments = arguments::create(&root, &name, &new);
        let (xid, message) = socket.prepare(procedure::CREATE, &Identity::root(), &arguments);
        let replies = send(&mut socket, &message, xid, 10);
        assert!(replies.iter().all(|reply| *reply == replies[0]));
        assert_eq!(status(&replies[0]), 0);
        f.client.lookup(&root, &name).unwrap();
    }
}

#[test]
fn a_late_repetition_undoes_nothing() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    f.file("a");
    let mut socket = datagram(&f);
    let arguments = arguments::place(&root, b"a");
    let (xid, remove) = socket.prepare(procedure::REMOVE, &Identity::root(), &arguments);
    assert_eq!(status(&send(&mut socket, &remove, xid, 1)[0]), 0);
    let again = f.file("a");
    assert_eq!(status(&send(&mut socket, &remove, xid, 1)[0]), 0);
    assert_eq!(f.client.lookup(&root, b"a").unwrap().handle, again);
}

#[test]
fn another_call_with_the_same_xid_is_another_call() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    f.file("a");
    f.file("b");
    let mut socket = datagram(&f);
    let (xid, first) =
        socket.prepare(procedure::REMOVE, &Identity::root(), &arguments::place(&root, b"a"));
    assert_eq!(status(&send(&mut socket, &first, xid, 1)[0]), 0);
    let (_, mut second) =
        socket.prepare(procedure::REMOVE, &Identity::root(), &arguments::place(&root, b"b"));
    second[..4].copy_from_slice(&xid.to_be_bytes());
    assert_eq!(status(&send(&mut socket, &second, xid, 1)[0]), 0);
    for name in [b"a", b"b"] {
        let error = f.client.lookup(&root, name).unwrap_err();
        assert_eq!(error.status(), Some(NfsStat3::NoEnt));
    }
}

#[test]
fn reordered_calls_are_each_answered() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let mut socket = datagram(&f);
    let mut prepared = Vec::new();
    for index in 0..50_u64 {
        let data = index.to_be_bytes();
        let arguments = arguments::write(&file, index * 8, &data, StableHow::FileSync);
        prepared.push(socket.prepare(procedure::WRITE, &Identity::root(), &arguments));
    }
    // Odd ones last, each twice, some never at first.
    let order: Vec<usize> =
        (0..50).step_by(2).chain((1..50).step_by(2).rev()).filter(|index| index % 7 != 0).collect();
    let mut open: std::collections::BTreeSet<u32> = order.iter().map(|i| prepared[*i].0).collect();
    for index in &order {
        socket.send(&prepared[*index].1).unwrap();
        socket.send(&prepared[*index].1).unwrap();
    }
    while !open.is_empty() {
        let reply = socket.receive(PATIENCE).unwrap().expect("a reply");
        open.remove(&reply.xid);
        assert_eq!(status(&reply), 0);
    }
    for index in (0..50).filter(|index| index % 7 == 0) {
        let (xid, message) = &prepared[index];
        assert_eq!(status(&send(&mut socket, message, *xid, 1)[0]), 0);
    }
    let data = f.client.read(&file, 0, 400).unwrap().data;
    let expected: Vec<u8> = (0..50_u64).flat_map(u64::to_be_bytes).collect();
    assert_eq!(data, expected);
}

#[test]
fn datagrams_of_rubbish_are_survived() {
    let mut f = Fixture::new();
    let mut socket = datagram(&f);
    let valid = socket.prepare(procedure::GETATTR, &Identity::root(), &arguments::handle(&f.root));
    for length in 0..valid.1.len() {
        socket.send(&valid.1[..length]).unwrap();
    }
    for byte in [0_u8, 0x7f, 0x80, 0xff] {
        socket.send(&vec![byte; 60_000]).unwrap();
    }
    let mut client = Nfs3Client::new(datagram(&f), Identity::root());
    let root = f.root.clone();
    client.getattr(&root).unwrap();
    f.client.getattr(&root).unwrap();
}
