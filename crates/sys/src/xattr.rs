//! Extended attributes of objects of which there is only an `O_PATH` descriptor.
//!
//! Linux 6.13 has calls for that; before, the way is through `/proc/self/fd`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, Result};

use crate::file::last_errno;

// The same numbers on every architecture.
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_REMOVEXATTRAT: libc::c_long = 466;

/// Whether the kernel turned out to lack the calls above.
static LACKS_AT_CALLS: AtomicBool = AtomicBool::new(false);

#[repr(C, align(8))]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// Reads an attribute into `buffer` and says how long it is.
///
/// # Errors
/// `ENODATA` when there is none, `EOPNOTSUPP` where there are no such attributes, `ERANGE` when
/// the buffer is too small, and the system call's.
pub fn value(object: impl AsFd, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let fd = object.as_fd().as_raw_fd();
    if !LACKS_AT_CALLS.load(Ordering::Relaxed) {
        let args = XattrArgs {
            value: buffer.as_mut_ptr() as u64,
            size: u32::try_from(buffer.len()).unwrap_or(u32::MAX),
            flags: 0,
        };
        // SAFETY: `args` names `buffer` and its length, to which alone the kernel writes; the
        // strings end with NUL; all live for the call.
        let got = unsafe {
            libc::syscall(
                SYS_GETXATTRAT,
                fd,
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                name.as_ptr(),
                &raw const args,
                size_of::<XattrArgs>(),
            )
        };
        if let Ok(got) = usize::try_from(got) {
            return Ok(got);
        }
        note_absence(last_errno())?;
    }
    let path = proc_path(fd)?;
    // SAFETY: the strings end with NUL; the kernel writes at most `len` bytes to the buffer.
    let got = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    };
    usize::try_from(got).map_err(|_| last_errno())
}

/// Sets an attribute.
///
/// # Errors
/// The system call's.
pub fn set(object: impl AsFd, name: &CStr, value: &[u8]) -> Result<()> {
    let fd = object.as_fd().as_raw_fd();
    if !LACKS_AT_CALLS.load(Ordering::Relaxed) {
        let args = XattrArgs {
            value: value.as_ptr() as u64,
            size: u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?,
            flags: 0,
        };
        // SAFETY: `args` names `value` and its length, from which alone the kernel reads.
        let failed = unsafe {
            libc::syscall(
                SYS_SETXATTRAT,
                fd,
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                name.as_ptr(),
                &raw const args,
                size_of::<XattrArgs>(),
            )
        };
        if failed == 0 {
            return Ok(());
        }
        note_absence(last_errno())?;
    }
    let path = proc_path(fd)?;
    // SAFETY: the strings end with NUL; the kernel reads `len` bytes of the value.
    let failed = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Removes an attribute.
///
/// # Errors
/// `ENODATA` when there is none, and the system call's.
pub fn remove(object: impl AsFd, name: &CStr) -> Result<()> {
    let fd = object.as_fd().as_raw_fd();
    if !LACKS_AT_CALLS.load(Ordering::Relaxed) {
        // SAFETY: the strings end with NUL and live for the call.
        let failed = unsafe {
            libc::syscall(SYS_REMOVEXATTRAT, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, name.as_ptr())
        };
        if failed == 0 {
            return Ok(());
        }
        note_absence(last_errno())?;
    }
    let path = proc_path(fd)?;
    // SAFETY: the strings end with NUL.
    let failed = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

fn note_absence(errno: Errno) -> Result<()> {
    if errno != Errno::NOSYS {
        return Err(errno);
    }
    LACKS_AT_CALLS.store(true, Ordering::Relaxed);
    Ok(())
}

fn proc_path(fd: i32) -> Result<CString> {
    CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways must behave alike.
    #[test]
    fn attributes_are_set_read_and_removed() {
        let path = std::env::temp_dir().join(format!("steadfast-sys-xattr-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        let object =
            rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for lacks in [false, true] {
            LACKS_AT_CALLS.store(lacks, Ordering::Relaxed);
            let mut buffer = [0; 16];
            assert_eq!(value(&object, c"user.x", &mut buffer), Err(Errno::NODATA));
            set(&object, c"user.x", b"hello").unwrap();
            assert_eq!(value(&object, c"user.x", &mut buffer).unwrap(), 5);
            assert_eq!(&buffer[..5], b"hello");
            assert_eq!(value(&object, c"user.x", &mut [0; 2]), Err(Errno::RANGE));
            remove(&object, c"user.x").unwrap();
            assert_eq!(remove(&object, c"user.x"), Err(Errno::NODATA));
        }
        LACKS_AT_CALLS.store(false, Ordering::Relaxed);
        std::fs::remove_file(&path).unwrap();
    }
}
