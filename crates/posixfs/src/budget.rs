//! The number of descriptors that trees may keep open, and descriptors that count against it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many descriptors are open, and how many may be.
#[derive(Debug)]
pub(crate) struct Budget {
    open: AtomicUsize,
    max: usize,
    /// Descriptors that are kept for locks of clients.
    locked: AtomicUsize,
    /// Objects that are kept open since they are guarded.
    guarded: AtomicUsize,
}

/// Of the descriptors one in so many may be kept for locks: nothing closes those.
const LOCKED_SHARE: usize = 4;
/// Likewise for guards, which never take the room of locks: each may keep three descriptors.
const GUARDED_SHARE: usize = 8;

impl Budget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let (open, locked, guarded) = Default::default();
        Arc::new(Self { open, max, locked, guarded })
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.open.load(Ordering::Relaxed) > self.max
    }

    /// Room for a descriptor that is kept for locks; `None` if they are too many.
    pub(crate) fn room_to_lock(self: &Arc<Self>) -> Option<RoomToLock> {
        let room = RoomToLock(Arc::clone(self));
        let before = self.locked.fetch_add(1, Ordering::Relaxed);
        (before < self.max / LOCKED_SHARE).then_some(room)
    }

    /// Room for an object that is guarded; `None` if they are too many.
    pub(crate) fn room_to_guard(self: &Arc<Self>) -> Option<RoomToGuard> {
        let room = RoomToGuard(Arc::clone(self));
        let before = self.guarded.fetch_add(1, Ordering::Relaxed);
        (before < self.max / GUARDED_SHARE).then_some(room)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// Counts as long as it lives.
#[derive(Debug)]
pub(crate) struct RoomToLock(Arc<Budget>);

impl Drop for RoomToLock {
    fn drop(&mut self) {
        self.0.locked.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts as long as it lives.
#[derive(Debug)]
pub(crate) struct RoomToGuard(Arc<Budget>);

impl Drop for RoomToGuard {
    fn drop(&mut self) {
        self.0.guarded.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor that counts against a budget as long as it is open.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: OwnedFd,
    budget: Arc<Budget>,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd, budget: &Arc<Budget>) -> Self {
        budget.open.fetch_add(1, Ordering::Relaxed);
        Self { fd, budget: Arc::clone(budget) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.budget.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_do_not_take_the_room_of_locks() {
        let budget = Budget::new(16);
        let guards: Vec<_> = (0..3).map(|_| budget.room_to_guard()).collect();
        assert_eq!(guards.iter().flatten().count(), 2);
        let locks: Vec<_> = (0..5).map(|_| budget.room_to_lock()).collect();
        assert_eq!(locks.iter().flatten().count(), 4);
        drop((guards, locks));
        assert!(budget.room_to_guard().is_some() && budget.room_to_lock().is_some());
    }
}
