//! `steadfast statistics`: what a running server has done, and where the time of its calls went.
//!
//! The server makes a [`Document`] of what its threads count and gives it to whoever asks at its
//! control socket ([`steadfast_control`]); this is the other side, for people ([`table`]) and
//! for programs.

mod document;
mod table;

use std::io::{ErrorKind, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use steadfast_control::Patience;

pub(crate) use document::{Document, RECENT_MAX};

use crate::arguments::StatisticsArguments;
use crate::share_commands;

/// Time since 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Prints what was asked for.
///
/// # Errors
/// When no server runs, or it may not be asked.
pub(crate) fn run(arguments: &StatisticsArguments) -> Result<()> {
    let client = share_commands::client(&arguments.server)?;
    let take = || {
        let answer = client.ask("GET", "/v1/statistics", Patience::Short)?;
        Document::read(&answer)
    };
    let mut last = take()?;
    if !print(arguments, &last, false)? {
        return Ok(());
    }
    let Some(interval) = arguments.watch else { return Ok(()) };
    loop {
        std::thread::sleep(interval);
        let next = take()?;
        if !print(arguments, &next.since(&last), true)? {
            return Ok(());
        }
        last = next;
    }
}

/// Prints a document; false if nobody reads any more.
fn print(arguments: &StatisticsArguments, document: &Document, is_interval: bool) -> Result<bool> {
    let text = match (arguments.json, arguments.recent) {
        (true, count) => json(document, count.unwrap_or(0))?,
        (false, Some(count)) => table::recent(document, count),
        (false, None) => table::summary(document, is_interval),
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot print"),
    }
}

/// One line, with so many of the recorded calls.
fn json(document: &Document, recent: usize) -> Result<String> {
    let mut document = document.clone();
    document.recent.drain(..document.recent.len().saturating_sub(recent));
    Ok(serde_json::to_string(&document)? + "\n")
}
