//! What replay found before it changed anything, kept until it is done.
//!
//! A replay that is cut short is followed by another, which must decide by what the crash left and
//! not by what the first has made of it, and in the same way. So the observations are on disk before the
//! first change. Of a file system that has been mounted since a server used it they tell what was in
//! memory: they count as long as it stays mounted.

use std::io;
use std::path::{Path, PathBuf};

use steadfast_intent_log::Lsn;
use steadfast_recovery::Observed;
use steadfast_recovery::{Action, Change};
use steadfast_sys::durable_file;

/// What was observed, and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) observed: Observed,
    /// Whether the replay is one of what is all in effect.
    pub(super) is_in_effect: bool,
}

const AFTER_A_CRASH: &str = "after a crash";
const MOUNTED: &str = "mounted ";
const IN_EFFECT: &str = "in effect ";

/// What the first line says: whether all is in effect, and which mounting it was observed in, if a server
/// had used the file system in that.
fn head(is_in_effect: bool, still_mounted: Option<&str>) -> String {
    match still_mounted {
        Some(time) if is_in_effect => format!("{IN_EFFECT}{time}\n"),
        Some(time) => format!("{MOUNTED}{time}\n"),
        None => format!("{AFTER_A_CRASH}\n"),
    }
}

fn read_head(line: &str) -> Option<(bool, Option<&str>)> {
    if line == AFTER_A_CRASH {
        return Some((false, None));
    }
    let in_effect = line.strip_prefix(IN_EFFECT).map(|time| (true, Some(time)));
    in_effect.or_else(|| line.strip_prefix(MOUNTED).map(|time| (false, Some(time))))
}

/// Files with records that could not be replayed begin so.
pub(super) const NOT_REPLAYED: &str = "not-replayed";

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

    /// Where the records are kept of objects that could not be replayed.
    pub(super) fn not_replayed(&self) -> PathBuf {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let of = name.unwrap_or_default();
        self.path.with_file_name(format!("{NOT_REPLAYED}-{}", of.trim_start_matches("replay-")))
    }

    /// What was observed for `other` holds here too. On return it is on disk.
    pub(super) fn copy_from(&self, other: &Self) -> io::Result<()> {
        match std::fs::read(&other.path) {
            Ok(bytes) => durable_file::replace(&self.path, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What an earlier attempt wrote, if there was one, and it tells of what is there now:
    /// `still_mounted` is as of [`Recoverable`](steadfast_recovery::Recoverable).
    pub(super) fn read(&self, still_mounted: Option<&str>) -> io::Result<Option<Kept>> {
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
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let (line, rest) = bytes.split_at(end);
        let line = std::str::from_utf8(line).map_err(|_| damaged())?;
        let (is_in_effect, of) = read_head(line).ok_or_else(damaged)?;
        if of.is_some() && of != still_mounted {
            return Ok(None);
        }
        let mut rest = rest.get(1..).unwrap_or_default();
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
        Ok(Some(Kept { observed, is_in_effect }))
    }

    /// Writes it. On return it is on disk.
    pub(super) fn write(
        &self,
        observed: &Observed,
        is_in_effect: bool,
        still_mounted: Option<&str>,
    ) -> io::Result<()> {
        let mut bytes = head(is_in_effect, still_mounted).into_bytes();
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
        durable_file::remove(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use steadfast_recovery::ObjectKey;
    use steadfast_vfs::{Attr, DeviceNumber, FileKind, StorageHandle, Time};

    use super::*;

    #[test]
    fn observations_are_read_as_they_were_written() {
        let place = tempfile::tempdir().unwrap();
        let file = ObservedFile::of_ring(place.path(), &[3; 16], 5, 0);
        assert_eq!(file.read(None).unwrap(), None);
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
        for (is_in_effect, of) in [(true, Some("a 1")), (false, Some("a 1")), (false, None)] {
            file.write(&observed, is_in_effect, of).unwrap();
            let kept = Kept { observed: observed.clone(), is_in_effect };
            assert_eq!(file.read(Some("a 1")).unwrap(), Some(kept.clone()));
            // What was in memory is of no use when it is mounted anew.
            for now in [None, Some("a 12")] {
                let expected = if of.is_some() { None } else { Some(kept.clone()) };
                assert_eq!(file.read(now).unwrap(), expected);
            }
        }
        let other = ObservedFile::of_ring(place.path(), &[3; 16], 6, 0);
        assert_eq!(other.read(None).unwrap(), None);
        // Of two files that were set aside, each has its own.
        let aside = |last| ObservedFile::of_aside(place.path(), &[3; 16], 5, 0, Lsn(last));
        assert_eq!(aside(7).read(None).unwrap(), None);
        aside(7).copy_from(&file).unwrap();
        assert_eq!(aside(7).read(None).unwrap(), file.read(None).unwrap());
        assert_eq!(aside(8).read(None).unwrap(), None);
        aside(8).copy_from(&other).unwrap();
        assert_eq!(aside(8).read(None).unwrap(), None);
        for damaged in [&b"something"[..], b"something\n", b"after a crash\nsomething", b""] {
            std::fs::write(&file.path, damaged).unwrap();
            assert!(file.read(None).unwrap_err().to_string().contains("is damaged"));
        }
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.read(None).unwrap(), None);
    }
}
