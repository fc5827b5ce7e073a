//! The intent log's medium: a file or a block device, written around the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use rustix::fs::OFlags;
use steadfast_intent_log::{BLOCK_BYTES, Block, Medium, MediumError};
use steadfast_sys::{durable_file, process};

use super::device_flush::DeviceFlush;

/// Zeros that are written at a time when a file is made.
const FILL_BLOCKS: usize = 256;
/// A file is made while the server runs only where it leaves this part of its size free.
const FREE_BESIDE_PART: u64 = 8;

/// A file or a block device.
#[derive(Debug)]
pub struct FileMedium {
    path: PathBuf,
    /// `None` while what was gone has not come back.
    file: RwLock<Option<Opened>>,
    bytes: u64,
}

/// What there is, locked.
#[derive(Debug)]
struct Opened {
    /// What is written to it is stable.
    file: File,
    /// The cheaper way to that, where there is one.
    device_flush: Option<DeviceFlush>,
}

impl FileMedium {
    /// Opens a file or a block device that is there.
    ///
    /// # Errors
    /// When it cannot be opened, is something else, or another server has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (opened, bytes) = open_locked(path)?;
        Ok(Self { path: path.to_owned(), file: RwLock::new(Some(opened)), bytes })
    }

    /// A file that is not there yet, and is made by [`FileMedium::make`]. Until then reads and
    /// writes fail.
    pub fn unmade(path: &Path, bytes: u64) -> Self {
        Self { path: path.to_owned(), file: RwLock::new(None), bytes }
    }

    /// Makes the file of [`FileMedium::unmade`], unless that would fill its file system.
    ///
    /// # Errors
    /// As [`FileMedium::create`].
    pub fn make(&self) -> io::Result<()> {
        let mut file = self.file.write();
        drop(file.take());
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let facts = rustix::fs::statvfs(directory)?;
        let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
        if free_bytes < self.bytes.saturating_add(self.bytes / FREE_BESIDE_PART) {
            let why = format!(
                "{} has {} MiB free, too little for {} MiB",
                directory.display(),
                free_bytes >> 20,
                self.bytes >> 20
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let made = Self::create(&self.path, self.bytes)?;
        *file = made.file.into_inner();
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens anew what is at its place now: a device that was gone is another one for the kernel
    /// when it is back. If that fails, reads and writes fail too until it succeeds.
    ///
    /// # Errors
    /// As [`FileMedium::open`], and when it has another size.
    pub fn reopen(&self) -> io::Result<()> {
        let mut file = self.file.write();
        // Its lock would be in the way.
        drop(file.take());
        let (opened, bytes) = open_locked(&self.path)?;
        if bytes != self.bytes {
            let why = format!("it has {bytes} bytes, and had {}", self.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        *file = Some(opened);
        Ok(())
    }

    /// Whether writes are made stable by a flush of the device that does not store when the file was
    /// changed.
    pub fn flushes_device(&self) -> bool {
        self.file.read().as_ref().is_some_and(|opened| opened.device_flush.is_some())
    }

    fn with_file<T>(&self, act: impl FnOnce(&Opened) -> io::Result<T>) -> Result<T, MediumError> {
        let file = self.file.read();
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it is gone");
        Ok(act(file.as_ref().ok_or_else(gone)?)?)
    }

    /// Makes a file of so many bytes and writes it through once, so that later writes change
    /// nothing but its data. It gets its name when it is whole.
    ///
    /// # Errors
    /// When it cannot be made, or there is no room.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let temporary = path.with_extension("new");
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (file, _) = open(&temporary, true)?;
        if let Err(error) = fill(&file, bytes) {
            // What was written of it takes the room that was too little.
            let _ = std::fs::remove_file(&temporary);
            return Err(error);
        }
        std::fs::rename(&temporary, path)?;
        durable_file::sync_directory_of(path)?;
        Self::open(path)
    }
}

/// Writes a new file through, and has it stable.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![Block::ZERO; FILL_BLOCKS];
    let zeros = Block::bytes_of(&zeros);
    let mut written = 0;
    while written < bytes {
        let more = usize::try_from(bytes - written).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all_at(zeros.get(..more).unwrap_or(zeros), written)?;
        written += more as u64;
    }
    file.sync_all()
}

/// Opens what is there, with its size in bytes, so that nobody else uses it.
fn open_locked(path: &Path) -> io::Result<(Opened, u64)> {
    let (file, is_direct) = open(path, false)?;
    if !process::lock_exclusively(&file)? {
        let why = "another server uses it, or `steadfast log`";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    let metadata = file.metadata()?;
    let is_device = metadata.file_type().is_block_device();
    if !is_device && !metadata.is_file() {
        let why = "the intent log must be an ordinary file or a block device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let bytes = if is_device {
        use std::io::{Seek, SeekFrom};
        (&file).seek(SeekFrom::End(0))?
    } else {
        metadata.len()
    };
    let is_file = is_direct && !is_device;
    let device_flush = if is_file { DeviceFlush::of(path, &file)? } else { None };
    Ok((Opened { file, device_flush }, bytes))
}

/// Opens for reading and for writing that is stable when it returns; around the page cache where
/// the file system can do that, and whether it can.
fn open(path: &Path, is_new: bool) -> io::Result<(File, bool)> {
    let mut last = None;
    for is_direct in [true, false] {
        let mut flags = durable_file::DATA_SYNC | OFlags::CLOEXEC;
        if is_direct {
            flags |= OFlags::DIRECT;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(is_new).mode(0o600);
        options.custom_flags(flags.bits() as i32);
        match options.open(path) {
            Ok(file) => return Ok((file, is_direct)),
            // Some file systems, tmpfs before Linux 6.6 among them, cannot go around it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
}

impl Medium for FileMedium {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [Block]) -> Result<(), MediumError> {
        self.check(offset, into.len())?;
        self.with_file(|opened| opened.file.read_exact_at(Block::bytes_of_mut(into), offset))
    }

    fn write_at(&self, offset: u64, from: &[Block]) -> Result<(), MediumError> {
        self.check(offset, from.len())?;
        let bytes = Block::bytes_of(from);
        self.with_file(|opened| match &opened.device_flush {
            Some(device) => device.write(bytes, offset),
            None => opened.file.write_all_at(bytes, offset),
        })
    }
}

impl FileMedium {
    fn check(&self, offset: u64, blocks: usize) -> Result<(), MediumError> {
        let bytes = (blocks * BLOCK_BYTES) as u64;
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(MediumError::Beyond { offset, bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_they_were_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let size = (FILL_BLOCKS as u64 + 3) * BLOCK_BYTES as u64;
        let medium = FileMedium::create(&path, size).unwrap();
        assert_eq!(medium.bytes(), size);
        let mut blocks = vec![Block::ZERO; 2];
        Block::bytes_of_mut(&mut blocks).fill(7);
        medium.write_at(4096, &blocks).unwrap();
        assert_eq!(FileMedium::open(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        // Gone, smaller, and back.
        let away = place.path().join("away");
        std::fs::rename(&path, &away).unwrap();
        assert!(medium.reopen().is_err() && medium.read_at(0, &mut [Block::ZERO]).is_err());
        std::fs::write(&path, vec![0; BLOCK_BYTES]).unwrap();
        assert!(medium.reopen().unwrap_err().to_string().contains("bytes, and had"));
        std::fs::rename(&away, &path).unwrap();
        medium.reopen().unwrap();
        drop(medium);
        let again = FileMedium::open(&path).unwrap();
        let mut read = vec![Block::ZERO; 4];
        again.read_at(0, &mut read).unwrap();
        let bytes = Block::bytes_of(&read);
        assert!(bytes[..4096].iter().all(|byte| *byte == 0));
        assert!(bytes[4096..3 * 4096].iter().all(|byte| *byte == 7));
        assert!(matches!(again.write_at(size, &blocks), Err(MediumError::Beyond { .. })));
        assert!(matches!(
            again.read_at(u64::MAX - 4095, &mut read),
            Err(MediumError::Beyond { .. })
        ));
        assert!(FileMedium::open(place.path()).is_err());
        assert!(FileMedium::open(&place.path().join("other")).is_err());
    }
}
