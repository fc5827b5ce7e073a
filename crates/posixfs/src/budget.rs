//! The number of descriptors that trees may keep open, and descriptors that count against it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many descriptors are open, and how many may be.
#[derive(Debug)]
pub(crate) struct Budget {
    open: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), max })
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.open.load(Ordering::Relaxed) > self.max
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
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
