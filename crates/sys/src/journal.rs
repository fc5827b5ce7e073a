//! Whether an ext4 still has its journal, or a btrfs its transactions.
//!
//! When a journal cannot be written, ext4 tells whoever waits for it just then, by `EIO`. After that
//! `syncfs` and `fsync` of a directory succeed (seen with Linux 6.18), until somebody changes
//! something and the kernel notices; before Linux 6.15 `syncfs` does so even then. What was changed
//! since the last commit is lost.
//!
//! A btrfs that could not commit a transaction becomes read-only, and `syncfs` of what is read-only succeeds without a
//! look. An administrator's `remount,ro` has committed all before. XFS tells everybody.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::StatVfsMountFlags;
use rustix::io::{Errno, Result};

use crate::file::last_errno;

const EXT4_MAGIC: u64 = 0xef53;
const BTRFS_MAGIC: u64 = 0x9123_683e;

/// No object has it: `trusted.` is for this machine's root only. To remove it opens a transaction,
/// which an aborted journal refuses, and changes nothing.
const NOBODY_HAS: &str = "trusted.steadfast.none";

/// `EXT4_IOC_CHECKPOINT`, `_IOW('f', 43, __u32)`.
const CHECKPOINT: libc::Ioctl = (1 << 30 | 4 << 16 | (b'f' as u32) << 8 | 0x2b) as libc::Ioctl;

/// `BTRFS_IOC_SYNC`, `_IO(0x94, 8)`.
const BTRFS_SYNC: libc::Ioctl = (0x94 << 8 | 8) as libc::Ioctl;

/// To be asked after a flush that succeeded, by any directory or file of the file system that is
/// not open by its path only: whether the journal could be written, so that the flush is to be
/// believed. Other file systems than ext4 and btrfs need not be asked.
///
/// A process that may not look (without `CAP_SYS_ADMIN`) is told that it could.
///
/// # Errors
/// [`Errno::ROFS`] or [`Errno::IO`] if it could not.
pub fn require_alive(object: impl AsFd) -> Result<()> {
    let object = object.as_fd();
    match rustix::fs::fstatfs(object)?.f_type as u64 {
        EXT4_MAGIC => {}
        BTRFS_MAGIC => return require_transactions(object),
        _ => return Ok(()),
    }
    match rustix::fs::fremovexattr(object, NOBODY_HAS) {
        Ok(()) | Err(Errno::NODATA | Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        // An administrator may have done that, which writes all there is. Before Linux 6.15 the
        // kernel does it when it notices that the journal is lost.
        Err(Errno::ROFS)
            if rustix::fs::fstatvfs(object)?.f_flag.contains(StatVfsMountFlags::RDONLY) =>
        {
            match checkpoint(object) {
                Err(Errno::PERM | Errno::NOTTY | Errno::NODEV | Errno::ROFS) => Ok(()),
                other => other,
            }
        }
        Err(errno) => Err(errno),
    }
}

fn require_transactions(object: BorrowedFd<'_>) -> Result<()> {
    if !rustix::fs::fstatvfs(object)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    // SAFETY: the request takes no argument.
    let failed = unsafe { libc::ioctl(object.as_raw_fd(), BTRFS_SYNC) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Has the journal's contents written in their places; with a journal that is lost, an error. Of a
/// file system that is mounted read-only nothing is in the journal.
fn checkpoint(object: BorrowedFd<'_>) -> Result<()> {
    let flags = 0_u32;
    // SAFETY: the kernel reads the 32 bits that the request says, which live until it returns.
    let failed = unsafe { libc::ioctl(object.as_raw_fd(), CHECKPOINT, &raw const flags) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_well_has_its_journal() {
        for directory in ["/", "/proc", "/dev/shm"] {
            let open = std::fs::File::open(directory).expect("a directory");
            require_alive(&open).expect("nothing is wrong");
        }
    }
}
