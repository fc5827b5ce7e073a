//! The right to write the log's superblocks, and the failure of such a write.

use parking_lot::{Mutex, MutexGuard};
use steadfast_intent_log::{IntentLog, WriteSuperblockError};

use crate::medium::FileMedium;
use crate::probe::time_superblocks;

/// Writers of superblocks.
///
/// One thread at a time writes superblocks. A failed write means that the log has to be left. A committer
/// does that: the thread that wrote may hold locks that leaving takes. The failure is kept until then.
#[derive(Debug, Default)]
pub(super) struct Superblocks {
    writing: Mutex<()>,
    fault: Mutex<Option<String>>,
}

impl Superblocks {
    /// Waits until nobody else writes superblocks of this log.
    pub(super) fn lock<'s>(&'s self, log: &'s IntentLog, medium: &'s FileMedium) -> Writing<'s> {
        Writing { _one: self.writing.lock(), log, medium }
    }

    /// The log cannot be written, for this reason, and has to be left.
    pub(super) fn note_fault(&self, why: String) {
        *self.fault.lock() = Some(why);
    }

    /// Whether the log has to be left.
    pub(super) fn has_fault(&self) -> bool {
        self.fault.lock().is_some()
    }

    /// Takes the reason for which the log has to be left. The caller leaves it.
    pub(super) fn take_fault(&self) -> Option<String> {
        self.fault.lock().take()
    }
}

/// The right to write superblocks, held until this is dropped.
pub(super) struct Writing<'s> {
    _one: MutexGuard<'s, ()>,
    log: &'s IntentLog,
    medium: &'s FileMedium,
}

impl Writing<'_> {
    /// Has the superblocks say how far the log has got.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write(&self) -> Result<(), WriteSuperblockError> {
        self.log.write_superblocks(self.medium, false).map(|_| ())
    }

    /// Has the superblocks say that the log is closed. `false` if it is not empty.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn close(&self) -> Result<bool, WriteSuperblockError> {
        self.log.write_superblocks(self.medium, true)
    }

    /// Has a superblock say that nothing in the log is to be replayed.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn give_up(&self) -> Result<(), WriteSuperblockError> {
        self.log.give_up(self.medium)
    }

    /// Tells how fast the device is, by writing a few.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn time(&self) -> Result<(), WriteSuperblockError> {
        time_superblocks(self.log, self.medium)
    }
}
