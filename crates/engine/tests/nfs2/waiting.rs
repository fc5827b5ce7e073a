//! NFSv2 has no word for "later": the call gets no reply, and is executed when it comes again.

use steadfast_engine::{CallHost, ReplyBuffer, Room, StorageId, SuspendedCall, Verdict};
use steadfast_wire::nfs2::{Create2Args, DirOpArgs2, NfsFh2};

use super::harness::{Bench, Host, NFS, UNCHANGED, xdr};

/// A host that lets nobody wait.
struct Full(Room);

impl CallHost for Full {
    fn room_to_wait(&mut self, _: StorageId) -> Room {
        self.0
    }

    fn may_block(&mut self) {
        panic!("it may not");
    }

    fn will_block(&mut self) {
        panic!("it may not");
    }
}

/// One that has a call again that was suspended.
struct Again(Option<SuspendedCall>);

impl CallHost for Again {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.0.take()
    }
}

fn making(bench: &mut Bench) -> Vec<u8> {
    let root = bench.mount("/a");
    let where_ = DirOpArgs2 { dir: NfsFh2(&root), name: b"d" };
    bench.message((NFS, 2, 14), &xdr(&Create2Args { where_, attributes: UNCHANGED }))
}

#[test]
fn who_may_not_wait_gets_no_reply_and_may_come_again() {
    let mut bench = Bench::new();
    let message = making(&mut bench);
    for _ in 0..2 {
        assert_eq!(bench.exchange(&mut Full(Room::None), &message), None);
        assert!(bench.complaint.take().is_some(), "the log names the share");
    }
    // Not in progress for ever, and not executed before.
    assert_eq!(bench.exchange(&mut Host, &message).unwrap()[..4], [0; 4]);
    let root = bench.mount("/a");
    let list = steadfast_wire::nfs2::Readdir2Args { dir: NfsFh2(&root), cookie: 0, count: 4096 };
    let list = bench.message((NFS, 2, 16), &xdr(&list));
    assert_eq!(bench.exchange(&mut Full(Room::None), &list), None);
}

fn suspended(bench: &Bench, message: &[u8]) -> SuspendedCall {
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut Full(Room::Later), &bench.peer, 0, message, &mut reply);
    let Verdict::Suspended(call) = verdict else { panic!("{verdict:?}") };
    assert!(reply.bytes.is_empty());
    call
}

#[test]
fn a_call_that_was_suspended_is_executed_or_refused_in_silence() {
    let mut bench = Bench::new();
    let message = making(&mut bench);
    let call = suspended(&bench, &message);
    // A duplicate finds it in progress.
    assert_eq!(bench.exchange(&mut Host, &message), None);
    let mut refused = Vec::new();
    bench.engine.refuse(call, &mut refused);
    assert_eq!(refused, []);
    // The client sends it again, and it is suspended, and executed.
    let call = suspended(&bench, &message);
    assert_eq!(bench.exchange(&mut Again(Some(call)), &message).unwrap()[..4], [0; 4]);
}
