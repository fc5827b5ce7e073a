//! Log lines that a client can cause are bounded in rate, kind by kind.

use std::time::Instant;

use parking_lot::Mutex;

/// Lines of one kind that may come at once.
const BURST: u32 = 10;
/// Time after which one more may come.
const REFILL_MS: u64 = 1_000;

/// A kind of log line with a bound of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    Complaint,
    Mount,
    Room,
    HangUp,
    Framing,
    Accept,
    Refused,
    SlowReader,
    Panic,
    Datagram,
    Memory,
    Flush,
    Workers,
    Storage,
}

const KINDS: usize = LogKind::Storage as usize + 1;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    used: u32,
    refilled_ms: u64,
    left_out: u64,
}

/// Token buckets, one a kind.
#[derive(Debug)]
pub(crate) struct LogLimits {
    start: Instant,
    buckets: [Mutex<Bucket>; KINDS],
}

impl LogLimits {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), buckets: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Whether a line of this kind may be written now: then how many were left out since the
    /// last one.
    pub(crate) fn admit(&self, kind: LogKind) -> Option<u64> {
        self.admit_at(kind, self.start.elapsed().as_millis() as u64)
    }

    fn admit_at(&self, kind: LogKind, now_ms: u64) -> Option<u64> {
        let mut bucket = self.buckets.get(kind as usize)?.lock();
        let refill = now_ms.saturating_sub(bucket.refilled_ms) / REFILL_MS;
        if refill > 0 {
            bucket.used = bucket.used.saturating_sub(u32::try_from(refill).unwrap_or(u32::MAX));
            bucket.refilled_ms += refill * REFILL_MS;
        }
        if bucket.used >= BURST {
            bucket.left_out += 1;
            return None;
        }
        bucket.used += 1;
        Some(std::mem::take(&mut bucket.left_out))
    }
}

/// Writes a rate-limited log line: limits, kind, level, then as `tracing::event!`.
macro_rules! limited {
    ($limits:expr, $kind:expr, $level:ident, $($message:tt)+) => {
        if let Some(left_out) = $limits.admit($kind) {
            if left_out > 0 {
                tracing::$level!("{left_out} log lines like the next one were left out");
            }
            tracing::$level!($($message)+);
        }
    };
}
pub(crate) use limited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_one_a_refill_and_the_rest_is_counted() {
        let limits = LogLimits::new();
        let passed = (0..100).filter(|_| limits.admit_at(LogKind::Framing, 0).is_some()).count();
        assert_eq!(passed, BURST as usize);
        assert_eq!(limits.admit_at(LogKind::HangUp, 0), Some(0), "kinds are apart");
        assert_eq!(limits.admit_at(LogKind::Framing, REFILL_MS), Some(100 - u64::from(BURST)));
        assert_eq!(limits.admit_at(LogKind::Framing, REFILL_MS), None);
        assert_eq!(limits.admit_at(LogKind::Framing, 2 * REFILL_MS), Some(1));
    }
}
