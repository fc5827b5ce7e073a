//! Operations that change what is said of an object: SETATTR, ACLs.
//!
//! They run under the caller's identity, so that the kernel decides about ownership, quotas,
//! reserved space and set-id bits.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::time::ClockId;
use steadfast_recovery::{Action, AttributesUnderWay};
use steadfast_sys::{file, process};
use steadfast_vfs::permission::WRITE;
use steadfast_vfs::{
    Acl, Attr, Caller, Changed, Cred, Durable, FileKind, FsError, SetAttr, SetTime, StorageHandle,
    Time,
};

use super::Tree;
use super::making::begin_setting;
use super::writing::require_write;
use crate::acl::{self, Which};
use crate::error::from_errno;
use crate::logging::{self, Effects};
use crate::node::Node;

impl Tree {
    pub(crate) fn do_set_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Durable<Changed<()>> {
        self.change_object(caller, object, 0, |node, before, effects| {
            if guard.is_some_and(|ctime| ctime != before.ctime) {
                return Err(FsError::NotSync);
            }
            if guard.is_some() {
                begin_setting(caller, node, before, set, effects);
            }
            self.apply(caller.cred, node, before, set, effects)?;
            let object = node.key();
            let gap = set.size.and_then(|size| logging::gap(before, size));
            effects.change.action = Action::Attributes { object, size: set.size, gap };
            Ok(())
        })
    }

    pub(crate) fn do_set_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Durable<Changed<()>> {
        // For the log.
        let encoded = [access, default].map(|acl| acl.map(acl::encoded));
        let bytes = encoded.iter().flatten().map(Vec::len).sum();
        let [access_bytes, default_bytes] = &encoded;
        self.change_object(caller, object, bytes, |node, before, effects| {
            if !node.volume.has_acls || before.kind == FileKind::Symlink {
                return Err(FsError::NotSupported);
            }
            if access.is_some_and(|acl| acl.entries.is_empty()) {
                return Err(FsError::Invalid);
            }
            if default.is_some_and(|acl| !acl.entries.is_empty())
                && before.kind != FileKind::Directory
            {
                // As the kernel's server answers.
                return Err(FsError::AccessDenied);
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
            effects.change.action = Action::Acls {
                object: node.key(),
                access: access_bytes.as_deref(),
                default: default_bytes.as_deref().filter(|_| before.kind == FileKind::Directory),
            };
            Ok(())
        })
    }

    /// The attributes that a new object is to have, without an owner or group that its maker may not
    /// give (chown(2)): then it stays whose it is. Clients of some systems name both always; the
    /// kernel's server takes neither of anybody but root.
    pub(crate) fn givable(&self, cred: &Cred, set: &SetAttr) -> SetAttr {
        if set.uid.is_none() && set.gid.is_none() {
            return *set;
        }
        let acting = self.acting_uid(cred);
        let may_give = |gid: u32| {
            if self.switches {
                gid == cred.gid || cred.groups.contains(&gid)
            } else {
                process::effective_ids().1 == gid
                    || rustix::process::getgroups()
                        .is_ok_and(|own| own.contains(&Gid::from_raw(gid)))
            }
        };
        let is_root = acting == 0;
        SetAttr {
            // To the kernel -1 is "leave it as it is".
            uid: set.uid.filter(|uid| *uid != u32::MAX && (is_root || *uid == acting)),
            gid: set.gid.filter(|gid| *gid != u32::MAX && (is_root || may_give(*gid))),
            ..*set
        }
    }

    /// Sets attributes under the caller's identity: the size, which may be cut by those who may
    /// write; then what is the owner's, and the times last.
    pub(crate) fn apply(
        &self,
        cred: &Cred,
        node: &Node,
        before: &Attr,
        set: &SetAttr,
        effects: &mut Effects<'_>,
    ) -> Result<(), FsError> {
        if let Some(under_way) = under_way(node, cred, before, set) {
            effects.note_under_way(&node.volume, &under_way);
        }
        if let Some(size) = set.size {
            require_write(cred, node, before)?;
            let writer = self.writer(node)?;
            self.assume(cred)?;
            set_size(&*writer, size)?;
        }
        self.assume(cred)?;
        set_owner_and_mode(&node.path, before.kind, set)?;
        let Some((atime, mtime)) = times_to_set(set) else { return Ok(()) };
        let is_owner = cred.uid == before.uid || cred.is_superuser();
        if is_one_to_now(atime, mtime) && !is_owner {
            node.require(before, cred, WRITE)?;
            self.assume_server()?;
        }
        set_times(&node.path, atime, mtime)
    }
}

/// Of attributes that are to be set, those that are others. What clients ask for is often what is there
/// already, and a change of owner to the same would take set-id bits away; of a mode it is about these.
pub(crate) fn missing(set: &SetAttr, attr: &Attr) -> SetAttr {
    let uid = set.uid.filter(|uid| *uid != attr.uid);
    let gid = set.gid.filter(|gid| *gid != attr.gid);
    let is_given_away = uid.is_some() || gid.is_some();
    let mode = set.mode.map(|mode| attr.mode | mode & SET_ID);
    SetAttr {
        mode: mode.filter(|mode| *mode != attr.mode || is_given_away),
        uid,
        gid,
        size: set.size.filter(|size| *size != attr.size),
        ..*set
    }
}

/// Sets the attributes of a file that was just made, has no name yet, and is open for writing. Under
/// its owner's identity.
pub(crate) fn apply_to_new(file: impl AsFd, set: &SetAttr) -> Result<(), FsError> {
    if let Some(size) = set.size {
        set_size(&file, size)?;
    }
    set_owner_and_mode(&file, FileKind::Regular, set)?;
    match times_to_set(set) {
        Some((atime, mtime)) => set_times(&file, atime, mtime),
        None => Ok(()),
    }
}

fn set_size(file: impl AsFd, size: u64) -> Result<(), FsError> {
    if i64::try_from(size).is_err() {
        return Err(FsError::FileTooLarge);
    }
    rustix::fs::ftruncate(file, size).map_err(from_errno)
}

/// The mode after the owner, since a change of owner takes set-id bits away.
fn set_owner_and_mode(object: impl AsFd, kind: FileKind, set: &SetAttr) -> Result<(), FsError> {
    if set.uid.is_some() || set.gid.is_some() {
        if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
            return Err(FsError::Invalid);
        }
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        rustix::fs::chownat(&object, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(from_errno)?;
    }
    match set.mode {
        // Linux keeps no mode for symbolic links; clients that set one mean no harm.
        Some(mode) if kind != FileKind::Symlink => {
            file::change_mode(&object, mode & 0o7777).map_err(from_errno)
        }
        _ => Ok(()),
    }
}

/// The times that have to be set, once the size is.
fn times_to_set(set: &SetAttr) -> Option<(SetTime, SetTime)> {
    match (set.atime, set.mtime) {
        (SetTime::Keep, SetTime::Keep) => None,
        // Cutting the file has set it.
        (SetTime::Keep, SetTime::ServerTime) if set.size.is_some() => None,
        times => Some(times),
    }
}

/// To set both times to now, or any to another time, is as the kernel has it for `utimensat`; one
/// alone to now, which clients do when a file is cut, asks for permission to write, while the kernel
/// would ask for the owner.
fn is_one_to_now(atime: SetTime, mtime: SetTime) -> bool {
    matches!(
        (atime, mtime),
        (SetTime::Keep, SetTime::ServerTime) | (SetTime::ServerTime, SetTime::Keep)
    )
}

fn set_times(object: impl AsFd, atime: SetTime, mtime: SetTime) -> Result<(), FsError> {
    let times = Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
    rustix::fs::utimensat(object, c"", &times, AtFlags::EMPTY_PATH).map_err(from_errno)
}

/// Set-user-id and set-group-id.
pub(crate) const SET_ID: u32 = 0o6000;

/// What is to be noted before attributes are set: of what takes several steps, between which the
/// process may be killed; and of a file that is cut, over which replay would write what it had before
/// if the change's own record were lost.
fn under_way(node: &Node, cred: &Cred, before: &Attr, set: &SetAttr) -> Option<AttributesUnderWay> {
    let steps = [
        set.size.is_some(),
        set.uid.is_some() || set.gid.is_some(),
        set.mode.is_some() && before.kind != FileKind::Symlink,
        times_to_set(set).is_some(),
    ];
    let cuts = set.size.is_some_and(|size| size < before.size);
    if !cuts && steps.into_iter().filter(|is_taken| *is_taken).count() < 2 {
        return None;
    }
    let groups = |gid| gid == cred.gid || cred.groups.contains(&gid);
    let is_own = cred.uid == before.uid
        && set.uid.is_none_or(|uid| uid == before.uid)
        && set.gid.is_none_or(|gid| gid == before.gid || groups(gid));
    // Of others the kernel takes away set-id bits, when the file is cut or they are not of its group.
    let has_set_id = (before.mode | set.mode.unwrap_or(0)) & SET_ID != 0;
    let clock = rustix::time::clock_gettime(ClockId::Realtime);
    let now = Time { seconds: clock.tv_sec, nanoseconds: clock.tv_nsec as u32 };
    let time = |set: SetTime, before: Time| match set {
        SetTime::Keep => before,
        SetTime::ServerTime => now,
        SetTime::To(time) => time,
    };
    // Cutting sets it too.
    let mtime = if cuts && set.mtime == SetTime::Keep { SetTime::ServerTime } else { set.mtime };
    let wanted = Attr {
        uid: set.uid.unwrap_or(before.uid),
        gid: set.gid.unwrap_or(before.gid),
        mode: set.mode.map_or(before.mode, |mode| mode & 0o7777),
        atime: time(set.atime, before.atime),
        mtime: time(mtime, before.mtime),
        ..*before
    };
    Some(AttributesUnderWay {
        object: node.key(),
        before: *before,
        wanted,
        size: set.size,
        is_permitted: cred.is_superuser() || (is_own && !has_set_id),
        was_cut: false,
    })
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
