//! Locks of clients, shown to local processes, and the reverse.
//!
//! What the clients of a file have locked, taken together, is held on one open file description of
//! the server's ([`RangeLocks`]). So a client's lock keeps local processes out (`fcntl(2)`), and a
//! local process's lock keeps clients out.
//!
//! A lock is taken among local processes first, then among clients; then what is held is made what
//! clients have, whatever came of it. A file's lock here is held for all of that, and none of the
//! state's while a system call is made. What is freed is noted by the state, and freed here after the
//! operation, before its reply ([`Shared::settle_local_locks`]). So whatever a client was told that it
//! has is held here.
//!
//! There is one exception: the state gives a host that waits its lock when another frees it. Then
//! it is taken here before the host is told, and taken back if a local process was quicker.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_state::{FileKey, LockKind, LockRange, State};
use steadfast_vfs::{
    FileSystem, FlushDomain, FsError, LocalLock, RangeLock, RangeLocks, StorageHandle,
};

use crate::call::Target;
use crate::gate::file_key;
use crate::{Engine, ExportTable, Shared};

/// Attempts to take again the locks of a file, of which no share is known: a second each.
const ATTEMPTS_MAX: u32 = 60;

/// Parts of a file that are shown one by one. Of more, local processes see one lock from the first to
/// the last: each part costs a system call.
const PARTS_MAX: usize = 256;

/// What is held of one file.
#[derive(Default)]
struct Held {
    locks: Option<Box<dyn RangeLocks>>,
    /// It cannot be held; not tried again as long as clients have locks there.
    is_unavailable: bool,
    /// Write locks cannot be held, or can.
    has_tried_writes: bool,
}

/// A file with locks.
struct File {
    /// Of the root of the share by which it was found. The file itself may be on a mount in the share.
    domain: FlushDomain,
    held: Mutex<Held>,
}

/// A file, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) storage: &'a dyn FileSystem,
    pub(crate) handle: &'a StorageHandle,
    pub(crate) file: FileKey,
}

impl<'a> From<&'a Target<'_>> for Place<'a> {
    fn from(target: &'a Target<'_>) -> Self {
        Self { storage: target.storage, handle: &target.handle, file: file_key(target) }
    }
}

/// Why local processes keep a client from a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptOut {
    /// One has a lock that conflicts.
    By(LocalLock),
    /// It cannot be told now.
    TryLater,
}

/// Locks that a process before this one has left, after one attempt to take them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocksTaken {
    /// Files of which clients' locks are held again, among local processes too.
    pub files: usize,
    /// Files of which a local process has taken something meanwhile: clients keep their locks
    /// among each other.
    pub contested: usize,
    /// Files that could not be locked, and are not tried again.
    pub failed: usize,
    /// Files that are to be tried again.
    pub left: usize,
}

/// The files that are held.
#[derive(Default)]
pub(crate) struct LocalLocks {
    files: Mutex<HashMap<FileKey, Arc<File>>>,
    /// Files that somebody was using when their locks were to be settled: for the next tick.
    deferred: Mutex<Vec<(FileKey, LockRange)>>,
    /// Of the process before this one; and how often these were tried.
    left: Mutex<(Vec<FileKey>, u32)>,
}

fn of_kind(kind: LockKind) -> RangeLock {
    match kind {
        LockKind::Read => RangeLock::Read,
        LockKind::Write => RangeLock::Write,
    }
}

/// The first and the last byte.
fn ends(range: LockRange) -> (u64, u64) {
    let last = match range.length {
        u64::MAX => u64::MAX,
        length => range.offset.saturating_add(length.max(1) - 1),
    };
    (range.offset, last)
}

/// A local process's lock as the state tells of locks.
pub(crate) fn told(lock: LocalLock) -> (LockRange, LockKind) {
    let LocalLock { first, last, kind } = lock;
    let length = if last == u64::MAX { u64::MAX } else { last.saturating_sub(first) + 1 };
    let kind = match kind {
        RangeLock::Read => LockKind::Read,
        RangeLock::Write => LockKind::Write,
    };
    (LockRange { offset: first, length }, kind)
}

/// All from the first part to the last, for writing if any of them is.
fn hull(parts: &[(LockRange, LockKind)]) -> (LockRange, LockKind) {
    let offset = parts.first().map_or(0, |(part, _)| part.offset);
    let last = parts.last().map_or(u64::MAX, |(part, _)| ends(*part).1);
    let is_written = parts.iter().any(|(_, kind)| *kind == LockKind::Write);
    let kind = if is_written { LockKind::Write } else { LockKind::Read };
    let length = if last == u64::MAX { u64::MAX } else { last.saturating_sub(offset) + 1 };
    (LockRange { offset, length }, kind)
}

const WHOLE: LockRange = LockRange { offset: 0, length: u64::MAX };

impl Held {
    /// Opens the file for a kind of lock, if it was not and can be.
    fn open(&mut self, place: &Place<'_>, kind: RangeLock, state: &State) -> Result<(), FsError> {
        let is_enough = match &self.locks {
            Some(locks) => kind == RangeLock::Read || locks.has_writes() || self.has_tried_writes,
            None => false,
        };
        if is_enough || self.is_unavailable {
            return Ok(());
        }
        // Of another process's clients there may be locks already.
        let is_written = || {
            let parts = state.locked_parts(&place.file, WHOLE).unwrap_or_default();
            parts.iter().any(|(_, kind)| *kind == LockKind::Write)
        };
        let kind = if is_written() { RangeLock::Write } else { kind };
        match place.storage.open_to_lock(place.handle, kind) {
            Ok(opened) => {
                self.has_tried_writes |= kind == RangeLock::Write;
                // The new one has what the old one had before that is closed: so far nothing but
                // read locks, which do not exclude each other.
                let before = self.locks.replace(opened);
                self.show(place, WHOLE, state);
                drop(before);
                Ok(())
            }
            Err(error @ (FsError::TryLater | FsError::Stale)) => Err(error),
            Err(_) => {
                self.has_tried_writes = true;
                self.is_unavailable = self.locks.is_none();
                Ok(())
            }
        }
    }

    /// Takes what clients do not have yet of a range. If that fails, some of it may be taken.
    fn take(
        &self,
        place: &Place<'_>,
        range: LockRange,
        kind: LockKind,
        state: &State,
    ) -> Result<(), KeptOut> {
        let Some(locks) = &self.locks else { return Ok(()) };
        let (first, last) = ends(range);
        let set = |first, last| match locks.set(first, last, Some(of_kind(kind))) {
            Ok(false) => match locks.conflict(first, last, of_kind(kind)) {
                Ok(Some(lock)) => Err(KeptOut::By(lock)),
                // It is gone already.
                _ => Err(KeptOut::By(LocalLock { first, last, kind: RangeLock::Write })),
            },
            Err(FsError::TryLater) => Err(KeptOut::TryLater),
            // Or the file system has no locks after all: clients have them among each other.
            Ok(true) | Err(_) => Ok(()),
        };
        if kind == LockKind::Write {
            return set(first, last);
        }
        // What clients have there stays as it is until it is known what they will have.
        let parts = state.locked_parts(&place.file, range).unwrap_or_default();
        let mut free = Some(first);
        for (part, _) in parts {
            let (part_first, part_last) = ends(part);
            if let Some(from) = free.filter(|from| *from < part_first) {
                set(from, part_first - 1)?;
            }
            free = part_last.checked_add(1);
        }
        match free.filter(|from| *from <= last) {
            Some(from) => set(from, last),
            None => Ok(()),
        }
    }

    /// Has of a range what clients have of it; whether it has all of that.
    fn show(&self, place: &Place<'_>, range: LockRange, state: &State) -> bool {
        self.show_file(&place.file, range, state)
    }

    fn show_file(&self, file: &FileKey, range: LockRange, state: &State) -> bool {
        let Some(locks) = &self.locks else { return true };
        let (first, last) = ends(range);
        let mut has_all = true;
        let mut free = Some(first);
        let mut parts = state.locked_parts(file, range).unwrap_or_default();
        if parts.len() > PARTS_MAX {
            parts = vec![hull(&parts)];
        }
        for (part, kind) in parts {
            let (part_first, part_last) = ends(part);
            if let Some(from) = free.filter(|from| *from < part_first) {
                // To free something never conflicts; if it fails, it is freed with the file.
                let _ = locks.set(from, part_first - 1, None);
            }
            has_all &= locks.set(part_first, part_last, Some(of_kind(kind))) == Ok(true);
            free = part_last.checked_add(1);
        }
        if let Some(from) = free.filter(|from| *from <= last) {
            let _ = locks.set(from, last, None);
        }
        has_all
    }
}

impl LocalLocks {
    fn file(&self, place: &Place<'_>) -> Arc<File> {
        let domain = place.storage.domain();
        let new = || Arc::new(File { domain, held: Mutex::default() });
        Arc::clone(self.files.lock().entry(place.file).or_insert_with(new))
    }

    /// Closes a file of which clients have nothing any more.
    fn forget_unused(&self, file: &FileKey, entry: Arc<File>, state: &State) {
        {
            // Whoever uses it does this afterwards.
            let Some(mut held) = entry.held.try_lock() else { return };
            if state.has_locks(file) {
                return;
            }
            *held = Held::default();
        }
        drop(entry);
        let mut files = self.files.lock();
        // Whoever has just found it is about to lock it.
        if files.get(file).is_some_and(|held| Arc::strong_count(held) == 1) {
            files.remove(file);
        }
    }
}

impl Shared {
    /// Takes a lock among local processes, then among clients by `lock`, which may fail.
    ///
    /// # Errors
    /// [`KeptOut`], and then `lock` was not called.
    pub(crate) fn lock_for_all<T, E>(
        &self,
        place: &Place<'_>,
        range: LockRange,
        kind: LockKind,
        lock: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, KeptOut> {
        // A range that cannot be is the state's to refuse.
        if !range.is_possible() {
            return Ok(lock());
        }
        let entry = self.local_locks.file(place);
        let done = {
            let mut held = entry.held.lock();
            let opened = held.open(place, of_kind(kind), &self.state);
            let taken = match opened {
                Ok(()) => held.take(place, range, kind, &self.state),
                Err(_) => Err(KeptOut::TryLater),
            };
            let done = taken.map(|()| lock());
            // What clients have locked is shown when the locks that have changed are settled.
            if !matches!(done, Ok(Ok(_))) {
                held.show(place, range, &self.state);
            }
            done
        };
        self.local_locks.forget_unused(&place.file, entry, &self.state);
        done
    }

    /// What of local processes keeps a client from a lock.
    ///
    /// # Errors
    /// `TryLater` if it cannot be told now.
    pub(crate) fn local_conflict(
        &self,
        place: &Place<'_>,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LocalLock>, FsError> {
        let entry = self.local_locks.file(place);
        let conflict = {
            let mut held = entry.held.lock();
            held.open(place, RangeLock::Read, &self.state)?;
            let (first, last) = ends(range);
            match &held.locks {
                Some(locks) => locks.conflict(first, last, of_kind(kind)).ok().flatten(),
                None => None,
            }
        };
        self.local_locks.forget_unused(&place.file, entry, &self.state);
        Ok(conflict)
    }

    /// Has local processes see what clients have locked and freed since this was called last. It costs
    /// next to nothing if they have not.
    pub(crate) fn settle_local_locks(&self) {
        for (file, range) in self.state.take_changed_locks() {
            self.settle_file(file, range);
        }
    }

    /// Settles what could not be settled at once; to be called about once a second.
    pub(crate) fn settle_deferred_locks(&self) {
        // Taken before the loop, which would hold the lock until its end: what is deferred again needs it.
        let deferred = std::mem::take(&mut *self.local_locks.deferred.lock());
        for (file, range) in deferred {
            self.settle_file(file, range);
        }
    }

    fn settle_file(&self, file: FileKey, range: LockRange) {
        let Some(entry) = self.local_locks.files.lock().get(&file).cloned() else { return };
        // Who uses it may wait for a disk. It is not waited for: this is any client's call.
        let is_settled = match entry.held.try_lock() {
            Some(held) => {
                held.show_file(&file, range, &self.state);
                true
            }
            None => false,
        };
        if is_settled {
            self.local_locks.forget_unused(&file, entry, &self.state);
        } else {
            self.local_locks.deferred.lock().push((file, range));
        }
    }

    /// Lets go of files that were found by shares of which no file system is served any more: those could
    /// not be unmounted.
    pub(crate) fn forget_locks_beside(&self, exports: &ExportTable) {
        let mut files = self.local_locks.files.lock();
        if files.is_empty() {
            return;
        }
        let served: HashSet<_> =
            exports.sorted().iter().filter_map(|export| export.storage.expected_domain()).collect();
        // They are closed when whoever uses them just now is done.
        let gone = files.extract_if(|_, file| !served.contains(&file.domain));
        let gone: Vec<_> = gone.collect();
        drop(files);
        drop(gone);
    }

    /// Whether local processes let a host have what the state has given it.
    pub(crate) fn is_granted_locally(
        &self,
        file: &FileKey,
        range: LockRange,
        kind: LockKind,
        handle: &[u8],
    ) -> bool {
        let exports = self.exports.load();
        let opened = self.sealer.open(handle).and_then(|(share, handle)| {
            let storage = exports.exported(share)?.export.storage.opened()?;
            Some((storage, handle))
        });
        // Nobody can be asked.
        let Some((storage, handle)) = &opened else { return true };
        let place = Place { storage: *storage, handle, file: *file };
        let entry = self.local_locks.file(&place);
        let is_shown = {
            let mut held = entry.held.lock();
            held.open(&place, of_kind(kind), &self.state).is_ok()
                && held.show(&place, range, &self.state)
        };
        self.local_locks.forget_unused(file, entry, &self.state);
        is_shown
    }

    /// Notes the files of which clients had locks at the process before this one.
    pub(crate) fn note_locks_left(&self) {
        let files = self.state.take_changed_locks().into_iter().map(|(file, _)| file);
        *self.local_locks.left.lock() = (files.collect(), 0);
    }

    fn take_again(&self, file: &FileKey, exports: &ExportTable) -> Option<Result<bool, FsError>> {
        let mut last = None;
        for export in exports.sorted() {
            if export.storage.file_system() != Some(file.file_system) {
                continue;
            }
            let Ok(storage) = export.storage.open() else { continue };
            let place = Place { storage, handle: &file.object, file: *file };
            let entry = self.local_locks.file(&place);
            let taken = {
                let mut held = entry.held.lock();
                let opened = held.open(&place, RangeLock::Read, &self.state);
                opened.and_then(|()| {
                    if held.is_unavailable {
                        Err(FsError::NotSupported)
                    } else {
                        Ok(held.show(&place, WHOLE, &self.state))
                    }
                })
            };
            self.local_locks.forget_unused(file, entry, &self.state);
            if taken.is_ok() {
                return Some(taken);
            }
            last = Some(taken);
        }
        last
    }
}

impl Engine {
    /// Takes again, among local processes, what clients had locked when the process before this one
    /// ended; to be called about once a second as long as something is left. It opens the files, and so
    /// may wait for disks.
    pub fn take_locks_again(&self) -> LocksTaken {
        let shared = &self.shared;
        let (files, attempts) = std::mem::take(&mut *shared.local_locks.left.lock());
        let exports = shared.exports.load_full();
        let (mut taken, mut left) = (LocksTaken::default(), Vec::new());
        for file in files {
            if !shared.state.has_locks(&file) {
                continue;
            }
            match shared.take_again(&file, &exports) {
                Some(Ok(true)) => taken.files += 1,
                Some(Ok(false)) => taken.contested += 1,
                Some(Err(FsError::TryLater)) | None if attempts < ATTEMPTS_MAX => left.push(file),
                _ => taken.failed += 1,
            }
        }
        taken.left = left.len();
        *shared.local_locks.left.lock() = (left, attempts + 1);
        taken
    }
}
