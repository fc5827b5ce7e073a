//! What the engine itself costs: nanoseconds a call over the in-memory model, so without socket
//! and disk. Prints a table; `cargo bench -p steadfast-engine`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Instant;

use steadfast_engine::{
    CallHost, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer, Transport, Transports,
    Verdict,
};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::model::ModelFs;
use steadfast_xdr::{Reader, Writer};

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

fn message(program: u32, procedure: u32, arguments: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    message_of(program, 3, procedure, arguments)
}

/// A COMPOUND of so many operations.
fn compound(count: u32, operations: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    message_of(100_003, 4, 1, |w| {
        w.opaque(b"");
        w.u32(1);
        w.u32(count);
        operations(w);
    })
}

fn message_of(
    program: u32,
    version: u32,
    procedure: u32,
    arguments: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    for word in [1, 0, 2, program, version, procedure, 1] {
        w.u32(word);
    }
    let mut body = Vec::new();
    let mut cred = Writer::new(&mut body);
    cred.u32(0);
    cred.opaque(b"a-client-of-usual-length");
    for word in [0, 0, 3, 4, 24, 27] {
        cred.u32(word);
    }
    w.opaque(&body);
    w.u32(0);
    w.u32(0);
    arguments(&mut w);
    message
}

/// SEQUENCE of slot 0; the sequence id is set before each call.
fn sequence_op(w: &mut Writer<'_>, session: [u8; 16]) {
    w.u32(53);
    w.fixed_opaque(&session);
    w.zeros(16);
}

/// An engine with one share, on a file system in memory.
fn engine() -> Engine {
    let rights = Rights { squash: Squash::None, ..Rights::default() };
    let grants = Arc::new([rights]);
    let rules = vec![ClientRule { pattern: ClientPattern::Any, grants }];
    let share = Share {
        id: ShareId(1),
        path: "/a".into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(rules.into()),
    };
    let exports =
        vec![Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o777)) }];
    let config = EngineConfig {
        instance: 1,
        nfs2: false,
        delegations: steadfast_engine::Delegations::None,
        local_guard: steadfast_engine::LocalGuard::None,
        idmapping: steadfast_engine::IdMapping::default(),
        nfs4: true,
        handle_key: [1; 16],
        write_verifier: 1,
        transfer_bytes_max: 1 << 20,
        reply_cache_bytes_max: 16 << 20,
        reply_cache_history_ms: 65_000,
        nfs_port: 2049,
        transports: Transports { udp: true, ipv4: true, ipv6: true },
    };
    Engine::new(config, ExportTable::new(exports))
}

/// The engine, and who calls it.
struct Bench {
    engine: Engine,
    peer: Peer,
    reply: ReplyBuffer,
}

impl Bench {
    fn new() -> Self {
        let peer = Peer::new(
            "127.0.0.1:700".parse().unwrap(),
            "127.0.0.1:2049".parse().unwrap(),
            Transport::Tcp,
        );
        Self { engine: engine(), peer, reply: ReplyBuffer::default() }
    }

    /// The results of a call.
    fn call(&mut self, message: &[u8]) -> Vec<u8> {
        self.reply.bytes.clear();
        match self.engine.call(&mut Host, &self.peer, 0, message, &mut self.reply) {
            Verdict::Replied => {}
            Verdict::Parked(parked) => {
                self.engine.settle(parked, Ok(()), 0, &mut self.reply.bytes);
            }
            other => panic!("{other:?}"),
        }
        self.reply.bytes.get(24..).unwrap_or(&[]).to_vec()
    }

    /// Prints what a call costs. `prepare` makes the next message of the last one, `check` looks at the
    /// whole reply.
    fn measure(
        &mut self,
        name: &str,
        mut message: Vec<u8>,
        mut prepare: impl FnMut(&mut [u8]),
        check: impl Fn(&[u8]),
    ) {
        const CALLS: u32 = 200_000;
        let mut best_ns = f64::INFINITY;
        for _round in 0..5 {
            let start = Instant::now();
            for _ in 0..CALLS {
                prepare(&mut message);
                self.reply.bytes.clear();
                let verdict = self.engine.call(&mut Host, &self.peer, 0, &message, &mut self.reply);
                assert!(matches!(verdict, Verdict::Replied));
                check(&self.reply.bytes);
            }
            best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
        println!("{name:48} {best_ns:9.1}");
    }
}

/// The handles of the share's root, and of a file in it.
fn root_and_file(bench: &mut Bench) -> (Vec<u8>, Vec<u8>) {
    let root = bench.call(&message(100_005, 1, |w| w.opaque(b"/a")));
    let root = Reader::new(root.get(4..).unwrap()).opaque(64).unwrap().to_vec();
    let made = bench.call(&message(100_003, 8, |w| {
        w.opaque(&root);
        w.opaque(b"file");
        w.u32(1);
        w.zeros(24);
    }));
    let file = Reader::new(made.get(8..).unwrap()).opaque(64).unwrap().to_vec();
    (root, file)
}

/// A session of NFSv4.1.
fn session(bench: &mut Bench) -> [u8; 16] {
    let exchanged = bench.call(&compound(1, |w| {
        w.u32(42);
        w.zeros(8);
        w.opaque(b"client");
        w.zeros(12);
    }));
    let mut r = Reader::new(exchanged.get(20..).unwrap());
    let (client, sequence) = (r.u64().unwrap(), r.u32().unwrap());
    let created = bench.call(&compound(1, |w| {
        w.u32(43);
        w.u64(client);
        w.u32(sequence);
        w.u32(0);
        for _fore_and_back in 0..2 {
            for word in [0, 1 << 20, 1 << 20, 1 << 12, 16, 8, 0] {
                w.u32(word);
            }
        }
        w.zeros(8);
    }));
    Reader::new(created.get(20..).unwrap()).array::<16>().unwrap()
}

fn compounds(session: [u8; 16], file: &[u8]) -> [(&'static str, Vec<u8>); 2] {
    [
        ("SEQUENCE", compound(1, |w| sequence_op(w, session))),
        (
            "SEQUENCE, PUTFH, GETATTR as Linux asks",
            compound(3, |w| {
                sequence_op(w, session);
                w.u32(22);
                w.opaque(file);
                w.u32(9);
                w.u32(2);
                w.u32(0x0010_011a);
                w.u32(0x00b0_a23a);
            }),
        ),
    ]
}

fn calls_of_nfs3(root: &[u8], file: &[u8]) -> [(&'static str, Vec<u8>); 5] {
    [
        ("NULL", message(100_003, 0, |_| {})),
        ("GETATTR", message(100_003, 1, |w| w.opaque(file))),
        (
            "ACCESS",
            message(100_003, 4, |w| {
                w.opaque(file);
                w.u32(0x3f);
            }),
        ),
        (
            "LOOKUP",
            message(100_003, 3, |w| {
                w.opaque(root);
                w.opaque(b"file");
            }),
        ),
        (
            "WRITE 4 KiB, unstable (a duplicate, replayed)",
            message(100_003, 7, |w| {
                w.opaque(file);
                w.u64(0);
                w.u32(4096);
                w.u32(0);
                w.opaque(&[1; 4096]);
            }),
        ),
    ]
}

fn main() {
    let mut bench = Bench::new();
    let (root, file) = root_and_file(&mut bench);
    let session = session(&mut bench);
    println!("{:48} {:>9}", "call", "ns/call");
    let mut sequence = 0_u32;
    for (name, message) in compounds(session, &file) {
        let at = message.windows(16).position(|it| it == session).unwrap() + 16;
        let next_sequence = |message: &mut [u8]| {
            sequence += 1;
            message[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        };
        let succeeded = |reply: &[u8]| assert_eq!(reply.get(24..28), Some(&[0; 4][..]));
        bench.measure(name, message, next_sequence, succeeded);
    }
    for (name, message) in calls_of_nfs3(&root, &file) {
        bench.measure(name, message, |_| {}, |_| {});
    }
}
