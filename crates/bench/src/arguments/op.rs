//! `bench op`.

use std::time::Duration;

use clap::Args;

use super::common::{
    OutputArguments, PaceArguments, ServerArguments, VersionArguments, seconds, wait_for_line,
};
use crate::drive::{Control, Transport};
use crate::error::BenchError;
use crate::op::{Load, OPERATIONS_HELP, Operation, Reports, run_when};

fn operations_help() -> String {
    format!("Kinds of calls, one after the other: {OPERATIONS_HELP}")
}

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The share (of no meaning to null).
    #[arg(value_name = "PATH")]
    path: String,
    #[arg(value_name = "OPERATION", required = true, help = operations_help())]
    operations: Vec<Operation>,
    /// Connections.
    #[arg(long, value_name = "N", default_value_t = 16)]
    connections: usize,
    /// Calls in flight of a connection (with --rate: at most).
    #[arg(long, value_name = "N", default_value_t = 8)]
    depth: usize,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    pace: PaceArguments,
    #[command(flatten)]
    version: VersionArguments,
    /// Call over UDP, a socket for each connection.
    #[arg(long)]
    udp: bool,
    /// Call from this host's one address, also where the server is on loopback.
    #[arg(long)]
    one_address: bool,
    /// How long each kind is measured.
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Not measured, before each kind.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,
    /// Names that remove and rmdir get to remove; they end when these are gone.
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    names: usize,
    /// Leave what was made in the share.
    #[arg(long)]
    keep: bool,
    /// Say "prepared" on standard error when all is, and begin when a line comes on standard
    /// input; there is no warm-up then.
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    fn load(&self, operation: Operation) -> Load {
        Load {
            connections: self.connections,
            depth: self.depth,
            threads: self.threads,
            pace: self.pace.pace(),
            nfs: self.version.nfs,
            transport: if self.udp { Transport::Udp } else { Transport::Tcp },
            has_own_addresses: !self.one_address,
            warm_up: if self.paused { Duration::ZERO } else { self.warm_up },
            duration: self.seconds,
            server_pid: self.server.pid,
            names: self.names,
            cleans_up: !self.keep,
            ..Load::new(self.server.target(), &self.path, operation)
        }
    }

    /// Measures each kind.
    pub(super) fn run(&self, control: &Control) -> Result<Reports, BenchError> {
        // Before the first is measured.
        self.operations.iter().try_for_each(|operation| operation.check(self.version.nfs))?;
        let mut all = Reports::default();
        for operation in &self.operations {
            if control.is_interrupted() {
                break;
            }
            let outcome = run_when(&self.load(*operation), control, || {
                if self.paused {
                    wait_for_line();
                }
            });
            match outcome {
                Ok(report) => all.reports.push(report),
                // What was measured before is worth telling.
                Err(BenchError::Interrupted) if !all.reports.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}
