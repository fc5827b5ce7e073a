//! A file system in memory: what [`crate::FileSystem`] means, in a few hundred plain lines.
//!
//! For tests of protocols, and as the yardstick that real storage is compared with. One lock
//! around everything, a clock that counts operations, obligations whose fulfilment a test can
//! watch and make fail. Sizes are bounded, so that a client of a test server cannot exhaust
//! memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    Acl, Attr, Caller, Changed, Created, Cred, DeviceNumber, Durable, FileKind, Flush, FlushDomain,
    FlushTarget, FlushWhat, FsError, Name, Obligation, PreAttr, SetAttr, StorageHandle, Wcc,
};

mod extents;
mod guards;
mod operations;
mod range_locks;
mod state;
mod xattrs;

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most files.
const FILES_MAX: usize = 1_000_000;
const ROOT: u64 = 1;
/// A handle's bytes: the file's number, and zeros if there are to be more.
const HANDLE_BYTES: usize = 8;
const LINKS_MAX: u32 = 1000;

#[derive(Clone, Debug)]
enum Contents {
    Data(Vec<u8>),
    Names { names: BTreeMap<Vec<u8>, u64>, order: BTreeMap<u64, Vec<u8>>, next: u64, parent: u64 },
    Target(Vec<u8>),
    Special,
}

#[derive(Clone, Debug)]
struct File {
    attr: Attr,
    contents: Contents,
    verifier: Option<[u8; 8]>,
    access_acl: Option<Acl>,
    default_acl: Option<Acl>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What distinguishes one kind of new file from another.
struct NewFile {
    kind: FileKind,
    device: DeviceNumber,
    contents: Contents,
}

#[derive(Clone, Debug)]
struct State {
    files: BTreeMap<u64, File>,
    next_fileid: u64,
    clock: u64,
    handle_bytes: usize,
}

/// What a test can see and steer of the model's stability.
#[derive(Debug, Default)]
pub struct FlushLog {
    flushes: AtomicU64,
    whole: AtomicU64,
    fails: AtomicBool,
}

impl FlushLog {
    /// How many objects were flushed.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    /// How often the whole file system was flushed.
    pub fn whole_flushes(&self) -> u64 {
        self.whole.load(Ordering::SeqCst)
    }

    /// Makes all flushes from now on fail, or succeed again.
    pub fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

struct ModelTarget {
    fileid: u64,
    log: Arc<FlushLog>,
}

impl FlushTarget for ModelTarget {
    fn flush_key(&self) -> u64 {
        self.fileid
    }

    fn flush(&self, _what: FlushWhat) -> Result<(), FsError> {
        if self.log.fails.load(Ordering::SeqCst) {
            return Err(FsError::Io);
        }
        self.log.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        self.flush(FlushWhat::Everything)
    }
}

/// All of the file system.
struct WholeModel(Arc<FlushLog>);

impl FlushTarget for WholeModel {
    fn flush_key(&self) -> u64 {
        // No file has it.
        u64::MAX
    }

    fn flush(&self, _what: FlushWhat) -> Result<(), FsError> {
        self.flush_file_system()
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        if self.0.fails.load(Ordering::SeqCst) {
            return Err(FsError::Io);
        }
        self.0.whole.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The file system.
#[derive(Debug)]
pub struct ModelFs {
    state: Mutex<State>,
    log: Arc<FlushLog>,
    fsid: u64,
    range_locks: Arc<Mutex<range_locks::Table>>,
    guards: Arc<Mutex<guards::Table>>,
}

impl ModelFs {
    /// An empty one whose root belongs to user and group 0 and has these permission bits.
    pub fn new(fsid: u64, root_mode: u32) -> Self {
        let mut state = State {
            files: BTreeMap::new(),
            next_fileid: ROOT,
            clock: 0,
            handle_bytes: HANDLE_BYTES,
        };
        let superuser = Cred { uid: 0, gid: 0, groups: smallvec::SmallVec::new() };
        let contents = Contents::Names {
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 3,
            parent: ROOT,
        };
        state.add(
            fsid,
            &superuser,
            FileKind::Directory,
            contents,
            root_mode,
            DeviceNumber::default(),
        );
        Self {
            state: Mutex::new(state),
            log: Arc::default(),
            fsid,
            range_locks: Arc::default(),
            guards: Arc::default(),
        }
    }

    /// The same with handles of so many bytes, at least 8.
    #[must_use]
    pub fn with_handles_of(self, bytes: usize) -> Self {
        self.state().handle_bytes = bytes.max(HANDLE_BYTES);
        self
    }

    /// Another file system with the same files, handles and clock, and nothing locked or guarded: what
    /// a machine finds after a restart.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self {
            state: Mutex::new(self.state().clone()),
            log: Arc::default(),
            fsid: self.fsid,
            range_locks: Arc::default(),
            guards: Arc::default(),
        }
    }

    /// The same as [`ModelFs::snapshot`] under another number, as a machine may number its file systems anew.
    #[must_use]
    pub fn renumbered(&self, fsid: u64) -> Self {
        Self { fsid, ..self.snapshot() }
    }

    /// What is known of flushes.
    pub fn flush_log(&self) -> Arc<FlushLog> {
        Arc::clone(&self.log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promise<T>(
        &self,
        caller: &Caller<'_>,
        value: T,
        is_ok: bool,
        fileids: &[u64],
    ) -> Durable<T> {
        if !is_ok || caller.is_async {
            return Durable::promising_nothing(value);
        }
        let targets = fileids
            .iter()
            .map(|fileid| {
                let target = ModelTarget { fileid: *fileid, log: Arc::clone(&self.log) };
                (Arc::new(target) as Arc<dyn FlushTarget>, FlushWhat::Everything)
            })
            .collect();
        let domain = FlushDomain(self.fsid as u32);
        Durable::after(value, Obligation::Flush(Flush { domain, targets }))
    }

    /// What holds once the whole file system is flushed.
    fn promise_all(&self) -> Durable<Result<(), FsError>> {
        let whole = Arc::new(WholeModel(Arc::clone(&self.log))) as Arc<dyn FlushTarget>;
        let targets = std::iter::once((whole, FlushWhat::Everything)).collect();
        let domain = FlushDomain(self.fsid as u32);
        Durable::after(Ok(()), Obligation::Flush(Flush { domain, targets }))
    }

    /// Runs a change of one object between two looks at its attributes.
    fn change<T>(
        &self,
        handle: &StorageHandle,
        change: impl FnOnce(&mut State, u64) -> Result<T, FsError>,
    ) -> (Changed<T>, u64) {
        let mut state = self.state();
        let fileid = match number(handle) {
            Ok(fileid) => fileid,
            Err(error) => return (Changed::failed(error), 0),
        };
        let before = match state.file(fileid) {
            Ok(file) => PreAttr::from(&file.attr),
            Err(error) => return (Changed::failed(error), fileid),
        };
        let result = change(&mut state, fileid);
        let after = state.file(fileid).ok().map(|file| file.attr);
        (Changed { wcc: Wcc { before: Some(before), after }, result }, fileid)
    }

    /// The same, which is stable when it is told.
    fn stable<T>(
        &self,
        caller: &Caller<'_>,
        handle: &StorageHandle,
        change: impl FnOnce(&mut State, u64) -> Result<T, FsError>,
    ) -> Durable<Changed<T>> {
        let (changed, id) = self.change(handle, change);
        let is_ok = changed.result.is_ok();
        self.promise(caller, changed, is_ok, &[id])
    }

    fn make(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        set: &SetAttr,
        new: NewFile,
    ) -> Durable<Changed<Created>> {
        let NewFile { kind, device, contents } = new;
        let (changed, dir_id) = self.change(dir, |state, dir_id| {
            state.may_change_names(caller.cred, dir_id)?;
            if state.named(dir_id, name)?.is_some() {
                return Err(FsError::Exists);
            }
            let default_mode = if kind == FileKind::Directory { 0o777 } else { 0o666 };
            let has_default = state.file(dir_id)?.default_acl.is_some();
            let umask = if has_default { 0 } else { set.umask };
            let mode = set.mode.unwrap_or(default_mode) & !umask;
            let id = state.add(self.fsid, caller.cred, kind, contents, mode, device);
            if let Ok(File { contents: Contents::Names { parent, .. }, .. }) = state.file_mut(id) {
                *parent = dir_id;
            }
            let made = state
                .set(caller.cred, id, &SetAttr { mode: None, ..*set })
                .and_then(|()| state.bind(dir_id, name, id));
            match made {
                Ok(()) => state.entry(id),
                Err(error) => {
                    state.files.remove(&id);
                    Err(error)
                }
            }
        });
        let made_id = changed.result.map_or(0, |entry| entry.attr.fileid);
        let is_ok = changed.result.is_ok();
        self.promise(caller, changed, is_ok, &[made_id, dir_id])
    }

    fn unbind(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        is_directory: bool,
    ) -> Durable<Changed<()>> {
        let (changed, dir_id) = self.change(dir, |state, dir_id| {
            let id = state.named(dir_id, name)?.ok_or(FsError::NotFound)?;
            state.may_change_names(caller.cred, dir_id)?;
            state.may_unbind(caller.cred, dir_id, id)?;
            let file = state.file(id)?;
            match (&file.contents, is_directory) {
                (Contents::Names { names, .. }, true) if !names.is_empty() => {
                    return Err(FsError::NotEmpty);
                }
                (Contents::Names { .. }, false) => return Err(FsError::IsDirectory),
                (Contents::Names { .. }, true) | (_, false) => {}
                (_, true) => return Err(FsError::NotDirectory),
            }
            state.drop_name(dir_id, name)
        });
        let is_ok = changed.result.is_ok();
        self.promise(caller, changed, is_ok, &[dir_id])
    }
}

fn number(handle: &StorageHandle) -> Result<u64, FsError> {
    match handle.as_bytes().split_first_chunk::<HANDLE_BYTES>() {
        Some((bytes, rest)) if rest.iter().all(|byte| *byte == 0) => Ok(u64::from_be_bytes(*bytes)),
        _ => Err(FsError::BadHandle),
    }
}

fn handle(fileid: u64, bytes: usize) -> Result<StorageHandle, FsError> {
    let mut handle = fileid.to_be_bytes().to_vec();
    handle.resize(bytes, 0);
    StorageHandle::new(&handle).ok_or(FsError::Io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessMask, FileSystem, Waiting};

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let model = ModelFs::new(1, 0o777);
        let root = model.root().unwrap().handle;
        let cred = Cred { uid: 0, gid: 0, groups: smallvec::SmallVec::new() };
        let caller = Caller::new(&cred, Waiting::Allowed);
        let make = |model: &ModelFs, name| {
            let name = Name::new(name).unwrap();
            let made = model.make_directory(&caller, &root, name, &SetAttr::default());
            made.release(&crate::ReplyBarrier::for_engine()).0.result.unwrap().attr.fileid
        };
        let before = make(&model, b"before");
        let snapshot = model.snapshot();
        let after = make(&model, b"after");
        let found = |name| {
            let found = snapshot.lookup(&caller, &root, Name::new(name).unwrap()).result;
            found.ok().map(|entry| entry.attr.fileid)
        };
        assert_eq!((found(b"before"), found(b"after")), (Some(before), None));
        assert_eq!(make(&snapshot, b"after"), after, "it goes on as the first did");
    }

    /// Where real storage would answer otherwise, tests of protocols would prove nothing.
    #[test]
    fn it_answers_as_real_storage_does() {
        let model = ModelFs::new(1, 0o772);
        let root = model.root().unwrap().handle;
        let ask = |uid| {
            let cred = Cred { uid, gid: uid, groups: smallvec::SmallVec::new() };
            let caller = Caller::new(&cred, Waiting::Allowed);
            let (_, changed) = model
                .link(&caller, &root, &root, Name::new(b"a").unwrap())
                .release(&crate::ReplyBarrier::for_engine())
                .0;
            (model.access(&caller, &root, AccessMask::all()).unwrap().0, changed.result)
        };
        let (granted, linked) = ask(0);
        assert_eq!(granted, AccessMask::all() - AccessMask::EXECUTE);
        assert_eq!(linked, Err(FsError::IsDirectory));
        // Who may write a directory and not search it changes no names.
        assert_eq!(ask(1000).0, AccessMask::XATTR_WRITE);
    }
}
