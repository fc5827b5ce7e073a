//! What replay found before it changed anything, kept until it is done.
//!
//! A replay that is cut short is followed by another, which must decide by what the crash left and
//! not by what the first has made of it. So the observations are on disk before the first change.

use std::io;
use std::path::{Path, PathBuf};

use steadfast_engine::recovery::Observed;
use steadfast_intent_log::Lsn;
use steadfast_sys::durable_file;
use steadfast_vfs::{Action, Change};

/// The file of one file system's replay.
#[derive(Debug)]
pub(super) struct ObservedFile {
    path: PathBuf,
}

impl ObservedFile {
    /// For the replay of the records of one epoch that are still in the log.
    pub(super) fn of_ring(directory: &Path, log: &[u8; 16], epoch: u64, file_system: u32) -> Self {
        let log = super::hex(log);
        Self { path: directory.join(format!("replay-{log}-{epoch}-{file_system}")) }
    }

    /// For the replay of those up to `last` that were set aside.
    pub(super) fn of_aside(
        directory: &Path,
        log: &[u8; 16],
        epoch: u64,
        file_system: u32,
        last: Lsn,
    ) -> Self {
        let log = super::hex(log);
        Self { path: directory.join(format!("replay-{log}-{epoch}-{file_system}-{}", last.0)) }
    }

    /// What was observed for `other` holds here too. On return it is on disk.
    pub(super) fn copy_from(&self, other: &Self) -> io::Result<()> {
        match std::fs::read(&other.path) {
            Ok(bytes) => durable_file::replace(&self.path, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What an earlier attempt wrote, if there was one.
    pub(super) fn read(&self) -> io::Result<Option<Observed>> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || {
            let why = format!("{} is damaged", self.path.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        let mut observed = Observed::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (change, behind) = Change::decode(rest).map_err(|_| damaged())?;
            rest = behind;
            match change.action {
                Action::Attributes { object, .. } => {
                    let attr = change.after.first().map(|(_, attr)| *attr);
                    observed.insert(object, attr);
                }
                _ => return Err(damaged()),
            }
        }
        Ok(Some(observed))
    }

    /// Writes it. On return it is on disk.
    pub(super) fn write(&self, observed: &Observed) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (object, attr) in observed {
            let mut change =
                Change::new(Action::Attributes { object: *object, size: None, gap: None });
            change.after.extend(attr.map(|attr| (*object, attr)));
            change.encode(&mut bytes);
        }
        durable_file::replace(&self.path, &bytes)
    }

    /// Replay is done.
    pub(super) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::{Attr, DeviceNumber, FileKind, ObjectKey, StorageHandle, Time};

    use super::*;

    #[test]
    fn observations_are_read_as_they_were_written() {
        let place = tempfile::tempdir().unwrap();
        let file = ObservedFile::of_ring(place.path(), &[3; 16], 5, 0);
        assert_eq!(file.read().unwrap(), None);
        let key = |byte| ObjectKey(StorageHandle::new(&[byte; 9]).unwrap());
        let time = Time { seconds: 5, nanoseconds: 6 };
        let attr = Attr {
            kind: FileKind::Regular,
            mode: 0o644,
            links: 1,
            uid: 2,
            gid: 3,
            size: 4,
            used: 5,
            device: DeviceNumber::default(),
            fsid: 6,
            fileid: 7,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let observed = Observed::from([(key(1), Some(attr)), (key(2), None)]);
        file.write(&observed).unwrap();
        assert_eq!(file.read().unwrap(), Some(observed));
        let other = ObservedFile::of_ring(place.path(), &[3; 16], 6, 0);
        assert_eq!(other.read().unwrap(), None);
        // Of two files that were set aside, each has its own.
        let aside = |last| ObservedFile::of_aside(place.path(), &[3; 16], 5, 0, Lsn(last));
        assert_eq!(aside(7).read().unwrap(), None);
        aside(7).copy_from(&file).unwrap();
        assert_eq!(aside(7).read().unwrap(), file.read().unwrap());
        assert_eq!(aside(8).read().unwrap(), None);
        aside(8).copy_from(&other).unwrap();
        assert_eq!(aside(8).read().unwrap(), None);
        std::fs::write(&file.path, b"something").unwrap();
        assert!(file.read().unwrap_err().to_string().contains("is damaged"));
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.read().unwrap(), None);
    }
}
