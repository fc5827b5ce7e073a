//! The intent log's figures for people.
//!
//! How many disk writes the log has saved is not among them: it is not known what the file systems
//! would have written without it. What is told are both sides: what was logged, and what the
//! devices of the file systems were asked to write, by whomever.

use std::fmt::Write;

use steadfast_control::intent_log::{FaultReport, FlushReport, LogFigures, LogReport};

/// For people, with the rates of so many seconds.
#[must_use]
pub fn figures(log: &LogFigures, seconds: f64) -> String {
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let mut text = format!(
        "intent log: {}, {} of {} MiB in use ({:.1}%), {} replies wait\n",
        log.phase,
        mib(log.used_bytes),
        mib(log.ring_bytes),
        log.used_bytes as f64 / log.ring_bytes.max(1) as f64 * 100.0,
        log.parked,
    );
    if let Some(why) = &log.why {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {why}");
    }
    let _ = writeln!(
        text,
        "  {} records ({:.1}/s, {} MiB) in {} writes ({:.1}/s, {} MiB), {:.1} records a write\n  \
         a write p50 {:.0} µs, p99 {:.0} µs; {} checkpoints; {} waits for room",
        log.records,
        rate(log.records),
        mib(log.payload_bytes),
        log.batches,
        rate(log.batches),
        mib(log.written_bytes),
        log.records as f64 / log.batches.max(1) as f64,
        log.write_p50_ns as f64 / 1e3,
        log.write_p99_ns as f64 / 1e3,
        log.checkpoints,
        log.waits_for_room,
    );
    let _ = writeln!(
        text,
        "  replies of the last {:.0} s outlive the server: {} of {} MiB, {} MiB in memory and the log",
        log.replies_reach_ms as f64 / 1e3,
        mib(log.replies_bytes),
        mib(log.replies_bytes_max),
        mib(log.replies_gathered_bytes),
    );
    text
}

/// For people; `now_unix_ms` says how long ago things were.
#[must_use]
pub fn report(log: &LogReport, started_seconds: f64, now_unix_ms: u64) -> String {
    let mut text = format!(
        "{} (process {}), epoch {}, record {} stable, {} last\n{}",
        log.path,
        log.process,
        log.epoch,
        log.stable,
        log.last,
        figures(&log.figures, started_seconds)
    );
    if let Some(last) = log.last_checkpoint {
        let ago_ms = now_unix_ms.saturating_sub(last.ended_unix_ms);
        let _ = writeln!(
            text,
            "  last checkpoint {:.1} s ago, took {:.1} ms",
            ago_ms as f64 / 1e3,
            last.took_us as f64 / 1e3
        );
    }
    for known in &log.figures.file_systems {
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
    for aside in &log.set_aside {
        let _ = writeln!(
            text,
            "  set aside for {}: {} ({} bytes)",
            aside.path.as_deref().unwrap_or("a file system that cannot be read from it"),
            aside.file,
            aside.bytes
        );
    }
    if let Some(fault) = &log.set_aside_fault {
        let _ = writeln!(text, "  what is set aside is not known: {fault}");
    }
    text
}

/// For people.
#[must_use]
pub fn flushed(report: &FlushReport) -> String {
    let mut text = String::new();
    for path in &report.flushed {
        let _ = writeln!(text, "{path}: flushed");
    }
    for FaultReport { path, why } in &report.faulty {
        let _ = writeln!(text, "{path}: NOT flushed: {why}");
    }
    if text.is_empty() {
        text.push_str("no file system is logged: there is nothing to flush\n");
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use steadfast_control::intent_log::{AsideReport, CheckpointReport, FileSystemFigures};

    use super::*;

    #[test]
    fn what_is_told_people_is_what_programs_get() {
        let log = LogReport {
            path: "/state/intent.log".to_owned(),
            figures: LogFigures {
                phase: "on".to_owned(),
                why: Some("left, as it broke".to_owned()),
                ring_bytes: 64 << 20,
                used_bytes: 16 << 20,
                records: 1000,
                batches: 100,
                file_systems: vec![FileSystemFigures {
                    path: "/srv".to_owned(),
                    records: 5,
                    ..FileSystemFigures::default()
                }],
                ..LogFigures::default()
            },
            last_checkpoint: Some(CheckpointReport { ended_unix_ms: 1000, took_us: 2500 }),
            set_aside: vec![AsideReport { file: "f.aside".to_owned(), bytes: 9, path: None }],
            ..LogReport::default()
        };
        let text = report(&log, 10.0, 3000);
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
    }
}
