//! The intent log's figures, as JSON: `GET /v1/log`, and what the commands of the log answer.
//!
//! How many disk writes the log has saved is not among them: it is not known what the file systems
//! would have written without it. What is told are both sides: what was logged, and what the
//! devices of the file systems were asked to write, by whomever.

use serde::{Deserialize, Serialize};

/// Of the documents' form.
pub const VERSION: u32 = 1;

/// What the log does and did; counts are since the server was started.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LogFigures {
    /// `on`, `off`, or `closing` while it is neither.
    pub phase: String,
    /// Why it is not on.
    pub why: Option<String>,
    /// The size of the ring of records.
    pub ring_bytes: u64,
    /// What may not be written over yet, or is promised to changes under way.
    pub used_bytes: u64,
    /// Replies that wait for their records.
    pub parked: u64,
    /// Records that were written.
    pub records: u64,
    /// Of records.
    pub payload_bytes: u64,
    /// Writes to the log's device.
    pub batches: u64,
    /// The bytes of these writes.
    pub written_bytes: u64,
    /// Changes that had to wait since the log was full; one may be counted more than once.
    pub waits_for_room: u64,
    /// Checkpoints that were done.
    pub checkpoints: u64,
    /// How long writes to its device took: shortest and longest time, in ns, and how many.
    pub write_ns: Vec<(u64, u64, u64)>,
    /// All of these writes together, in ns.
    #[serde(default)]
    pub write_total_ns: u64,
    /// The median of these, wrong by a third at the most.
    pub write_p50_ns: u64,
    /// The 99th percentile, as wrong.
    pub write_p99_ns: u64,
    /// The bytes of the files of replies, which outlive the server.
    pub replies_bytes: u64,
    /// The most that these files may have.
    pub replies_bytes_max: u64,
    /// The bytes of replies that are only in the log and in memory.
    pub replies_gathered_bytes: u64,
    /// How far back replies reach.
    pub replies_reach_ms: u64,
    /// The file systems whose changes are logged.
    pub file_systems: Vec<FileSystemFigures>,
}

/// What the log has of a file system.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct FileSystemFigures {
    /// A directory of it that is served.
    pub path: String,
    /// Records that it needs still.
    pub records: u64,
    /// The bytes of these records.
    pub bytes: u64,
    /// Why it takes no changes.
    pub fault: Option<String>,
    /// Writes that its device was asked for since the machine was started, by whomever, if the
    /// kernel tells.
    pub device_writes: Option<u64>,
    /// The bytes of these writes.
    pub device_written_bytes: Option<u64>,
}

/// `GET /v1/log`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LogReport {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// After `enable` and `disable`: whether it was so before.
    #[serde(default)]
    pub is_unchanged: bool,
    /// The server's.
    pub process: u32,
    /// Where the log is.
    pub path: String,
    /// How often the ring was begun anew.
    pub epoch: u64,
    /// The last record that is stable.
    pub stable: u64,
    /// The last record.
    pub last: u64,
    /// What it does and did.
    #[serde(flatten)]
    pub figures: LogFigures,
    /// The last checkpoint, if there was one.
    pub last_checkpoint: Option<CheckpointReport>,
    /// Files of records whose file systems are not there.
    pub set_aside: Vec<AsideReport>,
    /// Why it is not known what is set aside.
    pub set_aside_fault: Option<String>,
}

/// The last checkpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct CheckpointReport {
    /// When it ended.
    pub ended_unix_ms: u64,
    /// How long it took.
    pub took_us: u64,
}

/// A file of records that wait for their file system.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct AsideReport {
    /// Its path.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Where the file system was served.
    pub path: Option<String>,
}

/// `POST /v1/log/flush`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct FlushReport {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// A directory of each file system that has everything.
    pub flushed: Vec<String>,
    /// The file systems that could not be flushed.
    pub faulty: Vec<FaultReport>,
}

/// A file system that has not everything.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// A directory of it that is served.
    pub path: String,
    /// Why.
    pub why: String,
}

impl LogFigures {
    /// What happened since another time of the same server.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
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
            write_total_ns: self.write_total_ns.saturating_sub(before.write_total_ns),
            file_systems: self.file_systems.iter().map(file_system).collect(),
            ..self.clone()
        }
        .with_percentiles()
    }

    /// With the percentiles of [`LogFigures::write_ns`].
    #[must_use]
    pub fn with_percentiles(mut self) -> Self {
        self.write_p50_ns = percentile(&self.write_ns, 50);
        self.write_p99_ns = percentile(&self.write_ns, 99);
        self
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
    fn what_is_told_is_read_again() {
        let report = LogReport {
            path: "/state/intent.log".to_owned(),
            figures: LogFigures { why: Some("left, as it broke".to_owned()), ..figures() },
            last_checkpoint: Some(CheckpointReport { ended_unix_ms: 1000, took_us: 2500 }),
            set_aside: vec![AsideReport { file: "f.aside".to_owned(), bytes: 9, path: None }],
            ..LogReport::default()
        };
        let json = serde_json::to_string(&report).expect("JSON");
        assert_eq!(serde_json::from_str::<LogReport>(&json).expect("read"), report);
    }
}
