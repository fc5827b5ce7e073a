//! What a file system can do, as far as NFS tells its clients (FSINFO, PATHCONF).
//!
//! The kernel has no call that answers all of it: it is asked where it answers (the size of names and
//! blocks, the times that an inode keeps, flags of directories), and what remains is looked up by the
//! kind of file system, as pathconf(3) does. Nothing is written to find out.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, StatFs, Statx, StatxFlags};
use rustix::io::Errno;
use steadfast_sys::volume;
use steadfast_sys::xattr;
use steadfast_vfs::{FileKind, FsError};

use crate::attributes;
use crate::error::from_errno;
use crate::kinds::{BTRFS_MAGIC, EXT4_MAGIC, RAMFS_MAGIC, TMPFS_MAGIC, XFS_MAGIC};

const FAT_MAGIC: u64 = 0x4d44;
const EXFAT_MAGIC: u64 = 0x2011_bab0;
const NTFS3_MAGIC: u64 = 0x7366_746e;
const HFS_MAGIC: u64 = 0x4244;
const HFS_PLUS_MAGIC: u64 = 0x482b;
const UDF_MAGIC: u64 = 0x1501_3346;
const ISO_MAGIC: u64 = 0x9660;
const SQUASHFS_MAGIC: u64 = 0x7371_7368;
const REISERFS_MAGIC: u64 = 0x5265_4973;
const JFFS2_MAGIC: u64 = 0x72b6;
const MINIX_MAGICS: [u64; 5] = [0x137f, 0x138f, 0x2468, 0x2478, 0x4d5a];
const F2FS_MAGIC: u64 = 0xf2f5_2010;
const SMB_MAGICS: [u64; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];

const SECOND_NS: u32 = 1_000_000_000;
/// What Windows counts in.
const WINDOWS_NS: u32 = 100;
/// Names in FAT without long ones: 12 characters, of which each may be 6 bytes.
const SHORT_NAME_BYTES: i64 = 12 * 6;
const CASEFOLD: u32 = 0x4000_0000;
/// A name of a user's extended attribute: any will do.
const PROBE: &CStr = c"user.steadfast";

/// What does not change about a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// To how many ns its times are kept.
    pub(crate) time_granularity_ns: u32,
    pub(crate) file_bytes_max: u64,
    /// 1 if it has no hard links.
    pub(crate) links_max: u32,
    pub(crate) has_symlinks: bool,
    /// Whether names that differ in case alone are one, in all directories.
    pub(crate) is_case_insensitive: bool,
    /// Whether that may be so in some of them ([`folds_case`]).
    pub(crate) may_fold_case: bool,
    pub(crate) preserves_case: bool,
    /// In what units files can share blocks; 0 if they cannot.
    pub(crate) clone_block_bytes: u32,
}

impl Traits {
    /// The traits of the file system that `object` is on, which statfs(2) tells this of.
    pub(crate) fn of(object: impl AsFd, facts: &StatFs) -> Result<Self, FsError> {
        let stat = attributes::stat_with_mount(&object)?;
        let mut traits = Self::of_kind(facts, &stat);
        if facts.f_type as u64 & 0xffff_ffff == XFS_MAGIC {
            let asks = |ask: fn(OwnedFd) -> rustix::io::Result<bool>| {
                readable(&object).and_then(|open| ask(open).map_err(from_errno)).unwrap_or(false)
            };
            traits.is_case_insensitive = asks(volume::xfs_folds_case);
            if asks(volume::xfs_shares_blocks) {
                traits.clone_block_bytes = block_bytes(facts);
            }
        }
        Ok(traits)
    }

    fn of_kind(facts: &StatFs, stat: &Statx) -> Self {
        let plain = Self {
            time_granularity_ns: 1,
            file_bytes_max: i64::MAX as u64,
            links_max: i32::MAX as u32,
            has_symlinks: true,
            is_case_insensitive: false,
            may_fold_case: false,
            preserves_case: true,
            clone_block_bytes: 0,
        };
        let seconds = Self { time_granularity_ns: SECOND_NS, ..plain };
        match facts.f_type as u64 & 0xffff_ffff {
            EXT4_MAGIC => Self {
                // An inode that has room for its time of birth has room for nanoseconds.
                time_granularity_ns: if has_birth(stat) { 1 } else { SECOND_NS },
                // 2^32 blocks of a file are addressed; of the others, what an offset can say.
                file_bytes_max: u64::try_from(facts.f_bsize)
                    .unwrap_or(4096)
                    .saturating_mul(u64::from(u32::MAX)),
                links_max: 65_000,
                may_fold_case: true,
                ..plain
            },
            BTRFS_MAGIC => {
                Self { links_max: 65_535, clone_block_bytes: block_bytes(facts), ..plain }
            }
            F2FS_MAGIC | TMPFS_MAGIC => Self { may_fold_case: true, ..plain },
            XFS_MAGIC | RAMFS_MAGIC => plain,
            FAT_MAGIC => Self {
                // Of the time of a file's last change; others are kept to a day, or a hundredth.
                time_granularity_ns: 2 * SECOND_NS,
                file_bytes_max: u64::from(u32::MAX),
                is_case_insensitive: true,
                preserves_case: facts.f_namelen > SHORT_NAME_BYTES,
                ..without_links(plain)
            },
            EXFAT_MAGIC => Self {
                time_granularity_ns: 10_000_000,
                is_case_insensitive: true,
                ..without_links(plain)
            },
            HFS_MAGIC => Self { is_case_insensitive: true, ..without_links(seconds) },
            HFS_PLUS_MAGIC => Self { is_case_insensitive: true, ..seconds },
            NTFS3_MAGIC => Self { time_granularity_ns: WINDOWS_NS, ..plain },
            UDF_MAGIC => Self { time_granularity_ns: 1_000, ..plain },
            ISO_MAGIC | SQUASHFS_MAGIC | REISERFS_MAGIC | JFFS2_MAGIC => seconds,
            magic if MINIX_MAGICS.contains(&magic) => seconds,
            magic if SMB_MAGICS.contains(&magic) => {
                Self { time_granularity_ns: WINDOWS_NS, ..plain }
            }
            _ => Self { time_granularity_ns: seen_granularity(stat), ..plain },
        }
    }
}

fn block_bytes(facts: &StatFs) -> u32 {
    u32::try_from(facts.f_bsize).unwrap_or(4096)
}

fn without_links(traits: Traits) -> Traits {
    Traits { links_max: 1, has_symlinks: false, ..traits }
}

fn has_birth(stat: &Statx) -> bool {
    stat.stx_mask & StatxFlags::BTIME.bits() != 0
}

/// To how many ns times are kept, as an object's show: nobody can set a time of change or birth, so
/// these are seldom round by chance.
fn seen_granularity(stat: &Statx) -> u32 {
    let birth = if has_birth(stat) { stat.stx_btime.tv_nsec } else { 0 };
    let seen = [stat.stx_ctime.tv_nsec, birth];
    let is_kept_to = |granularity: &u32| seen.iter().all(|ns| ns % granularity == 0);
    [SECOND_NS, WINDOWS_NS].into_iter().find(is_kept_to).unwrap_or(1)
}

/// Whether a directory has names that differ in case alone be one.
pub(crate) fn folds_case(object: impl AsFd) -> bool {
    let flags =
        readable(object).and_then(|open| rustix::fs::ioctl_getflags(open).map_err(from_errno));
    flags.is_ok_and(|flags| flags.bits() & CASEFOLD != 0)
}

/// Whether the file system of `object` keeps users' attributes. An object that can have none, like a
/// symbolic link, does not show that: then `is_known` tells whether such file systems have them.
pub(crate) fn has_user_attributes(object: impl AsFd, is_known: bool) -> bool {
    let kind = attributes::stat(&object).map(|stat| attributes::kind(&stat));
    if !kind.is_ok_and(can_have_user_attributes) {
        return is_known;
    }
    // Who may not read them is told so only where there are any.
    matches!(
        xattr::value(object, PROBE, &mut []),
        Ok(_) | Err(Errno::NODATA | Errno::RANGE | Errno::ACCESS | Errno::PERM)
    )
}

/// Whether objects of a kind can have extended attributes of users.
pub(crate) fn can_have_user_attributes(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// A directory open for reading; an error for what is none.
fn readable(object: impl AsFd) -> Result<OwnedFd, FsError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(object, c".", flags, Mode::empty()).map_err(from_errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a kind with names of so many bytes, on which an object has these times of change and birth.
    fn of(magic: u64, name_bytes: i64, change_ns: u32, birth_ns: Option<u32>) -> Traits {
        let root = std::fs::File::open("/").unwrap();
        let mut facts = rustix::fs::fstatfs(&root).unwrap();
        facts.f_type = magic as _;
        facts.f_bsize = 1024;
        facts.f_namelen = name_bytes;
        let mut stat = attributes::stat(&root).unwrap();
        stat.stx_ctime.tv_nsec = change_ns;
        stat.stx_mask &= !StatxFlags::BTIME.bits();
        if let Some(ns) = birth_ns {
            stat.stx_mask |= StatxFlags::BTIME.bits();
            stat.stx_btime.tv_nsec = ns;
        }
        Traits::of_kind(&facts, &stat)
    }

    #[test]
    fn times_are_kept_to_what_the_file_system_has() {
        for (magic, change_ns, birth_ns, granularity_ns) in [
            (EXT4_MAGIC, 0, None, SECOND_NS),
            (EXT4_MAGIC, 5, Some(7), 1),
            (XFS_MAGIC, 0, None, 1),
            (BTRFS_MAGIC, 0, None, 1),
            (FAT_MAGIC, 0, None, 2 * SECOND_NS),
            (NTFS3_MAGIC, 700, Some(100), 100),
            (MINIX_MAGICS[2], 0, None, SECOND_NS),
            // None that is known.
            (1, 0, None, SECOND_NS),
            (1, 0, Some(500), 100),
            (1, 123_400, Some(500), 100),
            (1, 123_456, None, 1),
            (1, 0, Some(123_456), 1),
        ] {
            let traits = of(magic, 255, change_ns, birth_ns);
            assert_eq!(traits.time_granularity_ns, granularity_ns, "{magic:x} {change_ns}");
        }
    }

    #[test]
    fn limits_are_those_of_the_kind() {
        let ext4 = of(EXT4_MAGIC, 255, 0, None);
        assert_eq!(ext4.file_bytes_max, 1024 * 0xffff_ffff);
        assert!(ext4.may_fold_case && !ext4.is_case_insensitive && ext4.links_max == 65_000);
        let (long, short) = (of(FAT_MAGIC, 1530, 0, None), of(FAT_MAGIC, 72, 0, None));
        assert!(long.preserves_case && !short.preserves_case);
        assert!(long.is_case_insensitive && long.links_max == 1 && !long.has_symlinks);
        assert_eq!(of(XFS_MAGIC, 255, 0, None).links_max, i32::MAX as u32);
    }
}
