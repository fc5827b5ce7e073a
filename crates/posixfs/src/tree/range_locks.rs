//! Files that are held open for the locks that clients have, so that local processes see them.
//!
//! The locks belong to the open file description. Those of the process would be gone as soon as any
//! descriptor of the file is closed, of which this crate opens and closes many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use steadfast_sys::range_lock::{self, Bytes, Kind};
use steadfast_vfs::{FileKind, FsError, LocalLock, RangeLock, RangeLocks, StorageHandle, Waiting};

use super::Tree;
use crate::budget::{Descriptor, RoomToLock};
use crate::error::from_errno;
use crate::volume::Volume;

/// A file that cannot be locked is logged so often at most.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// One open file description.
struct OpenLocks {
    file: Descriptor,
    inode: u64,
    has_writes: bool,
    _room: RoomToLock,
    /// Dropped last, as with nodes.
    _volume: Arc<Volume>,
}

impl OpenLocks {
    fn bytes(first: u64, last: u64) -> Bytes {
        Bytes { first, last }
    }

    fn kind(&self, kind: RangeLock) -> Kind {
        match kind {
            RangeLock::Write if self.has_writes => Kind::Write,
            _ => Kind::Read,
        }
    }
}

impl RangeLocks for OpenLocks {
    fn has_writes(&self) -> bool {
        self.has_writes
    }

    fn set(&self, first: u64, last: u64, kind: Option<RangeLock>) -> Result<bool, FsError> {
        let kind = kind.map(|kind| self.kind(kind));
        match range_lock::set(&self.file, Self::bytes(first, last), kind) {
            // No local process can have a lock there.
            Err(Errno::OVERFLOW) => Ok(true),
            set => set.map_err(|errno| {
                let error = from_errno(errno);
                complain(self.inode, error);
                error
            }),
        }
    }

    fn conflict(
        &self,
        first: u64,
        last: u64,
        kind: RangeLock,
    ) -> Result<Option<LocalLock>, FsError> {
        // Whatever it is open for.
        let asked = match kind {
            RangeLock::Read => Kind::Read,
            RangeLock::Write => Kind::Write,
        };
        let found = range_lock::conflict(&self.file, Self::bytes(first, last), asked);
        let found = match found {
            Err(Errno::OVERFLOW) => None,
            found => found.map_err(from_errno)?,
        };
        Ok(found.map(|(Bytes { first, last }, kind)| LocalLock {
            first,
            last,
            kind: match kind {
                Kind::Read => RangeLock::Read,
                Kind::Write => RangeLock::Write,
            },
        }))
    }
}

impl Tree {
    /// See [`FileSystem::open_to_lock`](steadfast_vfs::FileSystem::open_to_lock). Leaves the thread with
    /// the server's identity.
    pub(crate) fn do_open_to_lock(
        &self,
        object: &StorageHandle,
        kind: RangeLock,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        let node = self.node(object, Waiting::Allowed)?;
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        let Some(room) = self.storage.budget.room_to_lock() else {
            complain(node.identity.inode, FsError::NoSpace);
            return Err(FsError::NoSpace);
        };
        self.assume_server()?;
        let opened = match kind {
            // While it is open for writing nobody can execute it.
            RangeLock::Read => node.open_apart(OFlags::RDONLY).map(|file| (file, false)),
            RangeLock::Write => match node.open_apart(OFlags::RDWR) {
                Ok(file) => Ok((file, true)),
                Err(FsError::TryLater) => Err(FsError::TryLater),
                // On a file system that is mounted read-only, or executed now.
                Err(_) => node.open_apart(OFlags::RDONLY).map(|file| (file, false)),
            },
        };
        self.storage.cache.make_room();
        let (file, has_writes) =
            opened.inspect_err(|error| complain(node.identity.inode, *error))?;
        // Some file systems have no locks, or ask a server that has none.
        let probe = range_lock::conflict(&file, Bytes { first: 0, last: 0 }, Kind::Read);
        if let Err(errno) = probe {
            let error = from_errno(errno);
            complain(node.identity.inode, error);
            return Err(error);
        }
        Ok(Box::new(OpenLocks {
            file,
            inode: node.identity.inode,
            has_writes,
            _room: room,
            _volume: Arc::clone(&node.volume),
        }))
    }
}

/// Logs that local processes do not see the locks of a file, now and then.
fn complain(inode: u64, error: FsError) {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    static NEXT_MS: AtomicU64 = AtomicU64::new(0);
    let elapsed = START.get_or_init(Instant::now).elapsed();
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let now_ms = milliseconds(elapsed);
    let next = NEXT_MS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
        (next <= now_ms).then(|| now_ms.saturating_add(milliseconds(COMPLAINT_INTERVAL)))
    });
    if next.is_ok() {
        tracing::warn!(
            "cannot lock file {inode} for clients ({error}): their locks of it, and perhaps of others, \
             exclude each other, but not local processes"
        );
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::{FileSystem, Name, RangeLock, Waiting};

    use crate::storage::{Storage, StorageOptions};
    use crate::tree::{Tree, TreeOptions};

    #[test]
    fn what_is_held_keeps_others_out_and_outlives_other_descriptors() {
        let directory = tempfile::tempdir().expect("a directory");
        let [share, state] = ["share", "state"].map(|name| directory.path().join(name));
        std::fs::create_dir(&share).expect("made");
        let path = share.join("f");
        std::fs::write(&path, b"data").expect("written");
        let storage = Storage::new(StorageOptions::default());
        let options = TreeOptions { state_directory: Some(state), ..TreeOptions::default() };
        let tree = Tree::open(&share, &options, &storage).expect("a tree");
        let cred = steadfast_vfs::Cred { uid: 0, gid: 0, groups: smallvec::SmallVec::new() };
        let caller = steadfast_vfs::Caller::new(&cred, Waiting::Allowed);
        let root = tree.root().expect("a root").handle;
        let name = Name::new(b"f").expect("a name");
        let file = tree.lookup(&caller, &root, name).result.expect("a file").handle;
        let open = |kind| tree.open_to_lock(&file, kind).expect("open");
        let held = open(RangeLock::Write);
        assert!(held.has_writes());
        assert_eq!(held.set(0, 9, Some(RangeLock::Write)), Ok(true));
        // Others of this process, closed: locks of the process would end.
        drop(open(RangeLock::Write));
        drop(std::fs::read(&path).expect("read"));
        let other = open(RangeLock::Read);
        assert!(!other.has_writes());
        assert_eq!(other.set(5, u64::MAX, Some(RangeLock::Read)), Ok(false));
        let lock = other.conflict(5, u64::MAX, RangeLock::Read).expect("asked").expect("held");
        assert_eq!((lock.first, lock.last, lock.kind), (0, 9, RangeLock::Write));
        // Without a right to write there are read locks only.
        assert_eq!(other.set(10, 20, Some(RangeLock::Write)), Ok(true));
        let lock = held.conflict(15, 15, RangeLock::Write).expect("asked").expect("held");
        assert_eq!((lock.first, lock.last, lock.kind), (10, 20, RangeLock::Read));
        // Behind all that a local process can lock.
        assert_eq!(held.set(u64::MAX, u64::MAX, Some(RangeLock::Write)), Ok(true));
        drop(held);
        assert_eq!(other.set(5, u64::MAX, Some(RangeLock::Read)), Ok(true));
        assert!(tree.open_to_lock(&root, RangeLock::Read).is_err());
    }
}
