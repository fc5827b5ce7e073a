//! How a file system as a whole is made stable.

use crate::FsError;

/// A file system that can be made stable as a whole.
pub trait FileSystemSync: Send + Sync {
    /// Makes everything stable (`syncfs`). Blocks.
    ///
    /// # Errors
    /// The storage's; something written before may be lost.
    fn sync(&self) -> Result<(), FsError>;

    /// Starts to write what was changed to the disk, piece by piece, so that less is left for
    /// [`FileSystemSync::sync`]. Promises nothing. Says after each piece how many bytes it had, and
    /// stops when `goes_on` says `false`. Blocks for as long as `goes_on` does.
    fn write_back(&self, _goes_on: &mut dyn FnMut(u64) -> bool) {}

    /// Writes something new and flushes it; nothing of it stays. Blocks.
    ///
    /// # Errors
    /// The storage's: it takes no changes.
    fn try_writing(&self) -> Result<(), FsError>;

    /// Whether a flush of something of it has failed since the last [`FileSystemSync::sync`] that
    /// did not.
    fn has_failed(&self) -> bool {
        false
    }

    /// The bytes of the log's mark that the file system carries; none if it has no mark.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if it cannot carry one; the storage's.
    fn read_mark(&self) -> Result<Vec<u8>, FsError> {
        Err(FsError::NotSupported)
    }

    /// Writes into the log's mark, and makes it first if there is none. The next
    /// [`FileSystemSync::sync`] makes it stable. Blocks.
    ///
    /// # Errors
    /// As [`FileSystemSync::read_mark`].
    fn write_mark(&self, _offset: u64, _bytes: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }
}
