//! Workers that are *blocked* by storage, counted by what they wait for: one disk that hangs must not take
//! all of them.
//!
//! Who waits is found out where it begins to matter, when another worker takes the seat that the
//! waiting one has lent; so nothing is counted on the way of a call that does not wait. Only when a
//! crowd may be full, calls are counted before they may wait ([`Blocked::admit`]). How many workers
//! calls to one storage may block depends on how many are left: twice as many at the most. So
//! one that hangs takes two thirds, a second one two thirds of the rest, and somebody is left for
//! calls that may wait for neither.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use steadfast_engine::{Room, StorageId};

/// As many workers may wait for one storage as are left, times this.
const TIMES_THOSE_LEFT: i64 = 2;

/// The blocked workers of one pool.
#[derive(Debug)]
pub(crate) struct Blocked {
    /// Workers of the pool beyond one for each seat.
    workers: i64,
    seats: i64,
    /// After this time, in ms, in which nobody has come back to a full crowd, storage hangs.
    patience_ms: u64,
    /// Of all crowds; written with the lock, and looked at without.
    total: AtomicI64,
    crowds: Mutex<HashMap<StorageId, Crowd>>,
}

/// Those who wait for one storage.
#[derive(Debug)]
struct Crowd {
    /// Negative for the moment in which who came back is faster than who counts it.
    count: i64,
    /// When one last came or came back.
    changed_ms: u64,
}

impl Blocked {
    pub(crate) fn new(workers: usize, seats: usize, patience_ms: u64) -> Self {
        let [workers, seats] =
            [workers, seats].map(|count| i64::try_from(count).unwrap_or(i64::MAX / 8));
        Self { workers, seats, patience_ms, total: AtomicI64::new(0), crowds: Mutex::default() }
    }

    /// Whether no crowd can be full, by what was known a moment ago, even if at each seat one has
    /// begun to wait that is not counted yet.
    pub(crate) fn has_room_for_all(&self) -> bool {
        let total = self.total.load(Ordering::Relaxed) + self.seats;
        TIMES_THOSE_LEFT * (self.workers - total) > total
    }

    /// A worker is blocked from now on.
    pub(crate) fn enter(&self, storage: StorageId, now_ms: u64) {
        self.add(storage, 1, now_ms);
    }

    /// It has come back.
    pub(crate) fn leave(&self, storage: StorageId, now_ms: u64) {
        self.add(storage, -1, now_ms);
    }

    fn add(&self, storage: StorageId, count: i64, now_ms: u64) {
        self.add_to(&mut self.crowds.lock(), storage, count, now_ms);
    }

    fn add_to(
        &self,
        crowds: &mut HashMap<StorageId, Crowd>,
        storage: StorageId,
        count: i64,
        now_ms: u64,
    ) {
        self.total.fetch_add(count, Ordering::Relaxed);
        match crowds.entry(storage) {
            Entry::Vacant(place) => {
                place.insert(Crowd { count, changed_ms: now_ms });
            }
            Entry::Occupied(mut place) => {
                let crowd = place.get_mut();
                crowd.count += count;
                crowd.changed_ms = now_ms;
                if crowd.count == 0 {
                    place.remove();
                }
            }
        }
    }

    /// Whether one more worker may wait for a storage, and if so, how many. Who waits and is not
    /// counted is told.
    pub(crate) fn room(
        &self,
        storage: StorageId,
        uncounted: Uncounted,
        now_ms: u64,
    ) -> (Room, usize) {
        self.room_in(&self.crowds.lock(), storage, uncounted, now_ms)
    }

    /// As [`Blocked::room`]; who may wait counts from now on.
    pub(crate) fn admit(&self, storage: StorageId, uncounted: Uncounted, now_ms: u64) -> Room {
        let mut crowds = self.crowds.lock();
        let (room, _) = self.room_in(&crowds, storage, uncounted, now_ms);
        if room == Room::Free {
            self.add_to(&mut crowds, storage, 1, now_ms);
        }
        room
    }

    fn room_in(
        &self,
        crowds: &HashMap<StorageId, Crowd>,
        storage: StorageId,
        uncounted: Uncounted,
        now_ms: u64,
    ) -> (Room, usize) {
        let left = self.workers - self.total.load(Ordering::Relaxed) - uncounted.all;
        let (count, changed_ms) =
            crowds.get(&storage).map_or((0, now_ms), |crowd| (crowd.count, crowd.changed_ms));
        // Each that comes makes the crowd larger, and the rest smaller.
        let beyond = TIMES_THOSE_LEFT * left - count - uncounted.for_this;
        let more = (beyond + TIMES_THOSE_LEFT).max(0) / (TIMES_THOSE_LEFT + 1);
        if beyond > 0 {
            (Room::Free, usize::try_from(more).unwrap_or(1).max(1))
        } else if now_ms.saturating_sub(changed_ms) >= self.patience_ms {
            (Room::None, 0)
        } else {
            (Room::Later, 0)
        }
    }
}

/// Workers that may be waiting and that nobody has counted: their seats have not been taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uncounted {
    /// For the storage that is asked about.
    pub(crate) for_this: i64,
    /// For any.
    pub(crate) all: i64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: StorageId = StorageId(1);
    const B: StorageId = StorageId(2);
    const NOBODY: Uncounted = Uncounted { for_this: 0, all: 0 };

    /// As many as may.
    fn crowd(blocked: &Blocked, storage: StorageId) -> usize {
        let mut count = 0;
        while blocked.room(storage, NOBODY, 0).0 == Room::Free {
            blocked.enter(storage, 0);
            count += 1;
        }
        count
    }

    #[test]
    fn each_storage_leaves_something_to_the_next() {
        let blocked = Blocked::new(126, 1, 2_000);
        assert_eq!(blocked.room(A, NOBODY, 0), (Room::Free, 84));
        assert_eq!([A, B, StorageId(3)].map(|storage| crowd(&blocked, storage)), [84, 28, 10]);
        for _ in 0..84 {
            blocked.leave(A, 0);
        }
        assert_eq!(blocked.room(A, NOBODY, 0).0, Room::Free);
        assert!(blocked.has_room_for_all());
    }

    #[test]
    fn who_is_not_counted_takes_room_all_the_same() {
        let blocked = Blocked::new(12, 4, 2_000);
        let three = Uncounted { for_this: 3, all: 3 };
        let admitted = (0..100).filter(|_| blocked.admit(A, three, 0) == Room::Free).count();
        assert_eq!(admitted + 3, 8);
        let for_another = Uncounted { for_this: 0, ..three };
        assert_eq!(blocked.room(B, for_another, 0), (Room::Free, 3));
        assert!(!blocked.has_room_for_all());
    }

    #[test]
    fn a_pool_of_few_workers_lets_one_wait() {
        for workers in [1, 2, 3] {
            assert!(crowd(&Blocked::new(workers, 1, 2_000), A) >= 1);
        }
    }

    #[test]
    fn storage_hangs_when_nobody_has_come_back_since_it_was_full() {
        let blocked = Blocked::new(3, 1, 2_000);
        blocked.enter(A, 10_000);
        blocked.enter(A, 13_000);
        assert_eq!(blocked.room(A, NOBODY, 14_999).0, Room::Later, "one that lasts is no crowd");
        assert_eq!(blocked.room(A, NOBODY, 15_000).0, Room::None);
        blocked.leave(A, 15_000);
        blocked.enter(A, 15_001);
        assert_eq!(blocked.room(A, NOBODY, 17_000).0, Room::Later);
        blocked.leave(A, 17_000);
        blocked.leave(A, 17_000);
        assert_eq!(
            (blocked.room(A, NOBODY, 50_000).0, blocked.total.load(Ordering::Relaxed)),
            (Room::Free, 0)
        );
    }

    #[test]
    fn storage_that_nobody_waits_for_does_not_hang() {
        let blocked = Blocked::new(1, 1, 2_000);
        blocked.enter(A, 0);
        assert_eq!(blocked.room(A, NOBODY, 9_000).0, Room::None);
        assert_eq!(blocked.room(B, NOBODY, 9_000).0, Room::Later);
    }

    #[test]
    fn who_is_back_before_it_was_counted_is_counted_right() {
        let blocked = Blocked::new(3, 1, 2_000);
        blocked.leave(A, 0);
        blocked.enter(A, 0);
        assert!(blocked.crowds.lock().is_empty());
        assert_eq!(blocked.room(A, NOBODY, 0), Blocked::new(3, 1, 2_000).room(A, NOBODY, 0));
    }

    proptest! {
        /// Whoever comes and goes: nobody is let in who takes the last worker from others, and what
        /// room is told of is there.
        #[test]
        fn the_rest_is_never_taken(
            workers in 2..200_usize,
            steps in proptest::collection::vec((0..6_u64, any::<bool>()), 0..400),
        ) {
            let blocked = Blocked::new(workers, 1, 2_000);
            let mut counts = [0_usize; 6];
            for (storage, comes) in steps {
                let (id, count) = (StorageId(storage), &mut counts[storage as usize]);
                if comes {
                    let has_room_for_all = blocked.has_room_for_all();
                    let (room, more) = blocked.room(id, NOBODY, 0);
                    prop_assert!(room == Room::Free || !has_room_for_all);
                    prop_assert_eq!(room == Room::Free, more > 0);
                    for _ in 0..more {
                        prop_assert_eq!(blocked.room(id, NOBODY, 0).0, Room::Free);
                        blocked.enter(id, 0);
                        *count += 1;
                    }
                    prop_assert_eq!(blocked.room(id, NOBODY, 0).0, Room::Later);
                } else if *count > 0 {
                    blocked.leave(id, 0);
                    *count -= 1;
                }
                prop_assert!(counts.iter().sum::<usize>() <= workers);
            }
        }
    }
}
