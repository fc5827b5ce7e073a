//! `steadfast status`: one screen about a server, and an exit status for monitoring.
//!
//! [`Gathered`](gather::Gathered) is what could be found out in time: a disk that hangs may hold up an answer, and then that
//! answer is missing. [`report`] judges it without I/O, [`text`] shows it. Nothing is changed by asking.

mod disks;
mod gather;
mod report;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use steadfast_control::plain;
use steadfast_control::statistics::unix_time;

use crate::share_commands::arguments::ServerChoice;
use report::{Report, Verdict};

pub(crate) use disks::print_usage;

#[derive(Debug, Default, Args)]
pub(crate) struct StatusArguments {
    /// For programs: one line of JSON (docs/status.md has its fields).
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

/// What the hidden command takes that asks one file system for its size.
#[derive(Debug, Args)]
pub(crate) struct DiskUsageArguments {
    /// A directory of the file system.
    pub(crate) directory: PathBuf,
}

/// The exit status of wrong usage: `2` would mean that the server does not serve.
pub(crate) const WRONG_USAGE: u8 = Verdict::Unknown.exit_status();

/// Prints how a server is; the exit status says it, too.
pub(crate) fn run(arguments: &StatusArguments) -> ExitCode {
    match told(arguments) {
        Ok(verdict) => ExitCode::from(verdict.exit_status()),
        Err(error) => {
            eprintln!("steadfast: {}", plain::lines(&format!("{error:#}")));
            ExitCode::from(Verdict::Unknown.exit_status())
        }
    }
}

fn told(arguments: &StatusArguments) -> Result<Verdict> {
    let report = match gather::gather(&arguments.server) {
        Ok(gathered) => Report::of(&gathered),
        // Programs get a document here, too, and the exit status that goes with it.
        Err(error) if arguments.json => Report::unknown(&format!("{error:#}"), &arguments.server),
        Err(error) => return Err(error),
    };
    let text = if arguments.json {
        plain::json(&report)? + "\n"
    } else {
        text::screen(&plain::document(&report)?, unix_time().as_millis() as u64)
    };
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        // Nobody may be reading.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot print")
        }
        _ => Ok(report.verdict),
    }
}
