//! Calls that are read late: their clients have sent them again by another connection.

use steadfast_engine::{CallHost, Peer, ReplyBuffer, Verdict};

use super::{Bench, NFS, status, xdr};

/// A host all of whose connections are alive, but for the call's own, which its peer may have closed.
struct Host {
    has_left: bool,
}

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn is_gone(&mut self, _: u64) -> bool {
        false
    }

    fn has_left(&mut self) -> bool {
        self.has_left
    }
}

/// The same MKDIR by a connection, whose peer may have closed it: the status of its reply.
fn make(bench: &Bench, message: &[u8], connection: u64, has_left: bool) -> Option<u32> {
    let from = ([127, 0, 0, 1], 700 + connection as u16).into();
    let peer = Peer::new(from, bench.peer.local, bench.peer.transport).on_connection(connection);
    let mut reply = ReplyBuffer::default();
    match bench.engine.call(&mut Host { has_left }, &peer, 0, message, &mut reply) {
        Verdict::Parked(call) => bench.engine.settle(call, Ok(()), 0, &mut reply.bytes),
        Verdict::Replied => {}
        Verdict::Silent => return None,
        verdict => panic!("{verdict:?}"),
    }
    Some(status(&reply.bytes[24..]))
}

#[test]
fn what_a_client_left_behind_is_not_executed_after_it_was_sent_again() {
    const EXIST: u32 = 17;
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let arguments = xdr(|w| {
        w.opaque(&root);
        w.opaque(b"d");
        w.zeros(24);
    });
    let message = bench.message(NFS, 3, 9, &arguments);
    assert_eq!(make(&bench, &message, 2, false), Some(0));
    assert_eq!(make(&bench, &message, 1, true), None, "the client waits at the second connection");
    // Whoever lives there means it: another process that counts its xids alike.
    assert_eq!(make(&bench, &message, 3, false), Some(EXIST));
    // Nobody has sent this one before.
    let message = bench.message(NFS, 3, 9, &arguments);
    assert_eq!(make(&bench, &message, 1, true), Some(EXIST));
}
