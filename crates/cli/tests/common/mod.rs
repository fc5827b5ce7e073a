//! The real program, for process tests.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]

pub mod async_share;
pub mod ganesha;
pub mod knfsd;
pub mod model;
pub mod mounts;
pub mod network;
pub mod promises;
pub mod workers;

use std::fs::Permissions;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn steadfast(arguments: &[&str]) -> Command {
    at(Path::new(env!("CARGO_BIN_EXE_steadfast")), arguments)
}

fn at(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("NOTIFY_SOCKET").env_remove("STATE_DIRECTORY");
    command.env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    command
}

pub fn output(arguments: &[&str]) -> Output {
    steadfast(arguments).output().expect("the program runs")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory with a state directory and a share; the share is anybody's to write.
pub struct Place {
    pub directory: tempfile::TempDir,
    pub state: PathBuf,
    pub share: PathBuf,
    pub program: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().canonicalize().expect("a path");
        let (state, share) = (path.join("state"), path.join("share"));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_steadfast"));
        Self { directory, state, share, program }
    }

    /// Has a copy of the program run, for a user who may not see where it was built.
    pub fn copy_program(&mut self) {
        let copy = self.directory.path().join("steadfast");
        std::fs::copy(&self.program, &copy).expect("copied");
        self.program = copy;
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().canonicalize().expect("a path").join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// A running server on loopback, at a port of its own; killed when dropped.
pub struct Running {
    child: Child,
    manager: UnixDatagram,
    log: PathBuf,
    pub address: SocketAddr,
    pub mount_line: String,
}

impl Running {
    /// Starts a server with these arguments beside those for its place, and waits until it says
    /// that it is ready.
    pub fn start(place: &Place, port: u16, arguments: &[&str]) -> Self {
        Self::start_with(place, port, arguments, |_| {})
    }

    /// As [`Running::start`], with a command that `prepare` may change.
    pub fn start_with(
        place: &Place,
        port: u16,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let socket = place.directory.path().join("notify");
        let _ = std::fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).expect("a socket");
        // For servers of other users.
        std::fs::set_permissions(&socket, Permissions::from_mode(0o777)).expect("a mode");
        let port = port.to_string();
        let state = place.state.to_str().expect("UTF-8");
        let arguments_of_all = ["serve", "--listen", "127.0.0.1", "--port", &port];
        let mut command = at(&place.program, &arguments_of_all);
        command
            .args(["--no-rpcbind", "--state-directory", state])
            // Tests of other users than root call from ports of everybody.
            .args(if rustix::process::geteuid().is_root() { &[][..] } else { &["--insecure"] })
            .args(arguments)
            // Where the directories' file system can be logged, a small log is made sooner.
            .args(if arguments.iter().any(|one| one.contains("intent-log") || *one == "--config") {
                &[][..]
            } else {
                &["--intent-log-mib", "16"]
            })
            .env("NOTIFY_SOCKET", &socket)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(place.directory.path().join("log")).expect("a file"));
        prepare(&mut command);
        let mut child = command.spawn().expect("the program starts");
        let log = || std::fs::read_to_string(place.directory.path().join("log"));
        let mut message = [0; 512];
        // A server that ends without becoming ready leaves nothing to wait for.
        manager.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
        let started = Instant::now();
        let length = loop {
            if let Ok(length) = manager.recv(&mut message) {
                break length;
            }
            let has_ended = child.try_wait().expect("a status").is_some();
            if has_ended || started.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("the server is not ready: {}", log().unwrap_or_default());
            }
        };
        manager.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let text = String::from_utf8_lossy(&message[..length]).into_owned();
        assert!(text.starts_with("READY=1"), "{text}");
        if text.contains("serving 0 shares") {
            // There is nothing to mount.
            let address = SocketAddr::from(([127, 0, 0, 1], 0));
            let log = place.directory.path().join("log");
            return Self { child, manager, log, address, mount_line: String::new() };
        }
        // The lines were printed before READY=1 was sent, and fit the pipe.
        let mut printed = vec![0; 64 << 10];
        let pipe = child.stdout.as_mut().expect("a pipe");
        let length = pipe.read(&mut printed).expect("output");
        let mut printed = String::from_utf8_lossy(&printed[..length]).into_owned();
        if !printed.contains("mount -t nfs") {
            let mut rest = vec![0; 64 << 10];
            let length = pipe.read(&mut rest).expect("output");
            printed += &String::from_utf8_lossy(&rest[..length]);
        }
        let mount_line = printed
            .lines()
            .find(|line| line.trim_start().starts_with("mount -t nfs"))
            .unwrap_or_else(|| panic!("no mount line: {printed}"))
            .trim()
            .to_owned();
        let mut words = mount_line.split([',', ' ']);
        let port = words.find_map(|word| word.strip_prefix("port="));
        // The line has none for the port of NFS itself.
        let port = port.map_or(2049, |port| port.parse().expect("a port"));
        let (log, address) = (place.directory.path().join("log"), ([127, 0, 0, 1], port).into());
        Self { child, manager, log, address, mount_line }
    }

    /// The next message to the service manager.
    pub fn message(&self) -> String {
        let mut message = [0; 512];
        let length = self.manager.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the server to end.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("a status")
    }

    pub fn log(place: &Place) -> String {
        std::fs::read_to_string(place.directory.path().join("log")).expect("a log")
    }

    /// What the server told, as soon as `part` is in it. Where a client's reply shows what the server
    /// tells as well, either may be first.
    pub fn log_with(place: &Place, part: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = Self::log(place);
            if log.contains(part) {
                return log;
            }
            assert!(begun.elapsed() < PATIENCE, "no {part:?} in {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("server: {}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a program that is to end.
pub fn ended(child: &mut Child, what: &str) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
