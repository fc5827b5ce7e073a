//! What clients had opened and locked when the process before this one ended.

use std::sync::Arc;

use steadfast_durability::{FoundState, StateImageFile};
use steadfast_engine::{Engine, StateImage};

use crate::StartError;
use crate::client_records::Records;
use crate::state_directory::StateDirectory;

/// The state that this process begins with.
pub(crate) struct ClientState {
    /// Whose state it is: the one before, or a new one without any.
    pub(crate) instance: u32,
    /// Whether what clients had before was lost, if they had anything.
    pub(crate) is_lost: bool,
    /// What it is, and where it is kept from now on.
    kept: Option<(StateImage, StateImageFile)>,
}

impl ClientState {
    /// Finds the state of the process before. If it is lost, an instance begins that clients have not
    /// met.
    ///
    /// # Errors
    /// Those of the file that counts the instances.
    pub(crate) fn find(state: &StateDirectory, records: &Records) -> Result<Self, StartError> {
        let begin = || state.next_instance(|next| records.begin_instance(next));
        let last = state.last_instance()?;
        let found = FoundState::find(&state.path).unwrap_or_else(|error| {
            tracing::warn!("cannot read what clients had opened and locked, it is lost: {error}");
            None
        });
        // One of another count is of another life of the state directory.
        let found = found.filter(|found| found.instance == last && last > 0);
        let is_found = found.is_some();
        let (instance, image) = match found {
            Some(FoundState { instance, image }) => (instance, image),
            None => (begin()?, StateImage::default()),
        };
        match StateImageFile::create(&state.path, instance) {
            Ok(file) => Ok(Self { instance, is_lost: !is_found, kept: Some((image, file)) }),
            Err(error) => {
                tracing::warn!(
                    "cannot keep what clients open and lock: {error}; they lose their locks whenever \
                     the server ends"
                );
                let instance = if is_found { begin()? } else { instance };
                Ok(Self { instance, is_lost: true, kept: None })
            }
        }
    }

    /// The engine goes on with it, and keeps it from now on.
    pub(crate) fn keep(self, engine: &mut Engine) {
        let Some((image, file)) = self.kept else { return };
        if image.clients() > 0 {
            tracing::info!(
                "{} clients go on with what they had opened and locked: {} stateids",
                image.clients(),
                image.stateids()
            );
        }
        if image.has_unstable() {
            // Requests that were under way are answered when they come again, as far as they were done.
            rustix::fs::sync();
        }
        engine.keep_state(0, image, Arc::new(file));
    }
}
