//! Making writes to the log's file stable without storing when it was changed.
//!
//! ext4 without a journal stores a file's inode with each write that is to be stable (`O_DSYNC`),
//! if its time of change is another, which while files are served it is each time: a write to the
//! disk more, and the time of one. Nothing of what the log wrote is in it: the file was written
//! through when it was made. What is written around the page cache is with the device when the write
//! returns, and an `fsync` of whatever file or directory has ext4 without a journal flush the
//! device. So the directory is flushed instead, whose inode changes when something in it gets a
//! name or loses one.
//!
//! No interface promises that, so it is done only where it is known to be so, and seen to be: the
//! kernel counts what it has a device flush.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, SeekFrom, Statx, StatxAttributes, StatxFlags};

use super::device::{flushes_of, is_ext4_without_journal};

/// How often a flush is to be seen at the device before it is relied on.
const FLUSHES_SEEN: usize = 4;

/// Writes to a file, and flushes its device.
#[derive(Debug)]
pub(super) struct DeviceFlush {
    /// The log, open without `O_DSYNC`.
    file: File,
    directory: File,
}

impl DeviceFlush {
    /// If writes to this file, which was opened around the page cache, can be made stable so.
    pub(super) fn of(path: &Path, opened: &File) -> Option<Self> {
        let status = facts(opened).ok()?;
        let number = rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor);
        let is_plain = !status.stx_attributes.intersects(
            // What is not as the device has it is written through the page cache.
            StatxAttributes::ENCRYPTED | StatxAttributes::VERITY | StatxAttributes::COMPRESSED,
        );
        if !is_plain || !is_ext4_without_journal(opened, number) {
            return None;
        }
        // What a copy of it has left out would be allocated when it is written to.
        opened.sync_all().ok()?;
        if rustix::fs::seek(opened, SeekFrom::Hole(0)).ok()? < status.stx_size {
            return None;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags((OFlags::DIRECT | OFlags::CLOEXEC).bits() as i32)
            .open(path)
            .ok()?;
        let metadata = file.metadata().ok()?;
        let directory = File::open(path.parent()?).ok()?;
        if (metadata.dev(), metadata.ino()) != (number, status.stx_ino)
            || directory.metadata().ok()?.dev() != number
        {
            return None;
        }
        let this = Self { file, directory };
        let is_seen = || -> Option<bool> {
            let before = flushes_of(number)?;
            this.flush().ok()?;
            Some(flushes_of(number)? > before)
        };
        (0..FLUSHES_SEEN).all(|_| is_seen() == Some(true)).then_some(this)
    }

    /// What was written is stable when this returns.
    ///
    /// # Errors
    /// When the device has failed.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.directory.sync_data()
    }

    /// To write to.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

fn facts(file: &File) -> io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS;
    Ok(rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?)
}
