//! `steadfast doctor`: why NFS is slow on this machine.
//!
//! [`steadfast_observe::doctor`] looks and judges; here are the arguments, the printing and the exit status.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use steadfast_control::plain;
use steadfast_observe::Machine;
use steadfast_observe::doctor::{self, Sources};

use crate::output::{print, print_plain};
use crate::server_place::ServerChoice;

/// What failed before there was a report.
const NO_REPORT: u8 = 4;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Look for so many seconds.
    #[arg(long, value_name = "N", default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// For programs: one line of JSON.
    #[arg(long)]
    json: bool,
    /// List all findings that there are, with thresholds and sources, and look at nothing.
    #[arg(long)]
    list: bool,
    /// Do not ask the name servers of /etc/resolv.conf.
    #[arg(long)]
    no_names: bool,
    #[command(flatten)]
    server: ServerChoice,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=3600.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "write seconds, from 0.5 to 3600".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Looks and prints; the exit status is that of the worst finding.
pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    match report(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("steadfast: {}", plain::lines(&format!("{error:#}")));
            ExitCode::from(NO_REPORT)
        }
    }
}

fn report(arguments: &DoctorArguments) -> Result<u8> {
    if arguments.list {
        print(&doctor::catalogue())?;
        return Ok(0);
    }
    let choice = &arguments.server;
    let is_chosen =
        choice.config.is_some() || choice.state_directory.is_some() || choice.connect.is_some();
    let server = match choice.client() {
        Ok(client) => Some(client),
        // A machine without a server of ours has no configuration, and is looked at all the same.
        Err(error) if !is_chosen => {
            eprintln!(
                "steadfast: warning: no server is asked: {}",
                plain::lines(&format!("{error:#}"))
            );
            None
        }
        Err(error) => return Err(error),
    };
    let sources = Sources { machine: Machine::default(), server, asks_names: !arguments.no_names };
    let report = doctor::examine(&sources, arguments.seconds);
    let text = if arguments.json { plain::json(&report)? + "\n" } else { report.text() };
    print_plain(&text)?;
    Ok(report.exit_status())
}
