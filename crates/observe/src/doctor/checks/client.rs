//! Mounts of the kernel's client, by what it counts itself.

use std::collections::HashMap;

use super::super::facts::MountFacts;
use super::super::parse::mountstats::{Bytes, Event, NfsMount};
use super::{CALLS_AGAIN_MAX, Count, Found, Row, Severity, Share, View, bytes, percent};

/// A tenth more is felt (Legato, "Retransmissions").
const FELT: f64 = 0.1;
/// Calls in the interval that measure something.
const CALLS_LEAST: u64 = 50;
/// Of fewer calls, so many that were sent again do.
const AGAIN_LEAST: u64 = 5;
/// Reads under low to medium load took so long (Legato, "Retransmissions").
const RESPONSE_MS: f64 = 30.0;
/// A user notices each wait of so many ms.
const RESPONSE_SLOW_MS: f64 = 100.0;
/// Hit rates are normally higher (Legato, "NFS Server Performance in UNIX").
const HIT_RATE: f64 = 0.8;
/// Clocks that differ by more confuse make(1) and its like.
const AHEAD_S: f64 = 1.0;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "nfs-retransmissions",
        title: "calls are sent again, and waiting for that is felt",
        threshold: "calls sent again × timer > 10 % of the measured response time (0.42 % of the calls where a read \
                    takes 30 ms and the timer is 0.7 s); critical from 100 % on",
        source: "Legato (000), Retransmissions, with the mount's own times",
        action: "find what loses packets: `steadfast doctor` on the server, and the findings on interfaces here; \
                 mount with `proto=tcp`",
        gain: "the response time without the waits for the timer",
        settings: &["net.core.rmem_max", "net.core.netdev_max_backlog"],
        check: retransmissions,
    },
    Row {
        id: "server-slow",
        title: "the server answers slowly",
        threshold: "mean response time ≥ 30 ms; warning from 100 ms on",
        source: "Legato (000): 30 ms is a read under low to medium load",
        action: "run `steadfast doctor` on the server: its disks, its CPUs and its log decide",
        gain: "what the server's findings say",
        settings: &[],
        check: slow_server,
    },
    Row {
        id: "client-queue",
        title: "calls wait on this client before they are sent",
        threshold: "mean wait ≥ 1 ms and ≥ half of the mean response time",
        source: "nfs(5), nconnect; kernel, net/sunrpc",
        action: "mount with `nconnect=4`, or more slots of a session (`max_session_slots` of the module nfs)",
        gain: "the wait",
        settings: &[],
        check: queue,
    },
    Row {
        id: "try-later",
        title: "the server asks to try later",
        threshold: "≥ 5 replies JUKEBOX or DELAY, and ≥ 1 % of the calls",
        source: "RFC 1813 §2.6, RFC 8881 §15.1.1.3: the client waits for seconds then",
        action: "look at the server: a recall that a client does not answer, a disk that hangs, a name service",
        gain: "0.1 to 15 s for each such call",
        settings: &[],
        check: try_later,
    },
    Row {
        id: "reconnects",
        title: "the connection to the server breaks again and again",
        threshold: "one connection of a mount was made ≥ 2 times between the looks",
        source: "mountstats, xprt",
        action: "look at the server's log, and at firewalls that forget connections",
        gain: "calls in flight need not be sent again",
        settings: &[],
        check: reconnects,
    },
    Row {
        id: "small-transfers",
        title: "the mount reads or writes in small pieces",
        threshold: "rsize or wsize < 64 KiB by TCP, < 32 KiB by UDP; warning under 8 KiB",
        source: "Legato (000), PC-NFS: small synchronous writes cost up to 48 disk writes for 8 KiB",
        action: "mount without `rsize=` and `wsize=`: client and server then take the largest",
        gain: "as many calls fewer as the pieces are smaller",
        settings: &[],
        check: small_transfers,
    },
    Row {
        id: "mount-udp",
        title: "the mount uses datagrams",
        threshold: "proto=udp",
        source: "SGI (001): UDP was limited to 145 MiB/s, \"TCP where possible\"; nfs(5), using NFS over UDP",
        action: "mount with `proto=tcp`",
        gain: "a lost packet costs one packet, not a call of several; no data is damaged by reused fragment numbers",
        settings: &[],
        check: |view| option(view, |mount| mount.is_udp().then(|| "proto=udp".to_owned())),
    },
    Row {
        id: "mount-nolock",
        title: "locks stay on this client",
        threshold: "nolock or local_lock of an NFSv3 mount that may write",
        source: "nfs(5), nolock",
        action: "mount without `nolock` if programs of several clients lock the same files",
        gain: "locks that other clients see",
        settings: &[],
        check: |view| option(view, without_locks),
    },
    Row {
        id: "mount-soft",
        title: "a slow server makes programs lose data",
        threshold: "soft on a mount that may write",
        source: "nfs(5), soft",
        action: "mount with `hard`, or `softerr` for programs that look at errors of close(2)",
        gain: "writes that do not vanish when the server is slow",
        settings: &[],
        check: |view| {
            option(view, |mount| {
                let is_soft = mount.has_option("soft") && !mount.has_option("ro");
                is_soft.then(|| "soft, and not ro".to_owned())
            })
        },
    },
    Row {
        id: "mount-noac",
        title: "attributes are not kept: each access asks the server",
        threshold: "noac, actimeo=0 or lookupcache=none",
        source: "nfs(5), noac; SGI (001): a traversal was mostly redundant ACCESS and GETATTR",
        action: "mount without it, and lock files that several clients change",
        gain: "most GETATTR, ACCESS and LOOKUP calls",
        settings: &[],
        check: |view| option(view, without_cache),
    },
    Row {
        id: "name-cache",
        title: "names and rights are asked for again and again",
        threshold: "< 80 % of the looks at names and rights are answered from memory",
        source: "Legato (000): hit rates over 80 % are normal; SGI (001), the traversal load",
        action: "mount with a longer `acdirmax=` where directories change seldom; give the client memory",
        gain: "a round trip for each look-up that is saved",
        settings: &["vm.vfs_cache_pressure"],
        check: name_cache,
    },
    Row {
        id: "page-cache",
        title: "files are read from the server again and again",
        threshold: "< 80 % of what programs read is in memory; an advice only if memory is short, too",
        source: "Legato (000): hit rates over 80 % are normal; a lower one asks for memory",
        action: "give the client memory, or use a local disk for files of one client alone",
        gain: "reads at the speed of memory",
        settings: &[],
        check: page_cache,
    },
    Row {
        id: "failing-calls",
        title: "calls for known files fail",
        threshold: "≥ 10 of GETATTR, ACCESS, READ and WRITE, and ≥ 1 % of these",
        source: "RFC 1813 §2.6: NFS3ERR_STALE, NFS3ERR_ACCES",
        action: "look for stale handles (`dmesg`, programs with ESTALE) and for squashed users; mount again where the \
                 server's file system was replaced",
        gain: "programs that work",
        settings: &[],
        check: failing,
    },
    Row {
        id: "server-clock",
        title: "the server's clock is ahead of this client's",
        threshold: "a mounted directory was changed > 1 s in the future",
        source: "make(1): \"Clock skew detected\"; Kerberos refuses 5 min",
        action: "run a time service (chrony, systemd-timesyncd) on both",
        gain: "make, backups and Kerberos that work",
        settings: &[],
        check: server_clock,
    },
];

/// Mounts, with what happened to each between the looks.
fn mounts<'a>(view: &View<'a>) -> impl Iterator<Item = (NfsMount, &'a NfsMount)> {
    // There may be thousands.
    let key = |mount: &'a NfsMount| (mount.mount_point.as_str(), mount.device.as_str());
    let before: HashMap<_, &MountFacts> =
        view.before.mounts.iter().map(|one| (key(&one.counters), one)).collect();
    view.after.mounts.iter().map(move |MountFacts { counters: after, .. }| {
        let found = before.get(&key(after));
        (found.map_or_else(|| after.clone(), |found| after.since(&found.counters)), after)
    })
}

/// The interval if enough happened in it, else since the mount. Of a server that stands still, few calls are enough, if
/// they were sent again.
fn measured(view: &View<'_>) -> Vec<(NfsMount, bool)> {
    mounts(view)
        .filter_map(|(now, ever)| {
            let total = now.total();
            if total.operations >= CALLS_LEAST || total.retransmissions() >= AGAIN_LEAST {
                return Some((now, true));
            }
            (ever.total().operations >= CALLS_LEAST * 10).then(|| (ever.clone(), false))
        })
        .collect()
}

fn at_most_advice(is_now: bool, severity: Severity) -> Severity {
    if is_now { severity } else { severity.min(Severity::Advice) }
}

fn when(view: &View<'_>, is_now: bool) -> String {
    if is_now { view.interval() } else { "since it was mounted".to_owned() }
}

fn retransmissions(view: &View<'_>) -> Vec<Found> {
    if view.after.mounts.is_empty() {
        return machine_retransmissions(view);
    }
    let of = |(mount, is_now): &(NfsMount, bool)| {
        let total = mount.total();
        // One may be of a connection that was made again.
        let again = total.retransmissions();
        if again < 2 {
            return None;
        }
        let ratio = again as f64 / total.operations.max(1) as f64;
        // The kernel counts whole ms: an answer that took less took half of one.
        let response_s = (total.response_ms as f64 / total.operations.max(1) as f64).max(0.5) / 1e3;
        let limit = FELT * response_s / mount.timer_s();
        let cost = ratio * mount.timer_s() / response_s;
        let severity = if cost >= 1.0 { Severity::Critical } else { Severity::Warning };
        (ratio > limit).then(|| {
            Found::new(
                at_most_advice(*is_now, severity),
                &mount.mount_point,
                ratio,
                limit,
                format!(
                    "{} ({}) {}; with {:.1} ms a response and a timer of {:.1} s, {} would be felt",
                    if ratio > 1.0 {
                        format!("{} calls were sent again {again} times", total.operations)
                    } else {
                        format!("{again} of {} calls were sent again", total.operations)
                    },
                    percent(ratio),
                    when(view, *is_now),
                    response_s * 1e3,
                    mount.timer_s(),
                    percent(limit),
                ),
            )
        })
    };
    measured(view).iter().filter_map(of).collect()
}

/// Where the mounts cannot be seen, the kernel's sum.
fn machine_retransmissions(view: &View<'_>) -> Vec<Found> {
    let Some(after) = &view.after.client else { return Vec::new() };
    let before = view.before.client.clone().unwrap_or_default();
    let again = Count::of(before.retransmissions, after.retransmissions);
    let Some(share) = Share::of(again, Count::of(before.calls, after.calls), CALLS_LEAST) else {
        return Vec::new();
    };
    if share.part < 2 || share.ratio() <= CALLS_AGAIN_MAX {
        return Vec::new();
    }
    let evidence = share.text(view, "calls were sent again");
    let severity = share.severity(Severity::Warning);
    vec![Found::new(severity, "", share.ratio(), CALLS_AGAIN_MAX, evidence)]
}

fn slow_server(view: &View<'_>) -> Vec<Found> {
    let of = |(now, _): (NfsMount, &NfsMount)| {
        let total = now.total();
        let mean = total.response_ms as f64 / total.operations.max(1) as f64;
        // One that stands still answers few.
        let least = if mean >= RESPONSE_SLOW_MS { 5 } else { 20 };
        if total.operations < least || mean < RESPONSE_MS {
            return None;
        }
        let slowest = now.operations.iter().max_by_key(|one| one.response_ms)?;
        let severity = if mean >= RESPONSE_SLOW_MS { Severity::Warning } else { Severity::Advice };
        let evidence = format!(
            "{mean:.1} ms a response over {} calls {}; most of it for {} ({:.1} ms each)",
            total.operations,
            view.interval(),
            slowest.name,
            slowest.response_ms as f64 / slowest.operations.max(1) as f64
        );
        Some(Found::new(severity, &now.mount_point, mean, RESPONSE_MS, evidence))
    };
    mounts(view).filter_map(of).collect()
}

fn queue(view: &View<'_>) -> Vec<Found> {
    let of = |(now, _): (NfsMount, &NfsMount)| {
        let total = now.total();
        let mean = |sum_ms: u64| sum_ms as f64 / total.operations.max(1) as f64;
        let (queued, response) = (mean(total.queue_ms), mean(total.response_ms));
        let is_found = total.operations >= CALLS_LEAST && queued >= 1.0 && queued >= response / 2.0;
        is_found.then(|| {
            let evidence = format!(
                "{queued:.1} ms a call before it was sent, {response:.1} ms until its reply, over {} calls {}",
                total.operations,
                view.interval()
            );
            Found::new(Severity::Advice, &now.mount_point, queued, response / 2.0, evidence)
        })
    };
    mounts(view).filter_map(of).collect()
}

fn try_later(view: &View<'_>) -> Vec<Found> {
    let of = |(mount, is_now): (NfsMount, bool)| {
        let (delays, calls) = (mount.event(Event::Delay), mount.total().operations);
        let ratio = delays as f64 / calls.max(1) as f64;
        (delays >= 5 && ratio >= 0.01).then(|| {
            let evidence =
                format!("{delays} of {calls} calls ({}) {}", percent(ratio), when(view, is_now));
            let severity = at_most_advice(is_now, Severity::Warning);
            Found::new(severity, &mount.mount_point, ratio, 0.01, evidence)
        })
    };
    measured(view).into_iter().filter_map(of).collect()
}

fn reconnects(view: &View<'_>) -> Vec<Found> {
    let of = |(now, ever): (NfsMount, &NfsMount)| {
        // A mount that is new has made its first connections.
        let is_old = ever.age_s as f64 > view.seconds();
        // With nconnect= each of several is made once after every idle time: that is no fault.
        let connects = now.transports.iter().map(|one| one.connects).max().unwrap_or(0);
        (is_old && connects >= 2).then(|| {
            let evidence = format!("a connection was made {connects} times {}", view.interval());
            Found::new(Severity::Warning, &now.mount_point, connects as f64, 2.0, evidence)
        })
    };
    mounts(view).filter_map(of).collect()
}

fn small_transfers(view: &View<'_>) -> Vec<Found> {
    let of = |MountFacts { counters: mount, .. }: &MountFacts| {
        let size = |name: &str| mount.option_number(name).unwrap_or(u64::MAX);
        let (read, write) = (size("rsize"), size("wsize"));
        let limit = if mount.is_udp() { 32 << 10 } else { 64 << 10 };
        let smaller = read.min(write);
        (smaller < limit).then(|| {
            let severity = if smaller < 8 << 10 { Severity::Warning } else { Severity::Advice };
            let evidence = format!("rsize={read}, wsize={write}");
            Found::new(severity, &mount.mount_point, smaller as f64, limit as f64, evidence)
        })
    };
    view.after.mounts.iter().filter_map(of).collect()
}

/// An advice for each mount with an option.
fn option(view: &View<'_>, has: fn(&NfsMount) -> Option<String>) -> Vec<Found> {
    let of = |MountFacts { counters: mount, .. }: &MountFacts| {
        let evidence = has(mount)?;
        Some(Found::new(Severity::Advice, &mount.mount_point, 1.0, 0.0, evidence))
    };
    view.after.mounts.iter().filter_map(of).collect()
}

fn without_locks(mount: &NfsMount) -> Option<String> {
    let is_old = mount.kind == "nfs" && !mount.has_option("ro");
    let is_local = matches!(mount.option("local_lock"), Some("all" | "flock" | "posix"));
    let is_found = is_old && (mount.has_option("nolock") || is_local);
    is_found.then(|| match mount.option("local_lock") {
        Some(kind) => format!("local_lock={kind}"),
        None => "nolock".to_owned(),
    })
}

fn without_cache(mount: &NfsMount) -> Option<String> {
    if mount.has_option("noac") {
        return Some("noac".to_owned());
    }
    if mount.option("lookupcache") == Some("none") {
        return Some("lookupcache=none".to_owned());
    }
    let is_zero = |name: &str| mount.option(name) == Some("0");
    let is_found = is_zero("actimeo") || (is_zero("acregmax") && is_zero("acdirmax"));
    is_found.then(|| "attributes are kept for 0 s".to_owned())
}

fn name_cache(view: &View<'_>) -> Vec<Found> {
    let of = |(now, ever): (NfsMount, &NfsMount)| {
        let looks = |mount: &NfsMount| {
            [Event::Access, Event::DentryRevalidate, Event::Lookup]
                .iter()
                .map(|event| mount.event(*event))
                .fold(0, u64::saturating_add)
        };
        let calls = |mount: &NfsMount| {
            ["access", "lookup"]
                .iter()
                .filter_map(|name| mount.operation(name))
                .map(|one| one.operations)
                .fold(0, u64::saturating_add)
        };
        let asked = Count { now: calls(&now), ever: calls(ever) };
        let all = Count { now: looks(&now), ever: looks(ever) };
        let share = Share::of(asked, all, 1000)?;
        let hits = 1.0 - share.ratio();
        (hits < HIT_RATE).then(|| {
            let evidence = share.text(view, "looks at names and rights were calls");
            Found::new(Severity::Advice, &now.mount_point, hits, HIT_RATE, evidence)
        })
    };
    mounts(view).filter_map(of).collect()
}

fn page_cache(view: &View<'_>) -> Vec<Found> {
    let is_short = super::host::is_memory_short(view);
    let of = |(now, ever): (NfsMount, &NfsMount)| {
        let from_server = |mount: &NfsMount| {
            mount.byte_count(Bytes::ServerRead).saturating_sub(mount.byte_count(Bytes::DirectRead))
        };
        let from_server = Count { now: from_server(&now), ever: from_server(ever) };
        let all = Count { now: now.byte_count(Bytes::Read), ever: ever.byte_count(Bytes::Read) };
        let share = Share::of(from_server, all, 16 << 20)?;
        let hits = 1.0 - share.ratio();
        (hits < HIT_RATE).then(|| {
            let severity = if is_short { Severity::Advice } else { Severity::Info };
            let evidence = format!(
                "programs read {}, of which {} came from the server{}; memory is {}",
                bytes(share.whole),
                bytes(share.part),
                if share.is_now { format!(" {}", view.interval()) } else { String::new() },
                if is_short {
                    "short"
                } else {
                    "not short: these files were read for the first time"
                }
            );
            Found::new(severity, &now.mount_point, hits, HIT_RATE, evidence)
        })
    };
    mounts(view).filter_map(of).collect()
}

fn failing(view: &View<'_>) -> Vec<Found> {
    let of = |(mount, is_now): (NfsMount, bool)| {
        // LOOKUP and CREATE fail in everyday work.
        let names = ["getattr", "access", "read", "write"];
        let all = names.iter().filter_map(|name| mount.operation(name));
        let (errors, calls) = all.fold((0_u64, 0_u64), |(errors, calls), one| {
            (errors.saturating_add(one.errors), calls.saturating_add(one.operations))
        });
        let ratio = errors as f64 / calls.max(1) as f64;
        (errors >= 10 && ratio >= 0.01).then(|| {
            let evidence =
                format!("{errors} of {calls} calls ({}) {}", percent(ratio), when(view, is_now));
            let severity = at_most_advice(is_now, Severity::Warning);
            Found::new(severity, &mount.mount_point, ratio, 0.01, evidence)
        })
    };
    measured(view).into_iter().filter_map(of).collect()
}

fn server_clock(view: &View<'_>) -> Vec<Found> {
    let of = |mount: &MountFacts| {
        let ahead_s = mount.ahead_s.filter(|ahead_s| *ahead_s > AHEAD_S)?;
        let evidence =
            format!("{} was changed {ahead_s:.1} s in the future", mount.counters.mount_point);
        let found =
            Found::new(Severity::Warning, &mount.counters.mount_point, ahead_s, AHEAD_S, evidence);
        Some(found)
    };
    view.after.mounts.iter().filter_map(of).collect()
}
