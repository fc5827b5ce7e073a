//! A file system as replay works on it: by handles, with the server's own powers.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode as Permissions, OFlags, SeekFrom};
use rustix::io::Errno;
use steadfast_recovery::{AclsToSet, FileSystemIdentity, KeptFile, ObjectKey, Place, Recoverable};
use steadfast_sys::{directory, durable_file, handle, identity, journal, volume, xattr};
use steadfast_vfs::{Attr, FileKind, FsError, HANDLE_BYTES_MAX, StorageHandle, Time};

use crate::aliases::{Alias, Aliases};
use crate::attributes;
use crate::error;
use crate::handle_form;
use crate::hex::hex;
use crate::keeping;
use crate::kinds::{BTRFS_MAGIC, XFS_MAGIC};
use crate::lifted::LiftedLimits;
use crate::mark_file::{self, BTRFS_TOP_LEVEL};
use crate::mount_lines;
use crate::mounted;
use crate::restoring;

/// Objects that are held open at a time.
const OPEN_MAX: usize = 256;
/// Of a directory's stream, read at a time.
const RECORD_BYTES: usize = 64 << 10;
/// Where an object that was made again keeps the key that it has: the file number that clients
/// know (8 bytes), the length of the handle that the kernel gave it (1), that handle, so that a
/// copy of the attribute on another file is known for one, and the key.
const KEY_ATTRIBUTE: &CStr = c"trusted.steadfast.key";
/// What is made gets its name when it has its key.
const NEW_PREFIX: &str = ".steadfast-replay-new-";

const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file system under replay.
pub struct RecoveringFileSystem {
    open: OwnedFd,
    identity: FileSystemIdentity,
    state_directory: PathBuf,
    aliases: Aliases,
    objects: HashMap<ObjectKey, Arc<OwnedFd>>,
    /// Since a server used it; what tells this time from others.
    still_mounted: Option<String>,
    /// The same, if it was only unmounted and mounted again.
    mounted_again: Option<String>,
    /// Whether the machine was started since a server used it.
    machine_was_started: bool,
    lifted: LiftedLimits,
}

/// So often is a limit lifted for one change: somebody may set it again meanwhile.
const LIFTS_MAX: usize = 3;

/// Longer gaps become holes.
const ZEROS_WRITTEN_MAX: u64 = 1 << 20;

/// File systems that may give an inode that they make anew the handle of one that a crash has
/// lost. (ext4 chooses generations at random.)
const REUSES_HANDLES: [u32; 2] = [XFS_MAGIC as u32, BTRFS_MAGIC as u32];

impl std::fmt::Debug for RecoveringFileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoveringFileSystem")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl RecoveringFileSystem {
    /// The file system that a directory is on.
    ///
    /// # Errors
    /// When the directory cannot be opened, its file system tells no identifier, or the aliases in
    /// the state directory cannot be read.
    pub fn open(directory: &Path, state_directory: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(directory, flags, Permissions::empty())?;
        let uuid = volume::uuid(&open)?;
        let kind = rustix::fs::fstatfs(&open)?.f_type as u32;
        let aliases = Aliases::load(state_directory, &uuid)?;
        Ok(Self {
            still_mounted: mounted::since_noted(state_directory, &uuid, &open),
            mounted_again: mounted::again_since_noted(state_directory, &uuid, &open),
            machine_was_started: mounted::was_started_since_noted(state_directory, &uuid),
            lifted: LiftedLimits::none(state_directory, uuid),
            open,
            identity: FileSystemIdentity { uuid, kind },
            state_directory: state_directory.to_owned(),
            aliases,
            objects: HashMap::new(),
        })
    }

    /// The file system with this identifier: beneath `known`, where it was, or wherever it is
    /// mounted now. `None` if it is not.
    ///
    /// # Errors
    /// As [`RecoveringFileSystem::open`], for the file system itself.
    pub fn find(known: &Path, uuid: &[u8; 16], state_directory: &Path) -> io::Result<Option<Self>> {
        for directory in std::iter::once(known.to_owned()).chain(mount_lines::loggable_points()?) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // What cannot be looked at is not it, or not there.
            let is_it = rustix::fs::open(&directory, flags - OFlags::PATH, Permissions::empty())
                .and_then(volume::uuid)
                .is_ok_and(|found| found == *uuid);
            if is_it {
                return Self::open(&directory, state_directory).map(Some);
            }
        }
        Ok(None)
    }

    /// Which it is.
    pub fn identity(&self) -> FileSystemIdentity {
        self.identity
    }

    /// An object, held open.
    fn object(&mut self, key: &ObjectKey) -> Result<Arc<OwnedFd>, FsError> {
        if let Some(object) = self.objects.get(key) {
            return Ok(Arc::clone(object));
        }
        let object = Arc::new(self.open_object(key)?.ok_or(FsError::Stale)?);
        if self.objects.len() >= OPEN_MAX {
            self.objects.clear();
        }
        self.objects.insert(*key, Arc::clone(&object));
        Ok(object)
    }

    fn open_object(&self, key: &ObjectKey) -> Result<Option<OwnedFd>, FsError> {
        match self.aliases.actual(key) {
            Some(actual) => open_key(&self.open, &actual),
            None => Ok(None),
        }
    }

    /// What the log calls an object that was found by a name.
    fn key_of(&mut self, object: &impl AsFd) -> Result<ObjectKey, FsError> {
        let kernel = handle::of(object).map_err(from_errno)?;
        let handle = handle_form::from_kernel(0, &kernel).ok_or(FsError::NotSupported)?;
        let actual = ObjectKey(handle);
        // Made by a replay that was cut short: from here on it is found by the key.
        let mut bytes = [0; KEPT_BYTES_MAX];
        let length = xattr::value(object, KEY_ATTRIBUTE, &mut bytes).unwrap_or(0);
        let kept = bytes.get(..length).and_then(|bytes| read_kept(bytes, &actual));
        if let Some((key, fileid)) = kept
            && self.aliases.is_gone(&key)
        {
            self.aliases.insert(key, Alias { actual, fileid });
            self.objects.remove(&key);
        }
        Ok(self.aliases.presented(&actual))
    }

    /// Opens a directory's name.
    fn named(&mut self, place: &Place<'_>) -> Result<Option<OwnedFd>, FsError> {
        let dir = match self.object(&place.dir) {
            Ok(dir) => dir,
            Err(FsError::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        match rustix::fs::openat(&*dir, place.name, PATH_FLAGS, Permissions::empty()) {
            Ok(object) => Ok(Some(object)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(from_errno(errno)),
        }
    }

    /// Makes a change that needs room in an object's subvolume. What the log has was granted when it was
    /// acknowledged: a limit that is in the way does not hold until replay has ended. What a change had done
    /// before it failed, its repetition finds as a replay does that follows one which was cut short.
    fn with_room<T>(
        &mut self,
        of: &ObjectKey,
        mut change: impl FnMut(&mut Self) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let subvolume = || mark_file::btrfs_subvolume(&self.aliases.actual(of)?.0);
        let subvolume = subvolume().filter(|_| self.identity.kind == BTRFS_MAGIC as u32);
        for _ in 0..LIFTS_MAX {
            match (change(self), subvolume) {
                (Err(FsError::QuotaExceeded), Some(subvolume))
                    if self.lifted.lift(&self.open, subvolume) => {}
                (done, _) => return done,
            }
        }
        change(self)
    }

    /// Opens an ordinary file for writing.
    fn writable(&mut self, key: &ObjectKey) -> Result<OwnedFd, FsError> {
        let actual = self.aliases.actual(key).ok_or(FsError::Stale)?;
        let (_, kernel) = handle_form::parse(&actual.0).ok_or(FsError::BadHandle)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = handle::open(&self.open, &kernel, flags).map_err(gone_is_stale)?;
        if attributes::stat(&file)?.stx_nlink == 0 {
            return Err(FsError::Stale);
        }
        Ok(file)
    }
}

const KEPT_BYTES_MAX: usize = 8 + 1 + 2 * HANDLE_BYTES_MAX;

/// What [`KEY_ATTRIBUTE`] is set to.
fn kept(key: &ObjectKey, actual: &ObjectKey, fileid: u64) -> Vec<u8> {
    let (key, actual) = (key.0.as_bytes(), actual.0.as_bytes());
    let mut bytes = fileid.to_le_bytes().to_vec();
    bytes.push(actual.len() as u8);
    bytes.extend_from_slice(actual);
    bytes.extend_from_slice(key);
    bytes
}

/// Key and file number of an object found by the kernel as `actual`, if it was made under a key.
fn read_kept(bytes: &[u8], actual: &ObjectKey) -> Option<(ObjectKey, u64)> {
    let (fileid, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first()?;
    let (made_as, key) = rest.split_at_checked(usize::from(*length))?;
    let key = StorageHandle::new(key)?;
    (made_as == actual.0.as_bytes()).then_some((ObjectKey(key), u64::from_le_bytes(*fileid)))
}

fn gone_is_stale(errno: Errno) -> FsError {
    match errno {
        Errno::STALE | Errno::NOENT | Errno::INVAL | Errno::OVERFLOW => FsError::Stale,
        errno => from_errno(errno),
    }
}

/// As elsewhere, but for a name on which something is mounted: to try again would not help.
fn from_errno(errno: Errno) -> FsError {
    if errno == Errno::BUSY { FsError::AccessDenied } else { error::from_errno(errno) }
}

/// Opens the object of a handle; `None` if it is gone.
fn open_key(mount: &OwnedFd, actual: &ObjectKey) -> Result<Option<OwnedFd>, FsError> {
    let (_, kernel) = handle_form::parse(&actual.0).ok_or(FsError::BadHandle)?;
    match handle::open(mount, &kernel, PATH_FLAGS).map_err(gone_is_stale) {
        Ok(object) if attributes::stat(&object)?.stx_nlink == 0 => Ok(None),
        Ok(object) => Ok(Some(object)),
        Err(FsError::Stale) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Recoverable for RecoveringFileSystem {
    fn names_follow_ctimes(&self) -> bool {
        self.identity.kind != BTRFS_MAGIC as u32
    }

    fn still_mounted(&self) -> Option<&str> {
        self.still_mounted.as_deref()
    }

    fn mounted_again(&self) -> Option<&str> {
        self.mounted_again.as_deref()
    }

    fn has_lost_nothing(&mut self) -> bool {
        let failed = mounted::failed_path(&self.state_directory, &self.identity.uuid);
        if self.still_mounted.is_none() || failed.exists() {
            return false;
        }
        // What nobody was told of yet, this flush is.
        let flushed = rustix::fs::syncfs(&self.open);
        if flushed.and_then(|()| journal::require_alive(&self.open)).is_ok() {
            return true;
        }
        // The next attempt would not hear of it.
        if let Err(error) = durable_file::replace(&failed, b"") {
            tracing::error!("cannot note in {} that a flush failed: {error}", failed.display());
        }
        false
    }

    fn machine_was_started(&self) -> bool {
        self.machine_was_started
    }

    fn read_mark(&mut self) -> Result<Vec<u8>, FsError> {
        match mark_file::read(&self.open) {
            Err(FsError::NotSupported) => Ok(Vec::new()),
            read => read,
        }
    }

    fn write_mark(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        match mark_file::write(&self.open, offset, bytes) {
            // It is in the top-level subvolume of a btrfs.
            Err(FsError::QuotaExceeded) if self.lifted.lift(&self.open, BTRFS_TOP_LEVEL) => {
                mark_file::write(&self.open, offset, bytes)
            }
            written => written,
        }
    }

    fn set_lost(&mut self, lost: &[ObjectKey]) {
        for object in lost {
            self.aliases.take(*object);
        }
        self.objects.clear();
    }

    fn look(&mut self, object: &ObjectKey) -> Result<Option<Attr>, FsError> {
        // What was held open may be gone by now.
        match self.open_object(object)? {
            Some(found) => {
                let attr = attributes::attr(&attributes::stat(&found)?, 0);
                // The number that clients know.
                let fileid = self.aliases.fileid(object, attr.fileid);
                Ok(Some(Attr { fileid, ..attr }))
            }
            None => Ok(None),
        }
    }

    fn born(&mut self, object: &ObjectKey) -> Result<Option<Time>, FsError> {
        if self.aliases.actual(object).is_none_or(|actual| actual != *object) {
            return Ok(None);
        }
        match self.open_object(object)? {
            Some(found) => Ok(attributes::born(&attributes::stat_with_mount(&found)?)),
            None => Ok(None),
        }
    }

    fn handle(&mut self, dir: &StorageHandle, object: &ObjectKey) -> StorageHandle {
        handle_form::on_mount(handle_form::mount(dir), object).unwrap_or(object.0)
    }

    fn path(&mut self, object: &ObjectKey) -> Option<Vec<u8>> {
        let object = self.open_object(object).ok()??;
        let link = format!("/proc/self/fd/{}", object.as_raw_fd());
        let path = rustix::fs::readlink(link, Vec::new()).ok()?;
        // The kernel knows the way to a directory, and often not to others that were opened by a
        // handle: it then has the path of something else, or none.
        let named = attributes::stat_name(rustix::fs::CWD, path.to_bytes()).ok()?;
        let number = |it: &rustix::fs::Statx| (it.stx_dev_major, it.stx_dev_minor, it.stx_ino);
        (number(&named) == number(&attributes::stat(&object).ok()?)).then(|| path.into_bytes())
    }

    fn bound(&mut self, place: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError> {
        let Some(object) = self.named(place)? else { return Ok(None) };
        let kind = attributes::kind(&attributes::stat(&object)?);
        Ok(Some((self.key_of(&object)?, kind)))
    }

    fn names(&mut self, dir: &ObjectKey, prefix: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        let dir = match self.object(dir) {
            Ok(dir) => dir,
            Err(FsError::Stale) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = match rustix::fs::openat(&*dir, c".", flags, Permissions::empty()) {
            Ok(open) => open,
            Err(Errno::NOTDIR) => return Ok(Vec::new()),
            Err(errno) => return Err(from_errno(errno)),
        };
        let (mut found, mut buffer) = (Vec::new(), Vec::new());
        loop {
            directory::read_records(&open, &mut buffer, RECORD_BYTES).map_err(from_errno)?;
            let mut rest = &buffer[..];
            if rest.is_empty() {
                return Ok(found);
            }
            while let Some(entry) = directory::first_record(rest) {
                if entry.name.starts_with(prefix) {
                    found.push(entry.name.to_vec());
                }
                rest = rest.get(entry.record_bytes..).unwrap_or(&[]);
            }
        }
    }

    fn make(
        &mut self,
        place: &Place<'_>,
        object: &ObjectKey,
        attr: &Attr,
        target: &[u8],
    ) -> Result<(), FsError> {
        self.with_room(&place.dir, |me| {
            let dir = me.object(&place.dir)?;
            let new = format!("{NEW_PREFIX}{}", hex(object.0.as_bytes()));
            for flags in [AtFlags::empty(), AtFlags::REMOVEDIR] {
                // Left by a replay that was cut short; nothing is in it.
                let _ = rustix::fs::unlinkat(&*dir, &new, flags);
            }
            // Made as it is to be, others could use it before it is what it was.
            let mode = Permissions::empty();
            let device = rustix::fs::makedev(attr.device.major, attr.device.minor);
            let node = |kind| rustix::fs::mknodat(&*dir, &new, kind, mode, device);
            match attr.kind {
                FileKind::Regular => node(FileType::RegularFile),
                FileKind::Directory => rustix::fs::mkdirat(&*dir, &new, mode),
                FileKind::Symlink => rustix::fs::symlinkat(target, &*dir, &new),
                FileKind::BlockDevice => node(FileType::BlockDevice),
                FileKind::CharacterDevice => node(FileType::CharacterDevice),
                FileKind::Socket => node(FileType::Socket),
                FileKind::Fifo => node(FileType::Fifo),
            }
            .map_err(from_errno)?;
            let made = rustix::fs::openat(&*dir, &new, PATH_FLAGS, Permissions::empty())
                .map_err(from_errno)?;
            if attr.kind != FileKind::Symlink {
                restoring::strip(made.as_fd())?;
            }
            let kernel = handle::of(&made).map_err(from_errno)?;
            let actual = handle_form::from_kernel(0, &kernel).ok_or(FsError::NotSupported)?;
            let actual = ObjectKey(actual);
            let kept = kept(object, &actual, attr.fileid);
            xattr::set(&made, KEY_ATTRIBUTE, &kept).map_err(from_errno)?;
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(&*dir, &new, &*dir, place.name, flags).map_err(from_errno)?;
            me.aliases.insert(*object, Alias { actual, fileid: attr.fileid });
            me.objects.remove(object);
            Ok(())
        })
    }

    fn link(&mut self, object: &ObjectKey, place: &Place<'_>) -> Result<(), FsError> {
        self.with_room(&place.dir, |me| {
            let (object, dir) = (me.object(object)?, me.object(&place.dir)?);
            rustix::fs::linkat(&*object, c"", &*dir, place.name, AtFlags::EMPTY_PATH)
                .map_err(from_errno)
        })
    }

    fn rename(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), FsError> {
        self.with_room(&to.dir, |me| {
            let (from_dir, to_dir) = (me.object(&from.dir)?, me.object(&to.dir)?);
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(&*from_dir, from.name, &*to_dir, to.name, flags)
                .map_err(from_errno)
        })
    }

    fn remove(&mut self, place: &Place<'_>, is_directory: bool) -> Result<(), FsError> {
        self.with_room(&place.dir, |me| {
            let dir = me.object(&place.dir)?;
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            rustix::fs::unlinkat(&*dir, place.name, flags).map_err(|errno| match errno {
                Errno::EXIST => FsError::NotEmpty,
                errno => from_errno(errno),
            })?;
            // Descriptors would keep what is gone.
            me.objects.clear();
            Ok(())
        })
    }

    fn write(&mut self, object: &ObjectKey, offset: u64, data: &[u8]) -> Result<(), FsError> {
        self.with_room(object, |me| {
            let file = me.writable(object)?;
            let mut written = 0;
            while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
                match rustix::io::pwrite(&file, rest, offset + written as u64) {
                    Ok(0) => return Err(FsError::Io),
                    Ok(more) => written += more,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(from_errno(errno)),
                }
            }
            Ok(())
        })
    }

    fn truncate(&mut self, object: &ObjectKey, size: u64) -> Result<(), FsError> {
        self.with_room(object, |me| {
            rustix::fs::ftruncate(me.writable(object)?, size).map_err(from_errno)
        })
    }

    fn zero(&mut self, object: &ObjectKey, from: u64, to: u64) -> Result<(), FsError> {
        self.with_room(object, |me| {
            let file = me.writable(object)?;
            let end = to.min(attributes::stat(&file)?.stx_size);
            match rustix::fs::seek(&file, SeekFrom::Data(from)) {
                Ok(data) if data < end => {}
                // What is not there needs no room.
                Ok(_) | Err(Errno::NXIO) => return Ok(()),
                Err(errno) => return Err(from_errno(errno)),
            }
            // Written over, blocks stay: on a full disk there may be none to come back to.
            if end - from <= ZEROS_WRITTEN_MAX {
                return me.write(object, from, &vec![0; (end - from) as usize]);
            }
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, hole, from, end - from).map_err(from_errno)
        })
    }

    fn set_attributes(
        &mut self,
        object: &ObjectKey,
        attr: &Attr,
        acls: &AclsToSet<'_>,
    ) -> Result<(), FsError> {
        self.with_room(object, |me| restoring::restore(me.object(object)?.as_fd(), attr, acls))
    }

    fn has_acls(&mut self, object: &ObjectKey, acls: &AclsToSet<'_>) -> Result<bool, FsError> {
        restoring::has(self.object(object)?.as_fd(), acls)
    }

    fn keep(
        &mut self,
        object: &ObjectKey,
        dir: Option<&ObjectKey>,
        name: &[u8],
        anew: bool,
    ) -> Result<KeptFile, FsError> {
        let of = match dir {
            Some(dir) => *dir,
            None => self.key_of(&self.open.try_clone().map_err(|_| FsError::TryLater)?)?,
        };
        self.with_room(&of, |me| {
            let dir = match dir {
                Some(dir) => me.object(dir)?,
                // Who looks for it looks there first.
                None => Arc::new(me.open.try_clone().map_err(|_| FsError::TryLater)?),
            };
            let file = me.writable(object)?;
            let copied = keeping::keep(&me.open, &file, &dir, name, anew)?;
            let dir = me.key_of(&*dir)?;
            let place = Place { dir, name };
            let (object, _) = me.bound(&place)?.ok_or(FsError::NotFound)?;
            Ok(KeptFile { object, dir, is_whole: copied })
        })
    }

    fn keep_part(
        &mut self,
        object: &ObjectKey,
        copy: &ObjectKey,
        offset: u64,
        bytes: u64,
    ) -> Result<(), FsError> {
        self.with_room(copy, |me| {
            let (file, copy) = (me.writable(object)?, me.writable(copy)?);
            keeping::keep_part(&file, &copy, offset, bytes)
        })
    }

    fn has_same_data(&mut self, object: &ObjectKey, kept: &KeptFile) -> Result<bool, FsError> {
        let (file, copy) = (self.writable(object)?, self.writable(&kept.object)?);
        keeping::has_same_data(file, copy, kept.is_whole)
    }

    fn make_stable(&mut self) -> Result<(), String> {
        // Before the table: an alias must not lead to an object that a second crash takes away.
        rustix::fs::syncfs(&self.open)
            .and_then(|()| journal::require_alive(&self.open))
            .map_err(|errno| format!("cannot flush the file system: {errno}"))?;
        let open = &self.open;
        self.aliases.retain(|actual| open_key(open, actual).is_ok_and(|object| object.is_some()));
        if !REUSES_HANDLES.contains(&self.identity.kind) {
            self.aliases.forget_gone();
        }
        let directory = &self.state_directory;
        self.aliases.save(directory, &self.identity.uuid).map_err(|error| {
            format!("cannot write to the state directory {}: {error}", directory.display())
        })
    }
}

/// Makes this thread act with the server's own powers, as replay must.
///
/// # Errors
/// When it may not.
pub fn assume_server_powers() -> io::Result<()> {
    identity::assume_server().map_err(Into::into)
}
