//! File systems that could not be flushed: what was acknowledged of theirs is kept aside, changes are
//! told to come again, and every so often it is tried whether they are well again. Who serves them
//! has them come back then: they are let go, and replayed when they are opened again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_intent_log::Identity;
use steadfast_recovery::LoggedFileSystem;
use steadfast_vfs::FsError;

use super::{IntentLogKeeper, Phase, RELAPSE, RETRY_MAX};

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
pub(super) struct Faults {
    by_index: BTreeMap<u32, Fault>,
    /// How many there were.
    count: u64,
    /// When others came back, and how long they had been tried in vain: what fails again soon is
    /// tried more rarely.
    came_back: HashMap<Identity, (Instant, Duration)>,
}

impl Faults {
    pub(super) fn is_empty(&self) -> bool {
        self.by_index.is_empty()
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    pub(super) fn has_identity(&self, identity: &Identity) -> bool {
        self.by_index.values().any(|fault| fault.identity == *identity)
    }

    /// Whether it was one of them, and was let go.
    pub(super) fn has_come_back(&self, identity: &Identity) -> bool {
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
    pub(super) fn why(&self, index: u32) -> Option<String> {
        self.by_index.get(&index).map(|fault| fault.why.clone())
    }

    /// One of them, and why it could not be flushed.
    pub(super) fn first(&self) -> Option<(u32, String)> {
        self.by_index.first_key_value().map(|(index, fault)| (*index, fault.why.clone()))
    }

    /// Notes one; how long until it is tried again.
    pub(super) fn note(
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
    pub(super) fn let_go(&mut self, index: u32, now: Instant) -> bool {
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

impl IntentLogKeeper {
    /// The file systems that could not be flushed.
    pub fn faulty(&self) -> Vec<FaultySince> {
        if !self.has_faulty.load(Ordering::SeqCst) {
            return Vec::new();
        }
        self.faults.lock().all()
    }

    /// Whether one that could not be flushed is still in use.
    pub fn is_still_faulty(&self, since: FaultySince) -> bool {
        self.faulty().contains(&since)
    }

    /// Those that could not be flushed, and are to be tried now.
    pub fn faulty_to_try(&self) -> Vec<FaultySince> {
        if self.phase() != Phase::On || self.is_closing() {
            return Vec::new();
        }
        self.faults.lock().due(Instant::now())
    }

    /// Tries one that could not be flushed: whether it takes changes again. Then it is to be let go
    /// by all who serve it, and opened again. May take as long as a disk hangs.
    pub fn is_well_again(&self, since: FaultySince) -> bool {
        let index = since.file_system.0;
        let syncs = self.served.lock().all_syncs_of(index);
        let mut error = FsError::Stale;
        // One may be mounted read-only, or be of a directory that was removed.
        for sync in syncs {
            let tried = sync.sync().and_then(|()| match sync.try_writing() {
                // Where there is no room only clients can make some; whether there is enough for
                // what it may have lost, replay finds out.
                Err(FsError::NoSpace | FsError::QuotaExceeded) => Ok(()),
                tried => tried,
            });
            match tried {
                Ok(()) => return true,
                Err(found) => error = found,
            }
        }
        if self.faults.lock().note_trial(index, error) {
            let path = self.path_served(index);
            tracing::warn!(
                "{path}: its file system still takes no changes: {error}; look for errors of its disk in the \
                 kernel's messages"
            );
        }
        false
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
}
