//! Unit ring: what the engine tells its host about each call, for who counts and measures.
#![allow(clippy::unwrap_used)]

mod common;

use common::engine;
use steadfast_engine::{
    CallFacts, CallHost, Engine, OperationId, Peer, ReplyBuffer, Stage, Transport, Verdict,
};
use steadfast_vfs::FsError;
use steadfast_xdr::{Reader, Writer};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

#[derive(Default)]
struct Host(Vec<Stage>);

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
    fn stage(&mut self, stage: Stage) {
        self.0.push(stage);
    }
}

fn message(
    xid: u32,
    program: u32,
    procedure: u32,
    arguments: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    for word in [xid, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0] {
        w.u32(word);
    }
    arguments(&mut w);
    message
}

/// Facts, stages, verdict and reply of a call.
fn call(engine: &Engine, message: &[u8]) -> (CallFacts, Vec<Stage>, Verdict, Vec<u8>) {
    let peer = Peer::new(
        "127.0.0.1:700".parse().unwrap(),
        "127.0.0.1:2049".parse().unwrap(),
        Transport::Tcp,
    );
    let mut reply = ReplyBuffer::default();
    let mut host = Host::default();
    let verdict = engine.call(&mut host, &peer, 0, message, &mut reply);
    (reply.facts, host.0, verdict, reply.bytes)
}

fn mount(engine: &Engine) -> Vec<u8> {
    let reply = call(engine, &message(1, MOUNT, 1, |w| w.opaque(b"/a"))).3;
    Reader::new(&reply[28..]).opaque(64).unwrap().to_vec()
}

fn facts(xid: u32, program: u32, procedure: u32, is_error: bool) -> CallFacts {
    CallFacts {
        xid,
        operation: OperationId::of(program, 3, procedure),
        is_error,
        ..CallFacts::default()
    }
}

#[test]
fn what_was_called_and_whether_it_failed_is_known() {
    let engine = engine();
    let root = mount(&engine);
    let getattr = |handle: &[u8]| message(7, NFS, 1, |w| w.opaque(handle));
    assert_eq!(call(&engine, &getattr(&root)).0, facts(7, NFS, 1, false));
    // A handle that is not ours; arguments that are none.
    assert_eq!(call(&engine, &getattr(b"forged")).0, facts(7, NFS, 1, true));
    assert_eq!(call(&engine, &message(8, NFS, 1, |_| {})).0, facts(8, NFS, 1, true));
    assert_eq!(call(&engine, &message(9, NFS, 0, |_| {})).0, facts(9, NFS, 0, false));
    let refused = message(10, MOUNT, 1, |w| w.opaque(b"/b"));
    assert_eq!(call(&engine, &refused).0, facts(10, MOUNT, 1, true));
    // The results of these begin with no status.
    assert_eq!(call(&engine, &message(11, MOUNT, 5, |_| {})).0, facts(11, MOUNT, 5, false));
}

#[test]
fn what_is_not_served_is_other_and_an_error() {
    let engine = engine();
    let other = |xid| CallFacts { xid, is_error: true, ..CallFacts::default() };
    assert_eq!(call(&engine, &message(1, NFS, 22, |_| {})).0, other(1));
    assert_eq!(call(&engine, &message(2, 99, 1, |_| {})).0, other(2));
    let mut version = message(3, NFS, 1, |_| {});
    version[11] = 1;
    assert_eq!(call(&engine, &version).0, other(3));
    let mut credentials = message(4, NFS, 1, |_| {});
    credentials[27] = 99;
    assert_eq!(call(&engine, &credentials).0, facts(4, NFS, 1, true));
}

#[test]
fn a_parked_call_and_its_duplicates_are_known() {
    let engine = engine();
    let root = mount(&engine);
    let mkdir = message(7, NFS, 9, |w| {
        w.opaque(&root);
        w.opaque(b"new");
        w.zeros(24);
    });
    let (first, _, verdict, _) = call(&engine, &mkdir);
    assert_eq!(first, facts(7, NFS, 9, false));
    let (in_progress, _, silent, _) = call(&engine, &mkdir);
    assert!(matches!(silent, Verdict::Silent));
    let repeated = CallFacts { is_repeat: true, ..first };
    assert_eq!(in_progress, repeated);
    let Verdict::Parked(parked) = verdict else { panic!("{verdict:?}") };
    engine.settle(parked, Err(FsError::Io), 0, &mut Vec::new());
    // What is answered again is the failure.
    assert_eq!(call(&engine, &mkdir).0, CallFacts { is_error: true, ..repeated });
}

#[test]
fn stages_are_told_in_their_order() {
    let engine = engine();
    let root = mount(&engine);
    let stages = |message: &[u8]| call(&engine, message).1;
    let getattr = message(2, NFS, 1, |w| w.opaque(&root));
    assert_eq!(stages(&getattr), [Stage::Access, Stage::Storage]);
    // Nothing is asked of the storage with a handle that is not ours.
    assert_eq!(stages(&message(3, NFS, 1, |w| w.opaque(b"forged"))), [Stage::Access]);
    assert_eq!(stages(&message(4, NFS, 0, |_| {})), []);
    let mnt = message(5, MOUNT, 1, |w| w.opaque(b"/a"));
    assert_eq!(stages(&mnt), [Stage::Access, Stage::Storage]);
}
