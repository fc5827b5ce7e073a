//! Storage that may be opened only when it is first used.

use crate::{FileSystem, FlushDomain, FsError};

/// Where a share's storage comes from.
///
/// Of fifteen thousand shares most are not in use: what costs descriptors and memory need not be
/// done for those.
pub trait StorageSource: Send + Sync {
    /// The storage, if it is open. Never waits.
    fn opened(&self) -> Option<&dyn FileSystem>;

    /// The storage, opened if it was not. May wait for a disk.
    ///
    /// # Errors
    /// `TryLater` if it cannot be opened now.
    fn open(&self) -> Result<&dyn FileSystem, FsError>;

    /// The flush domain that the storage has when it is open, if that is known. Never waits.
    fn expected_domain(&self) -> Option<FlushDomain>;

    /// The number of its root's file system, as [`FileSystem::object`] tells it, if that is known.
    /// Never waits for a disk.
    fn file_system(&self) -> Option<u64> {
        None
    }
}

impl<F: FileSystem> StorageSource for F {
    fn opened(&self) -> Option<&dyn FileSystem> {
        Some(self)
    }

    fn open(&self) -> Result<&dyn FileSystem, FsError> {
        Ok(self)
    }

    fn expected_domain(&self) -> Option<FlushDomain> {
        Some(self.domain())
    }

    fn file_system(&self) -> Option<u64> {
        self.root().ok().map(|root| self.object(&root.handle).0)
    }
}
