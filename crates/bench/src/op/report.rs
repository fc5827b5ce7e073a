//! What a load measured, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::worker::Tally;
use super::{BenchError, Load, Operation};
use crate::server_cost::Snapshot;

/// Results of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The kind of call.
    pub operation: String,
    /// TCP connections.
    pub connections: usize,
    /// Calls in flight a connection.
    pub depth: usize,
    /// Client threads.
    pub threads: usize,
    /// How long it was measured.
    pub seconds: f64,
    /// Calls that ended while it was measured.
    pub calls: u64,
    /// Calls per second.
    pub calls_per_second: f64,
    /// File data per second, in MiB.
    pub mib_per_second: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile in microseconds.
    pub p999_us: f64,
    /// Worst latency in microseconds.
    pub max_us: f64,
    /// The server's CPU time a call in microseconds, if its process is known.
    pub server_cpu_us_per_call: Option<f64>,
    /// This program's CPU time a call in microseconds.
    pub client_cpu_us_per_call: Option<f64>,
    /// What was checked.
    pub checks: Checks,
}

/// What was checked, warm-up included.
#[derive(Clone, Debug, Serialize)]
pub struct Checks {
    /// Replies whose status and form were right: all.
    pub replies: u64,
    /// READs whose data was compared in places.
    pub sampled_reads: u64,
    /// Objects that were looked at after the measurement (written data read back, names looked
    /// up).
    pub read_back: u64,
    /// WRITEs answered as unstable.
    pub committed_unstable: u64,
    /// WRITEs answered as `DATA_SYNC`.
    pub committed_data_sync: u64,
    /// WRITEs answered as `FILE_SYNC`.
    pub committed_file_sync: u64,
    /// How often the write verifier changed.
    pub verifier_changes: u64,
    /// Calls answered with JUKEBOX, which were made again.
    pub try_later: u64,
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

impl Report {
    pub(super) fn new(
        load: &Load,
        tally: &Tally,
        read_back: u64,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Result<Self, BenchError> {
        let calls = tally.latencies.len();
        if calls == 0 {
            return Err(BenchError::Nothing { operation: load.operation.to_string() });
        }
        let seconds = (after.at - before.at).as_secs_f64();
        let per_call = |before: Option<Duration>, after: Option<Duration>| {
            Some(micros(after?.saturating_sub(before?)) / calls as f64)
        };
        let quantile = |q: f64| tally.latencies.value_at_quantile(q) as f64 / 1e3;
        let data_calls = match load.operation {
            Operation::WriteCommit { .. } => calls / 2,
            _ => calls,
        };
        let bytes = data_calls as f64 * f64::from(load.operation.payload_bytes());
        let [committed_unstable, committed_data_sync, committed_file_sync] =
            tally.promises.committed;
        Ok(Self {
            operation: load.operation.to_string(),
            connections: load.connections,
            depth: load.depth,
            threads: load.threads,
            seconds,
            calls,
            calls_per_second: calls as f64 / seconds,
            mib_per_second: bytes / seconds / f64::from(1 << 20),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: tally.latencies.max() as f64 / 1e3,
            server_cpu_us_per_call: per_call(before.server, after.server),
            client_cpu_us_per_call: per_call(before.client, after.client),
            checks: Checks {
                replies: tally.replies,
                sampled_reads: tally.promises.sampled_data,
                read_back,
                committed_unstable,
                committed_data_sync,
                committed_file_sync,
                verifier_changes: tally.promises.verifier_changes,
                try_later: tally.promises.try_later,
            },
        })
    }
}

/// A table of reports, a line each.
pub fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<24} {:>7} {:>10} {:>9} {:>9} {:>9} {:>11} {:>11}\n",
        "operation", "c × d", "calls/s", "MiB/s", "p50 µs", "p99 µs", "server µs", "client µs"
    );
    for report in reports {
        let cost = |cost: Option<f64>| cost.map_or_else(|| "–".to_owned(), |us| format!("{us:.2}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<24} {:>7} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>11} {:>11}",
            report.operation,
            format!("{}×{}", report.connections, report.depth),
            report.calls_per_second,
            report.mib_per_second,
            report.p50_us,
            report.p99_us,
            cost(report.server_cpu_us_per_call),
            cost(report.client_cpu_us_per_call),
        );
    }
    text
}
