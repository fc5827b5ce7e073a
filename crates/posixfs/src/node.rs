//! One object of a tree, held open.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustix::fs::{Mode as Permissions, OFlags};
use rustix::time::ClockId;
use steadfast_recovery::{ObjectKey, Settled};
use steadfast_sys::pinned::Pinned;
use steadfast_sys::{handle, journal};
use steadfast_vfs::{
    Acl, Attr, Cred, FileKind, FlushTarget, FlushWhat, FsError, GuardKind, StorageHandle, Time,
    permission,
};

use crate::acl::{self, Which};
use crate::attributes::{self, Identity};
use crate::budget::{Budget, Descriptor};
use crate::directory_stream::DirectoryStream;
use crate::error::from_errno;
use crate::guards::{GuardTable, Guarded};
use crate::handle_form;
use crate::kinds::VolumeKind;
use crate::order::NodeOrder;
use crate::pins;
use crate::read_ahead::ReadAhead;
use crate::volume::{Mount, Volume};
use crate::volume_log::VolumeLog;
use crate::write_back::{Written, WrittenFile};

/// Sweeps without a use after which a file open for writing is closed: while it is open, nobody
/// can execute it.
const WRITER_IDLE_SWEEPS: u8 = 1;
/// Sweeps without a use after which an object is let go.
const NODE_IDLE_SWEEPS: u8 = 30;

/// Bytes of unstable writes to one file that are logged before COMMIT comes.
const UNSTABLE_LOGGED_MAX: u32 = 256 << 10;

/// An access ACL as it was when the object's ctime was this.
type SeenAcl = Option<(Time, Option<Arc<Acl>>)>;

/// A pin of a node, and why it is there.
pub(crate) type NodePin<R = pins::Call> = Pinned<Node, R>;

/// An object held by a descriptor, so that its inode number cannot be given to another, with what
/// else is open of it.
pub(crate) struct Node {
    pub(crate) tree: u32,
    pub(crate) handle: StorageHandle,
    pub(crate) identity: Identity,
    pub(crate) kind: FileKind,
    pub(crate) mount: Arc<Mount>,
    /// With `O_PATH`; of a file made through us, the one that it was made with.
    pub(crate) path: Arc<Descriptor>,
    /// Orders the changes of this object that go through us, and their `wcc`. A directory's is
    /// taken before a file's, two directories' or two files' in the order of the
    /// locks' addresses.
    pub(crate) order: NodeOrder,
    /// Of directories that are read.
    pub(crate) stream: Mutex<Option<Box<DirectoryStream>>>,
    reader: ArcSwapOption<Descriptor>,
    /// Of files only that are large and were not in memory when they were read.
    pub(crate) read_ahead: OnceLock<Box<ReadAhead>>,
    writer: Mutex<Option<Arc<Descriptor>>>,
    /// Whose turn it is to guard the file, and its guard.
    guarding: Mutex<()>,
    guard: Mutex<Weak<Guarded>>,
    /// Whether `reader` was told of errors of the past.
    reader_has_heard: AtomicBool,
    seen_acl: Mutex<SeenAcl>,
    /// Whether the server opens it whatever its permission bits say.
    opens_all: bool,
    /// Whether it was used since the cache last looked for something to let go.
    pub(crate) was_used: AtomicBool,
    /// Whether there is data of ours that was not flushed, and is not in the log.
    is_dirty: AtomicBool,
    /// Flushes that have begun and not ended.
    in_flush: AtomicU32,
    /// Bytes of unstable writes that were logged since the last COMMIT.
    unstable_logged: AtomicU32,
    idle_sweeps: AtomicU8,
    /// What was written since the last checkpoint began.
    written: Written,
    budget: Arc<Budget>,
    /// Dropped last, when the descriptors are closed: see [`crate::tree::Tree`].
    pub(crate) volume: Arc<Volume>,
}

/// How long a descriptor is kept that cannot be had again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Until the object is let go because it is idle.
    WhileUsed,
    /// Until there is no room.
    AsLongAsCan,
}

/// What a node is made of.
pub(crate) struct NodeParts {
    pub(crate) tree: u32,
    pub(crate) handle: StorageHandle,
    pub(crate) identity: Identity,
    pub(crate) kind: FileKind,
    pub(crate) volume: Arc<Volume>,
    pub(crate) mount: Arc<Mount>,
    pub(crate) path: Arc<Descriptor>,
    pub(crate) order: NodeOrder,
    /// Whether the server has the power to open files whatever their permission bits say.
    pub(crate) opens_all: bool,
    pub(crate) budget: Arc<Budget>,
}

impl Node {
    pub(crate) fn new(parts: NodeParts) -> Self {
        let NodeParts {
            tree,
            handle,
            identity,
            kind,
            volume,
            mount,
            path,
            order,
            opens_all,
            budget,
        } = parts;
        Self {
            tree,
            handle,
            identity,
            kind,
            volume,
            mount,
            path,
            order,
            stream: Mutex::new(None),
            reader: ArcSwapOption::empty(),
            read_ahead: OnceLock::new(),
            writer: Mutex::new(None),
            guarding: Mutex::new(()),
            guard: Mutex::default(),
            reader_has_heard: AtomicBool::new(false),
            seen_acl: Mutex::new(None),
            opens_all,
            was_used: AtomicBool::new(true),
            is_dirty: AtomicBool::new(false),
            in_flush: AtomicU32::new(0),
            unstable_logged: AtomicU32::new(0),
            idle_sweeps: AtomicU8::new(0),
            written: Written::default(),
            budget,
        }
    }

    /// Its attributes at this moment; [`FsError::Stale`] once it has no name left.
    pub(crate) fn attr(&self) -> Result<Attr, FsError> {
        let stat = attributes::stat(&self.path)?;
        if stat.stx_nlink == 0 {
            return Err(FsError::Stale);
        }
        Ok(self.volume.present(&stat, &self.handle))
    }

    /// What the log calls it.
    pub(crate) fn key(&self) -> ObjectKey {
        handle_form::key(&self.handle)
    }

    /// Where it is, as the kernel has it in memory; `None` if it was removed.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.path.as_fd().as_raw_fd());
        let path = rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes();
        let is_there = path.starts_with(b"/") && !path.ends_with(b" (deleted)");
        is_there.then(|| PathBuf::from(OsString::from_vec(path)))
    }

    /// Whether the cache it belongs to counts with this budget.
    pub(crate) fn has_budget(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Notes a use, so that the cache keeps it.
    pub(crate) fn touch(&self) {
        // Looking first keeps the cache line shared between processors.
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        if self.idle_sweeps.load(Ordering::Relaxed) != 0 {
            self.idle_sweeps.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a sweep; says whether the object has been idle long enough to be let go.
    pub(crate) fn pass_sweep(&self) -> bool {
        let idle = self.idle_sweeps.load(Ordering::Relaxed).saturating_add(1);
        self.idle_sweeps.store(idle, Ordering::Relaxed);
        if let Some(read_ahead) = self.read_ahead.get() {
            read_ahead.forget_idle();
        }
        if idle <= WRITER_IDLE_SWEEPS || self.is_dirty() || self.guard().is_some() {
            return false;
        }
        let must_keep = self.must_keep_writer();
        if must_keep.is_none() {
            let mut writer = self.writer.lock();
            if writer.as_ref().is_some_and(|writer| Arc::ptr_eq(writer, &self.path)) {
                // Not open for writing any more only without it.
                return true;
            }
            *writer = None;
        }
        idle > NODE_IDLE_SWEEPS && must_keep != Some(Keep::AsLongAsCan)
    }

    /// Whether the descriptor with which the file was created is the only one that it can be
    /// written through, because its owner may not open it and the server is nobody else. A
    /// client that has such a file open may write it, however long it waits between.
    fn must_keep_writer(&self) -> Option<Keep> {
        if self.opens_all || self.kept_writer().is_none() {
            return None;
        }
        let attr = self.attr().ok()?;
        match attr.mode {
            mode if mode & 0o600 == 0o600 => None,
            // Nobody can execute it meanwhile.
            mode if mode & 0o111 != 0 => Some(Keep::WhileUsed),
            _ => Some(Keep::AsLongAsCan),
        }
    }

    /// Whether something would be lost or untold if the object were let go with its tree: data that
    /// a COMMIT has to flush, or the only descriptor that a file can be written through.
    pub(crate) fn must_stay(&self) -> bool {
        self.in_flush.load(Ordering::SeqCst) > 0
            || self.is_dirty()
            || self.must_keep_writer() == Some(Keep::AsLongAsCan)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::SeqCst)
    }

    pub(crate) fn mark_dirty(&self) {
        self.is_dirty.store(true, Ordering::SeqCst);
    }

    /// Whether there may be data that COMMIT has to flush: not logged, and not known to have
    /// reached the disk.
    pub(crate) fn needs_commit(&self) -> bool {
        // In this order: a flush clears the mark after it has counted itself, and sets it again,
        // if it fails, before it ends.
        self.in_flush.load(Ordering::SeqCst) > 0
            || self.is_dirty()
            // Another tree has the object too, and may have written to it.
            || self.order.is_shared()
            // After that: what that tree let go of it was noted before its node was gone.
            || self.mount.let_go() > 0
    }

    /// Counts an unstable write of so many bytes; says whether so few came since the last COMMIT
    /// that it is to be logged. More than that is a stream, which the log would only slow.
    pub(crate) fn takes_unstable(&self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = self.unstable_logged.load(Ordering::Relaxed);
        self.unstable_logged.store(before.saturating_add(bytes), Ordering::Relaxed);
        before < UNSTABLE_LOGGED_MAX
    }

    /// Notes a COMMIT.
    pub(crate) fn note_commit(&self) {
        self.unstable_logged.store(0, Ordering::Relaxed);
    }

    /// Whether it is open for reading.
    pub(crate) fn has_reader(&self) -> bool {
        self.reader.load().is_some()
    }

    /// What it is open for writing with, if it is.
    pub(crate) fn kept_writer(&self) -> Option<Arc<Descriptor>> {
        self.writer.lock().clone()
    }

    /// The object open for reading; ordinary files and directories only.
    pub(crate) fn reader(&self) -> Result<Arc<Descriptor>, FsError> {
        if let Some(reader) = self.reader.load_full() {
            return Ok(reader);
        }
        let opened = Arc::new(Descriptor::new(self.open(OFlags::RDONLY)?, &self.budget));
        // Another thread may have been quicker.
        let none: Option<Arc<Descriptor>> = None;
        let before = self.reader.compare_and_swap(&none, Some(Arc::clone(&opened)));
        Ok(before.as_ref().map_or(opened, Arc::clone))
    }

    /// From now on the ordinary file is read through the open file description that it is written through.
    /// What it was read through before.
    pub(crate) fn read_through(
        &self,
        writer: &Descriptor,
    ) -> Result<Option<Arc<Descriptor>>, FsError> {
        let same = rustix::io::fcntl_dupfd_cloexec(writer, 0).map_err(from_errno)?;
        Ok(self.reader.swap(Some(Arc::new(Descriptor::new(same, &self.budget)))))
    }

    /// From now on it is not.
    pub(crate) fn read_apart(&self) {
        self.reader.store(None);
    }

    /// Closes the ordinary file for writing, unless something is to be flushed by that, or it cannot be
    /// opened again.
    pub(crate) fn close_writer(&self) {
        if !self.is_dirty() && self.must_keep_writer().is_none() {
            let mut writer = self.writer.lock();
            writer.take_if(|writer| !Arc::ptr_eq(writer, &self.path));
        }
    }

    /// Whether it is what the file was made with, and so open for writing.
    pub(crate) fn is_open_for_writing_as_long_as_kept(&self) -> bool {
        self.kept_writer().is_some_and(|writer| Arc::ptr_eq(&writer, &self.path))
    }

    /// Has the file guarded, if it is not.
    pub(crate) fn guard_by(
        &self,
        take: impl FnOnce() -> Result<Arc<Guarded>, FsError>,
    ) -> Result<Arc<Guarded>, FsError> {
        let _turn = self.guarding.try_lock().ok_or(FsError::TryLater)?;
        if self.guard().is_some() {
            return Err(FsError::TryLater);
        }
        let guarded = take()?;
        *self.guard.lock() = Arc::downgrade(&guarded);
        Ok(guarded)
    }

    /// Its guard, if it has one.
    fn guard(&self) -> Option<Arc<Guarded>> {
        self.guard.lock().upgrade().filter(|guard| !guard.has_ended())
    }

    /// Its guard ends, if it has one, and who had it is told: the node is found by nobody any more, and would not know of
    /// who opens the file otherwise.
    pub(crate) fn end_guard(&self) {
        if let Some(guard) = self.guard() {
            guard.end();
        }
    }

    /// Its guard is not wanted any more. Nobody gets another one meanwhile, whose lease would be given up with this one's.
    pub(crate) fn unguard(&self, guarded: &Arc<Guarded>, table: &GuardTable) {
        let _turn = self.guarding.lock();
        guarded.give_up(table);
        // After that: what the node opens from here on breaks nothing.
        let mut guard = self.guard.lock();
        if guard.ptr_eq(&Arc::downgrade(guarded)) {
            *guard = Weak::new();
            if guarded.kind() == GuardKind::Write {
                self.read_apart();
            }
        }
    }

    /// Another descriptor of the same, with a read-ahead of the kernel's own.
    pub(crate) fn open_again(&self) -> Result<Descriptor, FsError> {
        if self.guard().is_some_and(|guard| guard.kind() == GuardKind::Write) {
            return Err(FsError::TryLater);
        }
        self.open_apart(OFlags::RDONLY)
    }

    /// The object opened once more, apart from what is kept open.
    pub(crate) fn open_apart(&self, flags: OFlags) -> Result<Descriptor, FsError> {
        Ok(Descriptor::new(self.open(flags)?, &self.budget))
    }

    /// The ordinary file open for writing, and for reading if it may be. Whose powers it is opened with is the
    /// caller's business: see [`crate::tree::Tree::writer`].
    pub(crate) fn writer(&self) -> Result<Arc<Descriptor>, FsError> {
        let mut writer = self.writer.lock();
        if let Some(writer) = &*writer {
            return Ok(Arc::clone(writer));
        }
        let opened = match self.open(OFlags::RDWR) {
            // Its owner may write it and not read it.
            Err(FsError::AccessDenied) if !self.opens_all => self.open(OFlags::WRONLY),
            opened => opened,
        };
        let opened = Arc::new(Descriptor::new(opened?, &self.budget));
        self.hear_of_the_past(&*opened);
        *writer = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Keeps the descriptor with which the file was created.
    pub(crate) fn keep_writer(&self, created: Arc<Descriptor>) {
        *self.writer.lock() = Some(created);
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, FsError> {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if let Some(guard) = self.guard().filter(|guard| writes || guard.kind() == GuardKind::Write)
        {
            // It would be broken, and this fail.
            guard.end();
        }
        // Nothing to wait for in ordinary files but leases, for which the client comes again.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self.kind {
            FileKind::Directory => rustix::fs::openat(
                &self.path,
                c".",
                flags | OFlags::DIRECTORY,
                Permissions::empty(),
            ),
            FileKind::Regular => match handle_form::kernel_handle(&self.handle) {
                Some(kernel) => {
                    let kernel = self.mount.actual(&self.handle, kernel)?;
                    handle::open(&self.mount.open, &kernel, flags)
                }
                None => rustix::fs::open(
                    format!("/proc/self/fd/{}", self.path.as_fd().as_raw_fd()),
                    flags,
                    Permissions::empty(),
                ),
            },
            _ => return Err(FsError::Invalid),
        };
        opened.map_err(from_errno)
    }

    /// Whether `cred` may do all of `wanted` to the object, whose attributes are `attr`.
    pub(crate) fn allows(&self, attr: &Attr, cred: &Cred, wanted: u8) -> Result<bool, FsError> {
        // The kernel asks the ACL only when the mask, which the group bits show, grants
        // something, and never for the owner.
        let needs_acl = self.volume.has_acls
            && !cred.is_superuser()
            && cred.uid != attr.uid
            && attr.mode & 0o070 != 0
            && attr.kind != FileKind::Symlink;
        if !needs_acl {
            return Ok(permission::is_allowed(attr, None, cred, wanted));
        }
        let acl = self.access_acl(attr)?;
        Ok(permission::is_allowed(attr, acl.as_deref(), cred, wanted))
    }

    /// As [`Node::allows`], a refusal as an error.
    pub(crate) fn require(&self, attr: &Attr, cred: &Cred, wanted: u8) -> Result<(), FsError> {
        if self.allows(attr, cred, wanted)? { Ok(()) } else { Err(FsError::AccessDenied) }
    }

    fn flush_open(&self, what: FlushWhat) -> Result<(), FsError> {
        self.sync_let_go()?;
        let writer = self.writer.lock().clone();
        let file: Arc<Descriptor> = match writer {
            Some(writer) => writer,
            None => match self.reader() {
                Ok(reader) => {
                    if !self.reader_has_heard.swap(true, Ordering::SeqCst) {
                        self.hear_of_the_past(&*reader);
                    }
                    reader
                }
                // What may not be opened, or not now, is flushed with all the rest.
                Err(_) => return self.noted(self.mount.sync()),
            },
        };
        let flushed = match what {
            FlushWhat::Data => rustix::fs::fdatasync(file),
            FlushWhat::Everything => rustix::fs::fsync(file),
        };
        let flushed = flushed.and_then(|()| journal::require_alive(&self.mount.open));
        self.noted(flushed.map_err(from_errno))
    }

    /// Has the kernel tell of what was lost of a file before its file system was in use: it keeps an
    /// error until somebody flushes that very file, and a flush for a client should not fail for it.
    /// What was lost then was replayed, or nobody was told that it is stable.
    fn hear_of_the_past(&self, opened: impl AsFd) {
        let aliases = &self.mount.aliases;
        let Some(log) = self.volume.log.as_ref().filter(|_| aliases.has_a_past()) else { return };
        if self.kind != FileKind::Regular
            // A flush of one file may lose others.
            || self.is_flushed_with_all()
            || log.fault().is_some()
            || rustix::fs::fsync(opened).is_ok()
        {
            return;
        }
        // One at a time: the witness, too, is told once. Who has the turn flushes all there is, and is
        // told; it may wait for the log, in which the change that this is for has its place.
        let Some(_turn) = aliases.whole_flushes.try_turn() else { return log.note_loss() };
        if aliases.has_lost_something_since_in_use() {
            aliases.note_failure();
        }
        log.note_loss();
    }

    /// Makes stable what objects that were let go had not flushed, or tells that it is lost.
    pub(crate) fn sync_let_go(&self) -> Result<(), FsError> {
        if self.mount.let_go() == 0 {
            return Ok(());
        }
        self.sync_all(None)
    }

    /// Whether it is never flushed by itself.
    ///
    /// On btrfs a flush of one file or directory goes to its log of single flushes. What mounting
    /// makes of that after a crash can lack other objects, which had been stable: one whose old name
    /// is gone from a directory that was flushed, and whose new name is in one that was not, is
    /// deleted. The intent log has the new name, but no longer the object. And it can have a half of
    /// what was not flushed: one that a RENAME under way was about to replace is gone, or a file has
    /// the size of a WRITE under way, and where that begins bytes that had been cut off.
    fn is_flushed_with_all(&self) -> bool {
        self.volume.kind == VolumeKind::Btrfs
    }

    fn is_logged(&self) -> bool {
        self.volume.log.as_ref().is_some_and(VolumeLog::is_in_use)
    }

    /// Makes the object stable by making all of its file system so.
    fn flush_with_all(&self) -> Result<(), FsError> {
        if !self.is_logged() {
            return self.sync_all(None);
        }
        // Of all the rest nothing is noted: where names are judged by what they are bound to, replay
        // needs to know of those that have reached the disk too.
        self.sync_let_go()?;
        let _turn = self.mount.aliases.whole_flushes.turn();
        self.noted(self.mount.sync())
    }

    /// Makes all of the file system stable, and so what objects that were let go had not flushed. A failure is `noted`,
    /// if there is who notes it.
    fn sync_all(&self, noted: Option<&dyn Fn(FsError)>) -> Result<(), FsError> {
        let flush = || {
            let let_go = self.mount.let_go();
            let flush = self.volume.async_changes.flush();
            let up_to = self.volume.log.as_ref().map(VolumeLog::last);
            let flushed = self.noted(self.mount.sync());
            if let (Err(_), Some(log)) = (flushed, &self.volume.log) {
                // Before the next one has its turn, which is not told of this error.
                log.note_loss();
            }
            flushed?;
            self.note_settled(Settled::FileSystem, up_to)?;
            flush.done();
            self.mount.forget_let_go(let_go);
            Ok(())
        };
        self.mount.aliases.whole_flushes.join(noted, flush)
    }

    /// Keeps in mind that a flush failed, if there are records of what it was about: the kernel tells
    /// of an error once to each who asks, and a later success says nothing of it.
    fn noted(&self, flushed: Result<(), FsError>) -> Result<(), FsError> {
        if flushed.is_err() && self.is_logged() {
            self.mount.aliases.note_failure();
        }
        flushed
    }

    /// Tells the log what a flush has made stable.
    ///
    /// # Errors
    /// [`FsError::Io`] also if an earlier flush of the file system failed: what it was about may be
    /// acknowledged and lost, and its records must stay good until the log's own flush has found
    /// that out.
    fn note_settled(&self, what: Settled, up_to: Option<u64>) -> Result<(), FsError> {
        match (&self.volume.log, up_to) {
            (Some(log), _) if self.mount.aliases.has_failed() && log.is_in_use() => {
                Err(FsError::Io)
            }
            (Some(log), Some(up_to)) => log.settled(what, up_to),
            _ => Ok(()),
        }
    }

    fn access_acl(&self, attr: &Attr) -> Result<Option<Arc<Acl>>, FsError> {
        if let Some((ctime, acl)) = &*self.seen_acl.lock()
            && *ctime == attr.ctime
        {
            return Ok(acl.clone());
        }
        let acl = acl::read(&self.path, Which::Access)?.map(Arc::new);
        // Before Linux 6.13, changes within one tick of the clock share a ctime: a list is
        // remembered only when the ctime can no longer be given to a later change.
        if is_past_tick(attr.ctime) {
            *self.seen_acl.lock() = Some((attr.ctime, acl.clone()));
        }
        Ok(acl)
    }
}

/// The longest tick of the kernel's clock (`HZ=100`), twice.
const TICK_NS: i64 = 20_000_000;

fn is_past_tick(time: Time) -> bool {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    let age_s = now.tv_sec.saturating_sub(time.seconds);
    let age_ns = age_s
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
        .saturating_sub(i64::from(time.nanoseconds));
    age_ns > TICK_NS
}

impl FlushTarget for Node {
    fn flush_key(&self) -> u64 {
        // The descriptor keeps the number from being given to another object of the domain.
        self.identity.inode
    }

    fn flush(&self, what: FlushWhat) -> Result<(), FsError> {
        if self.volume.is_volatile() {
            return Ok(());
        }
        let last = || self.volume.log.as_ref().map(VolumeLog::last);
        let key = self.key();
        if !matches!(self.kind, FileKind::Regular | FileKind::Directory) {
            let up_to = last();
            self.flush_with_all()?;
            return self.note_settled(Settled::Object(key), up_to);
        }
        // In this order: what is written after the mark was taken away makes the next COMMIT flush
        // and settle again, whatever changes came between. The other way round a COMMIT would leave
        // a change to be replayed over what was written after it.
        self.flush_begins();
        let up_to = last();
        let settled = match what {
            FlushWhat::Data => Settled::Data(key),
            FlushWhat::Everything => Settled::Object(key),
        };
        let flushed =
            if self.is_flushed_with_all() { self.flush_with_all() } else { self.flush_open(what) };
        let flushed = flushed.and_then(|()| self.note_settled(settled, up_to));
        self.flush_ended(flushed.is_ok());
        flushed
    }

    fn flush_begins(&self) {
        self.in_flush.fetch_add(1, Ordering::SeqCst);
        // What is written from here on is dirty again.
        self.is_dirty.store(false, Ordering::SeqCst);
    }

    fn flush_ended(&self, is_done: bool) {
        if !is_done {
            self.mark_dirty();
        }
        self.in_flush.fetch_sub(1, Ordering::SeqCst);
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        if self.volume.is_volatile() {
            return Ok(());
        }
        self.sync_all(None)
    }

    fn last_shared_failure(&self) -> Option<&AtomicU64> {
        // While a log is in use, a flush of one object and one of all are told to it each in its own way.
        let is_shared = self.is_flushed_with_all() && !self.is_logged();
        is_shared.then(|| self.mount.aliases.whole_flushes.last_failure())
    }

    fn flush_for_all(&self, noted: &dyn Fn(FsError)) -> Result<(), FsError> {
        if self.volume.is_volatile() {
            return Ok(());
        }
        self.sync_all(Some(noted))
    }
}

impl WrittenFile for Node {
    fn written(&self) -> &Written {
        &self.written
    }

    fn inode(&self) -> u64 {
        self.identity.inode
    }

    fn kept_writer(&self) -> Option<Arc<Descriptor>> {
        Self::kept_writer(self)
    }
}

/// A node of which something waits for its flush.
struct FlushOf(NodePin<pins::Flush>);

/// A node to be flushed, pinned until it is.
pub(crate) fn flush_target(node: NodePin<pins::Flush>) -> Arc<dyn FlushTarget> {
    Arc::new(FlushOf(node))
}

impl FlushTarget for FlushOf {
    fn flush_key(&self) -> u64 {
        self.0.flush_key()
    }

    fn flush(&self, what: FlushWhat) -> Result<(), FsError> {
        self.0.flush(what)
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        self.0.flush_file_system()
    }

    fn last_shared_failure(&self) -> Option<&AtomicU64> {
        self.0.last_shared_failure()
    }

    fn flush_for_all(&self, noted: &dyn Fn(FsError)) -> Result<(), FsError> {
        self.0.flush_for_all(noted)
    }

    fn flush_begins(&self) {
        self.0.flush_begins();
    }

    fn flush_ended(&self, is_done: bool) {
        self.0.flush_ended(is_done);
    }
}

/// All of an object's file system: what was changed there depends on what nobody knows to be on the disk.
pub(crate) struct AllOf(pub(crate) NodePin<pins::Flush>);

impl FlushTarget for AllOf {
    fn flush_key(&self) -> u64 {
        // No inode has it.
        u64::MAX
    }

    fn flush(&self, _what: FlushWhat) -> Result<(), FsError> {
        self.flush_file_system()
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        self.0.flush_file_system()
    }

    fn last_shared_failure(&self) -> Option<&AtomicU64> {
        self.0.last_shared_failure()
    }

    fn flush_for_all(&self, noted: &dyn Fn(FsError)) -> Result<(), FsError> {
        self.0.flush_for_all(noted)
    }
}

/// An ordinary file as a place to send data from.
pub(crate) struct ReadableFile {
    pub(crate) reader: Arc<Descriptor>,
    /// Dropped after the descriptor.
    pub(crate) _node: NodePin<pins::Sent>,
}

impl AsFd for ReadableFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
