//! Flushes of a whole file system, one at a time: a flush that begins after somebody came serves him too.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use steadfast_vfs::FsError;

/// Flushes of one file system.
#[derive(Debug, Default)]
pub(crate) struct WholeFlushes {
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that ended well.
    ended_well: Mutex<u64>,
}

/// Nobody else flushes it.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, u64>);

impl WholeFlushes {
    /// Has all flushed that was changed before this call. The kernel tells of an error to one of them, and the next
    /// flush says nothing of it: `flush` has to note it.
    ///
    /// # Errors
    /// Those of `flush`.
    pub(crate) fn join(&self, flush: impl FnOnce() -> Result<(), FsError>) -> Result<(), FsError> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut ended_well = self.ended_well.lock();
        if *ended_well > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        flush()?;
        *ended_well = number;
        Ok(())
    }

    /// Keeps others from flushing; an error is told to whoever flushes then.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn(self.ended_well.lock())
    }

    /// As [`WholeFlushes::turn`], if nobody flushes now.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        self.ended_well.try_lock().map(Turn)
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
    fn one_that_failed_serves_nobody_else() {
        let (told, count) = come_meanwhile(Err(FsError::NoSpace));
        assert!(told.iter().all(Result::is_err), "{told:?}");
        assert_eq!(count, 8);
    }

    #[test]
    fn one_that_has_ended_serves_nobody_who_comes_later() {
        let flushes = WholeFlushes::default();
        let count = AtomicU64::new(0);
        for number in 1..=3 {
            let flushed = flushes.join(|| {
                count.fetch_add(1, Ordering::SeqCst);
                if number == 2 { Err(FsError::Io) } else { Ok(()) }
            });
            assert_eq!(flushed.is_ok(), number != 2, "an error is told once");
            assert_eq!(count.load(Ordering::SeqCst), number);
        }
    }
}
