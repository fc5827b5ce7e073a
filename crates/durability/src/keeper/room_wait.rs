//! How long calls wait until the log takes their changes, for who tells why a call was slow.
//!
//! Storages know the log, but not the call: each thread sums its own waits, and whoever has executed a call
//! takes the sum ([`take_ns`]).

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static WAITED_NS: Cell<u64> = const { Cell::new(0) };
}

/// A wait of this thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct RoomWait(Instant);

impl RoomWait {
    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }
}

impl Drop for RoomWait {
    fn drop(&mut self) {
        let ns = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        WAITED_NS.with(|sum| sum.set(sum.get().saturating_add(ns)));
    }
}

/// How long this thread has waited since this was asked last.
pub(super) fn take_ns() -> u64 {
    WAITED_NS.take()
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::time::Duration;

    use super::*;

    #[test]
    fn waits_are_summed_until_they_are_taken() {
        const WAIT: Duration = Duration::from_millis(3);
        take_ns();
        for _ in 0..2 {
            let _waiting = RoomWait::begin();
            std::thread::sleep(WAIT);
        }
        std::thread::spawn(|| assert_eq!(take_ns(), 0, "of this thread")).join().unwrap();
        assert!(u128::from(take_ns()) >= 2 * WAIT.as_nanos());
        assert_eq!(take_ns(), 0);
    }
}
