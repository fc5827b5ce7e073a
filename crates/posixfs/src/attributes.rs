//! From `statx` to [`Attr`].

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use steadfast_vfs::{Attr, DeviceNumber, FileKind, FsError, Time};

use crate::error::from_errno;

/// Which object of which file system, for as long as a descriptor of it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// What is asked of an object that is not known yet.
const IDENTIFYING: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID).union(StatxFlags::BTIME);

/// `statx` of an open object.
pub(crate) fn stat(object: impl AsFd) -> Result<Statx, FsError> {
    rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(from_errno)
}

/// `statx` of a name in a directory, a symbolic link itself and not what it points to.
pub(crate) fn stat_name(dir: impl AsFd, name: &[u8]) -> Result<Statx, rustix::io::Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(dir, name, flags, IDENTIFYING)
}

pub(crate) fn identity(stat: &Statx) -> Identity {
    Identity {
        device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
        inode: stat.stx_ino,
    }
}

pub(crate) fn kind(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => FileKind::Directory,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::Symlink => FileKind::Symlink,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
        _ => FileKind::Regular,
    }
}

pub(crate) fn attr(stat: &Statx, fsid: u64) -> Attr {
    Attr {
        kind: kind(stat),
        mode: u32::from(stat.stx_mode) & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        device: DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        fsid,
        fileid: stat.stx_ino,
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
    }
}

/// When an object was made, if its file system tells.
pub(crate) fn born(stat: &Statx) -> Option<Time> {
    let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    is_told.then(|| time(&stat.stx_btime))
}

fn time(stamp: &StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanoseconds: stamp.tv_nsec }
}

/// `statx` of an open object, with its mount's number and time of birth.
pub(crate) fn stat_with_mount(object: impl AsFd) -> Result<Statx, FsError> {
    rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, IDENTIFYING).map_err(from_errno)
}
