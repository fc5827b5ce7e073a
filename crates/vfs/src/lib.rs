//! The vocabulary between protocols and storage.
//!
//! A protocol (in `engine`) speaks to storage (`posixfs`, or the in-memory [`model`]) only
//! through the trait [`FileSystem`] and the small types beside it. It never sees an errno or a
//! file descriptor; storage never sees an NFS version or an RPC.
//!
//! The three types to know:
//! - [`FileSystem`]: what a share's storage can do, one method an operation;
//! - [`Durable`]: the result of an operation that changed something, wrapped with what must be
//!   made stable before anybody outside may hear of it;
//! - [`FsError`]: the closed set of ways in which an operation fails.
//!
//! This crate must never do I/O: no sockets, files, clocks, randomness or threads.
#![forbid(unsafe_code)]

mod acl;
mod attr;
mod cred;
mod durable;
mod error;
mod extents;
mod file_system_sync;
mod filesystem;
mod guards;
mod handle;
pub mod model;
mod name;
pub mod permission;
mod range_locks;
mod source;
mod xattrs;

pub use acl::{Acl, AclEntry, AclTag};
pub use attr::{Attr, DeviceNumber, FileKind, PreAttr, SetAttr, SetTime, Time, Wcc};
pub use cred::{CALL_KEY_BYTES_MAX, CallName, Caller, Cred, GROUPS_MAX, Waiting};
pub use durable::{
    Durable, Flush, FlushDomain, FlushTarget, FlushWhat, LogRecord, LoggedChange, Obligation,
    ReplyBarrier,
};
pub use error::FsError;
pub use extents::{Extents, FilePlace, SeekFor, Sought};
pub use file_system_sync::FileSystemSync;
pub use filesystem::{
    AccessMask, Changed, CreateHow, Created, DirEntry, DirPage, Entry, FileRange, FileSystem,
    FsInfo, FsStatistics, Looked, NodeKind, PathLimits, ReadDone, ReadPlace, Renamed, WriteHow,
    Written,
};
pub use guards::{Guard, GuardKind, GuardListener};
pub use handle::{HANDLE_BYTES_MAX, StorageHandle};
pub use name::{NAME_BYTES_MAX, Name};
pub use range_locks::{LocalLock, RangeLock, RangeLocks};
pub use source::StorageSource;
pub use xattrs::{SetXattrHow, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
