//! Requests that a process before this one has executed, and has not made stable: they are answered when
//! their file systems have been made stable as a whole. Until then their clients are told by SEQUENCE to
//! try later, which uses up nothing (RFC 8881 §18.46.3). A file system that hangs holds up its own requests
//! only.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_shares::ShareId;
use steadfast_state::Image;

use crate::Engine;
use crate::compound::UnderWay;

/// Shares on file systems that are to be made stable.
#[derive(Default)]
pub(crate) struct Unsynced {
    has_some: AtomicBool,
    shares: Mutex<HashSet<ShareId>>,
}

impl Unsynced {
    /// Those that requests have changed.
    pub(crate) fn begin(&self, image: &Image) {
        let mut shares = self.shares.lock();
        shares.extend(image.unstable().flat_map(UnderWay::shares));
        self.has_some.store(!shares.is_empty(), Ordering::Release);
    }

    /// Whether there are some. It costs a look.
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Whether a request has to wait that has come so far.
    pub(crate) fn has_of(&self, under_way: &[u8]) -> bool {
        let shares = self.shares.lock();
        UnderWay::shares(under_way).any(|share| shares.contains(&share))
    }
}

impl Engine {
    /// Shares whose file systems are to be made stable as a whole, each of which is told to
    /// [`Engine::share_is_synced`] then: what a killed process has done there is answered when it is.
    pub fn unsynced_shares(&self) -> Vec<ShareId> {
        self.shared.unsynced.shares.lock().iter().copied().collect()
    }

    /// What was done on the file system of this share before this process began is stable.
    pub fn share_is_synced(&self, share: ShareId) {
        let unsynced = &self.shared.unsynced;
        let mut shares = unsynced.shares.lock();
        shares.remove(&share);
        unsynced.has_some.store(!shares.is_empty(), Ordering::Release);
    }
}
