//! What decides about access to an object that replay brings back: owner, mode and access lists, set
//! one after the other and never so that anybody may do meanwhile what they may neither before nor
//! afterwards.
//!
//! The group's mode bits of an object with an access list are the most that the list grants to whom it
//! names; without the list they are the group's own. So a list that is taken away alone gives the group
//! what the list's users had, and a mode that was masked alone does the same. Whatever is more than one
//! step is done behind a mode of nothing.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, Uid};
use steadfast_recovery::AclsToSet;
use steadfast_sys::{file, xattr};
use steadfast_vfs::{Attr, FileKind, FsError, Time};

use crate::acl::{self, Which};
use crate::attributes;
use crate::error::from_errno;

/// What the group may do, and all whom an access list names.
const GROUP_CLASS: u32 = 0o070;
/// All that a mode has.
const MODE_BITS: u32 = 0o7777;

/// Takes away the access lists that an object has got from its directory.
pub(crate) fn strip(object: BorrowedFd<'_>) -> Result<(), FsError> {
    for which in [Which::Access, Which::Default] {
        if !acl::kept(object, which, xattr::value)?.is_empty() {
            acl::write_encoded(object, which, &[])?;
        }
    }
    Ok(())
}

/// A step towards what an object is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Mode(u32),
    Owner(u32, u32),
    Access(Vec<u8>),
    Default(Vec<u8>),
}

/// The steps from what there is, with these lists, to what is wanted.
fn steps(
    now: &Attr,
    lists: [&[u8]; 2],
    wanted: &Attr,
    acls: &AclsToSet<'_>,
) -> Result<Vec<Step>, FsError> {
    let mode = wanted.mode & MODE_BITS;
    let mut steps = Vec::new();
    if (now.uid, now.gid) != (wanted.uid, wanted.gid) {
        steps.push(Step::Owner(wanted.uid, wanted.gid));
    }
    if wanted.kind == FileKind::Symlink {
        return Ok(steps);
    }
    let [access, default] = lists;
    if let Some(list) = acls.default
        && list != default
    {
        steps.push(Step::Default(list.to_vec()));
    }
    if let Some(list) = acls.access {
        // The mode may have been set after the list was.
        let list = match list {
            [] => Vec::new(),
            list => acl::with_mode(list, mode).ok_or(FsError::Invalid)?,
        };
        if list != access {
            steps.push(Step::Access(list));
        }
    }
    if !steps.is_empty() {
        steps.insert(0, Step::Mode(0));
    }
    // btrfs stores a mode, and the list that it changes too, one after the other.
    let has_list_of_mode =
        access.is_empty() || acl::with_mode(access, mode).is_none_or(|list| list == access);
    if !steps.is_empty() || now.mode != mode || !has_list_of_mode {
        steps.push(Step::Mode(mode));
    }
    Ok(steps)
}

fn take(step: &Step, object: BorrowedFd<'_>) -> Result<(), FsError> {
    match step {
        Step::Mode(mode) => file::change_mode(object, *mode).map_err(from_errno),
        Step::Owner(uid, gid) => {
            let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
            rustix::fs::chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(from_errno)
        }
        Step::Access(list) => acl::write_encoded(object, Which::Access, list),
        Step::Default(list) => acl::write_encoded(object, Which::Default, list),
    }
}

/// Whether an object has these lists, but for the permissions that are in its mode too.
pub(crate) fn has(object: BorrowedFd<'_>, acls: &AclsToSet<'_>) -> Result<bool, FsError> {
    let now = attributes::attr(&attributes::stat(object)?, 0);
    if now.links == 0 {
        return Err(FsError::Stale);
    }
    if now.kind == FileKind::Symlink {
        return Ok(true);
    }
    for (which, list) in [(Which::Access, acls.access), (Which::Default, acls.default)] {
        let Some(list) = list else { continue };
        let list = match (which, list) {
            (Which::Access, [_, ..]) => acl::with_mode(list, now.mode).ok_or(FsError::Invalid)?,
            _ => list.to_vec(),
        };
        if acl::kept(object, which, xattr::value)? != list {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives an object what is wanted, and its times.
pub(crate) fn restore(
    object: BorrowedFd<'_>,
    wanted: &Attr,
    acls: &AclsToSet<'_>,
) -> Result<(), FsError> {
    let now = attributes::attr(&attributes::stat(object)?, 0);
    if now.links == 0 {
        return Err(FsError::Stale);
    }
    let lists = match wanted.kind {
        FileKind::Symlink => [Vec::new(), Vec::new()],
        _ => [
            acl::kept(object, Which::Access, xattr::value)?,
            acl::kept(object, Which::Default, xattr::value)?,
        ],
    };
    let mut failed = None;
    for step in steps(&now, lists.each_ref().map(Vec::as_slice), wanted, acls)? {
        match (take(&step, object), &step) {
            (Ok(()), _) => {}
            // Mounted without access lists: it does without, and grants the less.
            (Err(FsError::NotSupported), Step::Access(_)) => {
                file::change_mode(object, wanted.mode & MODE_BITS & !GROUP_CLASS)
                    .map_err(from_errno)?;
                failed = Some(FsError::NotSupported);
                break;
            }
            (Err(error), _) => return Err(error),
        }
    }
    let stamp =
        |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
    let times =
        Timestamps { last_access: stamp(wanted.atime), last_modification: stamp(wanted.mtime) };
    rustix::fs::utimensat(object, c"", &times, AtFlags::EMPTY_PATH).map_err(from_errno)?;
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
#[path = "restoring_tests.rs"]
mod tests;
