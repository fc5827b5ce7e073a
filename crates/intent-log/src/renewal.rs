//! Going on with a log that was left: another epoch in the same ring, while the server runs.
//!
//! What the medium has of the epoch before does not count any more: the log was closed clean, or
//! given up with that written to it or remembered elsewhere ([`IntentLog::give_up`]). Until both
//! superblocks are of the new epoch, the older one may be the one that counts after a crash, and
//! says the same: nothing to replay. What remembers elsewhere that the log was given up names the
//! epoch, and so says nothing of the new one.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use thiserror::Error;

use crate::format::NUMBER_MAX;
use crate::log::{Exhausted, IntentLog, Phase};
use crate::queue::Queue;
use crate::ring::Ring;
use crate::scan::End;
use crate::superblock::Superblock;
use crate::survey::Survey;

/// Why a log was not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RenewError {
    /// It is in use, or has failed and was not given up.
    #[error("the intent log was not left")]
    NotLeft,
    /// There are no numbers left.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

impl IntentLog {
    /// A log that is yet to be formatted, with what [`crate::new_superblock`] said: it counts as
    /// closed until it is renewed.
    ///
    /// # Errors
    /// Does not happen to a superblock that is new.
    pub fn unformatted(superblock: &Superblock) -> Result<Self, Exhausted> {
        let nothing = Survey {
            last: superblock.stable,
            position: superblock.tail,
            epoch_beyond: 0,
            records: 0,
            live: BTreeMap::new(),
            end: End::Clean,
        };
        let log = Self::resume(superblock, &nothing, superblock.host, superblock.write_verifier)?;
        log.lock().phase = Phase::Closed;
        Ok(log)
    }

    /// Whether a write has failed, and the log was neither given up nor renewed since.
    pub fn has_failed(&self) -> bool {
        self.lock().phase == Phase::Failed
    }

    /// Whether a superblock that was found on the medium is one that this log wrote, so that
    /// nobody else used the medium while the log was left.
    pub fn wrote(&self, found: &Superblock) -> bool {
        let state = self.lock();
        found.uuid == self.uuid
            && found.host == self.host
            && found.ring_bytes == self.ring_bytes
            && found.epoch <= state.epoch
            && state.superblocks.may_have_written(found.sequence)
    }

    /// Begins a new epoch, with nothing live, after the log was closed or given up. All file
    /// systems must have been flushed since the last change that was not logged, nothing be
    /// admitted, and no file system be changed until this is done. No record is written before
    /// [`IntentLog::write_superblocks`]; should that fail, the log is to be given up again.
    ///
    /// # Errors
    /// When it was not left, or there are no numbers left; nothing has changed then.
    pub fn renew(&self) -> Result<(), RenewError> {
        let mut state = self.lock();
        let state = &mut *state;
        if !matches!(state.phase, Phase::Closed | Phase::GivenUp) {
            return Err(RenewError::NotLeft);
        }
        let epoch = state.epoch + 1;
        if epoch >= NUMBER_MAX / 2 {
            return Err(Exhausted.into());
        }
        // What is in the queue was made stable without the log, and nobody will write it.
        let last = state.queue.last();
        let head = state.ring.head();
        state.epoch = epoch;
        state.queue = Queue::new(last.next());
        state.ring = Ring::new(self.ring_bytes, head);
        state.file_systems.begin_epoch(last);
        state.superblocks.begin_epoch();
        state.retained_from = None;
        state.phase = Phase::Running;
        self.stable.store(last.0, Ordering::Release);
        Ok(())
    }
}
