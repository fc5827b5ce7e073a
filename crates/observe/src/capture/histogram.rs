//! A histogram of latencies in 848 bytes: eight buckets an octave, from 1 µs to 67 s. A value that is read
//! from it is 6 % wrong at the most.

const BUCKETS_AN_OCTAVE: u32 = 8;
/// Below this everything is one bucket: 2^10 ns.
const SHORTEST_BITS: u32 = 10;
const OCTAVES: u32 = 26;
const BUCKETS: usize = (OCTAVES * BUCKETS_AN_OCTAVE + 1) as usize;

/// How long calls took.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, total_ns: 0, max_ns: 0 }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 1 << SHORTEST_BITS {
        return 0;
    }
    let octave = ns.ilog2() - SHORTEST_BITS;
    let part = (ns >> (ns.ilog2() - 3)) & 7;
    let index = 1 + octave * BUCKETS_AN_OCTAVE + part as u32;
    (index as usize).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn value_ns(index: usize) -> u64 {
    let Some(index) = (index as u64).checked_sub(1) else { return 1 << (SHORTEST_BITS - 1) };
    let (octave, part) = (index / 8, index % 8);
    let shift = octave + u64::from(SHORTEST_BITS) - 3;
    ((8 + part) << shift) + (1 << shift) / 2
}

impl Histogram {
    /// Counts a latency.
    pub fn add(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts all of another one.
    pub fn add_all(&mut self, other: &Self) {
        for (mine, its) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine = mine.saturating_add(*its);
        }
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in ns; 0 if there are none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }

    /// The longest in ns.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time in ns that this share of the calls, from 0 to 1, took at the most.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return value_ns(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use proptest::prelude::*;

    use super::{Histogram, bucket, value_ns};

    proptest! {
        #[test]
        fn a_value_is_near_its_buckets_middle(ns in 1_024_u64..60_000_000_000) {
            let found = value_ns(bucket(ns));
            prop_assert!((found as f64 / ns as f64 - 1.0).abs() < 0.065, "{ns} {found}");
        }
    }

    #[test]
    fn quantiles_and_sums() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile_ns(0.5), histogram.mean_ns()), (0, 0));
        for us in 1..=1000_u64 {
            histogram.add(us * 1000);
        }
        let near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 0.07;
        assert!(near(histogram.quantile_ns(0.5), 500e3));
        assert!(near(histogram.quantile_ns(0.99), 990e3));
        assert_eq!(histogram.quantile_ns(1.0), histogram.max_ns());
        assert_eq!((histogram.mean_ns(), histogram.max_ns()), (500_500, 1_000_000));
        histogram.add(u64::MAX);
        let mut sum = Histogram::default();
        sum.add_all(&histogram);
        sum.add(0);
        assert_eq!((sum.count(), sum.max_ns()), (1002, u64::MAX));
    }
}
