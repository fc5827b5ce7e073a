//! Disks for the servers' data and logs: file systems on loop devices, mounted in the run's own
//! mount namespace, so that whatever ends the run takes mounts and devices with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::namespace;
use crate::slow_disk::SlowDisk;

/// Journals as mke2fs and mkfs.xfs make them on a disk of a terabyte: in one of the size that they give
/// to a small disk, changes soon wait for room.
const EXT4_LARGE_JOURNAL: &str = "size=1024";
const XFS_LARGE_JOURNAL: &str = "size=512m";
/// Room for as many empty files as loads of CREATE and REMOVE make.
const EXT4_BYTES_PER_INODE: &str = "4096";

/// How long a file system may take to become quiet, or to be unmounted.
const PATIENCE: Duration = Duration::from_secs(20);
/// So long nothing is written to a disk that is quiet.
const QUIET: Duration = Duration::from_millis(600);

/// How large the journal of a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// As is usual for its size.
    Usual,
    /// As on a disk of a terabyte.
    Large,
}

/// What is on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
        }
    }

    /// As mount(8) calls it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Makes one in a file. Nothing is discarded, which would make holes in a file that was written
    /// through; nothing is left for the kernel to initialise while something is measured.
    fn make(self, image: &Path, journal: Journal) -> Result<()> {
        let image = utf8(image)?;
        let is_large = journal == Journal::Large;
        match self {
            Self::Ext4 => {
                let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
                let usual = ["-q", "-F", "-i", EXT4_BYTES_PER_INODE, "-E", options];
                let journal: &[_] = if is_large { &["-J", EXT4_LARGE_JOURNAL] } else { &[] };
                call("mkfs.ext4", &[&usual, journal, &[image]].concat())
            }
            Self::Xfs => {
                let journal: &[_] = if is_large { &["-l", XFS_LARGE_JOURNAL] } else { &[] };
                call("mkfs.xfs", &[&["-q", "-f", "-K"], journal, &[image]].concat())
            }
        }
    }
}

/// A mounted disk; unmounted when dropped.
pub(crate) struct Disk {
    at: PathBuf,
    /// Its loop device, as the kernel calls it: `loop3`.
    device: String,
    /// Under the loop device, if there is one; ends after it.
    slow: Option<SlowDisk>,
}

/// What was written to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Write requests that were completed.
    pub(crate) writes: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
}

impl Disk {
    /// On a new file, which is written through if it is on a disk: later writes then go to where
    /// there is something already, as on a device.
    pub(crate) fn on_file(
        kind: FileSystem,
        image: &Path,
        mebibytes: u64,
        is_written_through: bool,
        at: &Path,
    ) -> Result<Self> {
        make_image(image, mebibytes, is_written_through)?;
        kind.make(image, Journal::Usual)?;
        let disk = Self::mount(kind, image, at)?;
        // The device keeps it as long as it is in use.
        std::fs::remove_file(image)?;
        Ok(disk)
    }

    /// On a slow disk in memory, which is fast until [`Disk::set_write_time`].
    pub(crate) fn slow(
        kind: FileSystem,
        journal: Journal,
        image: &Path,
        mebibytes: u64,
        at: &Path,
    ) -> Result<Self> {
        let slow = slow_device(kind, journal, image, mebibytes, &at.with_extension("below"))?;
        let mut disk = Self::mount(kind, &slow.path(), at)?;
        disk.slow = Some(slow);
        Ok(disk)
    }

    fn mount(kind: FileSystem, image: &Path, at: &Path) -> Result<Self> {
        std::fs::create_dir_all(at)?;
        // Not by losetup: this way the device is never without a user that takes it away.
        let words = ["-t", kind.kind(), "-o", "loop,noatime", utf8(image)?, utf8(at)?];
        call("mount", &words)?;
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let device = device_at(&mounts, utf8(at)?).context("a mount that is not there")?;
        call("losetup", &["--direct-io=on", &format!("/dev/{device}")])?;
        Ok(Self { at: at.to_owned(), device, slow: None })
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// Its device, as the kernel calls it: `loop3`.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// A new, empty directory to be served.
    pub(crate) fn share(&self, name: &str) -> Result<PathBuf> {
        let share = self.at.join(name);
        if share.exists() {
            std::fs::remove_dir_all(&share)?;
        }
        std::fs::create_dir(&share)?;
        self.sync()?;
        Ok(share)
    }

    /// Has everything written.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.at)?)?)
    }

    /// From now on each write takes so long, if it is a slow disk.
    pub(crate) fn set_write_time(&self, time: Duration) {
        if let Some(slow) = &self.slow {
            slow.set_write_time(time);
        }
    }

    /// The slow disk below, if there is one.
    pub(crate) fn slow_disk(&self) -> Option<&SlowDisk> {
        self.slow.as_ref()
    }

    /// What was written since it was mounted.
    pub(crate) fn written(&self) -> Result<Written> {
        let stat = std::fs::read_to_string(format!("/sys/block/{}/stat", self.device))?;
        parse_stat(&stat).context("the kernel's counters have another form")
    }

    /// Waits until nothing is written any more.
    pub(crate) fn wait_until_quiet(&self) -> Result<()> {
        let started = Instant::now();
        let (mut before, mut since) = (self.written()?, Instant::now());
        while since.elapsed() < QUIET {
            if started.elapsed() > PATIENCE {
                bail!("{} does not become quiet", self.at.display());
            }
            std::thread::sleep(Duration::from_millis(20));
            let now = self.written()?;
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.set_write_time(Duration::ZERO);
        let at = self.at.display().to_string();
        let started = Instant::now();
        // A process that was just ended may hold it for a moment more; the end of the namespace
        // does it at the latest.
        while call("umount", &[&at]).is_err() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A slow disk in memory with a file system that nobody has mounted, below the directory `at`.
pub(crate) fn slow_device(
    kind: FileSystem,
    journal: Journal,
    image: &Path,
    mebibytes: u64,
    at: &Path,
) -> Result<SlowDisk> {
    make_image(image, mebibytes, false)?;
    kind.make(image, journal)?;
    let content = File::options().read(true).write(true).open(image)?;
    std::fs::remove_file(image)?;
    std::fs::create_dir_all(at)?;
    SlowDisk::start(content, at)
}

fn make_image(image: &Path, mebibytes: u64, is_written_through: bool) -> Result<()> {
    if is_written_through {
        let (to, count) = (format!("of={}", image.display()), format!("count={mebibytes}"));
        let words = ["if=/dev/zero", &to, "bs=1M", &count, "oflag=direct", "conv=fsync"];
        return call("dd", &[&words[..], &["status=none"]].concat());
    }
    Ok(File::create(image)?.set_len(mebibytes << 20)?)
}

/// The loop device that is mounted at a place, of `/proc/self/mounts`.
fn device_at(mounts: &str, place: &str) -> Option<String> {
    let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut devices = lines.filter_map(|words| match words.as_slice() {
        [device, at, ..] if *at == place => device.strip_prefix("/dev/"),
        _ => None,
    });
    devices.next_back().map(str::to_owned)
}

/// `/sys/block/NAME/stat`: completed writes are its fifth number, their sectors of 512 bytes the
/// seventh.
fn parse_stat(stat: &str) -> Option<Written> {
    let numbers: Vec<u64> =
        stat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Written { writes: *numbers.get(4)?, bytes: numbers.get(6)? * 512 })
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn call(program: &str, arguments: &[&str]) -> Result<()> {
    namespace::run(program, arguments).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_device_are_read() {
        let stat = "  11  0  22 3  44  5  66  7  0  8  9 10 11 12 13 77 14\n";
        assert_eq!(parse_stat(stat), Some(Written { writes: 44, bytes: 66 * 512 }));
        assert_eq!(parse_stat("1 2 3"), None);
        assert_eq!(parse_stat("a b c d e f g"), None);
    }

    #[test]
    fn the_last_mount_at_a_place_is_the_one_that_is_seen() {
        let mounts =
            "/dev/loop1 /a xfs rw 0 0\n/dev/loop2 /b ext4 rw 0 0\n/dev/loop3 /a xfs rw 0 0\n";
        assert_eq!(device_at(mounts, "/a").as_deref(), Some("loop3"));
        assert_eq!(device_at(mounts, "/c"), None);
    }
}
