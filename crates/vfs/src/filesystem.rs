//! What a share's storage can do.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{
    Acl, Attr, Caller, DeviceNumber, Durable, Extents, FilePlace, FlushDomain, FsError, Guard,
    GuardKind, GuardListener, Name, RangeLock, RangeLocks, SeekFor, SetAttr, SetXattrHow, Sought,
    StorageHandle, Time, Waiting, Wcc,
};

bitflags::bitflags! {
    /// What a caller asks to do (RFC 1813 §3.3.4, RFC 8276 §8.4.4, the same bit values).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessMask: u32 {
        /// Read data or list a directory.
        const READ = 0x01;
        /// Look up a name in a directory.
        const LOOKUP = 0x02;
        /// Rewrite data or change directory entries.
        const MODIFY = 0x04;
        /// Write new data or add directory entries.
        const EXTEND = 0x08;
        /// Delete a directory entry.
        const DELETE = 0x10;
        /// Execute a file.
        const EXECUTE = 0x20;
        /// Read extended attributes.
        const XATTR_READ = 0x40;
        /// Set and remove extended attributes.
        const XATTR_WRITE = 0x80;
        /// List extended attributes.
        const XATTR_LIST = 0x100;
    }
}

impl AccessMask {
    /// What is asked of extended attributes.
    pub const XATTRS: Self = Self::XATTR_READ.union(Self::XATTR_WRITE).union(Self::XATTR_LIST);
}

/// A file found or made.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its handle.
    pub handle: StorageHandle,
    /// Its attributes.
    pub attr: Attr,
}

/// The result of a look-up: the directory's attributes go with success and failure alike.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// The directory's attributes, when they could be had; those of an object that is no directory, too.
    pub dir_attr: Option<Attr>,
    /// What was found.
    pub result: Result<Entry, FsError>,
}

/// The result of an operation that changes one object (or a directory): its attributes before
/// and after go with success and failure alike.
#[derive(Clone, Copy, Debug)]
pub struct Changed<T> {
    /// The object (for operations on names, the directory) before and after.
    pub wcc: Wcc,
    /// What came of it.
    pub result: Result<T, FsError>,
}

impl<T> Changed<T> {
    /// A failure of which nothing more is known.
    pub fn failed(error: FsError) -> Self {
        Self { wcc: Wcc::default(), result: Err(error) }
    }
}

/// What CREATE made. A client that finds no handle looks the name up.
pub type Created = Entry;

/// The result of RENAME, which changes two directories.
#[derive(Clone, Copy, Debug)]
pub struct Renamed {
    /// The directory the name left.
    pub from: Wcc,
    /// The directory the name came to.
    pub to: Wcc,
    /// What came of it.
    pub result: Result<(), FsError>,
}

/// How CREATE treats a name that exists (RFC 1813 §3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Use the file that is there (and cut it to `size` if that is set; other attributes are
    /// applied only to a new file).
    Unchecked(SetAttr),
    /// Fail with [`FsError::Exists`].
    Guarded(SetAttr),
    /// Succeed if the file was made by this same call earlier: the verifier is kept in the
    /// file itself, stable.
    Exclusive {
        /// Which call it is.
        verifier: [u8; 8],
        /// Permission bits of a new file.
        mode: u32,
        /// As [`SetAttr::umask`].
        umask: u32,
    },
}

/// What MKNOD makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A socket's name.
    Socket,
    /// A named pipe.
    Fifo,
}

/// How stable a write is to be when it is answered (RFC 1813 `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteHow {
    /// In memory is enough; COMMIT follows.
    Unstable,
    /// The data, and what is needed to read it back.
    DataSync,
    /// Data and attributes.
    FileSync,
}

/// What WRITE did.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Bytes written, from the offset on.
    pub count: u32,
    /// How stable they are once the obligation is met; never less than asked for.
    pub committed: WriteHow,
}

/// A range of an open file, to be sent without a copy through user space.
#[derive(Clone)]
pub struct FileRange {
    /// The open file.
    pub file: Arc<dyn AsFd + Send + Sync>,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes. If the file becomes shorter meanwhile, zeros take its place.
    pub length: u32,
}

impl std::fmt::Debug for FileRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileRange({}+{})", self.offset, self.length)
    }
}

/// Where READ's data is.
#[derive(Clone, Debug)]
pub enum ReadPlace {
    /// Appended to the buffer that was given.
    Appended,
    /// In the file: the sender moves it.
    File(FileRange),
}

/// What READ found.
#[derive(Clone, Debug)]
pub struct ReadDone {
    /// Bytes read.
    pub count: u32,
    /// Whether the read reached the end of the file.
    pub is_end: bool,
    /// The file's attributes after the read.
    pub attr: Attr,
    /// Where the data is.
    pub place: ReadPlace,
}

/// One name of a directory, as [`FileSystem::read_directory`] tells it.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// The name; `.` and `..` occur.
    pub name: &'a [u8],
    /// The file's number.
    pub fileid: u64,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// Handle and attributes, when they were asked for and could be had.
    pub entry: Option<Entry>,
}

/// How a reading of a directory ended.
#[derive(Clone, Copy, Debug)]
pub struct DirPage {
    /// The directory's attributes.
    pub dir_attr: Option<Attr>,
    /// Whether the last entry of the directory was told.
    pub is_end: bool,
}

/// Space and inodes (RFC 1813 FSSTAT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStatistics {
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes available to the caller.
    pub available_bytes: u64,
    /// Number of file slots.
    pub total_files: u64,
    /// Free file slots.
    pub free_files: u64,
    /// File slots available to the caller.
    pub available_files: u64,
}

/// What does not change about a file system (RFC 1813 FSINFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInfo {
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// Resolution of times, in nanoseconds: what SETATTR sets is kept to this.
    pub time_granularity_ns: u32,
    /// Whether hard links exist.
    pub has_links: bool,
    /// Whether symbolic links exist.
    pub has_symlinks: bool,
    /// Whether [`PathLimits`] are the same for all its objects, as far as this one shows.
    pub is_homogeneous: bool,
    /// Whether access ACLs exist.
    pub has_acls: bool,
    /// Whether extended attributes of users exist.
    pub has_xattrs: bool,
    /// What ranges of [`FileSystem::clone_range`] are multiples of, in bytes; 0 if files cannot share
    /// blocks.
    pub clone_block_bytes: u32,
}

/// What PATHCONF tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// Most hard links to one file.
    pub links_max: u32,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
    /// Whether names that differ in case alone are one.
    pub is_case_insensitive: bool,
    /// Whether names are kept as they were given.
    pub preserves_case: bool,
}

/// A share's storage.
///
/// Rules for every implementation:
/// - Methods are called by many threads at once. Changes to one object take effect in one
///   order, and `wcc` is taken in that order.
/// - Names are single components; symbolic links are never followed; nothing outside the share
///   can be reached by any argument.
/// - An object that no longer has a link is [`FsError::Stale`], whatever is still open.
/// - Unless [`crate::Waiting::Allowed`] a method may return [`FsError::WouldBlock`], with
///   [`crate::Waiting::Never`] also [`FsError::WouldOpen`], having done nothing. Changing methods
///   never return them.
/// - A [`Durable`] names everything that must be flushed for the promise of its operation: the
///   objects *and* the names (RFC 1813 §4.7). Failures promise nothing.
/// - Permission follows the kernel's rules, with NFS's exception that a file's owner may read
///   and write it whatever its mode says, since the client checked when it opened the file.
pub trait FileSystem: Send + Sync {
    /// The share's root directory.
    fn root(&self) -> Result<Entry, FsError>;

    /// The flush domain of the share's root, which most of its objects are of: who waits for its
    /// disk waits for the same as who waits for another share's of this domain.
    fn domain(&self) -> FlushDomain;

    /// What an object is, by whatever share, mount or handle it was reached: its file system, and a
    /// handle that all its handles lead to. Two objects that live at the same time differ in it.
    fn object(&self, handle: &StorageHandle) -> (u64, StorageHandle) {
        (u64::from(self.domain().0), *handle)
    }

    /// Which of the mounts below the share's root an object is on; 0 for the root's own. The number
    /// is the same as long as it is mounted on the same point.
    fn mount(&self, _object: &StorageHandle, _waiting: Waiting) -> Result<u32, FsError> {
        Ok(0)
    }

    /// Has `look` see where that mount is, and behind it the mounts that are passed on the way there
    /// from the root: their absolute paths, without symbolic links.
    fn mount_points(
        &self,
        _mount: u32,
        _waiting: Waiting,
        look: &mut dyn FnMut(&[PathBuf]),
    ) -> Result<(), FsError> {
        look(&[]);
        Ok(())
    }

    /// Where below the share's root an object is, if that is known without a look at the disk. For people
    /// only: it may be elsewhere a moment later.
    fn known_path(&self, _object: &StorageHandle) -> Option<PathBuf> {
        None
    }

    /// Opens a file to have the locks of clients there, by which local processes see them. Opened for
    /// read locks it cannot have write locks; opened for write locks it has both, if it may be.
    ///
    /// # Errors
    /// `NotSupported` where there are no local processes, or no such locks; `TryLater` if somebody has a
    /// lease of the file, or there are no descriptors left.
    fn open_to_lock(
        &self,
        _object: &StorageHandle,
        _kind: RangeLock,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        Err(FsError::NotSupported)
    }

    /// Guards an ordinary file: from now on its listener is told when a local process touches it, before
    /// that goes on.
    ///
    /// # Errors
    /// `NotSupported` where there are no local processes, no guards, or no power to have them; `TryLater`
    /// if somebody has the file open who may not, the server itself perhaps, or there are no
    /// descriptors left; `Invalid` for what is no ordinary file.
    fn guard(
        &self,
        _object: &StorageHandle,
        _kind: GuardKind,
        _listener: &Arc<dyn GuardListener>,
    ) -> Result<Box<dyn Guard>, FsError> {
        Err(FsError::NotSupported)
    }

    /// GETATTR.
    fn attributes(&self, caller: &Caller<'_>, object: &StorageHandle) -> Result<Attr, FsError>;

    /// SETATTR; with `guard`, only if the object's ctime is that.
    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Durable<Changed<()>>;

    /// LOOKUP of a name.
    fn lookup(&self, caller: &Caller<'_>, dir: &StorageHandle, name: Name<'_>) -> Looked;

    /// LOOKUP of `..`; the share's root is its own parent.
    fn lookup_parent(&self, caller: &Caller<'_>, dir: &StorageHandle) -> Looked;

    /// ACCESS: which of `wanted` the caller may do.
    fn access(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attr), FsError>;

    /// READLINK: appends the target to `target`.
    fn read_link(
        &self,
        caller: &Caller<'_>,
        link: &StorageHandle,
        target: &mut Vec<u8>,
    ) -> Result<Attr, FsError>;

    /// READ: appends at most `count` bytes to `into`, or, with `may_be_place`, may answer with
    /// a range of the file.
    fn read(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
        may_be_place: bool,
        into: &mut Vec<u8>,
    ) -> Result<ReadDone, FsError>;

    /// WRITE.
    fn write(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Durable<Changed<Written>>;

    /// COMMIT; `count` 0 means to the end of the file.
    fn commit(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
    ) -> Durable<Changed<()>>;

    /// Promises that every change of the object's file system that was acknowledged before, to whomever
    /// and however, is stable: data, names and attributes. Also to a caller who [`Caller::is_async`], and
    /// whatever he may do to the object.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] where a file system as a whole cannot be made stable; as of attributes.
    fn sync(&self, caller: &Caller<'_>, object: &StorageHandle) -> Durable<Result<(), FsError>>;

    /// CREATE of an ordinary file.
    fn create(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        how: &CreateHow,
    ) -> Durable<Changed<Created>>;

    /// MKDIR.
    fn make_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        set: &SetAttr,
    ) -> Durable<Changed<Created>>;

    /// SYMLINK; `target` is any bytes without NUL.
    fn make_symlink(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        target: &[u8],
        set: &SetAttr,
    ) -> Durable<Changed<Created>>;

    /// MKNOD.
    fn make_node(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        kind: NodeKind,
        set: &SetAttr,
    ) -> Durable<Changed<Created>>;

    /// REMOVE of anything but a directory.
    fn remove(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>>;

    /// RMDIR.
    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>>;

    /// RENAME within this file system.
    fn rename(
        &self,
        caller: &Caller<'_>,
        from_dir: &StorageHandle,
        from_name: Name<'_>,
        to_dir: &StorageHandle,
        to_name: Name<'_>,
    ) -> Durable<Renamed>;

    /// LINK: a new name for `object`. The object's attributes come beside the directory's.
    fn link(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<(Option<Attr>, Changed<()>)>;

    /// READDIR and READDIRPLUS: tells the entries after `cookie` (0: from the start) until
    /// `each` returns false, which refuses that entry, or the directory ends. With
    /// `with_entries`, handle and attributes of each. Cookies stay good while names come and go.
    fn read_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        cookie: u64,
        with_entries: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<DirPage, FsError>;

    /// FSSTAT.
    fn statistics(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(FsStatistics, Attr), FsError>;

    /// FSINFO.
    fn info(&self, object: &StorageHandle) -> Result<FsInfo, FsError>;

    /// PATHCONF.
    fn path_limits(&self, object: &StorageHandle) -> Result<PathLimits, FsError>;

    /// The access ACL (made from the mode when there is none) and, for a directory, the default
    /// ACL if it has one.
    fn acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(Acl, Option<Acl>, Attr), FsError>;

    /// Sets the access ACL and the default ACL (an empty list removes it); `None` leaves one as it
    /// is. Only a directory can have a default ACL: for others [`FsError::AccessDenied`].
    fn set_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Durable<Changed<()>>;

    /// SEEK: where a file has data, or a hole, from an offset on.
    ///
    /// # Errors
    /// [`FsError::NoDevice`] if the file ends before the offset or there.
    fn seek(
        &self,
        _caller: &Caller<'_>,
        _file: &StorageHandle,
        _offset: u64,
        _what: SeekFor,
    ) -> Result<Sought, FsError> {
        Err(FsError::NotSupported)
    }

    /// What a range of a file begins with, for `READ_PLUS`.
    fn extents(
        &self,
        _caller: &Caller<'_>,
        _file: &StorageHandle,
        _offset: u64,
        _count: u32,
    ) -> Result<Extents, FsError> {
        Err(FsError::NotSupported)
    }

    /// ALLOCATE: has space for a range. A file that ends before is made longer.
    fn allocate(
        &self,
        _caller: &Caller<'_>,
        _file: &StorageHandle,
        _offset: u64,
        _length: u64,
    ) -> Durable<Changed<()>> {
        Durable::promising_nothing(Changed::failed(FsError::NotSupported))
    }

    /// DEALLOCATE: makes a hole of a range. The file stays as long as it is.
    fn deallocate(
        &self,
        _caller: &Caller<'_>,
        _file: &StorageHandle,
        _offset: u64,
        _length: u64,
    ) -> Durable<Changed<()>> {
        Durable::promising_nothing(Changed::failed(FsError::NotSupported))
    }

    /// COPY of a range from one file to another, or within one; tells how many bytes were copied, which
    /// may be fewer. `count` 0 means to the end of the source.
    fn copy(
        &self,
        _caller: &Caller<'_>,
        _source: FilePlace<'_>,
        _target: FilePlace<'_>,
        _count: u64,
    ) -> Durable<Changed<u64>> {
        Durable::promising_nothing(Changed::failed(FsError::NotSupported))
    }

    /// CLONE: has a range of one file share the blocks of another's, all of it or nothing. `count` 0
    /// means to the end of the source.
    fn clone_range(
        &self,
        _caller: &Caller<'_>,
        _source: FilePlace<'_>,
        _target: FilePlace<'_>,
        _count: u64,
    ) -> Durable<Changed<()>> {
        Durable::promising_nothing(Changed::failed(FsError::NotSupported))
    }

    /// GETXATTR.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if there is no such attribute.
    fn xattr(
        &self,
        _caller: &Caller<'_>,
        _object: &StorageHandle,
        _name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        Err(FsError::NotSupported)
    }

    /// LISTXATTRS: all names, in no order.
    fn xattr_names(
        &self,
        _caller: &Caller<'_>,
        _object: &StorageHandle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        Err(FsError::NotSupported)
    }

    /// SETXATTR; [`FsError::FileTooLarge`] if there is no room for such a value.
    fn set_xattr(
        &self,
        _caller: &Caller<'_>,
        _object: &StorageHandle,
        _name: &[u8],
        _value: &[u8],
        _how: SetXattrHow,
    ) -> Durable<Changed<()>> {
        Durable::promising_nothing(Changed::failed(FsError::NotSupported))
    }

    /// REMOVEXATTR; [`FsError::NotFound`] if there is no such attribute.
    fn remove_xattr(
        &self,
        _caller: &Caller<'_>,
        _object: &StorageHandle,
        _name: &[u8],
    ) -> Durable<Changed<()>> {
        Durable::promising_nothing(Changed::failed(FsError::NotSupported))
    }
}
