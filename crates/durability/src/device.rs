//! What a file or a block device is kept on, as the kernel tells it in sysfs: through
//! partitions, device mapper, RAID and loop devices down to the disks.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use steadfast_sys::block_device::sysfs_of;

/// Devices below devices that are followed.
const DEPTH_MAX: usize = 8;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Of ext2 and ext3 too.
const EXT4_MAGIC: u64 = 0xef53;
/// Disks in memory: `brd` and `zram`.
const MEMORY_DISKS: [&str; 2] = ["ram", "zram"];
/// Disks of virtual machines: `virtio_blk` and Xen's. They say that they rotate, whatever they are.
const VIRTUAL_DISKS: [&str; 2] = ["vd", "xvd"];

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// The kernel's name.
    pub name: String,
    /// Whether it says that it has a cache that loses its content with the power (`write back`).
    pub has_volatile_cache: Option<bool>,
    /// Whether it can write around that cache (FUA).
    pub has_fua: Option<bool>,
    /// Whether it is a rotating disk, if that can be believed.
    pub is_rotational: Option<bool>,
    /// Whether it is a disk of a virtual machine, which is what its host makes of it.
    pub is_virtual: bool,
}

/// What something is kept on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Medium {
    /// From what was asked about down to the disks.
    pub devices: Vec<BlockDevice>,
    /// Why it is memory, if it is: nothing there outlives the power.
    pub memory: Option<String>,
}

impl Medium {
    /// Whether one of its disks says that it has a volatile cache; `None` if none says anything.
    pub fn has_volatile_cache(&self) -> Option<bool> {
        self.devices.iter().filter_map(|device| device.has_volatile_cache).reduce(|a, b| a | b)
    }

    /// Whether it is on rotating disks.
    pub fn is_rotational(&self) -> bool {
        self.devices.last().is_some_and(|device| device.is_rotational == Some(true))
    }
}

/// Looks at what a file, a directory or a block device is kept on. What the kernel does not tell
/// is not known; that is no error.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn look_at(path: &Path) -> io::Result<Medium> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut medium = Medium::default();
    look_below(&metadata, memory_file_system(&file), &mut medium, 0);
    Ok(medium)
}

fn file_system_magic(file: &File) -> Option<u64> {
    Some(rustix::fs::fstatfs(file).ok()?.f_type as u64 & 0xffff_ffff)
}

fn memory_file_system(file: &File) -> Option<&'static str> {
    match file_system_magic(file)? {
        TMPFS_MAGIC => Some("tmpfs"),
        RAMFS_MAGIC => Some("ramfs"),
        _ => None,
    }
}

fn look_below(
    metadata: &Metadata,
    memory: Option<&'static str>,
    medium: &mut Medium,
    depth: usize,
) {
    if metadata.file_type().is_block_device() {
        look_at_device(metadata.rdev(), medium, depth);
    } else if let Some(memory) = memory {
        medium.memory = Some(format!("a file on {memory}"));
    } else {
        look_at_device(metadata.dev(), medium, depth);
    }
}

fn look_at_device(number: u64, medium: &mut Medium, depth: usize) {
    // btrfs and others have numbers of their own, of which the kernel tells nothing.
    if let Ok(block) = std::fs::canonicalize(sysfs_of(number)) {
        look_at_block(&block, medium, depth);
    }
}

fn look_at_block(block: &Path, medium: &mut Medium, depth: usize) {
    if depth >= DEPTH_MAX {
        return;
    }
    // A partition's queue is its disk's.
    let disk =
        if block.join("partition").exists() { block.parent().unwrap_or(block) } else { block };
    let device = block_device(disk);
    let digits_at = device.name.find(|c: char| c.is_ascii_digit()).unwrap_or(device.name.len());
    if device.name.get(..digits_at).is_some_and(|kind| MEMORY_DISKS.contains(&kind)) {
        medium.memory = Some(format!("{}, a disk in memory", device.name));
    }
    medium.devices.push(device);
    if let Some(backing) = backing_file(disk) {
        if let Ok(file) = File::open(&backing)
            && let Ok(metadata) = file.metadata()
        {
            look_below(&metadata, memory_file_system(&file), medium, depth + 1);
        }
        return;
    }
    for below in std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten() {
        if let Ok(below) = below.path().canonicalize() {
            look_at_block(&below, medium, depth + 1);
        }
    }
}

/// The file that a loop device is on.
fn backing_file(disk: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(disk.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

fn block_device(disk: &Path) -> BlockDevice {
    let read = |name: &str| {
        let text = std::fs::read_to_string(disk.join("queue").join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let flag = |name: &str| read(name).map(|text| text == "1");
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_virtual = VIRTUAL_DISKS.iter().any(|kind| name.starts_with(kind));
    BlockDevice {
        has_volatile_cache: read("write_cache").map(|text| text == "write back"),
        has_fua: flag("fua"),
        is_rotational: flag("rotational").filter(|_| !is_virtual),
        is_virtual,
        name,
    }
}

/// What a device has been asked to write since the machine was started, by whomever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceWrites {
    /// Writes completed.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the device of a file system has written; `None` where the kernel does not tell.
pub(super) fn writes_of(path: &Path) -> Option<DeviceWrites> {
    let number = path.metadata().ok()?.dev();
    parse_writes(&std::fs::read_to_string(sysfs_of(number).join("stat")).ok()?)
}

/// Fields 5 and 7 of `stat` (Linux, `Documentation/block/stat.rst`); its sectors have 512 bytes.
fn parse_writes(stat: &str) -> Option<DeviceWrites> {
    let mut fields = stat.split_whitespace().skip(4);
    let writes = fields.next()?.parse().ok()?;
    let sectors: u64 = fields.nth(1)?.parse().ok()?;
    Some(DeviceWrites { writes, bytes: sectors.saturating_mul(512) })
}

/// The disk of a device, which is a part of it or all, where the kernel tells of it.
fn disk_of(number: u64) -> Option<PathBuf> {
    let block = std::fs::canonicalize(sysfs_of(number)).ok()?;
    let is_part = block.join("partition").exists();
    Some(if is_part { block.parent()?.to_owned() } else { block })
}

/// How often the disk of a device has flushed its cache since the machine was started, for whomever:
/// field 16 of `stat`, since Linux 5.5. `None` where the kernel does not tell, or has never counted one,
/// as of what is made of other devices (device mapper, RAID).
pub(super) fn flushes_of(number: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(disk_of(number)?.join("stat")).ok()?;
    stat.split_whitespace().nth(15)?.parse().ok().filter(|count| *count > 0)
}

/// Whether a device has to be flushed for what it was given to be stable: it has a volatile cache, and
/// cannot write around it.
pub(super) fn needs_flushes(number: u64) -> bool {
    disk_of(number).is_some_and(|disk| {
        let device = block_device(&disk);
        device.has_volatile_cache == Some(true) && device.has_fua == Some(false)
    })
}

/// Whether a file of this device is on an ext4, or its forerunners, that has no journal.
pub(super) fn is_ext4_without_journal(file: &File, number: u64) -> bool {
    let journal = || {
        let block = std::fs::canonicalize(sysfs_of(number)).ok()?;
        let ext4 = Path::new("/sys/fs/ext4").join(block.file_name()?);
        std::fs::read_to_string(ext4.join("journal_task")).ok()
    };
    file_system_magic(file) == Some(EXT4_MAGIC)
        && journal().is_some_and(|task| task.trim_ascii() == "<none>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_read_from_the_kernels_line() {
        let line = "  1 2 3 4   50 6 70 8 9 10 11 12 13 14 15 16 17\n";
        assert_eq!(parse_writes(line), Some(DeviceWrites { writes: 50, bytes: 70 * 512 }));
        assert_eq!(parse_writes("1 2 3"), None);
        assert_eq!(parse_writes("1 2 3 4 x 6 7"), None);
    }

    #[test]
    fn disks_are_described_as_sysfs_has_them() {
        let place = tempfile::tempdir().expect("a directory");
        let disk = place.path().join("sdz");
        let partition = disk.join("sdz1");
        for directory in [disk.join("queue"), partition.clone(), disk.join("slaves")] {
            std::fs::create_dir_all(directory).expect("made");
        }
        for (name, text) in [("write_cache", "write back\n"), ("fua", "0\n"), ("rotational", "1\n")]
        {
            std::fs::write(disk.join("queue").join(name), text).expect("written");
        }
        std::fs::write(partition.join("partition"), "1\n").expect("written");
        let mut medium = Medium::default();
        look_at_block(&partition, &mut medium, 0);
        let expected = BlockDevice {
            name: "sdz".to_owned(),
            has_volatile_cache: Some(true),
            has_fua: Some(false),
            is_rotational: Some(true),
            is_virtual: false,
        };
        assert_eq!(medium.devices, [expected]);
        assert!(medium.is_rotational() && medium.memory.is_none());
        assert_eq!(medium.has_volatile_cache(), Some(true));
        // A volume of two of them, with one below that is memory.
        let volume = place.path().join("dm-0");
        std::fs::create_dir_all(volume.join("slaves")).expect("made");
        let memory = place.path().join("ram0");
        std::fs::create_dir_all(&memory).expect("made");
        std::os::unix::fs::symlink(&disk, volume.join("slaves/sdz")).expect("linked");
        std::os::unix::fs::symlink(&memory, volume.join("slaves/ram0")).expect("linked");
        let mut medium = Medium::default();
        look_at_block(&volume, &mut medium, 0);
        assert_eq!(medium.devices.len(), 3);
        assert_eq!(medium.memory.as_deref(), Some("ram0, a disk in memory"));
    }

    #[test]
    fn a_loop_device_over_memory_is_memory() {
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let image = place.path().join("image");
        std::fs::write(&image, [0; 512]).expect("written");
        let disk = place.path().join("loop7");
        std::fs::create_dir_all(disk.join("loop")).expect("made");
        let text = format!("{}\n", image.display());
        std::fs::write(disk.join("loop/backing_file"), text).expect("written");
        let mut medium = Medium::default();
        look_at_block(&disk, &mut medium, 0);
        assert_eq!(medium.memory.as_deref(), Some("a file on tmpfs"));
        assert_eq!(look_at(&image).expect("there").memory.as_deref(), Some("a file on tmpfs"));
    }
}
