//! Limits of btrfs subvolumes (`linux/btrfs.h`).

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file::last_errno;

/// The number of a subvolume's root directory (`BTRFS_FIRST_FREE_OBJECTID`).
pub const SUBVOLUME_ROOT: u64 = 256;

/// `BTRFS_IOC_INO_LOOKUP`, `_IOWR(0x94, 18, struct btrfs_ioctl_ino_lookup_args)`.
const INO_LOOKUP: libc::Ioctl =
    (3u32 << 30 | (size_of::<InoLookup>() as u32) << 16 | 0x94 << 8 | 0x12) as libc::Ioctl;
/// `BTRFS_IOC_QGROUP_LIMIT`, `_IOR(0x94, 43, struct btrfs_ioctl_qgroup_limit_args)`.
const QGROUP_LIMIT: libc::Ioctl =
    (2u32 << 30 | (size_of::<QgroupLimit>() as u32) << 16 | 0x94 << 8 | 0x2b) as libc::Ioctl;
/// `BTRFS_QGROUP_LIMIT_MAX_RFER`: the limit of what a subvolume refers to is meant.
const LIMITS_REFERENCED: u64 = 1;
/// That a limit is taken away (`CLEAR_VALUE` of `fs/btrfs/qgroup.c`).
const NO_LIMIT: u64 = u64::MAX;

/// `struct btrfs_ioctl_ino_lookup_args`
#[repr(C)]
struct InoLookup {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

/// `struct btrfs_ioctl_qgroup_limit_args`
#[repr(C)]
#[derive(Default)]
struct QgroupLimit {
    qgroup: u64,
    flags: u64,
    referenced_max: u64,
    exclusive_max: u64,
    referenced_reserved: u64,
    exclusive_reserved: u64,
}

/// The number of the subvolume that an open file or directory is in. Needs no privileges.
///
/// # Errors
/// [`rustix::io::Errno::NOTTY`] where it is not on btrfs, and the system call's.
pub fn subvolume(object: impl AsFd) -> Result<u64> {
    // Tree 0 is that of the object; its own root directory is found without a name.
    let mut lookup = InoLookup { tree: 0, object: SUBVOLUME_ROOT, name: [0; 4080] };
    // SAFETY: the kernel reads and writes the structure and nothing else.
    let failed = unsafe { libc::ioctl(object.as_fd().as_raw_fd(), INO_LOOKUP, &raw mut lookup) };
    if failed == 0 { Ok(lookup.tree) } else { Err(last_errno()) }
}

/// Sets how many bytes a subvolume of the file system of an open directory may refer to, or with `None`
/// that there is no limit. Its other limits stay.
///
/// # Errors
/// [`rustix::io::Errno::NOTCONN`] or [`rustix::io::Errno::INVAL`] where quotas are off,
/// [`rustix::io::Errno::NOENT`] if it has no qgroup, [`rustix::io::Errno::PERM`] without
/// `CAP_SYS_ADMIN`, and the system call's.
pub fn set_limit(directory: impl AsFd, subvolume: u64, bytes: Option<u64>) -> Result<()> {
    let limit = QgroupLimit {
        // Of level 0: its number is the subvolume's.
        qgroup: subvolume,
        flags: LIMITS_REFERENCED,
        referenced_max: bytes.unwrap_or(NO_LIMIT),
        ..QgroupLimit::default()
    };
    // SAFETY: the kernel reads the structure and nothing else.
    let failed =
        unsafe { libc::ioctl(directory.as_fd().as_raw_fd(), QGROUP_LIMIT, &raw const limit) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_is_no_btrfs_has_no_subvolumes() {
        let proc = std::fs::File::open("/proc").unwrap();
        assert_eq!(subvolume(&proc), Err(Errno::NOTTY));
        assert_eq!(set_limit(&proc, 256, None), Err(Errno::NOTTY));
        assert_eq!((size_of::<InoLookup>(), size_of::<QgroupLimit>()), (4096, 48));
    }
}
