//! Locks of byte ranges that belong to an open file description, and not to the process
//! (`fcntl(2)`, "Open file description locks"): another descriptor of the same file may be closed
//! without an end to them. They exclude those of other processes, whether by `F_SETLK` or by this.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// What a lock permits others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Other read locks. The file has to be open for reading.
    Read,
    /// Nothing. The file has to be open for writing.
    Write,
}

/// Bytes from the first to the last. A last one from [`i64::MAX`] on stands for all that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The first byte.
    pub first: u64,
    /// The last one; not less than `first`.
    pub last: u64,
}

/// Sets what this open file holds of a range, all of it or nothing; `None` frees it. Whether it was set: if
/// not, somebody else has a lock that conflicts. Never waits for a lock.
///
/// # Errors
/// [`Errno::OVERFLOW`] if the first byte is behind all that a file can have; and the system call's:
/// [`Errno::BADF`] if the file is not open for what the kind needs, [`Errno::NOLCK`] if there are too many.
pub fn set(file: impl AsFd, bytes: Bytes, kind: Option<Kind>) -> Result<bool> {
    let lock = request(bytes, kind)?;
    // SAFETY: the structure has the layout that the command expects and lives for the call.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if done == 0 {
        return Ok(true);
    }
    match last_errno() {
        Errno::AGAIN | Errno::ACCESS => Ok(false),
        errno => Err(errno),
    }
}

/// Sets a lock as [`set`] does, and waits for those of others that are in the way.
///
/// # Errors
/// As of [`set`]; [`Errno::INTR`] if a signal came first ([`crate::alarm`]): then nothing is locked.
pub fn wait(file: impl AsFd, bytes: Bytes, kind: Kind) -> Result<()> {
    let lock = request(bytes, Some(kind))?;
    // SAFETY: the structure has the layout that the command expects and lives for the call.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Somebody else's lock that keeps this open file from one.
///
/// # Errors
/// As of [`set`].
pub fn conflict(file: impl AsFd, bytes: Bytes, kind: Kind) -> Result<Option<(Bytes, Kind)>> {
    let mut lock = request(bytes, Some(kind))?;
    // SAFETY: the structure has the layout that the command expects and lives for the call.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if done != 0 {
        return Err(last_errno());
    }
    let kind = match i32::from(lock.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => Kind::Read,
        _ => Kind::Write,
    };
    let first = u64::try_from(lock.l_start).unwrap_or(0);
    let length = u64::try_from(lock.l_len).unwrap_or(0);
    let last = if length == 0 { u64::MAX } else { first.saturating_add(length - 1) };
    Ok(Some((Bytes { first, last }, kind)))
}

fn request(bytes: Bytes, kind: Option<Kind>) -> Result<libc::flock64> {
    let start = i64::try_from(bytes.first).map_err(|_| Errno::OVERFLOW)?;
    let last = i64::try_from(bytes.last).unwrap_or(i64::MAX);
    // 0 stands for all that follow; the length from 0 to the last but one fits.
    let length = if last == i64::MAX { 0 } else { last.saturating_sub(start).saturating_add(1) };
    let kind = match kind {
        None => libc::F_UNLCK,
        Some(Kind::Read) => libc::F_RDLCK,
        Some(Kind::Write) => libc::F_WRLCK,
    };
    Ok(libc::flock64 {
        l_type: i16::try_from(kind).map_err(|_| Errno::INVAL)?,
        l_whence: i16::try_from(libc::SEEK_SET).map_err(|_| Errno::INVAL)?,
        l_start: start,
        l_len: length,
        // Has to be 0 for these commands.
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn open_files_exclude_each_other_and_outlive_other_descriptors() {
        let path =
            std::env::temp_dir().join(format!("steadfast-range-lock-{}", std::process::id()));
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .unwrap()
        };
        let (one, two) = (open(), open());
        let bytes = |first, last| Bytes { first, last };
        assert!(set(&one, bytes(5, 9), Some(Kind::Write)).unwrap());
        drop(open());
        assert!(!set(&two, bytes(0, 5), Some(Kind::Read)).unwrap());
        let found = conflict(&two, bytes(0, u64::MAX), Kind::Read).unwrap();
        assert_eq!(found, Some((bytes(5, 9), Kind::Write)));
        assert!(set(&two, bytes(0, 4), Some(Kind::Read)).unwrap());
        assert!(set(&one, bytes(6, u64::MAX), Some(Kind::Read)).unwrap());
        let found = conflict(&two, bytes(100, 200), Kind::Write).unwrap();
        assert_eq!(found, Some((bytes(6, u64::MAX), Kind::Read)));
        assert!(set(&one, bytes(0, u64::MAX), None).unwrap());
        assert_eq!(conflict(&two, bytes(0, u64::MAX), Kind::Write).unwrap(), None);
        assert!(set(&one, bytes(25, 25), Some(Kind::Write)).unwrap());
        let alarm = crate::alarm::Alarm::every(std::time::Duration::from_millis(20)).unwrap();
        assert_eq!(wait(&two, bytes(20, 30), Kind::Read), Err(Errno::INTR));
        drop(alarm);
        assert!(set(&one, bytes(0, u64::MAX), None).unwrap());
        wait(&two, bytes(20, 30), Kind::Write).unwrap();
        assert!(!set(&one, bytes(30, 30), Some(Kind::Read)).unwrap());
        let behind = bytes(1 << 63, u64::MAX);
        assert_eq!(set(&one, behind, Some(Kind::Read)), Err(Errno::OVERFLOW));
        std::fs::remove_file(path).unwrap();
    }
}
