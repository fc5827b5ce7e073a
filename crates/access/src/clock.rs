//! Time, as an argument.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds that never go backwards, from a beginning long ago: what was learnt before the
    /// program started has a time too.
    fn monotonic_ms(&self) -> u64;

    /// Seconds since 1970, for what is kept across restarts.
    fn wall_s(&self) -> u64;
}

/// Where the monotonic time of a program begins: 34 years.
pub(crate) const BEGINNING_MS: u64 = 1 << 40;

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    beginning: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { beginning: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.beginning.elapsed().as_millis()).unwrap_or(u64::MAX);
        BEGINNING_MS.saturating_add(elapsed_ms)
    }

    fn wall_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
