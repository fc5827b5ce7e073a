//! What a storm measured, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::Mountstorm;
use super::client::KINDS;
use super::everything::EveryShareTally;
use super::worker::Tally;
use crate::drive::tally::kind_reports;
use crate::drive::{KindReport, Latency};
use crate::error::BenchError;
use crate::server_cost::Costs;
use crate::text::or_dash;

/// Results of a storm.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Clients.
    pub clients: usize,
    /// Clients that have mounted.
    pub succeeded: u64,
    /// Clients that gave up, or were stopped.
    pub failed: u64,
    /// Clients that have mounted at their first attempt.
    pub succeeded_at_first: u64,
    /// Attempts beyond each client's first.
    pub retries: u64,
    /// Why clients gave up.
    pub given_up: BTreeMap<String, u64>,
    /// Why attempts failed.
    pub failed_attempts: BTreeMap<String, u64>,
    /// When the last client had mounted, from the storm's beginning.
    pub last_mounted_seconds: f64,
    /// When every client had mounted or given up.
    pub seconds: f64,
    /// From a client's start to its mount, pauses between attempts included.
    #[serde(flatten)]
    pub latency: Latency,
    /// Single steps, of all attempts.
    pub steps: Vec<KindReport>,
    /// CPU time for each mount.
    #[serde(flatten)]
    pub costs: Costs,
    /// What clients did that mount every share.
    pub every_share: Option<EveryShareReport>,
    /// The load that ran meanwhile.
    pub beside: Option<BesideReport>,
    /// It was stopped early.
    pub was_interrupted: bool,
}

/// What clients were told and mounted that mount every share. EXPORT and MNT are among the steps.
#[derive(Clone, Debug, Serialize)]
pub struct EveryShareReport {
    /// Shares that EXPORT told.
    pub shares_told: u64,
    /// Bytes of its reply.
    pub export_bytes: u64,
    /// Shares that each client was to mount.
    pub shares_wanted: u64,
    /// Mounts that were made, by all clients.
    pub mounts: u64,
    /// Mounts a second, until the last client was done.
    pub mounts_per_second: f64,
    /// Mounts that were refused, by the status of MNT.
    pub refused: BTreeMap<u32, u64>,
}

/// The load that ran beside a storm, from before it to its end.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BesideReport {
    /// Its virtual clients.
    pub clients: usize,
    /// Calls in flight of each.
    pub depth: usize,
    /// Its calls a second.
    pub calls_per_second: f64,
    /// How long they took.
    #[serde(flatten)]
    pub latency: Latency,
}

impl Report {
    /// A storm of which nothing came is no measurement.
    ///
    /// # Errors
    /// When no client has mounted, unless somebody interrupted it.
    pub fn require_success(&self) -> Result<(), BenchError> {
        if self.succeeded > 0 || self.was_interrupted {
            return Ok(());
        }
        Err(BenchError::NobodyMounted { clients: self.clients })
    }

    pub(super) fn new(
        storm: &Mountstorm,
        tally: Tally,
        costs: Costs,
        seconds: f64,
        beside: Option<BesideReport>,
        was_interrupted: bool,
    ) -> Self {
        Self {
            clients: storm.clients,
            succeeded: tally.mounted(),
            failed: tally.given_up.values().sum(),
            succeeded_at_first: tally.at_first,
            retries: tally.retries,
            last_mounted_seconds: tally.last_ns as f64 / 1e9,
            seconds,
            latency: Latency::of(&tally.mounts),
            steps: kind_reports(&tally.steps, &KINDS),
            every_share: storm.every_share.map(|every| {
                let EveryShareTally { mounts, refused, shares_max, bytes_max } = tally.every_share;
                EveryShareReport {
                    shares_told: shares_max,
                    export_bytes: bytes_max,
                    shares_wanted: shares_max.min(every.0 as u64),
                    mounts,
                    mounts_per_second: mounts as f64 / seconds,
                    refused,
                }
            }),
            given_up: tally.given_up,
            failed_attempts: tally.failed_attempts,
            costs,
            beside,
            was_interrupted,
        }
    }

    /// Tables for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let latency = &self.latency;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} of {} clients have mounted, {} at the first attempt; the last after {:.3} s{}",
            self.succeeded,
            self.clients,
            self.succeeded_at_first,
            self.last_mounted_seconds,
            if self.was_interrupted { " (interrupted)" } else { "" },
        );
        let _ = writeln!(
            text,
            "a mount: mean {:.1} ms, p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; server {} µs of CPU",
            latency.mean_us / 1e3,
            latency.p50_us / 1e3,
            latency.p99_us / 1e3,
            latency.max_us / 1e3,
            or_dash(self.costs.server_cpu_us_per_call, 1),
        );
        if let Some(every) = &self.every_share {
            let _ = writeln!(
                text,
                "each mounts {} of {} shares: {} mounts, {:.0}/s; EXPORT's reply has {} bytes",
                every.shares_wanted,
                every.shares_told,
                every.mounts,
                every.mounts_per_second,
                every.export_bytes,
            );
            for (status, count) in &every.refused {
                let _ = writeln!(text, "{count} mounts were refused with status {status}");
            }
        }
        for step in &self.steps {
            let latency = &step.latency;
            let _ = writeln!(
                text,
                "  {:<16} {:>8}  mean {:>8.2} ms  p50 {:>8.2} ms  p99 {:>8.2} ms  max {:>8.2} ms",
                step.operation,
                step.calls,
                latency.mean_us / 1e3,
                latency.p50_us / 1e3,
                latency.p99_us / 1e3,
                latency.max_us / 1e3,
            );
        }
        for (why, count) in &self.failed_attempts {
            let _ = writeln!(text, "{count} attempts failed: {why}");
        }
        for (why, count) in &self.given_up {
            let _ = writeln!(text, "{count} clients gave up: {why}");
        }
        if let Some(beside) = &self.beside {
            let _ = writeln!(
                text,
                "beside: {} clients × {}: {:.0} calls/s, p50 {:.2} ms, p99 {:.2} ms",
                beside.clients,
                beside.depth,
                beside.calls_per_second,
                beside.latency.p50_us / 1e3,
                beside.latency.p99_us / 1e3,
            );
        }
        text
    }
}
