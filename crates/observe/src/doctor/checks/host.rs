//! CPUs, memory and disks, for whatever server runs on them.

use super::super::facts::{Disk, Facts};
use super::super::gather::count;
use super::super::parse::system::{CpuTimes, DiskCounters};
use super::{Count, Found, Row, Severity, View, bytes, network, percent};

/// A disk's operation takes longer only if it waits for others.
const DISK_MS: f64 = 20.0;
/// Nothing that waits for such a disk is usable.
const DISK_DEAD_MS: f64 = 100.0;
/// A disk that does not turn needs 0.1 ms.
const FLASH_MS: f64 = 10.0;
/// What a turning disk makes a second at random places; Legato's made 30 to 40.
const TURNING_A_SECOND: f64 = 80.0;
/// What turns takes this time and more for an operation, unless its cache has it.
const TURNING_MS: f64 = 2.0;
/// Hit rates are normally higher (Legato, "NFS Server Performance in UNIX").
const HIT_RATE: f64 = 0.8;
/// Where more of the bytes that clients read went by READZ, they say nothing about the bytes read from files.
const COMPRESSED_PART_MAX: f64 = 0.05;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cpu-busy",
        title: "the CPUs are busy",
        threshold: "≥ 80 % of their time; warning from 95 % on",
        source: "Legato (000), Server Bottlenecks; Oleinick (002): out of CPU at 285 calls/s",
        action: "`top` names the programs; other work on another machine, or more CPUs",
        gain: "calls that do not wait for a CPU",
        settings: &[],
        check: cpu,
    },
    Row {
        id: "run-queue",
        title: "tasks wait for a CPU",
        threshold: "more than twice as many tasks want to run as there are CPUs, in the mean",
        source: "SGI (001): a load of 5 to 6 a node, not 120, kept the server alive",
        action: "`top` names the programs; fewer threads of the server (knfsd), other work elsewhere",
        gain: "calls that do not wait for a CPU",
        settings: &[],
        check: run_queue,
    },
    Row {
        id: "packets-on-one-cpu",
        title: "one CPU does the work of the network",
        threshold: "≥ 60 % of a CPU's time in software interrupts; warning from 90 % on",
        source: "SGI (001), locality of interfaces and CPUs; kernel documentation, networking/scaling",
        action: "spread it: `ethtool -L IFACE combined N`, or RPS in /sys/class/net/IFACE/queues/rx-0/rps_cpus",
        gain: "packets at the speed of several CPUs",
        settings: &[],
        check: one_cpu,
    },
    Row {
        id: "stolen-time",
        title: "the host of this virtual machine gives its CPUs to others",
        threshold: "≥ 10 % of the time; warning from 25 % on",
        source: "proc_stat(5), steal",
        action: "move the virtual machine, or reserve CPUs for it",
        gain: "this part of the time",
        settings: &[],
        check: stolen,
    },
    Row {
        id: "disk-busy",
        title: "a disk is busy",
        threshold: "≥ 60 % of the time with ≥ 1 operation in its queue, of ≥ 2 ms each; warning from 90 % and 4 operations \
                    on",
        source: "Legato (000): on most servers the disk is the limit; kernel documentation, admin-guide/iostats",
        action: "memory for reads, a log for changes, another disk for a part of the shares",
        gain: "calls at the speed of the disk's own time",
        settings: &["vm.dirty_background_ratio", "vm.dirty_writeback_centisecs"],
        check: busy,
    },
    Row {
        id: "disk-slow",
        title: "a disk answers slowly",
        threshold: "mean ≥ 20 ms an operation (≥ 10 ms without turning parts: advice); critical from 100 ms on",
        source: "Legato (000): seek and rotation are tens of ms; kernel documentation, admin-guide/iostats",
        action: "look for errors (`dmesg`, `smartctl -a`), a limit of the host or a cgroup, and other users of the disk",
        gain: "this time for each call that needs the disk",
        settings: &[],
        check: slow,
    },
    Row {
        id: "disk-rate",
        title: "a turning disk makes as many operations as it can",
        threshold: "≥ 80 operations/s of a disk that turns, of ≥ 2 ms each",
        source: "Legato (000): 30 to 40 a second then, about 100 today; \"reduce the number of disk operations\"",
        action: "a log for changes (finding log-would-help), memory for reads, or disks without turning parts",
        gain: "about 60 % of the disk's operations are of changes at a fifth of the calls (Legato)",
        settings: &[],
        check: rate,
    },
    Row {
        id: "io-pressure",
        title: "tasks wait for disks",
        threshold: "some wait ≥ 25 % of the time; warning when all do",
        source: "kernel documentation, accounting/psi",
        action: "the findings on disks say which",
        gain: "this part of the time",
        settings: &[],
        check: io_pressure,
    },
    Row {
        id: "memory-pressure",
        title: "memory is short",
        threshold: "some tasks wait for memory ≥ 5 % of the time; warning when all do, critical from 20 % on",
        source: "kernel documentation, accounting/psi; Legato (000): a low hit rate asks for memory",
        action: "give the machine memory, or take other work away",
        gain: "reads from memory instead of disks",
        settings: &[],
        check: memory,
    },
    Row {
        id: "read-cache",
        title: "what clients read comes from the disk",
        threshold: "< 80 % of the bytes read come from memory, over ≥ 16 MiB, of which ≤ 5 % went by READZ (compressed)",
        source: "Legato (000): over 80 % is normal, 98 % is not uncommon",
        action: "give the server memory",
        gain: "reads at the speed of memory",
        settings: &["vm.vfs_cache_pressure"],
        check: read_cache,
    },
    Row {
        id: "cpu-will-not-help",
        title: "faster CPUs will not help",
        threshold: "a disk is the limit, and the CPUs are idle ≥ 50 % of the time",
        source: "Legato (000): a faster CPU makes no difference until the disk's bottleneck is reduced",
        action: "spend on disks, memory or a log",
        gain: "the money",
        settings: &[],
        check: cpu_in_vain,
    },
    Row {
        id: "network-will-not-help",
        title: "a faster network will not help",
        threshold: "a disk or the CPUs are the limit, and the busiest link is loaded < 5 %",
        source: "Oleinick (002): network coprocessors do not help where the traffic is not significant",
        action: "spend on what is the limit",
        gain: "the money",
        settings: &[],
        check: network_in_vain,
    },
];

fn cpu_between(view: &View<'_>) -> CpuTimes {
    view.after.cpus.all.since(&view.before.cpus.all)
}

fn part(ticks: u64, times: &CpuTimes) -> f64 {
    ticks as f64 / times.total.max(1) as f64
}

/// The part of the CPUs' time that was used, if enough of it passed.
fn busy_part(view: &View<'_>) -> Option<f64> {
    let times = cpu_between(view);
    (times.total >= 20).then(|| 1.0 - part(times.idle, &times))
}

fn cpu(view: &View<'_>) -> Vec<Found> {
    let Some(busy) = busy_part(view).filter(|busy| *busy >= 0.8) else { return Vec::new() };
    let severity = if busy >= 0.95 { Severity::Warning } else { Severity::Advice };
    let evidence = format!("{} of {} CPUs {}", percent(busy), view.cpus(), view.interval());
    vec![Found::new(severity, "", busy, 0.8, evidence)]
}

fn run_queue(view: &View<'_>) -> Vec<Found> {
    if view.samples.len() < 5 {
        return Vec::new();
    }
    let sum: u64 = view.samples.iter().map(|sample| sample.running).fold(0, u64::saturating_add);
    let mean = sum as f64 / view.samples.len() as f64;
    let limit = 2.0 * view.cpus() as f64;
    if mean <= limit {
        return Vec::new();
    }
    let waited = view.before.pressure.zip(view.after.pressure).map(|(before, after)| {
        let part = view.part_of_time(before.cpu.some_us, after.cpu.some_us);
        format!("; some waited {} of the time", percent(part))
    });
    let evidence = format!(
        "{mean:.1} tasks want to run on {} CPUs, over {} looks{}",
        view.cpus(),
        view.samples.len(),
        waited.unwrap_or_default()
    );
    vec![Found::new(Severity::Warning, "", mean, limit, evidence)]
}

fn one_cpu(view: &View<'_>) -> Vec<Found> {
    if view.cpus() < 2 {
        return Vec::new();
    }
    let each = view.before.cpus.each.iter().zip(&view.after.cpus.each).enumerate();
    let parts = each.filter_map(|(index, (before, after))| {
        let times = after.since(before);
        (times.total >= 20).then(|| (index, part(times.soft_interrupt, &times)))
    });
    let most = parts.max_by(|one, other| one.1.total_cmp(&other.1));
    let Some((index, most)) = most.filter(|(_, most)| *most >= 0.6) else { return Vec::new() };
    let severity = if most >= 0.9 { Severity::Warning } else { Severity::Advice };
    let evidence = format!("CPU {index} spent {} in software interrupts", percent(most));
    vec![Found::new(severity, &format!("CPU {index}"), most, 0.6, evidence)]
}

fn stolen(view: &View<'_>) -> Vec<Found> {
    let times = cpu_between(view);
    let stolen = part(times.stolen, &times);
    if times.total < 20 || stolen < 0.1 {
        return Vec::new();
    }
    let severity = if stolen >= 0.25 { Severity::Warning } else { Severity::Advice };
    let evidence = format!("{} of the CPUs' time {}", percent(stolen), view.interval());
    vec![Found::new(severity, "", stolen, 0.1, evidence)]
}

/// Disks, with what each did between the looks.
fn disks<'a>(view: &View<'a>) -> impl Iterator<Item = (&'a Disk, DiskCounters)> {
    let before = &view.before.disks;
    view.after.disks.iter().filter_map(move |after| {
        let before = before.iter().find(|one| one.counters.name == after.counters.name)?;
        Some((after, after.counters.since(&before.counters)))
    })
}

/// The part of the time that a disk was busy, and the mean length of its queue.
fn use_of(view: &View<'_>, disk: &DiskCounters) -> (f64, f64) {
    let ms = view.seconds() * 1e3;
    (disk.busy_ms as f64 / ms, disk.queue_ms as f64 / ms)
}

fn busy(view: &View<'_>) -> Vec<Found> {
    let of = |(_, disk): (&Disk, DiskCounters)| {
        let (busy, queue) = use_of(view, &disk);
        // Flash serves many at once: it is busy all the time long before it is slow.
        if busy < 0.6 || queue < 1.0 || disk.mean_ms() < TURNING_MS {
            return None;
        }
        let severity =
            if busy >= 0.9 && queue >= 4.0 { Severity::Warning } else { Severity::Advice };
        let evidence = format!(
            "busy {} of the time with {queue:.1} operations in its queue: {:.0} reads/s, {:.0} writes/s, {:.1} ms each",
            percent(busy.min(1.0)),
            disk.reads as f64 / view.seconds(),
            disk.writes as f64 / view.seconds(),
            disk.mean_ms()
        );
        Some(Found::new(severity, &disk.name, busy, 0.6, evidence))
    };
    disks(view).filter_map(of).collect()
}

fn slow(view: &View<'_>) -> Vec<Found> {
    let of = |(known, disk): (&Disk, DiskCounters)| {
        let mean = disk.mean_ms();
        let limit = if known.is_rotational { DISK_MS } else { FLASH_MS };
        // One that stands still makes few.
        let least = if mean >= DISK_DEAD_MS { 5 } else { 20 };
        if disk.operations() < least || mean < limit {
            return None;
        }
        let severity = match mean {
            mean if mean >= DISK_DEAD_MS => Severity::Critical,
            mean if mean >= DISK_MS => Severity::Warning,
            _ => Severity::Advice,
        };
        let each = |sum_ms: u64, count: u64| sum_ms as f64 / count.max(1) as f64;
        let evidence = format!(
            "{mean:.1} ms an operation over {} operations {}: reads {:.1} ms, writes {:.1} ms, flushes {:.1} ms",
            disk.operations(),
            view.interval(),
            each(disk.read_ms, disk.reads),
            each(disk.write_ms, disk.writes),
            each(disk.flush_ms, disk.flushes)
        );
        Some(Found::new(severity, &disk.name, mean, limit, evidence))
    };
    disks(view).filter_map(of).collect()
}

fn rate(view: &View<'_>) -> Vec<Found> {
    let of = |(known, disk): (&Disk, DiskCounters)| {
        let a_second = disk.reads.saturating_add(disk.writes) as f64 / view.seconds();
        // Virtual disks say that they turn, and do not take the time.
        let turns = known.is_rotational && disk.mean_ms() >= TURNING_MS;
        (turns && a_second >= TURNING_A_SECOND).then(|| {
            let evidence = format!(
                "{:.0} reads/s and {:.0} writes/s",
                disk.reads as f64 / view.seconds(),
                disk.writes as f64 / view.seconds()
            );
            Found::new(Severity::Advice, &disk.name, a_second, TURNING_A_SECOND, evidence)
        })
    };
    disks(view)
        // A device of software counts as turning where nobody says otherwise.
        .filter(|(known, _)| !is_software(&known.counters.name))
        .filter_map(of)
        .collect()
}

fn is_software(disk: &str) -> bool {
    is_made_of_disks(disk) || disk.starts_with("vd") || disk.starts_with("xvd")
}

/// Whether what it reads is read by other disks of this machine, too.
fn is_made_of_disks(disk: &str) -> bool {
    ["loop", "dm-", "md", "nbd", "drbd"].iter().any(|prefix| disk.starts_with(prefix))
}

fn io_pressure(view: &View<'_>) -> Vec<Found> {
    let Some((before, after)) = view.before.pressure.zip(view.after.pressure) else {
        return Vec::new();
    };
    let some = view.part_of_time(before.io.some_us, after.io.some_us);
    let full = view.part_of_time(before.io.full_us, after.io.full_us);
    if some < 0.25 {
        return Vec::new();
    }
    let severity = if full >= 0.25 { Severity::Warning } else { Severity::Advice };
    let evidence = format!("some waited {}, all {} of the time", percent(some), percent(full));
    vec![Found::new(severity, "", some, 0.25, evidence)]
}

/// Whether memory is short: tasks wait for it, or a twentieth is left.
pub(super) fn is_memory_short(view: &View<'_>) -> bool {
    let waits = view.before.pressure.zip(view.after.pressure).is_some_and(|(before, after)| {
        view.part_of_time(before.memory.some_us, after.memory.some_us) >= 0.05
    });
    let number = |name: &str| count(&view.after.memory, name);
    let all = number("MemTotal");
    waits || (all > 0 && number("MemAvailable") < all / 20)
}

fn memory(view: &View<'_>) -> Vec<Found> {
    let Some((before, after)) = view.before.pressure.zip(view.after.pressure) else {
        return Vec::new();
    };
    let some = view.part_of_time(before.memory.some_us, after.memory.some_us);
    let full = view.part_of_time(before.memory.full_us, after.memory.full_us);
    if some < 0.05 {
        return Vec::new();
    }
    let severity = match full {
        full if full >= 0.2 => Severity::Critical,
        full if full >= 0.05 => Severity::Warning,
        _ => Severity::Advice,
    };
    let available = count(&view.after.memory, "MemAvailable").saturating_mul(1024);
    let evidence = format!(
        "some waited {}, all {} of the time; {} are available",
        percent(some),
        percent(full),
        bytes(available)
    );
    vec![Found::new(severity, "", some, 0.05, evidence)]
}

/// Bytes that clients have read from the servers here, and those of them that went by READZ, which are fewer than were read
/// from files.
fn served(facts: &Facts) -> (u64, u64) {
    let kernel = facts.nfsd.as_ref().map_or(0, |nfsd| nfsd.read_bytes);
    let ours = |protocol: &str, names: &[&str]| {
        let operations = facts.steadfast.iter().flat_map(|server| &server.statistics.operations);
        let reads =
            operations.filter(|one| one.protocol == protocol && names.contains(&one.name.as_str()));
        reads.map(|one| one.bytes_out).fold(0, u64::saturating_add)
    };
    let compressed = ours("recovery", &["READZ"]);
    let others = kernel.saturating_add(ours("nfs", &["READ", "COMPOUND"]));
    (others.saturating_add(compressed), compressed)
}

fn read_cache(view: &View<'_>) -> Vec<Found> {
    let (before, after) = (served(view.before), served(view.after));
    let [served, compressed] = [(before.0, after.0), (before.1, after.1)]
        .map(|(before, after)| Count::of(before, after).now);
    // How much was read from files for compressed data is not known: no verdict where it is a notable part.
    if served < 16 << 20 || compressed as f64 > COMPRESSED_PART_MAX * served as f64 {
        return Vec::new();
    }
    let from_disk = disks(view)
        // What software devices read, the disks below them read, too.
        .filter(|(known, _)| !is_made_of_disks(&known.counters.name))
        .map(|(_, disk)| disk.read_bytes)
        .fold(0, u64::saturating_add);
    let hits = 1.0 - from_disk as f64 / served as f64;
    if hits >= HIT_RATE {
        return Vec::new();
    }
    let evidence = format!(
        "clients read {}, and disks {} {}",
        bytes(served),
        bytes(from_disk),
        view.interval()
    );
    vec![Found::new(Severity::Advice, "", hits.max(0.0), HIT_RATE, evidence)]
}

fn is_disk_the_limit(view: &View<'_>) -> bool {
    [busy(view), slow(view)].concat().iter().any(|found| found.severity >= Severity::Warning)
}

fn cpu_in_vain(view: &View<'_>) -> Vec<Found> {
    let Some(busy) = busy_part(view).filter(|busy| *busy <= 0.5) else { return Vec::new() };
    if !is_disk_the_limit(view) {
        return Vec::new();
    }
    let evidence =
        format!("a disk is the limit, and the CPUs are idle {} of the time", percent(1.0 - busy));
    vec![Found::new(Severity::Info, "", busy, 0.5, evidence)]
}

fn network_in_vain(view: &View<'_>) -> Vec<Found> {
    let is_cpu = busy_part(view).is_some_and(|busy| busy >= 0.95);
    let Some(load) = network::highest_load(view).filter(|load| *load < 0.05) else {
        return Vec::new();
    };
    let limit = if is_disk_the_limit(view) {
        "a disk is"
    } else if is_cpu {
        "the CPUs are"
    } else {
        return Vec::new();
    };
    let evidence = format!("{limit} the limit, and the busiest link is loaded {}", percent(load));
    vec![Found::new(Severity::Info, "", load, 0.05, evidence)]
}
