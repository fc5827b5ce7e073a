//! Clients with state, as an operator sees them.

use std::sync::atomic::Ordering;

pub use steadfast_state::{
    ClientId, ClientReport, DelegationKind, Held, Holding, LockKind, LockRange, Protocol,
};
use steadfast_state::{FileKey, StateError};

use crate::{Engine, Export, ShareId};

impl Engine {
    /// All clients, by id: those of NFSv4, and hosts that lock over NFSv3.
    pub fn clients(&self) -> Vec<ClientReport> {
        let mut clients = self.shared.state.clients(self.now_ms.load(Ordering::Relaxed));
        clients.sort_unstable_by_key(|client| client.id);
        clients
    }

    /// What a client has and waits for, at most `max` opens, as many locks, and as many
    /// delegations; and whether there is
    /// more.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`] if there is no such client.
    pub fn holdings(&self, id: ClientId, max: usize) -> Result<(Vec<Holding>, bool), StateError> {
        self.shared.state.holdings(id, max)
    }

    /// Ends a client with all that it has. Others get it from now on.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`] if there is no such client.
    pub fn end_client(&self, id: ClientId) -> Result<(), StateError> {
        self.shared.state.remove_client(id)?;
        self.shared.keep_state();
        // If that fails now, nobody is told of what he gets until it was done.
        self.shared.keep_records();
        self.shared.send_effects(self.now_ms.load(Ordering::Relaxed));
        Ok(())
    }

    /// The shares on a file's file system with their paths, in the order of these.
    pub fn shares_with(&self, file: &FileKey) -> Vec<(ShareId, String)> {
        let exports = self.exports();
        let is_on_it = |export: &&Export| {
            let storage = export.storage.opened();
            storage.is_some_and(|storage| storage.object(&file.object).0 == file.file_system)
        };
        let on_it = exports.sorted().into_iter().filter(is_on_it);
        on_it.map(|export| (export.share.id, export.share.path.to_string())).collect()
    }
}
