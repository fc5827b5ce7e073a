//! Unit ring, over real loopback sockets: each stage of a call is slow in turn, and the flight
//! recorder names it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_imports)]

mod common;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use steadfast_engine::CompoundOperation;
use steadfast_runtime::{
    CallStage, ParkedReply, ReplyLog, ReplySender, ServerLink, ServerOptions, SlowCall,
};

/// How long the stage lasts: far longer than what a busy machine adds to others.
const SLOW: Duration = Duration::from_millis(600);
/// What calls wait for, and for how long they do at most, times 100 ms.
const THING: u8 = 1;
const LONG: u8 = 255;

fn one_seat() -> Fixture {
    start(ServerOptions { seats_per_pool: 1, sample_one_in: 0, ..options() })
}

/// A recorded call that took so long, once there is one.
fn recorded(fixture: &Fixture, latency: Duration) -> SlowCall {
    let observer = fixture.server.observer();
    let least_ns = latency.as_nanos() as u64;
    let find = || observer.slow_calls().into_iter().find(|call| call.latency_ns >= least_ns);
    wait_until(|| find().is_some());
    find().unwrap()
}

#[track_caller]
fn assert_slow(call: &SlowCall, expected: CallStage) {
    let sum: u64 = call.stages_ns.iter().map(|(_, ns)| ns).sum();
    let difference = sum.abs_diff(call.latency_ns);
    assert!(difference <= call.latency_ns / 20, "stages are {sum} ns: {call:?}");
    let (longest, ns) = call.stages_ns.iter().max_by_key(|(_, ns)| *ns).unwrap();
    assert_eq!(*longest, expected, "{call:?}");
    assert!(*ns >= SLOW.as_nanos() as u64 * 9 / 10, "{call:?}");
}

#[test]
fn a_call_that_keeps_its_seat_works() {
    let fixture = one_seat();
    let mut client = fixture.connect();
    client.send(1, b'K', b"");
    fixture.toy.gate.wait_for_guests(1);
    std::thread::sleep(SLOW);
    fixture.toy.gate.open();
    client.receive();
    let call = recorded(&fixture, SLOW);
    assert_slow(&call, CallStage::Work);
    assert_eq!(call.client, client.stream.local_addr().unwrap());
    assert!(!call.is_error && call.waited_in.is_none() && call.subject.file.is_none());
}

#[test]
fn a_call_that_said_it_may_wait_is_in_the_file_system() {
    for command in [b'b', b'w'] {
        let fixture = one_seat();
        let mut client = fixture.connect();
        client.send(1, command, b"");
        fixture.toy.gate.wait_for_guests(1);
        std::thread::sleep(SLOW);
        fixture.toy.gate.open();
        client.receive();
        assert_slow(&recorded(&fixture, SLOW), CallStage::FileSystem);
    }
}

/// A log that nothing is logged in: only how long somebody has waited for it.
#[derive(Default)]
struct Waited(AtomicU64);

impl Waited {
    fn wait(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl ReplyLog for Waited {
    fn start(self: Arc<Self>, _: ServerLink) -> std::io::Result<()> {
        Ok(())
    }

    fn rouse(&self) {}

    fn hold(&self) {}

    fn release(&self) {}

    fn is_for_the_taking(&self) -> bool {
        false
    }

    fn commit_once(&self, _: &mut ReplySender) {}

    fn park(&self, calls: &mut dyn Iterator<Item = (u64, ParkedReply)>) {
        assert_eq!(calls.count(), 0, "nothing is logged");
    }

    fn log_reply(&self, _: &[u8]) -> Option<u64> {
        None
    }

    fn take_room_wait_ns(&self) -> u64 {
        self.0.swap(0, Ordering::SeqCst)
    }

    fn is_idle(&self) -> bool {
        true
    }
}

#[test]
fn only_a_wait_for_the_log_within_a_call_is_its_own() {
    let slow_call = |before: Duration, during: Duration| {
        let log = Arc::new(Waited::default());
        // As a worker does that has no call, or none that gave up its seat.
        log.wait(before);
        let options = ServerOptions { seats_per_pool: 1, sample_one_in: 0, ..options() };
        let fixture = start_with_log(options, Some(Arc::clone(&log) as _));
        let mut client = fixture.connect();
        client.send(1, b'b', b"");
        fixture.toy.gate.wait_for_guests(1);
        log.wait(during);
        std::thread::sleep(SLOW);
        fixture.toy.gate.open();
        client.receive();
        recorded(&fixture, SLOW)
    };
    assert_slow(&slow_call(SLOW, Duration::ZERO), CallStage::FileSystem);
    assert_slow(&slow_call(Duration::ZERO, SLOW), CallStage::LogRoom);
}

#[test]
fn a_compound_names_its_slowest_operation() {
    let fixture = one_seat();
    let mut client = fixture.connect();
    client.send(1, b'Q', b"");
    fixture.toy.gate.wait_for_guests(1);
    std::thread::sleep(SLOW);
    fixture.toy.gate.open();
    client.receive();
    let call = recorded(&fixture, SLOW);
    assert_slow(&call, CallStage::FileSystem);
    // Not the first, which said that it may wait.
    assert_eq!(call.waited_in, CompoundOperation::all().nth(2));
}

#[test]
fn calls_that_wait_for_a_flush_are_counted_where_another_is_slow() {
    let fixture =
        start(ServerOptions { seats_per_pool: 1, sample_one_in: 0, flush_threads: 1, ..options() });
    let mut client = fixture.connect();
    client.send(1, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    for number in 2..5 {
        client.send(number, b'p', &[0, 1]);
    }
    wait_until(|| fixture.server.statistics().parked_now == 3);
    client.send(9, b'K', b"");
    fixture.toy.gate.wait_for_guests(1);
    std::thread::sleep(SLOW);
    fixture.toy.gate.open();
    client.receive();
    assert_eq!(recorded(&fixture, SLOW).surroundings.parked, 3);
    fixture.toy.flush_gate.open();
    client.receive_many(4);
    // None waits any more when this one is executed for 200 ms.
    client.call(10, b'o', &[200]);
    let observer = fixture.server.observer();
    let last = || observer.slow_calls().into_iter().find(|call| call.xid == 10);
    wait_until(|| last().is_some());
    let last = last().unwrap();
    assert!(last.latency_ns >= 200_000_000, "{last:?}");
    assert_eq!(last.surroundings.parked, 0, "{last:?}");
}

#[test]
fn a_call_behind_another_one_waits_for_its_turn() {
    let fixture = one_seat();
    let mut client = fixture.connect();
    // In one batch: the first keeps the seat.
    let both = [marked(&record(1, b'K', b"")), marked(&record(2, b'e', b""))].concat();
    client.stream.write_all(&both).unwrap();
    fixture.toy.gate.wait_for_guests(1);
    std::thread::sleep(SLOW);
    fixture.toy.gate.open();
    client.receive_many(2);
    let observer = fixture.server.observer();
    let slow = || -> Vec<SlowCall> {
        let calls = observer.slow_calls().into_iter();
        calls.filter(|call| call.latency_ns >= SLOW.as_nanos() as u64 * 9 / 10).collect()
    };
    wait_until(|| slow().len() == 2);
    let turn = |call: &&SlowCall| call.stages_ns[0].1 >= SLOW.as_nanos() as u64 * 9 / 10;
    let calls = slow();
    let behind: Vec<&SlowCall> = calls.iter().filter(turn).collect();
    assert_eq!(behind.len(), 1, "{calls:?}");
    assert_slow(behind[0], CallStage::Turn);
}

#[test]
fn a_call_whose_object_is_flushed_waits_for_that() {
    let fixture = one_seat();
    let mut client = fixture.connect();
    client.send(1, b'p', &[0, 1]);
    fixture.toy.flush_gate.wait_for_guests(1);
    std::thread::sleep(SLOW);
    fixture.toy.flush_gate.open();
    client.receive();
    assert_slow(&recorded(&fixture, SLOW), CallStage::Flush);
}

#[test]
fn a_call_that_waits_for_another_client_says_so() {
    let fixture = one_seat();
    let mut client = fixture.connect();
    client.send(1, b'W', &[THING, LONG, b'-']);
    wait_until(|| fixture.server.statistics().put_off == 1);
    std::thread::sleep(SLOW);
    let mut other = fixture.connect();
    // Woken in vain, it waits on, and all of it counts.
    other.call(1, b'u', &[THING]);
    wait_until(|| fixture.server.statistics().put_off == 2);
    std::thread::sleep(SLOW);
    other.call(2, b'U', &[THING]);
    assert_eq!(client.receive(), (1, b"done".to_vec()));
    let call = recorded(&fixture, 2 * SLOW);
    assert_slow(&call, CallStage::Clients);
    assert!(call.stages_ns[2].1 >= 2 * SLOW.as_nanos() as u64 * 9 / 10, "{call:?}");
}

/// The time that a call was executed before it was suspended is no waiting for its turn.
#[test]
fn a_call_that_waits_before_it_is_suspended_says_where() {
    let fixture = one_seat();
    let mut client = fixture.connect();
    client.send(7, b'W', &[THING, LONG, b'O']);
    fixture.toy.gate.wait_for_guests(1);
    std::thread::sleep(2 * SLOW);
    fixture.toy.gate.open();
    wait_until(|| fixture.server.statistics().put_off == 1);
    fixture.connect().call(1, b'U', &[THING]);
    assert_eq!(client.receive(), (7, b"done".to_vec()));
    let call = recorded(&fixture, 2 * SLOW);
    assert_slow(&call, CallStage::FileSystem);
    // It ended before the call was suspended.
    assert_eq!(call.waited_in, CompoundOperation::all().nth(1));
}

#[test]
fn a_call_that_finds_no_room_at_its_storage_says_so() {
    let fixture = start(ServerOptions {
        seats_per_pool: 1,
        workers_max: 4,
        sample_one_in: 0,
        storage_patience_ms: 20_000,
        ..options()
    });
    let mut client = fixture.connect();
    for number in 0..8 {
        client.send(number, b'S', &[THING, b'w', 0]);
    }
    wait_until(|| fixture.server.statistics().put_off > 0);
    std::thread::sleep(SLOW);
    fixture.toy.gates[0].open();
    client.receive_many(8);
    let observer = fixture.server.observer();
    let of_storage = || {
        let calls = observer.slow_calls().into_iter();
        calls.max_by_key(|call| call.stages_ns[3].1).filter(|call| call.stages_ns[3].1 > 0)
    };
    wait_until(|| of_storage().is_some());
    assert_slow(&of_storage().unwrap(), CallStage::Storage);
}
