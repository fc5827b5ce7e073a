//! How fast a checkpoint has data written to the disk before it flushes the file system: as fast as the
//! log's own writes allow, and as fast as it must.
//!
//! Where the log is on the disk that the data is on, each of its writes waits behind what the kernel
//! writes back. So the data goes to the disk in pieces, and after each the log's writes are looked at:
//! while they take longer than they may the rate is halved, else it grows. It never falls below what
//! brings the checkpoint to its end in time, and a log that fills up is not paced at all.

use std::time::Duration;

/// Bytes a second that it begins with, and never falls below or grows beyond. (What has to be written
/// for the checkpoint to end in time may be more than the least.)
const RATE_FIRST: f64 = (64 << 20) as f64;
const RATE_MIN: f64 = (8 << 20) as f64;
const RATE_MAX: f64 = (4_u64 << 30) as f64;
/// The log's writes may take so many times what they took when no checkpoint ran…
const SLOWER_MAX: u64 = 2;
/// … and at least so long: a fast device's times differ by themselves. In ns.
const WRITE_NS_MIN: u64 = 500_000;
/// What counts as the longest, in ns.
const WRITE_NS_MAX: u64 = 60_000_000_000;
/// Pauses are no shorter (a timer's length) nor longer.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// What the log does beside a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLoad {
    /// How many batches it has written.
    pub(super) batches: u64,
    /// How long its writes take of late, in ns.
    pub(super) write_ns: u64,
}

/// The rate, from one checkpoint to the next.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: f64,
    /// Of the log's writes, in ns, when no checkpoint ran.
    calm_write_ns: u64,
    batches: u64,
    /// What was written and not waited for, in seconds.
    owed_s: f64,
    /// Slower than this the checkpoint would not end in time.
    rate_min: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            bytes_per_s: RATE_FIRST,
            calm_write_ns: 0,
            batches: 0,
            owed_s: 0.0,
            rate_min: RATE_MIN,
        }
    }
}

impl Pace {
    /// A checkpoint begins, with the log as it is without one. So many bytes are to be written within
    /// `time`.
    pub(super) fn begin(&mut self, load: LogLoad, bytes: u64, time: Duration) {
        let rate_min = bytes as f64 / time.as_secs_f64().max(PAUSE_MIN.as_secs_f64());
        self.rate_min = rate_min.clamp(RATE_MIN, RATE_MAX);
        self.bytes_per_s = self.bytes_per_s.max(self.rate_min);
        let write_ns = load.write_ns.min(WRITE_NS_MAX);
        // It may begin while the last one's writes are still on their way.
        self.calm_write_ns = match self.calm_write_ns {
            0 => write_ns,
            known => (7 * known + write_ns.min(2 * known)) / 8,
        };
        self.batches = load.batches;
        self.owed_s = 0.0;
    }

    /// So much was handed to the disk: how long to wait before more is.
    pub(super) fn pause_after(&mut self, bytes: u64, load: LogLoad) -> Duration {
        self.owed_s += bytes as f64 / self.bytes_per_s;
        let pause = Duration::from_secs_f64(self.owed_s.clamp(0.0, PAUSE_MAX.as_secs_f64()));
        if pause < PAUSE_MIN {
            return Duration::ZERO;
        }
        self.owed_s = 0.0;
        self.adapt(load);
        pause
    }

    fn adapt(&mut self, load: LogLoad) {
        let limit_ns = (SLOWER_MAX * self.calm_write_ns).max(WRITE_NS_MIN);
        // Nobody waits in a log that has nothing to write.
        let is_slow = load.batches > self.batches && load.write_ns > limit_ns;
        self.batches = load.batches;
        let factor = if is_slow { 0.5 } else { 1.25 };
        self.bytes_per_s = (self.bytes_per_s * factor).clamp(self.rate_min, RATE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn load(batches: u64, write_ns: u64) -> LogLoad {
        LogLoad { batches, write_ns }
    }

    /// A disk on which the log's writes take longer the faster data is written: a model of the queue.
    fn settled_rate(capacity: f64, calm_ns: u64) -> f64 {
        let mut pace = Pace::default();
        let mut batches = 0;
        let mut rates = Vec::new();
        for _checkpoint in 0..20 {
            pace.begin(load(batches, calm_ns), 0, Duration::from_secs(5));
            for _piece in 0..100 {
                batches += 1;
                let used = pace.bytes_per_s / capacity;
                let write_ns = if used < 0.9 { calm_ns as f64 / (1.0 - used) } else { 1e8 };
                pace.pause_after(MIB, load(batches, write_ns as u64));
                rates.push(pace.bytes_per_s);
            }
        }
        let late = rates.split_off(rates.len() / 2);
        late.iter().sum::<f64>() / late.len() as f64
    }

    #[test]
    fn the_rate_is_what_the_logs_writes_allow() {
        // Twice as long is at half of what the disk can do.
        for capacity in [100e6, 400e6, 1.6e9] {
            let rate = settled_rate(capacity, 1_000_000);
            assert!((0.2..0.7).contains(&(rate / capacity)), "{rate} of {capacity}");
        }
    }

    #[test]
    fn a_log_that_writes_nothing_slows_nothing() {
        let mut pace = Pace::default();
        pace.begin(load(7, 100_000_000), 0, Duration::from_secs(5));
        for _piece in 0..1000 {
            pace.pause_after(MIB, load(7, 900_000_000));
        }
        assert!(pace.bytes_per_s >= RATE_MAX / 2.0);
    }

    proptest! {
        /// Whatever the log does, a checkpoint comes to its end.
        #[test]
        fn the_rate_has_bounds(
            pieces in prop::collection::vec((0..4 * MIB, 0..u64::MAX / 4, any::<bool>()), 1..200),
        ) {
            let mut pace = Pace::default();
            let mut batches = 0;
            for (bytes, write_ns, begins) in pieces {
                batches += 1;
                if begins {
                    pace.begin(load(batches, write_ns), bytes * 100, Duration::from_secs(1));
                }
                prop_assert!(pace.pause_after(bytes, load(batches, write_ns)) <= PAUSE_MAX);
                prop_assert!((RATE_MIN..=RATE_MAX).contains(&pace.bytes_per_s));
            }
        }
    }
}
