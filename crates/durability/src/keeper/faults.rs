//! File systems that could not be flushed, and when each is tried again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_intent_log::Identity;
use steadfast_recovery::LoggedFileSystem;
use steadfast_vfs::FsError;

use super::{RELAPSE, RETRY_MAX};

/// One failure of one of them: after it came back it may fail again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultySince {
    /// The number by which the log knows the file system until it is let go.
    pub file_system: LoggedFileSystem,
    serial: u64,
}

/// One of them.
struct Fault {
    identity: Identity,
    serial: u64,
    why: String,
    next_trial: Instant,
    interval: Duration,
    /// What was wrong at the last trial, to be told once.
    told: Option<FsError>,
}

/// Those that could not be flushed, by the log's index.
#[derive(Default)]
struct Faults {
    by_index: BTreeMap<u32, Fault>,
    /// How many there were.
    count: u64,
    /// When others came back, and how long they had been tried in vain: what fails again soon is
    /// tried more rarely.
    came_back: HashMap<Identity, (Instant, Duration)>,
}

impl Faults {
    fn is_empty(&self) -> bool {
        self.by_index.is_empty()
    }

    fn has(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    fn has_identity(&self, identity: &Identity) -> bool {
        self.by_index.values().any(|fault| fault.identity == *identity)
    }

    /// Whether it was one of them, and was let go.
    fn has_come_back(&self, identity: &Identity) -> bool {
        self.came_back.contains_key(identity)
    }

    fn all(&self) -> Vec<FaultySince> {
        let since = |(index, fault): (&u32, &Fault)| FaultySince {
            file_system: LoggedFileSystem(*index),
            serial: fault.serial,
        };
        self.by_index.iter().map(since).collect()
    }

    /// Why one could not be flushed.
    fn why(&self, index: u32) -> Option<String> {
        self.by_index.get(&index).map(|fault| fault.why.clone())
    }

    /// One of them, and why it could not be flushed.
    fn first(&self) -> Option<(u32, String)> {
        self.by_index.first_key_value().map(|(index, fault)| (*index, fault.why.clone()))
    }

    /// Notes one; how long until it is tried again.
    fn note(
        &mut self,
        index: u32,
        identity: Identity,
        why: String,
        interval: Duration,
        now: Instant,
    ) -> Duration {
        if let Some(known) = self.by_index.get(&index) {
            return known.interval;
        }
        let interval = match self.came_back.remove(&identity) {
            Some((moment, before)) if now.duration_since(moment) < RELAPSE => {
                (2 * before).min(RETRY_MAX).max(interval)
            }
            _ => interval,
        };
        self.count += 1;
        let (serial, next_trial) = (self.count, now + interval);
        let fault = Fault { identity, serial, why, next_trial, interval, told: None };
        self.by_index.insert(index, fault);
        interval
    }

    /// One is let go; whether it was one of them.
    fn let_go(&mut self, index: u32, now: Instant) -> bool {
        let Some(fault) = self.by_index.remove(&index) else { return false };
        self.came_back.insert(fault.identity, (now, fault.interval));
        true
    }

    /// Those that are to be tried now. The next time is an interval later.
    fn due(&mut self, now: Instant) -> Vec<FaultySince> {
        let mut due = self.all();
        due.retain(|since| {
            let fault = self.by_index.get_mut(&since.file_system.0);
            fault.filter(|fault| fault.next_trial <= now).is_some_and(|fault| {
                fault.next_trial = now + fault.interval;
                true
            })
        });
        due
    }

    /// Notes that a trial has failed; whether that is news.
    fn note_trial(&mut self, index: u32, error: FsError) -> bool {
        let fault = self.by_index.get_mut(&index);
        fault.is_some_and(|fault| fault.told.replace(error) != Some(error))
    }
}

/// The faulty file systems, shared by all threads.
///
/// Each change asks whether its file system takes changes ([`Faulty::keeps_waiting`]). While no file system is
/// faulty, that takes no lock.
#[derive(Default)]
pub(super) struct Faulty {
    faults: Mutex<Faults>,
    /// Whether there is any. Written with `faults` locked.
    has_any: AtomicBool,
}

impl Faulty {
    /// Whether there is any; without a lock.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::SeqCst)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.faults.lock().is_empty()
    }

    /// Whether there is any, as far as that is known without waiting.
    pub(super) fn may_have_any(&self) -> bool {
        self.faults.try_lock().is_some_and(|faults| !faults.is_empty())
    }

    /// Whether this one is faulty.
    pub(super) fn has(&self, index: u32) -> bool {
        self.faults.lock().has(index)
    }

    /// Whether a change of this one has to wait. For the path of a call.
    pub(super) fn keeps_waiting(&self, index: u32) -> bool {
        self.has_any() && self.faults.lock().has(index)
    }

    /// Whether a file system is faulty that is in use.
    pub(super) fn has_identity(&self, identity: &Identity) -> bool {
        self.has_any() && self.faults.lock().has_identity(identity)
    }

    /// Whether a file system was faulty and was removed since; `None` while it is faulty.
    pub(super) fn has_come_back(&self, identity: &Identity) -> Option<bool> {
        let faults = self.faults.lock();
        (!faults.has_identity(identity)).then(|| faults.has_come_back(identity))
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<FaultySince> {
        if self.has_any() { self.faults.lock().all() } else { Vec::new() }
    }

    /// Why this one could not be flushed, if it is faulty.
    pub(super) fn why(&self, index: u32) -> Option<String> {
        self.faults.lock().why(index)
    }

    /// One of them, and why it could not be flushed.
    pub(super) fn first(&self) -> Option<(u32, String)> {
        self.faults.lock().first()
    }

    /// Notes one. Returns the time until it is tried again, at least `interval`.
    pub(super) fn note(
        &self,
        index: u32,
        identity: Identity,
        why: String,
        interval: Duration,
    ) -> Duration {
        let mut faults = self.faults.lock();
        let interval = faults.note(index, identity, why, interval, Instant::now());
        self.has_any.store(true, Ordering::SeqCst);
        interval
    }

    /// A file system is removed, and its index may get reused. `true` if it was faulty.
    pub(super) fn let_go(&self, index: u32) -> bool {
        let mut faults = self.faults.lock();
        let was_faulty = faults.let_go(index, Instant::now());
        self.has_any.store(!faults.is_empty(), Ordering::SeqCst);
        was_faulty
    }

    /// Those that are to be tried now. The next time is an interval later.
    pub(super) fn due(&self) -> Vec<FaultySince> {
        self.faults.lock().due(Instant::now())
    }

    /// Notes that a trial has failed; whether that is news.
    pub(super) fn note_trial(&self, index: u32, error: FsError) -> bool {
        self.faults.lock().note_trial(index, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_soon_is_tried_more_rarely() {
        let identity = Identity { uuid: [7; 16], kind: 1 };
        let interval = Duration::from_secs(30);
        let mut faults = Faults::default();
        let mut now = Instant::now();
        let note =
            |faults: &mut Faults, now| faults.note(4, identity, "no".to_owned(), interval, now);
        assert_eq!(note(&mut faults, now), interval);
        assert_eq!((faults.has(4), faults.why(4).as_deref()), (true, Some("no")));
        assert!(faults.due(now).is_empty());
        now += interval;
        let [since] = faults.due(now)[..] else { panic!("one is due") };
        assert_eq!((since.file_system, faults.all()), (LoggedFileSystem(4), vec![since]));
        assert!(faults.due(now).is_empty(), "once an interval");
        assert!(faults.note_trial(4, FsError::Io) && !faults.note_trial(4, FsError::Io));
        assert!(faults.note_trial(4, FsError::ReadOnly));
        assert!(faults.let_go(4, now) && !faults.let_go(4, now) && faults.is_empty());
        assert!(faults.has_come_back(&identity) && !faults.has_identity(&identity));
        for factor in [2, 4, 8] {
            now += Duration::from_secs(5);
            assert_eq!(note(&mut faults, now), factor * interval);
            assert!(
                faults.has_identity(&identity) && !faults.all().contains(&since),
                "another one"
            );
            assert!(faults.let_go(4, now));
        }
        now += 2 * RELAPSE;
        assert_eq!(note(&mut faults, now), interval);
    }

    #[test]
    fn a_change_waits_only_for_its_own_file_system() {
        let identity = Identity { uuid: [7; 16], kind: 1 };
        let faulty = Faulty::default();
        assert!(!faulty.has_any() && faulty.is_empty() && !faulty.keeps_waiting(4));
        faulty.note(4, identity, "no".to_owned(), Duration::ZERO);
        assert!(faulty.keeps_waiting(4) && !faulty.keeps_waiting(5) && faulty.may_have_any());
        assert_eq!((faulty.all(), faulty.has_come_back(&identity)), (faulty.due(), None));
        faulty.note(5, Identity { kind: 2, ..identity }, "no".to_owned(), Duration::ZERO);
        assert!(faulty.let_go(4) && faulty.has_any());
        assert_eq!(faulty.has_come_back(&identity), Some(true));
        assert!(faulty.let_go(5) && !faulty.has_any() && faulty.all().is_empty());
        assert!(!faulty.let_go(5));
    }
}
