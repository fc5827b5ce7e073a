//! An `async` share on a disk of its own, which can lose what is not stable.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use super::mounts::Mount;
use super::{PATIENCE, Place, Running, utf8};

/// How often the server crashes, if that was said.
pub fn wanted_crashes() -> Option<u64> {
    std::env::var("STEADFAST_CRASHES").ok().and_then(|text| text.parse().ok())
}

pub fn crashes() -> u64 {
    wanted_crashes().unwrap_or(3)
}

pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// Within this time a mount namespace is gone whose last process was killed.
const ENDING: Duration = Duration::from_secs(2);

/// An ext4 file system of its own, which can lose all that is not stable on it.
pub struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    /// One that is mounted at a directory of a place.
    pub fn new(place: &Place, name: &str, at: &Path) -> Self {
        let image = place.directory.path().canonicalize().unwrap().join(format!("{name}.image"));
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        run("mkfs.ext4", &["-q", utf8(&image)]);
        let disk = Self { image, at: at.to_owned() };
        fs::create_dir_all(&disk.at).unwrap();
        disk.mount();
        fs::set_permissions(&disk.at, Permissions::from_mode(0o777)).unwrap();
        disk.flush();
        disk
    }

    fn mount(&self) {
        // Nothing is made stable by the passing of time.
        run("mount", &["-o", "loop,commit=1000", utf8(&self.image), utf8(&self.at)]);
    }

    /// What is on it now it keeps.
    pub fn flush(&self) {
        run("sync", &["--file-system", utf8(&self.at)]);
    }

    /// Everything that is done with it fails from now on.
    pub fn fail(&self) {
        run("xfs_io", &["-x", "-c", "shutdown", utf8(&self.at)]);
    }

    /// Everything since the last flush is lost, as in a power cut.
    pub fn cut(&mut self) {
        self.fail();
        let begun = Instant::now();
        while let Err(error) = rustix::mount::unmount(&self.at, UnmountFlags::empty()) {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The next mount would share one of another mount namespace, with its failed disk. That of a server which was
        // killed ends soon; somebody else's, of another test on this machine, may last.
        let begun = Instant::now();
        while self.is_attached() && begun.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.is_attached() {
            let copy = PathBuf::from(format!("{}.copy", utf8(&self.image)));
            run("cp", &["--sparse=always", utf8(&self.image), utf8(&copy)]);
            fs::remove_file(&self.image).unwrap();
            self.image = copy;
        }
        self.mount();
    }

    /// Whether a loop device has the image.
    fn is_attached(&self) -> bool {
        let has_image = |device: fs::DirEntry| {
            let file = fs::read_to_string(device.path().join("loop/backing_file"));
            file.is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == self.image)
        };
        fs::read_dir("/sys/block").unwrap().flatten().any(has_image)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// A place whose share is an `async` one, on a disk of its own.
pub struct Async {
    pub server: Option<Running>,
    disk: Disk,
    port: u16,
    /// Last: what is in it is used by the others.
    pub place: Place,
    /// How long clients are waited for, in seconds.
    pub wait_s: u64,
}

impl Async {
    pub fn new() -> Self {
        let place = Place::new();
        let disk = Disk::new(&place, "share", &place.share);
        let mut this = Self { place, disk, server: None, port: 0, wait_s: 90 };
        this.serve();
        this
    }

    pub fn serve(&mut self) {
        let configuration = self.place.write(
            "steadfast.toml",
            &format!(
                "[server]\nrecovery_wait_s = {}\n[log]\nsize_mib = 16\n[[share]]\npath = {:?}\nclients = [\"*\"]\n\
                 options = [\"no_root_squash\", \"async\"]\n",
                self.wait_s,
                utf8(&self.place.share)
            ),
        );
        let server = Running::start(&self.place, self.port, &["--config", utf8(&configuration)]);
        self.port = server.address.port();
        self.server = Some(server);
    }

    /// The server dies, its disk loses what is not stable, and it comes again.
    pub fn crash(&mut self, loses: bool) {
        self.die();
        self.come(loses);
    }

    /// The server dies.
    pub fn die(&mut self) {
        let server = self.server.take().unwrap();
        server.signal(Signal::KILL);
        server.wait();
    }

    /// It comes again, when its disk has lost what is not stable.
    pub fn come(&mut self, loses: bool) {
        if loses {
            self.disk.cut();
        }
        self.serve();
    }

    /// The journal of a mount.
    pub fn journal_of(&self, name: &str) -> PathBuf {
        let place = self.place.directory.path().canonicalize().unwrap();
        place.join(format!("{name}.journal"))
    }

    pub fn journal(&self) -> PathBuf {
        self.journal_of("mount")
    }

    pub fn mount(&self, more: &str) -> Mount {
        self.mount_as("mount", more)
    }

    /// One of several mounts, each with a journal of its own.
    pub fn mount_as(&self, name: &str, more: &str) -> Mount {
        let options = format!("journal={}{more}", utf8(&self.journal_of(name)));
        Mount::new(&self.place, self.server.as_ref().unwrap(), name, &options)
    }

    pub fn pending(&self) -> usize {
        self.pending_of("mount")
    }

    pub fn pending_of(&self, name: &str) -> usize {
        steadfast_journal::care::look(&self.journal_of(name)).expect("a journal").pending.len()
    }

    /// Nobody else has changed anything.
    pub fn has_no_conflict(&self) {
        self.has_no_conflict_of("mount");
    }

    pub fn has_no_conflict_of(&self, name: &str) {
        let log = self.place.directory.path().join(format!("{name}.log"));
        let log = fs::read_to_string(log).unwrap();
        assert!(!self.journal_of(name).join("conflicts").exists(), "{log}");
        assert!(!log.contains("conflict"), "{log}");
    }
}
