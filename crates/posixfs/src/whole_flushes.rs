//! Flushes of a whole file system, one at a time. A flush serves all who came before it began.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use steadfast_vfs::FsError;

/// Flushes of one file system.
#[derive(Debug, Default)]
pub(crate) struct WholeFlushes {
    /// How many have begun.
    begun: AtomicU64,
    ended: Mutex<Ended>,
    /// See [`steadfast_vfs::FlushTarget::last_shared_failure`].
    last_failure: AtomicU64,
}

#[derive(Debug, Default)]
struct Ended {
    /// The number of the last one that ended well.
    well: u64,
    /// One has failed, and nobody has noted that.
    owes_a_failure: bool,
}

/// Nobody else flushes it.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, Ended>);

impl WholeFlushes {
    /// Has all flushed that was changed before this call. The kernel tells of an error once, and the next flush
    /// succeeds: so the error is `noted` before that. Where nobody can note it, the next one who can gets it as well.
    ///
    /// # Errors
    /// Those of `flush`; [`FsError::Io`] if an earlier one failed, and nobody has noted it.
    pub(crate) fn join(
        &self,
        noted: Option<&dyn Fn(FsError)>,
        flush: impl FnOnce() -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut ended = self.ended.lock();
        if let Some(noted) = noted
            && std::mem::take(&mut ended.owes_a_failure)
        {
            noted(FsError::Io);
            return Err(FsError::Io);
        }
        if ended.well > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let flushed = flush();
        match (flushed, noted) {
            (Ok(()), _) => ended.well = number,
            (Err(error), Some(noted)) => noted(error),
            (Err(_), None) => ended.owes_a_failure = true,
        }
        flushed
    }

    pub(crate) fn last_failure(&self) -> &AtomicU64 {
        &self.last_failure
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
                flushes.join(None, || {
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
                    flushes.join(None, || {
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
            let flushed = flushes.join(None, || {
                count.fetch_add(1, Ordering::SeqCst);
                if number == 2 { Err(FsError::Io) } else { Ok(()) }
            });
            assert_eq!(flushed.is_ok(), number != 2, "an error is told once");
            assert_eq!(count.load(Ordering::SeqCst), number);
        }
    }

    #[test]
    fn a_failure_that_nobody_noted_fails_the_next_one_who_can() {
        let flushes = WholeFlushes::default();
        assert_eq!(flushes.join(None, || Err(FsError::NoSpace)), Err(FsError::NoSpace));
        assert_eq!(flushes.join(None, || Ok(())), Ok(()));
        let count = AtomicU64::new(0);
        let noted = |_| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        for outcome in [Err(FsError::Io), Ok(())] {
            assert_eq!(flushes.join(Some(&noted), || Ok(())), outcome);
            assert_eq!(count.load(Ordering::SeqCst), 1);
        }
    }
}
