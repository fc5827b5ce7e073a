//! What the host is told of the operations of a COMPOUND, for who counts them.

use steadfast_engine::{CallHost, CompoundOperation, ReplyBuffer, Verdict};
use steadfast_wire::nfs4::{Op4, PutFh4Args};

use crate::compounds::Ops;
use crate::harness::{Client, Server, sender};

#[derive(Default)]
struct Counting {
    began: usize,
    ended: Vec<(&'static str, bool)>,
}

impl CallHost for Counting {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn operations_begin(&mut self) {
        self.began += 1;
    }

    fn operation_ended(&mut self, operation: CompoundOperation, is_error: bool) {
        self.ended.push((operation.name(), is_error));
    }
}

/// What is told of a message; the operations of the facts, and whether they tell of a failure.
fn told(server: &Server, client: &Client<'_>, message: &[u8]) -> (Counting, String, bool) {
    let (mut host, mut reply) = (Counting::default(), ReplyBuffer::default());
    let verdict = server.engine.call(&mut host, &client.from.peer, 0, message, &mut reply);
    assert!(matches!(verdict, Verdict::Replied));
    (host, reply.facts.operations.to_string(), reply.facts.is_error)
}

#[test]
fn each_operation_that_has_ended_is_told_once_and_the_rest_is_not() {
    let server = Server::new();
    let client = Client::new(&server, b"client", sender(1));
    let good = Ops::new().bare(Op4::PutRootFh).bare(Op4::GetFh);
    let message = client.next(true, &good);
    let (host, operations, is_error) = told(&server, &client, &message);
    assert_eq!(host.began, 1);
    assert_eq!(host.ended, [("SEQUENCE", false), ("PUTROOTFH", false), ("GETFH", false)]);
    assert_eq!((operations.as_str(), is_error), ("SEQUENCE PUTROOTFH GETFH", false));
    // Again: nothing but SEQUENCE could have been executed, and that was not either.
    let (host, operations, _) = told(&server, &client, &message);
    assert!(host.ended.is_empty() && operations.is_empty(), "{:?}", host.ended);
    let bad = Ops::new().op(Op4::PutFh, &PutFh4Args { object: b"forged" }).bare(Op4::GetFh);
    let (host, operations, is_error) = told(&server, &client, &client.next(false, &bad));
    assert_eq!(host.ended, [("SEQUENCE", false), ("PUTFH", true)]);
    assert_eq!((operations.as_str(), is_error), ("SEQUENCE PUTFH", true));
    let unknown = Ops::new().raw(4711, &[]);
    let (host, _, _) = told(&server, &client, &client.next(false, &unknown));
    assert_eq!(host.ended, [("SEQUENCE", false), ("ILLEGAL", true)]);
}
