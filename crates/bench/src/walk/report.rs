//! What the walks measured, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::script::Walking;
use super::{KINDS, Mounts};
use crate::drive::tally::kind_reports;
use crate::drive::{KindReport, Latency, Outcome};
use crate::error::BenchError;
use crate::server_cost::Costs;
use crate::text::or_dash;
use crate::version::NfsVersion;

/// Results for all numbers of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Over which version of NFS.
    pub nfs: &'static str,
    /// Inodes of the tree, its root apart.
    pub inodes: usize,
    /// The tree was there from an earlier run.
    pub tree_was_there: bool,
    /// For each number of clients.
    pub points: Vec<Point>,
}

/// Results for one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Virtual clients.
    pub clients: usize,
    /// Their connections.
    pub connections: usize,
    /// Calls a second.
    pub calls_per_second: f64,
    /// How long it was measured.
    pub seconds: f64,
    /// Calls that ended while it was measured.
    pub calls: u64,
    /// Inodes that clients were done with, warm-up included.
    pub inodes_walked: u64,
    /// Whole walks of the tree, warm-up included, in which every inode was seen.
    pub whole_walks: u64,
    /// Replies, all checked, warm-up included.
    pub replies: u64,
    /// Replies that put the call off, which was made again.
    pub try_later: u64,
    /// Latencies of all calls.
    #[serde(flatten)]
    pub latency: Latency,
    /// By kind of call.
    pub operations: Vec<KindReport>,
    /// CPU time, memory, load.
    #[serde(flatten)]
    pub costs: Costs,
    /// Mounts by new clients meanwhile.
    pub mounts: Mounts,
    /// It was stopped early.
    pub was_interrupted: bool,
}

impl Point {
    pub(super) fn new(
        (clients, connections): (usize, usize),
        outcome: &Outcome<Walking>,
        mounts: Mounts,
    ) -> Result<Self, BenchError> {
        let all = outcome.tally.all();
        if all.is_empty() {
            return Err(BenchError::Nothing { operation: "walk".to_owned() });
        }
        Ok(Self {
            clients,
            connections,
            calls_per_second: all.len() as f64 / outcome.seconds,
            seconds: outcome.seconds,
            calls: all.len(),
            inodes_walked: outcome.scripts.iter().map(|script| script.inodes).sum(),
            whole_walks: outcome.scripts.iter().map(Walking::walks).sum(),
            replies: outcome.tally.replies,
            try_later: outcome.tally.try_later,
            latency: Latency::of(&all),
            operations: kind_reports(&outcome.tally, &KINDS.map(|(name, _)| name)),
            costs: outcome.costs,
            mounts,
            was_interrupted: outcome.was_interrupted,
        })
    }
}

impl Report {
    pub(super) fn new(nfs: NfsVersion, inodes: usize, tree_was_there: bool) -> Self {
        Self { nfs: nfs.name(), inodes, tree_was_there, points: Vec::new() }
    }

    /// Tables for people.
    pub fn table(&self) -> String {
        let mut text = format!("a tree of {} inodes, NFSv{}\n", self.inodes, self.nfs);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>8} {:>8} {:>10} {:>8} {:>8} {:>8} {:>8} {:>10} {:>7} {:>8} {:>6} {:>9} {:>7}",
            "clients",
            "connect.",
            "calls/s",
            "mean ms",
            "p50 ms",
            "p99 ms",
            "max ms",
            "server µs",
            "cpu %",
            "RSS MiB",
            "load",
            "mounts",
            "max ms"
        );
        for point in &self.points {
            let (latency, costs, mounts) = (&point.latency, &point.costs, &point.mounts);
            let _ = writeln!(
                text,
                "{:>8} {:>8} {:>10.0} {:>8.2} {:>8.2} {:>8.2} {:>8.1} {:>10} {:>7} {:>8} {:>6} {:>9} {:>7.1}{}",
                point.clients,
                point.connections,
                point.calls_per_second,
                latency.mean_us / 1e3,
                latency.p50_us / 1e3,
                latency.p99_us / 1e3,
                latency.max_us / 1e3,
                or_dash(costs.server_cpu_us_per_call, 2),
                or_dash(costs.server_cpu_percent, 0),
                or_dash(costs.server_resident_bytes.map(|bytes| bytes as f64 / 1_048_576.0), 0),
                or_dash(costs.running_tasks, 1),
                format!("{}/{}", mounts.succeeded, mounts.succeeded + mounts.failed),
                mounts.max_ms,
                if point.was_interrupted { "  interrupted" } else { "" },
            );
        }
        if let Some(last) = self.points.last() {
            let _ = writeln!(text, "\nwith {} clients:", last.clients);
            for kind in &last.operations {
                let _ = writeln!(
                    text,
                    "{:<12} {:>6.2} % of calls, mean {:.3} ms, p99 {:.3} ms",
                    kind.operation,
                    kind.percent_of_calls,
                    kind.latency.mean_us / 1e3,
                    kind.latency.p99_us / 1e3
                );
            }
        }
        text
    }
}
