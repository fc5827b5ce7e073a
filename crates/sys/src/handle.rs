//! Kernel file handles: `name_to_handle_at` and `open_by_handle_at`.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// The largest handle the kernel makes (`MAX_HANDLE_SZ`).
pub const KERNEL_HANDLE_BYTES_MAX: usize = 128;

/// What the kernel finds a file again by, in the file system of some mount.
#[derive(Clone, Copy, Debug)]
pub struct KernelHandle {
    /// The file system's own type number.
    pub kind: i32,
    length: usize,
    bytes: [u8; KERNEL_HANDLE_BYTES_MAX],
}

impl KernelHandle {
    /// A handle of these parts; `None` if there are too many bytes.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut handle = Self { kind, length: bytes.len(), bytes: [0; KERNEL_HANDLE_BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The handle's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// `struct file_handle` with room for the largest.
#[repr(C)]
struct RawHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; KERNEL_HANDLE_BYTES_MAX],
}

/// The handle of an open object, of which an `O_PATH` descriptor is enough.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no handles, and the system call's.
pub fn of(object: impl AsFd) -> Result<KernelHandle> {
    make(object, c"", libc::AT_EMPTY_PATH)
}

/// The handle of a name in a directory, of a symbolic link itself.
///
/// # Errors
/// `EINVAL` for a name with NUL in it or of over 255 bytes; as [`of`] otherwise.
pub fn of_name(dir: impl AsFd, name: &[u8]) -> Result<KernelHandle> {
    let mut path = [0; 256];
    path.get_mut(..name.len()).ok_or(Errno::INVAL)?.copy_from_slice(name);
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    if path.count_bytes() != name.len() {
        return Err(Errno::INVAL);
    }
    make(dir, path, 0)
}

fn make(dir: impl AsFd, path: &CStr, flags: i32) -> Result<KernelHandle> {
    let mut raw = RawHandle {
        bytes: KERNEL_HANDLE_BYTES_MAX as libc::c_uint,
        kind: 0,
        handle: [0; KERNEL_HANDLE_BYTES_MAX],
    };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: `raw` has the layout of `struct file_handle` with as much room as it announces;
    // `mount_id` is an int to be written; the path ends with NUL.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_fd().as_raw_fd(),
            path.as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            flags,
        )
    };
    if failed != 0 {
        return Err(last_errno());
    }
    Ok(KernelHandle {
        kind: raw.kind,
        length: (raw.bytes as usize).min(KERNEL_HANDLE_BYTES_MAX),
        bytes: raw.handle,
    })
}

/// Opens the object of a handle in the file system that `mount` is in. Needs
/// `CAP_DAC_READ_SEARCH`.
///
/// # Errors
/// `ESTALE` when the object is gone, `EPERM` without the capability, and the system call's.
pub fn open(mount: impl AsFd, handle: &KernelHandle, flags: OFlags) -> Result<OwnedFd> {
    let mut raw =
        RawHandle { bytes: handle.length as libc::c_uint, kind: handle.kind, handle: handle.bytes };
    // SAFETY: `raw` has the layout of `struct file_handle` and holds as many bytes as it says.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut raw,
            (flags | OFlags::CLOEXEC).bits() as libc::c_int,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last_errno()),
    }
}
