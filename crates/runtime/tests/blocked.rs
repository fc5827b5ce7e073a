//! Unit ring, over real sockets. Storage that hangs, beside storage that does not.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Client, Fixture, PATIENCE, beside, marked, options, record, start, wait_until};
use steadfast_runtime::ServerOptions;

const CALLS: u32 = 100;
/// Storages, each with the gate that its calls wait at.
const A: u8 = 1;
const B: u8 = 2;

/// A server of one seat and eleven workers more; of them two thirds may wait for one storage.
fn small(storage_patience_ms: u64) -> Fixture {
    start(ServerOptions { seats_per_pool: 1, workers_max: 12, storage_patience_ms, ..options() })
}

const BLOCKED: u64 = 8;

/// Calls that wait for a storage, in one batch.
fn send_all(client: &mut Client, storage: u8, how: u8) {
    let batch: Vec<u8> = (0..CALLS)
        .flat_map(|number| marked(&record(number, b'S', &[storage, how, storage])))
        .collect();
    client.stream.write_all(&batch).unwrap();
}

fn suspended(fixture: &Fixture) -> u64 {
    fixture.server.statistics().put_off
}

fn waiting(fixture: &Fixture, storage: u8) -> u64 {
    fixture.toy.gates[usize::from(storage)].waiting.load(Ordering::SeqCst)
}

#[test]
fn storage_that_hangs_leaves_workers_for_all_other_calls() {
    // Those that say that they will wait, those that only may, and those that do after they have
    // opened an object.
    for how in [b'w', b'm', b'o'] {
        let fixture = small(600_000);
        let mut client = fixture.connect();
        send_all(&mut client, A, how);
        wait_until(|| suspended(&fixture) + waiting(&fixture, A) >= u64::from(CALLS));
        assert!(waiting(&fixture, A) <= BLOCKED, "{} hold a worker", waiting(&fixture, A));
        // The same connection, another one, a new one; and calls that wait for what is well.
        fixture.toy.gates[usize::from(B)].open();
        let mut other = fixture.connect_from([127, 0, 0, 9]);
        for number in 1000..1100 {
            assert_eq!(client.call(number, b'e', b"x"), b"x");
            assert_eq!(other.call(number, b'S', &[B, b'w', B]), b"done");
            assert_eq!(fixture.connect().call(number, b'm', b""), b"");
        }
        fixture.toy.gates[usize::from(A)].open();
        let replies = client.receive_many(CALLS as usize);
        assert!(replies.values().all(|reply| reply == b"done"));
        assert_eq!(waiting(&fixture, A), u64::from(CALLS), "each was executed once");
        assert_eq!(fixture.server.statistics().told_later, 0);
        assert_eq!(fixture.toy.refused.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn seats_at_which_calls_begin_to_wait_at_one_moment_leave_workers_too() {
    // Two thirds of twelve beyond the seats may wait.
    let fixture = start(ServerOptions {
        seats_per_pool: 4,
        workers_max: 16,
        storage_patience_ms: 600_000,
        ..options()
    });
    let mut clients: Vec<_> = (0..8).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        send_all(client, A, b'w');
    }
    let all = 8 * u64::from(CALLS);
    wait_until(|| suspended(&fixture) + waiting(&fixture, A) >= all);
    assert!(waiting(&fixture, A) <= 8 + 3, "{} hold a worker", waiting(&fixture, A));
    fixture.toy.gates[usize::from(B)].open();
    for number in 0..100 {
        assert_eq!(fixture.connect().call(number, b'S', &[B, b'w', B]), b"done");
    }
    fixture.toy.gates[usize::from(A)].open();
    for client in &mut clients {
        assert_eq!(client.receive_many(CALLS as usize).len(), CALLS as usize);
    }
    assert_eq!(waiting(&fixture, A), all);
}

#[test]
fn a_connection_has_only_some_of_its_calls_suspended() {
    let fixture = start(ServerOptions {
        seats_per_pool: 1,
        workers_max: 12,
        storage_patience_ms: 600_000,
        calls_in_flight_max: 40,
        ..options()
    });
    let mut client = fixture.connect();
    send_all(&mut client, A, b'w');
    // What waits for a worker counts too.
    let refused = client.receive_many(CALLS as usize - 20);
    assert!(refused.values().all(|reply| reply == b"later"));
    fixture.toy.gates[usize::from(B)].open();
    assert_eq!(client.call(1000, b'S', &[B, b'w', B]), b"done");
    fixture.toy.gates[usize::from(A)].open();
    assert!(client.receive_many(20).values().all(|reply| reply == b"done"));
}

#[test]
fn two_storages_that_hang_leave_workers_for_a_third() {
    let fixture = small(600_000);
    let mut clients = [fixture.connect(), fixture.connect()];
    for (client, storage) in clients.iter_mut().zip([A, B]) {
        send_all(client, storage, b'w');
        fixture.toy.gates[usize::from(storage)].wait_for_guests(1);
    }
    wait_until(|| suspended(&fixture) >= 2 * u64::from(CALLS) - 12);
    fixture.toy.gates[3].open();
    let mut other = fixture.connect();
    for number in 0..100 {
        assert_eq!(other.call(number, b'S', &[3, b'w', 3]), b"done");
    }
    for (client, storage) in clients.iter_mut().zip([A, B]) {
        fixture.toy.gates[usize::from(storage)].open();
        assert_eq!(client.receive_many(CALLS as usize).len(), CALLS as usize);
    }
}

#[test]
fn when_storage_hangs_for_long_clients_are_told_to_try_later_and_later_it_is_well_again() {
    let fixture = small(200);
    let mut client = fixture.connect();
    send_all(&mut client, A, b'w');
    // All but those that hold a worker.
    let refused = client.receive_many((u64::from(CALLS) - BLOCKED) as usize);
    assert!(refused.values().all(|reply| reply == b"later"));
    assert!(fixture.server.statistics().told_later >= refused.len() as u64);
    // At once, while nobody comes back.
    let again = fixture.connect().call(5000, b'S', &[A, b'w', A]);
    fixture.toy.gates[usize::from(A)].open();
    assert_eq!(again, b"later");
    let rest = client.receive_many(CALLS as usize - refused.len());
    assert!(rest.keys().all(|number| !refused.contains_key(number)));
    wait_until(|| fixture.connect().call(5001, b'S', &[A, b'w', A]) == b"done");
}

#[test]
fn what_was_suspended_for_a_connection_that_is_gone_is_not_executed() {
    let fixture = small(600_000);
    let mut client = fixture.connect();
    send_all(&mut client, A, b'w');
    wait_until(|| suspended(&fixture) + waiting(&fixture, A) >= u64::from(CALLS));
    let blocked = waiting(&fixture, A);
    // No call: the server hangs up.
    client.send(1000, b'?', b"");
    assert!(client.is_ended());
    wait_until(|| fixture.server.statistics().connections == 0);
    fixture.toy.gates[usize::from(A)].open();
    assert_eq!(fixture.connect().call(1, b'S', &[A, b'w', A]), b"done");
    // Longer than until room is looked for.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(waiting(&fixture, A) - 1, blocked);
    // Duplicates that came another way must not wait for them.
    let refused = fixture.toy.refused.load(Ordering::SeqCst);
    assert_eq!(refused, u64::from(CALLS) - blocked);
}

#[test]
fn what_is_suspended_when_the_server_stops_is_not_executed() {
    let fixture = small(600_000);
    let mut client = fixture.connect();
    send_all(&mut client, A, b'w');
    wait_until(|| suspended(&fixture) + waiting(&fixture, A) >= u64::from(CALLS));
    let blocked = waiting(&fixture, A);
    let Fixture { server, toy, .. } = fixture;
    let ended = beside(move || server.shutdown(PATIENCE));
    // The server waits for those that have begun.
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err());
    toy.gates[usize::from(A)].open();
    assert!(ended.recv_timeout(PATIENCE).unwrap(), "nothing is left to be waited for");
    let replies = client.receive_many(blocked as usize);
    assert!(replies.values().all(|reply| reply == b"done"));
    assert!(client.is_ended());
    let executed = toy.gates[usize::from(A)].waiting.load(Ordering::SeqCst);
    let refused = toy.refused.load(Ordering::SeqCst);
    assert_eq!((executed, refused), (blocked, u64::from(CALLS) - blocked));
}
