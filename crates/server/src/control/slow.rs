//! The slowest calls, by the control socket.

use std::net::IpAddr;
use std::path::Path;

use steadfast_control::slow::{
    CALLS_MAX, CALLS_USUAL, SlowCall, SlowFilter, SlowReport, SlowStage, VERSION,
};
use steadfast_control::statistics::unix_time;
use steadfast_engine::{Engine, ShareId, Transport};
use steadfast_runtime::{self as runtime, Observer};
use steadfast_vfs::StorageHandle;

use super::clients::hexadecimal;
use crate::written_name::written_path;

/// What was asked for of the slowest calls.
pub(super) fn slow(observer: &Observer, engine: &Engine, filter: &SlowFilter) -> SlowReport {
    let taken = unix_time();
    let since_ns = filter.since_s.map_or(0, |seconds| {
        (taken.as_nanos() as u64).saturating_sub(seconds.saturating_mul(1_000_000_000))
    });
    let client = filter.client.map(|client| client.to_canonical());
    let mut calls = observer.slow_calls();
    calls.retain(|call| {
        call.received_unix_ns.saturating_add(call.latency_ns) >= since_ns
            && client.is_none_or(|client| address(call) == client)
            && filter.operation.as_ref().is_none_or(|name| is_of(call, name))
    });
    let total = calls.len();
    calls.truncate(filter.count.unwrap_or(CALLS_USUAL).min(CALLS_MAX));
    SlowReport {
        version: VERSION,
        taken_unix_ms: taken.as_millis() as u64,
        total,
        calls: calls.iter().map(|call| told(call, engine)).collect(),
    }
}

fn address(call: &runtime::SlowCall) -> IpAddr {
    call.client.ip().to_canonical()
}

fn is_of(call: &runtime::SlowCall, name: &str) -> bool {
    call.operation.name().procedure_name.eq_ignore_ascii_case(name)
        || call.operations.iter().any(|one| one.name().eq_ignore_ascii_case(name))
}

/// The path of a file, as one word, if it is known without a look at the disk.
pub(super) fn path_of(engine: &Engine, share: ShareId, file: &StorageHandle) -> Option<String> {
    let exports = engine.exports();
    let export = exports.by_id(share)?;
    let below = export.storage.opened()?.known_path(file)?;
    let share = Path::new(export.share.path.as_ref());
    // Joined with nothing, a path gets a slash at its end.
    let is_root = below.as_os_str().is_empty();
    let path = if is_root { share.to_owned() } else { share.join(below) };
    Some(written_path(&path))
}

fn told(call: &runtime::SlowCall, engine: &Engine) -> SlowCall {
    let name = call.operation.name();
    let exports = engine.exports();
    let export = call.subject.share.and_then(|share| exports.by_id(share));
    let file = call.subject.file.as_ref();
    let path = call.subject.share.zip(file).and_then(|(share, file)| path_of(engine, share, file));
    let surroundings = &call.surroundings;
    SlowCall {
        xid: call.xid,
        protocol: name.protocol.to_owned(),
        version: name.version,
        name: name.procedure_name.to_owned(),
        is_error: call.is_error,
        operations: call.operations.iter().map(|one| one.name().to_owned()).collect(),
        waited_in: call.waited_in.map(|one| one.name().to_owned()),
        client: address(call).to_string(),
        transport: match call.transport {
            Transport::Tcp => "tcp".to_owned(),
            Transport::Udp => "udp".to_owned(),
        },
        uid: call.subject.uid,
        share: export.map(|export| written_path(Path::new(export.share.path.as_ref()))),
        path,
        file: file.map(|file| hexadecimal(file.as_bytes())),
        received_unix_us: call.received_unix_ns / 1000,
        latency_ns: call.latency_ns,
        stages: call
            .stages_ns
            .iter()
            .map(|(stage, ns)| SlowStage { stage: stage.name().to_owned(), ns: *ns })
            .collect(),
        has_checkpoint: surroundings.log.has_checkpoint,
        is_log_off: surroundings.log.is_off,
        log_fill_percent: surroundings.log.fill_percent,
        has_fault: surroundings.log.has_fault,
        parked: surroundings.parked,
        waiting_bytes: surroundings.waiting_bytes,
    }
}
