//! The gate before the log: every change passes it before it is applied.
//!
//! The server leaves or enters the log at a moment when no change is half in it. The gate counts the
//! changes that have passed and are not complete. While it is closed, all other changes wait.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A change that waits checks this often whether the gate can open at all.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether changes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// They are.
    On = 0,
    /// They wait: the log is being left.
    Closing = 1,
    /// They are flushed instead.
    Off = 2,
}

/// The gate. It is closed in [`Phase::Closing`] and open in the other two.
///
/// Once [`Gate::close`] has returned `true`, no further change passes, and once
/// [`Gate::is_empty`] is true after that, none is half done.
#[derive(Debug)]
pub(super) struct Gate {
    /// [`Gate::close`] writes it with `waiting` locked, so that only one of several callers closes the
    /// gate.
    phase: AtomicU8,
    /// Changes that have passed and whose records are not complete; those that are not logged, until
    /// they have been applied. Pairs with `phase`: a change increments this and then reads the phase; the
    /// thread that closes the gate writes the phase and then reads this. One of the two sees the other.
    passed: AtomicUsize,
    waiting: Mutex<()>,
    opens: Condvar,
}

impl Gate {
    /// An open gate of a log that is on.
    pub(super) fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::On as u8),
            passed: AtomicUsize::new(0),
            waiting: Mutex::default(),
            opens: Condvar::new(),
        }
    }

    /// Whether changes are logged.
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::On,
            1 => Phase::Closing,
            _ => Phase::Off,
        }
    }

    /// Counts a change as one that has passed, until [`Gate::leave`], and returns the phase. In
    /// [`Phase::Closing`] the gate is closed: the caller leaves at once, and may wait. In the others the
    /// log is neither left nor entered before the change leaves.
    pub(super) fn pass(&self) -> Phase {
        self.passed.fetch_add(1, Ordering::SeqCst);
        self.phase()
    }

    /// A change that has passed is complete, or does not take place.
    pub(super) fn leave(&self) {
        self.passed.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs `log` as a change that has passed, if the log is on; never waits. `None` if it is not on.
    pub(super) fn pass_if_on<T>(&self, log: impl FnOnce() -> T) -> Option<T> {
        let logged = (self.pass() == Phase::On).then(log);
        self.leave();
        logged
    }

    /// Whether no change is between [`Gate::pass`] and [`Gate::leave`].
    pub(super) fn is_empty(&self) -> bool {
        self.passed.load(Ordering::SeqCst) == 0
    }

    /// Closes the gate, if the phase is still this one. `false` if somebody else has changed it.
    pub(super) fn close(&self, from: Phase) -> bool {
        let _waiting = self.waiting.lock();
        if self.phase() != from {
            return false;
        }
        self.phase.store(Phase::Closing as u8, Ordering::SeqCst);
        true
    }

    /// Opens the gate, with a log that is on or off from here on.
    pub(super) fn open(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
        // A thread that has read the old phase is waiting by now, and gets the notification.
        drop(self.waiting.lock());
        self.opens.notify_all();
    }

    /// Waits while the gate is closed, at most for this long. `false` if that has passed.
    pub(super) fn wait_for(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut waiting = self.waiting.lock();
        while self.phase() == Phase::Closing {
            if self.opens.wait_until(&mut waiting, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Waits while the gate is closed. `false` once `is_stuck` says that it does not open any more, which
    /// is checked every second.
    pub(super) fn wait_unless(&self, is_stuck: impl Fn() -> bool) -> bool {
        let mut waiting = self.waiting.lock();
        while self.phase() == Phase::Closing {
            if is_stuck() {
                return false;
            }
            self.opens.wait_for(&mut waiting, LOOK_EVERY);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::sync::atomic::AtomicBool;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_closed_gate_is_empty_when_what_has_passed_is_complete() {
        let gate = Gate::new();
        assert_eq!((gate.phase(), gate.is_empty()), (Phase::On, true));
        assert_eq!(gate.pass(), Phase::On);
        assert!(!gate.close(Phase::Off), "it is not off");
        assert!(gate.close(Phase::On));
        assert!(!gate.close(Phase::On), "somebody has closed it");
        assert!(!gate.is_empty(), "a change is half done");
        assert_eq!(gate.pass_if_on(|| 1), None);
        assert_eq!(gate.pass(), Phase::Closing, "it has to leave again");
        gate.leave();
        gate.leave();
        assert!(gate.is_empty());
        gate.open(Phase::Off);
        assert_eq!((gate.pass(), gate.pass_if_on(|| 1)), (Phase::Off, None));
        gate.leave();
        assert!(gate.close(Phase::Off));
        gate.open(Phase::On);
        assert_eq!(gate.pass_if_on(|| gate.is_empty()), Some(false), "it has passed");
        assert!(gate.is_empty());
    }

    #[test]
    fn changes_wait_at_a_closed_gate_until_it_opens() {
        let gate = Gate::new();
        assert!(gate.close(Phase::On));
        assert!(!gate.wait_for(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting =
                [scope.spawn(|| gate.wait_for(LONG)), scope.spawn(|| gate.wait_unless(|| false))];
            std::thread::sleep(Duration::from_millis(5));
            assert!(waiting.iter().all(|one| !one.is_finished()));
            gate.open(Phase::Off);
            assert!(waiting.into_iter().all(|one| one.join().unwrap()));
        });
        assert!(gate.wait_for(Duration::ZERO) && gate.wait_unless(|| true), "it is open");
    }

    #[test]
    fn nobody_waits_at_a_gate_that_does_not_open() {
        let gate = Gate::new();
        assert!(gate.close(Phase::On));
        assert!(!gate.wait_unless(|| true));
    }

    /// What leaving the log depends on: no change is half done once the closed gate is empty.
    #[test]
    fn no_change_passes_unseen_while_the_gate_is_closed() {
        let (gate, is_over) = (Gate::new(), AtomicBool::new(false));
        let (is_switching, unseen) = (AtomicBool::new(false), AtomicUsize::new(0));
        let changes = AtomicUsize::new(0);
        let change = || {
            while !is_over.load(Ordering::Relaxed) {
                if gate.pass() == Phase::Closing {
                    gate.leave();
                    gate.wait_for(LONG);
                    continue;
                }
                unseen.fetch_add(is_switching.load(Ordering::SeqCst).into(), Ordering::Relaxed);
                changes.fetch_add(1, Ordering::Relaxed);
                gate.leave();
            }
        };
        std::thread::scope(|scope| {
            for _changer in 0..3 {
                scope.spawn(change);
            }
            let (mut from, mut to) = (Phase::On, Phase::Off);
            for _round in 0..300 {
                let enough = changes.load(Ordering::Relaxed) + 10;
                while changes.load(Ordering::Relaxed) < enough {
                    std::thread::yield_now();
                }
                assert!(gate.close(from));
                while !gate.is_empty() {
                    std::hint::spin_loop();
                }
                is_switching.store(true, Ordering::SeqCst);
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
                is_switching.store(false, Ordering::SeqCst);
                gate.open(to);
                (from, to) = (to, from);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(unseen.into_inner(), 0);
    }
}
