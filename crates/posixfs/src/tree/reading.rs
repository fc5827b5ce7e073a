//! Operations that change nothing: attributes, look-up, access, links, data, limits.
//!
//! They never take the caller's identity: permission is checked here, against attributes read
//! for the purpose. The server itself may read and search everything.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::StatVfs;
use rustix::io::Errno;
use steadfast_sys::file;
use steadfast_vfs::permission::{EXECUTE, READ, WRITE};
use steadfast_vfs::{
    AccessMask, Acl, Attr, Caller, Entry, FileKind, FileRange, FsError, FsInfo, FsStatistics,
    Looked, Name, PathLimits, ReadDone, ReadPlace, StorageHandle, Waiting,
};

use super::{Tree, may_wait};
use crate::acl::{self, Which};
use crate::budget::Descriptor;
use crate::error::from_errno;
use crate::node::{Node, NodePin, ReadableFile};
use crate::read_ahead::{Presence, Read, ReadAhead, is_filled, presence};
use crate::traits;

/// From this size on a range of the page cache is sent without a copy.
const PLACE_BYTES_MIN: u64 = 64 << 10;
/// Longest target of a symbolic link (`PATH_MAX`).
const LINK_BYTES_MAX: usize = 4096;

/// Where a file's data was found.
enum Fetched {
    /// So many bytes were appended.
    Appended(usize),
    /// All is in the page cache and can be sent from there.
    Cached(Arc<Descriptor>),
}

impl Tree {
    pub(crate) fn do_root(&self) -> Result<Entry, FsError> {
        let root = self.root_node();
        Ok(Entry { handle: root.handle, attr: root.attr()? })
    }

    pub(crate) fn do_attributes(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<Attr, FsError> {
        Ok(self.live(object, caller.waiting)?.1)
    }

    pub(crate) fn do_lookup(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        name: Name<'_>,
    ) -> Looked {
        self.look(caller, dir, |dir| {
            let (node, attr) = self.child(dir, name.as_bytes())?;
            Ok(Entry { handle: node.handle, attr })
        })
    }

    pub(crate) fn do_lookup_parent(&self, caller: &Caller<'_>, dir: &StorageHandle) -> Looked {
        self.look(caller, dir, |dir| {
            if dir.is_same(self.root_node()) {
                return self.do_root();
            }
            let (node, attr) = self.parent(dir)?;
            Ok(Entry { handle: node.handle, attr })
        })
    }

    fn look(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        find: impl FnOnce(&NodePin) -> Result<Entry, FsError>,
    ) -> Looked {
        let (dir, attr) = match self.live(dir, caller.waiting) {
            Ok(live) => live,
            Err(error) => return Looked { dir_attr: None, result: Err(error) },
        };
        // The attributes of what is no directory say what it is instead: NFSv4 has a status for links.
        let result = if attr.kind == FileKind::Directory {
            dir.require(&attr, caller.cred, EXECUTE).and_then(|()| find(&dir))
        } else {
            Err(FsError::NotDirectory)
        };
        Looked { dir_attr: Some(attr), result }
    }

    pub(crate) fn do_access(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attr), FsError> {
        let (node, attr) = self.live(object, caller.waiting)?;
        // What each right asks of the permission bits, as the kernel's server has it.
        let rights: &[(AccessMask, u8)] = if attr.kind == FileKind::Directory {
            &[
                (AccessMask::READ, READ),
                (AccessMask::LOOKUP, EXECUTE),
                (AccessMask::MODIFY, WRITE | EXECUTE),
                (AccessMask::EXTEND, WRITE | EXECUTE),
                (AccessMask::DELETE, WRITE | EXECUTE),
                (AccessMask::XATTR_READ, READ),
                (AccessMask::XATTR_WRITE, WRITE),
                (AccessMask::XATTR_LIST, READ),
            ]
        } else {
            &[
                (AccessMask::READ, READ),
                (AccessMask::MODIFY, WRITE),
                (AccessMask::EXTEND, WRITE),
                (AccessMask::EXECUTE, EXECUTE),
                (AccessMask::XATTR_READ, READ),
                (AccessMask::XATTR_WRITE, WRITE),
                (AccessMask::XATTR_LIST, READ),
            ]
        };
        let mut granted = AccessMask::empty();
        for (right, permission) in rights {
            if wanted.contains(*right) && node.allows(&attr, caller.cred, *permission)? {
                granted |= *right;
            }
        }
        Ok((granted, attr))
    }

    pub(crate) fn do_read_link(
        &self,
        caller: &Caller<'_>,
        link: &StorageHandle,
        target: &mut Vec<u8>,
    ) -> Result<Attr, FsError> {
        let (node, attr) = self.live(link, caller.waiting)?;
        if attr.kind != FileKind::Symlink {
            return Err(FsError::Invalid);
        }
        let mut buffer = [0_u8; LINK_BYTES_MAX];
        let length =
            rustix::fs::readlinkat_raw(&node.path, c"", &mut buffer).map_err(from_errno)?;
        target.extend_from_slice(buffer.get(..length).unwrap_or(&[]));
        Ok(attr)
    }

    pub(crate) fn do_read(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
        offset: u64,
        count: u32,
        may_be_place: bool,
        into: &mut Vec<u8>,
    ) -> Result<ReadDone, FsError> {
        let (node, attr) = self.live_for_reading(caller, file)?;
        // The attributes are from before the data: a client that caches both takes the data for
        // older than it is, never for newer.
        let there = attr.size.saturating_sub(offset);
        let wanted = there.min(u64::from(count));
        if wanted == 0 {
            return Ok(ReadDone { count: 0, is_end: there == 0, attr, place: ReadPlace::Appended });
        }
        let is_end = wanted == there;
        let read = Read { offset, length: wanted, file_bytes: attr.size };
        match self.fetch(&node, read, may_wait(caller), may_be_place, into)? {
            Fetched::Appended(got) => {
                // Shorter than the size said: the file was cut meanwhile, and this is its end.
                let is_end = is_end || (got as u64) < wanted;
                Ok(ReadDone { count: got as u32, is_end, attr, place: ReadPlace::Appended })
            }
            Fetched::Cached(reader) => {
                let file = Arc::new(ReadableFile { reader, _node: node.now_for() });
                let length = wanted as u32;
                let place = ReadPlace::File(FileRange { file, offset, length });
                Ok(ReadDone { count: length, is_end, attr, place })
            }
        }
    }

    /// The file of a handle, whose data the caller may read.
    pub(crate) fn live_for_reading(
        &self,
        caller: &Caller<'_>,
        file: &StorageHandle,
    ) -> Result<(NodePin, Attr), FsError> {
        let (node, attr) = self.live(file, caller.waiting)?;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid),
        }
        // The owner may have opened the file before its mode forbade it; a program that may be
        // executed must be read for that.
        if attr.uid != caller.cred.uid && !node.allows(&attr, caller.cred, READ)? {
            node.require(&attr, caller.cred, EXECUTE)?;
        }
        Ok((node, attr))
    }

    /// Gets a file's data, and has what will be read next brought into memory if need be.
    fn fetch(
        &self,
        node: &Node,
        read: Read,
        may_wait: bool,
        may_be_place: bool,
        into: &mut Vec<u8>,
    ) -> Result<Fetched, FsError> {
        let reader = &self.reader(node)?;
        // Nothing more than this is done for files that are in memory.
        let cold = node.read_ahead.get().filter(|read_ahead| read_ahead.is_cold());
        match cold {
            Some(read_ahead) if may_wait => self.prepare(node, reader, read_ahead, read),
            Some(read_ahead) if read_ahead.wants(read) => return Err(FsError::WouldBlock),
            // It comes because one that may not wait would have had to. Quick disks have delivered
            // meanwhile: whether it has to wait itself says nothing.
            None if may_wait && ReadAhead::is_for(read) && !node.volume.is_volatile() => {
                let new = || Box::new(ReadAhead::new(&self.storage.read_ahead));
                self.prepare(node, reader, node.read_ahead.get_or_init(new), read);
            }
            _ => {}
        }
        let found = if may_be_place
            && read.length >= PLACE_BYTES_MIN
            && self.presence(reader, read) == Presence::Whole
            && is_filled(reader, into, read, may_wait)
        {
            Fetched::Cached(Arc::clone(reader))
        } else {
            Fetched::Appended(append(reader, node, into, read, may_wait)?)
        };
        if let Some(read_ahead) = cold
            && !may_wait
        {
            read_ahead.note_hit(read);
        }
        Ok(found)
    }

    /// How much of a range is in memory, asked as somebody who is told if this thread may be that.
    fn presence(&self, reader: &Descriptor, read: Read) -> Presence {
        match presence(reader, read) {
            // What it did before was another user's.
            Presence::Forbidden if self.switches && self.assume_server().is_ok() => {
                presence(reader, read)
            }
            known => known,
        }
    }

    fn prepare(&self, node: &Node, reader: &Descriptor, read_ahead: &ReadAhead, read: Read) {
        // Asking makes this thread one that is told.
        let _ = self.presence(reader, read);
        let open = || {
            let opened = node.open_again().ok()?;
            self.storage.cache.make_room();
            Some(opened)
        };
        read_ahead.prepare(reader, read, node.volume.habits, open);
    }

    pub(crate) fn do_statistics(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(FsStatistics, Attr), FsError> {
        let (node, attr) = self.live(object, caller.waiting)?;
        let StatVfs { f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, f_favail, .. } =
            rustix::fs::fstatvfs(&node.path).map_err(from_errno)?;
        let available = if caller.cred.is_superuser() { f_bfree } else { f_bavail };
        let mut statistics = FsStatistics {
            total_bytes: f_blocks.saturating_mul(f_frsize),
            free_bytes: f_bfree.saturating_mul(f_frsize),
            available_bytes: available.saturating_mul(f_frsize),
            total_files: f_files,
            free_files: f_ffree,
            available_files: f_favail,
        };
        // If it cannot be read any more the size does not hold, and the file system's is told.
        if let Some(now) = self.size_of(&node).and_then(|qgroup| qgroup.usage().ok())
            && let Some(limit) = now.limit_bytes
        {
            let left = limit.saturating_sub(now.used_bytes);
            statistics.total_bytes = limit;
            statistics.free_bytes = statistics.free_bytes.min(left);
            statistics.available_bytes = statistics.available_bytes.min(left);
        }
        Ok((statistics, attr))
    }

    pub(crate) fn do_info(&self, object: &StorageHandle) -> Result<FsInfo, FsError> {
        let node = self.node(object, Waiting::Allowed)?;
        let volume = &node.volume;
        Ok(FsInfo {
            file_bytes_max: volume.traits.file_bytes_max,
            time_granularity_ns: volume.traits.time_granularity_ns,
            has_links: volume.traits.links_max > 1,
            has_symlinks: volume.traits.has_symlinks,
            // A directory below may still fold case where this one does not: PATHCONF tells of it.
            is_homogeneous: !(volume.traits.may_fold_case && traits::folds_case(&node.path)),
            has_acls: volume.has_acls,
            has_xattrs: volume.has_xattrs,
            clone_block_bytes: volume.traits.clone_block_bytes,
        })
    }

    pub(crate) fn do_path_limits(&self, object: &StorageHandle) -> Result<PathLimits, FsError> {
        let node = self.node(object, Waiting::Allowed)?;
        let traits = &node.volume.traits;
        let is_folded = traits.may_fold_case && traits::folds_case(&node.path);
        Ok(PathLimits {
            links_max: traits.links_max,
            name_bytes_max: node.volume.name_bytes_max,
            is_case_insensitive: traits.is_case_insensitive || is_folded,
            preserves_case: traits.preserves_case,
        })
    }

    pub(crate) fn do_acls(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<(Acl, Option<Acl>, Attr), FsError> {
        let (node, attr) = self.live(object, caller.waiting)?;
        if !node.volume.has_acls {
            return Err(FsError::NotSupported);
        }
        let access = match attr.kind {
            FileKind::Symlink => None,
            _ => acl::read(&node.path, Which::Access)?,
        };
        let default = match attr.kind {
            FileKind::Directory => acl::read(&node.path, Which::Default)?,
            _ => None,
        };
        Ok((access.unwrap_or_else(|| Acl::from_mode(attr.mode)), default, attr))
    }
}

/// Reads until all is there or the file ends. Without `may_wait`, all or [`FsError::WouldBlock`];
/// with an error nothing is appended.
fn append(
    reader: &impl AsFd,
    node: &Node,
    into: &mut Vec<u8>,
    read: Read,
    may_wait: bool,
) -> Result<usize, FsError> {
    // tmpfs cannot promise not to wait, but does not.
    let may_wait = may_wait || node.volume.is_volatile();
    let before = into.len();
    let wanted = read.length as usize;
    let mut got = 0;
    while got < wanted {
        let at = read.offset.saturating_add(got as u64);
        match file::append_read(reader, into, wanted - got, at, may_wait) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(errno) => {
                into.truncate(before);
                let would_block = !may_wait && matches!(errno, Errno::AGAIN | Errno::OPNOTSUPP);
                return Err(if would_block { FsError::WouldBlock } else { from_errno(errno) });
            }
        }
    }
    Ok(got)
}
