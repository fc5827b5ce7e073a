//! The kernel's requests: each is answered at once if that needs no call, else by a thread of the
//! pool.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::errors::Errno;
use crate::locks::table::{Kind, LAST, Owner};
use crate::options::TRANSFER_BYTES_MAX;
use crate::pool::Pool;
use crate::process::Who;
use crate::volume::{Asked, Changes, Listed, Making, Opened, Placed, Volume, attributes_of};

/// The kernel keeps neither names nor attributes: it asks, and is answered from our caches. So a
/// change that we learn of is seen at once, and rights are checked for each user.
const NOT_KEPT: Duration = Duration::ZERO;
/// Our numbers are never used again while the kernel knows them.
const GENERATION: Generation = Generation(0);
/// Read-ahead and write-back of pages that the kernel has in flight.
const BACKGROUND: u16 = 64;
/// Blocks of statfs, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// The file system as fuser wants it.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) volume: Arc<Volume>,
    pub(crate) pool: Pool,
}

impl Adapter {
    fn run(&self, request: &Request, answer: impl FnOnce(&Volume, Who) + Send + 'static) {
        let (volume, who) = (Arc::clone(&self.volume), Who::of(request));
        self.pool.run(who.pid, move || answer(&volume, who));
    }

    /// The same for what takes a second at most, whatever the server does.
    fn run_prompt(&self, request: &Request, answer: impl FnOnce(&Volume, Who) + Send + 'static) {
        let (volume, who) = (Arc::clone(&self.volume), Who::of(request));
        self.pool.run_prompt(move || answer(&volume, who));
    }
}

/// With `noac` no pages are kept at all. Otherwise our caches say when pages are stale, and not the
/// kernel (`FUSE_AUTO_INVAL_DATA`): that drops pages when mtime differs, thus after each write of ours
/// too, and asks for attributes before each read, which would wait for data on its way.
fn opened_flags(opened: Opened) -> FopenFlags {
    if opened.is_direct {
        FopenFlags::FOPEN_DIRECT_IO
    } else if opened.keeps_pages {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::empty()
    }
}

macro_rules! answer {
    ($outcome:expr, $reply:ident, $value:pat => $answer:expr) => {
        match $outcome {
            Ok($value) => $answer,
            Err(errno) => $reply.error(errno.into()),
        }
    };
}

/// Kinds of locks (fcntl(2)).
const F_RDLCK: i32 = 0;
const F_WRLCK: i32 = 1;
const F_UNLCK: i32 = 2;

fn asked(
    file: FileHandle,
    owner: LockOwner,
    (first, last): (u64, u64),
    typ: i32,
    waits: bool,
) -> Asked {
    let kind = match typ {
        F_RDLCK => Some(Kind::Read),
        F_WRLCK => Some(Kind::Write),
        _ => None,
    };
    Asked { file: file.0, owner: Owner(owner.0), first, last, kind, waits }
}

fn entry(reply: ReplyEntry, node: &crate::node::Node) {
    reply.entry(&NOT_KEPT, &attributes_of(node), GENERATION);
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> io::Result<()> {
        // Each is better than nothing: where the kernel has it not, it goes without.
        let _ = kernel.set_max_write(TRANSFER_BYTES_MAX);
        let _ = kernel.set_max_background(BACKGROUND);
        let mut wanted = vec![
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            // Shared mappings, with noac.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        let local = self.volume.options().local_locks;
        wanted.extend((!local.posix).then_some(InitFlags::FUSE_POSIX_LOCKS));
        wanted.extend((!local.flock).then_some(InitFlags::FUSE_FLOCK_LOCKS));
        for flag in wanted {
            if kernel.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel lacks an ability");
            }
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let who = Who::of(request);
        let asker = self.volume.asker(who);
        let known = self.volume.lookup_known(&asker, parent.0, name.as_bytes());
        self.volume.counters().note_cache(known.is_some());
        if let Some(node) = known {
            return entry(reply, &node);
        }
        let name = name.to_owned();
        self.run(request, move |volume, who| {
            let found = volume.lookup(&volume.asker(who), parent.0, name.as_bytes());
            answer!(found, reply, node => entry(reply, &node));
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.volume.nodes().forget(number.0, times);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let known = self.volume.known(number.0);
        self.volume.counters().note_cache(known.is_some());
        if let Some(node) = known {
            return reply.attr(&NOT_KEPT, &attributes_of(&node));
        }
        let answer = move |volume: &Volume, who| {
            let told = volume.getattr(&volume.asker(who), number.0);
            answer!(told, reply, node => reply.attr(&NOT_KEPT, &attributes_of(&node)));
        };
        if number == INodeNo::ROOT {
            self.run_prompt(request, answer);
        } else {
            self.run(request, answer);
        }
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        file: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes { mode, uid, gid, size, atime, mtime };
        self.run(request, move |volume, who| {
            let changed =
                volume.setattr(&volume.asker(who), number.0, changes, file.map(|file| file.0));
            answer!(changed, reply, node => reply.attr(&NOT_KEPT, &attributes_of(&node)));
        });
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        self.run(request, move |volume, who| {
            let target = volume.readlink(&volume.asker(who), number.0);
            answer!(target, reply, target => reply.data(&target));
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, parent, name, Making::Special(mode, rdev), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, parent, name, Making::Directory(mode), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes().to_vec();
        self.make(request, parent, name, Making::Symlink(target), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.run(request, move |volume, who| {
            let removed = volume.unlink(&volume.asker(who), parent.0, name.as_bytes());
            answer!(removed, reply, () => reply.ok());
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.run(request, move |volume, who| {
            let removed = volume.rmdir(&volume.asker(who), parent.0, name.as_bytes());
            answer!(removed, reply, () => reply.ok());
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            // NFSv3 has neither RENAME_NOREPLACE nor RENAME_EXCHANGE.
            return reply.error(Errno::EINVAL.into());
        }
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.run(request, move |volume, who| {
            let from = (parent.0, name.as_bytes());
            let renamed =
                volume.rename(&volume.asker(who), from, (new_parent.0, new_name.as_bytes()));
            answer!(renamed, reply, () => reply.ok());
        });
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        self.run(request, move |volume, who| {
            let linked = volume.link(&volume.asker(who), number.0, parent.0, name.as_bytes());
            answer!(linked, reply, node => entry(reply, &node));
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.run(request, move |volume, who| {
            let opened = volume.open(&volume.asker(who), number.0, flags.0);
            answer!(opened, reply, opened => {
                reply.opened(FileHandle(opened.file), opened_flags(opened));
            });
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name.to_owned();
        self.run(request, move |volume, who| {
            let made = volume.create(&volume.asker(who), parent.0, name.as_bytes(), mode, flags);
            answer!(made, reply, (node, opened) => {
                let attributes = attributes_of(&node);
                let file = FileHandle(opened.file);
                reply.created(&NOT_KEPT, &attributes, GENERATION, file, opened_flags(opened));
            });
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(request, move |volume, who| {
            let data = volume.read(&volume.asker(who), file.0, offset, size);
            answer!(data, reply, data => reply.data(&data));
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        let is_mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        self.run(request, move |volume, who| {
            let placed = Placed { offset, data: &data, is_mapped };
            let written = volume.write(&volume.asker(who), file.0, placed);
            answer!(written, reply, () => reply.written(data.len() as u32));
        });
    }

    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let (volume, who) = (Arc::clone(&self.volume), Who::of(request));
        self.pool.run(who.pid, move || {
            let asker = volume.asker(who);
            volume.unlock_closed(&asker, file.0, Owner(owner.0), |flushed| {
                answer!(flushed, reply, () => reply.ok());
            });
        });
    }

    fn fsync(&self, request: &Request, _: INodeNo, file: FileHandle, _: bool, reply: ReplyEmpty) {
        self.run(request, move |volume, who| {
            let synced = volume.fsync(&volume.asker(who), file.0);
            answer!(synced, reply, () => reply.ok());
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(hidden) = self.volume.release(file.0) {
            // Nobody waits for it.
            let volume = Arc::clone(&self.volume);
            self.pool.run(0, move || volume.remove_released(&hidden));
        }
        reply.ok();
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let answer = move |volume: &Volume, who| {
            let opened = volume.opendir(&volume.asker(who), number.0);
            answer!(opened, reply, file => reply.opened(FileHandle(file), FopenFlags::empty()));
        };
        if number == INodeNo::ROOT {
            self.run_prompt(request, answer);
        } else {
            self.run(request, answer);
        }
    }

    fn readdir(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        self.run(request, move |volume, who| {
            let listed =
                volume.readdir(&volume.asker(who), file.0, cookie, false, |next, name, what| {
                    let name = OsStr::from_bytes(name);
                    match what {
                        Listed::Plain(number, kind) => {
                            reply.add(INodeNo(*number), next, *kind, name)
                        }
                        Listed::Full(attributes) => {
                            reply.add(attributes.ino, next, attributes.kind, name)
                        }
                    }
                });
            answer!(listed, reply, () => reply.ok());
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.run(request, move |volume, who| {
            let listed =
                volume.readdir(&volume.asker(who), file.0, cookie, true, |next, name, what| {
                    let Listed::Full(attributes) = what else { return false };
                    let name = OsStr::from_bytes(name);
                    reply.add(attributes.ino, next, name, &NOT_KEPT, attributes, GENERATION)
                });
            answer!(listed, reply, () => reply.ok());
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.volume.releasedir(file.0);
        reply.ok();
    }

    /// Changes of names are stable on the server before they are acknowledged.
    fn fsyncdir(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.run(request, move |volume, who| {
            answer!(volume.sync_names(&volume.asker(who)), reply, () => reply.ok());
        });
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.run_prompt(request, move |volume, who| {
            answer!(volume.statfs(&volume.asker(who)), reply, (told, name_bytes_max) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
                reply.statfs(
                    blocks(told.total_bytes),
                    blocks(told.free_bytes),
                    blocks(told.available_bytes),
                    told.total_files,
                    told.available_files,
                    BLOCK_BYTES,
                    name_bytes_max,
                    BLOCK_BYTES,
                );
            });
        });
    }

    fn access(&self, request: &Request, number: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.run(request, move |volume, who| {
            let allowed = volume.access(&volume.asker(who), number.0, mask.bits());
            answer!(allowed, reply, () => reply.ok());
        });
    }

    fn getlk(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let asked = asked(file, owner, (start, end), typ, false);
        self.run(request, move |volume, who| {
            answer!(volume.test_lock(&volume.asker(who), &asked), reply, found => match found {
                None => reply.locked(start, end, F_UNLCK, 0),
                Some((held, pid)) => {
                    let typ = if held.kind == Kind::Read { F_RDLCK } else { F_WRLCK };
                    reply.locked(held.span.first, held.span.last.min(LAST), typ, pid);
                }
            });
        });
    }

    /// The answer comes when the lock is there; until then no thread waits.
    fn setlk(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (volume, who) = (Arc::clone(&self.volume), Who::of(request));
        let asked = asked(file, owner, (start, end), typ, sleep);
        self.pool.run(who.pid, move || {
            let asker = volume.asker(who);
            volume.set_lock(&asker, &asked, |locked| answer!(locked, reply, () => reply.ok()));
        });
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
        reply.error(Errno::EOPNOTSUPP.into());
    }
}

impl Adapter {
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        making: Making,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        self.run(request, move |volume, who| {
            let made = volume.make(&volume.asker(who), parent.0, name.as_bytes(), &making);
            answer!(made, reply, node => entry(reply, &node));
        });
    }
}
