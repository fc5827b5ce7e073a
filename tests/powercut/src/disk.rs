//! The recording disks: a FUSE file system of one file a disk, with direct I/O, on which loop
//! devices are put.
//!
//! A loop device turns a flush of its disk (`REQ_PREFLUSH`, and what FUA becomes, since a loop
//! device does not offer it) into `vfs_fsync` of the file, which comes here as FSYNC. FLUSH is only
//! what closing a descriptor sends, and says nothing about stability. Discards are refused: what a
//! disk returns for discarded sectors is no matter of the server's.
//!
//! This process must never do I/O below these mounts itself, or it would wait for its own answer.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::journal::{Event, Journal};

/// Sizes never change.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// Requests that are answered at one time.
const THREADS: usize = 2;
/// The number of the first disk's file; 1 is the directory.
const FIRST: u64 = 2;

struct Disks {
    journal: Arc<Journal>,
    names: Vec<String>,
}

/// Mounts the disks of a journal as files with these names; unmounted when dropped.
pub(crate) fn mount(
    journal: &Arc<Journal>,
    names: &[String],
    at: &Path,
) -> Result<BackgroundSession> {
    let mut configuration = Config::default();
    configuration.mount_options =
        vec![MountOption::FSName("steadfast-powercut".to_owned()), MountOption::NoAtime];
    configuration.n_threads = Some(THREADS);
    configuration.clone_fd = true;
    let disks = Disks { journal: Arc::clone(journal), names: names.to_vec() };
    fuser::spawn_mount(disks, at, &configuration)
        .with_context(|| format!("cannot mount the recording disks at {}", at.display()))
}

impl Disks {
    fn disk(number: INodeNo) -> Option<usize> {
        usize::try_from(u64::from(number).checked_sub(FIRST)?).ok()
    }

    fn attributes(&self, number: INodeNo) -> Option<FileAttr> {
        let is_root = number == INodeNo::ROOT;
        let size = match Self::disk(number) {
            _ if is_root => 0,
            Some(disk) => self.journal.disk_bytes(disk).ok()?,
            None => return None,
        };
        Some(FileAttr {
            ino: number,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o755 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

fn errno(error: &io::Error) -> Errno {
    eprintln!("powercut: a recording disk fails: {error}");
    Errno::EIO
}

impl Filesystem for Disks {
    fn init(&mut self, _: &Request, configuration: &mut KernelConfig) -> io::Result<()> {
        // Larger than any request of a loop device, so that a write is one event.
        configuration.set_max_write(1 << 20).map(drop).or(Ok(()))
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let disk = self.names.iter().position(|known| name == known.as_str());
        let number = disk.map(|disk| INodeNo(disk as u64 + FIRST));
        match number.and_then(|number| self.attributes(number)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        );
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(disk) = Self::disk(number) else { return reply.error(Errno::EISDIR) };
        let size_bytes = self.journal.disk_bytes(disk).unwrap_or(0);
        let count = u64::from(size).min(size_bytes.saturating_sub(offset));
        let mut bytes = vec![0; count as usize];
        match self.journal.read(disk, offset, &mut bytes) {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(disk) = Self::disk(number) else { return reply.error(Errno::EISDIR) };
        match self.journal.write(disk, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if let Some(disk) = Self::disk(number) {
            self.journal.note(Event::Flush { disk });
        }
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (index, name) in self.names.iter().enumerate().skip(offset as usize) {
            let number = INodeNo(index as u64 + FIRST);
            if reply.add(number, index as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
