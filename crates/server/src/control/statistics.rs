//! The document of what a server counts.

use std::collections::BTreeMap;

use steadfast_control::statistics::{
    CompoundOperation, Latency, Operation, RECENT_MAX, Recorded, Stages, Statistics, VERSION,
    unix_time,
};
use steadfast_durability::IntentLogStatus;
use steadfast_engine::{Engine, Transport};
use steadfast_posixfs::Storage;
use steadfast_runtime::{
    CompoundStatistics, Latencies, Observer, OperationStatistics, RecordedCall, StageTimes,
};

use super::log::figures;

/// The state of a server now.
pub(super) fn statistics(
    observer: &Observer,
    engine: &Engine,
    storage: &Storage,
    log: Option<&IntentLogStatus>,
    started_unix_ms: u64,
) -> Statistics {
    let named = observer.statistics().named();
    let mut server: BTreeMap<String, u64> =
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let journaling = engine.journaling_clients();
    let engine = engine.statistics();
    let read_ahead = storage.read_ahead();
    let objects = storage.open_objects();
    for (name, value) in [
        ("replies_kept", engine.reply_cache.replies as u64),
        ("replies_kept_bytes", engine.reply_cache.bytes as u64),
        ("duplicate_calls", engine.reply_cache.duplicates),
        ("replies_evicted_young", engine.reply_cache.evicted_young),
        ("replies_evicted_by_pressure", engine.reply_cache.evicted_by_pressure),
        ("verifier_changes", engine.verifier_changes),
        ("journaling_clients", journaling.clients as u64),
        ("journaling_clients_awaited", journaling.awaited as u64),
        ("journaling_clients_recovering", journaling.recovering as u64),
        ("journaling_clients_missed", journaling.missed as u64),
        ("delegations_granted_read", engine.delegations.granted_read),
        ("delegations_granted_write", engine.delegations.granted_write),
        ("delegations_asked", engine.delegations.asked),
        ("delegations_unasked", engine.delegations.unasked),
        ("delegations_recalled", engine.delegations.recalled),
        ("delegations_returned", engine.delegations.returned),
        ("delegations_revoked", engine.delegations.revoked),
        ("read_ahead_asks", read_ahead.asks),
        ("read_ahead_bytes", read_ahead.bytes),
        ("read_ahead_advised", read_ahead.advised),
        ("read_ahead_found", read_ahead.found),
        ("read_ahead_lost", read_ahead.lost),
        ("read_ahead_budget_left_bytes", read_ahead.budget_left_bytes),
        ("objects_open", objects.open),
        ("objects_unflushed", objects.unflushed),
        ("objects_in_calls", objects.in_calls),
        ("objects_in_flushes", objects.in_flushes),
        ("objects_sent", objects.sent),
        ("objects_guarded", objects.guarded),
        ("objects_written_back", objects.written_back),
        ("objects_roots", objects.roots),
    ] {
        server.insert(name.to_owned(), value);
    }
    let recorded = observer.recorded_calls(RECENT_MAX);
    Statistics {
        version: VERSION,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        process: std::process::id(),
        started_unix_ms,
        taken_unix_ms: unix_time().as_millis() as u64,
        server,
        log: log.map(figures),
        operations: observer.operation_statistics().iter().map(operation).collect(),
        compound_operations: observer
            .compound_statistics()
            .iter()
            .map(compound_operation)
            .collect(),
        recent: recorded.iter().map(recorded_call).collect(),
    }
}

fn operation(counted: &OperationStatistics) -> Operation {
    let name = counted.operation.name();
    Operation {
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
        latency: latency(&[&counted.at_once, &counted.stable]),
        stable: latency(&[&counted.stable]),
        sampled_calls: counted.sampled_calls,
        stages: stages(&counted.stages),
    }
}

fn compound_operation(counted: &CompoundStatistics) -> CompoundOperation {
    CompoundOperation {
        number: counted.operation.number(),
        name: counted.operation.name().to_owned(),
        calls: counted.calls,
        errors: counted.errors,
        execution: latency(&[&counted.times]),
    }
}

/// Of all these together.
fn latency(parts: &[&Latencies]) -> Latency {
    let mut buckets: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for bucket in parts.iter().flat_map(|part| &part.buckets) {
        let place = buckets.entry(bucket.low_ns).or_insert((bucket.high_ns, 0));
        place.1 += bucket.replies;
    }
    let buckets = buckets.into_iter().map(|(low, (high, replies))| (low, high, replies));
    Latency::of(
        parts.iter().map(|part| part.total_ns).sum(),
        parts.iter().map(|part| part.max_ns).max().unwrap_or(0),
        buckets.collect(),
    )
}

fn stages(times: &StageTimes) -> Stages {
    Stages {
        receive_ns: times.receive_ns,
        queue_ns: times.queue_ns,
        decode_ns: times.decode_ns,
        access_ns: times.access_ns,
        storage_ns: times.storage_ns,
        stable_ns: times.stable_ns,
        send_ns: times.send_ns,
    }
}

fn recorded_call(call: &RecordedCall) -> Recorded {
    let name = call.operation.name();
    Recorded {
        xid: call.xid,
        protocol: name.protocol.to_owned(),
        program: name.program,
        version: name.version,
        procedure: name.procedure,
        name: name.procedure_name.to_owned(),
        is_error: call.is_error,
        operations: call.operations.iter().map(|one| one.name().to_owned()).collect(),
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
        stages: stages(&call.stages),
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn percentiles_are_of_both_kinds_of_replies() {
        let (at_once, stable) =
            (latencies(&[(10_100, 90)]), latencies(&[(5_000_000, 9), (70_000_500, 1)]));
        let latency = latency(&[&at_once, &stable]);
        assert_eq!((latency.replies, latency.max_ns), (100, 70_000_500));
        let is_close = |ns: u64, wanted: f64| (ns as f64 / wanted - 1.0).abs() < 0.05;
        assert!(is_close(latency.p50_ns, 10_100.0), "{latency:?}");
        assert!(is_close(latency.p99_ns, 5_000_000.0), "{latency:?}");
        assert!(is_close(latency.p999_ns, 70_000_500.0), "{latency:?}");
    }
}
