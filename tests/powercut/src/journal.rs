//! What happened to all disks of a run, and to the operations of its clients, in one order.
//!
//! One lock orders everything. An operation's `Sent` is noted before its first byte leaves, and
//! its `Acknowledged` after its reply has come: so at any event, whatever is acknowledged was
//! promised, and whatever is not sent cannot have begun. A server that replies a moment before its
//! flush may go unnoticed (the flush may be recorded first); nothing is ever found that was not
//! there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most that is recorded of one run, in bytes; the load ends when it is reached.
const RECORDED_BYTES_MAX: u64 = 3 << 30;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A disk was written.
    Write {
        /// Which.
        disk: usize,
        /// From this byte of the disk.
        offset: u64,
        /// Where the data is among the recorded data.
        at: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// A disk was asked to make stable what was written to it.
    Flush {
        /// Which.
        disk: usize,
    },
    /// A client is about to send an operation.
    Sent(u32),
    /// A client has the reply to an operation.
    Acknowledged(u32),
    /// A client of NFSv4 is about to open, lock, close … something.
    DeedSent(u32),
    /// It has the reply to that.
    DeedAnswered(u32),
}

#[derive(Debug, Default)]
struct Recorded {
    events: Vec<Event>,
    data_bytes: u64,
}

/// The recorder. The disks' current contents are files, kept up to date under the same lock.
#[derive(Debug)]
pub(crate) struct Journal {
    recorded: Mutex<Recorded>,
    data: File,
    contents: Vec<File>,
}

impl Journal {
    /// Records disks that have these contents, their data to `data`.
    pub(crate) fn new(contents: Vec<File>, data: File) -> Self {
        Self { recorded: Mutex::default(), data, contents }
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        // A panic elsewhere ends the run; the events are whole at any time.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of a disk in bytes.
    pub(crate) fn disk_bytes(&self, disk: usize) -> io::Result<u64> {
        Ok(self.content(disk)?.metadata()?.len())
    }

    fn content(&self, disk: usize) -> io::Result<&File> {
        self.contents.get(disk).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Reads what a disk holds now.
    pub(crate) fn read(&self, disk: usize, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.content(disk)?.read_exact_at(bytes, offset)
    }

    /// Writes to a disk.
    pub(crate) fn write(&self, disk: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let content = self.content(disk)?;
        let mut recorded = self.lock();
        let at = recorded.data_bytes;
        self.data.write_all_at(bytes, at)?;
        content.write_all_at(bytes, offset)?;
        recorded.data_bytes += bytes.len() as u64;
        recorded.events.push(Event::Write { disk, offset, at, bytes: bytes.len() as u32 });
        Ok(())
    }

    /// Notes what is no write.
    pub(crate) fn note(&self, event: Event) {
        self.lock().events.push(event);
    }

    /// How many events there are.
    pub(crate) fn length(&self) -> usize {
        self.lock().events.len()
    }

    /// Whether as much is recorded as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().data_bytes >= RECORDED_BYTES_MAX
    }

    /// All events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The data of a write.
    pub(crate) fn data(&self, at: u64, bytes: u32) -> io::Result<Vec<u8>> {
        let mut data = vec![0; bytes as usize];
        self.data.read_exact_at(&mut data, at)?;
        Ok(data)
    }
}
