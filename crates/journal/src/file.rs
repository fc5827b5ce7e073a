//! The files of a journal in its directory: `ring`, `lock`, `manifest`. All I/O but that on a
//! [`Medium`] is here.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use steadfast_intent_log::{Block, Medium, MediumError};
use steadfast_sys::{durable_file, process};

use crate::errors::OpenError;
use crate::format::file_bytes;
use crate::manifest;
use crate::superblock::Copies;

const RING: &str = "ring";
const LOCK: &str = "lock";
pub(crate) const MANIFEST: &str = "manifest";
/// No more is read of it.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Is there if changes were sent around a ring that could not be written any more.
const BYPASSED: &str = "bypassed";
/// Blocks of zeros that a new ring is filled with at a time.
const FILL_BLOCKS: usize = 256;
/// Who only looks holds the lock for an instant.
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// The manifest takes at most this part of the time.
const MANIFEST_PART: u32 = 20;
/// The owner's text is not longer.
const OWNER_BYTES_MAX: u64 = 256;

/// A file as a medium.
#[derive(Debug)]
pub(crate) struct FileMedium {
    file: File,
    bytes: u64,
}

/// Opens an ordinary file. Of anything else in its place, such as a FIFO, it does not wait for another
/// process.
fn open_ordinary(options: &mut OpenOptions, flags: OFlags, path: &Path) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not an ordinary file"))
}

/// The manifest of a journal.
pub(crate) fn read_manifest(directory: &Path) -> io::Result<Vec<u8>> {
    let path = directory.join(MANIFEST);
    let file = open_ordinary(OpenOptions::new().read(true), OFlags::empty(), &path)?;
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl FileMedium {
    pub(crate) fn open(path: &Path, is_written: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(is_written);
        let sync = if is_written { durable_file::DATA_SYNC } else { OFlags::empty() };
        let file = open_ordinary(&mut options, sync, path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }

    /// Makes the file, and writes it through: later writes then change nothing but its data, and
    /// need no room.
    pub(crate) fn fill(path: &Path, bytes: u64) -> io::Result<()> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let zeros = vec![Block::ZERO; FILL_BLOCKS];
        let mut written = 0;
        while written < bytes {
            let zeros = Block::bytes_of(&zeros);
            let more = usize::try_from(bytes - written).unwrap_or(usize::MAX);
            let piece = zeros.get(..more).unwrap_or(zeros);
            file.write_all_at(piece, written)?;
            written += piece.len() as u64;
        }
        file.sync_all()
    }

    /// A file that was cut off is made as long as its superblock says. Returns by how much. The superblock
    /// may be anybody's: it does not fill the disk.
    pub(crate) fn lengthen(&mut self, path: &Path, ring_bytes_max: u64) -> Result<u64, OpenError> {
        let copies = Copies::read(self);
        let Ok(superblock) = copies.newest() else { return Ok(0) };
        let wanted = file_bytes(superblock.ring_bytes);
        let missing = wanted.saturating_sub(self.bytes);
        if missing > 0 && superblock.ring_bytes > ring_bytes_max {
            return Err(OpenError::CutOff { bytes: self.bytes, wanted });
        }
        if missing > 0 {
            // Not a size that is only said: the room must be there.
            rustix::fs::fallocate(
                &self.file,
                rustix::fs::FallocateFlags::empty(),
                self.bytes,
                missing,
            )
            .map_err(|error| io_error(path)(error.into()))?;
            self.file.sync_all().map_err(io_error(path))?;
            self.bytes = wanted;
        }
        Ok(missing)
    }
}

impl Medium for FileMedium {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [Block]) -> Result<(), MediumError> {
        Ok(self.file.read_exact_at(Block::bytes_of_mut(into), offset)?)
    }

    fn write_at(&self, offset: u64, from: &[Block]) -> Result<(), MediumError> {
        let from = Block::bytes_of(from);
        if offset.saturating_add(from.len() as u64) > self.bytes {
            return Err(MediumError::Beyond { offset, bytes: from.len() as u64 });
        }
        Ok(self.file.write_all_at(from, offset)?)
    }
}

/// A directory that this process has locked.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    _lock: Option<File>,
    manifest: Mutex<ManifestState>,
    interval: Duration,
}

#[derive(Debug, Default)]
struct ManifestState {
    /// What the state's version was when it was written.
    version: u64,
    next: Option<Instant>,
    error: Option<String>,
}

pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    move |error| OpenError::Io { path: path.to_owned(), error }
}

fn lock_file(directory: &Path, is_made: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(is_made).truncate(false).mode(0o600);
    open_ordinary(&mut options, OFlags::empty(), &directory.join(LOCK))
}

/// To look only: the disk may be read-only.
fn lock_file_to_read(directory: &Path) -> io::Result<Option<File>> {
    let path = directory.join(LOCK);
    let opened = match lock_file(directory, false) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            open_ordinary(OpenOptions::new().read(true), OFlags::empty(), &path)
        }
        opened => opened,
    };
    match opened {
        Ok(file) => Ok(Some(file)),
        // Nobody has ever opened it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The process that has locked a journal, as it has written of itself.
fn owner_in(mut file: &File) -> String {
    let mut text = Vec::new();
    let _ = file.rewind();
    let _ = file.take(OWNER_BYTES_MAX).read_to_end(&mut text);
    let text = manifest::escape(text.trim_ascii());
    if text.is_empty() { "another process".to_owned() } else { format!("process {text}") }
}

/// Which process has the journal open, if one has.
pub(crate) fn owner(directory: &Path) -> io::Result<Option<String>> {
    let Some(file) = lock_file_to_read(directory)? else { return Ok(None) };
    Ok((!process::lock_exclusively(&file)?).then(|| owner_in(&file)))
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let mut file = lock_file(directory, true).map_err(io_error(&path))?;
    wait_for_lock(directory, &file)?;
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let me = format!("{} ({})\n", std::process::id(), name.trim_end());
    // Only for the message of the next one: the lock is the kernel's.
    let _ = file.set_len(0).and_then(|()| file.write_all(me.as_bytes()));
    Ok(file)
}

fn wait_for_lock(directory: &Path, file: &File) -> Result<(), OpenError> {
    let path = directory.join(LOCK);
    let mut attempts = 1;
    while !process::lock_exclusively(file).map_err(io_error(&path))? {
        if attempts == LOCK_ATTEMPTS {
            return Err(OpenError::InUse { path: directory.to_owned(), owner: owner_in(file) });
        }
        attempts += 1;
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(())
}

/// Makes a directory and those above it. Returns what was made: a crash does not take it back.
fn make_directories(directory: &Path) -> io::Result<Vec<&Path>> {
    // The parent of a name without a slash is the empty path.
    let above = directory.ancestors().filter(|path| !path.as_os_str().is_empty());
    let mut missing: Vec<&Path> = above.take_while(|path| !path.is_dir()).collect();
    missing.reverse();
    for path in &missing {
        match DirBuilder::new().mode(0o700).create(path) {
            // Another process was faster; or it is no directory, which is found when it is used.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(missing)
}

impl Place {
    /// Locks a directory; makes it, if that is asked for.
    pub(crate) fn open(
        directory: &Path,
        is_made: bool,
        interval: Duration,
    ) -> Result<Self, OpenError> {
        if is_made {
            make_directories(directory).map_err(io_error(directory))?;
        } else if !has_ring(directory)? {
            return Err(OpenError::Missing(directory.to_owned()));
        }
        let lock = lock(directory)?;
        let manifest = Mutex::new(ManifestState::default());
        Ok(Self { directory: directory.to_owned(), _lock: Some(lock), manifest, interval })
    }

    /// Locks a directory whose ring is only read. Its disk may be read-only.
    pub(crate) fn open_to_read(directory: &Path) -> Result<Self, OpenError> {
        if !has_ring(directory)? {
            return Err(OpenError::Missing(directory.to_owned()));
        }
        let lock = lock_file_to_read(directory).map_err(io_error(directory))?;
        if let Some(file) = &lock {
            wait_for_lock(directory, file)?;
        }
        let manifest = Mutex::new(ManifestState::default());
        let interval = Duration::ZERO;
        Ok(Self { directory: directory.to_owned(), _lock: lock, manifest, interval })
    }

    pub(crate) fn manifest_error(&self) -> Option<String> {
        self.manifest.lock().error.clone()
    }

    /// Notes beside the ring that changes are sent around it.
    pub(crate) fn mark_bypassed(&self) -> io::Result<()> {
        durable_file::replace(
            &self.directory.join(BYPASSED),
            b"changes were sent around the ring\n",
        )
    }

    /// Writes the manifest if something has changed and it is time, or in any case of a change. One at a
    /// time asks for the version, and then for the text.
    pub(crate) fn maintain_manifest(
        &self,
        is_due: bool,
        version: impl FnOnce() -> u64,
        text: impl FnOnce() -> String,
    ) {
        let mut manifest = self.manifest.lock();
        let version = version();
        let now = Instant::now();
        if version == manifest.version || !is_due && manifest.next.is_some_and(|next| now < next) {
            return;
        }
        let written = durable_file::replace(&self.directory.join(MANIFEST), text().as_bytes());
        manifest.error = written.err().map(|error| error.to_string());
        manifest.version = version;
        let pause = self.interval.max(now.elapsed() * MANIFEST_PART);
        manifest.next = Some(Instant::now() + pause);
    }
}

/// The ring's file in a directory.
pub(crate) fn ring_path(directory: &Path) -> PathBuf {
    directory.join(RING)
}

/// A superblock says what the mark said.
pub(crate) fn unmark_as_bypassed(directory: &Path) -> Result<(), OpenError> {
    let mark = directory.join(BYPASSED);
    durable_file::remove(&mark).map_err(io_error(&mark))
}

pub(crate) fn is_marked_as_bypassed(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory.join(BYPASSED)).is_ok()
}

/// Whether there is a ring. One that cannot be looked at, or is a link to a disk that is not there, is one:
/// no other is made in its place.
pub(crate) fn has_ring(directory: &Path) -> Result<bool, OpenError> {
    let path = ring_path(directory);
    match std::fs::symlink_metadata(&path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error(&path)(error)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_are_made_are_known_so_that_they_are_flushed() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("a/b"));
        assert_eq!(make_directories(&b).unwrap(), [&a, &b]);
        assert!(b.is_dir());
        assert!(make_directories(&b).unwrap().is_empty());
    }
}
