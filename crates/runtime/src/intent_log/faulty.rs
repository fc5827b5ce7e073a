//! File systems that could not be flushed: what was acknowledged of theirs is kept aside, changes are
//! told to come again, and every so often it is tried whether they are well again. Who serves them
//! has them come back then: they are let go, and replayed when they are opened again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_intent_log::Identity;
use steadfast_vfs::{FsError, LoggedFileSystem};

use super::keeper::{IntentLogKeeper, Phase};
use super::switch::{RELAPSE, RETRY_MAX};

/// One of them.
struct Fault {
    identity: Identity,
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
        let fault = Fault { identity, why, next_trial: now + interval, interval, told: None };
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
    fn due(&mut self, now: Instant) -> Vec<u32> {
        let due = self.by_index.iter_mut().filter(|(_, fault)| fault.next_trial <= now);
        due.map(|(index, fault)| {
            fault.next_trial = now + fault.interval;
            *index
        })
        .collect()
    }

    /// Notes that a trial has failed; whether that is news.
    fn note_trial(&mut self, index: u32, error: FsError) -> bool {
        let fault = self.by_index.get_mut(&index);
        fault.is_some_and(|fault| fault.told.replace(error) != Some(error))
    }
}

impl IntentLogKeeper {
    /// The file systems that could not be flushed.
    pub fn faulty(&self) -> Vec<LoggedFileSystem> {
        if !self.has_faulty.load(Ordering::SeqCst) {
            return Vec::new();
        }
        self.faults.lock().by_index.keys().map(|index| LoggedFileSystem(*index)).collect()
    }

    /// Whether one could not be flushed, and was not let go since.
    pub fn is_faulty(&self, file_system: LoggedFileSystem) -> bool {
        self.has_faulty.load(Ordering::SeqCst) && self.faults.lock().has(file_system.0)
    }

    /// Tries those that could not be flushed and whose time has come, and returns those that take
    /// changes again: they are to be let go, by all who serve them, and opened again. May take as
    /// long as a disk hangs.
    pub fn well_again(&self) -> Vec<LoggedFileSystem> {
        if self.phase() != Phase::On || self.is_closing() {
            return Vec::new();
        }
        let due = self.faults.lock().due(Instant::now());
        due.into_iter().filter(|index| self.is_well(*index)).map(LoggedFileSystem).collect()
    }

    fn is_well(&self, index: u32) -> bool {
        let Some(sync) = self.served.lock().sync_of(index) else { return false };
        let tried = sync.sync().and_then(|()| sync.try_writing());
        let Err(error) = tried else { return true };
        if self.faults.lock().note_trial(index, error) {
            let path = self.path_served(index);
            tracing::warn!("{path}: its file system was tried again, and is not well: {error}");
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
        assert_eq!(faults.due(now), [4]);
        assert!(faults.due(now).is_empty(), "once an interval");
        assert!(faults.note_trial(4, FsError::Io) && !faults.note_trial(4, FsError::Io));
        assert!(faults.note_trial(4, FsError::ReadOnly));
        assert!(faults.let_go(4, now) && !faults.let_go(4, now) && faults.is_empty());
        for factor in [2, 4, 8] {
            now += Duration::from_secs(5);
            assert_eq!(note(&mut faults, now), factor * interval);
            assert!(faults.let_go(4, now));
        }
        now += 2 * RELAPSE;
        assert_eq!(note(&mut faults, now), interval);
    }
}
