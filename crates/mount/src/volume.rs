//! The mounted share: what each operation of a file system is as calls to the server.

mod directories;
mod files;
mod locking;
mod names;
mod objects;
mod recorded;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, INodeNo, Notifier};
use parking_lot::{Condvar, Mutex, RwLock};
use steadfast_client::{
    Attributes, ClientError, FileSystemStatistics, FileType, Identity, NfsStat3, Time, Wcc,
};

use crate::calls::Calls;
use crate::connect::Connected;
use crate::counters::Counters;
use crate::errors::Errno;
use crate::journaling::Journaling;
use crate::keeping::Keeping;
use crate::locks::Locks;
use crate::node::{Node, Nodes};
use crate::options::{LocalLocks, Options};
use crate::process::{Identities, Who};
use crate::recoverer::Recoverer;
use crate::recovery::Recovery;
use crate::server::Server;
use crate::transport::Patience;
use crate::write_back::WriteBack;

pub(crate) use directories::Listed;
pub(crate) use directories::OpenDirectory;
pub(crate) use files::{OpenFile, Opened, Placed};
pub(crate) use locking::Asked;
pub(crate) use names::Making;
pub(crate) use objects::Changes;

/// `df`, and whoever looks at the root, get an answer within a second though the server is gone.
const PROMPT: Duration = Duration::from_millis(700);
/// Numbers of files whose pages the kernel is to drop, that wait for that.
const STALE_MAX: usize = 1024;
/// The size of a block as statfs and stat tell it, in bytes.
const BLOCK_BYTES: u32 = 4096;

type Outcome<T> = Result<T, Errno>;

/// Who asks, and how long they wait.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) identity: Identity,
    pub(crate) patience: Patience,
}

/// A mounted share.
#[derive(Debug)]
pub(crate) struct Volume {
    server: Arc<Server>,
    options: Options,
    nodes: Arc<Nodes>,
    identities: Identities,
    write_back: Arc<WriteBack>,
    /// Unless all locks are this host's alone.
    locks: Option<Arc<Locks>>,
    /// Whoever has the kernel drop pages at once.
    kernel: OnceLock<Notifier>,
    /// With a journal.
    keeping: Option<Arc<Keeping>>,
    read_bytes: u32,
    listing_bytes: u32,
    name_bytes_max: u32,
    files: RwLock<HashMap<u64, Arc<OpenFile>>>,
    directories: RwLock<HashMap<u64, Arc<OpenDirectory>>>,
    next_open: AtomicU64,
    statistics: Mutex<Option<FileSystemStatistics>>,
    /// Files that are closed here, and open at the server until their data is safe there.
    closing: Mutex<Vec<(Arc<Node>, Identity)>>,
    /// Hidden files that are closed and not yet removed.
    removing: Mutex<usize>,
    has_removed: Condvar,
}

impl Volume {
    /// A share to which the connection stands; with the numbers of files whose pages are stale.
    pub(crate) fn new(
        connected: Connected,
        options: Options,
        journaling: Option<Arc<Journaling>>,
        recovery: Option<Arc<Recovery>>,
    ) -> std::io::Result<(Self, Receiver<u64>)> {
        let times = options.cache_times;
        let locks = (options.local_locks != LocalLocks::ALL)
            .then(|| Locks::start(&connected.server, &connected.root, &options))
            .transpose()?;
        let (stale, receiver) = sync_channel(STALE_MAX);
        let nodes = Arc::new(Nodes::new(connected.root, &connected.attributes, times, stale));
        let write_back = WriteBack::start(
            Arc::clone(&connected.server),
            Arc::clone(&nodes),
            times,
            connected.write_bytes,
            connected.file_bytes_max,
            journaling.clone(),
            recovery.clone(),
        )?;
        let keeping = match (journaling, recovery) {
            (Some(journaling), Some(recovery)) => {
                let (server, kept) = (Arc::clone(&connected.server), Arc::clone(&nodes));
                let nodes = Arc::clone(&nodes);
                let recoverer = Recoverer {
                    recovery: Arc::clone(&recovery),
                    server: Arc::clone(&server),
                    journaling: Arc::clone(&journaling),
                    write_back: Arc::clone(&write_back),
                    nodes,
                };
                recoverer.start()?;
                let write_back = Arc::clone(&write_back);
                Some(Keeping::start(journaling, recovery, server, write_back, kept)?)
            }
            _ => None,
        };
        let volume = Self {
            server: connected.server,
            options,
            nodes,
            identities: Identities::default(),
            write_back,
            locks,
            kernel: OnceLock::new(),
            keeping,
            read_bytes: connected.read_bytes,
            listing_bytes: connected.listing_bytes,
            name_bytes_max: connected.name_bytes_max,
            files: RwLock::default(),
            directories: RwLock::default(),
            next_open: AtomicU64::new(1),
            statistics: Mutex::new(connected.statistics),
            closing: Mutex::default(),
            removing: Mutex::default(),
            has_removed: Condvar::new(),
        };
        Ok((volume, receiver))
    }

    pub(crate) fn asker(&self, who: Who) -> Asker {
        let patience = Patience { pid: who.pid, until: None };
        Asker { identity: self.identities.of(who), patience }
    }

    pub(crate) fn write_back(&self) -> &Arc<WriteBack> {
        &self.write_back
    }

    pub(crate) fn keeping(&self) -> Option<&Arc<Keeping>> {
        self.keeping.as_ref()
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// What the mount has done.
    pub(crate) fn counters(&self) -> &Counters {
        &self.server.link.counters
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    fn call<T>(
        &self,
        asker: &Asker,
        calls: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.server.call(&asker.identity, asker.patience, calls)
    }

    pub(crate) fn node(&self, number: u64) -> Outcome<Arc<Node>> {
        self.nodes.by_number(number).ok_or(Errno::ESTALE)
    }

    /// Makes a change of a directory, with what the reply says of it.
    fn change_directory<T>(
        &self,
        directory: &Node,
        wcc: impl Fn(&T) -> &Wcc,
        change: impl FnOnce() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let begun = directory.begin_change();
        let outcome = change();
        let told = match &outcome {
            Ok(done) => Some(wcc(done)),
            Err(ClientError::Failed(failure)) => Some(&failure.wcc),
            Err(_) => None,
        };
        directory.end_change(begun, told, &self.options.cache_times);
        of_node(directory, outcome)
    }

    fn next_open(&self) -> u64 {
        self.next_open.fetch_add(1, Ordering::Relaxed)
    }
}

/// Heeds that the server does not know a node's handle any more.
fn of_node<T>(node: &Node, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
    let status = outcome.as_ref().err().and_then(ClientError::status);
    if matches!(status, Some(NfsStat3::Stale | NfsStat3::BadHandle)) {
        node.die();
    }
    outcome
}

/// Has the kernel drop stale pages, until the volume is gone. Apart from the threads that answer
/// requests, since the kernel may hold the pages until such a request is answered.
pub(crate) fn drop_stale_pages(stale: &Receiver<u64>, kernel: &Notifier) {
    while let Ok(number) = stale.recv() {
        if let Err(error) = kernel.inval_inode(INodeNo(number), 0, 0) {
            tracing::debug!(number, %error, "the kernel does not drop pages");
        }
    }
}

/// Attributes as FUSE has them.
pub(crate) fn attributes_of(node: &Node) -> FileAttr {
    fuse_attributes(node.number, &node.attributes(), node.is_hidden())
}

fn fuse_attributes(number: u64, attributes: &Attributes, is_hidden: bool) -> FileAttr {
    let (major, minor) = attributes.rdev;
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.used.div_ceil(512),
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attributes.file_type),
        perm: (attributes.mode & 0o7777) as u16,
        // A removed file that is still open has its last link at the server alone.
        nlink: attributes.nlink.saturating_sub(u32::from(is_hidden)),
        uid: attributes.uid,
        gid: attributes.gid,
        // As the kernel packs device numbers (`new_encode_dev`).
        rdev: (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Fifo => fuser::FileType::NamedPipe,
    }
}

/// Times of NFSv3 end in 2106.
fn system_time(time: Time) -> SystemTime {
    UNIX_EPOCH + Duration::new(u64::from(time.seconds), time.nanoseconds.min(999_999_999))
}

fn nfs_time(time: SystemTime) -> Time {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
    Time { seconds, nanoseconds: since.subsec_nanos() }
}

#[cfg(test)]
mod tests;
