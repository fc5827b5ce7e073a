//! `steadfast capture`: what a running server reads and writes. [`steadfast_observe::recording`] makes a file of it.

use anyhow::Result;
use clap::Args;
use steadfast_control::plain;
use steadfast_observe::recording;

use crate::server_place::ServerChoice;

#[derive(Debug, Args)]
pub(crate) struct CaptureCommand {
    #[command(flatten)]
    server: ServerChoice,
    #[command(flatten)]
    captured: recording::CaptureArguments,
}

/// Captures what was asked for, and tells how much that was.
///
/// # Errors
/// When no server runs, it may not be asked, or the file cannot be written.
pub(crate) fn run(arguments: &CaptureCommand) -> Result<()> {
    let client = arguments.server.client()?;
    let summary = recording::run(&client, &arguments.captured)?;
    // Standard output may be the file.
    eprintln!("{}", plain::line(&summary.to_string()));
    Ok(())
}
