//! The intent log's figures, as JSON and for people.
//!
//! How many disk writes the log has saved is not among them: it is not known what the file systems
//! would have written without it. What is told are both sides: what was logged, and what the
//! devices of the file systems were asked to write, by whomever.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use steadfast_durability::{Flushed, IntentLogKeeper, IntentLogStatus, Left, Phase};

/// Of the report's form.
const VERSION: u32 = 1;

/// What the log does and did; counts are since the server was started.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct LogFigures {
    /// `on`, `off`, or `closing` while it is neither.
    pub(crate) phase: String,
    /// Why it is not on.
    pub(crate) why: Option<String>,
    pub(crate) ring_bytes: u64,
    /// What may not be written over yet, or is promised to changes under way.
    pub(crate) used_bytes: u64,
    /// Replies that wait for their records.
    pub(crate) parked: u64,
    pub(crate) records: u64,
    /// Of records.
    pub(crate) payload_bytes: u64,
    /// Writes to the log's device, and their bytes.
    pub(crate) batches: u64,
    pub(crate) written_bytes: u64,
    /// Changes that had to wait since the log was full; one may be counted more than once.
    pub(crate) waits_for_room: u64,
    pub(crate) checkpoints: u64,
    /// How long writes to its device took: shortest and longest time, in ns, and how many.
    pub(crate) write_ns: Vec<(u64, u64, u64)>,
    /// Percentiles of these, wrong by a third at the most.
    pub(crate) write_p50_ns: u64,
    pub(crate) write_p99_ns: u64,
    /// Replies that outlive the server: the bytes of their files, the most that these may have, those
    /// that are only in the log and in memory, and how far back they reach.
    pub(crate) replies_bytes: u64,
    pub(crate) replies_bytes_max: u64,
    pub(crate) replies_gathered_bytes: u64,
    pub(crate) replies_reach_ms: u64,
    pub(crate) file_systems: Vec<FileSystemFigures>,
}

/// What the log has of a file system.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct FileSystemFigures {
    /// A directory of it that is served.
    pub(crate) path: String,
    /// Records that it needs still.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Why it takes no changes.
    pub(crate) fault: Option<String>,
    /// What its device was asked to write since the machine was started, by whomever, if the
    /// kernel tells.
    pub(crate) device_writes: Option<u64>,
    pub(crate) device_written_bytes: Option<u64>,
}

/// `GET /v1/log`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct LogReport {
    pub(crate) version: u32,
    /// After `enable` and `disable`: whether it was so before.
    #[serde(default)]
    pub(crate) is_unchanged: bool,
    /// The server's.
    pub(crate) process: u32,
    /// Where the log is.
    pub(crate) path: String,
    pub(crate) epoch: u64,
    /// The last record that is stable, and the last one.
    pub(crate) stable: u64,
    pub(crate) last: u64,
    #[serde(flatten)]
    pub(crate) figures: LogFigures,
    pub(crate) last_checkpoint: Option<CheckpointReport>,
    pub(crate) set_aside: Vec<AsideReport>,
    /// Why it is not known what is set aside.
    pub(crate) set_aside_fault: Option<String>,
}

/// The last checkpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct CheckpointReport {
    pub(crate) ended_unix_ms: u64,
    pub(crate) took_us: u64,
}

/// A file of records that wait for their file system.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct AsideReport {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// Where the file system was served.
    pub(crate) path: Option<String>,
}

/// `POST /v1/log/flush`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct FlushReport {
    pub(crate) version: u32,
    /// A directory of each file system that has everything.
    pub(crate) flushed: Vec<String>,
    pub(crate) faulty: Vec<FaultReport>,
}

/// A file system that has not everything.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct FaultReport {
    pub(crate) path: String,
    pub(crate) why: String,
}

impl LogFigures {
    pub(crate) fn of(status: &IntentLogStatus) -> Self {
        let phase = match status.phase {
            Phase::On => "on",
            Phase::Closing => "closing",
            Phase::Off => "off",
        };
        let why = status.left.as_ref().map(|left| match left {
            Left::ByAdministrator => "switched off by the administrator".to_owned(),
            Left::Failed(why) => {
                format!("left, as it {why}; it comes back when its device is well")
            }
            Left::Unmade => "there is none yet: no share is on a file system whose changes can be \
                             logged (ext4 with a journal, XFS, btrfs); it is made and used when \
                             the first such share is added"
                .to_owned(),
            Left::Stuck(why) => format!(
                "it {why}, and a file system cannot be flushed: changes wait until both are \
                 repaired and the server is started again"
            ),
        });
        let counters = &status.counters;
        let buckets = status.write_ns.0.iter().enumerate().filter(|(_, count)| **count > 0);
        let low = |bucket: usize| if bucket == 0 { 0 } else { 1_u64 << bucket };
        Self {
            phase: phase.to_owned(),
            why,
            ring_bytes: status.ring_bytes,
            used_bytes: status.used_bytes,
            parked: status.parked as u64,
            records: counters.records,
            payload_bytes: counters.payload_bytes,
            batches: counters.batches,
            written_bytes: counters.device_bytes,
            waits_for_room: counters.fullness_refusals,
            checkpoints: status.checkpoints,
            replies_bytes: status.replies.bytes,
            replies_bytes_max: status.replies.bytes_max,
            replies_gathered_bytes: status.replies.gathered_bytes,
            replies_reach_ms: status.replies.reach_ms,
            write_ns: buckets
                .map(|(bucket, count)| (low(bucket), (2_u64 << bucket) - 1, *count))
                .collect(),
            file_systems: status
                .file_systems
                .iter()
                .map(|known| FileSystemFigures {
                    path: known.path.clone(),
                    records: known.records,
                    bytes: known.bytes,
                    fault: known.fault.clone(),
                    device_writes: known.device.map(|device| device.writes),
                    device_written_bytes: known.device.map(|device| device.bytes),
                })
                .collect(),
            ..Self::default()
        }
        .with_percentiles()
    }

    /// What happened since another time of the same server.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let known = |low| before.write_ns.iter().find(|bucket| bucket.0 == low).map_or(0, |b| b.2);
        let buckets = self.write_ns.iter();
        let buckets = buckets.map(|&(low, high, n)| (low, high, n.saturating_sub(known(low))));
        let file_system = |now: &FileSystemFigures| {
            let then = before.file_systems.iter().find(|then| then.path == now.path);
            let since = |of: fn(&FileSystemFigures) -> Option<u64>| {
                Some(of(now)?.saturating_sub(of(then?)?))
            };
            FileSystemFigures {
                device_writes: since(|one| one.device_writes),
                device_written_bytes: since(|one| one.device_written_bytes),
                ..now.clone()
            }
        };
        Self {
            records: self.records.saturating_sub(before.records),
            payload_bytes: self.payload_bytes.saturating_sub(before.payload_bytes),
            batches: self.batches.saturating_sub(before.batches),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            waits_for_room: self.waits_for_room.saturating_sub(before.waits_for_room),
            checkpoints: self.checkpoints.saturating_sub(before.checkpoints),
            write_ns: buckets.filter(|(_, _, count)| *count > 0).collect(),
            file_systems: self.file_systems.iter().map(file_system).collect(),
            ..self.clone()
        }
        .with_percentiles()
    }

    fn with_percentiles(mut self) -> Self {
        self.write_p50_ns = percentile(&self.write_ns, 50);
        self.write_p99_ns = percentile(&self.write_ns, 99);
        self
    }

    /// For people, with the rates of so many seconds.
    pub(crate) fn lines(&self, seconds: f64) -> String {
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut text = format!(
            "intent log: {}, {} of {} MiB in use ({:.1}%), {} replies wait\n",
            self.phase,
            mib(self.used_bytes),
            mib(self.ring_bytes),
            self.used_bytes as f64 / self.ring_bytes.max(1) as f64 * 100.0,
            self.parked,
        );
        if let Some(why) = &self.why {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {why}");
        }
        let _ = writeln!(
            text,
            "  {} records ({:.1}/s, {} MiB) in {} writes ({:.1}/s, {} MiB), {:.1} records a write\n  \
             a write p50 {:.0} µs, p99 {:.0} µs; {} checkpoints; {} waits for room",
            self.records,
            rate(self.records),
            mib(self.payload_bytes),
            self.batches,
            rate(self.batches),
            mib(self.written_bytes),
            self.records as f64 / self.batches.max(1) as f64,
            self.write_p50_ns as f64 / 1e3,
            self.write_p99_ns as f64 / 1e3,
            self.checkpoints,
            self.waits_for_room,
        );
        let _ = writeln!(
            text,
            "  replies of the last {:.0} s outlive the server: {} of {} MiB, {} MiB in memory and the log",
            self.replies_reach_ms as f64 / 1e3,
            mib(self.replies_bytes),
            mib(self.replies_bytes_max),
            mib(self.replies_gathered_bytes),
        );
        text
    }
}

/// The percentile of a histogram by powers of two, taken to be even within each bucket.
fn percentile(buckets: &[(u64, u64, u64)], percent: u64) -> u64 {
    let all: u64 = buckets.iter().map(|(_, _, count)| count).sum();
    let mut rank = (all * percent).div_ceil(100).max(1);
    for &(low, high, count) in buckets {
        if rank <= count {
            return low + ((high - low) as f64 * rank as f64 / count as f64) as u64;
        }
        rank -= count;
    }
    0
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

impl LogReport {
    /// The log of this server now.
    pub(crate) fn of(keeper: &IntentLogKeeper) -> Self {
        let status = keeper.status();
        let (set_aside, set_aside_fault) = match keeper.set_aside_files() {
            Ok(files) => (files, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self {
            version: VERSION,
            is_unchanged: false,
            process: std::process::id(),
            path: status.path.display().to_string(),
            epoch: status.epoch,
            stable: status.stable.0,
            last: status.last.0,
            figures: LogFigures::of(&status),
            last_checkpoint: status.last_checkpoint.map(|last| CheckpointReport {
                ended_unix_ms: last.ended.as_millis() as u64,
                took_us: last.took.as_micros() as u64,
            }),
            set_aside: set_aside
                .into_iter()
                .map(|one| AsideReport {
                    file: one.file.display().to_string(),
                    bytes: one.bytes,
                    path: one.path,
                })
                .collect(),
            set_aside_fault,
        }
    }

    /// For people; `now_unix_ms` says how long ago things were.
    pub(crate) fn text(&self, started_seconds: f64, now_unix_ms: u64) -> String {
        let mut text = format!(
            "{} (process {}), epoch {}, record {} stable, {} last\n{}",
            self.path,
            self.process,
            self.epoch,
            self.stable,
            self.last,
            self.figures.lines(started_seconds)
        );
        if let Some(last) = self.last_checkpoint {
            let ago_ms = now_unix_ms.saturating_sub(last.ended_unix_ms);
            let _ = writeln!(
                text,
                "  last checkpoint {:.1} s ago, took {:.1} ms",
                ago_ms as f64 / 1e3,
                last.took_us as f64 / 1e3
            );
        }
        for known in &self.figures.file_systems {
            let _ = write!(
                text,
                "  {}: {} records, {} MiB not on it yet",
                known.path,
                known.records,
                mib(known.bytes)
            );
            if let Some(fault) = &known.fault {
                let _ = write!(text, "; FAULTY, changes wait: {fault}");
            }
            text.push('\n');
        }
        for aside in &self.set_aside {
            let _ = writeln!(
                text,
                "  set aside for {}: {} ({} bytes)",
                aside.path.as_deref().unwrap_or("a file system that cannot be read from it"),
                aside.file,
                aside.bytes
            );
        }
        if let Some(fault) = &self.set_aside_fault {
            let _ = writeln!(text, "  what is set aside is not known: {fault}");
        }
        text
    }
}

impl FlushReport {
    pub(crate) fn of(flushed: Flushed) -> Self {
        let Flushed { flushed, faulty } = flushed;
        let faulty = faulty.into_iter().map(|(path, why)| FaultReport { path, why }).collect();
        Self { version: VERSION, flushed, faulty }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for path in &self.flushed {
            let _ = writeln!(text, "{path}: flushed");
        }
        for FaultReport { path, why } in &self.faulty {
            let _ = writeln!(text, "{path}: NOT flushed: {why}");
        }
        if text.is_empty() {
            text.push_str("no file system is logged: there is nothing to flush\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> LogFigures {
        LogFigures {
            phase: "on".to_owned(),
            ring_bytes: 64 << 20,
            used_bytes: 16 << 20,
            records: 1000,
            batches: 100,
            write_ns: vec![(65_536, 131_071, 90), (131_072, 262_143, 10)],
            file_systems: vec![FileSystemFigures {
                path: "/srv".to_owned(),
                records: 5,
                device_writes: Some(70),
                ..FileSystemFigures::default()
            }],
            ..LogFigures::default()
        }
        .with_percentiles()
    }

    #[test]
    fn percentiles_are_within_their_bucket() {
        let figures = figures();
        assert!((65_536..131_072).contains(&figures.write_p50_ns));
        assert!((131_072..262_144).contains(&figures.write_p99_ns));
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn an_interval_has_its_own_counts() {
        let before = figures();
        let mut after = figures();
        after.records += 50;
        after.batches += 10;
        after.write_ns[1].2 += 7;
        after.file_systems[0].device_writes = Some(72);
        let between = after.since(&before);
        assert_eq!((between.records, between.batches), (50, 10));
        assert_eq!(between.write_ns, [(131_072, 262_143, 7)]);
        assert!(between.write_p50_ns >= 131_072);
        assert_eq!(between.file_systems[0].device_writes, Some(2));
        assert_eq!((between.used_bytes, between.file_systems[0].records), (16 << 20, 5));
    }

    #[test]
    fn what_is_told_people_is_what_programs_get() {
        let report = LogReport {
            path: "/state/intent.log".to_owned(),
            figures: LogFigures { why: Some("left, as it broke".to_owned()), ..figures() },
            last_checkpoint: Some(CheckpointReport { ended_unix_ms: 1000, took_us: 2500 }),
            set_aside: vec![AsideReport { file: "f.aside".to_owned(), bytes: 9, path: None }],
            ..LogReport::default()
        };
        let text = report.text(10.0, 3000);
        for part in [
            "/state/intent.log",
            "16.0 of 64.0 MiB in use (25.0%)",
            "left, as it broke",
            "1000 records (100.0/s",
            "10.0 records a write",
            "last checkpoint 2.0 s ago, took 2.5 ms",
            "/srv: 5 records",
            "f.aside (9 bytes)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = serde_json::to_string(&report).expect("JSON");
        assert_eq!(serde_json::from_str::<LogReport>(&json).expect("read"), report);
    }
}
