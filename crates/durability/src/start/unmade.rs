//! The start of a server that needs no log yet (`keeper/unmade.rs`).

use std::sync::Arc;

use steadfast_intent_log::{IntentLog, new_superblock};

use crate::begun::BegunRings;
use crate::keeper::{IntentLogKeeper, Parts};
use crate::medium::FileMedium;
use crate::replies::{OpenedReplies, ReplyStore};
use crate::under_way::UnderWayFile;

use super::{StartIntentLog, StartIntentLogError, StartedIntentLog};

impl StartIntentLog {
    /// Begins without a log, which is made when it is needed. There must be none: neither a file at
    /// its place, nor one that was used last and not closed.
    ///
    /// # Errors
    /// When a log of this size cannot be, or the state directory cannot be written.
    pub fn start_unmade(self) -> Result<StartedIntentLog, StartIntentLogError> {
        let verifier = self.untold_write_verifier;
        let superblock = new_superblock(self.file_bytes, self.new_uuid, self.host, verifier)
            .map_err(|error| self.write_error(&error))?;
        let log = IntentLog::unformatted(&superblock).map_err(|error| self.write_error(&error))?;
        let under_way = UnderWayFile::create(&self.state_directory)
            .map_err(StartIntentLogError::StateDirectory)?;
        let begun = BegunRings::create(&self.state_directory)
            .map_err(StartIntentLogError::StateDirectory)?;
        let OpenedReplies { store, replies } =
            ReplyStore::open(&self.state_directory, self.options.replies_bytes_max)
                .map_err(StartIntentLogError::StateDirectory)?;
        let keeper = IntentLogKeeper::new(Parts {
            uuid: superblock.uuid,
            log,
            medium: Arc::new(FileMedium::unmade(&self.path, self.file_bytes)),
            options: self.options,
            state_directory: self.state_directory,
            open_storage: self.open_storage,
            untold_write_verifier: self.untold_write_verifier,
            under_way: Some(under_way),
            begun: Some(begun),
            replies: store,
        });
        keeper.begin_unmade();
        let write_verifier = self.new_write_verifier;
        Ok(StartedIntentLog { keeper, write_verifier, replies: replies.into_newest() })
    }
}
