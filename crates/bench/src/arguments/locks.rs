//! `bench locks`.

use std::time::Duration;

use clap::Args;

use super::common::{OutputArguments, ShareArguments, seconds};
use crate::locks::{Locks, Wait};

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    share: ShareArguments,
    /// Clients that contend for one range.
    #[arg(long, value_name = "N", default_value_t = 2)]
    clients: usize,
    /// How who is denied waits: callback (`CB_NOTIFY_LOCK`), or poll:MS.
    #[arg(long, value_name = "HOW", default_value = "callback")]
    wait: Wait,
    /// How long they contend.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    seconds: Duration,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    /// What is meant.
    pub(super) fn load(&self) -> Locks {
        Locks {
            target: self.share.server.target(),
            path: self.share.path.clone(),
            clients: self.clients,
            wait: self.wait,
            duration: self.seconds,
            server_pid: self.share.server.pid,
        }
    }
}
