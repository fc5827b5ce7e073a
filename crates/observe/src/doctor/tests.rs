//! Unit: every row of the table is reached both ways, with a value beyond its limit and with one just before
//! it; machines that are well have no finding.

use std::collections::BTreeMap;

use steadfast_control::clients::{ClientStatus, ClientsReport};
use steadfast_control::intent_log::{FileSystemFigures, LogFigures};
use steadfast_control::statistics::{Operation, Recorded, Stages, Statistics};
use steadfast_sys::netlink::TcpState;

use super::checks::{Severity, rows};
use super::facts::{
    Clock, Disk, Facts, Interface, InterfaceQueue, LogDevice, MountFacts, NameServer, Pressures,
    Sample, Steadfast,
};
use super::parse::host::Exported;
use super::parse::mountstats::{MountOperation, NfsMount, Transport};
use super::parse::network::{InterfaceCounters, LocalNetwork, Softnet, UdpSocket};
use super::parse::rpc::{Nfsd, OperationCount, RpcClient};
use super::parse::system::{CpuTimes, DiskCounters, Stat};
use super::{Report, catalogue, judge};
use crate::tune::{SettingState, SettingStatus};

#[path = "healthy_machine.rs"]
mod healthy_machine;
#[path = "ordinary_tests.rs"]
mod ordinary;

use healthy_machine::{client, healthy, operation};

const SECONDS: f64 = 5.0;

/// Two looks and what is between them.
struct Case {
    before: Facts,
    after: Facts,
    samples: Vec<Sample>,
}

impl Case {
    fn report(&self) -> Report {
        judge(&self.before, &self.after, &self.samples)
    }

    fn has(&self, id: &str) -> bool {
        self.report().findings.iter().any(|finding| finding.id == id)
    }

    fn mount(&mut self) -> &mut NfsMount {
        &mut self.after.mounts[0].counters
    }

    fn read(&mut self) -> &mut MountOperation {
        &mut self.mount().operations[0]
    }

    fn interface(&mut self) -> &mut Interface {
        &mut self.after.interfaces[0]
    }

    fn nfsd(&mut self) -> &mut Nfsd {
        self.after.nfsd.as_mut().expect("one")
    }

    fn server(&mut self) -> &mut Steadfast {
        self.after.steadfast.as_mut().expect("one")
    }

    fn log(&mut self) -> &mut LogFigures {
        self.server().statistics.log.as_mut().expect("one")
    }

    fn disk(&mut self) -> &mut Disk {
        &mut self.after.disks[0]
    }

    fn pressure(&mut self) -> &mut Pressures {
        self.after.pressure.as_mut().expect("some")
    }

    fn add(&mut self, counter: &str, count: u64) {
        *self.after.protocols.entry(counter.to_owned()).or_default() += count;
    }

    /// CPU time of the interval, in ticks of all: so many of 1000.
    fn cpu(&mut self, idle: u64, soft_interrupt: u64, stolen: u64) {
        let before = self.before.cpus.all;
        self.after.cpus.all = CpuTimes {
            total: before.total + 1000,
            idle: before.idle + idle,
            soft_interrupt: before.soft_interrupt + soft_interrupt,
            stolen: before.stolen + stolen,
        };
        let before = self.before.cpus.each[0];
        self.after.cpus.each[0] = CpuTimes {
            total: before.total + 500,
            idle: before.idle + idle / 2,
            soft_interrupt: before.soft_interrupt + soft_interrupt,
            stolen: before.stolen + stolen / 2,
        };
    }

    /// The kernel's server was called so often, and for so many changes; the Steadfast server is gone.
    fn mix(&mut self, calls: u64, changing: u64) {
        self.before.steadfast = None;
        self.after.steadfast = None;
        let operations = vec![
            OperationCount { name: "read".to_owned(), count: calls - changing },
            OperationCount { name: "write".to_owned(), count: changing },
        ];
        self.before.nfsd = Some(Nfsd { threads: 8, ..Nfsd::default() });
        self.after.nfsd = Some(Nfsd { threads: 8, operations, ..Nfsd::default() });
    }

    /// The last calls of the server, each by the client `of` its number, with `xid` of its number.
    fn recorded(&mut self, count: u32, client: fn(u32) -> u32, xid: impl Fn(u32) -> u32) {
        let calls = (0..count).map(|number| Recorded {
            xid: xid(number),
            protocol: "nfs".to_owned(),
            program: 100_003,
            version: 3,
            procedure: 1,
            name: "GETATTR".to_owned(),
            is_error: false,
            operations: Vec::new(),
            client: format!("10.0.0.{}:900", client(number)),
            transport: "tcp".to_owned(),
            begun_unix_us: 0,
            latency_ns: 1,
            execution_ns: 1,
            is_sampled: false,
            was_parked: false,
            stages: Stages::default(),
        });
        self.server().statistics.recent = calls.collect();
    }
}

type Mutation = fn(&mut Case, bool);

/// A way to each row: with `true` it is found, with `false` it is just not.
#[rustfmt::skip]
const WAYS: &[(&str, Mutation)] = &[
    ("nfs-retransmissions", |case, is_bad| {
        // 0.42 % of the calls, with 30 ms and a timer of 0.7 s.
        case.mount().options = "rw,proto=tcp,timeo=7,rsize=1048576,wsize=1048576".to_owned();
        let before = case.before.mounts[0].counters.operations[0].clone();
        let read = case.read();
        read.operations = before.operations + 10_000;
        read.transmissions = before.transmissions + 10_000 + if is_bad { 44 } else { 41 };
        read.response_ms = before.response_ms + 300_000;
    }),
    ("server-slow", |case, is_bad| {
        case.read().response_ms = case.before.mounts[0].counters.operations[0].response_ms
            + 1000 * if is_bad { 31 } else { 29 };
    }),
    ("client-queue", |case, is_bad| {
        let before = case.before.mounts[0].counters.operations[0].clone();
        case.read().response_ms = before.response_ms + 4000;
        case.read().queue_ms = before.queue_ms + if is_bad { 2100 } else { 1900 };
    }),
    ("try-later", |case, is_bad| case.mount().events[24] = if is_bad { 11 } else { 9 }),
    ("reconnects", |case, is_bad| case.mount().transports[0].connects = if is_bad { 3 } else { 2 }),
    ("small-transfers", |case, is_bad| {
        let size = if is_bad { 1024 } else { 65_536 };
        case.mount().options = format!("rw,proto=tcp,rsize={size},wsize=1048576");
    }),
    ("mount-udp", |case, is_bad| {
        let proto = if is_bad { "udp" } else { "tcp" };
        case.mount().options = format!("rw,proto={proto},rsize=1048576,wsize=1048576");
    }),
    ("mount-nolock", |case, is_bad| {
        case.mount().kind = "nfs".to_owned();
        let mode = if is_bad { "rw" } else { "ro" };
        case.mount().options = format!("{mode},nolock,proto=tcp");
    }),
    ("mount-soft", |case, is_bad| {
        case.mount().options = if is_bad { "rw,soft" } else { "ro,soft" }.to_owned();
    }),
    ("mount-noac", |case, is_bad| {
        let least = u32::from(!is_bad);
        case.mount().options = format!("rw,acregmin=0,acregmax={least},acdirmin=0,acdirmax={least}");
    }),
    ("name-cache", |case, is_bad| {
        case.mount().events[6] = 1000;
        case.mount().operations.push(operation("access", if is_bad { 210 } else { 190 }, 1));
    }),
    ("page-cache", |case, is_bad| {
        case.mount().bytes[0] = 100 << 20;
        case.mount().bytes[4] = if is_bad { 21 << 20 } else { 19 << 20 };
    }),
    ("failing-calls", |case, is_bad| case.read().errors += if is_bad { 11 } else { 9 }),
    ("server-clock", |case, is_bad| case.after.mounts[0].ahead_s = Some(if is_bad { 1.1 } else { 0.9 })),
    ("interface-errors", |case, is_bad| {
        case.interface().counters.receive_errors += if is_bad { 13 } else { 11 };
    }),
    ("interface-overruns", |case, is_bad| case.interface().missed += if is_bad { 7 } else { 5 }),
    ("interface-half-duplex", |case, is_bad| case.interface().is_half_duplex = is_bad),
    ("interface-carrier", |case, is_bad| case.interface().carrier_changes += u64::from(is_bad)),
    ("interface-slow", |case, is_bad| {
        case.interface().speed_mbit = Some(if is_bad { 100 } else { 1000 });
    }),
    ("queue-drops", |case, is_bad| case.after.queues[0].drops += if is_bad { 7 } else { 5 }),
    ("softnet-drops", |case, is_bad| case.after.softnet[1].dropped += if is_bad { 13 } else { 11 }),
    ("softnet-squeezed", |case, is_bad| case.after.softnet[1].squeezed += if is_bad { 21 } else { 19 }),
    ("network-load", |case, is_bad| {
        case.interface().speed_mbit = Some(1000);
        let before = case.before.interfaces[0].counters.sent_bytes;
        // 1000 Mbit/s are 625 MB in 5 s.
        case.interface().counters.sent_bytes = before + 625_000_000 / 100 * if is_bad { 41 } else { 39 };
    }),
    ("network-bursts", |case, is_bad| {
        case.interface().speed_mbit = Some(1000);
        for (number, sample) in case.samples.iter_mut().enumerate() {
            let sent = 62_500_000 / 100 * if is_bad { 62 } else { 58 };
            sample.carried[0].2 = if number >= 25 { sent } else { 0 };
        }
    }),
    ("tcp-retransmissions", |case, is_bad| {
        case.after.protocols.insert("Tcp.RetransSegs".to_owned(), case.before.protocols["Tcp.RetransSegs"]);
        case.add("Tcp.RetransSegs", if is_bad { 7 } else { 5 });
    }),
    ("peer-loss", |case, is_bad| case.after.nfs_tcp[0].retransmitted += if is_bad { 43 } else { 41 }),
    ("udp-receive-drops", |case, is_bad| {
        case.add("Udp.InDatagrams", 9000);
        case.add("Udp.RcvbufErrors", if is_bad { 7 } else { 5 });
    }),
    ("udp-send-drops", |case, is_bad| {
        case.add("Udp.OutDatagrams", 9000);
        case.add("Udp.SndbufErrors", if is_bad { 7 } else { 5 });
    }),
    ("nfs-socket-drops", |case, is_bad| {
        case.nfsd().threads = 0;
        case.after.nfs_udp[0].drops = u64::from(is_bad);
    }),
    ("nfsd-socket-drops", |case, is_bad| case.after.nfs_udp[0].drops = u64::from(is_bad)),
    ("fragments-lost", |case, is_bad| {
        case.add("Ip.ReasmReqds", 9000);
        case.add("Ip.ReasmFails", if is_bad { 7 } else { 5 });
    }),
    ("listen-overflows", |case, is_bad| case.add("TcpExt.ListenDrops", u64::from(is_bad))),
    ("tcp-memory", |case, is_bad| case.add("TcpExt.PruneCalled", u64::from(is_bad))),
    ("nfsd-threads", |case, is_bad| {
        let (records, waited) = case.before.nfsd_queue.expect("some");
        case.after.nfsd_queue = Some((records + 1000, waited + if is_bad { 101 } else { 99 }));
        for (number, sample) in case.samples.iter_mut().enumerate() {
            sample.has_idle_nfsd = Some(number % 9 != 0);
        }
    }),
    ("duplicate-calls", |case, is_bad| {
        let before = case.before.nfsd.as_ref().expect("one").duplicates;
        case.nfsd().duplicates = before + if is_bad { 5 } else { 4 };
    }),
    ("repeated-calls", |case, is_bad| {
        let duplicates = if is_bad { 5 } else { 4 };
        case.server().statistics.server.insert("duplicate_calls".to_owned(), duplicates);
    }),
    ("bad-calls", |case, is_bad| case.nfsd().bad_calls = if is_bad { 11 } else { 10 }),
    ("stale-handles", |case, is_bad| case.nfsd().stale_handles = if is_bad { 10 } else { 9 }),
    ("export-async", |case, is_bad| {
        case.after.exported[0].options = if is_bad { "rw,async" } else { "rw,sync" }.to_owned();
    }),
    ("export-subtree-check", |case, is_bad| {
        let word = if is_bad { "subtree_check" } else { "no_subtree_check" };
        case.after.exported[0].options = format!("rw,{word}");
    }),
    ("reply-cache-full", |case, is_bad| {
        case.server().statistics.server.insert("replies_evicted_young".to_owned(), u64::from(is_bad));
    }),
    ("told-later", |case, is_bad| {
        case.server().statistics.server.insert("told_later".to_owned(), u64::from(is_bad));
    }),
    ("refused-connections", |case, is_bad| {
        case.server().statistics.server.insert("refused".to_owned(), u64::from(is_bad));
    }),
    ("faulty-share", |case, is_bad| {
        case.server().faulty_shares = vec![("/a".to_owned(), "it is gone".to_owned()); usize::from(is_bad)];
    }),
    ("one-sided-load", |case, is_bad| {
        let client: fn(u32) -> u32 = if is_bad {
            |number| if number < 610 { 1 } else { 1 + number % 4 }
        } else {
            |number| 1 + number % 4
        };
        case.recorded(1000, client, |number| number);
    }),
    ("doubled-names", |case, is_bad| {
        let name = if is_bad { "one" } else { "three" };
        case.server().clients = Some(ClientsReport {
            clients: vec![client(name, "10.0.0.9:900")],
            ..ClientsReport::default()
        });
    }),
    ("small-calls", |case, is_bad| {
        case.server().statistics.operations = vec![Operation {
            protocol: "nfs".to_owned(),
            name: "READ".to_owned(),
            calls: 1000,
            bytes_out: 1000 * if is_bad { 1152 } else { 4224 },
            ..Operation::default()
        }];
    }),
    ("names-failing", |case, is_bad| {
        if is_bad {
            case.server().failed_names.insert("host".to_owned(), "no answer".to_owned());
        }
    }),
    ("log-will-not-help", |case, is_bad| case.mix(5000, if is_bad { 0 } else { 100 })),
    ("log-would-help", |case, is_bad| case.mix(5000, if is_bad { 64 } else { 62 })),
    ("log-helps", |case, is_bad| {
        let of = |name: &str, calls| Operation {
            protocol: "nfs".to_owned(),
            name: name.to_owned(),
            calls,
            ..Operation::default()
        };
        let writes = if is_bad { 51 } else { 49 };
        case.server().statistics.operations = vec![of("GETATTR", 1000 - writes), of("WRITE", writes)];
    }),
    ("log-off", |case, is_bad| {
        case.log().phase = if is_bad { "off" } else { "on" }.to_owned();
    }),
    ("log-slow", |case, is_bad| {
        let ns = if is_bad { 5_500_000 } else { 4_500_000 };
        let log = case.log();
        log.batches += 100;
        log.write_ns.push((ns, ns + 2, 100));
        *log = log.clone().with_percentiles();
    }),
    ("log-full", |case, is_bad| case.log().waits_for_room = u64::from(is_bad)),
    ("log-not-power-safe", |case, is_bad| {
        case.server().log_device.as_mut().expect("one").is_memory = is_bad;
    }),
    ("file-system-fault", |case, is_bad| {
        case.log().file_systems[0].fault = is_bad.then(|| "EIO".to_owned());
    }),
    ("cpu-busy", |case, is_bad| case.cpu(if is_bad { 199 } else { 201 }, 10, 0)),
    ("run-queue", |case, is_bad| {
        for sample in &mut case.samples {
            sample.running = if is_bad { 5 } else { 4 };
        }
    }),
    ("packets-on-one-cpu", |case, is_bad| case.cpu(400, if is_bad { 301 } else { 299 }, 0)),
    ("stolen-time", |case, is_bad| case.cpu(400, 10, if is_bad { 101 } else { 99 })),
    ("disk-busy", |case, is_bad| {
        let before = case.before.disks[0].counters.clone();
        case.disk().counters.busy_ms = before.busy_ms + if is_bad { 3100 } else { 2900 };
        case.disk().counters.queue_ms = before.queue_ms + 6000;
        case.disk().counters.reads = before.reads + 1000;
        case.disk().counters.read_ms = before.read_ms + 6000;
    }),
    ("disk-slow", |case, is_bad| {
        case.disk().is_rotational = true;
        let before = case.before.disks[0].counters.clone();
        case.disk().counters.reads = before.reads + 100;
        case.disk().counters.read_ms = before.read_ms + if is_bad { 2010 } else { 1990 };
    }),
    ("disk-rate", |case, is_bad| {
        case.disk().is_rotational = true;
        let before = case.before.disks[0].counters.clone();
        case.disk().counters.reads = before.reads + if is_bad { 401 } else { 399 };
        case.disk().counters.read_ms = before.read_ms + 1000;
    }),
    ("io-pressure", |case, is_bad| {
        case.pressure().io.some_us = if is_bad { 1_300_000 } else { 1_200_000 };
    }),
    ("memory-pressure", |case, is_bad| {
        case.pressure().memory.some_us = if is_bad { 260_000 } else { 240_000 };
    }),
    ("read-cache", |case, is_bad| {
        case.nfsd().read_bytes = 100 << 20;
        let before = case.before.disks[0].counters.read_bytes;
        case.disk().counters.read_bytes = before + (if is_bad { 21 << 20 } else { 19 << 20 });
    }),
    ("cpu-will-not-help", |case, is_bad| {
        case.cpu(if is_bad { 510 } else { 490 }, 10, 0);
        slow_disk(case);
    }),
    ("network-will-not-help", |case, is_bad| {
        slow_disk(case);
        case.interface().speed_mbit = Some(1000);
        let before = case.before.interfaces[0].counters.clone();
        let counters = &mut case.interface().counters;
        counters.received_bytes = before.received_bytes;
        counters.sent_bytes = before.sent_bytes + 625_000_000 / 100 * if is_bad { 4 } else { 6 };
    }),
    ("kernel-settings", |case, is_bad| {
        case.after.settings[0].status = if is_bad { SettingStatus::Worse } else { SettingStatus::NotNeeded };
    }),
    ("bbr-without-fq", |case, is_bad| {
        case.after.congestion_control = "bbr".to_owned();
        case.after.queues[0].kind = if is_bad { "fq_codel" } else { "fq" }.to_owned();
    }),
    ("neighbour-table", |case, is_bad| case.after.neighbours = if is_bad { 3277 } else { 3276 }),
    ("arp-shared-network", |case, is_bad| {
        let other = LocalNetwork { interface: "eth1".to_owned(), ..case.after.networks[0].clone() };
        case.after.networks.push(other);
        let status = if is_bad { SettingStatus::Worse } else { SettingStatus::Good };
        for setting in &mut case.after.settings {
            if setting.key.ends_with("arp_ignore") {
                setting.status = status;
            }
        }
    }),
    ("clock-unsynchronised", |case, is_bad| {
        case.after.clock = Some(Clock { is_synchronised: !is_bad, error_s: 0.5 });
    }),
    ("name-server-dead", |case, is_bad| {
        case.after.name_servers[0].answered_s = if is_bad { None } else { Some(1.9) };
    }),
    ("name-server-slow", |case, is_bad| {
        case.after.name_servers[0].answered_s = Some(if is_bad { 0.11 } else { 0.09 });
    }),
];

fn slow_disk(case: &mut Case) {
    let before = case.before.disks[0].counters.clone();
    case.disk().counters.reads = before.reads + 100;
    case.disk().counters.read_ms = before.read_ms + 3000;
}

#[test]
fn every_row_is_found_beyond_its_limit_and_not_before_it() {
    let ids: Vec<&str> = rows().map(|row| row.id).collect();
    let mut with_ways: Vec<&str> = WAYS.iter().map(|(id, _)| *id).collect();
    with_ways.dedup();
    assert_eq!(with_ways, ids, "a way to each row, in the order of the table");
    for (id, way) in WAYS {
        for seed in 0..20 {
            let mut case = healthy(seed);
            // What a log gains is told of every server.
            let is_told = id.starts_with("log-w");
            assert!(
                is_told || !case.has(id),
                "{id} on a healthy machine: {:?}",
                case.report().findings
            );
            way(&mut case, false);
            assert!(!case.has(id), "{id} before its limit: {:?}", case.report().findings);
            let mut case = healthy(seed);
            way(&mut case, true);
            assert!(case.has(id), "{id} beyond its limit");
        }
    }
}

#[test]
fn healthy_machines_have_no_finding() {
    for seed in 0..100 {
        let report = healthy(seed).report();
        // A mix without changes is no fault.
        let wrong: Vec<_> =
            report.findings.iter().filter(|one| one.severity > Severity::Info).collect();
        assert!(wrong.is_empty(), "{seed}: {wrong:?}");
        assert_eq!(report.exit_status(), 0);
    }
}

#[test]
fn a_machine_of_which_nothing_is_known_has_no_finding() {
    let nothing = Facts::default();
    assert_eq!(judge(&nothing, &nothing, &[]).findings, []);
    // Nor does one look without another.
    let case = healthy(1);
    let report = judge(&Facts::default(), &case.after, &[]);
    assert!(
        report.findings.iter().all(|one| one.severity <= Severity::Advice),
        "{:?}",
        report.findings
    );
}

#[test]
fn threads_of_the_kernel_that_are_idle_are_enough() {
    let mut case = healthy(5);
    let (records, waited) = case.before.nfsd_queue.expect("some");
    // On one busy CPU, as Linux 6.12 counts 16 threads for 12 clients.
    case.after.nfsd_queue = Some((records + 1000, waited + 274));
    assert!(!case.has("nfsd-threads"), "{:?}", case.report().findings);
    for sample in &mut case.samples {
        sample.has_idle_nfsd = None;
    }
    assert!(case.has("nfsd-threads"), "by the counters alone where no thread is seen");
}

#[test]
fn a_disk_and_a_server_that_stand_still_are_found_by_few_operations() {
    for (operations, ms, is_found) in [(19, 960, true), (4, 960, false), (19, 99, false)] {
        let mut case = healthy(7);
        let before = case.before.disks[0].counters.clone();
        let disk = &mut case.disk().counters;
        *disk = DiskCounters { writes: before.writes + operations, ..before.clone() };
        disk.write_ms += operations * ms;
        assert_eq!(case.has("disk-slow"), is_found, "{operations} of {ms} ms");
        let before = case.before.mounts[0].counters.operations.clone();
        case.mount().operations = before.clone();
        case.read().operations = before[0].operations + operations;
        case.read().transmissions = before[0].transmissions + operations;
        case.read().response_ms = before[0].response_ms + operations * ms;
        assert_eq!(case.has("server-slow"), is_found, "{operations} of {ms} ms");
    }
}

#[test]
fn few_calls_are_enough_if_many_are_duplicates() {
    for (calls, duplicates, is_found) in [(200, 30, true), (200, 1, false), (99, 30, false)] {
        let mut case = healthy(8);
        case.before.nfsd = Some(Nfsd { threads: 8, ..Nfsd::default() });
        case.after.nfsd = Some(Nfsd { threads: 8, calls, duplicates, ..Nfsd::default() });
        assert_eq!(case.has("duplicate-calls"), is_found, "{duplicates} of {calls}");
    }
}

#[test]
fn small_calls_of_the_kernels_server_are_found() {
    for (mean, is_found) in [(0, false), (1024, true), (4096, false)] {
        let mut case = healthy(6);
        case.nfsd().operations.push(OperationCount { name: "write".to_owned(), count: 1000 });
        case.nfsd().written_bytes = 1000 * mean;
        assert_eq!(case.has("small-calls"), is_found, "{mean}: {:?}", case.report().findings);
    }
}

#[test]
fn the_cache_is_not_judged_by_compressed_bytes() {
    // 100 MiB were read, half of that from disks.
    for (compressed_mib, is_found) in [(0, true), (4, true), (6, false), (100, false)] {
        let mut case = healthy(9);
        let of = |protocol: &str, name: &str, mib: u64| Operation {
            protocol: protocol.to_owned(),
            name: name.to_owned(),
            calls: 1000,
            bytes_out: mib << 20,
            ..Operation::default()
        };
        let reads = [of("nfs", "READ", 0), of("recovery", "READZ", 0)];
        case.before.steadfast.as_mut().expect("one").statistics.operations = reads.to_vec();
        let plain_mib = 100 - compressed_mib;
        case.server().statistics.operations =
            vec![of("nfs", "READ", plain_mib), of("recovery", "READZ", compressed_mib)];
        let before = case.before.disks[0].counters.read_bytes;
        case.disk().counters.read_bytes = before + (50 << 20);
        let findings = case.report().findings;
        assert_eq!(case.has("read-cache"), is_found, "{compressed_mib} MiB: {findings:?}");
    }
}

#[test]
fn what_is_long_past_is_an_advice() {
    let mut case = healthy(3);
    // Nothing comes between the looks.
    case.after = case.before.clone();
    case.after.uptime_s += SECONDS;
    for facts in [&mut case.before, &mut case.after] {
        facts.interfaces[0].counters.receive_errors = facts.interfaces[0].counters.received / 100;
    }
    let report = case.report();
    let found = report.findings.iter().find(|one| one.id == "interface-errors").expect("found");
    assert_eq!(found.severity, Severity::Advice);
    assert!(found.evidence.contains("since the start"), "{}", found.evidence);
}

#[test]
fn the_worst_is_told_first_and_decides_about_the_exit_status() {
    let mut case = healthy(4);
    for id in ["name-server-dead", "interface-slow", "small-transfers"] {
        let (_, way) = WAYS.iter().find(|(known, _)| *known == id).expect("one");
        way(&mut case, true);
    }
    let report = case.report();
    assert_eq!(report.exit_status(), 3);
    assert_eq!(report.findings[0].id, "name-server-dead");
    assert!(report.findings.is_sorted_by(|one, other| one.severity >= other.severity));
    let text = report.text();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
    assert!(
        at("CRITICAL: 10.0.0.53") < at("WARNING: /home")
            && at("WARNING: /home") < at("ADVICE: eth0")
    );
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn settings_of_findings_are_those_of_tune() {
    for row in rows() {
        for key in row.settings {
            assert!(crate::tune::settings().iter().any(|setting| setting.key == *key), "{key}");
        }
        for words in [row.title, row.threshold, row.source, row.action, row.gain] {
            assert!(
                !words.is_empty() && !words.contains("  ") && !words.contains('|'),
                "{}: {words:?}",
                row.id
            );
        }
    }
}

/// The page of the documentation is made from the table. `BLESS=1` writes it.
#[test]
fn the_documentation_has_the_table() {
    const BEGIN: &str = "<!-- begin findings -->\n";
    const END: &str = "<!-- end findings -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let page = std::fs::read_to_string(path).expect("docs/doctor.md");
    let (head, rest) = page.split_once(BEGIN).expect("a begin");
    let (table, tail) = rest.split_once(END).expect("an end");
    let wanted = format!("\n{}\n", catalogue());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, format!("{head}{BEGIN}{wanted}{END}{tail}")).expect("written");
        return;
    }
    assert!(table == wanted, "docs/doctor.md is old: run this test with BLESS=1");
}
