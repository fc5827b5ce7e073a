//! The tables in a terminal.

mod state;
mod view;

use std::time::Duration;

use steadfast_sys::process::Signals;

use self::state::{Action, State};
use super::{PATIENCE, Watch, WatchArguments, WatchError};
use crate::screen::{self, Input};

/// Shows tables until somebody wants to stop.
pub(super) fn run(
    watch: &mut Watch,
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<(), WatchError> {
    screen::run(|terminal| shown(terminal, watch, arguments, signals))
}

fn shown(
    terminal: &mut ratatui::DefaultTerminal,
    watch: &mut Watch,
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<(), WatchError> {
    let every = arguments.interval.unwrap_or(Duration::from_secs(1));
    let mut state = State::new(arguments.by.into(), screen::has_colours());
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
        while let Some(input) = screen::next_input(Duration::ZERO)? {
            is_stale = true;
            let Input::Key(key) = input else { continue };
            match state.handle_key(key) {
                Action::Nothing => {}
                Action::Quit => return Ok(()),
                Action::Focus(client) => watch.session.set_focus(client),
            }
        }
    }
}
