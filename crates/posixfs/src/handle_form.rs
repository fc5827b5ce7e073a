//! What is in a storage handle.
//!
//! | bytes | kernel handle, mount of the root | kernel handle, other mount |
//! |---|---|---|
//! | 1 | 0 | 1 |
//! | 4 | – | the mount's number |
//! | 2 | the kernel's type number | the same |
//! | n | the kernel's bytes | the same |
//!
//! Numbers are little-endian.

use steadfast_sys::handle::KernelHandle;
use steadfast_vfs::StorageHandle;

const KERNEL_ROOT_MOUNT: u8 = 0;
const KERNEL_OTHER_MOUNT: u8 = 1;

/// The handle of an object on the mount numbered `mount`; `None` if the kernel's is too long.
pub(crate) fn from_kernel(mount: u32, kernel: &KernelHandle) -> Option<StorageHandle> {
    let mut bytes = smallvec::SmallVec::<[u8; 64]>::new();
    if mount == 0 {
        bytes.push(KERNEL_ROOT_MOUNT);
    } else {
        bytes.push(KERNEL_OTHER_MOUNT);
        bytes.extend_from_slice(&mount.to_le_bytes());
    }
    bytes.extend_from_slice(&i16::try_from(kernel.kind).ok()?.to_le_bytes());
    bytes.extend_from_slice(kernel.as_bytes());
    StorageHandle::new(&bytes)
}

/// Mount number and kernel handle of a storage handle, if it is of this form.
pub(crate) fn parse(handle: &StorageHandle) -> Option<(u32, KernelHandle)> {
    let (form, rest) = handle.as_bytes().split_first()?;
    let (mount, rest) = match *form {
        KERNEL_ROOT_MOUNT => (0, rest),
        KERNEL_OTHER_MOUNT => {
            let (mount, rest) = rest.split_first_chunk::<4>()?;
            (u32::from_le_bytes(*mount), rest)
        }
        _ => return None,
    };
    let (kind, bytes) = rest.split_first_chunk::<2>()?;
    Some((mount, KernelHandle::new(i32::from(i16::from_le_bytes(*kind)), bytes)?))
}

/// The kernel handle in a storage handle, if it has one.
pub(crate) fn kernel_handle(handle: &StorageHandle) -> Option<KernelHandle> {
    parse(handle).map(|(_, kernel)| kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_tell_what_was_put_in() {
        for mount in [0, 7, u32::MAX] {
            let kernel = KernelHandle::new(-1, b"0123456789").unwrap();
            let (back, parsed) = parse(&from_kernel(mount, &kernel).unwrap()).unwrap();
            assert_eq!((back, parsed.kind, parsed.as_bytes()), (mount, -1, kernel.as_bytes()));
        }
        assert!(from_kernel(0, &KernelHandle::new(1, &[0; 42]).unwrap()).is_none());
        assert!(from_kernel(0, &KernelHandle::new(1 << 20, &[0; 4]).unwrap()).is_none());
        for bytes in [&[][..], &[0], &[0, 1], &[1, 1, 1, 1, 1, 1], &[9, 1, 1, 1]] {
            assert!(parse(&StorageHandle::new(bytes).unwrap()).is_none());
        }
    }
}
