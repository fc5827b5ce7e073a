//! Disks that tests mount, fill, and have lose what was written to them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Mounted, btrfs, ext4, run, xfs};
use crate::common::{PATIENCE, utf8};

/// A disk with an ext4 or a btrfs, which can lose all that was written since a moment, as when the
/// power fails before any of it was flushed.
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
        Some(Self::of(image, mounted))
    }

    /// As [`Disk::new`], with a btrfs, whose metadata goes to the disk every so many seconds.
    pub fn with_btrfs(directory: &Path, name: &str, seconds: u32) -> Option<Self> {
        let image = directory.join(format!("{name}.image"));
        let mounted = btrfs(&image, &directory.join(name), seconds)?;
        Some(Self::of(image, mounted))
    }

    /// As [`Disk::with_btrfs`], with its image in another directory, and its metadata flushed when somebody asks.
    pub fn with_btrfs_on(images: &Path, directory: &Path, name: &str) -> Option<Self> {
        let image = images.join(format!("{name}.image"));
        let mounted = btrfs(&image, &directory.join(name), 300)?;
        Some(Self::of(image, mounted))
    }

    /// As [`Disk::new`], with an XFS.
    pub fn with_xfs(directory: &Path, name: &str) -> Option<Self> {
        let image = directory.join(format!("{name}.image"));
        let mounted = xfs(&image, &directory.join(name))?;
        Some(Self::of(image, mounted))
    }

    fn of(image: PathBuf, mounted: Mounted) -> Self {
        let share = mounted.at.join("share");
        std::fs::create_dir(&share).expect("a share");
        // Whatever the disk loses, this it has.
        assert!(run(&["sync", "--file-system", utf8(&mounted.at)]));
        Self { image, mounted, share }
    }

    /// The file in which a server marks how far its log has got.
    pub fn mark(&self) -> PathBuf {
        self.mounted.at.join(".steadfast-mark")
    }

    /// Waits until a server has marked it; not where it cannot.
    pub fn await_mark(&self) {
        let begun = Instant::now();
        while !std::fs::read(self.mark())
            .is_ok_and(|mark| mark.windows(8).any(|it| it == b"SfFsMark"))
            && begun.elapsed() < Duration::from_secs(2)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.mounted.at
    }

    /// Gives its file system, which is not mounted, another UUID.
    pub fn change_uuid(&self) {
        // Replays the journal, and leaves 1 where it has mended something.
        run(&["e2fsck", "-fy", utf8(&self.image)]);
        assert!(run(&["tune2fs", "-U", "random", utf8(&self.image)]));
    }

    fn kept(&self) -> PathBuf {
        self.image.with_extension("kept")
    }

    /// Keeps the disk as it is now, after a flush.
    pub fn keep(&self) {
        assert!(run(&["sync", "--file-system", utf8(&self.mounted.at)]));
        self.keep_unflushed();
    }

    /// Keeps what has reached the disk by now.
    pub fn keep_unflushed(&self) {
        assert!(run(&["cp", "--sparse=always", utf8(&self.image), utf8(&self.kept())]));
    }

    /// Takes the disk away, and with it all that was written since it was kept. No server may use
    /// it any more.
    pub fn lose(&self) {
        self.unmount();
        // The kernel lets go of the server's own mounts a moment after the server has gone. A btrfs
        // that is mounted twice gets another identity.
        let begun = Instant::now();
        while !self.devices().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{} is in use", self.image.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&self.image).expect("removed");
        assert!(run(&["cp", "--sparse=always", utf8(&self.kept()), utf8(&self.image)]));
    }

    /// The loop devices on its image.
    fn devices(&self) -> String {
        let words = ["--associated", utf8(&self.image)];
        let listed = Command::new("losetup").args(words).output().expect("losetup runs");
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }

    pub fn unmount(&self) {
        assert!(run(&["umount", utf8(&self.mounted.at)]));
    }

    pub fn mount(&self, options: &str) {
        let options = format!("loop,{options}");
        assert!(run(&["mount", "-o", &options, utf8(&self.image), utf8(&self.mounted.at)]));
    }

    /// Who changes something waits from now on, as if the disk hung, until this is let go.
    pub fn freeze(&self) -> Frozen {
        let at = self.mounted.at.clone();
        assert!(run(&["fsfreeze", "--freeze", utf8(&at)]));
        Frozen(at)
    }

    pub fn remount(&self, options: &str) -> bool {
        run(&["mount", "-o", &format!("remount,{options}"), utf8(&self.mounted.at)])
    }

    /// Makes files of the share, and takes away the room of their data in the image, where all else
    /// has room: when they are written to again, and the image cannot have that much more, there is
    /// an error. What the file system needs for itself is not touched: after an error there it takes
    /// no changes until it is mounted again.
    pub fn without_room_of(&self, names: &[&str], mib: usize) {
        let files: Vec<PathBuf> = names.iter().map(|name| self.share.join(name)).collect();
        for file in &files {
            std::fs::write(file, vec![0xff; mib << 20]).expect("written");
        }
        assert!(run(&["sync", "--file-system", utf8(&self.mounted.at)]));
        let bytes = self.image.metadata().expect("an image").len();
        assert!(run(&["fallocate", "--length", &bytes.to_string(), utf8(&self.image)]));
        for (first, last) in files.iter().flat_map(|file| extents(file)) {
            let (at, length) = ((first * 512).to_string(), ((last + 1 - first) * 512).to_string());
            let words = ["fallocate", "--punch-hole", "--offset", &at, "--length", &length];
            assert!(run(&[&words[..], &[utf8(&self.image)]].concat()));
        }
        // Where a part of a page is, all of it stays.
        let most = (bytes >> 20) - (names.len() * mib) as u64 + 1;
        assert!(self.image_mib() <= most, "{}", self.image_mib());
    }

    /// What the image takes up.
    pub fn image_mib(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        (self.image.metadata().expect("an image").blocks() * 512).div_ceil(1 << 20)
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

/// Where a file's data is: the first and the last sector of each extent.
fn extents(file: &Path) -> Vec<(u64, u64)> {
    let words = ["-v", "-b512", utf8(file)];
    let listed = Command::new("filefrag").args(words).output().expect("filefrag runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // `   0:        0..    4095:      66306..     70401:   4096:             last,eof`
    let extents = listed.lines().filter(|line| line.matches("..").count() == 2);
    let place = |line: &str| {
        let (first, last) = line.split(':').nth(2)?.split_once("..")?;
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    extents.map(|line| place(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// A file system that takes no changes for now.
pub struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        run(&["fsfreeze", "--unfreeze", utf8(&self.0)]);
    }
}
