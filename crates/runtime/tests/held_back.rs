//! Process-internal tests over real loopback sockets: replies that are held back for a moment, to
//! go out with those of others.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::io::Read;
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use common::*;
use steadfast_runtime::ServerOptions;

/// A server with one seat, which a call of the first client keeps until the gate opens: what the
/// others, each another host, send before that is served in one go.
fn start_busy(others: u8) -> (Fixture, Client, Vec<Client>) {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
    let mut clients: Vec<_> =
        (0..=others).map(|number| fixture.connect_from([127, 0, 0, 2 + number])).collect();
    for client in &mut clients {
        client.call(0, b'e', b"");
    }
    let mut first = clients.remove(0);
    first.send(1, b'K', b"");
    fixture.toy.gate.wait_for_guests(1);
    (fixture, first, clients)
}

#[test]
fn what_is_held_back_comes_to_everybody() {
    let (fixture, mut first, mut others) = start_busy(20);
    for (other, number) in others.iter_mut().zip(0..) {
        other.send(1, b'e', &[number]);
    }
    fixture.toy.gate.open();
    for (other, number) in others.iter_mut().zip(0..) {
        assert_eq!(other.receive(), (1, vec![number]));
    }
    assert_eq!(first.receive().0, 1);
    assert!(fixture.server.statistics().held_back > 0);
}

#[test]
fn a_call_that_sleeps_though_it_seldom_does_delays_no_other_reply() {
    let (fixture, mut first, mut others) = start_busy(2);
    let [answered, sleeper] = &mut others[..] else { panic!("two others") };
    answered.send(1, b'e', b"mine");
    sleeper.send(1, b'S', b"");
    fixture.toy.gate.open();
    fixture.toy.flush_gate.wait_for_guests(1);
    assert_eq!(answered.receive(), (1, b"mine".to_vec()));
    fixture.toy.flush_gate.open();
    assert_eq!((sleeper.receive().0, first.receive().0), (1, 1));
    assert!(fixture.server.statistics().held_back > 0);
}

#[test]
fn who_sends_no_more_gets_what_is_held_back_for_him() {
    let (fixture, _first, mut others) = start_busy(2);
    let [leaver, keeper] = &mut others[..] else { panic!("two others") };
    leaver.send(1, b'e', b"last");
    keeper.send(1, b'F', b"");
    fixture.toy.gate.open();
    fixture.toy.flush_gate.wait_for_guests(1);
    leaver.stream.shutdown(Shutdown::Write).unwrap();
    fixture.toy.flush_gate.open();
    assert_eq!(leaver.receive(), (1, b"last".to_vec()));
    assert!(leaver.is_ended());
    assert!(fixture.server.statistics().held_back > 0);
}

#[test]
fn the_end_of_the_server_waits_for_what_is_held_back() {
    for _ in 0..4 {
        let (fixture, mut first, mut others) = start_busy(20);
        for other in &mut others {
            other.send(1, b'e', b"");
        }
        fixture.toy.gate.open();
        assert_eq!(first.receive().0, 1);
        let Fixture { server, toy, .. } = fixture;
        assert!(server.shutdown(PATIENCE));
        let executed = toy.executed.load(Ordering::SeqCst);
        let replies = others.iter_mut().map(|other| {
            let mut replies = Vec::new();
            other.stream.read_to_end(&mut replies).map_or(0, |_| usize::from(!replies.is_empty()))
        });
        assert_eq!(replies.sum::<usize>() as u64 + 22, executed);
    }
}
