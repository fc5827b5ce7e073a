//! Limits of subvolumes that do not hold while replay works: it must not fail for want of room that was
//! granted before the crash. The limit that came back from the disk may be an older, lower one, and the
//! kernel reserves room a second time for what is written over.
//!
//! A limit is lifted only where it was in the way, and noted in the state directory before that, so that a
//! replay that was cut short has it set again at the next start.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use steadfast_sys::{durable_file, journal};

use crate::hex::hex;
use crate::qgroup::{Qgroup, directory_of, set_limit};

/// In the state directory, before the file system's UUID.
const PREFIX: &str = "lifted-limits-";

fn path_of(state_directory: &Path, uuid: &[u8; 16]) -> PathBuf {
    state_directory.join(format!("{PREFIX}{}", hex(uuid)))
}

/// Whether limits of a file system are lifted now, or were left so by a replay that was cut short.
pub fn has_lifted_limits(state_directory: &Path, uuid: &[u8; 16]) -> bool {
    path_of(state_directory, uuid).exists()
}

/// Sets limits again that a replay which was cut short has left lifted, as far as their file systems are
/// there. While nothing is replayed.
pub fn restore_limits(state_directory: &Path) {
    for uuid in noted(state_directory) {
        let mut lifted = match LiftedLimits::read(state_directory, &uuid) {
            Ok(lifted) => lifted,
            Err(error) => {
                let path = path_of(state_directory, &uuid);
                tracing::error!("{}: cannot be read: {error}", path.display());
                continue;
            }
        };
        match directory_of(&uuid, Path::new("/")) {
            Ok(open) => lifted.open = Some(open.into()),
            Err(error) => tracing::warn!(
                "limits of subvolumes of btrfs {} were lifted for a replay that was cut short, and are \
                 set again when the server is started while it is mounted: {error}",
                hex(&uuid)
            ),
        }
    }
}

/// The file systems of which there are notes.
fn noted(state_directory: &Path) -> Vec<[u8; 16]> {
    let entries = std::fs::read_dir(state_directory).into_iter().flatten().flatten();
    let uuids = entries.filter_map(|entry| {
        let name = entry.file_name();
        let digits = name.to_str()?.strip_prefix(PREFIX).filter(|digits| digits.len() == 32)?;
        u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
    });
    uuids.collect()
}

/// Limits of one file system that were lifted, until it is dropped.
pub(crate) struct LiftedLimits {
    path: PathBuf,
    uuid: [u8; 16],
    /// Once something was lifted.
    open: Option<OwnedFd>,
    /// In bytes, by the numbers of their subvolumes.
    limits: BTreeMap<u64, u64>,
}

impl LiftedLimits {
    /// None yet.
    pub(crate) fn none(state_directory: &Path, uuid: [u8; 16]) -> Self {
        Self { path: path_of(state_directory, &uuid), uuid, open: None, limits: BTreeMap::new() }
    }

    fn read(state_directory: &Path, uuid: &[u8; 16]) -> io::Result<Self> {
        let mut lifted = Self::none(state_directory, *uuid);
        lifted.limits = read_notes(&lifted.path)?;
        Ok(lifted)
    }

    /// Lifts a subvolume's limit, on the file system of an open directory. Whether it had one, and has not
    /// any more.
    pub(crate) fn lift(&mut self, open: &OwnedFd, subvolume: u64) -> bool {
        let Ok(Some(bytes)) = (Qgroup { uuid: self.uuid, subvolume }).limit() else { return false };
        let lifted = self.try_lift(open, subvolume, bytes);
        match &lifted {
            Ok(()) => tracing::info!(
                "the limit of qgroup 0/{subvolume} does not hold until replay has ended: what was \
                 acknowledged needs room"
            ),
            Err(error) => tracing::warn!(
                "the limit of qgroup 0/{subvolume} is in the way of replay, and stays: {error}"
            ),
        }
        lifted.is_ok()
    }

    fn try_lift(&mut self, open: &OwnedFd, subvolume: u64, bytes: u64) -> io::Result<()> {
        if self.open.is_none() {
            // What an earlier replay has left lifted stays noted.
            self.limits = read_notes(&self.path)?;
            self.open = Some(open.try_clone()?);
        }
        self.limits.insert(subvolume, bytes);
        durable_file::replace(&self.path, notes(&self.limits).as_bytes())?;
        Ok(set_limit(open, subvolume, None)?)
    }

    /// Sets them again, but for those that somebody has set meanwhile.
    fn restore(&self, open: impl AsFd) -> io::Result<()> {
        let mut restored = Ok(());
        for (subvolume, bytes) in &self.limits {
            let set = match (Qgroup { uuid: self.uuid, subvolume: *subvolume }).limit() {
                Ok(None) => set_limit(&open, *subvolume, Some(*bytes)).map_err(io::Error::from),
                Ok(Some(_)) => Ok(()),
                // The subvolume is gone, or quotas are off.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
            // One that cannot be set leaves no other one lifted.
            restored = restored.and(set);
        }
        restored?;
        // The disk has them, before it is forgotten that it may not.
        rustix::fs::syncfs(&open)?;
        journal::require_alive(&open)?;
        durable_file::remove(&self.path)?;
        // It must not come back after a power cut, when somebody has set other limits since.
        durable_file::sync_directory_of(&self.path)
    }
}

impl Drop for LiftedLimits {
    fn drop(&mut self) {
        let Some(open) = &self.open else { return };
        if let Err(error) = self.restore(open) {
            tracing::error!(
                "limits of subvolumes that were lifted for replay cannot be set again: {error}; they are \
                 in {}, and the next start tries it again",
                self.path.display()
            );
        }
    }
}

/// What [`notes`] has made; nothing if there is no file.
fn read_notes(path: &Path) -> io::Result<BTreeMap<u64, u64>> {
    match File::open(path).and_then(io::read_to_string) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| {
                let (subvolume, bytes) = line.split_once(' ')?;
                Some((subvolume.parse().ok()?, bytes.parse().ok()?))
            })
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

/// A line a limit.
fn notes(limits: &BTreeMap<u64, u64>) -> String {
    let mut text = String::new();
    for (subvolume, bytes) in limits {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{subvolume} {bytes}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lifted_is_known_after_a_crash() {
        let place = tempfile::tempdir().unwrap();
        let uuid = [0xab; 16];
        assert!(!has_lifted_limits(place.path(), &uuid) && noted(place.path()).is_empty());
        assert!(LiftedLimits::read(place.path(), &uuid).unwrap().limits.is_empty());
        let limits = BTreeMap::from([(256, 5 << 20), (257, u64::MAX)]);
        durable_file::replace(&path_of(place.path(), &uuid), notes(&limits).as_bytes()).unwrap();
        assert!(has_lifted_limits(place.path(), &uuid));
        assert_eq!(noted(place.path()), [uuid]);
        assert_eq!(LiftedLimits::read(place.path(), &uuid).unwrap().limits, limits);
        // Its file system is not there: the notes stay.
        restore_limits(place.path());
        assert!(has_lifted_limits(place.path(), &uuid));
    }
}
