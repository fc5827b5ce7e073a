//! Process ring: single kinds of calls on a server in memory, sound or at fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::{FakeServer, Fault};
use steadfast_bench::op::{Load, Operation, Report, Reports, run};
use steadfast_bench::{Arrivals, BenchError, Control, NfsVersion, Pace, Target, Transport};

/// All kinds of calls, with the procedure that each is about.
const OPERATIONS: [(&str, u32); 24] = [
    ("null", 0),
    ("getattr", 1),
    ("setattr", 2),
    ("lookup", 3),
    ("access", 4),
    ("readlink", 5),
    ("read:4096", 6),
    ("write:4096:file_sync", 7),
    ("write:16384", 7),
    ("write+commit", 21),
    ("create", 8),
    ("mkdir", 9),
    ("symlink", 10),
    ("mknod", 11),
    ("remove", 12),
    ("rmdir", 13),
    ("rename", 14),
    ("link", 15),
    ("readdir", 16),
    ("readdirplus:2048", 17),
    ("fsstat", 18),
    ("fsinfo", 19),
    ("pathconf", 20),
    ("commit", 21),
];

fn load(server: &FakeServer, operation: &str) -> Load {
    Load {
        connections: 4,
        depth: 3,
        threads: 2,
        warm_up: Duration::from_millis(20),
        duration: Duration::from_millis(150),
        names: 100_000,
        ..Load::new(Target::new(server.address), "/", operation.parse().unwrap())
    }
}

fn complaint(fault: Fault, operation: &str) -> String {
    let server = FakeServer::start(fault);
    let mut load = load(&server, operation);
    // Few enough that they are made soon.
    load.names = 5000;
    match run(&load, &Control::default()) {
        Err(BenchError::Broken { what, .. }) => what,
        other => panic!("{fault:?} was not noticed by {operation}: {other:?}"),
    }
}

#[test]
fn every_kind_of_call_is_made_and_checked_and_nothing_is_left() {
    let server = FakeServer::start(Fault::None);
    let mut all = Reports::default();
    for (operation, procedure) in OPERATIONS {
        let before = server.nfs_calls(procedure);
        let mut load = load(&server, operation);
        load.names = 2000;
        // On a busy machine a warm-up could use all names up.
        load.warm_up = Duration::ZERO;
        let report = run(&load, &Control::default()).unwrap();
        assert!(report.calls > 0 && report.checks.replies >= report.calls, "{report:?}");
        let called = server.nfs_calls(procedure) - before;
        assert!(called >= report.calls / 2, "{operation}: {called} of {}", report.calls);
        assert_eq!(server.objects(), 0, "{operation}");
        assert_eq!(report.mib_per_second > 0.0, load.operation.payload_bytes() > 0);
        let leaves = ["write", "create", "mkdir", "link", "remove", "rename", "setattr"];
        if leaves.iter().any(|name| operation.starts_with(name)) {
            assert!(report.checks.looked_at_afterwards > 0, "{operation}");
        }
        all.reports.push(report);
    }
    let committed = |index: usize| &all.reports[index].checks;
    assert!(committed(7).committed_file_sync > 0 && committed(7).committed_unstable == 0);
    assert!(committed(8).committed_unstable > 0 && committed(6).sampled_reads > 0);
    let kinds: Vec<_> = all.reports[9].operations.iter().map(|kind| kind.operation).collect();
    assert_eq!(kinds, ["write", "commit"]);
    let table = all.table();
    assert!(table.contains("4×3") && table.contains("readdirplus:2048"), "{table}");
}

#[test]
fn long_reads_are_judged_on_the_way() {
    let server = FakeServer::start(Fault::None);
    let report = run(&load(&server, "read:1048576"), &Control::default()).unwrap();
    assert!(report.checks.sampled_reads > 0 && report.mib_per_second > 1.0);
    let error = run(&load(&server, "read:2097152"), &Control::default()).unwrap_err();
    assert!(error.to_string().contains("at most 1048576 bytes"), "{error}");
    assert_eq!(server.objects(), 0);
}

#[test]
fn connections_have_addresses_of_their_own_unless_one_is_wanted() {
    for has_own_addresses in [true, false] {
        let server = FakeServer::start(Fault::None);
        let mut load = load(&server, "null");
        load.has_own_addresses = has_own_addresses;
        run(&load, &Control::default()).unwrap();
        let peers = server.peers.lock().unwrap();
        let addresses: HashSet<_> = peers.iter().map(std::net::SocketAddr::ip).collect();
        assert_eq!(addresses.len(), if has_own_addresses { 4 } else { 1 });
    }
}

#[test]
fn rates_are_held() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server, "getattr");
    load.pace = Pace::Open { calls_per_second: 300.0, arrivals: Arrivals::Exponential };
    load.duration = Duration::from_secs(2);
    let report = run(&load, &Control::default()).unwrap();
    assert!((report.calls_per_second / 300.0 - 1.0).abs() < 0.3, "{report:?}");
    assert_eq!(report.wanted_calls_per_second, Some(300.0));
}

#[test]
fn names_that_run_out_end_the_measurement() {
    let server = FakeServer::start(Fault::None);
    for operation in ["remove", "rmdir"] {
        let mut load = load(&server, operation);
        (load.names, load.warm_up) = (1200, Duration::ZERO);
        load.duration = Duration::from_secs(3600);
        let report = run(&load, &Control::default()).unwrap();
        assert!(report.calls <= 1200 && report.seconds < 60.0, "{report:?}");
        assert_eq!(server.objects(), 0);
    }
}

#[test]
fn a_server_at_fault_is_found_out() {
    for (fault, operation, part) in [
        (Fault::DamagedData, "read:512", "never written"),
        (Fault::DamagedData, "read:65536", "never written"),
        (Fault::DamagedData, "readlink", "another target"),
        (Fault::LostWrites, "write:512:file_sync", "read back"),
        (Fault::LostWrites, "write:65536", "read back"),
        (Fault::LostWrites, "write+commit:512", "read back"),
        (Fault::LessStable, "write:512:data_sync", "less stable"),
        (Fault::WrongHandle, "lookup", "another handle"),
        (Fault::MissingEntry, "readdir", "listing"),
        (Fault::MissingEntry, "readdirplus", "listing"),
        (Fault::StaleNames, "remove", "removed one there"),
        (Fault::StaleNames, "rename", "after it was renamed"),
        (Fault::ForgetsNames, "create", "is missing"),
        (Fault::ForgetsNames, "mkdir", "is missing"),
        (Fault::ForgetsNames, "symlink", "is missing"),
        (Fault::ForgetsNames, "mknod", "is missing"),
        (Fault::ForgetsNames, "link", "is missing"),
        (Fault::IgnoresSetattr, "setattr", "mode"),
    ] {
        let what = complaint(fault, operation);
        assert!(what.contains(part), "{operation}: {what}");
    }
}

#[test]
fn what_a_restarted_server_may_lose_is_no_broken_promise() {
    for operation in ["write:4096", "write+commit:4096"] {
        let server = FakeServer::start(Fault::LosesUnstableEvery(150));
        let report = run(&load(&server, operation), &Control::default()).unwrap();
        assert!(report.checks.verifier_changes > 0, "{operation}");
        let is_committed = operation.contains('+');
        assert_eq!(report.checks.looked_at_afterwards > 0, is_committed, "{operation}");
    }
}

#[test]
fn calls_refused_for_now_are_made_again() {
    let server = FakeServer::start(Fault::RefusesEvery(40));
    for operation in ["getattr", "create"] {
        let report = run(&load(&server, operation), &Control::default()).unwrap();
        assert!(report.checks.try_later > 0);
        assert_eq!(server.objects(), 0);
    }
}

fn over_nfs4(server: &FakeServer, operation: &str) -> Load {
    Load { nfs: NfsVersion::V4_1, ..load(server, operation) }
}

#[test]
fn every_kind_of_call_is_made_over_nfs4_and_nothing_is_left() {
    let server = FakeServer::start(Fault::None);
    let kinds = OPERATIONS.iter().map(|(name, _)| *name);
    let others = ["read:65536", "write:65536:file_sync", "open+close", "lock+unlock"];
    for operation in kinds.chain(others) {
        let before = server.clients.lock().unwrap().compounds;
        let mut load = over_nfs4(&server, operation);
        (load.names, load.warm_up) = (2000, Duration::ZERO);
        let report = run(&load, &Control::default()).unwrap();
        assert!(report.calls > 0 && report.nfs == "4.1", "{report:?}");
        let clients = server.clients.lock().unwrap();
        let made = clients.compounds - before;
        assert!(operation == "null" || made >= report.checks.replies, "{operation}: {made}");
        let is_left = !clients.opens.is_empty() || !clients.locks.is_empty();
        assert!(clients.by_id.is_empty() && !is_left, "{operation}");
        // Neither NFSv3 nor MOUNT.
        assert!(server.calls.lock().unwrap().is_empty(), "{operation}");
        assert_eq!(server.objects(), 0, "{operation}");
        let is_read = operation.starts_with("read:");
        assert_eq!(report.checks.sampled_reads > 0, is_read, "{operation}");
        assert_eq!(report.operations.len(), report.calls_per_operation, "{operation}");
        let leaves = ["write", "create", "mkdir", "link", "remove", "rename", "setattr"];
        if leaves.iter().any(|name| operation.starts_with(name)) {
            assert!(report.checks.looked_at_afterwards > 0, "{operation}");
        }
    }
    assert_eq!(server.clients.lock().unwrap().minor_versions, [1].into());
    let load = Load { nfs: NfsVersion::V4_2, ..load(&server, "open+close") };
    assert_eq!(run(&load, &Control::default()).unwrap().nfs, "4.2");
    assert_eq!(server.clients.lock().unwrap().minor_versions, [1, 2].into());
}

#[test]
fn what_a_restarted_server_may_lose_is_no_broken_promise_over_nfs4() {
    for operation in ["write:4096", "write+commit:4096"] {
        let server = FakeServer::start(Fault::LosesUnstableEvery(150));
        let report = run(&over_nfs4(&server, operation), &Control::default()).unwrap();
        assert!(report.checks.verifier_changes > 0, "{operation}");
        let is_committed = operation.contains('+');
        assert_eq!(report.checks.looked_at_afterwards > 0, is_committed, "{operation}");
    }
}

#[test]
fn a_server_at_fault_is_found_out_over_nfs4() {
    for (fault, operation, part) in [
        (Fault::DamagedData, "read:512", "never written"),
        (Fault::DamagedData, "read:65536", "never written"),
        (Fault::DamagedData, "readlink", "another target"),
        (Fault::OtherPlace, "read:4096", "never written"),
        (Fault::WrongHandle, "lookup", "two names are one object"),
        (Fault::OtherAttributes, "getattr", "of another object"),
        (Fault::MissingEntry, "readdir", "listing"),
        (Fault::MissingEntry, "readdirplus", "listing"),
        (Fault::LostWrites, "write:512:file_sync", "read back"),
        (Fault::LostWrites, "write:65536", "read back"),
        (Fault::LostWrites, "write+commit:512", "read back"),
        (Fault::LessStable, "write:512:data_sync", "less stable"),
        (Fault::StaleNames, "remove", "removed one there"),
        (Fault::StaleNames, "rename", "after it was renamed"),
        (Fault::ForgetsNames, "create", "is missing"),
        (Fault::ForgetsNames, "mkdir", "is missing"),
        (Fault::ForgetsNames, "link", "is missing"),
        (Fault::IgnoresSetattr, "setattr", "mode"),
    ] {
        let server = FakeServer::start(fault);
        match run(&over_nfs4(&server, operation), &Control::default()) {
            Err(BenchError::Broken { what, .. }) => {
                assert!(what.contains(part), "{operation}: {what}");
            }
            other => panic!("{fault:?} was not noticed by {operation}: {other:?}"),
        }
    }
    let server = FakeServer::start(Fault::OtherSlot);
    let error = run(&over_nfs4(&server, "getattr"), &Control::default()).unwrap_err();
    assert!(error.to_string().contains("another slot"), "{error}");
}

/// By SEQUENCE, which leaves the slot where it is, and by the operation after it.
#[test]
fn requests_refused_for_now_are_made_again() {
    let server = FakeServer::start(Fault::RefusesEvery(40));
    for operation in ["getattr", "read:4096", "write:4096", "rename", "lock+unlock", "open+close"] {
        let report = run(&over_nfs4(&server, operation), &Control::default()).unwrap();
        assert!(report.checks.try_later > 0);
        assert!(server.clients.lock().unwrap().by_id.is_empty());
    }
}

#[test]
fn what_cannot_be_done_over_nfs4_is_refused() {
    let server = FakeServer::start(Fault::None);
    let mut over_udp = over_nfs4(&server, "getattr");
    over_udp.transport = Transport::Udp;
    let mut too_deep = over_nfs4(&server, "getattr");
    too_deep.depth = 65;
    for (load, part) in [
        (load(&server, "open+close"), "NFSv3 has no open+close"),
        (over_udp, "UDP"),
        (too_deep, "64 slots"),
    ] {
        match run(&load, &Control::default()) {
            Err(BenchError::Usage(what)) => assert!(what.contains(part), "{what}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(server.objects(), 0);
    }
}

fn over_udp(fault: Fault, operation: &str) -> Result<Report, BenchError> {
    let server = FakeServer::start(fault);
    let mut load = load(&server, operation);
    (load.depth, load.transport) = (2, Transport::Udp);
    load.duration = Duration::from_millis(1500);
    run(&load, &Control::default())
}

#[test]
fn datagrams_that_are_lost_are_sent_again() {
    for operation in ["getattr", "read:32768", "write:20000:file_sync", "create"] {
        let report = over_udp(Fault::LosesEvery(50), operation).unwrap();
        assert!(report.checks.retransmissions > 0 && report.is_udp, "{operation}");
        assert!(report.latency.max_us > 700_000.0, "{operation}: {:?}", report.latency);
    }
}

#[test]
fn a_server_at_fault_is_found_out_over_udp() {
    let error = over_udp(Fault::DamagedData, "read:32768").unwrap_err();
    assert!(error.to_string().contains("never written"), "{error}");
}

#[test]
fn an_interrupt_ends_it_with_what_there_is() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server, "lookup");
    load.duration = Duration::from_secs(3600);
    let control = Control::default();
    let stop = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        stop.interrupt();
    });
    let report = run(&load, &control).unwrap();
    assert!(report.was_interrupted && report.calls > 0 && report.seconds < 60.0);
    assert_eq!(server.objects(), 0);
}

#[test]
fn more_calls_in_flight_than_can_be_told_apart_are_refused() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server, "null");
    (load.connections, load.depth) = (1 << 13, 256);
    assert!(matches!(run(&load, &Control::default()), Err(BenchError::Usage(_))));
    assert_eq!(load.operation, Operation::Null);
}
