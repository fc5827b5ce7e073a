//! The closed set of ways in which a file-system operation fails.

/// Why an operation failed. Mapped to a protocol's status in one place a protocol; made from an
/// errno in one place of `posixfs`. There is no catch-all: a storage engine that meets an errno
/// it does not know reports [`FsError::Io`] and logs the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FsError {
    /// Not the owner, or a capability is missing (`EPERM`).
    #[error("operation not permitted")]
    NotPermitted,
    /// No such name (`ENOENT`).
    #[error("no such file or directory")]
    NotFound,
    /// The storage failed (`EIO`).
    #[error("input/output error")]
    Io,
    /// No such device (`ENXIO`, `ENODEV`).
    #[error("no such device")]
    NoDevice,
    /// The permission bits or the ACL forbid it (`EACCES`).
    #[error("permission denied")]
    AccessDenied,
    /// The name exists (`EEXIST`).
    #[error("file exists")]
    Exists,
    /// Across file systems (`EXDEV`).
    #[error("cross-device link")]
    CrossDevice,
    /// A directory was needed (`ENOTDIR`).
    #[error("not a directory")]
    NotDirectory,
    /// A directory was not wanted (`EISDIR`).
    #[error("is a directory")]
    IsDirectory,
    /// An argument makes no sense for the object (`EINVAL`).
    #[error("invalid argument")]
    Invalid,
    /// The file would become too large (`EFBIG`).
    #[error("file too large")]
    FileTooLarge,
    /// No space (`ENOSPC`).
    #[error("no space left on device")]
    NoSpace,
    /// Read-only file system or share (`EROFS`).
    #[error("read-only file system")]
    ReadOnly,
    /// Too many hard links (`EMLINK`).
    #[error("too many links")]
    TooManyLinks,
    /// The name is too long (`ENAMETOOLONG`).
    #[error("file name too long")]
    NameTooLong,
    /// The directory is not empty (`ENOTEMPTY`).
    #[error("directory not empty")]
    NotEmpty,
    /// Quota exceeded (`EDQUOT`).
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// The handle's object is gone (`ESTALE`).
    #[error("stale file handle")]
    Stale,
    /// The handle is not one of this file system's.
    #[error("bad file handle")]
    BadHandle,
    /// A guarded change found another ctime (RFC 1813 `NFS3ERR_NOT_SYNC`).
    #[error("the guard's ctime does not match")]
    NotSync,
    /// The directory cookie is not one of ours.
    #[error("bad directory cookie")]
    BadCookie,
    /// The file system cannot do this (`EOPNOTSUPP`, `ENOSYS`).
    #[error("operation not supported")]
    NotSupported,
    /// The reply's bound is too small for even one entry.
    #[error("the buffer is too small")]
    TooSmall,
    /// The kind of node cannot be created.
    #[error("bad type")]
    BadType,
    /// Resources are short for the moment: the client is to try again (`EAGAIN`, `ENOMEM`,
    /// `EMFILE`, `ENFILE`, `EBUSY`).
    #[error("resources are short, try again")]
    TryLater,
    /// Unless [`crate::Waiting::Allowed`]: what is needed is not in memory; nothing was done.
    /// Never leaves the server.
    #[error("would block")]
    WouldBlock,
    /// With [`crate::Waiting::Never`] only: the object must be opened, which makes the thread wait
    /// if the kernel has forgotten it; nothing was done. Never leaves the server.
    #[error("would have to open the object")]
    WouldOpen,
}
