//! Oleinick's Table 1 and Legato's Figure 2, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::script::{Mixed, kinds};
use super::{Level, Nhfsstone};
use crate::drive::tally::kind_reports;
use crate::drive::{KindReport, Latency, Outcome};
use crate::error::BenchError;
use crate::mix::Mix;
use crate::server_cost::Costs;
use crate::text::or_dash;
use crate::version::NfsVersion;

/// An open loop that is this late has not held its rate, in seconds.
const LATE_SECONDS: f64 = 0.1;

/// Results of all levels.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Over which version of NFS.
    pub nfs: &'static str,
    /// Virtual clients.
    pub clients: usize,
    /// Calls in flight of a client, at most.
    pub depth: usize,
    /// Shares.
    pub shares: usize,
    /// How stable WRITEs were asked to be.
    pub write_stability: &'static str,
    /// The mix that was asked for, percent by procedure number.
    #[serde(flatten)]
    pub mix: Mix,
    /// Each level's.
    pub levels: Vec<LevelReport>,
}

/// Results of one level.
#[derive(Clone, Debug, Serialize)]
pub struct LevelReport {
    /// Calls a second that were asked for; none when it was as many as possible.
    pub wanted_calls_per_second: Option<f64>,
    /// Calls a second that ended while it was measured.
    pub calls_per_second: f64,
    /// How long it was measured.
    pub seconds: f64,
    /// Calls that ended while it was measured.
    pub calls: u64,
    /// Files of the working set.
    pub files: usize,
    /// Latencies of all operations, from the scheduled start where there is a schedule.
    #[serde(flatten)]
    pub latency: Latency,
    /// By operation.
    pub operations: Vec<KindReport>,
    /// CPU time and memory.
    #[serde(flatten)]
    pub costs: Costs,
    /// How late the schedule was at the end: a backlog that is not in the latencies yet.
    pub behind_seconds: f64,
    /// What was checked and noticed.
    pub checks: Checks,
    /// It was stopped early.
    pub was_interrupted: bool,
}

/// What was checked and noticed, warm-up included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Checks {
    /// Replies whose status and form were right: all.
    pub replies: u64,
    /// READs whose data was compared.
    pub compared_reads: u64,
    /// Names and written data that were looked at after the measurement.
    pub looked_at_afterwards: u64,
    /// WRITEs answered as unstable.
    pub committed_unstable: u64,
    /// WRITEs answered as `DATA_SYNC`.
    pub committed_data_sync: u64,
    /// WRITEs answered as `FILE_SYNC`.
    pub committed_file_sync: u64,
    /// COMMITs whose verifier was not the WRITE's: the server lost unstable data.
    pub verifier_changes: u64,
    /// Replies that put the call off (`NFS3ERR_JUKEBOX`, `NFS4ERR_DELAY`, `NFS4ERR_GRACE`), which was made again.
    pub try_later: u64,
    /// Calls beyond the mix, made so that there was something for a drawn one to work on.
    pub substitutes: u64,
}

impl Report {
    pub(super) fn new(load: &Nhfsstone) -> Self {
        Self {
            nfs: load.nfs.name(),
            clients: load.clients,
            depth: load.depth,
            shares: load.paths.len(),
            write_stability: match load.stable {
                steadfast_client::StableHow::Unstable => "unstable",
                steadfast_client::StableHow::DataSync => "data_sync",
                steadfast_client::StableHow::FileSync => "file_sync",
            },
            mix: load.mix.clone(),
            levels: Vec::new(),
        }
    }

    /// Tables for people.
    pub fn table(&self) -> String {
        let mut text = format!("NFSv{}\n", self.nfs);
        for level in &self.levels {
            level.write_table(&mut text);
        }
        let _ = writeln!(
            text,
            "{:>10} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>8}",
            "asked/s",
            "achieved/s",
            "files",
            "mean ms",
            "p50 ms",
            "p99 ms",
            "max ms",
            "server µs",
            "cpu %",
            "RSS MiB"
        );
        for level in &self.levels {
            let asked = level.wanted_calls_per_second;
            let latency = &level.latency;
            let _ = writeln!(
                text,
                "{:>10} {:>10.1} {:>8} {:>9.3} {:>9.3} {:>9.3} {:>9.1} {:>10} {:>7} {:>8}{}",
                asked.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.1}")),
                level.calls_per_second,
                level.files,
                latency.mean_us / 1e3,
                latency.p50_us / 1e3,
                latency.p99_us / 1e3,
                latency.max_us / 1e3,
                or_dash(level.costs.server_cpu_us_per_call, 2),
                or_dash(level.costs.server_cpu_percent, 0),
                or_dash(level.costs.server_resident_bytes.map(|b| b as f64 / 1_048_576.0), 0),
                level.remark(),
            );
        }
        text
    }
}

impl LevelReport {
    pub(super) fn new(
        nfs: NfsVersion,
        level: Level,
        files: usize,
        outcome: &Outcome<Mixed>,
        looked_at: u64,
    ) -> Result<Self, BenchError> {
        let all = outcome.tally.all();
        if all.is_empty() {
            return Err(BenchError::Nothing { operation: "nhfsstone".to_owned() });
        }
        let mut checks = Checks {
            replies: outcome.tally.replies,
            compared_reads: 0,
            looked_at_afterwards: looked_at,
            committed_unstable: 0,
            committed_data_sync: 0,
            committed_file_sync: 0,
            verifier_changes: 0,
            try_later: outcome.tally.try_later,
            substitutes: 0,
        };
        for noticed in outcome.scripts.iter().map(|script| &script.noticed) {
            let [unstable, data_sync, file_sync] = noticed.committed;
            checks.compared_reads += noticed.compared_reads;
            checks.committed_unstable += unstable;
            checks.committed_data_sync += data_sync;
            checks.committed_file_sync += file_sync;
            checks.verifier_changes += noticed.verifier_changes;
            checks.substitutes += noticed.substitutes;
        }
        Ok(Self {
            wanted_calls_per_second: match level {
                Level::Rate(rate) => Some(rate),
                Level::Most => None,
            },
            calls_per_second: all.len() as f64 / outcome.seconds,
            seconds: outcome.seconds,
            calls: all.len(),
            files,
            latency: Latency::of(&all),
            operations: kind_reports(&outcome.tally, &kinds(nfs)),
            costs: outcome.costs,
            behind_seconds: outcome.behind_seconds,
            checks,
            was_interrupted: outcome.was_interrupted,
        })
    }

    /// What a line of the curve has to say beside its numbers.
    fn remark(&self) -> String {
        let mut remark = String::new();
        if self.behind_seconds > LATE_SECONDS {
            let _ = write!(
                remark,
                "  not held: {:.1} s behind at the end, latencies still growing",
                self.behind_seconds
            );
        }
        if self.was_interrupted {
            remark.push_str("  interrupted");
        }
        if self.checks.verifier_changes > 0 {
            let _ = write!(remark, "  {} verifier changes", self.checks.verifier_changes);
        }
        remark
    }

    /// Oleinick's Table 1, with percentiles.
    fn write_table(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "{:<12} {:>7} {:>10} {:>9} {:>7} {:>9} {:>9}",
            "operation", "mix %", "calls", "ms/call", "time %", "p50 ms", "p99 ms"
        );
        for kind in &self.operations {
            let _ = writeln!(
                text,
                "{:<12} {:>7.2} {:>10} {:>9.3} {:>7.2} {:>9.3} {:>9.3}",
                kind.operation,
                kind.percent_of_calls,
                kind.calls,
                kind.latency.mean_us / 1e3,
                kind.percent_of_time,
                kind.latency.p50_us / 1e3,
                kind.latency.p99_us / 1e3,
            );
        }
        let _ = writeln!(
            text,
            "{} calls  {:.1} calls/second  {:.3} msec/call\n",
            self.calls,
            self.calls_per_second,
            self.latency.mean_us / 1e3
        );
    }
}
