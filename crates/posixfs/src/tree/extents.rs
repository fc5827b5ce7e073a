//! What a file has of the disk: SEEK, `READ_PLUS`, ALLOCATE, DEALLOCATE, COPY, CLONE.
//!
//! What they change is not in the log: it is flushed, as WRITEs are that the log does not take, and the
//! log is told of both ([`Tree::change_beside_log`], `Settled`).

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use steadfast_sys::extents;
use steadfast_vfs::{
    Attr, Caller, Changed, Durable, Extents, FilePlace, FsError, SeekFor, Sought, StorageHandle,
};

use super::writing::require_write;
use super::{Tree, may_wait};
use crate::budget::Descriptor;
use crate::error::from_errno;
use crate::node::{Node, NodePin};

/// Bytes that are copied by one system call.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes that one COPY copies at most, where the data has to be moved.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// The same where files can share their blocks.
const SHARED_BYTES_MAX: u64 = 1 << 30;
/// How long one COPY copies: others wait for the file meanwhile.
const COPY_TIME_MAX: Duration = Duration::from_millis(100);
/// What `st_blocks` counts in.
const BLOCK_BYTES: u64 = 512;

impl Tree {
    pub(crate) fn do_seek(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        what: SeekFor,
    ) -> Result<Sought, FsError> {
        let (node, attr) = self.live_for_reading(caller, file)?;
        if offset >= attr.size {
            return Err(FsError::NoDevice);
        }
        require_may_wait(&node, caller)?;
        let found = find(self.reader(&node)?, offset, what)?;
        match found.filter(|found| *found < attr.size) {
            Some(offset) => Ok(Sought { offset, is_end: false }),
            None => Ok(Sought { offset: attr.size, is_end: true }),
        }
    }

    pub(crate) fn do_extents(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
    ) -> Result<Extents, FsError> {
        let (node, attr) = self.live_for_reading(caller, file)?;
        let there = attr.size.saturating_sub(offset);
        let wanted = there.min(u64::from(count));
        if wanted == 0 {
            return Ok(Extents { is_end: there == 0, ..Extents::default() });
        }
        // Most files have no holes, and need not be asked for them.
        if attr.used.div_ceil(BLOCK_BYTES) >= attr.size.div_ceil(BLOCK_BYTES) {
            return Ok(Extents { hole_bytes: 0, data_bytes: wanted, is_end: wanted == there });
        }
        require_may_wait(&node, caller)?;
        let reader = self.reader(&node)?;
        let end = offset + wanted;
        let begins = find(&reader, offset, SeekFor::Data)?.map_or(end, |at| at.clamp(offset, end));
        let ends = if begins == end {
            end
        } else {
            // The file may have been cut meanwhile: reading it will tell.
            find(&reader, begins, SeekFor::Hole)?.map_or(end, |at| at.clamp(begins, end))
        };
        Ok(Extents {
            hole_bytes: begins - offset,
            data_bytes: ends - begins,
            is_end: ends == attr.size,
        })
    }

    pub(crate) fn do_allocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        self.fallocate(caller, file, FallocateFlags::empty(), offset, length)
    }

    pub(crate) fn do_deallocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(caller, file, hole, offset, length)
    }

    fn fallocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        how: FallocateFlags,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        self.change_extents(caller, file, |_, _, writer| {
            if length == 0 {
                return Err(FsError::Invalid);
            }
            require_offsets(offset, length)?;
            rustix::fs::fallocate(writer, how, offset, length).map_err(from_errno)
        })
    }

    pub(crate) fn do_copy(
        &self,
        caller: &Caller<'_>,
        source: FilePlace<'_>,
        target: FilePlace<'_>,
        count: u64,
    ) -> Durable<Changed<u64>> {
        let (from, attr) = match self.live_for_reading(caller, source.file) {
            Ok(live) => live,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        self.change_extents(caller, target.file, |to, _, writer| {
            let rest = attr.size.checked_sub(source.offset).ok_or(FsError::Invalid)?;
            let count = if count == 0 { rest } else { count.min(rest) };
            require_offsets(target.offset, count)?;
            let is_same = from.identity == to.identity;
            if is_same && source.offset.abs_diff(target.offset) < count {
                return Err(FsError::Invalid);
            }
            let copied = copy(self.reader(&from)?, source.offset, writer, target.offset, {
                let shares = to.volume.traits.clone_block_bytes > 0;
                count.min(if shares { SHARED_BYTES_MAX } else { COPY_BYTES_MAX })
            })?;
            if to.volume.log.is_some() {
                to.volume.aliases.unflushed.note(to, target.offset, copied);
            }
            Ok(copied)
        })
    }

    pub(crate) fn do_clone_range(
        &self,
        caller: &Caller<'_>,
        source: FilePlace<'_>,
        target: FilePlace<'_>,
        count: u64,
    ) -> Durable<Changed<()>> {
        let (from, _) = match self.live_for_reading(caller, source.file) {
            Ok(live) => live,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        self.change_extents(caller, target.file, |_, _, writer| {
            require_offsets(target.offset, count)?;
            require_offsets(source.offset, count)?;
            let reader = self.reader(&from)?;
            extents::clone_range(reader, source.offset, count, writer, target.offset).map_err(
                |errno| match errno {
                    // Of a file system that knows nothing of it.
                    Errno::NOTTY => FsError::NotSupported,
                    errno => from_errno(errno),
                },
            )
        })
    }

    /// Changes what a file has of the disk, under the caller's identity.
    fn change_extents<T>(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        change: impl FnOnce(&NodePin, &Attr, &Descriptor) -> Result<T, FsError>,
    ) -> Durable<Changed<T>> {
        self.change_beside_log(caller, file, |node, before| {
            require_write(caller.cred, node, before)?;
            let writer = self.writer(node)?;
            self.assume(caller.cred)?;
            change(node, before, &writer)
        })
    }
}

/// What is where may have to be read from the disk.
fn require_may_wait(node: &Node, caller: &Caller<'_>) -> Result<(), FsError> {
    if may_wait(caller) || node.volume.is_volatile() { Ok(()) } else { Err(FsError::WouldBlock) }
}

/// Where data or a hole begins; `None` if there is none up to the end of the file.
fn find(reader: impl AsFd, offset: u64, what: SeekFor) -> Result<Option<u64>, FsError> {
    // The descriptor's own position is nobody's.
    let from = match what {
        SeekFor::Data => SeekFrom::Data(offset),
        SeekFor::Hole => SeekFrom::Hole(offset),
    };
    match rustix::fs::seek(reader, from) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(from_errno(errno)),
    }
}

/// Refuses what is beyond the largest offset.
fn require_offsets(offset: u64, length: u64) -> Result<(), FsError> {
    let end = offset.checked_add(length).and_then(|end| i64::try_from(end).ok());
    end.map(drop).ok_or(FsError::FileTooLarge)
}

/// Copies until all is done, or it takes long.
fn copy(
    reader: impl AsFd,
    from: u64,
    writer: impl AsFd,
    to: u64,
    count: u64,
) -> Result<u64, FsError> {
    let begun = Instant::now();
    let mut copied = 0;
    while copied < count {
        let piece = (count - copied).min(PIECE_BYTES) as usize;
        let (mut source, mut target) = (from + copied, to + copied);
        let done = rustix::fs::copy_file_range(
            &reader,
            Some(&mut source),
            &writer,
            Some(&mut target),
            piece,
        );
        match done {
            Ok(0) => break,
            Ok(more) => copied += more as u64,
            Err(Errno::INTR) => {}
            // What was copied before the disk was full is told.
            Err(_) if copied > 0 => break,
            Err(errno) => return Err(from_errno(errno)),
        }
        if begun.elapsed() >= COPY_TIME_MAX {
            break;
        }
    }
    Ok(copied)
}
