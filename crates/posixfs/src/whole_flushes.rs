//! Flushes of a whole file system, one at a time: a flush that begins after somebody came serves him too.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use steadfast_vfs::FsError;

/// Flushes of one file system.
#[derive(Debug, Default)]
pub(crate) struct WholeFlushes {
    /// How many have begun.
    begun: AtomicU64,
    ended: Mutex<Ended>,
}

/// The numbers of the last flush that ended well, and of the last that did not.
#[derive(Debug, Default)]
struct Ended {
    well: u64,
    badly: u64,
}

/// Nobody else flushes it.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, Ended>);

impl WholeFlushes {
    /// Has all flushed that was changed before this call.
    ///
    /// # Errors
    /// Those of `flush`. [`FsError::Io`] if the flush of another failed that began after this call: the kernel tells an
    /// error to one of them, and the next flush says nothing of it.
    pub(crate) fn join(&self, flush: impl FnOnce() -> Result<(), FsError>) -> Result<(), FsError> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut ended = self.ended.lock();
        if ended.badly > before {
            return Err(FsError::Io);
        }
        if ended.well > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        // If it panics, nobody is told that it was well.
        let flushed = flush();
        match flushed {
            Ok(()) => ended.well = number,
            Err(_) => ended.badly = number,
        }
        flushed
    }

    /// Keeps others from flushing; an error is told to whoever flushes then.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn(self.ended.lock())
    }

    /// As [`WholeFlushes::turn`], if nobody flushes now.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        self.ended.try_lock().map(Turn)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// One flush is under way; so many come meanwhile, with this outcome of the next one. What they are told, and how
    /// many flushes there were after the first.
    fn come_meanwhile(outcome: Result<(), FsError>) -> (Vec<Result<(), FsError>>, u64) {
        const COMERS: usize = 8;
        let flushes = WholeFlushes::default();
        let count = AtomicU64::new(0);
        let (all_here, go_on) = (Barrier::new(COMERS + 1), Barrier::new(2));
        let told = thread::scope(|scope| {
            let first = scope.spawn(|| {
                flushes.join(|| {
                    all_here.wait();
                    go_on.wait();
                    Ok(())
                })
            });
            while flushes.begun.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let comers = (0..COMERS).map(|_| {
                scope.spawn(|| {
                    all_here.wait();
                    flushes.join(|| {
                        count.fetch_add(1, Ordering::SeqCst);
                        outcome
                    })
                })
            });
            let comers: Vec<_> = comers.collect();
            // Until all of them wait, in all likelihood: one that comes too late flushes once more.
            thread::sleep(Duration::from_millis(300));
            go_on.wait();
            assert_eq!(first.join().unwrap(), Ok(()));
            comers.into_iter().map(|comer| comer.join().unwrap()).collect()
        });
        (told, count.load(Ordering::SeqCst))
    }

    #[test]
    fn one_flush_serves_all_who_came_before_it_began() {
        let (told, count) = come_meanwhile(Ok(()));
        assert!(told.iter().all(Result::is_ok), "{told:?}");
        assert!((1..8).contains(&count), "{count}: not the one under way, and not one each");
    }

    #[test]
    fn all_who_waited_are_told_of_an_error() {
        let (told, _) = come_meanwhile(Err(FsError::NoSpace));
        assert!(told.iter().all(Result::is_err), "{told:?}");
    }

    #[test]
    fn who_comes_after_a_flush_began_is_not_served_by_it() {
        let flushes = WholeFlushes::default();
        let count = AtomicU64::new(0);
        for number in 1..=3 {
            let flushed = flushes.join(|| {
                count.fetch_add(1, Ordering::SeqCst);
                if number == 2 { Err(FsError::Io) } else { Ok(()) }
            });
            assert_eq!(
                flushed.is_ok(),
                number != 2,
                "an error of before is not told to who comes later"
            );
            assert_eq!(count.load(Ordering::SeqCst), number);
        }
    }
}
