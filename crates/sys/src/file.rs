//! Reading, cache residency and mode changes of open files.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// Appends at most `count` bytes from `offset` on to `into` and says how many. Without
/// `may_wait` only what is in the page cache is read (`RWF_NOWAIT`): [`Errno::AGAIN`] when the
/// first byte is not there, [`Errno::OPNOTSUPP`] where the file system cannot promise that.
///
/// # Errors
/// The system call's.
pub fn append_read(
    file: impl AsFd,
    into: &mut Vec<u8>,
    count: usize,
    offset: u64,
    may_wait: bool,
) -> Result<usize> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
    into.reserve(count);
    let spare = into.spare_capacity_mut();
    let vector =
        libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: count.min(spare.len()) };
    let flags = if may_wait { 0 } else { libc::RWF_NOWAIT };
    loop {
        // SAFETY: `vector` is one buffer inside the vector's spare capacity, which nothing else
        // refers to while the kernel writes at most `iov_len` bytes to it.
        let got =
            unsafe { libc::preadv2(file.as_fd().as_raw_fd(), &raw const vector, 1, offset, flags) };
        if let Ok(got) = usize::try_from(got) {
            let length = into.len() + got.min(vector.iov_len);
            // SAFETY: the kernel has initialised `got` bytes of the spare capacity, and `got` is
            // not more than what was offered.
            unsafe { into.set_len(length) };
            return Ok(got);
        }
        match last_errno() {
            Errno::INTR => {}
            errno => return Err(errno),
        }
    }
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat(2)`; the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of the range are in the page cache.
///
/// # Errors
/// [`Errno::NOSYS`] before Linux 6.5, and the system call's.
pub fn cached_pages(file: impl AsFd, offset: u64, length: u64) -> Result<u64> {
    let range = CachestatRange { offset, length };
    let mut state = Cachestat::default();
    // SAFETY: both structures have the layout the call expects and live for its duration.
    let failed = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            &raw const range,
            &raw mut state,
            0u32,
        )
    };
    if failed == 0 { Ok(state.cached) } else { Err(last_errno()) }
}

/// Waits until nothing of a range is in the page cache only, and tells of what could not be written
/// there since the file was opened or it was told last. Neither the file's attributes nor the device's
/// cache are flushed.
///
/// # Errors
/// The system call's, among them that of a write that failed.
pub fn write_back(file: impl AsFd, offset: u64, length: u64) -> Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, length, all)
}

/// Has the kernel begin to write what of a range is in the page cache only. Waits for nothing, and
/// takes no error away from who flushes the file later.
///
/// # Errors
/// The system call's.
pub fn start_write_back(file: impl AsFd, offset: u64, length: u64) -> Result<()> {
    sync_range(file, offset, length, libc::SYNC_FILE_RANGE_WRITE)
}

fn sync_range(file: impl AsFd, offset: u64, length: u64, how: libc::c_uint) -> Result<()> {
    let wide = |number| libc::off64_t::try_from(number).map_err(|_| Errno::OVERFLOW);
    let (offset, length) = (wide(offset)?, wide(length)?);
    // SAFETY: nothing of this process's memory is referred to.
    let failed = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, how) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `fchmodat2(2)`, since Linux 6.6; the same number on every architecture.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Changes the permission bits of an object, of which an `O_PATH` descriptor is enough.
///
/// # Errors
/// The system call's; [`Errno::OPNOTSUPP`] for a symbolic link.
pub fn change_mode(object: impl AsFd, mode: u32) -> Result<()> {
    let fd = object.as_fd().as_raw_fd();
    // SAFETY: the path is a constant empty string; nothing else is referred to.
    let failed =
        unsafe { libc::syscall(SYS_FCHMODAT2, fd, c"".as_ptr(), mode, libc::AT_EMPTY_PATH) };
    if failed == 0 {
        return Ok(());
    }
    match last_errno() {
        Errno::NOSYS => {
            rustix::fs::chmod(format!("/proc/self/fd/{fd}"), rustix::fs::Mode::from_raw_mode(mode))
        }
        errno => Err(errno),
    }
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn reading_appends_and_stops_at_the_end() {
        let mut file = std::fs::File::create_new(temporary("read")).unwrap();
        file.write_all(b"0123456789").unwrap();
        let file = std::fs::File::open(temporary("read")).unwrap();
        let mut into = b"ab".to_vec();
        assert_eq!(append_read(&file, &mut into, 4, 3, true).unwrap(), 4);
        assert_eq!(into, b"ab3456");
        assert_eq!(append_read(&file, &mut into, 100, 8, true).unwrap(), 2);
        assert_eq!(append_read(&file, &mut into, 100, 100, true).unwrap(), 0);
        assert_eq!(append_read(&file, &mut into, 1, u64::MAX, true), Err(Errno::OVERFLOW));
        assert_eq!(into, b"ab345689");
        std::fs::remove_file(temporary("read")).unwrap();
    }

    #[test]
    fn mode_changes_through_a_path_descriptor() {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(temporary("mode"), b"").unwrap();
        let path = rustix::fs::open(
            temporary("mode"),
            rustix::fs::OFlags::PATH,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        change_mode(&path, 0o640).unwrap();
        let mode = std::fs::metadata(temporary("mode")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        std::fs::remove_file(temporary("mode")).unwrap();
    }

    fn temporary(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("steadfast-sys-{name}-{}", std::process::id()))
    }
}
