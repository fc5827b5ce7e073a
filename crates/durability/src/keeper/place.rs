//! The log as storage sees it: file systems join it, changes pass the gate, take their places, and
//! fill them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_engine::BEHIND_CHANGE_BYTES_MAX;
use steadfast_intent_log::{Admission, FileSystemEntry, Identity, Lsn, Refused};
use steadfast_recovery::{
    AttributesUnderWay, BegunCalls, Change, ChangeLog, FileSystemIdentity, LogPlace,
    LoggedFileSystem, Recoverable,
};
use steadfast_vfs::{FileSystemSync, FsError, LogRecord, LoggedChange};

use crate::aside::{self, AsidePath};
use crate::compared::Compared;
use crate::mutation::{self, Mutation};
use crate::refused;
use crate::under_way::Noted;

use super::moments::Begun;
use super::room_wait::RoomWait;
use super::{DRAIN_POLL, FULL_WAIT, IntentLogKeeper, Phase};

/// Who registers a file system waits so long at the gate.
const GATE_WAIT: Duration = Duration::from_secs(1);

impl IntentLogKeeper {
    /// Before a file system is served: what was set aside while it was not there comes first.
    /// Whether there was something.
    fn replay_what_was_set_aside(&self, identity: Identity, path: &[u8]) -> Result<bool, FsError> {
        let usages = self.log.usage().file_systems;
        let known = usages.iter().find(|usage| usage.entry.identity == identity);
        let mark = known.and_then(|usage| usage.entry.mark);
        let (path_known, directory) = (path.to_vec(), self.state_files.directory());
        let entry = FileSystemEntry { index: 0, identity, path: path_known, tail: Lsn(0), mark };
        let replayed = match aside::files_of(self.state_files.directory(), &identity) {
            Ok(files) if files.is_empty() => return Ok(false),
            Ok(files) => match (self.settings.open_storage)(&entry) {
                Ok(Some(mut storage)) => self
                    .require_not_refused(&entry, &files, &mut *storage)
                    .and_then(|()| {
                        aside::replay_all(directory, &entry, &mut *storage)
                            .map_err(|error| error.to_string())
                    })
                    .and_then(|()| {
                        refused::settle(directory, &identity).map_err(|error| error.to_string())
                    }),
                Ok(None) => Err("it is not there".to_owned()),
                Err(why) => Err(why),
            },
            Err(error) => Err(error.to_string()),
        };
        replayed.map(|()| true).map_err(|why| self.not_served(path, &why))
    }

    /// Whether what was set aside may be replayed: not if the file system went on without it, or was
    /// rolled back, before the administrator has decided.
    fn require_not_refused(
        &self,
        entry: &FileSystemEntry,
        files: &[AsidePath],
        storage: &mut dyn Recoverable,
    ) -> Result<(), String> {
        let (directory, identity) = (self.state_files.directory(), &entry.identity);
        if refused::is_accepted(directory, identity) {
            return Ok(());
        }
        let noted = refused::why(directory, identity).map_err(|error| error.to_string())?;
        let uuid = self.state_files.uuid();
        let log = (uuid, self.log.epoch(), self.log.last());
        let compared = Compared::new(log, entry, storage);
        let why = compared.why_asides_are_refused(files, uuid);
        // What was noted may have been of another copy of the disk.
        let why = why.or(noted.filter(|_| !compared.is_as_known()));
        why.map_or(Ok(()), |why| Err(format!("{why}; {}", refused::choices(entry))))
    }

    /// A file system that is in use, and has failed, gets no further shares: what was set aside for
    /// it, or is to be, can only be replayed while nobody uses it.
    fn require_not_failed(&self, identity: Identity, path: &[u8]) -> Result<(), FsError> {
        let has_failed = self.faulty.has_identity(&identity);
        let why = match aside::files_of(self.state_files.directory(), &identity) {
            Ok(files) if files.is_empty() && !has_failed => return Ok(()),
            Ok(_) => {
                "it has failed, and is in use: it is tried again, or take out its shares".into()
            }
            Err(error) => error.to_string(),
        };
        Err(self.not_served(path, &why))
    }

    /// Tells why something is not served, once in a while: every client that wants it asks.
    fn not_served(&self, path: &[u8], why: &str) -> FsError {
        if self.file_systems.is_refusal_news(path, why, Instant::now()) {
            tracing::error!(
                "{}: not served: operations that were set aside for its file system cannot be \
                 replayed: {why}",
                String::from_utf8_lossy(path)
            );
        }
        FsError::TryLater
    }
}

/// The log as storage sees it.
#[derive(Clone, Debug)]
pub struct LogHandle(pub(super) Arc<IntentLogKeeper>);

impl LogHandle {
    /// A handle of the running log.
    pub fn new(keeper: &Arc<IntentLogKeeper>) -> Self {
        Self(Arc::clone(keeper))
    }
}

impl ChangeLog for LogHandle {
    fn prepare(&self, identity: &FileSystemIdentity, path: &[u8]) -> Result<bool, FsError> {
        let keeper = &self.0;
        let identity = Identity { uuid: identity.uuid, kind: identity.kind };
        let _one = keeper.file_systems.registering();
        // It may be the same that was left just now, repaired.
        keeper.let_file_systems_go();
        let Some(has_failed_before) = keeper.faulty.has_come_back(&identity) else {
            // Not all that it may have lost is set aside yet, and the log has the rest.
            return Err(FsError::TryLater);
        };
        Ok(keeper.replay_what_was_set_aside(identity, path)? || has_failed_before)
    }

    fn register(
        &self,
        identity: &FileSystemIdentity,
        path: &[u8],
        mount: u64,
        sync: Arc<dyn FileSystemSync>,
    ) -> Result<Option<LoggedFileSystem>, FsError> {
        let keeper = &self.0;
        let identity = Identity { uuid: identity.uuid, kind: identity.kind };
        let _one = keeper.file_systems.registering();
        keeper.require_not_failed(identity, path)?;
        // Not for long: the caller may hold what changes need that have passed the gate.
        if !keeper.gate.wait_for(GATE_WAIT) {
            return Err(FsError::TryLater);
        }
        // Also while it is off: it may come back.
        Ok(match keeper.log.register(identity, path) {
            Ok(index) => {
                keeper.file_systems.join(index, mount, Arc::clone(&sync));
                keeper.begin_marks(index, &*sync);
                keeper.write_superblocks_if_due();
                Some(LoggedFileSystem(index))
            }
            Err(error) => {
                let path = String::from_utf8_lossy(path);
                tracing::warn!("{path}: changes are flushed instead of logged: {error}");
                None
            }
        })
    }

    fn want(&self, _file_system: LoggedFileSystem) {
        self.0.make_if_unmade();
    }

    fn leave(&self, file_system: LoggedFileSystem, mount: u64) {
        if self.0.file_systems.leave(file_system.0, mount) {
            self.0.requests.want();
        }
    }

    fn admit(
        &self,
        file_system: LoggedFileSystem,
        change_bytes: usize,
    ) -> Result<Option<Box<dyn LogPlace>>, FsError> {
        let keeper = &self.0;
        loop {
            if keeper.faulty.keeps_waiting(file_system.0) {
                return Err(FsError::TryLater);
            }
            let phase = keeper.gate.pass();
            if phase == Phase::On {
                match keeper.log.admit(change_bytes + BEHIND_CHANGE_BYTES_MAX) {
                    Ok(admission) => {
                        return Ok(Some(Box::new(Place {
                            keeper: Arc::clone(keeper),
                            file_system: file_system.0,
                            state: PlaceState::Admitted(admission),
                            record: Vec::new(),
                            begun: Some(Begun::now()),
                            noted: None,
                        })));
                    }
                    // Flushed, and told to the log.
                    Err(Refused::TooLarge { .. }) => {
                        return Ok(Some(Box::new(Pass(Arc::clone(keeper)))));
                    }
                    Err(refused) => {
                        keeper.gate.leave();
                        let _waiting = RoomWait::begin();
                        if matches!(refused, Refused::Full { .. }) {
                            keeper.requests.want();
                            // The caller may have filled records that nobody was told of.
                            keeper.wakeup.rouse();
                            keeper.requests.wait_for_room(FULL_WAIT);
                        } else {
                            // Soon the gate is closed, or nothing is logged any more.
                            std::thread::sleep(DRAIN_POLL);
                        }
                    }
                }
                continue;
            }
            if phase == Phase::Off {
                return Ok(Some(Box::new(Pass(Arc::clone(keeper)))));
            }
            keeper.gate.leave();
            keeper.wakeup.rouse();
            let _waiting = RoomWait::begin();
            if !keeper.gate.wait_unless(|| keeper.switch.is_stuck()) {
                return Err(FsError::TryLater);
            }
        }
    }

    fn takes_write(&self, bytes: usize, is_stable: bool) -> bool {
        let options = &self.0.settings.options;
        let max = if is_stable {
            options.stable_write_bytes_max
        } else {
            options.unstable_write_bytes_max
        };
        bytes <= max && self.0.phase() != Phase::Off
    }

    fn is_in_use(&self) -> bool {
        self.0.phase() != Phase::Off
    }

    fn last(&self) -> u64 {
        self.0.log.last().0
    }

    fn fault(&self, file_system: LoggedFileSystem) -> Option<String> {
        let faulty = &self.0.faulty;
        let why = faulty.has_any().then(|| faulty.why(file_system.0)).flatten()?;
        Some(format!("its disk cannot be flushed: {why}; changes wait until it is well again"))
    }

    fn has_failed(&self, identity: &FileSystemIdentity) -> bool {
        let identity = Identity { uuid: identity.uuid, kind: identity.kind };
        self.0.faulty.has_identity(&identity)
    }

    fn note_loss(&self) {
        self.0.running.note_loss();
    }

    fn begun_calls(&self) -> Option<&dyn BegunCalls> {
        let rings = self.0.state_files.begun().filter(|_| self.0.phase() == Phase::On)?;
        Some(rings)
    }

    fn note(&self, place: Box<dyn LogPlace>, change: &Change<'_>) -> Result<(), FsError> {
        let lsn = change.put(place, 0).fill(|_| {});
        self.0.wakeup.rouse();
        self.0.wait_stable(lsn);
        Ok(())
    }
}

/// What a change that is not logged has passed the gate with: nothing is switched until it has
/// been applied.
struct Pass(Arc<IntentLogKeeper>);

impl LogPlace for Pass {
    fn is_logged(&self) -> bool {
        false
    }

    fn take(&mut self) {}

    fn put(self: Box<Self>, _change: Vec<u8>) -> LoggedChange {
        LoggedChange::new(self)
    }
}

impl LogRecord for Pass {
    fn fill(self: Box<Self>, _append: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        0
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

enum PlaceState {
    Admitted(Admission),
    Taken(Lsn),
    Done,
}

/// A place in the log.
struct Place {
    keeper: Arc<IntentLogKeeper>,
    file_system: u32,
    state: PlaceState,
    /// The change, once it was put here.
    record: Vec<u8>,
    /// Until it is taken.
    begun: Option<Begun>,
    /// What is under way, until its record is stable.
    noted: Option<Noted>,
}

impl Place {
    fn reserve(&mut self) {
        if let PlaceState::Admitted(admission) =
            std::mem::replace(&mut self.state, PlaceState::Done)
        {
            let lsn = self.keeper.log.reserve(admission, self.file_system);
            self.state = PlaceState::Taken(lsn);
            self.begun = None;
            if let Some(noted) = &self.noted {
                noted.note_lsn(lsn.0);
            }
        }
    }
}

impl LogPlace for Place {
    fn note_under_way(&mut self, file_system: &FileSystemIdentity, under_way: &AttributesUnderWay) {
        self.noted = self.keeper.state_files.noted().note(file_system, under_way);
    }

    fn take(&mut self) {
        if !mutation::is_on(Mutation::LateOrder) {
            self.reserve();
        }
    }

    fn put(mut self: Box<Self>, change: Vec<u8>) -> LoggedChange {
        self.record = change;
        LoggedChange::new(self)
    }
}

impl LogRecord for Place {
    fn fill(mut self: Box<Self>, append: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        let mut record = std::mem::take(&mut self.record);
        let behind = record.len();
        append(&mut record);
        if mutation::is_on(Mutation::LateOrder) {
            // Others overtake it.
            std::thread::sleep(DRAIN_POLL * (record.len() as u32 % 8));
            self.reserve();
        }
        match std::mem::replace(&mut self.state, PlaceState::Done) {
            PlaceState::Taken(lsn) => {
                if let Some(noted) = self.noted.take() {
                    self.keeper.state_files.noted().keep(lsn, noted);
                }
                let is_new = self.keeper.log.complete_with(lsn, record, behind);
                self.keeper.gate.leave();
                // A committer is woken when the call is parked, with others of its batch.
                if is_new {
                    self.keeper.wakeup.note_work();
                }
                let usage_is_high = self.keeper.is_filling(lsn);
                if usage_is_high {
                    self.keeper.requests.want();
                }
                lsn.0
            }
            state => {
                self.state = state;
                0
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, PlaceState::Done) {
            PlaceState::Admitted(admission) => self.keeper.log.cancel(admission),
            PlaceState::Taken(lsn) => {
                if self.keeper.log.void(lsn) {
                    self.keeper.note_complete();
                }
            }
            PlaceState::Done => return,
        }
        self.keeper.gate.leave();
    }
}

/// Fill levels are looked at once in so many records.
const LOOK_EVERY: u64 = 64;

impl IntentLogKeeper {
    /// Whether a checkpoint should come before its time.
    fn is_filling(&self, lsn: Lsn) -> bool {
        if !lsn.0.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        let (used, all) = self.log.fill();
        used * 100 > all * self.settings.options.checkpoint_fill_percent
    }
}
