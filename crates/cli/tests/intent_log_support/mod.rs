//! What process tests of the intent log need: file systems and devices of their own, and a server
//! with a log.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]
#![allow(clippy::indexing_slicing)]

pub mod disk;
pub mod site;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use steadfast_client::{CreateHow3, FileHandle, Identity, Nfs3Client, Settings};

use crate::common::{PATIENCE, Place, Running, output, stderr, utf8};

/// A mounted file system, gone when dropped.
pub struct Mounted {
    pub at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

pub fn run(words: &[&str]) -> bool {
    let quiet = Command::new(words[0])
        .args(&words[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// An ext4 of its own on an image at `image`; `None` where that cannot be had.
pub fn ext4(image: &Path, at: &Path, mib: u64) -> Option<Mounted> {
    made(&["mkfs.ext4", "-q", "-m", "0"], "loop", image, at, mib)
}

/// As [`ext4`], with inodes that have no room for fractions of seconds.
pub fn ext4_of_whole_seconds(image: &Path, at: &Path, mib: u64) -> Option<Mounted> {
    made(&["mkfs.ext4", "-q", "-I", "128"], "loop", image, at, mib)
}

/// As [`ext4`], a btrfs, whose metadata goes to the disk every so many seconds, without the data.
pub fn btrfs(image: &Path, at: &Path, seconds: u32) -> Option<Mounted> {
    made(&["mkfs.btrfs", "-q"], &format!("loop,commit={seconds}"), image, at, 256)
}

/// As [`ext4`], an XFS, of the least size that it has.
pub fn xfs(image: &Path, at: &Path) -> Option<Mounted> {
    made(&["mkfs.xfs", "-q"], "loop", image, at, 300)
}

fn made(make: &[&str], options: &str, image: &Path, at: &Path, mib: u64) -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    std::fs::create_dir_all(at).unwrap();
    std::fs::File::create(image).unwrap().set_len(mib << 20).unwrap();
    let is_made = run(&[make, &[utf8(image)]].concat())
        && run(&["mount", "-o", options, utf8(image), utf8(at)]);
    if !is_made {
        println!("skipped: cannot {} or mount that", make.join(" "));
        return None;
    }
    Some(Mounted { at: at.to_owned() })
}

/// A block device on a file, gone when dropped.
pub struct LoopDevice(pub String);

impl LoopDevice {
    pub fn of(image: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show", utf8(image)]).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        if name.is_empty() {
            println!("skipped: cannot make a loop device");
            return None;
        }
        Some(Self(name))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(&["losetup", "--detach", &self.0]);
    }
}

pub fn tmpfs(at: &Path, mib: u64) -> Mounted {
    std::fs::create_dir_all(at).unwrap();
    let size = format!("size={mib}m,mode=755");
    assert!(run(&["mount", "-t", "tmpfs", "-o", &size, "tmpfs", utf8(at)]));
    Mounted { at: at.to_owned() }
}

/// A place whose share is on an ext4 of its own, served with a log.
pub struct Logged {
    // Unmounted before its directory is removed.
    _disk: Mounted,
    pub configuration: PathBuf,
    pub place: Place,
}

impl Logged {
    pub fn new() -> Option<Self> {
        let place = Place::new();
        let image = place.directory.path().join("image");
        let disk = ext4(&image, &place.share, 64)?;
        let mut logged = Self { configuration: PathBuf::new(), place, _disk: disk };
        logged.configure("enabled = true\nsize_mib = 16\n");
        Some(logged)
    }

    pub fn configure(&mut self, log: &str) {
        let text = format!(
            "[log]\n{log}\n[[share]]\npath = {:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n",
            utf8(&self.place.share)
        );
        self.configuration = self.place.write("steadfast.toml", &text);
    }

    pub fn start(&self) -> Running {
        Running::start(&self.place, 0, &["--config", utf8(&self.configuration), "-v"])
    }

    /// What a command about the log does.
    pub fn log(&self, words: &[&str]) -> Output {
        let common =
            ["--config", utf8(&self.configuration), "--state-directory", utf8(&self.place.state)];
        output(&[&["log"], words, &common].concat())
    }

    /// What a command that succeeds says.
    pub fn told(&self, words: &[&str]) -> String {
        let output = self.log(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Why a command fails.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.log(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        stderr(&output)
    }

    /// What the log does now.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.told(&["status", "--json"])).unwrap()
    }

    pub fn mount(&self, running: &Running) -> (Nfs3Client, FileHandle) {
        let path = utf8(&self.place.share).as_bytes();
        let address = running.address;
        Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap()
    }
}

pub fn create(client: &mut Nfs3Client, dir: &FileHandle, name: &str) -> FileHandle {
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    client.create(dir, name.as_bytes(), &how).unwrap().handle.unwrap()
}

/// The file system that the environment names (`STEADFAST_FILE_SYSTEM`: `xfs`, `btrfs`), else ext4, on the share.
pub fn wanted_file_system(place: &Place) -> Option<Mounted> {
    let image = place.directory.path().join("image");
    match std::env::var("STEADFAST_FILE_SYSTEM").as_deref() {
        Ok("xfs") => xfs(&image, &place.share),
        Ok("btrfs") => btrfs(&image, &place.share, 5),
        _ => ext4(&image, &place.share, 64),
    }
}

/// The configuration of a share with a log, with what the environment adds to it (`STEADFAST_SHARE`); and
/// the program that it names (`STEADFAST_PROGRAM`).
pub fn program_and_configuration(place: &mut Place) -> PathBuf {
    if let Ok(program) = std::env::var("STEADFAST_PROGRAM") {
        place.program = PathBuf::from(program);
    }
    let text = format!(
        "[log]\nenabled = true\nsize_mib = 16\n\
         [[share]]\npath = {:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\", \"insecure\"]\n{}\n",
        utf8(&place.share),
        std::env::var("STEADFAST_SHARE").unwrap_or_default()
    );
    place.write("steadfast.toml", &text)
}

pub fn kill(running: Running) {
    running.signal(Signal::KILL);
    running.wait();
}

pub fn stop(running: Running) {
    running.signal(Signal::TERM);
    assert!(running.wait().success());
}

pub fn verifier(client: &mut Nfs3Client, file: &FileHandle) -> [u8; 8] {
    client.commit(file, 0, 0).unwrap().verifier
}
