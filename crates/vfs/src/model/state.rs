//! What the model's operations do to its files.

use std::collections::BTreeMap;

use crate::permission::{self, is_allowed};
use crate::{Attr, Cred, DeviceNumber, Entry, FileKind, FsError, Name, SetAttr, SetTime, Time};

use super::{Contents, FILE_BYTES_MAX, FILES_MAX, File, ROOT, State, handle};

impl State {
    pub(super) fn now(&mut self) -> Time {
        self.clock += 1;
        Time {
            seconds: 1_000_000_000 + (self.clock / 1000) as i64,
            nanoseconds: (self.clock % 1000) as u32,
        }
    }

    pub(super) fn file(&self, fileid: u64) -> Result<&File, FsError> {
        self.files.get(&fileid).ok_or(FsError::Stale)
    }

    pub(super) fn file_mut(&mut self, fileid: u64) -> Result<&mut File, FsError> {
        self.files.get_mut(&fileid).ok_or(FsError::Stale)
    }

    pub(super) fn entry(&self, fileid: u64) -> Result<Entry, FsError> {
        Ok(Entry { handle: handle(fileid, self.handle_bytes)?, attr: self.file(fileid)?.attr })
    }

    pub(super) fn add(
        &mut self,
        fsid: u64,
        cred: &Cred,
        kind: FileKind,
        contents: Contents,
        mode: u32,
        device: DeviceNumber,
    ) -> u64 {
        let now = self.now();
        let fileid = self.next_fileid;
        self.next_fileid += 1;
        let size = match &contents {
            Contents::Target(target) => target.len() as u64,
            Contents::Names { .. } => 4096,
            Contents::Data(_) | Contents::Special => 0,
        };
        let attr = Attr {
            kind,
            mode: mode & 0o7777,
            links: if kind == FileKind::Directory { 2 } else { 0 },
            uid: cred.uid,
            gid: cred.gid,
            size,
            used: size,
            device,
            fsid,
            fileid,
            atime: now,
            mtime: now,
            ctime: now,
        };
        let file = File {
            attr,
            contents,
            verifier: None,
            access_acl: None,
            default_acl: None,
            xattrs: BTreeMap::new(),
        };
        self.files.insert(fileid, file);
        fileid
    }

    pub(super) fn check(&self, cred: &Cred, fileid: u64, wanted: u8) -> Result<(), FsError> {
        let file = self.file(fileid)?;
        if is_allowed(&file.attr, file.access_acl.as_ref(), cred, wanted) {
            Ok(())
        } else {
            Err(FsError::AccessDenied)
        }
    }

    /// Permission to read or write a file's data: a file's owner always has it.
    pub(super) fn check_data(&self, cred: &Cred, fileid: u64, wanted: u8) -> Result<(), FsError> {
        match self.file(fileid)?.attr {
            Attr { kind: FileKind::Directory, .. } => Err(FsError::IsDirectory),
            Attr { kind: FileKind::Regular, uid, .. } if uid == cred.uid => Ok(()),
            Attr { kind: FileKind::Regular, .. } => self.check(cred, fileid, wanted),
            _ => Err(FsError::Invalid),
        }
    }

    pub(super) fn may_change_names(&self, cred: &Cred, dir: u64) -> Result<(), FsError> {
        if self.files.len() >= FILES_MAX {
            return Err(FsError::NoSpace);
        }
        self.check(cred, dir, permission::WRITE | permission::EXECUTE)
    }

    /// In a directory with the sticky bit, only owners remove names.
    pub(super) fn may_unbind(&self, cred: &Cred, dir: u64, id: u64) -> Result<(), FsError> {
        let dir = self.file(dir)?.attr;
        let is_owner =
            cred.is_superuser() || cred.uid == dir.uid || cred.uid == self.file(id)?.attr.uid;
        if dir.mode & 0o1000 == 0 || is_owner { Ok(()) } else { Err(FsError::NotPermitted) }
    }

    pub(super) fn named(&self, dir: u64, name: Name<'_>) -> Result<Option<u64>, FsError> {
        match &self.file(dir)?.contents {
            Contents::Names { names, .. } => Ok(names.get(name.as_bytes()).copied()),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub(super) fn bind(&mut self, dir: u64, name: Name<'_>, id: u64) -> Result<(), FsError> {
        let now = self.now();
        let is_directory = self.file(id)?.attr.kind == FileKind::Directory;
        let dir = self.file_mut(dir)?;
        let Contents::Names { names, order, next, .. } = &mut dir.contents else {
            return Err(FsError::NotDirectory);
        };
        names.insert(name.as_bytes().to_vec(), id);
        order.insert(*next, name.as_bytes().to_vec());
        *next += 1;
        dir.attr.mtime = now;
        dir.attr.ctime = now;
        if is_directory {
            dir.attr.links += 1;
        } else {
            let file = self.file_mut(id)?;
            file.attr.links += 1;
            file.attr.ctime = now;
        }
        Ok(())
    }

    /// Takes a name away, and the file with its last name.
    pub(super) fn drop_name(&mut self, dir_id: u64, name: Name<'_>) -> Result<(), FsError> {
        let now = self.now();
        let dir = self.file_mut(dir_id)?;
        let Contents::Names { names, order, .. } = &mut dir.contents else {
            return Err(FsError::NotDirectory);
        };
        let id = names.remove(name.as_bytes()).ok_or(FsError::NotFound)?;
        order.retain(|_, other| other != name.as_bytes());
        dir.attr.mtime = now;
        dir.attr.ctime = now;
        let file = self.files.get_mut(&id).ok_or(FsError::Stale)?;
        file.attr.ctime = now;
        let is_directory = file.attr.kind == FileKind::Directory;
        if is_directory {
            self.files.remove(&id);
        } else {
            file.attr.links -= 1;
            if file.attr.links == 0 {
                self.files.remove(&id);
            }
        }
        if is_directory {
            self.file_mut(dir_id)?.attr.links -= 1;
        }
        Ok(())
    }

    pub(super) fn set(&mut self, cred: &Cred, id: u64, set: &SetAttr) -> Result<(), FsError> {
        let now = self.now();
        let attr = self.file(id)?.attr;
        let is_owner = cred.is_superuser() || cred.uid == attr.uid;
        if let Some(size) = set.size {
            self.check_data(cred, id, permission::WRITE)?;
            if size > FILE_BYTES_MAX {
                return Err(FsError::FileTooLarge);
            }
            let file = self.file_mut(id)?;
            if let Contents::Data(data) = &mut file.contents {
                data.resize(size as usize, 0);
            }
            file.attr.size = size;
            file.attr.used = size;
            file.attr.mtime = now;
        }
        let changes_owner = set.uid.is_some_and(|uid| uid != attr.uid);
        let may_give = set.gid.is_none_or(|gid| gid == attr.gid || cred.is_member(gid));
        if (changes_owner || (set.gid.is_some() && !(is_owner && may_give))) && !cred.is_superuser()
        {
            return Err(FsError::NotPermitted);
        }
        let sets_exact_time =
            matches!(set.atime, SetTime::To(_)) || matches!(set.mtime, SetTime::To(_));
        if (set.mode.is_some() || sets_exact_time) && !is_owner {
            return Err(FsError::NotPermitted);
        }
        let file = self.file_mut(id)?;
        if let Some(mode) = set.mode {
            file.attr.mode = mode & 0o7777;
        }
        file.attr.uid = set.uid.unwrap_or(file.attr.uid);
        file.attr.gid = set.gid.unwrap_or(file.attr.gid);
        let apply = |time: &mut Time, how: SetTime| match how {
            SetTime::Keep => {}
            SetTime::ServerTime => *time = now,
            SetTime::To(to) => *time = to,
        };
        apply(&mut file.attr.atime, set.atime);
        apply(&mut file.attr.mtime, set.mtime);
        file.attr.ctime = now;
        Ok(())
    }
}

pub(super) fn move_name(
    state: &mut State,
    cred: &Cred,
    (from_dir, from_name): (u64, Name<'_>),
    (to_dir, to_name): (u64, Name<'_>),
) -> Result<(), FsError> {
    let id = state.named(from_dir, from_name)?.ok_or(FsError::NotFound)?;
    let victim = state.named(to_dir, to_name)?;
    state.may_change_names(cred, from_dir)?;
    state.may_change_names(cred, to_dir)?;
    state.may_unbind(cred, from_dir, id)?;
    if victim == Some(id) {
        return Ok(());
    }
    let is_directory = state.file(id)?.attr.kind == FileKind::Directory;
    let mut above = to_dir;
    while is_directory && above != ROOT {
        if above == id {
            return Err(FsError::Invalid);
        }
        match &state.file(above)?.contents {
            Contents::Names { parent, .. } => above = *parent,
            _ => return Err(FsError::NotDirectory),
        }
    }
    if let Some(victim) = victim {
        state.may_unbind(cred, to_dir, victim)?;
        match (&state.file(victim)?.contents, is_directory) {
            (Contents::Names { names, .. }, true) if !names.is_empty() => {
                return Err(FsError::NotEmpty);
            }
            (Contents::Names { .. }, false) => return Err(FsError::IsDirectory),
            (Contents::Names { .. }, true) | (_, false) => {}
            (_, true) => return Err(FsError::NotDirectory),
        }
        state.drop_name(to_dir, to_name)?;
    }
    state.bind(to_dir, to_name, id)?;
    if !is_directory {
        state.drop_name(from_dir, from_name)?;
        return Ok(());
    }
    // A directory has one name: move it without counting links of its own.
    let moved = state.files.get(&id).cloned();
    state.drop_name(from_dir, from_name)?;
    if let Some(mut moved) = moved {
        if let Contents::Names { parent, .. } = &mut moved.contents {
            *parent = to_dir;
        }
        state.files.insert(id, moved);
    }
    Ok(())
}
