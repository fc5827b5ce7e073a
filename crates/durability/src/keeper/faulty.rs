//! File systems that could not be flushed: what was acknowledged of theirs is kept aside, changes are
//! told to come again, and every so often it is tried whether they are well again. Who serves them
//! has them come back then: they are let go, and replayed when they are opened again.

use steadfast_vfs::FsError;

use super::faults::FaultySince;
use super::{IntentLogKeeper, Phase};

impl IntentLogKeeper {
    /// The file systems that could not be flushed.
    pub fn faulty(&self) -> Vec<FaultySince> {
        self.faulty.all()
    }

    /// Whether one that could not be flushed is still in use.
    pub fn is_still_faulty(&self, since: FaultySince) -> bool {
        self.faulty().contains(&since)
    }

    /// Those that could not be flushed, and are to be tried now.
    pub fn faulty_to_try(&self) -> Vec<FaultySince> {
        if self.phase() != Phase::On || self.running.is_closing() {
            return Vec::new();
        }
        self.faulty.due()
    }

    /// Tries one that could not be flushed: whether it takes changes again. Then it is to be let go
    /// by all who serve it, and opened again. May take as long as a disk hangs.
    pub fn is_well_again(&self, since: FaultySince) -> bool {
        let index = since.file_system.0;
        let syncs = self.file_systems.all_syncs_of(index);
        let mut error = FsError::Stale;
        // One may be mounted read-only, or be of a directory that was removed.
        for sync in syncs {
            let tried = sync.sync().and_then(|()| match sync.try_writing() {
                // Where there is no room only clients can make some; whether there is enough for
                // what it may have lost, replay finds out.
                Err(FsError::NoSpace | FsError::QuotaExceeded) => Ok(()),
                tried => tried,
            });
            match tried {
                Ok(()) => return true,
                Err(found) => error = found,
            }
        }
        if self.faulty.note_trial(index, error) {
            let path = self.path_served(index);
            tracing::warn!(
                "{path}: its file system still takes no changes: {error}; look for errors of its disk in the \
                 kernel's messages"
            );
        }
        false
    }
}
