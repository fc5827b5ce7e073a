//! `steadfast traces`: sampled calls of a running server for a collector of OpenTelemetry.
//! [`steadfast_observe::traces`] sends them.

use anyhow::Result;
use clap::Args;
use steadfast_observe::traces;

use crate::server_place::ServerChoice;

#[derive(Debug, Args)]
pub(crate) struct TracesCommand {
    #[command(flatten)]
    server: ServerChoice,
    #[command(flatten)]
    sent: traces::TracesArguments,
}

/// Sends what was asked for.
///
/// # Errors
/// When no server runs, or it may not be asked.
pub(crate) fn run(arguments: &TracesCommand) -> Result<()> {
    let client = arguments.server.client()?;
    Ok(traces::run(&client, &arguments.sent)?)
}
