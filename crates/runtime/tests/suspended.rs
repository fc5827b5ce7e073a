//! Unit ring, over real sockets. Calls that wait for a client.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Client, Fixture, PATIENCE, beside, marked, options, record, start, wait_until};
use steadfast_runtime::ServerOptions;

const CALLS: u32 = 300;
/// What calls wait for.
const A: u8 = 1;
const B: u8 = 2;
/// Times 100 ms.
const LONG: u8 = 255;

/// A server of one seat and few workers.
fn small() -> Fixture {
    start(ServerOptions { seats_per_pool: 1, workers_max: 4, ..options() })
}

/// Calls that wait, in one batch.
fn send_all(client: &mut Client, what: u8, patience: u8) {
    let batch: Vec<u8> = (0..CALLS)
        .flat_map(|number| marked(&record(number, b'W', &[what, patience, b'-'])))
        .collect();
    client.stream.write_all(&batch).unwrap();
}

fn suspended(fixture: &Fixture) -> u64 {
    fixture.server.statistics().put_off
}

fn executed(fixture: &Fixture) -> u64 {
    fixture.toy.executed.load(Ordering::SeqCst)
}

#[test]
fn calls_that_wait_for_a_client_hold_nothing_and_go_on_when_it_is_done() {
    let fixture = small();
    let mut client = fixture.connect();
    send_all(&mut client, A, LONG);
    wait_until(|| suspended(&fixture) == u64::from(CALLS));
    // The same connection, another one, a new one.
    let mut other = fixture.connect_from([127, 0, 0, 9]);
    for number in 1000..1100 {
        assert_eq!(client.call(number, b'e', b"x"), b"x");
        assert_eq!(other.call(number, b'e', b"y"), b"y");
    }
    // What another call waits for wakes nobody.
    assert_eq!(other.call(1, b'U', &[B]), b"");
    assert_eq!(client.call(1100, b'e', b"x"), b"x");
    let before = executed(&fixture);
    assert_eq!(other.call(2, b'U', &[A]), b"");
    let replies = client.receive_many(CALLS as usize);
    assert!(replies.values().all(|reply| reply == b"done"));
    assert_eq!(executed(&fixture), before + 1 + u64::from(CALLS), "each was executed once more");
    assert_eq!(fixture.toy.refused.load(Ordering::SeqCst), 0);
    assert!(fixture.server.statistics().workers <= 4);
}

#[test]
fn whoever_waits_for_too_long_is_told_to_try_later() {
    let fixture = small();
    let mut client = fixture.connect();
    let begun = Instant::now();
    assert_eq!(client.call(1, b'W', &[A, 3, b'-']), b"later");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(299) && took < PATIENCE, "{took:?}");
    assert_eq!(executed(&fixture), 2, "it is judged a last time");
    // However often it is woken meanwhile.
    let begun = Instant::now();
    client.send(2, b'W', &[A, 3, b'-']);
    let mut other = fixture.connect();
    let mut wakes = 0;
    while suspended(&fixture) < 10 && begun.elapsed() < Duration::from_millis(250) {
        wakes += 1;
        assert_eq!(other.call(wakes, b'u', &[A]), b"");
    }
    assert_eq!(client.receive(), (2, b"later".to_vec()));
    assert!(begun.elapsed() >= Duration::from_millis(299));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_call_that_has_lost_its_seat_waits_at_it_all_the_same() {
    let fixture = small();
    let (mut client, mut other) = (fixture.connect(), fixture.connect());
    client.send(1, b'W', &[A, LONG, b'l']);
    fixture.toy.gate.wait_for_guests(1);
    // Somebody else has the seat, and keeps it.
    assert_eq!(other.call(1, b'e', b""), b"");
    fixture.toy.gate.open();
    wait_until(|| suspended(&fixture) == 1);
    assert_eq!(other.call(2, b'U', &[A]), b"");
    assert_eq!(client.receive(), (1, b"done".to_vec()));
}

#[test]
fn a_connection_that_closes_leaves_nothing_behind() {
    let fixture = small();
    let mut client = fixture.connect();
    send_all(&mut client, A, 20);
    wait_until(|| suspended(&fixture) == u64::from(CALLS));
    // Reset, as by a client that is gone. Should it come again by another connection, its calls are in
    // progress still: they wait for as long as they would have.
    let socket = socket2::SockRef::from(&client.stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    wait_until(|| fixture.server.statistics().connections == 0);
    // Until a reply finds the connection broken each is judged a last time, and the rest is given up.
    let before = executed(&fixture);
    let given_up = fixture.toy.refused.load(Ordering::SeqCst);
    assert_eq!(before + given_up, 2 * u64::from(CALLS));
    let mut other = fixture.connect();
    assert_eq!(other.call(1, b'U', &[A]), b"");
    assert_eq!(other.call(2, b'e', b""), b"");
    assert_eq!(executed(&fixture), before + 2, "nobody is left to be woken");
}

#[test]
fn datagrams_wait_too() {
    let fixture = start(options());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(fixture.address).unwrap();
    let receive = || {
        let mut buffer = [0; 100];
        let count = socket.recv(&mut buffer).unwrap();
        buffer[..count].to_vec()
    };
    let reply = |number: u32, text: &[u8]| [&number.to_be_bytes()[..], text].concat();
    socket.send(&record(1, b'W', &[A, LONG, b'-'])).unwrap();
    wait_until(|| suspended(&fixture) == 1);
    socket.send(&record(2, b'e', b"x")).unwrap();
    assert_eq!(receive(), reply(2, b"x"));
    socket.send(&record(3, b'U', &[A])).unwrap();
    let mut both = [receive(), receive()];
    both.sort_unstable();
    assert_eq!(both, [reply(1, b"done"), reply(3, b"")]);
    socket.send(&record(4, b'W', &[B, 2, b'-'])).unwrap();
    assert_eq!(receive(), reply(4, b"later"));
}

#[test]
fn no_wake_up_is_lost_while_calls_come_and_things_are_given_back() {
    let fixture = start(ServerOptions { seats_per_pool: 3, ..options() });
    let ends: Vec<_> = (10..18_u8)
        .map(|client| {
            let (mut waits, mut gives) = (fixture.connect(), fixture.connect());
            let toy = std::sync::Arc::clone(&fixture.toy);
            beside(move || {
                for round in 0..500 {
                    toy.given_back.lock().retain(|what| *what != client);
                    waits.send(round, b'W', &[client, LONG, b'-']);
                    if round % 3 == 0 {
                        std::thread::sleep(Duration::from_micros(u64::from(round)));
                    }
                    assert_eq!(gives.call(round, b'U', &[client]), b"");
                    assert_eq!(waits.receive(), (round, b"done".to_vec()));
                }
            })
        })
        .collect();
    for end in ends {
        end.recv_timeout(Duration::from_secs(120)).unwrap();
    }
}
