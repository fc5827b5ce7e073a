//! Tables for people: aligned, within the terminal's width, in colours on a terminal only.

use std::io::IsTerminal;

/// Of a column that has to give way, in characters.
const WIDTH_MIN: usize = 6;
/// Between columns.
const GAP: &str = "  ";

/// How a text looks on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// As the terminal writes.
    #[default]
    Plain,
    /// Heads, and what is so now.
    Bold,
    /// Good, or more.
    Green,
    /// To be looked at.
    Yellow,
    /// Wrong, or less.
    Red,
    /// Of no use now.
    Dim,
}

impl Color {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
            Self::Dim => "\x1b[2m",
        }
    }
}

/// What standard output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// In characters; `None`: as wide as it takes.
    pub width: Option<usize>,
    /// Whether it is a terminal whose user wants colours.
    pub has_colors: bool,
}

impl Screen {
    /// Standard output as it is.
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        let width = size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        // https://no-color.org
        let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width, has_colors }
    }

    /// A text in a colour.
    pub fn paint(self, color: Color, text: &str) -> String {
        if !self.has_colors || color == Color::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("{}{text}\x1b[0m", color.code())
    }
}

/// A field.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    color: Color,
}

impl Cell {
    /// A text in a colour; characters that would command a terminal are shown as such.
    pub fn colored(text: impl AsRef<str>, color: Color) -> Self {
        // What others wrote does not command the terminal.
        let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        Self { text: text.as_ref().chars().map(plain).collect(), color }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::colored(text, Color::Plain)
    }
}

/// Lines of fields under a head.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty one.
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a line, of as many fields as the head has.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// Whether it has no line but its head.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its text. Columns without anything in them are left out; the widest give way where the
    /// terminal is too narrow, and show by `…` that they do.
    pub fn text(&self, screen: Screen) -> String {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widest = cells.map(|cell| length(&cell.text)).max().unwrap_or(0);
                let head = self.head.get(column).map_or(0, |head| length(head));
                if widest == 0 { 0 } else { widest.max(head) }
            })
            .collect();
        let widths = narrowed(widths, screen.width);
        let head: Vec<Cell> =
            self.head.iter().map(|head| Cell::colored(head, Color::Bold)).collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let shown = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
            let last = widths.iter().filter(|width| **width > 0).count().saturating_sub(1);
            for (place, (cell, width)) in shown.enumerate() {
                let cut = cut(&cell.text, *width);
                if place > 0 {
                    text += GAP;
                }
                text += &screen.paint(cell.color, &cut);
                if place < last {
                    text.extend(std::iter::repeat_n(' ', width.saturating_sub(length(&cut))));
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A text of at most so many characters.
fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Widths that fit a line.
fn narrowed(mut widths: Vec<usize>, most: Option<usize>) -> Vec<usize> {
    let Some(most) = most else { return widths };
    let columns = widths.iter().filter(|width| **width > 0).count();
    let most = most.saturating_sub(GAP.len() * columns.saturating_sub(1));
    let mut total: usize = widths.iter().sum();
    while total > most {
        let Some(widest) = widths.iter_mut().filter(|width| **width > WIDTH_MIN).max() else {
            break;
        };
        *widest -= 1;
        total -= 1;
    }
    widths
}

/// A list that says at its end how many it leaves out, of at most so many characters.
pub fn list(words: &[String], width: usize) -> String {
    let whole = words.join(",");
    if length(&whole) <= width {
        return whole;
    }
    let mut shown = String::new();
    for (index, word) in words.iter().enumerate() {
        let more = format!(" +{}", words.len() - index);
        if index > 0 && length(&shown) + length(word) + 1 + length(&more) > width {
            return shown + &more;
        }
        if index > 0 {
            shown.push(',');
        }
        shown += word;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["PATH", "STATE", "NOTE"]);
        table.row(["/a".into(), Cell::colored("enabled", Color::Green), "".into()]);
        table.row(["/tank/home/ann\x1b[2J".into(), "faulty".into(), "".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        assert_eq!(
            table().text(Screen::default()),
            "PATH                STATE\n\
             /a                  enabled\n\
             /tank/home/ann\u{fffd}[2J  faulty\n"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_less_and_sees_it() {
        let screen = Screen { width: Some(20), has_colors: false };
        let text = table().text(screen);
        assert!(text.lines().all(|line| length(line) <= 20), "{text}");
        assert!(text.contains("/tank/home…  faulty"), "{text}");
        // However narrow it is, something is told.
        let text = table().text(Screen { width: Some(1), has_colors: false });
        assert!(text.contains("/tank…"), "{text}");
    }

    #[test]
    fn colours_cost_no_width() {
        let text = table().text(Screen { width: Some(80), has_colors: true });
        assert!(text.contains("/a                  \x1b[32menabled\x1b[0m\n"), "{text:?}");
    }

    #[test]
    fn long_lists_say_how_many_they_leave_out() {
        let words: Vec<String> = (0..10).map(|n| format!("host{n}")).collect();
        assert_eq!(list(&words, 20), "host0,host1,host2 +7");
        assert_eq!(list(&words, 3), "host0 +9");
        assert_eq!(list(&words[..2], 20), "host0,host1");
    }
}
