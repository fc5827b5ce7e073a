//! The report: medians over rounds, ratios, goals, evidence; for people and for programs.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::Options;
use super::evidence::Evidence;
use super::load::{Figures, Goal, Row};
use crate::report::median;
use crate::servers::{Cpus, Peer};

/// One row in one round.
pub(super) struct Measurement {
    pub(super) peer: Peer,
    pub(super) row: &'static str,
    pub(super) result: Figures,
}

/// Everything found.
pub(super) struct Findings {
    versions: Vec<(Peer, String)>,
    conditions: String,
    rows: &'static [Row],
    pub(super) measurements: Vec<Measurement>,
    pub(super) evidence: Vec<Evidence>,
}

/// Medians of one row for one server.
#[derive(Clone, Copy)]
struct Medians {
    calls_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    server_us: f64,
    client_us: f64,
}

/// What is measured on: CPUs, kernel, file system.
pub(super) fn machine(directory: &Path, cpus: &Cpus) -> Result<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let pinning = match (&cpus.server, &cpus.client) {
        (Some(server), Some(client)) => {
            format!("servers on CPU {server}, the load generator on CPU {client}")
        }
        _ => "neither servers nor load generator are pinned".to_owned(),
    };
    // Without the command the type is not told; nothing else depends on it.
    let file_system = std::process::Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(directory)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default();
    Ok(format!(
        "{} CPUs ({}), Linux {}, {file_system}; {pinning}",
        std::thread::available_parallelism()?,
        model.map_or("unknown", |(_, name)| name.trim()),
        kernel.trim(),
    ))
}

impl Findings {
    pub(super) fn new(options: &Options, directory: &Path, cpus: &Cpus) -> Result<Self> {
        let mut versions = Vec::new();
        for peer in &options.peers {
            versions.push((*peer, peer.version()?));
        }
        let conditions = format!(
            "{}. {} rounds of {} s a row after half a second of warm-up, the order of the servers \
             alternating; medians over the rounds. \
             On ext4 the directory has `chattr +T`, without which one server's removals slow down \
             the next one's creations (freed inodes are passed over for minutes). \
             Loopback, one client thread, AUTH_SYS as root, every reply checked.",
            machine(directory, cpus)?,
            options.rounds,
            options.seconds,
        );
        let rows = options.suite.rows();
        Ok(Self { versions, conditions, rows, measurements: Vec::new(), evidence: Vec::new() })
    }

    fn medians(&self, peer: Peer, row: &Row) -> Option<Medians> {
        let of = |figure: fn(&Figures) -> f64| {
            median(
                self.measurements
                    .iter()
                    .filter(|one| one.peer == peer && one.row == row.title)
                    .map(|one| figure(&one.result))
                    .collect(),
            )
        };
        Some(Medians {
            calls_per_second: of(|figures| figures.calls_per_second)?,
            p50_us: of(|figures| figures.p50_us)?,
            p99_us: of(|figures| figures.p99_us)?,
            server_us: of(|figures| figures.server_us)?,
            client_us: of(|figures| figures.client_us)?,
        })
    }

    /// Whether a row's goal is met; `None` when there is none, or nothing to compare.
    fn verdict(&self, row: &Row) -> Option<bool> {
        let peer = self.medians(Peer::Ganesha, row);
        let ours = self.medians(Peer::Steadfast, row)?;
        match row.goal {
            Goal::ThirdOfCpu => Some(ours.server_us * 3.0 <= peer?.server_us),
            Goal::MoreThroughput => Some(ours.calls_per_second >= peer?.calls_per_second * 1.2),
            Goal::Cpu { at_most, of_peer, .. } => {
                let of_own = self.of_own_other(row).map(|ratio| ratio <= at_most);
                let of_peer =
                    of_peer.zip(peer).map(|(share, peer)| ours.server_us <= peer.server_us * share);
                match (of_own, of_peer) {
                    (None, None) => None,
                    (of_own, of_peer) => Some(of_own != Some(false) && of_peer != Some(false)),
                }
            }
            Goal::None => None,
        }
    }

    /// CPU time by that of the row that this one is compared with, both Steadfast's.
    fn of_own_other(&self, row: &Row) -> Option<f64> {
        let Goal::Cpu { of, .. } = row.goal else { return None };
        let other = self.rows.iter().find(|other| other.title == of)?;
        let ours = self.medians(Peer::Steadfast, row)?;
        Some(ours.server_us / self.medians(Peer::Steadfast, other)?.server_us)
    }

    /// How many goals were missed.
    pub(super) fn misses(&self) -> usize {
        self.rows.iter().filter(|row| self.verdict(row) == Some(false)).count()
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# Steadfast beside its peer\n\n");
        // Writing to a string cannot fail.
        for (peer, version) in &self.versions {
            let _ = writeln!(text, "- {}: {version}", peer.name());
        }
        let _ = writeln!(text, "- {}\n", self.conditions);
        text.push_str(
            "| calls | load | server | calls/s | p50 µs | p99 µs | server CPU µs/call | client \
             CPU µs/call | CPU ÷ peer's | calls/s ÷ peer's | goal |\n\
             |---|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n",
        );
        for row in self.rows {
            for (peer, _) in &self.versions {
                let Some(own) = self.medians(*peer, row) else { continue };
                let ratios = match self.medians(Peer::Ganesha, row) {
                    None if *peer == Peer::Steadfast => format!(" | | {}", self.goal_text(row)),
                    Some(other) if *peer == Peer::Steadfast => format!(
                        "{:.2} | {:.2} | {}",
                        own.server_us / other.server_us,
                        own.calls_per_second / other.calls_per_second,
                        self.goal_text(row)
                    ),
                    _ => " | | ".to_owned(),
                };
                let _ = writeln!(
                    text,
                    "| {} | {}×{} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {ratios} |",
                    row.title,
                    row.connections,
                    row.depth,
                    peer.name(),
                    own.calls_per_second,
                    own.p50_us,
                    own.p99_us,
                    own.server_us,
                    own.client_us,
                );
            }
        }
        self.promises(&mut text);
        text
    }

    fn goal_text(&self, row: &Row) -> String {
        let goal = match row.goal {
            Goal::ThirdOfCpu => "CPU ≤ 1/3".to_owned(),
            Goal::MoreThroughput => "calls/s ≥ 1.2×".to_owned(),
            Goal::Cpu { of, at_most, of_peer } => {
                let of_own = self.of_own_other(row);
                let of_own =
                    of_own.map(|ratio| format!("CPU {ratio:.2} of {of}'s, ≤ {at_most} wanted"));
                let of_peer =
                    of_peer.map(|share| format!("CPU ≤ 1/{:.0} of the peer's", 1.0 / share));
                of_own.into_iter().chain(of_peer).collect::<Vec<_>>().join("; ")
            }
            Goal::None => return "–".to_owned(),
        };
        let outcome = match self.verdict(row) {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not judged",
        };
        format!("{goal}: {outcome}")
    }

    /// What each server promises for changes, and what it was seen to do.
    fn promises(&self, text: &mut String) {
        if self.rows.iter().any(|row| row.nfs != "3") {
            text.push_str(
                "\nRows of 4.1 tell whole operations: where two requests follow each other, calls and CPU \
                 times are of both together, latencies of each.\n",
            );
        }
        if self.evidence.is_empty() {
            return;
        }
        text.push_str(
            "\nOf WRITE + COMMIT each is a call. Of the last three rows the numbers do not \
             compare without what they promise:\n\n\
             | calls, one at a time | server | answered | sync calls (strace) | so |\n\
             |---|---|--:|---|---|\n",
        );
        for one in &self.evidence {
            let syncs = if one.syncs.is_empty() {
                "none".to_owned()
            } else {
                let each = one.syncs.iter().map(|(name, count)| format!("{count} {name}"));
                each.collect::<Vec<_>>().join(", ")
            };
            let verdict = if one.total() >= one.answered {
                "on disk before the reply"
            } else {
                "NOT on disk before the reply: lost with the power"
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {syncs} | {verdict} |",
                one.operation,
                one.peer.name(),
                one.answered
            );
        }
        text.push_str(
            "\nRFC 1813 §4.7 asks for CREATE and REMOVE what FILE_SYNC promises for WRITE: on \
             stable storage before the reply.\n",
        );
    }

    pub(super) fn json(&self) -> Result<String> {
        let measurements: Vec<_> = self
            .measurements
            .iter()
            .map(|one| {
                json!({ "server": one.peer.name(), "row": one.row, "report": one.result.report })
            })
            .collect();
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let figures = |peer| {
                    self.medians(peer, row).map(|own| {
                        json!({
                            "calls_per_second": own.calls_per_second,
                            "p50_us": own.p50_us,
                            "p99_us": own.p99_us,
                            "server_cpu_us_per_call": own.server_us,
                            "client_cpu_us_per_call": own.client_us,
                        })
                    })
                };
                json!({
                    "row": row.title,
                    "connections": row.connections,
                    "depth": row.depth,
                    "nfs-ganesha": figures(Peer::Ganesha),
                    "steadfast": figures(Peer::Steadfast),
                    "goal_met": self.verdict(row),
                })
            })
            .collect();
        let evidence: Vec<_> = self
            .evidence
            .iter()
            .map(|one| {
                json!({
                    "server": one.peer.name(),
                    "operation": one.operation,
                    "answered": one.answered,
                    "sync_calls": one.syncs,
                })
            })
            .collect();
        let versions: Vec<_> = self
            .versions
            .iter()
            .map(|(peer, version)| json!({ "server": peer.name(), "version": version }))
            .collect();
        Ok(serde_json::to_string_pretty(&json!({
            "versions": versions,
            "conditions": self.conditions,
            "medians": rows,
            "evidence": evidence,
            "measurements": measurements,
        }))?)
    }
}
