//! A server with a log and several disks.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, StableHow};

use super::disk::Disk;
use super::{create, kill};
use crate::common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};

/// A server with a log, and shares that are each on a disk of their own.
pub struct Site {
    pub disks: Vec<Disk>,
    pub log: String,
    /// What else is configured.
    pub more: String,
    pub place: Place,
}

impl Site {
    /// `None` where disks cannot be had.
    pub fn new(names: &[&str]) -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        let disks =
            names.iter().map(|name| Disk::new(&directory, name, 48)).collect::<Option<_>>()?;
        Some(Self::of(disks, place))
    }

    /// With a btrfs, whose metadata goes to the disk every so many seconds.
    pub fn with_btrfs(seconds: u32) -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        Some(Self::of(vec![Disk::with_btrfs(&directory, "disk", seconds)?], place))
    }

    /// With an XFS.
    pub fn with_xfs() -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        Some(Self::of(vec![Disk::with_xfs(&directory, "disk")?], place))
    }

    pub fn of(disks: Vec<Disk>, place: Place) -> Self {
        // Checkpoints only when a test wants one.
        let log = "enabled = true\nsize_mib = 16\ncheckpoint_interval_ms = 3600000\n".to_owned();
        Self { disks, log, more: String::new(), place }
    }

    /// Writes a configuration that serves these of the disks.
    pub fn configure(&self, served: &[usize]) -> PathBuf {
        let shares = served.iter().map(|disk| {
            let path = utf8(&self.disks[*disk].share);
            format!(
                "[[share]]\npath = {path:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n"
            )
        });
        let text = format!("[log]\n{}\n{}{}", self.log, shares.collect::<String>(), self.more);
        self.place.write("steadfast.toml", &text)
    }

    pub fn start(&self) -> Running {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        Running::start(&self.place, 0, &["--config", utf8(&self.configure(&all)), "-v"])
    }

    /// Starts a server that must refuse; what it says.
    pub fn refused(&self) -> String {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        let ended = server_output(steadfast(&self.words(&self.configure(&all))));
        assert!(!ended.status.success(), "{}", stderr(&ended));
        stderr(&ended)
    }

    pub fn words<'a>(&'a self, configuration: &'a Path) -> [&'a str; 8] {
        let state = utf8(&self.place.state);
        let (configuration, port) = (utf8(configuration), "0");
        [
            "serve",
            "--config",
            configuration,
            "--state-directory",
            state,
            "--port",
            port,
            "--no-rpcbind",
        ]
    }

    pub fn mount(&self, running: &Running, disk: usize) -> (Nfs3Client, FileHandle) {
        let mounted = self.try_mount(running, disk);
        let mounted = mounted.unwrap_or_else(|error| panic!("{error}: {}", self.said()));
        // It is marked soon after: what a test then keeps of the disk has the mark.
        self.disks[disk].await_mark();
        mounted
    }

    pub fn try_mount(
        &self,
        running: &Running,
        disk: usize,
    ) -> Result<(Nfs3Client, FileHandle), ClientError> {
        let path = utf8(&self.disks[disk].share).as_bytes();
        let address = running.address;
        Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE)
    }

    /// Has the log flushed.
    pub fn flush(&self) {
        let flushed = self.care(&["flush"]);
        assert!(flushed.status.success(), "{}", stderr(&flushed));
    }

    /// Copies the state directory, as a backup does.
    pub fn back_up(&self, name: &str) -> PathBuf {
        let copy = self.place.directory.path().join(name);
        let from = format!("{}/.", utf8(&self.place.state));
        std::fs::create_dir(&copy).unwrap();
        assert!(Command::new("cp").args(["-a", &from, utf8(&copy)]).status().unwrap().success());
        copy
    }

    /// Puts a copy in the place of the state directory.
    pub fn restore(&self, copy: &Path) {
        std::fs::remove_dir_all(&self.place.state).unwrap();
        let words = ["-a", utf8(copy), utf8(&self.place.state)];
        assert!(Command::new("cp").args(words).status().unwrap().success());
    }

    pub fn care(&self, words: &[&str]) -> Output {
        let configuration = self.place.directory.path().join("steadfast.toml");
        let common =
            ["--config", utf8(&configuration), "--state-directory", utf8(&self.place.state)];
        output(&[&["log"], words, &common].concat())
    }

    pub fn log_file(&self) -> PathBuf {
        self.place.state.join("intent.log")
    }

    /// As if flushes of all file systems had failed before the kill.
    pub fn note_failed_flushes(&self) {
        for entry in std::fs::read_dir(&self.place.state).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(uuid) = name.strip_prefix("mounted-") {
                std::fs::write(path.with_file_name(format!("flush-failed-{uuid}")), "").unwrap();
            }
        }
    }

    pub fn said(&self) -> String {
        Running::log(&self.place)
    }

    /// Waits until the server has said this.
    pub fn await_words(&self, words: &str) {
        let begun = Instant::now();
        while !self.said().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{words:?} is not said: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Files with operations that were set aside.
    pub fn asides(&self) -> usize {
        let files = std::fs::read_dir(&self.place.state).unwrap();
        let is_aside = |path: PathBuf| path.extension().is_some_and(|end| end == "aside");
        files.filter(|file| is_aside(file.as_ref().unwrap().path())).count()
    }
}

/// The end of a server that is to refuse to start: ended, should it not.
pub fn server_output(mut command: Command) -> Output {
    use std::process::Stdio;
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

pub fn write(client: &mut Nfs3Client, file: &FileHandle, data: &[u8]) {
    let written = client.write(file, 0, data, StableHow::FileSync).unwrap();
    assert_eq!(written.count as usize, data.len());
}

/// Has the server read its configuration again.
pub fn reload(running: &Running) {
    running.signal(Signal::HUP);
    while !running.message().starts_with("READY=1") {}
}

/// Two disks, of which the second loses what was acknowledged last: a file `name` with `data`. The
/// server is gone.
pub fn lost(name: &str, data: &[u8]) -> Option<(Site, FileHandle)> {
    let site = Site::new(&["good", "bad"])?;
    let running = site.start();
    let (mut client, root) = site.mount(&running, 1);
    site.disks[1].keep();
    let file = create(&mut client, &root, name);
    write(&mut client, &file, data);
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "also");
    kill(running);
    site.disks[1].lose();
    Some((site, file))
}
