//! CREATE: an ordinary file, or what is there already.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode as Permissions, OFlags};
use rustix::io::Errno;
use steadfast_recovery::Action;
use steadfast_vfs::{
    Attr, Caller, Changed, CreateHow, Created, Cred, Durable, Entry, FileKind, FlushWhat, FsError,
    Name, SetAttr, SetTime, StorageHandle,
};

use super::{Made, MadeFile, link_by_descriptor};
use crate::attributes;
use crate::error::from_errno;
use crate::logging::{self, Effects};
use crate::marks;
use crate::node::{Node, NodePin};
use crate::tree::Tree;
use crate::tree::making::{unmasked, verifier_attributes, verifier_seconds};
use crate::tree::setting;

impl Tree {
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
                    effects.targets.push((node.now_for(), FlushWhat::Everything));
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
        node: &NodePin,
        attr: &Attr,
        how: &CreateHow,
        effects: &mut Effects<'_>,
    ) -> Result<(NodePin, Attr), FsError> {
        if attr.kind != FileKind::Regular {
            return Err(FsError::Exists);
        }
        match how {
            CreateHow::Guarded(_) => Err(FsError::Exists),
            CreateHow::Unchecked(set) => {
                let Some(size) = set.size else { return Ok((node.clone(), *attr)) };
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
                Ok((node.clone(), attr))
            }
            CreateHow::Exclusive { verifier, .. } => {
                let [atime, mtime] = verifier_seconds(*verifier);
                let is_same =
                    attr.atime.seconds == atime && attr.mtime.seconds == mtime && attr.size == 0;
                if is_same { Ok((node.clone(), *attr)) } else { Err(FsError::Exists) }
            }
        }
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
