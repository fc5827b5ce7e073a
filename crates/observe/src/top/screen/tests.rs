//! Unit ring: the screen in a terminal of memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use steadfast_control::top::{TopBy, TopFilter, TopLine, TopReport, TopSort};

use super::super::state::{Action, State};
use super::draw;
use crate::top::text::tests::report;

fn state(by: TopBy, has_colours: bool) -> State {
    State::new(&TopFilter { by, ..TopFilter::default() }, has_colours)
}

fn shown(state: &mut State, size: (u16, u16)) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(size.0));
    let has_colours = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
    let rows = rows.map(|row| row.iter().map(Cell::symbol).collect::<String>());
    (rows.map(|row| row.trim_end().to_owned()).collect(), has_colours)
}

/// An answer to what is asked just now.
fn take(state: &mut State, report: TopReport) {
    let asked = state.question();
    state.take(&asked, report);
}

fn press(state: &mut State, code: KeyCode) -> Action {
    state.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_all(state: &mut State, text: &str) {
    for letter in text.chars() {
        press(state, KeyCode::Char(letter));
    }
}

/// The first so many of 100 clients, as a server tells them.
fn first_of_100(limit: usize) -> TopReport {
    let mut report = report(100);
    report.rows.truncate(limit);
    report
}

#[test]
fn everything_fits_80_columns_and_24_rows() {
    let mut state = state(TopBy::Client, false);
    let waiting = shown(&mut state, (80, 24)).0;
    assert_eq!(waiting[1], "the server begins to count ...");
    assert_eq!(state.question().limit, Some(18));
    take(&mut state, first_of_100(18));
    let (rows, has_colours) = shown(&mut state, (80, 24));
    let mut expected = vec![
        "steadfast top: all clients",
        "2525.0 calls/s, 2.000 ms/call, slowest 2.000 ms; 49.5 errors/s, 0.0 retrans/s",
        "by 1 operation  2 client  3 user  4 share  5 file",
        "client                         calls/s*      ms     max  active   errors    retr",
        "10.0.1.100                         50.0   2.000   2.000    0.10      0.5     0.0",
        "10.0.1.99                          49.5   2.000   2.000    0.10      0.5     0.0",
    ];
    assert_eq!(rows[..6], expected[..], "{rows:#?}");
    expected = vec![
        "10.0.1.83                          41.5   2.000   2.000    0.08      0.5     0.0",
        "100 rows in 2.0 s",
        "q quit  Tab table  Enter client  f find client  / filter  sort: c l m a e r",
    ];
    assert_eq!(rows[21..], expected[..], "{rows:#?}");
    assert!(!has_colours, "none in a terminal without");
    state.has_colours = true;
    assert!(shown(&mut state, (80, 24)).1, "colours are used where they may be");
}

#[test]
fn larger_terminals_have_longer_names_and_more_rows() {
    let mut state = state(TopBy::File, false);
    let name = "/export/home/a-directory-with-a-long-name/another-one/a-file-with-a-long-name";
    let line = TopLine { name: name.to_owned(), calls: 2, ..TopLine::default() };
    let rows = vec![line; 40];
    let report = TopReport { by: TopBy::File, row_count: 40, rows, ..report(0) };
    take(&mut state, report);
    let narrow = shown(&mut state, (80, 24)).0;
    assert!(narrow[4].starts_with("…-one/a-file-with-a-long-name "), "{narrow:#?}");
    let wide = shown(&mut state, (160, 50)).0;
    assert_eq!(
        wide[4],
        format!(
            "{name:109} {:>9} {:>7} {:>7} {:>7} {:>8} {:>7}",
            "1.0", "0.000", "0.000", "0.00", "0.0", "0.0"
        )
    );
    assert_eq!(wide.iter().filter(|row| row.starts_with(name)).count(), 40);
    assert_eq!(state.question().limit, Some(44));
    for size in [(1, 1), (20, 5), (300, 100)] {
        shown(&mut state, size);
    }
}

#[test]
fn rows_further_down_are_asked_for_when_they_are_looked_at() {
    let mut state = state(TopBy::Client, false);
    shown(&mut state, (80, 24));
    take(&mut state, first_of_100(18));
    for _ in 0..17 {
        assert_eq!(press(&mut state, KeyCode::Down), Action::Nothing);
    }
    assert_eq!(press(&mut state, KeyCode::Down), Action::Ask);
    assert_eq!(state.question().limit, Some(19));
    assert_eq!(press(&mut state, KeyCode::End), Action::Ask);
    assert_eq!(state.question().limit, Some(100));
    take(&mut state, first_of_100(100));
    let rows = shown(&mut state, (80, 24)).0;
    assert!(rows[21].starts_with("10.0.1.1 "), "{rows:#?}");
    assert_eq!(press(&mut state, KeyCode::PageUp), Action::Nothing);
    assert_eq!(state.selected, 81);
    // Most of them have no calls any more.
    take(&mut state, report(5));
    assert_eq!((state.selected, state.first), (4, 0));
    let rows = shown(&mut state, (80, 24)).0;
    assert!(rows[4].starts_with("10.0.1.5 ") && rows[8].starts_with("10.0.1.1 "), "{rows:#?}");
}

#[test]
fn keys_sort_and_change_the_table() {
    let mut state = state(TopBy::Client, false);
    take(&mut state, report(3));
    for (key, sort) in [
        ('l', TopSort::Latency),
        ('m', TopSort::Slowest),
        ('a', TopSort::Time),
        ('e', TopSort::Errors),
        ('r', TopSort::Retransmissions),
        ('c', TopSort::Calls),
    ] {
        assert_eq!(press(&mut state, KeyCode::Char(key)), Action::Ask);
        assert_eq!(state.question().sort, sort);
        assert!(state.report.is_some(), "what is there is shown until the answer comes");
    }
    // An answer to another sort than is wanted now is not shown, and the mark is at what the rows are sorted by.
    let marked = |state: &mut State| {
        let title = shown(state, (80, 24)).0[3].clone();
        title.split_whitespace().find(|title| title.ends_with('*')).map(str::to_owned)
    };
    let by_calls = state.question();
    press(&mut state, KeyCode::Char('e'));
    state.take(&by_calls, report(2));
    assert_eq!(state.report.as_ref().map(|report| report.row_count), Some(3));
    assert_eq!(marked(&mut state).as_deref(), Some("calls/s*"));
    take(&mut state, report(1));
    assert_eq!(marked(&mut state).as_deref(), Some("errors*"));
    // Nor is one to another filter.
    let unfiltered = state.question();
    state.filter = "10".to_owned();
    state.take(&unfiltered, report(3));
    assert_eq!(state.report.as_ref().map(|report| report.row_count), Some(1));
    state.filter.clear();
    assert_eq!(press(&mut state, KeyCode::Tab), Action::Ask);
    assert_eq!(state.question().by, TopBy::User);
    assert!(state.report.is_none(), "clients are no users");
    // The answer to the question before.
    state.take(&unfiltered, report(3));
    assert!(state.report.is_none());
    assert_eq!(press(&mut state, KeyCode::Char('1')), Action::Ask);
    assert_eq!(state.question().by, TopBy::Operation);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Action::Quit);
}

#[test]
fn a_client_can_be_looked_into_and_found_by_its_address() {
    let mut state = state(TopBy::Operation, false);
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Nothing);
    assert!(shown(&mut state, (80, 24)).0[23].starts_with("Enter looks into a client"));
    press(&mut state, KeyCode::Char('2'));
    take(&mut state, report(3));
    press(&mut state, KeyCode::Down);
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Ask);
    let question = state.question();
    assert_eq!((question.by, question.client), (TopBy::Operation, Some([10, 0, 1, 2].into())));
    assert_eq!(shown(&mut state, (80, 24)).0[0], "steadfast top: client 10.0.1.2 (Esc: all)");
    assert_eq!(press(&mut state, KeyCode::Esc), Action::Ask);
    assert_eq!((state.question().by, state.question().client), (TopBy::Client, None));

    press(&mut state, KeyCode::Char('f'));
    type_all(&mut state, "10.0.1.9x");
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Nothing);
    assert_eq!(shown(&mut state, (80, 24)).0[23], "that is no address");
    press(&mut state, KeyCode::Backspace);
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Ask);
    assert_eq!(state.question().client, Some([10, 0, 1, 9].into()));
}

#[test]
fn rows_can_be_filtered() {
    let mut state = state(TopBy::Share, false);
    press(&mut state, KeyCode::Char('/'));
    type_all(&mut state, "/srv/q\u{1b}");
    assert_eq!(shown(&mut state, (80, 24)).0[23], "only names with: /srv/q_  (Enter, Esc)");
    assert_eq!(press(&mut state, KeyCode::Enter), Action::Ask);
    assert_eq!(state.question().filter.as_deref(), Some("/srv/q"));
    let rows = shown(&mut state, (80, 24)).0;
    assert_eq!(rows[22], "0 rows in 0.0 s, with \"/srv/q\" in the name (Esc: all)");
    assert_eq!(press(&mut state, KeyCode::Esc), Action::Ask);
    assert_eq!(state.question().filter, None);
    assert_eq!(press(&mut state, KeyCode::Esc), Action::Nothing);
}

#[test]
fn what_is_missing_is_told() {
    let mut state = state(TopBy::Client, true);
    let mut report = report(2);
    report.others.calls = 7;
    take(&mut state, report);
    assert_eq!(shown(&mut state, (80, 24)).0[22], "2 rows in 2.0 s, 7 calls without a row");
    state.failed("the server\x1b[2J does not answer");
    let rows = shown(&mut state, (80, 24)).0;
    assert!(rows[23].starts_with("the server\\u{1b}[2J does not"), "{rows:#?}");
    assert!(rows[4].starts_with("10.0.1.2"), "the last rows stay");
}
