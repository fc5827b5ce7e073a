//! The groups' files in their directory.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Advice, fadvise};
use steadfast_catalog::GroupFile;
use steadfast_catalog::configuration::TEXT_BYTES_MAX;
use steadfast_catalog::manage::{Mistake, check_group_name};

use crate::sharetab::PIECE_BYTES;

/// What a file was when it was read or written last: another one was edited by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    inode: u64,
    bytes: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Fingerprint {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Of the file at a path; `None` if there is none.
    pub(super) fn at(path: &Path) -> io::Result<Option<Self>> {
        match path.metadata() {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A group's file in a directory.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) group: String,
    pub(super) path: PathBuf,
}

pub(super) fn path_of(directory: &Path, group: &str) -> PathBuf {
    directory.join(format!("{group}.toml"))
}

/// The groups' files of a directory by name, and what else looks like one.
pub(super) fn list(directory: &Path) -> io::Result<(Vec<Entry>, Vec<Mistake>)> {
    let mut entries = Vec::new();
    let mut mistakes = Vec::new();
    let listed = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((entries, mistakes)),
        listed => listed?,
    };
    for entry in listed {
        let path = entry?.path();
        let is_ours = path.extension().is_some_and(|extension| extension == "toml");
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let Some(group) = name.filter(|name| is_ours && !name.starts_with('.')) else { continue };
        match check_group_name(&group) {
            Ok(()) => entries.push(Entry { group, path }),
            Err(what) => mistakes.push(mistake(&path, what)),
        }
    }
    entries.sort_by(|a, b| a.group.cmp(&b.group));
    Ok((entries, mistakes))
}

pub(super) fn mistake(path: &Path, what: impl Into<String>) -> Mistake {
    Mistake { place: path.display().to_string(), what: what.into(), ..Mistake::default() }
}

/// The text of a file, and what the file is.
pub(super) fn read(path: &Path) -> Result<(String, Fingerprint), Mistake> {
    let unreadable = |error: io::Error| mistake(path, format!("cannot be read: {error}"));
    let before = path.metadata().map_err(unreadable)?;
    if !before.is_file() {
        return Err(mistake(path, "is no file"));
    }
    if before.len() > TEXT_BYTES_MAX as u64 {
        return Err(mistake(path, format!("is longer than {TEXT_BYTES_MAX} bytes")));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or(&[]);
        let line = valid.split(|byte| *byte == b'\n').count();
        let place = format!("{}:{line}:1", path.display());
        let what = "the line has bytes that are not UTF-8".to_owned();
        Mistake { place, what, ..Mistake::default() }
    })?;
    Ok((text, Fingerprint::of(&before)))
}

/// Reads and parses files by as many threads; in the order of the files.
pub(super) fn read_all(
    entries: &[Entry],
    threads: usize,
) -> Vec<Result<(GroupFile, Fingerprint), Mistake>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(entries.len()));
    let work = || {
        while let Some((index, entry)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            entries.get(index).map(|entry| (index, entry))
        } {
            let read = read(&entry.path)
                .map(|(text, print)| (GroupFile::parse(&entry.group, &text), print));
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            done.push((index, read));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(entries.len()) {
            // Without the thread its part is done by the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, read)| read).collect()
}

/// A file that has to be written, or removed.
#[derive(Debug)]
pub struct FileWrite {
    pub(super) group: String,
    pub(super) path: PathBuf,
    pub(super) text: Option<String>,
    pub(super) expected: Option<Fingerprint>,
    /// The record up to which it has everything.
    pub(super) sequence: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct FileWritten {
    pub(super) group: String,
    pub(super) sequence: u64,
    pub(super) result: Result<Option<Fingerprint>, WriteProblem>,
}

/// Why a file was not written.
#[derive(Debug)]
pub(super) enum WriteProblem {
    /// Somebody else edited it.
    Edited,
    Failed(io::Error),
}

impl FileWrite {
    /// Does it; takes as long as the disk does. No lock is needed meanwhile.
    pub fn perform(self) -> FileWritten {
        let result = self.write();
        FileWritten { group: self.group, sequence: self.sequence, result }
    }

    fn write(&self) -> Result<Option<Fingerprint>, WriteProblem> {
        let was_there = self.check()?.is_some();
        match &self.text {
            Some(text) => {
                let prepared = Prepared::new(&self.path, text.as_bytes());
                self.put(prepared.map_err(WriteProblem::Failed)?).map(Some)
            }
            None if !was_there => Ok(None),
            None => std::fs::remove_file(&self.path)
                .and_then(|()| steadfast_sys::durable_file::sync_directory_of(&self.path))
                .map(|()| None)
                .map_err(WriteProblem::Failed),
        }
    }

    /// What the file is, unless somebody else edited it.
    fn check(&self) -> Result<Option<Fingerprint>, WriteProblem> {
        let now = Fingerprint::at(&self.path).map_err(WriteProblem::Failed)?;
        if now == self.expected { Ok(now) } else { Err(WriteProblem::Edited) }
    }

    /// Puts what was prepared in the file's place. Writing it took its time: whoever edited the
    /// file meanwhile comes first.
    fn put(&self, prepared: Prepared) -> Result<Fingerprint, WriteProblem> {
        if let Err(problem) = self.check() {
            let _ = std::fs::remove_file(&prepared.temporary);
            return Err(problem);
        }
        prepared.put(&self.path).map_err(WriteProblem::Failed)
    }
}

/// A file beside the one whose place it is to take, with the same owner and mode, on the disk.
struct Prepared {
    temporary: PathBuf,
    file: File,
}

impl Prepared {
    fn new(path: &Path, contents: &[u8]) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(".new");
        let temporary = directory.join(temporary);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
        for (number, piece) in contents.chunks(PIECE_BYTES).enumerate() {
            file.write_all(piece)?;
            // Begins to write it to the disk: a flush of all at once would keep the processor for
            // long. It may be ignored.
            let (start, length) = (number * PIECE_BYTES, NonZero::new(piece.len() as u64));
            let _ = fadvise(&file, start as u64, length, Advice::DontNeed);
        }
        if let Ok(old) = path.metadata() {
            file.set_permissions(old.permissions())?;
            // Only root may give a file away; to others it stays theirs.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.sync_all()?;
        Ok(Self { temporary, file })
    }

    /// Gives it the name. What it is then is asked of the open file: by its name it may be
    /// another's already.
    fn put(self, path: &Path) -> io::Result<Fingerprint> {
        let before = Fingerprint::of(&self.file.metadata()?);
        std::fs::rename(&self.temporary, path)?;
        // The time of its last change is that of the renaming now.
        let after = Fingerprint::of(&self.file.metadata()?);
        steadfast_sys::durable_file::sync_directory_of(path)?;
        let is_edited = (before.bytes, before.modified_ns) != (after.bytes, after.modified_ns);
        Ok(if is_edited { before } else { after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_edits_meanwhile_is_not_written_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("g.toml");
        std::fs::write(&path, "old").expect("written");
        let write = FileWrite {
            group: "g".to_owned(),
            path: path.clone(),
            text: Some("new".to_owned()),
            expected: Fingerprint::at(&path).expect("readable"),
            sequence: 1,
        };
        let prepared = Prepared::new(&path, b"new").expect("written");
        std::fs::write(&path, "edited").expect("written");
        assert!(matches!(write.put(prepared), Err(WriteProblem::Edited)));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "edited");
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 1);
        // Without that it is written, and known again.
        let write = FileWrite { expected: Fingerprint::at(&path).expect("readable"), ..write };
        let written = write.write().expect("written");
        assert_eq!(written, Fingerprint::at(&path).expect("readable"));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "new");
    }
}
