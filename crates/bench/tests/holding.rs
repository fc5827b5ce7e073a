//! Process ring: what clients of NFSv4.1 hold, on a server in memory, sound or at fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{FakeServer, Fault};
use steadfast_bench::clients::{self, Clients};
use steadfast_bench::locks::{self, Locks, Wait};
use steadfast_bench::{BenchError, Control, Target};

fn clients(server: &FakeServer) -> Clients {
    Clients {
        target: Target::new(server.address),
        path: "/".to_owned(),
        clients: 50,
        connections: 3,
        locks: true,
        slots: 4,
        minor_version: 1,
        stay: Duration::ZERO,
        server_pid: Some(std::process::id()),
    }
}

fn locks(server: &FakeServer) -> Locks {
    Locks {
        target: Target::new(server.address),
        path: "/".to_owned(),
        clients: 3,
        wait: Wait::Poll(Duration::from_millis(1)),
        duration: Duration::from_millis(500),
        server_pid: None,
    }
}

fn is_empty(server: &FakeServer) -> bool {
    let clients = server.clients.lock().unwrap();
    let has_state = !clients.opens.is_empty() || !clients.locks.is_empty();
    clients.by_id.is_empty() && !has_state && server.objects() == 0
}

#[test]
fn many_clients_come_and_each_lock_is_looked_at() {
    let server = FakeServer::start(Fault::None);
    let report = clients::run(&clients(&server), &Control::default()).unwrap();
    assert_eq!((report.clients, report.locks_looked_at, report.left), (50, 50, 50));
    assert!(report.server_resident_bytes.is_some() && report.clients_per_second > 0.0);
    assert!(report.table().contains("50 locks looked at"), "{}", report.table());
    assert!(is_empty(&server));
    let mounting = Clients { locks: false, ..clients(&server) };
    let report = clients::run(&mounting, &Control::default()).unwrap();
    assert_eq!((report.locks_looked_at, report.left), (0, 50));
    assert!(is_empty(&server));
}

#[test]
fn a_lock_that_many_want_is_had_by_one_at_a_time() {
    let server = FakeServer::start(Fault::None);
    let report = locks::run(&locks(&server), &Control::default()).unwrap();
    assert_eq!(report.counter, report.locks);
    assert!(report.locks > 0 && report.hand_overs > 0, "{report:?}");
    assert!(is_empty(&server));
}

#[test]
fn a_server_that_gives_a_lock_twice_is_found_out() {
    let server = FakeServer::start(Fault::IgnoresLocks);
    match clients::run(&clients(&server), &Control::default()) {
        Err(BenchError::Broken { what, .. }) => assert!(what.contains("not held"), "{what}"),
        other => panic!("{other:?}"),
    }
    let server = FakeServer::start(Fault::IgnoresLocks);
    match locks::run(&locks(&server), &Control::default()) {
        Err(BenchError::Broken { what, .. }) => assert!(what.contains("two"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn loads_that_make_no_sense_are_refused() {
    let server = FakeServer::start(Fault::None);
    for (clients, connections) in [(0, 1), (2, 3), (10, 0), (10, 257)] {
        let load = Clients { clients, connections, ..self::clients(&server) };
        let refused = clients::run(&load, &Control::default());
        assert!(matches!(refused, Err(BenchError::Usage(_))), "{clients} {connections}");
    }
    let load = Locks { clients: 0, ..locks(&server) };
    assert!(matches!(locks::run(&load, &Control::default()), Err(BenchError::Usage(_))));
}
