//! The file in which a file system carries the intent log's mark.
//!
//! It is a file of fixed size in the root directory of the file system itself, whatever part of it
//! is mounted where: that directory is found by its handle, through any open directory of the file
//! system. So a bind mount, a private mount of a share's directory or a mounted subvolume leads to
//! the same file at every start. Of btrfs it is the root of the top-level subvolume: the log has one
//! table entry for all subvolumes, as one flush is of all of them. (A subvolume that is replaced by a
//! snapshot has other handles, so that records of the replaced one never reach it.)
//!
//! The file belongs to the server's user, mode 0600, and is written in place, so that no directory
//! changes except when it is made. Clients do not see it: its name in that directory is nobody's
//! ([`crate::marks`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use steadfast_recovery::{FileSystemIdentity, ObjectKey};
use steadfast_sys::handle::{self, KernelHandle};
use steadfast_sys::volume;
use steadfast_vfs::{FsError, StorageHandle};

use crate::error::from_errno;
use crate::handle_form;
use crate::kinds::{BTRFS_MAGIC, EXT4_MAGIC, XFS_MAGIC};
use crate::mount_lines;

/// Its name in the root directory of the file system.
pub(crate) const NAME: &str = ".steadfast-mark";
/// As large as it is made at once, so that later writes change data alone.
const BYTES: usize = 8192;

/// `enum fid_type` of `linux/exportfs.h`.
const INODE32_GENERATION: i32 = 1;
const XFS_INODE64_GENERATION: i32 = 0x81;
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;
const EXT4_ROOT_INODE: u32 = 2;
const BTRFS_FIRST_INODE: u64 = 256;
pub(crate) const BTRFS_TOP_LEVEL: u64 = 5;

/// The handle of the root directory of the file system of an open directory.
fn root_handle(open: impl AsFd) -> Result<KernelHandle, Errno> {
    let kind = rustix::fs::fstatfs(&open)?.f_type as u64 & 0xffff_ffff;
    let handle = match kind {
        // Generation 0 stands for any, here and below.
        EXT4_MAGIC => KernelHandle::new(
            INODE32_GENERATION,
            &[EXT4_ROOT_INODE.to_ne_bytes(), 0_u32.to_ne_bytes()].concat(),
        ),
        BTRFS_MAGIC => {
            let numbers = [BTRFS_FIRST_INODE.to_ne_bytes(), BTRFS_TOP_LEVEL.to_ne_bytes()];
            KernelHandle::new(
                BTRFS_WITHOUT_PARENT,
                &[&numbers.concat()[..], &0_u32.to_ne_bytes()].concat(),
            )
        }
        XFS_MAGIC => {
            let (inode, generation) = volume::xfs_root(&open)?;
            KernelHandle::new(
                XFS_INODE64_GENERATION,
                &[&inode.to_ne_bytes()[..], &generation.to_ne_bytes()].concat(),
            )
        }
        _ => None,
    };
    handle.ok_or(Errno::OPNOTSUPP)
}

/// The root directory of the file system of an open directory.
pub(crate) fn root(open: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    handle::open(&open, &root_handle(&open)?, flags)
}

/// The number of the subvolume that an object of a btrfs is in (`struct btrfs_fid` of the kernel's
/// `fs/btrfs/export.h`, after the object's own number).
pub(crate) fn btrfs_subvolume(handle: &StorageHandle) -> Option<u64> {
    /// `FILEID_BTRFS_WITHOUT_PARENT` to `FILEID_BTRFS_WITH_PARENT_ROOT`.
    const KINDS: std::ops::RangeInclusive<i32> = 0x4d..=0x4f;
    let kernel =
        handle_form::kernel_handle(handle).filter(|kernel| KINDS.contains(&kernel.kind))?;
    let number = kernel.as_bytes().get(8..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*number))
}

/// What clients know the root directory of a file system by, wherever it is shared.
pub(crate) fn root_key(open: impl AsFd) -> Option<ObjectKey> {
    let kernel = handle::of(root(open).ok()?).ok()?;
    handle_form::from_kernel(0, &kernel).map(ObjectKey)
}

/// Opens the mark; `None` if there is none.
fn open_mark(open: impl AsFd, flags: OFlags) -> Result<Option<File>, Errno> {
    let root = root(open)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match rustix::fs::openat(&root, NAME, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn of_io(error: &io::Error) -> FsError {
    from_errno(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Whether what has the name is a file that only the server's user can have made so.
fn is_trusted(file: &File) -> Result<bool, FsError> {
    let found = file.metadata().map_err(|error| of_io(&error))?;
    let own = rustix::process::geteuid().as_raw();
    let of_others = found.mode() & 0o077;
    Ok(found.is_file() && found.uid() == own && of_others == 0)
}

/// The bytes of the mark that the file system of an open directory carries; none if there is none.
///
/// # Errors
/// The file system's; [`FsError::AccessDenied`] if others than the server's user may have written it.
pub(crate) fn read(open: impl AsFd) -> Result<Vec<u8>, FsError> {
    let Some(file) = open_mark(open, OFlags::RDONLY).map_err(from_errno)? else {
        return Ok(Vec::new());
    };
    if !is_trusted(&file)? {
        return Err(FsError::AccessDenied);
    }
    let mut bytes = vec![0; BYTES];
    let mut length = 0;
    while let Some(room) = bytes.get_mut(length..).filter(|room| !room.is_empty()) {
        match file.read_at(room, length as u64).map_err(|error| of_io(&error))? {
            0 => break,
            count => length += count,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Writes into the mark of the file system of an open directory.
pub(crate) fn write(open: impl AsFd, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
    let file = open_mark(open, OFlags::RDWR | OFlags::CREATE).map_err(from_errno)?;
    let file = file.ok_or(FsError::Stale)?;
    let found = file.metadata().map_err(|error| of_io(&error))?;
    if !found.is_file() {
        return Err(FsError::Exists);
    }
    if !is_trusted(&file)? {
        // Restored from a copy with other attributes, or somebody's own.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(from_errno)?;
        let (own, group) = (rustix::process::geteuid(), rustix::process::getegid());
        rustix::fs::fchown(&file, Some(own), Some(group)).map_err(from_errno)?;
    }
    if found.len() < BYTES as u64 {
        let rest = vec![0; BYTES - found.len() as usize];
        file.write_all_at(&rest, found.len()).map_err(|error| of_io(&error))?;
    }
    file.write_all_at(bytes, offset).map_err(|error| of_io(&error))
}

/// A file system that is mounted: where, which it is, and the bytes of its mark.
pub type MarkedFileSystem = (PathBuf, FileSystemIdentity, Vec<u8>);

/// The file systems that are mounted, and whose changes could be logged. Those that cannot be looked
/// at are left out.
pub fn marked_file_systems() -> Vec<MarkedFileSystem> {
    let points = mount_lines::loggable_points().unwrap_or_default();
    let look = |point: PathBuf| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(&point, flags, Mode::empty()).ok()?;
        let uuid = volume::uuid(&open).ok()?;
        let kind = rustix::fs::fstatfs(&open).ok()?.f_type as u32;
        let mark = read(&open).unwrap_or_default();
        Some((point, FileSystemIdentity { uuid, kind }, mark))
    };
    points.into_iter().filter_map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subvolume_of_an_object_of_a_btrfs_is_in_its_handle() {
        let bytes = [257_u64.to_ne_bytes(), 1000_u64.to_ne_bytes(), [9; 8]].concat();
        let of = |kind, bytes: &[u8], mount| {
            let kernel = KernelHandle::new(kind, bytes).expect("short");
            btrfs_subvolume(&handle_form::from_kernel(mount, &kernel).expect("short"))
        };
        for kind in 0x4d..=0x4f {
            assert_eq!(of(kind, &bytes[..20], 0), Some(1000));
            assert_eq!(of(kind, &bytes, 7), Some(1000));
        }
        assert_eq!(of(1, &bytes, 0), None);
        assert_eq!(of(0x4d, &bytes[..15], 0), None);
    }
}
