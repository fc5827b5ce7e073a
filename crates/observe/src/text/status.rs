//! The report for people: one screen.

use std::fmt::Write;

use crate::status::{Clients, Log, Report, Serving, Shares, Verdict};

/// Shows a report; `now_unix_ms` says how long ago the server was started.
#[must_use]
pub fn screen(report: &Report, now_unix_ms: u64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut text, report, now_unix_ms)
        .and_then(|()| report.shares.as_ref().map_or(Ok(()), |told| shares(&mut text, told)))
        .and_then(|()| report.clients.as_ref().map_or(Ok(()), |told| clients(&mut text, told)));
    let _ = match &report.log {
        Some(told) => log(&mut text, told),
        None if report.serving == Serving::Yes => {
            writeln!(text, "log      none: each change is flushed before its reply")
        }
        None => Ok(()),
    };
    for (index, disk) in report.disks.iter().enumerate() {
        let name = if index == 0 { "disks" } else { "" };
        let _ = match &disk.why {
            Some(why) => writeln!(text, "{name:<8} {}: {why}", disk.path),
            None => writeln!(
                text,
                "{name:<8} {}: {} % of {} used, {}",
                disk.path,
                disk.used_percent(),
                size(disk.total_bytes),
                if disk.is_read_only {
                    "read-only".to_owned()
                } else {
                    format!("{} free", size(disk.available_bytes))
                }
            ),
        };
    }
    for warning in &report.warnings {
        let severity = match warning.severity {
            Verdict::Critical => "CRITICAL",
            Verdict::Unknown => "UNKNOWN",
            Verdict::Warning | Verdict::Fine => "warning",
        };
        let _ = writeln!(text, "\n{severity}: {}\n    next: {}", warning.what, warning.next);
    }
    text
}

fn head(text: &mut String, report: &Report, now_unix_ms: u64) -> std::fmt::Result {
    match report.serving {
        Serving::Yes => {
            let version = report.program_version.as_deref().unwrap_or("?");
            let ago_ms = now_unix_ms.saturating_sub(report.started_unix_ms.unwrap_or(now_unix_ms));
            let process = report.process.unwrap_or(0);
            writeln!(
                text,
                "steadfast {version} serves: process {process}, started {} ago",
                ago(ago_ms / 1000)
            )
        }
        Serving::NotRunning => writeln!(text, "steadfast does NOT serve: it does not run"),
        Serving::StartingOrStopping => {
            writeln!(text, "steadfast does NOT serve: it starts or stops")
        }
        Serving::NotAnswering => writeln!(text, "steadfast does NOT answer"),
        Serving::Unknown => writeln!(text, "it is not known whether steadfast serves"),
    }
}

fn shares(text: &mut String, shares: &Shares) -> std::fmt::Result {
    write!(text, "shares   {} served", shares.enabled + shares.draining)?;
    for (count, state) in [
        (shares.draining, "of them draining"),
        (shares.disabled, "disabled"),
        (shares.faulty, "FAULTY"),
    ] {
        if count > 0 {
            write!(text, ", {count} {state}")?;
        }
    }
    text.push('\n');
    Ok(())
}

fn clients(text: &mut String, clients: &Clients) -> std::fmt::Result {
    write!(
        text,
        "clients  {} connections, {} clients with state",
        clients.connections, clients.with_state
    )?;
    for (count, what) in [
        (clients.silent, "silent"),
        (clients.journaling, "with a journal"),
        (clients.awaited.saturating_add(clients.recovering), "not recovered yet"),
        (clients.missed, "MISSED after a crash"),
    ] {
        if count > 0 {
            write!(text, ", {count} {what}")?;
        }
    }
    text.push('\n');
    Ok(())
}

fn log(text: &mut String, log: &Log) -> std::fmt::Result {
    if log.phase == "unmade" {
        return writeln!(text, "log      none yet: it is made for the first share that can use it");
    }
    writeln!(
        text,
        "log      {}, {} of {} in use, {} replies wait",
        log.phase,
        size(log.used_bytes),
        size(log.ring_bytes),
        log.waiting_replies
    )
}

fn size(bytes: u64) -> String {
    let (unit, shift) = match bytes {
        0..0x4000_0000 => ("MiB", 20),
        0x4000_0000..0x100_0000_0000 => ("GiB", 30),
        _ => ("TiB", 40),
    };
    format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64)
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_in_units_that_fit() {
        assert_eq!(size(1 << 20), "1.0 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(1 << 40), "1.0 TiB");
        assert_eq!(ago(59), "59 s");
        assert_eq!(ago(3700), "1 h 1 min");
        assert_eq!(ago(90_000), "1 d 1 h");
    }
}
