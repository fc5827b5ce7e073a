//! NFS version 3 (RFC 1813): statuses, handles, attributes, and the arguments and results of all
//! procedures.

mod arguments;
mod attributes;
mod objects;
mod results;

pub use arguments::{
    Access3Args, Commit3Args, Create3Args, Fsinfo3Args, Fsstat3Args, Getattr3Args, Link3Args,
    Lookup3Args, Mkdir3Args, Mknod3Args, Pathconf3Args, Read3Args, Readdir3Args, Readdirplus3Args,
    Readlink3Args, Remove3Args, Rename3Args, Rmdir3Args, Setattr3Args, Symlink3Args, Write3Args,
    Write3Head,
};
pub use attributes::{NfsTime3, Sattr3, SetTime3};
pub use objects::{
    CreateHow3, DeviceData3, DirOpArgs3, MknodData3, NfsFh3, SpecData3, SymlinkData3,
};
pub use results::{
    Access3Ok, Access3Res, Changed3Res, Commit3Ok, Commit3Res, Entry3, EntryPlus3, Fattr3,
    FileType3, Fsinfo3Ok, Fsinfo3Res, Fsstat3Ok, Fsstat3Res, Getattr3Res, Link3Res, Linked3,
    Lookup3Ok, Lookup3Res, Made3Ok, Made3Res, Nothing3, Pathconf3Ok, Pathconf3Res, Read3Ok,
    Read3Res, Readdir3Ok, Readdir3Res, Readdirplus3Ok, Readdirplus3Res, Readlink3Ok, Readlink3Res,
    Rename3Res, Renamed3, Res3, WccAttr3, WccData3, Write3Ok, Write3Res,
};

use crate::codec::numbers;

/// Number of the program (RFC 5531 §8.2).
pub const PROGRAM: u32 = 100_003;
/// Longest handle in bytes (`NFS3_FHSIZE`, RFC 1813 §2.4).
pub const HANDLE_BYTES_MAX: usize = 64;
/// Longest data of a WRITE in bytes; servers take less (FSINFO).
pub const DATA_BYTES_MAX: usize = 16 << 20;
/// Longest name in bytes. More than any file system has, so that too long a name gets
/// `NFS3ERR_NAMETOOLONG` rather than `GARBAGE_ARGS`.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest target of a symbolic link in bytes, for the same reason beyond what file systems have.
pub const PATH_BYTES_MAX: usize = 8192;

numbers! {
    /// Status of a result (`nfsstat3`, RFC 1813 §2.6).
    pub enum NfsStat3, "nfsstat3" {
        /// Done.
        Ok = 0,
        /// The caller is not the owner, or not privileged.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// The disk failed.
        Io = 5,
        /// No such device.
        NxIo = 6,
        /// The caller has not the right.
        Acces = 13,
        /// The name exists.
        Exist = 17,
        /// A link or rename would cross file systems.
        XDev = 18,
        /// The device is not there.
        NoDev = 19,
        /// A directory is needed.
        NotDir = 20,
        /// A directory cannot be used.
        IsDir = 21,
        /// An argument makes no sense.
        Inval = 22,
        /// The file would grow beyond what is possible.
        FBig = 27,
        /// No space left.
        NoSpc = 28,
        /// The file system, or the share, is read-only.
        RoFs = 30,
        /// The object has as many links as it may.
        MLink = 31,
        /// The name is too long.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// The quota is used up.
        DQuot = 69,
        /// The object of the handle is gone.
        Stale = 70,
        /// Too many levels of remote file systems.
        Remote = 71,
        /// The handle is none.
        BadHandle = 10001,
        /// A SETATTR's guard does not match.
        NotSync = 10002,
        /// The cookie of a listing is stale.
        BadCookie = 10003,
        /// The operation is not supported.
        NotSupp = 10004,
        /// The reply does not fit into what the caller allows.
        TooSmall = 10005,
        /// Something else went wrong in the server.
        ServerFault = 10006,
        /// The server cannot make objects of this type.
        BadType = 10007,
        /// Not now: the caller is to try again later.
        Jukebox = 10008,
    }
}

numbers! {
    /// How stable a WRITE is to be, or was (RFC 1813 §3.3.7).
    pub enum StableHow, "stable_how" {
        /// COMMIT follows.
        Unstable = 0,
        /// The data, and what is needed to read it again.
        DataSync = 1,
        /// Data and all attributes.
        FileSync = 2,
    }
}
