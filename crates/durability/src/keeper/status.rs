//! What the log tells of itself.

use std::io;
use std::path::PathBuf;

use steadfast_intent_log::{Counters, Histogram, Lsn, Usage};

use crate::aside::{self, SetAside};
use crate::device::{DeviceWrites, writes_of};
use crate::listing::shown;
use crate::replies::RepliesKept;

use super::left::Left;
use super::requests::LastCheckpoint;
use super::{IntentLogKeeper, Phase};

/// What the log has of one file system.
#[derive(Clone, Debug)]
pub struct FileSystemStatus {
    /// A directory of it that is served.
    pub path: String,
    /// Records that it still needs; of a large log this may be a few too many.
    pub records: u64,
    /// Their bytes in the log.
    pub bytes: u64,
    /// Why it takes no changes, if it does not.
    pub fault: Option<String>,
    /// What its device was asked to write since the machine was started, by whomever; `None` where
    /// the kernel does not tell (btrfs, memory).
    pub device: Option<DeviceWrites>,
}

/// What the log is doing, for the operator.
#[derive(Clone, Debug)]
pub struct IntentLogStatus {
    /// Whether changes are logged.
    pub phase: Phase,
    /// Why they are not, if they are not.
    pub left: Option<Left>,
    /// Where it is.
    pub path: PathBuf,
    /// Of the records that are written now.
    pub epoch: u64,
    /// The size of the ring, and what of it is in use or promised.
    pub ring_bytes: u64,
    /// What may not be written over yet.
    pub used_bytes: u64,
    /// The LSN up to which records are stable.
    pub stable: Lsn,
    /// The LSN that was taken last.
    pub last: Lsn,
    /// By file system.
    pub file_systems: Vec<FileSystemStatus>,
    /// Replies that wait for their records.
    pub parked: usize,
    /// Checkpoints since the start.
    pub checkpoints: u64,
    /// The last of them.
    pub last_checkpoint: Option<LastCheckpoint>,
    /// What was done since the start.
    pub counters: Counters,
    /// How long writes of batches took, in ns.
    pub write_ns: Histogram,
    /// All of these together, in ns.
    pub write_total_ns: u64,
    /// Replies that outlive the server.
    pub replies: RepliesKept,
}

impl IntentLogKeeper {
    /// What it is doing.
    pub fn status(&self) -> IntentLogStatus {
        let Usage {
            ring_bytes,
            used_bytes,
            promised_bytes,
            stable,
            last,
            file_systems,
            counters,
            write_ns,
            write_total_ns,
            ..
        } = self.log.usage();
        let (checkpoints, last_checkpoint) = self.requests.done();
        let served = self.file_systems.indices();
        let file_systems = file_systems
            .iter()
            .filter(|usage| served.contains(&usage.entry.index) || usage.first_live.is_some());
        IntentLogStatus {
            phase: self.phase(),
            left: self.switch.left(),
            path: self.medium.path().to_owned(),
            epoch: self.log.epoch(),
            ring_bytes,
            used_bytes: used_bytes + promised_bytes,
            stable,
            last,
            file_systems: file_systems
                .map(|usage| FileSystemStatus {
                    path: shown(&usage.entry),
                    records: usage.live_records,
                    bytes: usage.live_bytes,
                    fault: self.faulty.why(usage.entry.index),
                    device: writes_of(path_of(&usage.entry.path)),
                })
                .collect(),
            parked: self.waiting.parked(),
            checkpoints,
            last_checkpoint,
            counters,
            write_ns,
            write_total_ns,
            replies: self.state_files.replies().kept(),
        }
    }

    /// The files of records that wait for their file system.
    ///
    /// # Errors
    /// The state directory's.
    pub fn set_aside_files(&self) -> io::Result<Vec<SetAside>> {
        aside::all(self.state_files.directory())
    }

    /// Whether it was switched off, and all that it held is on the file systems.
    pub(super) fn is_off_by_administrator(&self) -> bool {
        self.phase() == Phase::Off && matches!(self.switch.left(), Some(Left::ByAdministrator))
    }

    /// Whether it was not needed yet, so that there is no file.
    pub fn is_unmade(&self) -> bool {
        self.switch.is_unmade()
    }
}

fn path_of(bytes: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}
