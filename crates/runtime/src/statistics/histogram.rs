//! Latency distributions: log-linear buckets, as in Gil Tene's `HdrHistogram`, with one writer.
//!
//! An octave (a power of two) is divided into [`SUB_BUCKETS`] equal buckets, so a bucket is at
//! most 1/32 of its values wide: what is read back is wrong by 3.2 % at the most. Below about a
//! microsecond buckets are 32 ns each; what lasts longer than [`NS_MAX`] counts there.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of an octave, as a power of two.
const SUB_BITS: u32 = 5;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
/// The narrowest bucket in ns, as a power of two.
const UNIT_BITS: u32 = 5;
/// The longest time told apart, as a power of two in ns.
const NS_BITS: u32 = 37;
/// The longest time told apart: 137 s.
pub(crate) const NS_MAX: u64 = (1 << NS_BITS) - 1;
/// Of a histogram.
pub(crate) const BUCKETS: usize =
    ((NS_BITS - UNIT_BITS - SUB_BITS + 1) as usize) << SUB_BITS as usize;

/// The bucket of a time.
pub(crate) fn bucket_of(ns: u64) -> usize {
    let units = (ns.min(NS_MAX) >> UNIT_BITS) as usize;
    // The octave of values below 2 * SUB_BUCKETS is 0: they are their own buckets.
    let octave = (usize::BITS - 1 - (units | SUB_BUCKETS).leading_zeros()) - SUB_BITS;
    ((octave as usize) << SUB_BITS) + (units >> octave)
}

/// The shortest and the longest time of a bucket, in ns.
pub(crate) fn bounds_of(bucket: usize) -> (u64, u64) {
    let octave = (bucket >> SUB_BITS).saturating_sub(1) as u32;
    let units = (bucket - ((octave as usize) << SUB_BITS)) as u64;
    let low = units << (octave + UNIT_BITS);
    (low, low + (1 << (octave + UNIT_BITS)) - 1)
}

/// Counts by bucket: written by one thread, read by any.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Histogram {
    /// Counts so many more in a bucket of [`bucket_of`].
    pub(crate) fn add(&self, bucket: usize, more: u64) {
        if let Some(count) = self.counts.get(bucket) {
            // One writer: no read-modify-write is needed.
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    /// The counts by bucket.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            next = high + 1;
        }
        assert_eq!(next, NS_MAX + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_bucket_is_a_thirty_second_of_its_values_wide_at_most() {
        // From a microsecond on; 32 ns before.
        for bucket in 0..BUCKETS {
            let (low, high) = bounds_of(bucket);
            let width = high - low + 1;
            assert!(width * 32 <= low || (width == 32 && low < 1024), "{low} to {high} ns");
        }
    }

    #[test]
    fn any_time_is_within_the_bounds_of_its_bucket() {
        let mut ns = 1_u64;
        while ns < NS_MAX {
            for ns in [ns - 1, ns, ns + 1] {
                let (low, high) = bounds_of(bucket_of(ns));
                assert!((low..=high).contains(&ns), "{ns} is not in {low} to {high}");
            }
            ns += ns / 7 + 1;
        }
    }

    #[test]
    fn a_reader_beside_the_writer_sees_counts_grow_and_loses_none() {
        const CALLS: u64 = 300_000;
        let histogram = Histogram::default();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for call in 0..CALLS {
                    histogram.add(bucket_of(call * 100), 1);
                }
                is_done.store(true, Ordering::Release);
            });
            let mut before = 0;
            while !is_done.load(Ordering::Acquire) {
                let now = histogram.counts().sum();
                assert!(before <= now && now <= CALLS, "{before}, then {now}");
                before = now;
            }
        });
        assert_eq!(histogram.counts().sum::<u64>(), CALLS);
    }
}
