//! Unit ring, over real loopback sockets: what is counted, measured and recorded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_imports)]

mod common;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use steadfast_engine::{OperationId, Transport};
use steadfast_runtime::{Observer, OperationStatistics, RecordedCall, ServerOptions};

/// Of the toy's calls, which are all alike to the statistics.
fn counted(observer: &Observer) -> OperationStatistics {
    let mut all = observer.operation_statistics();
    assert!(all.len() <= 1, "{all:?}");
    let counted = all.pop().expect("a call was made");
    assert_eq!(counted.operation, OperationId::OTHER);
    counted
}

#[test]
fn every_call_is_counted_once_with_its_bytes_and_its_latency() {
    let fixture = start(options());
    let observer = fixture.server.observer();
    assert!(observer.operation_statistics().is_empty());
    let mut client = fixture.connect();
    let calls: Vec<u8> = (0..1000).flat_map(|n| marked(&record(n, b'e', b"four"))).collect();
    client.stream.write_all(&calls).unwrap();
    client.receive_many(1000);
    assert_eq!(client.call(1000, b'm', b""), b"");
    wait_until(|| counted(&observer).at_once.replies == 1001);
    let counted = counted(&observer);
    assert_eq!((counted.calls, counted.errors), (1001, 0));
    assert_eq!((counted.bytes_in, counted.bytes_out), (1000 * 9 + 5, 1000 * 8 + 4));
    assert_eq!(counted.stable.replies, 0);
    let latencies = &counted.at_once;
    let in_buckets: u64 = latencies.buckets.iter().map(|bucket| bucket.replies).sum();
    assert_eq!(in_buckets, 1001);
    // The sum is within the bounds that the buckets give, and the maximum in the last of them.
    let bound = |ns: fn(&steadfast_runtime::LatencyBucket) -> u64| -> u64 {
        latencies.buckets.iter().map(|bucket| ns(bucket) * bucket.replies).sum()
    };
    assert!((bound(|b| b.low_ns)..=bound(|b| b.high_ns)).contains(&latencies.total_ns));
    let last = latencies.buckets.last().unwrap();
    assert!((last.low_ns..=last.high_ns).contains(&latencies.max_ns));
    // Whatever a call waited for, it was executed within its latency.
    assert!(counted.execution_ns <= latencies.total_ns);
}

#[test]
fn operations_of_compounds_are_counted_and_those_of_sampled_ones_are_timed() {
    for (sample_one_in, timed) in [(1, 100), (0, 0)] {
        let fixture = start(ServerOptions { sample_one_in, ..options() });
        let observer = fixture.server.observer();
        let mut client = fixture.connect();
        for number in 0..100 {
            client.call(number, b'O', &[7, 9, 7]);
        }
        wait_until(|| observer.statistics().calls == 100);
        let counted = observer.compound_statistics();
        let figures: Vec<_> = counted
            .iter()
            .map(|one| (one.operation.index(), one.calls, one.errors, one.times.replies))
            .collect();
        assert_eq!(figures, [(7, 200, 100, 2 * timed), (9, 100, 0, timed)]);
        assert!(counted.iter().all(|one| one.times.total_ns >= one.times.max_ns));
    }
}

#[test]
fn failures_are_counted_also_those_without_a_reply() {
    let fixture = start(options());
    let observer = fixture.server.observer();
    // A panic, and what is no call: each ends its connection.
    for command in [b'x', b'?'] {
        let mut client = fixture.connect();
        client.send(1, command, b"");
        assert!(client.is_ended());
    }
    wait_until(|| counted(&observer).errors == 2);
    let counted = counted(&observer);
    assert_eq!((counted.calls, counted.at_once.replies), (2, 0));
}

#[test]
fn stages_of_calls_that_are_all_sampled_add_up_to_their_latency() {
    let fixture = start(ServerOptions { sample_one_in: 1, ..options() });
    let observer = fixture.server.observer();
    let mut client = fixture.connect();
    for number in 0..100 {
        client.call(number, b'e', b"x");
    }
    wait_until(|| counted(&observer).at_once.replies == 100);
    let counted = counted(&observer);
    assert_eq!(counted.sampled_calls, 100);
    let stages = counted.stages;
    assert_eq!((stages.access_ns, stages.stable_ns), (0, 0), "the toy has no such stage");
    let sum = stages.queue_ns + stages.decode_ns + stages.storage_ns + stages.send_ns;
    assert_eq!(sum, counted.at_once.total_ns);
    assert!(stages.receive_ns > 0 && stages.decode_ns > 0);

    let recorded = observer.recorded_calls(1000);
    assert_eq!(recorded.len(), 100);
    let address = client.stream.local_addr().unwrap();
    for call in &recorded {
        assert_eq!((call.client, call.transport), (address, Transport::Tcp));
        assert!(call.is_sampled && !call.was_parked && !call.is_error);
        assert_eq!(call.execution_ns, call.stages.decode_ns + call.stages.storage_ns);
    }
    assert!(recorded.windows(2).all(|pair| pair[0].begun_unix_ns <= pair[1].begun_unix_ns));
    let latencies =
        |calls: &[RecordedCall]| -> Vec<u64> { calls.iter().map(|call| call.latency_ns).collect() };
    assert_eq!(latencies(&observer.recorded_calls(3)), latencies(&recorded[97..]));
}

#[test]
fn one_call_in_so_many_is_sampled() {
    let options = ServerOptions { seats_per_pool: 1, slow_call_ms: 3_600_000, ..options() };
    let fixture = start(options);
    let observer = fixture.server.observer();
    let mut client = fixture.connect();
    for _ in 0..64 {
        let calls: Vec<u8> = (0..100).flat_map(|n| marked(&record(n, b'e', b""))).collect();
        client.stream.write_all(&calls).unwrap();
        client.receive_many(100);
    }
    wait_until(|| counted(&observer).at_once.replies == 6400);
    // At distances of 1 to 127, and 64 on average.
    let sampled = counted(&observer).sampled_calls;
    assert!((70..140).contains(&sampled), "{sampled} of 6400");
    assert_eq!(observer.recorded_calls(usize::MAX).len() as u64, sampled);
}

#[test]
fn a_slow_call_is_recorded_though_it_was_not_sampled() {
    let options = ServerOptions { sample_one_in: 0, slow_call_ms: 20, ..options() };
    let fixture = start(options);
    let observer = fixture.server.observer();
    let mut client = fixture.connect();
    client.call(1, b'e', b"");
    client.send(2, b'b', b"");
    fixture.toy.gate.wait_for_guests(1);
    std::thread::sleep(Duration::from_millis(30));
    fixture.toy.gate.open();
    client.receive();
    wait_until(|| counted(&observer).at_once.replies == 2);
    let recorded = observer.recorded_calls(usize::MAX);
    // On a busy machine the first may have been slow, too.
    let slow = recorded.last().expect("the slow one");
    assert!(slow.latency_ns >= 30_000_000 && slow.execution_ns >= 30_000_000, "{slow:?}");
    assert!(!slow.is_sampled && slow.stages.storage_ns == 0);
    assert_eq!(counted(&observer).sampled_calls, 0);
    assert!(counted(&observer).at_once.max_ns >= 30_000_000);
}

#[test]
fn calls_that_were_suspended_have_waited_since_they_came() {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
    let observer = fixture.server.observer();
    // So that the time since the server's start is much longer than what calls may take.
    std::thread::sleep(Duration::from_millis(300));
    let mut client = fixture.connect();
    let begun = Instant::now();
    // Each takes a millisecond, and so the turn of the connection ends after the first.
    let calls: Vec<u8> = (0..20).flat_map(|n| marked(&record(n, b'k', b""))).collect();
    client.stream.write_all(&calls).unwrap();
    client.receive_many(20);
    wait_until(|| counted(&observer).at_once.replies == 20);
    // A reply is here before the server has seen that it is sent.
    let all_ns = begun.elapsed().as_nanos() as u64;
    let latencies = counted(&observer).at_once;
    // The last was answered after nineteen others; its clock is another one than ours.
    let longest = latencies.max_ns;
    assert!((19_000_000..all_ns + all_ns / 100).contains(&longest), "{longest} of {all_ns} ns");
}

#[test]
fn a_parked_call_is_counted_when_it_is_settled_with_its_wait_for_stability() {
    let fixture = start(ServerOptions { sample_one_in: 1, ..options() });
    let observer = fixture.server.observer();
    let mut client = fixture.connect();
    client.send(1, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    wait_until(|| counted(&observer).calls == 1);
    let parked = counted(&observer);
    assert_eq!((parked.at_once.replies, parked.stable.replies), (0, 0));
    std::thread::sleep(Duration::from_millis(10));
    fixture.toy.flush_gate.open();
    assert_eq!(client.receive(), (1, b"stable".to_vec()));
    wait_until(|| counted(&observer).stable.replies == 1);
    let settled = counted(&observer);
    assert_eq!((settled.calls, settled.errors, settled.at_once.replies), (1, 0, 0));
    assert_eq!((settled.bytes_in, settled.bytes_out), (7, 10));
    assert!(settled.stages.stable_ns >= 10_000_000, "{settled:?}");
    let recorded = observer.recorded_calls(usize::MAX);
    assert_eq!(recorded.len(), 1);
    assert!(recorded[0].was_parked && recorded[0].is_sampled);
    assert_eq!(recorded[0].latency_ns, settled.stable.total_ns);
    assert_eq!(recorded[0].stages.stable_ns, settled.stages.stable_ns);
    assert_eq!(recorded[0].client, client.stream.local_addr().unwrap());

    // A flush that fails makes its calls fail.
    fixture.toy.failing.lock().push(2);
    client.call(2, b'p', &[0, 2]);
    wait_until(|| counted(&observer).stable.replies == 2);
    assert_eq!(counted(&observer).errors, 1);
}

#[test]
fn datagrams_are_counted_and_recorded_with_their_client() {
    let fixture = start(ServerOptions { sample_one_in: 1, ..options() });
    let observer = fixture.server.observer();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(&record(1, b'e', b"hello"), fixture.address).unwrap();
    let (length, _) = socket.recv_from(&mut [0; 100]).unwrap();
    assert_eq!(length, 9);
    wait_until(|| counted(&observer).at_once.replies == 1);
    let recorded = observer.recorded_calls(usize::MAX);
    let (client, transport) = (recorded[0].client, recorded[0].transport);
    assert_eq!((client, transport), (socket.local_addr().unwrap(), Transport::Udp));
}

#[test]
fn reading_beside_many_callers_loses_nothing() {
    const CLIENTS: u32 = 4;
    const ROUNDS: u32 = 300;
    let fixture = start(ServerOptions { sample_one_in: 2, ..options() });
    let observer = fixture.server.observer();
    let is_done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (observer, is_done) = (observer.clone(), Arc::clone(&is_done));
        beside(move || {
            let (mut calls, mut reads) = (0, 0_u32);
            while !is_done.load(Ordering::SeqCst) {
                for sum in observer.operation_statistics() {
                    assert!(sum.calls >= calls, "counts go backwards");
                    calls = sum.calls;
                }
                for call in observer.recorded_calls(usize::MAX) {
                    assert!(call.client.ip().is_loopback(), "{call:?}");
                }
                reads += 1;
            }
            reads
        })
    };
    let clients: HashMap<u32, _> = (0..CLIENTS)
        .map(|client| {
            let mut connection = fixture.connect();
            let work = move || {
                for _ in 0..ROUNDS {
                    let command = if client % 2 == 0 { b'e' } else { b'm' };
                    let calls: Vec<u8> =
                        (0..20).flat_map(|n| marked(&record(n, command, b""))).collect();
                    connection.stream.write_all(&calls).unwrap();
                    connection.receive_many(20);
                }
            };
            (client, beside(work))
        })
        .collect();
    for done in clients.values() {
        done.recv_timeout(PATIENCE).unwrap();
    }
    let all = u64::from(CLIENTS * ROUNDS * 20);
    wait_until(|| counted(&observer).at_once.replies == all);
    is_done.store(true, Ordering::SeqCst);
    assert!(reader.recv_timeout(PATIENCE).unwrap() > 0);
    assert_eq!(counted(&observer).calls, all);
    assert_eq!(fixture.server.statistics().calls, all);
}
