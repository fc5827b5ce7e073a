//! Open files: close-to-open consistency, reading and writing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_client::arguments::access;
use steadfast_client::{ClientError, FileType, Identity, NfsStat3};

use super::{Asker, Outcome, Volume, of_node};
use crate::errors::Errno;
use crate::node::{Hidden, Node};
use crate::transport::Patience;

/// Flags of open(2), as Linux has them on all architectures that matter here.
const O_ACCMODE: i32 = 0o3;
const O_WRONLY: i32 = 0o1;
const O_RDWR: i32 = 0o2;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;
/// Both `O_SYNC` and `O_DSYNC` have it.
const O_DSYNC: i32 = 0o10000;
/// The kernel opens a program to execute it (`__FMODE_EXEC`).
const FMODE_EXEC: i32 = 0o40;

/// A file that cannot be removed for so long is left to itself.
const REMOVALS: Duration = Duration::from_secs(5);

/// Open files whose attributes are asked for at one time.
const LOOKED_AT_MAX: usize = 256;

/// A file that is open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(super) node: Arc<Node>,
    /// Whoever opened the file: as with the kernel's client, its data is read and written as that
    /// user, whoever uses the descriptor.
    identity: Identity,
    flags: i32,
    /// It is counted among what is open at the server.
    is_counted: bool,
    /// The errors of writes that it was told of.
    seen_errors: AtomicU64,
}

/// Whether a file is opened for reading, and for writing.
fn access_of(flags: i32) -> (bool, bool) {
    match flags & O_ACCMODE {
        O_WRONLY => (false, true),
        O_RDWR => (true, true),
        _ => (true, false),
    }
}

impl OpenFile {
    pub(super) fn is_writer(&self) -> bool {
        self.flags & O_ACCMODE != 0
    }

    /// The error of a write that `fsync` was not told of yet; it is told again.
    fn unseen_error(&self) -> Outcome<()> {
        let seen = AtomicU64::new(self.seen_errors.load(Ordering::Relaxed));
        self.node.data.error_since(&seen)
    }

    /// Who asks for data, with the patience of whoever waits for it.
    pub(super) fn asker(&self, waiting: &Asker) -> Asker {
        Asker { identity: self.identity.clone(), patience: waiting.patience }
    }
}

/// What the kernel is told of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) file: u64,
    /// Its pages are still those of the file.
    pub(crate) keeps_pages: bool,
    /// The kernel is to keep no pages.
    pub(crate) is_direct: bool,
}

/// What was written, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'d> {
    pub(crate) offset: u64,
    pub(crate) data: &'d [u8],
    /// The kernel writes back pages that were changed through a mapping.
    pub(crate) is_mapped: bool,
}

impl Volume {
    fn register(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        (flags, is_counted): (i32, bool),
    ) -> Opened {
        let keeps_pages = node.open();
        let file = self.next_open();
        let open = OpenFile {
            node: Arc::clone(node),
            identity: identity.clone(),
            flags,
            is_counted,
            seen_errors: AtomicU64::new(node.data.errors()),
        };
        self.files.write().insert(file, Arc::new(open));
        Opened { file, keeps_pages, is_direct: self.options.cache_times.file_max.is_zero() }
    }

    /// An open file. By one that has lost a lock at the server nothing is read or written any more.
    pub(super) fn file(&self, file: u64) -> Outcome<Arc<OpenFile>> {
        if self.locks().is_some_and(|locks| locks.is_lost(file)) {
            return Err(Errno::EIO);
        }
        self.any_file(file)
    }

    /// An open file, whatever became of its locks.
    pub(super) fn any_file(&self, file: u64) -> Outcome<Arc<OpenFile>> {
        self.files.read().get(&file).cloned().ok_or(Errno::EBADF)
    }

    /// Opens a file: its attributes are asked for, whatever is cached, so that what others have
    /// written and closed is seen (nfs(5), close-to-open).
    pub(crate) fn open(&self, asker: &Asker, number: u64, flags: i32) -> Outcome<Opened> {
        let node = self.node(number)?;
        let write = access::MODIFY | access::EXTEND;
        let mut wanted = match flags & O_ACCMODE {
            O_WRONLY => write,
            O_RDWR => access::READ | write,
            _ => access::READ,
        };
        if flags & O_TRUNC != 0 {
            wanted |= write;
        }
        // To be executed it need not be readable, as with the kernel's client; and must be executable for
        // whoever asks: the kernel by itself asks only whether it is for anybody.
        if flags & FMODE_EXEC != 0 {
            wanted = access::EXECUTE;
        }
        let granted = self.ask_rights(asker, &node, wanted)?;
        if granted & wanted != wanted {
            return Err(Errno::EACCES);
        }
        let is_counted = self.open_at_server(asker, &node, flags)?;
        Ok(self.register(&node, &asker.identity, (flags, is_counted)))
    }

    /// Has a file open at the server, as far as it knows such a thing; whether it is to be closed there.
    fn open_at_server(&self, asker: &Asker, node: &Node, flags: i32) -> Outcome<bool> {
        if self.server.nfs4.is_none() || node.file_type != FileType::Regular {
            return Ok(false);
        }
        let (reads, writes) = access_of(flags);
        let opened = self.call(asker, |nfs| nfs.open(&node.handle(), reads, writes));
        match of_node(node, opened) {
            // Who may execute a file may have it read for that, and no more.
            Err(error) if flags & FMODE_EXEC != 0 && error.status() == Some(NfsStat3::Acces) => {
                Ok(false)
            }
            opened => Ok(opened.map(|()| true)?),
        }
    }

    /// Has a file closed at the server, once all its data is there.
    fn close_at_server(&self, open: &OpenFile) {
        let Some(client) = &self.server.nfs4 else { return };
        let handle = open.node.handle();
        let access = access_of(open.flags);
        if !open.is_counted || !client.close(&handle, &open.identity, access) {
            return;
        }
        if open.node.data.is_empty() {
            client.close_unused(&handle, &open.identity);
        } else {
            self.closing.lock().push((Arc::clone(&open.node), open.identity.clone()));
        }
    }

    /// Closes at the server what was closed here while it had data that was not safe there.
    pub(crate) fn close_written(&self) {
        let Some(client) = &self.server.nfs4 else { return };
        self.closing.lock().retain(|(node, identity)| {
            let is_written = node.data.is_empty();
            if is_written {
                client.close_unused(&node.handle(), identity);
            }
            !is_written
        });
    }

    /// Makes a file and opens it. Its mode does not count for whoever has made it.
    pub(crate) fn create(
        &self,
        asker: &Asker,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> Outcome<(Arc<Node>, Opened)> {
        let directory = self.node(parent)?;
        let how = (flags & O_EXCL != 0, flags & O_TRUNC != 0);
        let node = self.create_file(asker, &directory, name, mode, how)?;
        let is_counted = match self.open_at_server(asker, &node, flags) {
            Ok(is_counted) => is_counted,
            Err(errno) => {
                self.nodes.forget(node.number, 1);
                return Err(errno);
            }
        };
        let opened = self.register(&node, &asker.identity, (flags, is_counted));
        Ok((node, opened))
    }

    pub(crate) fn read(
        &self,
        asker: &Asker,
        file: u64,
        offset: u64,
        size: u32,
    ) -> Outcome<Vec<u8>> {
        let open = self.file(file)?;
        let node = &open.node;
        // Before the server is asked: what is sent and committed meanwhile is in its answer or here.
        let (held, held_end) = self.write_back.held(node, offset, u64::from(size));
        let end = offset.saturating_add(u64::from(size));
        let covers = |(at, piece): (u64, &crate::held::Piece)| {
            if piece.offset == at { at + piece.bytes().len() as u64 } else { at }
        };
        let covered = held.iter().fold(offset, |at, piece| covers((at, piece)));
        let mut data = if covered == end {
            vec![0; size as usize]
        } else {
            self.read_from_server(&open.asker(asker), node, offset, size)?
        };
        // What was written beyond the server's end makes the file longer.
        let local =
            held_end.map_or(0, |held_end| held_end.min(end).saturating_sub(offset)) as usize;
        if data.len() < local {
            data.resize(local, 0);
        }
        for piece in held {
            let at = (piece.offset - offset) as usize;
            if let Some(place) = data.get_mut(at..at + piece.bytes().len()) {
                place.copy_from_slice(piece.bytes());
            }
        }
        self.server.link.counters.read_bytes.add(data.len() as u64);
        Ok(data)
    }

    fn read_from_server(
        &self,
        asker: &Asker,
        node: &Node,
        offset: u64,
        size: u32,
    ) -> Outcome<Vec<u8>> {
        let mut data: Vec<u8> = Vec::new();
        while (data.len() as u64) < u64::from(size) {
            let at = offset + data.len() as u64;
            let count = (size - data.len() as u32).min(self.read_bytes);
            let asking = node.ask();
            let read = self.call(asker, |nfs| nfs.read(&node.handle(), at, count));
            let read = of_node(node, read)?;
            node.learn(read.attributes.as_ref(), asking, &self.options.cache_times);
            let is_over = read.eof || read.data.is_empty();
            if data.is_empty() {
                data = read.data;
            } else {
                data.extend_from_slice(&read.data);
            }
            if is_over {
                break;
            }
        }
        Ok(data)
    }

    pub(crate) fn write(&self, asker: &Asker, file: u64, placed: Placed<'_>) -> Outcome<()> {
        let open = self.file(file)?;
        let node = &open.node;
        let asker = open.asker(asker);
        let mut offset = placed.offset;
        if open.flags & O_APPEND != 0 && !placed.is_mapped {
            // The kernel's idea of the end may be old. Where it differs from ours somebody else has
            // written, and the server knows better than either.
            if !node.is_fresh() || node.attributes().size != placed.offset {
                self.refresh(&asker, node)?;
            }
            offset = node.attributes().size;
        }
        self.write_back.write(node, &asker.identity, offset, placed.data, asker.patience)?;
        self.server.link.counters.written_bytes.add(placed.data.len() as u64);
        node.note_written();
        if offset != placed.offset {
            node.drop_pages();
        }
        let is_synchronous = open.flags & O_DSYNC != 0 || self.options.is_sync;
        if is_synchronous || self.write_back.is_bypassed() {
            self.sync(&open, asker.patience)?;
        }
        Ok(())
    }

    fn sync(&self, open: &OpenFile, patience: Patience) -> Outcome<()> {
        self.write_back.make_safe(&open.node, patience)?;
        open.node.data.error_since(&open.seen_errors)
    }

    /// A descriptor is closed: everything is made stable, and errors are told, so that whoever opens
    /// the file next sees all of it. `fsync` is told of them again: the descriptor may be a copy that a
    /// child process closes at its start.
    pub(crate) fn flush(&self, asker: &Asker, file: u64) -> Outcome<()> {
        let open = self.file(file)?;
        if !open.is_writer() {
            return Ok(());
        }
        self.write_back.make_safe(&open.node, asker.patience)?;
        open.unseen_error()
    }

    pub(crate) fn fsync(&self, asker: &Asker, file: u64) -> Outcome<()> {
        let open = self.file(file)?;
        self.sync(&open, asker.patience)
    }

    /// The last descriptor is closed, and the last mapping gone. Waits for nothing; what is returned is
    /// to be removed by [`Volume::remove_released`].
    pub(crate) fn release(&self, file: u64) -> Option<Hidden> {
        let open = self.files.write().remove(&file)?;
        self.unlock_released(&open, file);
        // What a mapping has changed after the last close.
        self.write_back.let_go(&open.node);
        self.close_at_server(&open);
        let hidden = open.node.close();
        self.nodes.release(open.node.number);
        *self.removing.lock() += usize::from(hidden.is_some());
        hidden
    }

    /// Removes a file that was hidden, after it was closed.
    pub(crate) fn remove_released(&self, hidden: &Hidden) {
        self.remove_closed(hidden, Patience::default());
        *self.removing.lock() -= 1;
        self.has_removed.notify_all();
    }

    /// Waits until files are gone that were closed already, so that their directory is as empty as it
    /// seems.
    pub(super) fn await_removals(&self, asker: &Asker) -> Result<(), ClientError> {
        let since = Instant::now();
        let mut removing = self.removing.lock();
        while *removing > 0 && since.elapsed() < REMOVALS {
            self.has_removed.wait_for(&mut removing, asker.patience.nap());
            if *removing > 0
                && let Some(error) = asker.patience.end(since)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the removal of files that were closed; for the end of a mount.
    pub(crate) fn finish_removals(&self) {
        let since = Instant::now();
        let mut removing = self.removing.lock();
        while *removing > 0 && since.elapsed() < REMOVALS {
            self.has_removed.wait_for(&mut removing, REMOVALS.saturating_sub(since.elapsed()));
        }
        if *removing > 0 {
            tracing::warn!(
                files = *removing,
                "removed files that were open are left on the server"
            );
        }
    }

    /// Asks for the attributes of open files that are not believed any more: the kernel reads pages
    /// that it has without asking, and is to drop those that somebody else has changed. A file that
    /// does not change is asked for seldom (`acregmax`).
    pub(crate) fn look_at_open_files(&self) {
        if self.options.cache_times.file_max.is_zero() {
            // The kernel keeps no pages.
            return;
        }
        let mut nodes = HashMap::new();
        for open in self.files.read().values() {
            if !open.node.is_fresh() && !open.node.is_dead() {
                nodes.entry(open.node.number).or_insert_with(|| Arc::clone(open));
            }
            if nodes.len() >= LOOKED_AT_MAX {
                break;
            }
        }
        for open in nodes.values() {
            if self.server.link.is_silent_for(super::PROMPT) {
                return;
            }
            let patience = Patience { pid: 0, until: Some(Instant::now() + super::PROMPT) };
            let asker = Asker { identity: open.identity.clone(), patience };
            // A failure shows when the file is used.
            let _ = self.refresh(&asker, &open.node);
        }
    }

    /// What is still open when the mount ends: removed files go at last, if the server answers.
    pub(crate) fn close_all(&self) {
        let open: Vec<_> = self.files.write().drain().map(|(_, open)| open).collect();
        for open in open {
            if let Some(hidden) = open.node.close() {
                let until = Some(Instant::now() + super::PROMPT);
                self.remove_closed(&hidden, Patience { pid: 0, until });
            }
        }
    }
}
