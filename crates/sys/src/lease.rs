//! Leases on files: to know that nobody else has one open (`fcntl(2)`, "Leases").

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// Which signal tells of who opens the file; the same number on every architecture.
const F_SETSIG: libc::c_int = 10;

/// A file that nobody else has open; who opens it meanwhile waits until this is dropped, or for as
/// long as `/proc/sys/fs/lease-break-time` says.
#[derive(Debug)]
pub struct Lease<'a>(&'a File);

/// Takes a file for oneself, if nobody else has it open; `None` otherwise. It has to be open for
/// writing, once. Whoever opens it meanwhile causes a signal that this process ignores by default
/// (`SIGURG`).
///
/// # Errors
/// The system call's; [`Errno::INVAL`] where the file system has no leases.
pub fn take(file: &File) -> Result<Option<Lease<'_>>> {
    let fd = file.as_raw_fd();
    // By default it would be SIGIO, which ends a process.
    control(fd, F_SETSIG, libc::SIGURG)?;
    match control(fd, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => Ok(Some(Lease(file))),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // It ends with the descriptor at the latest.
        let _ = control(self.0.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(fd: RawFd, command: i32, argument: i32) -> Result<()> {
    // SAFETY: these commands take a number and refer to no memory.
    let result = unsafe { libc::fcntl(fd, command, argument) };
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_file_that_somebody_has_open_is_not_taken() {
        let path = std::env::temp_dir().join(format!("steadfast-sys-lease-{}", std::process::id()));
        let ours = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        drop(take(&ours).unwrap().expect("nobody has it"));
        let theirs = File::open(&path).unwrap();
        assert!(take(&ours).unwrap().is_none());
        drop(theirs);
        let lease = take(&ours).unwrap().expect("nobody has it any more");
        // Whoever opens it waits; if not, he is told that he would.
        let open = || {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        };
        assert_eq!(open().err(), Some(Errno::AGAIN));
        drop(lease);
        open().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
