//! Which files have data that is not on the disk yet, so that a checkpoint can have it written piece by
//! piece before it flushes the whole file system.
//!
//! A flush of everything at once fills the disk's queue, and the log's own writes, if it is on the same
//! disk, wait behind it: with 27 MiB/s of data p99 of stable WRITEs was six times as long while
//! checkpoints ran. What is remembered here may be incomplete: the flush that follows misses nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_sys::file;
use steadfast_sys::pinned::{Pinned, Reason, WeakPinned};

use crate::budget::Descriptor;
use crate::pins;

/// Bytes of a file whose writing is started at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Files are spread over so many lists, so that pools seldom meet.
const LISTS: usize = 16;
/// Files in a list, so that their memory is bounded: what does not fit is left to the flush.
const FILES_MAX: usize = 4096;

/// What was written of one file since the last checkpoint began. Changed under the lock that orders the
/// file's changes.
#[derive(Debug)]
pub(crate) struct Written {
    is_listed: AtomicBool,
    start: AtomicU64,
    end: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            is_listed: AtomicBool::new(false),
            start: AtomicU64::new(u64::MAX),
            end: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Written {
    fn note(&self, offset: u64, count: u64) {
        self.start.fetch_min(offset, Ordering::Relaxed);
        self.end.fetch_max(offset.saturating_add(count), Ordering::Relaxed);
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    /// The range that all of it is in, and how much it is; from here on it counts anew.
    fn take(&self) -> (u64, u64, u64) {
        // Before the rest: what is written meanwhile is listed again.
        self.is_listed.store(false, Ordering::SeqCst);
        let bytes = self.bytes.swap(0, Ordering::SeqCst);
        let start = self.start.swap(u64::MAX, Ordering::SeqCst);
        (start, self.end.swap(0, Ordering::SeqCst), bytes)
    }
}

/// A file that is written through us.
pub(crate) trait WrittenFile: Send + Sync {
    /// What was written of it.
    fn written(&self) -> &Written;

    /// Its inode number.
    fn inode(&self) -> u64;

    /// What it is open for writing with, if it is.
    fn kept_writer(&self) -> Option<Arc<Descriptor>>;
}

/// A file that is written through us, or was: nothing here keeps it open.
trait Listed: fmt::Debug + Send + Sync {
    /// Looks at the file if it is still open.
    fn look(&self, look: &mut dyn FnMut(&dyn WrittenFile));
}

impl<F: WrittenFile> Listed for WeakPinned<F> {
    fn look(&self, look: &mut dyn FnMut(&dyn WrittenFile)) {
        if let Some(file) = self.upgrade::<pins::WriteBack>() {
            look(&*file);
        }
    }
}

/// The files of one file system that were written to since its last checkpoint began.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    lists: [Mutex<Vec<Box<dyn Listed>>>; LISTS],
}

impl Unflushed {
    /// Notes what was written of a file.
    pub(crate) fn note<F, R>(&self, file: &Pinned<F, R>, offset: u64, count: u64)
    where
        F: WrittenFile + 'static,
        R: Reason,
    {
        if count == 0 {
            return;
        }
        let written = file.written();
        written.note(offset, count);
        if !written.is_listed.load(Ordering::Relaxed)
            && !written.is_listed.swap(true, Ordering::SeqCst)
            && let Some(list) = self.lists.get(file.inode() as usize % LISTS)
        {
            let mut list = list.lock();
            if list.len() < FILES_MAX {
                list.push(Box::new(file.downgrade()));
            }
        }
    }

    /// Starts to write what was noted; see [`steadfast_vfs::FileSystemSync::write_back`].
    pub(crate) fn write_back(&self, goes_on: &mut dyn FnMut(u64) -> bool) {
        for list in &self.lists {
            let files = std::mem::take(&mut *list.lock());
            for written in files {
                // What is not open any more is left to the flush.
                let mut is_more_wanted = true;
                written.look(&mut |file| is_more_wanted = start_writing(file, goes_on));
                if !is_more_wanted {
                    return;
                }
            }
        }
    }
}

/// Whether to go on with others.
fn start_writing(written: &dyn WrittenFile, goes_on: &mut dyn FnMut(u64) -> bool) -> bool {
    let (start, end, mut left) = written.written().take();
    let Some(writer) = written.kept_writer() else { return true };
    let mut at = start - start.min(end) % PIECE_BYTES;
    while at < end {
        // An error is the flush's to find.
        if file::start_write_back(&*writer, at, PIECE_BYTES).is_err() {
            return true;
        }
        // Of a range with holes it is not known which piece has what.
        let piece = left.min(PIECE_BYTES);
        left -= piece;
        if !goes_on(piece) {
            return false;
        }
        at = at.saturating_add(PIECE_BYTES);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_taken_once() {
        let written = Written::default();
        written.note(8192, 100);
        written.note(4096, 200);
        written.is_listed.store(true, Ordering::SeqCst);
        assert_eq!(written.take(), (4096, 8292, 300));
        assert!(!written.is_listed.load(Ordering::SeqCst));
        assert_eq!(written.take(), (u64::MAX, 0, 0));
    }
}
