//! COMPOUNDs that have to wait for their storage between two operations.

use steadfast_engine::{PutOffCall, ReplyBuffer, Verdict};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use crate::bench::{Bench, Client, Free, Full, Ops, Result4, done, failed};

/// Has a COMPOUND put off.
fn put_off(client: &Client<'_>, message: &[u8], host: &mut Full) -> PutOffCall {
    let mut reply = ReplyBuffer::default();
    let verdict = client.bench.engine.call(host, &client.peer, 0, message, &mut reply);
    let Verdict::PutOff(call) = verdict else { panic!("{verdict:?}") };
    assert!(reply.bytes.is_empty());
    call
}

/// Opens the file in `dir`, then looks something up, which may have to wait.
fn open_and_look(client: &mut Client<'_>, dir: &[u8], file: &[u8]) -> Ops {
    let ops = client.next(true).put(file).open_current(b"owner").plain(Op4::GetFh);
    ops.put(dir).lookup("file").plain(Op4::GetFh)
}

struct Prepared {
    dir: Vec<u8>,
    file: Vec<u8>,
}

fn prepared(client: &mut Client<'_>) -> Prepared {
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"maker", "file");
    assert_eq!(client.send(&ops).ended(), done(3));
    Prepared { file: client.handle(&["srv", "a", "file"]), dir }
}

#[test]
fn no_operation_that_has_ended_is_executed_again() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "again");
    let Prepared { dir, file } = prepared(&mut client);
    let ops = open_and_look(&mut client, &dir, &file);
    let message = bench.message(&ops.compound());
    let mut call = put_off(&client, &message, &mut Full::default());
    for _ in 0..3 {
        call = put_off(&client, &message, &mut Full { put_off: Some(call), had_room: 0 });
    }
    let mut host = Free { put_off: Some(call), ..Free::default() };
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut host, &client.peer, 0, &message, &mut reply);
    let result = Result4::of(&bench.settled(verdict, reply).unwrap());
    assert_eq!(result.ended(), done(7));
    assert_eq!(client.send(&ops), result, "and is kept as it was sent");
    // Had OPEN been executed again, it would be 2: the next is.
    let opened = |result: &Result4| {
        let open = [0, 0, 0, Op4::Open as u8, 0, 0, 0, 0];
        let at = result.bytes.windows(8).position(|it| it == open).unwrap();
        result.bytes[at + 11]
    };
    assert_eq!(opened(&result), 1);
    let again = open_and_look(&mut client, &dir, &file);
    assert_eq!(opened(&client.send(&again)), 2);
}

#[test]
fn an_open_that_has_to_wait_makes_its_state_once() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "cut");
    let Prepared { dir, .. } = prepared(&mut client);
    let ops = client.next(true).put(&dir).open_cut(b"cutter", "file");
    let message = bench.message(&ops.compound());
    // To look the name up it may wait, to cut the file not yet.
    let call = put_off(&client, &message, &mut Full { had_room: 1, ..Full::default() });
    let mut host = Free { put_off: Some(call), ..Free::default() };
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut host, &client.peer, 0, &message, &mut reply);
    let result = Result4::of(&bench.settled(verdict, reply).unwrap());
    assert_eq!(result.ended(), done(3));
    let open = [0, 0, 0, Op4::Open as u8, 0, 0, 0, 0];
    let at = result.bytes.windows(8).position(|it| it == open).unwrap();
    // A client that finds another number waits for the OPEN that was before (RFC 8881 §8.2.2).
    assert_eq!(result.bytes[at + 8..at + 12], [0, 0, 0, 1]);
}

#[test]
fn who_waits_for_too_long_is_told_what_was_done() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "refused");
    let Prepared { dir, file } = prepared(&mut client);
    let ops = open_and_look(&mut client, &dir, &file);
    let message = bench.message(&ops.compound());
    let call = put_off(&client, &message, &mut Full::default());
    let mut reply = Vec::new();
    bench.engine.refuse(call, &mut reply);
    let result = Result4::of(&reply[24..]);
    assert_eq!(result.ended(), failed(NfsStat4::Delay, 6));
    assert_eq!(result.last(), (Op4::Lookup as u32, NfsStat4::Delay as u32));
    assert_eq!(client.send(&ops), result, "a retransmission gets the same");
    let next = client.next(false);
    assert_eq!(client.send(&next).ended(), done(1));
}

#[test]
fn a_slot_is_free_when_nobody_goes_on() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "dropped");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(true).put(&dir).lookup("missing");
    let message = bench.message(&ops.compound());
    drop(put_off(&client, &message, &mut Full::default()));
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::RetryUncachedRep, 2));
    let next = client.next(false);
    assert_eq!(client.send(&next).ended(), done(1));
}
