//! Process ring: storms of mounts on a server in memory, sound or at fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::{FakeServer, Fault, SHARES};
use steadfast_bench::mountstorm::{Beside, EveryShare, Mountstorm, Patience, list_shares, run};
use steadfast_bench::{Control, Target};

fn storm(server: &FakeServer, clients: usize) -> Mountstorm {
    Mountstorm {
        threads: 2,
        rpcbind: Some(server.address),
        ..Mountstorm::new(Target::new(server.address), "/", clients)
    }
}

#[test]
fn all_clients_mount_each_from_its_own_address() {
    let server = FakeServer::start(Fault::None);
    let report = run(&storm(&server, 150), &Control::default()).unwrap();
    assert_eq!((report.succeeded, report.failed, report.retries), (150, 0, 0));
    assert_eq!(report.succeeded_at_first, 150);
    let calls = server.calls.lock().unwrap();
    for (procedure, count) in
        [((100_000, 3), 300), ((100_005, 1), 150), ((100_003, 19), 150), ((100_003, 1), 150)]
    {
        assert_eq!(calls.get(&procedure), Some(&count), "{procedure:?}");
    }
    let peers = server.peers.lock().unwrap();
    let addresses: HashSet<_> = peers.iter().map(std::net::SocketAddr::ip).collect();
    assert_eq!((addresses.len(), peers.len()), (150, 450));
    assert!(report.latency.max_us / 1e6 <= report.seconds);
    let table = report.table();
    assert!(table.contains("150 of 150") && table.contains("getport nfs"), "{table}");
}

#[test]
fn storms_also_break_loose_beside_another_load() {
    let server = FakeServer::start(Fault::None);
    let mut storm = storm(&server, 20);
    storm.rpcbind = None;
    storm.spread = Duration::from_millis(300);
    storm.beside = Some(Beside { clients: 4, depth: 4, warm_up: Duration::from_millis(300) });
    let report = run(&storm, &Control::default()).unwrap();
    assert_eq!(report.succeeded, 20);
    assert!(report.seconds >= 0.28, "the starts are spread");
    let beside = report.beside.unwrap();
    assert!(beside.calls_per_second > 0.0 && report.table().contains("beside: 4 clients"));
    assert_eq!(
        server.peers.lock().unwrap().iter().filter(|peer| peer.ip().is_loopback()).count(),
        45
    );
}

#[test]
fn automounters_ask_for_the_list_and_mount_what_it_says() {
    let server = FakeServer::start(Fault::None);
    let mut storm = storm(&server, 40);
    storm.rpcbind = None;
    storm.every_share = Some(EveryShare(25));
    storm.beside = Some(Beside { clients: 2, depth: 2, warm_up: Duration::ZERO });
    let report = run(&storm, &Control::default()).unwrap();
    assert_eq!((report.succeeded, report.failed), (40, 0), "{report:?}");
    let every = report.every_share.as_ref().unwrap();
    assert_eq!((every.shares_told, every.shares_wanted, every.mounts), (SHARES, 25, 1000));
    assert!(every.export_bytes > 200_000 && every.mounts_per_second > 0.0);
    let calls = server.calls.lock().unwrap();
    // One MNT is that of the load beside.
    for (procedure, count) in [((100_005, 5), 40), ((100_005, 1), 1001), ((100_003, 19), 40)] {
        assert_eq!(calls.get(&procedure), Some(&count), "{procedure:?}");
    }
    let table = report.table();
    assert!(table.contains("each mounts 25 of 3000 shares: 1000 mounts"), "{table}");
}

#[test]
fn the_list_alone_can_be_asked_for() {
    let server = FakeServer::start(Fault::None);
    let list = list_shares(&Target::new(server.address), Duration::from_secs(5)).unwrap();
    assert_eq!(list.shares, SHARES);
    assert!(list.bytes > 200_000);
}

#[test]
fn a_share_that_is_told_and_refused_fails_its_clients() {
    let server = FakeServer::start(Fault::RefusesShare(3));
    let mut storm = storm(&server, 10);
    storm.every_share = Some(EveryShare(5));
    let report = run(&storm, &Control::default()).unwrap();
    assert_eq!((report.succeeded, report.failed), (0, 10));
    let every = report.every_share.as_ref().unwrap();
    assert_eq!((every.mounts, every.refused.get(&13)), (40, Some(&10)));
    assert!(report.table().contains("10 mounts were refused with status 13"));
    // Those that do not come to it are well.
    storm.every_share = Some(EveryShare(3));
    assert_eq!(run(&storm, &Control::default()).unwrap().succeeded, 10);
}

#[test]
fn clients_whose_connection_goes_try_again() {
    let server = FakeServer::start(Fault::HangsUp);
    let mut storm = storm(&server, 8);
    storm.patience = Patience { call: Duration::from_secs(1), whole: Duration::from_secs(8) };
    let report = run(&storm, &Control::default()).unwrap();
    assert_eq!(report.succeeded + report.failed, 8);
    assert!(report.retries > 0 && report.succeeded_at_first < 8, "{report:?}");
    // Who did not mount at first, and did later, has made a pause; by chance nobody did.
    let later = report.succeeded - report.succeeded_at_first;
    assert!(report.latency.max_us > 900_000.0 || later == 0, "no pause: {report:?}");
}

#[test]
fn a_server_that_is_not_there_or_does_not_answer_is_told_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut storm = Mountstorm::new(Target::new(address), "/", 5);
    storm.patience = Patience { call: Duration::from_millis(200), whole: Duration::from_secs(1) };
    let report = run(&storm, &Control::default()).unwrap();
    assert_eq!((report.succeeded, report.failed), (0, 5));
    assert_eq!(report.given_up.get("no answer in time"), Some(&5));
    drop(listener);
    let report = run(&storm, &Control::default()).unwrap();
    assert_eq!(report.given_up.get("connection refused"), Some(&5), "{report:?}");
}

#[test]
fn an_interrupt_ends_it_with_what_there_is() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let storm = Mountstorm::new(Target::new(listener.local_addr().unwrap()), "/", 5);
    let control = Control::default();
    let stop = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.interrupt();
    });
    let report = run(&storm, &control).unwrap();
    assert!(report.was_interrupted && report.failed == 5 && report.seconds < 60.0);
}
