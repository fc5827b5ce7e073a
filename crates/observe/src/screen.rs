//! What the screens of `watch` and `top` have in common: the terminal, its keys, and how numbers look.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Terminals (`TERM`) without colours.
const MONOCHROME: [&str; 7] =
    ["dumb", "vt100", "vt102", "vt220", "xterm-mono", "linux-m", "screen-m"];

/// Shows something in the terminal, which is as it was before when this ends. It is, too, when any thread panics.
pub(crate) fn run<E: From<io::Error>>(
    show: impl FnOnce(&mut DefaultTerminal) -> Result<(), E>,
) -> Result<(), E> {
    let mut terminal = ratatui::try_init().inspect_err(|_| {
        // It may have come as far as the raw mode. Why that failed says more than why this does.
        let _ = ratatui::try_restore();
    })?;
    let outcome = show(&mut terminal);
    let restored = ratatui::try_restore();
    // Why nothing is shown any more says more, too.
    outcome?;
    Ok(restored?)
}

/// Whether colours may be used: not if `NO_COLOR` says so (no-color.org), nor where there are none.
pub(crate) fn has_colours() -> bool {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    may_be_coloured(
        std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty()),
        &variable("TERM"),
    )
}

fn may_be_coloured(is_unwanted: bool, terminal: &str) -> bool {
    !is_unwanted && !MONOCHROME.contains(&terminal)
}

/// What a terminal says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// Something else happened: it may have another size.
    Other,
}

/// The next input, if it comes in time.
pub(crate) fn next_input(patience: Duration) -> io::Result<Option<Input>> {
    if !event::poll(patience)? {
        return Ok(None);
    }
    Ok(Some(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
        _ => Input::Other,
    }))
}

/// The style of what is more important.
pub(crate) fn accent(has_colours: bool, colour: Color) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if has_colours { style.fg(colour) } else { style }
}

/// The names of tables, of which one is shown.
pub(crate) fn tabs(names: impl Iterator<Item = (&'static str, bool)>) -> Line<'static> {
    let mut tabs = vec![Span::raw("by ")];
    for (index, (name, is_shown)) in names.enumerate() {
        let style = Style::new();
        let style = if is_shown { style.add_modifier(Modifier::REVERSED) } else { style };
        tabs.push(Span::styled(format!("{} {name}", index + 1), style));
        tabs.push(Span::raw("  "));
    }
    Line::from(tabs)
}

/// The style of a row.
pub(crate) fn row_style(has_colours: bool, has_errors: bool, is_selected: bool) -> Style {
    let style = Style::new();
    let style = if has_colours && has_errors { style.fg(Color::Yellow) } else { style };
    if is_selected { style.add_modifier(Modifier::REVERSED) } else { style }
}

/// The first row that is shown, moved so that the selected one is seen.
pub(crate) fn scrolled(first: usize, selected: usize, height: usize) -> usize {
    let height = height.max(1);
    if selected < first {
        selected
    } else if selected >= first.saturating_add(height) {
        selected + 1 - height
    } else {
        first
    }
}

/// A time in ms in six columns.
pub(crate) fn ms(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 10.0 {
        format!("{ms:.3}")
    } else if ms < 1000.0 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.0}")
    }
}

/// Prints; false if nobody reads any more.
pub(crate) fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::{may_be_coloured, ms, scrolled};

    #[test]
    fn colours_are_used_where_there_are_some_and_nobody_minds() {
        assert!(may_be_coloured(false, "xterm-256color"));
        assert!(!may_be_coloured(true, "xterm-256color"));
        assert!(!may_be_coloured(false, "vt100"));
    }

    #[test]
    fn the_selected_row_is_seen() {
        assert_eq!(scrolled(0, 5, 10), 0);
        assert_eq!(scrolled(0, 10, 10), 1);
        assert_eq!(scrolled(7, 3, 10), 3);
        assert_eq!(scrolled(7, 7, 0), 7);
    }

    #[test]
    fn times_have_six_columns() {
        assert_eq!(
            [0, 9_999_000, 12_340_000, 3_000_400_000].map(ms),
            ["0.000", "9.999", "12.3", "3000"]
        );
    }
}
