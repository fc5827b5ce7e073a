//! Process ring: streams of large files on a server in memory, sound or at fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{FakeServer, Fault};
use steadfast_bench::stream::{Direction, Report, Stream, run};
use steadfast_bench::{BenchError, Control, NfsVersion, Target, Transport};
use steadfast_client::StableHow;

fn stream(server: &FakeServer, direction: Direction) -> Stream {
    Stream {
        direction,
        streams: 3,
        threads: 2,
        transfer_bytes: 64 << 10,
        file_bytes: 2 << 20,
        commit_every_bytes: 512 << 10,
        warm_up: Duration::from_millis(20),
        duration: Duration::from_millis(300),
        ..Stream::new(Target::new(server.address), "/")
    }
}

fn complaint(fault: Fault, direction: Direction, transfer_bytes: u32) -> String {
    let server = FakeServer::start(fault);
    let mut stream = stream(&server, direction);
    stream.transfer_bytes = transfer_bytes;
    match run(&stream, &Control::default()) {
        Err(BenchError::Broken { what, .. }) => what,
        other => panic!("{fault:?} was not noticed: {other:?}"),
    }
}

#[test]
fn readers_read_separate_files_or_one() {
    for (has_one_file, transfer_bytes) in [(false, 64 << 10), (true, 64 << 10), (false, 4096)] {
        let server = FakeServer::start(Fault::None);
        let mut stream = stream(&server, Direction::Read);
        (stream.has_one_file, stream.transfer_bytes) = (has_one_file, transfer_bytes);
        let report = run(&stream, &Control::default()).unwrap();
        assert_eq!(report.files, if has_one_file { 1 } else { 3 });
        assert_eq!(report.checks.compared_reads, report.checks.replies);
        assert!(report.mib_per_second > 0.1 && report.calls > 0, "{report:?}");
        assert_eq!(server.objects(), 0);
    }
}

#[test]
fn writers_commit_and_what_they_wrote_is_read_back() {
    for has_one_file in [false, true] {
        let server = FakeServer::start(Fault::None);
        let mut stream = stream(&server, Direction::Write);
        stream.has_one_file = has_one_file;
        let report = run(&stream, &Control::default()).unwrap();
        let checks = &report.checks;
        assert!(checks.commits > 0 && checks.committed_unstable > 0, "{report:?}");
        assert!(checks.read_back > 10 && checks.lost_writes == 0, "{report:?}");
        let kinds: Vec<_> = report.operations.iter().map(|kind| kind.operation).collect();
        assert_eq!(kinds, ["write", "commit"]);
        assert_eq!(server.objects(), 0);
        assert!(report.table().contains("COMMITs"), "{}", report.table());
    }
    let server = FakeServer::start(Fault::None);
    let mut stream = stream(&server, Direction::Write);
    stream.stable = StableHow::FileSync;
    let checks = run(&stream, &Control::default()).unwrap().checks;
    assert!(checks.committed_file_sync > 0 && checks.commits == 0);
}

#[test]
fn what_a_server_lost_before_its_commit_is_written_again() {
    // Commits come after 8 WRITEs of a stream at the earliest.
    let server = FakeServer::start(Fault::LosesUnstableEvery(70));
    let report = run(&stream(&server, Direction::Write), &Control::default()).unwrap();
    assert!(report.checks.verifier_changes > 0 && report.checks.lost_writes > 0, "{report:?}");
    assert!(report.checks.read_back > 10 && report.table().contains("were made again"));
}

#[test]
fn a_server_at_fault_is_found_out() {
    use Direction::{Read, Write};
    for (fault, direction, transfer_bytes, part) in [
        (Fault::DamagedData, Read, 64 << 10, "never written"),
        (Fault::DamagedData, Read, 8 << 10, "never written"),
        (Fault::LostWrites, Read, 64 << 10, "never written"),
        (Fault::OtherPlace, Read, 64 << 10, "never written"),
        (Fault::LostWrites, Write, 64 << 10, "read back"),
        (Fault::OtherPlace, Write, 64 << 10, "read back"),
        (Fault::ForgetfulEvery(1), Write, 64 << 10, "with every attempt"),
    ] {
        let what = complaint(fault, direction, transfer_bytes);
        assert!(what.contains(part), "{fault:?}: {what}");
    }
    let server = FakeServer::start(Fault::LessStable);
    let mut stream = stream(&server, Write);
    stream.stable = StableHow::DataSync;
    let error = run(&stream, &Control::default()).unwrap_err();
    assert!(error.to_string().contains("less stable"), "{error}");
}

fn over_udp(fault: Fault, direction: Direction) -> Result<Report, BenchError> {
    let server = FakeServer::start(fault);
    let mut stream = stream(&server, direction);
    (stream.transport, stream.transfer_bytes) = (Transport::Udp, 32 << 10);
    stream.duration = Duration::from_millis(1200);
    run(&stream, &Control::default())
}

#[test]
fn datagrams_carry_streams_too() {
    for direction in [Direction::Read, Direction::Write] {
        let report = over_udp(Fault::LosesEvery(60), direction).unwrap();
        assert!(report.is_udp && report.checks.retransmissions > 0, "{report:?}");
        assert!(report.table().contains("sent again"));
    }
    let error = over_udp(Fault::DamagedData, Direction::Read).unwrap_err();
    assert!(error.to_string().contains("never written"), "{error}");
}

#[test]
fn the_limit_of_loopback_is_measured_in_the_same_run() {
    let server = FakeServer::start(Fault::None);
    let mut stream = stream(&server, Direction::Read);
    stream.measures_loopback = true;
    stream.server_pid = Some(std::process::id());
    let report = run(&stream, &Control::default()).unwrap();
    let limit = report.loopback_limit.unwrap();
    let percent = report.mib_per_second / limit.mib_per_second * 100.0;
    assert!((limit.percent_reached - percent).abs() < 0.01, "{limit:?}");
    assert!(report.server_cpu_us_per_mib.unwrap() > 0.0);
    assert!(limit.from_memory_mib_per_second.unwrap() > 1.0);
    assert!(report.table().contains("over loopback reaches"));
}

#[test]
fn calls_refused_for_now_are_made_again() {
    for direction in [Direction::Read, Direction::Write] {
        let server = FakeServer::start(Fault::RefusesEvery(30));
        let report = run(&stream(&server, direction), &Control::default()).unwrap();
        assert!(report.checks.try_later > 0);
    }
}

#[test]
fn calls_larger_than_the_server_takes_are_refused() {
    let server = FakeServer::start(Fault::None);
    let mut stream = stream(&server, Direction::Read);
    stream.transfer_bytes = 2 << 20;
    let error = run(&stream, &Control::default()).unwrap_err();
    assert!(error.to_string().contains("at most 1048576"), "{error}");
}

fn over_nfs4(server: &FakeServer, direction: Direction) -> Stream {
    Stream { nfs: NfsVersion::V4_1, ..stream(server, direction) }
}

/// Neither NFSv3 nor MOUNT was called, and no client has left anything.
fn was_nfs4_alone(server: &FakeServer) {
    assert!(server.calls.lock().unwrap().is_empty());
    let clients = server.clients.lock().unwrap();
    assert!(clients.by_id.is_empty() && clients.opens.is_empty());
    assert_eq!(server.objects(), 0);
}

#[test]
fn readers_read_over_nfs4_by_what_they_have_open() {
    for (has_one_file, transfer_bytes) in [(false, 64 << 10), (true, 64 << 10), (false, 4096)] {
        let server = FakeServer::start(Fault::None);
        let mut stream = over_nfs4(&server, Direction::Read);
        (stream.has_one_file, stream.transfer_bytes) = (has_one_file, transfer_bytes);
        let report = run(&stream, &Control::default()).unwrap();
        assert_eq!((report.files, report.nfs), (if has_one_file { 1 } else { 3 }, "4.1"));
        assert_eq!(report.checks.compared_reads, report.checks.replies);
        assert!(report.mib_per_second > 0.1 && report.table().contains("NFSv4.1"), "{report:?}");
        // The files were filled without an open, and all else was read by one.
        let filled = report.files as u64 * report.file_bytes / u64::from(transfer_bytes);
        assert_eq!(server.clients.lock().unwrap().anonymous, filled);
        was_nfs4_alone(&server);
    }
}

#[test]
fn writers_write_over_nfs4_by_what_they_have_open_and_commit() {
    for nfs in [NfsVersion::V4_1, NfsVersion::V4_2] {
        let server = FakeServer::start(Fault::None);
        let stream = Stream { nfs, ..over_nfs4(&server, Direction::Write) };
        let report = run(&stream, &Control::default()).unwrap();
        let checks = &report.checks;
        assert!(checks.commits > 0 && checks.committed_unstable > 0, "{report:?}");
        assert!(checks.read_back > 10 && checks.lost_writes == 0, "{report:?}");
        assert_eq!(server.clients.lock().unwrap().minor_versions, [nfs.minor()].into());
        // What is read back is read without an open.
        let anonymous = server.clients.lock().unwrap().anonymous;
        assert!(anonymous < checks.replies && anonymous >= checks.read_back, "{anonymous}");
        was_nfs4_alone(&server);
    }
}

#[test]
fn what_a_server_lost_before_its_commit_is_written_again_over_nfs4() {
    let server = FakeServer::start(Fault::LosesUnstableEvery(70));
    let report = run(&over_nfs4(&server, Direction::Write), &Control::default()).unwrap();
    assert!(report.checks.verifier_changes > 0 && report.checks.lost_writes > 0, "{report:?}");
    assert!(report.checks.read_back > 10);
    was_nfs4_alone(&server);
}

#[test]
fn a_server_at_fault_is_found_out_over_nfs4() {
    use Direction::{Read, Write};
    for (fault, direction, transfer_bytes, part) in [
        (Fault::DamagedData, Read, 64 << 10, "never written"),
        (Fault::DamagedData, Read, 8 << 10, "never written"),
        (Fault::LostWrites, Read, 64 << 10, "never written"),
        (Fault::OtherPlace, Read, 64 << 10, "never written"),
        (Fault::ShortReads, Read, 64 << 10, "another count"),
        (Fault::ShortReads, Read, 8 << 10, "another count"),
        (Fault::OtherSlot, Read, 64 << 10, "another slot"),
        (Fault::LostWrites, Write, 64 << 10, "read back"),
        (Fault::OtherPlace, Write, 64 << 10, "read back"),
        (Fault::ForgetfulEvery(1), Write, 64 << 10, "with every attempt"),
    ] {
        let server = FakeServer::start(fault);
        let stream = Stream { transfer_bytes, ..over_nfs4(&server, direction) };
        match run(&stream, &Control::default()) {
            Err(error) => assert!(error.to_string().contains(part), "{fault:?}: {error}"),
            Ok(report) => panic!("{fault:?} was not noticed: {report:?}"),
        }
    }
    let server = FakeServer::start(Fault::LessStable);
    let stream = Stream { stable: StableHow::DataSync, ..over_nfs4(&server, Write) };
    let error = run(&stream, &Control::default()).unwrap_err();
    assert!(error.to_string().contains("less stable"), "{error}");
}

#[test]
fn requests_of_nfs4_refused_for_now_are_made_again() {
    for fault in [Fault::RefusesEvery(30), Fault::GraceEvery(30)] {
        for direction in [Direction::Read, Direction::Write] {
            let server = FakeServer::start(fault);
            let report = run(&over_nfs4(&server, direction), &Control::default()).unwrap();
            assert!(report.checks.try_later > 0, "{fault:?}");
            was_nfs4_alone(&server);
        }
    }
}

#[test]
fn what_cannot_be_done_over_nfs4_is_refused() {
    let server = FakeServer::start(Fault::None);
    let large = Stream { transfer_bytes: 2 << 20, ..over_nfs4(&server, Direction::Read) };
    let deep = Stream { window: 65, file_bytes: 16 << 20, ..over_nfs4(&server, Direction::Read) };
    let udp = Stream { transport: Transport::Udp, ..over_nfs4(&server, Direction::Read) };
    for (stream, part) in [(large, "at most 104"), (deep, "64 slots"), (udp, "UDP")] {
        match run(&stream, &Control::default()) {
            Err(BenchError::Usage(what)) => assert!(what.contains(part), "{what}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(server.objects(), 0);
    }
    let server = FakeServer::start(Fault::OneMinorVersion);
    let later = Stream { nfs: NfsVersion::V4_2, ..over_nfs4(&server, Direction::Read) };
    let error = run(&later, &Control::default()).unwrap_err();
    assert!(error.to_string().contains("does not speak NFSv4.2"), "{error}");
}
