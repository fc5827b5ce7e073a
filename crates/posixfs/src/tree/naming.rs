//! Operations on names: MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, LINK; below, CREATE ([`creating`]) and RENAME
//! ([`renaming`]).
//!
//! They run under the caller's identity with the directory's order lock held. Only permission to
//! search the directory is checked here: the kernel would let it pass, since under a caller's
//! identity we keep `CAP_DAC_READ_SEARCH` to open objects by handle.

mod creating;
mod renaming;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, FileType, Mode as Permissions, Statx};
use rustix::io::Errno;
use smallvec::SmallVec;
use steadfast_recovery::{Action, ObjectKey, Unlinked};
use steadfast_vfs::permission::EXECUTE;
use steadfast_vfs::{
    Attr, Caller, Changed, Created, Durable, Entry, FileKind, FlushWhat, FsError, Name, NodeKind,
    SetAttr, StorageHandle, Waiting,
};

use super::Tree;
use super::making::{is_free, taken, unmasked};
use super::setting;
use crate::attributes::{self, Identity};
use crate::error::from_errno;
use crate::handle_form;
use crate::kinds::VolumeKind;
use crate::logging::{self, Effects, Targets, place};
use crate::marks;
use crate::node::{Node, NodePin};
use crate::stored::Fingerprint;

/// An object that is about to lose a name.
#[derive(Default)]
struct Victim {
    /// Its node, if there is one already, or its remaining names will have to be flushed.
    node: Option<NodePin>,
    /// What it is, if the name is its last.
    fingerprint: Option<Fingerprint>,
    /// What the log is told of it.
    unlinked: Option<Unlinked>,
}

/// A file that was just made, open for writing.
struct MadeFile {
    descriptor: OwnedFd,
    /// Whether it had its name from the beginning: for who watches the file system (fanotify, `AppArmor`) a
    /// descriptor of one that had none is one of a removed file for ever.
    was_named: bool,
}

/// An object that was just made: where, of what kind, and what it was made with, if it was opened for
/// that.
struct Made<'d, 'n> {
    dir: &'d Node,
    name: &'n [u8],
    kind: FileKind,
    file: Option<MadeFile>,
    /// A symbolic link's.
    target: &'n [u8],
}

impl Tree {
    /// Does something to a directory's names: under its order lock, after checking that the
    /// caller may search it, with attributes before and after.
    fn change_directory<'c, T>(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        data_bytes: usize,
        change: impl FnOnce(&NodePin, &mut Effects<'c>) -> Result<T, FsError>,
    ) -> Durable<Changed<T>> {
        let dir = match self.node(dir, Waiting::Allowed) {
            Ok(dir) => dir,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let mut effects = match Effects::begin(&dir.volume, caller, data_bytes) {
            Ok(effects) => effects,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let changed = self.ordered(&dir, |dir, before| {
            if before.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            dir.require(before, caller.cred, EXECUTE)?;
            let done = change(dir, &mut effects)?;
            effects.take(&dir.volume);
            Ok(done)
        });
        if let Err(error) = changed.result {
            return effects.fail(&dir.volume, error, changed);
        }
        effects.tell(dir.key(), changed.wcc.after);
        effects.also_flush(&dir, FlushWhat::Everything);
        effects.promise(&dir.volume, changed)
    }

    pub(crate) fn do_make_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        self.make(caller, dir, name, (FileKind::Directory, &[]), set, |dir, name, mode| {
            rustix::fs::mkdirat(&dir.path, name, mode)
        })
    }

    pub(crate) fn do_make_symlink(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        target: &[u8],
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        self.make(caller, dir, name, (FileKind::Symlink, target), set, |dir, name, _| {
            rustix::fs::symlinkat(target, &dir.path, name)
        })
    }

    pub(crate) fn do_make_node(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        kind: NodeKind,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let (made, kind, device) = match kind {
            NodeKind::CharacterDevice(device) => {
                (FileKind::CharacterDevice, FileType::CharacterDevice, Some(device))
            }
            NodeKind::BlockDevice(device) => {
                (FileKind::BlockDevice, FileType::BlockDevice, Some(device))
            }
            NodeKind::Socket => (FileKind::Socket, FileType::Socket, None),
            NodeKind::Fifo => (FileKind::Fifo, FileType::Fifo, None),
        };
        self.make(caller, dir, name, (made, &[]), set, |dir, name, mode| {
            // The kernel has 12 bits for the major and 20 for the minor number; more would be cut
            // off silently, and another device made than was asked for.
            if device.is_some_and(|device| device.major >= 1 << 12 || device.minor >= 1 << 20) {
                return Err(Errno::INVAL);
            }
            let number = device.map_or(0, |device| rustix::fs::makedev(device.major, device.minor));
            rustix::fs::mknodat(&dir.path, name, kind, mode, number)
        })
    }

    /// Makes an object of a kind, or a symbolic link to a target.
    fn make(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        (kind, target): (FileKind, &[u8]),
        set: &SetAttr,
        make: impl FnOnce(&Node, &[u8], Permissions) -> Result<(), Errno>,
    ) -> Durable<Changed<Created>> {
        let name = name.as_bytes();
        self.change_directory(caller, dir, target.len(), |dir, effects| {
            marks::require_not_marks_place(dir, name)?;
            let set = &unmasked(dir, set)?;
            // mkdir(2) takes no set-id bits.
            let set_id = set.mode.filter(|mode| mode & setting::SET_ID != 0);
            let rest = SetAttr { mode: set_id, size: None, ..self.givable(caller.cred, set) };
            self.begin_making(caller, (dir, name), (kind, target), &rest, effects);
            self.assume(caller.cred)?;
            let mode = Permissions::from_raw_mode(set.mode.unwrap_or(0) & 0o7777);
            make(dir, name, mode).map_err(from_errno)?;
            self.finish(caller, Made { dir, name, kind, file: None, target }, &rest, effects)
        })
    }

    /// The node of an object just made. `own` becomes what is surely ours: a local process may
    /// put something else in its place at any moment.
    fn meet(
        &self,
        caller: &Caller<'_>,
        made: Made<'_, '_>,
        own: &mut Option<Identity>,
    ) -> Result<(NodePin, Attr), FsError> {
        let Made { dir, name, kind, file, .. } = made;
        if let Some(MadeFile { descriptor, was_named }) = file {
            let file = self.counted(descriptor);
            let stat = attributes::stat_with_mount(&file)?;
            let identity = attributes::identity(&stat);
            *own = Some(identity);
            // The store remembers what the name leads to.
            let met = if was_named && self.store().is_none() {
                self.adopt(Arc::clone(&file), &stat, dir, name)
            } else {
                self.child(dir, name)
            };
            return match met {
                Ok((node, attr)) if node.identity == identity => {
                    node.keep_writer(file);
                    Ok((node, attr))
                }
                // The client comes again and meets what is there now.
                Ok(_) | Err(FsError::NotFound) => Err(FsError::TryLater),
                Err(error) => Err(error),
            };
        }
        // What was not made with a descriptor is known by its looks.
        let uid = self.acting_uid(caller.cred);
        let is_own = |attr: &Attr| attr.kind == kind && attr.uid == uid;
        match self.child(dir, name) {
            Ok((node, attr)) => {
                let is_own = is_own(&attr);
                *own = is_own.then_some(node.identity);
                // Some file systems have one owner for all there is.
                let may_be_own = attr.kind == kind && dir.volume.kind == VolumeKind::Other;
                if is_own || may_be_own { Ok((node, attr)) } else { Err(FsError::TryLater) }
            }
            Err(error) => {
                let stat = attributes::stat_name(&dir.path, name).ok();
                let stat = stat.filter(|stat| is_own(&attributes::attr(stat, dir.volume.fsid)));
                *own = stat.as_ref().map(attributes::identity);
                Err(error)
            }
        }
    }

    /// Sets the attributes that an object just made is to have beside its mode. If that fails,
    /// the object goes again, but nothing that was put in its place.
    fn finish<'n>(
        &self,
        caller: &Caller<'_>,
        made: Made<'_, 'n>,
        set: &SetAttr,
        effects: &mut Effects<'n>,
    ) -> Result<Entry, FsError> {
        let Made { dir, name, kind, target, .. } = made;
        let mut own = None;
        let finished = self.meet(caller, made, &mut own).and_then(|(node, attr)| {
            let set = setting::missing(set, &attr);
            let object = node.key();
            effects.change.action = Action::Make { place: place(dir, name), object, target };
            if set.is_empty() {
                let attr = taken(effects, &node, attr);
                let entry = Entry { handle: node.handle, attr };
                // XFS gives a new object its inherited ACL by a transaction of its own.
                let is_plain = matches!(attr.kind, FileKind::Regular | FileKind::Directory);
                if dir.volume.kind == VolumeKind::Xfs && is_plain {
                    effects.targets.push((node.now_for(), FlushWhat::Everything));
                } else {
                    also_flush(dir, &node, &mut effects.targets);
                }
                return Ok(entry);
            }
            self.apply(caller.cred, &node, &attr, &set, effects)?;
            let attr = node.attr()?;
            let entry = Entry { handle: node.handle, attr: taken(effects, &node, attr) };
            effects.targets.push((node.now_for(), FlushWhat::Everything));
            Ok(entry)
        });
        finished.inspect_err(|error| {
            if let Err(also) = self.unmake(caller, dir, name, kind, own) {
                tracing::warn!("an object whose making failed ({error}) is left over: {also}");
            }
        })
    }

    /// Takes an object just made away again, if it is still what its name says.
    fn unmake(
        &self,
        caller: &Caller<'_>,
        dir: &Node,
        name: &[u8],
        kind: FileKind,
        own: Option<Identity>,
    ) -> Result<(), FsError> {
        let there = attributes::stat_name(&dir.path, name).map_err(from_errno)?;
        if own != Some(attributes::identity(&there)) {
            return Err(FsError::Exists);
        }
        self.assume(caller.cred)?;
        let is_directory = kind == FileKind::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&dir.path, name, flags).map_err(from_errno)
    }

    pub(crate) fn do_remove(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        self.unlink(caller, dir, name, AtFlags::empty())
    }

    pub(crate) fn do_remove_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        self.unlink(caller, dir, name, AtFlags::REMOVEDIR)
    }

    fn unlink(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        flags: AtFlags,
    ) -> Durable<Changed<()>> {
        let name = name.as_bytes();
        self.change_directory(caller, dir, 0, |dir, effects| {
            let victim = self.victim(dir, name, effects.needs_keys(&dir.volume, caller))?;
            let _order = order_files([victim.node.as_ref(), None]);
            if let Some(unlinked) = victim.unlinked {
                let place = place(dir, name);
                effects.begin_call(caller, dir, None, Action::Remove { place, unlinked });
            }
            let left = victim.node.as_ref().filter(|node| node.kind == FileKind::Regular);
            let before = left.filter(|_| effects.is_logged()).and_then(|node| node.attr().ok());
            self.assume(caller.cred)?;
            rustix::fs::unlinkat(&dir.path, name, flags).map_err(removal_error)?;
            let unlinked = self.bury(dir, &victim, &mut effects.targets);
            if let Some(unlinked) = unlinked {
                effects.change.action = Action::Remove { place: place(dir, name), unlinked };
                if let Some(left) = left.filter(|_| unlinked.is_left) {
                    effects.change.before = before.as_ref().map(logging::times_before);
                    effects.tell(unlinked.object, left.attr().ok());
                }
            }
            effects.take(&dir.volume);
            Ok(())
        })
    }

    /// What is about to lose a name; with what the log calls it, if that is asked for.
    fn victim(&self, dir: &Node, name: &[u8], is_logged: bool) -> Result<Victim, FsError> {
        marks::require_no_mark(dir, name)?;
        let stat = attributes::stat_name(&dir.path, name).map_err(from_errno)?;
        let kind = attributes::kind(&stat);
        let is_last = stat.stx_nlink <= 1 || kind == FileKind::Directory;
        let mut node =
            self.storage.cache.find_inode(self.id, attributes::identity(&stat), stat.stx_mnt_id);
        if node.is_none() && !is_last && kind == FileKind::Regular {
            // Taken before the change: without it what is promised could not be kept.
            node = Some(self.child(dir, name)?.0);
        }
        let fingerprint =
            self.store().filter(|_| is_last).and_then(|store| store.fingerprint(&stat));
        let key =
            if is_logged { Some(self.key_of_name(dir, name, &stat, node.as_ref())?) } else { None };
        let unlinked = key.map(|object| Unlinked {
            object,
            is_directory: kind == FileKind::Directory,
            is_left: !is_last,
        });
        Ok(Victim { node, fingerprint, unlinked })
    }

    /// What the log calls the object of a name that was looked at just now, whose node it is if
    /// there is one.
    fn key_of_name(
        &self,
        dir: &Node,
        name: &[u8],
        stat: &Statx,
        node: Option<&NodePin>,
    ) -> Result<ObjectKey, FsError> {
        match node {
            Some(node) => Ok(node.key()),
            None => Ok(handle_form::key(&self.glance_at(dir, name, stat)?.handle)),
        }
    }

    /// After an object lost a name: the last one, and it is let go so that its space is freed;
    /// another, and what is left of it is flushed too.
    fn bury(&self, dir: &Node, victim: &Victim, targets: &mut Targets) -> Option<Unlinked> {
        let is_left = victim.node.as_ref().is_some_and(|node| node.attr().is_ok());
        // A file may have got another name since it was looked at.
        let is_file = victim.node.as_ref().is_some_and(|node| node.kind != FileKind::Directory);
        if !(is_left && is_file)
            && let (Some(store), Some(fingerprint)) = (self.store(), victim.fingerprint)
        {
            store.forget(fingerprint);
        }
        match &victim.node {
            Some(node) if is_left => also_flush(dir, node, targets),
            Some(node) => self.storage.cache.remove(node),
            None => {}
        }
        let is_left = |unlinked: &Unlinked| match &victim.node {
            Some(_) => is_left && is_file,
            None => unlinked.is_left,
        };
        victim.unlinked.map(|unlinked| Unlinked { is_left: is_left(&unlinked), ..unlinked })
    }

    pub(crate) fn do_link(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<(Option<Attr>, Changed<()>)> {
        let node = match self.live(object, Waiting::Allowed) {
            Ok((node, _)) => node,
            Err(error) => {
                return Durable::promising_nothing((None, Changed::failed(error)));
            }
        };
        let name = name.as_bytes();
        self.change_directory(caller, dir, 0, |dir, effects| {
            if node.kind == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
            marks::require_not_marks_place(dir, name)?;
            let _order = order_files([Some(&node), None]);
            let action = Action::Link { place: place(dir, name), object: node.key() };
            if Effects::notes_calls(&dir.volume, caller) && is_free(dir, name) {
                effects.begin_call(caller, dir, None, action);
            }
            let before = effects.is_logged().then(|| node.attr().ok()).flatten();
            self.assume(caller.cred)?;
            let flags = AtFlags::EMPTY_PATH;
            match rustix::fs::linkat(&node.path, c"", &dir.path, name, flags) {
                Err(Errno::NOENT) if self.store().is_some() => {
                    link_by_descriptor(&node.path, &dir.path, name)
                }
                linked => linked,
            }
            .map_err(from_errno)?;
            // A failure was logged. The link is there, so the call has not failed: the file is
            // found by its other name as before, and its new one is noted when it is met.
            let _ = self.note_place((dir, name), (dir, name));
            effects.change.action = action;
            effects.take(&dir.volume);
            if effects.is_logged() {
                effects.change.before = before.as_ref().map(logging::times_before);
                effects.tell(node.key(), node.attr().ok());
            }
            also_flush(dir, &node, &mut effects.targets);
            Ok(())
        })
        .map(|changed| (node.attr().ok(), changed))
    }
}

/// Takes the order locks of the files among objects whose names change, and with them their
/// ctime and number of links: a guard that was found to hold must hold until its change is done.
/// After the directories' locks, and in the order of the locks' addresses. A directory that is moved
/// or removed is not locked: it may come before those above it, and it has no data of its own.
fn order_files(nodes: [Option<&NodePin>; 2]) -> SmallVec<[MutexGuard<'_, ()>; 2]> {
    let is_file = |node: &&NodePin| node.kind != FileKind::Directory;
    let mut files: SmallVec<[_; 2]> = nodes.into_iter().flatten().filter(is_file).collect();
    files.sort_unstable_by_key(|node| node.order.address());
    files.dedup_by(|one, other| one.order.address() == other.order.address());
    files.into_iter().map(|node| node.order.lock()).collect()
}

/// Makes a link to an open object by its name among the process's descriptors. The kernel goes
/// from there to the object itself, even if that is a symbolic link. For `ENOENT`, which is what Linux
/// says of a link to a descriptor to who is without `CAP_DAC_READ_SEARCH`: before 6.10 always, since
/// then to a thread with other credentials than the one that opened the object.
fn link_by_descriptor(object: &impl AsFd, dir: &impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", object.as_fd().as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Adds an object that was changed by the same system call as its directory.
fn also_flush(dir: &Node, node: &NodePin, targets: &mut Targets) {
    let goes_with_directory = dir.volume.has_one_journal
        // There each flush is one of the whole file system.
        || dir.volume.kind == VolumeKind::Btrfs
            && !matches!(node.kind, FileKind::Regular | FileKind::Directory);
    if !goes_with_directory {
        targets.push((node.pin(), FlushWhat::Everything));
    }
}

/// Where a name has to go, some file systems (XFS) say "exists" for "not empty".
fn removal_error(errno: Errno) -> FsError {
    match errno {
        Errno::EXIST => FsError::NotEmpty,
        // Something is mounted there, for which there is no word; to try again would not help.
        Errno::BUSY => FsError::AccessDenied,
        errno => from_errno(errno),
    }
}

#[cfg(test)]
mod tests;
