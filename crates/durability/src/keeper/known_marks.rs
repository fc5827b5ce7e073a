//! What is known of the marks on file systems: which was written last, and which must not be written
//! over.

use std::collections::HashMap;

use parking_lot::Mutex;
use steadfast_vfs::FsError;

/// What is known of the mark of one file system.
#[derive(Debug, Default)]
struct OfOne {
    /// Of the mark written last.
    sequence: u64,
    /// The slot of the mark that is known to be stable, which is not written over.
    stable_slot: Option<usize>,
    /// Whether somebody was told that it cannot be written.
    is_told: bool,
}

/// The marks of file systems that are served, by the log's index.
///
/// A mark is written beside the one that is known to be stable, so that a file system always has one
/// that is whole.
#[derive(Debug, Default)]
pub(super) struct KnownMarks {
    of: Mutex<HashMap<u32, OfOne>>,
    /// File systems that have begun to be used, and are to be marked.
    due: Mutex<Vec<u32>>,
}

impl KnownMarks {
    /// Whether the file system has begun to be used before.
    pub(super) fn has(&self, index: u32) -> bool {
        self.of.lock().contains_key(&index)
    }

    /// A file system begins to be used: it is to be marked.
    pub(super) fn begin(&self, index: u32) {
        self.of.lock().entry(index).or_default();
        self.due.lock().push(index);
    }

    /// Those that are to be marked. They are not told again.
    pub(super) fn take_due(&self) -> Vec<u32> {
        std::mem::take(&mut *self.due.lock())
    }

    /// The sequence number of the mark written last, and the slot that has the stable one; nothing if
    /// none was written since the file system began to be used.
    pub(super) fn last_written(&self, index: u32) -> Option<(u64, Option<usize>)> {
        let of = self.of.lock();
        let of = of.get(&index)?;
        (of.sequence > 0).then_some((of.sequence, of.stable_slot))
    }

    /// Notes that a mark was written, with this sequence number and while this slot had the stable
    /// one, or why it was not. Whether an administrator is to be told: once a file system, and not of
    /// one that cannot be written at all.
    pub(super) fn note_written(
        &self,
        index: u32,
        written: Result<(u64, Option<usize>), FsError>,
    ) -> bool {
        let mut all = self.of.lock();
        let of = all.entry(index).or_default();
        match written {
            Ok((sequence, stable_slot)) => {
                (of.sequence, of.stable_slot) = (sequence, stable_slot);
                false
            }
            Err(FsError::ReadOnly) => false,
            Err(_) => !std::mem::replace(&mut of.is_told, true),
        }
    }

    /// The mark in this slot is stable.
    pub(super) fn note_stable(&self, index: u32, slot: usize) {
        self.of.lock().entry(index).or_default().stable_slot = Some(slot);
    }

    /// The log does not know the file system any more.
    pub(super) fn forget(&self, index: u32) {
        self.of.lock().remove(&index);
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn what_is_known_of_a_mark_lasts_until_its_file_system_is_forgotten() {
        let marks = KnownMarks::default();
        assert!(!marks.has(3));
        marks.begin(3);
        assert!(marks.has(3) && marks.last_written(3).is_none());
        assert_eq!((marks.take_due(), marks.take_due()), (vec![3], vec![]));
        assert!(!marks.note_written(3, Err(FsError::ReadOnly)));
        assert!(marks.note_written(3, Err(FsError::Io)), "the first failure is told");
        assert!(!marks.note_written(3, Err(FsError::NoSpace)));
        assert!(!marks.note_written(3, Ok((8, None))));
        assert_eq!(marks.last_written(3), Some((8, None)));
        marks.note_stable(3, 1);
        assert_eq!(marks.last_written(3), Some((8, Some(1))));
        marks.forget(3);
        assert!(!marks.has(3) && marks.last_written(3).is_none());
    }
}
