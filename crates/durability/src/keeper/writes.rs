//! Batches on their way to the device: how many, how long they take, and memory for them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use steadfast_intent_log::{BATCHES_IN_FLIGHT_MAX, Batch};
use steadfast_sys::memory::prefer_huge_pages;

/// Writes that take longer than this, in ns, are left to committers.
const INLINE_WRITE_NS_MAX: u64 = 1_000_000;

/// The device reads a batch of many records as one piece.
pub(super) fn new_batch() -> Batch {
    Batch::with_advice(prefer_huge_pages)
}

/// The writes of batches.
///
/// While the gate is closed and no write is under way, no thread holds a batch with records that are not
/// written.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Threads that may hold a batch. A thread is counted before it takes one.
    under_way: AtomicUsize,
    /// The recent duration of a write. Only an estimate: if two threads note one at the same time, one of
    /// the two may be lost.
    recent_ns: AtomicU64,
    /// Batches that workers have used, for the next: their memory is large.
    spare: Mutex<Vec<Batch>>,
}

impl Writes {
    /// A thread is about to take a batch and write it, until [`Writes::end`].
    pub(super) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    /// It has written the batch, or there was none.
    pub(super) fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a batch may be under way.
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) > 0
    }

    /// Notes how long a write took.
    pub(super) fn note_ns(&self, ns: u64) {
        let recent = self.recent_ns.load(Ordering::Relaxed);
        self.recent_ns.store((3 * recent + ns) / 4, Ordering::Relaxed);
    }

    /// How long writes take of late, in ns.
    pub(super) fn recent_ns(&self) -> u64 {
        self.recent_ns.load(Ordering::Relaxed)
    }

    /// Whether the device is so fast that a worker may write. On a slow one it would be away from its
    /// other work for long.
    pub(super) fn are_fast(&self) -> bool {
        self.recent_ns() <= INLINE_WRITE_NS_MAX
    }

    /// A batch for a worker, to be given back.
    pub(super) fn borrow_batch(&self) -> Batch {
        self.spare.lock().pop().unwrap_or_else(new_batch)
    }

    /// Takes back a worker's batch.
    pub(super) fn give_back(&self, batch: Batch) {
        let mut spare = self.spare.lock();
        if spare.len() < BATCHES_IN_FLIGHT_MAX {
            spare.push(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn a_slow_device_is_left_to_committers_until_its_writes_are_fast_again() {
        let writes = Writes::default();
        assert!(writes.are_fast(), "nothing is known of it");
        writes.note_ns(5 * INLINE_WRITE_NS_MAX);
        assert!(!writes.are_fast(), "{}", writes.recent_ns());
        writes.note_ns(0);
        assert!(writes.are_fast(), "{}", writes.recent_ns());
    }

    #[test]
    fn batches_are_kept_for_the_next_but_not_many() {
        let writes = Writes::default();
        writes.begin();
        assert!(writes.are_under_way());
        for _worker in 0..2 * BATCHES_IN_FLIGHT_MAX {
            writes.give_back(Batch::default());
        }
        assert_eq!(writes.spare.lock().len(), BATCHES_IN_FLIGHT_MAX);
        drop(writes.borrow_batch());
        assert_eq!(writes.spare.lock().len(), BATCHES_IN_FLIGHT_MAX - 1);
        writes.end();
        assert!(!writes.are_under_way());
    }
}
