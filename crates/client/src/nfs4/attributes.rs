//! Attributes of NFSv4 as a server tells them (`fattr4`, RFC 8881 §5).

use steadfast_wire::nfs4::{
    Ace4, Attribute4, Bitmap4, Fattr4, FileType4, HANDLE_BYTES_MAX, NfsStat4, NfsTime4,
    OPAQUE_BYTES_MAX, OpenArguments4,
};
use steadfast_xdr::{Decode, Reader, XdrError};

use crate::object::FileHandle;

/// Most entries of an access control list; the RFC has no bound.
const ACL_ENTRIES_MAX: u32 = 4096;

/// Which file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FsId4 {
    /// The server's number of it.
    pub major: u64,
    /// The rest of that.
    pub minor: u64,
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclEntry4 {
    /// Whether it allows, denies, or only logs.
    pub kind: u32,
    /// How it is inherited.
    pub flag: u32,
    /// Which rights.
    pub access_mask: u32,
    /// Whose.
    pub who: Vec<u8>,
}

/// A value of an attribute.
trait Value: Sized {
    fn read(r: &mut Reader<'_>) -> Result<Self, XdrError>;
}

macro_rules! decoded {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn read(r: &mut Reader<'_>) -> Result<Self, XdrError> {
                Decode::decode(r)
            }
        }
    )*};
}

decoded! { u32 u64 bool Bitmap4 FileType4 NfsStat4 NfsTime4 OpenArguments4 }

impl Value for Vec<u8> {
    fn read(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.opaque(OPAQUE_BYTES_MAX).map(<[u8]>::to_vec)
    }
}

impl Value for FileHandle {
    fn read(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.opaque(HANDLE_BYTES_MAX).map(|bytes| Self(bytes.to_vec()))
    }
}

impl Value for FsId4 {
    fn read(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { major: r.u64()?, minor: r.u64()? })
    }
}

impl Value for (u32, u32) {
    fn read(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok((r.u32()?, r.u32()?))
    }
}

impl Value for Vec<AclEntry4> {
    fn read(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let length = r.u32()?;
        if length > ACL_ENTRIES_MAX {
            return Err(XdrError::TooLong { length, max: ACL_ENTRIES_MAX });
        }
        let mut entries = Self::new();
        for _ in 0..length {
            let Ace4 { kind, flag, access_mask, who } = Ace4::decode(r)?;
            entries.push(AclEntry4 { kind, flag, access_mask, who: who.to_vec() });
        }
        Ok(entries)
    }
}

/// Declares the attributes that are read, in the order of their numbers.
macro_rules! attributes {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $number:ident;)*) => {
        /// Attributes of an object: those that the server told. Sizes are in bytes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Attributes4 {
            $($(#[$meta])* pub $field: Option<$type>,)*
        }

        impl Attributes4 {
            /// The attributes that can be read.
            pub const READABLE: Bitmap4 = Bitmap4::of(&[$(Attribute4::$number),*]);

            /// Reads the values of these attributes, and no more.
            ///
            /// # Errors
            /// When the values are other than the attributes say, or one of an attribute that
            /// this client does not know.
            pub fn read(fattr: &Fattr4<'_>) -> Result<Self, XdrError> {
                let unknown = fattr.attrmask.without(&Self::READABLE);
                if !unknown.is_empty() {
                    return Err(XdrError::BadValue {
                        what: "attribute that can be read",
                        value: lowest(&unknown),
                    });
                }
                let mut r = Reader::new(fattr.attr_vals);
                let mut told = Self::default();
                $(if fattr.attrmask.has(Attribute4::$number) {
                    told.$field = Some(Value::read(&mut r)?);
                })*
                match u32::try_from(r.remaining()) {
                    Ok(0) => Ok(told),
                    _ => Err(XdrError::TooLong {
                        length: fattr.attr_vals.len() as u32,
                        max: r.position() as u32,
                    }),
                }
            }

            /// Which there are.
            pub fn told(&self) -> Bitmap4 {
                let mut told = Bitmap4::EMPTY;
                $(if self.$field.is_some() {
                    told = told.or(&Bitmap4::of(&[Attribute4::$number]));
                })*
                told
            }
        }

        #[cfg(test)]
        const IN_ORDER: &[Attribute4] = &[$(Attribute4::$number),*];
    };
}

attributes! {
    /// Which attributes the object has.
    supported: Bitmap4 = SupportedAttrs;
    /// What it is.
    file_type: FileType4 = Type;
    /// When handles expire.
    handle_expiry: u32 = FhExpireType;
    /// Another number after each change.
    change: u64 = Change;
    /// Length.
    size: u64 = Size;
    /// Whether the file system has hard links.
    has_links: bool = LinkSupport;
    /// Whether it has symbolic links.
    has_symlinks: bool = SymlinkSupport;
    /// Whether the object has named attributes.
    has_named_attributes: bool = NamedAttr;
    /// Which file system it is on.
    fsid: FsId4 = FsId;
    /// Whether two handles are two objects.
    has_unique_handles: bool = UniqueHandles;
    /// Seconds of a lease.
    lease_seconds: u32 = LeaseTime;
    /// Why READDIR could not tell the others.
    rdattr_error: NfsStat4 = RdattrError;
    /// Access control list.
    acl: Vec<AclEntry4> = Acl;
    /// Which entries of lists are supported.
    acl_support: u32 = AclSupport;
    /// Whether the file has been archived.
    is_archived: bool = Archive;
    /// Whether times can be set.
    can_set_time: bool = CanSetTime;
    /// Whether names that differ in case alone are one.
    is_case_insensitive: bool = CaseInsensitive;
    /// Whether the case of names is kept.
    preserves_case: bool = CasePreserving;
    /// Whether only privileged callers may give files away.
    is_chown_restricted: bool = ChownRestricted;
    /// Its handle.
    handle: FileHandle = FileHandle;
    /// Its number in the file system.
    fileid: u64 = FileId;
    /// File slots that the caller may use.
    available_files: u64 = FilesAvail;
    /// Free file slots.
    free_files: u64 = FilesFree;
    /// All file slots.
    total_files: u64 = FilesTotal;
    /// Whether it is hidden.
    is_hidden: bool = Hidden;
    /// Whether all objects of the file system have the same limits.
    is_homogeneous: bool = Homogeneous;
    /// Largest size of a file.
    file_bytes_max: u64 = MaxFileSize;
    /// Most links.
    links_max: u32 = MaxLink;
    /// Longest name.
    name_bytes_max: u32 = MaxName;
    /// Largest READ.
    read_bytes_max: u64 = MaxRead;
    /// Largest WRITE.
    write_bytes_max: u64 = MaxWrite;
    /// Type of its contents.
    mime_type: Vec<u8> = MimeType;
    /// Permissions.
    mode: u32 = Mode;
    /// Whether too long names are refused rather than cut.
    has_no_truncation: bool = NoTrunc;
    /// Hard links.
    links: u32 = NumLinks;
    /// Owner.
    owner: Vec<u8> = Owner;
    /// Group.
    owner_group: Vec<u8> = OwnerGroup;
    /// Bytes beyond which the quota refuses.
    quota_hard: u64 = QuotaAvailHard;
    /// Bytes beyond which the quota warns.
    quota_soft: u64 = QuotaAvailSoft;
    /// Bytes that count for the quota.
    quota_used: u64 = QuotaUsed;
    /// Major and minor number of a device node.
    device: (u32, u32) = RawDev;
    /// Bytes that the caller may use.
    available_bytes: u64 = SpaceAvail;
    /// Free bytes.
    free_bytes: u64 = SpaceFree;
    /// All bytes.
    total_bytes: u64 = SpaceTotal;
    /// Bytes that the object uses.
    used_bytes: u64 = SpaceUsed;
    /// Whether it is a file of the system.
    is_system: bool = System;
    /// Last read.
    atime: NfsTime4 = TimeAccess;
    /// Last backup.
    backup_time: NfsTime4 = TimeBackup;
    /// When it was made.
    create_time: NfsTime4 = TimeCreate;
    /// Smallest difference of times.
    time_delta: NfsTime4 = TimeDelta;
    /// Last change of attributes.
    ctime: NfsTime4 = TimeMetadata;
    /// Last change of the data.
    mtime: NfsTime4 = TimeModify;
    /// Its number in the file system that it is mounted in.
    mounted_on_fileid: u64 = MountedOnFileId;
    /// Which attributes an exclusive create can set.
    set_by_exclusive_create: Bitmap4 = SuppAttrExclCreat;
    /// What ranges of CLONE are multiples of, in bytes.
    clone_block_bytes: u32 = CloneBlkSize;
    /// Bytes that would be free if it were removed.
    freed_bytes: u64 = SpaceFreed;
    /// How the change attribute changes.
    change_type: u32 = ChangeAttrType;
    /// Whether it can have extended attributes.
    has_xattrs: bool = XattrSupport;
    /// What OPEN takes.
    open_arguments: OpenArguments4 = OpenArguments;
}

/// The attributes that Linux asks for of an object when it looks at it (4.1, `nfs4_fattr_bitmap`).
pub const LINUX_ATTRIBUTES: Bitmap4 = Bitmap4::of(&[
    Attribute4::Type,
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::FsId,
    Attribute4::FileId,
    Attribute4::Mode,
    Attribute4::NumLinks,
    Attribute4::Owner,
    Attribute4::OwnerGroup,
    Attribute4::RawDev,
    Attribute4::SpaceUsed,
    Attribute4::TimeAccess,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
    Attribute4::MountedOnFileId,
]);

/// The lowest number in a set; above all words, where what lies there is not known.
fn lowest(set: &Bitmap4) -> u32 {
    let mut number = 0;
    for word in set.words() {
        if word != 0 {
            return number + word.trailing_zeros();
        }
        number += u32::BITS;
    }
    number
}

#[cfg(test)]
mod tests {
    use steadfast_xdr::{Encode, Writer};

    use super::*;

    #[test]
    fn attributes_are_read_in_the_order_of_their_numbers() {
        assert!(IN_ORDER.is_sorted_by_key(|attribute| *attribute as u32));
        // All but where else a file system is, labels, and what can only be set.
        let left_out = [
            Attribute4::FsLocations,
            Attribute4::TimeAccessSet,
            Attribute4::TimeModifySet,
            Attribute4::SecLabel,
            Attribute4::ModeUmask,
        ];
        for attribute in Attribute4::ALL {
            let is_read = Attributes4::READABLE.has(*attribute);
            assert_eq!(is_read, !left_out.contains(attribute), "{attribute:?}");
        }
    }

    /// Type, size, mode, owner and mtime of a file, by hand.
    const FILE: &[u8] = b"\0\0\0\x02\0\0\0\x12\0\x20\0\x12\0\0\0\x24\
        \0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\x01\xa4\0\0\0\x041000\
        \xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x07";

    #[test]
    fn values_are_read_as_rfc_8881_says() {
        let fattr = Fattr4::decode(&mut Reader::new(FILE)).unwrap();
        let told = Attributes4::read(&fattr).unwrap();
        let expected = Attributes4 {
            file_type: Some(FileType4::Regular),
            size: Some(5),
            mode: Some(0o644),
            owner: Some(b"1000".to_vec()),
            mtime: Some(NfsTime4 { seconds: -1, nseconds: 7 }),
            ..Attributes4::default()
        };
        assert_eq!(told, expected);
        assert_eq!(told.told(), fattr.attrmask);
        for cut in 0..fattr.attr_vals.len() {
            let short = Fattr4 { attr_vals: &fattr.attr_vals[..cut], ..fattr };
            assert!(Attributes4::read(&short).is_err(), "{cut}");
        }
        let long = [fattr.attr_vals, &[0; 4]].concat();
        assert!(Attributes4::read(&Fattr4 { attr_vals: &long, ..fattr }).is_err());
    }

    #[test]
    fn attributes_that_are_not_known_are_refused() {
        for (words, number) in [([1 << 24, 0, 0], 24), ([0, 1 << 22, 0], 54), ([0, 0, 1], 64)] {
            let attrmask = Bitmap4::from_words(words);
            let error = Attributes4::read(&Fattr4 { attrmask, attr_vals: &[0; 8] }).unwrap_err();
            let XdrError::BadValue { value, .. } = error else { panic!("{error}") };
            assert_eq!(value, number);
        }
        let mut above = Vec::new();
        let mut w = Writer::new(&mut above);
        for word in [4, 0, 0, 0, 1] {
            w.u32(word);
        }
        0_u32.encode(&mut w);
        let fattr = Fattr4::decode(&mut Reader::new(&above)).unwrap();
        assert!(Attributes4::read(&fattr).is_err());
    }
}
