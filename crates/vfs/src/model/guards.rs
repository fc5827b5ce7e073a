//! Guards of the model, and local processes that break them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{FileKind, FileSystem, FsError, Guard, GuardKind, GuardListener, StorageHandle};

use super::{ModelFs, number};

/// One guard.
struct Guarded {
    number: u64,
    file: u64,
    kind: GuardKind,
    is_broken: bool,
    named: (u64, StorageHandle),
    listener: Arc<dyn GuardListener>,
}

/// All guards of a file system.
#[derive(Default)]
pub(super) struct Table {
    next: u64,
    guards: Vec<Guarded>,
    /// Files that local processes have open for writing.
    written: Vec<u64>,
    /// A local process opens a file the moment that its guard is taken.
    breaks_next: bool,
    /// There are no guards.
    is_unguarded: bool,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("guards", &self.guards.len()).finish_non_exhaustive()
    }
}

/// A guard as its owner has it.
struct Held {
    table: Arc<Mutex<Table>>,
    number: u64,
    kind: GuardKind,
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard for Held {
    fn kind(&self) -> GuardKind {
        self.kind
    }

    fn is_broken(&self) -> bool {
        let table = lock(&self.table);
        table.guards.iter().any(|guard| guard.number == self.number && guard.is_broken)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.table).guards.retain(|guard| guard.number != self.number);
    }
}

impl ModelFs {
    /// See [`FileSystem::guard`].
    pub(super) fn take_guard(
        &self,
        object: &StorageHandle,
        kind: GuardKind,
        listener: &Arc<dyn GuardListener>,
    ) -> Result<Box<dyn Guard>, FsError> {
        let file = number(object)?;
        if self.state().file(file)?.attr.kind != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        let mut table = lock(&self.guards);
        if table.is_unguarded {
            return Err(FsError::NotSupported);
        }
        let is_guarded = table.guards.iter().any(|guard| guard.file == file);
        if is_guarded || table.written.contains(&file) {
            return Err(FsError::TryLater);
        }
        table.next += 1;
        let (number, listener) = (table.next, Arc::clone(listener));
        let named = self.object(object);
        table.guards.push(Guarded { number, file, kind, is_broken: false, named, listener });
        let breaks = std::mem::take(&mut table.breaks_next);
        drop(table);
        if breaks {
            self.break_guards(file, true);
        }
        Ok(Box::new(Held { table: Arc::clone(&self.guards), number, kind }))
    }

    /// A local process opens a file. Whether it goes on at once; if not it waits, and the listener of the
    /// guard in its way is told, once.
    ///
    /// # Errors
    /// `BadHandle`.
    pub fn local_open(&self, object: &StorageHandle, writes: bool) -> Result<bool, FsError> {
        Ok(self.break_guards(number(object)?, writes))
    }

    /// A local process has a file open for writing from now on, or has it no more: it has no guards
    /// meanwhile.
    ///
    /// # Errors
    /// `BadHandle`.
    pub fn local_writer(&self, object: &StorageHandle, has_one: bool) -> Result<(), FsError> {
        let file = number(object)?;
        let mut table = lock(&self.guards);
        table.written.retain(|written| *written != file);
        if has_one {
            table.written.push(file);
        }
        Ok(())
    }

    /// Whether files can have no guards, from now on.
    pub fn set_unguarded(&self, is_so: bool) {
        lock(&self.guards).is_unguarded = is_so;
    }

    /// A local process opens, to write, the file that is guarded next, before whoever guards it can know.
    pub fn local_open_at_next_guard(&self) {
        lock(&self.guards).breaks_next = true;
    }

    /// How many files are guarded.
    pub fn guards(&self) -> usize {
        lock(&self.guards).guards.len()
    }

    /// Whether nothing guards a file from somebody. Else the listeners are told.
    pub(super) fn break_guards(&self, file: u64, writes: bool) -> bool {
        let mut told = Vec::new();
        let mut is_free = true;
        for guard in &mut lock(&self.guards).guards {
            if guard.file == file && (writes || guard.kind == GuardKind::Write) {
                is_free = false;
                if !std::mem::replace(&mut guard.is_broken, true) {
                    told.push((guard.named, Arc::clone(&guard.listener)));
                }
            }
        }
        for ((file_system, object), listener) in told {
            listener.guard_broken(file_system, &object);
        }
        is_free
    }

    /// The server itself opens a file for writing: as storage does, this ends a guard for reading.
    pub(super) fn open_for_writing(&self, file: u64) {
        let has_guard_for_writing = {
            let table = lock(&self.guards);
            table.guards.iter().any(|guard| guard.file == file && guard.kind == GuardKind::Write)
        };
        if !has_guard_for_writing {
            self.break_guards(file, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{Caller, CreateHow, Cred, Name, ReplyBarrier, SetAttr, Waiting, WriteHow};

    #[derive(Default)]
    struct Told(AtomicUsize);

    impl GuardListener for Told {
        fn guard_broken(&self, _: u64, _: &StorageHandle) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_local_process_waits_until_the_guard_is_dropped() {
        let storage = ModelFs::new(1, 0o777);
        let cred = Cred { uid: 0, gid: 0, groups: smallvec::SmallVec::new() };
        let caller = Caller::new(&cred, Waiting::Allowed);
        let root = storage.root().expect("a root").handle;
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), ..SetAttr::default() });
        let created = storage.create(&caller, &root, Name::new(b"f").expect("a name"), &how);
        let (created, _) = created.release(&ReplyBarrier::for_engine());
        let file = created.result.expect("made").handle;
        let told = Arc::new(Told::default());
        let listener: Arc<dyn GuardListener> = told.clone();
        let count = || told.0.swap(0, Ordering::SeqCst);
        let guard = |kind| storage.guard(&file, kind, &listener);
        assert_eq!(storage.guard(&root, GuardKind::Read, &listener).err(), Some(FsError::Invalid));
        for (kind, reads_on, writes) in
            [(GuardKind::Read, true, false), (GuardKind::Write, false, true)]
        {
            let held = guard(kind).expect("guarded");
            assert_eq!(guard(kind).err(), Some(FsError::TryLater));
            assert_eq!(storage.local_open(&file, false), Ok(reads_on));
            assert_eq!((held.is_broken(), count()), (!reads_on, usize::from(!reads_on)));
            for _ in 0..2 {
                assert_eq!(storage.local_open(&file, true), Ok(false));
            }
            assert_eq!((held.is_broken(), count()), (true, usize::from(reads_on)));
            drop(held);
            assert_eq!((storage.local_open(&file, true), storage.guards()), (Ok(true), 0));
            // The server's own WRITE.
            let held = guard(kind).expect("guarded");
            let _ = storage.write(&caller, &file, 0, b"data", WriteHow::FileSync);
            assert_eq!((held.is_broken(), count()), (!writes, usize::from(!writes)));
        }
        storage.local_writer(&file, true).expect("a handle");
        assert_eq!(guard(GuardKind::Read).err(), Some(FsError::TryLater));
        storage.local_writer(&file, false).expect("a handle");
        assert!(guard(GuardKind::Read).is_ok());
    }
}
