//! Attributes of objects, and results of all procedures (RFC 1813 §2.6, §3.3).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::{
    DATA_BYTES_MAX, NAME_BYTES_MAX, NfsFh3, NfsStat3, NfsTime3, PATH_BYTES_MAX, SpecData3,
    StableHow,
};
use crate::List;
use crate::codec::{numbers, structure};

numbers! {
    /// What kind of object (`ftype3`).
    pub enum FileType3, "ftype3" {
        /// A regular file.
        Reg = 1,
        /// A directory.
        Dir = 2,
        /// A block device.
        Blk = 3,
        /// A character device.
        Chr = 4,
        /// A symbolic link.
        Lnk = 5,
        /// A socket.
        Sock = 6,
        /// A named pipe.
        Fifo = 7,
    }
}

structure! {
    bytes 84;
    /// All attributes of an object (`fattr3`).
    #[derive(Copy)]
    pub struct Fattr3 {
        /// Its kind.
        pub file_type: FileType3,
        /// Permissions, and the bits for set-user-id, set-group-id and sticky.
        pub mode: u32,
        /// Names.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Length in bytes.
        pub size: u64,
        /// Bytes of the disk that it takes.
        pub used: u64,
        /// Of a device, its number.
        pub rdev: SpecData3,
        /// Its file system.
        pub fsid: u64,
        /// Its number there.
        pub fileid: u64,
        /// Time of the last access.
        pub atime: NfsTime3,
        /// Time of the last change of the data.
        pub mtime: NfsTime3,
        /// Time of the last change of the attributes.
        pub ctime: NfsTime3,
    }
}

structure! {
    bytes 24;
    /// What is told of an object before a change (`wcc_attr`).
    #[derive(Copy)]
    pub struct WccAttr3 {
        /// Length in bytes.
        pub size: u64,
        /// Time of the last change of the data.
        pub mtime: NfsTime3,
        /// Time of the last change of the attributes.
        pub ctime: NfsTime3,
    }
}

structure! {
    /// An object before and after a change (`wcc_data`).
    #[derive(Copy)]
    pub struct WccData3 {
        /// Before.
        pub before: Option<WccAttr3>,
        /// After.
        pub after: Option<Fattr3>,
    }
}

/// Of a failed GETATTR: nothing is beside the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nothing3;

impl<'a> Decode<'a> for Nothing3 {
    fn decode(_: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self)
    }
}

impl Encode for Nothing3 {
    fn encode(&self, _: &mut Writer<'_>) {}
}

/// A result: what follows `NFS3_OK`, or another status and what follows that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Res3<T, F> {
    /// Done.
    Ok(T),
    /// Why not: never [`NfsStat3::Ok`].
    Failed(NfsStat3, F),
}

impl<'a, T: Decode<'a>, F: Decode<'a>> Decode<'a> for Res3<T, F> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match NfsStat3::decode(r)? {
            NfsStat3::Ok => Decode::decode(r).map(Self::Ok),
            status => Decode::decode(r).map(|beside| Self::Failed(status, beside)),
        }
    }
}

impl<T: Encode, F: Encode> Encode for Res3<T, F> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Ok(results) => {
                NfsStat3::Ok.encode(w);
                results.encode(w);
            }
            Self::Failed(status, beside) => {
                status.encode(w);
                beside.encode(w);
            }
        }
    }
}

/// Result of GETATTR (RFC 1813 §3.3.1).
pub type Getattr3Res = Res3<Fattr3, Nothing3>;
/// Result of SETATTR, REMOVE and RMDIR (§3.3.2, §3.3.12, §3.3.13).
pub type Changed3Res = Res3<WccData3, WccData3>;
/// Result of LOOKUP (§3.3.3).
pub type Lookup3Res<'a> = Res3<Lookup3Ok<'a>, Option<Fattr3>>;
/// Result of ACCESS (§3.3.4).
pub type Access3Res = Res3<Access3Ok, Option<Fattr3>>;
/// Result of READLINK (§3.3.5).
pub type Readlink3Res<'a> = Res3<Readlink3Ok<'a>, Option<Fattr3>>;
/// Result of READ (§3.3.6).
pub type Read3Res<'a> = Res3<Read3Ok<'a>, Option<Fattr3>>;
/// Result of WRITE (§3.3.7).
pub type Write3Res = Res3<Write3Ok, WccData3>;
/// Result of CREATE, MKDIR, SYMLINK and MKNOD (§3.3.8 to §3.3.11).
pub type Made3Res<'a> = Res3<Made3Ok<'a>, WccData3>;
/// Result of RENAME (§3.3.14).
pub type Rename3Res = Res3<Renamed3, Renamed3>;
/// Result of LINK (§3.3.15).
pub type Link3Res = Res3<Linked3, Linked3>;
/// Result of READDIR (§3.3.16).
pub type Readdir3Res<'a> = Res3<Readdir3Ok<'a>, Option<Fattr3>>;
/// Result of READDIRPLUS (§3.3.17).
pub type Readdirplus3Res<'a> = Res3<Readdirplus3Ok<'a>, Option<Fattr3>>;
/// Result of FSSTAT (§3.3.18).
pub type Fsstat3Res = Res3<Fsstat3Ok, Option<Fattr3>>;
/// Result of FSINFO (§3.3.19).
pub type Fsinfo3Res = Res3<Fsinfo3Ok, Option<Fattr3>>;
/// Result of PATHCONF (§3.3.20).
pub type Pathconf3Res = Res3<Pathconf3Ok, Option<Fattr3>>;
/// Result of COMMIT (§3.3.21).
pub type Commit3Res = Res3<Commit3Ok, WccData3>;

structure! {
    /// What LOOKUP finds.
    pub struct Lookup3Ok<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
        /// Its attributes.
        pub obj_attributes: Option<Fattr3>,
        /// Those of the directory.
        pub dir_attributes: Option<Fattr3>,
    }
}

structure! {
    /// What ACCESS grants.
    pub struct Access3Ok {
        /// The object's attributes.
        pub obj_attributes: Option<Fattr3>,
        /// Bits of the rights that are granted.
        pub access: u32,
    }
}

structure! {
    /// What READLINK reads.
    pub struct Readlink3Ok<'a> {
        /// The link's attributes.
        pub symlink_attributes: Option<Fattr3>,
        /// The target.
        pub data: &'a [u8]; max PATH_BYTES_MAX,
    }
}

structure! {
    /// What READ reads.
    pub struct Read3Ok<'a> {
        /// The file's attributes.
        pub file_attributes: Option<Fattr3>,
        /// How many bytes; whether that is true of `data` is the reader's to check.
        pub count: u32,
        /// Whether the file ends there.
        pub eof: bool,
        /// The data.
        pub data: &'a [u8]; max DATA_BYTES_MAX,
    }
}

structure! {
    /// What WRITE did.
    pub struct Write3Ok {
        /// The file.
        pub file_wcc: WccData3,
        /// How many bytes were written.
        pub count: u32,
        /// How stable they are.
        pub committed: StableHow,
        /// Changes when the server may have lost what is not stable.
        pub verf: [u8; 8],
    }
}

structure! {
    /// What CREATE, MKDIR, SYMLINK and MKNOD made.
    pub struct Made3Ok<'a> {
        /// The object.
        pub obj: Option<NfsFh3<'a>>,
        /// Its attributes.
        pub obj_attributes: Option<Fattr3>,
        /// The directory.
        pub dir_wcc: WccData3,
    }
}

structure! {
    /// What RENAME tells, also when it fails.
    pub struct Renamed3 {
        /// The directory of the old name.
        pub fromdir_wcc: WccData3,
        /// The directory of the new one.
        pub todir_wcc: WccData3,
    }
}

structure! {
    /// What LINK tells, also when it fails.
    pub struct Linked3 {
        /// The object's attributes.
        pub file_attributes: Option<Fattr3>,
        /// The directory of the new name.
        pub linkdir_wcc: WccData3,
    }
}

structure! {
    /// An entry that READDIR tells (`entry3`).
    #[derive(Copy)]
    pub struct Entry3<'a> {
        /// The object's number.
        pub fileid: u64,
        /// Its name.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
        /// Where the listing goes on behind it.
        pub cookie: u64,
    }
}

structure! {
    /// What READDIR reads.
    pub struct Readdir3Ok<'a> {
        /// The directory's attributes.
        pub dir_attributes: Option<Fattr3>,
        /// To come back with the cookies.
        pub cookieverf: [u8; 8],
        /// The entries.
        pub entries: List<Entry3<'a>>,
        /// Whether the directory ends there.
        pub eof: bool,
    }
}

structure! {
    /// An entry that READDIRPLUS tells (`entryplus3`).
    #[derive(Copy)]
    pub struct EntryPlus3<'a> {
        /// The object's number.
        pub fileid: u64,
        /// Its name.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
        /// Where the listing goes on behind it.
        pub cookie: u64,
        /// Its attributes.
        pub name_attributes: Option<Fattr3>,
        /// Its handle.
        pub name_handle: Option<NfsFh3<'a>>,
    }
}

structure! {
    /// What READDIRPLUS reads.
    pub struct Readdirplus3Ok<'a> {
        /// The directory's attributes.
        pub dir_attributes: Option<Fattr3>,
        /// To come back with the cookies.
        pub cookieverf: [u8; 8],
        /// The entries.
        pub entries: List<EntryPlus3<'a>>,
        /// Whether the directory ends there.
        pub eof: bool,
    }
}

structure! {
    /// What FSSTAT tells; sizes in bytes.
    pub struct Fsstat3Ok {
        /// The object's attributes.
        pub obj_attributes: Option<Fattr3>,
        /// Size of the file system.
        pub tbytes: u64,
        /// Free.
        pub fbytes: u64,
        /// Free for the caller.
        pub abytes: u64,
        /// File slots.
        pub tfiles: u64,
        /// Free ones.
        pub ffiles: u64,
        /// Those free for the caller.
        pub afiles: u64,
        /// For how many seconds this is not expected to change.
        pub invarsec: u32,
    }
}

structure! {
    /// What FSINFO tells; sizes in bytes.
    pub struct Fsinfo3Ok {
        /// The object's attributes.
        pub obj_attributes: Option<Fattr3>,
        /// Largest READ.
        pub rtmax: u32,
        /// Preferred READ.
        pub rtpref: u32,
        /// READs should be multiples of this.
        pub rtmult: u32,
        /// Largest WRITE.
        pub wtmax: u32,
        /// Preferred WRITE.
        pub wtpref: u32,
        /// WRITEs should be multiples of this.
        pub wtmult: u32,
        /// Preferred READDIR.
        pub dtpref: u32,
        /// Largest file.
        pub maxfilesize: u64,
        /// How exact times are.
        pub time_delta: NfsTime3,
        /// Bits of what the file system can do.
        pub properties: u32,
    }
}

structure! {
    /// What PATHCONF tells.
    pub struct Pathconf3Ok {
        /// The object's attributes.
        pub obj_attributes: Option<Fattr3>,
        /// Most names of an object.
        pub linkmax: u32,
        /// Longest name in bytes.
        pub name_max: u32,
        /// Whether longer names are refused, not cut.
        pub no_trunc: bool,
        /// Whether only the superuser may give objects away.
        pub chown_restricted: bool,
        /// Whether upper and lower case are the same in names.
        pub case_insensitive: bool,
        /// Whether names keep their case.
        pub case_preserving: bool,
    }
}

structure! {
    /// What COMMIT did.
    pub struct Commit3Ok {
        /// The file.
        pub file_wcc: WccData3,
        /// See [`Write3Ok::verf`].
        pub verf: [u8; 8],
    }
}
