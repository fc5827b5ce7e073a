//! The command line of `bench`, for the example program and for `steadfast bench`.
//!
//! [`BenchArguments`] is what is typed; [`BenchArguments::run`] does it, prints the report, and
//! lets Ctrl-C end a load early with what there is.

mod clients;
mod common;
mod locks;
mod mountstorm;
mod nhfsstone;
mod op;
mod stream;
mod walk;

use std::time::Duration;

use clap::{Args, Subcommand};
use steadfast_sys::process::Signals;

use crate::drive::Control;
use crate::error::BenchError;
use crate::null_server::NullServer;

/// How often it is looked whether somebody wants to stop.
const SIGNAL_EVERY: Duration = Duration::from_millis(200);

/// What is measured.
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    command: Command,
}

// There is one of them, and it lives as long as the program.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
enum Command {
    /// One kind of call: calls a second, latency, CPU time a call
    Op(op::Arguments),
    /// A mix of operations at given rates: response time by load, and by operation
    Nhfsstone(nhfsstone::Arguments),
    /// Large files read or written: bytes a second, CPU time a MiB
    Stream(stream::Arguments),
    /// Many clients walk a directory tree at once, and new ones mount meanwhile
    Walk(walk::Arguments),
    /// Many clients mount at the same moment, on an idle or a busy server
    Mountstorm(mountstorm::Arguments),
    /// Thousands of clients of NFSv4.1, each with a session, an open file and a lock: memory, and how fast they come
    Clients(clients::Arguments),
    /// Clients of NFSv4.1 contend for one range of a file: exclusion, and how fast the lock changes hands
    Locks(locks::Arguments),
    /// A server that answers every call with a canned reply: what sockets alone cost
    NullServer {
        /// Where it listens.
        address: std::net::SocketAddr,
    },
}

impl BenchArguments {
    /// Measures, and prints the report on standard output.
    ///
    /// Takes SIGINT, SIGTERM and SIGHUP, so it has to be called before other threads are started:
    /// the first ends the load and reports what there is, the second ends the program.
    ///
    /// # Errors
    /// When the server cannot be reached, fails a call, or breaks a promise.
    pub fn run(&self) -> Result<(), BenchError> {
        match &self.command {
            Command::Op(arguments) => watched(&arguments.output, |control| {
                let reports = arguments.run(control)?;
                arguments.output.print(&reports, || reports.table())
            }),
            Command::Nhfsstone(arguments) => watched(&arguments.output, |control| {
                let report = arguments.run(control)?;
                arguments.output.print(&report, || report.table())
            }),
            Command::Stream(arguments) => watched(&arguments.output, |control| {
                let report = crate::stream::run(&arguments.load(), control)?;
                arguments.output.print(&report, || report.table())
            }),
            Command::Walk(arguments) => watched(&arguments.output, |control| {
                let report = crate::walk::run(&arguments.load(), control)?;
                arguments.output.print(&report, || report.table())
            }),
            Command::Mountstorm(arguments) => watched(&arguments.output, |control| {
                let report = crate::mountstorm::run(&arguments.load(), control)?;
                arguments.output.print(&report, || report.table())?;
                report.require_success()
            }),
            Command::Clients(arguments) => watched(&arguments.output, |control| {
                let report = crate::clients::run(&arguments.load(), control)?;
                arguments.output.print(&report, || report.table())
            }),
            Command::Locks(arguments) => watched(&arguments.output, |control| {
                let report = crate::locks::run(&arguments.load(), control)?;
                arguments.output.print(&report, || report.table())
            }),
            Command::NullServer { address } => {
                let mut server = NullServer::bind(*address)?;
                println!("{}", server.address()?);
                Ok(server.run()?)
            }
        }
    }
}

/// Does it, with a thread that waits for signals.
fn watched(
    output: &common::OutputArguments,
    work: impl FnOnce(&Control) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let control = Control::with_progress(output.progress);
    let signals = Signals::block()?;
    let interrupting = control.clone();
    // Ends with the program.
    std::thread::spawn(move || {
        loop {
            match signals.wait(SIGNAL_EVERY) {
                Ok(Some(_)) if interrupting.is_interrupted() => {
                    steadfast_sys::process::exit_at_once(130);
                }
                Ok(Some(_)) => interrupting.interrupt(),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    });
    work(&control)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        bench: super::BenchArguments,
    }

    #[test]
    fn the_definition_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn mistakes_are_refused() {
        for words in [
            &["nhfsstone"][..],
            &["nhfsstone", "127.0.0.1"],
            &["nhfsstone", "127.0.0.1", "/", "--load", "fast"],
            &["nhfsstone", "127.0.0.1", "/", "--mix", "a", "--mix-file", "b"],
            &["nhfsstone", "127.0.0.1:x", "/"],
            &["nhfsstone", "127.0.0.1", "/", "--changes", "few"],
            &["nhfsstone", "127.0.0.1", "/", "--changes", "5", "--without-stable"],
            &["null-server", "here"],
            &["mountstorm", "127.0.0.1"],
            &["mountstorm", "127.0.0.1", "--every-share", "0"],
            &["mountstorm", "127.0.0.1", "--every-share", "9", "--beside", "1"],
            &["locks", "127.0.0.1"],
            &["locks", "127.0.0.1", "/", "--wait", "poll"],
            &["clients", "127.0.0.1", "/", "--minor", "0"],
            &["op", "127.0.0.1", "/"],
            &["op", "127.0.0.1", "/", "reed"],
            &["op", "127.0.0.1", "/", "read", "--rate", "0"],
            &["op", "127.0.0.1", "/", "read", "--nfs", "4"],
        ] {
            assert!(Program::try_parse_from(["bench"].iter().chain(words)).is_err(), "{words:?}");
        }
    }
}
