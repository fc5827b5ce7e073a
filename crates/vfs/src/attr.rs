//! Attributes of files, and changes to them.

/// A point in time as file systems keep it. Seconds may be negative (before 1970).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since the epoch.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The kind of a file (RFC 1813 `ftype3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// An ordinary file.
    Regular,
    /// A directory.
    Directory,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharacterDevice,
    /// A symbolic link.
    Symlink,
    /// A socket's name.
    Socket,
    /// A named pipe.
    Fifo,
}

/// The device a block or character device node stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The attributes of one file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// What the file is.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: `mode & 0o7777`.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of disk space used.
    pub used: u64,
    /// For device nodes, the device.
    pub device: DeviceNumber,
    /// Which file system: stable across restarts, distinct within one server.
    pub fsid: u64,
    /// Which file in it: unique among the live files of `fsid`.
    pub fileid: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the attributes or contents.
    pub ctime: Time,
}

/// The attributes that show whether a file changed (RFC 1813 `wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreAttr {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the attributes or contents.
    pub ctime: Time,
}

impl From<&Attr> for PreAttr {
    fn from(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

/// Weak cache consistency data (RFC 1813 §2.6): an object just before and just after an
/// operation. `before` is present only when nothing else served by us can have changed the
/// object between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Just before the operation.
    pub before: Option<PreAttr>,
    /// Just after the operation.
    pub after: Option<Attr>,
}

/// How a time is to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// To the server's present time.
    ServerTime,
    /// To this time.
    To(Time),
}

/// Attributes to set; `None` and [`SetTime::Keep`] leave one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (`0o7777`).
    pub mode: Option<u32>,
    /// Of what is made: which of these it does not get, unless its directory has a default ACL, which
    /// says what it gets instead (RFC 8275). 0 for what is there.
    pub umask: u32,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New access time.
    pub atime: SetTime,
    /// New modification time.
    pub mtime: SetTime,
}

impl SetAttr {
    /// Whether nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
