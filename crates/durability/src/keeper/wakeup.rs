//! When committers write, and when they sleep.
//!
//! A worker does not wake a committer for each record that it completes. It notes that there is work, and
//! rouses a committer when it parks the call. While workers have more calls to execute, complete records
//! are held for a short time: a write of many records costs hardly more than one of few.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Threads that write.
pub(super) const COMMITTERS: usize = 2;
/// The longest time for which a sleeping committer holds complete records.
const HELD_MAX: Duration = Duration::from_millis(1);

/// Whether there is something to write, and how many committers sleep until there is.
///
/// No work is missed: [`Wakeup::rouse`] sees the sleeping committer, or the committer sees the work before
/// it sleeps. [`Wakeup::rouse`] takes a lock only if a committer sleeps.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    /// Whether there may be something for committers.
    has_work: AtomicBool,
    /// Whether that is to be written now. Pairs with `sleeping`: [`Wakeup::rouse`] writes this and then
    /// reads `sleeping`; a committer increments `sleeping` and then reads this.
    is_wanted: AtomicBool,
    /// Workers that would rather have more written with it.
    holders: AtomicUsize,
    /// Committers that sleep, or are about to. Changed with `is_stopping` locked.
    sleeping: AtomicUsize,
    is_stopping: Mutex<bool>,
    wake: Condvar,
}

impl Wakeup {
    /// There may be something to write, or to send. It is not urgent.
    pub(super) fn note_work(&self) {
        self.has_work.store(true, Ordering::SeqCst);
    }

    /// There is more to write, which is wanted as much as what is being written.
    pub(super) fn note_wanted(&self) {
        self.has_work.store(true, Ordering::SeqCst);
        self.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Has what was noted written now: wakes a committer if there is something for it and it sleeps.
    pub(super) fn rouse(&self) {
        if self.has_work.load(Ordering::SeqCst) {
            self.is_wanted.store(true, Ordering::SeqCst);
            if self.sleeping.load(Ordering::SeqCst) > 0 {
                let _stopping = self.is_stopping.lock();
                self.wake.notify_one();
            }
        }
    }

    /// A worker goes on executing calls before it has written what those before have logged: a
    /// write of many records costs hardly more than one of few. Until [`Wakeup::release`].
    pub(super) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker that has held what was logged wants it written.
    pub(super) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::SeqCst);
        self.rouse();
    }

    /// Whether a committer should write what is complete, rather than wait for more.
    pub(super) fn is_to_write(&self) -> bool {
        self.is_wanted.load(Ordering::SeqCst)
            || (self.has_work.load(Ordering::SeqCst) && self.holders.load(Ordering::SeqCst) == 0)
    }

    /// A committer is about to look for something to write. Work that is noted from here on keeps it from
    /// sleeping afterwards.
    pub(super) fn begin_look(&self) {
        self.is_wanted.store(false, Ordering::SeqCst);
        self.has_work.store(false, Ordering::SeqCst);
    }

    /// Another thread is about to do a committer's work once. `is_wanted` stays as it is.
    pub(super) fn take_work(&self) {
        self.has_work.store(false, Ordering::SeqCst);
    }

    /// Whether there is something to write and no committer at work, so that another thread may write it
    /// itself.
    pub(super) fn is_for_the_taking(&self) -> bool {
        self.has_work.load(Ordering::SeqCst) && self.sleeping.load(Ordering::SeqCst) == COMMITTERS
    }

    /// A committer sleeps until there is something to write, or until held records have waited long
    /// enough. It may also wake without a reason. `false` if the committer has to end instead.
    pub(super) fn sleep(&self) -> bool {
        let mut is_stopping = self.is_stopping.lock();
        if *is_stopping {
            return false;
        }
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        if !self.is_to_write() {
            if self.has_work.load(Ordering::SeqCst) {
                // However long those who hold it go on.
                self.wake.wait_for(&mut is_stopping, HELD_MAX);
            } else {
                self.wake.wait(&mut is_stopping);
            }
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// Has committers end once they have nothing to write.
    pub(super) fn stop(&self) {
        *self.is_stopping.lock() = true;
        self.wake.notify_all();
    }

    /// Whether committers are to end.
    pub(super) fn is_stopping(&self) -> bool {
        *self.is_stopping.lock()
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::time::Instant;

    use super::*;

    fn wait_for(what: impl Fn() -> bool) {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never happens");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_held_is_written_when_it_is_released_or_wanted() {
        let wakeup = Wakeup::default();
        let is_written = || wakeup.is_wanted.store(false, Ordering::SeqCst);
        wakeup.rouse();
        assert!(!wakeup.is_to_write(), "there is nothing");
        for _worker in 0..2 {
            wakeup.hold();
        }
        wakeup.note_work();
        assert!(!wakeup.is_to_write(), "more is to come");
        // Somebody waits for it, or has no more.
        for wants in [Wakeup::rouse, Wakeup::release] {
            wants(&wakeup);
            assert!(wakeup.is_to_write());
            is_written();
            assert!(!wakeup.is_to_write(), "another worker has more");
        }
        wakeup.release();
        is_written();
        assert!(wakeup.is_to_write(), "what came meanwhile is nobody's to hold");
        wakeup.begin_look();
        assert!(!wakeup.is_to_write(), "a committer is at it");
        wakeup.note_wanted();
        wakeup.take_work();
        assert!(wakeup.is_to_write(), "a committer looks whether it was all");
    }

    #[test]
    fn a_sleeping_committer_is_woken_and_others_do_its_work_only_while_all_sleep() {
        let wakeup = Wakeup::default();
        let sleeping = || wakeup.sleeping.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            let committers = [(); COMMITTERS].map(|()| scope.spawn(|| wakeup.sleep()));
            wait_for(|| sleeping() == COMMITTERS);
            wakeup.rouse();
            assert!(!wakeup.is_for_the_taking(), "there is nothing to write");
            wakeup.note_work();
            assert!(wakeup.is_for_the_taking());
            wakeup.rouse();
            wait_for(|| sleeping() < COMMITTERS);
            assert!(!wakeup.is_for_the_taking(), "a committer is at it");
            wakeup.begin_look();
            wakeup.stop();
            assert!(committers.into_iter().all(|one| one.join().unwrap()));
        });
        assert!(wakeup.is_stopping() && !wakeup.sleep(), "it is to end");
    }

    #[test]
    fn what_is_held_is_written_soon_though_nobody_wants_it() {
        let wakeup = Wakeup::default();
        wakeup.hold();
        wakeup.note_work();
        let begun = Instant::now();
        assert!(wakeup.sleep());
        assert!(begun.elapsed() >= HELD_MAX);
    }

    /// Each piece of work is noted just when the only committer goes to sleep, or before, or after.
    #[test]
    fn no_work_is_noted_unseen() {
        const PIECES: usize = 40_000;
        // On a busy machine each piece may cost a time slice.
        const AT_MOST: Duration = Duration::from_secs(5);
        const SPINS: usize = 100;
        let (wakeup, noted, done) = (Wakeup::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    wakeup.begin_look();
                    let piece = noted.load(Ordering::SeqCst);
                    done.store(piece, Ordering::SeqCst);
                    // The next is noted at another moment of what comes now each time.
                    for _step in 0..piece % 401 {
                        std::hint::black_box(&noted);
                    }
                    if !wakeup.is_to_write() && !wakeup.sleep() {
                        return;
                    }
                }
            });
            let all_begun = Instant::now();
            for piece in (1..=PIECES).take_while(|_| all_begun.elapsed() < AT_MOST) {
                noted.store(piece, Ordering::SeqCst);
                wakeup.note_work();
                wakeup.rouse();
                let (begun, mut spins) = (Instant::now(), 0);
                while done.load(Ordering::SeqCst) != piece {
                    if begun.elapsed() > Duration::from_secs(60) {
                        wakeup.stop();
                        panic!("piece {piece} was not seen");
                    }
                    spins += 1;
                    if spins < SPINS {
                        std::hint::spin_loop();
                    } else {
                        std::thread::yield_now();
                    }
                }
            }
            wakeup.stop();
        });
    }
}
