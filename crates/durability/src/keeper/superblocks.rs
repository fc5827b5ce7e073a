//! Who writes the log's superblocks, and what becomes of a failure.

use parking_lot::{Mutex, MutexGuard};
use steadfast_intent_log::{IntentLog, WriteSuperblockError};

use crate::medium::FileMedium;
use crate::probe::time_superblocks;

/// The right to write superblocks, and what went wrong with them.
///
/// One thread at a time writes them. A failure means that the log cannot be written: it is kept until a
/// committer leaves the log, since who writes superblocks may hold what leaving takes.
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

    /// The log cannot be written, for this reason: it is to be left.
    pub(super) fn note_fault(&self, why: String) {
        *self.fault.lock() = Some(why);
    }

    /// Whether the log is to be left.
    pub(super) fn has_fault(&self) -> bool {
        self.fault.lock().is_some()
    }

    /// Why the log is to be left, for who leaves it.
    pub(super) fn take_fault(&self) -> Option<String> {
        self.fault.lock().take()
    }
}

/// Held by who writes superblocks.
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
