//! Whether a file system has stayed mounted since a server used it last: then only processes were ended,
//! and nothing of what was done in it is missing.
//!
//! The kernel has an entry in sysfs for each ext4, XFS and btrfs from mounting to unmounting, whatever
//! mounts of it there are in whatever namespaces. Numbers of such entries come once in a run of the
//! machine.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use steadfast_sys::block_device::sysfs_of;
use steadfast_sys::durable_file;
use steadfast_sys::process::boot_id;

use crate::hex::hex;
use crate::kinds::{BTRFS_MAGIC, EXT4_MAGIC, XFS_MAGIC};

const PREFIX: &str = "mounted-";
const FAILED_PREFIX: &str = "flush-failed-";

fn path(directory: &Path, uuid: &[u8; 16]) -> PathBuf {
    directory.join(format!("{PREFIX}{}", hex(uuid)))
}

/// The kernel's entry for the file system of an open directory.
fn kernel_entry(uuid: &[u8; 16], open: impl AsFd) -> Option<PathBuf> {
    let kind = rustix::fs::fstatfs(&open).ok()?.f_type as u64;
    let device = rustix::fs::fstat(&open).ok()?.st_dev;
    // ext4 and XFS go by the disk.
    let of_disk = |kind: &str| {
        let disk = sysfs_of(device).canonicalize().ok()?;
        Some(Path::new("/sys/fs").join(kind).join(disk.file_name()?))
    };
    match kind {
        EXT4_MAGIC => of_disk("ext4"),
        XFS_MAGIC => of_disk("xfs"),
        BTRFS_MAGIC => Some(Path::new("/sys/fs/btrfs").join(hyphenated(uuid))),
        _ => None,
    }
}

/// An identifier as people write it.
pub(crate) fn hyphenated(uuid: &[u8; 16]) -> String {
    let mut text = hex(uuid);
    for position in [20, 16, 12, 8] {
        text.insert(position, '-');
    }
    text
}

/// What the kernel calls the disks of a file system from when they are attached until they are not: a number
/// each, which no other gets in this run of the machine. `None` if it does not tell of all.
fn attached(uuid: &[u8; 16], open: impl AsFd) -> Option<String> {
    let kind = rustix::fs::fstatfs(&open).ok()?.f_type as u64;
    let mut disks: Vec<PathBuf> = Vec::new();
    if kind == BTRFS_MAGIC {
        let devices = Path::new("/sys/fs/btrfs").join(hyphenated(uuid)).join("devices");
        for device in std::fs::read_dir(devices).ok()? {
            disks.push(device.ok()?.path());
        }
    } else {
        let device = rustix::fs::fstat(&open).ok()?.st_dev;
        disks.push(sysfs_of(device));
    }
    let mut numbers = Vec::new();
    for disk in disks {
        let disk = disk.canonicalize().ok()?;
        // A partition has that of its disk.
        let number = std::fs::read_to_string(disk.join("diskseq"))
            .ok()
            .or_else(|| std::fs::read_to_string(disk.parent()?.join("diskseq")).ok());
        numbers.push(number?.trim().to_owned());
    }
    numbers.sort();
    (!numbers.is_empty()).then(|| numbers.join(" "))
}

/// What a file system is called from mounting to unmounting, and no other before or after.
fn this_time(uuid: &[u8; 16], open: impl AsFd) -> Option<String> {
    let number = std::fs::metadata(kernel_entry(uuid, open)?).ok()?.ino();
    Some(format!("{} {number}", hex(&boot_id().ok()?)))
}

/// Notes that the file system of an open directory is in use from here on, for the start after a kill. If
/// that cannot be done, it is taken for one that was mounted anew.
pub(crate) fn note(directory: &Path, uuid: &[u8; 16], open: impl AsFd) {
    let path = path(directory, uuid);
    let attached = attached(uuid, &open).unwrap_or_default();
    // It must be there after a power failure too: that the machine was started since says much.
    let noted = this_time(uuid, open).is_some_and(|time| {
        let text = format!("{time}\n{attached}\n");
        durable_file::replace(&path, text.as_bytes()).is_ok()
    });
    if !noted {
        let _ = durable_file::remove(&path);
    }
    // What could be lost by it was written again.
    let _ = durable_file::remove(&failed_path(directory, uuid));
}

/// Where it is noted that a flush of a file system has failed.
pub(crate) fn failed_path(directory: &Path, uuid: &[u8; 16]) -> PathBuf {
    directory.join(format!("{FAILED_PREFIX}{}", hex(uuid)))
}

/// If the file system of an open directory was unmounted since it was noted, in this run of the machine and
/// with its disks attached all the time: what tells this mounting from any other.
pub(crate) fn again_since_noted(
    directory: &Path,
    uuid: &[u8; 16],
    open: impl AsFd,
) -> Option<String> {
    let noted = std::fs::read_to_string(path(directory, uuid)).ok()?;
    let (time, disks) = noted.split_once('\n')?;
    let (boot, _) = time.split_once(' ')?;
    let now = this_time(uuid, &open)?;
    let is_same = boot == hex(&boot_id().ok()?) && attached(uuid, &open)? == disks.trim_end();
    (is_same && now != time).then(|| format!("again {now}"))
}

/// If the file system of an open directory was never unmounted since that was noted: what tells this time
/// from any other.
pub(crate) fn since_noted(directory: &Path, uuid: &[u8; 16], open: impl AsFd) -> Option<String> {
    let noted = std::fs::read_to_string(path(directory, uuid)).ok()?;
    let now = this_time(uuid, open)?;
    (noted.lines().next() == Some(now.as_str())).then_some(now)
}

/// Whether the machine was started since that was noted; `false` if nothing was.
pub(crate) fn was_started_since_noted(directory: &Path, uuid: &[u8; 16]) -> bool {
    let noted = std::fs::read_to_string(path(directory, uuid)).unwrap_or_default();
    match (noted.split_once(' '), boot_id()) {
        (Some((boot, _)), Ok(now)) => boot != hex(&now),
        _ => false,
    }
}

/// Forgets what was noted in a state directory: the next start is to replay another log, of whose changes
/// it says nothing.
///
/// # Errors
/// When the directory cannot be read, or a note cannot be removed.
pub fn forget_what_was_mounted(state_directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(state_directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_of = |prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        if is_of(PREFIX) || is_of(FAILED_PREFIX) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_file_system_in_the_same_run_of_the_machine_is_it() {
        let place = tempfile::tempdir().unwrap();
        let open = |path: &Path| std::fs::File::open(path).unwrap();
        let is_noted = |uuid, open: &std::fs::File| since_noted(place.path(), uuid, open).is_some();
        let is_again =
            |uuid, open: &std::fs::File| again_since_noted(place.path(), uuid, open).is_some();
        let (here, elsewhere) = (open(place.path()), open(Path::new("/proc")));
        assert!(!is_noted(&[1; 16], &elsewhere));
        note(place.path(), &[1; 16], &elsewhere);
        assert!(!is_noted(&[1; 16], &elsewhere));
        if this_time(&[1; 16], &here).is_none() {
            eprintln!("the kernel has no entry for the file system of {}", place.path().display());
            return;
        }
        assert!(!is_noted(&[1; 16], &here));
        note(place.path(), &[1; 16], &here);
        assert!(is_noted(&[1; 16], &here) && !is_again(&[1; 16], &here));
        assert!(!is_noted(&[2; 16], &here));
        assert!(!is_noted(&[1; 16], &elsewhere));
        // Of another run of the machine.
        let was_started = || was_started_since_noted(place.path(), &[1; 16]);
        assert!(!was_started() && !was_started_since_noted(place.path(), &[2; 16]));
        let path = path(place.path(), &[1; 16]);
        let noted = std::fs::read_to_string(&path).unwrap();
        if attached(&[1; 16], &here).is_some() {
            // Of another mounting; and with other disks.
            let again = noted.replacen(' ', " 9", 1);
            std::fs::write(&path, &again).unwrap();
            assert!(!is_noted(&[1; 16], &here) && is_again(&[1; 16], &here));
            std::fs::write(&path, again.replacen('\n', "\n9", 1)).unwrap();
            assert!(!is_again(&[1; 16], &here));
        }
        std::fs::write(&path, format!("x{noted}")).unwrap();
        assert!(!is_again(&[1; 16], &here));
        assert!(!is_noted(&[1; 16], &here) && was_started());
        note(place.path(), &[1; 16], &here);
        std::fs::write(place.path().join("else"), "").unwrap();
        forget_what_was_mounted(place.path()).unwrap();
        assert!(!is_noted(&[1; 16], &here));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn identifiers_are_written_as_the_kernel_writes_them() {
        let uuid = std::array::from_fn(|position| position as u8 * 16 + 1);
        assert_eq!(hyphenated(&uuid), "01112131-4151-6171-8191-a1b1c1d1e1f1");
    }
}
