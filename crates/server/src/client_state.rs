//! What clients had opened and locked when the process before this one ended.

use std::fs::File;
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
        engine.keep_state(0, image, Arc::new(file));
    }
}

/// Makes stable what requests have done that were under way when the process before was killed: they are
/// answered then. Each file system has a thread of its own, so that one that hangs holds up nobody else.
pub(crate) fn make_stable(engine: &Arc<Engine>) {
    let exports = engine.exports();
    for id in engine.unsynced_shares() {
        let share = exports.by_id(id).map(|export| Arc::clone(&export.share));
        let Some(share) = share else {
            engine.share_is_synced(id);
            continue;
        };
        let engine = Arc::clone(engine);
        let sync = move || {
            let directory = share.directory();
            let synced = File::open(directory)
                .and_then(|directory| rustix::fs::syncfs(directory).map_err(Into::into));
            if let Err(error) = synced {
                tracing::error!(
                    "{}: what clients had changed when the server was killed cannot be flushed: {error}; \
                     some of it may be lost though it was acknowledged",
                    directory.display()
                );
            }
            engine.share_is_synced(id);
        };
        if let Err(error) = std::thread::Builder::new().name("sync".to_owned()).spawn(sync) {
            tracing::error!("no thread can be started that flushes a file system: {error}");
        }
    }
}
