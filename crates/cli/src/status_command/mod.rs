//! `steadfast status`: one screen about a server, and an exit status for monitoring.
//!
//! [`steadfast_observe::status`] asks and judges. Here is which server is asked, [`text`] shows the report, and
//! [`next`] makes the commands to type next those for this server.

mod next;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use steadfast_control::plain;
use steadfast_control::statistics::unix_time;
use steadfast_observe::status::{self, Asked, Report, Verdict};
use steadfast_observe::text::status as text;

use crate::output;
use crate::server_place::ServerChoice;

#[derive(Debug, Default, Args)]
pub(crate) struct StatusArguments {
    /// For programs: one line of JSON (/usr/share/doc/steadfast/status.md has its fields).
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

/// Prints how full a disk is: `status` runs this in a process of its own, which may hang.
pub(crate) fn print_usage(arguments: &DiskUsageArguments) -> Result<()> {
    println!("{}", status::usage(&arguments.directory)?);
    Ok(())
}

/// # Errors
/// When it is not known which server is meant, or there is no token to ask it with.
fn asked(choice: &ServerChoice) -> Result<Asked> {
    let place = choice.place()?;
    let is_named = choice.connect.is_some() || choice.state_directory.is_some();
    let is_guessed = !is_named && place.control_socket.is_none();
    Ok(Asked {
        client: choice.client_at(&place)?,
        is_here: choice.connect.is_none(),
        state_directory: place.state_directory,
        mistakes: place.mistakes,
        is_guessed: is_guessed && !rustix::process::geteuid().is_root(),
    })
}

fn told(arguments: &StatusArguments) -> Result<Verdict> {
    let mut report = match asked(&arguments.server) {
        Ok(asked) => Report::of(&status::gather(asked)),
        // Programs get a document here, too, and the exit status that goes with it.
        Err(error) if arguments.json => Report::unknown(&format!("{error:#}")),
        Err(error) => return Err(error),
    };
    for warning in &mut report.warnings {
        warning.next = next::for_server(&warning.next, &arguments.server);
    }
    let text = if arguments.json {
        plain::json(&report)? + "\n"
    } else {
        text::screen(&plain::document(&report)?, unix_time().as_millis() as u64)
    };
    output::print(&text)?;
    Ok(report.verdict)
}
