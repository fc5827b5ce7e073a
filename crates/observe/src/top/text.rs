//! The table as plain lines, and the columns that the screen has, too.

use std::fmt::Write;

use ratatui::text::Span;
use steadfast_control::top::{TopLine, TopReport, TopSort};

use crate::screen::ms;

/// Columns behind the name.
pub(super) const NUMBERS_WIDTH: usize = 51;
/// Narrowest and widest column of names.
const NAME_WIDTH: (usize, usize) = (20, 100);

/// All calls, in a line.
pub(super) fn summary(report: &TopReport) -> String {
    let total = &report.total;
    format!(
        "{:.1} calls/s, {:.3} ms/call, slowest {:.3} ms; {:.1} errors/s, {:.1} retrans/s",
        report.a_second(total.calls),
        total.mean_ns() as f64 / 1e6,
        total.latency_max_ns as f64 / 1e6,
        report.a_second(total.errors),
        report.a_second(total.retransmissions),
    )
}

/// Whose calls they are.
pub(super) fn who(report: &TopReport) -> String {
    report.client.map_or_else(|| "all clients".to_owned(), |client| format!("client {client}"))
}

/// The titles of the columns; the one that rows are sorted by has a mark.
pub(super) fn titles(report: &TopReport, sort: TopSort, width: usize) -> String {
    let mark = |of: TopSort, title: &str| {
        if of == sort { format!("{title}*") } else { title.to_owned() }
    };
    format!(
        "{:width$} {:>9} {:>7} {:>7} {:>7} {:>8} {:>7}",
        report.by.name(),
        mark(TopSort::Calls, "calls/s"),
        mark(TopSort::Latency, "ms"),
        mark(TopSort::Slowest, "max"),
        mark(TopSort::Time, "active"),
        mark(TopSort::Errors, "errors"),
        mark(TopSort::Retransmissions, "retr"),
    )
}

/// A row. Errors and retransmissions are a second.
pub(super) fn row(report: &TopReport, line: &TopLine, width: usize) -> String {
    // By Little's law: how many of its calls were under way at one moment, on average.
    let active = report.a_second(line.latency_ns) / 1e9;
    format!(
        "{} {:>9.1} {:>7} {:>7} {:>7.2} {:>8.1} {:>7.1}",
        fitted(&line.name, width),
        report.a_second(line.calls),
        ms(line.mean_ns()),
        ms(line.latency_max_ns),
        active,
        report.a_second(line.errors),
        report.a_second(line.retransmissions),
    )
}

/// A name in so many columns. Of a long one the end is kept: it has the file's name.
pub(super) fn fitted(name: &str, width: usize) -> String {
    let all = Span::raw(name).width();
    if all <= width {
        return format!("{name}{}", " ".repeat(width - all));
    }
    let (mut used, mut at) = (1, name.len());
    for (index, letter) in name.char_indices().rev() {
        let wide = Span::raw(letter.to_string()).width();
        if used + wide > width {
            break;
        }
        used += wide;
        at = index;
    }
    let end = name.get(at..).unwrap_or_default();
    format!("…{end}{}", " ".repeat(width.saturating_sub(used)))
}

/// A table with its head.
pub(super) fn table(report: &TopReport, sort: TopSort) -> String {
    let mut text =
        format!("\n{}, {:.1} s: {}\n", who(report), report.window_us as f64 / 1e6, summary(report));
    if report.rows.is_empty() {
        return text;
    }
    let longest = report.rows.iter().map(|line| Span::raw(&line.name).width()).max();
    let width = longest.unwrap_or(0).clamp(NAME_WIDTH.0, NAME_WIDTH.1);
    let _ = writeln!(text, "{}", titles(report, sort, width));
    for line in &report.rows {
        let _ = writeln!(text, "{}", row(report, line, width));
    }
    if let Some(more) = report.row_count.checked_sub(report.rows.len()).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more rows");
    }
    if report.others.calls > 0 {
        let _ = writeln!(text, "{}", row(report, &report.others, width));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    //! Unit ring.

    use steadfast_control::top::TopBy;

    use super::*;

    /// A window of two seconds with so many clients, of whom each has a call more than the one before.
    pub(in crate::top) fn report(clients: u64) -> TopReport {
        let line = |number: u64| TopLine {
            name: format!("10.0.1.{number}"),
            calls: number,
            errors: u64::from(number > 1),
            retransmissions: 0,
            latency_ns: number * 2_000_000,
            latency_max_ns: 2_000_000,
        };
        let rows: Vec<_> = (1..=clients).rev().map(line).collect();
        let calls = rows.iter().map(|line| line.calls).sum();
        TopReport {
            version: 1,
            window_us: 2_000_000,
            by: TopBy::Client,
            total: TopLine {
                name: "all".to_owned(),
                calls,
                errors: clients.saturating_sub(1),
                latency_ns: calls * 2_000_000,
                latency_max_ns: 2_000_000,
                ..TopLine::default()
            },
            row_count: rows.len(),
            rows,
            ..TopReport::default()
        }
    }

    #[test]
    fn a_table_has_rates_of_its_window() {
        let mut report = report(3);
        report.row_count = 7;
        let expected = "\nall clients, 2.0 s: 3.0 calls/s, 2.000 ms/call, slowest 2.000 ms; 1.0 errors/s, \
                        0.0 retrans/s\n\
                        client                calls/s*      ms     max  active   errors    retr\n\
                        10.0.1.3                   1.5   2.000   2.000    0.00      0.5     0.0\n\
                        10.0.1.2                   1.0   2.000   2.000    0.00      0.5     0.0\n\
                        10.0.1.1                   0.5   2.000   2.000    0.00      0.0     0.0\n\
                        and 4 more rows\n";
        assert_eq!(table(&report, TopSort::Calls), expected);
        report.rows.clear();
        report.client = Some([192, 0, 2, 1].into());
        assert!(table(&report, TopSort::Calls).starts_with("\nclient 192.0.2.1, 2.0 s: "));
    }

    #[test]
    fn calls_under_way_follow_from_their_latency() {
        let mut report = report(1);
        // Three of a second each, in two seconds.
        report.rows = vec![TopLine {
            name: "x".to_owned(),
            calls: 3,
            latency_ns: 3_000_000_000,
            latency_max_ns: 1_000_000_000,
            ..TopLine::default()
        }];
        let text = table(&report, TopSort::Time);
        assert!(text.contains("active*"), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.contains("   1.50 ")), "{text}");
    }

    #[test]
    fn of_a_long_name_the_end_is_kept() {
        assert_eq!(fitted("/a", 4), "/a  ");
        assert_eq!(fitted("/export/home/letter", 8), "…/letter");
        // Letters of two columns: one column is left.
        assert_eq!(fitted("/文字文字", 6), "…文字 ");
        assert_eq!(fitted("", 0), "");
    }
}
