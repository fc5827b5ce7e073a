//! What is asked of Steadfast with thousands of clients, and whether it was seen.

use super::Medians;
use super::cases::{self, at};
use crate::servers::Peer;

/// What "scales from one worker to two" is taken for, where each has the same share of a CPU.
const TWO_WORKERS: f64 = 1.8;
/// Runnable tasks beyond the number of CPUs that still count as near it.
const RUNNING_BEYOND_CPUS: f64 = 3.0;

/// A target and what was measured.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// As the targets are numbered.
    pub(super) number: u32,
    pub(super) what: String,
    pub(super) goal: String,
    pub(super) measured: Option<f64>,
    /// `None` when it was not measured, or cannot be judged here.
    pub(super) is_met: Option<bool>,
}

struct Targets<'m> {
    medians: &'m Medians<'m>,
    all: Vec<Target>,
}

impl Targets<'_> {
    fn ours(&self, title: &str, figure: &str) -> Option<f64> {
        self.medians.get(title, Peer::Steadfast, figure)
    }

    /// Ganesha's figure by ours.
    fn theirs_by_ours(&self, title: &str, figure: &str) -> Option<f64> {
        Some(self.medians.get(title, Peer::Ganesha, figure)? / self.ours(title, figure)?)
    }

    /// Ours by that of canned replies.
    fn ours_by_canned(&self, title: &str, canned: &str) -> Option<f64> {
        let floor = self.medians.get(canned, Peer::Canned, cases::SERVER)?;
        Some(self.ours(title, cases::SERVER)? / floor)
    }

    fn at_least(&mut self, number: u32, what: &str, least: f64, measured: Option<f64>) {
        let is_met = measured.map(|measured| measured >= least);
        let (what, goal) = (what.to_owned(), format!("≥ {least}"));
        self.all.push(Target { number, what, goal, measured, is_met });
    }

    fn at_most(&mut self, number: u32, what: &str, most: f64, measured: Option<f64>) {
        let is_met = measured.map(|measured| measured <= most);
        let (what, goal) = (what.to_owned(), format!("≤ {most}"));
        self.all.push(Target { number, what, goal, measured, is_met });
    }

    /// No target: what helps to judge one.
    fn told(&mut self, number: u32, what: &str, measured: Option<f64>) {
        let (what, goal) = (what.to_owned(), "–".to_owned());
        self.all.push(Target { number, what, goal, measured, is_met: None });
    }

    fn cpu_time(&mut self) {
        for (what, title, least) in [
            ("GETATTR", cases::GETATTR, 6.0),
            ("ACCESS", cases::ACCESS, 6.0),
            ("LOOKUP", cases::LOOKUP, 5.0),
            ("READ 4 KiB", cases::READ_4K, 4.0),
            ("traversal 16×8", cases::TRAVERSAL, 5.0),
            ("nhfsstone without its stable calls", cases::MIX, 4.0),
        ] {
            let measured = self.theirs_by_ours(title, cases::SERVER);
            self.at_least(1, &format!("{what}: CPU a call, ganesha ÷ ours"), least, measured);
        }
        for (what, title) in [("GETATTR", cases::GETATTR), ("ACCESS", cases::ACCESS)] {
            let measured = self.ours_by_canned(title, cases::NULL_CANNED);
            self.at_most(1, &format!("{what}: CPU a call, ours ÷ canned"), 3.5, measured);
        }
        // One call a client at a time: what a receive and a send cost is the floor of everybody's.
        let floor = self.medians.get(cases::TURNS_CANNED, Peer::Canned, cases::SERVER);
        let theirs = self.medians.get(cases::TRAVERSAL_200, Peer::Ganesha, cases::SERVER);
        let measured = theirs.zip(floor).map(|(theirs, floor)| theirs / floor);
        self.told(1, "traversal, 200 clients: CPU a call, ganesha ÷ canned at 200×1", measured);
        let measured = self.ours_by_canned(cases::ALONE, cases::ALONE_CANNED);
        self.at_most(1, "GETATTR at 1×1: CPU a call, ours ÷ canned", 1.25, measured);
    }

    /// The highest rate at which the median stayed under a millisecond.
    fn rate_held(&self, peer: Peer) -> Option<f64> {
        let p50 = |rate: &u32| self.medians.get(cases::RATES, peer, &at(cases::P50, rate));
        p50(cases::RATES_PER_SECOND.first()?)?;
        let is_held = |rate: &&u32| p50(rate).is_some_and(|p50_us| p50_us < 1000.0);
        let held = cases::RATES_PER_SECOND.iter().rfind(is_held);
        Some(held.copied().map_or(0.0, f64::from))
    }

    fn throughput(&mut self) {
        for (what, title, least) in [
            ("GETATTR at 64×8", cases::MANY, 5.0),
            ("traversal, 200 clients of one process each", cases::TRAVERSAL_200, 4.0),
            ("traversal, 200 processes, eight a client", cases::TRAVERSAL_25X8, 4.0),
            ("traversal, 200 clients of eight processes each", cases::TRAVERSAL_200X8, 4.0),
        ] {
            let measured = self.theirs_by_ours(title, cases::CALLS).map(f64::recip);
            self.at_least(2, &format!("{what}: calls/s, ours ÷ ganesha's"), least, measured);
        }
        let (theirs, ours) = (self.rate_held(Peer::Ganesha), self.rate_held(Peer::Steadfast));
        // Where not even the lowest rate is held, something else was busy.
        let measured =
            ours.zip(theirs.filter(|rate| *rate > 0.0)).map(|(ours, theirs)| ours / theirs);
        let rate = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| rate.to_string());
        let what = format!(
            "one core: highest rate with p50 < 1 ms, ours ({}/s) ÷ ganesha's ({}/s)",
            rate(ours),
            rate(theirs)
        );
        self.at_least(2, &what, 2.0, measured);
        let p99_at_half = |peer, held: Option<f64>| {
            let half = held? / 2.0;
            let rate = cases::RATES_PER_SECOND.iter().rfind(|rate| f64::from(**rate) <= half)?;
            self.medians.get(cases::RATES, peer, &at(cases::P99, rate))
        };
        let measured = p99_at_half(Peer::Steadfast, ours)
            .zip(p99_at_half(Peer::Ganesha, theirs))
            .map(|(ours, theirs)| ours / theirs);
        self.at_most(2, "p99 at half of that rate, ours ÷ ganesha's", 1.0, measured);
        // Calls of a closed loop come eight at a time, which no calls at random times do.
        let [of_own_load, of_busy_cpus] = [cases::HALF, cases::HALF_OF_BUSY_CPUS]
            .map(|title| self.theirs_by_ours(title, cases::P99).map(f64::recip));
        let what = "p99 at half of the closed loop's peak, ours ÷ ganesha's";
        self.at_most(2, &format!("{what}, no CPU idle for either"), 1.0, of_busy_cpus);
        // Pauses of the virtual CPUs, more of them the busier those are.
        self.told(2, &format!("{what}, CPUs as busy as each makes them"), of_own_load);
    }

    fn streams(&mut self) {
        let by_limit = |title, limit| {
            let limit = self.ours(title, limit);
            self.ours(title, cases::MIB).zip(limit).map(|(own, of)| own / of)
        };
        let [of_system, from_memory, from_cache] = [
            (cases::STREAM_SYSTEM_TCP, cases::LOOPBACK),
            (cases::STREAM, cases::LOOPBACK_FROM_MEMORY),
            (cases::STREAM, cases::LOOPBACK),
        ]
        .map(|(title, limit)| by_limit(title, limit));
        let what = "1 MiB reads, MiB/s ÷ loopback TCP limit";
        self.at_least(3, &format!("{what}, the machine's TCP"), 0.85, of_system);
        // What files have is not in a CPU's cache.
        self.at_least(3, &format!("{what}, usual TCP, data from memory"), 0.85, from_memory);
        self.told(3, &format!("{what}, usual TCP, one buffer of 1 MiB"), from_cache);
        let [of_system, usual] = [cases::STREAM_SYSTEM_TCP, cases::STREAM]
            .map(|title| self.theirs_by_ours(title, cases::SERVER_MIB));
        // The goal is from machines as they are; the floor of usual TCP is in docs/performance.md.
        let what = "1 MiB reads: CPU a MiB, ganesha ÷ ours";
        self.at_least(3, &format!("{what}, the machine's TCP"), 2.0, of_system);
        self.told(3, &format!("{what}, usual TCP"), usual);
        let [one, two] = cases::UDP.map(|(_, title)| self.ours(title, cases::CALLS));
        let measured = two.zip(one).map(|(two, one)| two / one);
        self.at_least(3, "UDP reads: calls/s of 2 workers ÷ 1 worker", TWO_WORKERS, measured);
    }

    fn walks(&mut self, cpus: usize) {
        let calls: Vec<Option<f64>> =
            cases::WALKERS.map(|n| self.ours(cases::WALKS, &at(cases::CALLS, n))).to_vec();
        let best = calls.iter().flatten().copied().fold(0.0, f64::max);
        let measured = calls.last().copied().flatten().map(|last| last / best);
        self.at_least(4, "walk: calls/s with 4000 clients ÷ best", 0.9, measured);
        let worst = |figure: &str| {
            let points = cases::WALKERS.map(|n| self.ours(cases::WALKS, &at(figure, n)));
            points.into_iter().try_fold(0.0, |worst: f64, point| Some(worst.max(point?)))
        };
        let (mount, failed) = (worst(cases::SLOWEST_MOUNT), worst(cases::FAILED_MOUNTS));
        let running = worst(cases::RUNNING);
        self.at_most(4, "walk: slowest new mount at any point, ms", 1000.0, mount);
        self.at_most(4, "walk: new mounts that failed, most at a point", 0.0, failed);
        let near = cpus as f64 + RUNNING_BEYOND_CPUS;
        self.at_most(4, "walk: tasks that run or want to, most at a point", near, running);
    }

    fn duplicates(&mut self) {
        let [mb, seconds, rate] = [cases::KEPT_MB, cases::KEPT_SECONDS, cases::CALLS]
            .map(|figure| self.ours(cases::CHANGES, figure));
        self.at_most(6, "changing calls: memory of the kept replies, MB", KEPT_MB_MOST, mb);
        // A machine that is slower has them for as long as that at its own rate.
        let of_design =
            seconds.zip(rate).map(|(seconds, rate)| seconds * (rate / DESIGN_RATE).max(1.0));
        let what = "changing calls: kept replies reach back, s, of at most 100,000 calls a second";
        self.at_least(6, what, 2.0, of_design);
    }

    fn fairness(&mut self) {
        let [beside, alone] = [cases::FAIR, cases::ALONE].map(|row| self.ours(row, cases::P99));
        let measured = beside.zip(alone).map(|(beside, alone)| beside / alone);
        self.at_most(7, "p99 beside another client's 64×8 ÷ p99 alone", 2.0, measured);
        let [beside, alone] = [(cases::FAIR, cases::BESIDE), (cases::MANY, cases::CALLS)]
            .map(|(row, figure)| self.ours(row, figure));
        let measured = beside.zip(alone).map(|(beside, alone)| beside / alone);
        // The generators share a CPU, so this is not the server's doing alone.
        self.told(7, "calls/s of that other client ÷ alone", measured);
    }

    fn storms(&mut self) {
        for (what, title, clients, last) in [
            ("2000, idle", cases::STORM, 2000.0, Some(0.2)),
            ("2000, saturated", cases::STORM_BUSY, 2000.0, Some(2.0)),
            ("10,000", cases::STORM_LARGE, 10_000.0, None),
        ] {
            let mounted = self.ours(title, cases::MOUNTED);
            self.at_least(5, &format!("mountstorm {what}: have mounted"), clients, mounted);
            if let Some(last) = last {
                let measured = self.ours(title, cases::LAST);
                self.at_most(5, &format!("mountstorm {what}: the last, s"), last, measured);
            }
        }
    }
}

/// Changing calls a second for which that memory is meant.
const DESIGN_RATE: f64 = 100_000.0;
/// What is asked of the memory for two seconds of changing calls, in 10⁶ bytes.
const KEPT_MB_MOST: f64 = 64.0;

/// All targets.
pub(super) fn targets(medians: &Medians<'_>, cpus: usize) -> Vec<Target> {
    let mut targets = Targets { medians, all: Vec::new() };
    targets.cpu_time();
    targets.throughput();
    targets.streams();
    targets.walks(cpus);
    targets.storms();
    targets.duplicates();
    targets.fairness();
    targets.all
}
