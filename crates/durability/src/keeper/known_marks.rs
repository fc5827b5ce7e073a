//! The marks on file systems, as far as the keeper knows them: the last one written, and the slot of the
//! stable one.

use std::collections::HashMap;

use parking_lot::Mutex;
use steadfast_vfs::FsError;

/// The mark of one file system.
#[derive(Debug, Default)]
struct OfOne {
    /// Of the mark written last.
    sequence: u64,
    /// The slot of the mark that is known to be stable, which is not written over.
    stable_slot: Option<usize>,
    /// Whether it was logged that the mark cannot be written.
    is_told: bool,
}

/// The marks of file systems that are served, by the log's index.
///
/// A mark is never written over the one that is known to be stable. So a file system always has a whole
/// mark.
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

    /// Takes the file systems that are to be marked.
    pub(super) fn take_due(&self) -> Vec<u32> {
        std::mem::take(&mut *self.due.lock())
    }

    /// The sequence number of the last mark written, and the slot of the stable one. `None` if no mark was
    /// written since the file system began to be used.
    pub(super) fn last_written(&self, index: u32) -> Option<(u64, Option<usize>)> {
        let of = self.of.lock();
        let of = of.get(&index)?;
        (of.sequence > 0).then_some((of.sequence, of.stable_slot))
    }

    /// Notes the outcome of writing a mark: its sequence number and the slot of the stable one, or the
    /// error. `true` if the caller has to log the error: the first of each file system, unless the file
    /// system is read-only.
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
