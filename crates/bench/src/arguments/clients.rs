//! `bench clients`.

use std::time::Duration;

use clap::Args;

use super::common::{OutputArguments, ShareArguments, seconds};
use crate::clients::Clients;

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    share: ShareArguments,
    /// Clients, each with a session, an open file and a lock.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    clients: usize,
    /// Connections that carry them.
    #[arg(long, value_name = "N", default_value_t = 16)]
    connections: usize,
    /// Let them only mount: no open and no lock.
    #[arg(long)]
    mount_only: bool,
    /// Slots that each client asks for, as Linux does.
    #[arg(long, value_name = "N", default_value_t = 64)]
    slots: u32,
    /// Minor version: 1, or 2.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    minor: u32,
    /// How long all stay.
    #[arg(long, value_name = "S", default_value = "0", value_parser = seconds)]
    stay: Duration,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    /// What is meant.
    pub(super) fn load(&self) -> Clients {
        Clients {
            target: self.share.server.target(),
            path: self.share.path.clone(),
            clients: self.clients,
            connections: self.connections,
            locks: !self.mount_only,
            slots: self.slots,
            minor_version: self.minor,
            stay: self.stay,
            server_pid: self.share.server.pid,
        }
    }
}
