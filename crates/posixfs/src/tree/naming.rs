//! Operations on names: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
//!
//! They run under the caller's identity with the directory's order lock held. Only permission to
//! search the directory is checked here: the kernel would let it pass, since under a caller's
//! identity we keep `CAP_DAC_READ_SEARCH` to open objects by handle.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, FileType, Mode as Permissions, OFlags, Statx};
use rustix::io::Errno;
use smallvec::SmallVec;
use steadfast_recovery::{Action, ObjectKey, Unlinked};
use steadfast_vfs::permission::EXECUTE;
use steadfast_vfs::{
    Attr, Caller, Changed, CreateHow, Created, Cred, Durable, Entry, FileKind, FlushWhat, FsError,
    Name, NodeKind, PreAttr, Renamed, SetAttr, SetTime, StorageHandle, Waiting, Wcc,
};

use super::Tree;
use super::making::{is_free, taken, unmasked, verifier_attributes, verifier_seconds};
use super::setting;
use crate::attributes::{self, Identity};
use crate::error::from_errno;
use crate::handle_form;
use crate::kinds::VolumeKind;
use crate::logging::{self, Effects, Targets, place};
use crate::marks;
use crate::node::Node;
use crate::stored::Fingerprint;

/// An object that is about to lose a name.
#[derive(Default)]
struct Victim {
    /// Its node, if there is one already, or its remaining names will have to be flushed.
    node: Option<Arc<Node>>,
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
        change: impl FnOnce(&Arc<Node>, &mut Effects<'c>) -> Result<T, FsError>,
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
        effects.targets.push((Arc::clone(&dir), FlushWhat::Everything));
        effects.promise(&dir.volume, changed)
    }

    pub(crate) fn do_create(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        how: &CreateHow,
    ) -> Durable<Changed<Created>> {
        let name = name.as_bytes();
        self.change_directory(caller, dir, 0, |dir, effects| {
            marks::require_not_marks_place(dir, name)?;
            let (mode, set) = match how {
                CreateHow::Unchecked(set) | CreateHow::Guarded(set) => {
                    let set = unmasked(dir, &self.givable(caller.cred, set))?;
                    (set.mode.unwrap_or(0), SetAttr { mode: None, ..set })
                }
                CreateHow::Exclusive { verifier, mode, umask } => {
                    let made = SetAttr { mode: Some(*mode), umask: *umask, ..SetAttr::default() };
                    let mode = unmasked(dir, &made)?.mode;
                    (mode.unwrap_or(0), verifier_attributes(*verifier))
                }
            };
            self.begin_making(caller, (dir, name), (FileKind::Regular, &[]), &set, effects);
            self.assume(caller.cred)?;
            let permissions = Permissions::from_raw_mode(mode & 0o7777);
            match self.create_file(caller.cred, dir, name, permissions, &set) {
                Ok((file, set)) => {
                    let kind = FileKind::Regular;
                    let made = Made { dir, name, kind, file: Some(file), target: &[] };
                    self.finish(caller, made, &set, effects)
                }
                Err(FsError::Exists) => {
                    effects.take_back_begin(&dir.volume);
                    let (node, attr) = self.child(dir, name)?;
                    let (node, attr) = self.use_existing(caller, &node, &attr, how, effects)?;
                    let entry = Entry { handle: node.handle, attr };
                    effects.targets.push((node, FlushWhat::Everything));
                    Ok(entry)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Makes an ordinary file, open for writing. Returns with it what is still to be set.
    fn create_file(
        &self,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        permissions: Permissions,
        set: &SetAttr,
    ) -> Result<(MadeFile, SetAttr), FsError> {
        if self.sets_more(cred, dir, set)? {
            match create_whole(dir, name, permissions, set) {
                Ok(descriptor) => {
                    return Ok((MadeFile { descriptor, was_named: false }, SetAttr::default()));
                }
                Err(FsError::NotSupported) => {}
                // What is there comes before what cannot be made.
                Err(_) if attributes::stat_name(&dir.path, name).is_ok() => {
                    return Err(FsError::Exists);
                }
                Err(error) => return Err(error),
            }
        }
        let flags = OFlags::CREATE
            | OFlags::EXCL
            | OFlags::RDWR
            | OFlags::NOFOLLOW
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&dir.path, name, flags, permissions);
        let descriptor = opened.map_err(from_errno)?;
        Ok((MadeFile { descriptor, was_named: true }, *set))
    }

    /// Whether these are other attributes than a new file has.
    fn sets_more(&self, cred: &Cred, dir: &Node, set: &SetAttr) -> Result<bool, FsError> {
        const SET_GROUP_ID: u32 = 0o2000;
        if set.size.is_some_and(|size| size > 0)
            || set.atime != SetTime::Keep
            || set.mtime != SetTime::Keep
            || set.uid.is_some_and(|uid| uid != self.acting_uid(cred))
        {
            return Ok(true);
        }
        let Some(gid) = set.gid else { return Ok(false) };
        let dir = dir.attr()?;
        let inherited = if dir.mode & SET_GROUP_ID == 0 { cred.gid } else { dir.gid };
        Ok(gid != inherited)
    }

    /// What CREATE does when the name is there.
    fn use_existing(
        &self,
        caller: &Caller<'_>,
        node: &Arc<Node>,
        attr: &Attr,
        how: &CreateHow,
        effects: &mut Effects<'_>,
    ) -> Result<(Arc<Node>, Attr), FsError> {
        if attr.kind != FileKind::Regular {
            return Err(FsError::Exists);
        }
        match how {
            CreateHow::Guarded(_) => Err(FsError::Exists),
            CreateHow::Unchecked(set) => {
                let Some(size) = set.size else { return Ok((Arc::clone(node), *attr)) };
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let object = node.key();
                let mut gap = None;
                let changed = self.ordered(node, |node, before| {
                    gap = logging::gap(before, size);
                    effects.change.before = Some(logging::before(before));
                    self.apply(caller.cred, node, before, &set, effects)?;
                    effects.take(&node.volume);
                    effects.touch(node, effects.change.before);
                    Ok(())
                });
                changed.result?;
                effects.change.action = Action::Attributes { object, size: Some(size), gap };
                let attr = changed.wcc.after.ok_or(FsError::Stale)?;
                effects.tell(object, Some(attr));
                Ok((Arc::clone(node), attr))
            }
            CreateHow::Exclusive { verifier, .. } => {
                let [atime, mtime] = verifier_seconds(*verifier);
                let is_same =
                    attr.atime.seconds == atime && attr.mtime.seconds == mtime && attr.size == 0;
                if is_same { Ok((Arc::clone(node), *attr)) } else { Err(FsError::Exists) }
            }
        }
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
    ) -> Result<(Arc<Node>, Attr), FsError> {
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
                    effects.targets.push((node, FlushWhat::Everything));
                } else {
                    also_flush(dir, node, &mut effects.targets);
                }
                return Ok(entry);
            }
            self.apply(caller.cred, &node, &attr, &set, effects)?;
            let attr = node.attr()?;
            let entry = Entry { handle: node.handle, attr: taken(effects, &node, attr) };
            effects.targets.push((node, FlushWhat::Everything));
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
        node: Option<&Arc<Node>>,
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
            Some(node) if is_left => also_flush(dir, Arc::clone(node), targets),
            Some(node) => self.storage.cache.remove(node),
            None => {}
        }
        let is_left = |unlinked: &Unlinked| match &victim.node {
            Some(_) => is_left && is_file,
            None => unlinked.is_left,
        };
        victim.unlinked.map(|unlinked| Unlinked { is_left: is_left(&unlinked), ..unlinked })
    }

    pub(crate) fn do_rename(
        &self,
        caller: &Caller<'_>,
        from_dir: &StorageHandle,
        from_name: Name<'_>,
        to_dir: &StorageHandle,
        to_name: Name<'_>,
    ) -> Durable<Renamed> {
        let failed = |error| {
            Durable::promising_nothing(Renamed {
                from: Wcc::default(),
                to: Wcc::default(),
                result: Err(error),
            })
        };
        let from = match self.node(from_dir, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return failed(error),
        };
        let to = match self.node(to_dir, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return failed(error),
        };
        let mut effects = match Effects::begin(&to.volume, caller, 0) {
            Ok(effects) => effects,
            Err(error) => return failed(error),
        };
        // Two directories are locked in the order of their locks' addresses, one only once.
        let (mut first, mut second) = (&from.order, &to.order);
        if Arc::as_ptr(first) > Arc::as_ptr(second) {
            std::mem::swap(&mut first, &mut second);
        }
        let _first = first.lock();
        let _second = (!Arc::ptr_eq(first, second)).then(|| second.lock());
        let (from_before, to_before) = match (from.attr(), to.attr()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return failed(error),
        };
        let result = self.rename_locked(
            caller,
            (&from, &from_before, from_name.as_bytes()),
            (&to, &to_before, to_name.as_bytes()),
            &mut effects,
        );
        let wcc = |node: &Node, before: &Attr| Wcc {
            before: Some(PreAttr::from(before)),
            after: node.attr().ok(),
        };
        let renamed = Renamed { from: wcc(&from, &from_before), to: wcc(&to, &to_before), result };
        if let Err(error) = result {
            return effects.fail(&to.volume, error, renamed);
        }
        effects.tell(from.key(), renamed.from.after);
        effects.tell(to.key(), renamed.to.after);
        // The new name first: a crash between the two leaves two names rather than none.
        effects.targets.insert(0, (Arc::clone(&to), FlushWhat::Everything));
        if !Arc::ptr_eq(&from, &to) && !to.volume.has_one_journal {
            effects.targets.insert(1, (Arc::clone(&from), FlushWhat::Everything));
        }
        effects.promise(&to.volume, renamed)
    }

    fn rename_locked<'n>(
        &self,
        caller: &Caller<'_>,
        (from, from_attr, from_name): (&Arc<Node>, &Attr, &'n [u8]),
        (to, to_attr, to_name): (&Arc<Node>, &Attr, &'n [u8]),
        effects: &mut Effects<'n>,
    ) -> Result<(), FsError> {
        if from_attr.kind != FileKind::Directory || to_attr.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        from.require(from_attr, caller.cred, EXECUTE)?;
        to.require(to_attr, caller.cred, EXECUTE)?;
        marks::require_neither((from, from_name), (to, to_name))?;
        let is_same_name = Arc::ptr_eq(from, to) && from_name == to_name;
        let needs_keys = effects.needs_keys(&to.volume, caller);
        let victim = match self.victim(to, to_name, needs_keys) {
            // Renamed to what it is called already, nothing goes.
            Ok(_) if is_same_name => Victim::default(),
            Ok(victim) => victim,
            Err(FsError::NotFound) => Victim::default(),
            Err(error) => return Err(error),
        };
        let stat = attributes::stat_name(&from.path, from_name).map_err(from_errno)?;
        let (kind, is_btrfs) = (attributes::kind(&stat), to.volume.kind == VolumeKind::Btrfs);
        // Replay tells local changes of files by their times; on btrfs it asks what names an object has.
        let is_told = needs_keys && (kind == FileKind::Regular || is_btrfs);
        // A moved directory's own `..` changes. Taken before, as a victim is.
        let moved = if to.volume.has_one_journal && !is_told {
            self.storage.cache.find_inode(self.id, attributes::identity(&stat), stat.stx_mnt_id)
        } else {
            Some(self.child(from, from_name)?.0)
        };
        if needs_keys {
            let object = self.key_of_name(from, from_name, &stat, moved.as_ref())?;
            // Of two names of one object neither goes (rename(2)).
            let is_nothing =
                is_same_name || victim.unlinked.is_some_and(|unlinked| unlinked.object == object);
            if !is_nothing {
                effects.change.action = Action::Rename {
                    from: place(from, from_name),
                    to: place(to, to_name),
                    object,
                    is_directory: kind == FileKind::Directory,
                    victim: victim.unlinked,
                };
                effects.begin_call(caller, from, None, effects.change.action);
            }
        }
        let _order = order_files([moved.as_ref(), victim.node.as_ref()]);
        self.note_place((from, from_name), (to, to_name))?;
        let told = moved.as_ref().filter(|_| is_told && effects.is_logged());
        let before = told.and_then(|moved| moved.attr().ok());
        self.assume(caller.cred)?;
        let renamed = rustix::fs::renameat(&from.path, from_name, &to.path, to_name);
        if let Err(errno) = renamed {
            // Two places are remembered: a second failure would put the true one out.
            let _ = self.note_place((from, from_name), (from, from_name));
            return Err(removal_error(errno));
        }
        effects.take(&to.volume);
        let unlinked = self.bury(to, &victim, &mut effects.targets);
        if let Action::Rename { victim: gone, object, .. } = &mut effects.change.action {
            let object = *object;
            *gone = unlinked;
            if let (Some(moved), Some(before)) = (told, before) {
                effects.change.before = Some(logging::times_before(&before));
                effects.tell(object, moved.attr().ok());
            }
            let left = victim.node.as_ref().filter(|node| node.kind == FileKind::Regular);
            if let (Some(node), Some(Unlinked { object, is_left: true, .. })) = (left, unlinked) {
                effects.tell(object, node.attr().ok());
            }
        }
        if let Some(moved) = &moved
            && !to.volume.has_one_journal
            && !effects.targets.iter().any(|(target, _)| Arc::ptr_eq(target, moved))
        {
            also_flush(to, Arc::clone(moved), &mut effects.targets);
        }
        Ok(())
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
            also_flush(dir, Arc::clone(&node), &mut effects.targets);
            Ok(())
        })
        .map(|changed| (node.attr().ok(), changed))
    }
}

/// Makes a file that has all its attributes when it gets its name: a crash leaves it whole or not at
/// all.
///
/// # Errors
/// [`FsError::NotSupported`] where files cannot be made without a name.
fn create_whole(
    dir: &Node,
    name: &[u8],
    permissions: Permissions,
    set: &SetAttr,
) -> Result<OwnedFd, FsError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(&dir.path, c".", flags, permissions) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => return Err(FsError::NotSupported),
        opened => opened.map_err(from_errno)?,
    };
    let attr = attributes::attr(&attributes::stat(&file)?, dir.volume.fsid);
    let missing = setting::missing(set, &attr);
    let is_given_away = missing.uid.is_some() || missing.gid.is_some();
    // A change of owner takes set-id bits away.
    let mode = Some(attr.mode).filter(|mode| is_given_away && mode & setting::SET_ID != 0);
    setting::apply_to_new(&file, &SetAttr { mode, ..missing })?;
    match rustix::fs::linkat(&file, c"", &dir.path, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => link_by_descriptor(&file, &dir.path, name),
        linked => linked,
    }
    .map_err(from_errno)?;
    Ok(file)
}

/// Takes the order locks of the files among objects whose names change, and with them their
/// ctime and number of links: a guard that was found to hold must hold until its change is done.
/// After the directories' locks, and in the order of the locks' addresses. A directory that is moved
/// or removed is not locked: it may come before those above it, and it has no data of its own.
fn order_files(nodes: [Option<&Arc<Node>>; 2]) -> SmallVec<[MutexGuard<'_, ()>; 2]> {
    let is_file = |node: &&Arc<Node>| node.kind != FileKind::Directory;
    let mut files: SmallVec<[_; 2]> = nodes.into_iter().flatten().filter(is_file).collect();
    files.sort_unstable_by_key(|node| Arc::as_ptr(&node.order));
    files.dedup_by(|one, other| Arc::ptr_eq(&one.order, &other.order));
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
fn also_flush(dir: &Node, node: Arc<Node>, targets: &mut Targets) {
    let goes_with_directory = dir.volume.has_one_journal
        // btrfs logs the inodes of new entries with a directory; what cannot be flushed by itself
        // would cost a flush of the whole file system.
        || dir.volume.kind == VolumeKind::Btrfs
            && !matches!(node.kind, FileKind::Regular | FileKind::Directory);
    if !goes_with_directory {
        targets.push((node, FlushWhat::Everything));
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
