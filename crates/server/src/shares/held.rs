//! Since when somebody has had the shares for himself: who cannot have them tells how long that has been going on.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::state::State;

/// When the shares were locked that are locked now.
#[derive(Debug, Default)]
pub(super) struct HeldSince {
    start: OnceLock<Instant>,
    /// In ms after the start, from 1; 0 if nobody has them.
    at_ms: AtomicU64,
}

impl HeldSince {
    fn now_ms(&self) -> u64 {
        let start = self.start.get_or_init(Instant::now);
        1 + u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// To be called by who has just locked them.
    pub(super) fn begin(&self) {
        self.at_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.at_ms.store(0, Ordering::Relaxed);
    }

    /// How long somebody has had them; 0 if nobody has.
    pub(super) fn age(&self) -> Duration {
        match self.at_ms.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            at_ms => Duration::from_millis(self.now_ms().saturating_sub(at_ms)),
        }
    }
}

/// The shares, for one alone.
pub(super) struct Held<'m> {
    pub(super) state: MutexGuard<'m, State>,
    pub(super) since: &'m HeldSince,
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Held<'_> {
    /// Before the lock is: whoever has it next notes his own time.
    fn drop(&mut self) {
        self.since.end();
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn only_who_has_them_now_counts() {
        let since = HeldSince::default();
        assert_eq!(since.age(), Duration::ZERO);
        since.begin();
        std::thread::sleep(Duration::from_millis(30));
        assert!(since.age() >= Duration::from_millis(25));
        since.end();
        assert_eq!(since.age(), Duration::ZERO);
        // However long ago they were locked before.
        std::thread::sleep(Duration::from_millis(30));
        let begun = Instant::now();
        since.begin();
        assert!(since.age() <= begun.elapsed() + Duration::from_millis(1));
    }
}
