//! What a reader gets: plain numbers, summed over all threads.

use std::net::SocketAddr;

use steadfast_engine::{
    CallSubject, CompoundOperation, CompoundOperations, OperationId, Transport,
};

use super::histogram::{BUCKETS, bounds_of};
use super::recorder::CallRecord;
use super::slowest::{CallStage, SlowRecord};
use super::surroundings::CallSurroundings;

/// What became of one operation's calls since the start.
///
/// The counts are of one moment each and not all of the same: a call may be in one of them and
/// not yet in the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationStatistics {
    /// Which operation.
    pub operation: OperationId,
    /// Calls executed.
    pub calls: u64,
    /// Calls that failed: by their status, by RPC's, or without a reply.
    pub errors: u64,
    /// Bytes of calls.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// Time of workers, in ns: what the calls waited, for others or for stability, not counted.
    pub execution_ns: u64,
    /// Latencies of replies that waited for nothing.
    pub at_once: Latencies,
    /// Latencies of replies that waited for stability.
    pub stable: Latencies,
    /// Calls whose stages were measured, by chance.
    pub sampled_calls: u64,
    /// Where their time went, in all.
    pub stages: StageTimes,
}

/// What became of one kind of operation in COMPOUNDs of NFSv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompoundStatistics {
    /// Which operation.
    pub operation: CompoundOperation,
    /// How many were executed.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// How long those took of which the time was taken, by chance: execution alone, what the COMPOUND waited
    /// for behind it not counted.
    pub times: Latencies,
}

impl CompoundStatistics {
    /// Of all operations, by index.
    pub(crate) fn of_all() -> Vec<Self> {
        let none = |operation| Self { operation, calls: 0, errors: 0, times: Latencies::default() };
        CompoundOperation::all().map(none).collect()
    }
}

/// Times from the end of the receive until the reply was handed to the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Replies.
    pub replies: u64,
    /// Their sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
    /// How many took how long, ascending; empty ones are left out.
    pub buckets: Vec<LatencyBucket>,
}

/// Some of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyBucket {
    /// They took as long as this or longer.
    pub low_ns: u64,
    /// They took as long as this or shorter; the last bucket has all that took longer, too.
    pub high_ns: u64,
    /// How many.
    pub replies: u64,
}

/// The stages of one call, or their sums over several, in ns. They are in the order of a call's
/// way; together, `receive_ns` apart, they are its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// From its connection's turn until everything that came with it was received.
    pub receive_ns: u64,
    /// Until a worker began with it: others of the batch came first, or the seat was lost.
    pub queue_ns: u64,
    /// RPC header, credentials, duplicate request cache, arguments.
    pub decode_ns: u64,
    /// The share's rights and the caller's identity; for changes also lending the seat.
    pub access_ns: u64,
    /// The storage's operation and the encoding of its result.
    pub storage_ns: u64,
    /// Until what it promises was stable, the wait for the flush counted.
    pub stable_ns: u64,
    /// Until the reply was handed to the socket, with others that it waited for.
    pub send_ns: u64,
}

/// A call of the flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The client's number for it.
    pub xid: u32,
    /// What was called.
    pub operation: OperationId,
    /// Whether it failed.
    pub is_error: bool,
    /// Of a COMPOUND: the operations that were executed, as far as they are kept.
    pub operations: CompoundOperations,
    /// Who called.
    pub client: SocketAddr,
    /// How.
    pub transport: Transport,
    /// When it was begun to be received, in ns since 1970.
    pub begun_unix_ns: u64,
    /// From the end of the receive until the reply was handed to the socket.
    pub latency_ns: u64,
    /// Decoding, access and storage together.
    pub execution_ns: u64,
    /// Whether these three were measured each; of a call that was recorded only since it was
    /// slow they are not known, and 0 in `stages`.
    pub is_sampled: bool,
    /// Whether it waited for stability.
    pub was_parked: bool,
    /// Where its time went.
    pub stages: StageTimes,
}

/// One of the slowest calls of its operation.
#[derive(Clone, Copy, Debug)]
pub struct SlowCall {
    /// The client's number for it.
    pub xid: u32,
    /// What was called.
    pub operation: OperationId,
    /// Whether it failed.
    pub is_error: bool,
    /// Of a COMPOUND: the operations that were executed, as far as they are kept.
    pub operations: CompoundOperations,
    /// Of a COMPOUND that came to where it might wait: the operation that took longest from there on.
    pub waited_in: Option<CompoundOperation>,
    /// What it was about.
    pub subject: CallSubject,
    /// Who called.
    pub client: SocketAddr,
    /// How.
    pub transport: Transport,
    /// When it was received, in ns since 1970.
    pub received_unix_ns: u64,
    /// From then until the reply was handed to the socket.
    pub latency_ns: u64,
    /// How long it was in each stage, in ns. The sum is the latency.
    pub stages_ns: [(CallStage, u64); CallStage::COUNT],
    /// What else went on when the reply was sent.
    pub surroundings: CallSurroundings,
}

impl SlowCall {
    /// `start_unix_ns`: when the stamps' clock began.
    pub(crate) fn new(record: &SlowRecord, start_unix_ns: u64) -> Self {
        let mut stages_ns = CallStage::ALL.map(|stage| (stage, 0));
        for ((_, place), ns) in stages_ns.iter_mut().zip(record.stages_ns) {
            *place = ns;
        }
        Self {
            xid: record.facts.xid,
            operation: record.facts.operation,
            is_error: record.facts.is_error,
            operations: record.facts.operations,
            waited_in: record.waited_in,
            subject: record.subject,
            client: record.client.address,
            transport: record.transport(),
            received_unix_ns: start_unix_ns.saturating_add(record.received_ns),
            latency_ns: record.latency_ns,
            stages_ns,
            surroundings: record.surroundings,
        }
    }
}

impl OperationStatistics {
    /// Of all operations, by index.
    pub(crate) fn of_all() -> Vec<Self> {
        OperationId::all().map(Self::new).collect()
    }

    fn new(operation: OperationId) -> Self {
        Self {
            operation,
            calls: 0,
            errors: 0,
            bytes_in: 0,
            bytes_out: 0,
            execution_ns: 0,
            at_once: Latencies::default(),
            stable: Latencies::default(),
            sampled_calls: 0,
            stages: StageTimes::default(),
        }
    }
}

impl Latencies {
    /// While sums are made the buckets are all there, with 0 in those that are empty.
    pub(super) fn add(&mut self, total_ns: u64, max_ns: u64, counts: impl Iterator<Item = u64>) {
        if self.buckets.is_empty() {
            let empty = |bucket| {
                let (low_ns, high_ns) = bounds_of(bucket);
                LatencyBucket { low_ns, high_ns, replies: 0 }
            };
            self.buckets = (0..BUCKETS).map(empty).collect();
        }
        self.total_ns += total_ns;
        self.max_ns = self.max_ns.max(max_ns);
        for (bucket, count) in self.buckets.iter_mut().zip(counts) {
            bucket.replies += count;
            self.replies += count;
        }
    }

    pub(crate) fn drop_empty_buckets(&mut self) {
        self.buckets.retain(|bucket| bucket.replies > 0);
    }
}

impl StageTimes {
    pub(super) fn add(&mut self, other: &Self) {
        self.receive_ns += other.receive_ns;
        self.queue_ns += other.queue_ns;
        self.decode_ns += other.decode_ns;
        self.access_ns += other.access_ns;
        self.storage_ns += other.storage_ns;
        self.stable_ns += other.stable_ns;
        self.send_ns += other.send_ns;
    }
}

impl RecordedCall {
    /// `start_unix_ns`: when the stamps' clock was 0.
    pub(crate) fn new(record: &CallRecord, start_unix_ns: u64) -> Self {
        let [decode_ns, access_ns, storage_ns] = record.stages_ns.unwrap_or_default();
        let stable_ns = record.stable_ns.unwrap_or_default();
        Self {
            xid: record.facts.xid,
            operation: record.facts.operation,
            is_error: record.facts.is_error,
            operations: record.facts.operations,
            client: record.client,
            transport: record.transport,
            begun_unix_ns: start_unix_ns.saturating_add(record.begun_ns),
            latency_ns: record.queue_ns + record.execution_ns + stable_ns + record.send_ns,
            execution_ns: record.execution_ns,
            is_sampled: record.stages_ns.is_some(),
            was_parked: record.stable_ns.is_some(),
            stages: StageTimes {
                receive_ns: record.receive_ns,
                queue_ns: record.queue_ns,
                decode_ns,
                access_ns,
                storage_ns,
                stable_ns,
                send_ns: record.send_ns,
            },
        }
    }
}
