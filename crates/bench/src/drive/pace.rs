//! When calls start.

use std::str::FromStr;

use crate::random::Random;

/// Who decides when a call starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The reply to the call before: as many calls are always in flight.
    Closed,
    /// A schedule that does not wait for the server. Latency counts from the scheduled start.
    Open {
        /// Calls a second, of all threads.
        calls_per_second: f64,
        /// How they follow each other.
        arrivals: Arrivals,
    },
}

/// How scheduled calls follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Independently of each other (a Poisson process), as the calls of many clients do.
    #[default]
    Exponential,
    /// At equal distances.
    Even,
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exponential" => Ok(Self::Exponential),
            "even" => Ok(Self::Even),
            _ => Err("write exponential or even".to_owned()),
        }
    }
}

/// A thread's schedule. It never ends and holds one moment only: a backlog, however long, is the
/// distance between that moment and now.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    gap_ns: f64,
    arrivals: Arrivals,
    next_ns: f64,
    random: Random,
}

impl Schedule {
    /// A schedule of so many calls a second. `phase` (0 to 1) moves even arrivals apart from
    /// those of other threads.
    pub(crate) fn new(calls_per_second: f64, arrivals: Arrivals, phase: f64, seed: u64) -> Self {
        let gap_ns = 1e9 / calls_per_second.max(1e-3);
        let mut schedule =
            Self { gap_ns, arrivals, next_ns: gap_ns * phase, random: Random::new(seed) };
        if arrivals == Arrivals::Exponential {
            schedule.advance();
        }
        schedule
    }

    /// When the next call is to start, in nanoseconds since the schedule began.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Begins at this moment.
    pub(crate) fn begin_at(&mut self, now_ns: u64) {
        self.next_ns += now_ns as f64;
    }

    /// Takes the next start if it is due.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns();
        (due <= now_ns).then(|| {
            self.advance();
            due
        })
    }

    fn advance(&mut self) {
        self.next_ns += match self.arrivals {
            Arrivals::Even => self.gap_ns,
            Arrivals::Exponential => -self.random.unit().ln() * self.gap_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(schedule: &mut Schedule, until_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| schedule.take_due(until_ns)).collect()
    }

    #[test]
    fn even_arrivals_are_even_and_phases_move_them() {
        let mut schedule = Schedule::new(1000.0, Arrivals::Even, 0.5, 1);
        schedule.begin_at(5_000_000);
        let starts = starts(&mut schedule, 8_000_000);
        assert_eq!(starts, [5_500_000, 6_500_000, 7_500_000]);
    }

    #[test]
    fn exponential_gaps_have_the_mean_and_spread_of_a_poisson_process() {
        let mut schedule = Schedule::new(10_000.0, Arrivals::Exponential, 0.0, 7);
        let starts = starts(&mut schedule, 20_000_000_000);
        let count = starts.len() as f64;
        assert!((count - 200_000.0).abs() < 2_000.0, "{count}");
        let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Standard deviation and mean of an exponential distribution are equal.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02);
    }

    proptest! {
        #[test]
        fn nothing_is_due_early_and_nothing_is_left_out(
            rate in 1.0_f64..1e6, seed: u64, steps in proptest::collection::vec(0_u64..5_000_000, 1..50),
        ) {
            let mut schedule = Schedule::new(rate, Arrivals::Exponential, 0.0, seed);
            let mut whole = schedule.clone();
            let (mut now, mut seen) = (0, Vec::new());
            for step in steps {
                now += step;
                while let Some(due) = schedule.take_due(now) {
                    prop_assert!(due <= now);
                    seen.push(due);
                }
                prop_assert!(schedule.next_ns() > now);
            }
            prop_assert_eq!(seen, starts(&mut whole, now));
        }
    }
}
