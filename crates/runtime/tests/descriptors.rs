//! Unit ring, over real loopback sockets: what happens without descriptors. In a
//! process of its own, since the limit is the process's.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn without_descriptors_the_server_waits_instead_of_spinning_and_goes_on_later() {
    let fixture = start(options());
    closed_connections_keep_none(&fixture);
    let mut first = fixture.connect();
    assert_eq!(first.call(1, b'e', b"x"), b"x");
    let limit = getrlimit(Resource::Nofile);
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    // Room for our own sockets, none for the server's side of the last.
    let set = |current| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum })
            .unwrap();
    };
    set(used + 3);
    let mut clients = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect(fixture.address) {
        clients.push(Client::new(stream));
        assert!(clients.len() < 100);
    }
    // Connections that are there are served.
    for number in 0..100 {
        assert_eq!(first.call(number, b'e', b"x"), b"x");
    }
    set(used + 200);
    for client in &mut clients {
        assert_eq!(client.call(1, b'e', b"later"), b"later");
    }
}

/// Also of the connections that were served last.
fn closed_connections_keep_none(fixture: &Fixture) {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    for _ in 0..20 {
        assert_eq!(fixture.connect().call(1, b'e', b"x"), b"x");
    }
    wait_until(|| count() == before);
}
