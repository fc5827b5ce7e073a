//! Guards, by leases of the kernel's (`fcntl(2)`, "Leases"): a local process that opens a guarded file, or
//! cuts it, waits until the lease is given up, and the server is told meanwhile by a signal, which one
//! thread reads that is there for nothing else.
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
use rustix::io::Errno;
use steadfast_sys::identity;
use steadfast_sys::lease::{self, Told, Watch, Watcher};
use steadfast_vfs::{FsError, GuardKind, GuardListener, StorageHandle};

use crate::budget::Descriptor;
use crate::error::from_errno;

/// All guards are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

fn lease_kind(kind: GuardKind) -> lease::Kind {
    match kind {
        GuardKind::Read => lease::Kind::Read,
        GuardKind::Write => lease::Kind::Write,
    }
}

/// Guards by the descriptors that have their leases.
pub(crate) type GuardTable = Arc<Mutex<HashMap<RawFd, Weak<Guarded>>>>;

/// The guards of a storage.
#[derive(Default)]
pub(crate) struct Guards {
    held: GuardTable,
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
    /// Has the kernel guard a file by this descriptor of it, and tell who watches.
    ///
    /// # Errors
    /// [`FsError::TryLater`] while somebody has the file open in a way that the guard forbids;
    /// [`FsError::NotSupported`] where the file system has no leases.
    pub(crate) fn take(
        kind: GuardKind,
        file: Arc<Descriptor>,
        object: (u64, StorageHandle),
        listener: &Arc<dyn GuardListener>,
        watch: Watch,
    ) -> Result<Arc<Self>, FsError> {
        match lease::set(&*file, lease_kind(kind), watch) {
            Ok(true) => {}
            Ok(false) => return Err(FsError::TryLater),
            // File systems that have none say either.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NOLCK) => {
                return Err(FsError::NotSupported);
            }
            Err(errno) => return Err(from_errno(errno)),
        }
        Ok(Arc::new(Self {
            kind,
            file,
            object,
            listener: Arc::clone(listener),
            is_told: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// Its owner does not want it any more: nobody is told from here on, and the lease is given up.
    pub(crate) fn give_up(&self, table: &GuardTable) {
        self.is_told.store(true, Ordering::SeqCst);
        {
            // The descriptor may have another guard by now, if this one had ended.
            let mut table = table.lock();
            let descriptor = self.file.as_fd().as_raw_fd();
            let is_own = |weak: &Weak<Self>| std::ptr::eq(weak.as_ptr(), self);
            if table.get(&descriptor).is_some_and(is_own) {
                table.remove(&descriptor);
            }
        }
        self.end_lease();
    }

    pub(crate) fn kind(&self) -> GuardKind {
        self.kind
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
            || lease::held(self.file.as_fd()) != Ok(Some(lease_kind(self.kind)))
    }

    /// Tells the listener, once, if somebody wants what the guard forbids.
    pub(crate) fn look(&self) {
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
        if self.end_lease() {
            self.tell();
        }
    }

    /// Gives the lease up; whether it had not been given up before. Without the power to have any lease
    /// (`CAP_LEASE`), only the file's owner may: so the thread acts as the server.
    fn end_lease(&self) -> bool {
        let is_first = !self.has_ended.swap(true, Ordering::SeqCst);
        if is_first && identity::as_server(|| lease::give_up(&*self.file)).is_err() {
            lease::give_up(&*self.file);
        }
        is_first
    }
}

impl Guards {
    /// Which thread is told of leases; started when it is first needed.
    pub(crate) fn watch(&self) -> Result<Watch, FsError> {
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

    /// Has a guard watched. Returns where it is to be found until it is given up.
    pub(crate) fn add(&self, guarded: &Arc<Guarded>) -> GuardTable {
        let descriptor = guarded.file.as_fd().as_raw_fd();
        self.held.lock().insert(descriptor, Arc::downgrade(guarded));
        Arc::clone(&self.held)
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
