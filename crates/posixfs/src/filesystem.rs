//! The trait's methods, each in the part of the tree (`tree/`) that has its subject.

use std::path::PathBuf;
use std::sync::Arc;

use steadfast_vfs::{
    AccessMask, Acl, Attr, Caller, Changed, CreateHow, Created, DirEntry, DirPage, Durable, Entry,
    Extents, FilePlace, FileSystem, FlushDomain, FsError, FsInfo, FsStatistics, Guard, GuardKind,
    GuardListener, Looked, Name, NodeKind, PathLimits, RangeLock, RangeLocks, ReadDone, Renamed,
    SeekFor, SetAttr, SetXattrHow, Sought, StorageHandle, Time, Waiting, WriteHow, Written,
};

use crate::tree::Tree;

impl FileSystem for Tree {
    fn root(&self) -> Result<Entry, FsError> {
        self.do_root()
    }

    fn domain(&self) -> FlushDomain {
        self.domain
    }

    fn object(&self, handle: &StorageHandle) -> (u64, StorageHandle) {
        self.identity(handle)
    }

    fn mount(&self, object: &StorageHandle, waiting: Waiting) -> Result<u32, FsError> {
        self.mount_number(object, waiting)
    }

    fn mount_points(
        &self,
        mount: u32,
        waiting: Waiting,
        look: &mut dyn FnMut(&[PathBuf]),
    ) -> Result<(), FsError> {
        self.look_at_mount_points(mount, waiting, look)
    }

    fn known_path(&self, object: &StorageHandle) -> Option<PathBuf> {
        self.path_of_known(object)
    }

    fn open_to_lock(
        &self,
        object: &StorageHandle,
        kind: RangeLock,
    ) -> Result<Box<dyn RangeLocks>, FsError> {
        self.do_open_to_lock(object, kind)
    }

    fn guard(
        &self,
        object: &StorageHandle,
        kind: GuardKind,
        listener: &Arc<dyn GuardListener>,
    ) -> Result<Box<dyn Guard>, FsError> {
        self.do_guard(object, kind, listener)
    }

    fn attributes(&self, caller: &Caller<'_>, object: &StorageHandle) -> Result<Attr, FsError> {
        self.do_attributes(caller, object)
    }

    fn set_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Durable<Changed<()>> {
        self.do_set_attributes(caller, object, set, guard)
    }

    fn lookup(&self, caller: &Caller<'_>, dir: &StorageHandle, name: Name<'_>) -> Looked {
        self.do_lookup(caller, dir, name)
    }

    fn lookup_parent(&self, caller: &Caller<'_>, dir: &StorageHandle) -> Looked {
        self.do_lookup_parent(caller, dir)
    }

    fn access(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attr), FsError> {
        self.do_access(caller, object, wanted)
    }

    fn read_link(
        &self,
        caller: &Caller<'_>,
        link: &StorageHandle,
        target: &mut Vec<u8>,
    ) -> Result<Attr, FsError> {
        self.do_read_link(caller, link, target)
    }

    fn read(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
        may_be_place: bool,
        into: &mut Vec<u8>,
    ) -> Result<ReadDone, FsError> {
        self.do_read(caller, file, offset, count, may_be_place, into)
    }

    fn write(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Durable<Changed<Written>> {
        self.do_write(caller, file, offset, data, how)
    }

    fn commit(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        _offset: u64,
        _count: u32,
    ) -> Durable<Changed<()>> {
        self.do_commit(caller, file)
    }

    fn sync(&self, caller: &Caller<'_>, object: &StorageHandle) -> Durable<Result<(), FsError>> {
        self.do_sync(caller, object)
    }

    fn create(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        how: &CreateHow,
    ) -> Durable<Changed<Created>> {
        self.do_create(caller, dir, name, how)
    }

    fn make_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        self.do_make_directory(caller, dir, name, set)
    }

    fn make_symlink(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        target: &[u8],
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        self.do_make_symlink(caller, dir, name, target, set)
    }

    fn make_node(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
        kind: NodeKind,
        set: &SetAttr,
    ) -> Durable<Changed<Created>> {
        self.do_make_node(caller, dir, name, kind, set)
    }

    fn remove(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        self.do_remove(caller, dir, name)
    }

    fn remove_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<Changed<()>> {
        self.do_remove_directory(caller, dir, name)
    }

    fn rename(
        &self,
        caller: &Caller<'_>,
        from_dir: &StorageHandle,
        from_name: Name<'_>,
        to_dir: &StorageHandle,
        to_name: Name<'_>,
    ) -> Durable<Renamed> {
        self.do_rename(caller, from_dir, from_name, to_dir, to_name)
    }

    fn link(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Durable<(Option<Attr>, Changed<()>)> {
        self.do_link(caller, object, dir, name)
    }

    fn read_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        cookie: u64,
        with_entries: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<DirPage, FsError> {
        self.do_read_directory(caller, dir, cookie, with_entries, each)
    }

    fn statistics(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(FsStatistics, Attr), FsError> {
        self.do_statistics(caller, object)
    }

    fn info(&self, object: &StorageHandle) -> Result<FsInfo, FsError> {
        self.do_info(object)
    }

    fn path_limits(&self, object: &StorageHandle) -> Result<PathLimits, FsError> {
        self.do_path_limits(object)
    }

    fn acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(Acl, Option<Acl>, Attr), FsError> {
        self.do_acls(caller, object)
    }

    fn set_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Durable<Changed<()>> {
        self.do_set_acls(caller, object, access, default)
    }

    fn seek(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        what: SeekFor,
    ) -> Result<Sought, FsError> {
        self.do_seek(caller, file, offset, what)
    }

    fn extents(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
    ) -> Result<Extents, FsError> {
        self.do_extents(caller, file, offset, count)
    }

    fn allocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        self.do_allocate(caller, file, offset, length)
    }

    fn deallocate(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        length: u64,
    ) -> Durable<Changed<()>> {
        self.do_deallocate(caller, file, offset, length)
    }

    fn copy(
        &self,
        caller: &Caller<'_>,
        source: FilePlace<'_>,
        target: FilePlace<'_>,
        count: u64,
    ) -> Durable<Changed<u64>> {
        self.do_copy(caller, source, target, count)
    }

    fn clone_range(
        &self,
        caller: &Caller<'_>,
        source: FilePlace<'_>,
        target: FilePlace<'_>,
        count: u64,
    ) -> Durable<Changed<()>> {
        self.do_clone_range(caller, source, target, count)
    }

    fn xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        self.do_xattr(caller, object, name)
    }

    fn xattr_names(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        self.do_xattr_names(caller, object)
    }

    fn set_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
        value: &[u8],
        how: SetXattrHow,
    ) -> Durable<Changed<()>> {
        self.do_set_xattr(caller, object, name, value, how)
    }

    fn remove_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
    ) -> Durable<Changed<()>> {
        self.do_remove_xattr(caller, object, name)
    }
}
