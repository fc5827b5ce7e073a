//! Calls and threads that wait until records are stable. The replies of the calls are parked.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use steadfast_runtime::ParkedReply;

use super::parked::Parked;

/// Parked calls and waiting threads.
///
/// Each reply is sent once, and not before its record is stable. Callers pass the LSN up to which records
/// are stable; this part does not know the log.
pub(super) struct Waiting<Call = ParkedReply> {
    parked: Mutex<Parked<Call>>,
    /// Threads that send replies. It is incremented with `parked` locked, so that a reply is always in
    /// `parked` or counted here until it is sent: [`Waiting::is_empty`] misses none.
    sending: AtomicUsize,
    /// Locked for a moment before each notification: a thread that has found its record not stable is
    /// waiting by then.
    stable_lock: Mutex<()>,
    stable_grew: Condvar,
}

impl<Call> Default for Waiting<Call> {
    fn default() -> Self {
        Self {
            parked: Mutex::default(),
            sending: AtomicUsize::new(0),
            stable_lock: Mutex::default(),
            stable_grew: Condvar::new(),
        }
    }
}

impl<Call> Waiting<Call> {
    /// Parks calls that wait for these LSNs. Returns the lowest LSN that any parked call waits for. The
    /// caller checks whether it is stable already: the thread that made it stable may have looked at the
    /// parked calls before these came.
    pub(super) fn park(&self, calls: impl Iterator<Item = (u64, Call)>) -> Option<u64> {
        let mut parked = self.parked.lock();
        for (lsn, call) in calls {
            parked.insert(lsn, call);
        }
        parked.first()
    }

    /// Sends the replies that wait for LSNs up to what is stable.
    pub(super) fn send_stable(&self, stable: impl Fn() -> u64, send: impl FnOnce(Vec<Call>)) {
        let ready = {
            let mut parked = self.parked.lock();
            let stable = stable();
            if parked.first().is_none_or(|first| first > stable) {
                return;
            }
            self.sending.fetch_add(1, Ordering::SeqCst);
            parked.take(stable)
        };
        send(ready);
        self.sending.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many replies are parked.
    pub(super) fn parked(&self) -> usize {
        self.parked.lock().len()
    }

    /// Whether no reply is parked, nor being sent.
    pub(super) fn is_empty(&self) -> bool {
        self.parked() == 0 && self.sending.load(Ordering::SeqCst) == 0
    }

    /// Waits until `is_stable` returns `true`; it is called again after each [`Waiting::note_grown`].
    pub(super) fn wait_until(&self, is_stable: impl Fn() -> bool) {
        let mut lock = self.stable_lock.lock();
        while !is_stable() {
            self.stable_grew.wait(&mut lock);
        }
    }

    /// Wakes the waiting threads: more records are stable, or the log is off.
    pub(super) fn note_grown(&self) {
        drop(self.stable_lock.lock());
        self.stable_grew.notify_all();
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;

    #[test]
    fn replies_are_sent_once_when_they_are_stable_and_count_until_they_are() {
        let waiting: Waiting<&str> = Waiting::default();
        assert!(waiting.is_empty());
        assert_eq!(waiting.park([(3, "c"), (1, "a"), (2, "b")].into_iter()), Some(1));
        waiting.send_stable(|| 0, |_| panic!("nothing is stable"));
        waiting.send_stable(
            || 2,
            |ready| {
                assert_eq!(ready, ["a", "b"]);
                assert_eq!(waiting.parked(), 1);
                // The last one is taken by another thread meanwhile.
                waiting.send_stable(|| 3, |ready| assert_eq!(ready, ["c"]));
                assert!(waiting.parked() == 0 && !waiting.is_empty(), "two are not sent yet");
            },
        );
        assert!(waiting.is_empty());
        assert_eq!(waiting.park(std::iter::empty()), None);
    }

    #[test]
    fn threads_wait_until_their_record_is_stable() {
        let (waiting, stable) = (Waiting::<()>::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=3)
                .map(|lsn| {
                    let (waiting, stable) = (&waiting, &stable);
                    let is_stable = move || stable.load(Ordering::SeqCst) >= lsn;
                    scope.spawn(move || waiting.wait_until(is_stable))
                })
                .collect();
            for (lsn, thread) in (1..).zip(threads) {
                std::thread::sleep(Duration::from_millis(1));
                assert!(!thread.is_finished());
                stable.store(lsn, Ordering::SeqCst);
                waiting.note_grown();
                thread.join().unwrap();
            }
        });
    }
}
