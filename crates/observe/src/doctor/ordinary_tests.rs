//! Unit: ordinary machines that look odd. What is normal there is no finding, and what is wrong is found all the same.

use super::*;

fn found(case: &Case, id: &str) -> Vec<super::super::Finding> {
    case.report().findings.into_iter().filter(|one| one.id == id).collect()
}

#[test]
fn several_connections_that_are_made_again_once_are_no_fault() {
    let mut case = healthy(1);
    let one = case.before.mounts[0].counters.transports[0].clone();
    case.before.mounts[0].counters.transports = vec![one.clone(); 4];
    let again = Transport { connects: one.connects + 1, ..one.clone() };
    case.mount().transports = vec![again; 4];
    assert!(!case.has("reconnects"), "after an idle time, with nconnect=4");
    case.mount().transports[2].connects = one.connects + 2;
    assert!(case.has("reconnects"));
}

#[test]
fn a_server_that_stands_still_answers_few_calls_and_that_is_seen() {
    let mut case = healthy(1);
    // Since it was mounted it was called seldom, too.
    case.before.mounts[0].counters.operations = vec![operation("write", 20, 100)];
    let calls = |case: &mut Case, count: u64, again: u64| {
        let mount = case.mount();
        mount.options = "rw,proto=tcp,timeo=2,rsize=1048576,wsize=1048576".to_owned();
        let mut write = operation("write", 20 + count, 100 + 200 * count);
        write.transmissions += again;
        mount.operations = vec![write];
    };
    // Each was sent again and again: 0.2 s, 0.4 s, 0.6 s.
    calls(&mut case, 6, 12);
    let found = found(&case, "nfs-retransmissions");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::Critical);
    assert!(
        found[0].evidence.starts_with("6 calls were sent again 12 times (200.0 %)"),
        "{}",
        found[0].evidence
    );
    for (count, again) in [(6, 4), (49, 4), (6, 0)] {
        calls(&mut case, count, again);
        assert!(!case.has("nfs-retransmissions"), "{again} of {count}");
    }
}

#[test]
fn what_is_no_device_has_neither_speed_nor_carrier() {
    let mut case = healthy(1);
    case.interface().carrier_changes += 2;
    case.before.interfaces[0].speed_mbit = Some(10);
    case.interface().speed_mbit = Some(10);
    case.interface().counters.sent_bytes =
        case.before.interfaces[0].counters.sent_bytes + 8_000_000;
    let of = |case: &Case| {
        let ids = ["interface-carrier", "network-load", "network-bursts", "interface-slow"];
        ids.into_iter().filter(|id| case.has(id)).count()
    };
    assert_eq!(of(&case), 3, "{:?}", case.report().findings);
    // A bridge of containers, the end of a virtual machine.
    case.interface().is_device = false;
    assert_eq!(of(&case), 0, "{:?}", case.report().findings);
}

#[test]
fn a_peer_is_judged_by_the_direction_that_has_segments() {
    let mut case = healthy(1);
    let connection = TcpState {
        local: "10.0.0.1:2049".parse().expect("one"),
        peer: "10.0.0.9:900".parse().expect("one"),
        retransmitted: 300,
        needless: 0,
        sent: 1000,
        out_of_order: 0,
        received: 50,
        round_trip_us: 200,
    };
    case.after.nfs_tcp.push(connection);
    let found = found(&case, "peer-loss");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].subject, "10.0.0.9");
    assert!(!found[0].evidence.contains("out of order"), "{}", found[0].evidence);
}

#[test]
fn what_was_late_on_a_busy_machine_was_not_lost() {
    let mut case = healthy(1);
    case.after.nfs_tcp[0].retransmitted += 1000;
    case.add("Tcp.RetransSegs", 1000);
    assert!(case.has("peer-loss") && case.has("tcp-retransmissions"));
    case.after.nfs_tcp[0].needless += 980;
    case.add("TcpExt.TCPDSACKRecv", 999);
    assert!(!case.has("peer-loss") && !case.has("tcp-retransmissions"));
    // What was sent again before the first look is known for needless only now.
    let mut case = healthy(1);
    let before = &mut case.before.nfs_tcp[0];
    (before.retransmitted, before.needless) = (900, 40);
    let sent = before.sent;
    let after = &mut case.after.nfs_tcp[0];
    (after.retransmitted, after.needless, after.sent) = (900, 41, sent + 5000);
    assert!(!case.has("peer-loss"));
}

#[test]
fn a_connection_that_was_dropped_long_ago_is_no_finding_among_many() {
    let mut case = healthy(1);
    for facts in [&mut case.before, &mut case.after] {
        facts.protocols.insert("TcpExt.ListenDrops".to_owned(), 5);
        facts.protocols.insert("Tcp.PassiveOpens".to_owned(), 100_000);
    }
    assert!(!case.has("listen-overflows"));
    for facts in [&mut case.before, &mut case.after] {
        facts.protocols.insert("TcpExt.ListenDrops".to_owned(), 500);
    }
    let long_past = found(&case, "listen-overflows");
    assert_eq!(long_past.first().map(|one| one.severity), Some(Severity::Advice));
    case.add("TcpExt.ListenDrops", 1);
    let now = found(&case, "listen-overflows");
    assert_eq!(now.first().map(|one| one.severity), Some(Severity::Warning));
}

#[test]
fn datagrams_of_the_kernels_server_are_not_among_those_of_programs() {
    let mut case = healthy(1);
    let before = case.before.nfsd.as_ref().expect("one").udp_packets;
    case.nfsd().udp_packets = before + 3900;
    case.after.protocols.clone_from(&case.before.protocols);
    case.add("Udp.RcvbufErrors", 105);
    case.after.nfs_udp[0].drops += 105;
    let all = found(&case, "udp-receive-drops");
    assert!(all[0].evidence.starts_with("105 of 4005 datagrams"), "{}", all[0].evidence);
    // Its buffer is not one that a setting makes larger.
    assert!(!case.has("nfs-socket-drops"));
    assert!(found(&case, "nfsd-socket-drops")[0].settings.is_empty());
    case.nfsd().threads = 0;
    assert!(case.has("nfs-socket-drops") && !case.has("nfsd-socket-drops"));
}

#[test]
fn nobody_waits_for_a_name_server_that_refuses() {
    let mut case = healthy(1);
    let server = &mut case.after.name_servers[0];
    server.answered_s = None;
    server.waited_s = 0.001;
    server.timeout_s = 0;
    server.refusal = Some("connection refused".to_owned());
    let found = found(&case, "name-server-dead");
    let evidence = &found[0].evidence;
    assert!(evidence.contains("connection refused") && !evidence.contains(" 2 s"), "{evidence}");
}

#[test]
fn hundreds_of_mounts_make_a_report_that_can_be_read() {
    let mut case = healthy(1);
    case.mount().options = "rw,soft,proto=tcp,rsize=1048576,wsize=1048576".to_owned();
    let one = case.after.mounts[0].clone();
    for number in 0..300 {
        let mut more = one.clone();
        more.counters.mount_point = format!("/pods/{number}");
        case.after.mounts.push(more);
    }
    let report = case.report();
    assert_eq!(found(&case, "mount-soft").len(), 301, "programs get all");
    let text = report.text();
    assert_eq!(text.matches("[mount-soft]\n").count(), 10, "{text}");
    assert!(text.contains("291 more of [mount-soft]"), "{text}");
}

#[test]
fn flash_that_is_busy_and_fast_is_no_limit() {
    let mut case = healthy(1);
    let before = case.before.disks[0].counters.clone();
    let disk = case.disk();
    // 20,000 operations a second, four at a time, of 0.2 ms each.
    disk.is_rotational = false;
    disk.counters.reads = before.reads + 100_000;
    disk.counters.read_ms = before.read_ms + 20_000;
    disk.counters.busy_ms = before.busy_ms + 5000;
    disk.counters.queue_ms = before.queue_ms + 20_000;
    for id in ["disk-busy", "cpu-will-not-help", "network-will-not-help"] {
        assert!(!case.has(id), "{id}: {:?}", case.report().findings);
    }
    let disk = case.disk();
    disk.counters.reads = before.reads + 5000;
    assert!(case.has("disk-busy"), "{:?}", case.report().findings);
}
