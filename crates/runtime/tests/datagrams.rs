//! Unit ring, over real loopback sockets: UDP.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::net::UdpSocket;

use common::*;
use steadfast_runtime::ServerOptions;

fn client(fixture: &Fixture) -> UdpSocket {
    let address = if fixture.address.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect((socket.local_addr().unwrap().ip(), fixture.address.port())).unwrap();
    socket
}

/// A datagram that the loopback device does not lose.
fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 70_000];
    let count = socket.recv(&mut buffer).unwrap();
    buffer.truncate(count);
    buffer
}

#[test]
fn datagrams_are_answered_each_for_itself() {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let fixture = start(ServerOptions { listen: vec![address.parse().unwrap()], ..options() });
        let socket = client(&fixture);
        for number in 0..200_u32 {
            socket.send(&record(number, b'e', b"x")).unwrap();
            assert_eq!(receive(&socket), [&number.to_be_bytes()[..], b"x"].concat());
        }
        socket.send(&record(1, b'a', b"")).unwrap();
        receive(&socket);
        let peer = fixture.toy.peers.lock().pop().unwrap();
        assert_eq!(peer.address, socket.local_addr().unwrap());
        assert_eq!(peer.local, socket.peer_addr().unwrap());
    }
}

#[test]
fn replies_come_from_the_address_that_was_asked() {
    let listen = vec!["0.0.0.0:0".parse().unwrap()];
    let fixture = start(ServerOptions { listen, ..options() });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Connected: a reply from any other address would not be received.
    socket.connect(("127.0.0.9", fixture.address.port())).unwrap();
    socket.send(&record(1, b'a', b"")).unwrap();
    assert_eq!(receive(&socket), 1_u32.to_be_bytes());
    let local = fixture.toy.peers.lock().pop().unwrap().local;
    assert_eq!(local, socket.peer_addr().unwrap());
}

#[test]
fn parked_and_blocked_datagrams_are_answered_when_they_are_done() {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
    let socket = client(&fixture);
    socket.send(&record(1, b'p', &[0, 1])).unwrap();
    socket.send(&record(2, b'b', b"")).unwrap();
    socket.send(&record(3, b'e', b"")).unwrap();
    assert_eq!(receive(&socket), 3_u32.to_be_bytes());
    fixture.toy.gate.wait_for_guests(1);
    fixture.toy.gate.open();
    assert_eq!(receive(&socket), 2_u32.to_be_bytes());
    fixture.toy.flush_gate.open();
    assert_eq!(receive(&socket), [&1_u32.to_be_bytes()[..], b"stable"].concat());
}

#[test]
fn nonsense_panics_and_replies_too_large_are_dropped() {
    let fixture = start(options());
    let socket = client(&fixture);
    socket.send(b"?").unwrap();
    socket.send(&record(1, b'?', b"")).unwrap();
    socket.send(&record(2, b'x', b"")).unwrap();
    socket.send(&record(3, b's', b"")).unwrap();
    socket.send(&record(4, b'l', &65_504_u32.to_be_bytes())).unwrap();
    socket.send(&record(5, b'l', &65_503_u32.to_be_bytes())).unwrap();
    assert_eq!(receive(&socket).len(), 65_507);
    socket.send(&record(6, b'e', &vec![1; 60_000])).unwrap();
    assert_eq!(receive(&socket).len(), 60_004);
}

#[test]
fn without_udp_there_is_none() {
    let fixture = start(ServerOptions { udp: false, ..options() });
    // The port is free for others.
    UdpSocket::bind(fixture.address).unwrap();
    assert_eq!(fixture.connect().call(1, b'e', b"x"), b"x");
}

#[test]
fn a_reply_can_be_sent_later_by_another_call() {
    let fixture = start(options());
    let waiting = client(&fixture);
    waiting.send(&record(7, b'd', b"")).unwrap();
    while fixture.toy.sinks.lock().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    client(&fixture).send(&record(1, b'D', &record(7, b'!', b""))).unwrap();
    assert_eq!(receive(&waiting), record(7, b'!', b""));
}
