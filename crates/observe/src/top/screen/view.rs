//! How the screen looks. Made for 80 columns and 24 rows; wider ones give longer names.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use steadfast_control::top::{TopBy, TopReport};

use super::state::{State, Typed};
use crate::screen::{accent, row_style, scrolled, tabs};
use crate::top::text::{NUMBERS_WIDTH, row, summary, titles, who};

/// Narrower names than this say nothing.
const NAME_WIDTH_MIN: usize = 12;

/// Draws everything, and notes how many rows there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(2),
    ]);
    let [head, columns, rows, foot] = areas.areas(frame.area());
    state.height = usize::from(rows.height).max(1);
    state.first = scrolled(state.first, state.selected, state.height);
    let waiting = TopReport { by: state.by, client: state.client, ..TopReport::default() };
    let report = state.report.as_ref().unwrap_or(&waiting);
    frame.render_widget(Paragraph::new(heading(state, report)), head);
    let width = usize::from(frame.area().width).saturating_sub(NUMBERS_WIDTH).max(NAME_WIDTH_MIN);
    let style = accent(state.has_colours, Color::Cyan);
    let titles = Line::styled(titles(report, state.sorted_by, width), style);
    frame.render_widget(Paragraph::new(titles), columns);
    frame.render_widget(Paragraph::new(body(state, report, width)), rows);
    frame.render_widget(Paragraph::new(footing(state, report)), foot);
}

fn heading(state: &State, report: &TopReport) -> Vec<Line<'static>> {
    let mut title = format!("steadfast top: {}", who(report));
    if state.client.is_some() {
        title.push_str(" (Esc: all)");
    }
    let counted = if report.window_us == 0 {
        "the server begins to count ...".to_owned()
    } else {
        summary(report)
    };
    vec![
        Line::styled(title, accent(state.has_colours, Color::Green)),
        Line::raw(counted),
        tabs(TopBy::ALL.iter().map(|by| (by.name(), *by == state.by))),
    ]
}

fn body(state: &State, report: &TopReport, width: usize) -> Vec<Line<'static>> {
    let rows = report.rows.iter().enumerate().skip(state.first).take(state.height);
    rows.map(|(index, line)| {
        let style = row_style(state.has_colours, line.errors > 0, index == state.selected);
        Line::styled(row(report, line, width), style)
    })
    .collect()
}

fn footing(state: &State, report: &TopReport) -> Vec<Line<'static>> {
    let mut counted =
        format!("{} rows in {:.1} s", report.row_count, report.window_us as f64 / 1e6);
    if !state.filter.is_empty() {
        counted = format!("{counted}, with {:?} in the name (Esc: all)", state.filter);
    }
    let has_others = report.others.calls > 0;
    if has_others {
        counted = format!("{counted}, {} calls without a row", report.others.calls);
    }
    let warning = accent(state.has_colours, Color::Red);
    let style = if has_others { warning } else { Style::new() };
    let keys = match (&state.typed, &state.complaint) {
        (_, Some(complaint)) => Line::styled(complaint.clone(), warning),
        (Some(Typed::Filter(text)), None) => {
            Line::raw(format!("only names with: {text}_  (Enter, Esc)"))
        }
        (Some(Typed::Client(text)), None) => {
            Line::raw(format!("address of a client: {text}_  (Enter, Esc)"))
        }
        (None, None) => {
            Line::raw("q quit  Tab table  Enter client  f find client  / filter  sort: c l m a e r")
        }
    };
    vec![Line::styled(counted, style), keys]
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
