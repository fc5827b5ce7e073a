//! What settings were before they were changed: a file that is on the disk before the first one is, and the
//! file by which systemd-sysctl(8) sets them again when the machine is started.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use steadfast_sys::durable_file;

use super::apply::TuneError;
use crate::machine::Machine;

/// Where the record is.
pub const RECORD: &str = "/var/lib/steadfast-tune.json";
/// Where settings are for the next start of the machine.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/60-steadfast.conf";
/// By this line a file of ours is known.
const MARK: &str = "# Written by `steadfast tune`; `steadfast tune --undo` removes it.";
/// Of the record's form.
const VERSION: u32 = 1;

/// What was changed, and from what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of the form, by who wrote it.
    pub version: u32,
    /// One a setting, in the order in which they were changed first.
    pub entries: Vec<Entry>,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub key: String,
    /// What it was.
    pub before: String,
    /// What it was set to.
    pub after: String,
}

/// Held while settings are changed, so that two of us do not.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: File,
}

impl Turn {
    /// # Errors
    /// When another one changes settings, or the lock's file cannot be made.
    pub(super) fn take(machine: &Machine) -> Result<Self, TuneError> {
        let path = machine.path(&format!("{RECORD}.lock"));
        let failed = |what: &PathBuf| {
            let what = what.display().to_string();
            move |source: io::Error| TuneError::File { what, source }
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed(&path))?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(failed(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(TuneError::Busy),
            Err(error) => Err(failed(&path)(error.into())),
        }
    }
}

impl Record {
    /// The record of a machine; an empty one if nothing was changed.
    ///
    /// # Errors
    /// When there is one that cannot be read: what it says must not be lost.
    pub fn load(machine: &Machine) -> Result<Self, TuneError> {
        let text = match machine.read(RECORD) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { version: VERSION, entries: Vec::new() });
            }
            Err(source) => return Err(TuneError::File { what: RECORD.to_owned(), source }),
        };
        Self::read(text.as_bytes()).map_err(TuneError::Record)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if record.version != VERSION {
            return Err(format!(
                "it is of version {}, and this program reads {VERSION}",
                record.version
            ));
        }
        Ok(record)
    }

    /// What a setting was changed from and to.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Notes a change from `present`. What a setting was first stays, unless somebody else has changed it
    /// since.
    pub(super) fn note(&mut self, key: &str, present: &str, after: &str) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                if !is_same(&entry.after, present) {
                    present.clone_into(&mut entry.before);
                }
                after.clone_into(&mut entry.after);
            }
            None => self.entries.push(Entry {
                key: key.to_owned(),
                before: present.to_owned(),
                after: after.to_owned(),
            }),
        }
    }

    /// Stores it; on return it is on the disk. An empty one is removed.
    pub(super) fn store(&self, machine: &Machine) -> Result<(), TuneError> {
        let path = machine.path(RECORD);
        let stored = if self.entries.is_empty() {
            durable_file::remove(&path).and_then(|()| durable_file::sync_directory_of(&path))
        } else {
            serde_json::to_vec_pretty(self)
                .map_err(io::Error::other)
                .and_then(|bytes| durable_file::replace(&path, &bytes))
        };
        stored.map_err(|source| TuneError::File { what: path.display().to_string(), source })
    }

    /// Writes the file for the next start of the machine, or removes it if there is nothing to set.
    pub(super) fn store_for_start(&self, machine: &Machine) -> Result<(), TuneError> {
        let path = machine.path(SYSCTL_FILE);
        let write = || -> io::Result<()> {
            if self.entries.is_empty() {
                durable_file::remove(&path)?;
                return match durable_file::sync_directory_of(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            durable_file::replace(&path, self.for_start().as_bytes())?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o644))
        };
        write().map_err(|source| TuneError::File { what: path.display().to_string(), source })
    }

    /// The lines of sysctl.d(5).
    fn for_start(&self) -> String {
        let mut text = format!("{MARK}\n");
        for Entry { key, after, before } in &self.entries {
            let one_line = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "# was {}\n{key} = {}", one_line(before), one_line(after));
        }
        text
    }
}

/// Whether the file for the start of the machine is ours to write, or not there.
pub(super) fn is_ours(machine: &Machine) -> Result<bool, TuneError> {
    match machine.read(SYSCTL_FILE) {
        Ok(text) => Ok(text.starts_with(MARK)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(source) => Err(TuneError::File { what: SYSCTL_FILE.to_owned(), source }),
    }
}

/// Whether two values are the same: the kernel writes tabs where people write blanks.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}
