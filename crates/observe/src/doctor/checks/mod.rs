//! The findings: a table of rows, each with a function of two [`Facts`] that says whether it is there.
//!
//! A row does no I/O and knows no other row. Its numbers are of the time between the two looks where enough
//! happened in it, else of the time since the machine, the mount or the server was started; the latter makes an
//! advice at the most, as it may be long past. `docs/doctor.md` is made from this table.

mod client;
mod host;
mod kernel;
mod log;
mod network;
mod server;
mod sockets;

use serde::Serialize;

use super::facts::{Facts, Interface, Sample};
use super::gather::count;

/// Packets of which this part is lost make an 8 KiB READ of 7 packets be sent again in 0.42 % of the cases
/// (Legato, "Retransmissions").
pub const PACKETS_LOST_MAX: f64 = 0.0006;
/// Calls that may be sent again, where a read takes 30 ms and the timer 0.7 s (Legato, "Retransmissions").
pub const CALLS_AGAIN_MAX: f64 = 0.0042;

/// How much a finding matters. The exit status of `steadfast doctor` is that of the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// To know; nothing is to be done.
    Info,
    /// Something could be better.
    Advice,
    /// It costs time now.
    Warning,
    /// It stops work, or may lose data.
    Critical,
}

impl Severity {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Advice => "advice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What a row has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// How much it matters here.
    pub severity: Severity,
    /// Of what: a mount, an interface, a client; empty for the machine.
    pub subject: String,
    /// The number that decided.
    pub measured: f64,
    /// What it was compared with.
    pub limit: f64,
    /// The numbers in a sentence.
    pub evidence: String,
}

impl Found {
    fn new(severity: Severity, subject: &str, measured: f64, limit: f64, evidence: String) -> Self {
        Self { severity, subject: subject.to_owned(), measured, limit, evidence }
    }
}

/// A kind of finding.
pub struct Row {
    /// Its name.
    pub id: &'static str,
    /// What is wrong, in one line.
    pub title: &'static str,
    /// When it is found.
    pub threshold: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// What to do.
    pub action: &'static str,
    /// What that brings.
    pub gain: &'static str,
    /// Settings of `steadfast tune` that help.
    pub settings: &'static [&'static str],
    /// Finds it.
    pub check: fn(&View<'_>) -> Vec<Found>,
}

/// All rows, in the order of the documentation.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [client::ROWS, network::ROWS, sockets::ROWS, server::ROWS, log::ROWS, host::ROWS, kernel::ROWS]
        .into_iter()
        .flatten()
}

/// Two looks at a machine, and many quick ones between them.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The first.
    pub before: &'a Facts,
    /// The second.
    pub after: &'a Facts,
    /// Those between.
    pub samples: &'a [Sample],
}

/// How often something happened: in the time between the looks, and since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: u64,
    ever: u64,
}

impl Count {
    fn of(before: u64, after: u64) -> Self {
        // What is smaller was started anew meanwhile.
        Self { now: if after < before { after } else { after - before }, ever: after }
    }

    fn and(self, other: Self) -> Self {
        Self { now: self.now.saturating_add(other.now), ever: self.ever.saturating_add(other.ever) }
    }

    fn without(self, other: Self) -> Self {
        Self { now: self.now.saturating_sub(other.now), ever: self.ever.saturating_sub(other.ever) }
    }
}

/// A part of a whole.
#[derive(Clone, Copy, Debug)]
struct Share {
    part: u64,
    whole: u64,
    /// Whether it is of the time between the looks.
    is_now: bool,
}

impl Share {
    /// Of the time between the looks if the whole has `least` in it, else since the start if it has ten times
    /// that: fewer measure nothing.
    fn of(part: Count, whole: Count, least: u64) -> Option<Self> {
        if whole.now >= least {
            return Some(Self { part: part.now, whole: whole.now, is_now: true });
        }
        (whole.ever >= least.saturating_mul(10)).then_some(Self {
            part: part.ever,
            whole: whole.ever,
            is_now: false,
        })
    }

    fn ratio(self) -> f64 {
        self.part as f64 / self.whole.max(1) as f64
    }

    /// The severity if this is of now, and an advice if it may be past.
    fn severity(self, now: Severity) -> Severity {
        if self.is_now { now } else { now.min(Severity::Advice) }
    }

    /// `12 of 3456 packets (0.35 %) in 5.0 s`
    fn text(self, view: &View<'_>, what: &str) -> String {
        let when = if self.is_now { view.interval() } else { "since the start".to_owned() };
        format!("{} of {} {what} ({}) {when}", self.part, self.whole, percent(self.ratio()))
    }
}

impl<'a> View<'a> {
    /// Seconds between the two looks.
    pub fn seconds(&self) -> f64 {
        (self.after.uptime_s - self.before.uptime_s).max(0.001)
    }

    fn interval(&self) -> String {
        format!("in {:.1} s", self.seconds())
    }

    /// A counter of a protocol.
    fn protocol(&self, name: &str) -> Count {
        let ever = count(&self.after.protocols, name);
        match self.before.protocols.get(name) {
            Some(before) => Count::of(*before, ever),
            None => Count { now: 0, ever },
        }
    }

    /// Interfaces, with how they were before.
    fn interfaces(&self) -> impl Iterator<Item = (Interface, &'a Interface)> {
        let before = &self.before.interfaces;
        self.after.interfaces.iter().map(move |after| {
            let name = &after.counters.name;
            let found = before.iter().find(|one| one.counters.name == *name);
            (found.cloned().unwrap_or_default(), after)
        })
    }

    /// The part of the interval that `us` microseconds are.
    fn part_of_time(&self, before_us: u64, after_us: u64) -> f64 {
        Count::of(before_us, after_us).now as f64 / 1e6 / self.seconds()
    }

    /// How many CPUs there are.
    fn cpus(&self) -> usize {
        self.after.cpus.each.len().max(1)
    }
}

/// A part as a percentage, with as many digits as it needs.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        p if p < 0.01 => format!("{p:.4} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

/// Bytes for people.
fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1.0 { format!("{mib:.1} MiB") } else { format!("{:.1} KiB", bytes as f64 / 1024.0) }
}
