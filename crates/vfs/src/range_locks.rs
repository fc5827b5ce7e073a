//! Locks of byte ranges that local processes see.

use crate::FsError;

/// What a lock permits others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// Other read locks.
    Read,
    /// Nothing.
    Write,
}

/// A lock of a local process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLock {
    /// Its first byte.
    pub first: u64,
    /// Its last byte; [`u64::MAX`] if it has all that follow.
    pub last: u64,
    /// Its kind.
    pub kind: RangeLock,
}

/// A file that is held open to have the locks which the server's clients have among themselves, so
/// that local processes see them. When it is dropped the locks are gone.
///
/// None of its methods waits for a lock.
pub trait RangeLocks: Send + Sync {
    /// Whether it can have write locks. If not, it has read locks in their place.
    fn has_writes(&self) -> bool;

    /// Sets what it has of the bytes from the first to the last: all of them or none; `None` frees
    /// them. Whether they were set: if not, a local process has a lock that conflicts.
    ///
    /// # Errors
    /// When the file system refuses.
    fn set(&self, first: u64, last: u64, kind: Option<RangeLock>) -> Result<bool, FsError>;

    /// A lock of a local process that conflicts with this one.
    ///
    /// # Errors
    /// When the file system refuses.
    fn conflict(
        &self,
        first: u64,
        last: u64,
        kind: RangeLock,
    ) -> Result<Option<LocalLock>, FsError>;
}
