//! Whether a file system is mounted still as it was when a server used it last: then nothing that was
//! done in it is missing, only processes were ended.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};
use steadfast_sys::process::boot_id;

use crate::aliases::hex;

/// Asks for a number that no other mount of this run of the machine ever has (Linux 6.8).
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

fn path(directory: &Path, uuid: &[u8; 16]) -> PathBuf {
    directory.join(format!("mounted-{}", hex(uuid)))
}

/// What no other mount is called, if the kernel tells.
fn this_mount(open: impl AsFd) -> Option<String> {
    let stat = rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH, UNIQUE_MOUNT).ok()?;
    if stat.stx_mask & UNIQUE_MOUNT.bits() == 0 {
        return None;
    }
    Some(format!("{} {}", hex(&boot_id().ok()?), stat.stx_mnt_id))
}

/// Notes how the file system of an open directory is mounted, for the start after a kill. If that cannot be
/// done, it is taken for one that was mounted anew.
pub(crate) fn note(directory: &Path, uuid: &[u8; 16], open: impl AsFd) {
    let path = path(directory, uuid);
    let noted = this_mount(open).is_some_and(|mount| std::fs::write(&path, mount).is_ok());
    if !noted {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether the file system of an open directory has been mounted so since that was noted.
pub(crate) fn is_as_noted(directory: &Path, uuid: &[u8; 16], open: impl AsFd) -> bool {
    let noted = std::fs::read_to_string(path(directory, uuid)).ok();
    noted.is_some_and(|noted| this_mount(open) == Some(noted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mount_that_was_noted_is_it() {
        let place = tempfile::tempdir().unwrap();
        let open = |path: &Path| std::fs::File::open(path).unwrap();
        let (here, elsewhere) = (open(place.path()), open(Path::new("/proc")));
        if this_mount(&here).is_none() {
            eprintln!("this kernel does not tell mounts apart");
            return;
        }
        assert!(!is_as_noted(place.path(), &[1; 16], &here));
        note(place.path(), &[1; 16], &here);
        assert!(is_as_noted(place.path(), &[1; 16], &here));
        assert!(!is_as_noted(place.path(), &[2; 16], &here));
        assert!(!is_as_noted(place.path(), &[1; 16], &elsewhere));
        // Of another run of the machine.
        let path = path(place.path(), &[1; 16]);
        let noted = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("x{noted}")).unwrap();
        assert!(!is_as_noted(place.path(), &[1; 16], &here));
    }
}
