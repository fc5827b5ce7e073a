//! What a file system is known by.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// `_IOR(type, number, size)` of `asm-generic/ioctl.h`.
const fn read_request(kind: u8, number: u8, bytes: usize) -> libc::Ioctl {
    (2 << 30 | (bytes as u32) << 16 | (kind as u32) << 8 | number as u32) as libc::Ioctl
}

/// `struct fsuuid2` of `linux/fs.h`.
const GENERIC: libc::Ioctl = read_request(0x15, 0, 17);
/// `struct btrfs_ioctl_fs_info_args`: 1024 bytes, the identifier behind two numbers of 64 bits.
const BTRFS: libc::Ioctl = read_request(0x94, 31, 1024);
const BTRFS_UUID_AT: usize = 16;
/// `struct xfs_fsop_geom_v1`: 112 bytes, the identifier behind eight numbers of 32 and four of 64.
const XFS: libc::Ioctl = read_request(b'X', 100, 112);
const XFS_UUID_AT: usize = 64;
/// Behind the identifier: two numbers of 32 bits, and the version.
const XFS_FLAGS_AT: usize = 92;
/// `XFS_FSOP_GEOM_FLAGS_DIRV2CI`.
const XFS_FOLDS_CASE: u32 = 1 << 13;
/// `XFS_FSOP_GEOM_FLAGS_REFLINK`.
const XFS_SHARES_BLOCKS: u32 = 1 << 20;
/// `struct fsuuid` of ext4: its length, flags, and as many bytes as the length says.
const EXT4: libc::Ioctl = read_request(b'f', 44, 8);
const EXT4_UUID_AT: usize = 8;

const BUFFER_BYTES: usize = 1024;

fn ask(object: impl AsFd, request: libc::Ioctl, buffer: &mut [u8; BUFFER_BYTES]) -> Result<()> {
    // SAFETY: the kernel writes for each of the requests above as many bytes as its number says,
    // for ext4 24, for XFS_BULKSTAT one answer of 192 behind its head of 64 as the head asks for one,
    // all less than the buffer has.
    let failed = unsafe { libc::ioctl(object.as_fd().as_raw_fd(), request, buffer.as_mut_ptr()) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `XFS_IOC_BULKSTAT`: `struct xfs_bulkstat_req`, whose size counts the head of 64 bytes alone.
const XFS_BULKSTAT: libc::Ioctl = read_request(b'X', 127, 64);
/// `XFS_BULK_IREQ_SPECIAL`: `ino` is one of those that stand for others.
const XFS_BULK_SPECIAL: u32 = 1 << 1;
const XFS_SPECIAL_ROOT: u64 = 1;
/// Of the answer, `struct xfs_bulkstat`: where its inode number and its generation are.
const XFS_INODE_AT: usize = 64;
const XFS_GENERATION_AT: usize = 64 + 64;

/// The number and the generation of the root directory of the XFS of an open object, whatever of it
/// is mounted.
///
/// # Errors
/// Where it is no XFS, before Linux 5.6, and without `CAP_SYS_ADMIN`.
pub fn xfs_root(object: impl AsFd) -> Result<(u64, u32)> {
    let mut buffer = [0; BUFFER_BYTES];
    // `struct xfs_bulk_ireq`: ino, flags, icount, ocount, agno, zeros; one answer follows.
    buffer[..8].copy_from_slice(&XFS_SPECIAL_ROOT.to_ne_bytes());
    buffer[8..12].copy_from_slice(&XFS_BULK_SPECIAL.to_ne_bytes());
    buffer[12..16].copy_from_slice(&1_u32.to_ne_bytes());
    ask(object.as_fd(), XFS_BULKSTAT, &mut buffer)?;
    let answers = u32::from_ne_bytes([buffer[16], buffer[17], buffer[18], buffer[19]]);
    let inode = buffer.get(XFS_INODE_AT..).and_then(|rest| rest.first_chunk());
    let generation = buffer.get(XFS_GENERATION_AT..).and_then(|rest| rest.first_chunk());
    match (answers, inode, generation) {
        (1, Some(inode), Some(generation)) => {
            Ok((u64::from_ne_bytes(*inode), u32::from_ne_bytes(*generation)))
        }
        _ => Err(Errno::NOTSUP),
    }
}

/// The identifier that was written into the file system of an open object when it was made.
///
/// # Errors
/// [`Errno::NOTTY`] or [`Errno::OPNOTSUPP`] if it has none or does not tell.
pub fn uuid(object: impl AsFd) -> Result<[u8; 16]> {
    let object = object.as_fd();
    let mut last = Errno::NOTTY;
    // Since Linux 6.9 all are asked alike.
    for (request, at) in
        [(GENERIC, 1), (BTRFS, BTRFS_UUID_AT), (XFS, XFS_UUID_AT), (EXT4, EXT4_UUID_AT)]
    {
        let mut buffer = [0; BUFFER_BYTES];
        if request == EXT4 {
            // How many bytes there is room for.
            buffer[..4].copy_from_slice(&16_u32.to_ne_bytes());
        }
        match ask(object, request, &mut buffer) {
            Ok(()) if request == GENERIC && buffer[0] != 16 => {}
            Ok(()) => {
                let uuid = buffer.get(at..).and_then(|rest| rest.first_chunk());
                if let Some(uuid) = uuid.filter(|uuid| **uuid != [0; 16]) {
                    return Ok(*uuid);
                }
            }
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

/// Whether the XFS file system of an open directory was made so that names which differ in the case of
/// ASCII alone are one.
///
/// # Errors
/// The system call's.
pub fn xfs_folds_case(object: impl AsFd) -> Result<bool> {
    Ok(xfs_flags(object)? & XFS_FOLDS_CASE != 0)
}

/// Whether files of the XFS file system of an open object can share blocks.
///
/// # Errors
/// The system call's.
pub fn xfs_shares_blocks(object: impl AsFd) -> Result<bool> {
    Ok(xfs_flags(object)? & XFS_SHARES_BLOCKS != 0)
}

fn xfs_flags(object: impl AsFd) -> Result<u32> {
    let mut buffer = [0; BUFFER_BYTES];
    ask(object, XFS, &mut buffer)?;
    let flags = buffer.get(XFS_FLAGS_AT..).and_then(|rest| rest.first_chunk());
    Ok(flags.map_or(0, |flags| u32::from_ne_bytes(*flags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_what_the_device_has() {
        let root = std::fs::File::open("/").unwrap();
        match uuid(&root) {
            Ok(uuid) => assert_ne!(uuid, [0; 16]),
            Err(errno) => println!("skipped: / does not tell its identifier: {errno}"),
        }
        let proc = std::fs::File::open("/proc").unwrap();
        assert!(uuid(&proc).is_err());
    }
}
