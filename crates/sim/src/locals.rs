//! Processes of the server's machine that lock ranges of the same files as clients.
//!
//! Each has files open by themselves, as `fcntl(2)` has it for locks of open file descriptions. They live as long as the
//! machine, and do nothing while the server is down or clients reclaim: what they would take then clients lose, and
//! are told so.

use std::collections::BTreeMap;

use steadfast_vfs::{RangeLock, RangeLocks, StorageHandle};

use crate::Checked;
use crate::disk::Disk;
use crate::held::Lock;

/// Files that are open, by process and file.
#[derive(Default)]
pub(crate) struct Locals {
    opened: BTreeMap<(u64, u64), Box<dyn RangeLocks>>,
    /// What they have.
    locks: Vec<Lock>,
}

fn kind(lock: &Lock) -> RangeLock {
    if lock.is_write { RangeLock::Write } else { RangeLock::Read }
}

impl Locals {
    /// The machine has failed.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Another server serves the same files: these are other values, in which processes have what they had.
    ///
    /// # Errors
    /// That nobody but the processes could have what they have.
    pub(crate) fn go_on(&mut self, disk: &Disk, files: &[StorageHandle]) -> Checked {
        self.opened.clear();
        for lock in std::mem::take(&mut self.locks) {
            if !self.lock(disk, files, &lock)? {
                return Err(format!("a local process has {lock:?}, and cannot have it"));
            }
        }
        Ok(())
    }

    fn open(
        &mut self,
        disk: &Disk,
        files: &[StorageHandle],
        lock: &Lock,
    ) -> Checked<&dyn RangeLocks> {
        let handle = files.get(lock.file as usize).ok_or("no such file")?;
        let opened = match self.opened.entry((lock.client, lock.file)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let opened = disk.open_locally(handle);
                entry.insert(opened.map_err(|error| format!("a file cannot be opened: {error:?}"))?)
            }
        };
        Ok(&**opened)
    }

    /// Locks a range, if nobody has what conflicts.
    pub(crate) fn lock(
        &mut self,
        disk: &Disk,
        files: &[StorageHandle],
        lock: &Lock,
    ) -> Checked<bool> {
        let opened = self.open(disk, files, lock)?;
        let has = opened.set(lock.first, lock.end - 1, Some(kind(lock)));
        let has = has.map_err(|error| format!("a file cannot be locked: {error:?}"))?;
        if has {
            crate::held::cut(&mut self.locks, lock);
            self.locks.push(lock.clone());
        }
        Ok(has)
    }

    /// Gives up a range.
    pub(crate) fn unlock(&mut self, disk: &Disk, files: &[StorageHandle], range: &Lock) -> Checked {
        crate::held::cut(&mut self.locks, range);
        let opened = self.open(disk, files, range)?;
        let freed = opened.set(range.first, range.end - 1, None);
        freed.map(drop).map_err(|error| format!("a lock cannot be given up: {error:?}"))
    }
}
