//! Unit ring, over real loopback sockets: who is served when there is more to do than
//! can be done.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::io::Write;
use std::sync::atomic::Ordering;

use common::*;
use steadfast_runtime::ServerOptions;

/// Calls that take a millisecond each and keep the only seat.
const GREEDY_CONNECTIONS: u32 = 20;
const GREEDY_CALLS: u32 = 100;
const MODEST_CALLS: u64 = 20;

fn calls(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| marked(&record(number, b'k', b""))).collect()
}

#[test]
fn connections_and_pipelining_get_a_client_no_more_service() {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
    let mut greedy: Vec<_> = (0..GREEDY_CONNECTIONS).map(|_| fixture.connect()).collect();
    let mut modest = fixture.connect_from([127, 0, 0, 2]);
    for client in &mut greedy {
        client.stream.write_all(&calls(GREEDY_CALLS)).unwrap();
    }
    let before = fixture.toy.executed.load(Ordering::SeqCst);
    for number in 0..MODEST_CALLS as u32 {
        modest.call(number, b'k', b"");
    }
    let meanwhile = fixture.toy.executed.load(Ordering::SeqCst) - before;
    // One batch of the greedy client's at most for each; in the order of arrival it would be all
    // of its 2,000.
    assert!(meanwhile < MODEST_CALLS * 20, "{meanwhile} calls were executed meanwhile");
    for client in &mut greedy {
        client.receive_many(GREEDY_CALLS as usize);
    }
}

#[test]
fn who_connects_under_load_is_served_too() {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
    let mut greedy: Vec<_> = (0..GREEDY_CONNECTIONS).map(|_| fixture.connect()).collect();
    for client in &mut greedy {
        client.stream.write_all(&calls(GREEDY_CALLS)).unwrap();
    }
    let before = fixture.toy.executed.load(Ordering::SeqCst);
    for number in 0..10 {
        fixture.connect_from([127, 0, 1, number]).call(1, b'k', b"");
    }
    let meanwhile = fixture.toy.executed.load(Ordering::SeqCst) - before;
    assert!(meanwhile < 10 * 30, "{meanwhile} calls were executed meanwhile");
    for client in &mut greedy {
        client.receive_many(GREEDY_CALLS as usize);
    }
}
