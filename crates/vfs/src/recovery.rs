//! A file system as replay finds it after a crash.

use crate::{Attr, FileKind, FsError, ObjectKey, Place};

/// What replay does to a file system, by the server's own powers and under no caller's identity.
/// Objects go by the keys that the log has; nothing serves them meanwhile.
///
/// An object that was lost is made again under its key ([`Recoverable::make`]): from then on it
/// is found by the key, and is presented with the handle and the file number that it had.
pub trait Recoverable {
    /// Whether the ctime that a directory has after a crash tells which of its names are there:
    /// whether changes of both reach the disk together, and in order. Not so where a flush of one
    /// file brings its name without its neighbours, and mounting replays that (btrfs).
    fn names_follow_ctimes(&self) -> bool;

    /// If it has been mounted since the changes were made, what tells this mounting from any other,
    /// without a line's end. Then no machine has crashed, and all of them are in effect, on the disk or
    /// in memory, unless the disk has failed.
    fn still_mounted(&self) -> Option<&str>;

    /// Tells which objects were lost. What the kernel may find by their handles from here on is
    /// something else that got the same ones.
    fn set_lost(&mut self, lost: &[ObjectKey]);

    /// An object's attributes; `None` if it is gone.
    fn look(&mut self, object: &ObjectKey) -> Result<Option<Attr>, FsError>;

    /// What has a name: its key and kind; `None` if nothing has, or the directory is gone.
    fn bound(&mut self, place: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError>;

    /// The names in a directory that begin with `prefix`.
    fn names(&mut self, dir: &ObjectKey, prefix: &[u8]) -> Result<Vec<Vec<u8>>, FsError>;

    /// Makes a lost object again. Once this returns, it will be found by its key whatever happens.
    fn make(
        &mut self,
        place: &Place<'_>,
        object: &ObjectKey,
        attr: &Attr,
        target: &[u8],
    ) -> Result<(), FsError>;

    /// Gives an object that is not a directory one more name.
    fn link(&mut self, object: &ObjectKey, place: &Place<'_>) -> Result<(), FsError>;

    /// Gives what has one name another, which nothing has.
    fn rename(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), FsError>;

    /// Removes a name.
    fn remove(&mut self, place: &Place<'_>, is_directory: bool) -> Result<(), FsError>;

    /// Writes data.
    fn write(&mut self, object: &ObjectKey, offset: u64, data: &[u8]) -> Result<(), FsError>;

    /// Sets a file's size.
    fn truncate(&mut self, object: &ObjectKey, size: u64) -> Result<(), FsError>;

    /// Makes a file read as zeros from where it once ended to `to`, or to the end of the block that
    /// it ended in if that is nearer: there, a file that was made longer may show what it had before
    /// it was made shorter, if its new length reached the disk before the zeros did (btrfs).
    fn zero(&mut self, object: &ObjectKey, from: u64, to: u64) -> Result<(), FsError>;

    /// Sets access lists as the kernel keeps them; an empty one is removed.
    fn set_acls(
        &mut self,
        object: &ObjectKey,
        access: Option<&[u8]>,
        default: Option<&[u8]>,
    ) -> Result<(), FsError>;

    /// Sets owner, group, mode and times.
    fn set_attributes(&mut self, object: &ObjectKey, attr: &Attr) -> Result<(), FsError>;

    /// Makes all that was done stable, and that objects were made again known to who serves them.
    ///
    /// # Errors
    /// When it cannot be made stable, with the reason for the operator.
    fn make_stable(&mut self) -> Result<(), String>;
}
