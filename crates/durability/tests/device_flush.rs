//! Unit ring. How writes to the intent log are made stable, on file systems of their own: with root only.
//! One test, since a child has its parent's locks until it is another program.
#![allow(clippy::expect_used)]

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use steadfast_durability::FileMedium;
use steadfast_intent_log::{BLOCK_BYTES, Block, Medium};

const LOG_BYTES: u64 = 4 << 20;

/// An ext4 on a loop device, gone when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(features: &str) -> Option<Self> {
        let run = |program: &str, words: &[&str]| {
            Command::new(program).args(words).output().is_ok_and(|done| done.status.success())
        };
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        let image = place.path().join("image");
        File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("an image");
        let this = Self(place);
        let (image, at) = (image.display().to_string(), this.at().display().to_string());
        std::fs::create_dir(&at).expect("a mount point");
        // With blocks and inodes as a larger one has: 16 inodes share a block.
        let is_made = run("mkfs.ext4", &["-q", "-b", "4096", "-I", "256", "-O", features, &image])
            && run("mount", &["-o", "loop,noatime", &image, &at]);
        if !is_made {
            println!("skipped: cannot make or mount an ext4");
        }
        is_made.then_some(this)
    }

    fn at(&self) -> PathBuf {
        self.0.path().join("at")
    }

    fn log(&self) -> PathBuf {
        self.at().join("state/intent.log")
    }

    /// Writes and flushes that its device has done.
    fn done(&self) -> (u64, u64) {
        let number = self.at().metadata().expect("there").dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let path = format!("/sys/dev/block/{major}:{minor}/stat");
        let text = std::fs::read_to_string(path).expect("a device");
        let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
        let at = |index: usize| numbers.get(index).copied().expect("of Linux 5.5 or later");
        (at(4), at(15))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at()).status();
    }
}

#[test]
fn the_device_is_flushed_by_itself_where_nothing_but_data_changes() {
    let (Some(without), Some(with)) = (Mounted::new("^has_journal"), Mounted::new("has_journal"))
    else {
        return;
    };
    each_write_is_one_of_the_device_and_a_flush(&without);
    what_is_not_all_there_is_stored_with_what_finds_it(&without);
    std::fs::create_dir(with.log().parent().expect("a directory")).expect("made");
    let medium = FileMedium::create(&with.log(), LOG_BYTES).expect("made");
    assert!(!medium.flushes_device(), "its journal may have what a write needs");
}

fn each_write_is_one_of_the_device_and_a_flush(disk: &Mounted) {
    let state = disk.log().parent().expect("a directory").to_owned();
    std::fs::create_dir(&state).expect("made");
    for number in 0..64 {
        // So that the log's inode is not in the block of its directory's.
        File::create(state.join(number.to_string())).expect("made");
    }
    let medium = FileMedium::create(&disk.log(), LOG_BYTES).expect("made");
    assert!(medium.flushes_device());
    rustix::fs::syncfs(File::open(disk.at()).expect("there")).expect("stable");
    let mut fewest = u64::MAX;
    for _ in 0..20 {
        // Longer than files' times stay the same.
        std::thread::sleep(Duration::from_millis(12));
        let (writes_before, flushes_before) = disk.done();
        medium.write_at(8 * BLOCK_BYTES as u64, &[Block::ZERO]).expect("written");
        let (writes, flushes) = disk.done();
        assert!(flushes > flushes_before, "not flushed");
        fewest = fewest.min(writes - writes_before);
    }
    // The kernel counts a flush among the writes, and may write something else in between.
    assert!((1..=2).contains(&fewest), "{fewest} writes of the device for one to the log");
}

fn what_is_not_all_there_is_stored_with_what_finds_it(disk: &Mounted) {
    let is_flushed = |log: &Path| FileMedium::open(log).expect("a log").flushes_device();
    assert!(is_flushed(&disk.log()));
    let link = disk.0.path().join("link");
    std::os::unix::fs::symlink(disk.log(), &link).expect("linked");
    assert!(is_flushed(&link), "the directory is that of what the link leads to");
    // As a copy may have what is zeros.
    std::fs::remove_file(disk.log()).expect("removed");
    let file = File::create(disk.log()).expect("made");
    file.set_len(LOG_BYTES).expect("a hole");
    assert!(!is_flushed(&disk.log()));
    // Allocated, and not written to.
    let all = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, all, 0, LOG_BYTES).expect("allocated");
    assert!(!is_flushed(&disk.log()));
    // What was read of it is in memory, and reads like what was written.
    std::fs::read(disk.log()).expect("read");
    assert!(!is_flushed(&disk.log()));
}
