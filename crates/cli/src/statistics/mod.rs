//! `steadfast statistics`: what a running server has done, and where the time of its calls went.
//!
//! The server makes [`Statistics`] of what its threads count and gives them to whoever asks at its
//! control socket ([`steadfast_control`]); this is the other side, for people ([`text`]) and
//! for programs. Metrics are made by the server, as for a scraper; [`textfile`] keeps them in a file.

mod textfile;

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use steadfast_control::Patience;
use steadfast_control::metrics::Format;
use steadfast_control::statistics::Statistics;
use steadfast_observe::text::statistics as text;

use crate::arguments::StatisticsArguments;

/// Prints what was asked for.
///
/// # Errors
/// When no server runs, or it may not be asked.
pub(crate) fn run(arguments: &StatisticsArguments) -> Result<()> {
    let client = arguments.server.client()?;
    let metrics = |format: Format| {
        client.ask("GET", &format!("/metrics?format={}", format.name()), Patience::Short)
    };
    if let Some(file) = &arguments.textfile {
        return textfile::keep(file, arguments.watch, || Ok(metrics(Format::Prometheus)?));
    }
    if arguments.prometheus || arguments.openmetrics {
        let is_open = arguments.openmetrics;
        let text = metrics(if is_open { Format::OpenMetrics } else { Format::Prometheus })?;
        return write(&text).map(drop);
    }
    let take = || -> Result<Statistics> {
        let answer = client.ask("GET", "/v1/statistics", Patience::Short)?;
        Ok(Statistics::read(&answer)?)
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
fn print(
    arguments: &StatisticsArguments,
    document: &Statistics,
    is_interval: bool,
) -> Result<bool> {
    let text = match (arguments.json, arguments.recent) {
        (true, count) => json(document, count.unwrap_or(0))?,
        (false, Some(count)) => text::recent(document, count),
        (false, None) => text::summary(document, is_interval),
    };
    write(text.as_bytes())
}

/// Prints a text; false if nobody reads any more.
fn write(text: &[u8]) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot print"),
    }
}

/// One line, with so many of the recorded calls.
fn json(document: &Statistics, recent: usize) -> Result<String> {
    let mut document = document.clone();
    document.recent.drain(..document.recent.len().saturating_sub(recent));
    Ok(serde_json::to_string(&document)? + "\n")
}
