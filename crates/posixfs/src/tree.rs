//! A share's directory tree: how handles and names become nodes.
//!
//! What a tree does with them is in its parts: each has the operations of one subject, and names only
//! what stands beside it where it needs that.

mod changing;
mod extents;
mod guarding;
mod listing;
mod making;
mod naming;
mod opening;
mod range_locks;
mod reading;
mod setting;
mod walking;
mod writing;
mod xattrs;

use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode as Permissions, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use steadfast_recovery::LoggedFileSystem;
use steadfast_sys::handle;
use steadfast_sys::identity;
use steadfast_vfs::{
    Attr, Caller, Cred, Entry, FileKind, FlushDomain, FsError, StorageHandle, Waiting,
};

use self::opening::join_log;
pub(crate) use self::opening::{Expected, FoundBy};
pub use self::opening::{Mode, OpenError, SizePlace, TreeOptions};

use crate::attributes::{self, Identity};
use crate::budget::Descriptor;
use crate::error::from_errno;
use crate::handle_form;
use crate::marks;
use crate::mounts::Mounts;
use crate::node::{Node, NodeParts, NodePin};
use crate::pins;
use crate::qgroup::Qgroup;
use crate::storage::Storage;
use crate::stored::Store;
use crate::volume::{Mount, Volume, stable_hash};
use crate::volume_log::VolumeLog;

/// A share's directory tree.
pub struct Tree {
    pub(crate) id: u32,
    pub(crate) storage: Arc<Storage>,
    options: TreeOptions,
    /// Where handles are kept, if the kernel gives none.
    store: Option<Box<Store>>,
    /// Whether the process may take callers' identities. Where it may not, all is done as its
    /// own user, whatever handles are made of.
    pub(crate) switches: bool,
    /// Whether the process may open files whatever their permission bits say.
    pub(crate) opens_all: bool,
    /// Whether the kernel keeps `..` and submounts out: the mount is a private clone.
    is_private: bool,
    root: NodePin<pins::Root>,
    /// Of the root's file system.
    pub(crate) domain: FlushDomain,
    /// Of the root's file system, as the kernel numbers it.
    device: u64,
    mounts: Mounts,
    /// The directory as it was opened, so that its file system is not unmounted meanwhile.
    _original: OwnedFd,
    /// Dropped last: that tells the log that all else is closed and the disk can be unmounted.
    volumes: RwLock<Vec<Arc<Volume>>>,
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
    /// How objects are found again.
    pub fn mode(&self) -> Mode {
        match self.store {
            None => Mode::KernelHandles,
            Some(_) => Mode::StoredHandles,
        }
    }

    /// Whether it has something of the file system that the log knows by this number.
    pub fn uses(&self, file_system: LoggedFileSystem) -> bool {
        self.mounts.reach(file_system)
    }

    /// Why it takes no changes, if one of its file systems could not be flushed.
    pub fn fault(&self) -> Option<String> {
        let volumes = self.volumes.read();
        volumes.iter().filter_map(|volume| volume.log.as_ref()).find_map(VolumeLog::fault)
    }

    /// Why its file system of this device takes no changes, if it could not be flushed.
    pub fn fault_on(&self, device: u64) -> Option<String> {
        let volumes = self.volumes.read();
        let mut there = volumes.iter().filter(|volume| volume.device == device);
        there.find_map(|volume| volume.log.as_ref()?.fault())
    }

    /// Whether it can be closed and opened again without anybody noticing: handles are the kernel's,
    /// changes are taken, and nothing is to be flushed yet, of which a COMMIT must hear how that went.
    /// `staying` are the trees of which an object must not be let go.
    pub(crate) fn can_be_let_go(&self, staying: &HashSet<u32>) -> bool {
        self.store.is_none()
            && self.fault().is_none()
            && !staying.contains(&self.id)
            && !self.mounts.have_let_go()
    }

    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_deref()
    }

    pub(crate) fn root_node(&self) -> &NodePin<pins::Root> {
        &self.root
    }

    /// Makes the kernel decide by the caller's identity what this thread changes.
    pub(crate) fn assume(&self, cred: &Cred) -> Result<(), FsError> {
        identity::without_umask();
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
    ) -> Result<NodePin, FsError> {
        if let Some(node) = self.storage.cache.find(self.id, handle) {
            return Ok(node);
        }
        if waiting == Waiting::Never {
            return Err(FsError::WouldOpen);
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
            path: self.counted(path),
            opens_all: self.opens_all,
            budget: Arc::clone(&self.storage.budget),
        })))
    }

    /// The node of a handle, and its attributes now. An object without a name is let go.
    pub(crate) fn live(
        &self,
        handle: &StorageHandle,
        waiting: Waiting,
    ) -> Result<(NodePin, Attr), FsError> {
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
    ) -> Result<(NodePin, Attr), FsError> {
        let (node, attr) = self.live(handle, waiting)?;
        if attr.kind == FileKind::Directory { Ok((node, attr)) } else { Err(FsError::NotDirectory) }
    }

    /// As [`Node::reader`], within the budget of descriptors.
    pub(crate) fn reader(&self, node: &Node) -> Result<Arc<Descriptor>, FsError> {
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
    pub(crate) fn child(&self, dir: &Node, name: &[u8]) -> Result<(NodePin, Attr), FsError> {
        marks::require_no_mark(dir, name)?;
        let stat = attributes::stat_name(&dir.path, name).map_err(from_errno)?;
        self.require_same_mount(&stat, dir)?;
        if let Some(node) =
            self.storage.cache.find_inode(self.id, attributes::identity(&stat), stat.stx_mnt_id)
        {
            let attr = node.volume.present(&stat, &node.handle);
            return Ok((node, attr));
        }
        let path = self.open_name(dir, name)?;
        let stat = attributes::stat_with_mount(&path)?;
        self.adopt(self.counted(path), &stat, dir, name)
    }

    /// A descriptor within the budget.
    pub(crate) fn counted(&self, descriptor: OwnedFd) -> Arc<Descriptor> {
        Arc::new(Descriptor::new(descriptor, &self.storage.budget))
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

    /// The node of an object just opened as `name` in `dir`, where this was found.
    pub(crate) fn adopt(
        &self,
        path: Arc<Descriptor>,
        stat: &Statx,
        dir: &Node,
        name: &[u8],
    ) -> Result<(NodePin, Attr), FsError> {
        let (handle, mount) = self.identify(&path, stat, dir, name)?;
        let identity = attributes::identity(stat);
        let volume = self.volume(&path, identity.device, &mount)?;
        let attr = volume.present(stat, &handle);
        let node = self.storage.cache.insert(Node::new(NodeParts {
            tree: self.id,
            handle,
            identity,
            kind: attr.kind,
            order: self.storage.order(&volume, identity),
            volume,
            mount,
            path,
            opens_all: self.opens_all,
            budget: Arc::clone(&self.storage.budget),
        }));
        Ok((node, attr))
    }

    fn identify(
        &self,
        path: impl AsFd,
        stat: &Statx,
        dir: &Node,
        name: &[u8],
    ) -> Result<(StorageHandle, Arc<Mount>), FsError> {
        if stat.stx_nlink == 0 {
            return Err(FsError::NotFound);
        }
        let mount = self.mount_of(stat, dir)?;
        if let Some(store) = &self.store {
            let handle = walking::stored_handle(store, stat, dir, name)?;
            return Ok((handle, mount));
        }
        let kernel = handle::of(path).map_err(from_errno)?;
        let handle = mount.handle(&kernel).ok_or(FsError::NotSupported)?;
        Ok((handle, mount))
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
        if let Some(node) = self.storage.cache.find_inode(self.id, identity, stat.stx_mnt_id) {
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
        let stat = attributes::stat_with_mount(&path)?;
        let (handle, mount) = self.identify(&path, &stat, dir, name)?;
        let volume = self.volume(&path, attributes::identity(&stat).device, &mount)?;
        Ok(Entry { handle, attr: volume.present(&stat, &handle) })
    }

    /// The directory above `dir`, which is not the root. [`FsError::Stale`] if that is outside.
    pub(crate) fn parent(&self, dir: &Node) -> Result<(NodePin, Attr), FsError> {
        let flags = PATH_FLAGS | OFlags::DIRECTORY;
        let path = rustix::fs::openat(&dir.path, c"..", flags, Permissions::empty())
            .map_err(outside_is_stale)?;
        let stat = attributes::stat_with_mount(&path)?;
        let identity = attributes::identity(&stat);
        if !self.is_inside(&path, identity) {
            return Err(FsError::Stale);
        }
        if let Some(node) = self.storage.cache.find_inode(self.id, identity, stat.stx_mnt_id) {
            let attr = node.volume.present(&stat, &node.handle);
            return Ok((node, attr));
        }
        if let Some(store) = &self.store {
            let node = self.stored_parent(store, dir, identity)?;
            let attr = node.volume.present(&stat, &node.handle);
            return Ok((node, attr));
        }
        self.adopt(self.counted(path), &stat, dir, b"..")
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

    /// The number of the mount that an object is on.
    pub(crate) fn mount_number(
        &self,
        object: &StorageHandle,
        waiting: Waiting,
    ) -> Result<u32, FsError> {
        match self.store {
            None => Ok(handle_form::mount(object)),
            // Where handles are kept it is not in them.
            Some(_) => Ok(self.node(object, waiting)?.mount.id),
        }
    }

    /// See [`FileSystem::known_path`](steadfast_vfs::FileSystem::known_path).
    pub(crate) fn path_of_known(&self, object: &StorageHandle) -> Option<PathBuf> {
        let node = self.node(object, Waiting::Never).ok()?;
        // Each mount is a private clone, so that paths on others do not begin at this root.
        if node.mount.id != self.root.mount.id {
            return None;
        }
        let below = node.path()?.strip_prefix(self.root.path()?).ok()?.to_owned();
        // The kernel knows no name of a file that was found by its handle alone: it tells the root's.
        let is_root = node.handle == self.root.handle;
        (is_root || !below.as_os_str().is_empty()).then_some(below)
    }

    /// See [`FileSystem::object`](steadfast_vfs::FileSystem::object).
    pub(crate) fn identity(&self, handle: &StorageHandle) -> (u64, StorageHandle) {
        let device = match handle_form::mount(handle) {
            0 => self.device,
            // Its mount may have been forgotten, and be found again.
            _ => self.node(handle, Waiting::Allowed).map_or(self.device, |node| node.volume.device),
        };
        (device, handle_form::key(handle).0)
    }

    /// See [`FileSystem::mount_points`](steadfast_vfs::FileSystem::mount_points).
    pub(crate) fn look_at_mount_points(
        &self,
        number: u32,
        waiting: Waiting,
        look: &mut dyn FnMut(&[PathBuf]),
    ) -> Result<(), FsError> {
        self.mounts.look_at_points(number, self.options.crosses_mounts, waiting, look)
    }

    /// What enforces the share's size, for an object of its root's subvolume.
    pub(crate) fn size_of(&self, object: &Node) -> Option<Qgroup> {
        self.options.size.now().filter(|_| object.volume.device == self.device)
    }

    /// The mount that an object just opened in `dir` is on.
    pub(crate) fn mount_of(&self, stat: &Statx, dir: &Node) -> Result<Arc<Mount>, FsError> {
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
        object: impl AsFd,
        device: u64,
        mount: &Mount,
    ) -> Result<Arc<Volume>, FsError> {
        let find = |volumes: &[Arc<Volume>]| {
            volumes.iter().find(|volume| volume.device == device).cloned()
        };
        let found = find(&self.volumes.read());
        if let Some(volume) = found {
            return Ok(volume);
        }
        let stat = rustix::fs::statx(
            &object,
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
        let volume = Arc::new(volume.with_log(
            log,
            Arc::clone(&mount.aliases),
            self.storage.async_changes(device),
        ));
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

/// Whether a caller lets an operation wait.
pub(crate) fn may_wait(caller: &Caller<'_>) -> bool {
    caller.waiting == Waiting::Allowed
}
