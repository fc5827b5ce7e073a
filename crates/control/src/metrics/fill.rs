//! Numbers become samples.

use std::collections::BTreeMap;

use super::figures::{ClientCounts, Figures, NameCounts};
use super::scrape::{Distribution, Scrape};
use super::table::{self as metric, Metric};
use crate::intent_log::{FileSystemFigures, LogFigures};
use crate::statistics::{Latency, NEW_HANDLE_KEY, Operation, Stages};

/// Upper bounds of the buckets of calls' latencies, in seconds. A call is counted in the wrong one of two
/// neighbours if it is within 3 % of the bound between them: the server's own buckets are that wide.
pub const LATENCY_BOUNDS: [f64; 12] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 2.0, 10.0];
/// Upper bounds of the buckets of the log's writes, as powers of two in ns: the log counts by these.
const LOG_WRITE_BOUNDS: [u32; 12] = [13, 15, 17, 18, 19, 20, 21, 22, 24, 26, 28, 30];
/// Procedures of all programs, at most: for so many the series are counted by a test.
pub const OPERATIONS_MAX: usize = 180;
/// Operations of COMPOUNDs, at most.
pub const COMPOUND_OPERATIONS_MAX: usize = 80;
/// Most file systems with lines of their own.
pub const FILE_SYSTEMS_MAX: usize = 64;

/// The totals of the server, by their names in its statistics, without `calls` and delegations by kind.
static TOTALS: [(&str, &Metric); 48] = [
    (NEW_HANDLE_KEY, &metric::NEW_HANDLE_KEY),
    ("batches", &metric::BATCHES),
    ("bytes_in", &metric::RECEIVED),
    ("bytes_out", &metric::SENT),
    ("parked", &metric::PARKED),
    ("lends", &metric::LENDS),
    ("takeovers", &metric::TAKEOVERS),
    ("held_back", &metric::HELD_BACK),
    ("put_off", &metric::PUT_OFF),
    ("told_later", &metric::TOLD_LATER),
    ("accepted", &metric::ACCEPTED),
    ("refused", &metric::REFUSED),
    ("datagrams", &metric::DATAGRAMS),
    ("connections", &metric::CONNECTIONS),
    ("workers", &metric::WORKERS),
    ("parked_now", &metric::UNFLUSHED),
    ("flushes", &metric::FLUSHES),
    ("flush_failures", &metric::FLUSH_FAILURES),
    ("waiting_bytes", &metric::UNREAD),
    ("replies_kept", &metric::REPLIES),
    ("replies_kept_bytes", &metric::REPLY_BYTES),
    ("duplicate_calls", &metric::DUPLICATES),
    ("replies_evicted_young", &metric::EVICTED_YOUNG),
    ("replies_evicted_by_pressure", &metric::EVICTED_PRESSURE),
    ("verifier_changes", &metric::VERIFIERS),
    ("journaling_clients", &metric::JOURNALING),
    ("journaling_clients_awaited", &metric::JOURNALING_AWAITED),
    ("journaling_clients_recovering", &metric::JOURNALING_RECOVERING),
    ("journaling_clients_missed", &metric::JOURNALING_MISSED),
    ("delegations_asked", &metric::ASKED),
    ("delegations_unasked", &metric::UNASKED),
    ("delegations_recalled", &metric::RECALLED),
    ("delegations_returned", &metric::RETURNED),
    ("delegations_revoked", &metric::REVOKED),
    ("read_ahead_asks", &metric::READ_AHEAD_ASKS),
    ("read_ahead_bytes", &metric::READ_AHEAD_BYTES),
    ("read_ahead_advised", &metric::READ_AHEAD_ADVISED),
    ("read_ahead_found", &metric::READ_AHEAD_FOUND),
    ("read_ahead_lost", &metric::READ_AHEAD_LOST),
    ("read_ahead_budget_left_bytes", &metric::READ_AHEAD_BUDGET),
    ("objects_open", &metric::OBJECTS),
    ("objects_unflushed", &metric::OBJECTS_UNFLUSHED),
    ("objects_in_calls", &metric::OBJECTS_IN_CALLS),
    ("objects_in_flushes", &metric::OBJECTS_IN_FLUSHES),
    ("objects_sent", &metric::OBJECTS_SENT),
    ("objects_guarded", &metric::OBJECTS_GUARDED),
    ("objects_written_back", &metric::OBJECTS_WRITTEN),
    ("objects_roots", &metric::OBJECTS_ROOTS),
];
/// Of clients with state.
const PROTOCOLS: [&str; 3] = ["NFSv4.0", "NFSv4.1+", "NLM"];
const STATES: [&str; 3] = ["active", "courteous", "unconfirmed"];
/// Told with a label.
const GRANTED: [(&str, &str); 2] =
    [("delegations_granted_read", "read"), ("delegations_granted_write", "write")];
/// The sum of what is told by operation.
const CALLS: &str = "calls";

/// The names of the totals of the server's statistics that are among the metrics.
pub fn total_names() -> impl Iterator<Item = &'static str> {
    let totals = TOTALS.iter().map(|(name, _)| *name);
    [CALLS].into_iter().chain(totals).chain(GRANTED.iter().map(|(name, _)| *name))
}

/// All samples.
pub(super) fn scrape(figures: &Figures) -> Scrape {
    let mut scrape = Scrape::new();
    let statistics = &figures.statistics;
    scrape.whole(&metric::BUILD, &[&statistics.program_version], 1);
    scrape.fraction(&metric::START, &[], statistics.started_unix_ms as f64 / 1e3);
    scrape.fraction(&metric::COLLECTING, &[], figures.collecting.as_secs_f64());
    for operation in &statistics.operations {
        call(&mut scrape, operation);
    }
    sampled(&mut scrape, &statistics.operations);
    for part in &statistics.compound_operations {
        let labels: [&str; 1] = [&part.name];
        scrape.whole(&metric::PARTS, &labels, part.calls);
        scrape.whole(&metric::PART_ERRORS, &labels, part.errors);
        scrape.whole(&metric::PART_SAMPLED, &labels, part.execution.replies);
        scrape.fraction(&metric::PART_TIME, &labels, seconds(part.execution.total_ns));
    }
    totals(&mut scrape, &statistics.server);
    state(&mut scrape, figures);
    if let Some(log) = &statistics.log {
        intent_log(&mut scrape, log, figures);
    }
    access(&mut scrape, figures);
    for names in &figures.names {
        name_service(&mut scrape, names);
    }
    process(&mut scrape, figures);
    scrape
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn call(scrape: &mut Scrape, operation: &Operation) {
    let version = operation.version.to_string();
    let labels: [&str; 3] = [&operation.protocol, &version, &operation.name];
    scrape.whole(&metric::CALLS, &labels, operation.calls);
    scrape.whole(&metric::CALL_ERRORS, &labels, operation.errors);
    scrape.whole(&metric::CALL_BYTES_IN, &labels, operation.bytes_in);
    scrape.whole(&metric::CALL_BYTES_OUT, &labels, operation.bytes_out);
    scrape.fraction(&metric::CALL_EXECUTION, &labels, seconds(operation.execution_ns));
    scrape.histogram(&metric::CALL_LATENCY, &labels, latency(&operation.latency));
    scrape.whole(&metric::CALL_STABLE, &labels, operation.stable.replies);
    scrape.fraction(&metric::CALL_STABLE_TIME, &labels, seconds(operation.stable.total_ns));
}

/// By fewer buckets than the server has. Each of its buckets goes to where its longest time belongs.
fn latency(latency: &Latency) -> Distribution {
    let buckets = latency.buckets.iter().map(|(_, high_ns, count)| (*high_ns, *count));
    Distribution { sum_s: seconds(latency.total_ns), buckets: by_bounds(&LATENCY_BOUNDS, buckets) }
}

/// Counts of values that end at so many ns, by bounds in seconds and one that is infinite.
fn by_bounds(bounds: &[f64], counts: impl Iterator<Item = (u64, u64)>) -> Vec<(f64, u64)> {
    let ends = bounds.iter().copied().chain([f64::INFINITY]);
    let mut buckets: Vec<(f64, u64)> = ends.map(|end| (end, 0)).collect();
    for (high_ns, count) in counts {
        let place = bounds.partition_point(|bound| *bound < seconds(high_ns));
        if let Some(bucket) = buckets.get_mut(place) {
            bucket.1 += count;
        }
    }
    buckets
}

/// Stages of all operations together: by operation they would be 500 series.
fn sampled(scrape: &mut Scrape, operations: &[Operation]) {
    let calls = operations.iter().map(|operation| operation.sampled_calls).sum();
    scrape.whole(&metric::SAMPLED, &[], calls);
    let sum = |of: fn(&Stages) -> u64| {
        seconds(operations.iter().map(|operation| of(&operation.stages)).sum())
    };
    for (name, time_s) in [
        ("receive", sum(|stages| stages.receive_ns)),
        ("queue", sum(|stages| stages.queue_ns)),
        ("decode", sum(|stages| stages.decode_ns)),
        ("access", sum(|stages| stages.access_ns)),
        ("storage", sum(|stages| stages.storage_ns)),
        ("stable", sum(|stages| stages.stable_ns)),
        ("send", sum(|stages| stages.send_ns)),
    ] {
        scrape.fraction(&metric::STAGES, &[name], time_s);
    }
}

fn totals(scrape: &mut Scrape, server: &BTreeMap<String, u64>) {
    for (name, metric) in &TOTALS {
        if let Some(value) = server.get(*name) {
            scrape.whole(metric, &[], *value);
        }
    }
    for (name, kind) in GRANTED {
        if let Some(value) = server.get(name) {
            scrape.whole(&metric::GRANTED, &[kind], *value);
        }
    }
}

fn state(scrape: &mut Scrape, figures: &Figures) {
    if let Some(shares) = &figures.shares {
        for (state, count) in [
            ("enabled", shares.enabled),
            ("disabled", shares.disabled),
            ("faulty", shares.faulty),
            ("draining", shares.draining),
        ] {
            scrape.whole(&metric::SHARES, &[state], count);
        }
        scrape.whole(&metric::SIZE_FAULTS, &[], shares.size_faults);
        scrape.fraction(&metric::SHARES_AGE, &[], figures.shares_age.as_secs_f64());
    }
    scrape.fraction(&metric::SHARES_CHANGE, &[], figures.shares_change.as_secs_f64());
    // All of them, so that no series ends when a last client leaves.
    let all = PROTOCOLS.into_iter().flat_map(|protocol| STATES.map(|state| (protocol, state)));
    let mut clients: BTreeMap<(&str, &str), ClientCounts> =
        all.map(|key| (key, ClientCounts::default())).collect();
    for counts in &figures.clients {
        let sum = clients.entry((counts.protocol, counts.state)).or_default();
        sum.clients += counts.clients;
        sum.sessions += counts.sessions;
        sum.opens += counts.opens;
        sum.locks += counts.locks;
        sum.delegations += counts.delegations;
    }
    for ((protocol, state), counts) in clients {
        let labels = [protocol, state];
        scrape.whole(&metric::CLIENTS, &labels, counts.clients);
        scrape.whole(&metric::SESSIONS, &labels, counts.sessions);
        scrape.whole(&metric::OPENS, &labels, counts.opens);
        scrape.whole(&metric::LOCKS, &labels, counts.locks);
        scrape.whole(&metric::DELEGATIONS, &labels, counts.delegations);
    }
    scrape.whole(&metric::RECLAIMING, &[], figures.reclaiming);
    scrape.whole(&metric::GRACE, &[], u64::from(figures.is_in_grace));
    scrape.whole(&metric::WAITING, &[], figures.waiting_calls);
    scrape.whole(&metric::IN_PROGRESS, &[], figures.calls_in_progress);
}

fn intent_log(scrape: &mut Scrape, log: &LogFigures, figures: &Figures) {
    let now = if figures.log_is_unmade { "unmade" } else { &log.phase };
    for phase in ["on", "closing", "off", "unmade"] {
        scrape.whole(&metric::LOG_PHASE, &[phase], u64::from(now == phase));
    }
    for (metric, value) in [
        (&metric::LOG_RING, log.ring_bytes),
        (&metric::LOG_USED, log.used_bytes),
        (&metric::LOG_PARKED, log.parked),
        (&metric::LOG_RECORDS, log.records),
        (&metric::LOG_PAYLOAD, log.payload_bytes),
        (&metric::LOG_BATCHES, log.batches),
        (&metric::LOG_WRITTEN, log.written_bytes),
        (&metric::LOG_FULL, log.waits_for_room),
        (&metric::LOG_CHECKPOINTS, log.checkpoints),
        (&metric::LOG_REPLIES, log.replies_bytes),
        (&metric::LOG_REPLIES_MAX, log.replies_bytes_max),
        (&metric::LOG_REPLIES_GATHERED, log.replies_gathered_bytes),
    ] {
        scrape.whole(metric, &[], value);
    }
    let reach_s = log.replies_reach_ms as f64 / 1e3;
    scrape.fraction(&metric::LOG_REPLIES_REACH, &[], reach_s);
    // A bucket of the log ends one before a power of two.
    let bounds = LOG_WRITE_BOUNDS.map(|power| seconds(1 << power));
    let writes = log.write_ns.iter().map(|(_, high_ns, count)| (*high_ns, *count));
    let sum_s = seconds(log.write_total_ns);
    let writes = Distribution { sum_s, buckets: by_bounds(&bounds, writes) };
    scrape.histogram(&metric::LOG_WRITE_TIME, &[], writes);
    if let Some(last) = figures.last_checkpoint {
        scrape.fraction(&metric::LOG_CHECKPOINT_END, &[], last.ended_unix_ms as f64 / 1e3);
        scrape.fraction(&metric::LOG_CHECKPOINT_TIME, &[], last.took_us as f64 / 1e6);
    }
    if let Some(set_aside) = figures.set_aside {
        scrape.whole(&metric::SET_ASIDE, &[], set_aside.files);
        scrape.whole(&metric::SET_ASIDE_BYTES, &[], set_aside.bytes);
    }
    let faulty = log.file_systems.iter().filter(|one| one.fault.is_some()).count();
    let well = log.file_systems.len().saturating_sub(faulty);
    scrape.whole(&metric::LOG_FS, &["faulty"], faulty as u64);
    scrape.whole(&metric::LOG_FS, &["well"], well as u64);
    for file_system in told_apart(&log.file_systems) {
        let path: [&str; 1] = [&file_system.path];
        scrape.whole(&metric::FS_RECORDS, &path, file_system.records);
        scrape.whole(&metric::FS_BYTES, &path, file_system.bytes);
        scrape.whole(&metric::FS_FAULTY, &path, u64::from(file_system.fault.is_some()));
        if let Some(writes) = file_system.device_writes {
            scrape.whole(&metric::FS_WRITES, &path, writes);
        }
        if let Some(bytes) = file_system.device_written_bytes {
            scrape.whole(&metric::FS_WRITTEN, &path, bytes);
        }
    }
}

/// The file systems that have lines of their own, each path once: those with faults first, then by path,
/// so that they are the same ones at each scrape.
fn told_apart(all: &[FileSystemFigures]) -> Vec<&FileSystemFigures> {
    let mut all: Vec<&FileSystemFigures> = all.iter().collect();
    all.sort_by(|a, b| a.path.cmp(&b.path).then(b.fault.is_some().cmp(&a.fault.is_some())));
    all.dedup_by(|later, first| later.path == first.path);
    all.sort_by_key(|one| one.fault.is_none());
    all.truncate(FILE_SYSTEMS_MAX);
    all
}

fn access(scrape: &mut Scrape, figures: &Figures) {
    let decisions = &figures.decisions;
    for (metric, value) in [
        (&metric::DECISIONS, decisions.entries),
        (&metric::DECISIONS_MAX, decisions.entries_max),
        (&metric::DECISION_BYTES, decisions.bytes),
        (&metric::DECISION_HITS, decisions.hits),
        (&metric::DECISION_MISSES, decisions.misses),
        (&metric::DECISION_PENDING, decisions.pending),
        (&metric::DECISION_EVICTED, decisions.evicted),
        (&metric::NAME_STALE, figures.stale_name_uses),
        (&metric::NAME_REFUSED, figures.refused_names),
    ] {
        scrape.whole(metric, &[], value);
    }
}

fn name_service(scrape: &mut Scrape, names: &NameCounts) {
    let kind = names.kind;
    for (state, count) in [("fresh", names.fresh), ("stale", names.stale), ("absent", names.absent)]
    {
        scrape.whole(&metric::NAMES, &[kind, state], count);
    }
    scrape.whole(&metric::NAME_QUESTIONS, &[kind], names.sent);
    for (result, count) in [
        ("found", names.found),
        ("absent", names.answered_absent),
        ("timed_out", names.timed_out),
        ("failed", names.failed),
    ] {
        scrape.whole(&metric::NAME_ANSWERS, &[kind, result], count);
    }
    scrape.whole(&metric::NAME_IN_FLIGHT, &[kind], names.in_flight);
    scrape.whole(&metric::NAME_WAITING, &[kind], names.waiting);
    let buckets = names.latency.iter().map(|(bound_ms, count)| {
        (bound_ms.map_or(f64::INFINITY, |bound_ms| bound_ms as f64 / 1e3), *count)
    });
    let sum_s = names.latency_sum_ms as f64 / 1e3;
    let latency = Distribution { sum_s, buckets: buckets.collect() };
    scrape.histogram(&metric::NAME_LATENCY, &[kind], latency);
}

fn process(scrape: &mut Scrape, figures: &Figures) {
    let process = &figures.process;
    if let Some(cpu) = process.cpu {
        scrape.fraction(&metric::CPU, &[], cpu.as_secs_f64());
    }
    for (metric, value) in [
        (&metric::RESIDENT, process.resident_bytes),
        (&metric::VIRTUAL, process.virtual_bytes),
        (&metric::THREADS, process.threads),
        (&metric::DESCRIPTORS, process.descriptors),
        (&metric::DESCRIPTORS_MAX, process.descriptors_max),
    ] {
        if let Some(value) = value {
            scrape.whole(metric, &[], value);
        }
    }
}
