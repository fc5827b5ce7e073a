//! What streams measured, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::{Direction, Stream};
use crate::drive::tally::kind_reports;
use crate::drive::{KindReport, Latency, Outcome, Transport};
use crate::error::BenchError;
use crate::server_cost::Costs;
use crate::text::or_dash;

/// Names of the kinds of calls.
pub(super) fn kinds(direction: Direction) -> &'static [&'static str] {
    match direction {
        Direction::Read => &["read"],
        Direction::Write => &["write", "commit"],
    }
}

/// Results of streams.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// They wrote; else they read.
    pub is_write: bool,
    /// Streams.
    pub streams: usize,
    /// Calls in flight of a stream.
    pub window: usize,
    /// Over which version of NFS.
    pub nfs: &'static str,
    /// Calls went over UDP.
    pub is_udp: bool,
    /// Bytes of a READ or WRITE.
    pub transfer_bytes: u32,
    /// Files.
    pub files: usize,
    /// Bytes of each.
    pub file_bytes: u64,
    /// How long it was measured.
    pub seconds: f64,
    /// Calls that ended while it was measured.
    pub calls: u64,
    /// MiB of file data a second, of all streams.
    pub mib_per_second: f64,
    /// The server's CPU time for a MiB in microseconds, if its process is known.
    pub server_cpu_us_per_mib: Option<f64>,
    /// This program's CPU time for a MiB in microseconds.
    pub client_cpu_us_per_mib: Option<f64>,
    /// What one plain TCP stream over loopback reaches.
    pub loopback_limit: Option<LoopbackLimit>,
    /// Latencies of all calls.
    #[serde(flatten)]
    pub latency: Latency,
    /// By kind of call.
    pub operations: Vec<KindReport>,
    /// CPU time and memory.
    #[serde(flatten)]
    pub costs: Costs,
    /// What was checked and noticed.
    pub checks: Checks,
    /// It was stopped early.
    pub was_interrupted: bool,
}

/// What one plain TCP stream of 1 MiB writes over loopback reaches on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoopbackLimit {
    /// MiB a second before the load.
    pub before_mib_per_second: Option<f64>,
    /// MiB a second after it.
    pub after_mib_per_second: Option<f64>,
    /// The mean of both.
    pub mib_per_second: f64,
    /// What the load reached of it.
    pub percent_reached: f64,
    /// MiB a second where writes send different data, as much as the files have (512 MiB at most): where
    /// that is more than a CPU's cache has, it comes from memory, as the files' does.
    pub from_memory_mib_per_second: Option<f64>,
}

/// What was checked and noticed, warm-up included.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Checks {
    /// Replies whose status and form were right: all.
    pub replies: u64,
    /// READs whose data was compared in places.
    pub compared_reads: u64,
    /// WRITEs answered as unstable.
    pub committed_unstable: u64,
    /// WRITEs answered as `DATA_SYNC`.
    pub committed_data_sync: u64,
    /// WRITEs answered as `FILE_SYNC`.
    pub committed_file_sync: u64,
    /// COMMITs while the load ran.
    pub commits: u64,
    /// How often the write verifier changed.
    pub verifier_changes: u64,
    /// WRITEs that the server lost before they were committed; they were made again.
    pub lost_writes: u64,
    /// How long it took afterwards to make stable what was not yet.
    pub last_commit_seconds: f64,
    /// Chunks that were read back afterwards and compared, each byte.
    pub read_back: u64,
    /// Calls that were refused for now (`NFS3ERR_JUKEBOX`) and made again.
    pub try_later: u64,
    /// Calls over UDP that were sent again, since no reply came in time.
    pub retransmissions: u64,
}

impl Report {
    pub(super) fn new<S>(
        stream: &Stream,
        outcome: &Outcome<S>,
        checks: Checks,
    ) -> Result<Self, BenchError> {
        let all = outcome.tally.all();
        let calls = all.len();
        // Data goes with the first kind.
        let data_calls = outcome.tally.kinds.first().map_or(0, hdrhistogram::Histogram::len);
        if data_calls == 0 {
            return Err(BenchError::Nothing { operation: "stream".to_owned() });
        }
        let mib = data_calls as f64 * f64::from(stream.transfer_bytes) / 1_048_576.0;
        let costs = outcome.costs;
        let per_mib = |per_call: Option<f64>| per_call.map(|us| us * calls as f64 / mib);
        Ok(Self {
            is_write: stream.direction == Direction::Write,
            streams: stream.streams,
            window: stream.window,
            nfs: stream.nfs.name(),
            is_udp: stream.transport == Transport::Udp,
            transfer_bytes: stream.transfer_bytes,
            files: stream.files(),
            file_bytes: stream.file_bytes,
            seconds: outcome.seconds,
            calls,
            mib_per_second: mib / outcome.seconds,
            server_cpu_us_per_mib: per_mib(costs.server_cpu_us_per_call),
            client_cpu_us_per_mib: per_mib(costs.client_cpu_us_per_call),
            loopback_limit: None,
            latency: Latency::of(&all),
            operations: kind_reports(&outcome.tally, kinds(stream.direction)),
            costs,
            checks: Checks {
                replies: outcome.tally.replies,
                try_later: outcome.tally.try_later,
                retransmissions: outcome.tally.retransmissions,
                ..checks
            },
            was_interrupted: outcome.was_interrupted,
        })
    }

    pub(super) fn set_loopback_limit(
        &mut self,
        before: Option<f64>,
        after: Option<f64>,
        from_memory: Option<f64>,
    ) {
        let seen: Vec<f64> = [before, after].into_iter().flatten().collect();
        if seen.is_empty() {
            return;
        }
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        self.loopback_limit = Some(LoopbackLimit {
            before_mib_per_second: before,
            after_mib_per_second: after,
            mib_per_second: mean,
            percent_reached: self.mib_per_second / mean.max(1e-9) * 100.0,
            from_memory_mib_per_second: from_memory,
        });
    }

    /// Tables for people.
    pub fn table(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let mut text = format!(
            "{} {} × {}{}, {} KiB a call, {} {} of {} MiB\n",
            self.streams,
            if self.is_write { "writers" } else { "readers" },
            self.window,
            match (self.is_udp, self.nfs) {
                (true, _) => " over UDP".to_owned(),
                (false, nfs) => format!(" over NFSv{nfs}"),
            },
            f64::from(self.transfer_bytes) / 1024.0,
            self.files,
            if self.files == 1 { "file" } else { "files" },
            mib(self.file_bytes),
        );
        let (latency, costs, checks) = (&self.latency, &self.costs, &self.checks);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>9} {:>9} {:>9} {:>9} {:>9} {:>14} {:>14} {:>7} {:>8}",
            "MiB/s",
            "calls",
            "p50 ms",
            "p99 ms",
            "max ms",
            "server µs/MiB",
            "client µs/MiB",
            "cpu %",
            "RSS MiB"
        );
        let _ = writeln!(
            text,
            "{:>9.1} {:>9} {:>9.3} {:>9.3} {:>9.1} {:>14} {:>14} {:>7} {:>8}{}",
            self.mib_per_second,
            self.calls,
            latency.p50_us / 1e3,
            latency.p99_us / 1e3,
            latency.max_us / 1e3,
            or_dash(self.server_cpu_us_per_mib, 1),
            or_dash(self.client_cpu_us_per_mib, 1),
            or_dash(costs.server_cpu_percent, 0),
            or_dash(costs.server_resident_bytes.map(mib), 0),
            if self.was_interrupted { "  interrupted" } else { "" },
        );
        if let Some(limit) = &self.loopback_limit {
            let _ = writeln!(
                text,
                "{:.0} % of the {:.1} MiB/s that one TCP stream over loopback reaches (before: \
                 {}, after: {}; with as much data as the files have: {})",
                limit.percent_reached,
                limit.mib_per_second,
                or_dash(limit.before_mib_per_second, 1),
                or_dash(limit.after_mib_per_second, 1),
                or_dash(limit.from_memory_mib_per_second, 1),
            );
        }
        if self.is_write {
            let _ = writeln!(
                text,
                "{} WRITEs unstable, {} DATA_SYNC, {} FILE_SYNC; {} COMMITs, {:.3} s to commit the \
                 rest; {} chunks read back",
                checks.committed_unstable,
                checks.committed_data_sync,
                checks.committed_file_sync,
                checks.commits,
                checks.last_commit_seconds,
                checks.read_back,
            );
        }
        if checks.verifier_changes > 0 {
            let _ = writeln!(
                text,
                "the verifier changed {} times; {} lost WRITEs were made again",
                checks.verifier_changes, checks.lost_writes
            );
        }
        if checks.retransmissions > 0 {
            let share = checks.retransmissions as f64 / checks.replies.max(1) as f64 * 100.0;
            let _ = writeln!(text, "{share:.2} % of calls were sent again");
        }
        text
    }
}
