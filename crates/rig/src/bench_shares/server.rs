//! Steadfast with the shares of one group: its files, its process, and its commands.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::api;
use super::farm::{Farm, GROUP};
use super::probe::Probe;
use crate::process::{Process, last_lines};
use crate::servers::{Cpus, steadfast_program};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a server that starts is asked for its first share.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// Where it serves.
pub(super) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// The configuration and the state of a server.
pub(super) struct Home {
    directory: PathBuf,
}

impl Home {
    /// In a directory that is emptied first: the first `count` shares of the farm.
    pub(super) fn make(directory: &Path, farm: &Farm, count: usize) -> Result<Self> {
        if directory.exists() {
            std::fs::remove_dir_all(directory)?;
        }
        let home = Self { directory: directory.to_owned() };
        std::fs::create_dir_all(home.shares_directory())?;
        std::fs::create_dir_all(home.state())?;
        std::fs::write(home.path("hosts"), Farm::hosts())?;
        std::fs::write(home.path("netgroup"), Farm::netgroups())?;
        home.set_group(&farm.group(count))?;
        let text = format!(
            "[server]\nlisten = [\"{ADDRESS}\"]\nrpcbind = false\nstate_directory = {:?}\n\
             shares_directory = {:?}\n\n[names]\nhosts_file = {:?}\nnetgroup_file = {:?}\n",
            home.state().display().to_string(),
            home.shares_directory().display().to_string(),
            home.path("hosts").display().to_string(),
            home.path("netgroup").display().to_string(),
        );
        std::fs::write(home.path("steadfast.toml"), text)?;
        Ok(home)
    }

    /// Puts another text in the place of the group's file.
    pub(super) fn set_group(&self, text: &str) -> Result<()> {
        let file = self.shares_directory().join(format!("{GROUP}.toml"));
        Ok(std::fs::write(file, text)?)
    }

    /// Adds a line to `[server]`.
    pub(super) fn add_server(&self, line: &str) -> Result<()> {
        let path = self.path("steadfast.toml");
        let text = std::fs::read_to_string(&path)?;
        Ok(std::fs::write(path, text.replacen("[server]\n", &format!("[server]\n{line}\n"), 1))?)
    }

    /// Adds lines to `[names]`.
    pub(super) fn add_names(&self, lines: &str) -> Result<()> {
        let path = self.path("steadfast.toml");
        let text = std::fs::read_to_string(&path)? + lines;
        Ok(std::fs::write(path, text)?)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn shares_directory(&self) -> PathBuf {
        self.path("shares.d")
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }
}

/// When a server that was started served its shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    /// The first MNT was granted.
    pub(super) first: Duration,
    /// It told the service manager that it is ready, with all shares.
    pub(super) all: Duration,
}

/// A server that runs; ended by its process id when dropped.
pub(super) struct Running {
    process: Process,
    state: PathBuf,
    pub(super) probe: Probe,
}

impl Running {
    /// Starts it, and waits until it serves its `count` shares.
    pub(super) fn start(
        home: &Home,
        cpus: &Cpus,
        farm: &Farm,
        count: usize,
    ) -> Result<(Self, Started)> {
        let notices = home.path("notify");
        if notices.exists() {
            std::fs::remove_file(&notices)?;
        }
        let socket = UnixDatagram::bind(&notices)?;
        let log = std::fs::File::create(home.path("log"))?;
        let started = Instant::now();
        let mut command = Cpus::command(cpus.server.as_ref(), &steadfast_program()?);
        command.args(["serve", "--config"]).arg(home.path("steadfast.toml"));
        let process = Process::start(command.env("NOTIFY_SOCKET", &notices), log)?;
        let mut running = Self { process, state: home.state(), probe: Probe { mount: ADDRESS } };
        let ready = std::thread::spawn(move || await_ready(&socket, started));
        let outcome = running.await_shares(&farm.path(0), started);
        let first = outcome.with_context(|| last_lines(&home.path("log"), 20))?;
        let all = ready.join().ok().context("the thread that waits for readiness panicked")??;
        running.probe.expect_all(count, &[farm.path(count.saturating_sub(1))])?;
        Ok((running, Started { first, all }))
    }

    /// Asks for a share until it is granted.
    fn await_shares(&mut self, path: &str, started: Instant) -> Result<Duration> {
        let Self { process, probe, .. } = self;
        let served = process.wait_for(PATIENCE, ASK_EVERY, || {
            let is_granted = probe.can_mount(path).unwrap_or(false);
            is_granted.then(|| started.elapsed()).context("it serves nothing")
        });
        served.context("steadfast")
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Runs a command of the program against this server, as a user would; how long it took.
    pub(super) fn command(&self, words: &[&str]) -> Result<Duration> {
        let started = Instant::now();
        let output = Command::new(steadfast_program()?)
            .args(words)
            .arg("--state-directory")
            .arg(&self.state)
            .stdin(Stdio::null())
            .output()
            .context("cannot run steadfast")?;
        let took = started.elapsed();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("steadfast {}: {}: {}", words.join(" "), output.status, said.trim());
        }
        Ok(took)
    }

    /// Applies one operation through the API; how long it took.
    pub(super) fn apply(&self, operation: &Value) -> Result<Duration> {
        self.control().apply(operation)
    }

    /// Its API, for another thread.
    pub(super) fn control(&self) -> Control {
        Control { socket: self.state.join("control.sock") }
    }

    /// What it has of memory to itself, in bytes.
    pub(super) fn memory(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.pid());
        let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        resident_bytes(&text).with_context(|| format!("{file} does not tell RssAnon"))
    }

    /// How many descriptors it has.
    pub(super) fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    /// Asks it to stop, and waits.
    pub(super) fn stop(self) -> Result<()> {
        self.process.stop(PATIENCE).map(drop).context("steadfast")
    }
}

/// The API of a server.
#[derive(Clone, Debug)]
pub(super) struct Control {
    socket: PathBuf,
}

impl Control {
    /// Applies one operation; how long it took.
    pub(super) fn apply(&self, operation: &Value) -> Result<Duration> {
        api::post(&self.socket, "/v1/apply", &json!({ "operations": [operation] }))
    }
}

/// Waits until the server says that it is ready.
fn await_ready(socket: &UnixDatagram, started: Instant) -> Result<Duration> {
    let mut buffer = [0; 4096];
    loop {
        let left = PATIENCE.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left))?;
        let count = socket.recv(&mut buffer).context("steadfast does not say that it is ready")?;
        let at = started.elapsed();
        let message = String::from_utf8_lossy(buffer.get(..count).unwrap_or(&[])).into_owned();
        if message.lines().any(|line| line == "READY=1") {
            return Ok(at);
        }
    }
}

/// `RssAnon` of `/proc/PID/status`: what the process has to itself; files that it maps are the
/// kernel's cache.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let status = "Name:\tx\nVmRSS:\t  900 kB\nRssAnon:\t     12 kB\nRssFile:\t 5 kB\n";
        assert_eq!(resident_bytes(status), Some(12_288));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn other_notices_than_readiness_are_passed_over() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let server = UnixDatagram::unbound().expect("a socket");
        for notice in ["WATCHDOG=1", "READY=1\nSTATUS=serving"] {
            server.send_to(notice.as_bytes(), &path).expect("sent");
        }
        assert!(await_ready(&socket, Instant::now()).is_ok());
    }
}
