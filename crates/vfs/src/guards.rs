//! Guards: to be told when a local process touches a file of which a client believes that nobody does.

use crate::StorageHandle;

/// What local processes may not do to a file before those who rely on that were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// Open it for writing, or cut it.
    Read,
    /// Open it at all, or cut it.
    Write,
}

/// Who is told when guards are broken.
pub trait GuardListener: Send + Sync {
    /// A local process wants to do to a file what its guard forbids, and waits until the guard is dropped;
    /// or the guard is gone already, since the process has waited for so long as the system lets it
    /// (Linux: `/proc/sys/fs/lease-break-time`, 45 s by default), or since the server has opened the file
    /// in a way that the guard forbids.
    ///
    /// The file is named as [`crate::FileSystem::object`] names it. Told once a guard, on a thread of the
    /// storage's, or on one that opens a file; with no lock held that dropping a guard takes. It must not
    /// wait.
    fn guard_broken(&self, file_system: u64, object: &StorageHandle);
}

/// A guarded file. When it is dropped the guard is gone, and local processes that wait go on: whoever has
/// one drops it when clients have given back what they have.
///
/// The server's own opens are like those of local processes. So before a client's call is let through that
/// opens the file for writing (WRITE, SETATTR of the size, OPEN for writing, an NLM or NFSv4 lock for
/// writing), a guard of [`GuardKind::Read`] has to be dropped; else the guard ends by itself, and its listener
/// is told as if it were broken. Under one of [`GuardKind::Write`] the server may read and write the file;
/// to lock it ends the guard.
///
/// Removing, renaming and changing attributes is not noticed.
pub trait Guard: Send + Sync {
    /// What it forbids.
    fn kind(&self) -> GuardKind;

    /// Whether somebody waits for its end, or it has ended. Whether the listener was told or not.
    fn is_broken(&self) -> bool;
}
