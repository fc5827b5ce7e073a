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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::namespace;

/// Nothing about the file ever changes.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// The file's name and number; 1 is the directory.
const NAME: &str = "slow-disk";
const NUMBER: INodeNo = INodeNo(2);
/// Larger than any request of a loop device, so that a write of the block layer stays one.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Parts of one write were seen to follow each other by 0.05 to 0.5 ms in a guest, and separate
/// writes by as little as 0.1 ms: a write may be joined that is none, which makes the disk faster.
const JOINED_WITHIN: Duration = Duration::from_millis(1);

/// A slow disk in use; gone when dropped.
pub(crate) struct SlowDisk {
    at: PathBuf,
    shared: Arc<Shared>,
    /// Ends with this.
    _session: BackgroundSession,
}

#[derive(Default)]
struct Shared {
    write_ns: AtomicU64,
    writes: AtomicU64,
    joins: AtomicBool,
}

impl SlowDisk {
    /// Makes the file of a disk below the empty directory `at`, with the contents of another file.
    pub(crate) fn start(content: File, at: &Path) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let size_bytes = content.metadata()?.len();
        let disk =
            Disk { content, size_bytes, shared: Arc::clone(&shared), last: Mutex::default() };
        let mut configuration = Config::default();
        configuration.mount_options = vec![MountOption::FSName("steadfast-slow-disk".to_owned())];
        // One head.
        configuration.n_threads = Some(1);
        let session = fuser::spawn_mount(disk, at, &configuration)
            .with_context(|| format!("cannot mount the slow disk at {}", at.display()))?;
        Ok(Self { at: at.to_owned(), shared, _session: session })
    }

    /// The file for a loop device, or for a guest.
    pub(crate) fn path(&self) -> PathBuf {
        self.at.join(NAME)
    }

    /// Writes so far, joined ones counted once.
    pub(crate) fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::Relaxed)
    }

    /// From now on a write that begins where the last one ended, and soon after it, is a part of it
    /// and takes no time. User-mode Linux passes each page of a write on by itself, and next to
    /// nothing is between them.
    pub(crate) fn join_writes(&self) {
        self.shared.joins.store(true, Ordering::Relaxed);
    }

    /// From now on each write takes so long.
    pub(crate) fn set_write_time(&self, time: Duration) {
        self.shared.write_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.set_write_time(Duration::ZERO);
        // Whoever still has it open keeps it until he ends.
        let _ = namespace::run("umount", &["--lazy", &self.at.display().to_string()]);
    }
}

struct Disk {
    content: File,
    size_bytes: u64,
    shared: Arc<Shared>,
    /// Where the last write ended, and when.
    last: Mutex<Option<(u64, Instant)>>,
}

impl Disk {
    /// Whether a write is taken for a part of the last one.
    fn continues_the_last(&self, offset: u64, now: Instant) -> bool {
        let last = self.last.lock().map_or(None, |last| *last);
        self.shared.joins.load(Ordering::Relaxed)
            && last.is_some_and(|(end, when)| {
                end == offset && now.saturating_duration_since(when) < JOINED_WITHIN
            })
    }

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
        if !self.continues_the_last(offset, begun) {
            self.shared.writes.fetch_add(1, Ordering::Relaxed);
            let time = Duration::from_nanos(self.shared.write_ns.load(Ordering::Relaxed));
            std::thread::sleep(time.saturating_sub(begun.elapsed()));
        }
        if let Ok(mut last) = self.last.lock() {
            *last = Some((offset + data.len() as u64, Instant::now()));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_at_once_where_the_last_write_ended_is_a_part_of_it() {
        let shared = Arc::<Shared>::default();
        let content = tempfile::tempfile().expect("a file");
        let now = Instant::now();
        let last = Mutex::new(Some((4096, now)));
        let disk = Disk { content, size_bytes: 1 << 20, shared: Arc::clone(&shared), last };
        let soon = now + Duration::from_micros(200);
        assert!(!disk.continues_the_last(4096, soon), "it was not told to join");
        shared.joins.store(true, Ordering::Relaxed);
        assert!(disk.continues_the_last(4096, soon));
        assert!(!disk.continues_the_last(8192, soon));
        assert!(!disk.continues_the_last(0, soon));
        assert!(!disk.continues_the_last(4096, now + JOINED_WITHIN));
    }
}
