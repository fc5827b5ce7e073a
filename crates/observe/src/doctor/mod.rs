//! `steadfast doctor`: why NFS is slow on this machine, whoever serves or mounts.
//!
//! [`examine`] looks twice ([`facts`], read by the functions of [`parse`]) and judges both looks by the table of
//! [`checks`]: a [`Report`] of [`Finding`]s, the worst first. Looking changes nothing, and waits for nothing
//! without a bound. The judgement does no I/O, so that each finding is tested with facts that a test writes.

pub mod checks;
pub mod facts;
mod gather;
pub mod parse;
mod report;
pub(crate) mod resolving;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub use gather::Sources;
pub use report::{Finding, Report, catalogue};

use checks::View;
use facts::{Facts, Sample};

/// Between two quick looks.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Looks, waits, looks again, and judges.
pub fn examine(sources: &Sources, interval: Duration) -> Report {
    // Name servers and mounts are asked once, by the second look.
    let before = gather::facts(sources, false);
    let nfsd = gather::nfsd_threads(&sources.machine, &before);
    let began = Instant::now();
    let mut samples = Vec::new();
    while began.elapsed() < interval {
        samples.push(gather::sample(&sources.machine, &nfsd));
        std::thread::sleep(SAMPLE_EVERY.min(interval.saturating_sub(began.elapsed())));
    }
    let after = gather::facts(sources, true);
    judge(&before, &after, &samples)
}

/// Judges two looks.
pub fn judge(before: &Facts, after: &Facts, samples: &[Sample]) -> Report {
    Report::of(&View { before, after, samples })
}
