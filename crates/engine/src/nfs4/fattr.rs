//! How attributes are told (`fattr4`, RFC 8881 §5): one encoder for GETATTR, READDIR and VERIFY.

use std::sync::Arc;

use steadfast_vfs::{Attr, DeviceNumber, FileKind, FsInfo, FsStatistics, PathLimits, Time};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, NfsStat4};
use steadfast_xdr::{Encode, Writer};

use super::fattr_decode::settable_by_exclusive;
use super::{LEASE_S, acl, wishes};
use crate::change_attribute::change_of;
use crate::compound::Versions;
use crate::wire_handle::SealedHandle;

/// Attributes of the whole file system: its space, its kind, its limits.
pub(super) const OF_SPACE: Bitmap4 = Bitmap4::of(&[
    Attribute4::FilesAvail,
    Attribute4::FilesFree,
    Attribute4::FilesTotal,
    Attribute4::SpaceAvail,
    Attribute4::SpaceFree,
    Attribute4::SpaceTotal,
]);
pub(super) const OF_KIND: Bitmap4 = Bitmap4::of(&[
    Attribute4::SupportedAttrs,
    Attribute4::AclSupport,
    Attribute4::LinkSupport,
    Attribute4::SymlinkSupport,
    Attribute4::Homogeneous,
    Attribute4::MaxFileSize,
    Attribute4::TimeDelta,
    Attribute4::CloneBlkSize,
    Attribute4::XattrSupport,
]);
pub(super) const OF_LIMITS: Bitmap4 = Bitmap4::of(&[
    Attribute4::CaseInsensitive,
    Attribute4::CasePreserving,
    Attribute4::MaxLink,
    Attribute4::MaxName,
]);

/// What is told of every object in all minor versions.
const OF_ALL_VERSIONS: Bitmap4 = Bitmap4::of(&[
    Attribute4::SupportedAttrs,
    Attribute4::Type,
    Attribute4::FhExpireType,
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::LinkSupport,
    Attribute4::SymlinkSupport,
    Attribute4::NamedAttr,
    Attribute4::FsId,
    Attribute4::UniqueHandles,
    Attribute4::LeaseTime,
    Attribute4::RdattrError,
    Attribute4::Acl,
    Attribute4::AclSupport,
    Attribute4::CanSetTime,
    Attribute4::CaseInsensitive,
    Attribute4::CasePreserving,
    Attribute4::ChownRestricted,
    Attribute4::FileHandle,
    Attribute4::FileId,
    Attribute4::FilesAvail,
    Attribute4::FilesFree,
    Attribute4::FilesTotal,
    Attribute4::Homogeneous,
    Attribute4::MaxFileSize,
    Attribute4::MaxLink,
    Attribute4::MaxName,
    Attribute4::MaxRead,
    Attribute4::MaxWrite,
    Attribute4::Mode,
    Attribute4::NoTrunc,
    Attribute4::NumLinks,
    Attribute4::Owner,
    Attribute4::OwnerGroup,
    Attribute4::RawDev,
    Attribute4::SpaceAvail,
    Attribute4::SpaceFree,
    Attribute4::SpaceTotal,
    Attribute4::SpaceUsed,
    Attribute4::TimeAccess,
    Attribute4::TimeAccessSet,
    Attribute4::TimeDelta,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
    Attribute4::TimeModifySet,
    Attribute4::MountedOnFileId,
    Attribute4::SuppAttrExclCreat,
]);

/// What is told from minor version 2 on.
const OF_VERSION_2: Bitmap4 = OF_ALL_VERSIONS.or(&Bitmap4::of(&[
    Attribute4::CloneBlkSize,
    Attribute4::SpaceFreed,
    Attribute4::ChangeAttrType,
    Attribute4::ModeUmask,
    Attribute4::XattrSupport,
    Attribute4::OpenArguments,
]));

/// The attributes that a minor version has here; `Acl` only where the file system has ACLs.
pub(super) fn supported(minor: u32) -> Bitmap4 {
    if Versions::FROM_2.has(minor) {
        return OF_VERSION_2;
    }
    match minor {
        0 => OF_ALL_VERSIONS.without(&Bitmap4::of(&[Attribute4::SuppAttrExclCreat])),
        _ => OF_ALL_VERSIONS,
    }
}

pub(super) const ACL: Bitmap4 = Bitmap4::of(&[Attribute4::Acl]);

/// Attributes that can only be set: nobody may ask for them (RFC 8881 §5.6).
const ONLY_SET: Bitmap4 =
    Bitmap4::of(&[Attribute4::TimeAccessSet, Attribute4::TimeModifySet, Attribute4::ModeUmask]);

/// Whether attributes are asked for that can only be set.
pub(super) fn asks_for_only_set(wanted: &Bitmap4, minor: u32) -> bool {
    wanted.and(&supported(minor)).has_any(&ONLY_SET)
}

/// What the holder of a delegation to write changes without the server.
const CHANGED_UNSEEN: Bitmap4 = Bitmap4::of(&[
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::SpaceUsed,
    Attribute4::TimeAccess,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);

/// Whether attributes are asked for that the holder of a delegation to write may know better.
pub(super) fn may_be_behind(wanted: &Bitmap4) -> bool {
    wanted.has_any(&CHANGED_UNSEEN)
}

/// `NFS4_CHANGE_TYPE_IS_UNDEFINED`: the change attribute is the ctime, of which the clock may be set
/// back, and two changes within a tick may have the same.
const CHANGE_TYPE: u32 = 4;

/// The file system of an object as NFSv4 sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FsId {
    pub(super) major: u64,
    pub(super) minor: u64,
}

/// The pseudo file system. No share has this number.
pub(super) const PSEUDO: FsId = FsId { major: 0, minor: 1 };

/// What is known of an object whose attributes are told.
pub(super) struct Known<'k> {
    pub(super) attr: &'k Attr,
    pub(super) change: u64,
    pub(super) fsid: FsId,
    /// Its number in the file system that it is mounted in, or its own.
    pub(super) mounted_on: u64,
    pub(super) handle: &'k SealedHandle,
    /// Its access control list as it is encoded, if it is wanted and there is one.
    pub(super) acl: Option<&'k [u8]>,
    pub(super) owners: &'k Owners,
    pub(super) of_file_system: &'k OfFileSystem,
}

/// The names by which owner and group of an object are told; `None`: by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owners {
    pub(super) user: Option<Arc<str>>,
    pub(super) group: Option<Arc<str>>,
}

impl Owners {
    /// Both are told by number.
    pub(super) const NUMBERS: Self = Self { user: None, group: None };
}

/// What is told of a file system; what was not asked for is the least.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfFileSystem {
    pub(super) statistics: FsStatistics,
    pub(super) info: Option<FsInfo>,
    pub(super) limits: Option<PathLimits>,
    /// Largest READ and WRITE in bytes.
    pub(super) transfer_bytes_max: u32,
    /// The minor version in which it is told.
    pub(super) minor: u32,
}

/// The change attribute of an object of a share.
pub(super) fn change(attr: &Attr) -> u64 {
    change_of(attr.ctime)
}

/// Appends the attributes that are wanted and supported, and says which.
pub(super) fn encode(w: &mut Writer<'_>, wanted: &Bitmap4, known: &Known<'_>) -> Bitmap4 {
    let mut told = wanted.and(&supported(known.of_file_system.minor));
    if known.acl.is_none() {
        told = told.without(&ACL);
    }
    told.encode(w);
    w.opaque_of(|w| {
        for (index, word) in told.words().into_iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let number = index as u32 * 32 + rest.trailing_zeros();
                rest &= rest - 1;
                encode_one(w, number, known);
            }
        }
    });
    told
}

/// Appends that the attributes of an object could not be had; of READDIR's entries alone.
pub(super) fn encode_error(w: &mut Writer<'_>, wanted: &Bitmap4, why: NfsStat4, mounted_on: u64) {
    let told = wanted.and(&Bitmap4::of(&[Attribute4::RdattrError, Attribute4::MountedOnFileId]));
    told.encode(w);
    w.opaque_of(|w| {
        if told.has(Attribute4::RdattrError) {
            w.u32(why as u32);
        }
        if told.has(Attribute4::MountedOnFileId) {
            w.u64(mounted_on);
        }
    });
}

fn encode_one(w: &mut Writer<'_>, number: u32, known: &Known<'_>) {
    const fn is(attribute: Attribute4) -> u32 {
        attribute as u32
    }
    let attr = known.attr;
    if number < is(Attribute4::FilesAvail) {
        return encode_first(w, number, known);
    }
    let OfFileSystem { statistics, info, limits, transfer_bytes_max, minor } = known.of_file_system;
    match number {
        n if n == is(Attribute4::FilesAvail) => w.u64(statistics.available_files),
        n if n == is(Attribute4::FilesFree) => w.u64(statistics.free_files),
        n if n == is(Attribute4::FilesTotal) => w.u64(statistics.total_files),
        n if n == is(Attribute4::Homogeneous) => w.bool(info.is_none_or(|it| it.is_homogeneous)),
        n if n == is(Attribute4::MaxFileSize) => {
            w.u64(info.map_or(i64::MAX.cast_unsigned(), |it| it.file_bytes_max));
        }
        n if n == is(Attribute4::MaxLink) => w.u32(limits.map_or(u32::MAX, |it| it.links_max)),
        n if n == is(Attribute4::MaxName) => w.u32(limits.map_or(255, |it| it.name_bytes_max)),
        n if n == is(Attribute4::MaxRead) || n == is(Attribute4::MaxWrite) => {
            w.u64(u64::from(*transfer_bytes_max));
        }
        n if n == is(Attribute4::Mode) => w.u32(attr.mode & 0o7777),
        n if n == is(Attribute4::NoTrunc) => w.bool(true),
        n if n == is(Attribute4::NumLinks) => w.u32(attr.links),
        n if n == is(Attribute4::Owner) => owner(w, known.owners.user.as_deref(), attr.uid),
        n if n == is(Attribute4::OwnerGroup) => owner(w, known.owners.group.as_deref(), attr.gid),
        n if n == is(Attribute4::RawDev) => {
            let DeviceNumber { major, minor } = attr.device;
            w.u32(major);
            w.u32(minor);
        }
        n if n == is(Attribute4::SpaceAvail) => w.u64(statistics.available_bytes),
        n if n == is(Attribute4::SpaceFree) => w.u64(statistics.free_bytes),
        n if n == is(Attribute4::SpaceTotal) => w.u64(statistics.total_bytes),
        n if n == is(Attribute4::SpaceUsed) => w.u64(attr.used),
        n if n == is(Attribute4::TimeAccess) => time(w, attr.atime),
        n if n == is(Attribute4::TimeDelta) => {
            let granularity = info.map_or(1, |it| it.time_granularity_ns);
            let seconds = i64::from(granularity / 1_000_000_000);
            time(w, Time { seconds, nanoseconds: granularity % 1_000_000_000 });
        }
        n if n == is(Attribute4::TimeMetadata) => time(w, attr.ctime),
        n if n == is(Attribute4::TimeModify) => time(w, attr.mtime),
        n if n == is(Attribute4::MountedOnFileId) => w.u64(known.mounted_on),
        n if n == is(Attribute4::SuppAttrExclCreat) => settable_by_exclusive(*minor).encode(w),
        n if n == is(Attribute4::CloneBlkSize) => w.u32(info.map_or(0, |it| it.clone_block_bytes)),
        n if n == is(Attribute4::SpaceFreed) => {
            // Who has another name keeps it.
            w.u64(if attr.links > 1 { 0 } else { attr.used });
        }
        n if n == is(Attribute4::ChangeAttrType) => w.u32(CHANGE_TYPE),
        n if n == is(Attribute4::XattrSupport) => w.bool(info.is_some_and(|it| it.has_xattrs)),
        n if n == is(Attribute4::OpenArguments) => wishes::TAKEN.encode(w),
        n => debug_assert!(false, "attribute {n} is supported and not told"),
    }
}

/// The attributes up to the file's number.
fn encode_first(w: &mut Writer<'_>, number: u32, known: &Known<'_>) {
    const fn is(attribute: Attribute4) -> u32 {
        attribute as u32
    }
    let attr = known.attr;
    let OfFileSystem { info, limits, minor, .. } = known.of_file_system;
    match number {
        n if n == is(Attribute4::SupportedAttrs) => {
            let all = supported(*minor);
            let has_acls = info.is_some_and(|it| it.has_acls);
            if has_acls { all } else { all.without(&ACL) }.encode(w);
        }
        n if n == is(Attribute4::Type) => w.u32(kind(attr.kind)),
        n if n == is(Attribute4::FhExpireType) => {
            let is_persistent = 0;
            w.u32(is_persistent);
        }
        n if n == is(Attribute4::Change) => w.u64(known.change),
        n if n == is(Attribute4::Size) => w.u64(attr.size),
        n if n == is(Attribute4::LinkSupport) => w.bool(info.is_some_and(|it| it.has_links)),
        n if n == is(Attribute4::SymlinkSupport) => w.bool(info.is_some_and(|it| it.has_symlinks)),
        n if n == is(Attribute4::NamedAttr) => w.bool(false),
        n if n == is(Attribute4::FsId) => {
            w.u64(known.fsid.major);
            w.u64(known.fsid.minor);
        }
        // One object has a handle by each share that has it.
        n if n == is(Attribute4::UniqueHandles) => w.bool(false),
        n if n == is(Attribute4::LeaseTime) => w.u32(LEASE_S),
        n if n == is(Attribute4::RdattrError) => w.u32(NfsStat4::Ok as u32),
        n if n == is(Attribute4::Acl) => w.fixed_opaque(known.acl.unwrap_or_default()),
        n if n == is(Attribute4::AclSupport) => {
            let has_acls = info.is_some_and(|it| it.has_acls);
            w.u32(if has_acls { acl::SUPPORT } else { 0 });
        }
        n if n == is(Attribute4::CanSetTime) => w.bool(true),
        n if n == is(Attribute4::CaseInsensitive) => {
            w.bool(limits.is_some_and(|it| it.is_case_insensitive));
        }
        n if n == is(Attribute4::CasePreserving) => {
            w.bool(limits.is_none_or(|it| it.preserves_case));
        }
        n if n == is(Attribute4::ChownRestricted) => w.bool(true),
        n if n == is(Attribute4::FileHandle) => w.opaque(known.handle.as_bytes()),
        n if n == is(Attribute4::FileId) => w.u64(attr.fileid),
        n => debug_assert!(false, "attribute {n} is supported and not told"),
    }
}

/// The number of a kind (`nfs_ftype4`).
fn kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

fn time(w: &mut Writer<'_>, time: Time) {
    w.i64(time.seconds);
    w.u32(time.nanoseconds);
}

/// A user or group by the name that is given, or by number (RFC 8881 §5.9): so nobody must know names.
fn owner(w: &mut Writer<'_>, name: Option<&str>, number: u32) {
    match name {
        Some(name) => w.opaque(name.as_bytes()),
        None => decimal(w, number),
    }
}

fn decimal(w: &mut Writer<'_>, number: u32) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 || at == 0 {
            break;
        }
    }
    w.opaque(digits.get(at..).unwrap_or(&[]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_in_decimal() {
        for number in [0, 7, 10, 65_534, u32::MAX] {
            let mut bytes = Vec::new();
            decimal(&mut Writer::new(&mut bytes), number);
            let text = number.to_string();
            assert_eq!(bytes.get(4..4 + text.len()), Some(text.as_bytes()));
            assert_eq!(bytes.len() % 4, 0);
        }
    }
}
