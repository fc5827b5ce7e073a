//! What storage has of the intent log for one file system: the part that its changes go to, and the flush
//! of the whole that the log asks for.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use rustix::fs::{Mode as Permissions, OFlags};
use rustix::io::Errno;
use steadfast_recovery::{
    Action, BegunCalls, Change, ChangeLog, FileSystemIdentity, LogPlace, LoggedFileSystem, Settled,
    change_bytes_max,
};
use steadfast_sys::journal;
use steadfast_vfs::{FileSystemSync, FsError};

use crate::aliases::Aliases;
use crate::async_changes::AsyncChanges;
use crate::error::from_errno;
use crate::kinds::BTRFS_MAGIC;
use crate::mark_file;

/// The log of one file system's changes.
pub(crate) struct VolumeLog {
    log: Arc<dyn ChangeLog>,
    identity: FileSystemIdentity,
    file_system: LoggedFileSystem,
    /// The kernel's number of the mount.
    mount: u64,
    /// Whether the share's changes are logged. If not, those of others on the file system may be.
    is_on: bool,
}

impl VolumeLog {
    /// The log's part for the file system that `whole` flushes; `None` if it does not log its
    /// changes.
    pub(crate) fn join(
        log: &Arc<dyn ChangeLog>,
        identity: &FileSystemIdentity,
        path: &[u8],
        mount: u64,
        whole: WholeFileSystem,
        is_on: bool,
    ) -> Result<Option<Self>, FsError> {
        let file_system = log.register(identity, path, mount, Arc::new(whole))?;
        if let Some(file_system) = file_system.filter(|_| is_on) {
            log.want(file_system);
        }
        let (log, identity) = (Arc::clone(log), *identity);
        Ok(file_system.map(|file_system| Self { log, identity, file_system, mount, is_on }))
    }

    /// Whether the share's changes are logged.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// What its file system is known by in every run.
    pub(crate) fn identity(&self) -> &FileSystemIdentity {
        &self.identity
    }

    /// Waits until there is room for a change with so many bytes beside names and attributes; see
    /// [`ChangeLog::admit`].
    pub(crate) fn admit(&self, data_bytes: usize) -> Result<Option<Box<dyn LogPlace>>, FsError> {
        self.log.admit(self.file_system, change_bytes_max(data_bytes))
    }

    /// Where it is written down that calls begin, if it is.
    pub(crate) fn begun_calls(&self) -> Option<&dyn BegunCalls> {
        self.log.begun_calls()
    }

    /// Whether a WRITE of so many bytes is to be logged.
    pub(crate) fn takes_write(&self, bytes: usize, is_stable: bool) -> bool {
        self.is_on && self.log.takes_write(bytes, is_stable)
    }

    /// Whether a crash now would be followed by a replay.
    pub(crate) fn is_in_use(&self) -> bool {
        self.log.is_in_use()
    }

    /// What the log calls the file system.
    pub(crate) fn file_system(&self) -> LoggedFileSystem {
        self.file_system
    }

    /// Has clients send again what they were not told to be stable.
    pub(crate) fn note_loss(&self) {
        self.log.note_loss();
    }

    /// # Errors
    /// [`FsError::TryLater`] while the file system takes no changes, since it could not be flushed.
    pub(crate) fn require_no_fault(&self) -> Result<(), FsError> {
        if self.fault().is_some() { Err(FsError::TryLater) } else { Ok(()) }
    }

    /// Why the file system takes no changes, if it could not be flushed.
    pub(crate) fn fault(&self) -> Option<String> {
        self.log.fault(self.file_system)
    }

    /// The last LSN taken, to be read before a flush begins.
    pub(crate) fn last(&self) -> u64 {
        self.log.last()
    }

    /// Notes that changes up to an LSN have reached the disk, and waits until that is stable.
    pub(crate) fn settled(&self, what: Settled, up_to: u64) -> Result<(), FsError> {
        match self.admit(0)? {
            Some(mut place) if place.is_logged() => {
                place.take();
                self.log.note(place, &Change::new(Action::Settled { what, up_to }))
            }
            // Nothing older is left in the log.
            _ => Ok(()),
        }
    }
}

impl Drop for VolumeLog {
    fn drop(&mut self) {
        self.log.leave(self.file_system, self.mount);
    }
}

/// A file system, by a descriptor that remembers which errors it was told.
pub(crate) struct WholeFileSystem {
    directory: OwnedFd,
    /// Not to be kept: who uses the file system next has it begin anew.
    aliases: Weak<Aliases>,
    async_changes: Arc<AsyncChanges>,
}

impl WholeFileSystem {
    /// Of an open directory of it.
    pub(crate) fn new(
        directory: OwnedFd,
        aliases: &Arc<Aliases>,
        async_changes: Arc<AsyncChanges>,
    ) -> Self {
        Self { directory, aliases: Arc::downgrade(aliases), async_changes }
    }
}

impl FileSystemSync for WholeFileSystem {
    fn sync(&self) -> Result<(), FsError> {
        let failures = self.aliases.upgrade().map(|aliases| aliases.failures());
        let flush = self.async_changes.flush();
        let flushed = rustix::fs::syncfs(&self.directory)
            .and_then(|()| journal::require_alive(&self.directory));
        if let (Err(errno), Some(aliases)) = (flushed, self.aliases.upgrade()) {
            aliases.tell_next_start();
            return Err(from_errno(errno));
        }
        flushed.map_err(from_errno)?;
        flush.done();
        if let (Some(aliases), Some(failures)) = (self.aliases.upgrade(), failures) {
            aliases.forget_failures(failures);
        }
        Ok(())
    }

    fn write_back(&self, goes_on: &mut dyn FnMut(u64) -> bool) {
        if let Some(aliases) = self.aliases.upgrade() {
            aliases.unflushed.write_back(goes_on);
        }
    }

    fn has_failed(&self) -> bool {
        self.aliases.upgrade().is_some_and(|aliases| aliases.has_failed())
    }

    fn read_mark(&self) -> Result<Vec<u8>, FsError> {
        mark_file::read(&self.directory)
    }

    fn write_mark(&self, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        mark_file::write(&self.directory, offset, bytes)
    }

    fn try_writing(&self) -> Result<(), FsError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&self.directory, c".", flags, Permissions::RUSR)
            .map(std::fs::File::from)
            .map_err(from_errno)?;
        let trial = vec![0xa5; TRIAL_BYTES];
        std::os::unix::fs::FileExt::write_all_at(&written, &trial, 0)
            .map_err(|error| from_errno(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        // A flush of one file there may lose others.
        if rustix::fs::fstatfs(&self.directory).is_ok_and(|kind| kind.f_type as u64 == BTRFS_MAGIC)
        {
            return rustix::fs::syncfs(&self.directory).map_err(from_errno);
        }
        rustix::fs::fsync(&written).map_err(from_errno)
    }
}

/// Written to find out whether a file system takes anything.
const TRIAL_BYTES: usize = 64 << 10;
