//! Process ring: nhfsstone against a server in memory, sound or at fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::{FakeServer, Fault};
use steadfast_bench::mix::{Mix, NAMES};
use steadfast_bench::nhfsstone::{Level, Nhfsstone, Report, run, run_when};
use steadfast_bench::{BenchError, Control, NfsVersion, Target};
use steadfast_client::StableHow;

fn load(server: &FakeServer) -> Nhfsstone {
    Nhfsstone {
        paths: vec!["/a".to_owned(), "/b".to_owned()],
        clients: 6,
        depth: 3,
        threads: 2,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(700),
        load_of_most: 300.0,
        file_bytes: 16 << 10,
        ..Nhfsstone::new(Target::new(server.address), "/")
    }
}

/// Every operation of NFSv3.
fn everything() -> Mix {
    let lines: Vec<String> = NAMES.iter().map(|name| format!("{name} 1")).collect();
    Mix::parse(&lines.join("\n")).unwrap()
}

fn broken(fault: Fault, mix: &str) -> String {
    let server = FakeServer::start(fault);
    let mut load = load(&server);
    load.mix = Mix::parse(mix).unwrap();
    match run(&load, &Control::default()) {
        Err(BenchError::Broken { what, .. }) => what,
        other => panic!("{fault:?} was not noticed: {other:?}"),
    }
}

#[test]
fn every_operation_is_made_and_checked_and_nothing_is_left() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server);
    load.mix = everything();
    load.stable = StableHow::Unstable;
    let report: Report = run(&load, &Control::default()).unwrap();
    let level = &report.levels[0];
    assert_eq!(level.operations.len(), NAMES.len());
    for procedure in 0..NAMES.len() as u32 {
        assert!(server.nfs_calls(procedure) > 0, "procedure {procedure}");
    }
    for kind in &level.operations {
        let wanted = 100.0 / NAMES.len() as f64;
        assert!((kind.percent_of_calls - wanted).abs() < 2.0, "{kind:?}");
    }
    assert!(level.checks.replies >= level.calls && level.checks.looked_at_afterwards > 10);
    assert_eq!(level.checks.verifier_changes, 0);
    assert_eq!(server.objects(), 0);
    let table = report.table();
    assert!(table.contains("readdirplus") && table.contains("msec/call"), "{table}");
    assert!(serde_json::to_string(&report).unwrap().contains("percent_of_time"));
}

#[test]
fn the_load_waits_until_what_is_prepared_was_seen_and_leaves_it_if_told() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server);
    load.duration = Duration::from_millis(50);
    load.cleans_up = false;
    let mut prepared = 0;
    let report = run_when(&load, &Control::default(), || prepared = server.objects()).unwrap();
    assert!(prepared > report.levels[0].files, "{prepared}");
    assert!(server.objects() >= report.levels[0].files, "{}", server.objects());
}

#[test]
fn rates_are_held_and_clients_have_addresses_of_their_own() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server);
    load.levels = vec![Level::Rate(100.0), Level::Rate(400.0)];
    load.duration = Duration::from_secs(2);
    let report = run(&load, &Control::default()).unwrap();
    for (level, wanted) in report.levels.iter().zip([100.0, 400.0]) {
        assert!((level.calls_per_second / wanted - 1.0).abs() < 0.35, "{level:?}");
        assert!(level.behind_seconds < 1.0);
    }
    let peers = server.peers.lock().unwrap();
    let addresses: HashSet<_> = peers.iter().map(std::net::SocketAddr::ip).collect();
    assert_eq!(addresses.len(), load.clients + 1, "the clients' and that of preparations");
}

#[test]
fn a_slow_server_cannot_hide_behind_the_schedule() {
    let server = FakeServer::start(Fault::SlowMs(4));
    let mut load = load(&server);
    load.mix = Mix::parse("null 1").unwrap();
    (load.clients, load.depth, load.threads) = (2, 1, 1);
    load.paths.truncate(1);
    (load.file_bytes, load.transfer_bytes) = (512, 512);
    // 250 calls a second are possible.
    load.levels = vec![Level::Rate(1000.0)];
    load.duration = Duration::from_secs(1);
    let report = run(&load, &Control::default()).unwrap();
    let level = &report.levels[0];
    assert!(level.behind_seconds > 0.3, "{level:?}");
    assert!(level.latency.max_us > 300_000.0, "{:?}", level.latency);
    assert!(report.table().contains("not held"));
}

#[test]
fn calls_refused_for_now_are_made_again() {
    let server = FakeServer::start(Fault::RefusesEvery(50));
    let report = run(&load(&server), &Control::default()).unwrap();
    let level = &report.levels[0];
    assert!(level.checks.try_later > 0);
    assert!(level.latency.max_us > 50_000.0, "the wait counts");
    assert_eq!(server.objects(), 0);
}

#[test]
fn a_server_at_fault_is_found_out() {
    assert!(broken(Fault::DamagedData, "read 1").contains("never written"));
    assert!(broken(Fault::LostWrites, "write 1").contains("read back"));
    assert!(broken(Fault::WrongHandle, "lookup 1").contains("another handle"));
    assert!(broken(Fault::MissingEntry, "readdir 1").contains("listing"));
    assert!(broken(Fault::MissingEntry, "readdirplus 1").contains("listing"));
}

#[test]
fn removed_names_that_are_still_there_are_found_out() {
    let server = FakeServer::start(Fault::StaleNames);
    let mut load = load(&server);
    load.mix = Mix::parse("create 1\nremove 1").unwrap();
    let error = run(&load, &Control::default()).unwrap_err();
    assert!(error.to_string().contains("a removed one there"), "{error}");
}

#[test]
fn verifiers_that_change_are_counted() {
    let server = FakeServer::start(Fault::ForgetfulEvery(50));
    let mut load = load(&server);
    load.mix = Mix::parse("write 1\ncommit 1").unwrap();
    load.stable = StableHow::Unstable;
    let report = run(&load, &Control::default()).unwrap();
    assert!(report.levels[0].checks.verifier_changes > 0);
}

#[test]
fn an_interrupt_ends_it_with_what_there_is() {
    let server = FakeServer::start(Fault::None);
    let mut load = load(&server);
    load.duration = Duration::from_secs(3600);
    load.levels = vec![Level::Most, Level::Most];
    let control = Control::default();
    let stop = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        stop.interrupt();
    });
    let report = run(&load, &control).unwrap();
    assert_eq!(report.levels.len(), 1);
    assert!(report.levels[0].was_interrupted && report.levels[0].calls > 0);
    assert_eq!(server.objects(), 0);
}

fn over_nfs4(server: &FakeServer) -> Nhfsstone {
    // The server shows its root alone to clients of NFSv4.
    let paths = vec!["/".to_owned(); 2];
    Nhfsstone { nfs: NfsVersion::V4_1, paths, ..load(server) }
}

/// Neither NFSv3 nor MOUNT was called, and no client has left anything.
fn was_nfs4_alone(server: &FakeServer) {
    assert!(server.calls.lock().unwrap().is_empty());
    let clients = server.clients.lock().unwrap();
    assert!(clients.by_id.is_empty() && clients.opens.is_empty());
    assert_eq!(server.objects(), 0);
}

#[test]
fn every_operation_is_made_over_nfs4_alone_as_linux_makes_it() {
    for nfs in [NfsVersion::V4_1, NfsVersion::V4_2] {
        let server = FakeServer::start(Fault::None);
        let mut load = Nhfsstone { nfs, ..over_nfs4(&server) };
        load.mix = everything();
        load.stable = StableHow::Unstable;
        let report: Report = run(&load, &Control::default()).unwrap();
        assert_eq!(report.nfs, nfs.name());
        let level = &report.levels[0];
        let kinds: Vec<_> = level.operations.iter().map(|kind| kind.operation).collect();
        assert_eq!(kinds, [&NAMES[..], &["close"]].concat());
        for kind in &level.operations {
            let wanted = 100.0 / (NAMES.len() + 1) as f64;
            assert!((kind.percent_of_calls - wanted).abs() < 2.0, "{kind:?}");
        }
        assert!(level.checks.replies >= level.calls && level.checks.looked_at_afterwards > 10);
        assert!(level.checks.compared_reads > 0 && level.checks.committed_unstable > 0);
        assert_eq!(level.checks.verifier_changes, 0);
        assert!(report.table().contains("close"), "{}", report.table());
        let clients = server.clients.lock().unwrap();
        let executed = |name: &str| clients.operations.get(name).copied().unwrap_or(0);
        for op in ["Open", "Close", "Create", "Remove", "Rename", "Link", "ReadDir", "ReadLink"] {
            assert!(executed(op) > 0, "{op}");
        }
        // Each READ and WRITE of the mix is by an open.
        let transfers = executed("Read") + executed("Write");
        let seen = level.checks.compared_reads + level.checks.committed_unstable;
        assert!(transfers - clients.anonymous >= seen, "{transfers} {}", clients.anonymous);
        assert_eq!(clients.minor_versions, [nfs.minor()].into());
        drop(clients);
        was_nfs4_alone(&server);
    }
}

#[test]
fn a_server_at_fault_is_found_out_over_nfs4() {
    for (fault, mix, part) in [
        (Fault::DamagedData, "read 1", "never written"),
        (Fault::DamagedData, "readlink 1", "another target"),
        (Fault::ShortReads, "read 1", "another count"),
        (Fault::LostWrites, "write 1", "read back"),
        (Fault::LessStable, "write 1", "less stable"),
        (Fault::WrongHandle, "lookup 1", "another handle"),
        (Fault::MissingEntry, "readdir 1", "listing"),
        (Fault::MissingEntry, "readdirplus 1", "listing"),
        (Fault::StaleNames, "create 1\nremove 1", "a removed one there"),
        (Fault::ForgetsNames, "create 1", "is missing"),
        (Fault::ForgetsNames, "symlink 1", "is missing"),
        (Fault::ForgetsNames, "link 1", "is missing"),
        (Fault::OtherSlot, "getattr 1", "another slot"),
        (Fault::OtherSize, "getattr 1", "another type or size"),
        (Fault::DeniesRead, "access 1", "denies the owner"),
        (Fault::TellsNoSpace, "fsstat 1", "nothing of the file system"),
    ] {
        let server = FakeServer::start(Fault::None);
        let mut load = over_nfs4(&server);
        load.mix = Mix::parse(mix).unwrap();
        let state = std::sync::Arc::clone(&server.state);
        // The set is made by a sound server, so that it is the load that finds the fault.
        let is_prepared = || state.lock().unwrap().fault = fault;
        match run_when(&load, &Control::default(), is_prepared) {
            Err(error) => assert!(error.to_string().contains(part), "{fault:?}: {error}"),
            Ok(report) => panic!("{fault:?} was not noticed by {mix}: {report:?}"),
        }
    }
}

#[test]
fn requests_of_nfs4_refused_for_now_are_made_again() {
    for fault in [Fault::RefusesEvery(50), Fault::GraceEvery(50)] {
        let server = FakeServer::start(fault);
        let report = run(&over_nfs4(&server), &Control::default()).unwrap();
        assert!(report.levels[0].checks.try_later > 0, "{fault:?}");
        was_nfs4_alone(&server);
    }
}

#[test]
fn no_file_is_removed_over_nfs4_while_it_is_open() {
    let server = FakeServer::start(Fault::None);
    let mut load = over_nfs4(&server);
    load.mix = Mix::parse("create 1\nremove 1\nrename 1").unwrap();
    let report = run(&load, &Control::default()).unwrap();
    assert!(report.levels[0].calls > 100, "{report:?}");
    was_nfs4_alone(&server);
}

#[test]
fn rates_are_held_and_verifiers_counted_over_nfs4() {
    let server = FakeServer::start(Fault::ForgetfulEvery(50));
    let mut load = over_nfs4(&server);
    load.mix = Mix::parse("write 1\ncommit 1\ncreate 1").unwrap();
    load.stable = StableHow::Unstable;
    load.levels = vec![Level::Rate(300.0), Level::Most];
    load.duration = Duration::from_secs(2);
    let report = run(&load, &Control::default()).unwrap();
    let level = &report.levels[0];
    assert!((level.calls_per_second / 300.0 - 1.0).abs() < 0.35, "{level:?}");
    assert!(report.levels.iter().all(|level| level.checks.verifier_changes > 0));
    was_nfs4_alone(&server);
}

#[test]
fn a_version_that_the_server_does_not_speak_is_told_in_a_line() {
    let server = FakeServer::start(Fault::OneMinorVersion);
    let load = Nhfsstone { nfs: NfsVersion::V4_2, ..over_nfs4(&server) };
    let told = run(&load, &Control::default()).unwrap_err().to_string();
    assert_eq!(told, "the server does not speak NFSv4.2: choose another version");
    let server = FakeServer::start(Fault::OnlyNfs3);
    let told = run(&over_nfs4(&server), &Control::default()).unwrap_err().to_string();
    assert_eq!(told, "the server does not speak NFSv4: choose another version");
}
