//! Which clients of NFSv4 may reclaim what they had, after a start that found nothing of it.

use std::path::Path;
use std::sync::Arc;

use steadfast_durability::ClientRecordFile;
use steadfast_engine::Engine;

use crate::StartError;
use crate::error::Tried;

/// The engine takes up the records of the process before, and keeps them from now on.
///
/// # Errors
/// When what this start finds out cannot be written.
pub(crate) fn keep(state_directory: &Path, engine: &mut Engine) -> Result<(), StartError> {
    let (file, records) = ClientRecordFile::open(state_directory);
    if !engine.keep_records(0, &records, Arc::new(file)) {
        // Why was logged.
        let why = std::io::Error::other("see the message before this one");
        return Err(why).tried_with(|| {
            format!("cannot record in {} which clients have state", state_directory.display())
        });
    }
    let reclaiming = engine.reclaiming_clients();
    if reclaiming > 0 {
        tracing::info!(
            "clients of NFSv4 that have lost what they had opened and locked: {reclaiming}; until \
             they have reclaimed it, for 90 s, or 180 s while they do so, nobody else may open or lock \
             files"
        );
    }
    Ok(())
}
