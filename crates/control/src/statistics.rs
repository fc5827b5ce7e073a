//! What a server counts, as one JSON document: `GET /v1/statistics`.
//!
//! Version 1. Times are in the unit of their name; counts are since the server was started. A
//! field may be added without another version, so readers overlook what they do not know.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::intent_log::LogFigures;

/// Of the document's form.
pub const VERSION: u32 = 1;
/// In [`Statistics::server`]: 1 if the server made its key of handles at its start though it had served before.
pub const NEW_HANDLE_KEY: &str = "new_handle_key";
/// Recorded calls in a document.
pub const RECENT_MAX: usize = 1024;
/// Digits to which percentiles are reckoned: more than the server's buckets tell apart.
const DIGITS: u8 = 3;

/// Why an answer is not read as [`Statistics`].
#[derive(Debug, thiserror::Error)]
pub enum UnreadableStatistics {
    /// It is none.
    #[error("what the server tells is no document of statistics")]
    NoDocument(#[from] serde_json::Error),
    /// It is of this version.
    #[error(
        "the server tells its statistics in version {0} of their form, and this program reads \
         version {VERSION}: use the program that the server runs"
    )]
    OtherVersion(u32),
}

/// Time since 1970.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Everything.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Statistics {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// The version of the program that the server runs.
    pub program_version: String,
    /// Its process.
    pub process: u32,
    /// When it was started, or when the interval began.
    pub started_unix_ms: u64,
    /// When the document was made.
    pub taken_unix_ms: u64,
    /// Totals by their name.
    pub server: BTreeMap<String, u64>,
    /// Of the intent log, if there is one.
    #[serde(default)]
    pub log: Option<LogFigures>,
    /// Of operations that were called.
    pub operations: Vec<Operation>,
    /// Of operations that COMPOUNDs of NFSv4 were made of. Each COMPOUND is a call of `operations` too.
    #[serde(default)]
    pub compound_operations: Vec<CompoundOperation>,
    /// The last calls of the flight recorder, in the order in which they came.
    pub recent: Vec<Recorded>,
}

/// One procedure of one version of a program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Operation {
    /// The name of the program, in lower case: `nfs`.
    pub protocol: String,
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure.
    pub procedure: u32,
    /// The name of the procedure, as its RFC writes it.
    pub name: String,
    /// Calls that were executed.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Bytes of calls.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// Workers' time.
    pub execution_ns: u64,
    /// Of all replies.
    pub latency: Latency,
    /// Of those that waited for stability.
    pub stable: Latency,
    /// Calls of which the stages were measured.
    pub sampled_calls: u64,
    /// Sums over the sampled calls.
    pub stages: Stages,
}

/// One kind of operation in COMPOUNDs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct CompoundOperation {
    /// Its number (`nfs_opnum4`).
    pub number: u32,
    /// Its name, as its RFC writes it.
    pub name: String,
    /// How many were executed.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// How long those took of which the time was taken, by chance: execution alone. `replies` is how many.
    pub execution: Latency,
}

/// Times from the end of the receive until the reply was handed to the socket.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Latency {
    /// How many.
    pub replies: u64,
    /// The sum.
    pub total_ns: u64,
    /// Half of the replies took so long at the most.
    pub p50_ns: u64,
    /// 90 % did.
    pub p90_ns: u64,
    /// 99 % did.
    pub p99_ns: u64,
    /// 99.9 % did.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Shortest and longest time, in ns, and how many replies took so long.
    pub buckets: Vec<(u64, u64, u64)>,
}

/// Where time goes, in ns.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_field_names)] // Units come last, in JSON too.
pub struct Stages {
    /// From its connection's turn until everything that came with it was received.
    pub receive_ns: u64,
    /// Until a worker began with it.
    pub queue_ns: u64,
    /// RPC header, credentials, duplicate request cache, arguments.
    pub decode_ns: u64,
    /// The share's rights and the caller's identity.
    pub access_ns: u64,
    /// The storage's operation and the encoding of its result.
    pub storage_ns: u64,
    /// Until what it promises was stable.
    pub stable_ns: u64,
    /// Until the reply was handed to the socket.
    pub send_ns: u64,
}

/// One call of the flight recorder.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Recorded {
    /// Its number.
    pub xid: u32,
    /// The name of the program, in lower case: `nfs`.
    pub protocol: String,
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure.
    pub procedure: u32,
    /// The name of the procedure, as its RFC writes it.
    pub name: String,
    /// Whether it failed.
    pub is_error: bool,
    /// Of a COMPOUND: the first operations that were executed, eight at most.
    #[serde(default)]
    pub operations: Vec<String>,
    /// The address of the client.
    pub client: String,
    /// `tcp` or `udp`.
    pub transport: String,
    /// When it was received.
    pub begun_unix_us: u64,
    /// From the end of the receive until the reply was handed to the socket.
    pub latency_ns: u64,
    /// The worker's time.
    pub execution_ns: u64,
    /// Whether decoding, access and storage were measured each.
    pub is_sampled: bool,
    /// Whether its reply waited for stability.
    pub was_parked: bool,
    /// Where its time went.
    pub stages: Stages,
}

impl Statistics {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is none, or of another version than ours.
    pub fn read(bytes: &[u8]) -> Result<Self, UnreadableStatistics> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let Head { version } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return Err(UnreadableStatistics::OtherVersion(version));
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// What happened since another document of the same server was taken. Numbers of the server
    /// that tell a state, not a count, stay as they are.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if self.started_unix_ms != before.started_unix_ms {
            return self.clone();
        }
        let known: HashMap<_, _> = before.operations.iter().map(|op| (op.key(), op)).collect();
        let operations =
            self.operations.iter().map(|operation| match known.get(&operation.key()) {
                Some(before) => operation.since(before),
                None => operation.clone(),
            });
        let mut document = Self {
            started_unix_ms: before.taken_unix_ms,
            log: match (&self.log, &before.log) {
                (Some(log), Some(before)) => Some(log.since(before)),
                (log, _) => log.clone(),
            },
            operations: operations.filter(Operation::has_any).collect(),
            compound_operations: compound_since(
                &self.compound_operations,
                &before.compound_operations,
            ),
            recent: Vec::new(),
            ..self.clone()
        };
        for (name, value) in &mut document.server {
            if !is_state(name) {
                *value = value.saturating_sub(before.server.get(name).copied().unwrap_or(0));
            }
        }
        document
    }

    /// Seconds that the counts are of.
    pub fn seconds(&self) -> f64 {
        self.taken_unix_ms.saturating_sub(self.started_unix_ms) as f64 / 1e3
    }
}

/// What happened in COMPOUNDs since.
fn compound_since(
    now: &[CompoundOperation],
    before: &[CompoundOperation],
) -> Vec<CompoundOperation> {
    let known: HashMap<_, _> = before.iter().map(|one| (one.number, one)).collect();
    let since = now.iter().map(|one| match known.get(&one.number) {
        Some(before) => CompoundOperation {
            number: one.number,
            name: one.name.clone(),
            calls: one.calls.saturating_sub(before.calls),
            errors: one.errors.saturating_sub(before.errors),
            execution: one.execution.since(&before.execution),
        },
        None => one.clone(),
    });
    since.filter(|one| one.calls > 0).collect()
}

/// Whether a number of the server can fall.
fn is_state(name: &str) -> bool {
    matches!(
        name,
        "connections"
            | "workers"
            | "parked_now"
            | "waiting_bytes"
            | "replies_kept"
            | "replies_kept_bytes"
            | "read_ahead_budget_left_bytes"
            | "objects_open"
            | "objects_unflushed"
            | "objects_in_calls"
            | "objects_in_flushes"
            | "objects_sent"
            | "objects_guarded"
            | "objects_written_back"
            | "objects_roots"
    )
}

impl Operation {
    /// Whether anything of it was counted. A call is counted when it was executed, and how long it
    /// took when it was answered, which may be in another interval.
    fn has_any(&self) -> bool {
        self.calls > 0 || self.errors > 0 || self.latency.replies > 0
    }

    fn key(&self) -> (u32, u32, u32) {
        (self.program, self.version, self.procedure)
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            protocol: self.protocol.clone(),
            name: self.name.clone(),
            program: self.program,
            version: self.version,
            procedure: self.procedure,
            calls: self.calls.saturating_sub(before.calls),
            errors: self.errors.saturating_sub(before.errors),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            execution_ns: self.execution_ns.saturating_sub(before.execution_ns),
            latency: self.latency.since(&before.latency),
            stable: self.stable.since(&before.stable),
            sampled_calls: self.sampled_calls.saturating_sub(before.sampled_calls),
            stages: self.stages.since(&before.stages),
        }
    }
}

impl Latency {
    /// The times of replies: their sum, the longest, and how many took how long, in the order of
    /// their times.
    pub fn of(total_ns: u64, max_ns: u64, buckets: Vec<(u64, u64, u64)>) -> Self {
        Self { total_ns, max_ns, buckets, ..Self::default() }.with_percentiles()
    }

    fn since(&self, before: &Self) -> Self {
        let known: HashMap<u64, u64> =
            before.buckets.iter().map(|(low, _, replies)| (*low, *replies)).collect();
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|(low, high, replies)| {
                (*low, *high, replies.saturating_sub(known.get(low).copied().unwrap_or(0)))
            })
            .filter(|(_, _, replies)| *replies > 0)
            .collect();
        // The longest of an interval is known only by its bucket.
        let max_ns = buckets.last().map_or(0, |(_, high, _)| self.max_ns.min(*high));
        Self::of(self.total_ns.saturating_sub(before.total_ns), max_ns, buckets)
    }

    /// Reckons the percentiles, each to the middle of its bucket: 1.6 % wrong at the most.
    fn with_percentiles(mut self) -> Self {
        self.replies = self.buckets.iter().map(|(_, _, replies)| replies).sum();
        let longest = self.buckets.last().map_or(0, |(_, high, _)| *high).max(self.max_ns);
        // With these bounds it can always be made.
        let Ok(mut histogram) = Histogram::<u64>::new_with_max(longest.max(2), DIGITS) else {
            return self;
        };
        for (low, high, replies) in &self.buckets {
            histogram.saturating_record_n(low.midpoint(*high), *replies);
        }
        let at = |quantile| histogram.value_at_quantile(quantile).min(self.max_ns);
        let [p50_ns, p90_ns, p99_ns, p999_ns] = [0.5, 0.9, 0.99, 0.999].map(at);
        Self { p50_ns, p90_ns, p99_ns, p999_ns, ..self }
    }
}

impl Stages {
    fn since(&self, before: &Self) -> Self {
        Self {
            receive_ns: self.receive_ns.saturating_sub(before.receive_ns),
            queue_ns: self.queue_ns.saturating_sub(before.queue_ns),
            decode_ns: self.decode_ns.saturating_sub(before.decode_ns),
            access_ns: self.access_ns.saturating_sub(before.access_ns),
            storage_ns: self.storage_ns.saturating_sub(before.storage_ns),
            stable_ns: self.stable_ns.saturating_sub(before.stable_ns),
            send_ns: self.send_ns.saturating_sub(before.send_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many replies of so many ns each, in buckets 1 µs wide.
    fn latency(times: &[(u64, u64)]) -> Latency {
        let bucket =
            |(ns, replies): &(u64, u64)| (ns / 1000 * 1000, ns / 1000 * 1000 + 999, *replies);
        Latency::of(
            times.iter().map(|(ns, replies)| ns * replies).sum(),
            times.iter().map(|(ns, _)| *ns).max().unwrap_or(0),
            times.iter().map(bucket).collect(),
        )
    }

    /// A document of one operation.
    fn document(at_ms: u64, times: &[(u64, u64)], stable: &[(u64, u64)]) -> Statistics {
        let latency = latency(&[times, stable].concat());
        let operation = Operation {
            protocol: "nfs".to_owned(),
            program: 100_003,
            version: 3,
            procedure: 7,
            name: "WRITE".to_owned(),
            calls: latency.replies,
            latency,
            stable: self::latency(stable),
            ..Operation::default()
        };
        let server = [("calls", operation.calls), ("workers", 2)];
        Statistics {
            version: VERSION,
            program_version: "0".to_owned(),
            process: 1,
            started_unix_ms: 1000,
            taken_unix_ms: at_ms,
            server: server.map(|(name, value)| (name.to_owned(), value)).into(),
            log: None,
            operations: vec![operation],
            compound_operations: vec![CompoundOperation {
                number: 9,
                name: "GETATTR".to_owned(),
                calls: times.len() as u64 * 100,
                errors: times.len() as u64,
                execution: self::latency(times),
            }],
            recent: Vec::new(),
        }
    }

    #[test]
    fn an_interval_has_its_own_counts_and_percentiles() {
        let before = document(2000, &[(10_000, 90)], &[(9_000_000, 10)]);
        let after = document(4000, &[(10_000, 91), (20_000, 99)], &[(9_000_000, 10)]);
        let between = after.since(&before);
        assert!((between.seconds() - 2.0).abs() < 1e-9);
        assert_eq!((between.server["calls"], between.server["workers"]), (100, 2));
        let operation = &between.operations[0];
        assert_eq!((operation.calls, operation.stable.replies), (100, 0));
        assert_eq!(operation.latency.total_ns, 99 * 20_000 + 10_000);
        assert!((19_000..21_000).contains(&operation.latency.p50_ns));
        assert_eq!(operation.latency.max_ns, 20_999, "that of the interval, by its bucket");
        let part = &between.compound_operations[0];
        assert_eq!((part.calls, part.errors, part.execution.replies), (100, 1, 100));
        // Nothing happened.
        let nothing = after.since(&after);
        assert!(nothing.operations.is_empty() && nothing.compound_operations.is_empty());
    }

    #[test]
    fn a_server_that_was_started_again_begins_anew() {
        let before = document(2000, &[(10_000, 90)], &[]);
        let mut after = document(4000, &[(10_000, 5)], &[]);
        after.started_unix_ms = 3000;
        assert_eq!(after.since(&before).operations[0].calls, 5);
    }

    #[test]
    fn documents_are_read_again_and_those_of_another_version_are_not() {
        let mut document = document(2000, &[(10_000, 90)], &[]);
        let text = serde_json::to_vec(&document).expect("text");
        assert_eq!(Statistics::read(&text).expect("read").operations[0].latency.replies, 90);
        document.version = 2;
        let text = serde_json::to_vec(&document).expect("text");
        let error = Statistics::read(&text).expect_err("another version").to_string();
        assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
        assert!(Statistics::read(b"").is_err());
    }
}
