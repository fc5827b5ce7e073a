//! How much a subvolume of btrfs may have: its qgroup of level 0, which the kernel enforces.
//!
//! Use and limit are read in sysfs, which needs no privileges and no search in the quota tree. What is
//! used counts what was written and is not on the disk yet: the kernel has reserved it.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode as Permissions, OFlags};
use rustix::io::Errno;
use steadfast_sys::{btrfs, journal, volume};

use crate::kinds::{BTRFS_MAGIC, EXT4_MAGIC, XFS_MAGIC};
use crate::mark_file;
use crate::mount_lines;
use crate::mounted::hyphenated;

/// Where the kernel tells of btrfs.
const SYSFS: &str = "/sys/fs/btrfs";
/// Of what qgroups have reserved: data, and metadata in two ways.
const RESERVED: [&CStr; 3] = [c"rsv_data", c"rsv_meta_pertrans", c"rsv_meta_prealloc"];
const REFERENCED: &CStr = c"referenced";

/// The qgroup of a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qgroup {
    /// Of its file system.
    pub uuid: [u8; 16],
    /// The subvolume's number.
    pub subvolume: u64,
}

/// How much a subvolume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QgroupUse {
    /// Bytes that it refers to, and that are reserved for it.
    pub used_bytes: u64,
    /// Bytes that it may refer to; `None` without a limit.
    pub limit_bytes: Option<u64>,
}

/// Why a directory cannot have a size.
#[derive(Debug, thiserror::Error)]
pub enum NoQgroup {
    /// Its file system is another one.
    #[error(
        "it is on {0}, and a size is enforced on btrfs only, by quotas of subvolumes: leave `size` out, \
         or move the share to btrfs"
    )]
    OtherKind(&'static str),
    /// It is a directory in a subvolume.
    #[error(
        "it is a directory within a subvolume of btrfs, and a size is of a whole subvolume: make it one \
         (`btrfs subvolume create`), or leave `size` out"
    )]
    NoSubvolume,
    /// It is that of all others.
    #[error(
        "it is the top-level subvolume of btrfs, by which limits of the others are set: share a subvolume \
         of it instead (`btrfs subvolume create`), or leave `size` out"
    )]
    TopLevel,
    /// Quotas are off.
    #[error(
        "quotas of its btrfs are off: `btrfs quota enable {}` turns them on for the whole file system, \
         and counts what is there, which may take long; then `steadfast reload`",
        .0.display()
    )]
    Off(PathBuf),
    /// Nothing counts this subvolume.
    #[error(
        "nothing counts its subvolume: `btrfs qgroup create 0/{0} {dir}`, and `btrfs quota rescan {dir}`; \
         then `steadfast reload`", dir = .1.display()
    )]
    Missing(u64, PathBuf),
    /// The kernel does not tell.
    #[error("its quota cannot be read: {0}")]
    Unreadable(io::Error),
    /// The kernel would tell in sysfs, which is not there.
    #[error(
        "its quota cannot be read: {SYSFS} is not there (is /sys mounted, and whole in a container?)"
    )]
    Hidden,
}

impl fmt::Display for Qgroup {
    /// As btrfs(8) has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{}", self.subvolume)
    }
}

impl Qgroup {
    /// That of a directory, which has to be a subvolume's root where quotas are on.
    ///
    /// # Errors
    /// Why it has none.
    pub fn of(directory: &Path) -> Result<Self, NoQgroup> {
        let open = open_directory(directory).map_err(NoQgroup::Unreadable)?;
        let qgroup = Self::of_open(&open)?;
        if qgroup.subvolume == mark_file::BTRFS_TOP_LEVEL {
            return Err(NoQgroup::TopLevel);
        }
        match qgroup.place().join("referenced").metadata() {
            Ok(_) => Ok(qgroup),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(if qgroup.all().is_dir() {
                    NoQgroup::Missing(qgroup.subvolume, directory.to_owned())
                } else if qgroup.is_mounted() {
                    NoQgroup::Off(directory.to_owned())
                } else {
                    NoQgroup::Hidden
                })
            }
            Err(error) => Err(NoQgroup::Unreadable(error)),
        }
    }

    /// That of an open directory, whether or not quotas are on.
    fn of_open(open: &File) -> Result<Self, NoQgroup> {
        let unreadable = |errno: Errno| NoQgroup::Unreadable(errno.into());
        let kind = rustix::fs::fstatfs(open).map_err(unreadable)?.f_type as u64 & 0xffff_ffff;
        match kind {
            BTRFS_MAGIC => {}
            EXT4_MAGIC => return Err(NoQgroup::OtherKind("ext4")),
            XFS_MAGIC => return Err(NoQgroup::OtherKind("XFS")),
            _ => return Err(NoQgroup::OtherKind("another file system")),
        }
        if open.metadata().map_err(NoQgroup::Unreadable)?.ino() != btrfs::SUBVOLUME_ROOT {
            return Err(NoQgroup::NoSubvolume);
        }
        let uuid = volume::uuid(open).map_err(unreadable)?;
        Ok(Self { uuid, subvolume: btrfs::subvolume(open).map_err(unreadable)? })
    }

    /// Where the kernel tells of all qgroups of its file system.
    fn all(&self) -> PathBuf {
        Path::new(SYSFS).join(hyphenated(&self.uuid)).join("qgroups")
    }

    fn place(&self) -> PathBuf {
        self.all().join(format!("0_{}", self.subvolume))
    }

    /// How much it has, and may have.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if quotas are off by now or the subvolume is gone, and what the kernel
    /// says.
    pub fn usage(&self) -> io::Result<QgroupUse> {
        let open = self.open()?;
        let referenced = number_in(&open, REFERENCED)?;
        let reserved = RESERVED.iter().filter_map(|name| number_in(&open, name).ok());
        let used_bytes = reserved.fold(referenced, u64::saturating_add);
        Ok(QgroupUse { used_bytes, limit_bytes: limit_in(&open)? })
    }

    /// How much it may have; `None` without a limit.
    ///
    /// # Errors
    /// As [`Qgroup::usage`].
    pub fn limit(&self) -> io::Result<Option<u64>> {
        limit_in(&self.open()?)
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.place(), flags, Permissions::empty())?)
    }

    /// Whether its file system is mounted.
    pub fn is_mounted(&self) -> bool {
        Path::new(SYSFS).join(hyphenated(&self.uuid)).is_dir()
    }

    /// Whether what is there is being counted, has yet to be, or the kernel has lost count: it has done so
    /// where a large snapshot was deleted, or a subvolume was put into a qgroup. Then a limit need not hold.
    pub fn is_inconsistent(&self) -> bool {
        is_inconsistent(&self.uuid)
    }

    /// Sets how many bytes it may have. `directory` is to be its subvolume's root; if it is another one by
    /// now, nothing is changed.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the directory is another one, and what the kernel says.
    pub fn set_limit(&self, directory: &Path, bytes: u64) -> io::Result<()> {
        let open = open_directory(directory)?;
        if Self::of_open(&open).ok().as_ref() != Some(self) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(set_limit(&open, self.subvolume, Some(bytes))?)
    }

    /// Takes its limit away, wherever its file system is mounted: perhaps still at `known`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it is gone, [`io::ErrorKind::NotConnected`] if its file system is not
    /// mounted, and what the kernel says.
    pub fn lift(&self, known: &Path) -> io::Result<()> {
        let open = directory_of(&self.uuid, known)?;
        Ok(set_limit(&open, self.subvolume, None)?)
    }
}

/// As [`Qgroup::is_inconsistent`], of all of a file system.
pub fn is_inconsistent(uuid: &[u8; 16]) -> bool {
    let path = Path::new(SYSFS).join(hyphenated(uuid)).join("qgroups/inconsistent");
    number(&path).is_ok_and(|flag| flag != 0)
}

/// Makes all stable of a file system, and with that which limits it has.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] if it is not mounted, and what the kernel says.
pub fn sync_limits(uuid: &[u8; 16], known: &Path) -> io::Result<()> {
    let open = directory_of(uuid, known)?;
    rustix::fs::syncfs(&open)?;
    Ok(journal::require_alive(&open)?)
}

/// Sets a limit, or takes it away, of a subvolume of the file system of an open directory. The change itself
/// needs room in the subvolume of the directory by which it is asked for, which is not that one: it may
/// have none left.
pub(crate) fn set_limit(open: impl AsFd, subvolume: u64, bytes: Option<u64>) -> Result<(), Errno> {
    match mark_file::root(&open) {
        Ok(top_level) => btrfs::set_limit(top_level, subvolume, bytes),
        // It may not open by handles.
        Err(_) => btrfs::set_limit(open, subvolume, bytes),
    }
}

/// Opens a directory, whatever a client may have put in its place: opening a FIFO would wait for ever.
fn open_directory(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::open(directory, flags | OFlags::CLOEXEC, Permissions::empty())?.into())
}

/// Some directory of a file system: `known`, where it was, or where it is mounted now.
pub(crate) fn directory_of(uuid: &[u8; 16], known: &Path) -> io::Result<File> {
    let others = || mount_lines::loggable_points().unwrap_or_default().into_iter();
    std::iter::once(known.to_owned())
        .chain(std::iter::once(()).flat_map(|()| others()))
        .filter_map(|directory| open_directory(&directory).ok())
        .find(|open| volume::uuid(open).is_ok_and(|found| found == *uuid))
        .ok_or_else(|| io::ErrorKind::NotConnected.into())
}

fn number(path: &Path) -> io::Result<u64> {
    parsed(std::fs::read_to_string(path)?.as_bytes())
}

/// As [`number`], of a name in an open directory, by as few calls as can be: fifteen thousand shares may be
/// told at once.
fn number_in(directory: &OwnedFd, name: &CStr) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = rustix::fs::openat(directory, name, flags, Permissions::empty())?;
    let mut text = [0; 32];
    let length = rustix::io::read(&open, &mut text)?;
    parsed(text.get(..length).unwrap_or_default())
}

fn limit_in(directory: &OwnedFd) -> io::Result<Option<u64>> {
    // 0 where it has none.
    Ok(Some(number_in(directory, c"max_referenced")?).filter(|bytes| *bytes != 0))
}

fn parsed(text: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}
