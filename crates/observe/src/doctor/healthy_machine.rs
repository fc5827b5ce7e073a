//! A machine on which nothing is wrong, at two looks.

use super::*;

/// Numbers that differ from run to run of a test, and are the same in each run of it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

pub(super) fn operation(name: &str, operations: u64, response_ms: u64) -> MountOperation {
    MountOperation {
        name: name.to_owned(),
        operations,
        transmissions: operations,
        response_ms,
        execute_ms: response_ms,
        ..MountOperation::default()
    }
}

/// A machine that serves by both servers, mounts, and is well.
pub(super) fn healthy(seed: u64) -> Case {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        random.below(2);
    }
    let uptime_s = 100.0 + random.below(10_000_000) as f64;
    let mut facts = Facts { uptime_s, ..Facts::default() };
    let busy = 1 + random.below(1000);
    add_mount(&mut facts, busy, &mut random);
    add_interface(&mut facts, busy, &mut random);
    add_connections(&mut facts, busy, &mut random);
    add_hardware(&mut facts, busy, &mut random);
    add_settings(&mut facts, &mut random);
    add_time_and_names(&mut facts, &mut random);
    add_nfsd(&mut facts, &mut random);
    facts.steadfast = Some(server(&mut random));
    let mut after = facts.clone();
    pass(&mut after, &mut random);
    let samples = (0..50)
        .map(|number| Sample {
            uptime_s: uptime_s + f64::from(number) / 10.0,
            running: random.below(3),
            blocked: 0,
            carried: vec![("eth0".to_owned(), u64::from(number as u32) * 1000, 0)],
            has_idle_nfsd: Some(number % 10 != 0),
        })
        .collect();
    Case { before: facts, after, samples }
}

/// A mount, and the calls of the kernel's client.
fn add_mount(facts: &mut Facts, busy: u64, random: &mut Random) {
    facts.mounts = vec![MountFacts {
        counters: NfsMount {
            device: "server:/home".to_owned(),
            mount_point: "/home".to_owned(),
            kind: "nfs4".to_owned(),
            options:
                "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,local_lock=none"
                    .to_owned(),
            age_s: 50 + random.below(100_000),
            events: vec![0; 27],
            bytes: vec![0; 8],
            transports: vec![Transport {
                kind: "tcp".to_owned(),
                connects: 1,
                ..Transport::default()
            }],
            operations: vec![
                operation("read", 10_000 * busy, 5000 * busy),
                operation("getattr", 1000, 300),
            ],
        },
        ahead_s: Some(-(random.below(1000) as f64)),
    }];
    facts.client = Some(RpcClient { calls: 11_000 * busy, ..RpcClient::default() });
}

/// An interface, and what comes in by it.
fn add_interface(facts: &mut Facts, busy: u64, random: &mut Random) {
    facts.interfaces = vec![Interface {
        counters: InterfaceCounters {
            name: "eth0".to_owned(),
            received_bytes: random.below(1 << 40),
            received: 1_000_000 * busy,
            // A tenth of what would be felt.
            receive_errors: 60 * busy,
            sent_bytes: random.below(1 << 40),
            sent: 1_000_000 * busy,
            ..InterfaceCounters::default()
        },
        missed: 0,
        speed_mbit: Some([1000, 10_000, 25_000][random.below(3) as usize]),
        is_half_duplex: false,
        carrier_changes: random.below(10),
        is_device: true,
    }];
    facts.queues = vec![InterfaceQueue {
        interface: "eth0".to_owned(),
        kind: "fq".to_owned(),
        drops: random.below(5),
    }];
    facts.softnet = vec![Softnet { processed: 1_000_000 * busy, dropped: 3, squeezed: 9 }; 2];
}

/// Connections, and the counters of their protocols.
fn add_connections(facts: &mut Facts, busy: u64, random: &mut Random) {
    facts.nfs_udp = vec![UdpSocket { port: 2049, inode: 7, ..UdpSocket::default() }];
    facts.nfs_tcp = vec![TcpState {
        local: "10.0.0.1:2049".parse().expect("one"),
        peer: "10.0.0.2:900".parse().expect("one"),
        retransmitted: random.below(10),
        needless: 0,
        sent: 100_000,
        out_of_order: random.below(10),
        received: 100_000,
        round_trip_us: 200,
    }];
    facts.networks = vec![LocalNetwork {
        interface: "eth0".to_owned(),
        network: "0000000A".to_owned(),
        mask: "00FFFFFF".to_owned(),
    }];
    facts.neighbours = random.below(500);
    for (counter, count) in [
        ("Tcp.OutSegs", 1_000_000 * busy),
        ("Tcp.InSegs", 1_000_000 * busy),
        ("Tcp.RetransSegs", 100 * busy),
        ("TcpExt.TCPDSACKRecv", 10 * busy),
        ("Udp.InDatagrams", 100_000),
        ("Udp.RcvbufErrors", 0),
        ("Udp.OutDatagrams", 100_000),
        ("Udp.SndbufErrors", 0),
        ("Ip.ReasmReqds", 100_000),
        ("Ip.ReasmFails", 0),
        ("TcpExt.ListenDrops", 0),
        ("TcpExt.PruneCalled", random.below(10)),
    ] {
        facts.protocols.insert(counter.to_owned(), count);
    }
}

/// CPUs, memory and a disk.
fn add_hardware(facts: &mut Facts, busy: u64, random: &mut Random) {
    let cpu = CpuTimes { total: 1_000_000, idle: 900_000, soft_interrupt: 1000, stolen: 100 };
    facts.cpus = Stat { all: cpu, each: vec![cpu; 2], running: 1, blocked: 0 };
    facts.pressure = Some(Pressures::default());
    facts.memory =
        BTreeMap::from([("MemTotal".to_owned(), 8 << 20), ("MemAvailable".to_owned(), 4 << 20)]);
    facts.disks = vec![Disk {
        counters: DiskCounters {
            name: "sda".to_owned(),
            reads: 1000 * busy,
            ..DiskCounters::default()
        },
        is_rotational: random.below(2) == 0,
    }];
}

/// Settings, which are as `tune` would have them.
fn add_settings(facts: &mut Facts, random: &mut Random) {
    facts.congestion_control = ["cubic", "bbr"][random.below(2) as usize].to_owned();
    facts.default_queue = "fq".to_owned();
    facts.settings = crate::tune::settings()
        .iter()
        .map(|setting| SettingState {
            key: setting.key.to_owned(),
            reason: setting.reason,
            source: setting.source,
            present: Some("4096".to_owned()),
            proposed: Some("4096".to_owned()),
            status: SettingStatus::Good,
        })
        .collect();
}

/// The clock, and a name server.
fn add_time_and_names(facts: &mut Facts, random: &mut Random) {
    facts.clock = Some(Clock { is_synchronised: true, error_s: random.below(100) as f64 / 1000.0 });
    facts.name_servers = vec![NameServer {
        address: "10.0.0.53:53".parse().expect("one"),
        answered_s: Some(random.below(99) as f64 / 1000.0),
        waited_s: 2.0,
        timeout_s: 10,
        refusal: None,
    }];
}

/// The kernel's server.
fn add_nfsd(facts: &mut Facts, random: &mut Random) {
    let operations = vec![OperationCount { name: "read".to_owned(), count: 100_000 }];
    facts.nfsd = Some(Nfsd { threads: 8, calls: 100_000, operations, ..Nfsd::default() });
    facts.nfsd_queue = Some((100_000, random.below(1000)));
    facts.exported = vec![Exported {
        path: "/srv".to_owned(),
        client: "*".to_owned(),
        options: "rw,sync,no_subtree_check".to_owned(),
    }];
}

fn server(random: &mut Random) -> Steadfast {
    let log = LogFigures {
        phase: "on".to_owned(),
        ring_bytes: 256 << 20,
        used_bytes: random.below(100 << 20),
        batches: 1000,
        write_ns: vec![(65_536, 131_071, 1000)],
        file_systems: vec![FileSystemFigures {
            path: "/srv".to_owned(),
            ..FileSystemFigures::default()
        }],
        ..LogFigures::default()
    };
    Steadfast {
        statistics: Statistics {
            version: 1,
            process: 7,
            started_unix_ms: 1000,
            taken_unix_ms: 100_000,
            log: Some(log.with_percentiles()),
            server: BTreeMap::from([("calls".to_owned(), 1000)]),
            ..Statistics::default()
        },
        log_device: Some(LogDevice {
            path: "/var/l".to_owned(),
            disk: "sda".to_owned(),
            ..LogDevice::default()
        }),
        clients: Some(ClientsReport {
            clients: vec![client("one", "10.0.0.2:900"), client("two", "10.0.0.3:900")],
            ..ClientsReport::default()
        }),
        ..Steadfast::default()
    }
}

pub(super) fn client(name: &str, address: &str) -> ClientStatus {
    ClientStatus {
        name: name.to_owned(),
        address: address.to_owned(),
        protocol: "NFSv4.1+".to_owned(),
        ..ClientStatus::default()
    }
}

/// Five seconds of little work.
fn pass(after: &mut Facts, random: &mut Random) {
    after.uptime_s += SECONDS;
    let mount = &mut after.mounts[0].counters;
    mount.age_s += SECONDS as u64;
    mount.operations[0].operations += 1000;
    mount.operations[0].transmissions += 1000;
    mount.operations[0].response_ms += 1000 + random.below(5000);
    let counters = &mut after.interfaces[0].counters;
    counters.received_bytes += random.below(50 << 20);
    counters.received += 10_000;
    counters.sent_bytes += random.below(50 << 20);
    counters.sent += 10_000;
    after.softnet[0].processed += 20_000;
    after.nfs_tcp[0].sent += 10_000;
    after.nfs_tcp[0].received += 10_000;
    for (counter, count) in [
        ("Tcp.OutSegs", 10_000),
        ("Tcp.InSegs", 10_000),
        ("Tcp.RetransSegs", random.below(3)),
        ("Udp.InDatagrams", 1000),
        ("Udp.OutDatagrams", 1000),
        ("Ip.ReasmReqds", 1000),
    ] {
        *after.protocols.entry(counter.to_owned()).or_default() += count;
    }
    let spent = |times: &mut CpuTimes, ticks: u64, idle: u64| {
        times.total += ticks;
        times.idle += idle;
        times.soft_interrupt += ticks / 50;
    };
    spent(&mut after.cpus.all, 1000, 300 + random.below(600));
    spent(&mut after.cpus.each[0], 500, 200);
    spent(&mut after.cpus.each[1], 500, 200);
    let disk = &mut after.disks[0].counters;
    let reads = random.below(300);
    disk.reads += reads;
    disk.read_ms += reads * random.below(10);
    disk.busy_ms += random.below(2000);
    disk.queue_ms += random.below(2000);
    let pressure = after.pressure.as_mut().expect("some");
    pressure.cpu.some_us += random.below(2_000_000);
    pressure.io.some_us += random.below(1_000_000);
    pressure.memory.some_us += random.below(100_000);
    let nfsd = after.nfsd.as_mut().expect("one");
    nfsd.calls += 1000;
    nfsd.duplicates += random.below(3);
    nfsd.operations[0].count += 1000;
    after.nfsd_queue =
        after.nfsd_queue.map(|(records, waited)| (records + 1000, waited + random.below(90)));
    let statistics = &mut after.steadfast.as_mut().expect("one").statistics;
    statistics.taken_unix_ms += 5000;
    *statistics.server.entry("calls".to_owned()).or_default() += 1000;
}
