//! Mounts of real servers, one test at a time.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use super::{PATIENCE, Place, Running, ended, steadfast, utf8};

/// Held by the test that runs.
static TURN: Mutex<()> = Mutex::new(());

/// One test at a time, if any can run. Whatever this process starts has its open files until exec closes
/// them, on each test's mount; and so waits for each test's server, of which some are stopped.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    let can = rustix::process::geteuid().is_root()
        && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(can || !must, "CI must be able to mount: root and /dev/fuse are missing");
    if !can {
        println!("skipped: needs root and /dev/fuse");
    }
    can.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A mount; unmounted when dropped, whatever happened.
pub struct Mount {
    pub child: Child,
    pub at: PathBuf,
    log: PathBuf,
}

impl Mount {
    pub fn new(place: &Place, server: &Running, name: &str, options: &str) -> Self {
        let source = format!("127.0.0.1:{}", utf8(&place.share));
        let port = server.address.port();
        let options = format!("port={port},mountport={port},{options}");
        Self::of(place, steadfast(&[]), name, &source, &options)
    }

    /// Of any server. The command runs the program, perhaps in another network.
    pub fn of(
        place: &Place,
        mut program: Command,
        name: &str,
        source: &str,
        options: &str,
    ) -> Self {
        let at = place.directory.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(&at).unwrap();
        let mut options = format!("nolock,{options}");
        // So all tests of mounts run with another version, say; what they say outweighs it.
        if let Ok(more) = std::env::var("STEADFAST_MOUNT_OPTIONS") {
            options = format!("{more},{options}");
        }
        // What earlier mounts of this name have told stays.
        let log = place.directory.path().join(format!("{name}.log"));
        let told = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut child = program
            .args(["mount", "--foreground", "-o", &options, source, utf8(&at)])
            .stdin(Stdio::null())
            .stderr(told)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let parent = fs::metadata(place.directory.path()).unwrap().dev();
        // Before it is mounted the directory is its parent's file system's.
        while fs::metadata(&at).map_or(parent, |metadata| metadata.dev()) == parent {
            let ended = child.try_wait().unwrap();
            let log = fs::read_to_string(&log);
            assert!(ended.is_none(), "{ended:?}: {log:?}");
            assert!(begun.elapsed() < PATIENCE, "not mounted: {log:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, at, log }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Kills the process that answers, and takes the mount away.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        ended(&mut self.child, "a mount that is killed");
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }

    /// Unmounts as umount(8) does, and waits for the process to end.
    pub fn unmount(mut self) {
        let begun = Instant::now();
        // A program that another test starts has our descriptors until it is executed.
        while let Err(error) = rustix::mount::unmount(&self.at, UnmountFlags::empty()) {
            assert!(error == rustix::io::Errno::BUSY && begun.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        while self.child.try_wait().unwrap().is_none() {
            let others = || other_users(&self.at);
            assert!(
                begun.elapsed() < PATIENCE,
                "the process stays; it is mounted for {:?}",
                others()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let status = steadfast(&["mount", "status", utf8(&self.at)]).output();
            let status = status.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
            println!("{}", status.unwrap_or_default());
            println!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
        // Whoever waits for an answer waits no longer, whatever the process does.
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::FORCE);
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes in whose mount namespaces something is mounted at a directory: a mount lasts as long as one of these.
fn other_users(at: &Path) -> Vec<String> {
    let has_it = |process: &fs::DirEntry| {
        let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(4) == at.to_str())
    };
    let name = |process: fs::DirEntry| fs::read_to_string(process.path().join("comm")).ok();
    fs::read_dir("/proc").unwrap().flatten().filter(has_it).filter_map(name).collect()
}

/// Serves the share of a place.
pub fn serve(place: &Place, port: u16) -> Running {
    Running::start(place, port, &["--no-root-squash", utf8(&place.share)])
}

/// Stops a server; returns when all its threads have.
pub fn stop(server: &Running) {
    server.signal(Signal::STOP);
    let tasks = format!("/proc/{}/task", server.id());
    let begun = Instant::now();
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    while !fs::read_dir(&tasks).unwrap().flatten().all(is_stopped) {
        assert!(begun.elapsed() < PATIENCE, "the server does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}
