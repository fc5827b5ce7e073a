//! Disks that tests mount, fill, and have lose what was written to them.

use std::path::{Path, PathBuf};

use super::{Mounted, ext4, run};
use crate::common::utf8;

/// A disk with an ext4, which can lose all that was written since a moment, as when the power fails
/// before any of it was flushed.
pub struct Disk {
    image: PathBuf,
    mounted: Mounted,
    /// A directory on it, which is not there while it is not mounted.
    pub share: PathBuf,
}

impl Disk {
    /// `None` where it cannot be had.
    pub fn new(directory: &Path, name: &str, mib: u64) -> Option<Self> {
        Self::on(directory, directory, name, mib)
    }

    /// As [`Disk::new`], with its image in another directory.
    pub fn on(images: &Path, directory: &Path, name: &str, mib: u64) -> Option<Self> {
        let image = images.join(format!("{name}.image"));
        let mounted = ext4(&image, &directory.join(name), mib)?;
        let share = mounted.at.join("share");
        std::fs::create_dir(&share).expect("a share");
        // Whatever the disk loses, this it has.
        assert!(run(&["sync", "--file-system", utf8(&mounted.at)]));
        Some(Self { image, mounted, share })
    }

    fn kept(&self) -> PathBuf {
        self.image.with_extension("kept")
    }

    /// Keeps the disk as it is now, after a flush.
    pub fn keep(&self) {
        assert!(run(&["sync", "--file-system", utf8(&self.mounted.at)]));
        assert!(run(&["cp", "--sparse=always", utf8(&self.image), utf8(&self.kept())]));
    }

    /// Takes the disk away, and with it all that was written since it was kept. No server may use
    /// it any more.
    pub fn lose(&self) {
        self.unmount();
        // The device may not have left the old file yet.
        std::fs::remove_file(&self.image).expect("removed");
        assert!(run(&["cp", "--sparse=always", utf8(&self.kept()), utf8(&self.image)]));
    }

    pub fn unmount(&self) {
        assert!(run(&["umount", utf8(&self.mounted.at)]));
    }

    pub fn mount(&self, options: &str) {
        let options = format!("loop,{options}");
        assert!(run(&["mount", "-o", &options, utf8(&self.image), utf8(&self.mounted.at)]));
    }

    pub fn remount(&self, options: &str) -> bool {
        run(&["mount", "-o", &format!("remount,{options}"), utf8(&self.mounted.at)])
    }

    /// Leaves no room on it for anything else; returns what to remove to have room again.
    pub fn fill(&self) -> PathBuf {
        let path = self.mounted.at.join("filling");
        let mut file = std::fs::File::create(&path).expect("a file");
        for chunk in [1 << 20, 4096, 1] {
            while std::io::Write::write_all(&mut file, &vec![1; chunk]).is_ok() {}
        }
        let _ = file.sync_all();
        path
    }
}
