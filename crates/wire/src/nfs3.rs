//! NFS version 3 (RFC 1813).

use steadfast_xdr::{Decode, Reader, XdrError};

const DATA_BYTES_MAX: usize = 16 << 20;
const NAME_BYTES_MAX: usize = 4096;
const PATH_BYTES_MAX: usize = 8192;

macro_rules! numbers {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$vmeta:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $(#[allow(missing_docs)] $variant = $value,)* }
        impl<'a> Decode<'a> for $name {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                match r.u32()? { $($value => Ok(Self::$variant),)* value => Err(XdrError::BadValue { what: $what, value }) }
            }
        }
    };
}

numbers! {
    /// Status of a result (RFC 1813 §2.6).
    NfsStat3, "nfsstat3" {
        Ok = 0, Perm = 1, NoEnt = 2, Io = 5, NxIo = 6, Acces = 13, Exist = 17, XDev = 18, NoDev = 19,
        NotDir = 20, IsDir = 21, Inval = 22, FBig = 27, NoSpc = 28, RoFs = 30, MLink = 31,
        NameTooLong = 63, NotEmpty = 66, DQuot = 69, Stale = 70, Remote = 71, BadHandle = 10001,
        NotSync = 10002, BadCookie = 10003, NotSupp = 10004, TooSmall = 10005, ServerFault = 10006,
        BadType = 10007, Jukebox = 10008,
    }
}
numbers! {
    /// How stable a WRITE is to be (RFC 1813 §3.3.7).
    StableHow, "stable_how" { Unstable = 0, DataSync = 1, FileSync = 2, }
}

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsFh3<'a>(pub &'a [u8]);

impl<'a> Decode<'a> for NfsFh3<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.opaque(64).map(Self)
    }
}

/// A name in a directory.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOpArgs3<'a> {
    pub dir: NfsFh3<'a>,
    pub name: &'a [u8],
}

impl<'a> Decode<'a> for DirOpArgs3<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { dir: Decode::decode(r)?, name: r.opaque(NAME_BYTES_MAX)? })
    }
}

/// A time.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTime3 {
    pub seconds: u32,
    pub nseconds: u32,
}

impl NfsTime3 {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { seconds: r.u32()?, nseconds: r.u32()? })
    }
}

/// How a time is to be set.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime3 {
    DontChange,
    SetToServerTime,
    SetToClientTime(NfsTime3),
}

impl<'a> Decode<'a> for SetTime3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::DontChange),
            1 => Ok(Self::SetToServerTime),
            2 => NfsTime3::decode(r).map(Self::SetToClientTime),
            value => Err(XdrError::BadValue { what: "time_how", value }),
        }
    }
}

/// Attributes to set.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sattr3 {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime3,
    pub mtime: SetTime3,
}

impl<'a> Decode<'a> for Sattr3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            mode: r.optional(Reader::u32)?,
            uid: r.optional(Reader::u32)?,
            gid: r.optional(Reader::u32)?,
            size: r.optional(Reader::u64)?,
            atime: Decode::decode(r)?,
            mtime: Decode::decode(r)?,
        })
    }
}

/// How CREATE treats what exists.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow3 {
    Unchecked(Sattr3),
    Guarded(Sattr3),
    Exclusive([u8; 8]),
}

impl<'a> Decode<'a> for CreateHow3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Sattr3::decode(r).map(Self::Unchecked),
            1 => Sattr3::decode(r).map(Self::Guarded),
            2 => r.array().map(Self::Exclusive),
            value => Err(XdrError::BadValue { what: "createmode3", value }),
        }
    }
}

/// What SYMLINK makes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymlinkData3<'a> {
    pub symlink_attributes: Sattr3,
    pub symlink_data: &'a [u8],
}

impl<'a> Decode<'a> for SymlinkData3<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { symlink_attributes: Decode::decode(r)?, symlink_data: r.opaque(PATH_BYTES_MAX)? })
    }
}

/// A device.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecData3 {
    pub specdata1: u32,
    pub specdata2: u32,
}

/// A device node to make.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceData3 {
    pub dev_attributes: Sattr3,
    pub spec: SpecData3,
}

impl<'a> Decode<'a> for DeviceData3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            dev_attributes: Decode::decode(r)?,
            spec: SpecData3 { specdata1: r.u32()?, specdata2: r.u32()? },
        })
    }
}

/// What MKNOD makes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MknodData3 {
    Chr(DeviceData3),
    Blk(DeviceData3),
    Sock(Sattr3),
    Fifo(Sattr3),
    Reg,
    Dir,
    Lnk,
}

impl<'a> Decode<'a> for MknodData3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            1 => Ok(Self::Reg),
            2 => Ok(Self::Dir),
            3 => DeviceData3::decode(r).map(Self::Blk),
            4 => DeviceData3::decode(r).map(Self::Chr),
            5 => Ok(Self::Lnk),
            6 => Sattr3::decode(r).map(Self::Sock),
            7 => Sattr3::decode(r).map(Self::Fifo),
            value => Err(XdrError::BadValue { what: "ftype3", value }),
        }
    }
}

/// Arguments of GETATTR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Getattr3Args<'a> {
    #[allow(missing_docs)]
    pub object: NfsFh3<'a>,
}

impl<'a> Decode<'a> for Getattr3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { object: Decode::decode(r)? })
    }
}

/// Arguments of SETATTR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setattr3Args<'a> {
    #[allow(missing_docs)]
    pub object: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub new_attributes: Sattr3,
    #[allow(missing_docs)]
    pub guard: Option<NfsTime3>,
}

impl<'a> Decode<'a> for Setattr3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            object: Decode::decode(r)?,
            new_attributes: Decode::decode(r)?,
            guard: r.optional(NfsTime3::decode)?,
        })
    }
}

/// Arguments of LOOKUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup3Args<'a> {
    #[allow(missing_docs)]
    pub what: DirOpArgs3<'a>,
}

impl<'a> Decode<'a> for Lookup3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { what: Decode::decode(r)? })
    }
}

/// Arguments of ACCESS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access3Args<'a> {
    #[allow(missing_docs)]
    pub object: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub access: u32,
}

impl<'a> Decode<'a> for Access3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { object: Decode::decode(r)?, access: r.u32()? })
    }
}

/// Arguments of READLINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readlink3Args<'a> {
    #[allow(missing_docs)]
    pub symlink: NfsFh3<'a>,
}

impl<'a> Decode<'a> for Readlink3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { symlink: Decode::decode(r)? })
    }
}

/// Arguments of READ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read3Args<'a> {
    #[allow(missing_docs)]
    pub file: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub offset: u64,
    #[allow(missing_docs)]
    pub count: u32,
}

impl<'a> Decode<'a> for Read3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { file: Decode::decode(r)?, offset: r.u64()?, count: r.u32()? })
    }
}

/// Arguments of WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write3Args<'a> {
    #[allow(missing_docs)]
    pub file: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub offset: u64,
    #[allow(missing_docs)]
    pub count: u32,
    #[allow(missing_docs)]
    pub stable: StableHow,
    #[allow(missing_docs)]
    pub data: &'a [u8],
}

impl<'a> Decode<'a> for Write3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            file: Decode::decode(r)?,
            offset: r.u64()?,
            count: r.u32()?,
            stable: Decode::decode(r)?,
            data: r.opaque(DATA_BYTES_MAX)?,
        })
    }
}

/// Arguments of CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create3Args<'a> {
    #[allow(missing_docs)]
    pub where_: DirOpArgs3<'a>,
    #[allow(missing_docs)]
    pub how: CreateHow3,
}

impl<'a> Decode<'a> for Create3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { where_: Decode::decode(r)?, how: Decode::decode(r)? })
    }
}

/// Arguments of MKDIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkdir3Args<'a> {
    #[allow(missing_docs)]
    pub where_: DirOpArgs3<'a>,
    #[allow(missing_docs)]
    pub attributes: Sattr3,
}

impl<'a> Decode<'a> for Mkdir3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { where_: Decode::decode(r)?, attributes: Decode::decode(r)? })
    }
}

/// Arguments of SYMLINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symlink3Args<'a> {
    #[allow(missing_docs)]
    pub where_: DirOpArgs3<'a>,
    #[allow(missing_docs)]
    pub symlink: SymlinkData3<'a>,
}

impl<'a> Decode<'a> for Symlink3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { where_: Decode::decode(r)?, symlink: Decode::decode(r)? })
    }
}

/// Arguments of MKNOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mknod3Args<'a> {
    #[allow(missing_docs)]
    pub where_: DirOpArgs3<'a>,
    #[allow(missing_docs)]
    pub what: MknodData3,
}

impl<'a> Decode<'a> for Mknod3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { where_: Decode::decode(r)?, what: Decode::decode(r)? })
    }
}

/// Arguments of REMOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remove3Args<'a> {
    #[allow(missing_docs)]
    pub object: DirOpArgs3<'a>,
}

impl<'a> Decode<'a> for Remove3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { object: Decode::decode(r)? })
    }
}

/// Arguments of RMDIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rmdir3Args<'a> {
    #[allow(missing_docs)]
    pub object: DirOpArgs3<'a>,
}

impl<'a> Decode<'a> for Rmdir3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { object: Decode::decode(r)? })
    }
}

/// Arguments of RENAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename3Args<'a> {
    #[allow(missing_docs)]
    pub from: DirOpArgs3<'a>,
    #[allow(missing_docs)]
    pub to: DirOpArgs3<'a>,
}

impl<'a> Decode<'a> for Rename3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { from: Decode::decode(r)?, to: Decode::decode(r)? })
    }
}

/// Arguments of LINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link3Args<'a> {
    #[allow(missing_docs)]
    pub file: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub link: DirOpArgs3<'a>,
}

impl<'a> Decode<'a> for Link3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { file: Decode::decode(r)?, link: Decode::decode(r)? })
    }
}

/// Arguments of READDIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readdir3Args<'a> {
    #[allow(missing_docs)]
    pub dir: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub cookie: u64,
    #[allow(missing_docs)]
    pub cookieverf: [u8; 8],
    #[allow(missing_docs)]
    pub count: u32,
}

impl<'a> Decode<'a> for Readdir3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            dir: Decode::decode(r)?,
            cookie: r.u64()?,
            cookieverf: r.array()?,
            count: r.u32()?,
        })
    }
}

/// Arguments of READDIRPLUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readdirplus3Args<'a> {
    #[allow(missing_docs)]
    pub dir: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub cookie: u64,
    #[allow(missing_docs)]
    pub cookieverf: [u8; 8],
    #[allow(missing_docs)]
    pub dircount: u32,
    #[allow(missing_docs)]
    pub maxcount: u32,
}

impl<'a> Decode<'a> for Readdirplus3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            dir: Decode::decode(r)?,
            cookie: r.u64()?,
            cookieverf: r.array()?,
            dircount: r.u32()?,
            maxcount: r.u32()?,
        })
    }
}

/// Arguments of FSSTAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fsstat3Args<'a> {
    #[allow(missing_docs)]
    pub fsroot: NfsFh3<'a>,
}

impl<'a> Decode<'a> for Fsstat3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { fsroot: Decode::decode(r)? })
    }
}

/// Arguments of FSINFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fsinfo3Args<'a> {
    #[allow(missing_docs)]
    pub fsroot: NfsFh3<'a>,
}

impl<'a> Decode<'a> for Fsinfo3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { fsroot: Decode::decode(r)? })
    }
}

/// Arguments of PATHCONF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pathconf3Args<'a> {
    #[allow(missing_docs)]
    pub object: NfsFh3<'a>,
}

impl<'a> Decode<'a> for Pathconf3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { object: Decode::decode(r)? })
    }
}

/// Arguments of COMMIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit3Args<'a> {
    #[allow(missing_docs)]
    pub file: NfsFh3<'a>,
    #[allow(missing_docs)]
    pub offset: u64,
    #[allow(missing_docs)]
    pub count: u32,
}

impl<'a> Decode<'a> for Commit3Args<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { file: Decode::decode(r)?, offset: r.u64()?, count: r.u32()? })
    }
}
