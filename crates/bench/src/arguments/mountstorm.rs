//! `bench mountstorm`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::common::{OutputArguments, ServerArguments, seconds};
use crate::mountstorm::{Beside, EveryShare, Mountstorm, Patience};

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The share; with --every-share, that of the load beside.
    #[arg(value_name = "PATH", required_unless_present = "every_share")]
    path: Option<String>,
    /// Mount as automounters do that mount everything: ask for the list of shares by EXPORT, then
    /// call MNT for the first N of it, or all.
    #[arg(long, value_name = "N|all", value_parser = every_share)]
    every_share: Option<EveryShare>,
    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    clients: usize,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Ask rpcbind first, at this port of the server, and mount where it says.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "111")]
    rpcbind: Option<u16>,
    /// Over how long the clients' starts are spread.
    #[arg(long, value_name = "S", default_value = "0", value_parser = seconds)]
    spread: Duration,
    /// How long a client waits for a connection or a reply.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    timeout: Duration,
    /// How long a client tries at all.
    #[arg(long, value_name = "S", default_value = "120", value_parser = seconds)]
    retry: Duration,
    /// Meanwhile, so many other clients call GETATTR and ACCESS as fast as they can.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "path")]
    beside: usize,
    /// Calls in flight of each of those.
    #[arg(long, value_name = "N", default_value_t = 8)]
    beside_depth: usize,
    /// How long those call before the storm.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    beside_warm_up: Duration,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    /// What is meant.
    pub(super) fn load(&self) -> Mountstorm {
        let (clients, depth) = (self.beside, self.beside_depth);
        Mountstorm {
            target: self.server.target(),
            path: self.path.clone().unwrap_or_default(),
            every_share: self.every_share,
            clients: self.clients,
            threads: self.threads,
            rpcbind: self.rpcbind.map(|port| SocketAddr::new(self.server.server.ip(), port)),
            spread: self.spread,
            patience: Patience { call: self.timeout, whole: self.retry },
            beside: (clients > 0).then_some(Beside {
                clients,
                depth,
                warm_up: self.beside_warm_up,
            }),
            server_pid: self.server.pid,
        }
    }
}

/// Of every share, how many.
fn every_share(text: &str) -> Result<EveryShare, String> {
    match text.parse() {
        _ if text == "all" => Ok(EveryShare(usize::MAX)),
        Ok(count) if count > 0 => Ok(EveryShare(count)),
        _ => Err("write how many at most, or all".to_owned()),
    }
}
