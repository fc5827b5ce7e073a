//! What is measured: which load on which servers, and which figures of its report are told.

use crate::servers::Peer;

/// How servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the servers' CPUs.
    Usual,
    /// The same, with most of what they may have open left to connections.
    Crowd,
    /// On one CPU.
    OneCore,
    /// Wherever they like, with so many workers, each with a fixed share of a CPU.
    Workers(usize),
    /// On the servers' CPUs, with files in memory only: nothing waits for a disk.
    Memory,
}

/// All places, in the order in which they are measured.
pub(super) const PLACES: [Place; 6] = [
    Place::Usual,
    Place::Crowd,
    Place::OneCore,
    Place::Workers(1),
    Place::Workers(2),
    Place::Memory,
];

const BOTH: &[Peer] = &[Peer::Ganesha, Peer::Steadfast];
const OURS: &[Peer] = &[Peer::Steadfast];
const CANNED: &[Peer] = &[Peer::Canned];

/// A load at a share of what another case reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareOf {
    pub(super) title: &'static str,
    pub(super) figure: &'static str,
    pub(super) share: f64,
}

/// One load.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) title: &'static str,
    pub(super) place: Place,
    pub(super) peers: &'static [Peer],
    /// Which generator.
    pub(super) load: &'static str,
    /// What follows the server and the share on its command line.
    pub(super) arguments: Vec<String>,
    /// The rate, where it depends on what was measured before.
    pub(super) load_of: Option<ShareOf>,
    /// All programs have the system's congestion control; else the one that kernels usually have.
    pub(super) has_system_tcp: bool,
    /// No CPU is idle meanwhile, whichever server is measured.
    pub(super) has_busy_cpus: bool,
    /// What another client does meanwhile, as words for `bench op`.
    pub(super) beside: Option<&'static str>,
    /// Names of figures, and where they are in the report.
    pub(super) figures: Vec<(String, String)>,
}

pub(super) const CALLS: &str = "calls/s";
pub(super) const P50: &str = "p50 µs";
pub(super) const P99: &str = "p99 µs";
pub(super) const SERVER: &str = "server µs/call";
pub(super) const CLIENT: &str = "client µs/call";
pub(super) const MIB: &str = "MiB/s";
pub(super) const SERVER_MIB: &str = "server µs/MiB";
/// Of one CPU.
pub(super) const SERVER_SHARE: &str = "server CPU %";
pub(super) const LOOPBACK: &str = "loopback MiB/s";
pub(super) const LOOPBACK_FROM_MEMORY: &str = "loopback MiB/s, data from memory";
pub(super) const LAST: &str = "last mounted s";
pub(super) const MOUNTED: &str = "mounted";
/// What the client beside reached.
pub(super) const BESIDE: &str = "calls/s of the other client";
/// The replies that Steadfast keeps for duplicates: their memory, and for how long they reach back.
pub(super) const KEPT_MB: &str = "replies kept, MB";
pub(super) const KEPT_SECONDS: &str = "replies kept, s";

pub(super) const GETATTR: &str = "GETATTR 16×8";
pub(super) const ACCESS: &str = "ACCESS 16×8";
pub(super) const LOOKUP: &str = "LOOKUP 16×8";
pub(super) const READ_4K: &str = "READ 4 KiB 16×8";
pub(super) const READ_32K: &str = "READ 32 KiB 16×8";
pub(super) const TRAVERSAL: &str = "traversal 16×8";
/// The same clients, each on a connection of its own.
pub(super) const TRAVERSAL_128: &str = "traversal, 128 clients";
pub(super) const MIX: &str = "nhfsstone without its stable calls 16×8";
pub(super) const NULL_CANNED: &str = "canned reply 16×8";
pub(super) const ALONE: &str = "GETATTR 1×1";
pub(super) const ALONE_CANNED: &str = "canned reply 1×1";
pub(super) const FAIR: &str = "GETATTR 1×1 beside another client's 64×8";
pub(super) const CHANGES: &str = "SETATTR 16×8, files in memory";
pub(super) const TURNS_CANNED: &str = "canned reply 200×1";
pub(super) const MANY: &str = "GETATTR 64×8";
pub(super) const TRAVERSAL_200: &str = "traversal, 200 clients";
/// The same clients, eight of which share a connection.
pub(super) const TRAVERSAL_25X8: &str = "traversal, 200 clients, 25×8";
/// A connection and an address each, by which go what eight processes of theirs call.
pub(super) const TRAVERSAL_200X8: &str = "traversal, 200 clients, 200×8";
pub(super) const WALKS: &str = "walk";
pub(super) const STREAM: &str = "READ 1 MiB, streams 4×2";
pub(super) const STREAM_SYSTEM_TCP: &str = "READ 1 MiB, streams 4×2, the system's TCP";
pub(super) const STORM: &str = "mountstorm, 2000 clients";
pub(super) const STORM_BUSY: &str = "mountstorm, 2000 clients, saturated";
pub(super) const STORM_LARGE: &str = "mountstorm, 10,000 clients";
pub(super) const PEAK: &str = "one core: nhfsstone without its stable calls, peak";
pub(super) const HALF: &str = "one core: the same at half of the own peak";
pub(super) const HALF_OF_BUSY_CPUS: &str =
    "one core: the same at half of the own peak, no CPU idle";
pub(super) const RATES: &str = "one core: the same at held rates";
pub(super) const UDP: [(usize, &str); 2] = [
    (1, "READ 32 KiB over UDP, 1 worker with a quarter of a CPU"),
    (2, "READ 32 KiB over UDP, 2 workers with a quarter of a CPU each"),
];

/// The rates of the open loop, calls a second: to twice what ganesha is known to hold on one
/// core of a fast machine, and beyond; with half of each that somebody may hold at the most.
pub(super) const RATES_PER_SECOND: [u32; 16] = [
    4_000, 8_000, 12_000, 16_000, 20_000, 24_000, 28_000, 32_000, 40_000, 50_000, 60_000, 70_000,
    80_000, 100_000, 120_000, 140_000,
];
/// Virtual clients that walk.
pub(super) const WALKERS: [usize; 5] = [4, 44, 208, 1000, 4000];

/// Walks are measured for so long at least.
const WALK_SECONDS: f64 = 5.0;

/// The name of a figure at one point of a curve.
pub(super) fn at(figure: &str, point: impl std::fmt::Display) -> String {
    format!("{figure} at {point}")
}

pub(super) const SLOWEST_MOUNT: &str = "slowest mount ms";
pub(super) const FAILED_MOUNTS: &str = "failed mounts";
pub(super) const RUNNING: &str = "running tasks";
pub(super) const BEHIND: &str = "behind s";

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn figures(prefix: &str, all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, key)| ((*name).to_owned(), format!("{prefix}/{key}"))).collect()
}

/// Figures that every closed loop has.
const USUAL: [(&str, &str); 5] = [
    (CALLS, "calls_per_second"),
    (P50, "p50_us"),
    (P99, "p99_us"),
    (SERVER, "server_cpu_us_per_call"),
    (CLIENT, "client_cpu_us_per_call"),
];

fn case(title: &'static str, peers: &'static [Peer], load: &'static str, arguments: &str) -> Case {
    Case {
        title,
        place: Place::Usual,
        peers,
        load,
        arguments: words(arguments),
        load_of: None,
        has_system_tcp: false,
        has_busy_cpus: false,
        beside: None,
        figures: Vec::new(),
    }
}

fn op(title: &'static str, peers: &'static [Peer], arguments: &str) -> Case {
    Case { figures: figures("/reports/0", &USUAL), ..case(title, peers, "op", arguments) }
}

fn walk(title: &'static str, inodes: usize, clients: &str) -> Case {
    let arguments = format!("--inodes {inodes} --mount-every 0 {clients}");
    Case { figures: figures("/points/0", &USUAL), ..case(title, BOTH, "walk", &arguments) }
}

fn storm(title: &'static str, arguments: &str) -> Case {
    let all = [
        (MOUNTED, "succeeded"),
        (LAST, "last_mounted_seconds"),
        ("retries", "retries"),
        (P99, "p99_us"),
        ("server µs/mount", "server_cpu_us_per_call"),
    ];
    Case { figures: figures("", &all), ..case(title, BOTH, "mountstorm", arguments) }
}

/// On one core. The working set is small, since what is measured is the server and not how fast its
/// disk takes a gigabyte of files, and the same whatever the load, so that rates can be compared: the
/// descriptors that this machine allows are few.
fn mix(title: &'static str, arguments: &str, figures: Vec<(String, String)>) -> Case {
    let arguments = format!("--without-stable --files 1000 {arguments}");
    let place = Place::OneCore;
    Case { place, figures, ..case(title, BOTH, "nhfsstone", &arguments) }
}

/// All cases; those with `--seconds` get so many.
pub(super) fn all(inodes: usize, seconds: f64) -> Vec<Case> {
    let mut cases = vec![
        op(GETATTR, BOTH, "getattr"),
        op(ACCESS, BOTH, "access"),
        op(NULL_CANNED, CANNED, "null"),
        op(LOOKUP, BOTH, "lookup"),
        op(READ_4K, BOTH, "read:4096"),
        op(READ_32K, BOTH, "read:32768"),
        op(ALONE, BOTH, "getattr --connections 1 --depth 1"),
        op(ALONE_CANNED, CANNED, "null --connections 1 --depth 1"),
        Case {
            beside: Some("getattr --connections 64 --depth 8 --one-address"),
            ..op(FAIR, BOTH, "getattr --connections 1 --depth 1")
        },
        Case { place: Place::Memory, ..op(CHANGES, OURS, "setattr") },
        op(MANY, BOTH, "getattr --connections 64 --depth 8"),
        Case { place: Place::Usual, ..mix(MIX, "--load max", figures("/levels/0", &USUAL)) },
        walk(TRAVERSAL, inodes, "--clients 128 --per-connection 8"),
        walk(TRAVERSAL_128, inodes, "--clients 128"),
        walk(TRAVERSAL_200, inodes, "--clients 200"),
        walk(TRAVERSAL_25X8, inodes, "--clients 200 --per-connection 8"),
        walk(TRAVERSAL_200X8, inodes, "--clients 1600 --per-connection 8"),
        op(TURNS_CANNED, CANNED, "null --connections 200 --depth 1"),
    ];
    let list = |items: &[String]| items.join(",");
    let point = |index: usize, clients: usize| {
        [
            (CALLS, "calls_per_second"),
            (SERVER, "server_cpu_us_per_call"),
            (P99, "p99_us"),
            (SLOWEST_MOUNT, "mounts/max_ms"),
            (FAILED_MOUNTS, "mounts/failed"),
            (RUNNING, "running_tasks"),
        ]
        .map(|(name, key)| (at(name, clients), format!("/points/{index}/{key}")))
    };
    let clients = list(&WALKERS.map(|clients| clients.to_string()));
    let arguments = format!("--inodes {inodes} --clients {clients} --mount-every 0.2");
    cases.push(Case {
        figures: WALKERS.iter().enumerate().flat_map(|(i, n)| point(i, *n)).collect(),
        ..case(WALKS, BOTH, "walk", &arguments)
    });
    let of_streams = [
        (MIB, "mib_per_second"),
        (SERVER_MIB, "server_cpu_us_per_mib"),
        ("client µs/MiB", "client_cpu_us_per_mib"),
        (LOOPBACK, "loopback_limit/mib_per_second"),
        (LOOPBACK_FROM_MEMORY, "loopback_limit/from_memory_mib_per_second"),
    ];
    for (title, has_system_tcp) in [(STREAM, false), (STREAM_SYSTEM_TCP, true)] {
        let case = case(title, BOTH, "stream", "--streams 4 --window 2 --loopback-limit");
        cases.push(Case { has_system_tcp, figures: figures("", &of_streams), ..case });
    }
    cases.push(storm(STORM, "--clients 2000"));
    cases.push(storm(STORM_BUSY, "--clients 2000 --beside 64 --beside-depth 8"));
    cases.push(Case { place: Place::Crowd, ..storm(STORM_LARGE, "--clients 10000") });
    cases.push(mix(PEAK, "--load max", figures("/levels/0", &USUAL)));
    for (title, has_busy_cpus) in [(HALF, false), (HALF_OF_BUSY_CPUS, true)] {
        cases.push(Case {
            load_of: Some(ShareOf { title: PEAK, figure: CALLS, share: 0.5 }),
            has_busy_cpus,
            ..mix(title, "", figures("/levels/0", &USUAL))
        });
    }
    let level = |index: usize, rate: u32| {
        [(CALLS, "calls_per_second"), (P50, "p50_us"), (P99, "p99_us"), (BEHIND, "behind_seconds")]
            .map(|(name, key)| (at(name, rate), format!("/levels/{index}/{key}")))
    };
    let rates = list(&RATES_PER_SECOND.map(|rate| rate.to_string()));
    cases.push(mix(
        RATES,
        // Enough lanes that none is waited for at any rate that is held.
        &format!("--load {rates} --clients 32"),
        RATES_PER_SECOND.iter().enumerate().flat_map(|(i, rate)| level(i, *rate)).collect(),
    ));
    for (workers, title) in UDP {
        let load = "read:32768 --udp --connections 16 --depth 2 --threads 2";
        cases.push(Case { place: Place::Workers(workers), ..op(title, OURS, load) });
    }
    for case in cases.iter_mut().filter(|case| case.load != "mountstorm") {
        let mut seconds = seconds;
        if case.load == "walk" {
            // Clients that begin together find what the others have just looked at, and are the
            // longer together the more they are.
            case.arguments.extend(words("--warm-up 4"));
            seconds = seconds.max(WALK_SECONDS);
        }
        case.arguments.extend(["--seconds".to_owned(), seconds.to_string()]);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_tell_cases_apart_and_what_depends_comes_later() {
        let cases = all(1000, 1.0);
        for (index, case) in cases.iter().enumerate() {
            let first = cases.iter().position(|other| other.title == case.title);
            assert_eq!(first, Some(index), "{}", case.title);
            if let Some(share) = case.load_of {
                let earlier = cases.iter().take(index).find(|other| other.title == share.title);
                let earlier = earlier.expect("an earlier case");
                assert_eq!(earlier.place, case.place);
                assert!(earlier.figures.iter().any(|(name, _)| name == share.figure));
            }
            assert!(PLACES.contains(&case.place));
        }
    }
}
