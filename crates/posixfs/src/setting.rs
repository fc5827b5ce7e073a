//! Operations on one object that change it: SETATTR, WRITE, COMMIT, ACLs.
//!
//! They run under the caller's identity, so that the kernel decides about ownership, quotas,
//! reserved space and set-id bits.

use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;
use steadfast_sys::file;
use steadfast_vfs::permission::WRITE;
use steadfast_vfs::{
    Acl, Attr, Caller, Changed, Cred, Durable, FileKind, FlushWhat, FsError, PreAttr, SetAttr,
    SetTime, StorageHandle, Time, Waiting, Wcc, WriteHow, Written,
};

use crate::acl::{self, Which};
use crate::error::from_errno;
use crate::node::Node;
use crate::tree::{Tree, durable};

impl Tree {
    pub(crate) fn do_set_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Durable<Changed<()>> {
        self.change_object(caller, object, FlushWhat::Everything, |node, before| {
            if guard.is_some_and(|ctime| ctime != before.ctime) {
                return Err(FsError::NotSync);
            }
            self.apply(caller.cred, node, before, set)
        })
    }

    pub(crate) fn do_set_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Durable<Changed<()>> {
        self.change_object(caller, object, FlushWhat::Everything, |node, before| {
            if !node.volume.has_acls || before.kind == FileKind::Symlink {
                return Err(FsError::NotSupported);
            }
            if access.is_some_and(|acl| acl.entries.is_empty()) {
                return Err(FsError::Invalid);
            }
            if default.is_some_and(|acl| !acl.entries.is_empty())
                && before.kind != FileKind::Directory
            {
                return Err(FsError::Invalid);
            }
            self.assume(caller.cred)?;
            if let Some(acl) = access {
                // The kernel makes permission bits of a minimal list and keeps no attribute.
                acl::write(&node.path, Which::Access, acl)?;
            }
            if let Some(acl) = default
                && before.kind == FileKind::Directory
            {
                acl::write(&node.path, Which::Default, acl)?;
            }
            Ok(())
        })
    }

    pub(crate) fn do_write(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Durable<Changed<Written>> {
        let node = match self.node(object, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let changed = self.ordered(&node, |node, before| {
            let end = offset.checked_add(data.len() as u64);
            if end.is_none_or(|end| i64::try_from(end).is_err()) {
                return Err(FsError::FileTooLarge);
            }
            require_write(caller.cred, node, before)?;
            let writer = self.writer(node)?;
            self.assume(caller.cred)?;
            if how == WriteHow::Unstable {
                node.mark_dirty();
            }
            let mut written = 0;
            while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
                match rustix::io::pwrite(&writer, rest, offset + written as u64) {
                    Ok(0) => break,
                    Ok(more) => written += more,
                    Err(Errno::INTR) => {}
                    // What was written before the disk was full is told.
                    Err(_) if written > 0 => break,
                    Err(errno) => return Err(from_errno(errno)),
                }
            }
            let committed = if node.volume.is_volatile() { WriteHow::FileSync } else { how };
            Ok(Written { count: written as u32, committed })
        });
        let what = match how {
            WriteHow::Unstable => return Durable::promising_nothing(changed),
            WriteHow::DataSync => FlushWhat::Data,
            WriteHow::FileSync => FlushWhat::Everything,
        };
        promise(&node, changed, what)
    }

    pub(crate) fn do_commit(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Durable<Changed<()>> {
        let (node, attr) = match self.live(object, caller.waiting) {
            Ok(live) => live,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        if attr.kind != FileKind::Regular {
            return Durable::promising_nothing(Changed {
                wcc: Wcc { before: None, after: Some(attr) },
                result: Err(FsError::Invalid),
            });
        }
        let wcc = Wcc { before: Some(PreAttr::from(&attr)), after: Some(attr) };
        // Whether or not we know of anything to flush: data written before the node was last
        // let go, or the server last started, is the kernel's to know.
        let volume = Arc::clone(&node.volume);
        durable(&volume, Changed { wcc, result: Ok(()) }, [(node, FlushWhat::Data)])
    }

    /// Does something to an object under its order lock, and takes its attributes before and
    /// after.
    pub(crate) fn ordered<T>(
        &self,
        node: &Arc<Node>,
        change: impl FnOnce(&Arc<Node>, &Attr) -> Result<T, FsError>,
    ) -> Changed<T> {
        let _order = node.order.lock();
        let before = match node.attr() {
            Ok(before) => before,
            Err(error) => {
                if error == FsError::Stale {
                    self.storage.cache.remove(node);
                }
                return Changed::failed(error);
            }
        };
        let result = change(node, &before);
        let wcc = Wcc { before: Some(PreAttr::from(&before)), after: node.attr().ok() };
        Changed { wcc, result }
    }

    fn change_object(
        &self,
        _caller: &Caller<'_>,
        object: &StorageHandle,
        what: FlushWhat,
        change: impl FnOnce(&Arc<Node>, &Attr) -> Result<(), FsError>,
    ) -> Durable<Changed<()>> {
        match self.node(object, Waiting::Allowed) {
            Ok(node) => {
                let changed = self.ordered(&node, change);
                promise(&node, changed, what)
            }
            Err(error) => Durable::promising_nothing(Changed::failed(error)),
        }
    }

    /// Sets attributes under the caller's identity: the size, which may be cut by those who may
    /// write; then what is the owner's, the mode after the owner, since a change of owner takes
    /// set-id bits away, and the times last.
    pub(crate) fn apply(
        &self,
        cred: &Cred,
        node: &Node,
        before: &Attr,
        set: &SetAttr,
    ) -> Result<(), FsError> {
        if let Some(size) = set.size {
            require_write(cred, node, before)?;
            if i64::try_from(size).is_err() {
                return Err(FsError::FileTooLarge);
            }
            let writer = self.writer(node)?;
            self.assume(cred)?;
            rustix::fs::ftruncate(&writer, size).map_err(from_errno)?;
        }
        self.assume(cred)?;
        if set.uid.is_some() || set.gid.is_some() {
            if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
                return Err(FsError::Invalid);
            }
            rustix::fs::chownat(
                &node.path,
                c"",
                set.uid.map(Uid::from_raw),
                set.gid.map(Gid::from_raw),
                AtFlags::EMPTY_PATH,
            )
            .map_err(from_errno)?;
        }
        if let Some(mode) = set.mode
            // Linux keeps no mode for symbolic links; clients that set one mean no harm.
            && before.kind != FileKind::Symlink
        {
            file::change_mode(&node.path, mode & 0o7777).map_err(from_errno)?;
        }
        self.apply_times(cred, node, before, set)
    }

    /// Sets the times. To set both to now, or any to another time, is as the kernel has it for
    /// `utimensat`; one alone to now, which clients do when a file is cut, asks for permission
    /// to write, while the kernel would ask for the owner.
    fn apply_times(
        &self,
        cred: &Cred,
        node: &Node,
        before: &Attr,
        set: &SetAttr,
    ) -> Result<(), FsError> {
        let was_cut = set.size.is_some();
        let times = match (set.atime, set.mtime) {
            (SetTime::Keep, SetTime::Keep) => return Ok(()),
            // Cutting the file has set it.
            (SetTime::Keep, SetTime::ServerTime) if was_cut => return Ok(()),
            times => times,
        };
        let is_one_to_now = matches!(
            times,
            (SetTime::Keep, SetTime::ServerTime) | (SetTime::ServerTime, SetTime::Keep)
        );
        let is_owner = cred.uid == before.uid || cred.is_superuser();
        if is_one_to_now && !is_owner {
            node.require(before, cred, WRITE)?;
            self.assume_server()?;
        }
        let times =
            Timestamps { last_access: timespec(times.0)?, last_modification: timespec(times.1)? };
        rustix::fs::utimensat(&node.path, c"", &times, AtFlags::EMPTY_PATH).map_err(from_errno)
    }
}

/// Whether a caller may write a file's data: its owner always, since the client checked when
/// it opened the file, perhaps while creating it without write permission.
fn require_write(cred: &Cred, node: &Node, attr: &Attr) -> Result<(), FsError> {
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::Invalid),
    }
    if cred.uid == attr.uid { Ok(()) } else { node.require(attr, cred, WRITE) }
}

/// A change that succeeded, until the object is flushed; a failure at once.
fn promise<T>(node: &Arc<Node>, changed: Changed<T>, what: FlushWhat) -> Durable<Changed<T>> {
    if changed.result.is_err() {
        return Durable::promising_nothing(changed);
    }
    durable(&node.volume, changed, [(Arc::clone(node), what)])
}

fn timespec(time: SetTime) -> Result<Timespec, FsError> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        SetTime::Keep => Ok(special(UTIME_OMIT)),
        SetTime::ServerTime => Ok(special(UTIME_NOW)),
        SetTime::To(time) if time.nanoseconds < 1_000_000_000 => {
            Ok(Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) })
        }
        SetTime::To(_) => Err(FsError::Invalid),
    }
}
