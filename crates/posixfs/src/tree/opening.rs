//! How a directory becomes a tree.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{AtFlags, Mode as Permissions, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use steadfast_recovery::FileSystemIdentity;
use steadfast_sys::handle::{self, KernelHandle};
use steadfast_sys::identity::{self, Capability};
use steadfast_vfs::{FileKind, FsError, StorageHandle};

use super::{PATH_FLAGS, Tree};
use crate::attributes::{self, Identity};
use crate::budget::Descriptor;
use crate::error::from_errno;
use crate::handle_form;
use crate::mounts::Mounts;
use crate::node::{Node, NodeParts};
use crate::qgroup::Qgroup;
use crate::storage::Storage;
use crate::stored::{self, Store};
use crate::volume::{Mount, Volume, stable_hash};
use crate::volume_log::{VolumeLog, WholeFileSystem};

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
    /// What enforces the share's size, if it has one.
    pub size: SizePlace,
}

/// What enforces a share's size; others may set it while the tree is in use.
#[derive(Clone, Debug, Default)]
pub struct SizePlace(Arc<RwLock<Option<Qgroup>>>);

impl SizePlace {
    /// What enforces it now; `None` without a size.
    pub fn now(&self) -> Option<Qgroup> {
        *self.0.read()
    }

    /// Notes what enforces it from now on.
    pub fn set(&self, qgroup: Option<Qgroup>) {
        *self.0.write() = qgroup;
    }
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
    /// It is on another file system than before.
    #[error("{} was on {was}, and is on {is} now", directory.display())]
    Elsewhere {
        /// The directory.
        directory: PathBuf,
        /// What it was on.
        was: String,
        /// What it is on.
        is: String,
    },
    /// Its objects are found otherwise than when the share was made, whose rules are for that.
    #[error(
        "{} is on another file system, or is served with other capabilities, than when it was \
         shared: reload the shares to serve it as it is now",
        .0.display()
    )]
    OtherMode(PathBuf),
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

/// What a tree is to be, since the rules of its share were checked against that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) mode: Mode,
    /// Of its root.
    pub(crate) identity: Identity,
}

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
        Self::open_as(None, directory, options, server)
    }

    /// As [`Tree::open`], unless what is there is something else than is expected.
    ///
    /// # Errors
    /// As [`Tree::open`]; [`OpenError::Replaced`], [`OpenError::OtherMode`].
    pub(crate) fn open_as(
        expected: Option<Expected>,
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
        // A tree that was opened for another directory than was looked at might be for others; its
        // file system is left alone.
        let identity = attributes::identity(&root);
        if expected.is_some_and(|expected| expected.identity != identity) {
            return Err(OpenError::Replaced(directory.to_owned()));
        }
        let mount =
            Mount::new(0, root.stx_mnt_id, &path, &server.aliases, &share).map_err(open_failed)?;
        let mount = Arc::new(mount);
        let found_by = FoundBy::of(&path, &mount.open).map_err(failed)?;
        // And one in whose store handles are kept does all as the server's user: rules that were
        // meant for the kernel's would make everybody root.
        if expected.is_some_and(|expected| expected.mode != found_by.mode()) {
            return Err(OpenError::OtherMode(directory.to_owned()));
        }
        let (handle, store) = match found_by {
            FoundBy::Kernel(kernel) => {
                let handle = mount.handle(&kernel).ok_or(FsError::NotSupported);
                (handle.map_err(open_failed)?, None)
            }
            FoundBy::Store(reason) => {
                stored(directory, options, &root, is_overlay(&mount), reason)?
            }
        };
        let fsid = stable_hash(&[b"share", &options.share_id.to_le_bytes()]);
        let domain = server.domain(identity.device);
        let volume = Volume::new(&path, identity.device, domain, fsid).map_err(open_failed)?;
        let log = if store.is_none() && switches {
            join_log(server, options, &volume, &mount, &share).map_err(open_failed)?
        } else {
            None
        };
        let volume = Arc::new(volume.with_log(
            log,
            Arc::clone(&mount.aliases),
            server.async_changes(identity.device),
        ));
        let id = server.new_tree();
        let root = server.cache.insert(Node::new(NodeParts {
            tree: id,
            handle,
            identity,
            kind: FileKind::Directory,
            volume: Arc::clone(&volume),
            mount: Arc::clone(&mount),
            path: Arc::new(Descriptor::new(path, &server.budget)),
            order: server.order(&volume, identity),
            opens_all,
            budget: Arc::clone(&server.budget),
        }));
        let root = root.now_for();
        Ok(Self {
            id,
            storage: Arc::clone(server),
            // Where handles are kept the store knows.
            options: TreeOptions { state_directory: None, size: options.size.clone(), ..*options },
            store: store.map(Box::new),
            switches,
            opens_all,
            is_private,
            root,
            domain,
            device: identity.device,
            mounts: Mounts::new(&share, mount, Arc::clone(&server.aliases)),
            volumes: RwLock::new(vec![volume]),
            _original: original,
        })
    }
}

/// How the objects of a file system are found again.
pub(crate) enum FoundBy {
    /// By the kernel's handles, of which this is the directory's.
    Kernel(KernelHandle),
    /// By handles kept in a store, since the kernel's are not to be had.
    Store(&'static str),
}

impl FoundBy {
    /// How those of a directory's are, which was opened as `O_PATH` and for reading.
    ///
    /// # Errors
    /// When that could not be found out now: what the process lacks for the moment, be it
    /// descriptors or memory, says nothing about the file system.
    pub(crate) fn of(path: impl AsFd, open: impl AsFd) -> Result<Self, Errno> {
        let found = handle::of(path).and_then(|kernel| {
            // A handle that clients could not hold is as good as none.
            if handle_form::from_kernel(0, &kernel).is_none() {
                return Err(Errno::OVERFLOW);
            }
            handle::open(open, &kernel, PATH_FLAGS).map(|_| kernel)
        });
        Self::of_trial(found)
    }

    fn of_trial(found: Result<KernelHandle, Errno>) -> Result<Self, Errno> {
        match found {
            Ok(kernel) => Ok(Self::Kernel(kernel)),
            Err(Errno::OVERFLOW) => Ok(Self::Store("its file handles are too long")),
            Err(Errno::PERM) => Ok(Self::Store("CAP_DAC_READ_SEARCH is missing")),
            // The last is of a file system that makes handles and does not find objects by them.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::STALE) => {
                Ok(Self::Store("its file system has no file handles"))
            }
            Err(errno) => Err(errno),
        }
    }

    pub(crate) const fn mode(&self) -> Mode {
        match self {
            Self::Kernel(_) => Mode::KernelHandles,
            Self::Store(_) => Mode::StoredHandles,
        }
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
    rustix::fs::fstatfs(&mount.open)
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
pub(super) fn join_log(
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
        rustix::fs::openat(&mount.open, c".", flags, Permissions::empty()).map_err(from_errno)?;
    let identity = FileSystemIdentity { uuid, kind: volume.magic };
    let path = directory.as_os_str().as_bytes();
    if !options.crosses_mounts {
        // It is to hold no mount that others want to unmount.
        mount.aliases.have_witness(&mount.open);
    }
    let whole = WholeFileSystem::new(open, &mount.aliases, server.async_changes(volume.device));
    let joined =
        VolumeLog::join(log, &identity, path, mount.kernel_id, whole, !options.without_log)?;
    if let Some(log) = &joined {
        mount.aliases.note_use(log.file_system());
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_so_for_good_chooses_a_store() {
        let mode = |errno| FoundBy::of_trial(Err(errno)).map(|found| found.mode());
        for errno in [Errno::OPNOTSUPP, Errno::PERM, Errno::OVERFLOW, Errno::NOSYS, Errno::STALE] {
            assert_eq!(mode(errno), Ok(Mode::StoredHandles));
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::ACCESS] {
            assert_eq!(mode(errno), Err(errno));
        }
    }
}
