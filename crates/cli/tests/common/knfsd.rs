//! The kernel's NFS server, in a guest (user-mode Linux) of this machine, on a disk of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::async_share::run;
use super::network::Network;
use super::utf8;

/// Where it is reached.
pub const ADDRESS: &str = "10.79.0.2";
/// What it shares.
pub const SHARE: &str = "/run/export";
pub const PORT: u16 = 2049;
pub const MOUNT_PORT: u16 = 20_048;

/// A guest starts within this time, on a busy machine, too.
const STARTING: Duration = Duration::from_secs(90);

/// Lets the kernel run where processors have more registers than it knows.
const PRELOADED: &str = include_str!("../../../rig/src/uml/xstate.c");

/// Whether one can be started. CI must be able to.
pub fn is_there() -> bool {
    let has_modules = fs::read_dir("/usr/lib/uml/modules").is_ok_and(|releases| {
        let mut names = releases.flatten().map(|release| release.file_name());
        names.any(|name| Path::new("/lib/modules").join(name).exists())
    });
    let can = has_modules && Path::new("/usr/sbin/rpc.nfsd").exists();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(can || !must, "CI must have user-mode-linux, its modules and nfs-kernel-server");
    if !can {
        println!(
            "skipped: needs user-mode-linux, its modules in /lib/modules, and nfs-kernel-server"
        );
    }
    can
}

/// A disk, and the server that may be running on it.
pub struct Knfsd {
    /// Where its files are.
    directory: PathBuf,
    guest: Option<Child>,
}

impl Knfsd {
    /// A disk without files, and a network where the server will be.
    pub fn new(network: &Network, directory: &Path) -> Self {
        let this = Self { directory: directory.to_owned(), guest: None };
        File::create(this.image()).unwrap().set_len(256 << 20).unwrap();
        run("mkfs.ext4", &["-q", utf8(&this.image())]);
        let (source, preloaded) = (this.directory.join("xstate.c"), this.preloaded());
        fs::write(&source, PRELOADED).unwrap();
        let words = ["-shared", "-fPIC", "-O1", "-o", utf8(&preloaded), utf8(&source), "-ldl"];
        run("cc", &words);
        network.ip("tuntap add knfsd mode tap");
        network.ip("addr add 10.79.0.1/24 dev knfsd");
        network.ip("link set knfsd up");
        this
    }

    fn image(&self) -> PathBuf {
        self.directory.join("knfsd.image")
    }

    fn preloaded(&self) -> PathBuf {
        self.directory.join("xstate.so")
    }

    /// Has it serve.
    pub fn start(&mut self, network: &Network) {
        let results = self.directory.join("results");
        fs::write(&results, "").unwrap();
        let console = File::create(self.directory.join("knfsd.console")).unwrap();
        let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernel-client/knfsd.sh");
        let mut command = network.command("linux.uml");
        command
            .env("LD_PRELOAD", self.preloaded())
            .args(["mem=256M", "rootfstype=hostfs", "rootflags=/", "rw", "quiet"])
            .arg(format!("init={}", utf8(&init.canonicalize().unwrap())))
            .arg(format!("umid=steadfast-knfsd-{}", std::process::id()))
            .args(["con=null", "con0=null,fd:1", "vec0:transport=tap,ifname=knfsd,depth=128,gro=1"])
            .arg(format!("ubd0={}", utf8(&self.image())))
            .arg(format!("GUEST_ADDRESS={ADDRESS}/24"))
            .arg(format!("CONTROL={}", utf8(&self.directory)))
            .stdin(Stdio::null())
            .stdout(console.try_clone().unwrap())
            .stderr(console)
            // The guest's processes are of it, and end with it.
            .process_group(0);
        let mut guest = command.spawn().unwrap();
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(&results).unwrap();
            if said == "serving\n" {
                break;
            }
            let ended = guest.try_wait().unwrap();
            let is_starting = said.is_empty() && ended.is_none() && begun.elapsed() < STARTING;
            if !is_starting {
                end(&mut guest);
                panic!("{ended:?}: {said}{}", self.console());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.guest = Some(guest);
    }

    fn console(&self) -> String {
        fs::read_to_string(self.directory.join("knfsd.console")).unwrap_or_default()
    }

    /// Its kernel dies, with all that its disk does not have.
    pub fn crash(&mut self) {
        end(&mut self.guest.take().expect("it runs"));
    }

    /// What the disk has while no server runs on it.
    pub fn with_disk<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        assert!(self.guest.is_none(), "it runs");
        let at = self.directory.join("disk");
        fs::create_dir_all(&at).unwrap();
        run("mount", &["-o", "loop", utf8(&self.image()), utf8(&at)]);
        let seen = look(&at);
        run("umount", &[utf8(&at)]);
        seen
    }
}

impl Drop for Knfsd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.console());
        }
        if let Some(guest) = &mut self.guest {
            end(guest);
        }
        // Left by a test that has failed.
        let _ =
            Command::new("umount").arg(self.directory.join("disk")).stderr(Stdio::null()).status();
    }
}

/// Kills the guest, which is a group of processes.
fn end(guest: &mut Child) {
    let group = Pid::from_child(guest);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = guest.wait();
}
