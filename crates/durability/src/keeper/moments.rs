//! Time marks: records that say up to when all changes of the server's own have theirs. By them replay
//! knows that a ctime which no record has is one of a local process, and not one of an operation that was
//! under way.
//!
//! Each thread notes when the change that it is about to apply begins, in a place of its own, until the
//! change has its place in the log. A mark tells the time of the oldest that has none yet, or now. One is
//! written with what is committed, and by the checkpointer, when it is due (`time_marks`).

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use rustix::time::ClockId;
use steadfast_recovery::{Action, Change, change_bytes_max};
use steadfast_vfs::Time;

use super::IntentLogKeeper;

/// Between two looks at whether a mark is due when nothing comes.
pub(super) const IDLE_MARK: Duration = Duration::from_millis(100);

/// By the clock that gives files their times: no change that begins now gets an earlier one.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).unwrap_or(0)
}

fn time(ns: u64) -> Time {
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    Time { seconds, nanoseconds: (ns % 1_000_000_000) as u32 }
}

/// What one thread applies.
#[derive(Debug, Default)]
struct Applying {
    /// Changes that have no place in the log yet.
    count: AtomicU32,
    /// When the first of these began, or earlier.
    since_ns: AtomicU64,
}

/// The threads that have applied something; those that have ended stay until others need the memory.
static THREADS: Mutex<Vec<Arc<CachePadded<Applying>>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: OnceCell<Arc<CachePadded<Applying>>> = const { OnceCell::new() };
}

/// A change that has no place in the log yet.
#[derive(Debug)]
pub(super) struct Begun(Arc<CachePadded<Applying>>);

impl Begun {
    /// To be made before a change is applied.
    pub(super) fn now() -> Self {
        let own = OWN.with(|own| {
            Arc::clone(own.get_or_init(|| {
                let own = Arc::<CachePadded<Applying>>::default();
                let mut threads = THREADS.lock();
                // Of threads that have ended.
                threads.retain(|thread| Arc::strong_count(thread) > 1);
                threads.push(Arc::clone(&own));
                own
            }))
        });
        if own.count.load(Ordering::SeqCst) == 0 {
            own.since_ns.store(now_ns(), Ordering::SeqCst);
        }
        own.count.fetch_add(1, Ordering::SeqCst);
        Self(own)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A time before which no change has a ctime that has no place in the log.
fn all_have_places_before_ns() -> u64 {
    // First: who begins after it was looked at begins later.
    let now = now_ns();
    let threads = THREADS.lock();
    let applying = threads.iter().filter(|thread| thread.count.load(Ordering::SeqCst) > 0);
    applying.map(|thread| thread.since_ns.load(Ordering::SeqCst)).fold(now, u64::min)
}

impl IntentLogKeeper {
    /// Writes a mark to the log, if one is due. It is no operation's, and nobody waits for it.
    pub(super) fn mark_moment(&self) {
        let Some(mut marks) = self.time_marks.try_lock() else { return };
        let now = Instant::now();
        if marks.is_early(now) {
            return;
        }
        let last = self.log.last().0;
        if !marks.is_needed(last) || self.running.is_closing() {
            return;
        }
        // No file system is forgotten meanwhile.
        let Some(_registering) = self.file_systems.try_registering() else { return };
        marks.begin(now, last);
        if let Some((count, to)) = self.gate.pass_if_on(|| self.write_marks()) {
            marks.end(count, to);
        }
    }

    /// Returns how many it has written, and the LSN of the last.
    fn write_marks(&self) -> (u64, u64) {
        let before = time(all_have_places_before_ns());
        let mut record = Vec::new();
        Change::new(Action::Moment { before }).encode(&mut record);
        let mut written = (0, 0);
        for usage in self.log.usage().file_systems {
            if usage.first_live.is_none() {
                continue;
            }
            // A full log has no room for it.
            let Ok(admission) = self.log.admit(change_bytes_max(0)) else { break };
            let lsn = self.log.reserve(admission, usage.entry.index);
            if self.log.complete(lsn, record.clone()) {
                self.wakeup.note_work();
            }
            written = (written.0 + 1, lsn.0);
        }
        written
    }

    /// A checkpoint has covered all that was in the log up to this LSN.
    pub(super) fn note_marks_covered(&self, up_to: u64) {
        self.time_marks.lock().cover(up_to);
    }

    /// The server stops: no mark is written from here on.
    pub(super) fn end_marks(&self) {
        // Who writes one now is done with it.
        drop(self.time_marks.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_applied_holds_the_time_back() {
        let begun = std::thread::spawn(Begun::now).join().unwrap();
        let since = begun.0.since_ns.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(30));
        assert!(all_have_places_before_ns() <= since);
        let more = Begun(Arc::clone(&begun.0));
        begun.0.count.fetch_add(1, Ordering::SeqCst);
        drop(more);
        assert!(all_have_places_before_ns() <= since);
        drop(begun);
        // Other tests may have something under way, but not for so long.
        let deadline = Instant::now() + Duration::from_secs(20);
        while all_have_places_before_ns() <= since {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
