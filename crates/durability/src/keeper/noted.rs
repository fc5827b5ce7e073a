//! Changes of attributes that are noted as under way until their records are stable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_intent_log::Lsn;
use steadfast_recovery::{AttributesUnderWay, FileSystemIdentity};

use crate::under_way::{Noted, UnderWayFile};

/// The notes of changes that are under way.
///
/// A note is kept from before the first step of a change until its record is stable. While there are no
/// notes, [`NotedUntilStable::forget_stable`] takes no lock.
pub(super) struct NotedUntilStable {
    /// Without it, a kill may leave attributes that are set in part.
    file: Option<Arc<UnderWayFile>>,
    /// Notes whose record is complete and may not be stable.
    noted: Mutex<Vec<(Lsn, Noted)>>,
    /// Whether there is any. Pairs with `noted`: a note is added before this is set, and this is cleared
    /// before the notes are searched.
    has_noted: AtomicBool,
}

impl NotedUntilStable {
    pub(super) fn new(file: Option<Arc<UnderWayFile>>) -> Self {
        Self { file, noted: Mutex::default(), has_noted: AtomicBool::new(false) }
    }

    /// Notes a change that is about to be applied. The note lasts until the result is dropped. `None` if
    /// it cannot be written.
    pub(super) fn note(
        &self,
        file_system: &FileSystemIdentity,
        under_way: &AttributesUnderWay,
    ) -> Option<Noted> {
        self.file.as_ref().and_then(|file| file.note(file_system, under_way))
    }

    /// Keeps a note until its record, which is complete, is stable.
    pub(super) fn keep(&self, lsn: Lsn, noted: Noted) {
        self.noted.lock().push((lsn, noted));
        self.has_noted.store(true, Ordering::SeqCst);
    }

    /// Drops the notes whose records are stable: those up to the LSN that `stable` returns.
    pub(super) fn forget_stable(&self, stable: impl FnOnce() -> u64) {
        if !self.has_noted.swap(false, Ordering::SeqCst) {
            return;
        }
        let (stable, mut noted) = (stable(), self.noted.lock());
        noted.retain(|(lsn, _)| lsn.0 > stable);
        if !noted.is_empty() {
            self.has_noted.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;
    use crate::under_way::found;
    use crate::under_way::tests::{FILE_SYSTEM, under_way};

    #[test]
    fn notes_stay_until_their_records_are_stable() {
        let place = tempfile::tempdir().unwrap();
        let file = UnderWayFile::create(place.path()).unwrap();
        let noted = NotedUntilStable::new(Some(file));
        let uids = || -> Vec<u32> {
            let found = found(place.path()).unwrap();
            found.iter().map(|found| found.under_way.before.uid).collect()
        };
        noted.forget_stable(|| panic!("there are none"));
        for uid in 1..=3 {
            let note = noted.note(&FILE_SYSTEM, &under_way(uid)).unwrap();
            assert!(uids().contains(&uid));
            noted.keep(Lsn(uid.into()), note);
        }
        noted.forget_stable(|| 2);
        assert_eq!(uids(), [3]);
        noted.forget_stable(|| 2);
        assert_eq!(uids(), [3], "it was not overlooked");
        noted.forget_stable(|| 3);
        assert_eq!(uids(), [0; 0]);
        noted.forget_stable(|| panic!("there are no more"));
        assert!(NotedUntilStable::new(None).note(&FILE_SYSTEM, &under_way(1)).is_none());
    }
}
