//! What the screen shows, and what keys make of it: no terminal.

use std::net::IpAddr;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::capture::{By, Key, Row};
use crate::watch::session::Session;

/// Letters of an address that is typed.
const TYPED_MAX: usize = 45;

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Rate,
    Calls,
    Errors,
    Retransmissions,
    Latency,
    Bytes,
}

/// One row of the screen.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) key: Option<Key>,
    pub(super) label: String,
    pub(super) rate: f64,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) retransmissions: u64,
    pub(super) mean_ns: u64,
    pub(super) p99_ns: u64,
    /// Read and written, a second.
    pub(super) bytes_rate: f64,
}

/// What a key asks of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// Look at this client alone, or at all.
    Focus(Option<IpAddr>),
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct State {
    pub(super) by: By,
    pub(super) sort: Sort,
    pub(super) lines: Vec<Line>,
    pub(super) selected: usize,
    /// The first row that is shown.
    pub(super) top: usize,
    /// An address that is being typed.
    pub(super) typed: Option<String>,
    /// Why the last key did nothing.
    pub(super) complaint: Option<&'static str>,
    pub(super) has_colours: bool,
    focus: Option<IpAddr>,
}

impl State {
    pub(super) fn new(by: By, has_colours: bool) -> Self {
        Self {
            by,
            sort: Sort::Rate,
            lines: Vec::new(),
            selected: 0,
            top: 0,
            typed: None,
            complaint: None,
            has_colours,
            focus: None,
        }
    }

    /// Takes what the session has counted. The selection stays with its row.
    pub(super) fn update(&mut self, session: &Session) {
        self.focus = session.focus();
        let chosen = self.lines.get(self.selected).and_then(|line| line.key);
        let seconds = session.interval_seconds();
        let interval = session.interval().by(self.by);
        let line = |key: Option<Key>, label: String, total: &Row, now: Option<&Row>| {
            let a_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
            // The latency of this interval, or of the last calls that there were.
            let latency = now.map_or(&total.latency, |row| &row.latency);
            Line {
                key,
                label,
                rate: a_second(now.map_or(0, |row| row.calls)),
                calls: total.calls,
                errors: total.errors,
                retransmissions: total.retransmissions,
                mean_ns: latency.mean_ns(),
                p99_ns: latency.quantile_ns(0.99),
                bytes_rate: a_second(now.map_or(0, |row| row.read_bytes + row.written_bytes)),
            }
        };
        let table = session.total().by(self.by);
        self.lines.clear();
        let rows: std::collections::HashMap<_, _> = interval.rows().collect();
        self.lines.extend(table.rows().map(|(key, total)| {
            line(Some(*key), key.label(session.names()), total, rows.get(key).copied())
        }));
        if table.others().calls > 0 {
            self.lines.push(line(None, "others".to_owned(), table.others(), None));
        }
        self.order();
        let place = chosen.and_then(|key| self.lines.iter().position(|line| line.key == Some(key)));
        self.selected = place.unwrap_or(self.selected).min(self.lines.len().saturating_sub(1));
    }

    fn order(&mut self) {
        let sort = self.sort;
        let value = |line: &Line| match sort {
            Sort::Rate => line.rate,
            Sort::Calls => line.calls as f64,
            Sort::Errors => line.errors as f64,
            Sort::Retransmissions => line.retransmissions as f64,
            Sort::Latency => line.mean_ns as f64,
            Sort::Bytes => line.bytes_rate,
        };
        self.lines.sort_by(|a, b| {
            value(b)
                .total_cmp(&value(a))
                .then_with(|| b.calls.cmp(&a.calls))
                .then_with(|| a.label.cmp(&b.label))
        });
    }

    fn choose(&mut self, by: By) {
        self.by = by;
        self.selected = 0;
        self.top = 0;
        self.lines.clear();
    }

    /// A key was pressed.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Action {
        self.complaint = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::Nothing };
        }
        if let Some(typed) = self.typed.take() {
            return self.handle_typing(typed, key.code);
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('s') => self.sort = Sort::Rate,
            KeyCode::Char('c') => self.sort = Sort::Calls,
            KeyCode::Char('e') => self.sort = Sort::Errors,
            KeyCode::Char('r') => self.sort = Sort::Retransmissions,
            KeyCode::Char('l') => self.sort = Sort::Latency,
            KeyCode::Char('b') => self.sort = Sort::Bytes,
            KeyCode::Char('f') => self.typed = Some(String::new()),
            KeyCode::Char(digit @ '1'..='5') => {
                let index = digit.to_digit(10).map_or(0, |digit| digit as usize - 1);
                if let Some(by) = By::ALL.get(index) {
                    self.choose(*by);
                }
            }
            KeyCode::Tab => {
                let at = By::ALL.iter().position(|by| *by == self.by).unwrap_or(0);
                if let Some(by) = By::ALL.get((at + 1) % By::ALL.len()) {
                    self.choose(*by);
                }
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.select(self.selected + 1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => self.select(self.selected + 10),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Enter => {
                let chosen = self.lines.get(self.selected).and_then(|line| line.key);
                if let Some(Key::Client(client)) = chosen {
                    self.choose(By::Operation);
                    return Action::Focus(Some(client));
                }
                self.complaint = Some("Enter looks into a client: press 2 for clients");
            }
            KeyCode::Esc | KeyCode::Backspace if self.focus.is_some() => {
                self.choose(By::Client);
                return Action::Focus(None);
            }
            _ => {}
        }
        Action::Nothing
    }

    fn select(&mut self, wanted: usize) {
        self.selected = wanted.min(self.lines.len().saturating_sub(1));
    }

    fn handle_typing(&mut self, mut typed: String, code: KeyCode) -> Action {
        match code {
            KeyCode::Esc => return Action::Nothing,
            KeyCode::Enter if typed.is_empty() => return Action::Focus(None),
            KeyCode::Enter => {
                if let Ok(client) = typed.parse::<IpAddr>() {
                    self.choose(By::Operation);
                    return Action::Focus(Some(client));
                }
                self.complaint = Some("that is no address");
            }
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(letter) if typed.len() < TYPED_MAX && !letter.is_control() => {
                typed.push(letter);
            }
            _ => {}
        }
        self.typed = Some(typed);
        Action::Nothing
    }
}
