//! Making writes to the log's file stable without storing when it was changed.
//!
//! ext4 without a journal stores a file's inode with each write that is to be stable (`O_DSYNC`), if the
//! time of its change is another than before: since Linux 6.13, while files are served, it is each time.
//! That is a write to the disk more, and the time of one, for nothing: the file was written through when
//! it was made, and a record says itself which one it is. What is written around the page cache is with
//! the device when the write returns; an `fsync` of whatever file or directory has ext4 without a journal
//! flush the device (Linux 6.5 and later). So a directory is flushed instead, which seldom changes.
//!
//! No interface promises that. It is done only where it is known to be so, and seen to be: the
//! kernel counts what it has a device flush. What moves the file's blocks meanwhile (`e4defrag`) takes what
//! is logged in the next half minute away from it, if the power fails then.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags};
use steadfast_sys::{extents, file};

use super::device::{flushes_of, is_ext4_without_journal, needs_flushes};
use super::mutation::{self, Mutation};

/// How often a flush is to be seen at the device before it is relied on.
const FLUSHES_SEEN: usize = 4;
/// No more inodes are in one block (4 KiB, 128 bytes each). Who flushes an inode stores what others of its
/// block have changed.
const INODES_OF_A_BLOCK: u64 = 32;

/// Writes to a file, and flushes its device.
#[derive(Debug)]
pub(super) struct DeviceFlush {
    /// The log, open without `O_DSYNC`.
    file: File,
    directory: File,
}

impl DeviceFlush {
    /// If writes to this file, which was opened around the page cache, can be made stable so.
    ///
    /// # Errors
    /// When its file system cannot be flushed, or an earlier write to the file was lost.
    pub(super) fn of(path: &Path, opened: &File) -> io::Result<Option<Self>> {
        let facts = rustix::fs::statx(opened, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let device = rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor);
        // What the device has in another form than the file goes through the page cache.
        let other_forms =
            StatxAttributes::ENCRYPTED | StatxAttributes::VERITY | StatxAttributes::COMPRESSED;
        let is_its_data = !facts.stx_attributes.intersects(other_forms);
        // A device that can write around its cache needs no flush, and the inode is not stored either.
        if !is_its_data || !is_ext4_without_journal(opened, device) || !needs_flushes(device) {
            return Ok(None);
        }
        opened.sync_all()?;
        // Where the file is, too.
        rustix::fs::syncfs(opened)?;
        // What is allocated only, or not yet, as of a copy, would change its inode.
        if !extents::are_all_written(opened, facts.stx_size).unwrap_or(false) {
            return Ok(None);
        }
        let path = path.canonicalize()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags((OFlags::DIRECT | OFlags::CLOEXEC).bits() as i32);
        let file = options.open(&path)?;
        let metadata = file.metadata()?;
        if (metadata.dev(), metadata.ino()) != (device, facts.stx_ino) {
            return Ok(None);
        }
        let Some(directory) = directory_of(&path, device, facts.stx_ino)? else {
            return Ok(None);
        };
        let this = Self { file, directory };
        for _ in 0..FLUSHES_SEEN {
            let before = flushes_of(device);
            this.flush()?;
            if before.is_none() || flushes_of(device) <= before {
                return Ok(None);
            }
        }
        Ok(Some(this))
    }

    /// Writes; what was written is stable when this returns.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        // If somebody has the file in memory, the kernel may have gone through the page cache.
        file::write_back(&self.file, offset, bytes.len() as u64)?;
        if mutation::is_on(Mutation::UnflushedDevice) { Ok(()) } else { self.flush() }
    }

    fn flush(&self) -> io::Result<()> {
        self.directory.sync_data()
    }
}

/// The directory of a file, or one above it on the same device whose inode is in another block than the
/// file's, if there is one.
fn directory_of(path: &Path, device: u64, inode: u64) -> io::Result<Option<File>> {
    let block = |inode: u64| inode.saturating_sub(1) / INODES_OF_A_BLOCK;
    let mut nearest = None;
    for directory in path.ancestors().skip(1) {
        let directory = File::open(directory)?;
        let metadata = directory.metadata()?;
        if metadata.dev() != device {
            break;
        }
        if block(metadata.ino()) != block(inode) {
            return Ok(Some(directory));
        }
        nearest = nearest.or(Some(directory));
    }
    Ok(nearest)
}
