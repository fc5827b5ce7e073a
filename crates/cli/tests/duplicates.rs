//! Process ring: changing calls that are sent again, soon or late, the same way or another,
//! against the real program: executed once, always answered alike.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use nfs3_support::{Fixture, PATIENCE};
use steadfast_client::{
    CreateHow3, FileHandle, Identity, Procedure, Settings, append_call, arguments, procedure,
};

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
    /// The first connection stays.
    SecondConnection,
    /// The client has closed the first.
    Reconnected,
}

const WAYS: [Way; 5] = [
    Way::Datagram,
    Way::DatagramFromElsewhere,
    Way::SameConnection,
    Way::SecondConnection,
    Way::Reconnected,
];

/// A socket that calls are sent by.
enum Socket {
    Datagrams(UdpSocket),
    Stream(TcpStream),
}

impl Socket {
    fn open(way: Way, server: SocketAddr) -> Self {
        match way {
            Way::Datagram | Way::DatagramFromElsewhere => {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(server).unwrap();
                Self::Datagrams(socket)
            }
            Way::SameConnection | Way::SecondConnection | Way::Reconnected => {
                let stream = TcpStream::connect(server).unwrap();
                stream.set_nodelay(true).unwrap();
                Self::Stream(stream)
            }
        }
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
    let mut message = Vec::new();
    append_call(&mut message, xid, call.procedure, &Identity::root(), &call.arguments);
    let mut first = Socket::open(way, server);
    let mut second = match way {
        Way::DatagramFromElsewhere | Way::SecondConnection => Some(Socket::open(way, server)),
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
