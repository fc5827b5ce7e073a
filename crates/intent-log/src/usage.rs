//! What a running log tells of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::file_systems::FileSystemUsage;
use crate::format::Lsn;

/// Buckets of a histogram.
pub const BUCKETS: usize = 40;

/// Counts by powers of two: bucket `n` has the values from 2^n to 2^(n+1) - 1, the first one 0
/// too, the last one all that are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

fn bucket(value: u64) -> usize {
    (value.checked_ilog2().unwrap_or(0) as usize).min(BUCKETS - 1)
}

impl Histogram {
    pub(crate) fn note(&mut self, value: u64) {
        if let Some(count) = self.0.get_mut(bucket(value)) {
            *count += 1;
        }
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A histogram that many threads write to.
#[derive(Debug)]
pub(crate) struct SharedHistogram([AtomicU64; BUCKETS]);

impl Default for SharedHistogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl SharedHistogram {
    pub(crate) fn note(&self, value: u64) {
        if let Some(count) = self.0.get(bucket(value)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (to, from) in histogram.0.iter_mut().zip(&self.0) {
            *to = from.load(Ordering::Relaxed);
        }
        histogram
    }
}

/// What was done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records put into batches, those that tell nothing among them.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Bytes of batches, as they are written.
    pub device_bytes: u64,
    /// Records to a batch.
    pub records_per_batch: Histogram,
    /// Operations that were not admitted as the ring was full.
    pub fullness_refusals: u64,
}

/// What a log uses, and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The size of the ring.
    pub ring_bytes: u64,
    /// Of it, what may not be written over.
    pub used_bytes: u64,
    /// What is promised to operations that were admitted, beyond that.
    pub promised_bytes: u64,
    /// The LSN up to which records are stable.
    pub stable: Lsn,
    /// The LSN reserved last.
    pub last: Lsn,
    /// Batches that are being written.
    pub batches_in_flight: usize,
    /// By file system.
    pub file_systems: Vec<FileSystemUsage>,
    /// Counts.
    pub counters: Counters,
    /// How long writes took, in nanoseconds, as the caller noted it.
    pub write_ns: Histogram,
    /// All of these together.
    pub write_total_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, SharedHistogram};

    #[test]
    fn values_are_counted_by_powers_of_two() {
        let (mut plain, shared) = (Histogram::default(), SharedHistogram::default());
        for value in [0, 1, 2, 3, 4, u64::MAX] {
            plain.note(value);
            shared.note(value);
        }
        assert_eq!(plain.0[..3], [2, 2, 1]);
        assert_eq!(plain.0[BUCKETS - 1], 1);
        assert_eq!(shared.load(), plain);
        assert_eq!(plain.count(), 6);
    }
}
