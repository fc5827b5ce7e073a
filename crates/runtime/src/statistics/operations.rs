//! What one worker, or one thread of a flusher, counts of each operation.
//!
//! Memory: 7.1 KiB for a procedure, or an operation of COMPOUNDs, once it was called, and 128 KiB for the flight
//! recorder. With all of both (171 and 74, by `OperationId::COUNT` and `CompoundOperation::COUNT`) a thread has at most
//! 1.9 MiB; with two dozen, as is usual, 300 KiB.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use steadfast_engine::{CompoundOperation, OperationId, Peer};

use super::Counter;
use super::client::Client;
use super::histogram::{Histogram, bucket_of};
use super::reading::{CompoundStatistics, OperationStatistics, StageTimes};
use super::recorder::{CallRecord, Ring};
use super::slowest::{Ends, SlowRecord, Slowest, stages};
use super::surroundings::Surroundings;
use super::timing::{Answered, Arrival, Executed};
use super::top::{TopCounters, TopRoom};

/// What became of one operation's calls.
#[derive(Debug, Default)]
struct Cell {
    calls: Counter,
    errors: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    execution_ns: Counter,
    /// From the end of the receive until the reply was handed to the socket.
    latency_ns: Counter,
    latency_max_ns: Counter,
    latencies: Histogram,
    sampled: Counter,
    stages: StageCounters,
}

impl Cell {
    fn note_reply(&self, is_error: bool, bytes_out: usize) {
        self.bytes_out.add(bytes_out as u64);
        if is_error {
            self.errors.add(1);
        }
    }
}

/// Sums over the sampled calls, in ns.
#[derive(Debug, Default)]
struct StageCounters {
    receive: Counter,
    queue: Counter,
    decode: Counter,
    access: Counter,
    storage: Counter,
    stable: Counter,
    send: Counter,
}

/// What became of one kind of operation in COMPOUNDs.
#[derive(Debug, Default)]
struct PartCell {
    calls: Counter,
    errors: Counter,
    /// Of those that were measured.
    total_ns: Counter,
    max_ns: Counter,
    times: Histogram,
}

/// Counts by operation, written by one thread.
#[derive(Debug)]
pub(crate) struct OperationCounters {
    /// Padded, so that no other thread's counters are in a cell's cache lines.
    cells: [OnceLock<Box<CachePadded<Cell>>>; OperationId::COUNT],
    /// Likewise.
    parts: [OnceLock<Box<CachePadded<PartCell>>>; CompoundOperation::COUNT],
    ring: Ring,
    slowest: Arc<Slowest>,
    pub(crate) top: TopCounters,
}

impl Default for OperationCounters {
    fn default() -> Self {
        Self {
            cells: [const { OnceLock::new() }; OperationId::COUNT],
            parts: [const { OnceLock::new() }; CompoundOperation::COUNT],
            ring: Ring::default(),
            slowest: Arc::default(),
            top: TopCounters::default(),
        }
    }
}

impl OperationCounters {
    /// Whose slowest calls are kept with those of others.
    pub(crate) fn with(slowest: Arc<Slowest>) -> Self {
        Self { slowest, ..Self::default() }
    }

    fn cell(&self, operation: OperationId) -> Option<&Cell> {
        let cell: &Cell = self.cells.get(operation.index())?.get_or_init(Box::default);
        Some(cell)
    }

    /// An operation of a COMPOUND has ended. `took_ns`: how long it took, if that was measured.
    #[inline]
    pub(crate) fn note_part(
        &self,
        operation: CompoundOperation,
        is_error: bool,
        took_ns: Option<u64>,
    ) {
        let Some(place) = self.parts.get(operation.index()) else { return };
        let part: &PartCell = place.get_or_init(Box::default);
        part.calls.add(1);
        if is_error {
            part.errors.add(1);
        }
        if let Some(took_ns) = took_ns {
            part.total_ns.add(took_ns);
            part.max_ns.raise(took_ns);
            part.times.add(bucket_of(took_ns), 1);
        }
    }

    /// Adds what was counted here of operations in COMPOUNDs.
    pub(crate) fn add_parts_to(&self, sums: &mut [CompoundStatistics]) {
        for (part, sum) in self.parts.iter().zip(sums) {
            let Some(part) = part.get() else { continue };
            sum.calls += part.calls.value();
            sum.errors += part.errors.value();
            sum.times.add(part.total_ns.value(), part.max_ns.value(), part.times.counts());
        }
    }

    /// A call was executed. `bytes_out`: of its reply, if it has one already.
    #[inline]
    pub(crate) fn note_executed(
        &self,
        executed: &Executed,
        bytes_in: usize,
        bytes_out: Option<usize>,
    ) {
        let Some(cell) = self.cell(executed.facts.operation) else { return };
        cell.calls.add(1);
        cell.bytes_in.add(bytes_in as u64);
        cell.execution_ns.add(executed.execution_ns());
        if let Some(bytes_out) = bytes_out {
            cell.note_reply(executed.facts.is_error, bytes_out);
        }
    }

    /// A call repeats another one, and gets no reply of its own.
    #[cold]
    pub(crate) fn note_unanswered_repeat(&self, executed: &Executed, peer: &Peer, room: &TopRoom) {
        if let Some(mut top) = self.top.begin(executed.ended_ns, room) {
            top.note(peer.address.ip(), &executed.facts, &executed.subject, None);
        }
    }

    /// A call that was executed before has its reply.
    pub(crate) fn note_reply(&self, operation: OperationId, is_error: bool, bytes_out: usize) {
        if let Some(cell) = self.cell(operation) {
            cell.note_reply(is_error, bytes_out);
        }
    }

    /// Replies to calls of one batch were handed to the socket at this time. `client` tells who
    /// made one of them.
    pub(crate) fn note_sent_together(
        &self,
        arrival: Arrival,
        answered: &[Answered],
        sent_ns: u64,
        client: impl Fn(usize) -> Option<Client>,
        around: &impl Surroundings,
    ) {
        let sent = Ends { stable_ns: None, is_logged: false, sent_ns };
        let latency_ns = sent_ns.saturating_sub(arrival.received_ns);
        let is_slow = latency_ns >= around.slow_call_ns();
        // Calls of one operation often follow each other: they are counted at once.
        let (mut operation, mut calls) = (OperationId::OTHER, 0);
        let mut top = self.top.begin(sent_ns, around.top_room());
        for Answered { index, executed } in answered {
            let index = *index;
            if executed.facts.operation != operation {
                self.note_latency(operation, latency_ns, calls);
                (operation, calls) = (executed.facts.operation, 0);
            }
            calls += 1;
            if let Some(top) = &mut top
                && let Some(client) = client(index)
            {
                let address = client.address.ip();
                top.note(address, &executed.facts, &executed.subject, Some(latency_ns));
            }
            if (executed.is_sampled || is_slow)
                && let Some(client) = client(index)
            {
                self.record(arrival, executed, sent, client);
            }
            if self.slowest.would_keep(executed.facts.operation, latency_ns, sent_ns)
                && let Some(client) = client(index)
            {
                self.keep_slow(arrival, executed, sent, client, around);
            }
        }
        self.note_latency(operation, latency_ns, calls);
    }

    /// The reply to a call that waited for stability was handed to the socket.
    pub(crate) fn note_sent_when_stable(
        &self,
        arrival: Arrival,
        executed: &Executed,
        sent: Ends,
        client: Client,
        around: &impl Surroundings,
    ) {
        let latency_ns = sent.sent_ns.saturating_sub(arrival.received_ns);
        if let Some(mut top) = self.top.begin(sent.sent_ns, around.top_room()) {
            let address = client.address.ip();
            top.note(address, &executed.facts, &executed.subject, Some(latency_ns));
        }
        if executed.is_sampled || latency_ns >= around.slow_call_ns() {
            self.record(arrival, executed, sent, client);
        }
        if self.slowest.would_keep(executed.facts.operation, latency_ns, sent.sent_ns) {
            self.keep_slow(arrival, executed, sent, client, around);
        }
        // Last, as with those that are sent together: who sees the reply counted finds the rest.
        self.note_latency(executed.facts.operation, latency_ns, 1);
    }

    fn note_latency(&self, operation: OperationId, ns: u64, calls: u64) {
        if calls == 0 {
            return;
        }
        let Some(cell) = self.cell(operation) else { return };
        cell.latency_ns.add(ns * calls);
        cell.latency_max_ns.raise(ns);
        cell.latencies.add(bucket_of(ns), calls);
    }

    #[cold]
    fn keep_slow(
        &self,
        arrival: Arrival,
        executed: &Executed,
        sent: Ends,
        client: Client,
        around: &impl Surroundings,
    ) {
        let sent_ns = sent.sent_ns;
        let latency_ns = sent_ns.saturating_sub(arrival.received_ns);
        let during = Duration::from_nanos(latency_ns);
        let record = SlowRecord {
            facts: executed.facts,
            subject: executed.subject,
            waited_in: executed.waited_in,
            client,
            received_ns: arrival.received_ns,
            latency_ns,
            stages_ns: stages(arrival, executed, sent),
            surroundings: around.of_call(during),
        };
        self.slowest.keep(&record, sent_ns);
    }

    #[cold]
    fn record(&self, arrival: Arrival, executed: &Executed, sent: Ends, client: Client) {
        let settled_ns = sent.stable_ns.unwrap_or(executed.ended_ns);
        let stable_ns = sent.stable_ns.map(|at| at.saturating_sub(executed.ended_ns));
        let stages_ns = executed.is_sampled.then(|| {
            [u64::from(executed.decode_ns), u64::from(executed.access_ns), executed.storage_ns()]
        });
        let record = CallRecord {
            facts: executed.facts,
            client: client.address,
            transport: client.transport,
            begun_ns: arrival.begun_ns,
            receive_ns: arrival.receive_ns(),
            queue_ns: executed.begun_ns.saturating_sub(arrival.received_ns),
            execution_ns: executed.execution_ns(),
            stages_ns,
            stable_ns,
            send_ns: sent.sent_ns.saturating_sub(settled_ns),
        };
        if let Some([decode_ns, access_ns, storage_ns]) = stages_ns
            && let Some(cell) = self.cell(executed.facts.operation)
        {
            let stages = &cell.stages;
            cell.sampled.add(1);
            stages.receive.add(record.receive_ns);
            stages.queue.add(record.queue_ns);
            stages.decode.add(decode_ns);
            stages.access.add(access_ns);
            stages.storage.add(storage_ns);
            stages.stable.add(stable_ns.unwrap_or_default());
            stages.send.add(record.send_ns);
        }
        self.ring.push(&record);
    }

    /// Adds what was counted here. `is_flusher`: these replies have waited for stability.
    pub(crate) fn add_to(&self, sums: &mut [OperationStatistics], is_flusher: bool) {
        for (cell, sum) in self.cells.iter().zip(sums) {
            let Some(cell) = cell.get() else { continue };
            sum.calls += cell.calls.value();
            sum.errors += cell.errors.value();
            sum.bytes_in += cell.bytes_in.value();
            sum.bytes_out += cell.bytes_out.value();
            sum.execution_ns += cell.execution_ns.value();
            let latency = if is_flusher { &mut sum.stable } else { &mut sum.at_once };
            latency.add(
                cell.latency_ns.value(),
                cell.latency_max_ns.value(),
                cell.latencies.counts(),
            );
            sum.sampled_calls += cell.sampled.value();
            let stages = &cell.stages;
            sum.stages.add(&StageTimes {
                receive_ns: stages.receive.value(),
                queue_ns: stages.queue.value(),
                decode_ns: stages.decode.value(),
                access_ns: stages.access.value(),
                storage_ns: stages.storage.value(),
                stable_ns: stages.stable.value(),
                send_ns: stages.send.value(),
            });
        }
    }

    pub(crate) fn recorded(&self) -> Vec<CallRecord> {
        self.ring.read()
    }
}
