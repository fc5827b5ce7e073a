//! The command line of `steadfast watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::capture::By;

/// Exit status: 0 watched, 1 packets cannot be captured or a file cannot be read, 2 wrong usage.
#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    /// The network interface; without it, or with `any`, all of them.
    #[arg(short, long, value_name = "IF", conflicts_with = "replay")]
    pub interface: Option<String>,
    /// A port of servers; may be repeated (default: 2049, 111 and 20048). Ports that rpcbind tells are
    /// watched as well.
    #[arg(short, long = "port", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: Vec<u16>,
    /// What the table has its rows by.
    #[arg(long, value_enum, default_value_t = Rows::Operation)]
    pub by: Rows,
    /// Seconds between two tables (default: 1; of a file that is replayed only the total is shown).
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// End after so many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Rows of a table; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// For programs: one line of JSON for each table.
    #[arg(long)]
    pub json: bool,
    /// Write the captured packets to a pcapng file, which this command, tcpdump and Wireshark read.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Read packets from a pcap or pcapng file instead of an interface; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

/// What a table has its rows by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// Procedures, and the operations inside COMPOUNDs.
    Operation,
    /// Addresses of clients.
    Client,
    /// Users, as clients claim them.
    User,
    /// File handles, with their names if a call told them.
    File,
    /// Servers and their shares, as handles tell them.
    Server,
}

impl From<Rows> for By {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Operation => Self::Operation,
            Rows::Client => Self::Client,
            Rows::User => Self::User,
            Rows::File => Self::File,
            Rows::Server => Self::Server,
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "write seconds, from 0.1 to 86400".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}
