//! Where a capture is written: a new file, or something that is there and may make the writer wait, as a pipe. A signal
//! ends the wait.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use steadfast_sys::process::Signals;

use super::CaptureError;
use crate::private_file;

/// How often it is looked whether somebody has opened a pipe to read.
const PATIENCE: Duration = Duration::from_millis(50);
/// For the output to take the next piece of what is left, after an interrupt.
const LAST: Duration = Duration::from_secs(1);
/// A pipe that can be written to takes so much without a wait (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// Signals that end a capture, and until when its output is waited for.
#[derive(Debug)]
pub(super) struct Interrupt {
    signals: Signals,
    has_come: Cell<bool>,
    /// A second one has.
    is_urgent: Cell<bool>,
    until: Cell<Option<Instant>>,
    has_given_up: Cell<bool>,
}

impl Interrupt {
    /// To be called before there are other threads.
    pub(super) fn block() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::block()?,
            has_come: Cell::new(false),
            is_urgent: Cell::new(false),
            until: Cell::new(None),
            has_given_up: Cell::new(false),
        })
    }

    /// Whether a signal has come.
    pub(super) fn look(&self) -> io::Result<bool> {
        while self.signals.wait(Duration::ZERO)?.is_some() {
            let now = Instant::now();
            // With a second one, nothing is waited for.
            self.is_urgent.set(self.has_come.replace(true));
            self.until.set(Some(if self.is_urgent.get() { now } else { now + LAST }));
        }
        Ok(self.has_come.get())
    }

    /// The output took something: who reads slowly gets all that is left, but after a second signal.
    fn has_taken(&self) {
        if self.has_come.get() && !self.is_urgent.get() {
            self.until.set(Some(Instant::now() + LAST));
        }
    }

    /// Whether the output took nothing for so long that it was waited for no longer.
    pub(super) fn has_given_up(&self) -> bool {
        self.has_given_up.get()
    }

    /// Waits until an output can be written to.
    fn wait_for(&self, output: &File) -> io::Result<()> {
        // Also what is still buffered is not written then: the file is cut, and nothing else follows.
        if self.has_given_up.get() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        loop {
            let left = self.until.get().map(|it| it.saturating_duration_since(Instant::now()));
            let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            let mut both = [
                PollFd::new(output, PollFlags::OUT),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            match poll(&mut both, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) => {
                    self.has_given_up.set(true);
                    return Err(io::ErrorKind::TimedOut.into());
                }
                // Also when writing fails: it says why.
                Ok(_) if !both[0].revents().is_empty() => return Ok(()),
                Ok(_) => {
                    self.look()?;
                }
            }
        }
    }
}

/// Where it is going to be written.
#[derive(Debug)]
pub(super) enum Target {
    /// It is open.
    Open(File),
    /// A file, which is made when there is something to be written.
    New {
        /// It may be there.
        replaces: bool,
    },
}

impl Target {
    /// Looks what is there. Pipes and devices are opened: that may take as long as nobody reads.
    pub(super) fn find(
        place: &Path,
        replaces: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, CaptureError> {
        if place == Path::new("-") {
            return Ok(Self::Open(File::from(io::stdout().as_fd().try_clone_to_owned()?)));
        }
        let found = place.metadata().ok().map(|found| found.file_type());
        let kind = found.filter(|kind| !kind.is_file() && !kind.is_dir());
        let is_there = place.symlink_metadata().is_ok();
        // A pipe may have been made by whoever knew the name.
        let may_be_there = replaces || kind.is_some_and(|kind| kind.is_char_device());
        if is_there && !may_be_there {
            return Err(CaptureError::Exists(place.to_owned()));
        }
        let has_no_reader = Cell::new(false);
        let opened = private_file::open_special(place, || {
            has_no_reader.set(interrupt.look()?);
            std::thread::sleep(PATIENCE);
            Ok(!has_no_reader.get())
        });
        match opened {
            Ok(None) => Ok(Self::New { replaces }),
            Ok(Some(file)) => Ok(Self::Open(file)),
            Err(_) if has_no_reader.get() => Err(CaptureError::NoReader(place.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(CaptureError::Exists(place.to_owned()))
            }
            Err(error) => Err(CaptureError::Write { path: place.to_owned(), error }),
        }
    }

    pub(super) fn open<'i>(
        self,
        place: &Path,
        interrupt: &'i Interrupt,
    ) -> Result<Output<'i>, CaptureError> {
        let file = match self {
            Self::Open(file) => file,
            Self::New { replaces } => {
                private_file::create(place, replaces).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => CaptureError::Exists(place.to_owned()),
                    _ => CaptureError::Write { path: place.to_owned(), error },
                })?
            }
        };
        let waits = !file.metadata()?.is_file();
        Ok(Output { file, waits, interrupt })
    }
}

/// An output that waits no longer than [`Interrupt`] says.
#[derive(Debug)]
pub(super) struct Output<'i> {
    file: File,
    /// Whether writing may wait for a reader.
    waits: bool,
    interrupt: &'i Interrupt,
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.waits {
            return self.file.write(bytes);
        }
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        loop {
            self.interrupt.wait_for(&self.file)?;
            match self.file.write(piece) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    self.interrupt.has_taken();
                    return result;
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
