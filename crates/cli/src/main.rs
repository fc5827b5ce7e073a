//! The `steadfast` program: arguments, exit codes.
//!
//! `serve` ([`serve`]) makes a configuration of what was typed ([`arguments`]) and what the
//! configuration file says ([`serve::wanted`]), starts a server ([`steadfast_server`]) and waits for
//! signals. `status` ([`status_command`]), `statistics` ([`statistics`]), `clients` ([`client_commands`]), `log` ([`log_commands`]), `share` and those that go with it
//! ([`share_commands`]) ask a running server ([`steadfast_control::Client`]). `journal`
//! ([`journal_commands`]) looks after the journal of a mount. `bench` is `steadfast-bench`'s, `watch`
//! [`steadfast_observe::watch`]'s. Exit status: 0 done, 1 failed, 2 wrong usage, 3 a replay that could not
//! send all. `doctor` ([`doctor_command`]) and `tune` ([`tune_command`]) look at any NFS server or client; the
//! exit status of `doctor` is its worst finding's. `slow` ([`slow_command`]) tells why calls to a running server were
//! slow, `top` ([`top_command`]) what it is asked for now; `traces` ([`traces_command`]) sends calls to a collector, and
//! `capture` ([`capture_command`]) keeps what the server reads and writes.
//!
//! This program has no logic of the server: what happens to shares, files and the log is decided in
//! the crates below.
#![forbid(unsafe_code)]
// Paths are shown quoted and escaped, so that a name with a newline makes no line of its own.
#![allow(clippy::unnecessary_debug_formatting)]

mod arguments;
mod capture_command;
mod check_config;
mod client_commands;
mod completion;
mod configuration_file;
mod doctor_command;
mod environment;
mod journal_commands;
mod log_commands;
mod logging;
mod manual;
mod mount_command;
mod notify;
mod output;
mod serve;
mod server_place;
mod share_commands;
mod slow_command;
mod statistics;
mod status_command;
mod top_command;
mod traces_command;
mod tune_command;

use std::io;
use std::process::ExitCode;

use steadfast_access::helper;
use steadfast_control::plain;
use steadfast_sys::process::Signals;

use crate::arguments::Command;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = |result: anyhow::Result<()>| match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("{error:#}")),
    };
    let mut words = std::env::args_os();
    let name = words.next().map(std::path::PathBuf::from);
    if name
        .as_ref()
        .and_then(|name| name.file_name())
        .is_some_and(|name| name == mount_command::HELPER_NAME)
    {
        return mount_command::run_helper(words);
    }
    let arguments = match environment::understand(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return wrong_usage(&error),
    };
    match arguments.command {
        Command::CheckConfig { file } => check_config::run(&file),
        // Takes signals by itself, before it starts threads.
        Command::Bench(arguments) => match arguments.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error.to_string()),
        },
        // Its exit status is that of mount(8).
        Command::Mount(arguments) => mount_command::run(&arguments),
        // Its exit status is that of the worst finding.
        Command::Doctor(arguments) => doctor_command::run(&arguments),
        Command::Tune(arguments) => outcome(tune_command::run(&arguments)),
        // Its exit status is for monitoring.
        Command::Status(arguments) => status_command::run(&arguments),
        Command::DiskUsage(arguments) => outcome(status_command::print_usage(&arguments)),
        Command::Statistics(arguments) => outcome(statistics::run(&arguments)),
        Command::Top(arguments) => outcome(top_command::run(&arguments)),
        Command::Slow(arguments) => outcome(slow_command::run(&arguments)),
        Command::Traces(arguments) => outcome(traces_command::run(&arguments)),
        Command::Clients(arguments) => outcome(client_commands::run(&arguments)),
        Command::Log(arguments) => outcome(log_commands::run(&arguments)),
        Command::Journal(arguments) => match journal_commands::run(&arguments) {
            Ok(status) => status,
            Err(error) => failed(&format!("{error:#}")),
        },
        Command::Share(arguments) => outcome(share_commands::share(&arguments)),
        Command::Group(arguments) => outcome(share_commands::group(&arguments)),
        Command::Apply(arguments) => outcome(share_commands::apply(&arguments)),
        Command::Plan(arguments) => outcome(share_commands::plan(&arguments)),
        Command::Rollback(arguments) => outcome(share_commands::rollback(&arguments)),
        Command::Import(arguments) => outcome(share_commands::import(&arguments)),
        Command::Export(arguments) => outcome(share_commands::export(&arguments)),
        Command::History(arguments) => outcome(share_commands::history(&arguments)),
        Command::Watch(arguments) => {
            outcome(steadfast_observe::watch::run(&arguments).map_err(Into::into))
        }
        Command::Capture(arguments) => outcome(capture_command::run(&arguments)),
        Command::Reload(arguments) => outcome(share_commands::reload(&arguments)),
        Command::Completion(arguments) => outcome(completion::run(&arguments)),
        Command::Man(arguments) => outcome(manual::write(&arguments)),
        Command::NamesHelper => outcome(help().map_err(Into::into)),
        Command::Serve(arguments) => {
            // Before any other thread, so that all of them leave signals to this one.
            let signals = match Signals::block() {
                Ok(signals) => signals,
                Err(error) => return failed(&format!("cannot block signals: {error}")),
            };
            outcome(serve::run(&arguments, &signals))
        }
    }
}

/// What the hidden command does that the server starts: answers its questions.
fn help() -> io::Result<()> {
    helper::serve(io::stdin().lock(), io::stdout().lock())
}

/// Tells what clap has to say: help, the version, or what is wrong.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    // Nobody may be reading.
    let _ = error.print();
    let is_status = std::env::args_os().nth(1).is_some_and(|word| word == "status");
    match u8::try_from(error.exit_code()) {
        Ok(0) => ExitCode::SUCCESS,
        // For monitoring, 2 would mean that the server does not serve.
        _ if is_status => ExitCode::from(status_command::WRONG_USAGE),
        Ok(status) => ExitCode::from(status),
        Err(_) => ExitCode::FAILURE,
    }
}

fn failed(what: &str) -> ExitCode {
    eprintln!("steadfast: {}", plain::lines(what));
    ExitCode::FAILURE
}
