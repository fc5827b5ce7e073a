//! Contending by `fcntl`: on the server's machine, or by a mount.
//!
//! Whole files are locked for the process (`F_SETLKW`), ranges for the open file (`F_OFD_SETLKW`).

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use steadfast_sys::alarm::Alarm;
use steadfast_sys::range_lock::{self, Bytes, Kind};

use super::{Wanted, Way, files};

pub(super) struct Paths(Vec<File>);

impl Paths {
    /// `is_mount`: ranges are read and written past the client's memory. A page of that holds cells that
    /// others lock. A whole file is not, as for all programs: a lock is worth what is written under it.
    pub(super) fn open(directory: &Path, is_mount: bool) -> Result<Self> {
        let open = |(file, name): (usize, &str)| {
            let mut options = File::options();
            options.read(true).write(true);
            if is_mount && file != 0 {
                options.custom_flags(OFlags::DIRECT.bits() as i32);
            }
            options.open(directory.join(name)).with_context(|| name.to_owned())
        };
        Ok(Self(files().enumerate().map(open).collect::<Result<_>>()?))
    }

    fn file(&self, wanted: &Wanted) -> Result<&File> {
        self.0.get(wanted.file).context("a file that is not open")
    }
}

fn bytes(wanted: &Wanted) -> Bytes {
    let (first, length) = wanted.range();
    Bytes { first, last: first.saturating_add(length - 1) }
}

fn kind(wanted: &Wanted) -> Kind {
    if wanted.is_exclusive { Kind::Write } else { Kind::Read }
}

impl Way for Paths {
    fn lock(&mut self, wanted: &Wanted) -> Result<bool> {
        let file = self.file(wanted)?;
        if !wanted.is_whole() {
            let is_had = range_lock::set(file, bytes(wanted), Some(kind(wanted)));
            return is_had.context("F_OFD_SETLK");
        }
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(errno).context("F_SETLK"),
        }
    }

    fn wait(&mut self, wanted: &Wanted, limit: Duration) -> Result<bool> {
        let file = self.file(wanted)?;
        let _alarm = Alarm::every(limit)?;
        let waited = if wanted.is_whole() {
            fcntl_lock(file, FlockOperation::LockExclusive)
        } else {
            range_lock::wait(file, bytes(wanted), kind(wanted))
        };
        match waited {
            Ok(()) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno).context("a lock that is waited for"),
        }
    }

    fn unlock(&mut self, wanted: &Wanted) -> Result<()> {
        let file = self.file(wanted)?;
        if wanted.is_whole() {
            return fcntl_lock(file, FlockOperation::Unlock).context("F_UNLCK");
        }
        let freed = range_lock::set(file, bytes(wanted), None).context("F_UNLCK of a range")?;
        ensure!(freed, "what one has cannot be freed");
        Ok(())
    }

    fn read(&mut self, wanted: &Wanted) -> Result<Vec<u8>> {
        let (offset, length) = wanted.data();
        let mut data = vec![0; length];
        self.file(wanted)?.read_exact_at(&mut data, offset).context("read")?;
        Ok(data)
    }

    fn write(&mut self, wanted: &Wanted, data: &[u8]) -> Result<()> {
        self.file(wanted)?.write_all_at(data, wanted.data().0).context("write")
    }

    fn end(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
