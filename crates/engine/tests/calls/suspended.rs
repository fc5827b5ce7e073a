//! Calls that may not wait for their storage.

use std::sync::mpsc;

use steadfast_engine::{
    CallHost, Complaint, Peer, ReplyBuffer, ReplySink, Room, StorageId, SuspendedCall, Verdict,
};

use super::{Bench, MOUNT, NFS, status, xdr};

const JUKEBOX: u32 = 10_008;

/// A host that lets nobody wait.
struct Full {
    room: Room,
    was_suspended: bool,
}

impl Full {
    fn of(room: Room) -> Self {
        Self { room, was_suspended: false }
    }
}

impl CallHost for Full {
    fn room_to_wait(&mut self, _: StorageId) -> Room {
        self.room
    }

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.was_suspended.then(|| SuspendedCall::for_test(Vec::new()))
    }

    fn may_block(&mut self) {
        panic!("it may not");
    }

    fn will_block(&mut self) {
        panic!("it may not");
    }
}

/// A host with room.
struct Free {
    was_suspended: bool,
    sent: mpsc::Sender<Vec<u8>>,
}

impl CallHost for Free {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.was_suspended.then(|| SuspendedCall::for_test(Vec::new()))
    }

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        Some(Box::new(Sink(self.sent.clone())))
    }
}

struct Sink(mpsc::Sender<Vec<u8>>);

impl ReplySink for Sink {
    fn send(self: Box<Self>, reply: &[u8]) {
        self.0.send(reply.to_vec()).unwrap();
    }
}

/// A server and a MKDIR on its way to it, with the replies that others get.
struct Making {
    bench: Bench,
    message: Vec<u8>,
    sent: mpsc::Sender<Vec<u8>>,
    received: mpsc::Receiver<Vec<u8>>,
}

impl Making {
    fn new() -> Self {
        let mut bench = Bench::new();
        let root = bench.mount("/a").unwrap();
        let make = xdr(|w| {
            w.opaque(&root);
            w.opaque(b"d");
            w.zeros(24);
        });
        let message = bench.message(NFS, 3, 9, &make);
        let (sent, received) = mpsc::channel();
        Self { bench, message, sent, received }
    }

    fn suspended(&self) -> SuspendedCall {
        let mut reply = ReplyBuffer::default();
        let peer = &self.bench.peer;
        let verdict =
            self.bench.engine.call(&mut Full::of(Room::Later), peer, 0, &self.message, &mut reply);
        let Verdict::Suspended(call) = verdict else { panic!("{verdict:?}") };
        assert!(reply.bytes.is_empty() && reply.complaint.is_none());
        assert_eq!(status(call.result()), JUKEBOX);
        call
    }

    /// The same call, from the same client and port or another one: its reply, if it gets one now.
    fn call(&self, port: u16, was_suspended: bool) -> Option<Vec<u8>> {
        let mut host = Free { was_suspended, sent: self.sent.clone() };
        let bench = &self.bench;
        let from = ([127, 0, 0, 1], port).into();
        let peer = Peer::new(from, bench.peer.local, bench.peer.transport);
        let mut reply = ReplyBuffer::default();
        match bench.engine.call(&mut host, &peer, 0, &self.message, &mut reply) {
            Verdict::Replied => Some(reply.bytes),
            Verdict::Silent => None,
            Verdict::Parked(call) => {
                bench.engine.settle(call, Ok(()), 0, &mut reply.bytes);
                Some(reply.bytes)
            }
            verdict @ (Verdict::Suspended(_) | Verdict::HangUp(_)) => panic!("{verdict:?}"),
        }
    }
}

#[test]
fn what_was_suspended_is_executed_once_whoever_asks_meanwhile() {
    let making = Making::new();
    let _call = making.suspended();
    assert_eq!(making.call(700, false), None, "a duplicate finds it in progress");
    assert_eq!(making.call(701, false), None, "one that came another way waits for it");
    let made = making.call(700, true).unwrap();
    assert_eq!(status(&made[24..]), 0);
    assert_eq!(making.received.try_iter().collect::<Vec<_>>(), std::slice::from_ref(&made));
    assert_eq!(making.call(702, false), Some(made), "and is remembered");
}

#[test]
fn what_was_suspended_again_is_still_in_progress() {
    let making = Making::new();
    let _first = making.suspended();
    let mut host = Full { was_suspended: true, ..Full::of(Room::Later) };
    let mut reply = ReplyBuffer::default();
    let bench = &making.bench;
    let verdict = bench.engine.call(&mut host, &bench.peer, 0, &making.message, &mut reply);
    assert!(matches!(verdict, Verdict::Suspended(_)), "{verdict:?}");
    assert_eq!(making.call(700, false), None);
    assert_eq!(status(&making.call(700, true).unwrap()[24..]), 0);
}

#[test]
fn what_is_refused_is_refused_to_all_who_ask_and_new_when_it_comes_again() {
    let making = Making::new();
    let call = making.suspended();
    assert_eq!(making.call(701, false), None);
    let mut refusal = Vec::new();
    making.bench.engine.refuse(call, &mut refusal);
    assert_eq!(status(&refusal[24..]), JUKEBOX);
    assert_eq!(making.received.try_iter().collect::<Vec<_>>(), [refusal]);
    let made = making.call(700, false).unwrap();
    assert_eq!(status(&made[24..]), 0, "nothing was made before");
    assert_eq!(making.call(701, false), Some(made), "and is made once");
}

#[test]
fn where_nobody_comes_back_clients_are_told_at_once() {
    let making = Making::new();
    let mut reply = ReplyBuffer::default();
    let (engine, peer) = (&making.bench.engine, &making.bench.peer);
    let verdict = engine.call(&mut Full::of(Room::None), peer, 0, &making.message, &mut reply);
    assert!(matches!(verdict, Verdict::Replied), "{verdict:?}");
    assert_eq!(status(&reply.bytes[24..]), JUKEBOX);
    assert!(matches!(reply.complaint, Some(Complaint::StorageHangs { .. })));
    assert_eq!(status(&making.call(700, false).unwrap()[24..]), 0);
}

#[test]
fn a_mount_that_may_not_wait_is_suspended_or_fails() {
    let mut bench = Bench::new();
    for room in [Room::Later, Room::None] {
        let message = bench.message(MOUNT, 3, 1, &xdr(|w| w.opaque(b"/a")));
        let mut reply = ReplyBuffer::default();
        let verdict = bench.engine.call(&mut Full::of(room), &bench.peer, 0, &message, &mut reply);
        match verdict {
            Verdict::Suspended(call) if room == Room::Later => {
                bench.engine.refuse(call, &mut reply.bytes);
            }
            Verdict::Replied if room == Room::None => {}
            verdict => panic!("{verdict:?}"),
        }
        assert_eq!(status(&reply.bytes[24..]), 10_006, "MNT3ERR_SERVERFAULT");
        assert_eq!(bench.engine.waiting_calls(), 0, "it waits for its storage alone");
    }
}
