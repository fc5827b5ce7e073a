//! Metrics for Prometheus and what else reads its formats: `GET /metrics`.
//!
//! [`Figures`] are the numbers of one moment, [`METRICS`] says what is told of them, and [`text()`] writes
//! it. Labels have few values, whatever clients do: an operation, a state, never a client, a share or
//! a user. File systems of the log have lines of their own, [`FILE_SYSTEMS_MAX`] at most. So the number
//! of series has a bound that a test checks.

mod figures;
mod fill;
mod format;
mod scrape;
mod table;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use figures::{
    ClientCounts, DecisionCounts, Figures, NameCounts, ProcessFigures, SetAsideCounts, ShareCounts,
};
pub use fill::{
    COMPOUND_OPERATIONS_MAX, FILE_SYSTEMS_MAX, LATENCY_BOUNDS, OPERATIONS_MAX, total_names,
};
pub use format::Format;
pub use table::{Kind, METRICS, Metric};

/// How long numbers serve for further scrapes: many scrapers cost no more than one a second.
const FRESH: Duration = Duration::from_secs(1);

/// The text of these numbers.
///
/// # Errors
/// When the encoder fails, which is a bug.
pub fn text(figures: &Figures, format: Format) -> Result<String, fmt::Error> {
    fill::scrape(figures).text(format)
}

/// How long whoever comes while numbers are collected waits for them: less than scrapers do (Prometheus: 10 s).
const COLLECTING_PATIENCE: Duration = Duration::from_secs(5);

/// The last numbers that were collected.
#[derive(Default)]
pub(crate) struct Collected {
    state: Mutex<Collection>,
    has_ended: Condvar,
}

#[derive(Default)]
struct Collection {
    last: Option<(Instant, Arc<Figures>)>,
    /// Since when somebody collects new ones.
    since: Option<Instant>,
}

/// Numbers are being collected for so long: a disk hangs, most likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StillCollecting(pub(crate) Duration);

impl Collected {
    fn lock(&self) -> MutexGuard<'_, Collection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers that are a second old at most. Who comes while they are collected waits for the same, but not for
    /// long: whatever hangs, it holds up one thread.
    ///
    /// # Errors
    /// When they could not be collected within [`COLLECTING_PATIENCE`].
    pub(crate) fn figures(
        &self,
        collect: &dyn Fn() -> Figures,
    ) -> Result<Arc<Figures>, StillCollecting> {
        self.within(COLLECTING_PATIENCE, collect)
    }

    fn within(
        &self,
        patience: Duration,
        collect: &dyn Fn() -> Figures,
    ) -> Result<Arc<Figures>, StillCollecting> {
        let came = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some((when, figures)) = &state.last
                && (when.elapsed() < FRESH || *when >= came)
            {
                return Ok(Arc::clone(figures));
            }
            let Some(since) = state.since else { break };
            // Of one that hangs there is nothing to be waited for, however lately one has come.
            let left = patience.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
            let Some(left) = left else { return Err(StillCollecting(since.elapsed())) };
            let waited = self.has_ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let begun = Instant::now();
        state.since = Some(begun);
        drop(state);
        let ending = Ending(self);
        let mut figures = collect();
        figures.collecting = begun.elapsed();
        let figures = Arc::new(figures);
        self.lock().last = Some((Instant::now(), Arc::clone(&figures)));
        drop(ending);
        Ok(figures)
    }
}

/// Ends a collection, also one that panics: the next one tries again.
struct Ending<'c>(&'c Collected);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().since = None;
        self.0.has_ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
