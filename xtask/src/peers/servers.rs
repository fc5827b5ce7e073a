//! Starting and stopping the servers on one directory and port.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(20);
const NFS_PORT: u16 = 2049;
const GANESHA_MOUNT_PORT: u16 = 20048;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Ganesha,
    Steadfast,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ganesha => "nfs-ganesha",
            Self::Steadfast => "Steadfast",
        }
    }

    /// What the program says about its version.
    pub(super) fn version(self) -> Result<String> {
        let (program, argument) = match self {
            Self::Ganesha => (PathBuf::from("ganesha.nfsd"), "-v"),
            Self::Steadfast => (steadfast_program(), "--version"),
        };
        let output = Command::new(&program)
            .arg(argument)
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().unwrap_or("of unknown version").trim();
        Ok(match (self, super::commit()) {
            (Self::Steadfast, Some(commit)) => format!("{version}, commit {commit}"),
            _ => version.to_owned(),
        })
    }
}

fn steadfast_program() -> PathBuf {
    super::target_directory().join("release/steadfast")
}

/// Which CPUs servers and client run on; `None` leaves it to the kernel.
#[derive(Clone, Debug)]
pub(super) struct Cpus {
    pub(super) server: Option<String>,
    pub(super) client: Option<String>,
}

impl Cpus {
    /// The last CPU for the client, the others for the server.
    pub(super) fn divide(is_pinned: bool) -> Result<Self> {
        let count = std::thread::available_parallelism()?.get();
        if !is_pinned || count < 2 {
            return Ok(Self { server: None, client: None });
        }
        let server = if count == 2 { "0".to_owned() } else { format!("0-{}", count - 2) };
        Ok(Self { server: Some(server), client: Some((count - 1).to_string()) })
    }

    /// A command on these CPUs.
    pub(super) fn command(cpus: Option<&String>, program: &Path) -> Command {
        match cpus {
            None => Command::new(program),
            Some(cpus) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpus]).arg(program);
                command
            }
        }
    }
}

/// A server that runs; ended by its process id when dropped.
pub(super) struct Server {
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
    pub(super) mount_port: u16,
    /// The share's path as clients mount it.
    pub(super) path: String,
    process: Child,
    /// Configuration, state and log.
    _scratch: tempfile::TempDir,
    log: PathBuf,
}

impl Server {
    /// The server's process. `taskset` becomes the server by exec, so it is the child itself.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to stop, and waits.
    pub(super) fn stop(mut self) -> Result<()> {
        self.terminate();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if self.process.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process.kill()?;
        bail!("{} did not stop within {} s of SIGTERM", self.peer.name(), PATIENCE.as_secs())
    }

    fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself; waiting tells.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    fn await_port(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.peer.name(), self.log_tail());
            }
            let mount = SocketAddr::new(self.address.ip(), self.mount_port);
            if TcpStream::connect(self.address).is_ok() && TcpStream::connect(mount).is_ok() {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("{} does not answer:\n{}", self.peer.name(), self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or(&[]).join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended after `stop`; else a measurement failed, and nothing is owed to it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server on a directory and waits until it answers.
pub(super) fn start(peer: Peer, directory: &Path, cpus: &Cpus) -> Result<Server> {
    let scratch = tempfile::tempdir()?;
    let directory = directory.to_str().context("the directory's path is not UTF-8")?;
    let log = scratch.path().join("log");
    let (program, arguments, mount_port) = match peer {
        Peer::Ganesha => {
            let configuration = scratch.path().join("ganesha.conf");
            std::fs::write(&configuration, ganesha_configuration(directory))?;
            let arguments = vec![
                "-F".into(),
                "-f".into(),
                configuration,
                "-L".into(),
                log.clone(),
                "-p".into(),
                scratch.path().join("pid"),
            ];
            (PathBuf::from("ganesha.nfsd"), arguments, GANESHA_MOUNT_PORT)
        }
        Peer::Steadfast => {
            let configuration = scratch.path().join("steadfast.toml");
            let state = scratch.path().join("state");
            std::fs::create_dir(&state)?;
            let state = state.to_str().context("the temporary path is not UTF-8")?;
            std::fs::write(&configuration, steadfast_configuration(directory, state))?;
            let arguments = vec!["serve".into(), "--config".into(), configuration];
            (steadfast_program(), arguments, NFS_PORT)
        }
    };
    let output = File::create(scratch.path().join("output"))?;
    let process = Cpus::command(cpus.server.as_ref(), &program)
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {}", peer.name()))?;
    let log = if peer == Peer::Ganesha { log } else { scratch.path().join("output") };
    let mut server = Server {
        peer,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT)),
        mount_port,
        path: directory.to_owned(),
        process,
        _scratch: scratch,
        log,
    };
    server.await_port()?;
    Ok(server)
}

/// The protocols that both serve; everything else as ganesha has it by default.
fn ganesha_configuration(directory: &str) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {GANESHA_MOUNT_PORT}; \
         Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {directory}; Pseudo = {directory}; Access_Type = RW; \
         Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}\n"
    )
}

fn steadfast_configuration(directory: &str, state: &str) -> String {
    format!(
        "[server]\nlisten = [\"127.0.0.1:{NFS_PORT}\"]\nrpcbind = false\n\
         state_directory = {state:?}\n\n[[share]]\npath = {directory:?}\n\
         directory = {directory:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n"
    )
}
