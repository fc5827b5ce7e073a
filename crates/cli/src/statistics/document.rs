//! What a server counts, as one JSON document.
//!
//! Version 1. Times are in the unit of their name; counts are since the server was started. A
//! field may be added without another version, so readers overlook what they do not know.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use steadfast_durability::IntentLogKeeper;
use steadfast_engine::{Engine, Transport};
use steadfast_posixfs::Storage;
use steadfast_runtime::{Latencies, Observer, OperationStatistics, RecordedCall, StageTimes};

use super::unix_time;
use crate::intent_log::LogFigures;

/// Of the document's form.
pub(crate) const VERSION: u32 = 1;
/// Recorded calls in a document.
pub(crate) const RECENT_MAX: usize = 1024;
/// Digits to which percentiles are reckoned: more than the server's buckets tell apart.
const DIGITS: u8 = 3;

/// Everything.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Document {
    pub(crate) version: u32,
    /// The server's.
    pub(crate) program_version: String,
    pub(crate) process: u32,
    pub(crate) started_unix_ms: u64,
    pub(crate) taken_unix_ms: u64,
    /// Totals by their name.
    pub(crate) server: BTreeMap<String, u64>,
    /// Of the intent log, if there is one.
    #[serde(default)]
    pub(crate) log: Option<LogFigures>,
    /// Of operations that were called.
    pub(crate) operations: Vec<Operation>,
    /// The last calls of the flight recorder, in the order in which they came.
    pub(crate) recent: Vec<Recorded>,
}

/// One procedure of one version of a program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Operation {
    pub(crate) protocol: String,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Workers' time.
    pub(crate) execution_ns: u64,
    /// Of all replies.
    pub(crate) latency: Latency,
    /// Of those that waited for stability.
    pub(crate) stable: Latency,
    pub(crate) sampled_calls: u64,
    /// Sums over the sampled calls.
    pub(crate) stages: Stages,
}

/// Times from the end of the receive until the reply was handed to the socket.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Latency {
    pub(crate) replies: u64,
    pub(crate) total_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
    /// Shortest and longest time, in ns, and how many replies took so long.
    pub(crate) buckets: Vec<(u64, u64, u64)>,
}

/// Where time goes, in ns.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_field_names)] // Units come last, in JSON too.
pub(crate) struct Stages {
    pub(crate) receive_ns: u64,
    pub(crate) queue_ns: u64,
    pub(crate) decode_ns: u64,
    pub(crate) access_ns: u64,
    pub(crate) storage_ns: u64,
    pub(crate) stable_ns: u64,
    pub(crate) send_ns: u64,
}

/// One call of the flight recorder.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Recorded {
    pub(crate) xid: u32,
    pub(crate) protocol: String,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) name: String,
    pub(crate) is_error: bool,
    pub(crate) client: String,
    pub(crate) transport: String,
    pub(crate) begun_unix_us: u64,
    pub(crate) latency_ns: u64,
    pub(crate) execution_ns: u64,
    /// Whether decoding, access and storage were measured each.
    pub(crate) is_sampled: bool,
    pub(crate) was_parked: bool,
    pub(crate) stages: Stages,
}

impl Document {
    /// The state of a server now.
    pub(crate) fn of(
        observer: &Observer,
        engine: &Engine,
        storage: &Storage,
        log: Option<&IntentLogKeeper>,
        started_unix_ms: u64,
    ) -> Self {
        let named = observer.statistics().named();
        let mut server: BTreeMap<String, u64> =
            named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let engine = engine.statistics();
        let read_ahead = storage.read_ahead();
        for (name, value) in [
            ("replies_kept", engine.reply_cache.replies as u64),
            ("replies_kept_bytes", engine.reply_cache.bytes as u64),
            ("replies_evicted_young", engine.reply_cache.evicted_young),
            ("replies_evicted_by_pressure", engine.reply_cache.evicted_by_pressure),
            ("verifier_changes", engine.verifier_changes),
            ("read_ahead_asks", read_ahead.asks),
            ("read_ahead_bytes", read_ahead.bytes),
            ("read_ahead_advised", read_ahead.advised),
            ("read_ahead_found", read_ahead.found),
            ("read_ahead_lost", read_ahead.lost),
            ("read_ahead_budget_left_bytes", read_ahead.budget_left_bytes),
        ] {
            server.insert(name.to_owned(), value);
        }
        let recorded = observer.recorded_calls(RECENT_MAX);
        Self {
            version: VERSION,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            started_unix_ms,
            taken_unix_ms: unix_time().as_millis() as u64,
            server,
            log: log.map(|keeper| LogFigures::of(&keeper.status())),
            operations: observer.operation_statistics().iter().map(Operation::of).collect(),
            recent: recorded.iter().map(Recorded::of).collect(),
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// When it is none, or of another version than ours.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let what = "what the server tells is no document of statistics";
        let Head { version } = serde_json::from_slice(bytes).context(what)?;
        if version != VERSION {
            bail!(
                "the server tells its statistics in version {version} of their form, and this \
                 program reads version {VERSION}: use the program that the server runs"
            );
        }
        serde_json::from_slice(bytes).context(what)
    }

    /// What happened since another document of the same server was taken. Numbers of the server
    /// that tell a state, not a count, stay as they are.
    pub(crate) fn since(&self, before: &Self) -> Self {
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
    pub(crate) fn seconds(&self) -> f64 {
        self.taken_unix_ms.saturating_sub(self.started_unix_ms) as f64 / 1e3
    }
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
    )
}

impl Operation {
    /// Whether anything of it was counted. A call is counted when it was executed, and how long it
    /// took when it was answered, which may be in another interval.
    fn has_any(&self) -> bool {
        self.calls > 0 || self.errors > 0 || self.latency.replies > 0
    }

    fn of(counted: &OperationStatistics) -> Self {
        let name = counted.operation.name();
        Self {
            protocol: name.protocol.to_owned(),
            program: name.program,
            version: name.version,
            procedure: name.procedure,
            name: name.procedure_name.to_owned(),
            calls: counted.calls,
            errors: counted.errors,
            bytes_in: counted.bytes_in,
            bytes_out: counted.bytes_out,
            execution_ns: counted.execution_ns,
            latency: Latency::of(&[&counted.at_once, &counted.stable]),
            stable: Latency::of(&[&counted.stable]),
            sampled_calls: counted.sampled_calls,
            stages: Stages::of(&counted.stages),
        }
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
    /// Of all these together.
    fn of(parts: &[&Latencies]) -> Self {
        let mut buckets: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for bucket in parts.iter().flat_map(|part| &part.buckets) {
            let place = buckets.entry(bucket.low_ns).or_insert((bucket.high_ns, 0));
            place.1 += bucket.replies;
        }
        let buckets = buckets.into_iter().map(|(low, (high, replies))| (low, high, replies));
        Self {
            total_ns: parts.iter().map(|part| part.total_ns).sum(),
            max_ns: parts.iter().map(|part| part.max_ns).max().unwrap_or(0),
            buckets: buckets.collect(),
            ..Self::default()
        }
        .with_percentiles()
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
        Self {
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            // The longest of an interval is known only by its bucket.
            max_ns: buckets.last().map_or(0, |(_, high, _)| self.max_ns.min(*high)),
            buckets,
            ..Self::default()
        }
        .with_percentiles()
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
    fn of(times: &StageTimes) -> Self {
        Self {
            receive_ns: times.receive_ns,
            queue_ns: times.queue_ns,
            decode_ns: times.decode_ns,
            access_ns: times.access_ns,
            storage_ns: times.storage_ns,
            stable_ns: times.stable_ns,
            send_ns: times.send_ns,
        }
    }

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

impl Recorded {
    fn of(call: &RecordedCall) -> Self {
        let name = call.operation.name();
        Self {
            xid: call.xid,
            protocol: name.protocol.to_owned(),
            program: name.program,
            version: name.version,
            procedure: name.procedure,
            name: name.procedure_name.to_owned(),
            is_error: call.is_error,
            client: call.client.to_string(),
            transport: match call.transport {
                Transport::Tcp => "tcp".to_owned(),
                Transport::Udp => "udp".to_owned(),
            },
            begun_unix_us: call.begun_unix_ns / 1000,
            latency_ns: call.latency_ns,
            execution_ns: call.execution_ns,
            is_sampled: call.is_sampled,
            was_parked: call.was_parked,
            stages: Stages::of(&call.stages),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use steadfast_runtime::LatencyBucket;

    use super::*;

    /// So many replies of so many ns each, in buckets 1 µs wide.
    fn latencies(times: &[(u64, u64)]) -> Latencies {
        let bucket = |(ns, replies): &(u64, u64)| LatencyBucket {
            low_ns: ns / 1000 * 1000,
            high_ns: ns / 1000 * 1000 + 999,
            replies: *replies,
        };
        Latencies {
            replies: times.iter().map(|(_, replies)| replies).sum(),
            total_ns: times.iter().map(|(ns, replies)| ns * replies).sum(),
            max_ns: times.iter().map(|(ns, _)| *ns).max().unwrap_or(0),
            buckets: times.iter().map(bucket).collect(),
        }
    }

    fn operation(times: &[(u64, u64)], stable: &[(u64, u64)]) -> Operation {
        let (at_once, stable) = (latencies(times), latencies(stable));
        let latency = Latency::of(&[&at_once, &stable]);
        Operation {
            protocol: "nfs".to_owned(),
            program: 100_003,
            version: 3,
            procedure: 7,
            name: "WRITE".to_owned(),
            calls: latency.replies,
            latency,
            stable: Latency::of(&[&stable]),
            ..Operation::default()
        }
    }

    /// A document of one operation.
    pub(crate) fn document(at_ms: u64, times: &[(u64, u64)], stable: &[(u64, u64)]) -> Document {
        let operation = operation(times, stable);
        let server = [("calls", operation.calls), ("workers", 2)];
        Document {
            version: VERSION,
            program_version: "0".to_owned(),
            process: 1,
            started_unix_ms: 1000,
            taken_unix_ms: at_ms,
            server: server.map(|(name, value)| (name.to_owned(), value)).into(),
            log: None,
            operations: vec![operation],
            recent: Vec::new(),
        }
    }

    #[test]
    fn percentiles_are_of_both_kinds_of_replies() {
        let latency = operation(&[(10_100, 90)], &[(5_000_000, 9), (70_000_500, 1)]).latency;
        assert_eq!((latency.replies, latency.max_ns), (100, 70_000_500));
        let is_close = |ns: u64, wanted: f64| (ns as f64 / wanted - 1.0).abs() < 0.05;
        assert!(is_close(latency.p50_ns, 10_100.0), "{latency:?}");
        assert!(is_close(latency.p99_ns, 5_000_000.0), "{latency:?}");
        assert!(is_close(latency.p999_ns, 70_000_500.0), "{latency:?}");
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
        // Nothing happened.
        assert!(after.since(&after).operations.is_empty());
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
        assert_eq!(Document::read(&text).expect("read").operations[0].latency.replies, 90);
        document.version = 2;
        let text = serde_json::to_vec(&document).expect("text");
        let error = Document::read(&text).expect_err("another version").to_string();
        assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
        assert!(Document::read(b"").is_err());
    }
}
