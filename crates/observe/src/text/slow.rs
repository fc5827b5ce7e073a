//! The slowest calls of a running server, each in a sentence.

use std::fmt::Write;

use steadfast_control::slow::{SlowCall, SlowReport, SlowStage};

/// Stages that took less than this part of a call's time are left out.
const PART_LEAST: u64 = 20;
/// A log that is fuller than this, in percent, makes changes wait.
const LOG_FULL_PERCENT: u8 = 90;

/// The calls, each in a line.
#[must_use]
pub fn list(report: &SlowReport) -> String {
    if report.calls.is_empty() {
        return "no such call took 1 ms or longer during the last 10 minutes\n".to_owned();
    }
    let mut text = String::new();
    for call in &report.calls {
        let _ = writeln!(text, "{}", sentence(call, report.taken_unix_ms));
    }
    if report.total > report.calls.len() {
        let _ = writeln!(text, "{} of {} calls: see --count", report.calls.len(), report.total);
    }
    text
}

fn sentence(call: &SlowCall, taken_unix_ms: u64) -> String {
    let answered_us = call.received_unix_us.saturating_add(call.latency_ns / 1000);
    let ago_s = taken_unix_ms.saturating_sub(answered_us / 1000) / 1000;
    let mut text = format!("{:>8}  {}", duration(call.latency_ns), name(call));
    if let Some(file) = file(call) {
        let _ = write!(text, " {file}");
    }
    let _ = write!(text, "  client {}", call.client);
    if let Some(uid) = call.uid {
        let _ = write!(text, " uid {uid}");
    }
    let _ = write!(text, ", {} ago", ago(ago_s));
    if call.is_error {
        text.push_str(", failed");
    }
    let stages = call.by_length();
    let long = stages.iter().enumerate().filter(|(place, stage)| {
        *place == 0 || stage.ns.saturating_mul(PART_LEAST) >= call.latency_ns
    });
    let parts: Vec<String> =
        long.map(|(_, stage)| format!("{} {}", duration(stage.ns), what(stage))).collect();
    let _ = write!(text, ": {}", parts.join(", "));
    let around = surroundings(call);
    if !around.is_empty() {
        let _ = write!(text, " ({})", around.join("; "));
    }
    text
}

/// The operation that took the time, or all of a COMPOUND that is not known to have waited.
fn name(call: &SlowCall) -> String {
    let protocol = match (call.protocol.as_str(), call.version) {
        ("nfs", 3) => String::new(),
        (protocol, version) => format!(" {protocol}{version}"),
    };
    // Other stages belong to no single operation.
    let is_in_one = call
        .by_length()
        .first()
        .is_some_and(|longest| matches!(longest.stage.as_str(), "file-system" | "log-room"));
    match &call.waited_in {
        Some(operation) if is_in_one => operation.clone(),
        _ if call.operations.is_empty() => call.name.clone() + &protocol,
        _ => call.operations.join("+"),
    }
}

fn file(call: &SlowCall) -> Option<String> {
    if let Some(path) = &call.path {
        return Some(path.clone());
    }
    match (&call.share, &call.file) {
        (Some(share), Some(file)) => Some(format!("{share} file {file}")),
        (share, file) => share.clone().or_else(|| file.clone()),
    }
}

fn what(stage: &SlowStage) -> &str {
    match stage.stage.as_str() {
        "turn" => "waiting for its turn",
        "names" => "waiting for a name service",
        "clients" => "waiting for another client to give the file back",
        "storage" => "waiting, since too many calls waited for the same disk",
        "work" => "executing",
        "file-system" => "in the file system or waiting for its disk",
        "log-room" => "waiting until the log took the change",
        "flush" => "waiting for its file system to be flushed",
        "log" => "waiting for the log's disk",
        "send" => "sending the reply",
        other => other,
    }
}

fn surroundings(call: &SlowCall) -> Vec<String> {
    let mut told = Vec::new();
    if call.has_checkpoint {
        told.push("a checkpoint ran".to_owned());
    }
    if call.log_fill_percent >= LOG_FULL_PERCENT {
        told.push(format!("the log was {} % full", call.log_fill_percent));
    }
    if call.is_log_off {
        told.push("the log was off".to_owned());
    }
    if call.has_fault {
        told.push("a file system was faulty".to_owned());
    }
    if call.parked > 0 {
        told.push(format!("{} calls waited for a flush", call.parked));
    }
    told
}

fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.1} ms", seconds * 1e3) }
}

fn ago(seconds: u64) -> String {
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    fn call() -> SlowCall {
        let stage = |stage: &str, ns| SlowStage { stage: stage.to_owned(), ns };
        SlowCall {
            protocol: "nfs".to_owned(),
            version: 3,
            name: "WRITE".to_owned(),
            client: "192.0.2.3".to_owned(),
            uid: Some(1000),
            share: Some("/export".to_owned()),
            path: Some("/export/a/b".to_owned()),
            file: Some("0f".to_owned()),
            received_unix_us: 3_000_000,
            latency_ns: 1_240_000_000,
            stages: vec![
                stage("turn", 20_000_000),
                stage("file-system", 10_000_000),
                stage("log", 1_210_000_000),
            ],
            has_checkpoint: true,
            ..SlowCall::default()
        }
    }

    #[test]
    fn a_call_is_a_sentence() {
        let expected = "  1.24 s  WRITE /export/a/b  client 192.0.2.3 uid 1000, 2 min ago: \
                        1.21 s waiting for the log's disk (a checkpoint ran)";
        assert_eq!(sentence(&call(), 130_000).trim_start(), expected.trim_start());
        let unknown = SlowCall {
            path: None,
            uid: None,
            is_error: true,
            latency_ns: 210_000_000,
            stages: vec![
                SlowStage { stage: "clients".to_owned(), ns: 200_000_000 },
                SlowStage { stage: "turn".to_owned(), ns: 10_500_000 },
            ],
            has_checkpoint: false,
            parked: 3,
            ..call()
        };
        let expected = "210.0 ms  WRITE /export file 0f  client 192.0.2.3, 1 s ago, failed: \
                        200.0 ms waiting for another client to give the file back, 10.5 ms waiting \
                        for its turn (3 calls waited for a flush)";
        assert_eq!(sentence(&unknown, 4_300).trim_start(), expected);
    }

    #[test]
    fn a_compound_is_told_by_the_operation_that_waited() {
        let operations = ["SEQUENCE", "PUTFH", "OPEN"].map(str::to_owned).to_vec();
        let name_of = |waited_in: Option<&str>, longest: &str| {
            let waited_in = waited_in.map(str::to_owned);
            let stage = |stage: &str, ns| SlowStage { stage: stage.to_owned(), ns };
            let stages = vec![stage("file-system", 7), stage(longest, 8)];
            let operations = operations.clone();
            name(&SlowCall { version: 4, operations, waited_in, stages, ..call() })
        };
        assert_eq!(name_of(Some("OPEN"), "file-system"), "OPEN");
        assert_eq!(name_of(Some("OPEN"), "log-room"), "OPEN");
        assert_eq!(name_of(None, "file-system"), "SEQUENCE+PUTFH+OPEN");
        // It did not wait there for most of its time.
        assert_eq!(name_of(Some("OPEN"), "flush"), "SEQUENCE+PUTFH+OPEN");
    }

    #[test]
    fn what_there_is_more_of_is_told() {
        let report = SlowReport { total: 3, calls: vec![call()], ..SlowReport::default() };
        assert!(list(&report).ends_with("1 of 3 calls: see --count\n"));
        assert!(list(&SlowReport::default()).starts_with("no such call"));
    }
}
