//! `steadfast slow`: the slowest calls of a running server, each in a sentence.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use steadfast_control::slow::SlowReport;
use steadfast_control::{Patience, plain};
use steadfast_observe::text;

use crate::arguments::SlowArguments;
use crate::output;

/// Prints what was asked for.
///
/// # Errors
/// When no server runs, or it may not be asked.
pub(crate) fn run(arguments: &SlowArguments) -> Result<()> {
    let client = arguments.server.client()?;
    let answer = client.ask("GET", &route(arguments), Patience::Short)?;
    let report: SlowReport =
        serde_json::from_slice(&answer).context("what the server tells is no list of calls")?;
    let text = if arguments.json {
        plain::json(&report)? + "\n"
    } else {
        text::slow::list(&plain::document(&report)?)
    };
    output::print(&text)
}

/// What is asked for. Nothing in it needs to be escaped: that was seen to when it was typed.
fn route(arguments: &SlowArguments) -> String {
    let mut route = format!("/v1/slow?count={}", arguments.count);
    if let Some(client) = arguments.client {
        let _ = write!(route, "&client={}", client.to_canonical());
    }
    if let Some(operation) = &arguments.operation {
        let _ = write!(route, "&operation={operation}");
    }
    if let Some(since) = arguments.since {
        let _ = write!(route, "&since_s={since}");
    }
    route
}
