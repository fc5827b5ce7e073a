//! Shared file mappings, read and written by copies.
//!
//! Only tests use this: a server that maps files dies of `SIGBUS` when one is truncated.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A `MAP_SHARED` mapping of the first `length` bytes of a file.
///
/// The mapped memory may change at any time, so it is never lent out: [`read`](Self::read) and
/// [`write`](Self::write) copy. Touching a part that another process truncated away raises
/// `SIGBUS`.
#[derive(Debug)]
pub struct SharedMapping {
    address: NonNull<libc::c_void>,
    length: usize,
}

impl SharedMapping {
    /// Maps `file`, opened for reading and writing.
    ///
    /// # Errors
    /// What `mmap` says; `EINVAL` for a length of zero.
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no memory that
        // Rust knows; the descriptor is open for the duration of the call.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { address, length })
    }

    /// Copies bytes out from `offset`.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not wholly inside the mapping.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.check(offset, into.len())?;
        // SAFETY: the range was checked against the mapping, which lives as long as `self`;
        // `into` is memory of Rust's own, so the two do not overlap.
        unsafe {
            let from = self.address.as_ptr().cast::<u8>().add(offset);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not wholly inside the mapping.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        self.check(offset, from.len())?;
        // SAFETY: as in `read`, the other way round; the mapping is writable.
        unsafe {
            let into = self.address.as_ptr().cast::<u8>().add(offset);
            std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len());
        }
        Ok(())
    }

    /// Waits until all that was written is with the file's storage (`msync`, `MS_SYNC`).
    ///
    /// # Errors
    /// What `msync` says, `EIO` and `ENOSPC` among it.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: address and length are those of the mapping.
        let result = unsafe { libc::msync(self.address.as_ptr(), self.length, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn check(&self, offset: usize, length: usize) -> io::Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, which nobody else unmaps.
        unsafe { libc::munmap(self.address.as_ptr(), self.length) };
    }
}
