//! Unit ring, over real loopback sockets: replies that are batched for a moment, to
//! go out with those of others.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use common::*;
use steadfast_runtime::ServerOptions;

/// A server with one seat, and clients of it, each another host.
fn start_with<const CLIENTS: usize>(options: ServerOptions) -> (Fixture, [Client; CLIENTS]) {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options });
    let mut number = 1;
    let clients = [(); CLIENTS].map(|()| {
        number += 1;
        let mut client = fixture.connect_from([127, 0, 0, number]);
        client.call(0, b'e', b"");
        client
    });
    (fixture, clients)
}

/// One client's call keeps the seat until the gate opens: what the others send before that is
/// served in one go.
fn keep_busy(fixture: &Fixture, client: &mut Client) {
    client.send(1, b'K', b"");
    fixture.toy.gate.wait_for_guests(1);
}

/// Repeats what ends well in any case until something was batched, and the story says that it has
/// shown what it is for: on a busy machine calls may come late, or in another order than they were
/// sent in.
fn until_batched(story: impl Fn() -> (Fixture, bool)) {
    let has_shown = |_| {
        let (fixture, has_shown) = story();
        has_shown && fixture.server.statistics().held_back > 0
    };
    assert!((0..50).any(has_shown), "nothing was batched, or calls came in another order");
}

#[test]
fn batched_replies_come_to_everybody() {
    until_batched(|| {
        let (fixture, [mut first, mut others @ ..]) = start_with::<21>(options());
        keep_busy(&fixture, &mut first);
        for (other, number) in others.iter_mut().zip(0..) {
            other.send(1, b'e', &[number]);
        }
        fixture.toy.gate.open();
        for (other, number) in others.iter_mut().zip(0..) {
            assert_eq!(other.receive(), (1, vec![number]));
        }
        assert_eq!(first.receive().0, 1);
        (fixture, true)
    });
}

#[test]
fn who_sends_no_more_gets_his_batched_replies() {
    until_batched(|| {
        let (fixture, [mut first, mut leaver, mut keeper]) = start_with(options());
        keep_busy(&fixture, &mut first);
        leaver.send(1, b'e', b"last");
        keeper.send(1, b'G', b"k\0");
        fixture.toy.gate.open();
        fixture.toy.gates[0].wait_for_guests(1);
        leaver.stream.shutdown(Shutdown::Write).unwrap();
        fixture.toy.gates[0].open();
        assert_eq!(leaver.receive(), (1, b"last".to_vec()));
        assert!(leaver.is_ended());
        (fixture, true)
    });
}

#[test]
fn batched_replies_come_while_a_call_sleeps_that_seldom_does() {
    for how in [b's', b'w', b'o', b'm'] {
        until_batched(|| {
            let (fixture, [mut first, mut answered, mut sleeper]) = start_with(options());
            keep_busy(&fixture, &mut first);
            answered.send(1, b'e', b"mine");
            sleeper.send(1, b'G', &[how, 0]);
            fixture.toy.gate.open();
            fixture.toy.gates[0].wait_for_guests(1);
            assert_eq!(answered.receive(), (1, b"mine".to_vec()));
            fixture.toy.gates[0].open();
            assert_eq!((sleeper.receive().0, first.receive().0), (1, 1));
            (fixture, true)
        });
    }
}

/// Two of three workers sleep, and there may be no more.
fn start_short_of_workers<const CLIENTS: usize>() -> (Fixture, [Client; CLIENTS]) {
    let (fixture, mut clients) = start_with(ServerOptions { workers_max: 1, ..options() });
    for (client, guests) in clients.iter_mut().zip([1, 2]) {
        client.send(1, b'G', b"m\0");
        fixture.toy.gates[0].wait_for_guests(guests);
    }
    (fixture, clients)
}

#[test]
fn batched_replies_come_though_all_workers_sleep() {
    for how in [b's', b'w', b'o', b'm'] {
        until_batched(|| {
            let (fixture, mut clients) = start_short_of_workers::<5>();
            let [_, _, first, answered, sleeper] = &mut clients;
            keep_busy(&fixture, first);
            let executed = || fixture.toy.executed.load(Ordering::SeqCst);
            let before = executed();
            answered.send(1, b'e', b"mine");
            sleeper.send(1, b'G', &[how, 1]);
            fixture.toy.gate.open();
            fixture.toy.gates[1].wait_for_guests(1);
            // If the sleeper came first, nobody is left who could answer.
            let came_in_order = executed() == before + 2;
            if came_in_order {
                assert_eq!(answered.receive(), (1, b"mine".to_vec()));
            }
            fixture.toy.gates.iter().for_each(Gate::open);
            (fixture, came_in_order)
        });
    }
}

#[test]
fn a_call_that_will_sleep_has_its_batch_answered_first_though_it_said_that_it_seldom_does() {
    // Opening took long just now, twice, and was the end of a turn.
    let openings = |ms: &[u8]| {
        vec![
            record(1, b'o', ms),
            record(2, b'o', ms),
            record(3, b'e', b""),
            record(4, b'G', b"o\x01"),
        ]
    };
    let said = vec![record(1, b'e', b""), record(2, b'G', b"w\x01")];
    // The slowest are slow, too: the second begins at once, however long it takes.
    for calls in [said, openings(b""), openings(&[150])] {
        let (fixture, mut clients) = start_short_of_workers::<3>();
        let [.., client] = &mut clients;
        let records: Vec<_> = calls.iter().map(|call| marked(call)).collect();
        client.stream.write_all(&records.concat()).unwrap();
        fixture.toy.gates[1].wait_for_guests(1);
        for number in 1..calls.len() {
            assert_eq!(client.receive().0 as usize, number);
        }
        fixture.toy.gates.iter().for_each(Gate::open);
        assert_eq!(client.receive().0 as usize, calls.len());
    }
}

#[test]
fn who_is_sent_to_a_seat_sends_batched_replies_before_anything_else() {
    until_batched(|| {
        let (fixture, mut clients) = start_with::<3>(options());
        let [first, answered, sleeper] = &mut clients;
        keep_busy(&fixture, first);
        let executed = || fixture.toy.executed.load(Ordering::SeqCst);
        let before = executed();
        answered.send(1, b'e', b"mine");
        // The second call is executed by whoever takes the seat.
        let batch = [record(1, b'G', b"s\0"), record(2, b'G', b"k\x01")];
        sleeper.stream.write_all(&batch.map(|call| marked(&call)).concat()).unwrap();
        fixture.toy.gate.open();
        fixture.toy.gates[1].wait_for_guests(1);
        // If the sleeper came first, its second call keeps the seat.
        let came_in_order = executed() == before + 3;
        if came_in_order {
            assert_eq!(answered.receive(), (1, b"mine".to_vec()));
        }
        fixture.toy.gates.iter().for_each(Gate::open);
        (fixture, came_in_order)
    });
}

#[test]
fn no_replies_are_batched_while_a_worker_waits_for_events() {
    until_batched(|| {
        let options = ServerOptions { workers_max: 8, ..options() };
        let (fixture, mut clients) = start_with::<4>(options);
        let [both, first, answered, last] = &mut clients;
        // The first call of a batch sleeps; the second, which another worker takes over, too.
        let batch = [record(1, b'G', b"m\0"), record(2, b'G', b"s\x01")];
        both.stream.write_all(&batch.map(|call| marked(&call)).concat()).unwrap();
        fixture.toy.gates[1].wait_for_guests(1);
        // A third worker holds a reply back, and lends the seat for a call that wakes the second.
        keep_busy(&fixture, first);
        answered.send(1, b'e', b"mine");
        last.send(1, b'G', b"s\x02\x01");
        fixture.toy.gate.open();
        assert_eq!(answered.receive(), (1, b"mine".to_vec()));
        fixture.toy.gates.iter().for_each(Gate::open);
        (fixture, true)
    });
}
