//! A server with many shares against one with ten: single changes, the list, mounts, memory, and
//! what a client of another share notices of changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::farm::GROUP;
use super::load;
use super::memory::Memory;
use super::server::{Control, Home, Running};
use super::{Site, shown_count};
use crate::report::median;
use crate::report::{Findings, Goal, Table, figure};

/// What many are compared with.
const FEW: usize = 10;
/// How many single changes of each kind.
const CHANGES: usize = 60;
/// Shares that are mounted at the most: each takes a few descriptors, of which a shell may have few.
const MOUNTED_MAX: usize = 3000;
/// MNTs of shares that were mounted before.
const MOUNTS: usize = 5000;
/// As many before, untimed. Without them calls took 13 µs with ten shares and 50 to 70 with many;
/// a client of another kind found 70 to 85 with either number, and as much for NULL. Most likely
/// the kernel has yet to learn whether a processor that waits is worth keeping awake.
const WARMING_MOUNTS: usize = 5000;
/// Lists that are asked for.
const LISTS: usize = 9;
/// A change every so long beside the load: more than anybody makes by hand, and as many as a program
/// makes that does nothing else.
const CHANGE_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(10)];
/// Pairs of rounds of the load, without and with changes. What else a shared machine does lasts
/// longer than a pair, so that it has a part in both.
const PAIRS: usize = 81;

/// Times of one thing, in milliseconds.
#[derive(Clone, Debug, Default)]
struct Times(Vec<f64>);

impl Times {
    fn push(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1000.0);
    }

    fn p50(&self) -> Option<f64> {
        median(self.0.clone())
    }

    fn p99(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() * 99).div_ceil(100).checked_sub(1)?;
        sorted.get(place).copied()
    }

    fn shown(&self) -> [String; 2] {
        [self.p50(), self.p99()].map(|value| value.map_or_else(String::new, figure))
    }
}

/// What was measured of a server with so many shares.
#[derive(Clone, Debug, Default)]
struct Measured {
    shares: usize,
    list: Times,
    list_bytes: u64,
    /// MNT of each share for the first time.
    first_mounts: Times,
    mounts: Times,
}

/// The p99 of calls in µs, of each round of a pair.
#[derive(Clone, Debug, Default)]
struct Disturbance {
    /// Between changes.
    every: Duration,
    without: Vec<f64>,
    with: Vec<f64>,
    changes: usize,
}

impl Disturbance {
    /// What changes make of the p99: the median of the pairs.
    fn ratio(&self) -> Option<f64> {
        let pairs = self.with.iter().zip(&self.without);
        median(pairs.map(|(with, without)| with / without).collect())
    }
}

/// Measures all that.
pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    let many = site.options.many();
    site.farm.make(0..many + CHANGES)?;
    let (few, running) = one(site, FEW)?;
    running.stop()?;
    let (many, running) = one(site, many)?;
    let changes = single_changes(site, &running, many.shares).context("single changes")?;
    let [few_changes, many_changes] = CHANGE_EVERY
        .map(|every| disturbance(site, &running, every).context("GETATTR beside changes"));
    let disturbances = [few_changes?, many_changes?];
    running.stop()?;
    let memory = [Memory::measure(site, FEW)?, Memory::measure(site, many.shares)?];
    Ok(findings(&site.conditions()?, &few, &many, &memory, &changes, &disturbances))
}

fn one(site: &Site<'_>, shares: usize) -> Result<(Measured, Running)> {
    let home = Home::make(&site.home(), &site.farm, shares)?;
    // The first start makes what every later one finds.
    Running::start(&home, &site.cpus, &site.farm, shares)?.0.stop()?;
    let (running, _) = Running::start(&home, &site.cpus, &site.farm, shares)?;
    let mut measured = Measured { shares, ..Measured::default() };
    for _list in 0..LISTS {
        let list = running.probe.list()?;
        measured.list.push(list.took);
        measured.list_bytes = list.bytes;
    }
    let mut mounter = running.probe.mounter()?;
    let mut mount = |share: usize| {
        let path = site.farm.path(share);
        mounter.mount(&path)?.with_context(|| format!("{path} cannot be mounted"))
    };
    let mounted = shares.min(MOUNTED_MAX);
    for share in 0..mounted {
        measured.first_mounts.push(mount(share)?);
    }
    // A stride that has no factor in common with any number of shares that is used.
    for turn in 0..WARMING_MOUNTS + MOUNTS {
        let took = mount(turn * 7919 % mounted)?;
        if turn >= WARMING_MOUNTS {
            measured.mounts.push(took);
        }
    }
    eprintln!(
        "  {shares} shares: EXPORT {:.2} ms, MNT {:.3} ms",
        measured.list.p50().unwrap_or_default(),
        measured.mounts.p50().unwrap_or_default(),
    );
    Ok((measured, running))
}

/// Adds, changes and removes shares, one at a time.
fn single_changes(
    site: &Site<'_>,
    running: &Running,
    shares: usize,
) -> Result<[(&'static str, Times); 3]> {
    let new = shares..shares + CHANGES;
    let (mut added, mut changed, mut removed) =
        (Times::default(), Times::default(), Times::default());
    for share in new.clone() {
        let operation =
            json!({ "op": "add-share", "group": GROUP, "share": site.farm.spec(share) });
        added.push(running.apply(&operation)?);
        let path = site.farm.path(share);
        anyhow::ensure!(running.probe.can_mount(&path)?, "{path} was added and is not served");
    }
    for share in new.clone() {
        changed.push(running.apply(&change(&site.farm.path(share), true))?);
    }
    for share in new {
        let path = site.farm.path(share);
        removed.push(running.apply(&json!({ "op": "remove-share", "path": path }))?);
        anyhow::ensure!(!running.probe.can_mount(&path)?, "{path} was removed and is served");
    }
    running.probe.expect_all(shares, &[])?;
    Ok([("adding a share", added), ("changing one", changed), ("removing one", removed)])
}

/// Lets another host use a share, or no more.
fn change(path: &str, is_added: bool) -> Value {
    let key = if is_added { "add_clients" } else { "remove_clients" };
    json!({ "op": "set-share", "path": path, "changes": { key: ["192.0.2.1"] } })
}

/// A load on one share at a held rate, in turn without and with changes of another one. Who makes
/// changes is on the load's CPU and gives way to it: asking alone, for changes that were refused, made
/// the p99 half as long again without that.
fn disturbance(site: &Site<'_>, running: &Running, every: Duration) -> Result<Disturbance> {
    let (used, changed) = (site.farm.path(0), site.farm.path(1));
    let mut disturbance = Disturbance { every, ..Disturbance::default() };
    let p99 = || load::getattr(site, running.pid(), &used);
    // Whatever runs at first only.
    p99()?;
    for pair in 0..PAIRS {
        // Now one of them is first, now the other.
        if pair % 2 == 0 {
            disturbance.without.push(p99()?);
        }
        let is_over = AtomicBool::new(false);
        let (control, is_over, changed) = (running.control(), &is_over, &changed);
        let (with, changes) = std::thread::scope(|scope| {
            let changing = scope.spawn(move || {
                site.cpus.keep_from_server()?;
                // Of this thread alone, on Linux.
                rustix::process::nice(19)?;
                keep_changing(&control, changed, every, is_over)
            });
            let with = p99();
            is_over.store(true, Ordering::Relaxed);
            let changes = changing.join().ok().context("the thread that changes panicked");
            (with, changes.and_then(|changes| changes))
        });
        disturbance.with.push(with?);
        disturbance.changes += changes?;
        if pair % 2 == 1 {
            disturbance.without.push(p99()?);
        }
    }
    eprintln!(
        "  p99 of GETATTR: {:.1?} µs, with changes {:.1?} µs",
        disturbance.without, disturbance.with
    );
    Ok(disturbance)
}

/// Changes a share every so long until it is over; how often it did.
fn keep_changing(
    control: &Control,
    path: &str,
    every: Duration,
    is_over: &AtomicBool,
) -> Result<usize> {
    let started = Instant::now();
    let mut changes = 0_u32;
    while !is_over.load(Ordering::Relaxed) || changes % 2 == 1 {
        control.apply(&change(path, changes.is_multiple_of(2)))?;
        changes += 1;
        let next = started + every * changes;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(changes as usize)
}

fn findings(
    conditions: &str,
    few: &Measured,
    many: &Measured,
    memory: &[Memory; 2],
    changes: &[(&'static str, Times)],
    disturbances: &[Disturbance; 2],
) -> Findings {
    let mut findings = Findings::default();
    findings.say(conditions);
    let count = shown_count(many.shares);
    let mut table =
        Table::new(&["ms", &format!("{FEW} shares, p50"), "p99", &format!("{count}, p50"), "p99"]);
    for (name, few, many) in [
        ("the list of shares (EXPORT over TCP)", &few.list, &many.list),
        ("MNT of a share for the first time", &few.first_mounts, &many.first_mounts),
        ("MNT of a share again", &few.mounts, &many.mounts),
    ] {
        table.row(&[&[name.to_owned()][..], &few.shown(), &many.shown()].concat());
    }
    for (name, times) in changes {
        let none = [String::new(), String::new()];
        table.row(&[&[(*name).to_owned()][..], &none, &times.shown()].concat());
    }
    findings.add_table(&table);
    let more = |bytes: u64, than: u64, shares: usize| (bytes as f64 - than as f64) / shares as f64;
    let [little, much] = memory;
    let ready = more(much.ready, little.ready, much.shares - little.shares);
    let in_use = more(much.in_use, much.ready, much.used());
    let idle = more(much.idle, much.ready, much.used());
    let average = more(much.in_use, little.ready, much.shares - little.shares);
    let used = shown_count(much.used());
    findings.say(format!(
        "Memory a share (of the process's own, the difference between both servers): {} bytes when it \
         is ready; {} more for each of {used} that are in use, {} when they are idle again and what \
         they had open is closed (the allocator keeps most of it for the next). The list has {} bytes.",
        figure(ready),
        figure(in_use),
        figure(idle),
        shown_count(many.list_bytes as usize),
    ));
    for disturbance in disturbances {
        let [without, with] = [&disturbance.without, &disturbance.with]
            .map(|all| median(all.clone()).map_or_else(String::new, figure));
        findings.say(format!(
            "GETATTR at {} calls/s: p99 {without} µs without changes, {with} µs with one every {} ms ({} in \
             all; medians of {PAIRS} pairs of rounds): the median of the pairs' ratios is {}.",
            load::RATE,
            disturbance.every.as_millis(),
            disturbance.changes,
            disturbance.ratio().map_or_else(String::new, figure),
        ));
    }
    for (name, times) in changes {
        findings.goals.push(Goal::at_most(format!("{name}, ms (p50)"), 2.0, times.p50()));
    }
    let ratio =
        |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one / other);
    findings.goals.extend([
        Goal::at_most(
            format!(
                "p99 of GETATTR with a change every {} ms, of that without: median of the pairs",
                CHANGE_EVERY[0].as_millis()
            ),
            1.1,
            disturbances[0].ratio(),
        ),
        Goal::at_most("the list of shares, ms", 100.0, many.list.p50()),
        Goal::at_most(
            format!("MNT again: p50 with {count} shares, of that with {FEW}"),
            1.1,
            ratio(many.mounts.p50(), few.mounts.p50()),
        ),
        Goal::at_most("memory a share, none in use, bytes", 2000.0, Some(ready)),
        Goal::at_most(format!("memory a share, {used} in use, bytes"), 2000.0, Some(average)),
    ]);
    for one in [few, many] {
        findings.add_raw(json!({
            "shares": one.shares, "list_ms": one.list.0, "list_bytes": one.list_bytes,
            "mnt_p50_ms": one.mounts.p50(), "mnt_p99_ms": one.mounts.p99(),
            "mnt_first_p50_ms": one.first_mounts.p50(), "mnt_first_p99_ms": one.first_mounts.p99(),
        }));
    }
    for one in memory {
        findings.add_raw(json!({
            "shares": one.shares, "memory_ready_bytes": one.ready, "used": one.used(),
            "memory_in_use_bytes": one.in_use, "memory_idle_bytes": one.idle,
        }));
    }
    for (name, times) in changes {
        findings.add_raw(json!({ "what": name, "ms": times.0 }));
    }
    for disturbance in disturbances {
        findings.add_raw(json!({
            "change_every_ms": disturbance.every.as_millis() as u64,
            "getattr_p99_us": disturbance.without, "getattr_p99_us_with_changes": disturbance.with,
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values: &[f64]) -> Times {
        Times(values.to_vec())
    }

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let all = times(&(1..=100).rev().map(f64::from).collect::<Vec<_>>());
        assert_eq!((all.p50(), all.p99()), (Some(50.5), Some(99.0)));
        assert_eq!((times(&[3.0]).p99(), times(&[]).p99()), (Some(3.0), None));
    }

    #[test]
    fn goals_compare_many_with_few() {
        let few = Measured {
            shares: 10,
            list: times(&[0.1]),
            mounts: times(&[0.1]),
            ..Measured::default()
        };
        let many = Measured {
            shares: 1010,
            list: times(&[101.0]),
            mounts: times(&[0.105]),
            ..Measured::default()
        };
        let changes = [("adding a share", times(&[1.0, 1.5, 9.0]))];
        let disturbance = Disturbance {
            every: CHANGE_EVERY[0],
            without: vec![100.0, 300.0, 90.0],
            with: vec![105.0, 9.0, 180.0],
            changes: 9,
        };
        assert_eq!(disturbance.ratio(), Some(1.05));
        let twice = Disturbance { with: vec![200.0, 600.0, 180.0], ..disturbance.clone() };
        let memory = [
            Memory { shares: 10, ready: 1000, ..Memory::default() },
            Memory { shares: 1010, ready: 1_801_000, in_use: 3_821_000, idle: 1_902_000 },
        ];
        let findings = findings("", &few, &many, &memory, &changes, &[disturbance, twice]);
        let met: Vec<_> = findings.goals.iter().map(Goal::is_met).collect();
        // The list is late, and memory in use is more than it may be.
        assert_eq!(met, [true, true, false, true, true, false]);
        let text = findings.markdown();
        assert!(
            text.contains(
                "1,800 bytes when it is ready; 2,000 more for each of 1,010 that are in use, 100 when"
            ),
            "{text}"
        );
    }
}
