//! What is counted of delegations.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::State;

/// How many delegations were granted, recalled, returned and revoked since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationCounts {
    /// Granted to read.
    pub granted_read: u64,
    /// Granted to write.
    pub granted_write: u64,
    /// Recalls that were begun.
    pub recalled: u64,
    /// Returned, asked or unasked.
    pub returned: u64,
    /// Revoked.
    pub revoked: u64,
    /// Questions to holders whether they have changed what others look at.
    pub asked: u64,
    /// Looks that could not be asked about, and questions that could not be sent: recalls were begun for them.
    pub unasked: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) granted_read: AtomicU64,
    pub(super) granted_write: AtomicU64,
    pub(super) recalled: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) revoked: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) unasked: AtomicU64,
}

impl State {
    /// What was granted, recalled, returned and revoked.
    pub fn delegation_counts(&self) -> DelegationCounts {
        let counters = &self.delegations.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DelegationCounts {
            granted_read: of(&counters.granted_read),
            granted_write: of(&counters.granted_write),
            recalled: of(&counters.recalled),
            returned: of(&counters.returned),
            revoked: of(&counters.revoked),
            asked: of(&counters.asked),
            unasked: of(&counters.unasked),
        }
    }

    /// Delegations that clients have now.
    pub fn delegations(&self) -> u64 {
        self.delegations.total.load(Ordering::Relaxed)
    }
}
