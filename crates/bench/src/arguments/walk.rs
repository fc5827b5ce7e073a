//! `bench walk`.

use std::time::Duration;

use clap::Args;

use super::common::{OutputArguments, ShareArguments, VersionArguments, call_size, seconds};
use crate::walk::{Pattern, Walk};

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    share: ShareArguments,
    #[command(flatten)]
    version: VersionArguments,
    /// Numbers of virtual clients, one after the other.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,44,208,1000,4000")]
    clients: Vec<usize>,
    /// How many of them share a connection, as programs on one host do.
    #[arg(long, value_name = "N", default_value_t = 1)]
    per_connection: usize,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Inodes of the tree, which is made in the share, or found there from an earlier run.
    #[arg(long, value_name = "N", default_value_t = 119_000)]
    inodes: usize,
    /// Names of a directory that has files.
    #[arg(long, value_name = "N", default_value_t = 20)]
    names: usize,
    /// How clients walk: redundant (READDIR, LOOKUP and many ACCESS and GETATTR, as old clients
    /// do) or plus (READDIRPLUS).
    #[arg(long, value_name = "HOW", default_value = "redundant")]
    pattern: Pattern,
    /// Most bytes of a listing.
    #[arg(long, value_name = "SIZE", default_value = "8k", value_parser = call_size)]
    listing_size: u32,
    /// How long each number of clients is measured.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Not measured, before each number of clients.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    warm_up: Duration,
    /// How often a new client mounts the share meanwhile; 0 never.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    mount_every: Duration,
    /// Remove the tree at the end.
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    /// What is meant.
    pub(super) fn load(&self) -> Walk {
        Walk {
            target: self.share.server.target(),
            path: self.share.path.clone(),
            nfs: self.version.nfs,
            clients: self.clients.clone(),
            clients_of_connection: self.per_connection,
            threads: self.threads,
            inodes: self.inodes,
            names_of_directory: self.names,
            pattern: self.pattern,
            listing_bytes: self.listing_size,
            warm_up: self.warm_up,
            duration: self.seconds,
            mount_every: self.mount_every,
            removes: self.remove,
            server_pid: self.share.server.pid,
        }
    }
}
