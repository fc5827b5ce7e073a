//! What a directory is on: its file system, and where that is mounted. A share whose disk is not
//! mounted has a directory too, of the file system below, and is not to be served from that.

use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Result;
use steadfast_sys::volume;

use crate::kinds::{BTRFS_MAGIC, EXT4_MAGIC, RAMFS_MAGIC, TMPFS_MAGIC, XFS_MAGIC};

const OVERLAY_MAGIC: u64 = 0x794c_7630;

/// A file system and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingMount {
    /// Its identifier, where it has one that stays.
    pub uuid: Option<[u8; 16]>,
    /// The kernel's number of its kind.
    pub kind: u64,
    /// Its number by `statfs(2)`; a subvolume of btrfs has one of its own.
    pub fsid: u64,
    /// Where it is mounted.
    pub point: PathBuf,
}

/// What a directory is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Its file system.
    pub mount: Arc<BackingMount>,
    /// The directory's number there.
    pub inode: u64,
}

impl Backing {
    /// What an open directory is on, whose path without symbolic links is this one.
    pub(crate) fn of(open: impl AsFd, path: &Path, inode: u64) -> Result<Self> {
        let kind = rustix::fs::fstatfs(&open)?.f_type as u64 & 0xffff_ffff;
        let fsid = rustix::fs::fstatvfs(&open)?.f_fsid;
        // Those of file systems in memory are new with every mount.
        let is_lasting = !matches!(kind, TMPFS_MAGIC | RAMFS_MAGIC | OVERLAY_MAGIC);
        let uuid = is_lasting.then(|| volume::uuid(&open).ok()).flatten();
        let point = mount_point(path)?.to_owned();
        Ok(Self { mount: Arc::new(BackingMount { uuid, kind, fsid, point }), inode })
    }

    /// Whether a directory that was on this is on the same now. The file system has to be the same
    /// one, and be mounted in the same place; if it is mounted elsewhere, the directory has to be the
    /// same one in it. Of a file system without an identifier only its kind and its place are known.
    pub fn is_still(&self, now: &Self) -> bool {
        let (was, is) = (&*self.mount, &*now.mount);
        if was.kind != is.kind || was.uuid != is.uuid {
            return false;
        }
        was.point == is.point
            || (was.uuid.is_some() && was.fsid == is.fsid && self.inode == now.inode)
    }
}

impl fmt::Display for BackingMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            EXT4_MAGIC => f.write_str("ext4")?,
            XFS_MAGIC => f.write_str("XFS")?,
            BTRFS_MAGIC => f.write_str("btrfs")?,
            TMPFS_MAGIC => f.write_str("tmpfs")?,
            OVERLAY_MAGIC => f.write_str("overlayfs")?,
            kind => write!(f, "a file system of kind {kind:#x}")?,
        }
        if let Some(uuid) = &self.uuid {
            write!(f, " {}", crate::mounted::hyphenated(uuid))?;
        }
        write!(f, " mounted at {}", self.point.display())
    }
}

/// Where the file system of a path without symbolic links is mounted.
fn mount_point(path: &Path) -> Result<&Path> {
    let mut last = path;
    for ancestor in path.ancestors() {
        last = ancestor;
        if is_mount_point(ancestor)? {
            break;
        }
    }
    Ok(last)
}

/// Whether something is mounted at a path.
///
/// # Errors
/// When it cannot be looked at.
pub fn is_mount_point(path: &Path) -> Result<bool> {
    let at = rustix::fs::CWD;
    let stat = rustix::fs::statx(at, path, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Before Linux 5.8.
    let parent = path.join("..");
    let parent = rustix::fs::statx(at, &parent, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    let device = |stat: &rustix::fs::Statx| (stat.stx_dev_major, stat.stx_dev_minor);
    Ok(device(&stat) != device(&parent) || stat.stx_ino == parent.stx_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(uuid: Option<u8>, kind: u64, fsid: u64, point: &str, inode: u64) -> Backing {
        let (uuid, point) = (uuid.map(|byte| [byte; 16]), point.into());
        Backing { mount: Arc::new(BackingMount { uuid, kind, fsid, point }), inode }
    }

    #[test]
    fn a_disk_is_known_by_its_identifier_and_its_place() {
        let was = backing(Some(1), EXT4_MAGIC, 1, "/srv/disk", 2);
        // The directory was restored, or the disk is another device.
        assert!(was.is_still(&backing(Some(1), EXT4_MAGIC, 1, "/srv/disk", 77)));
        // Below the disk.
        assert!(!was.is_still(&backing(Some(9), EXT4_MAGIC, 9, "/", 55)));
        // Another disk, or the same formatted again.
        assert!(!was.is_still(&backing(Some(3), EXT4_MAGIC, 3, "/srv/disk", 2)));
        assert!(!was.is_still(&backing(Some(1), XFS_MAGIC, 1, "/srv/disk", 2)));
        // Mounted a level higher, the same directory.
        assert!(was.is_still(&backing(Some(1), EXT4_MAGIC, 1, "/srv", 2)));
        // A bind mount is gone, of a file system that is below it too.
        assert!(!was.is_still(&backing(Some(1), EXT4_MAGIC, 1, "/", 55)));
    }

    #[test]
    fn a_subvolume_that_is_not_mounted_is_not_its_parent() {
        let was = backing(Some(1), BTRFS_MAGIC, 257, "/home", 256);
        assert!(!was.is_still(&backing(Some(1), BTRFS_MAGIC, 256, "/", 300)));
        assert!(!was.is_still(&backing(Some(1), BTRFS_MAGIC, 256, "/", 256)));
        // It was rolled back to a snapshot.
        assert!(was.is_still(&backing(Some(1), BTRFS_MAGIC, 300, "/home", 256)));
    }

    #[test]
    fn without_an_identifier_kind_and_place_count() {
        let was = backing(None, TMPFS_MAGIC, 5, "/run/share", 1);
        assert!(was.is_still(&backing(None, TMPFS_MAGIC, 6, "/run/share", 1)), "mounted anew");
        assert!(!was.is_still(&backing(None, TMPFS_MAGIC, 5, "/run", 1)));
        assert!(!was.is_still(&backing(Some(4), EXT4_MAGIC, 5, "/run/share", 1)));
    }

    #[test]
    fn mount_points_are_found_from_below() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/sys/kernel")).unwrap());
        assert_eq!(mount_point(Path::new("/proc/1/task")).unwrap(), Path::new("/proc"));
        assert!(is_mount_point(Path::new("/not/there")).is_err());
    }
}
