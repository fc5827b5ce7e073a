//! Process ring: walks of a tree on a server in memory, sound or at fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{FakeServer, Fault};
use steadfast_bench::walk::{Pattern, Walk, run};
use steadfast_bench::{BenchError, Control, NfsVersion, Target};

fn walk(server: &FakeServer) -> Walk {
    Walk {
        clients: vec![3, 8],
        threads: 2,
        inodes: 60,
        names_of_directory: 25,
        listing_bytes: 1024,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(1500),
        mount_every: Duration::from_millis(50),
        ..Walk::new(Target::new(server.address), "/")
    }
}

#[test]
fn old_clients_walk_the_whole_tree_with_many_calls_and_it_is_found_again() {
    let server = FakeServer::start(Fault::None);
    let mut walk = walk(&server);
    let report = run(&walk, &Control::default()).unwrap();
    assert_eq!((report.inodes, report.tree_was_there), (60, false));
    // The tree, its root, and the file that says that it is whole.
    assert_eq!(server.objects(), 62);
    assert_eq!(report.points.len(), 2);
    for point in &report.points {
        assert!(point.whole_walks > 0 && point.replies >= point.calls, "{point:?}");
        assert!(point.mounts.succeeded > 0 && point.mounts.failed == 0, "{:?}", point.mounts);
        let percent = |name| {
            let kind = point.operations.iter().find(|kind| kind.operation == name);
            kind.map_or(0.0, |kind| kind.percent_of_calls)
        };
        assert!(percent("getattr") > 40.0 && percent("access") > 20.0, "{point:?}");
        assert!(percent("lookup") > 15.0 && percent("readlink") > 0.0, "{point:?}");
        assert!(percent("readdirplus") == 0.0);
    }
    let makes = server.nfs_calls(8);
    walk.removes = true;
    walk.pattern = Pattern::Plus;
    let report = run(&walk, &Control::default()).unwrap();
    assert!(report.tree_was_there && report.points[0].whole_walks > 0);
    assert_eq!((server.nfs_calls(8), server.objects()), (makes, 0));
    assert!(server.nfs_calls(17) > 0);
    assert!(report.table().contains("readdirplus"));
}

#[test]
fn clients_that_share_a_connection_walk_each_for_itself() {
    let server = FakeServer::start(Fault::None);
    let mut walk = Walk { clients: vec![12], clients_of_connection: 4, ..walk(&server) };
    let report = run(&walk, &Control::default()).unwrap();
    // Several walks a client, each of all inodes in order: none took another's reply for its own.
    assert!(report.points[0].whole_walks > 12, "{:?}", report.points[0]);
    assert_eq!((report.points[0].clients, report.points[0].connections), (12, 3));
    walk.clients = vec![12, 6];
    match run(&walk, &Control::default()) {
        Err(BenchError::Usage(what)) => assert!(what.contains("6 clients cannot share"), "{what}"),
        other => panic!("{other:?}"),
    }
    for sharers in [0, 257] {
        walk.clients_of_connection = sharers;
        assert!(matches!(run(&walk, &Control::default()), Err(BenchError::Usage(_))));
    }
}

#[test]
fn a_server_at_fault_is_found_out() {
    for (fault, part) in [
        (Fault::MissingEntry, "names where"),
        // Whatever the root is taken for, it is no directory.
        (Fault::WrongHandle, "a directory is none any more"),
    ] {
        let server = FakeServer::start(Fault::None);
        let walk = walk(&server);
        run(&walk, &Control::default()).unwrap();
        server.state.lock().unwrap().fault = fault;
        match run(&walk, &Control::default()) {
            Err(BenchError::Broken { what, .. }) => assert!(what.contains(part), "{what}"),
            other => panic!("{fault:?} was not noticed: {other:?}"),
        }
    }
}

#[test]
fn calls_refused_for_now_are_made_again() {
    let server = FakeServer::start(Fault::RefusesEvery(90));
    let report = run(&walk(&server), &Control::default()).unwrap();
    assert!(report.points.iter().map(|point| point.try_later).sum::<u64>() > 0);
}

#[test]
fn clients_walk_over_nfs4_alone() {
    for (pattern, nfs) in
        [(Pattern::Redundant, NfsVersion::V4_1), (Pattern::Plus, NfsVersion::V4_2)]
    {
        let server = FakeServer::start(Fault::None);
        let clients = vec![4, 8];
        let mut walk = Walk { nfs, pattern, clients, clients_of_connection: 2, ..walk(&server) };
        let report = run(&walk, &Control::default()).unwrap();
        assert_eq!((report.inodes, report.tree_was_there, report.nfs), (60, false, nfs.name()));
        assert_eq!(server.objects(), 62);
        for point in &report.points {
            assert!(point.whole_walks > 0 && point.replies >= point.calls, "{point:?}");
            assert!(point.mounts.succeeded > 0 && point.mounts.failed == 0, "{:?}", point.mounts);
            let percent = |name| {
                let kind = point.operations.iter().find(|kind| kind.operation == name);
                kind.map_or(0.0, |kind| kind.percent_of_calls)
            };
            let is_plus = pattern == Pattern::Plus;
            assert_eq!(percent("lookup") > 15.0, !is_plus, "{point:?}");
            assert_eq!(percent("readdirplus") > 0.0, is_plus, "{point:?}");
            assert!(percent("getattr") > 20.0 && percent("readlink") > 0.0, "{point:?}");
        }
        walk.removes = true;
        let report = run(&walk, &Control::default()).unwrap();
        assert!(report.tree_was_there && server.objects() == 0);
        // Neither NFSv3 nor MOUNT.
        assert!(server.calls.lock().unwrap().is_empty());
        let seen = server.clients.lock().unwrap();
        assert!(seen.by_id.is_empty() && seen.opens.is_empty());
        assert_eq!(seen.minor_versions, [nfs.minor()].into());
    }
}

#[test]
fn a_tree_that_was_made_over_nfs3_is_found_over_nfs4() {
    let server = FakeServer::start(Fault::None);
    let mut walk = walk(&server);
    run(&walk, &Control::default()).unwrap();
    walk.nfs = NfsVersion::V4_1;
    let report = run(&walk, &Control::default()).unwrap();
    assert!(report.tree_was_there && report.points[0].whole_walks > 0);
}

#[test]
fn a_server_at_fault_is_found_out_over_nfs4() {
    use Pattern::{Plus, Redundant};
    for (fault, pattern, part) in [
        (Fault::MissingEntry, Redundant, "names where"),
        (Fault::WrongHandle, Redundant, "a directory is none any more"),
        // Of another type, or only another file.
        (Fault::LaterWrongHandle, Redundant, "another"),
        (Fault::OtherAttributes, Plus, "another file than was listed"),
        (Fault::DamagedData, Plus, "another target"),
        (Fault::OtherSlot, Plus, "another slot"),
        (Fault::DeniesLookup, Plus, "denies to look up"),
    ] {
        let server = FakeServer::start(Fault::None);
        let nfs = NfsVersion::V4_1;
        let walk = Walk { nfs, pattern, mount_every: Duration::ZERO, ..walk(&server) };
        run(&walk, &Control::default()).unwrap();
        server.state.lock().unwrap().fault = fault;
        match run(&walk, &Control::default()) {
            Err(error) => assert!(error.to_string().contains(part), "{fault:?}: {error}"),
            Ok(report) => panic!("{fault:?} was not noticed: {report:?}"),
        }
    }
}

#[test]
fn requests_of_nfs4_refused_for_now_are_made_again() {
    for fault in [Fault::RefusesEvery(90), Fault::GraceEvery(90)] {
        let server = FakeServer::start(fault);
        let report = run(&Walk { nfs: NfsVersion::V4_1, ..walk(&server) }, &Control::default());
        let points = report.unwrap().points;
        assert!(points.iter().map(|point| point.try_later).sum::<u64>() > 0, "{fault:?}");
    }
}

#[test]
fn a_minor_version_that_the_server_does_not_speak_is_told_in_a_line() {
    let server = FakeServer::start(Fault::OneMinorVersion);
    let error = run(&Walk { nfs: NfsVersion::V4_2, ..walk(&server) }, &Control::default());
    let told = error.unwrap_err().to_string();
    assert_eq!(told, "the server does not speak NFSv4.2: choose another version");
    run(&Walk { nfs: NfsVersion::V4_1, ..walk(&server) }, &Control::default()).unwrap();
}
