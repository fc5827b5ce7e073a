//! What an administrator does with a log that nobody uses.

use std::fmt;
use std::path::PathBuf;

use steadfast_intent_log::{
    FileSystemEntry, Superblock, adopt, count_record_like, format, inspect,
};

use super::adopting::LookAround;
use super::known::note_known;
use super::listing::shown;
use super::medium::FileMedium;
use super::start::StartIntentLogError;
use super::storages::OpenStorage;
use super::survey;

/// A log that nobody uses: the caller has the state directory to himself.
pub struct LogCare {
    /// The file or block device.
    pub path: PathBuf,
    /// Where the server keeps its state.
    pub state_directory: PathBuf,
    /// This host.
    pub host: [u8; 16],
    /// Random: the identity of a log that is made anew.
    pub new_uuid: [u8; 16],
    /// Opens a file system that is mounted; `None` if it is not.
    pub open_storage: Box<OpenStorage>,
    /// Tells what is mounted.
    pub look_around: Box<LookAround>,
}

impl fmt::Debug for LogCare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogCare").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What is in a log that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFound {
    /// Where it is.
    pub path: PathBuf,
    /// Records, or without a superblock what looks like some.
    pub records: u64,
    /// What its superblock says, if one counts.
    pub superblock: Option<SuperblockFound>,
}

/// What the superblock of a log says, and what was found by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockFound {
    /// Whether it was closed.
    pub is_clean: bool,
    /// Of its records.
    pub epoch: u64,
    /// The size of its ring.
    pub ring_bytes: u64,
    /// Operations that are not on their file systems.
    pub operations: u64,
    /// Of each file system that has some.
    pub by_file_system: Vec<OperationsFound>,
    /// Why there are no more.
    pub end: String,
}

/// Operations that are not on their file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationsFound {
    /// A directory of the file system.
    pub path: String,
    /// How many.
    pub operations: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

impl fmt::Display for LogFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(superblock) = &self.superblock else {
            return write!(f, "no superblock; about {} records", self.records);
        };
        let state = if superblock.is_clean { "closed" } else { "in use, or left by a crash" };
        write!(
            f,
            "{}: {state}, epoch {}, {} MiB; {} records, {} operations not on their file systems; {}",
            self.path.display(),
            superblock.epoch,
            superblock.ring_bytes >> 20,
            self.records,
            superblock.operations,
            superblock.end
        )?;
        for OperationsFound { path, operations, bytes } in &superblock.by_file_system {
            write!(f, "\n  {path}: {operations} operations, {bytes} bytes")?;
        }
        Ok(())
    }
}

impl LogCare {
    pub(super) fn open(&self) -> Result<(FileMedium, Option<Superblock>), StartIntentLogError> {
        let medium = FileMedium::open(&self.path)
            .map_err(|source| StartIntentLogError::Open { path: self.path.clone(), source })?;
        let superblock = inspect(&medium).superblock().cloned();
        Ok((medium, superblock))
    }

    pub(super) fn refused(&self, why: String) -> StartIntentLogError {
        StartIntentLogError::Refused { path: self.path.clone(), why }
    }

    pub(super) fn failed(&self, error: &dyn fmt::Display) -> StartIntentLogError {
        StartIntentLogError::Write { path: self.path.clone(), why: error.to_string() }
    }

    /// Operations that would be lost without the log.
    pub(super) fn operations(medium: &FileMedium, superblock: Option<&Superblock>) -> u64 {
        match superblock {
            Some(superblock) => survey(medium, superblock).live_operations(),
            None => count_record_like(medium),
        }
    }

    /// Looks at what is in the log. Changes nothing.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn look(&self) -> Result<LogFound, StartIntentLogError> {
        let (medium, superblock) = self.open()?;
        let path = self.path.clone();
        let Some(superblock) = superblock else {
            let records = count_record_like(&medium);
            return Ok(LogFound { path, records, superblock: None });
        };
        let found = survey(&medium, &superblock);
        let live = |entry: &FileSystemEntry| {
            let live = found.live.get(&entry.index)?;
            Some(OperationsFound {
                path: shown(entry),
                operations: live.operations,
                bytes: live.payload_bytes,
            })
        };
        Ok(LogFound {
            path,
            records: found.records,
            superblock: Some(SuperblockFound {
                is_clean: superblock.is_clean,
                epoch: superblock.epoch,
                ring_bytes: superblock.ring_bytes,
                operations: found.live_operations(),
                by_file_system: superblock.file_systems.iter().filter_map(live).collect(),
                end: found.end.to_string(),
            }),
        })
    }

    /// Makes the log this server's.
    ///
    /// # Errors
    /// When there is none, or it cannot be written.
    pub fn adopt(&self) -> Result<String, StartIntentLogError> {
        let (medium, superblock) = self.open()?;
        let Some(superblock) = superblock else {
            return Err(self.refused("it has no superblock that could be adopted".to_owned()));
        };
        let operations = Self::operations(&medium, Some(&superblock));
        adopt(&medium, &superblock, self.host).map_err(|error| self.failed(&error))?;
        note_known(&self.state_directory, &superblock.uuid, true)
            .map_err(StartIntentLogError::StateDirectory)?;
        Ok(format!(
            "adopted: the log is this server's, and the next start replays its {operations} operations"
        ))
    }

    /// Throws away what is in the log, if that is as many operations as the administrator knows.
    ///
    /// # Errors
    /// When it is another number, or the log cannot be written.
    pub fn discard(&self, known: u64) -> Result<String, StartIntentLogError> {
        let (medium, superblock) = self.open()?;
        let operations = Self::operations(&medium, superblock.as_ref());
        if operations != known {
            let why = format!(
                "{operations} operations would be lost, not {known}: `steadfast log verify` lists \
                 them; to give all of them up, say --yes-lose {operations}-operations"
            );
            return Err(self.refused(why));
        }
        format(&medium, self.new_uuid, self.host, 0).map_err(|error| self.failed(&error))?;
        note_known(&self.state_directory, &self.new_uuid, false)
            .map_err(StartIntentLogError::StateDirectory)?;
        Ok(format!("discarded {operations} operations"))
    }
}
