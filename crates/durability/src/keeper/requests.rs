//! Requests to the checkpointer, and the threads that wait until it has carried them out.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// When the last checkpoint ended, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// Since 1970.
    pub ended: Duration,
    /// From its begin to its end.
    pub took: Duration,
}

impl LastCheckpoint {
    pub(super) fn ended_now(begun: Instant) -> Self {
        Self { ended: since_1970(), took: begun.elapsed() }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// What the checkpointer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A checkpoint, which has begun.
    Checkpoint,
    /// Marks of file systems that have begun to be used.
    Marks,
    /// It ends.
    End,
}

#[derive(Debug, Default)]
struct State {
    is_wanted: bool,
    is_stopping: bool,
    /// Whether file systems have begun to be used that are to be marked.
    are_marks_due: bool,
    /// Checkpoints begun and ended, so that who asks for one can wait for it.
    begun: u64,
    ended: u64,
    /// The last one that somebody waits for, and whether somebody waits for the one that runs or for its
    /// end.
    waited_for: u64,
    is_waited_for: bool,
    /// The one that ended last, and how many did anything.
    last: Option<LastCheckpoint>,
    count: u64,
}

/// Requests to the checkpointer.
///
/// [`Requests::want_and_wait`] waits for a checkpoint that begins after the request, so that it covers
/// everything that was in the log. No thread waits for a checkpointer that ends.
#[derive(Debug, Default)]
pub(super) struct Requests {
    state: Mutex<State>,
    wanted: Condvar,
    ended: Condvar,
    /// Changes that find the log full wait here for the end of a checkpoint.
    room: Mutex<()>,
    room_grew: Condvar,
}

impl Requests {
    /// Has a checkpoint begin soon.
    pub(super) fn want(&self) {
        self.state.lock().is_wanted = true;
        self.wanted.notify_all();
    }

    /// Has file systems marked soon that have begun to be used.
    pub(super) fn want_marks(&self) {
        self.state.lock().are_marks_due = true;
        self.wanted.notify_all();
    }

    /// Asks for a checkpoint that begins now, and waits until it or the checkpointer ends.
    pub(super) fn want_and_wait(&self) {
        let wanted = {
            let mut state = self.state.lock();
            state.is_wanted = true;
            state.waited_for = state.begun + 1;
            // The one that runs is in the way.
            state.is_waited_for = true;
            state.waited_for
        };
        self.wanted.notify_all();
        let mut state = self.state.lock();
        while state.ended < wanted && !state.is_stopping {
            self.ended.wait(&mut state);
        }
    }

    /// The checkpointer waits for a request; at `by_time` a checkpoint is due without one. Calls
    /// `meanwhile`, without the lock, whenever no request came for the time `idle`.
    pub(super) fn next(&self, by_time: Instant, idle: Duration, meanwhile: impl Fn()) -> Due {
        let mut state = self.state.lock();
        while !state.is_wanted && !state.is_stopping && !state.are_marks_due {
            let look = by_time.min(Instant::now() + idle);
            if self.wanted.wait_until(&mut state, look).timed_out() {
                if look == by_time {
                    break;
                }
                MutexGuard::unlocked(&mut state, &meanwhile);
            }
        }
        if state.is_stopping {
            return Due::End;
        }
        if std::mem::take(&mut state.are_marks_due) {
            return Due::Marks;
        }
        state.is_wanted = false;
        state.begun += 1;
        state.is_waited_for = state.waited_for == state.begun;
        Due::Checkpoint
    }

    /// The checkpoint that has begun has ended. Wakes the threads that wait for it, or for room in the
    /// log. `did` is `None` if the log was off.
    pub(super) fn note_ended(&self, did: Option<LastCheckpoint>) {
        {
            let mut state = self.state.lock();
            state.ended = state.begun;
            if did.is_some() {
                state.count += 1;
                state.last = did;
            }
        }
        self.ended.notify_all();
        drop(self.room.lock());
        self.room_grew.notify_all();
    }

    /// Waits until a checkpoint ends, which may have made room, but not for longer than this.
    pub(super) fn wait_for_room(&self, at_most: Duration) {
        let mut room = self.room.lock();
        self.room_grew.wait_for(&mut room, at_most);
    }

    /// Whether the checkpoint that runs should end soon.
    pub(super) fn is_hurried(&self) -> bool {
        let state = self.state.lock();
        state.is_waited_for || state.is_stopping
    }

    /// How many checkpoints did anything, and the last of them.
    pub(super) fn done(&self) -> (u64, Option<LastCheckpoint>) {
        let state = self.state.lock();
        (state.count, state.last)
    }

    /// Whether a checkpoint runs (of a log that is on) or has ended within the last `during`. Never waits:
    /// `false` if another thread holds the lock.
    pub(super) fn was_any(&self, during: Duration, is_on: bool) -> bool {
        self.state.try_lock().is_some_and(|state| {
            let now = since_1970();
            let runs = is_on && state.begun > state.ended;
            runs || state.last.is_some_and(|last| now.saturating_sub(last.ended) < during)
        })
    }

    /// Has the checkpointer end.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        self.wanted.notify_all();
        // It may end without the checkpoint that somebody waits for.
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn next(requests: &Requests) -> Due {
        requests.next(Instant::now() + LONG, LONG, || panic!("not for so long"))
    }

    fn wait_for(what: impl Fn() -> bool) {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < LONG, "it never happens");
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_asks_waits_for_a_checkpoint_that_begins_afterwards() {
        let requests = Requests::default();
        requests.want();
        assert_eq!(next(&requests), Due::Checkpoint);
        assert!(!requests.is_hurried(), "nobody waits");
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| requests.want_and_wait());
            wait_for(|| requests.is_hurried());
            // It had begun before.
            requests.note_ended(Some(LastCheckpoint::ended_now(Instant::now())));
            assert_eq!(next(&requests), Due::Checkpoint);
            assert!(requests.is_hurried() && !asking.is_finished());
            requests.note_ended(Some(LastCheckpoint::ended_now(Instant::now())));
            asking.join().unwrap();
        });
        assert_eq!(requests.done().0, 2);
        requests.want();
        assert_eq!(next(&requests), Due::Checkpoint);
        assert!(!requests.is_hurried(), "nobody waits any more");
    }

    #[test]
    fn nobody_waits_for_a_checkpointer_that_ends() {
        let requests = Requests::default();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| requests.want_and_wait());
            // It waits by the time that the lock is free again.
            wait_for(|| requests.is_hurried());
            std::thread::sleep(Duration::from_millis(5));
            requests.stop();
            assert_eq!(next(&requests), Due::End, "though a checkpoint is wanted");
            asking.join().unwrap();
        });
        requests.want_and_wait();
    }

    #[test]
    fn marks_come_before_checkpoints_and_checkpoints_by_time() {
        let requests = Requests::default();
        requests.want();
        requests.want_marks();
        assert_eq!([next(&requests), next(&requests)], [Due::Marks, Due::Checkpoint]);
        requests.note_ended(None);
        assert_eq!(requests.done(), (0, None), "the log was off");
        let by_time = Instant::now() + Duration::from_millis(20);
        let due = requests.next(by_time, LONG, || panic!("not for so long"));
        assert!(due == Due::Checkpoint && Instant::now() >= by_time, "without a request");
    }

    #[test]
    fn something_is_done_whenever_no_request_came_for_a_while() {
        let (requests, looks) = (Requests::default(), AtomicUsize::new(0));
        let due = requests.next(Instant::now() + LONG, Duration::from_millis(2), || {
            // Who is called may ask for something.
            if looks.fetch_add(1, Ordering::Relaxed) == 2 {
                requests.want();
            }
        });
        assert_eq!((due, looks.into_inner()), (Due::Checkpoint, 3));
    }

    #[test]
    fn changes_wait_for_room_until_a_checkpoint_ends() {
        let requests = Arc::new(Requests::default());
        // Of a thread that does not end, the test does not wait for the end.
        let waits_at_most = |at_most| {
            let requests = Arc::clone(&requests);
            std::thread::spawn(move || requests.wait_for_room(at_most))
        };
        let short = waits_at_most(Duration::from_millis(2));
        wait_for(|| short.is_finished());
        let waiting = waits_at_most(LONG * 10);
        wait_for(|| {
            requests.note_ended(None);
            waiting.is_finished()
        });
    }

    #[test]
    fn a_checkpoint_is_told_of_while_it_runs_and_for_some_time_afterwards() {
        let requests = Requests::default();
        assert!(!requests.was_any(LONG, true));
        requests.want();
        next(&requests);
        assert!(requests.was_any(Duration::ZERO, true) && !requests.was_any(LONG, false));
        requests.note_ended(Some(LastCheckpoint::ended_now(Instant::now())));
        assert!(!requests.was_any(Duration::ZERO, true) && requests.was_any(LONG, false));
        let _held = requests.state.lock();
        assert!(!requests.was_any(LONG, true), "not known now");
    }
}
