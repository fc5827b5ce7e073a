//! `steadfast top`: what a running server is asked for now. [`steadfast_observe::top`] shows it.

use anyhow::Result;
use clap::Args;
use steadfast_observe::top;

use crate::server_place::ServerChoice;

#[derive(Debug, Args)]
pub(crate) struct TopCommand {
    #[command(flatten)]
    server: ServerChoice,
    #[command(flatten)]
    shown: top::TopArguments,
}

/// Shows what was asked for.
///
/// # Errors
/// When no server runs, or it may not be asked.
pub(crate) fn run(arguments: &TopCommand) -> Result<()> {
    let client = arguments.server.client()?;
    Ok(top::run(&client, &arguments.shown)?)
}
