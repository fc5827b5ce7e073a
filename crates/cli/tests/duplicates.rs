//! Process ring: changing calls that are sent again, soon or late, the same way or another,
//! against the real program: executed once, always answered alike.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nfs3_support::{Fixture, PATIENCE, is_root};
use steadfast_client::{
    CreateHow3, FileHandle, Identity, NfsStat3, Procedure, Settings, StableHow, append_call,
    arguments, procedure, reserved,
};
use steadfast_sys::net::vanish;

/// When the second copy is sent after the first, in ms.
const DELAYS_MS: [u64; 12] = [0, 0, 0, 1, 2, 5, 20, 100, 500, 1_000, 3_000, 10_000];
/// How long further replies are waited for, after one that must come.
const QUIET: Duration = Duration::from_millis(300);

/// How the second copy comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Datagram,
    /// The client's port has changed.
    DatagramFromElsewhere,
    SameConnection,
    /// The client has closed the first.
    Reconnected,
}

const WAYS: [Way; 4] =
    [Way::Datagram, Way::DatagramFromElsewhere, Way::SameConnection, Way::Reconnected];

/// A socket that calls are sent by.
enum Socket {
    Datagrams(UdpSocket),
    Stream(TcpStream),
}

impl Socket {
    fn open(way: Way, server: SocketAddr) -> Self {
        match way {
            Way::Datagram | Way::DatagramFromElsewhere => {
                Self::Datagrams(reserved::datagrams(server).unwrap())
            }
            Way::SameConnection | Way::Reconnected => Self::connect(server),
        }
    }

    fn connect(server: SocketAddr) -> Self {
        let stream = reserved::stream(server, PATIENCE).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::Stream(stream)
    }

    /// Sends a call, and gives the one reply to it.
    fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        let mut replies = self.replies(true);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    fn send(&mut self, message: &[u8]) {
        match self {
            Self::Datagrams(socket) => assert_eq!(socket.send(message).unwrap(), message.len()),
            Self::Stream(stream) => {
                let mark = 0x8000_0000 | message.len() as u32;
                stream.write_all(&[&mark.to_be_bytes()[..], message].concat()).unwrap();
            }
        }
    }

    /// The replies that come, by call: at least one if one must.
    fn replies(&mut self, must_come: bool) -> Vec<Vec<u8>> {
        let mut replies = Vec::new();
        loop {
            let patience = if must_come && replies.is_empty() { PATIENCE } else { QUIET };
            let received = match self {
                Self::Datagrams(socket) => {
                    let mut buffer = vec![0; 64 << 10];
                    socket.set_read_timeout(Some(patience)).unwrap();
                    socket.recv(&mut buffer).map(|length| buffer[..length].to_vec())
                }
                Self::Stream(stream) => {
                    stream.set_read_timeout(Some(patience)).unwrap();
                    let mut mark = [0; 4];
                    stream.read_exact(&mut mark).and_then(|()| {
                        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
                        let mut reply = vec![0; length as usize];
                        stream.read_exact(&mut reply).map(|()| reply)
                    })
                }
            };
            match received {
                Ok(reply) => replies.push(reply),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                    assert!(!must_come || !replies.is_empty(), "no reply");
                    return replies;
                }
            }
        }
    }
}

/// A call that fails when it is executed twice.
struct Once {
    name: &'static str,
    procedure: Procedure,
    arguments: Vec<u8>,
}

impl Once {
    fn message(&self, xid: u32) -> Vec<u8> {
        message(xid, self.procedure, &Identity::root(), &self.arguments)
    }
}

fn message(xid: u32, procedure: Procedure, identity: &Identity, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    append_call(&mut message, xid, procedure, identity, arguments);
    message
}

/// The status of a reply, 0 for success.
fn status_of(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[24..28].try_into().unwrap())
}

fn calls(root: &FileHandle, of: &dyn Fn(&str) -> String) -> Vec<Once> {
    let name = |what: &str| of(what).into_bytes();
    let guarded = CreateHow3::Guarded(Settings::mode(0o644).0);
    let mode = Settings::mode(0o755);
    let once = |name, procedure, arguments| Once { name, procedure, arguments };
    vec![
        once("CREATE", procedure::CREATE, arguments::create(root, &name("created"), &guarded)),
        once("MKDIR", procedure::MKDIR, arguments::mkdir(root, &name("made"), &mode)),
        once("REMOVE", procedure::REMOVE, arguments::place(root, &name("to remove"))),
        once(
            "RENAME",
            procedure::RENAME,
            arguments::rename(root, &name("to move"), root, &name("moved")),
        ),
    ]
}

/// Sends a call twice, and looks at all replies.
fn send_twice(server: SocketAddr, way: Way, delay: Duration, call: &Once, xid: u32) {
    let what = format!("{} again {way:?} after {delay:?}", call.name);
    let message = call.message(xid);
    let mut first = Socket::open(way, server);
    let mut second = match way {
        Way::DatagramFromElsewhere => Some(Socket::open(way, server)),
        Way::Datagram | Way::SameConnection | Way::Reconnected => None,
    };
    first.send(&message);
    let mut replies = Vec::new();
    if way == Way::Reconnected {
        // The server has got the call; the client has given up waiting for the reply.
        std::thread::sleep(delay);
        drop(first);
        let mut again = Socket::open(way, server);
        again.send(&message);
        replies.extend(again.replies(true));
    } else {
        std::thread::sleep(delay);
        match &mut second {
            Some(second) => {
                second.send(&message);
                replies.extend(second.replies(true));
            }
            None => first.send(&message),
        }
        replies.extend(first.replies(true));
    }
    for reply in &replies {
        assert_eq!(reply[..4], xid.to_be_bytes(), "{what}");
        assert_eq!(reply[24..28], [0; 4], "{what}: it was executed twice");
        assert_eq!(reply, &replies[0], "{what}: the replies differ");
    }
}

#[test]
fn a_call_sent_again_is_executed_once_and_answered_alike() {
    let mut f = Fixture::new();
    let mut scenarios = Vec::new();
    for way in WAYS {
        for (number, delay) in DELAYS_MS.into_iter().enumerate() {
            let suffix = format!("{way:?} {number}");
            f.file(&format!("to remove {suffix}"));
            f.file(&format!("to move {suffix}"));
            let calls = calls(&f.root, &|what| format!("{what} {suffix}"));
            scenarios.push((way, Duration::from_millis(delay), calls));
        }
    }
    let server = f.address();
    std::thread::scope(|scope| {
        for (number, (way, delay, calls)) in (1_u32..).zip(&scenarios) {
            for (part, call) in (1_u32..).zip(calls) {
                let xid = number << 8 | part;
                scope.spawn(move || send_twice(server, *way, *delay, call, xid));
            }
        }
    });
}

/// How long the second of two waits after the reply to the first.
const BETWEEN_MS: [u64; 4] = [0, 30, 500, 2_500];

/// Makes what calls take away, for each of these.
fn calls_for(f: &mut Fixture, what: &str, count: usize) -> Vec<Vec<Once>> {
    let suffixes = (0..count).map(|number| format!("{what} {number}"));
    suffixes
        .map(|suffix| {
            f.file(&format!("to remove {suffix}"));
            f.file(&format!("to move {suffix}"));
            calls(&f.root, &|what| format!("{what} {suffix}"))
        })
        .collect()
}

#[test]
fn the_same_bytes_by_two_live_connections_are_two_calls() {
    let mut f = Fixture::new();
    let server = f.address();
    let all = calls_for(&mut f, "of two", BETWEEN_MS.len());
    std::thread::scope(|scope| {
        for (number, (between_ms, calls)) in (1_u32..).zip(BETWEEN_MS.into_iter().zip(&all)) {
            for (part, call) in (1_u32..).zip(calls) {
                scope.spawn(move || {
                    let what = format!("{} after {between_ms} ms", call.name);
                    let message = call.message(number << 8 | part);
                    // Connected in the order in which they call, and against it.
                    let (mut one, mut other) = (Socket::connect(server), Socket::connect(server));
                    if number % 2 == 0 {
                        std::mem::swap(&mut one, &mut other);
                    }
                    let first = one.ask(&message);
                    std::thread::sleep(Duration::from_millis(between_ms));
                    let second = other.ask(&message);
                    assert_eq!(status_of(&first), 0, "{what}");
                    assert_ne!(status_of(&second), 0, "{what}: it got the reply of the other");
                    // Each has its own reply.
                    assert_eq!(one.ask(&message), first, "{what}");
                    assert_eq!(other.ask(&message), second, "{what}");
                });
            }
        }
    });
}

#[test]
fn of_two_live_connections_that_send_the_same_at_once_one_succeeds() {
    let mut f = Fixture::new();
    let server = f.address();
    for (round, calls) in (1_u32..).zip(&calls_for(&mut f, "at once", 3)) {
        for (part, call) in (1_u32..).zip(calls) {
            let message = call.message(round << 8 | part);
            let (mut one, mut other) = (Socket::connect(server), Socket::connect(server));
            one.send(&message);
            other.send(&message);
            let replies = [one.replies(true), other.replies(true)];
            let statuses: Vec<u32> = replies.iter().map(|replies| status_of(&replies[0])).collect();
            let succeeded = statuses.iter().filter(|status| **status == 0).count();
            assert_eq!(succeeded, 1, "{}: {statuses:?}", call.name);
        }
    }
}

#[test]
fn whatever_differs_with_one_xid_is_another_call() {
    let mut f = Fixture::new();
    let file = f.file("written");
    let (mut one, mut other) = (Socket::connect(f.address()), Socket::connect(f.address()));
    // In one connection, too: what decides is the call.
    for length in [8, 500, 70_000] {
        for at in [0, 300, 66_000].into_iter().filter(|at| *at < length) {
            let mut data = vec![b'h'; length];
            for (number, socket) in [&mut one, &mut other].into_iter().enumerate() {
                for byte in [b'A', b'B'] {
                    data[at] = byte + 2 * number as u8;
                    let arguments = arguments::write(&file, 0, &data, StableHow::FileSync);
                    let call = message(7, procedure::WRITE, &Identity::root(), &arguments);
                    assert_eq!(status_of(&socket.ask(&call)), 0);
                    let written = std::fs::read(f.on_disk("written")).unwrap();
                    assert_eq!(written[..length], data, "{length} bytes, other at {at}");
                }
            }
        }
    }
    let private = f.client.mkdir(&f.root, b"private", &Settings::mode(0o700)).unwrap();
    let private = private.handle.unwrap();
    let guarded = CreateHow3::Guarded(Settings::mode(0o644).0);
    f.client.create(&private, b"x", &guarded).unwrap();
    if !is_root() {
        return;
    }
    let arguments = arguments::place(&private, b"x");
    let by = |identity: &Identity| message(8, procedure::REMOVE, identity, &arguments);
    assert_eq!(status_of(&one.ask(&by(&Identity::root()))), 0);
    let denied = NfsStat3::Acces as u32;
    for socket in [&mut one, &mut other] {
        assert_eq!(status_of(&socket.ask(&by(&Identity::user(1000, 1000)))), denied);
    }
    // In another group, or in more of them.
    for (gid, gids) in [(0, vec![5]), (5, vec![])] {
        let identity = Identity::Sys { uid: 0, gid, gids };
        assert_eq!(status_of(&one.ask(&by(&identity))), NfsStat3::NoEnt as u32);
    }
}

#[test]
fn a_client_that_has_vanished_and_connects_again_gets_its_reply() {
    if !is_root() {
        println!("skipped: needs CAP_NET_ADMIN");
        return;
    }
    let mut f = Fixture::new();
    let server = f.address();
    let all = calls_for(&mut f, "vanished", 2);
    std::thread::scope(|scope| {
        for (number, calls) in (1_u32..).zip(&all) {
            for (part, call) in (1_u32..).zip(calls) {
                scope.spawn(move || {
                    let message = call.message(number << 8 | part);
                    let mut first = Socket::connect(server);
                    let reply = first.ask(&message);
                    let Socket::Stream(stream) = first else { return };
                    // Its end is not told to the server.
                    vanish(stream).unwrap();
                    if number == 1 {
                        std::thread::sleep(Duration::from_secs(2));
                    }
                    let begun = Instant::now();
                    let again = Socket::connect(server).ask(&message);
                    assert_eq!(again, reply, "{}: it was executed twice", call.name);
                    assert!(begun.elapsed() < Duration::from_secs(10));
                });
            }
        }
    });
}
