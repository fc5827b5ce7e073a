//! The model as a [`FileSystem`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::permission::{self, is_allowed};
use crate::{
    AccessMask, Acl, Attr, Caller, Changed, CreateHow, Created, DeviceNumber, DirEntry, DirPage,
    Durable, Entry, Extents, FileKind, FilePlace, FileSystem, FlushDomain, FsError, FsInfo,
    FsStatistics, Guard, GuardKind, GuardListener, Looked, Name, NodeKind, PathLimits, PreAttr,
    RangeLock, RangeLocks, ReadDone, ReadPlace, Renamed, SeekFor, SetAttr, SetXattrHow, Sought,
    StorageHandle, Time, Wcc, WriteHow, Written,
};

use super::extents::CLONE_BLOCK_BYTES;
use super::state::move_name;
use super::{
    Contents, FILE_BYTES_MAX, FILES_MAX, LINKS_MAX, ModelFs, NewFile, ROOT, State, number,
};

impl FileSystem for ModelFs {
    fn root(&self) -> Result<Entry, FsError> {
        self.state().entry(ROOT)
    }

    fn domain(&self) -> FlushDomain {
        FlushDomain(self.fsid as u32)
    }

    fn open_to_lock(
        &self,
        object: &StorageHandle,
        kind: RangeLock,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        self.open_for_locks(object, kind)
    }

    fn guard(
        &self,
        object: &StorageHandle,
        kind: GuardKind,
        listener: &Arc<dyn GuardListener>,
    ) -> Result<Box<dyn Guard>, FsError> {
        self.take_guard(object, kind, listener)
    }

    fn attributes(&self, _caller: &Caller<'_>, object: &StorageHandle) -> Result<Attr, FsError> {
        Ok(self.state().file(number(object)?)?.attr)
    }

    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Durable<Changed<()>> {
        if let (Some(_), Ok(id)) = (set.size, number(object)) {
            self.open_for_writing(id);
        }
        let (changed, id) = self.change(object, |state, id| {
            if guard.is_some_and(|ctime| state.files.get(&id).is_none_or(|f| f.attr.ctime != ctime))
            {
                return Err(FsError::NotSync);
            }
            state.set(caller.cred, id, set)
        });
        let is_ok = changed.result.is_ok();
        self.promise(caller, changed, is_ok, &[id])
    }

    fn lookup(&self, caller: &Caller<'_>, dir: &StorageHandle, name: Name<'_>) -> Looked {
        let state = self.state();
        let looked = number(dir).and_then(|dir| Ok((dir, state.file(dir)?.attr)));
        match looked {
            Err(error) => Looked { dir_attr: None, result: Err(error) },
            Ok((dir, attr)) => Looked {
                dir_attr: Some(attr),
                result: state.named(dir, name).and_then(|found| {
                    state.check(caller.cred, dir, permission::EXECUTE)?;
                    state.entry(found.ok_or(FsError::NotFound)?)
                }),
            },
        }
    }

    fn lookup_parent(&self, caller: &Caller<'_>, dir: &StorageHandle) -> Looked {
        let state = self.state();
        let looked = number(dir).and_then(|dir| Ok((dir, state.file(dir)?)));
        match looked {
            Err(error) => Looked { dir_attr: None, result: Err(error) },
            Ok((dir, file)) => Looked {
                dir_attr: Some(file.attr),
                result: match &file.contents {
                    Contents::Names { parent, .. } => state
                        .check(caller.cred, dir, permission::EXECUTE)
                        .and_then(|()| state.entry(*parent)),
                    _ => Err(FsError::NotDirectory),
                },
            },
        }
    }

    fn access(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attr), FsError> {
        let state = self.state();
        let file = state.file(number(object)?)?;
        let may = |bits| is_allowed(&file.attr, file.access_acl.as_ref(), caller.cred, bits);
        let mut granted = AccessMask::empty();
        if may(permission::READ) {
            granted |= AccessMask::READ | AccessMask::XATTR_READ | AccessMask::XATTR_LIST;
        }
        if may(permission::WRITE) {
            granted |= AccessMask::XATTR_WRITE;
        }
        // Names are changed by who may write and search their directory.
        if file.attr.kind == FileKind::Directory {
            if may(permission::WRITE | permission::EXECUTE) {
                granted |= AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
            }
            if may(permission::EXECUTE) {
                granted |= AccessMask::LOOKUP;
            }
        } else {
            if may(permission::WRITE) {
                granted |= AccessMask::MODIFY | AccessMask::EXTEND;
            }
            if may(permission::EXECUTE) {
                granted |= AccessMask::EXECUTE;
            }
        }
        Ok((granted & wanted, file.attr))
    }

    fn read_link(
        &self,
        _caller: &Caller<'_>,
        link: &StorageHandle,
        target: &mut Vec<u8>,
    ) -> Result<Attr, FsError> {
        let state = self.state();
        let file = state.file(number(link)?)?;
        match &file.contents {
            Contents::Target(text) => {
                target.extend_from_slice(text);
                Ok(file.attr)
            }
            _ => Err(FsError::Invalid),
        }
    }

    fn read(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
        _may_be_place: bool,
        into: &mut Vec<u8>,
    ) -> Result<ReadDone, FsError> {
        let state = self.state();
        let id = number(file)?;
        state.check_data(caller.cred, id, permission::READ)?;
        let file = state.file(id)?;
        let Contents::Data(data) = &file.contents else {
            return Err(FsError::Invalid);
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let end = start.saturating_add(count as usize).min(data.len());
        let found = data.get(start..end).unwrap_or(&[]);
        into.extend_from_slice(found);
        Ok(ReadDone {
            count: found.len() as u32,
            is_end: end == data.len(),
            attr: file.attr,
            place: ReadPlace::Appended,
        })
    }

    fn write(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Durable<Changed<Written>> {
        if let Ok(id) = number(file) {
            self.open_for_writing(id);
        }
        let (changed, id) = self.change(file, |state, id| {
            state.check_data(caller.cred, id, permission::WRITE)?;
            let end = offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?;
            if end > FILE_BYTES_MAX {
                return Err(FsError::FileTooLarge);
            }
            let now = state.now();
            let file = state.file_mut(id)?;
            let Contents::Data(contents) = &mut file.contents else {
                return Err(FsError::Invalid);
            };
            if !data.is_empty() {
                if contents.len() < end as usize {
                    contents.resize(end as usize, 0);
                }
                if let Some(place) = contents.get_mut(offset as usize..end as usize) {
                    place.copy_from_slice(data);
                }
                file.attr.size = contents.len() as u64;
                file.attr.used = file.attr.size;
                file.attr.mtime = now;
                file.attr.ctime = now;
            }
            Ok(Written { count: data.len() as u32, committed: how })
        });
        let is_ok = changed.result.is_ok() && how != WriteHow::Unstable;
        self.promise(caller, changed, is_ok, &[id])
    }

    fn commit(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        _offset: u64,
        _count: u32,
    ) -> Durable<Changed<()>> {
        let (changed, id) = self.change(file, |state, id| {
            // Directories too: what has no data has none to make stable.
            if state.file(id)?.attr.kind != FileKind::Regular {
                return Err(FsError::Invalid);
            }
            state.check_data(caller.cred, id, permission::WRITE)
        });
        let is_ok = changed.result.is_ok();
        self.promise(caller, changed, is_ok, &[id])
    }

    fn sync(&self, _caller: &Caller<'_>, object: &StorageHandle) -> Durable<Result<(), FsError>> {
        let found = number(object).and_then(|id| self.state().file(id).map(drop));
        match found {
            Ok(()) => self.promise_all(),
            Err(error) => Durable::promising_nothing(Err(error)),
        }
    }

    fn create(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        how: &CreateHow,
    ) -> Durable<Changed<Created>> {
        let set = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => *set,
            CreateHow::Exclusive { mode, umask, .. } => {
                SetAttr { mode: Some(*mode), umask: *umask, ..SetAttr::default() }
            }
        };
        let existing = {
            let state = self.state();
            number(dir).ok().and_then(|dir| state.named(dir, name).ok().flatten())
        };
        if let Some(id) = existing {
            let (changed, dir_id) = self.change(dir, |state, _| {
                let file = state.file(id)?;
                match how {
                    CreateHow::Exclusive { verifier, .. } if file.verifier == Some(*verifier) => {}
                    CreateHow::Unchecked(set) if file.attr.kind == FileKind::Regular => {
                        let size = SetAttr { size: set.size, ..SetAttr::default() };
                        if !size.is_empty() {
                            state.set(caller.cred, id, &size)?;
                        }
                    }
                    _ => return Err(FsError::Exists),
                }
                state.entry(id)
            });
            let is_ok = changed.result.is_ok();
            return self.promise(caller, changed, is_ok, &[id, dir_id]);
        }
        let contents = Contents::Data(Vec::new());
        let device = DeviceNumber::default();
        let made = self.make(
            caller,
            dir,
            name,
            &set,
            NewFile { kind: FileKind::Regular, device, contents },
        );
        made.map(|changed| {
            if let (CreateHow::Exclusive { verifier, .. }, Ok(entry)) = (how, &changed.result)
                && let Ok(file) = self.state().file_mut(entry.attr.fileid)
            {
                file.verifier = Some(*verifier);
            }
            changed
        })
    }

    fn make_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let contents = Contents::Names {
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 3,
            parent: ROOT,
        };
        let device = DeviceNumber::default();
        self.make(caller, dir, name, set, NewFile { kind: FileKind::Directory, device, contents })
    }

    fn make_symlink(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        target: &[u8],
        _set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let contents = Contents::Target(target.to_vec());
        let device = DeviceNumber::default();
        self.make(caller, dir, name, &set, NewFile { kind: FileKind::Symlink, device, contents })
    }

    fn make_node(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        kind: NodeKind,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        let (kind, device) = match kind {
            NodeKind::CharacterDevice(device) => (FileKind::CharacterDevice, device),
            NodeKind::BlockDevice(device) => (FileKind::BlockDevice, device),
            NodeKind::Socket => (FileKind::Socket, DeviceNumber::default()),
            NodeKind::Fifo => (FileKind::Fifo, DeviceNumber::default()),
        };
        let needs_superuser = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        if needs_superuser && !caller.cred.is_superuser() {
            return Durable::promising_nothing(Changed::failed(FsError::NotPermitted));
        }
        self.make(caller, dir, name, set, NewFile { kind, device, contents: Contents::Special })
    }

    fn remove(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        self.unbind(caller, dir, name, false)
    }

    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        self.unbind(caller, dir, name, true)
    }

    fn rename(
        &self,
        caller: &Caller<'_>,
        from_dir: &StorageHandle,
        from_name: Name<'_>,
        to_dir: &StorageHandle,
        to_name: Name<'_>,
    ) -> Durable<Renamed> {
        let mut state = self.state();
        let look = |state: &State, dir: &StorageHandle| {
            number(dir).and_then(|id| Ok((id, state.file(id)?.attr)))
        };
        let (from, to) = match (look(&state, from_dir), look(&state, to_dir)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => {
                return Durable::promising_nothing(Renamed {
                    from: Wcc::default(),
                    to: Wcc::default(),
                    result: Err(error),
                });
            }
        };
        let result = move_name(&mut state, caller.cred, (from.0, from_name), (to.0, to_name));
        let wcc = |(id, before): (u64, Attr)| Wcc {
            before: Some(PreAttr::from(&before)),
            after: state.file(id).ok().map(|file| file.attr),
        };
        let renamed = Renamed { from: wcc(from), to: wcc(to), result };
        drop(state);
        self.promise(caller, renamed, result.is_ok(), &[to.0, from.0])
    }

    fn link(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<(Option<Attr>, Changed<()>)> {
        let id = number(object).unwrap_or(0);
        let (changed, dir_id) = self.change(dir, |state, dir_id| {
            let attr = state.file(id)?.attr;
            if attr.kind == FileKind::Directory {
                return Err(FsError::IsDirectory);
            }
            if attr.links >= LINKS_MAX {
                return Err(FsError::TooManyLinks);
            }
            state.may_change_names(caller.cred, dir_id)?;
            if state.named(dir_id, name)?.is_some() {
                return Err(FsError::Exists);
            }
            state.bind(dir_id, name, id)
        });
        let attr = self.state().file(id).ok().map(|file| file.attr);
        let is_ok = changed.result.is_ok();
        self.promise(caller, (attr, changed), is_ok, &[id, dir_id])
    }

    fn read_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        cookie: u64,
        with_entries: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<DirPage, FsError> {
        let state = self.state();
        let id = number(dir)?;
        let file = state.file(id)?;
        let Contents::Names { names, order, parent, .. } = &file.contents else {
            return Err(FsError::NotDirectory);
        };
        state.check(caller.cred, id, permission::READ)?;
        let dots: [(u64, &[u8], u64); 2] = [(1, b".", id), (2, b"..", *parent)];
        let dots = dots.into_iter().filter(|(position, ..)| *position > cookie);
        let named = order
            .range((Bound::Excluded(cookie.max(2)), Bound::Unbounded))
            .filter_map(|(position, name)| Some((*position, name.as_slice(), *names.get(name)?)));
        let page = |is_end| DirPage { dir_attr: Some(file.attr), is_end };
        for (position, name, fileid) in dots.chain(named) {
            let entry = if with_entries { state.entry(fileid).ok() } else { None };
            if !each(&DirEntry { name, fileid, cookie: position, entry }) {
                return Ok(page(false));
            }
        }
        Ok(page(true))
    }

    fn statistics(
        &self,
        _caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(FsStatistics, Attr), FsError> {
        let state = self.state();
        let attr = state.file(number(object)?)?.attr;
        let free_files = (FILES_MAX - state.files.len()) as u64;
        let statistics = FsStatistics {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            available_bytes: 1 << 39,
            total_files: FILES_MAX as u64,
            free_files,
            available_files: free_files,
        };
        Ok((statistics, attr))
    }

    fn info(&self, object: &StorageHandle) -> Result<FsInfo, FsError> {
        self.state().file(number(object)?)?;
        Ok(FsInfo {
            file_bytes_max: FILE_BYTES_MAX,
            time_granularity_ns: 1,
            has_links: true,
            has_symlinks: true,
            is_homogeneous: true,
            has_acls: true,
            has_xattrs: true,
            clone_block_bytes: CLONE_BLOCK_BYTES as u32,
        })
    }

    fn path_limits(&self, object: &StorageHandle) -> Result<PathLimits, FsError> {
        self.state().file(number(object)?)?;
        Ok(PathLimits {
            links_max: LINKS_MAX,
            name_bytes_max: 255,
            is_case_insensitive: false,
            preserves_case: true,
        })
    }

    fn acls(
        &self,
        _caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(Acl, Option<Acl>, Attr), FsError> {
        let state = self.state();
        let file = state.file(number(object)?)?;
        let access = file.access_acl.clone().unwrap_or_else(|| Acl::from_mode(file.attr.mode));
        Ok((access, file.default_acl.clone(), file.attr))
    }

    fn set_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Durable<Changed<()>> {
        let (changed, id) = self.change(object, |state, id| {
            let now = state.now();
            let file = state.file_mut(id)?;
            if !caller.cred.is_superuser() && caller.cred.uid != file.attr.uid {
                return Err(FsError::NotPermitted);
            }
            if file.attr.kind != FileKind::Directory
                && default.is_some_and(|acl| !acl.entries.is_empty())
            {
                return Err(FsError::AccessDenied);
            }
            if let Some(acl) = access {
                file.access_acl = (!acl.is_minimal()).then(|| acl.clone());
                file.attr.mode = file.attr.mode & !0o777 | acl.mode();
            }
            if let Some(acl) = default {
                file.default_acl = (!acl.entries.is_empty()).then(|| acl.clone());
            }
            file.attr.ctime = now;
            Ok(())
        });
        let is_ok = changed.result.is_ok();
        self.promise(caller, changed, is_ok, &[id])
    }

    fn seek(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        what: SeekFor,
    ) -> Result<Sought, FsError> {
        self.state().seek(caller.cred, number(file)?, offset, what)
    }

    fn extents(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
    ) -> Result<Extents, FsError> {
        self.state().extents(caller.cred, number(file)?, offset, count)
    }

    fn allocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        self.stable(caller, file, |state, id| state.put(caller.cred, id, offset, length, None))
    }

    fn deallocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        self.stable(caller, file, |state, id| state.make_hole(caller.cred, id, offset, length))
    }

    fn copy(
        &self,
        caller: &Caller<'_>,
        source: FilePlace<'_>,
        target: FilePlace<'_>,
        count: u64,
    ) -> Durable<Changed<u64>> {
        self.stable(caller, target.file, |state, id| {
            let data = state.source(caller.cred, number(source.file)?, source.offset, count)?;
            let (from, to) = (source.offset, target.offset);
            if source.file == target.file && from.abs_diff(to) < data.len() as u64 {
                return Err(FsError::Invalid);
            }
            state.put(caller.cred, id, target.offset, data.len() as u64, Some(&data))?;
            Ok(data.len() as u64)
        })
    }

    fn clone_range(
        &self,
        caller: &Caller<'_>,
        source: FilePlace<'_>,
        target: FilePlace<'_>,
        count: u64,
    ) -> Durable<Changed<()>> {
        self.stable(caller, target.file, |state, id| {
            let data = state.source(caller.cred, number(source.file)?, source.offset, count)?;
            let is_all = count == 0 || count == data.len() as u64;
            let is_block = |offset: u64| offset.is_multiple_of(CLONE_BLOCK_BYTES);
            if !is_all || !is_block(source.offset) || !is_block(target.offset) {
                return Err(FsError::Invalid);
            }
            state.put(caller.cred, id, target.offset, data.len() as u64, Some(&data))
        })
    }

    fn xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let state = self.state();
        let id = number(object)?;
        state.check(caller.cred, id, permission::READ)?;
        state.file(id)?.xattrs.get(name).cloned().ok_or(FsError::NotFound)
    }

    fn xattr_names(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        let state = self.state();
        let id = number(object)?;
        state.check(caller.cred, id, permission::READ)?;
        Ok(state.file(id)?.xattrs.keys().cloned().collect())
    }

    fn set_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
        value: &[u8],
        how: SetXattrHow,
    ) -> Durable<Changed<()>> {
        self.stable(caller, object, |state, id| state.set_xattr(caller.cred, id, name, value, how))
    }

    fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
    ) -> Durable<Changed<()>> {
        self.stable(caller, object, |state, id| state.remove_xattr(caller.cred, id, name))
    }
}
