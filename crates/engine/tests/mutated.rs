//! Property ring: real calls of every procedure, damaged at random, never bring the engine down,
//! and each answer is one RPC reply to the xid that was asked.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::engine;
use proptest::prelude::*;
use steadfast_engine::{CallHost, Engine, Peer, ReplyBuffer, Transport, Verdict};
use steadfast_xdr::{Reader, Writer};

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

struct Server {
    engine: Engine,
    peer: Peer,
}

impl Server {
    fn new() -> Self {
        Self {
            engine: engine(),
            peer: Peer::new(
                "127.0.0.1:1".parse().unwrap(),
                "127.0.0.1:2049".parse().unwrap(),
                Transport::Tcp,
            ),
        }
    }

    fn call(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut reply = ReplyBuffer::default();
        match self.engine.call(&mut Host, &self.peer, 0, message, &mut reply) {
            Verdict::Replied => Some(reply.bytes),
            Verdict::Parked(call) => {
                let mut bytes = Vec::new();
                self.engine.settle(call, Ok(()), 0, &mut bytes);
                Some(bytes)
            }
            Verdict::Silent | Verdict::Suspended(_) | Verdict::HangUp(_) => None,
        }
    }
}

fn message(program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    for word in [7, 0, 2, program, version, procedure, 1, 24, 0, 0, 0, 0, 1, 10, 0, 0] {
        w.u32(word);
    }
    message.extend_from_slice(arguments);
    message
}

fn xdr(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

/// A handle as NFSv2 has it.
fn fixed(handle: &[u8]) -> [u8; 32] {
    let mut fixed = [0; 32];
    fixed[..handle.len()].copy_from_slice(handle);
    fixed
}

/// Arguments of every procedure of NFSv2.
fn calls_of_nfs2(root: &[u8; 32], file: &[u8; 32]) -> Vec<Vec<u8>> {
    let handle = |w: &mut Writer<'_>| w.fixed_opaque(file);
    let place = |w: &mut Writer<'_>, name: &[u8]| {
        w.fixed_opaque(root);
        w.opaque(name);
    };
    let set = |w: &mut Writer<'_>| {
        for word in [0o100_644, 1, u32::MAX, 100, 5, 6, 7, 1_000_000] {
            w.u32(word);
        }
    };
    let words =
        |words: &'static [u32]| move |w: &mut Writer<'_>| words.iter().for_each(|it| w.u32(*it));
    vec![
        vec![],
        xdr(handle),
        xdr(|w| {
            handle(w);
            set(w);
        }),
        vec![],
        xdr(|w| place(w, b"f")),
        xdr(handle),
        xdr(|w| {
            handle(w);
            words(&[0, 100, 0])(w);
        }),
        vec![],
        xdr(|w| {
            handle(w);
            words(&[0, 3, 0])(w);
            w.opaque(b"hello");
        }),
        xdr(|w| {
            place(w, b"g2");
            set(w);
        }),
        xdr(|w| place(w, b"g2")),
        xdr(|w| {
            place(w, b"s2");
            place(w, b"t2");
        }),
        xdr(|w| {
            handle(w);
            place(w, b"l2");
        }),
        xdr(|w| {
            place(w, b"s2");
            w.opaque(b"target");
            set(w);
        }),
        xdr(|w| {
            place(w, b"d2");
            set(w);
        }),
        xdr(|w| place(w, b"d2")),
        xdr(|w| {
            w.fixed_opaque(root);
            words(&[0, 4096])(w);
        }),
        xdr(handle),
    ]
}

/// Arguments of every procedure of NFSv3.
fn calls_of_nfs3(root: &[u8], file: &[u8]) -> Vec<Vec<u8>> {
    let handle = |w: &mut Writer<'_>| w.opaque(file);
    let place = |w: &mut Writer<'_>, name: &[u8]| {
        w.opaque(root);
        w.opaque(name);
    };
    let set = |w: &mut Writer<'_>| {
        for word in [1, 0o644, 1, 0, 1, 0] {
            w.u32(word);
        }
        w.u32(1);
        w.u64(100);
        for word in [2, 5, 6, 1] {
            w.u32(word);
        }
    };
    vec![
        vec![],
        xdr(handle),
        xdr(|w| {
            handle(w);
            set(w);
            w.u32(1);
            w.u64(9);
        }),
        xdr(|w| place(w, b"f")),
        xdr(|w| {
            handle(w);
            w.u32(63);
        }),
        xdr(handle),
        xdr(|w| {
            handle(w);
            w.u64(0);
            w.u32(100);
        }),
        xdr(|w| {
            handle(w);
            w.u64(3);
            w.u32(5);
            w.u32(2);
            w.opaque(b"hello");
        }),
        xdr(|w| {
            place(w, b"g");
            w.u32(0);
            set(w);
        }),
        xdr(|w| {
            place(w, b"d");
            set(w);
        }),
        xdr(|w| {
            place(w, b"s");
            set(w);
            w.opaque(b"target");
        }),
        xdr(|w| {
            place(w, b"n");
            w.u32(4);
            set(w);
            w.u64(9);
        }),
        xdr(|w| place(w, b"g")),
        xdr(|w| place(w, b"d")),
        xdr(|w| {
            place(w, b"s");
            place(w, b"t");
        }),
        xdr(|w| {
            handle(w);
            place(w, b"l");
        }),
        xdr(|w| listing(w, root, &[4096])),
        xdr(|w| listing(w, root, &[512, 4096])),
        xdr(handle),
        xdr(handle),
        xdr(handle),
        xdr(|w| {
            handle(w);
            w.u64(0);
            w.u32(0);
        }),
    ]
}

/// A listing from the beginning, and how much of it.
fn listing(w: &mut Writer<'_>, directory: &[u8], counts: &[u32]) {
    w.opaque(directory);
    w.u64(0);
    w.u64(0);
    for count in counts {
        w.u32(*count);
    }
}

/// Arguments of procedures of NFSACL.
fn calls_of_nfsacl(file: &[u8]) -> Vec<Vec<u8>> {
    let get = xdr(|w| {
        w.opaque(file);
        w.u32(15);
    });
    let set = xdr(|w| {
        w.opaque(file);
        w.u32(1);
        w.u32(3);
        w.u32(3);
        for word in [1, 0, 6, 4, 0, 4, 0x20, 0, 0, 0, 0] {
            w.u32(word);
        }
    });
    vec![vec![], get, set]
}

/// Arguments of every procedure of the port mapper, and of rpcbind.
fn calls_of_rpcbind() -> [Vec<Vec<u8>>; 2] {
    let binding = xdr(|w| {
        w.u32(100_003);
        w.u32(3);
        for text in ["tcp", "", "me"] {
            w.opaque(text.as_bytes());
        }
    });
    let mapping = xdr(|w| [100_003, 3, 6, 0].iter().for_each(|word| w.u32(*word)));
    let remote = xdr(|w| [100_003, 3, 0, 0].iter().for_each(|word| w.u32(*word)));
    let netbuf = xdr(|w| {
        w.u32(16);
        w.opaque(&[2, 0, 8, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
    let of_2 = vec![vec![], mapping.clone(), mapping.clone(), mapping, vec![], remote.clone()];
    let mut of_4 = vec![binding; 13];
    (of_4[5], of_4[10]) = (remote.clone(), remote);
    (of_4[7], of_4[8]) = (xdr(|w| w.opaque(b"127.0.0.1.8.1")), netbuf);
    [of_2, of_4]
}

/// The handles of the share's root, and of a file that is made in it.
fn root_and_file(server: &Server) -> (Vec<u8>, Vec<u8>) {
    let mounted = server.call(&message(100_005, 3, 1, &xdr(|w| w.opaque(b"/a")))).unwrap();
    let root = Reader::new(&mounted[28..]).opaque(64).unwrap().to_vec();
    let create = xdr(|w| {
        w.opaque(&root);
        w.opaque(b"f");
        w.u32(1);
        w.zeros(24);
    });
    let made = server.call(&message(100_003, 3, 8, &create)).unwrap();
    let file = Reader::new(&made[32..]).opaque(64).unwrap().to_vec();
    (root, file)
}

/// A valid call of every procedure of every program.
fn valid_calls(server: &Server) -> Vec<Vec<u8>> {
    let (root, file) = root_and_file(server);
    let path = xdr(|w| w.opaque(b"/a"));
    let mount = vec![vec![], path.clone(), vec![], path, vec![], vec![]];
    let [rpcbind_2, rpcbind_4] = calls_of_rpcbind();
    let programs = [
        (100_003, 3, calls_of_nfs3(&root, &file)),
        (100_003, 2, calls_of_nfs2(&fixed(&root), &fixed(&file))),
        (100_227, 3, calls_of_nfsacl(&file)),
        (100_005, 3, mount.clone()),
        (100_005, 1, mount),
        (100_000, 2, rpcbind_2),
        (100_000, 4, rpcbind_4),
    ];
    let mut calls = Vec::new();
    for (program, version, arguments) in programs {
        for (procedure, arguments) in arguments.iter().enumerate() {
            calls.push(message(program, version, procedure as u32, arguments));
        }
    }
    calls
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Word(prop::sample::Index, u32),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let edges =
        prop_oneof![Just(0), Just(1), Just(u32::MAX), Just(1 << 31), any::<u32>(), 0..100_u32];
    prop_oneof![
        (any::<prop::sample::Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (any::<prop::sample::Index>(), edges).prop_map(|(at, word)| Damage::Word(at, word)),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        prop::collection::vec(any::<u8>(), 0..64).prop_map(Damage::Append),
    ]
}

fn apply(message: &mut Vec<u8>, damage: &Damage) {
    match damage {
        Damage::Flip(at, bit) if !message.is_empty() => {
            let at = at.index(message.len());
            message[at] ^= 1 << bit;
        }
        Damage::Word(at, word) if message.len() >= 4 => {
            let at = at.index(message.len() / 4) * 4;
            message[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        Damage::Cut(at) => message.truncate(at.index(message.len() + 1)),
        Damage::Append(more) => message.extend_from_slice(more),
        Damage::Flip(..) | Damage::Word(..) => {}
    }
}

#[test]
fn the_undamaged_calls_are_all_answered_with_success_of_the_rpc() {
    let server = Server::new();
    for call in valid_calls(&server) {
        let reply = server.call(&call).unwrap();
        let served = (call[12..16] != 100_000_u32.to_be_bytes()) || reply[20..24] == [0; 4];
        assert!(served || reply[20..24] == [0, 0, 0, 3], "{call:?} -> {reply:?}");
        assert_eq!(reply[8..12], [0; 4], "denied: {call:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn damaged_calls_never_bring_the_engine_down(
        rounds in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec(damage(), 1..4)),
            1..40,
        ),
    ) {
        let server = Server::new();
        let calls = valid_calls(&server);
        for (which, damages) in &rounds {
            let mut message = calls[which.index(calls.len())].clone();
            for damage in damages {
 apply(&mut message, damage);
}
            if let Some(reply) = server.call(&message) {
                prop_assert_eq!(&reply[..4], &message[..4]);
                prop_assert_eq!(&reply[4..8], &[0, 0, 0, 1]);
                prop_assert_eq!(reply.len() % 4, 0);
            }
        }
        // Still serving.
        prop_assert!(server.call(&calls[1]).is_some());
    }
}
