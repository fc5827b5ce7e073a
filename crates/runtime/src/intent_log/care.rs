//! What an administrator does with a log that nobody uses.

use std::path::PathBuf;

use steadfast_intent_log::{Superblock, adopt, count_record_like, format, inspect, survey};

use super::medium::FileMedium;
use super::start::{StartIntentLogError, note_known};

/// A log that nobody uses: the caller has the state directory to himself.
#[derive(Debug)]
pub struct LogCare {
    /// The file or block device.
    pub path: PathBuf,
    /// Where the server keeps its state.
    pub state_directory: PathBuf,
    /// This host.
    pub host: [u8; 16],
    /// Random: the identity of a log that is made anew.
    pub new_uuid: [u8; 16],
}

impl LogCare {
    fn open(&self) -> Result<(FileMedium, Option<Superblock>), StartIntentLogError> {
        let medium = FileMedium::open(&self.path)
            .map_err(|source| StartIntentLogError::Open { path: self.path.clone(), source })?;
        let superblock = inspect(&medium).superblock().cloned();
        Ok((medium, superblock))
    }

    fn refused(&self, why: String) -> StartIntentLogError {
        StartIntentLogError::Refused { path: self.path.clone(), why }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> StartIntentLogError {
        StartIntentLogError::Write { path: self.path.clone(), why: error.to_string() }
    }

    /// Operations that would be lost without the log.
    fn operations(medium: &FileMedium, superblock: Option<&Superblock>) -> u64 {
        match superblock {
            Some(superblock) => survey(medium, superblock).live_records(),
            None => count_record_like(medium),
        }
    }

    /// Tells what is in the log.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn verify(&self) -> Result<String, StartIntentLogError> {
        use std::fmt::Write;
        let (medium, superblock) = self.open()?;
        let mut told = String::new();
        // Writing to a string cannot fail.
        let Some(superblock) = superblock else {
            let records = count_record_like(&medium);
            let _ = write!(told, "no superblock; about {records} records");
            return Ok(told);
        };
        let found = survey(&medium, &superblock);
        let state = if superblock.is_clean { "closed" } else { "in use, or left by a crash" };
        let _ = write!(
            told,
            "{}: {state}, epoch {}, {} MiB; {} records, {} operations not on their file systems; {}",
            self.path.display(),
            superblock.epoch,
            superblock.ring_bytes >> 20,
            found.records,
            found.live_records(),
            found.end
        );
        for entry in &superblock.file_systems {
            if let Some(live) = found.live.get(&entry.index) {
                let path = String::from_utf8_lossy(&entry.path);
                let _ = write!(
                    told,
                    "\n  {path}: {} operations, {} bytes",
                    live.records, live.payload_bytes
                );
            }
        }
        Ok(told)
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
        Ok(format!("adopted; the next start replays {operations} operations"))
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
                "it has {operations} operations that would be lost: say --yes-lose \
                 {operations}-operations"
            );
            return Err(self.refused(why));
        }
        format(&medium, self.new_uuid, self.host, 0).map_err(|error| self.failed(&error))?;
        note_known(&self.state_directory, &self.new_uuid, false)
            .map_err(StartIntentLogError::StateDirectory)?;
        Ok(format!("discarded {operations} operations"))
    }
}
