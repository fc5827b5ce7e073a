//! File systems in images, and mounting them. Everything is in a mount namespace of the run's own,
//! so that whatever ends the run unmounts it; loop devices go with the last use of them.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a loop device that was had before is tried.
const DEVICE_ATTEMPTS: u64 = 5;

/// A file system's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4,
    /// For a log's disk: what is served from it is not logged.
    Ext4WithoutJournal,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(crate) const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The smallest that its tools make with ordinary options, and room for the load.
    pub(crate) fn size_bytes(self) -> u64 {
        let mebibytes = match self {
            Self::Ext4 | Self::Ext4WithoutJournal => 192,
            Self::Xfs => 320,
            Self::Btrfs => 256,
        };
        mebibytes << 20
    }

    /// What a disk for it writes whole or not at all. btrfs has its super block, 4 KiB, under one
    /// checksum and in place: it presupposes that such a write is not torn.
    pub(crate) fn sector_bytes(self) -> usize {
        match self {
            Self::Ext4 | Self::Ext4WithoutJournal | Self::Xfs => 512,
            Self::Btrfs => 4096,
        }
    }

    /// As `mount` takes it.
    fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4WithoutJournal => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn options(self) -> &'static str {
        match self {
            // Of the same file system an image of the run may still be mounted.
            Self::Xfs => "noatime,nouuid",
            Self::Ext4 | Self::Ext4WithoutJournal | Self::Btrfs => "noatime",
        }
    }

    /// Makes one in a new file.
    pub(crate) fn make(self, image: &Path, size_bytes: u64) -> Result<()> {
        File::create(image)?.set_len(size_bytes)?;
        let image = image.to_str().context("the image's path is not UTF-8")?;
        match self {
            Self::Ext4 => call("mkfs.ext4", &["-q", "-F", image]),
            Self::Ext4WithoutJournal => {
                call("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", image])
            }
            Self::Xfs => call("mkfs.xfs", &["-q", "-f", image]),
            Self::Btrfs => call("mkfs.btrfs", &["-q", "-f", image]),
        }
    }
}

impl FileSystem {
    /// Does what an administrator would who cannot mount one: an ext4 of which a write of the super block
    /// was torn has copies of it, which fsck finds. Nothing else is repaired. Whether it can be mounted
    /// now.
    pub(crate) fn repair_super_block(self, image: &Path) -> Result<bool> {
        let exit_code = |program: &str, flags: &[&str]| -> Result<Option<i32>> {
            let mut command = Command::new(program);
            command.args(flags).arg(image);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let status = command.status().with_context(|| format!("cannot run {program}"))?;
            Ok(status.code())
        };
        // It reads one that is whole.
        let is_ext4 = matches!(self, Self::Ext4 | Self::Ext4WithoutJournal);
        if !is_ext4 || exit_code("dumpe2fs", &["-h"])? == Some(0) {
            return Ok(false);
        }
        // 1: errors were corrected; 4: some were left.
        Ok(exit_code("e2fsck", &["-f", "-y"])?.is_some_and(|code| code < 4))
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Ext4WithoutJournal => "ext4-without-journal",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        })
    }
}

impl FromStr for FileSystem {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            "btrfs" => Ok(Self::Btrfs),
            other => bail!("no file system {other:?}: ext4, xfs or btrfs"),
        }
    }
}

/// A mounted file system on a loop device; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mounted {
    at: PathBuf,
    device: String,
    kind: FileSystem,
    is_there: bool,
}

impl Mounted {
    /// Puts a loop device on a file and mounts it. With `is_direct` the device passes each write and
    /// flush on as it comes; without, its file is a page cache of its own, which is quicker.
    pub(crate) fn new(kind: FileSystem, image: &Path, at: &Path, is_direct: bool) -> Result<Self> {
        Self::with_device(kind, image, at, is_direct, None)
    }

    /// The same, on this loop device unless somebody has it: a disk keeps its number over a power
    /// cut, and some servers have it in their handles.
    pub(crate) fn with_device(
        kind: FileSystem,
        image: &Path,
        at: &Path,
        is_direct: bool,
        device: Option<&str>,
    ) -> Result<Self> {
        std::fs::create_dir_all(at)?;
        let (image, place) = (image.display().to_string(), at.display().to_string());
        let type_ = kind.kernel_name();
        // Not by losetup: this way the device is never without a user that takes it away.
        let mount = |device: &str| {
            let options = format!("{device},{}", kind.options());
            call("mount", &["-t", type_, "-o", &options, &image, &place])
        };
        // It may be about to leave the file that it had.
        let wanted = device.map(|device| format!("loop={device}"));
        let is_mounted = wanted.is_some_and(|wanted| {
            (0..DEVICE_ATTEMPTS).any(|attempt| {
                std::thread::sleep(Duration::from_millis(attempt * 5));
                mount(&wanted).is_ok()
            })
        });
        if !is_mounted {
            mount("loop")?;
        }
        let mut mounted = Self { at: at.to_owned(), device: String::new(), kind, is_there: true };
        mounted.device = device_at(&place)?;
        if is_direct {
            call("losetup", &["--direct-io=on", &mounted.device])?;
        }
        Ok(mounted)
    }

    /// The loop device.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Unmounts it and mounts it again; its device stays attached meanwhile.
    pub(crate) fn mount_again(self) -> Result<Self> {
        let (at, device, kind) = (self.at.clone(), self.device.clone(), self.kind);
        let held = File::open(&device).with_context(|| format!("cannot open {device}"))?;
        self.unmount()?;
        let place = at.display().to_string();
        call("mount", &["-t", kind.kernel_name(), "-o", kind.options(), &device, &place])?;
        drop(held);
        Ok(Self { at, device, kind, is_there: true })
    }

    /// Unmounts it, which takes the device away.
    pub(crate) fn unmount(mut self) -> Result<()> {
        self.is_there = false;
        let started = Instant::now();
        let place = self.at.display().to_string();
        // By another process: unmounting writes, and the one that records must not wait for itself.
        while let Err(error) = call("umount", &[&place]) {
            // A process that was killed may hold it for a moment more.
            if started.elapsed() > Duration::from_secs(10) {
                self.is_there = true;
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.kind == FileSystem::Btrfs {
            // The next crash state has the same identity, and may be older.
            let _ = call("btrfs", &["device", "scan", "--forget", &self.device]);
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_there {
            // The namespace does it at the latest.
            let _ = call("umount", &["--lazy", &self.at.display().to_string()]);
        }
    }
}

/// The device that is mounted at a place.
fn device_at(place: &str) -> Result<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut devices = lines.filter_map(|words| match words.as_slice() {
        [device, at, ..] if *at == place => Some((*device).to_owned()),
        _ => None,
    });
    devices.next_back().with_context(|| format!("nothing is mounted at {place}"))
}

/// Detaches loop devices that a killed run left: their files are named without the mount point,
/// which is gone with the run's namespace.
pub(crate) fn remove_leftovers() -> Result<()> {
    let devices = output("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"])?;
    for line in devices.lines() {
        let mut words = line.split_whitespace();
        let (Some(device), Some(file)) = (words.next(), words.next()) else { continue };
        if file.starts_with("/steadfast-powercut") {
            eprintln!("powercut: {device} is left from a killed run, and detached");
            // In use elsewhere it detaches itself later.
            let _ = call("losetup", &["--detach", device]);
        }
    }
    Ok(())
}

/// Runs a program to its end.
pub(crate) fn call(program: &str, arguments: &[&str]) -> Result<()> {
    output(program, arguments).map(drop)
}

/// Runs a program to its end, and returns what it printed.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} {}: {} {}{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout).trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
