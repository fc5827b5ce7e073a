//! What the screen shows, and what keys make of it: no terminal, no server.

use std::net::IpAddr;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use steadfast_control::plain;
use steadfast_control::top::{ROWS_MAX, TopBy, TopFilter, TopReport, TopSort};

/// Letters of what is typed.
const TYPED_MAX: usize = 200;
/// Rows of one page, if nobody has drawn yet.
const HEIGHT_USUAL: usize = 18;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Other rows are to be shown: ask the server now.
    Ask,
    Quit,
}

/// What is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Filter(String),
    Client(String),
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct State {
    pub(super) by: TopBy,
    pub(super) sort: TopSort,
    pub(super) client: Option<IpAddr>,
    pub(super) filter: String,
    /// What was told last, of what is to be shown now.
    pub(super) report: Option<TopReport>,
    /// What its rows are sorted by: after a key, another than is to come.
    pub(super) sorted_by: TopSort,
    pub(super) selected: usize,
    /// The first row that is shown.
    pub(super) first: usize,
    /// Rows that the terminal has room for.
    pub(super) height: usize,
    pub(super) typed: Option<Typed>,
    /// Why the last key did nothing, or the server does not answer.
    pub(super) complaint: Option<String>,
    pub(super) has_colours: bool,
}

impl State {
    pub(super) fn new(filter: &TopFilter, has_colours: bool) -> Self {
        Self {
            by: filter.by,
            sort: filter.sort,
            client: filter.client,
            filter: filter.filter.clone().unwrap_or_default(),
            report: None,
            sorted_by: filter.sort,
            selected: 0,
            first: 0,
            height: HEIGHT_USUAL,
            typed: None,
            complaint: None,
            has_colours,
        }
    }

    /// What the server is to tell: no more rows than are seen, and those before them.
    pub(super) fn question(&self) -> TopFilter {
        TopFilter {
            by: self.by,
            sort: self.sort,
            limit: Some((self.first + self.height).clamp(1, ROWS_MAX)),
            client: self.client,
            filter: (!self.filter.is_empty()).then(|| self.filter.clone()),
        }
    }

    /// Takes an answer to this question. One to an earlier question, by another table, sort, client or filter, is
    /// not shown: the next one is on its way.
    pub(super) fn take(&mut self, asked: &TopFilter, report: TopReport) {
        self.complaint = None;
        let (limit, now) = (asked.limit, self.question());
        if *asked == (TopFilter { limit, ..now }) {
            self.sorted_by = asked.sort;
            self.report = Some(report);
            self.select(self.selected);
            // If rows are gone, those before them come in sight.
            self.first = self.first.min(self.row_count().saturating_sub(self.height));
        }
    }

    /// The server did not answer.
    pub(super) fn failed(&mut self, why: &str) {
        self.complaint = Some(plain::line(why).into_owned());
    }

    fn row_count(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.row_count).min(ROWS_MAX)
    }

    fn select(&mut self, wanted: usize) {
        self.selected = wanted.min(self.row_count().saturating_sub(1));
    }

    /// Shows other rows from the beginning.
    fn turn_to(&mut self, by: TopBy, client: Option<IpAddr>) -> Action {
        if by != self.by || client != self.client {
            self.report = None;
        }
        (self.by, self.client) = (by, client);
        (self.selected, self.first) = (0, 0);
        Action::Ask
    }

    fn sort_by(&mut self, sort: TopSort) -> Action {
        self.sort = sort;
        Action::Ask
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
            KeyCode::Char('q') => Action::Quit,
            KeyCode::Char('c') => self.sort_by(TopSort::Calls),
            KeyCode::Char('l') => self.sort_by(TopSort::Latency),
            KeyCode::Char('m') => self.sort_by(TopSort::Slowest),
            KeyCode::Char('a') => self.sort_by(TopSort::Time),
            KeyCode::Char('e') => self.sort_by(TopSort::Errors),
            KeyCode::Char('r') => self.sort_by(TopSort::Retransmissions),
            KeyCode::Char('/') => self.begin_typing(Typed::Filter(self.filter.clone())),
            KeyCode::Char('f') => self.begin_typing(Typed::Client(String::new())),
            KeyCode::Char(digit @ '1'..='5') => {
                let index = digit.to_digit(10).map_or(0, |digit| digit as usize - 1);
                let by = TopBy::ALL.get(index).copied().unwrap_or_default();
                self.turn_to(by, self.client)
            }
            KeyCode::Tab => {
                let at = TopBy::ALL.iter().position(|by| *by == self.by).unwrap_or(0);
                let by = TopBy::ALL.get((at + 1) % TopBy::ALL.len()).copied().unwrap_or_default();
                self.turn_to(by, self.client)
            }
            KeyCode::Enter => self.look_into(),
            KeyCode::Esc | KeyCode::Backspace => self.step_back(),
            code => self.move_to(code),
        }
    }

    fn begin_typing(&mut self, typed: Typed) -> Action {
        self.typed = Some(typed);
        Action::Nothing
    }

    fn move_to(&mut self, code: KeyCode) -> Action {
        let page = self.height.max(1);
        match code {
            KeyCode::Up => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(page)),
            KeyCode::PageDown => self.select(self.selected + page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            _ => return Action::Nothing,
        }
        self.first = crate::screen::scrolled(self.first, self.selected, self.height);
        // Rows that were not needed before.
        let told = self.report.as_ref().map_or(0, |report| report.rows.len());
        if self.first + self.height > told && told < self.row_count() {
            Action::Ask
        } else {
            Action::Nothing
        }
    }

    fn look_into(&mut self) -> Action {
        let chosen = self.report.as_ref().and_then(|report| report.rows.get(self.selected));
        if self.by == TopBy::Client
            && let Some(client) = chosen.and_then(|line| line.name.parse().ok())
        {
            self.filter.clear();
            return self.turn_to(TopBy::Operation, Some(client));
        }
        self.complaint = Some("Enter looks into a client: press 2 for clients".to_owned());
        Action::Nothing
    }

    /// Back to what was there before a filter, then to all clients.
    fn step_back(&mut self) -> Action {
        if !self.filter.is_empty() {
            self.filter.clear();
            return self.turn_to(self.by, self.client);
        }
        if self.client.is_some() {
            return self.turn_to(TopBy::Client, None);
        }
        Action::Nothing
    }

    fn handle_typing(&mut self, mut typed: Typed, code: KeyCode) -> Action {
        let (Typed::Filter(text) | Typed::Client(text)) = &mut typed;
        match code {
            KeyCode::Esc => return Action::Nothing,
            KeyCode::Enter => return self.typed_all(typed),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(letter) if text.len() < TYPED_MAX && !plain::is_command(letter) => {
                text.push(letter);
            }
            _ => {}
        }
        self.typed = Some(typed);
        Action::Nothing
    }

    fn typed_all(&mut self, typed: Typed) -> Action {
        match &typed {
            Typed::Filter(text) => {
                self.filter.clone_from(text);
                self.turn_to(self.by, self.client)
            }
            Typed::Client(text) if text.is_empty() => self.turn_to(self.by, None),
            Typed::Client(text) => {
                if let Ok(client) = text.parse::<IpAddr>() {
                    return self.turn_to(TopBy::Operation, Some(client.to_canonical()));
                }
                self.complaint = Some("that is no address".to_owned());
                self.typed = Some(typed);
                Action::Nothing
            }
        }
    }
}
