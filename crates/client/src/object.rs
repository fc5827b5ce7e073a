//! What NFSv3 says of an object: its handle, its attributes, and those before and after a change
//! (RFC 1813 §2.4 to §2.6).

use steadfast_xdr::{Reader, XdrError};

/// Longest handle (RFC 1813 §2.4).
const HANDLE_BYTES_MAX: usize = 64;

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

pub(crate) fn handle(r: &mut Reader<'_>) -> Decoded<FileHandle> {
    r.opaque(HANDLE_BYTES_MAX).map(|bytes| FileHandle(bytes.to_vec()))
}

pub(crate) fn time(r: &mut Reader<'_>) -> Decoded<Time> {
    Ok(Time { seconds: r.u32()?, nanoseconds: r.u32()? })
}

fn file_type(r: &mut Reader<'_>) -> Decoded<FileType> {
    Ok(match r.u32()? {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::BlockDevice,
        4 => FileType::CharacterDevice,
        5 => FileType::Symlink,
        6 => FileType::Socket,
        7 => FileType::Fifo,
        value => return Err(XdrError::BadValue { what: "ftype3", value }),
    })
}

pub(crate) fn attributes(r: &mut Reader<'_>) -> Decoded<Attributes> {
    Ok(Attributes {
        file_type: file_type(r)?,
        mode: r.u32()?,
        nlink: r.u32()?,
        uid: r.u32()?,
        gid: r.u32()?,
        size: r.u64()?,
        used: r.u64()?,
        rdev: (r.u32()?, r.u32()?),
        fsid: r.u64()?,
        fileid: r.u64()?,
        atime: time(r)?,
        mtime: time(r)?,
        ctime: time(r)?,
    })
}

/// `post_op_attr`.
pub(crate) fn post(r: &mut Reader<'_>) -> Decoded<Option<Attributes>> {
    r.optional(attributes)
}

pub(crate) fn wcc(r: &mut Reader<'_>) -> Decoded<Wcc> {
    let before =
        r.optional(|r| Ok(WccAttributes { size: r.u64()?, mtime: time(r)?, ctime: time(r)? }))?;
    Ok(Wcc { before, after: post(r)? })
}
