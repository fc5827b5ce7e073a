//! The start of the log: look at what is there, decide, replay, go on.
//!
//! [`StartIntentLog::start`] has the steps in their order. The long ones are modules below this one:
//! `comparison` compares the marks on file systems with the log, `replaying` replays records or sets them
//! aside, `begun_calls` makes the replies to calls that were done when the server was killed. `unmade` is
//! the start without a log.

mod begun_calls;
mod comparison;
mod replaying;
mod unmade;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_intent_log::recovery::{Decision, Observed, decide};
use steadfast_intent_log::{
    FileSystemEntry, Identity, IntentLog, Superblock, Survey, count_record_like, format, inspect,
};
use steadfast_recovery::Recoverable;

use super::adopting::LookAround;
use super::begun::BegunRings;
use super::keeper::{IntentLogKeeper, IntentLogOptions, Parts};
use super::known::{KNOWN_FILE, is_another_open, known, note_known};
use super::listing::shown;
use super::medium::FileMedium;
use super::mutation::{self, Mutation};
use super::observed::ObservedFile;
use super::probe::time_superblocks;
use super::records::ReplayError;
use super::replies::{OpenedReplies, Replies, ReplyStore};
use super::storages::{OpenStorage, Storages};
use super::under_way::UnderWayFile;
use super::{aside, survey};
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

/// The log and the file systems as a start finds them, and its decision.
struct Findings {
    /// `None` if there is no valid one.
    superblock: Option<Superblock>,
    /// The records that its superblock leads to.
    surveyed: Option<Survey>,
    /// The file systems that are there and have records.
    storages: Storages,
    /// The marks on file systems, compared with the log.
    comparison: Comparison,
    decision: Decision,
}

/// A log whose records are all replayed or set aside, though its superblock does not say so yet.
struct Settled {
    superblock: Superblock,
    /// For clients, from here on.
    write_verifier: u64,
    /// File systems that are open.
    storages: Storages,
    comparison: Comparison,
    /// Replies that may be nowhere but in the ring.
    ring_replies: Vec<Vec<u8>>,
    /// File systems whose records were replayed.
    replayed: Vec<Identity>,
    not_replayed: NotReplayed,
}

impl StartIntentLog {
    /// Opens the log, or makes it; replays what a crash has left in it; goes on.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub fn start(self) -> Result<StartedIntentLog, StartIntentLogError> {
        #[cfg(feature = "powercut-mutations")]
        mutation::choose().map_err(|why| self.refused(why))?;
        if !self.path.exists() {
            self.require_none_is_missing(None)?;
        }
        let medium = self.open_medium()?;
        let opened = ReplyStore::open(&self.state_directory, self.options.replies_bytes_max);
        let OpenedReplies { store, mut replies } =
            opened.map_err(StartIntentLogError::StateDirectory)?;
        let found = self.look(&medium)?;
        let mut settled = self.carry_out(&medium, found)?;
        self.keep_replies(&mut settled, &store, &mut replies)?;
        let (uuid, write_verifier) = (settled.superblock.uuid, settled.write_verifier);
        let log = self.begin_epoch(&medium, settled)?;
        let keeper = self.into_keeper(uuid, log, medium, store);
        let is_forgotten = mutation::is_on(Mutation::ForgottenReplies);
        let replies = if is_forgotten { Vec::new() } else { replies.into_newest() };
        Ok(StartedIntentLog { keeper, write_verifier, replies })
    }

    /// Refuses to start if this server used another log last and did not close it. `there`: the superblock
    /// of the log that is there.
    fn require_none_is_missing(
        &self,
        there: Option<&Superblock>,
    ) -> Result<(), StartIntentLogError> {
        let is_missing = is_another_open(&self.state_directory, there)
            .map_err(StartIntentLogError::StateDirectory)?;
        if !is_missing {
            return Ok(());
        }
        Err(self.refused(format!(
            "it is not the log that this server used last and did not close, so operations may \
             be missing: bring that one back (is its disk mounted? is `path` in [log] right?); \
             if it is lost, remove {KNOWN_FILE} from the state directory, and what was only in \
             it is lost"
        )))
    }

    /// Looks at the medium, at the state directory and at the file systems that are there, and decides what
    /// to do. Changes nothing.
    fn look(&self, medium: &FileMedium) -> Result<Findings, StartIntentLogError> {
        let facts = inspect(medium);
        let mut superblock = facts.superblock().cloned();
        let known = known(&self.state_directory, superblock.as_ref())
            .map_err(StartIntentLogError::StateDirectory)?;
        let mut surveyed = superblock.as_ref().map(|superblock| survey(medium, superblock));
        let record_like = if superblock.is_none() { count_record_like(medium) } else { 0 };
        // With operations in it and no superblock, it is that log, and damaged.
        if record_like == 0 {
            self.require_none_is_missing(superblock.as_ref())?;
        }
        // What discarding gives up, by `steadfast log verify` too.
        let operations = surveyed.as_ref().map(Survey::live_operations);
        let mut storages = Storages::new();
        let mut comparison = Comparison::default();
        if let (Some(superblock), Some(survey_of_it)) = (&mut superblock, &mut surveyed) {
            comparison = self.compare(medium, superblock, survey_of_it, &mut storages)?;
        }
        let is_there = |index| storages.iter().any(|(entry, _)| entry.index == index);
        let mut observed =
            Observed::new(&facts, surveyed.as_ref(), record_like, known, &self.host, is_there);
        observed.marks = comparison.marks();
        observed.operations = operations.unwrap_or(observed.operations);
        let (label, decision) = decide(&observed);
        tracing::debug!("intent log: {label}: {decision:?}");
        Ok(Findings { superblock, surveyed, storages, comparison, decision })
    }

    /// Carries out the decision: refuses, formats, replays, or takes the log as it is.
    fn carry_out(
        &self,
        medium: &FileMedium,
        found: Findings,
    ) -> Result<Settled, StartIntentLogError> {
        let Findings { superblock, surveyed, storages, comparison, decision } = found;
        let (superblock, write_verifier) = match (decision, superblock) {
            (Decision::Refuse(why), _) => {
                return Err(self.refused(comparison.explain(why, surveyed.as_ref())));
            }
            (Decision::Format, _) | (_, None) => {
                let verifier = self.new_write_verifier;
                let superblock = format(medium, self.new_uuid, self.host, verifier)
                    .map_err(|error| self.write_error(&error))?;
                (superblock, verifier)
            }
            (Decision::Start, Some(superblock)) => {
                let verifier = superblock.write_verifier;
                (superblock, verifier)
            }
            (Decision::Replay | Decision::ReplayAndSetAside, Some(superblock)) => {
                return self.replay_what_is_live(medium, superblock, storages, comparison);
            }
        };
        Ok(Settled {
            superblock,
            write_verifier,
            storages,
            comparison,
            ring_replies: Vec::new(),
            replayed: Vec::new(),
            not_replayed: NotReplayed::new(),
        })
    }

    /// Stores the replies of the ring, and those to calls that were done when the server was killed. The
    /// new epoch makes the records of the ring unreadable.
    fn keep_replies(
        &self,
        settled: &mut Settled,
        store: &ReplyStore,
        replies: &mut Replies,
    ) -> Result<(), StartIntentLogError> {
        settled.comparison.tell_of_what_is_served();
        let mut of_ring = std::mem::take(&mut settled.ring_replies);
        let known = replies.iter().chain(of_ring.iter().map(Vec::as_slice));
        let entries = &settled.superblock.file_systems;
        let not_replayed = &settled.not_replayed;
        let begun = self.replies_of_begun(known, entries, not_replayed, &mut settled.storages);
        of_ring.extend(begun);
        store.add(of_ring, replies).map_err(StartIntentLogError::StateDirectory)
    }

    /// Begins a new epoch, in which no earlier record is live, and marks the file systems whose records were
    /// replayed.
    fn begin_epoch(
        &self,
        medium: &FileMedium,
        settled: Settled,
    ) -> Result<IntentLog, StartIntentLogError> {
        let Settled { superblock, write_verifier, mut storages, comparison, replayed, .. } =
            settled;
        // From here on nothing in the log is live. Should the machine stop before the superblock
        // says so, the same is replayed once more.
        note_known(&self.state_directory, &superblock.uuid, true)
            .map_err(StartIntentLogError::StateDirectory)?;
        let mut surveyed = survey(medium, &superblock);
        // Epochs go on after the latest that any mark has.
        surveyed.epoch_beyond = surveyed.epoch_beyond.max(comparison.latest_epoch(&superblock));
        let log = IntentLog::resume(&superblock, &surveyed, self.host, write_verifier)
            .map_err(|error| self.write_error(&error))?;
        log.write_superblocks(medium, false).map_err(|error| self.write_error(&error))?;
        self.mark_those_replayed(&superblock, &replayed, &log, &mut storages)?;
        drop(storages);
        time_superblocks(&log, medium).map_err(|error| self.write_error(&error))?;
        for entry in &superblock.file_systems {
            let (directory, log) = (&self.state_directory, &superblock.uuid);
            ObservedFile::of_ring(directory, log, superblock.epoch, entry.index)
                .remove()
                .map_err(StartIntentLogError::StateDirectory)?;
        }
        Ok(log)
    }

    /// Makes the keeper, with new files for calls and changes that are under way.
    fn into_keeper(
        self,
        uuid: [u8; 16],
        log: IntentLog,
        medium: FileMedium,
        replies: ReplyStore,
    ) -> Arc<IntentLogKeeper> {
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
        IntentLogKeeper::new(Parts {
            uuid,
            log,
            medium: Arc::new(medium),
            options: self.options,
            state_directory: self.state_directory,
            open_storage: self.open_storage,
            untold_write_verifier: self.untold_write_verifier,
            under_way: under_way.ok(),
            begun: begun.ok(),
            replies,
        })
    }

    fn write_error(&self, why: &dyn std::fmt::Display) -> StartIntentLogError {
        StartIntentLogError::Write { path: self.path.clone(), why: why.to_string() }
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
}

/// Whether something is set aside that is to be replayed before its file system is served.
///
/// # Errors
/// The state directory's.
pub fn is_anything_set_aside(state_directory: &Path) -> io::Result<bool> {
    aside::is_any(state_directory)
}
