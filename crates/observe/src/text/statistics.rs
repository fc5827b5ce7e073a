//! A document for people: in the manner of Oleinick's Table 1 ("Getting the most performance out
//! of Sun servers", The Sun Observer, 1991), which says at a glance what operations cost the time.

use std::fmt::Write;

use steadfast_control::statistics::{Operation, Recorded, Stages, Statistics};

use super::log;

/// Numbers of the server in one line.
const NUMBERS_A_LINE: usize = 3;

/// Operations, their stages, the intent log's and the server's numbers.
#[must_use]
pub fn summary(document: &Statistics, is_interval: bool) -> String {
    let seconds = document.seconds();
    let mut text = if is_interval {
        format!("\n{seconds:.1} s\n\n")
    } else {
        let Statistics { process, program_version, .. } = document;
        format!(
            "steadfast {program_version}, process {process}, started {} ago\n\n",
            duration(seconds)
        )
    };
    operations(&mut text, document, seconds);
    compound_operations(&mut text, document);
    stages(&mut text, document);
    if let Some(figures) = &document.log {
        text.push('\n');
        text += &log::figures(figures, seconds);
    }
    server(&mut text, document);
    text
}

fn operations(text: &mut String, document: &Statistics, seconds: f64) {
    let all = &document.operations;
    let calls: u64 = all.iter().map(|operation| operation.calls).sum();
    let replies: u64 = all.iter().map(|operation| operation.latency.replies).sum();
    let total_ns: u64 = all.iter().map(|operation| operation.latency.total_ns).sum();
    let _ = writeln!(
        text,
        "{:20} {:>10} {:>6} {:>9} {:>7} {:>9} {:>9} {:>9} {:>8}",
        "operation", "calls", "calls%", "ms/call", "time%", "p50 ms", "p99 ms", "max ms", "failed"
    );
    for operation in all {
        let latency = &operation.latency;
        let _ = writeln!(
            text,
            "{:20} {:>10} {:>6.2} {:>9.3} {:>7.2} {:>9.3} {:>9.3} {:>9.3} {:>8}",
            name(operation),
            operation.calls,
            percent(operation.calls, calls),
            mean_ms(latency.total_ns, latency.replies),
            percent(latency.total_ns, total_ns),
            latency.p50_ns as f64 / 1e6,
            latency.p99_ns as f64 / 1e6,
            latency.max_ns as f64 / 1e6,
            operation.errors,
        );
    }
    let _ = writeln!(
        text,
        "{calls} calls, {:.1} calls/s, {:.3} ms/call",
        if seconds > 0.0 { calls as f64 / seconds } else { 0.0 },
        mean_ms(total_ns, replies)
    );
}

/// What COMPOUNDs were made of.
fn compound_operations(text: &mut String, document: &Statistics) {
    let all = &document.compound_operations;
    if all.is_empty() {
        return;
    }
    let count: u64 = all.iter().map(|operation| operation.calls).sum();
    let _ = writeln!(
        text,
        "\n{:20} {:>10} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "in compounds",
        "executed",
        "%",
        "µs each",
        "p50 µs",
        "p99 µs",
        "max µs",
        "sampled",
        "failed"
    );
    for operation in all {
        let execution = &operation.execution;
        let us = |ns: u64| ns as f64 / 1e3;
        let _ = writeln!(
            text,
            "{:20} {:>10} {:>6.2} {:>9.2} {:>9.2} {:>9.2} {:>9.1} {:>8} {:>8}",
            operation.name.to_ascii_lowercase(),
            operation.calls,
            percent(operation.calls, count),
            mean_ms(execution.total_ns, execution.replies) * 1e3,
            us(execution.p50_ns),
            us(execution.p99_ns),
            us(execution.max_ns),
            execution.replies,
            operation.errors,
        );
    }
}

fn stages(text: &mut String, document: &Statistics) {
    let _ = writeln!(
        text,
        "\n{:20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}",
        "µs a sampled call",
        "sampled",
        "receive",
        "queue",
        "decode",
        "access",
        "storage",
        "stable",
        "send"
    );
    for operation in document.operations.iter().filter(|operation| operation.sampled_calls > 0) {
        let _ = writeln!(
            text,
            "{:20} {:>8} {}",
            name(operation),
            operation.sampled_calls,
            stage_columns(&operation.stages, operation.sampled_calls)
        );
    }
}

/// The columns of the stages, in µs.
fn stage_columns(stages: &Stages, calls: u64) -> String {
    let us = |ns: u64| ns as f64 / 1e3 / calls.max(1) as f64;
    format!(
        "{:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>9.1} {:>8.2}",
        us(stages.receive_ns),
        us(stages.queue_ns),
        us(stages.decode_ns),
        us(stages.access_ns),
        us(stages.storage_ns),
        us(stages.stable_ns),
        us(stages.send_ns)
    )
}

fn server(text: &mut String, document: &Statistics) {
    let numbers: Vec<(&String, &u64)> = document.server.iter().collect();
    text.push('\n');
    for line in numbers.chunks(NUMBERS_A_LINE) {
        let columns: Vec<String> =
            line.iter().map(|(name, value)| format!("{name:17} {value:>14}")).collect();
        let _ = writeln!(text, "{}", columns.join("   "));
    }
}

/// The last calls of the flight recorder.
#[must_use]
pub fn recent(document: &Statistics, count: usize) -> String {
    let mut text = format!(
        "{:>10} {:22} {:>8} {:20} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}\n",
        "s ago",
        "client",
        "xid",
        "operation",
        "ms",
        "receive",
        "queue",
        "decode",
        "access",
        "storage",
        "stable",
        "send µs"
    );
    let surplus = document.recent.len().saturating_sub(count);
    let taken_us = document.taken_unix_ms.saturating_mul(1000);
    for call in document.recent.iter().skip(surplus) {
        let stages = if call.is_sampled {
            stage_columns(&call.stages, 1)
        } else {
            // Decoding, access and storage are known together only.
            let us = |ns: u64| ns as f64 / 1e3;
            format!(
                "{:>8.2} {:>8.2} {:>26.2} {:>9.1} {:>8.2}",
                us(call.stages.receive_ns),
                us(call.stages.queue_ns),
                us(call.execution_ns),
                us(call.stages.stable_ns),
                us(call.stages.send_ns)
            )
        };
        let _ = writeln!(
            text,
            "{:>10.3} {:22} {:08x} {:20} {:>9.3} {stages}{}{}{}",
            taken_us.saturating_sub(call.begun_unix_us) as f64 / 1e6,
            call.client,
            call.xid,
            short_name(&call.protocol, call.version, &call.name),
            call.latency_ns as f64 / 1e6,
            if call.transport == "udp" { " udp" } else { "" },
            if call.is_error { " failed" } else { "" },
            operations_of(call),
        );
    }
    text
}

/// What a COMPOUND was made of, as far as it was executed.
fn operations_of(call: &Recorded) -> String {
    let operations = call.operations.iter().map(|name| format!(" {}", name.to_ascii_lowercase()));
    operations.collect()
}

fn name(operation: &Operation) -> String {
    short_name(&operation.protocol, operation.version, &operation.name)
}

/// NFS, which most calls are, by its procedure alone.
fn short_name(protocol: &str, version: u32, name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match (protocol, version) {
        ("nfs", 3) => name,
        ("other", _) => "other".to_owned(),
        _ => format!("{protocol}{version} {name}"),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

fn mean_ms(total_ns: u64, count: u64) -> f64 {
    total_ns as f64 / count.max(1) as f64 / 1e6
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", whole % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use steadfast_control::statistics::{CompoundOperation, Latency};

    use super::*;

    /// Statistics of one operation, with so many replies of so many ns each.
    fn document(at_ms: u64, times: &[(u64, u64)]) -> Statistics {
        let bucket =
            |(ns, replies): &(u64, u64)| (ns / 1000 * 1000, ns / 1000 * 1000 + 999, *replies);
        let latency = Latency::of(
            times.iter().map(|(ns, replies)| ns * replies).sum(),
            times.iter().map(|(ns, _)| *ns).max().unwrap_or(0),
            times.iter().map(bucket).collect(),
        );
        let operation = Operation {
            protocol: "nfs".to_owned(),
            program: 100_003,
            version: 3,
            procedure: 7,
            name: "WRITE".to_owned(),
            calls: latency.replies,
            latency,
            ..Operation::default()
        };
        Statistics {
            program_version: "0".to_owned(),
            process: 1,
            started_unix_ms: 1000,
            taken_unix_ms: at_ms,
            server: [("calls".to_owned(), operation.calls)].into(),
            operations: vec![operation],
            ..Statistics::default()
        }
    }

    /// The words of the line that begins with this one.
    fn words<'t>(text: &'t str, first: &str) -> Vec<&'t str> {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words.first() == Some(&first)).expect("a line")
    }

    #[test]
    fn the_table_has_shares_of_calls_and_time() {
        let mut document = document(6000, &[(1_000_500, 75)]);
        let mut getattr = document.operations[0].clone();
        "GETATTR".clone_into(&mut getattr.name);
        getattr.calls = 25;
        getattr.latency.replies = 25;
        getattr.sampled_calls = 2;
        getattr.stages.storage_ns = 3000;
        document.operations.push(getattr);
        let text = summary(&document, false);
        assert!(text.starts_with("steadfast 0, process 1, started 5.0 s ago\n"), "{text}");
        let write = ["write", "75", "75.00", "1.000", "50.00", "1.000", "1.000", "1.000", "0"];
        assert_eq!(words(&text, "write"), write, "{text}");
        assert!(text.contains("100 calls, 20.0 calls/s, 1.501 ms/call\n"), "{text}");
        // One line has the stages of the one operation that was sampled.
        let rest = text.split_once("sampled call").expect("stages").1;
        let stages = ["getattr", "2", "0.00", "0.00", "0.00", "0.00", "1.50", "0.0", "0.00"];
        assert_eq!(words(rest, "getattr"), stages, "{text}");
        assert!(!rest.contains("write"), "{text}");
    }

    #[test]
    fn operations_of_compounds_have_lines_of_their_own() {
        let mut document = document(6000, &[(1_000_500, 75)]);
        assert!(!summary(&document, false).contains("in compounds"));
        let execution = Latency::of(20_000, 11_000, vec![(9000, 9999, 1), (10_000, 11_999, 1)]);
        document.compound_operations = vec![CompoundOperation {
            number: 9,
            name: "GETATTR".to_owned(),
            calls: 128,
            errors: 3,
            execution,
        }];
        let text = summary(&document, false);
        let line = words(&text, "getattr");
        assert_eq!((line[1], line[2], line[3]), ("128", "100.00", "10.00"), "{text}");
        assert_eq!((line[6], line[7], line[8]), ("11.0", "2", "3"), "{text}");
    }

    #[test]
    fn an_idle_interval_makes_no_numbers_that_are_none() {
        let document = document(6000, &[(1_000_500, 75)]);
        let text = summary(&document.since(&document), true);
        assert!(text.contains("0 calls, 0.0 calls/s, 0.000 ms/call"), "{text}");
    }

    #[test]
    fn recorded_calls_are_told_with_what_is_known_of_them() {
        let mut document = document(6000, &[]);
        let call = Recorded {
            xid: 0xab,
            protocol: "mount".to_owned(),
            program: 100_005,
            version: 3,
            procedure: 1,
            name: "MNT".to_owned(),
            is_error: true,
            operations: Vec::new(),
            client: "192.0.2.1:700".to_owned(),
            transport: "udp".to_owned(),
            begun_unix_us: 4_500_000,
            latency_ns: 70_000_000,
            execution_ns: 60_000_000,
            is_sampled: false,
            was_parked: false,
            stages: Stages { queue_ns: 1000, ..Stages::default() },
        };
        let sampled = Recorded {
            is_sampled: true,
            is_error: false,
            stages: Stages { storage_ns: 59_000_000, ..call.stages },
            operations: vec!["SEQUENCE".to_owned(), "GETATTR".to_owned()],
            ..call.clone()
        };
        document.recent = vec![sampled, call];
        let text = recent(&document, 1);
        assert_eq!(text.lines().count(), 2, "{text}");
        let line = text.lines().last().expect("a line");
        assert!(line.contains("1.500 192.0.2.1:700"), "{text}");
        assert!(line.contains("000000ab mount3 mnt"), "{text}");
        assert!(line.contains("60000.00") && line.ends_with("udp failed"), "{text}");
        let text = recent(&document, 100);
        let line = text.lines().nth(1).expect("a line");
        assert!(line.contains("59000.00") && line.ends_with(" udp sequence getattr"), "{text}");
    }

    #[test]
    fn times_are_told_as_people_do() {
        assert_eq!(duration(3.25), "3.2 s");
        assert_eq!(duration(61.0), "1 min 1 s");
        assert_eq!(duration(7300.0), "2 h 1 min");
        assert_eq!(duration(200_000.0), "2 d 7 h");
    }
}
