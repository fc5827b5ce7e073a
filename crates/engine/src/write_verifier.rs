//! By which clients find out that what they wrote without a promise may be lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// The write verifier (RFC 1813 §3.3.7): another number after each flush that failed.
#[derive(Debug)]
pub(crate) struct WriteVerifier {
    first: u64,
    changes: AtomicU64,
}

impl WriteVerifier {
    /// One that is this number until a flush fails.
    pub(crate) fn new(first: u64) -> Self {
        Self { first, changes: AtomicU64::new(0) }
    }

    /// What it is now.
    pub(crate) fn now(&self) -> u64 {
        // An odd factor keeps all verifiers of one start distinct.
        self.first.wrapping_add(self.changes().wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// How often it changed because a flush failed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// A flush has failed.
    pub(crate) fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}
