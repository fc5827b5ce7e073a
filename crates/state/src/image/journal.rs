//! Where events wait for whoever keeps them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::{Event, RecordJournal};

/// What many events took is given back above so many bytes.
const CAPACITY_KEPT: usize = 1 << 20;

/// Events that nobody has taken yet. Nothing is ever in it until [`Journal::begin`].
#[derive(Default)]
pub(crate) struct Journal {
    is_kept: AtomicBool,
    events: Mutex<Vec<u8>>,
    /// How many events were noted. It rises under the lock of `events`.
    noted: AtomicU64,
    /// How many of these are kept.
    kept: AtomicU64,
    /// How many were noted when somebody lost last what kept others from changing a file.
    taken: AtomicU64,
    /// Read by who notes events that are of use together only, written by who takes events.
    together: RwLock<()>,
    /// Which clients have state, for after a loss of all that.
    pub(crate) records: RecordJournal,
}

impl Journal {
    /// From now on events are noted, since somebody takes them.
    pub(crate) fn begin(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Notes an event. The caller holds the lock of what it tells about.
    pub(crate) fn note(&self, event: &Event<'_>) {
        if self.is_kept.load(Ordering::Relaxed) {
            let mut events = self.events.lock();
            event.append(&mut events);
            self.noted.fetch_add(1, Ordering::Release);
        }
    }

    /// What is noted until this is dropped is taken together, with what else there is; `None` if nothing
    /// is kept. To be held for a moment, without a wait, and one at a time by a thread.
    pub(crate) fn together(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.is_kept.load(Ordering::Relaxed).then(|| self.together.read())
    }

    /// Whether there are events that are not kept yet. Somebody may be about to keep them.
    pub(crate) fn has_unkept(&self) -> bool {
        self.kept.load(Ordering::Acquire) < self.noted.load(Ordering::Acquire)
    }

    /// Somebody is about to lose what keeps others from changing a file: that is noted.
    pub(crate) fn takes_away(&self) {
        self.taken.fetch_max(self.noted.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// Whether somebody has lost such a thing, and that is not kept yet.
    pub(crate) fn has_unkept_taken(&self) -> bool {
        self.kept.load(Ordering::Acquire) < self.taken.load(Ordering::Acquire)
    }

    /// Moves all events behind those in `taken`; how many were ever noted by then.
    pub(crate) fn take(&self, taken: &mut Vec<u8>) -> u64 {
        let _whole = self.together.write();
        let mut events = self.events.lock();
        if events.capacity() > CAPACITY_KEPT {
            taken.extend_from_slice(&std::mem::take(&mut *events));
        } else {
            taken.append(&mut events);
        }
        self.noted.load(Ordering::Relaxed)
    }

    /// So many events are kept.
    pub(crate) fn are_kept(&self, count: u64) {
        self.kept.fetch_max(count, Ordering::Release);
    }
}
