//! Which clients of NFSv4 may reclaim what they had, after a start that found nothing of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_durability::ClientRecordFile;
use steadfast_engine::{ClientRecords, Engine};

use crate::StartError;
use crate::error::Tried;
use crate::state_directory::StateDirectory;

/// Which clients have state.
pub(crate) struct Records {
    state_directory: PathBuf,
    file: ClientRecordFile,
    found: ClientRecords,
}

impl Records {
    /// What the process before has left.
    ///
    /// # Errors
    /// Those of the file that counts the instances.
    pub(crate) fn open(state: &StateDirectory) -> Result<Self, StartError> {
        let (file, found) = ClientRecordFile::open(&state.path, state.last_instance()?);
        Ok(Self { state_directory: state.path.clone(), file, found })
    }

    /// An instance is about to begin.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(crate) fn begin_instance(&self, instance: u32) -> Result<(), StartError> {
        if self.file.begin_instance(instance) { Ok(()) } else { self.cannot_be_written() }
    }

    /// The engine takes them up, and keeps them from now on.
    ///
    /// # Errors
    /// When what this start finds out cannot be written.
    pub(crate) fn keep(self, engine: &mut Engine) -> Result<(), StartError> {
        let Self { state_directory, file, found } = self;
        if !engine.keep_records(0, &found, Arc::new(file)) {
            return cannot_be_written(&state_directory);
        }
        tell(engine);
        Ok(())
    }

    fn cannot_be_written(&self) -> Result<(), StartError> {
        cannot_be_written(&self.state_directory)
    }
}

fn cannot_be_written(state_directory: &Path) -> Result<(), StartError> {
    // Why was logged.
    let why = std::io::Error::other("see the message before this one");
    Err(why).tried_with(|| {
        format!("cannot record in {} which clients have state", state_directory.display())
    })
}

fn tell(engine: &Engine) {
    let reclaiming = engine.reclaiming_clients();
    if reclaiming > 0 {
        tracing::info!(
            "clients of NFSv4 that have lost what they had opened and locked: {reclaiming}; until \
             they have reclaimed it, for 90 s, or 180 s while they do so, nobody else may open or lock \
             files"
        );
    }
}
