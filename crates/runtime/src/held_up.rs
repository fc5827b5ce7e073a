//! Workers that storage holds up, counted by what they wait for: one disk that hangs must not take
//! all of them.
//!
//! Who waits is found out where it begins to matter, when another worker takes the seat that the
//! waiting one has lent; so nothing is counted on the way of a call that does not wait. What calls
//! to one storage may hold up depends on how many workers are left: twice as many at the most. So
//! one that hangs takes two thirds, a second one two thirds of the rest, and somebody is left for
//! calls that wait for neither: those to other storage, MOUNT, rpcbind, what is in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_engine::{Room, StorageId};

/// As many workers may wait for one storage as are left, times this.
const TIMES_THOSE_LEFT: i64 = 2;

/// The held up workers of one pool.
#[derive(Debug)]
pub(crate) struct HeldUp {
    /// Workers of the pool beyond one for each seat.
    workers: i64,
    /// After this time, in ms, in which no worker has come back, storage hangs.
    patience_ms: u64,
    /// To be looked at without the lock.
    is_any: AtomicBool,
    crowds: Mutex<Crowds>,
}

#[derive(Debug, Default)]
struct Crowds {
    by_storage: HashMap<StorageId, Crowd>,
    total: i64,
    /// When a worker last came back, from whatever storage.
    returned_ms: u64,
}

/// Those who wait for one storage.
#[derive(Debug)]
struct Crowd {
    /// Negative for the moment in which who came back is faster than who counts it.
    count: i64,
    /// When one last came back, or the first came.
    returned_ms: u64,
}

impl HeldUp {
    pub(crate) fn new(workers: usize, patience_ms: u64) -> Self {
        let workers = i64::try_from(workers).unwrap_or(i64::MAX / 4);
        Self { workers, patience_ms, is_any: AtomicBool::new(false), crowds: Mutex::default() }
    }

    /// Whether any worker is held up, by what was known a moment ago.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// A worker is held up from now on.
    pub(crate) fn enter(&self, storage: StorageId, now_ms: u64) {
        self.add(storage, 1, now_ms);
    }

    /// It has come back.
    pub(crate) fn leave(&self, storage: StorageId, now_ms: u64) {
        self.add(storage, -1, now_ms);
    }

    fn add(&self, storage: StorageId, count: i64, now_ms: u64) {
        let mut crowds = self.crowds.lock();
        crowds.total += count;
        if count < 0 || crowds.by_storage.is_empty() {
            crowds.returned_ms = now_ms;
        }
        match crowds.by_storage.entry(storage) {
            Entry::Vacant(place) => {
                place.insert(Crowd { count, returned_ms: now_ms });
            }
            Entry::Occupied(mut place) => {
                let crowd = place.get_mut();
                crowd.count += count;
                if count < 0 {
                    crowd.returned_ms = now_ms;
                }
                if crowd.count == 0 {
                    place.remove();
                }
            }
        }
        self.is_any.store(!crowds.by_storage.is_empty(), Ordering::Relaxed);
    }

    /// Whether one more worker may wait for a storage, and if so, how many.
    pub(crate) fn room(&self, storage: StorageId, now_ms: u64) -> (Room, usize) {
        let crowds = self.crowds.lock();
        let left = self.workers - crowds.total;
        let (count, returned_ms) = crowds
            .by_storage
            .get(&storage)
            .map_or((0, crowds.returned_ms), |crowd| (crowd.count, crowd.returned_ms));
        drop(crowds);
        // Each that comes makes the crowd larger, and the rest smaller.
        let beyond = TIMES_THOSE_LEFT * left - count;
        let more = (beyond + TIMES_THOSE_LEFT).max(0) / (TIMES_THOSE_LEFT + 1);
        if beyond > 0 {
            (Room::Free, usize::try_from(more).unwrap_or(1).max(1))
        } else if now_ms.saturating_sub(returned_ms) >= self.patience_ms {
            (Room::None, 0)
        } else {
            (Room::Later, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: StorageId = StorageId(1);
    const B: StorageId = StorageId(2);

    /// As many as may.
    fn crowd(held_up: &HeldUp, storage: StorageId) -> usize {
        let mut count = 0;
        while held_up.room(storage, 0).0 == Room::Free {
            held_up.enter(storage, 0);
            count += 1;
        }
        count
    }

    #[test]
    fn each_storage_leaves_something_to_the_next() {
        let held_up = HeldUp::new(126, 2_000);
        assert_eq!(held_up.room(A, 0), (Room::Free, 84));
        assert_eq!([A, B, StorageId(3)].map(|storage| crowd(&held_up, storage)), [84, 28, 10]);
        for _ in 0..84 {
            held_up.leave(A, 0);
        }
        assert_eq!(held_up.room(A, 0).0, Room::Free);
        assert!(held_up.is_any());
    }

    #[test]
    fn a_pool_of_few_workers_lets_one_wait() {
        for workers in [1, 2, 3] {
            assert!(crowd(&HeldUp::new(workers, 2_000), A) >= 1);
        }
    }

    #[test]
    fn storage_hangs_when_nobody_has_come_back_for_long() {
        let held_up = HeldUp::new(3, 2_000);
        held_up.enter(A, 10_000);
        held_up.enter(A, 11_000);
        assert_eq!(held_up.room(A, 11_999).0, Room::Later);
        assert_eq!(held_up.room(A, 12_000).0, Room::None);
        held_up.leave(A, 12_000);
        held_up.enter(A, 12_001);
        assert_eq!(held_up.room(A, 13_999).0, Room::Later);
        held_up.leave(A, 14_000);
        held_up.leave(A, 14_000);
        assert_eq!((held_up.room(A, 50_000).0, held_up.is_any()), (Room::Free, false));
    }

    #[test]
    fn who_is_back_before_it_was_counted_is_counted_right() {
        let held_up = HeldUp::new(3, 2_000);
        held_up.leave(A, 0);
        held_up.enter(A, 0);
        assert!(!held_up.is_any());
        assert_eq!(held_up.room(A, 0), HeldUp::new(3, 2_000).room(A, 0));
    }

    proptest! {
        /// Whoever comes and goes: nobody is let in who takes the last worker from others, and what
        /// room is told of is there.
        #[test]
        fn the_rest_is_never_taken(
            workers in 2..200_usize,
            steps in proptest::collection::vec((0..6_u64, any::<bool>()), 0..400),
        ) {
            let held_up = HeldUp::new(workers, 2_000);
            let mut counts = [0_usize; 6];
            for (storage, comes) in steps {
                let (id, count) = (StorageId(storage), &mut counts[storage as usize]);
                if comes {
                    let (room, more) = held_up.room(id, 0);
                    prop_assert_eq!(room == Room::Free, more > 0);
                    for _ in 0..more {
                        prop_assert_eq!(held_up.room(id, 0).0, Room::Free);
                        held_up.enter(id, 0);
                        *count += 1;
                    }
                    prop_assert_eq!(held_up.room(id, 0).0, Room::Later);
                } else if *count > 0 {
                    held_up.leave(id, 0);
                    *count -= 1;
                }
                prop_assert!(counts.iter().sum::<usize>() <= workers);
                prop_assert_eq!(held_up.is_any(), counts.iter().any(|count| *count > 0));
            }
        }
    }
}
