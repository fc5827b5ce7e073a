//! What a load measured, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::Load;
use super::script::Promises;
use crate::drive::tally::kind_reports;
use crate::drive::{KindReport, Latency, Outcome, Pace, Transport};
use crate::error::BenchError;
use crate::server_cost::Costs;
use crate::text::or_dash;
use crate::version::NfsVersion;

/// An open loop that is this late has not held its rate, in seconds.
const LATE_SECONDS: f64 = 0.1;

/// Results of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The kind of call.
    pub operation: String,
    /// The version of NFS: 3, 4.1 or 4.2.
    pub nfs: &'static str,
    /// Calls that make up one operation: 2 where one follows the other.
    pub calls_per_operation: usize,
    /// Connections, or UDP sockets.
    pub connections: usize,
    /// Calls in flight a connection.
    pub depth: usize,
    /// Client threads.
    pub threads: usize,
    /// Calls went over UDP.
    pub is_udp: bool,
    /// Calls a second that were asked for; none in a closed loop.
    pub wanted_calls_per_second: Option<f64>,
    /// How long it was measured.
    pub seconds: f64,
    /// Calls that ended while it was measured.
    pub calls: u64,
    /// Calls per second.
    pub calls_per_second: f64,
    /// File data per second, in MiB.
    pub mib_per_second: f64,
    /// Latencies of all calls, from the scheduled start where there is a schedule.
    #[serde(flatten)]
    pub latency: Latency,
    /// By kind of call.
    pub operations: Vec<KindReport>,
    /// CPU time and memory.
    #[serde(flatten)]
    pub costs: Costs,
    /// How late the schedule was at the end: a backlog that is not in the latencies yet.
    pub behind_seconds: f64,
    /// What was checked.
    pub checks: Checks,
    /// It was stopped early.
    pub was_interrupted: bool,
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
    pub looked_at_afterwards: u64,
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
    /// Calls over UDP that were sent again, since no reply came in time.
    pub retransmissions: u64,
}

impl Report {
    pub(super) fn new<'o, S>(
        load: &Load,
        outcome: &'o Outcome<S>,
        promises: impl Fn(&'o S) -> &'o Promises,
        looked_at: u64,
    ) -> Result<Self, BenchError> {
        let all = outcome.tally.all();
        let calls = all.len();
        if calls == 0 {
            return Err(BenchError::Nothing { operation: load.operation.to_string() });
        }
        let kinds = load.operation.kinds(load.nfs);
        let operations = kind_reports(&outcome.tally, &kinds);
        // Data goes with the first kind of two.
        let data_calls = operations.first().map_or(0, |kind| kind.calls);
        let bytes = data_calls as f64 * f64::from(load.operation.payload_bytes());
        let mut checks = Checks {
            replies: outcome.tally.replies,
            sampled_reads: 0,
            looked_at_afterwards: looked_at,
            committed_unstable: 0,
            committed_data_sync: 0,
            committed_file_sync: 0,
            verifier_changes: 0,
            try_later: outcome.tally.try_later,
            retransmissions: outcome.tally.retransmissions,
        };
        for promises in outcome.scripts.iter().map(promises) {
            let [unstable, data_sync, file_sync] = promises.committed;
            checks.sampled_reads += promises.sampled_data;
            checks.committed_unstable += unstable;
            checks.committed_data_sync += data_sync;
            checks.committed_file_sync += file_sync;
            checks.verifier_changes += promises.verifier_changes;
        }
        Ok(Self {
            operation: load.operation.to_string(),
            nfs: load.nfs.name(),
            calls_per_operation: kinds.len(),
            connections: load.connections,
            depth: load.depth,
            threads: load.threads,
            is_udp: load.transport == Transport::Udp,
            wanted_calls_per_second: match load.pace {
                Pace::Closed => None,
                Pace::Open { calls_per_second, .. } => Some(calls_per_second),
            },
            seconds: outcome.seconds,
            calls,
            calls_per_second: calls as f64 / outcome.seconds,
            mib_per_second: bytes / outcome.seconds / f64::from(1 << 20),
            latency: Latency::of(&all),
            operations,
            costs: outcome.costs,
            behind_seconds: outcome.behind_seconds,
            checks,
            was_interrupted: outcome.was_interrupted,
        })
    }

    /// What a line of the table has to say beside its numbers.
    fn remark(&self) -> String {
        let mut remark = String::new();
        if self.nfs != NfsVersion::V3.name() {
            // Writing to a string cannot fail.
            let _ = write!(remark, "  NFSv{}", self.nfs);
        }
        if self.wanted_calls_per_second.is_some() && self.behind_seconds > LATE_SECONDS {
            let _ = write!(
                remark,
                "  not held: {:.1} s behind at the end, latencies still growing",
                self.behind_seconds
            );
        }
        if self.checks.retransmissions > 0 {
            let share = self.checks.retransmissions as f64 / self.checks.replies.max(1) as f64;
            let _ = write!(remark, "  {:.2} % sent again", share * 100.0);
        }
        if self.checks.verifier_changes > 0 {
            let _ = write!(remark, "  {} verifier changes", self.checks.verifier_changes);
        }
        if self.was_interrupted {
            remark.push_str("  interrupted");
        }
        remark
    }
}

/// Results of loads, one after the other.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reports {
    /// Each load's.
    pub reports: Vec<Report>,
}

impl Reports {
    /// A table for people, a line each.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<24} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {:>8} {:>11}\n",
            "operation",
            "c × d",
            "calls/s",
            "MiB/s",
            "p50 µs",
            "p99 µs",
            "max µs",
            "server µs",
            "cpu %",
            "RSS MiB",
            "client µs"
        );
        for report in &self.reports {
            let costs = &report.costs;
            let _ = writeln!(
                text,
                "{:<24} {:>7} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.0} {:>11} {:>7} {:>8} {:>11}{}",
                report.operation,
                format!("{}×{}", report.connections, report.depth),
                report.calls_per_second,
                report.mib_per_second,
                report.latency.p50_us,
                report.latency.p99_us,
                report.latency.max_us,
                or_dash(costs.server_cpu_us_per_call, 2),
                or_dash(costs.server_cpu_percent, 0),
                or_dash(costs.server_resident_bytes.map(|bytes| bytes as f64 / 1_048_576.0), 0),
                or_dash(costs.client_cpu_us_per_call, 2),
                report.remark(),
            );
        }
        text
    }
}
