//! Where the kernel tells of block devices.

use std::path::{Path, PathBuf};

/// The directory of the block device of this number in sysfs, by a symbolic link or more; one that is not there if the
/// kernel knows of no such device, as of those that btrfs numbers by itself.
pub fn sysfs_of(device: u64) -> PathBuf {
    sysfs_below(Path::new("/sys"), device)
}

/// As [`sysfs_of`], with another place for sysfs.
pub fn sysfs_below(sysfs: &Path, device: u64) -> PathBuf {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let usual = sysfs.join("dev/block").join(&number);
    if usual.exists() {
        return usual;
    }
    // podman hides `/sys/dev/block` from containers.
    find(&sysfs.join("class/block"), &number).unwrap_or(usual)
}

fn find(class: &Path, number: &str) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| {
        std::fs::read_to_string(path.join("dev")).is_ok_and(|text| text.trim_ascii() == number)
    };
    std::fs::read_dir(class).ok()?.flatten().map(|entry| entry.path()).find(is_it)
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn a_device_is_found_by_its_number_where_the_short_way_is_hidden() {
        let class = tempfile::tempdir().expect("a directory");
        for (name, number) in [("sda", "8:0\n"), ("sda1", "8:1\n"), ("sdb", "8:16\n")] {
            std::fs::create_dir(class.path().join(name)).expect("made");
            std::fs::write(class.path().join(name).join("dev"), number).expect("written");
        }
        std::fs::create_dir(class.path().join("odd")).expect("made");
        assert_eq!(find(class.path(), "8:1"), Some(class.path().join("sda1")));
        assert_eq!(find(class.path(), "8:2"), None);
        assert_eq!(find(&class.path().join("none"), "8:1"), None);
    }

    #[test]
    fn both_ways_lead_to_one_device() {
        let sysfs = tempfile::tempdir().expect("a directory");
        let place = |path: &str| sysfs.path().join(path);
        std::fs::create_dir_all(place("devices/sda")).expect("made");
        std::fs::write(place("devices/sda/dev"), "8:0\n").expect("written");
        for (directory, name) in [("class/block", "sda"), ("dev/block", "8:0")] {
            std::fs::create_dir_all(place(directory)).expect("made");
            let link = place(directory).join(name);
            std::os::unix::fs::symlink("../../devices/sda", link).expect("linked");
        }
        let device = rustix::fs::makedev(8, 0);
        let found = || sysfs_below(sysfs.path(), device).canonicalize().expect("found");
        let usual = found();
        std::fs::remove_dir_all(place("dev")).expect("hidden");
        assert_eq!(found(), usual);
        assert!(!sysfs_below(sysfs.path(), rustix::fs::makedev(8, 1)).exists());
    }
}
