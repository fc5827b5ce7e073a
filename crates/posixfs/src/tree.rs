//! A share's directory tree: how it is opened, and how handles and names become nodes.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode as Permissions, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use steadfast_sys::handle;
use steadfast_sys::identity::{self, Capability};
use steadfast_vfs::{
    Attr, Caller, Cred, Entry, FileKind, FileSystemIdentity, FsError, StorageHandle, Waiting,
};

use crate::attributes::{self, Identity};
use crate::budget::Descriptor;
use crate::error::from_errno;
use crate::handle_form;
use crate::logging::VolumeLog;
use crate::mounts::Mounts;
use crate::node::{Node, NodeParts};
use crate::storage::Storage;
use crate::stored::{self, Store};
use crate::volume::{Mount, Volume, stable_hash};
use crate::walking;

/// How a directory becomes a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions {
    /// The share's number, from which `fsid` is made: the same in every run.
    pub share_id: u64,
    /// Whether file systems mounted beneath the directory belong to the share.
    pub crosses_mounts: bool,
    /// Whether its changes are not to be logged, though there is a log.
    pub without_log: bool,
    /// Where handles are kept when the kernel gives none ([`Mode::StoredHandles`]).
    pub state_directory: Option<PathBuf>,
}

/// How objects are found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the kernel's handles; all users are served, each under his own identity.
    KernelHandles,
    /// By numbers kept in a store; one user is served, the server's own.
    StoredHandles,
}

/// Why a directory cannot become a tree.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened.
    #[error("cannot open {}: {source}", directory.display())]
    Open {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// It is not the directory that was looked at when the share was made.
    #[error(
        "{} is another directory than when it was shared: reload the shares to serve this one",
        .0.display()
    )]
    Replaced(PathBuf),
    /// Without kernel handles there must be a place to keep handles.
    #[error(
        "{} can only be served with handles kept in a store ({reason}), and there is no state \
         directory: give one, or run as root on a file system with file handles",
        directory.display()
    )]
    NoHandles {
        /// The directory.
        directory: PathBuf,
        /// Why the kernel's are not to be had.
        reason: &'static str,
    },
    /// Handles kept in a store are known to be of an object by its time of birth.
    #[error(
        "{} cannot be served: handles would have to be kept in a store ({reason}), and its file \
         system keeps no times of birth, so that a file could be taken for one that was removed",
        directory.display()
    )]
    NoBirths {
        /// The directory.
        directory: PathBuf,
        /// Why the kernel's handles are not to be had.
        reason: &'static str,
    },
    /// The store of handles cannot be opened.
    #[error("cannot open the handle store in {}: {source}", state_directory.display())]
    Store {
        /// Where it is.
        state_directory: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
}

/// A share's directory tree.
pub struct Tree {
    pub(crate) id: u32,
    pub(crate) storage: Arc<Storage>,
    options: TreeOptions,
    /// Where handles are kept, if the kernel gives none.
    store: Option<Store>,
    /// Whether the process may take callers' identities. Where it may not, all is done as its
    /// own user, whatever handles are made of.
    pub(crate) switches: bool,
    /// Whether the process may open files whatever their permission bits say.
    pub(crate) opens_all: bool,
    /// Whether the kernel keeps `..` and submounts out: the mount is a private clone.
    is_private: bool,
    root: Arc<Node>,
    mounts: Mounts,
    volumes: RwLock<Vec<Arc<Volume>>>,
    /// The directory as it was opened, so that its file system is not unmounted meanwhile.
    _original: OwnedFd,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.storage.cache.remove_tree(self.id);
    }
}

/// What a node is opened with, before there is a tree.
pub(crate) const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Tree {
    /// Opens the tree beneath `directory`.
    ///
    /// # Errors
    /// When the directory cannot be opened, or its objects could not be found again.
    pub fn open(
        directory: &Path,
        options: &TreeOptions,
        server: &Arc<Storage>,
    ) -> Result<Self, OpenError> {
        let failed = |errno: Errno| OpenError::Open {
            directory: directory.to_owned(),
            source: errno.into(),
        };
        // A thread that opens a tree may have served a caller before. Without the means to
        // switch there is nothing to switch back from.
        let switches = identity::assume_server().is_ok();
        let opens_all = identity::capabilities()
            .is_ok_and(|(effective, _)| effective.has(Capability::DAC_OVERRIDE));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let original = rustix::fs::open(directory, flags, Permissions::empty()).map_err(failed)?;
        let stat = rustix::fs::statx(&original, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(failed)?;
        if attributes::kind(&stat) != FileKind::Directory {
            return Err(OpenError::NotDirectory(directory.to_owned()));
        }
        let share = std::fs::canonicalize(directory)
            .map_err(|source| OpenError::Open { directory: directory.to_owned(), source })?;
        let (path, is_private) =
            private_mount(&original, options.crosses_mounts).map_err(failed)?;
        let open_failed = |error: FsError| OpenError::Open {
            directory: directory.to_owned(),
            source: std::io::Error::other(error),
        };
        let root = attributes::stat_with_mount(&path).map_err(open_failed)?;
        let mount =
            Mount::new(0, root.stx_mnt_id, path, &server.aliases, &share).map_err(open_failed)?;
        let mount = Arc::new(mount);
        let stored = |reason| stored(directory, options, &root, is_overlay(&mount), reason);
        let kernel = handle::of(&mount.path)
            .and_then(|kernel| handle::open(&mount.open, &kernel, PATH_FLAGS).map(|_| kernel));
        let (handle, store) = match kernel.map(|kernel| mount.handle(&kernel)) {
            Ok(Some(handle)) => (handle, None),
            Ok(None) => stored("its file handles are too long")?,
            Err(Errno::PERM) => stored("CAP_DAC_READ_SEARCH is missing")?,
            Err(_) => stored("its file system has no file handles")?,
        };
        let identity = attributes::identity(&stat);
        let fsid = stable_hash(&[b"share", &options.share_id.to_le_bytes()]);
        let domain = server.domain(identity.device);
        let volume =
            Volume::new(&mount.path, identity.device, domain, fsid).map_err(open_failed)?;
        let log = if store.is_none() && switches {
            join_log(server, options, &volume, &mount, &share).map_err(open_failed)?
        } else {
            None
        };
        let volume = Arc::new(volume.with_log(log, Arc::clone(&mount.aliases)));
        let id = server.new_tree();
        let root_path = rustix::fs::openat(&mount.path, c".", PATH_FLAGS, Permissions::empty())
            .map_err(failed)?;
        let root = server.cache.insert(Node::new(NodeParts {
            tree: id,
            handle,
            identity,
            kind: FileKind::Directory,
            volume: Arc::clone(&volume),
            mount: Arc::clone(&mount),
            path: Descriptor::new(root_path, &server.budget),
            order: server.order(&volume, identity),
            opens_all,
            budget: Arc::clone(&server.budget),
        }));
        Ok(Self {
            id,
            storage: Arc::clone(server),
            options: options.clone(),
            store,
            switches,
            opens_all,
            is_private,
            root,
            mounts: Mounts::new(share, mount, Arc::clone(&server.aliases)),
            volumes: RwLock::new(vec![volume]),
            _original: original,
        })
    }

    /// How objects are found again.
    pub fn mode(&self) -> Mode {
        match self.store {
            None => Mode::KernelHandles,
            Some(_) => Mode::StoredHandles,
        }
    }

    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    pub(crate) fn root_node(&self) -> &Arc<Node> {
        &self.root
    }

    /// Makes the kernel decide by the caller's identity what this thread changes.
    pub(crate) fn assume(&self, cred: &Cred) -> Result<(), FsError> {
        match self.mode() {
            // A switch that failed is the server's trouble, not an answer about permission.
            Mode::KernelHandles if self.switches => {
                identity::assume(cred.uid, cred.gid, &cred.groups).map_err(|errno| {
                    tracing::error!(uid = cred.uid, "cannot take a caller's identity: {errno}");
                    FsError::TryLater
                })
            }
            Mode::KernelHandles if cred.uid == rustix::process::geteuid().as_raw() => Ok(()),
            Mode::KernelHandles => Err(FsError::NotPermitted),
            // One user is served, the server's own; the thread may have served another tree.
            Mode::StoredHandles => self.assume_server(),
        }
    }

    /// Whose what is made after [`Tree::assume`] is.
    pub(crate) fn acting_uid(&self, cred: &Cred) -> u32 {
        match self.mode() {
            Mode::KernelHandles if self.switches => cred.uid,
            _ => rustix::process::geteuid().as_raw(),
        }
    }

    /// Makes the kernel decide by the server's own identity, for what was decided here.
    pub(crate) fn assume_server(&self) -> Result<(), FsError> {
        if !self.switches {
            return Ok(());
        }
        identity::assume_server().map_err(|errno| {
            tracing::error!("cannot return to the server's identity: {errno}");
            FsError::TryLater
        })
    }

    /// The node of a handle.
    pub(crate) fn node(
        &self,
        handle: &StorageHandle,
        waiting: Waiting,
    ) -> Result<Arc<Node>, FsError> {
        if let Some(node) = self.storage.cache.find(self.id, handle) {
            return Ok(node);
        }
        if waiting == Waiting::Never {
            return Err(FsError::WouldBlock);
        }
        if let Some(store) = &self.store {
            return self.stored_node(store, handle);
        }
        let (mount, kernel) = handle_form::parse(handle).ok_or(FsError::BadHandle)?;
        let mount = self.mounts.numbered(mount, self.options.crosses_mounts)?;
        let kernel = mount.actual(handle, kernel)?;
        let path = handle::open(&mount.open, &kernel, PATH_FLAGS).map_err(|errno| match errno {
            // What the file system cannot make sense of is from before it was made anew.
            Errno::NOENT | Errno::INVAL | Errno::OVERFLOW => FsError::Stale,
            errno => from_errno(errno),
        })?;
        let stat = attributes::stat(&path)?;
        if stat.stx_nlink == 0 {
            return Err(FsError::Stale);
        }
        let kind = attributes::kind(&stat);
        // Moved out of the share by a local process: not ours any more.
        if kind == FileKind::Directory && !self.is_inside(&path, attributes::identity(&stat)) {
            return Err(FsError::Stale);
        }
        let identity = attributes::identity(&stat);
        let volume = self.volume(&path, identity.device, &mount)?;
        Ok(self.storage.cache.insert(Node::new(NodeParts {
            tree: self.id,
            handle: *handle,
            identity,
            kind,
            order: self.storage.order(&volume, identity),
            volume,
            mount,
            path: Descriptor::new(path, &self.storage.budget),
            opens_all: self.opens_all,
            budget: Arc::clone(&self.storage.budget),
        })))
    }

    /// The node of a handle, and its attributes now. An object without a name is let go.
    pub(crate) fn live(
        &self,
        handle: &StorageHandle,
        waiting: Waiting,
    ) -> Result<(Arc<Node>, Attr), FsError> {
        let node = self.node(handle, waiting)?;
        match node.attr() {
            Ok(attr) => Ok((node, attr)),
            Err(error) => {
                if error == FsError::Stale {
                    self.storage.cache.remove(&node);
                }
                Err(error)
            }
        }
    }

    /// As [`Tree::live`], for directories only.
    pub(crate) fn live_directory(
        &self,
        handle: &StorageHandle,
        waiting: Waiting,
    ) -> Result<(Arc<Node>, Attr), FsError> {
        let (node, attr) = self.live(handle, waiting)?;
        if attr.kind == FileKind::Directory { Ok((node, attr)) } else { Err(FsError::NotDirectory) }
    }

    /// As [`Node::reader`], within the budget of descriptors.
    pub(crate) fn reader<'n>(&self, node: &'n Node) -> Result<&'n Descriptor, FsError> {
        if node.has_reader() {
            return node.reader();
        }
        let reader = node.reader()?;
        self.storage.cache.make_room();
        Ok(reader)
    }

    /// As [`Node::writer`], within the budget of descriptors. Leaves the thread with the server's
    /// identity if the file had to be opened.
    pub(crate) fn writer(&self, node: &Node) -> Result<Arc<Descriptor>, FsError> {
        if let Some(writer) = node.kept_writer() {
            return Ok(writer);
        }
        self.assume_server()?;
        let writer = node.writer()?;
        self.storage.cache.make_room();
        Ok(writer)
    }

    /// The object of a name in a directory. Permission is the caller's business.
    pub(crate) fn child(&self, dir: &Node, name: &[u8]) -> Result<(Arc<Node>, Attr), FsError> {
        let stat = attributes::stat_name(&dir.path, name).map_err(from_errno)?;
        self.require_same_mount(&stat, dir)?;
        if let Some(node) = self.storage.cache.find_inode(self.id, attributes::identity(&stat)) {
            let attr = node.volume.present(&stat, &node.handle);
            return Ok((node, attr));
        }
        let path = self.open_name(dir, name)?;
        self.adopt(path, dir, name)
    }

    /// Opens a name in a directory as an `O_PATH` descriptor, by the server's own powers.
    pub(crate) fn open_name(&self, dir: &Node, name: &[u8]) -> Result<OwnedFd, FsError> {
        let opened = if self.is_private || self.options.crosses_mounts {
            rustix::fs::openat(&dir.path, name, PATH_FLAGS, Permissions::empty())
        } else {
            let resolve = ResolveFlags::NO_XDEV | ResolveFlags::BENEATH;
            rustix::fs::openat2(&dir.path, name, PATH_FLAGS, Permissions::empty(), resolve)
        };
        opened.map_err(|errno| match errno {
            Errno::XDEV => FsError::AccessDenied,
            errno => from_errno(errno),
        })
    }

    /// Refuses what is mounted beneath, if the share does not cross mounts.
    fn require_same_mount(&self, stat: &Statx, dir: &Node) -> Result<(), FsError> {
        let is_within = self.is_private
            || self.options.crosses_mounts
            || stat.stx_mnt_id == dir.mount.kernel_id;
        if is_within { Ok(()) } else { Err(FsError::AccessDenied) }
    }

    /// The node of an object just opened as `name` in `dir`.
    fn adopt(&self, path: OwnedFd, dir: &Node, name: &[u8]) -> Result<(Arc<Node>, Attr), FsError> {
        let (stat, handle, mount) = self.identify(&path, dir, name)?;
        let identity = attributes::identity(&stat);
        let volume = self.volume(&path, identity.device, &mount)?;
        let attr = volume.present(&stat, &handle);
        let node = self.storage.cache.insert(Node::new(NodeParts {
            tree: self.id,
            handle,
            identity,
            kind: attr.kind,
            order: self.storage.order(&volume, identity),
            volume,
            mount,
            path: Descriptor::new(path, &self.storage.budget),
            opens_all: self.opens_all,
            budget: Arc::clone(&self.storage.budget),
        }));
        Ok((node, attr))
    }

    fn identify(
        &self,
        path: &OwnedFd,
        dir: &Node,
        name: &[u8],
    ) -> Result<(Statx, StorageHandle, Arc<Mount>), FsError> {
        let stat = attributes::stat_with_mount(path)?;
        if stat.stx_nlink == 0 {
            return Err(FsError::NotFound);
        }
        let mount = self.mount_of(&stat, dir)?;
        if let Some(store) = &self.store {
            let handle = walking::stored_handle(store, &stat, dir, name)?;
            return Ok((stat, handle, mount));
        }
        let kernel = handle::of(path).map_err(from_errno)?;
        let handle = mount.handle(&kernel).ok_or(FsError::NotSupported)?;
        Ok((stat, handle, mount))
    }

    /// Handle and attributes of a name, without holding the object open.
    pub(crate) fn glance(&self, dir: &Node, name: &[u8]) -> Result<Entry, FsError> {
        let stat = attributes::stat_name(&dir.path, name).map_err(from_errno)?;
        self.glance_at(dir, name, &stat)
    }

    /// As [`Tree::glance`] at a name that was looked at just now.
    pub(crate) fn glance_at(
        &self,
        dir: &Node,
        name: &[u8],
        stat: &Statx,
    ) -> Result<Entry, FsError> {
        self.require_same_mount(stat, dir)?;
        let identity = attributes::identity(stat);
        if let Some(node) = self.storage.cache.find_inode(self.id, identity) {
            return Ok(Entry {
                handle: node.handle,
                attr: node.volume.present(stat, &node.handle),
            });
        }
        // On the same volume, and where the handle shows the inode number, so that a name that
        // was given to another file between the two calls is noticed, it need not be opened.
        if self.store.is_none()
            && identity.device == dir.volume.device
            && stat.stx_mnt_id == dir.mount.kernel_id
            && let Ok(kernel) = handle::of_name(&dir.path, name)
            && dir.volume.inode_of(&kernel) == Some(identity.inode)
            && let Some(handle) = dir.mount.handle(&kernel)
        {
            return Ok(Entry { handle, attr: dir.volume.present(stat, &handle) });
        }
        if let Some(store) = &self.store
            && identity.device == dir.volume.device
        {
            let handle = walking::stored_handle(store, stat, dir, name)?;
            return Ok(Entry { handle, attr: dir.volume.present(stat, &handle) });
        }
        let path = self.open_name(dir, name)?;
        let (stat, handle, mount) = self.identify(&path, dir, name)?;
        let volume = self.volume(&path, attributes::identity(&stat).device, &mount)?;
        Ok(Entry { handle, attr: volume.present(&stat, &handle) })
    }

    /// The directory above `dir`, which is not the root. [`FsError::Stale`] if that is outside.
    pub(crate) fn parent(&self, dir: &Node) -> Result<(Arc<Node>, Attr), FsError> {
        let flags = PATH_FLAGS | OFlags::DIRECTORY;
        let path = rustix::fs::openat(&dir.path, c"..", flags, Permissions::empty())
            .map_err(outside_is_stale)?;
        let stat = attributes::stat(&path)?;
        let identity = attributes::identity(&stat);
        if !self.is_inside(&path, identity) {
            return Err(FsError::Stale);
        }
        if let Some(node) = self.storage.cache.find_inode(self.id, identity) {
            let attr = node.volume.present(&stat, &node.handle);
            return Ok((node, attr));
        }
        if let Some(store) = &self.store {
            let node = self.stored_parent(store, dir, identity)?;
            let attr = node.volume.present(&stat, &node.handle);
            return Ok((node, attr));
        }
        self.adopt(path, dir, b"..")
    }

    /// Whether a directory is the root or beneath it.
    fn is_inside(&self, dir: &OwnedFd, identity: Identity) -> bool {
        let root = self.root.identity;
        if identity == root {
            return true;
        }
        if self.is_private {
            // The kernel refuses to go up to what is not beneath the mount's root.
            return attributes::stat_name(dir, b"..").is_ok();
        }
        let mut above: Option<OwnedFd> = None;
        let mut last = identity;
        for _ in 0..DEPTH_MAX {
            let flags = PATH_FLAGS | OFlags::DIRECTORY;
            let from = above.as_ref().unwrap_or(dir);
            let Ok(next) = rustix::fs::openat(from, c"..", flags, Permissions::empty()) else {
                return false;
            };
            let Ok(stat) = attributes::stat(&next) else { return false };
            let identity = attributes::identity(&stat);
            if identity == root {
                return true;
            }
            if identity == last {
                return false;
            }
            last = identity;
            above = Some(next);
        }
        false
    }

    /// The mount that an object just opened in `dir` is on.
    fn mount_of(&self, stat: &Statx, dir: &Node) -> Result<Arc<Mount>, FsError> {
        if stat.stx_mnt_id == dir.mount.kernel_id {
            return Ok(Arc::clone(&dir.mount));
        }
        if !self.options.crosses_mounts {
            return Err(FsError::AccessDenied);
        }
        self.mounts.of_kernel(stat.stx_mnt_id)
    }

    /// The volume of a device, which `object` is on.
    pub(crate) fn volume(
        &self,
        object: &OwnedFd,
        device: u64,
        mount: &Mount,
    ) -> Result<Arc<Volume>, FsError> {
        let find = |volumes: &[Arc<Volume>]| {
            volumes.iter().find(|volume| volume.device == device).cloned()
        };
        if let Some(volume) = find(&self.volumes.read()) {
            return Ok(volume);
        }
        let stat = rustix::fs::statx(
            object,
            c"",
            AtFlags::EMPTY_PATH,
            StatxFlags::from_bits_retain(STATX_SUBVOL),
        )
        .map_err(from_errno)?;
        // Before Linux 6.10 subvolumes have only the device number, which a reboot may change.
        let part = if stat.stx_mask & STATX_SUBVOL != 0 { stat.stx_subvol } else { device };
        let fsid = stable_hash(&[
            b"part",
            &self.options.share_id.to_le_bytes(),
            &mount.id.to_le_bytes(),
            &part.to_le_bytes(),
        ]);
        let domain = self.storage.domain(device);
        let volume = Volume::new(object, device, domain, fsid)?;
        let log = match self.mode() {
            Mode::KernelHandles if self.switches => {
                join_log(&self.storage, &self.options, &volume, mount, self.mounts.share())?
            }
            _ => None,
        };
        let volume = Arc::new(volume.with_log(log, Arc::clone(&mount.aliases)));
        // Another thread may have met it meanwhile.
        let mut volumes = self.volumes.write();
        if let Some(known) = find(&volumes) {
            return Ok(known);
        }
        volumes.push(Arc::clone(&volume));
        Ok(volume)
    }
}

const STATX_SUBVOL: u32 = 0x8000;

/// Deeper than any path that can be named in one call.
const DEPTH_MAX: usize = 4096;

fn outside_is_stale(errno: Errno) -> FsError {
    match errno {
        Errno::NOENT => FsError::Stale,
        errno => from_errno(errno),
    }
}

/// The root's handle and the store, for where the kernel gives no handles.
fn stored(
    directory: &Path,
    options: &TreeOptions,
    root: &Statx,
    is_overlay: bool,
    reason: &'static str,
) -> Result<(StorageHandle, Option<Store>), OpenError> {
    if !is_overlay && !stored::has_birth(root) {
        return Err(OpenError::NoBirths { directory: directory.to_owned(), reason });
    }
    let missing = || OpenError::NoHandles { directory: directory.to_owned(), reason };
    let state_directory = options.state_directory.as_ref().ok_or_else(missing)?;
    let store = Store::open(state_directory, options.share_id).map_err(|error| {
        OpenError::Store { state_directory: state_directory.clone(), source: Box::new(error) }
    })?;
    tracing::warn!(
        "{}: {reason}: handles are kept in {}, and one user is served",
        directory.display(),
        state_directory.display()
    );
    let store = store.with_overlay(is_overlay.then_some(root.stx_mnt_id));
    let handle = store.handle(stored::ROOT).ok_or_else(missing)?;
    Ok((handle, Some(store)))
}

/// Whether objects get another time of birth while they live; see [`crate::stored`].
fn is_overlay(mount: &Mount) -> bool {
    const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
    rustix::fs::fstatfs(&mount.path)
        .is_ok_and(|facts| facts.f_type as u64 & 0xffff_ffff == OVERLAYFS_MAGIC)
}

/// A mount of just the tree, beyond which nothing can be reached, if the process may make one;
/// else the directory itself. Says which.
fn private_mount(original: &OwnedFd, crosses_mounts: bool) -> Result<(OwnedFd, bool), Errno> {
    if !crosses_mounts {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        match rustix::mount::open_tree(original, c"", flags) {
            Ok(mount) => return Ok((mount, true)),
            Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::openat(original, c".", OFlags::PATH | OFlags::CLOEXEC, Permissions::empty())
        .map(|path| (path, false))
}

/// The log's part for a volume, of which `directory` is a place that people know.
fn join_log(
    server: &Storage,
    options: &TreeOptions,
    volume: &Volume,
    mount: &Mount,
    directory: &Path,
) -> Result<Option<VolumeLog>, FsError> {
    let Some(log) = server.change_log.as_ref().filter(|_| volume.can_be_logged()) else {
        return Ok(None);
    };
    let uuid = match steadfast_sys::volume::uuid(&mount.open) {
        Ok(uuid) => uuid,
        Err(errno) => {
            tracing::warn!(
                "{}: its file system cannot be identified ({errno}): changes are flushed instead \
                 of logged",
                directory.display()
            );
            return Ok(None);
        }
    };
    // A descriptor of its own, which remembers which errors it was told.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open =
        rustix::fs::openat(&mount.path, c".", flags, Permissions::empty()).map_err(from_errno)?;
    let identity = FileSystemIdentity { uuid, kind: volume.magic };
    let path = directory.as_os_str().as_bytes();
    VolumeLog::join(log, &identity, path, mount.kernel_id, open, !options.without_log)
}

/// Whether a caller lets an operation wait.
pub(crate) fn may_wait(caller: &Caller<'_>) -> bool {
    caller.waiting == Waiting::Allowed
}
