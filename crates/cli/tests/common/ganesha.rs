//! nfs-ganesha, on a directory, in a network of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::network::Network;
use super::{PATIENCE, utf8};

/// Whether it is there. CI must have it.
pub fn is_there() -> bool {
    let asked = Command::new("ganesha.nfsd").arg("-v").stdout(Stdio::null()).status();
    let is_there = asked.is_ok() && Command::new("rpcbind").arg("-h").output().is_ok();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(is_there || !must, "CI must have nfs-ganesha: nfs-ganesha-vfs and rpcbind are missing");
    if !is_there {
        println!("skipped: needs nfs-ganesha");
    }
    is_there
}

pub const PORT: u16 = 2049;
pub const MOUNT_PORT: u16 = 20_048;

/// Arguments: this process's mount namespace, the configuration, the log, mounts that this server is not to keep.
/// Sockets and process ids of servers elsewhere on the machine stay theirs.
const SCRIPT: &str = r#"
set -e
test "$(readlink /proc/self/ns/mnt)" != "$0"
configuration=$1 log=$2
shift 2
for at do umount --no-canonicalize --lazy "$at" || :; done
mount -t tmpfs tmpfs /run
mkdir /run/ganesha /run/rpcbind
rpcbind -w
exec ganesha.nfsd -F -f "$configuration" -L "$log" -p /run/ganesha/pid
"#;

/// Mounts and disks of tests, but for a share. They are to end though this server runs.
fn mounts_of_tests(share: &Path) -> Vec<PathBuf> {
    let below = std::env::temp_dir().canonicalize().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_of_test = |line: &str| {
        let (_, about) = line.split_once(" - ")?;
        let is_ours = about.starts_with("fuse.steadfast ")
            || about.split(' ').nth(1).is_some_and(|source| source.starts_with("/dev/loop"));
        let at = PathBuf::from(unescaped(line.split(' ').nth(4)?));
        (is_ours && at.starts_with(&below) && at != share).then_some(at)
    };
    // What is mounted below another mount comes first.
    mounts.lines().rev().filter_map(is_of_test).collect()
}

/// A path of mountinfo: blanks and backslashes are octal there (proc(5)).
fn unescaped(path: &str) -> String {
    let escapes = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")];
    escapes.iter().fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
}

/// A server that runs. It is the first process of a namespace, with which rpcbind, that it needs, ends as well.
pub struct Ganesha {
    child: Child,
    log: PathBuf,
}

impl Ganesha {
    /// Serves a directory in this network.
    pub fn start(network: &Network, directory: &Path, share: &Path) -> Self {
        let configuration = directory.join("ganesha.conf");
        let text = format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {PORT}; MNT_Port = {MOUNT_PORT}; Enable_NLM = false; \
             Enable_RQUOTA = false; }}\n\
             EXPORT {{ Export_Id = 1; Path = {share}; Pseudo = {share}; Access_Type = RW; Squash = None; \
             SecType = sys; FSAL {{ Name = VFS; }} }}\n",
            share = utf8(share)
        );
        fs::write(&configuration, text).unwrap();
        let log = directory.join("ganesha.log");
        let output = File::create(directory.join("ganesha.output")).unwrap();
        let mut command = network.command("unshare");
        let ours = fs::read_link("/proc/self/ns/mnt").unwrap();
        command
            .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "sh", "-c", SCRIPT])
            .args([&ours, &configuration, &log])
            .args(mounts_of_tests(share))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        // Its write verifier is the second of its start: two starts within one second would have the same, and
        // nobody could tell what was lost in between.
        std::thread::sleep(Duration::from_millis(1100));
        let mut ganesha = Self { child: command.spawn().unwrap(), log };
        ganesha.await_ports(network);
        ganesha
    }

    fn await_ports(&mut self, network: &Network) {
        let begun = Instant::now();
        let listens = |port: u16| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            network.enter(move || std::net::TcpStream::connect(address).is_ok())
        };
        while !listens(PORT) || !listens(MOUNT_PORT) {
            let ended = self.child.try_wait().unwrap();
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "{ended:?}: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it, and waits until nothing of it is left.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let first = children.unwrap_or_default().split_whitespace().next().map(str::to_owned);
        let first = first.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        match first {
            Some(first) => drop(rustix::process::kill_process(first, Signal::KILL)),
            None => drop(self.child.kill()),
        }
        let _ = self.child.wait();
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        self.end();
    }
}
