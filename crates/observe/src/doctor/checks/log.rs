//! The share of changing calls, what a log of them gains, and the log itself.

use steadfast_control::intent_log::LogFigures;

use super::super::facts::Steadfast;
use super::super::parse::rpc::OperationCount;
use super::{Count, Found, Row, Severity, View, percent};

/// Changing calls under this part of the mix do not gain from a log unless there are many calls (002).
const CHANGING: f64 = 0.05;
/// Calls a second that are a significant volume: at the lowest load of Legato's Figure 2 the cache changed 11 ms
/// to 9 ms.
const VOLUME: f64 = 10.0;
/// A gain under 10 % is not felt.
const GAIN: f64 = 10.0;
/// Calls that make a mix.
const CALLS_LEAST: u64 = 100;

/// Legato's Figure 3: per cent of changing calls, and the least and most gain of throughput in per cent. The first
/// row is ours: without changes there is nothing to gain.
const FIGURE_3: &[(f64, f64, f64)] = &[
    (0.0, 0.0, 0.0),
    (5.0, 10.0, 40.0),
    (10.0, 30.0, 80.0),
    (15.0, 60.0, 120.0),
    (20.0, 80.0, 200.0),
];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "log-will-not-help",
        title: "a log of changes will not help here",
        threshold: "changing calls < 5 % and < 10 calls/s, or a gain under 10 % by Figure 3",
        source: "Oleinick (002), the two conditions; Legato (000), Figure 3",
        action: "spend on what the other findings name: memory for reads, the network, the disks",
        gain: "the money",
        settings: &[],
        check: will_not_help,
    },
    Row {
        id: "log-would-help",
        title: "a log of changes would help",
        threshold: "a gain of 10 % and more by Figure 3, and no log is used; an advice from 5 % of changing calls on",
        source: "Legato (000), Figure 3, interpolated for this server's own mix",
        action: "serve with Steadfast and its log (`steadfast log status`), on a device that makes writes stable fast",
        gain: "the throughput that the evidence tells",
        settings: &[],
        check: would_help,
    },
    Row {
        id: "log-helps",
        title: "what the log gains",
        threshold: "the log is used, and changing calls are ≥ 5 %",
        source: "Legato (000), Figure 3, interpolated for this server's own mix",
        action: "nothing",
        gain: "it is there",
        settings: &[],
        check: helps,
    },
    Row {
        id: "log-off",
        title: "the server has a log and does not use it",
        threshold: "its phase is not `on`; an advice if no share is on a file system that can be logged",
        source: "docs/durability.md",
        action: "`steadfast log status` says why; `steadfast log enable` when that is mended",
        gain: "what Figure 3 gives for this mix: finding log-would-help",
        settings: &[],
        check: off,
    },
    Row {
        id: "log-slow",
        title: "the log's device is slow",
        threshold: "median of its writes ≥ 5 ms; warning from 20 ms on",
        source: "docs/durability.md: every change waits for one such write; Legato (000): a disk made 30 to 40 a second",
        action: "put the log on a device with power-loss protection (`[log] path`); `steadfast log probe DIR` measures one",
        gain: "this time for each changing call",
        settings: &[],
        check: slow,
    },
    Row {
        id: "log-full",
        title: "changes wait for room in the log",
        threshold: "any between the looks; an advice when it is 80 % full",
        source: "docs/durability.md; Legato (000): 1 to 2 s of the network's speed are sufficient",
        action: "a larger log (`[log] size_mib`), or faster disks below the file systems",
        gain: "no waits during bursts",
        settings: &[],
        check: full,
    },
    Row {
        id: "log-not-power-safe",
        title: "a power failure would lose what the log has",
        threshold: "the log lies in memory, or a turning disk without a volatile cache writes in under 1 ms",
        source: "docs/durability.md, What hardware it needs",
        action: "put the log on a disk (`[log] path`); switch off a cache that is not flushed (`hdparm -W0`)",
        gain: "the promise to clients holds",
        settings: &[],
        check: power,
    },
    Row {
        id: "file-system-fault",
        title: "a file system takes no changes",
        threshold: "the log names a fault",
        source: "docs/durability.md, Faults",
        action: "look at the disk (`dmesg`), repair it, and then `steadfast log enable`",
        gain: "clients that can write",
        settings: &[],
        check: faults,
    },
];

/// What a server was called for.
struct Mix {
    whose: &'static str,
    calls: u64,
    changing: u64,
    /// In the interval.
    calls_a_second: f64,
    is_now: bool,
    has_log: bool,
}

impl Mix {
    fn part(&self) -> f64 {
        self.changing as f64 / self.calls.max(1) as f64
    }

    /// The least and most gain in per cent.
    fn gain(&self) -> (f64, f64) {
        figure_3(self.part() * 100.0)
    }

    fn is_in_vain(&self) -> bool {
        let is_small = self.part() < CHANGING && self.calls_a_second < VOLUME;
        is_small || self.gain().1 < GAIN
    }

    fn text(&self, view: &View<'_>) -> String {
        let (least, most) = self.gain();
        format!(
            "{} of {} calls ({}) change something, {}, at {:.1} calls/s; Figure 3 gives {least:.0} to {most:.0} % more \
             throughput",
            self.changing,
            self.calls,
            percent(self.part()),
            if self.is_now { view.interval() } else { "since the start".to_owned() },
            self.calls_a_second,
        )
    }
}

/// Between the rows of the figure a straight line; behind its end, its end.
fn figure_3(changing: f64) -> (f64, f64) {
    let mut last = (0.0, 0.0, 0.0);
    for &row in FIGURE_3 {
        if changing <= row.0 {
            let width = row.0 - last.0;
            let at = if width > 0.0 { (changing - last.0) / width } else { 1.0 };
            return (last.1 + (row.1 - last.1) * at, last.2 + (row.2 - last.2) * at);
        }
        last = row;
    }
    (last.1, last.2)
}

/// Operations that change a file system (Legato, Figure 1; those of later versions alike).
fn is_changing(name: &str) -> bool {
    matches!(
        name,
        "setattr"
            | "write"
            | "create"
            | "mkdir"
            | "symlink"
            | "mknod"
            | "remove"
            | "rmdir"
            | "rename"
            | "link"
            | "allocate"
            | "deallocate"
            | "copy"
            | "clone"
            | "write_same"
            | "setxattr"
            | "removexattr"
            | "setacl"
    )
}

/// Operations that only carry others in a COMPOUND, and COMPOUND itself.
fn is_plumbing(name: &str) -> bool {
    matches!(
        name,
        "null"
            | "compound"
            | "putfh"
            | "putpubfh"
            | "putrootfh"
            | "getfh"
            | "savefh"
            | "restorefh"
            | "sequence"
            | "verify"
            | "nverify"
            | "renew"
    )
}

fn sums<'a>(operations: impl Iterator<Item = (&'a str, u64)>) -> (u64, u64) {
    operations.filter(|(name, _)| !is_plumbing(name)).fold(
        (0, 0),
        |(calls, changing), (name, count)| {
            let more = if is_changing(name) { count } else { 0 };
            (calls.saturating_add(count), changing.saturating_add(more))
        },
    )
}

/// The mixes of the servers here.
fn mixes(view: &View<'_>) -> Vec<Mix> {
    let make = |whose, before: (u64, u64), after: (u64, u64), has_log| {
        let calls = Count::of(before.0, after.0);
        let changing = Count::of(before.1, after.1);
        let is_now = calls.now >= CALLS_LEAST;
        let (calls_counted, changing) =
            if is_now { (calls.now, changing.now) } else { (calls.ever, changing.ever) };
        (calls_counted >= CALLS_LEAST).then(|| Mix {
            whose,
            calls: calls_counted,
            changing,
            calls_a_second: calls.now as f64 / view.seconds(),
            is_now,
            has_log,
        })
    };
    let kernel = view.after.nfsd.as_ref().and_then(|after| {
        let of =
            |all: &[OperationCount]| sums(all.iter().map(|one| (one.name.as_str(), one.count)));
        let before = view.before.nfsd.as_ref().map(|nfsd| of(&nfsd.operations));
        make("knfsd", before.unwrap_or_default(), of(&after.operations), false)
    });
    let ours = view.after.steadfast.as_ref().and_then(|after| {
        let of = |server: &Steadfast| {
            let plain = server.statistics.operations.iter().filter(|one| one.protocol == "nfs");
            let plain = plain.map(|one| (one.name.to_ascii_lowercase(), one.calls));
            let parts = server.statistics.compound_operations.iter();
            let parts = parts.map(|one| (one.name.to_ascii_lowercase(), one.calls));
            let all: Vec<(String, u64)> = plain.chain(parts).collect();
            sums(all.iter().map(|(name, count)| (name.as_str(), *count)))
        };
        let before =
            view.before.steadfast.as_ref().filter(|before| {
                before.statistics.started_unix_ms == after.statistics.started_unix_ms
            });
        let has_log = after.statistics.log.as_ref().is_some_and(|log| log.phase == "on");
        make("Steadfast", before.map(of).unwrap_or_default(), of(after), has_log)
    });
    kernel.into_iter().chain(ours).collect()
}

fn will_not_help(view: &View<'_>) -> Vec<Found> {
    mixes(view)
        .iter()
        .filter(|mix| mix.is_in_vain())
        .map(|mix| Found::new(Severity::Info, mix.whose, mix.part(), CHANGING, mix.text(view)))
        .collect()
}

fn would_help(view: &View<'_>) -> Vec<Found> {
    mixes(view)
        .iter()
        .filter(|mix| !mix.has_log && !mix.is_in_vain())
        .map(|mix| {
            let is_much = mix.part() >= CHANGING && mix.calls_a_second >= VOLUME;
            let severity = if is_much { Severity::Advice } else { Severity::Info };
            Found::new(severity, mix.whose, mix.part(), CHANGING, mix.text(view))
        })
        .collect()
}

fn helps(view: &View<'_>) -> Vec<Found> {
    mixes(view)
        .iter()
        .filter(|mix| mix.has_log && mix.part() >= CHANGING)
        .map(|mix| Found::new(Severity::Info, mix.whose, mix.part(), CHANGING, mix.text(view)))
        .collect()
}

/// The log's figures: of the interval if it wrote in it, else since the start.
fn figures(view: &View<'_>) -> Option<(LogFigures, bool)> {
    let after = view.after.steadfast.as_ref()?;
    let log = after.statistics.log.as_ref()?;
    let before = view.before.steadfast.as_ref();
    let before =
        before.filter(|one| one.statistics.started_unix_ms == after.statistics.started_unix_ms);
    if let Some(before) = before.and_then(|one| one.statistics.log.as_ref()) {
        let between = log.since(before);
        if between.batches >= 10 {
            return Some((between, true));
        }
    }
    Some((log.clone(), false))
}

fn off(view: &View<'_>) -> Vec<Found> {
    let log = view.after.steadfast.as_ref().and_then(|server| server.statistics.log.as_ref());
    let Some(log) = log.filter(|log| log.phase != "on") else { return Vec::new() };
    let why = log.why.as_deref().unwrap_or("no reason told");
    // Where nothing can be logged, nothing is broken.
    let severity = if log.file_systems.is_empty() { Severity::Advice } else { Severity::Warning };
    vec![Found::new(severity, "Steadfast", 1.0, 0.0, format!("it is {}: {why}", log.phase))]
}

fn slow(view: &View<'_>) -> Vec<Found> {
    let Some((log, is_now)) = figures(view) else { return Vec::new() };
    let p50_ms = log.write_p50_ns as f64 / 1e6;
    if log.batches < 10 || p50_ms < 5.0 {
        return Vec::new();
    }
    let severity = if p50_ms >= 20.0 { Severity::Warning } else { Severity::Advice };
    let evidence = format!(
        "{} writes {}: half of them took {p50_ms:.1} ms and more, one in a hundred {:.1} ms",
        log.batches,
        if is_now { view.interval() } else { "since the start".to_owned() },
        log.write_p99_ns as f64 / 1e6
    );
    vec![Found::new(severity, "Steadfast", p50_ms, 5.0, evidence)]
}

fn full(view: &View<'_>) -> Vec<Found> {
    let of = |facts: &super::super::facts::Facts| {
        facts
            .steadfast
            .as_ref()
            .and_then(|one| one.statistics.log.as_ref())
            .map(|log| log.waits_for_room)
    };
    let Some(after) = view.after.steadfast.as_ref().and_then(|one| one.statistics.log.as_ref())
    else {
        return Vec::new();
    };
    let waits =
        Count::of(of(view.before).unwrap_or(after.waits_for_room), after.waits_for_room).now;
    let used = after.used_bytes as f64 / after.ring_bytes.max(1) as f64;
    if waits > 0 {
        let evidence =
            format!("{waits} changes waited {}; it is {} full", view.interval(), percent(used));
        return vec![Found::new(Severity::Warning, "Steadfast", waits as f64, 0.0, evidence)];
    }
    if used < 0.8 {
        return Vec::new();
    }
    vec![Found::new(
        Severity::Advice,
        "Steadfast",
        used,
        0.8,
        format!("it is {} full", percent(used)),
    )]
}

fn power(view: &View<'_>) -> Vec<Found> {
    let Some(server) = &view.after.steadfast else { return Vec::new() };
    let (Some(log), Some(device)) = (&server.statistics.log, &server.log_device) else {
        return Vec::new();
    };
    if device.is_memory {
        let place = if device.disk.is_empty() { &device.file_system } else { &device.disk };
        let evidence = format!("{} lies on {place}, which is memory", device.path);
        return vec![Found::new(Severity::Critical, "Steadfast", 1.0, 0.0, evidence)];
    }
    let p50_ms = log.write_p50_ns as f64 / 1e6;
    let is_too_fast = device.is_rotational
        && device.has_volatile_cache == Some(false)
        && log.batches >= 10
        && p50_ms < 1.0;
    if !is_too_fast {
        return Vec::new();
    }
    let evidence = format!(
        "{} turns, says that it has no volatile cache, and makes a write stable in {p50_ms:.2} ms",
        device.disk
    );
    vec![Found::new(Severity::Warning, "Steadfast", p50_ms, 1.0, evidence)]
}

fn faults(view: &View<'_>) -> Vec<Found> {
    let Some(log) = view.after.steadfast.as_ref().and_then(|one| one.statistics.log.as_ref())
    else {
        return Vec::new();
    };
    let of = |one: &steadfast_control::intent_log::FileSystemFigures| {
        let fault = one.fault.as_ref()?;
        let evidence = format!("{}: {fault}", one.path);
        Some(Found::new(Severity::Critical, &one.path, 1.0, 0.0, evidence))
    };
    log.file_systems.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_3_is_met_at_its_rows_and_between_them() {
        let is_near = |one: (f64, f64), other: (f64, f64)| {
            (one.0 - other.0).abs() < 1e-9 && (one.1 - other.1).abs() < 1e-9
        };
        for &(changing, least, most) in FIGURE_3 {
            assert!(is_near(figure_3(changing), (least, most)), "{changing}");
        }
        assert!(is_near(figure_3(7.5), (20.0, 60.0)));
        assert!(is_near(figure_3(90.0), (80.0, 200.0)));
    }

    #[test]
    fn the_mix_of_legato_is_a_fifth_of_changes() {
        let mix = [
            ("getattr", 13),
            ("setattr", 1),
            ("lookup", 34),
            ("readlink", 8),
            ("read", 22),
            ("write", 15),
            ("create", 2),
            ("remove", 1),
            ("readdir", 3),
            ("fsstat", 1),
        ];
        assert_eq!(sums(mix.into_iter()), (100, 19));
        assert_eq!(sums([("sequence", 9), ("putfh", 9), ("read", 1)].into_iter()), (1, 0));
    }
}
