//! Objects that replay had to make again, under the handles and file numbers that they had.
//!
//! A crash may lose a file that clients know. Replay makes it again, and the kernel gives it
//! another handle and another inode number. An alias says which: clients go on with the old ones,
//! in both directions, and the old file number is not given to any other object that happens to
//! get the inode number (design: a file keeps its handle and fileid for life). Such an object is told
//! under a number of its own, and keeps that when the first is gone: so old numbers stay in the table.
//!
//! Some file systems (XFS, btrfs) give an inode that they make anew the very handle of one that a
//! crash has lost. A handle that clients know, or knew, must not lead to another object than the
//! one that it was given for. So the handles of lost objects are *taken*, also of those that
//! replay had no need to make again: an object to which the kernel gives a taken one is presented
//! by a *displaced* handle ([`handle_form::displaced`]), from which the kernel's can be read.
//!
//! There are none in normal life. A made object carries its key in an extended attribute from
//! before it gets its name, so that a replay that is cut short knows it again; the table, one file
//! in the state directory for each file system, is written once when replay is done.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use steadfast_recovery::{ChangeLog, FileSystemIdentity, LoggedFileSystem, ObjectKey};
use steadfast_sys::{durable_file, volume};
use steadfast_vfs::{FsError, StorageHandle};

use crate::error::from_errno;
use crate::handle_form;
use crate::hex::{hex, unhex};
use crate::mounted;
use crate::whole_flushes::WholeFlushes;
use crate::write_back::Unflushed;

/// How many objects can have had one file number: each but the first is told under one that differs in
/// the highest 8 bits, since no file system gives numbers so large.
const NUMBERS_MAX: u64 = 1 << 8;
/// Aliases of one file system, and old numbers, so that a damaged file cannot take all memory.
const ALIASES_MAX: usize = 4_000_000;
const HEADER: &str = "steadfast aliases 2";
/// Of a table without old numbers.
const HEADER_BEFORE: &str = "steadfast aliases 1";
/// What is in place of a handle where a number is all that is kept.
const NO_HANDLE: &str = "-";

/// One object that was made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    /// What the kernel finds it by now.
    pub(crate) actual: ObjectKey,
    /// The file number that clients know.
    pub(crate) fileid: u64,
}

/// The aliases of one file system, and what else all its mounts share.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// Objects with data not flushed that were let go since all was last flushed.
    pub(crate) let_go_dirty: AtomicU64,
    /// Files with data that the next checkpoint has to write.
    pub(crate) unflushed: Unflushed,
    /// Flushes of all of it.
    pub(crate) whole_flushes: WholeFlushes,
    /// Flushes of something of it that have failed since it is in use, and how many of these had
    /// when the log's own began that succeeded last.
    failures: AtomicU64,
    failures_before: AtomicU64,
    /// Where it is noted for the next start that one has.
    failed_path: Option<PathBuf>,
    is_told: AtomicBool,
    /// A directory of it, opened when it began to be used, to hear of errors since then.
    witness: OnceLock<OwnedFd>,
    /// What the log calls it, and one more; nothing, if 0.
    logged_as: AtomicU64,
    /// Whether the kernel may have yet to tell of errors of before it was in use.
    has_a_past: bool,
    /// By what clients know; `None` if the object is gone for good.
    by_key: HashMap<ObjectKey, Option<Alias>>,
    by_actual: HashMap<ObjectKey, ObjectKey>,
    /// File numbers that objects had, or have, whose inode number is another: whoever has the inode
    /// number is told under another file number.
    fileids: HashSet<u64>,
}

impl Aliases {
    /// The file system begins to be used, or is used once more.
    pub(crate) fn note_use(&self, file_system: LoggedFileSystem) {
        self.logged_as.store(u64::from(file_system.0) + 1, Ordering::SeqCst);
    }

    /// Whether this is the file system that the log knows by this number.
    pub(crate) fn is_of(&self, file_system: LoggedFileSystem) -> bool {
        self.logged_as.load(Ordering::SeqCst) == u64::from(file_system.0) + 1
    }

    /// Has a directory of it hear of errors from now on, if none does yet.
    pub(crate) fn have_witness(&self, directory: impl AsFd) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if self.has_a_past
            && self.witness.get().is_none()
            && let Ok(opened) = rustix::fs::openat(directory, c".", flags, Mode::empty())
        {
            let _ = self.witness.set(opened);
        }
    }

    /// Whether a file that is opened may have errors to tell of that are of the past.
    pub(crate) fn has_a_past(&self) -> bool {
        self.has_a_past
    }

    /// Flushes all of it; whether something of it was lost since it is in use. This tells of it
    /// once, and without a witness never: then the log's own flush finds it out.
    pub(crate) fn has_lost_something_since_in_use(&self) -> bool {
        self.witness.get().is_some_and(|witness| rustix::fs::syncfs(witness).is_err())
    }

    /// Something of it could not be flushed.
    pub(crate) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
        self.tell_next_start();
    }

    /// Has the next start know that something could not be flushed: nobody is told of it again.
    pub(crate) fn tell_next_start(&self) {
        if !self.is_told.swap(true, Ordering::SeqCst)
            && let Some(path) = &self.failed_path
            && let Err(error) = durable_file::replace(path, b"")
        {
            tracing::error!("cannot note in {} that a flush failed: {error}", path.display());
        }
    }

    /// How many flushes have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// The log's own flush, before which so many had failed, has found nothing lost.
    pub(crate) fn forget_failures(&self, failures: u64) {
        self.failures_before.fetch_max(failures, Ordering::SeqCst);
    }

    /// Whether a flush has failed since the log's own found nothing lost.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures() > self.failures_before.load(Ordering::SeqCst)
    }

    fn path(directory: &Path, uuid: &[u8; 16]) -> PathBuf {
        directory.join(format!("aliases-{}", hex(uuid)))
    }

    /// The aliases of a file system, as they were saved last.
    pub(crate) fn load(directory: &Path, uuid: &[u8; 16]) -> io::Result<Self> {
        let path = Self::path(directory, uuid);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        Self::parse(&text).map_err(|line| {
            let why = format!("{} is damaged in line {line}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Reads what [`Aliases::text`] wrote; or the number of the line that it did not write.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, first)| first != HEADER && first != HEADER_BEFORE) {
            return Err(1);
        }
        let mut aliases = Self::default();
        for (index, line) in lines {
            let damaged = index + 1;
            if let Some(number) = line.strip_prefix(NO_HANDLE) {
                aliases.keep_number(number.trim_start().parse().map_err(|_| damaged)?);
                continue;
            }
            let mut words = line.split(' ');
            let mut key = || from_hex(words.next()?);
            let object = key().ok_or(damaged)?;
            if aliases.by_key.len() >= ALIASES_MAX {
                return Err(damaged);
            }
            let Some(actual) = words.next() else {
                aliases.take(object);
                continue;
            };
            let actual = from_hex(actual).ok_or(damaged)?;
            let fileid = words.next().and_then(|word| word.parse().ok()).ok_or(damaged)?;
            if words.next().is_some() {
                return Err(damaged);
            }
            aliases.insert(object, Alias { actual, fileid });
        }
        Ok(aliases)
    }

    fn text(&self) -> String {
        use std::fmt::Write;
        let mut text = format!("{HEADER}\n");
        let mut all: Vec<_> = self.by_key.iter().collect();
        all.sort_by_key(|(key, _)| **key);
        for (key, alias) in all {
            // Writing to a string cannot fail.
            let _ = match alias {
                Some(Alias { actual, fileid }) => {
                    writeln!(text, "{} {} {fileid}", to_hex(key), to_hex(actual))
                }
                None => writeln!(text, "{}", to_hex(key)),
            };
        }
        let mut old: Vec<_> = self.fileids.difference(&self.fileids_in_use()).copied().collect();
        old.sort_unstable();
        for number in old {
            let _ = writeln!(text, "{NO_HANDLE} {number}");
        }
        text
    }

    /// Saves the aliases. On return they are on disk.
    pub(crate) fn save(&self, directory: &Path, uuid: &[u8; 16]) -> io::Result<()> {
        let path = Self::path(directory, uuid);
        if self.is_empty() && !path.exists() {
            return Ok(());
        }
        durable_file::replace(&path, self.text().as_bytes())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.fileids.is_empty()
    }

    fn fileids_in_use(&self) -> HashSet<u64> {
        self.by_key.values().flatten().map(|alias| alias.fileid).collect()
    }

    /// Keeps a file number from being told of the object that has it as its inode number.
    fn keep_number(&mut self, fileid: u64) {
        if self.fileids.len() < ALIASES_MAX {
            self.fileids.insert(fileid);
        }
    }

    pub(crate) fn insert(&mut self, object: ObjectKey, alias: Alias) {
        if let Some(Some(former)) = self.by_key.insert(object, Some(alias)) {
            self.by_actual.remove(&former.actual);
        }
        if let Some(other) = self.by_actual.insert(alias.actual, object)
            && other != object
        {
            // What it was an alias of is gone: the kernel has given its inode to this one.
            self.by_key.insert(other, None);
        }
        self.keep_number(alias.fileid);
    }

    /// Keeps a handle from being another object's, unless an object has it.
    pub(crate) fn take(&mut self, object: ObjectKey) {
        self.by_key.entry(object).or_insert(None);
    }

    /// Lets go the handles of objects that were lost and not made again, where no other object can
    /// get them.
    pub(crate) fn forget_gone(&mut self) {
        self.by_key.retain(|_, alias| alias.is_some());
    }

    /// Whether an object was lost, and not made again.
    pub(crate) fn is_gone(&self, object: &ObjectKey) -> bool {
        self.by_key.get(object).is_some_and(Option::is_none)
    }

    /// Notes which objects are gone that were made again once. Their handles stay taken, and their
    /// numbers: another object has the inode number perhaps, and is told under a number for that reason
    /// that it is to keep.
    pub(crate) fn retain(&mut self, mut is_there: impl FnMut(&ObjectKey) -> bool) {
        self.by_actual.clear();
        for (object, alias) in std::mem::take(&mut self.by_key) {
            match alias {
                Some(alias) if is_there(&alias.actual) => self.insert(object, alias),
                _ => self.take(object),
            }
        }
    }

    /// What the kernel finds an object by that clients know by this key; `None` if it is gone, and
    /// what the kernel would find is another.
    pub(crate) fn actual(&self, object: &ObjectKey) -> Option<ObjectKey> {
        match self.by_key.get(object) {
            Some(alias) => alias.map(|alias| alias.actual),
            None => Some(handle_form::undisplaced(object)),
        }
    }

    /// What clients know an object by that the kernel finds by this.
    pub(crate) fn presented(&self, actual: &ObjectKey) -> ObjectKey {
        match self.by_actual.get(actual) {
            Some(object) => *object,
            None if self.by_key.contains_key(actual) => handle_form::displaced(actual),
            None => *actual,
        }
    }

    /// The file number that clients know an object by, whose own is `fileid`.
    pub(crate) fn fileid(&self, object: &ObjectKey, fileid: u64) -> u64 {
        match self.by_key.get(object) {
            Some(Some(alias)) => alias.fileid,
            _ if self.fileids.is_empty() => fileid,
            // From the highest bit downwards.
            _ => (0..NUMBERS_MAX)
                .map(|nth| fileid | nth.reverse_bits())
                .find(|told| !self.fileids.contains(told))
                .unwrap_or(fileid),
        }
    }
}

/// The aliases of one file system, while they are in use.
type Shared = Arc<Mutex<Weak<Aliases>>>;

/// The aliases of all file systems, each loaded when it begins to be used.
#[derive(Default)]
pub(crate) struct AliasStore {
    /// Where they are saved; nowhere in tests.
    directory: Option<PathBuf>,
    /// What may have to be replayed first.
    change_log: Option<Arc<dyn ChangeLog>>,
    /// Those in use, each under a lock of its own: what comes before may take long.
    known: Mutex<HashMap<[u8; 16], Shared>>,
}

impl AliasStore {
    pub(crate) fn new(directory: Option<PathBuf>, change_log: Option<Arc<dyn ChangeLog>>) -> Self {
        Self { directory, change_log, known: Mutex::default() }
    }

    /// The aliases of the file system that an open directory is on, which people know by `path`.
    pub(crate) fn of(&self, open: impl AsFd, path: &Path) -> Result<Arc<Aliases>, FsError> {
        let (Some(directory), Ok(uuid)) = (&self.directory, volume::uuid(&open)) else {
            return Ok(Arc::default());
        };
        let place = Arc::clone(self.known.lock().entry(uuid).or_default());
        let mut known = place.lock();
        let kind = rustix::fs::fstatfs(&open).map_err(from_errno)?.f_type as u32;
        let identity = FileSystemIdentity { uuid, kind };
        if let Some(aliases) = known.upgrade() {
            // Nobody else is to hold one that is about to be let go.
            return match &self.change_log {
                Some(log) if log.has_failed(&identity) => Err(FsError::TryLater),
                _ => Ok(aliases),
            };
        }
        let mut has_a_past = false;
        if let Some(log) = &self.change_log {
            has_a_past = log.prepare(&identity, path.as_os_str().as_bytes())?;
        }
        let aliases = Aliases::load(directory, &uuid).map_err(|error| {
            tracing::error!(
                "cannot read which files were made again after a crash: {error}; restore it from a \
                 backup; without it old handles are stale, or lead to other files, so that clients \
                 have to mount again if it is removed"
            );
            FsError::Io
        })?;
        if self.change_log.is_some() {
            mounted::note(directory, &uuid, &open);
        }
        let failed_path = Some(mounted::failed_path(directory, &uuid));
        let aliases = Arc::new(Aliases { failed_path, has_a_past, ..aliases });
        *known = Arc::downgrade(&aliases);
        Ok(aliases)
    }
}

fn to_hex(key: &ObjectKey) -> String {
    hex(key.0.as_bytes())
}

fn from_hex(word: &str) -> Option<ObjectKey> {
    StorageHandle::new(&unhex(word)?).map(ObjectKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> ObjectKey {
        ObjectKey(StorageHandle::new(&[0, byte, 7]).unwrap())
    }

    /// What tells the second object of a number from the first.
    const DISPLACED: u64 = 1 << 63;

    #[test]
    fn aliases_lead_both_ways_and_keep_numbers_apart() {
        let mut aliases = Aliases::default();
        assert!(aliases.is_empty());
        aliases.insert(key(1), Alias { actual: key(9), fileid: 100 });
        assert_eq!(aliases.actual(&key(1)), Some(key(9)));
        assert_eq!(aliases.actual(&key(2)), Some(key(2)));
        assert_eq!((aliases.presented(&key(9)), aliases.presented(&key(2))), (key(1), key(2)));
        assert_eq!(aliases.fileid(&key(1), 207), 100);
        assert_eq!(aliases.fileid(&key(2), 100), 100 + DISPLACED);
        assert_eq!(aliases.fileid(&key(2), 207), 207);
        // Made once more.
        aliases.insert(key(1), Alias { actual: key(8), fileid: 100 });
        assert_eq!((aliases.presented(&key(9)), aliases.presented(&key(8))), (key(9), key(1)));
        // What the kernel gives to another is not presented as what clients know.
        let displaced = aliases.presented(&key(1));
        assert!(displaced != key(1) && displaced != key(8));
        assert_eq!(aliases.actual(&displaced), Some(key(1)));
        assert_eq!(aliases.fileid(&displaced, 3), 3);
        // Gone: its handle stays taken, and its number: who has it by the kernel is known by another.
        aliases.retain(|actual| *actual != key(8));
        assert!(aliases.is_gone(&key(1)) && !aliases.is_gone(&key(2)));
        assert_eq!(aliases.actual(&key(1)), None);
        assert_eq!(aliases.presented(&key(1)), displaced);
        assert_eq!(aliases.fileid(&key(2), 100), 100 + DISPLACED);
        // That one is lost too, and a third gets the inode number.
        aliases.insert(key(2), Alias { actual: key(30), fileid: 100 + DISPLACED });
        assert_eq!(aliases.fileid(&key(2), 101), 100 + DISPLACED);
        assert_eq!(aliases.fileid(&key(4), 100), 100 + (1 << 62));
        aliases.retain(|_| true);
        aliases.forget_gone();
        let saved = Aliases::parse(&aliases.text()).unwrap();
        assert_eq!(saved.fileids, aliases.fileids);
        assert_eq!(saved.fileid(&key(4), 100), 100 + (1 << 62));
        aliases.take(key(1));
        // An object that is there keeps what it has.
        aliases.insert(key(3), Alias { actual: key(3), fileid: 5 });
        aliases.take(key(3));
        assert_eq!((aliases.actual(&key(3)), aliases.presented(&key(3))), (Some(key(3)), key(3)));
    }

    #[test]
    fn what_was_saved_is_loaded_and_damage_is_told_by_line() {
        let place = tempfile::tempdir().unwrap();
        let uuid = [7; 16];
        assert!(Aliases::load(place.path(), &uuid).unwrap().is_empty());
        Aliases::default().save(place.path(), &uuid).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        let mut aliases = Aliases::default();
        for byte in 0..9 {
            aliases.insert(key(byte), Alias { actual: key(100 + byte), fileid: u64::from(byte) });
        }
        aliases.take(key(77));
        aliases.save(place.path(), &uuid).unwrap();
        let loaded = Aliases::load(place.path(), &uuid).unwrap();
        assert_eq!(loaded.by_key, aliases.by_key);
        assert_eq!(loaded.text(), aliases.text());
        // As earlier versions wrote it.
        let before = aliases.text().replacen(HEADER, HEADER_BEFORE, 1);
        assert_eq!(Aliases::parse(&before).unwrap().text(), aliases.text());
        let text = aliases.text();
        for (from, to, line) in [
            (HEADER, "something", 1),
            ("00000007", "0x000007", 2),
            (" 3\n", " 3 4\n", 5),
            ("004d07\n", "004d07\n- x\n", 12),
        ] {
            let damaged = text.replacen(from, to, 1);
            let result = Aliases::parse(&damaged).map(|_| ());
            assert!(result == Err(line) || damaged == text, "{damaged}");
        }
    }
}
