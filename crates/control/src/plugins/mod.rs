//! Plug-ins: other protocols that serve the same shares. NFS waits for none of them.
//!
//! A [`Plugin`] gets all its shares in one call a batch, whatever the number of shares that
//! changed. [`Plugins`] has a thread of its own for each: one that fails or hangs stops neither
//! the others nor a batch. What could not be done is told ([`Plugins::faults`]) and tried again,
//! after a while and with the next batch.

mod command;
mod executable;
mod exportfs;
mod mdns;
mod runner;
mod samba;

use std::sync::Arc;

use steadfast_shares::Share;

use crate::api::ShareStatus;

pub use command::{CommandError, Limits};
pub use executable::Executable;
pub use exportfs::{Exportfs, exports_text};
pub use mdns::Mdns;
pub use runner::{Plugins, Ticket};
pub use samba::{Samba, include_text};

/// A share as plug-ins get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginShare {
    /// What is told of it to people. Its words are not what decides: they add up, outweigh each
    /// other, and hide what they would inherit.
    pub status: ShareStatus,
    /// As NFS serves it: its rules alone say who may do what.
    pub share: Arc<Share>,
}

impl PluginShare {
    /// Whether it asks for the plug-in of this name.
    fn is_for(&self, plugin: &str) -> bool {
        self.status.protocols.iter().any(|protocol| protocol == plugin)
    }
}

/// What a plug-in is told: the state, and what led to it.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Number of the state.
    pub sequence: u64,
    /// All shares that are served by this plug-in's protocol, by path.
    pub shares: &'a [Arc<PluginShare>],
    /// Paths that changed, came or went since the last call that succeeded; `None`: everything may
    /// have.
    pub changed: Option<&'a [String]>,
}

/// What a plug-in could not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// In one line.
    pub why: String,
    /// The shares that it is about; none: all of them.
    pub paths: Vec<String>,
}

impl Fault {
    /// One that is about all shares.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), paths: Vec::new() }
    }
}

/// Serves shares by another protocol. It may take its time, and may be wrong.
pub trait Plugin: Send {
    /// The name by which shares ask for it (`protocols = ["smb"]`).
    fn name(&self) -> &str;

    /// Has exactly these shares served.
    ///
    /// # Errors
    /// What could not be done; it is called again.
    fn publish(&mut self, task: &Task<'_>) -> Result<(), Vec<Fault>>;

    /// Whether it has something to do when the server stops ([`Plugin::end`]).
    fn has_an_end(&self) -> bool {
        false
    }

    /// The server stops. It waits for this, but not for long.
    fn end(&mut self) {}
}

#[cfg(test)]
mod tests;
