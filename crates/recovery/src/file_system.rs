//! How a file system is told from others: by the log, and after a restart.

/// A file system as the log numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoggedFileSystem(pub u32);

/// What a file system is known by after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSystemIdentity {
    /// The identifier that was written into it when it was made.
    pub uuid: [u8; 16],
    /// The kernel's number of its type.
    pub kind: u32,
}
