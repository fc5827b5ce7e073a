//! `steadfast top`: what a running Steadfast server is asked for now, by whom, and how long it takes.
//!
//! The server counts, sorts and selects ([`Client::top`]); here is only what is shown: `screen` in a terminal,
//! `text` as lines. [`run`] does what was typed ([`TopArguments`]).

mod arguments;
mod screen;
mod text;

use std::io::{self, IsTerminal};

use steadfast_control::top::{TopFilter, TopReport};
use steadfast_control::{AskError, Client, plain};
use steadfast_sys::process::Signals;

pub use self::arguments::TopArguments;
use crate::screen::print;

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The server does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// What the server told cannot be shown.
    #[error("what the server tells cannot be shown: {0}")]
    Text(#[from] serde_json::Error),
    /// The terminal, or signals.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Shows what is called until it is interrupted, or the intervals that were asked for are over.
///
/// # Errors
/// When the server cannot be asked, or the terminal cannot be used. In a terminal a server that does not answer is
/// asked again.
pub fn run(client: &Client, arguments: &TopArguments) -> Result<(), TopError> {
    let signals = Signals::block()?;
    let is_screen = io::stdout().is_terminal() && !arguments.json && !arguments.once;
    if is_screen {
        screen::run(client, arguments, &signals)
    } else {
        lines(client, arguments, &signals)
    }
}

/// What a server told, without anything that commands a terminal.
fn ask(client: &Client, filter: &TopFilter) -> Result<TopReport, TopError> {
    Ok(plain::document(&client.top(filter)?)?)
}

/// A table each interval.
fn lines(client: &Client, arguments: &TopArguments, signals: &Signals) -> Result<(), TopError> {
    let filter = arguments.filter(arguments.rows);
    let mut left = if arguments.once { Some(1) } else { arguments.count };
    while left != Some(0) {
        let report = ask(client, &filter)?;
        // The first question only makes the server count.
        if report.window_us > 0 {
            let text = if arguments.json {
                plain::json(&report)? + "\n"
            } else {
                text::table(&report, arguments.sort)
            };
            if !print(&text)? {
                break;
            }
            left = left.map(|left| left - 1);
        }
        if left != Some(0) && signals.wait(arguments.interval)?.is_some() {
            break;
        }
    }
    Ok(())
}
