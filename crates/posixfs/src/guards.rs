//! Guards, by leases of the kernel's (`fcntl(2)`, "Leases"): a local process that opens a guarded file, or
//! cuts it, waits until the lease is given up, and the server is told meanwhile by a signal, which one
//! thread reads that is there for nothing else.
//!
//! A lease belongs to an open file description. A guard for reading uses the one that the node reads
//! through. One for writing wants that nobody has the file open in any other way, nor the server itself:
//! so it uses the one that the node writes through, and the node reads through the same.
//!
//! The kernel takes the server's own opens for those of anybody. [`Node`] knows its guard, and ends it before
//! it opens the file in a way that would break it.
//!
//! A signal may be lost when too many wait. The kernel says so, and all leases are looked at then; and
//! once a second, since that costs little.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use steadfast_sys::lease::{self, Told, Watch, Watcher};
use steadfast_vfs::{FileKind, FsError, Guard, GuardKind, GuardListener, StorageHandle, Waiting};

use crate::budget::{Descriptor, RoomToLock};
use crate::error::from_errno;
use crate::node::Node;
use crate::tree::Tree;

/// All guards are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

fn lease_kind(kind: GuardKind) -> lease::Kind {
    match kind {
        GuardKind::Read => lease::Kind::Read,
        GuardKind::Write => lease::Kind::Write,
    }
}

/// The guards of a storage.
#[derive(Default)]
pub(crate) struct Guards {
    /// By the descriptors that have the leases.
    held: Arc<Mutex<HashMap<RawFd, Weak<Guarded>>>>,
    /// Which thread watches; `None` if there can be none.
    watch: OnceLock<Option<Watch>>,
}

/// A file that is guarded.
pub(crate) struct Guarded {
    kind: GuardKind,
    /// What has the lease.
    file: Arc<Descriptor>,
    /// As [`FileSystem::object`](steadfast_vfs::FileSystem::object) names it.
    object: (u64, StorageHandle),
    listener: Arc<dyn GuardListener>,
    /// Its listener was told, or need not be any more.
    is_told: AtomicBool,
    has_ended: AtomicBool,
}

impl Guarded {
    pub(crate) fn kind(&self) -> GuardKind {
        self.kind
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn is_broken(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
            || lease::held(self.file.as_fd()) != Ok(Some(lease_kind(self.kind)))
    }

    /// Tells the listener, once, if somebody wants what the guard forbids.
    fn look(&self) {
        if !self.is_told.load(Ordering::SeqCst) && self.is_broken() {
            self.tell();
        }
    }

    fn tell(&self) {
        if !self.is_told.swap(true, Ordering::SeqCst) {
            let (file_system, object) = &self.object;
            self.listener.guard_broken(*file_system, object);
        }
    }

    /// The server itself is about to do what the guard forbids.
    pub(crate) fn end(&self) {
        if !self.has_ended.swap(true, Ordering::SeqCst) {
            lease::give_up(&*self.file);
            self.tell();
        }
    }
}

/// One guard, as its owner has it.
struct Held {
    guarded: Arc<Guarded>,
    node: Arc<Node>,
    /// Of all guards.
    table: Arc<Mutex<HashMap<RawFd, Weak<Guarded>>>>,
    _room: RoomToLock,
}

impl Guard for Held {
    fn kind(&self) -> GuardKind {
        self.guarded.kind
    }

    fn is_broken(&self) -> bool {
        self.guarded.is_broken()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.guarded.is_told.store(true, Ordering::SeqCst);
        self.table.lock().remove(&self.guarded.file.as_fd().as_raw_fd());
        if !self.guarded.has_ended.swap(true, Ordering::SeqCst) {
            lease::give_up(&*self.guarded.file);
        }
        // After that: what the node opens from here on breaks nothing.
        self.node.unguard(&self.guarded);
    }
}

impl Guards {
    /// Which thread is told of leases; started when it is first needed.
    fn watch(&self) -> Result<Watch, FsError> {
        let watch = self.watch.get_or_init(|| {
            let (tell, told) = mpsc::sync_channel(1);
            let held = Arc::downgrade(&self.held);
            let thread = move || {
                let watcher = Watcher::new();
                let watch = watcher.as_ref().map(Watcher::watch).map_err(|errno| *errno);
                if tell.send(watch).is_ok()
                    && let Ok(watcher) = watcher
                {
                    listen(watcher, &held);
                }
            };
            let started = std::thread::Builder::new().name("guards".to_owned()).spawn(thread);
            let watch = match started {
                Ok(_) => told.recv().ok().and_then(Result::ok),
                Err(_) => None,
            };
            if watch.is_none() {
                tracing::warn!(
                    "cannot start a thread that is told of local processes: no file is guarded"
                );
            }
            watch
        });
        watch.ok_or(FsError::NotSupported)
    }

    fn add(&self, guarded: &Arc<Guarded>) {
        let descriptor = guarded.file.as_fd().as_raw_fd();
        self.held.lock().insert(descriptor, Arc::downgrade(guarded));
    }
}

/// Tells listeners of what the kernel tells, as long as there is anybody to have guards.
fn listen(mut watcher: Watcher, held: &Weak<Mutex<HashMap<RawFd, Weak<Guarded>>>>) {
    loop {
        let told = watcher.wait(LOOK);
        let Some(held) = held.upgrade() else { return };
        let guarded: Vec<Arc<Guarded>> = match told {
            Ok(Told::Wanted(descriptor)) => {
                held.lock().get(&descriptor).and_then(Weak::upgrade).into_iter().collect()
            }
            Ok(Told::Overflow | Told::Nothing) => {
                held.lock().values().filter_map(Weak::upgrade).collect()
            }
            Err(error) => {
                tracing::error!("cannot be told of local processes by signals: {error}");
                std::thread::sleep(LOOK);
                held.lock().values().filter_map(Weak::upgrade).collect()
            }
        };
        // Without the lock: whoever is told may drop a guard.
        for guarded in guarded {
            guarded.look();
        }
    }
}

impl Tree {
    /// See [`FileSystem::guard`](steadfast_vfs::FileSystem::guard). Leaves the thread with the server's
    /// identity.
    pub(crate) fn do_guard(
        &self,
        object: &StorageHandle,
        kind: GuardKind,
        listener: &Arc<dyn GuardListener>,
    ) -> Result<Box<dyn Guard>, FsError> {
        let mut node = self.node(object, Waiting::Allowed)?;
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        let guards = &self.storage.guards;
        let watch = guards.watch()?;
        let room = self.storage.budget.room_to_lock().ok_or(FsError::TryLater)?;
        self.assume_server()?;
        if kind == GuardKind::Read && node.is_open_for_writing_as_long_as_kept() {
            if node.must_stay() {
                return Err(FsError::TryLater);
            }
            // It was made by us, and is open for writing as long as the node is.
            if !self.storage.cache.let_go_if_idle(&node) {
                return Err(FsError::TryLater);
            }
            drop(node);
            node = self.node(object, Waiting::Allowed)?;
        }
        let named = self.identity(object);
        let take = |file: Arc<Descriptor>| {
            match lease::set(&*file, lease_kind(kind), watch) {
                Ok(true) => {}
                Ok(false) => return Err(FsError::TryLater),
                // File systems that have none say either.
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NOLCK) => {
                    return Err(FsError::NotSupported);
                }
                Err(errno) => return Err(from_errno(errno)),
            }
            Ok(Arc::new(Guarded {
                kind,
                file,
                object: named,
                listener: Arc::clone(listener),
                is_told: AtomicBool::new(false),
                has_ended: AtomicBool::new(false),
            }))
        };
        let guarded = match kind {
            GuardKind::Read => node.guard_for_reading(take),
            GuardKind::Write => node.guard_for_writing(take),
        };
        self.storage.cache.make_room();
        let guarded = guarded?;
        guards.add(&guarded);
        // What came before it was there to be found.
        guarded.look();
        let table = Arc::clone(&guards.held);
        Ok(Box::new(Held { guarded, node, table, _room: room }))
    }
}

impl Node {
    /// Guards the file by what it is read through.
    fn guard_for_reading(
        &self,
        take: impl FnOnce(Arc<Descriptor>) -> Result<Arc<Guarded>, FsError>,
    ) -> Result<Arc<Guarded>, FsError> {
        self.guard_by(|| {
            self.close_writer();
            take(self.reader()?)
        })
    }

    /// Guards the file by what it is written through, and reads through the same meanwhile.
    fn guard_for_writing(
        &self,
        take: impl FnOnce(Arc<Descriptor>) -> Result<Arc<Guarded>, FsError>,
    ) -> Result<Arc<Guarded>, FsError> {
        self.guard_by(|| {
            let writer = self.writer()?;
            let flags = rustix::fs::fcntl_getfl(&*writer).map_err(from_errno)?;
            if flags & OFlags::RWMODE != OFlags::RDWR {
                return Err(FsError::NotSupported);
            }
            let before = self.read_through(&writer)?;
            // Not open in any other way.
            drop(before);
            take(writer).inspect_err(|_| self.read_apart())
        })
    }
}
