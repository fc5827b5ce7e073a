//! What process tests of sizes of shares need: a server, and a btrfs with quotas.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]
#![allow(clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, NfsStat3, StableHow};

use crate::common::{PATIENCE, Place, Running, output, stderr, utf8};
use crate::intent_log_support::disk::Disk;
use crate::intent_log_support::{run, stop};

pub const MIB: u64 = 1 << 20;
pub const CHUNK: usize = 256 << 10;

/// A server with a share of its own, and a btrfs for more.
pub struct Sized {
    pub disk: Disk,
    pub place: Place,
    pub configuration: PathBuf,
}

impl Sized {
    /// `None` where there can be no btrfs with quotas.
    pub fn new() -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        let disk = Disk::with_btrfs(&directory, "disk", 300)?;
        std::fs::create_dir(&place.share).unwrap();
        let text = format!(
            "[log]\nenabled = true\nsize_mib = 64\ncheckpoint_interval_ms = 3600000\n\
             [[share]]\npath = {:?}\nclients = [\"*\"]\n",
            utf8(&place.share)
        );
        let configuration = place.write("steadfast.toml", &text);
        Some(Self { disk, place, configuration })
    }

    /// A running server whose only share of the btrfs is to have 20M. It is not served, since its subvolume has a limit
    /// that the server does not know.
    pub fn with_another_limit() -> Option<(Self, PathBuf, Running)> {
        let sized = Self::new()?;
        sized.enable_quotas();
        let one = sized.subvolume("one");
        let running = sized.start();
        sized.add(&one, "20M");
        sized.await_file_with("size=20M");
        stop(running);
        std::fs::remove_file(sized.place.state.join("shares.sizes")).unwrap();
        set_limit(&one, "7M");
        let running = sized.start();
        eventually("it is not served", || sized.show(&one)["state"] == "faulty");
        Some((sized, one, running))
    }

    /// Waits until the file of shares that commands write has this in it; its path.
    pub fn await_file_with(&self, word: &str) -> PathBuf {
        let file = self.place.state.join("shares.d/default.toml");
        eventually("the file is written", || {
            std::fs::read_to_string(&file).is_ok_and(|text| text.contains(word))
        });
        file
    }

    pub fn start(&self) -> Running {
        Running::start(&self.place, 0, &["--config", utf8(&self.configuration), "-v"])
    }

    /// Has the server flush instead of having a log.
    pub fn without_log(&self) {
        let text = std::fs::read_to_string(&self.configuration).unwrap();
        let text = text.replace("enabled = true", "enabled = false");
        std::fs::write(&self.configuration, text).unwrap();
    }

    /// Where the server notes which limits a replay has lifted.
    pub fn note_of_lifted(&self) -> PathBuf {
        let uuid = run_told(&["findmnt", "-no", "UUID", utf8(self.disk.at())]);
        self.place.state.join(format!("lifted-limits-{}", uuid.trim().replace('-', "")))
    }

    /// Until the power fails the server does not have the disk know of limits, as if a replay were under way:
    /// otherwise it would do so within seconds.
    pub fn hold_settling(&self) {
        std::fs::write(self.note_of_lifted(), "").unwrap();
    }

    /// The power fails for the disk: what has not reached it is lost. The server is dead.
    pub fn lose_power(&self) {
        let _ = std::fs::remove_file(self.note_of_lifted());
        self.disk.keep_unflushed();
        self.disk.lose();
        self.disk.mount("rw,commit=300");
    }

    pub fn enable_quotas(&self) {
        assert!(run(&["btrfs", "quota", "enable", utf8(self.disk.at())]));
        assert!(run(&["btrfs", "quota", "rescan", "-w", utf8(self.disk.at())]));
    }

    pub fn subvolume(&self, name: &str) -> PathBuf {
        let path = self.disk.at().join(name);
        assert!(run(&["btrfs", "subvolume", "create", utf8(&path)]));
        path
    }

    pub fn ask(&self, words: &[&str]) -> std::process::Output {
        output(&[words, &["--state-directory", utf8(&self.place.state)]].concat())
    }

    /// What a command that must succeed tells.
    #[track_caller]
    pub fn told(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(done.status.success(), "{words:?}: {}", stderr(&done));
        String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap()
    }

    /// Why a command was not done.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(!done.status.success(), "{words:?}");
        stderr(&done)
    }

    pub fn add(&self, path: &Path, size: &str) -> String {
        let options = format!("no_root_squash,size={size}");
        self.told(&["share", "add", utf8(path), "--client", "*", "-o", &options])
    }

    pub fn resize(&self, path: &Path, size: &str) -> String {
        self.told(&["share", "set", utf8(path), "--add-option", &format!("size={size}")])
    }

    /// What `status` tells, whatever it thinks of that.
    pub fn status(&self) -> String {
        let status = self.ask(&["status"]);
        String::from_utf8(status.stdout).unwrap() + &String::from_utf8(status.stderr).unwrap()
    }

    /// How many sizes monitoring is told not to be enforced.
    #[track_caller]
    fn size_faults(&self) -> u64 {
        let told = self.told(&["statistics", "--prometheus"]);
        let line = told.lines().find_map(|line| line.strip_prefix("steadfast_share_size_faults "));
        line.unwrap_or_else(|| panic!("{told}")).parse().unwrap()
    }

    /// Waits until they are so many: they are counted once a second.
    #[track_caller]
    pub fn await_size_faults(&self, expected: u64) {
        eventually("the sizes are counted", || self.size_faults() == expected);
    }

    pub fn show(&self, path: &Path) -> Value {
        serde_json::from_str(&self.told(&["share", "show", utf8(path), "--json"])).unwrap()
    }
}

/// Mounts a share. One whose limit the kernel has need not be served yet: that comes after it.
#[track_caller]
pub fn mount(running: &Running, path: &Path) -> (Nfs3Client, FileHandle) {
    let address = running.address;
    let path = utf8(path).as_bytes();
    let begun = std::time::Instant::now();
    loop {
        match Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE) {
            Ok(mounted) => return mounted,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The limit of a subvolume, as the kernel has it.
pub fn limit(path: &Path) -> Option<u64> {
    let words = ["qgroup", "show", "-r", "-f", "--raw", "--sync", utf8(path)];
    let shown = Command::new("btrfs").args(words).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line =
        shown.lines().find(|line| line.starts_with("0/")).unwrap_or_else(|| panic!("{shown}"));
    line.split_whitespace().nth(3).unwrap().parse().ok()
}

/// What a subvolume has, as the kernel counts it after a commit.
pub fn used(path: &Path) -> u64 {
    let shown = run_told(&["btrfs", "qgroup", "show", "-f", "--raw", "--sync", utf8(path)]);
    let line =
        shown.lines().find(|line| line.starts_with("0/")).unwrap_or_else(|| panic!("{shown}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// As [`limit`], without having the disk know of it.
pub fn limit_now(path: &Path) -> Option<u64> {
    let number = run_told(&["btrfs", "inspect-internal", "rootid", utf8(path)]);
    let uuid = run_told(&["findmnt", "-no", "UUID", "--target", utf8(path)]);
    let file = format!("/sys/fs/btrfs/{}/qgroups/0_{}/max_referenced", uuid.trim(), number.trim());
    let bytes = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    Some(bytes).filter(|bytes| *bytes != 0)
}

/// What a program tells.
#[track_caller]
pub fn run_told(words: &[&str]) -> String {
    let told = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(told.status.success(), "{words:?}");
    String::from_utf8(told.stdout).unwrap()
}

pub fn set_limit(path: &Path, to: &str) {
    assert!(run(&["btrfs", "qgroup", "limit", to, utf8(path)]));
}

/// Writes chunks of a file, which differ, until one is refused; how many were not, and why that one was.
pub fn fill(client: &mut Nfs3Client, file: &FileHandle, most: u64) -> (u64, Option<NfsStat3>) {
    for number in 0..most {
        let (data, mut done) = (chunk(number), 0);
        // What there is room for of the last one is written.
        while done < CHUNK {
            let offset = number * CHUNK as u64 + done as u64;
            match client.write(file, offset, &data[done..], StableHow::FileSync) {
                Ok(written) => done += written.count as usize,
                Err(ClientError::Failed(failure)) => return (number, Some(failure.status)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    (most, None)
}

/// Whether a quota was the reason.
pub fn is_refused(error: &ClientError) -> bool {
    matches!(error, ClientError::Failed(failure) if failure.status == NfsStat3::DQuot)
}

/// What does not become less by compression.
pub fn chunk(number: u64) -> Vec<u8> {
    let mut state = number + 1;
    let words = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    });
    words.take(CHUNK / 4).flat_map(u32::to_le_bytes).collect()
}

pub fn chunks(bytes: u64) -> u64 {
    bytes / CHUNK as u64
}

/// Waits until something holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// That a file has so many chunks of [`fill`].
#[track_caller]
pub fn has_chunks(client: &mut Nfs3Client, file: &FileHandle, written: u64) {
    for number in 0..written {
        let offset = number * CHUNK as u64;
        let mut read = Vec::new();
        while read.len() < CHUNK {
            let part = client.read(file, offset + read.len() as u64, (CHUNK - read.len()) as u32);
            let part = part.unwrap().data;
            assert!(!part.is_empty(), "{number} of {written}");
            read.extend_from_slice(&part);
        }
        assert!(read == chunk(number), "{number}");
    }
}

/// Somebody on this machine has called `sync`, which has every disk know of what a test wants lost.
/// These limits came back.
pub struct CommittedByOthers(Vec<Option<u64>>);

/// Does something with fresh disks until one of them had not been committed when the power failed.
pub fn until_the_disk_lags(test: impl Fn(&Sized) -> Result<(), CommittedByOthers>) {
    let mut found = Vec::new();
    for _ in 0..20 {
        let Some(sized) = Sized::new() else { return };
        match test(&sized) {
            Ok(()) => return,
            Err(CommittedByOthers(limits)) => found.push(limits),
        }
    }
    panic!(
        "each time others had the disk committed, or the server has: limits came back as {found:?}"
    );
}

/// Whether the disk has come back with limits that have been changed since it was last committed.
pub fn has_lagged(limits: &[(&Path, u64)]) -> Result<(), CommittedByOthers> {
    let found: Vec<_> = limits.iter().map(|(path, _)| limit(path)).collect();
    let came_back = limits.iter().zip(&found).all(|((_, bytes), found)| *found == Some(*bytes));
    came_back.then_some(()).ok_or(CommittedByOthers(found))
}
