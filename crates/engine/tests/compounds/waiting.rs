//! COMPOUNDs that have to wait for their storage between two operations.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_engine::{ReplyBuffer, SuspendedCall, Verdict};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use crate::bench::{Bench, Client, Free, Full, Keeps, Ops, Result4, done, failed};

/// Has a COMPOUND suspended.
fn suspended(client: &Client<'_>, message: &[u8], host: &mut Full) -> SuspendedCall {
    let mut reply = ReplyBuffer::default();
    let verdict = client.bench.engine.call(host, &client.peer, 0, message, &mut reply);
    let Verdict::Suspended(call) = verdict else { panic!("{verdict:?}") };
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
    let mut call = suspended(&client, &message, &mut Full::default());
    for _ in 0..3 {
        call = suspended(&client, &message, &mut Full { suspended: Some(call), had_room: 0 });
    }
    let mut host = Free { suspended: Some(call), ..Free::default() };
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
    let call = suspended(&client, &message, &mut Full { had_room: 1, ..Full::default() });
    let mut host = Free { suspended: Some(call), ..Free::default() };
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
    let call = suspended(&client, &message, &mut Full::default());
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
    drop(suspended(&client, &message, &mut Full::default()));
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::RetryUncachedRep, 2));
    let next = client.next(false);
    assert_eq!(client.send(&next).ended(), done(1));
}

/// Opens the file, then looks something up where it is not known yet who may.
fn open_and_ask(client: &mut Client<'_>, file: &[u8], ro: &[u8]) -> Ops {
    let ops = client.next(true).put(file).open_current(b"owner").plain(Op4::GetFh);
    ops.put(ro).lookup("file").plain(Op4::GetFh)
}

/// A message that waits for a client, or what is told instead.
fn wait(client: &Client<'_>, message: &[u8], host: &mut Keeps) -> Result<SuspendedCall, Result4> {
    let mut reply = ReplyBuffer::default();
    match client.bench.engine.call(host, &client.peer, 0, message, &mut reply) {
        Verdict::Suspended(call) => {
            assert!(call.waits_for_client() && reply.bytes.is_empty());
            Ok(call)
        }
        verdict => Err(Result4::of(&client.bench.settled(verdict, reply).unwrap())),
    }
}

#[test]
fn a_compound_that_waits_for_others_goes_on_where_it_was() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "asks");
    let Prepared { file, .. } = prepared(&mut client);
    let ro = client.handle(&["srv", "ro"]);
    bench.is_pending.fetch_add(1, Ordering::SeqCst);
    let ops = open_and_ask(&mut client, &file, &ro);
    let message = bench.message(&ops.compound());
    let mut host = Keeps::default();
    let mut call = wait(&client, &message, &mut host).unwrap();
    assert_eq!(bench.engine.waiting_calls(), 1);
    // The request comes again: it is in progress, and waits but once.
    let mut reply = ReplyBuffer::default();
    let again = bench.message(&ops.compound());
    let verdict = bench.engine.call(&mut Keeps::default(), &client.peer, 0, &again, &mut reply);
    assert!(matches!(verdict, Verdict::Silent), "{verdict:?}");
    assert_eq!(bench.engine.waiting_calls(), 1);
    // Woken for nothing, it waits on.
    for _ in 0..3 {
        assert!(!host.woken.0.load(Ordering::SeqCst));
        bench.engine.names_are_known();
        assert!(host.woken.0.load(Ordering::SeqCst));
        host = Keeps { suspended: Some(call), ..Keeps::default() };
        call = wait(&client, &message, &mut host).unwrap();
        assert_eq!(bench.engine.waiting_calls(), 1);
    }
    bench.is_pending.fetch_add(1, Ordering::SeqCst);
    let woken = Arc::clone(&host.woken);
    bench.engine.names_are_known();
    assert!(woken.0.load(Ordering::SeqCst));
    let result = wait(&client, &message, &mut Keeps { suspended: Some(call), ..Keeps::default() });
    let result = result.unwrap_err();
    assert_eq!((result.ended(), bench.engine.waiting_calls()), (done(7), 0));
    assert_eq!(client.send(&ops), result, "and is kept as it was sent");
    let open = [0, 0, 0, Op4::Open as u8, 0, 0, 0, 0];
    let at = result.bytes.windows(8).position(|it| it == open).unwrap();
    assert_eq!(result.bytes[at + 8..at + 12], [0, 0, 0, 1], "OPEN was executed once");
}

#[test]
fn who_waits_for_others_for_too_long_is_told_what_was_done() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "gives up");
    let Prepared { file, .. } = prepared(&mut client);
    let ro = client.handle(&["srv", "ro"]);
    bench.is_pending.fetch_add(1, Ordering::SeqCst);
    let ops = open_and_ask(&mut client, &file, &ro);
    let message = bench.message(&ops.compound());
    let call = wait(&client, &message, &mut Keeps::default()).unwrap();
    // Executed a last time, by a host that lets it wait no more.
    let mut host = Free { suspended: Some(call), ..Free::default() };
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut host, &client.peer, 0, &message, &mut reply);
    let result = Result4::of(&bench.settled(verdict, reply).unwrap());
    assert_eq!(result.ended(), failed(NfsStat4::Delay, 5));
    assert_eq!((client.send(&ops), bench.engine.waiting_calls()), (result, 0));
    let next = client.next(false);
    assert_eq!(client.send(&next).ended(), done(1));
}

#[test]
fn half_the_slots_of_a_session_do_not_wait() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "many");
    let ro = client.handle(&["srv", "ro"]);
    bench.is_pending.fetch_add(1, Ordering::SeqCst);
    let ask = |slot| {
        let ops = client.sequence_of(slot, 1, false).put(&ro).lookup("file");
        let message = bench.message(&ops.compound());
        wait(&client, &message, &mut Keeps::default())
    };
    let mut waiting: Vec<_> = (1..5).map(|slot| ask(slot).unwrap()).collect();
    let told = ask(5).unwrap_err();
    assert_eq!(told.ended(), failed(NfsStat4::Delay, 2));
    assert_eq!(bench.engine.waiting_calls(), 4);
    // One that does not wait any more leaves its place to another.
    let mut reply = Vec::new();
    bench.engine.refuse(waiting.pop().unwrap(), &mut reply);
    assert_eq!(Result4::of(&reply[24..]).ended(), failed(NfsStat4::Delay, 2));
    waiting.push(ask(6).unwrap());
    drop(waiting);
    assert_eq!(bench.engine.waiting_calls(), 0);
}
