//! What is in a storage handle.
//!
//! | bytes | kernel handle, mount of the root | kernel handle, other mount |
//! |---|---|---|
//! | 1 | 0; displaced 3 | 1; displaced 4 |
//! | 4 | – | the mount's number |
//! | 2 | the kernel's type number | the same |
//! | n | the kernel's bytes | the same |
//!
//! Numbers are little-endian. A *displaced* handle has the kernel's in it all the same; only clients
//! know another object by the plain one ([`crate::aliases`]).

use steadfast_recovery::ObjectKey;
use steadfast_sys::handle::KernelHandle;
use steadfast_vfs::StorageHandle;

const KERNEL_ROOT_MOUNT: u8 = 0;
const KERNEL_OTHER_MOUNT: u8 = 1;
const DISPLACED_ROOT_MOUNT: u8 = 3;
const DISPLACED_OTHER_MOUNT: u8 = 4;

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

/// What the log calls an object: its handle without the mount, so that it is the same by whatever
/// way it was found.
pub(crate) fn key(handle: &StorageHandle) -> ObjectKey {
    let bytes = handle.as_bytes();
    let without_mount = match bytes.split_first() {
        Some((&KERNEL_OTHER_MOUNT, rest)) => with_form(KERNEL_ROOT_MOUNT, rest.get(4..)),
        Some((&DISPLACED_OTHER_MOUNT, rest)) => with_form(DISPLACED_ROOT_MOUNT, rest.get(4..)),
        _ => None,
    };
    ObjectKey(without_mount.unwrap_or(*handle))
}

fn with_form(form: u8, rest: Option<&[u8]>) -> Option<StorageHandle> {
    let mut handle = smallvec::SmallVec::<[u8; 64]>::new();
    handle.push(form);
    handle.extend_from_slice(rest?);
    StorageHandle::new(&handle)
}

/// The key of an object to which the kernel gave a handle that clients know another object by.
pub(crate) fn displaced(key: &ObjectKey) -> ObjectKey {
    let rest = key.0.as_bytes().get(1..);
    with_form(DISPLACED_ROOT_MOUNT, rest).map_or(*key, ObjectKey)
}

/// The other way round; a key that is not displaced stays as it is.
pub(crate) fn undisplaced(key: &ObjectKey) -> ObjectKey {
    match key.0.as_bytes().split_first() {
        Some((&DISPLACED_ROOT_MOUNT, rest)) => {
            with_form(KERNEL_ROOT_MOUNT, Some(rest)).map_or(*key, ObjectKey)
        }
        _ => *key,
    }
}

/// The handle of an object of this key, on a mount.
pub(crate) fn on_mount(mount: u32, key: &ObjectKey) -> Option<StorageHandle> {
    let handle = from_kernel(mount, &kernel_handle(&key.0)?)?;
    let form = match (key.0.as_bytes().first(), mount) {
        (Some(&DISPLACED_ROOT_MOUNT), 0) => DISPLACED_ROOT_MOUNT,
        (Some(&DISPLACED_ROOT_MOUNT), _) => DISPLACED_OTHER_MOUNT,
        _ => return Some(handle),
    };
    with_form(form, handle.as_bytes().get(1..))
}

/// The number of the mount that an object is on.
pub(crate) fn mount(handle: &StorageHandle) -> u32 {
    match handle.as_bytes().split_first() {
        Some((&(KERNEL_OTHER_MOUNT | DISPLACED_OTHER_MOUNT), rest)) => {
            rest.first_chunk().map_or(0, |mount| u32::from_le_bytes(*mount))
        }
        _ => 0,
    }
}

/// Mount number and kernel handle of a storage handle, if it is of this form.
pub(crate) fn parse(handle: &StorageHandle) -> Option<(u32, KernelHandle)> {
    let (form, rest) = handle.as_bytes().split_first()?;
    let (mount, rest) = match *form {
        KERNEL_ROOT_MOUNT | DISPLACED_ROOT_MOUNT => (0, rest),
        KERNEL_OTHER_MOUNT | DISPLACED_OTHER_MOUNT => {
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
            let handle = from_kernel(mount, &kernel).unwrap();
            assert_eq!(super::mount(&handle), mount);
            assert_eq!(key(&handle).0, from_kernel(0, &kernel).unwrap());
            let displaced = displaced(&key(&handle));
            assert!(displaced != key(&handle) && undisplaced(&displaced) == key(&handle));
            let handle = on_mount(mount, &displaced).unwrap();
            assert_eq!(key(&handle), displaced);
            let (back, parsed) = parse(&handle).unwrap();
            assert_eq!((back, parsed.as_bytes()), (mount, kernel.as_bytes()));
            assert_eq!(super::mount(&handle), mount);
        }
        assert!(from_kernel(0, &KernelHandle::new(1, &[0; 42]).unwrap()).is_none());
        assert!(from_kernel(0, &KernelHandle::new(1 << 20, &[0; 4]).unwrap()).is_none());
        for bytes in [&[][..], &[0], &[0, 1], &[1, 1, 1, 1, 1, 1], &[9, 1, 1, 1]] {
            assert!(parse(&StorageHandle::new(bytes).unwrap()).is_none());
        }
    }
}
