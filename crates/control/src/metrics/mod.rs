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
use std::sync::{Arc, Mutex, PoisonError};
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

/// The last numbers that were collected.
#[derive(Default)]
pub(crate) struct Collected(Mutex<Option<(Instant, Arc<Figures>)>>);

impl Collected {
    /// Numbers that are a second old at most. Who comes while they are collected waits for the same.
    pub(crate) fn figures(&self, collect: &dyn Fn() -> Figures) -> Arc<Figures> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, figures)) = &*last
            && when.elapsed() < FRESH
        {
            return Arc::clone(figures);
        }
        let begun = Instant::now();
        let mut figures = collect();
        figures.collecting = begun.elapsed();
        let figures = Arc::new(figures);
        *last = Some((Instant::now(), Arc::clone(&figures)));
        figures
    }
}

#[cfg(test)]
mod tests;
