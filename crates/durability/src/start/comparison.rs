//! The start compares the marks of all file systems that are there with what the log has.

use std::fmt::Write;
use std::io;

use steadfast_intent_log::recovery::marks::Fate;
use steadfast_intent_log::recovery::{MarksFact, Refusal};
use steadfast_intent_log::{FileSystemEntry, Identity, IntentLog, Lsn, Superblock, Survey};

use crate::adopting::hint;
use crate::compared::{Compared, mark_replayed};
use crate::listing::shown;
use crate::medium::FileMedium;
use crate::storages::Storages;
use crate::{aside, refused, survey};

use super::{StartIntentLog, StartIntentLogError};

/// What came of it.
#[derive(Default)]
pub(super) struct Comparison {
    all: Vec<Compared>,
    /// Those whose records are not replayed, and why.
    refused: Vec<(Identity, String)>,
    /// Whether the administrator wants the log replayed though its file systems are newer.
    is_old_accepted: bool,
    /// Those of which something is set aside, so that they are judged before they are served.
    have_asides: Vec<Identity>,
    /// What a refusal says besides.
    hints: Vec<(Identity, String)>,
}

impl Comparison {
    /// What this says of the log as a whole.
    pub(super) fn marks(&self) -> MarksFact {
        let is_older = self.all.iter().any(|one| one.fate == Fate::LogIsOlder);
        if is_older && !self.is_old_accepted {
            MarksFact::LogIsOlder
        } else {
            MarksFact::Consistent
        }
    }

    /// The words of a refusal, with what it is about.
    pub(super) fn explain(&self, why: Refusal, surveyed: Option<&Survey>) -> String {
        let mut text = why.to_string();
        let mut add = |line: &str| {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {line}");
        };
        match why {
            Refusal::OlderThanFileSystems(_) => {
                for one in self.all.iter().filter(|one| one.fate == Fate::LogIsOlder) {
                    add(&one.why_log_is_older());
                }
            }
            Refusal::NoFileSystems(_) => self.hints.iter().for_each(|(_, hint)| add(hint)),
            Refusal::RecordsDamaged(_) | Refusal::RecordsUnreadable(_) => {
                if let Some(surveyed) = surveyed {
                    add(&surveyed.end.to_string());
                }
            }
            _ => {}
        }
        text
    }

    /// Whether nothing of a file system is to be replayed or undone.
    pub(super) fn is_refused(&self, identity: &Identity) -> bool {
        self.refused.iter().any(|(refused, _)| refused == identity)
    }

    /// Why not.
    pub(super) fn why_refused(&self, identity: &Identity) -> Option<String> {
        let found = self.refused.iter().find(|(refused, _)| refused == identity);
        found.map(|(_, why)| why.clone())
    }

    /// Why a file system that is not there is not, as far as that is known.
    pub(super) fn why_absent(&self, entry: &FileSystemEntry) -> String {
        let hint = self.hints.iter().find(|(identity, _)| *identity == entry.identity);
        let why = "its file system is not mounted".to_owned();
        hint.map_or(why.clone(), |(_, hint)| format!("{why}, or has another UUID now: {hint}"))
    }

    /// The latest epoch of this log that a mark has.
    pub(super) fn latest_epoch(&self, superblock: &Superblock) -> u64 {
        let marks = self.all.iter().filter_map(|one| one.mark);
        let ours = marks.filter(|mark| mark.log == superblock.uuid);
        ours.map(|mark| mark.epoch).max().unwrap_or(0)
    }

    /// Leaves out records that are known to be on their disks.
    fn leave_out_what_is_flushed(
        &self,
        medium: &FileMedium,
        superblock: &mut Superblock,
        surveyed: &mut Survey,
    ) {
        let mut is_less = false;
        for one in &self.all {
            let entry = superblock.file_systems.iter_mut().find(|it| it.index == one.entry.index);
            if let (Fate::Replay(flushed), Some(entry)) = (one.fate, entry)
                && flushed > entry.tail
            {
                entry.tail = flushed;
                is_less |= surveyed.live.contains_key(&entry.index);
            }
        }
        if is_less {
            *surveyed = survey(medium, superblock);
        }
    }

    /// Of file systems that are served though something is odd about them: there was nothing to replay.
    pub(super) fn tell_of_what_is_served(&self) {
        for one in &self.all {
            let identity = &one.entry.identity;
            if self.is_refused(identity) || self.have_asides.contains(identity) {
                continue;
            }
            match one.fate {
                Fate::Replay(_) => {}
                Fate::LogIsOlder if self.is_old_accepted => tracing::warn!(
                    "{}; the log was replayed all the same, as the administrator has decided",
                    one.why_log_is_older()
                ),
                Fate::LogIsOlder => tracing::warn!(
                    "{}; the log is an older copy (was the state directory restored?); it has \
                     nothing to replay, and goes on",
                    one.why_log_is_older()
                ),
                Fate::DiskIsOlder | Fate::OtherLog | Fate::MarkIsGone => {
                    if let Some(why) = one.why_refused() {
                        tracing::warn!(
                            "{}: {why}; nothing is to be replayed, and it is served as it is",
                            shown(&one.entry)
                        );
                    }
                }
            }
        }
    }
}

impl StartIntentLog {
    /// Looks at the marks of all file systems that are there, keeps those open that have live records,
    /// and leaves out records that are known to be on their disks.
    pub(super) fn compare(
        &self,
        medium: &FileMedium,
        superblock: &mut Superblock,
        surveyed: &mut Survey,
        storages: &mut Storages,
    ) -> Result<Comparison, StartIntentLogError> {
        let directory = &self.state_directory;
        let mut comparison = Comparison {
            is_old_accepted: refused::is_old_accepted(
                directory,
                &superblock.uuid,
                superblock.epoch,
            ),
            ..Comparison::default()
        };
        // Where the administrator has given up the end, it is no sign of anything.
        let last = match superblock.ends_at {
            Some(_) => Lsn(u64::MAX),
            None => surveyed.last.max(superblock.stable),
        };
        let log = (&superblock.uuid, superblock.epoch, last);
        for entry in &superblock.file_systems {
            let is_live = surveyed.live.contains_key(&entry.index);
            let storage = match self.open(entry) {
                Err(error) if is_live => return Err(error),
                // It has nothing to lose.
                opened => opened.ok().flatten(),
            };
            let Some(mut storage) = storage else {
                if is_live {
                    let hint = hint(&(self.look_around)(), &superblock.uuid, entry);
                    comparison.hints.extend(hint.map(|hint| (entry.identity, hint)));
                }
                continue;
            };
            let compared = Compared::new(log, entry, &mut *storage);
            let asides = aside::files_of(directory, &entry.identity)
                .map_err(StartIntentLogError::StateDirectory)?;
            if !asides.is_empty() {
                comparison.have_asides.push(entry.identity);
            }
            if is_live {
                if let Some(why) = self
                    .why_refused(superblock, &compared)
                    .map_err(StartIntentLogError::StateDirectory)?
                {
                    comparison.refused.push((entry.identity, why));
                }
                storages.push((entry.clone(), storage));
            }
            comparison.all.push(compared);
        }
        comparison.leave_out_what_is_flushed(medium, superblock, surveyed);
        Ok(comparison)
    }

    /// Why the records of a file system are not replayed, though the log's others are.
    fn why_refused(
        &self,
        superblock: &Superblock,
        compared: &Compared,
    ) -> io::Result<Option<String>> {
        let (directory, identity) = (&self.state_directory, &compared.entry.identity);
        if refused::is_accepted(directory, identity) || compared.fate == Fate::LogIsOlder {
            return Ok(None);
        }
        let files = aside::files_of(directory, identity)?;
        let why = compared.why_asides_are_refused(&files, &superblock.uuid);
        if why.is_some() || compared.is_as_known() {
            return Ok(why);
        }
        refused::why(directory, identity)
    }

    /// Marks the file systems whose records were replayed, once no crash can replay them again; what
    /// the administrator has decided for this start is done.
    pub(super) fn mark_those_replayed(
        &self,
        superblock: &Superblock,
        replayed: &[Identity],
        log: &IntentLog,
        storages: &mut Storages,
    ) -> Result<(), StartIntentLogError> {
        let directory = &self.state_directory;
        for entry in &superblock.file_systems {
            // A decision about nothing is not kept for the next crash.
            let is_nothing = aside::files_of(directory, &entry.identity)
                .map_err(StartIntentLogError::StateDirectory)?
                .is_empty();
            if is_nothing {
                refused::settle(directory, &entry.identity)
                    .map_err(StartIntentLogError::StateDirectory)?;
            }
        }
        for (entry, storage) in storages {
            // What was opened for other reasons may have operations that are set aside.
            if !replayed.contains(&entry.identity) {
                continue;
            }
            if let Err(error) = mark_replayed(&superblock.uuid, log, entry.identity, &mut **storage)
            {
                tracing::warn!(
                    "{}: the intent log's mark cannot be written to its file system: {error}",
                    shown(entry)
                );
            }
        }
        refused::settle_old(&self.state_directory).map_err(StartIntentLogError::StateDirectory)
    }
}
