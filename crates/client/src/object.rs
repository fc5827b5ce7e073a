//! What NFSv3 says of an object: its handle, its attributes, and those before and after a change
//! (RFC 1813 §2.4 to §2.6).

use steadfast_wire::nfs3::{Fattr3, FileType3, NfsFh3, NfsTime3, WccAttr3, WccData3};
use steadfast_xdr::{Decode, Reader, XdrError};

/// A handle as the server made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHandle(pub Vec<u8>);

impl FileHandle {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A time, to the nanosecond.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time {
    pub seconds: u32,
    pub nanoseconds: u32,
}

/// What kind of object (`ftype3`).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    Regular,
    Directory,
    BlockDevice,
    CharacterDevice,
    Symlink,
    Socket,
    Fifo,
}

/// All attributes of an object (`fattr3`); sizes in bytes.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub file_type: FileType,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub rdev: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// What is told of an object before a change (`wcc_attr`).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WccAttributes {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
}

/// Attributes before and after a change (`wcc_data`).
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    pub before: Option<WccAttributes>,
    pub after: Option<Attributes>,
}

pub(crate) type Decoded<T> = Result<T, XdrError>;

impl From<NfsFh3<'_>> for FileHandle {
    fn from(handle: NfsFh3<'_>) -> Self {
        Self(handle.0.to_vec())
    }
}

impl From<NfsTime3> for Time {
    fn from(time: NfsTime3) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nseconds }
    }
}

impl From<Time> for NfsTime3 {
    fn from(time: Time) -> Self {
        Self { seconds: time.seconds, nseconds: time.nanoseconds }
    }
}

impl From<FileType3> for FileType {
    fn from(file_type: FileType3) -> Self {
        match file_type {
            FileType3::Reg => Self::Regular,
            FileType3::Dir => Self::Directory,
            FileType3::Blk => Self::BlockDevice,
            FileType3::Chr => Self::CharacterDevice,
            FileType3::Lnk => Self::Symlink,
            FileType3::Sock => Self::Socket,
            FileType3::Fifo => Self::Fifo,
        }
    }
}

impl From<Fattr3> for Attributes {
    fn from(of: Fattr3) -> Self {
        Self {
            file_type: of.file_type.into(),
            mode: of.mode,
            nlink: of.nlink,
            uid: of.uid,
            gid: of.gid,
            size: of.size,
            used: of.used,
            rdev: (of.rdev.specdata1, of.rdev.specdata2),
            fsid: of.fsid,
            fileid: of.fileid,
            atime: of.atime.into(),
            mtime: of.mtime.into(),
            ctime: of.ctime.into(),
        }
    }
}

impl From<WccAttr3> for WccAttributes {
    fn from(of: WccAttr3) -> Self {
        Self { size: of.size, mtime: of.mtime.into(), ctime: of.ctime.into() }
    }
}

impl From<WccData3> for Wcc {
    fn from(of: WccData3) -> Self {
        Self { before: of.before.map(Into::into), after: of.after.map(Into::into) }
    }
}

pub(crate) fn attributes(r: &mut Reader<'_>) -> Decoded<Attributes> {
    Fattr3::decode(r).map(Into::into)
}

/// `post_op_attr`.
pub(crate) fn post(r: &mut Reader<'_>) -> Decoded<Option<Attributes>> {
    Ok(Option::<Fattr3>::decode(r)?.map(Into::into))
}

pub(crate) fn wcc(r: &mut Reader<'_>) -> Decoded<Wcc> {
    WccData3::decode(r).map(Into::into)
}
