//! What calls took.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that is told exactly, in nanoseconds.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Latencies in nanoseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants and valid"))
}

/// What one thread, or all, counted while it was measured.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Latencies by kind of call.
    pub(crate) kinds: Vec<Histogram<u64>>,
    /// Replies in all, warm-up included, all checked.
    pub(crate) replies: u64,
    /// Replies that asked to come again later.
    pub(crate) try_later: u64,
    /// Calls over UDP that were sent again.
    pub(crate) retransmissions: u64,
    /// Replies over UDP to calls that were answered before.
    pub(crate) strays: u64,
}

impl Tally {
    pub(crate) fn new(kinds: usize) -> Self {
        let kinds = vec![histogram(); kinds];
        Self { kinds, replies: 0, try_later: 0, retransmissions: 0, strays: 0 }
    }

    /// Adds another thread's.
    pub(crate) fn add(&mut self, other: &Self) {
        for (all, own) in self.kinds.iter_mut().zip(&other.kinds) {
            // Both have the same bounds, so nothing can be out of range.
            let _ = all.add(own);
        }
        self.replies += other.replies;
        self.try_later += other.try_later;
        self.retransmissions += other.retransmissions;
        self.strays += other.strays;
    }

    /// Latencies of all kinds together.
    pub(crate) fn all(&self) -> Histogram<u64> {
        let mut all = histogram();
        for kind in &self.kinds {
            let _ = all.add(kind);
        }
        all
    }
}

/// A distribution of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Worst.
    pub max_us: f64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |q: f64| histogram.value_at_quantile(q) as f64 / 1e3;
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            mean_us: histogram.mean() / 1e3,
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// A kind of call in a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindReport {
    /// Its name.
    pub operation: &'static str,
    /// Calls that ended while it was measured.
    pub calls: u64,
    /// Of all calls, in percent.
    pub percent_of_calls: f64,
    /// Of the time that all calls took, in percent.
    pub percent_of_time: f64,
    /// How long they took.
    #[serde(flatten)]
    pub latency: Latency,
}

/// The kinds that were called, in the order of `names`.
pub(crate) fn kind_reports(tally: &Tally, names: &[&'static str]) -> Vec<KindReport> {
    let time = |kind: &Histogram<u64>| kind.mean() * kind.len() as f64;
    let calls: u64 = tally.kinds.iter().map(Histogram::len).sum();
    let all_time: f64 = tally.kinds.iter().map(time).sum();
    let percent = |part: f64, whole: f64| if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
    names
        .iter()
        .zip(&tally.kinds)
        .filter(|(_, kind)| !kind.is_empty())
        .map(|(name, kind)| KindReport {
            operation: name,
            calls: kind.len(),
            percent_of_calls: percent(kind.len() as f64, calls as f64),
            percent_of_time: percent(time(kind), all_time),
            latency: Latency::of(kind),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_calls_and_time_add_up() {
        let mut tally = Tally::new(3);
        for _ in 0..3 {
            tally.kinds[0].saturating_record(1_000_000);
        }
        tally.kinds[2].saturating_record(7_000_000);
        let mut all = Tally::new(3);
        all.add(&tally);
        let reports = kind_reports(&all, &["getattr", "never", "write"]);
        assert_eq!(reports.len(), 2);
        assert!((reports[0].percent_of_calls - 75.0).abs() < 1e-9);
        assert!((reports[1].percent_of_time - 70.0).abs() < 0.1);
        assert!((reports[1].latency.p50_us - 7000.0).abs() < 10.0);
        assert_eq!(all.all().len(), 4);
    }
}
