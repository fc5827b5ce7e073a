//! The tables in a terminal.

mod state;
mod view;

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use steadfast_sys::process::Signals;

use self::state::{Action, State};
use super::{PATIENCE, Watch, WatchArguments, WatchError};

/// Shows tables until somebody wants to stop.
pub(super) fn run(
    watch: &mut Watch,
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<(), WatchError> {
    let mut terminal = ratatui::try_init()?;
    let outcome = shown(&mut terminal, watch, arguments, signals);
    ratatui::try_restore()?;
    outcome
}

fn shown(
    terminal: &mut ratatui::DefaultTerminal,
    watch: &mut Watch,
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<(), WatchError> {
    let every = arguments.interval.unwrap_or(Duration::from_secs(1));
    // By the convention of no-color.org.
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State::new(arguments.by.into(), has_colours);
    let mut left = arguments.count;
    let mut is_stale = true;
    loop {
        if is_stale {
            state.update(&watch.session);
            terminal.draw(|frame| view::draw(frame, &mut state, &watch.session))?;
            is_stale = false;
        }
        watch.step(PATIENCE, arguments)?;
        if watch.ends_interval(every)? {
            is_stale = true;
            left = left.map(|left| left - 1);
        }
        if left == Some(0) || signals.wait(Duration::ZERO)?.is_some() {
            return Ok(());
        }
        while event::poll(Duration::ZERO)? {
            is_stale = true;
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match state.handle_key(key) {
                Action::Nothing => {}
                Action::Quit => return Ok(()),
                Action::Focus(client) => watch.session.set_focus(client),
            }
        }
    }
}
