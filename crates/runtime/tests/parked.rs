//! Unit ring, over real loopback sockets: parked replies and their flushes.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::Ordering;

use common::*;
use steadfast_runtime::ServerOptions;

#[test]
fn parked_replies_come_after_the_flush_and_hold_up_nobody() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let batch = [record(1, b'p', &[0, 1]), record(2, b'e', b"x")].map(|record| marked(&record));
    client.stream.write_all(&batch.concat()).unwrap();
    assert_eq!(client.receive(), (2, b"x".to_vec()));
    fixture.toy.flush_gate.wait_for_guests(1);
    assert_eq!(client.call(3, b'e', b"y"), b"y");
    fixture.toy.flush_gate.open();
    assert_eq!(client.receive(), (1, b"stable".to_vec()));
}

#[test]
fn flushes_are_gathered_across_calls_and_connections() {
    let fixture = start(ServerOptions { flush_threads: 1, ..options() });
    let mut first = fixture.connect();
    first.send(0, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    // All these come while the first is being flushed.
    let mut clients: Vec<Client> = (0..10).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        let batch: Vec<u8> = (0..100).flat_map(|n| marked(&record(n, b'p', &[0, 1, 2]))).collect();
        client.stream.write_all(&batch).unwrap();
    }
    wait_until(|| fixture.server.statistics().parked == 1001);
    fixture.toy.flush_gate.open();
    first.receive();
    for client in &mut clients {
        assert!(client.receive_many(100).values().all(|reply| reply == b"stable"));
    }
    // Once for the first, and once each for the rest, or a little more if the hand-over of the
    // last ones was late.
    let flushes = fixture.toy.flushes.lock().len();
    assert!(flushes <= 3 + 2 * 10, "{flushes} flushes for 1001 calls");
}

#[test]
fn many_objects_become_one_flush_of_the_file_system() {
    let fixture = start(ServerOptions { flush_threads: 1, flush_objects_max: 10, ..options() });
    let mut client = fixture.connect();
    client.send(0, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    let batch: Vec<u8> =
        (1..=30).flat_map(|n| marked(&record(n, b'p', &[0, 100 + n as u8]))).collect();
    client.stream.write_all(&batch).unwrap();
    wait_until(|| fixture.server.statistics().parked == 31);
    fixture.toy.flush_gate.open();
    assert!(client.receive_many(31).values().all(|reply| reply == b"stable"));
    assert!(fixture.toy.whole_flushes.load(Ordering::SeqCst) >= 1);
}

#[test]
fn a_failed_flush_fails_its_calls_and_those_of_its_time() {
    let fixture = start(ServerOptions { flush_threads: 1, ..options() });
    fixture.toy.failing.lock().push(9);
    let mut client = fixture.connect();
    client.send(0, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    let batch = [
        record(1, b'p', &[0, 5]),
        record(2, b'p', &[0, 5, 9]),
        // Another file system.
        record(3, b'p', &[1, 5]),
    ];
    client.stream.write_all(&batch.map(|record| marked(&record)).concat()).unwrap();
    wait_until(|| fixture.server.statistics().parked == 4);
    fixture.toy.flush_gate.open();
    let replies: HashMap<u32, Vec<u8>> = client.receive_many(4);
    assert_eq!(replies[&0], b"stable");
    assert_eq!(replies[&2], b"NoSpace");
    assert_eq!(replies[&3], b"stable");
    // The object was flushed, but its error may have gone to the flush that failed.
    assert_eq!(replies[&1], b"Io");
    // Later calls are not tainted.
    assert_eq!(client.call(4, b'p', &[0, 5]), b"stable");
    assert_eq!(client.call(5, b'p', &[0, 9]), b"NoSpace");
    let statistics = fixture.server.statistics();
    assert_eq!((statistics.flush_failures, statistics.parked_now), (2, 0));
    assert_eq!(statistics.flushes, fixture.toy.flushes.lock().len() as u64);
}

#[test]
fn the_service_is_told_of_a_failed_flush_before_the_object_can_be_flushed_again() {
    let fixture = start(ServerOptions { flush_threads: 2, ..options() });
    fixture.toy.flush_gate.open();
    fixture.toy.failing.lock().push(9);
    let mut client = fixture.connect();
    client.send(1, b'p', &[0, 9, WAITING_OBJECT as u8]);
    fixture.toy.gate.wait_for_guests(1);
    // The first flusher still has another object to flush; by now a COMMIT of object 9 could be
    // answered by the second one.
    assert_eq!(fixture.toy.failures_told.load(Ordering::SeqCst), 1);
    fixture.toy.gate.open();
    assert_eq!(client.receive(), (1, b"NoSpace".to_vec()));
}

#[test]
fn a_shared_flush_that_failed_fails_calls_of_each_domain_that_it_is_for() {
    let fixture = start(options());
    let [fails, waits] = [SHARED_OBJECT as u8, WAITING_SHARED_OBJECT as u8];
    fixture.toy.failing.lock().push(SHARED_OBJECT);
    fixture.toy.flush_gate.open();
    let mut client = fixture.connect();
    client.send(1, b'p', &[1, waits]);
    client.send(2, b'p', &[2, WAITING_OBJECT as u8]);
    fixture.toy.gate.wait_for_guests(2);
    assert_eq!(fixture.connect().call(3, b'p', &[0, fails]), b"NoSpace");
    fixture.toy.gate.open();
    let replies = client.receive_many(2);
    // It is of the same file system, whose error went to the other flush.
    assert_eq!(replies[&1], b"Io");
    assert_eq!(replies[&2], b"stable");
    assert_eq!(client.call(4, b'p', &[1, waits]), b"stable");
    assert_eq!(fixture.server.statistics().flush_failures, 1);
}

#[test]
fn shared_flushes_do_not_wait_for_each_other() {
    let fixture = start(ServerOptions { flush_threads: 2, ..options() });
    let [free, waits] = [SHARED_OBJECT as u8 + 1, WAITING_SHARED_OBJECT as u8];
    let mut client = fixture.connect();
    client.send(1, b'p', &[0, waits]);
    fixture.toy.gate.wait_for_guests(1);
    assert_eq!(client.call(2, b'p', &[0, free, waits]), b"stable");
    fixture.toy.gate.open();
    assert_eq!(client.receive(), (1, b"stable".to_vec()));
}

#[test]
fn parked_calls_of_a_connection_are_bounded() {
    let fixture = start(ServerOptions { calls_in_flight_max: 8, ..options() });
    let mut client = fixture.connect();
    let batch: Vec<u8> = (0..100).flat_map(|n| marked(&record(n, b'p', &[0, 1]))).collect();
    client.stream.write_all(&batch).unwrap();
    fixture.toy.flush_gate.wait_for_guests(1);
    // Another connection is served meanwhile.
    let mut other = fixture.connect();
    for number in 0..50 {
        other.call(number, b'e', b"x");
    }
    assert!(fixture.server.statistics().parked <= 9);
    fixture.toy.flush_gate.open();
    assert_eq!(client.receive_many(100).len(), 100);
}

#[test]
fn parked_calls_of_a_file_system_are_bounded() {
    let fixture = start(ServerOptions { parked_calls_max: 10, flush_threads: 1, ..options() });
    let mut client = fixture.connect();
    let batch: Vec<u8> = (0..200).flat_map(|n| marked(&record(n, b'p', &[0, 1]))).collect();
    client.stream.write_all(&batch).unwrap();
    fixture.toy.flush_gate.wait_for_guests(1);
    assert_eq!(fixture.connect().call(1, b'e', b"x"), b"x");
    fixture.toy.flush_gate.open();
    assert_eq!(client.receive_many(200).len(), 200);
}

#[test]
fn while_a_flusher_is_full_everybody_gets_his_own_replies() {
    // Who of three workers gets the seat when is a matter of luck, hence several times.
    for _ in 0..20 {
        let fixture = start(ServerOptions {
            seats_per_pool: 1,
            parked_calls_max: 1,
            flush_threads: 1,
            ..options()
        });
        let (mut first, mut second) = (fixture.connect(), fixture.connect());
        // The first worker hands 32 over and waits for the flusher; the second one parks one,
        // answers one and waits in the last, leaving both replies behind; then the first goes on.
        let mut calls: Vec<_> = (0..33).map(|number| record(number, b'p', &[0, 1])).collect();
        calls.extend([record(33, b'e', b"first's"), record(34, b'b', &[])]);
        let batch: Vec<u8> = calls.iter().flat_map(|call| marked(call)).collect();
        first.stream.write_all(&batch).unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        while fixture.toy.gate.waiting.load(Ordering::SeqCst) == 0 {
            assert!(std::time::Instant::now() < deadline, "waited too long");
            std::hint::spin_loop();
        }
        fixture.toy.flush_gate.open();
        for number in 0..50 {
            assert_eq!(second.call(number, b'e', b"second's"), b"second's");
        }
        fixture.toy.gate.open();
        assert_eq!(first.receive_many(35)[&33], b"first's");
    }
}

#[test]
fn a_connection_that_goes_away_leaves_its_parked_calls_to_be_flushed() {
    let fixture = start(options());
    let mut client = fixture.connect();
    client.send(1, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    drop(client);
    fixture.toy.flush_gate.open();
    wait_until(|| fixture.server.statistics().connections == 0);
    assert_eq!(fixture.connect().call(1, b'p', &[0, 2]), b"stable");
    assert_eq!(fixture.toy.flushes.lock().len(), 2);
}
