//! How the screen looks. Made for 80 columns and 24 rows; wider ones give longer labels.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line as TextLine;
use ratatui::widgets::Paragraph;

use super::state::{Line, Sort, State};
use crate::capture::By;
use crate::screen::{accent, ms, row_style, scrolled, tabs};
use crate::watch::session::Session;
use crate::watch::text::bytes;

/// Columns behind the label.
const NUMBERS_WIDTH: usize = 55;
/// Narrower labels than this say nothing.
const LABEL_WIDTH_MIN: usize = 12;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, session: &Session) {
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(2),
    ]);
    let [head, columns, rows, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(heading(state, session)), head);
    let width = usize::from(frame.area().width);
    let label_width = width.saturating_sub(NUMBERS_WIDTH).max(LABEL_WIDTH_MIN);
    let titles =
        TextLine::styled(column_titles(state, label_width), accent(state.has_colours, Color::Cyan));
    frame.render_widget(Paragraph::new(titles), columns);
    frame.render_widget(Paragraph::new(body(state, rows, label_width)), rows);
    frame.render_widget(Paragraph::new(footing(state, session)), foot);
}

fn heading(state: &State, session: &Session) -> Vec<TextLine<'static>> {
    let (interval, total) = (session.interval().total(), session.total().total());
    let seconds = session.interval_seconds();
    let rate = if seconds > 0.0 { interval.calls as f64 / seconds } else { 0.0 };
    let who = match session.focus() {
        Some(client) => format!("client {client} (Esc: all)"),
        None => "all clients".to_owned(),
    };
    let latency = &interval.latency;
    vec![
        TextLine::styled(
            format!("steadfast watch: {who}, {:.0} s", session.total_seconds()),
            accent(state.has_colours, Color::Green),
        ),
        TextLine::raw(format!(
            "{rate:.1} calls/s, {:.3} ms/call, p99 {:.3} ms; {} calls, {} errors, {} retr",
            latency.mean_ns() as f64 / 1e6,
            latency.quantile_ns(0.99) as f64 / 1e6,
            total.calls,
            total.errors,
            total.retransmissions
        )),
        tabs(By::ALL.into_iter().map(|by| (by.name(), by == state.by))),
    ]
}

fn column_titles(state: &State, label_width: usize) -> String {
    let mark = |sort: Sort, title: &str| {
        if state.sort == sort { format!("{title}*") } else { title.to_owned() }
    };
    format!(
        "{:label_width$} {:>9} {:>9} {:>7} {:>6} {:>6} {:>6} {:>5}",
        state.by.name(),
        mark(Sort::Rate, "calls/s"),
        mark(Sort::Calls, "calls"),
        mark(Sort::Errors, "errors"),
        mark(Sort::Retransmissions, "retr"),
        mark(Sort::Latency, "ms"),
        "p99",
        mark(Sort::Bytes, "B/s"),
    )
}

/// A rate of bytes in five columns.
fn short_bytes(rate: f64) -> String {
    let text = bytes(rate as u64);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = number.split_once('.').map_or(number, |(whole, _)| whole);
    format!("{number}{}", unit.get(..1).unwrap_or_default().replace('B', ""))
}

fn row(line: &Line, label_width: usize) -> String {
    let label: String = line.label.chars().take(label_width).collect();
    format!(
        "{label:label_width$} {:>9.1} {:>9} {:>7} {:>6} {:>6} {:>6} {:>5}",
        line.rate,
        line.calls,
        line.errors,
        line.retransmissions,
        ms(line.mean_ns),
        ms(line.p99_ns),
        short_bytes(line.bytes_rate),
    )
}

fn body(state: &mut State, area: Rect, label_width: usize) -> Vec<TextLine<'static>> {
    let height = usize::from(area.height).max(1);
    state.top = scrolled(state.top, state.selected, height);
    let lines = state.lines.iter().enumerate().skip(state.top).take(height);
    lines
        .map(|(index, line)| {
            let is_selected = index == state.selected;
            let style = row_style(state.has_colours, line.errors > 0, is_selected);
            TextLine::styled(row(line, label_width), style)
        })
        .collect()
}

fn footing(state: &State, session: &Session) -> Vec<TextLine<'static>> {
    let counts = session.dissector().counts();
    let dropped = session.kernel.map_or(0, |kernel| kernel.dropped);
    let mut seen = format!("{} packets, {dropped} dropped, {} gaps", counts.packets, counts.gaps);
    for (count, what) in [
        (counts.tls_connections, "connections by TLS"),
        (counts.encrypted_calls, "calls by krb5p"),
        (counts.unanswered, "without a reply"),
    ] {
        if count > 0 {
            let _ = write!(seen, ", {count} {what}");
        }
    }
    let is_lossy = dropped > 0 || counts.is_lossy();
    let style = if is_lossy { accent(state.has_colours, Color::Red) } else { Style::new() };
    let keys = match (&state.typed, state.complaint) {
        (Some(typed), None) => format!("address of a client: {typed}_  (Enter, Esc)"),
        (_, Some(complaint)) => complaint.to_owned(),
        (None, None) => {
            "q quit  Tab table  Enter client  f find client  sort: s c e r l b".to_owned()
        }
    };
    vec![TextLine::styled(seen, style), TextLine::raw(keys)]
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
