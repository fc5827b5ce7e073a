//! A file system as replay finds it after a crash.

use steadfast_vfs::{Attr, FileKind, FsError, StorageHandle, Time};

use crate::{ObjectKey, Place};

/// Access lists to be set, as the kernel keeps them; an empty one is removed, and what is not given
/// stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AclsToSet<'a> {
    /// Its own.
    pub access: Option<&'a [u8]>,
    /// A directory's list for what is made in it.
    pub default: Option<&'a [u8]>,
}

/// A copy of a file that is kept beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// The copy.
    pub object: ObjectKey,
    /// The directory that it is in.
    pub dir: ObjectKey,
    /// Whether it has all of the file; if not, it is as long, and has nothing yet.
    pub is_whole: bool,
}

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

    /// If it has been unmounted and mounted again since the changes were made, and its disks were attached
    /// all the time: what tells this mounting from any other. Then all changes reached the disk, unless it
    /// failed: nobody is told of that by unmounting.
    fn mounted_again(&self) -> Option<&str> {
        None
    }

    /// Makes all stable of a file system that is still mounted; whether nothing of it can have been lost:
    /// no flush has failed since it came into use, nor this one.
    fn has_lost_nothing(&mut self) -> bool {
        false
    }

    /// Whether the machine was started, as far as is known, since a server used it last.
    fn machine_was_started(&self) -> bool {
        false
    }

    /// The bytes of the log's mark that the file system carries; none if it has no mark, or cannot
    /// carry one.
    ///
    /// # Errors
    /// The storage's.
    fn read_mark(&mut self) -> Result<Vec<u8>, FsError> {
        Ok(Vec::new())
    }

    /// Writes into the log's mark, and makes it first if there is none. What makes all stable makes
    /// this stable.
    ///
    /// # Errors
    /// The storage's; [`FsError::NotSupported`] if it cannot carry one.
    fn write_mark(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Tells which objects were lost. What the kernel may find by their handles from here on is
    /// something else that got the same ones.
    fn set_lost(&mut self, lost: &[ObjectKey]);

    /// An object's attributes; `None` if it is gone.
    fn look(&mut self, object: &ObjectKey) -> Result<Option<Attr>, FsError>;

    /// When an object was made, if the file system tells; not of one that replay has made again.
    ///
    /// # Errors
    /// As [`Recoverable::look`].
    fn born(&mut self, _object: &ObjectKey) -> Result<Option<Time>, FsError> {
        Ok(None)
    }

    /// The handle that clients get of an object when they come from `dir`.
    fn handle(&mut self, _dir: &StorageHandle, object: &ObjectKey) -> StorageHandle {
        object.0
    }

    /// Where an object is, for people. Of one that is no directory it is often not known.
    fn path(&mut self, _object: &ObjectKey) -> Option<Vec<u8>> {
        None
    }

    /// What has a name: its key and kind; `None` if nothing has, or the directory is gone.
    fn bound(&mut self, place: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError>;

    /// The names in a directory that begin with `prefix`.
    fn names(&mut self, dir: &ObjectKey, prefix: &[u8]) -> Result<Vec<Vec<u8>>, FsError>;

    /// Makes a lost object again. Once this returns, it will be found by its key whatever happens.
    /// Nobody but the superuser may do anything with it until its attributes are set.
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

    /// Makes a file read as zeros from where it once ended to `to`, as far as it is that long. There it may
    /// have what it had before it was made shorter: by a local process, of which the disk knows nothing, or
    /// since its new length reached the disk before the zeros did (btrfs).
    fn zero(&mut self, object: &ObjectKey, from: u64, to: u64) -> Result<(), FsError>;

    /// Sets owner, group, mode, access lists and times. On the way nobody may do what they may
    /// neither now nor afterwards.
    ///
    /// # Errors
    /// The storage's; then nobody may do more than before.
    fn set_attributes(
        &mut self,
        object: &ObjectKey,
        attr: &Attr,
        acls: &AclsToSet<'_>,
    ) -> Result<(), FsError>;

    /// Whether an object has these access lists, but for what its mode says: that is kept in both.
    ///
    /// # Errors
    /// The storage's; [`FsError::Stale`] if it is gone.
    fn has_acls(&mut self, _object: &ObjectKey, acls: &AclsToSet<'_>) -> Result<bool, FsError> {
        Ok(*acls == AclsToSet::default())
    }

    /// Copies a file to a name of a directory, or, if none is given, of one that people find. `anew`: what
    /// has the name is removed; otherwise it is the copy, and stays as it is. On return the copy is on
    /// the disk. It grants no more than the file does.
    ///
    /// # Errors
    /// The storage's.
    fn keep(
        &mut self,
        _object: &ObjectKey,
        _dir: Option<&ObjectKey>,
        _name: &[u8],
        _anew: bool,
    ) -> Result<KeptFile, FsError> {
        Err(FsError::NotSupported)
    }

    /// Copies a part of a file to a copy that is not whole, where that has nothing yet. On return it is
    /// on the disk.
    ///
    /// # Errors
    /// The storage's.
    fn keep_part(
        &mut self,
        _object: &ObjectKey,
        _copy: &ObjectKey,
        _offset: u64,
        _bytes: u64,
    ) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Whether a file has the data that is kept of it.
    ///
    /// # Errors
    /// The storage's.
    fn has_same_data(&mut self, _object: &ObjectKey, _kept: &KeptFile) -> Result<bool, FsError> {
        Err(FsError::NotSupported)
    }

    /// Makes all that was done stable, and that objects were made again known to who serves them.
    ///
    /// # Errors
    /// When it cannot be made stable, with the reason for the operator.
    fn make_stable(&mut self) -> Result<(), String>;
}
