//! Extended attributes of objects of which there may be only an `O_PATH` descriptor.
//!
//! The calls that take a descriptor refuse such a one (so do Linux 6.13's `getxattrat` and its
//! kin with an empty path), so the way is through `/proc/self/fd`, which never leads elsewhere
//! than to the object itself and is open to a thread whatever identity it has assumed.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// Reads an attribute into `buffer` and says how long it is.
///
/// # Errors
/// `ENODATA` when there is none, `EOPNOTSUPP` where there are no such attributes, `ERANGE` when
/// the buffer is too small, and the system call's.
pub fn value(object: impl AsFd, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let path = proc_path(object)?;
    // SAFETY: the strings end with NUL; the kernel writes at most `len` bytes to the buffer.
    let got = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    };
    usize::try_from(got).map_err(|_| last_errno())
}

/// As [`value`], of an object that is open, and not by `O_PATH`: that saves a look-up.
///
/// # Errors
/// As [`value`].
pub fn value_of_open(object: impl AsFd, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let object = object.as_fd().as_raw_fd();
    // SAFETY: the string ends with NUL; the kernel writes at most `len` bytes to the buffer.
    let got =
        unsafe { libc::fgetxattr(object, name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| last_errno())
}

/// Whether an attribute must be there when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It may be or not.
    Any,
    /// It must not.
    Absent,
    /// It must.
    Present,
}

/// Sets an attribute.
///
/// # Errors
/// The system call's.
pub fn set(object: impl AsFd, name: &CStr, value: &[u8]) -> Result<()> {
    set_if(object, name, value, Presence::Any)
}

/// As [`set`], if the attribute is there, or is not.
///
/// # Errors
/// `EEXIST`, `ENODATA`, and the system call's.
pub fn set_if(object: impl AsFd, name: &CStr, value: &[u8], presence: Presence) -> Result<()> {
    let path = proc_path(object)?;
    let flags = match presence {
        Presence::Any => 0,
        Presence::Absent => libc::XATTR_CREATE,
        Presence::Present => libc::XATTR_REPLACE,
    };
    // SAFETY: the strings end with NUL; the kernel reads `len` bytes of the value.
    let failed = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
    };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Reads the names of all attributes into `buffer`, each with a NUL behind it, and says how many bytes
/// they are. With an empty buffer it says how long one must be.
///
/// # Errors
/// `ERANGE` when the buffer is too small, and the system call's.
pub fn names(object: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    let path = proc_path(object)?;
    // SAFETY: the string ends with NUL; the kernel writes at most `len` bytes to the buffer.
    let got = unsafe { libc::listxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| last_errno())
}

/// Removes an attribute.
///
/// # Errors
/// `ENODATA` when there is none, and the system call's.
pub fn remove(object: impl AsFd, name: &CStr) -> Result<()> {
    let path = proc_path(object)?;
    // SAFETY: the strings end with NUL.
    let failed = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

fn proc_path(object: impl AsFd) -> Result<CString> {
    CString::new(format!("/proc/self/fd/{}", object.as_fd().as_raw_fd())).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_set_read_and_removed() {
        let path = std::env::temp_dir().join(format!("steadfast-sys-xattr-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        let object =
            rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(value(&object, c"user.x", &mut buffer), Err(Errno::NODATA));
        set(&object, c"user.x", b"hello").unwrap();
        assert_eq!(value(&object, c"user.x", &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
        let open = std::fs::File::open(&path).unwrap();
        assert_eq!(value_of_open(&open, c"user.x", &mut buffer).unwrap(), 5);
        assert_eq!(value_of_open(&open, c"user.y", &mut buffer), Err(Errno::NODATA));
        assert_eq!(value(&object, c"user.x", &mut [0; 2]), Err(Errno::RANGE));
        assert_eq!(set_if(&object, c"user.x", b"1", Presence::Absent), Err(Errno::EXIST));
        assert_eq!(set_if(&object, c"user.y", b"1", Presence::Present), Err(Errno::NODATA));
        set_if(&object, c"user.x", b"hi", Presence::Present).unwrap();
        set_if(&object, c"user.y", b"", Presence::Absent).unwrap();
        let mut listed = vec![0; 4096];
        let length = names(&object, &mut listed).unwrap();
        let mut listed: Vec<&[u8]> = listed[..length].split(|byte| *byte == 0).collect();
        listed.sort_unstable();
        assert!(listed.contains(&&b"user.x"[..]) && listed.contains(&&b"user.y"[..]));
        assert_eq!(names(&object, &mut []).unwrap(), length);
        assert_eq!(names(&object, &mut [0; 3]), Err(Errno::RANGE));
        remove(&object, c"user.x").unwrap();
        assert_eq!(remove(&object, c"user.x"), Err(Errno::NODATA));
        std::fs::remove_file(&path).unwrap();
    }
}
