//! Where the kernel tells of block devices.

use std::path::{Path, PathBuf};

/// The directory of the block device of this number in sysfs, by a symbolic link or more; one that is not there if the
/// kernel knows of no such device, as of those that btrfs numbers by itself.
pub fn sysfs_of(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let usual = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if usual.exists() {
        return usual;
    }
    // podman hides `/sys/dev/block` from containers.
    find(Path::new("/sys/class/block"), &format!("{major}:{minor}")).unwrap_or(usual)
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
        let Ok(blocks) = std::fs::read_dir("/sys/dev/block") else { return };
        for block in blocks.flatten() {
            let number = block.file_name().into_string().expect("UTF-8");
            let found = find(Path::new("/sys/class/block"), &number).expect("found");
            assert_eq!(found.canonicalize().ok(), block.path().canonicalize().ok(), "{number}");
        }
    }
}
