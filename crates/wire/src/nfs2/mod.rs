//! NFS version 2 (RFC 1094): statuses, handles, attributes to be set, and the arguments of all
//! procedures.

mod arguments;
mod objects;

pub use arguments::{
    Create2Args, Link2Args, Read2Args, Readdir2Args, Rename2Args, Setattr2Args, Symlink2Args,
    Write2Args,
};
pub use objects::{DirOpArgs2, NfsFh2, NfsTime2, Sattr2};

use crate::codec::numbers;

/// The version of the program [`crate::nfs3::PROGRAM`].
pub const VERSION: u32 = 2;
/// Size of a handle in bytes (`FHSIZE`, RFC 1094 §2.2).
pub const HANDLE_BYTES: usize = 32;
/// Most bytes of a READ or WRITE (`MAXDATA`, RFC 1094 §2.2).
pub const DATA_BYTES_MAX: usize = 8192;
/// Longest name in bytes. More than `MAXNAMLEN` (255), so that too long a name gets
/// `NFSERR_NAMETOOLONG` rather than `GARBAGE_ARGS`.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest target of a symbolic link in bytes that is sent (`MAXPATHLEN`, RFC 1094 §2.2).
pub const PATH_BYTES_MAX: usize = 1024;
/// Longest target of a symbolic link in bytes that is read, for the same reason as with names.
pub const PATH_BYTES_READ_MAX: usize = 8192;
/// What a field of [`Sattr2`] has that is not to be set.
pub const UNSET: u32 = u32::MAX;

numbers! {
    /// Status of a result (`stat`, RFC 1094 §2.3.1).
    pub enum NfsStat2, "stat" {
        /// Done.
        Ok = 0,
        /// The caller is not the owner, or not privileged.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// The disk failed, and whatever has no number of its own.
        Io = 5,
        /// No such device.
        NxIo = 6,
        /// The caller has not the right.
        Acces = 13,
        /// The name exists.
        Exist = 17,
        /// The device is not there.
        NoDev = 19,
        /// A directory is needed.
        NotDir = 20,
        /// A directory cannot be used.
        IsDir = 21,
        /// The file would grow beyond what is possible.
        FBig = 27,
        /// No space left.
        NoSpc = 28,
        /// The file system, or the share, is read-only.
        RoFs = 30,
        /// The name is too long.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// The quota is used up.
        DQuot = 69,
        /// The object of the handle is gone.
        Stale = 70,
        /// The server's write cache was flushed; of WRITECACHE, which nobody serves.
        WFlush = 99,
    }
}
