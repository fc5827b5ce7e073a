//! Tables as plain lines, and as lines of JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::session::Session;
use crate::capture::{By, Key, Row, Tables};

/// Narrowest and widest column of labels.
const LABEL_WIDTH: (usize, usize) = (20, 60);

/// Which of a session's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Interval,
    Total,
}

impl Part {
    fn of(self, session: &Session) -> (&Tables, f64) {
        match self {
            Self::Interval => (session.interval(), session.interval_seconds()),
            Self::Total => (session.total(), session.total_seconds()),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// A number of bytes in five letters.
pub(super) fn bytes(count: u64) -> String {
    let mut scaled = count as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1000.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{count} B") } else { format!("{scaled:.1} {unit}") }
}

/// Rows with most calls first, those with as many in the order of their labels.
fn sorted<'t>(session: &Session, tables: &'t Tables, by: By) -> Vec<(String, &'t Key, &'t Row)> {
    let rows = tables.by(by).rows();
    let mut rows: Vec<_> = rows.map(|(key, row)| (key.label(session.names()), key, row)).collect();
    rows.sort_by(|(a_label, _, a), (b_label, _, b)| {
        b.calls.cmp(&a.calls).then_with(|| a_label.cmp(b_label))
    });
    rows
}

/// A table with its head and its sums.
pub(super) fn table(session: &Session, part: Part, by: By, rows_max: usize) -> String {
    let (tables, seconds) = part.of(session);
    let sum = tables.total();
    let mut text = String::new();
    let what = match part {
        Part::Interval => format!("{:.1} s", session.total_seconds()),
        Part::Total => format!("total of {seconds:.1} s"),
    };
    let _ = writeln!(
        text,
        "\n{what}: {} calls, {:.1} calls/s, {:.3} ms/call, {} errors, {} retransmissions, {} \
         without a reply",
        sum.calls,
        rate(sum.calls, seconds),
        ms(sum.latency.mean_ns()),
        sum.errors,
        sum.retransmissions,
        sum.unanswered,
    );
    if let Some(kernel) = session.kernel.filter(|kernel| kernel.dropped > 0) {
        let _ = writeln!(text, "{} packets were dropped so far: calls are missing", kernel.dropped);
    }
    let rows = sorted(session, tables, by);
    if rows.is_empty() {
        return text;
    }
    let shown = if rows_max == 0 { rows.len() } else { rows_max };
    let longest = rows.iter().take(shown).map(|(label, ..)| label.chars().count()).max();
    let width = longest.unwrap_or(0).clamp(LABEL_WIDTH.0, LABEL_WIDTH.1);
    let _ = writeln!(
        text,
        "{:width$} {:>9} {:>9} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}",
        by.name(),
        "calls",
        "calls/s",
        "errors",
        "retrans",
        "no reply",
        "ms/call",
        "p50 ms",
        "p99 ms",
        "max ms",
        "read",
        "written"
    );
    for (label, _, row) in rows.iter().take(shown) {
        line(&mut text, label, width, row, seconds);
    }
    if let Some(more) = rows.len().checked_sub(shown).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more rows");
    }
    let others = tables.by(by).others();
    if others.calls > 0 {
        line(&mut text, "others", width, others, seconds);
    }
    text
}

fn line(text: &mut String, label: &str, width: usize, row: &Row, seconds: f64) {
    let label: String = label.chars().take(width).collect();
    let latency = &row.latency;
    let _ = writeln!(
        text,
        "{label:width$} {:>9} {:>9.1} {:>7} {:>7} {:>8} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>10} {:>10}",
        row.calls,
        rate(row.calls, seconds),
        row.errors,
        row.retransmissions,
        row.unanswered,
        ms(latency.mean_ns()),
        ms(latency.quantile_ns(0.5)),
        ms(latency.quantile_ns(0.99)),
        ms(latency.max_ns()),
        bytes(row.read_bytes),
        bytes(row.written_bytes),
    );
}

/// What was seen, and what was not.
pub(super) fn notes(session: &Session) -> String {
    let counts = session.dissector().counts();
    let mut text = format!("\n{} packets, {}", counts.packets, bytes(counts.bytes));
    match session.kernel {
        Some(kernel) => {
            let _ = write!(text, "; {} dropped before they were seen", kernel.dropped);
        }
        None => text.push_str("; how many were dropped is not known"),
    }
    let _ = writeln!(
        text,
        "; {} gaps of {} bytes in TCP streams, {} incomplete datagrams",
        counts.gaps, counts.gap_bytes, counts.incomplete_datagrams
    );
    let is_lossy = counts.is_lossy() || session.kernel.is_some_and(|kernel| kernel.dropped > 0);
    let rows = [
        (u64::from(is_lossy), "Calls are missing: the capture has lost packets.".to_owned()),
        (
            counts.tls_connections,
            format!(
                "{} connections use TLS: their calls cannot be read from packets, only by the server \
                 (`steadfast statistics`).",
                counts.tls_connections
            ),
        ),
        (
            counts.encrypted_calls,
            format!(
                "{} calls are encrypted by Kerberos (krb5p): which procedure, whose connection and how \
                 long is all that can be read.",
                counts.encrypted_calls
            ),
        ),
        (
            counts.replies_without_call,
            format!(
                "{} replies have no call: it was sent before the capture, or lost.",
                counts.replies_without_call
            ),
        ),
        (counts.waiting, format!("{} calls have no reply yet.", counts.waiting)),
        (
            counts.partial_compounds,
            format!(
                "{} COMPOUNDs have operations that could not be read: they are unknown, or packets were cut.",
                counts.partial_compounds
            ),
        ),
        (
            counts.not_followed + counts.given_up + counts.forgotten_connections,
            "Some calls were given up to save memory.".to_owned(),
        ),
    ];
    for (count, note) in rows {
        if count > 0 {
            text.push_str(&note);
            text.push('\n');
        }
    }
    text
}

/// The same as one line of JSON.
pub(super) fn json(session: &Session, part: Part, by: By) -> String {
    let (tables, seconds) = part.of(session);
    let rows: Vec<Value> = sorted(session, tables, by)
        .into_iter()
        .map(|(label, key, row)| json_row(&label, Some(key), row))
        .collect();
    let others = tables.by(by).others();
    let document = json!({
        "kind": match part { Part::Interval => "interval", Part::Total => "total" },
        "seconds": seconds,
        "by": by.name(),
        "all": json_row("all", None, tables.total()),
        "rows": rows,
        "others": json_row("others", None, others),
        "capture": session.dissector().counts(),
        "kernel": session.kernel.map(|kernel| json!({
            "received": kernel.received,
            "dropped": kernel.dropped,
        })),
    });
    document.to_string() + "\n"
}

fn json_row(label: &str, key: Option<&Key>, row: &Row) -> Value {
    let mut value = json!({
        "label": label,
        "calls": row.calls,
        "errors": row.errors,
        "retransmissions": row.retransmissions,
        "unanswered": row.unanswered,
        "read_bytes": row.read_bytes,
        "written_bytes": row.written_bytes,
        "latency": {
            "replies": row.latency.count(),
            "mean_ns": row.latency.mean_ns(),
            "p50_ns": row.latency.quantile_ns(0.5),
            "p99_ns": row.latency.quantile_ns(0.99),
            "max_ns": row.latency.max_ns(),
        },
    });
    if let (Some(Key::Operation(key)), Some(fields)) = (key, value.as_object_mut()) {
        fields.insert("program".to_owned(), key.program.into());
        fields.insert("version".to_owned(), key.version.into());
        fields.insert("minor".to_owned(), key.minor.into());
        fields.insert("number".to_owned(), key.number.into());
        fields.insert("name".to_owned(), key.name().into());
        fields.insert("in_compound".to_owned(), key.is_part.into());
    }
    value
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use steadfast_sys::packet_ring::RingStatistics;
    use steadfast_wire::rpc::{OpaqueAuth, RPCSEC_GSS};

    use super::{Part, bytes, json, notes, table};
    use crate::capture::By;
    use crate::capture::testing::{
        CLIENT, SERVER, call_by, getattr, getattr_reply, ip, ip_bytes, tcp_bytes, udp_bytes, words,
    };
    use crate::watch::session::Session;

    fn session() -> Session {
        let mut session = Session::new([2049], 0);
        for (time_ns, xid) in [(0, 1), (2_000_000_000, 2), (2_500_000_000, 3)] {
            let call = ip_bytes(CLIENT, SERVER, 17, &udp_bytes((800, 2049), &getattr(xid)));
            session.handle_packet(&ip(time_ns, &call));
            let reply = udp_bytes((2049, 800), &getattr_reply(xid, 0));
            session.handle_packet(&ip(time_ns + 1_000_000, &ip_bytes(SERVER, CLIENT, 17, &reply)));
            if xid < 3 {
                session.end_interval(u64::from(xid) * 2_000_000_000);
            }
        }
        session
    }

    #[test]
    fn an_interval_and_the_total_have_their_own_rates() {
        let session = session();
        let interval = table(&session, Part::Interval, By::Operation, 20);
        // The third call belongs to an interval that is not over.
        assert!(interval.starts_with("\n4.0 s: 1 calls, 0.5 calls/s, 1.000 ms/call"), "{interval}");
        let total = table(&session, Part::Total, By::Operation, 20);
        assert!(total.starts_with("\ntotal of 4.0 s: 2 calls, 0.5 calls/s"), "{total}");
        let line = total.lines().last().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.get(..5), Some(&["nfs3", "getattr", "2", "0.5", "0"][..]), "{total}");
        let value: serde_json::Value =
            serde_json::from_str(&json(&session, Part::Total, By::Client)).expect("JSON");
        assert_eq!(
            (&value["rows"][0]["label"], &value["all"]["calls"]),
            (&"10.0.0.1".into(), &2.into())
        );
        assert_eq!(value["rows"][0]["latency"]["max_ns"], 1_000_000);
    }

    #[test]
    fn more_rows_than_wanted_are_counted() {
        let mut session = session();
        let client = [10, 9, 9, 9].into();
        let call = ip_bytes(client, SERVER, 17, &udp_bytes((800, 2049), &getattr(9)));
        session.handle_packet(&ip(4_000_000_000, &call));
        let reply = udp_bytes((2049, 800), &getattr_reply(9, 0));
        session.handle_packet(&ip(4_000_000_000, &ip_bytes(SERVER, client, 17, &reply)));
        session.end_interval(5_000_000_000);
        let text = table(&session, Part::Total, By::Client, 1);
        assert!(text.contains("10.0.0.1") && text.contains("and 1 more rows"), "{text}");
        assert!(table(&session, Part::Total, By::Client, 0).contains("10.9.9.9"));
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut session = session();
        assert!(notes(&session).contains("how many were dropped is not known"));
        session.kernel = Some(RingStatistics { received: 9, dropped: 4 });
        for index in 0..4_u32 {
            let data = [0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5];
            let bytes = tcp_bytes((800, 2049), 1 + index * 10, 0, 0, &data);
            session.handle_packet(&ip(1, &ip_bytes(CLIENT, SERVER, 6, &bytes)));
        }
        let notes = notes(&session);
        for part in ["4 dropped", "Calls are missing", "1 connections use TLS"] {
            assert!(notes.contains(part), "{notes}");
        }
        let text = table(&session, Part::Interval, By::Operation, 20);
        assert!(text.contains("4 packets were dropped so far"), "{text}");
    }

    #[test]
    fn what_kerberos_hides_is_told() {
        let mut session = session();
        let body = words(&[1, 0, 1, 3, 0]);
        let cred = OpaqueAuth { flavor: RPCSEC_GSS, body: &body };
        let call = call_by(9, (100_003, 4, 1), cred, &[7; 40]);
        let bytes = ip_bytes(CLIENT, SERVER, 17, &udp_bytes((800, 2049), &call));
        session.handle_packet(&ip(3_000_000_000, &bytes));
        let notes = notes(&session);
        assert!(notes.contains("1 calls are encrypted by Kerberos (krb5p)"), "{notes}");
    }

    #[test]
    fn bytes_are_short() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
