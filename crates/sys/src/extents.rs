//! What a file has of the disk, and shares with others.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// `FS_IOC_FIEMAP`, `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::Ioctl =
    (3u32 << 30 | (size_of::<Header>() as u32) << 16 | (b'f' as u32) << 8 | 0x0b) as libc::Ioctl;
/// What is in memory only is written first.
const FLAG_SYNC: u32 = 1;
const EXTENT_LAST: u32 = 1;
const EXTENT_MERGED: u32 = 0x1000;
const EXTENTS: usize = 64;

/// `struct fiemap` of `linux/fiemap.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

#[repr(C)]
struct Map {
    header: Header,
    extents: [Extent; EXTENTS],
}

/// Whether the first `bytes` of a file are blocks of the disk that were written to, without a hole and
/// without any that are allocated only: what is written over them changes nothing but data.
///
/// # Errors
/// [`Errno::OPNOTSUPP`] if the file system does not tell, and the system call's.
pub fn are_all_written(file: impl AsFd, bytes: u64) -> Result<bool> {
    let mut known = 0;
    while known < bytes {
        let header = Header {
            start: known,
            length: bytes - known,
            flags: FLAG_SYNC,
            extent_count: EXTENTS as u32,
            ..Header::default()
        };
        let mut map = Map { header, extents: [Extent::default(); EXTENTS] };
        // SAFETY: the kernel reads the header and writes it and at most `extent_count` extents behind
        // it, all of which `map` has room for.
        let failed = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FIEMAP, &raw mut map) };
        if failed != 0 {
            return Err(last_errno());
        }
        let found = map.extents.get(..map.header.mapped_extents as usize).ok_or(Errno::OVERFLOW)?;
        let before = known;
        for extent in found {
            let is_written = extent.flags & !(EXTENT_LAST | EXTENT_MERGED) == 0;
            if !is_written || extent.logical > known {
                return Ok(false);
            }
            known = known.max(extent.logical.saturating_add(extent.length));
        }
        if known == before {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `FICLONERANGE`, `_IOW(0x94, 13, struct file_clone_range)`.
const CLONE_RANGE: libc::Ioctl =
    (1u32 << 30 | (size_of::<CloneRange>() as u32) << 16 | 0x94 << 8 | 0x0d) as libc::Ioctl;

/// `struct file_clone_range` of `linux/fs.h`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    source_length: u64,
    target_offset: u64,
}

/// Has a range of one file share the blocks of another's. A length of 0 means to the end of the source.
///
/// # Errors
/// [`Errno::OPNOTSUPP`] where files cannot share blocks, [`Errno::INVAL`] for what is not made of whole
/// blocks, and the system call's.
pub fn clone_range(
    source: impl AsFd,
    source_offset: u64,
    length: u64,
    target: impl AsFd,
    target_offset: u64,
) -> Result<()> {
    let range = CloneRange {
        source: i64::from(source.as_fd().as_raw_fd()),
        source_offset,
        source_length: length,
        target_offset,
    };
    // SAFETY: the kernel reads the structure and nothing else.
    let failed = unsafe { libc::ioctl(target.as_fd().as_raw_fd(), CLONE_RANGE, &raw const range) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_and_what_is_only_allocated_are_seen() {
        let name = format!("steadfast-extents-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        // It goes with its descriptors.
        let again = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        match are_all_written(&file, 1 << 20) {
            Err(Errno::OPNOTSUPP) => return println!("skipped: this file system does not tell"),
            told => assert_eq!(told, Ok(false), "a hole"),
        }
        for at in 0..256 {
            assert_eq!(are_all_written(&file, 1 << 20), Ok(false));
            // Not in order: some file systems have many extents then.
            file.write_all_at(&[1; 4096], (at * 37 % 256) * 4096).unwrap();
        }
        assert_eq!(are_all_written(&file, 1 << 20), Ok(true));
        assert_eq!(are_all_written(&file, (1 << 20) + 1), Ok(false), "beyond its end");
        let more = rustix::fs::FallocateFlags::empty();
        if rustix::fs::fallocate(&file, more, 1 << 20, 1 << 20).is_ok() {
            // What was read of it is in memory, and nowhere else.
            again.read_exact_at(&mut vec![0; 2 << 20], 0).unwrap();
            assert_eq!(are_all_written(&file, 2 << 20), Ok(false), "not written");
        }
    }
    #[test]
    fn cloning_shares_whole_blocks_where_it_can() {
        let name = |which| {
            std::env::temp_dir().join(format!("steadfast-clone-{which}-{}", std::process::id()))
        };
        let open = |path| File::options().read(true).write(true).create_new(true).open(path);
        let (source, target) = (open(name("a")).unwrap(), open(name("b")).unwrap());
        std::fs::remove_file(name("a")).unwrap();
        std::fs::remove_file(name("b")).unwrap();
        source.write_all_at(&[7; 8192], 0).unwrap();
        match clone_range(&source, 4096, 4096, &target, 0) {
            // As on ext4, which has to say so and do nothing. The tests of `posixfs` clone on XFS and btrfs.
            Err(errno @ (Errno::OPNOTSUPP | Errno::NOTTY)) => {
                assert_eq!(target.metadata().unwrap().len(), 0, "{errno}");
                return;
            }
            cloned => cloned.unwrap(),
        }
        let mut found = vec![0; 4096];
        target.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [7; 4096]);
        assert_eq!(clone_range(&source, 1, 4096, &target, 0), Err(Errno::INVAL));
        clone_range(&source, 0, 0, &target, 4096).unwrap();
        assert_eq!(target.metadata().unwrap().len(), 4096 + 8192);
    }
}
