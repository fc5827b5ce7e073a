//! The start of the log: look at what is there, decide, replay, go on.

mod begun_calls;
mod comparison;
mod unmade;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_intent_log::recovery::{Decision, Observed, decide};
use steadfast_intent_log::{
    Extent, FileSystemEntry, Identity, IntentLog, LiveRecords, Lsn, Reader, Superblock, Survey,
    count_record_like, format, inspect,
};
use steadfast_recovery::{Change, Recoverable, finish_cut, undo};

use super::adopting::LookAround;
use super::begun::BegunRings;
use super::keeper::{IntentLogKeeper, IntentLogOptions, Parts};
use super::known::{KNOWN_FILE, is_another_open, known, note_known};
use super::listing::shown;
use super::medium::FileMedium;
use super::mutation::{self, Mutation};
use super::observed::ObservedFile;
use super::probe::time_superblocks;
use super::records::{ReplayError, RingRecords};
use super::replay::replay;
use super::replies::{OpenedReplies, ReplyStore};
use super::storages::{OpenStorage, Storages};
use super::told::tell;
use super::under_way::{self, Found, UnderWayFile};
use super::{aside, refused, survey};
use comparison::Comparison;

/// File systems whose records were not replayed.
type NotReplayed = Vec<Identity>;

/// What the log is started with.
pub struct StartIntentLog {
    /// The file or block device.
    pub path: PathBuf,
    /// How large a file is made if there is none.
    pub file_bytes: u64,
    /// Where the server keeps its state.
    pub state_directory: PathBuf,
    /// This host.
    pub host: [u8; 16],
    /// Random: the identity of a log that is made.
    pub new_uuid: [u8; 16],
    /// Random: the write verifier, unless that of the log goes on.
    pub new_write_verifier: u64,
    /// Random, and told to no client: what the log gets for a write verifier when it is left while
    /// the server goes on telling its own.
    pub untold_write_verifier: u64,
    /// By which handles are sealed.
    pub handle_key: [u8; 16],
    /// How it is used.
    pub options: IntentLogOptions,
    /// Opens a file system that is mounted; `None` if it is not.
    pub open_storage: Box<OpenStorage>,
    /// Tells what is mounted, for a file system that got another UUID.
    pub look_around: Box<LookAround>,
}

/// What came of the start.
pub struct StartedIntentLog {
    /// The log at work.
    pub keeper: Arc<IntentLogKeeper>,
    /// The write verifier to begin with.
    pub write_verifier: u64,
    /// Calls of before and their replies, as they stand behind changes, for the engine.
    pub replies: Vec<Vec<u8>>,
}

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StartIntentLogError {
    /// The medium cannot be opened or made.
    #[error("cannot open the intent log {}: {source}", path.display())]
    Open {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It may not be used as it is.
    #[error("the intent log {} is not used: {why}", path.display())]
    Refused {
        /// Where it is.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// A file system's records could not be replayed.
    #[error("{file_system}: its operations in the intent log cannot be replayed: {source}")]
    Replay {
        /// Where it is mounted.
        file_system: String,
        /// Why.
        source: ReplayError,
    },
    /// A file system is there but cannot be worked on.
    #[error("{file_system}: cannot replay the intent log: {why}")]
    Storage {
        /// Where it is mounted.
        file_system: String,
        /// Why.
        why: String,
    },
    /// The log cannot be written.
    #[error("cannot write the intent log {}: {why}", path.display())]
    Write {
        /// Where it is.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The state directory cannot be written.
    #[error("cannot write to the state directory: {0}")]
    StateDirectory(io::Error),
}

impl StartIntentLog {
    /// Opens the log, or makes it; replays what a crash has left in it; goes on.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub fn start(self) -> Result<StartedIntentLog, StartIntentLogError> {
        #[cfg(feature = "powercut-mutations")]
        mutation::choose().map_err(|why| self.refused(why))?;
        let has_another = |superblock: Option<&Superblock>| {
            is_another_open(&self.state_directory, superblock)
                .map_err(StartIntentLogError::StateDirectory)
        };
        let missing = || {
            self.refused(format!(
                "it is not the log that this server used last and did not close, so operations may \
                 be missing: bring that one back (is its disk mounted? is `path` in [log] right?); \
                 if it is lost, remove {KNOWN_FILE} from the state directory, and what was only in \
                 it is lost"
            ))
        };
        if !self.path.exists() && has_another(None)? {
            return Err(missing());
        }
        let medium = self.open_medium()?;
        let opened = ReplyStore::open(&self.state_directory, self.options.replies_bytes_max);
        let OpenedReplies { store, mut replies } =
            opened.map_err(StartIntentLogError::StateDirectory)?;
        let facts = inspect(&medium);
        let found = facts.superblock().cloned();
        let known = known(&self.state_directory, found.as_ref())
            .map_err(StartIntentLogError::StateDirectory)?;
        let mut found = found;
        let mut surveyed = found.as_ref().map(|superblock| survey(&medium, superblock));
        let record_like = if found.is_none() { count_record_like(&medium) } else { 0 };
        // With operations in it and no superblock, it is that log, and damaged.
        if record_like == 0 && has_another(found.as_ref())? {
            return Err(missing());
        }
        // What discarding gives up, by `steadfast log verify` too.
        let operations = surveyed.as_ref().map(Survey::live_operations);
        let mut storages = Storages::new();
        let mut comparison = Comparison::default();
        if let (Some(superblock), Some(survey_of_it)) = (&mut found, &mut surveyed) {
            comparison = self.compare(&medium, superblock, survey_of_it, &mut storages)?;
        }
        let is_there = |index| storages.iter().any(|(entry, _)| entry.index == index);
        let mut observed =
            Observed::new(&facts, surveyed.as_ref(), record_like, known, &self.host, is_there);
        observed.marks = comparison.marks();
        observed.operations = operations.unwrap_or(observed.operations);
        let (label, decision) = decide(&observed);
        tracing::debug!("intent log: {label}: {decision:?}");
        let write_error = |error: &dyn std::fmt::Display| StartIntentLogError::Write {
            path: self.path.clone(),
            why: error.to_string(),
        };
        let (mut ring_replies, mut not_replayed) = (Vec::new(), NotReplayed::new());
        let mut replayed = Vec::new();
        let (superblock, write_verifier) = match (decision, found) {
            (Decision::Refuse(why), _) => {
                return Err(self.refused(comparison.explain(why, surveyed.as_ref())));
            }
            (Decision::Format, _) | (_, None) => {
                let verifier = self.new_write_verifier;
                let superblock = format(&medium, self.new_uuid, self.host, verifier)
                    .map_err(|error| write_error(&error))?;
                (superblock, verifier)
            }
            (Decision::Start, Some(superblock)) => {
                let verifier = superblock.write_verifier;
                (superblock, verifier)
            }
            (Decision::Replay | Decision::ReplayAndSetAside, Some(superblock)) => {
                let surveyed = survey(&medium, &superblock);
                // Of those that are refused nothing is changed.
                storages.retain(|(entry, _)| !comparison.is_refused(&entry.identity));
                let mut changed = superblock.file_systems.clone();
                changed.retain(|entry| !comparison.is_refused(&entry.identity));
                let cuts = self.undo_what_was_under_way(&changed, surveyed.last, &mut storages);
                not_replayed = self.replay_all(
                    &medium,
                    (&superblock, &surveyed, &comparison),
                    &mut storages,
                    &mut ring_replies,
                )?;
                finish_cuts(&cuts, &not_replayed, &mut storages);
                let live = superblock.file_systems.iter();
                let live = live.filter(|entry| surveyed.live.contains_key(&entry.index));
                let of_live = live.map(|entry| entry.identity);
                replayed.extend(of_live.filter(|identity| !not_replayed.contains(identity)));
                storages.retain(|(entry, _)| !not_replayed.contains(&entry.identity));
                (superblock, self.new_write_verifier)
            }
        };
        comparison.tell_of_what_is_served();
        let known = replies.iter().chain(ring_replies.iter().map(Vec::as_slice));
        let entries = &superblock.file_systems;
        let begun = self.replies_of_begun(known, entries, &not_replayed, &mut storages);
        ring_replies.extend(begun);
        // The new epoch makes the records of the ring unreadable.
        store.add(ring_replies, &mut replies).map_err(StartIntentLogError::StateDirectory)?;
        // From here on nothing in the log is live. Should the machine stop before the superblock
        // says so, the same is replayed once more.
        note_known(&self.state_directory, &superblock.uuid, true)
            .map_err(StartIntentLogError::StateDirectory)?;
        let mut surveyed = survey(&medium, &superblock);
        // Epochs go on after the latest that any mark has.
        surveyed.epoch_beyond = surveyed.epoch_beyond.max(comparison.latest_epoch(&superblock));
        let log = IntentLog::resume(&superblock, &surveyed, self.host, write_verifier)
            .map_err(|error| write_error(&error))?;
        log.write_superblocks(&medium, false).map_err(|error| write_error(&error))?;
        self.mark_those_replayed(&superblock, &replayed, &log, &mut storages)?;
        drop(storages);
        time_superblocks(&log, &medium).map_err(|error| write_error(&error))?;
        for entry in &superblock.file_systems {
            let (directory, log) = (&self.state_directory, &superblock.uuid);
            ObservedFile::of_ring(directory, log, superblock.epoch, entry.index)
                .remove()
                .map_err(StartIntentLogError::StateDirectory)?;
        }
        let under_way = UnderWayFile::create(&self.state_directory).inspect_err(|error| {
            tracing::warn!(
                "the state directory cannot be written: {error}; attributes that are being set \
                 when the server is killed may be set in part"
            );
        });
        let begun = BegunRings::create(&self.state_directory).inspect_err(|error| {
            tracing::warn!(
                "calls that begin cannot be noted in the state directory: {error}; if the server is \
                 killed, calls in flight that are sent again may fail by what they did themselves"
            );
        });
        let keeper = IntentLogKeeper::new(Parts {
            uuid: superblock.uuid,
            log,
            medium: Arc::new(medium),
            options: self.options,
            state_directory: self.state_directory,
            open_storage: self.open_storage,
            untold_write_verifier: self.untold_write_verifier,
            under_way: under_way.ok(),
            begun: begun.ok(),
            replies: store,
        });
        let is_forgotten = mutation::is_on(Mutation::ForgottenReplies);
        let replies = if is_forgotten { Vec::new() } else { replies.into_newest() };
        Ok(StartedIntentLog { keeper, write_verifier, replies })
    }

    fn refused(&self, why: String) -> StartIntentLogError {
        StartIntentLogError::Refused { path: self.path.clone(), why }
    }

    fn open_medium(&self) -> Result<FileMedium, StartIntentLogError> {
        let opened = match FileMedium::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::info!(
                    "making the intent log {}, {} MiB",
                    self.path.display(),
                    self.file_bytes >> 20
                );
                FileMedium::create(&self.path, self.file_bytes)
            }
            opened => opened,
        };
        opened.map_err(|source| StartIntentLogError::Open { path: self.path.clone(), source })
    }

    fn open(
        &self,
        entry: &FileSystemEntry,
    ) -> Result<Option<Box<dyn Recoverable>>, StartIntentLogError> {
        (self.open_storage)(entry)
            .map_err(|why| StartIntentLogError::Storage { file_system: shown(entry), why })
    }

    /// Undoes what was under way when the server was killed, and is not in the log, of which `last` is
    /// the last record. Returns where files were cut, to be finished after replay.
    fn undo_what_was_under_way(
        &self,
        file_systems: &[FileSystemEntry],
        last: Lsn,
        storages: &mut Storages,
    ) -> Vec<Found> {
        let mut found = under_way::found(&self.state_directory).unwrap_or_else(|error| {
            tracing::warn!("the state directory cannot be read: {error}; attributes that were being set when the \
                 server was killed may be set in part");
            Vec::new()
        });
        found.retain(|found| found.lsn == 0 || found.lsn > last.0);
        // The last first: what has no LSN yet, of any object one at the most, comes after all others.
        found.sort_by_key(|found| std::cmp::Reverse(found.lsn.wrapping_sub(1)));
        let mut cuts = Vec::new();
        for mut found in found {
            let is_it = |entry: &&FileSystemEntry| entry.identity == found.file_system;
            let Some(entry) = file_systems.iter().find(is_it) else { continue };
            if !storages.iter().any(|(known, _)| known.index == entry.index) {
                match self.open(entry) {
                    Ok(Some(storage)) => storages.push((entry.clone(), storage)),
                    Ok(None) => tell_of_half(entry, &"its file system is not mounted"),
                    Err(error) => tell_of_half(entry, &error),
                }
            }
            let of_it = storages.iter_mut().find(|(known, _)| known.index == entry.index);
            let Some((_, storage)) = of_it else { continue };
            match undo(&mut **storage, found.under_way, found.lsn != 0) {
                Ok(None) => {}
                Ok(Some(cut)) => {
                    found.under_way = cut;
                    if let Err(error) = under_way::note_cut(&self.state_directory, &found) {
                        tell_of_half(entry, &error);
                    }
                    cuts.push(found);
                }
                Err(error) => tell_of_half(entry, &error),
            }
        }
        cuts
    }

    /// Returns of which file systems the records were set aside.
    fn replay_all(
        &self,
        medium: &FileMedium,
        (superblock, surveyed, comparison): (&Superblock, &Survey, &Comparison),
        storages: &mut Storages,
        replies: &mut Vec<Vec<u8>>,
    ) -> Result<NotReplayed, StartIntentLogError> {
        let mut replies_of_all = VecDeque::new();
        let mut bytes = 0;
        for record in Reader::new(medium, Extent::of(superblock)) {
            // Also of those whose change has reached the disk.
            if let Ok((_, behind)) = Change::decode(&record.payload)
                && !behind.is_empty()
            {
                bytes += behind.len();
                replies_of_all.push_back(behind.to_vec());
            }
            while bytes as u64 > self.options.replies_bytes_max
                && let Some(oldest) = replies_of_all.pop_front()
            {
                bytes -= oldest.len();
            }
        }
        replies.extend(replies_of_all);
        let mut not_replayed = NotReplayed::new();
        for entry in &superblock.file_systems {
            let Some(live) = surveyed.live.get(&entry.index) else { continue };
            let there = storages.iter_mut().find(|(known, _)| known.index == entry.index);
            let replayed = there.map(|(_, storage)| {
                self.replay_ring(medium, superblock, entry, live.records, &mut **storage)
            });
            let why = match replayed {
                Some(Ok(())) => continue,
                // It may be full, or read-only. The others must not wait for it.
                Some(Err(error)) if error.is_of_storage() => {
                    format!(
                        "they cannot be replayed: {error}; repair that, and start its share again"
                    )
                }
                Some(Err(source)) => {
                    let file_system = shown(entry);
                    return Err(StartIntentLogError::Replay { file_system, source });
                }
                None => match comparison.why_refused(&entry.identity) {
                    Some(why) => {
                        refused::note(&self.state_directory, entry, &why)
                            .map_err(StartIntentLogError::StateDirectory)?;
                        format!("{why}; {}", refused::choices(entry))
                    }
                    None => comparison.why_absent(entry),
                },
            };
            self.set_aside(medium, superblock, entry, live, &why)
                .map_err(StartIntentLogError::StateDirectory)?;
            not_replayed.push(entry.identity);
        }
        Ok(not_replayed)
    }

    /// Replays what there is of one file system: what was set aside before, and what is in the ring.
    fn replay_ring(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        entry: &FileSystemEntry,
        live_records: u64,
        storage: &mut dyn Recoverable,
    ) -> Result<(), ReplayError> {
        // Where something was set aside the disk may have failed, and lost what was in effect.
        let has_asides = !aside::files_of(&self.state_directory, &entry.identity)?.is_empty();
        self.remove_asides_of_ring(superblock, entry)?;
        aside::replay_all(&self.state_directory, entry, storage)?;
        let records =
            RingRecords { medium, extent: Extent::of(superblock), file_system: entry.index };
        let (directory, epoch) = (&self.state_directory, superblock.epoch);
        let observed = ObservedFile::of_ring(directory, &superblock.uuid, epoch, entry.index);
        let begun = std::time::Instant::now();
        let report = replay(&records, Some(live_records), &observed, !has_asides, storage)?;
        tell(entry, &report, storage, begun.elapsed());
        Ok(())
    }

    /// Keeps what the ring has of a file system until that can be replayed.
    fn set_aside(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        entry: &FileSystemEntry,
        live: &LiveRecords,
        why: &str,
    ) -> io::Result<()> {
        let (directory, extent) = (&self.state_directory, Extent::of(superblock));
        let log = (&superblock.uuid, superblock.epoch);
        let expected = Some(live.records);
        let set_aside = aside::set_aside(directory, medium, &extent, log, entry, expected)?;
        let Some((path, last)) = set_aside else { return Ok(()) };
        // This start, or an earlier one, may have begun to replay them.
        let of_ring = ObservedFile::of_ring(directory, log.0, log.1, entry.index);
        ObservedFile::of_aside(directory, log.0, log.1, entry.index, last).copy_from(&of_ring)?;
        tracing::error!(
            "{}: {} operations are not replayed: {why}. They are kept in {} and replayed \
             before it is served",
            shown(entry),
            live.operations,
            path.display()
        );
        Ok(())
    }
}

impl StartIntentLog {
    /// A start that was cut short may have set aside what the ring still has.
    fn remove_asides_of_ring(
        &self,
        superblock: &Superblock,
        entry: &FileSystemEntry,
    ) -> io::Result<()> {
        for file in aside::files_of(&self.state_directory, &entry.identity)? {
            if file.is_of(&superblock.uuid, superblock.epoch) && file.last > entry.tail {
                std::fs::remove_file(&file.path)?;
            }
        }
        File::open(&self.state_directory)?.sync_all()
    }
}

/// Cuts files again that were being cut when the server was killed.
fn finish_cuts(cuts: &[Found], not_replayed: &NotReplayed, storages: &mut Storages) {
    for cut in cuts {
        let of_it = storages.iter_mut().find(|(known, _)| known.identity == cut.file_system);
        let Some((entry, storage)) = of_it else { continue };
        if not_replayed.contains(&cut.file_system) {
            tell_of_half(entry, &"its file system is replayed later");
            continue;
        }
        match finish_cut(&mut **storage, &cut.under_way) {
            Ok(()) => {
                if let Err(why) = storage.make_stable() {
                    tell_of_half(entry, &why);
                }
            }
            Err(error) => tell_of_half(entry, &error),
        }
    }
}

fn tell_of_half(entry: &FileSystemEntry, why: &dyn std::fmt::Display) {
    tracing::warn!(
        "{}: attributes of an object were being set when the server was killed, and no client was told \
         that they were; it may have some of them and not others: {why}",
        shown(entry)
    );
}

/// Whether something is set aside that is to be replayed before its file system is served.
///
/// # Errors
/// The state directory's.
pub fn is_anything_set_aside(state_directory: &Path) -> io::Result<bool> {
    aside::is_any(state_directory)
}
