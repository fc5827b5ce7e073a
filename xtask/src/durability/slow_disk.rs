//! A slow disk: one file of a FUSE file system, with direct I/O, on which a loop device is put.
//!
//! It does one request at a time, as a disk with one head does, and each write takes so long. What
//! it has written is stable, so that a flush costs nothing; reads take no time of their own, since
//! what the servers read was read before. It can be told how slow it is while it is in use: file
//! systems and working sets are made in no time. (A loop device throttled by the kernel would let
//! writes through in bursts of a tenth of a second, and the first for nothing.)
//!
//! This process must never do I/O on it itself, or it would wait for its own answer.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// Nothing about the file ever changes.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// The file's name and number; 1 is the directory.
const NAME: &str = "slow-disk";
const NUMBER: INodeNo = INodeNo(2);
/// Larger than any request of a loop device, so that a write of the block layer stays one.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// A slow disk in use; gone when dropped.
pub(super) struct SlowDisk {
    path: PathBuf,
    write_ns: Arc<AtomicU64>,
    /// Ends with this.
    _session: BackgroundSession,
}

impl SlowDisk {
    /// Makes the file of a disk below the empty directory `at`, with the contents of another file.
    pub(super) fn start(content: File, at: &Path) -> Result<Self> {
        let write_ns = Arc::new(AtomicU64::new(0));
        let size_bytes = content.metadata()?.len();
        let disk = Disk { content, size_bytes, write_ns: Arc::clone(&write_ns) };
        let mut configuration = Config::default();
        configuration.mount_options = vec![MountOption::FSName("steadfast-slow-disk".to_owned())];
        // One head.
        configuration.n_threads = Some(1);
        let session = fuser::spawn_mount(disk, at, &configuration)
            .with_context(|| format!("cannot mount the slow disk at {}", at.display()))?;
        Ok(Self { path: at.join(NAME), write_ns, _session: session })
    }

    /// The file for a loop device.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on each write takes so long.
    pub(super) fn set_write_time(&self, time: Duration) {
        self.write_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

struct Disk {
    content: File,
    size_bytes: u64,
    write_ns: Arc<AtomicU64>,
}

impl Disk {
    fn attributes(&self, number: INodeNo) -> FileAttr {
        let is_root = number == INodeNo::ROOT;
        FileAttr {
            ino: number,
            size: if is_root { 0 } else { self.size_bytes },
            blocks: if is_root { 0 } else { self.size_bytes / 512 },
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
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    eprintln!("durability: the slow disk fails: {error}");
    Errno::EIO
}

impl Filesystem for Disk {
    fn init(&mut self, _: &Request, configuration: &mut KernelConfig) -> io::Result<()> {
        configuration.set_max_write(WRITE_BYTES_MAX).map(drop).or(Ok(()))
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&FOREVER, &self.attributes(NUMBER), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(number));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let count = u64::from(size).min(self.size_bytes.saturating_sub(offset));
        let mut bytes = vec![0; count as usize];
        match self.content.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let begun = Instant::now();
        if let Err(error) = self.content.write_all_at(data, offset) {
            return reply.error(errno(&error));
        }
        let time = Duration::from_nanos(self.write_ns.load(Ordering::Relaxed));
        std::thread::sleep(time.saturating_sub(begun.elapsed()));
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
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
}
