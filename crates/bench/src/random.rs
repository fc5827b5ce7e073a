//! Chance that a seed repeats: what schedules, decks of calls and choices of files draw.

/// xorshift64*: enough for schedules and choices, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From a seed; any number will do.
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Above 0, at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn choices_stay_below_their_bound(seed: u64, bound in 1_usize..1_000_000) {
            let mut random = Random::new(seed);
            for _ in 0..100 {
                prop_assert!(random.below(bound) < bound);
            }
            prop_assert_eq!(random.below(0), 0);
        }
    }
}
