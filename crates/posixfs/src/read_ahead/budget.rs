//! How much the streams of all files may have asked ahead together.

use std::sync::atomic::{AtomicU64, Ordering};

use super::streams::WINDOW_BYTES_MIN;

/// Of what is left, a window gets at most this part, so that there is always room for another
/// stream: n streams come to rest at about `1 / (n + WINDOW_SHARES)` of the budget each.
const WINDOW_SHARES: u64 = 16;

/// The sum of all windows is bounded by it, however many files and streams there are: what is
/// asked ahead for thousands of clients must not push itself out of memory before it is read.
#[derive(Debug)]
pub(crate) struct WindowBudget {
    left: AtomicU64,
}

impl WindowBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes) }
    }

    /// Whether a stream could get a window at all.
    pub(super) fn has_room(&self) -> bool {
        self.left.load(Ordering::Relaxed) >= WINDOW_BYTES_MIN
    }

    /// Turns a window of `window` bytes (0: none yet) into one of `wanted`, or of what can be
    /// had, which may be less than there was, and is 0 only if there was none.
    pub(super) fn change(&self, window: u64, wanted: u64) -> u64 {
        let mut granted = window;
        let changed = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            let whole = left.saturating_add(window);
            granted = wanted.min(whole / WINDOW_SHARES).max(WINDOW_BYTES_MIN);
            whole.checked_sub(granted)
        });
        if changed.is_ok() { granted } else { window }
    }

    pub(super) fn give_back(&self, window: u64) {
        self.left.fetch_add(window, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}
