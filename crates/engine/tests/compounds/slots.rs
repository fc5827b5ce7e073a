//! Exactly once: what a slot answers to retransmissions.

use std::sync::mpsc;

use steadfast_engine::{ReplyBuffer, Verdict};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use crate::bench::{Bench, Client, Free, Full, Result4, done, failed, peer};

#[test]
fn a_kept_reply_is_given_again_by_any_connection() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "kept");
    let ops = client.next(true).plain(Op4::PutRootFh).lookup("srv").plain(Op4::GetFh);
    let first = client.send(&ops);
    assert_eq!(first.ended(), done(4));
    assert_eq!(client.send(&ops), first);
    client.peer = peer(2);
    assert_eq!(client.send(&ops), first);
}

#[test]
fn what_was_changed_is_kept_though_nobody_asked_for_it() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "changed");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"o", "new");
    let first = client.send(&ops);
    assert_eq!(first.ended(), done(3));
    assert_eq!(client.send(&ops), first, "it is not opened again");
}

#[test]
fn what_was_not_kept_is_told_so() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "uncached");
    let ops = client.next(false).plain(Op4::PutRootFh).plain(Op4::GetFh);
    assert_eq!(client.send(&ops).ended(), done(3));
    let again = client.send(&ops);
    assert_eq!(again.ended(), failed(NfsStat4::RetryUncachedRep, 2));
    assert_eq!(again.last(), (Op4::PutRootFh as u32, NfsStat4::RetryUncachedRep as u32));
    let alone = client.next(false);
    assert_eq!(client.send(&alone).ended(), done(1));
    assert_eq!(client.send(&alone).ended(), done(1), "SEQUENCE is always made anew");
}

#[test]
fn a_failing_sequence_changes_nothing_of_its_slot() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "failing");
    let ops = client.next(true).plain(Op4::PutRootFh).plain(Op4::GetFh);
    let first = client.send(&ops);
    let other = client.again(true).plain(Op4::PutRootFh).lookup("srv");
    assert_eq!(client.send(&other).ended(), failed(NfsStat4::SeqFalseRetry, 1));
    let last = client.sequence;
    for (slot, sequence, status) in [
        (0, last + 2, NfsStat4::SeqMisordered),
        (0, 0, NfsStat4::SeqMisordered),
        (8, 1, NfsStat4::BadSlot),
        (u32::MAX, 1, NfsStat4::BadSlot),
    ] {
        let ops = client.sequence_of(slot, sequence, false);
        assert_eq!(client.send(&ops).ended(), failed(status, 1), "{slot} {sequence}");
    }
    let mut many = client.sequence_of(0, last + 1, false);
    for _ in 0..16 {
        many = many.plain(Op4::PutRootFh);
    }
    assert_eq!(client.send(&many).ended(), failed(NfsStat4::TooManyOps, 1));
    assert_eq!(client.send(&ops), first);
    let next = client.next(true);
    assert_eq!(client.send(&next).ended(), done(1));
}

#[test]
fn a_reply_that_would_be_too_large_is_refused() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "large");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"o", "big").write(&[7; 10_000]);
    assert_eq!(client.send(&ops).ended(), done(4));
    // READ is cut to what fits; a link's target cannot be.
    let read = |is_kept, client: &mut Client<'_>| {
        let ops = client.next(is_kept).put(&dir).lookup("big");
        let ops = ops.op(Op4::Read, |w| {
            w.zeros(16);
            w.u64(0);
            w.u32(10_000);
        });
        client.send(&ops).bytes.len()
    };
    assert!(read(false, &mut client) > 10_000);
    assert!((2000..4096).contains(&read(true, &mut client)), "what a slot keeps");
}

#[test]
fn what_could_not_be_told_is_not_done() {
    let bench = Bench::new();
    let mut refused = 0;
    for kept_bytes in (100..300).step_by(4) {
        let owner = format!("room {kept_bytes}");
        let mut client = Client::with_kept_bytes(&bench, &owner, kept_bytes);
        let dir = client.handle(&["srv", "a"]);
        let ops = client.next(true).put(&dir).open(b"o", &owner);
        let opened = client.send(&ops);
        let look = client.next(false).put(&dir).lookup(&owner);
        let is_there = client.send(&look).status == 0;
        assert_eq!(is_there, opened.status == 0, "{kept_bytes}: {opened:?}");
        if !is_there {
            assert_eq!(opened.status, NfsStat4::RepTooBigToCache as u32);
            refused += 1;
        }
    }
    assert!((10..50).contains(&refused), "{refused}");
}

#[test]
fn who_comes_by_another_connection_gets_the_reply_when_there_is_one() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "twice");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(true).put(&dir).lookup("missing");
    let message = bench.message(&ops.compound());
    let mut reply = ReplyBuffer::default();
    let first = bench.engine.call(&mut Full::default(), &client.peer, 0, &message, &mut reply);
    let Verdict::Suspended(suspended) = first else { panic!("{first:?}") };
    let (sent, received) = mpsc::channel();
    for connection in [1, 2, 2] {
        let mut host = Free { sent: Some(sent.clone()), ..Free::default() };
        let mut reply = ReplyBuffer::default();
        let again = bench.engine.call(&mut host, &peer(connection), 0, &message, &mut reply);
        assert!(matches!(again, Verdict::Silent), "{again:?}");
    }
    let mut host = Free { suspended: Some(suspended), ..Free::default() };
    let verdict = bench.engine.call(&mut host, &client.peer, 0, &message, &mut reply);
    let result = bench.settled(verdict, reply).unwrap();
    assert_eq!(Result4::of(&result).ended(), failed(NfsStat4::NoEnt, 3));
    let others: Vec<_> = received.try_iter().map(|reply| reply[24..].to_vec()).collect();
    assert_eq!(others, [result], "one by connection 2, none by the first's own");
}
