//! How mounts are, for people.

use std::fmt::Write;

use super::{
    AskError, CompressionStatus, DataStatus, Flushed, JournalStatus, MountPoint, MountStatus,
    RecoveriesStatus,
};
use steadfast_journal::manifest::utc;

/// A call that has waited for so long shows that the server does not answer, in ms.
const SILENT_MS: u64 = 1000;

/// Adds a line. Writing to a string cannot fail.
macro_rules! push {
    ($text:expr, $($part:tt)*) => { let _ = writeln!($text, $($part)*); };
}

/// All mounts, one after the other.
#[must_use]
pub fn mounts(told: &[(&MountPoint, &Result<MountStatus, AskError>)]) -> String {
    if told.is_empty() {
        return "steadfast mount has nothing mounted here\n".to_owned();
    }
    let pages = told.iter().map(|(mount, answer)| {
        let mut text = format!("{} on {}\n", mount.source, mount.directory.display());
        match answer {
            Ok(status) => append(&mut text, status),
            Err(error) => {
                push!(text, "  {error}");
            }
        }
        text
    });
    pages.collect::<Vec<_>>().join("\n")
}

fn append(text: &mut String, status: &MountStatus) {
    push!(
        text,
        "  mounted {}, process {}, NFSv{} at {}",
        utc(status.mounted_unix_s.saturating_mul(1_000_000_000)),
        status.pid,
        status.nfs_version,
        status.address
    );
    let program = match status.has_recovery_program {
        Some(true) => "has the recovery program",
        Some(false) => "has no recovery program",
        None => "has not said whether it has the recovery program",
    };
    let is_async = match status.is_async {
        Some(true) => ", share is async",
        Some(false) => ", share is not async",
        None => "",
    };
    push!(text, "  server {program}{is_async}");
    if let Some(waited_ms) = status.oldest_call_ms.filter(|waited| *waited >= SILENT_MS) {
        push!(text, "  SERVER DOES NOT ANSWER: the oldest call has waited for {}", time(waited_ms));
    }
    for (index, one) in status.connections.iter().enumerate() {
        let state = if one.is_up { "up" } else { "DOWN, being made again" };
        let for_ms = (status.now_unix_ms).saturating_sub(one.since_unix_s.saturating_mul(1000));
        push!(
            text,
            "  connection {index}: {state} for {}, made {} times, {} calls in flight",
            time(for_ms),
            one.times_made,
            one.calls_in_flight
        );
        if let Some(error) = &one.last_error {
            let ago = one.last_error_unix_s.unwrap_or(0).saturating_mul(1000);
            push!(
                text,
                "    last error, {} ago: {error}",
                time(status.now_unix_ms.saturating_sub(ago))
            );
        }
    }
    if let Some(flow) = &status.flow {
        push!(
            text,
            "  writes in flight: {} of at most {}, {} waiting; round trip {:.1} ms, {:.1} ms at the least",
            bytes(flow.in_flight_bytes),
            bytes(flow.window_bytes),
            flow.waiting,
            flow.round_trip_us as f64 / 1000.0,
            flow.lowest_round_trip_us as f64 / 1000.0
        );
    }
    procedures(text, status);
    push!(
        text,
        "  programs have read {} and written {}; {} received from the server, {} sent",
        bytes(status.read_bytes),
        bytes(status.written_bytes),
        bytes(status.received_bytes),
        bytes(status.sent_bytes)
    );
    if let Some(told) = &status.compression {
        compression(text, told);
    }
    let asked = status.cache_hits.saturating_add(status.cache_misses);
    push!(
        text,
        "  names and attributes: {} of {asked} questions answered without a call",
        status.cache_hits
    );
    data(text, &status.data);
    if let Some(locks) = &status.locks {
        push!(text, "  locks at the server: {} held, {} waiting", locks.held, locks.waiting);
        if locks.lost > 0 {
            push!(
                text,
                "    {} LOCKS WERE LOST by a restart of the server: see the log",
                locks.lost
            );
        }
    }
    if let Some(journal) = &status.journal {
        append_journal(text, journal, status.now_unix_ms);
    }
}

fn compression(text: &mut String, told: &CompressionStatus) {
    if let Some(why) = &told.why_not {
        push!(text, "    NOTHING IS COMPRESSED: {why}");
    }
    if told.is_used || told.sent_bytes > 0 || told.received_bytes > 0 {
        push!(
            text,
            "    compressed: {} of data received as {}, {} sent as {}",
            bytes(told.received_bytes),
            bytes(told.received_as_bytes),
            bytes(told.sent_bytes),
            bytes(told.sent_as_bytes)
        );
    }
}

fn procedures(text: &mut String, status: &MountStatus) {
    if status.procedures.is_empty() {
        return;
    }
    push!(
        text,
        "  {:<12} {:>9} {:>8} {:>8} {:>10} {:>10}",
        "CALL",
        "COUNT",
        "ERRORS",
        "RETRIES",
        "MEAN",
        "P99"
    );
    for one in &status.procedures {
        let name = if one.program == "nfs" {
            one.name.clone()
        } else {
            format!("{}.{}", one.program, one.name)
        };
        let mean = one.latency_us.checked_div(one.calls).unwrap_or(0);
        push!(
            text,
            "  {name:<12} {:>9} {:>8} {:>8} {:>7} µs {:>7} µs",
            one.calls,
            one.errors,
            one.retries,
            mean,
            one.p99_us
        );
    }
}

fn data(text: &mut String, data: &DataStatus) {
    push!(
        text,
        "  data not stable: {} not sent, {} in flight, {} not committed, of {} files",
        bytes(data.dirty_bytes),
        bytes(data.in_flight_bytes),
        bytes(data.unstable_bytes),
        data.files
    );
    if data.writers_waiting > 0 || data.writers_waited_ms > 0 {
        push!(
            text,
            "    writers wait at {}: {} now, {} in all",
            bytes(data.writers_wait_at_bytes),
            data.writers_waiting,
            time(data.writers_waited_ms)
        );
    }
    if data.refused_writes > 0 {
        push!(text, "    THE SERVER HAS REFUSED {} WRITES: see the log", data.refused_writes);
    }
}

fn append_journal(text: &mut String, journal: &JournalStatus, now_unix_ms: u64) {
    push!(
        text,
        "  journal {}: {} of {} used, sync {}",
        journal.directory,
        bytes(journal.used_bytes),
        bytes(journal.ring_bytes),
        journal.sync
    );
    if let Some(why) = &journal.failed {
        push!(text, "    FAILED, each write waits for the server: {why}");
    }
    let oldest = match journal.oldest_unix_ms {
        Some(oldest) => format!(", the oldest {} old", time(now_unix_ms.saturating_sub(oldest))),
        None => String::new(),
    };
    push!(
        text,
        "    pending: {} records with {} of data{oldest}",
        journal.pending_records,
        bytes(journal.pending_bytes)
    );
    push!(
        text,
        "    record {} is the last, {} is stable on the disk here",
        journal.last_sequence,
        journal.stable_sequence
    );
    push!(
        text,
        "    commits all from {} on; writers wait when it is full: {} now, {} in all",
        bytes(journal.commits_from_bytes),
        journal.writers_waiting,
        time(journal.writers_waited_ms)
    );
    recoveries(text, &journal.recoveries, now_unix_ms);
}

fn recoveries(text: &mut String, told: &RecoveriesStatus, now_unix_ms: u64) {
    if told.records_sent_at_mount > 0 || told.conflicts_at_mount > 0 {
        push!(
            text,
            "    sent when it was mounted: {} records, {} conflicts",
            told.records_sent_at_mount,
            told.conflicts_at_mount
        );
    }
    if let Some(since) = told.under_way_since_unix_ms {
        let since = time(now_unix_ms.saturating_sub(since));
        push!(text, "    RECOVERY UNDER WAY for {since}: the server has lost what it acknowledged");
    }
    let Some(last) = told.last_unix_ms else {
        push!(text, "    recoveries: none");
        return;
    };
    push!(
        text,
        "    recoveries: {}, the last {} ago took {}; {} records made again, {} conflicts",
        told.count,
        time(now_unix_ms.saturating_sub(last)),
        time(told.last_took_ms.unwrap_or(0)),
        told.records_made_again,
        told.conflicts
    );
    if told.conflicts > 0 || told.conflicts_at_mount > 0 {
        push!(text, "    reports of conflicts: {}", told.conflicts_directory);
    }
}

/// What is pending after a flush, in one line.
#[must_use]
pub fn not_flushed(flushed: &Flushed) -> String {
    let data = &flushed.data;
    let what = if flushed.has_given_up { "not all of it was flushed" } else { "not flushed" };
    let mut text = format!(
        "{what} after {}: {} not sent, {} in flight, {} not committed",
        time(flushed.took_ms),
        bytes(data.dirty_bytes),
        bytes(data.in_flight_bytes),
        bytes(data.unstable_bytes)
    );
    if let Some(journal) = &flushed.journal {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {} records in the journal", journal.pending_records);
    }
    for reason in &flushed.reasons {
        let _ = write!(text, "; {reason}");
    }
    text + if flushed.has_given_up { "" } else { "; nothing is lost, and it is tried on" }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} bytes");
    }
    let mut amount = count as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        unit = larger;
    }
    format!("{amount:.1} {unit}")
}

fn time(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{:03} s", ms / 1000, ms % 1000),
        10_000..600_000 => format!("{} s", ms / 1000),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        for (count, wanted) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (256 << 20, "256.0 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(count), wanted);
        }
        for (ms, wanted) in
            [(5, "0.005 s"), (61_000, "61 s"), (3_600_000, "60 min"), (u64::MAX, "5124095576030 h")]
        {
            assert_eq!(time(ms), wanted);
        }
    }

    #[test]
    fn what_is_pending_is_said_in_one_line() {
        let data = DataStatus { dirty_bytes: 2048, unstable_bytes: 5, ..DataStatus::default() };
        let reasons = vec!["the server does not answer".to_owned()];
        let mut flushed = Flushed {
            is_done: false,
            has_given_up: false,
            took_ms: 2000,
            reasons,
            data,
            journal: None,
        };
        assert_eq!(
            not_flushed(&flushed),
            "not flushed after 2.000 s: 2.0 KiB not sent, 0 bytes in flight, 5 bytes not committed; \
             the server does not answer; nothing is lost, and it is tried on"
        );
        flushed.has_given_up = true;
        let told = not_flushed(&flushed);
        assert!(told.starts_with("not all of it was flushed after 2.000 s: "), "{told}");
        assert!(!told.contains("nothing is lost"), "{told}");
    }
}
