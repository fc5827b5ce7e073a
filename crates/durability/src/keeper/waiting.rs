//! Who waits until records are stable: calls whose replies are parked, and threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use steadfast_runtime::ParkedReply;

use super::parked::Parked;

/// Those who wait.
///
/// Each reply is sent once, and not before what it waits for is stable. What is stable is not known
/// here: callers bring it along.
pub(super) struct Waiting<Call = ParkedReply> {
    parked: Mutex<Parked<Call>>,
    /// Threads that send replies. A reply that has left `parked` counts here until it is sent, so that
    /// none is overlooked by who asks whether one waits: the count grows with `parked` locked.
    sending: AtomicUsize,
    /// Held for a moment by who makes records stable, so that who has looked before waits by then.
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
    /// Takes over calls that wait for these LSNs. Returns the LSN that is waited for first, of all:
    /// it may be stable already, and who made it so may have looked before these came.
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

    /// Has a thread wait until this is so, which is looked at again whenever more is stable.
    pub(super) fn wait_until(&self, is_stable: impl Fn() -> bool) {
        let mut lock = self.stable_lock.lock();
        while !is_stable() {
            self.stable_grew.wait(&mut lock);
        }
    }

    /// More is stable, or nobody has to wait for it any more.
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
