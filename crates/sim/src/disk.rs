//! A disk with an intent log: what a kill and a power cut leave of it.
//!
//! Every change is applied to the file system that clients see (`live`), and is a record of the log,
//! which can apply it to another copy of the file system (`stable`). What is stable is a prefix of the
//! records. After a power cut the file system is what the stable prefix makes of it, and the bytes that
//! the engine put behind each stable change are what is known of its call. After a kill all changes are
//! there; the log has a prefix of the records; and *begun marks* tell of all changes by which name the
//! engine called them, and what they did.
//!
//! The format of the log, its checkpoints and the search for what a begun call has done are not
//! simulated: `intent-log`, `recovery` and the power-cut rig test them.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_vfs::model::ModelFs;
use steadfast_vfs::{
    AccessMask, Acl, Attr, Caller, Changed, CreateHow, Created, Cred, DirEntry, DirPage, Durable,
    Entry, FileSystem, Flush, FlushDomain, FlushTarget, FlushWhat, FsError, FsInfo, FsStatistics,
    LogRecord, LoggedChange, Looked, Name, NodeKind, Obligation, PathLimits, RangeLock, RangeLocks,
    ReadDone, Renamed, ReplyBarrier, SetAttr, StorageHandle, Time, Waiting, WriteHow, Written,
};

use crate::random::Random;

/// How long a stable reply is remembered after a restart, in ms: longer than any call is sent again.
const REPLIES_STAY_MS: u64 = 120_000;

/// The process dies in the middle of a change: unwinds to whoever called the engine.
pub(crate) struct Killed;

/// What a change did, as its begun mark and a look at the disk tell it.
#[derive(Clone, Debug)]
pub(crate) enum Did {
    Made(StorageHandle, Attr),
    Removed,
    Renamed,
}

/// The mark of a call that had begun.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// By which name the engine called it.
    pub(crate) key: Vec<u8>,
    pub(crate) share: u64,
    pub(crate) dir: StorageHandle,
    pub(crate) did: Did,
}

type Replay = Box<dyn Fn(&ModelFs) + Send>;

/// What a change did, by its result.
type ToldBy<T> = fn(&T) -> Option<Did>;

struct Record {
    replay: Replay,
    is_filled: bool,
    behind: Vec<u8>,
    /// Its reply did not promise that it is stable.
    is_unstable: bool,
}

/// The log, and the file system as its stable records make it.
pub(crate) struct Log {
    stable: ModelFs,
    /// LSN of the first record that is not stable.
    next_stable: u64,
    records: VecDeque<Record>,
    /// What stands behind stable changes, with the time.
    replies: VecDeque<(u64, Vec<u8>)>,
    /// Of this process, with the time.
    marks: VecDeque<(u64, Mark)>,
    pub(crate) now_ms: u64,
}

/// What a start of the server finds.
pub(crate) struct Found {
    /// What stands behind changes.
    pub(crate) replies: Vec<Vec<u8>>,
    /// Of calls that had begun, in their order.
    pub(crate) marks: Vec<Mark>,
}

impl Log {
    /// LSN of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.next_stable + self.records.len() as u64 - 1
    }

    /// Up to where records are filled.
    pub(crate) fn filled(&self) -> u64 {
        let filled = self.records.iter().take_while(|record| record.is_filled).count();
        self.next_stable + filled as u64 - 1
    }

    pub(crate) fn stable(&self) -> u64 {
        self.next_stable - 1
    }

    /// Everything that is filled, up to this LSN, becomes stable.
    pub(crate) fn make_stable(&mut self, lsn: u64) {
        while self.next_stable <= lsn
            && self.records.front().is_some_and(|record| record.is_filled)
            && let Some(record) = self.records.pop_front()
        {
            (record.replay)(&self.stable);
            self.next_stable += 1;
            self.remember(record.behind);
        }
    }

    fn remember(&mut self, behind: Vec<u8>) {
        if !behind.is_empty() {
            self.replies.push_back((self.now_ms, behind));
        }
        let oldest_ms = self.now_ms.saturating_sub(REPLIES_STAY_MS);
        let is_old = |at_ms: &u64| *at_ms < oldest_ms;
        while self.replies.front().is_some_and(|(at_ms, _)| is_old(at_ms)) {
            self.replies.pop_front();
        }
        while self.marks.front().is_some_and(|(at_ms, _)| is_old(at_ms)) {
            self.marks.pop_front();
        }
    }

    fn replies(&self) -> Vec<Vec<u8>> {
        self.replies.iter().map(|(_, behind)| behind.clone()).collect()
    }

    /// The process is killed. The machine has all its changes, and they are made stable before the next
    /// process serves anybody.
    pub(crate) fn kill(&mut self, random: &mut Random) -> Found {
        let written = random.between(self.stable(), self.filled());
        self.make_stable(written);
        for record in std::mem::take(&mut self.records) {
            (record.replay)(&self.stable);
            self.next_stable += 1;
        }
        let marks = std::mem::take(&mut self.marks).into_iter().map(|(_, mark)| mark).collect();
        Found { replies: self.replies(), marks }
    }

    /// The power is cut: some prefix of what was not stable has reached the disk, and of changes that
    /// promised nothing not even that.
    pub(crate) fn cut_power(&mut self, random: &mut Random) -> Found {
        let reached = random.between(self.stable(), self.filled());
        while self.next_stable <= reached
            && let Some(record) = self.records.pop_front()
        {
            self.next_stable += 1;
            if !record.is_unstable || random.chance(500) {
                (record.replay)(&self.stable);
                self.remember(record.behind);
            }
        }
        self.records.clear();
        self.marks.clear();
        Found { replies: self.replies(), marks: Vec::new() }
    }

    /// What a start finds was made into replies: they are found at the next one, too.
    pub(crate) fn keep_reply(&mut self, behind: Vec<u8>) {
        self.remember(behind);
    }
}

struct Place {
    log: Arc<Mutex<Log>>,
    lsn: u64,
}

impl LogRecord for Place {
    fn fill(self: Box<Self>, append: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        let mut log = self.log.lock();
        let index = self.lsn - log.next_stable;
        if let Some(record) = log.records.get_mut(index as usize) {
            append(&mut record.behind);
            record.is_filled = true;
        }
        self.lsn
    }
}

/// All up to an LSN, for what is flushed and not logged.
struct UpTo {
    log: Arc<Mutex<Log>>,
    lsn: u64,
}

impl FlushTarget for UpTo {
    fn flush_key(&self) -> u64 {
        self.lsn
    }

    fn flush(&self, _: FlushWhat) -> Result<(), FsError> {
        self.flush_file_system()
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        self.log.lock().make_stable(self.lsn);
        Ok(())
    }
}

/// The storage of a share.
pub(crate) struct Disk {
    live: ModelFs,
    log: Arc<Mutex<Log>>,
    /// The process is killed within the change of this number from now, 1 being the next; 0: not.
    kill_at: AtomicU64,
}

impl Disk {
    /// An empty disk, and its log.
    pub(crate) fn new() -> (Self, Arc<Mutex<Log>>) {
        let log = Log {
            stable: ModelFs::new(1, 0o777),
            next_stable: 1,
            records: VecDeque::new(),
            replies: VecDeque::new(),
            marks: VecDeque::new(),
            now_ms: 0,
        };
        let log = Arc::new(Mutex::new(log));
        (Self::found(&log), log)
    }

    /// The disk as the next process finds it.
    pub(crate) fn found(log: &Arc<Mutex<Log>>) -> Self {
        let live = log.lock().stable.snapshot();
        Self { live, log: Arc::clone(log), kill_at: AtomicU64::new(0) }
    }

    /// Has the process killed within a change that comes.
    pub(crate) fn kill_at(&self, change: u64) {
        self.kill_at.store(change, Ordering::Relaxed);
    }

    /// A file, as a process of the server's machine opens it to lock it.
    pub(crate) fn open_locally(
        &self,
        file: &StorageHandle,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        self.live.open_for_locks(file, RangeLock::Write)
    }

    /// The object of this name in the root.
    pub(crate) fn find(&self, name: &[u8]) -> Option<StorageHandle> {
        let cred = Cred { uid: 0, gid: 0, groups: std::iter::empty().collect() };
        let caller = Caller::new(&cred, Waiting::Allowed);
        let root = self.live.root().ok()?.handle;
        let looked = self.live.lookup(&caller, &root, Name::new(name).ok()?);
        looked.result.ok().map(|entry| entry.handle)
    }

    /// Makes a change. `did` says what it did, for its mark.
    fn change<T>(
        &self,
        caller: &Caller<'_>,
        dir: Option<(&StorageHandle, ToldBy<T>)>,
        apply: impl Fn(&ModelFs, &Caller<'_>) -> Durable<T> + Send + 'static,
    ) -> Durable<T> {
        let cred = caller.cred.clone();
        let barrier = ReplyBarrier::for_engine();
        let own = Caller::new(caller.cred, Waiting::Allowed);
        let (value, obligation) = apply(&self.live, &own).release(&barrier);
        let is_promised = obligation.is_some();
        let mark = dir.zip(caller.call).and_then(|((dir, did), call)| {
            let did = did(&value).filter(|_| is_promised)?;
            Some(Mark { key: call.key.to_vec(), share: call.share, dir: *dir, did })
        });
        let lsn = {
            let mut log = self.log.lock();
            let now_ms = log.now_ms;
            log.marks.extend(mark.map(|mark| (now_ms, mark)));
            log.records.push_back(Record {
                // It cannot fail otherwise than it did: the copies go the same way.
                replay: Box::new(move |fs| {
                    drop(apply(fs, &Caller::new(&cred, Waiting::Allowed)).map(drop));
                }),
                is_filled: !is_promised,
                behind: Vec::new(),
                is_unstable: !is_promised,
            });
            log.last()
        };
        match self.kill_at.load(Ordering::Relaxed) {
            0 => {}
            1 => resume_unwind(Box::new(Killed)),
            left => self.kill_at.store(left - 1, Ordering::Relaxed),
        }
        if !is_promised {
            return Durable::promising_nothing(value);
        }
        let place = Place { log: Arc::clone(&self.log), lsn };
        Durable::after(value, Obligation::Log(LoggedChange::new(Box::new(place))))
    }

    /// A promise that all before it is stable.
    fn flushed<T>(&self, looked: Durable<T>) -> Durable<T> {
        let (value, obligation) = looked.release(&ReplyBarrier::for_engine());
        if obligation.is_none() {
            return Durable::promising_nothing(value);
        }
        let up_to = UpTo { log: Arc::clone(&self.log), lsn: self.log.lock().last() };
        let targets = std::iter::once((Arc::new(up_to) as _, FlushWhat::Everything)).collect();
        Durable::after(value, Obligation::Flush(Flush { domain: self.live.domain(), targets }))
    }
}

fn made(changed: &Changed<Created>) -> Option<Did> {
    changed.result.as_ref().ok().map(|made| Did::Made(made.handle, made.attr))
}

fn removed(changed: &Changed<()>) -> Option<Did> {
    changed.result.ok().map(|()| Did::Removed)
}

fn renamed(changed: &Renamed) -> Option<Did> {
    changed.result.ok().map(|()| Did::Renamed)
}

/// Runs `change` with a name that was one before.
fn with<T>(name: &[u8], change: impl FnOnce(Name<'_>) -> T) -> T {
    change(Name::new(name).expect("it was a name"))
}

impl FileSystem for Disk {
    fn root(&self) -> Result<Entry, FsError> {
        self.live.root()
    }

    fn domain(&self) -> FlushDomain {
        self.live.domain()
    }

    fn open_to_lock(
        &self,
        object: &StorageHandle,
        kind: RangeLock,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        self.live.open_to_lock(object, kind)
    }

    fn attributes(&self, caller: &Caller<'_>, object: &StorageHandle) -> Result<Attr, FsError> {
        self.live.attributes(caller, object)
    }

    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Durable<Changed<()>> {
        let (object, set) = (*object, *set);
        self.change(caller, None, move |fs, caller| fs.set_attributes(caller, &object, &set, guard))
    }

    fn lookup(&self, caller: &Caller<'_>, dir: &StorageHandle, name: Name<'_>) -> Looked {
        self.live.lookup(caller, dir, name)
    }

    fn lookup_parent(&self, caller: &Caller<'_>, dir: &StorageHandle) -> Looked {
        self.live.lookup_parent(caller, dir)
    }

    fn access(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attr), FsError> {
        self.live.access(caller, object, wanted)
    }

    fn read_link(
        &self,
        caller: &Caller<'_>,
        link: &StorageHandle,
        target: &mut Vec<u8>,
    ) -> Result<Attr, FsError> {
        self.live.read_link(caller, link, target)
    }

    fn read(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
        may_be_place: bool,
        into: &mut Vec<u8>,
    ) -> Result<ReadDone, FsError> {
        self.live.read(caller, file, offset, count, may_be_place, into)
    }

    fn write(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Durable<Changed<Written>> {
        let (file, data) = (*file, data.to_vec());
        self.change(caller, None, move |fs, caller| fs.write(caller, &file, offset, &data, how))
    }

    fn commit(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
    ) -> Durable<Changed<()>> {
        self.flushed(self.live.commit(caller, file, offset, count))
    }

    fn sync(&self, caller: &Caller<'_>, object: &StorageHandle) -> Durable<Result<(), FsError>> {
        self.flushed(self.live.sync(caller, object))
    }

    fn create(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        how: &CreateHow,
    ) -> Durable<Changed<Created>> {
        let (at, name, how) = (*dir, name.as_bytes().to_vec(), *how);
        self.change(caller, Some((dir, made)), move |fs, caller| {
            with(&name, |name| fs.create(caller, &at, name, &how))
        })
    }

    fn make_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let (at, name, set) = (*dir, name.as_bytes().to_vec(), *set);
        self.change(caller, Some((dir, made)), move |fs, caller| {
            with(&name, |name| fs.make_directory(caller, &at, name, &set))
        })
    }

    fn make_symlink(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        target: &[u8],
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let (at, name, set) = (*dir, name.as_bytes().to_vec(), *set);
        let target = target.to_vec();
        self.change(caller, Some((dir, made)), move |fs, caller| {
            with(&name, |name| fs.make_symlink(caller, &at, name, &target, &set))
        })
    }

    fn make_node(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        kind: NodeKind,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let (at, name, set) = (*dir, name.as_bytes().to_vec(), *set);
        self.change(caller, Some((dir, made)), move |fs, caller| {
            with(&name, |name| fs.make_node(caller, &at, name, kind, &set))
        })
    }

    fn remove(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        let (at, name) = (*dir, name.as_bytes().to_vec());
        self.change(caller, Some((dir, removed)), move |fs, caller| {
            with(&name, |name| fs.remove(caller, &at, name))
        })
    }

    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        let (at, name) = (*dir, name.as_bytes().to_vec());
        self.change(caller, Some((dir, removed)), move |fs, caller| {
            with(&name, |name| fs.remove_directory(caller, &at, name))
        })
    }

    fn rename(
        &self,
        caller: &Caller<'_>,
        from_dir: &StorageHandle,
        from_name: Name<'_>,
        to_dir: &StorageHandle,
        to_name: Name<'_>,
    ) -> Durable<Renamed> {
        let (from, to) = (*from_dir, *to_dir);
        let (old, new) = (from_name.as_bytes().to_vec(), to_name.as_bytes().to_vec());
        self.change(caller, Some((from_dir, renamed)), move |fs, caller| {
            with(&old, |old| with(&new, |new| fs.rename(caller, &from, old, &to, new)))
        })
    }

    fn link(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<(Option<Attr>, Changed<()>)> {
        let (object, at, name) = (*object, *dir, name.as_bytes().to_vec());
        self.change(caller, None, move |fs, caller| {
            with(&name, |name| fs.link(caller, &object, &at, name))
        })
    }

    fn read_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        cookie: u64,
        with_entries: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<DirPage, FsError> {
        self.live.read_directory(caller, dir, cookie, with_entries, each)
    }

    fn statistics(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(FsStatistics, Attr), FsError> {
        self.live.statistics(caller, object)
    }

    fn info(&self, object: &StorageHandle) -> Result<FsInfo, FsError> {
        self.live.info(object)
    }

    fn path_limits(&self, object: &StorageHandle) -> Result<PathLimits, FsError> {
        self.live.path_limits(object)
    }

    fn acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(Acl, Option<Acl>, Attr), FsError> {
        self.live.acls(caller, object)
    }

    fn set_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Durable<Changed<()>> {
        let object = *object;
        let (access, default) = (access.cloned(), default.cloned());
        self.change(caller, None, move |fs, caller| {
            fs.set_acls(caller, &object, access.as_ref(), default.as_ref())
        })
    }
}
