//! Locks of byte ranges of the model, and local processes that have some.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{FsError, LocalLock, RangeLock, RangeLocks, StorageHandle};

use super::{ModelFs, number};

#[derive(Clone, Copy, Debug)]
struct Held {
    file: u64,
    /// Number of the open file.
    owner: u64,
    lock: LocalLock,
}

/// All locks of a file system, and the number of the next open file.
#[derive(Debug, Default)]
pub(super) struct Table {
    held: Vec<Held>,
    owner_next: u64,
}

/// One open file of the model.
struct OpenFile {
    table: Arc<Mutex<Table>>,
    file: u64,
    owner: u64,
    has_writes: bool,
}

impl OpenFile {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_conflict(
        &self,
        table: &Table,
        (first, last): (u64, u64),
        kind: RangeLock,
    ) -> Option<LocalLock> {
        let conflicts = |held: &&Held| {
            held.file == self.file
                && held.owner != self.owner
                && held.lock.first <= last
                && first <= held.lock.last
                && (kind == RangeLock::Write || held.lock.kind == RangeLock::Write)
        };
        table.held.iter().find(conflicts).map(|held| held.lock)
    }

    fn kind(&self, kind: RangeLock) -> RangeLock {
        if self.has_writes { kind } else { RangeLock::Read }
    }
}

impl RangeLocks for OpenFile {
    fn has_writes(&self) -> bool {
        self.has_writes
    }

    fn set(&self, first: u64, last: u64, kind: Option<RangeLock>) -> Result<bool, FsError> {
        let mut table = self.table();
        let kind = kind.map(|kind| self.kind(kind));
        if kind.is_some_and(|kind| self.first_conflict(&table, (first, last), kind).is_some()) {
            return Ok(false);
        }
        let mut held = Vec::new();
        for old in std::mem::take(&mut table.held) {
            let lock = old.lock;
            let is_apart = lock.last < first || last < lock.first;
            if old.file != self.file || old.owner != self.owner || is_apart {
                held.push(old);
                continue;
            }
            if let Some(end) = first.checked_sub(1).filter(|_| lock.first < first) {
                held.push(Held { lock: LocalLock { last: end, ..lock }, ..old });
            }
            if let Some(start) = last.checked_add(1).filter(|_| lock.last > last) {
                held.push(Held { lock: LocalLock { first: start, ..lock }, ..old });
            }
        }
        held.extend(kind.map(|kind| Held {
            file: self.file,
            owner: self.owner,
            lock: LocalLock { first, last, kind },
        }));
        table.held = held;
        Ok(true)
    }

    fn conflict(
        &self,
        first: u64,
        last: u64,
        kind: RangeLock,
    ) -> Result<Option<LocalLock>, FsError> {
        Ok(self.first_conflict(&self.table(), (first, last), kind))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let (file, owner) = (self.file, self.owner);
        self.table().held.retain(|held| held.file != file || held.owner != owner);
    }
}

impl ModelFs {
    /// A file that is opened anew for locks: the server's, or a local process's.
    ///
    /// # Errors
    /// `BadHandle`, `Stale`.
    pub fn open_for_locks(
        &self,
        object: &StorageHandle,
        kind: RangeLock,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        let file = number(object)?;
        self.state().file(file)?;
        let table = Arc::clone(&self.range_locks);
        let owner = {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            table.owner_next += 1;
            table.owner_next
        };
        Ok(Box::new(OpenFile { table, file, owner, has_writes: kind == RangeLock::Write }))
    }

    /// The ranges of a file that are locked, by whomever.
    ///
    /// # Errors
    /// `BadHandle`.
    pub fn locked_ranges(&self, object: &StorageHandle) -> Result<Vec<LocalLock>, FsError> {
        let file = number(object)?;
        let table = self.range_locks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges: Vec<LocalLock> =
            table.held.iter().filter(|held| held.file == file).map(|held| held.lock).collect();
        ranges.sort_unstable_by_key(|lock| (lock.first, lock.last));
        Ok(ranges)
    }
}
