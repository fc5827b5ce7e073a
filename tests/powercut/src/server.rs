//! The server under test, as a process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, RpcConnection, mount};

const NFS_PORT: u16 = 2049;
const GANESHA_MOUNT_PORT: u16 = 20048;
/// How long a server may take to start, with a log to replay on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long it may reset connections after that.
const RECONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long it may take to answer a call.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ours.
    Steadfast,
    /// nfs-ganesha with its VFS back end, which is known to lose names.
    Ganesha,
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "steadfast" => Ok(Self::Steadfast),
            "ganesha" => Ok(Self::Ganesha),
            other => bail!("no server {other:?}: steadfast or ganesha"),
        }
    }
}

/// How a server is started, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    /// Steadfast's program.
    pub(crate) program: PathBuf,
    /// What is served.
    pub(crate) share: PathBuf,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// For configuration and log.
    pub(crate) scratch: PathBuf,
    /// What is added to Steadfast's configuration; `{state}` and `{log}` stand for directories.
    pub(crate) configuration: String,
}

/// A server that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    log: PathBuf,
    /// Where in its log it began.
    said_before: u64,
    mount_port: u16,
    share: PathBuf,
}

/// Where a server serves NFS: in a network of its own.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT))
}

impl Setup {
    /// Starts the server and waits until it takes connections.
    pub(crate) fn start(&self) -> Result<Server> {
        let mut server = self.launch()?;
        server.await_ports()?;
        Ok(server)
    }

    /// Whether the server has an intent log.
    pub(crate) fn is_logged(&self) -> bool {
        self.configuration.contains("[log]")
    }

    /// How much servers have written to their log.
    pub(crate) fn said(&self) -> u64 {
        self.scratch.join("server.log").metadata().map_or(0, |log| log.len())
    }

    /// Starts the server; it may not have begun to do anything.
    pub(crate) fn launch(&self) -> Result<Server> {
        let log = self.scratch.join("server.log");
        let (program, arguments, mount_port) = match self.kind {
            Kind::Steadfast => {
                let file = self.scratch.join("steadfast.toml");
                std::fs::write(&file, self.steadfast_configuration())?;
                (self.program.clone(), vec!["serve".into(), "--config".into(), file], NFS_PORT)
            }
            Kind::Ganesha => {
                let file = self.scratch.join("ganesha.conf");
                std::fs::write(&file, self.ganesha_configuration())?;
                let arguments = vec![
                    "-F".into(),
                    "-f".into(),
                    file,
                    "-L".into(),
                    log.clone(),
                    "-p".into(),
                    self.scratch.join("ganesha.pid"),
                ];
                ("ganesha.nfsd".into(), arguments, GANESHA_MOUNT_PORT)
            }
        };
        let output = File::options().create(true).append(true).open(&log)?;
        let said_before = output.metadata()?.len();
        let process = Command::new(&program)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Server { process, log, said_before, mount_port, share: self.share.clone() })
    }

    fn steadfast_configuration(&self) -> String {
        let (share, state) = (self.share.display(), self.state.display());
        let address = address();
        let more = if self.is_logged() {
            self.configuration.replace("{state}", &state.to_string())
        } else {
            format!("{}\n[log]\nenabled = false\n", self.configuration)
        };
        format!(
            "[server]\nlisten = [\"{address}\"]\nrpcbind = false\nstate_directory = \"{state}\"\n\
             \n[[share]]\npath = \"{share}\"\ndirectory = \"{share}\"\nclients = [\"*\"]\n\
             options = [\"no_root_squash\"]\n\n{more}"
        )
    }

    fn ganesha_configuration(&self) -> String {
        let share = self.share.display();
        format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {NFS_PORT}; \
             MNT_Port = {GANESHA_MOUNT_PORT}; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
             LOG {{ Default_Log_Level = WARN; }}\n\
             EXPORT {{ Export_Id = 1; Path = {share}; Pseudo = {share}; Access_Type = RW; \
             Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}\n"
        )
    }
}

impl Server {
    /// # Errors
    /// If it has not said that it makes its log stable by flushing the device.
    pub(crate) fn require_flushed_device(&self) -> Result<()> {
        let log = std::fs::read(&self.log)?;
        let is_told = String::from_utf8_lossy(&log).contains("with a flush of its device");
        if is_told { Ok(()) } else { bail!("the server does not flush its log's device by itself") }
    }

    fn await_ports(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            let mount = SocketAddr::new(address().ip(), self.mount_port);
            if TcpStream::connect(address()).is_ok() && TcpStream::connect(mount).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("the server ended with {status}; its log ends:\n{}", tail(&self.log));
            }
            if started.elapsed() > START_LIMIT {
                bail!("the server does not answer; its log ends:\n{}", tail(&self.log));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Mounts the share.
    pub(crate) fn mount(&self) -> Result<(Nfs3Client<RpcConnection>, FileHandle)> {
        let started = Instant::now();
        loop {
            match self.try_mount() {
                // A server that has just begun to listen may reset a connection or two; clients
                // connect again.
                Err(ClientError::Closed | ClientError::Io(_))
                    if started.elapsed() < RECONNECT_LIMIT =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return Ok(other?),
            }
        }
    }

    fn try_mount(&self) -> Result<(Nfs3Client<RpcConnection>, FileHandle), ClientError> {
        let mount = SocketAddr::new(address().ip(), self.mount_port);
        let path = self.share.as_os_str().as_encoded_bytes();
        let mut connection = RpcConnection::connect(mount, CALL_LIMIT)?;
        let root = mount::mnt(&mut connection, &Identity::root(), path)?.handle;
        if self.mount_port != NFS_PORT {
            connection = RpcConnection::connect(address(), CALL_LIMIT)?;
        }
        Ok((Nfs3Client::new(connection, Identity::root()), root))
    }

    /// Whether it has ended by itself, and how its log ends.
    pub(crate) fn has_ended(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok()??;
        Some(format!("the server ended with {status}; its log ends:\n{}", tail(&self.log)))
    }

    /// What it has written to its log since it was started.
    pub(crate) fn said(&self) -> String {
        self.said_from(self.said_before)
    }

    /// What it and those before it have written to their log from a place on.
    pub(crate) fn said_from(&self, place: u64) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let from = log.get(place as usize..).unwrap_or(&[]);
        String::from_utf8_lossy(from).into_owned()
    }

    /// Ends it in an orderly way.
    pub(crate) fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let started = Instant::now();
        while self.process.try_wait()?.is_none() {
            if started.elapsed() > STOP_LIMIT {
                bail!("the server does not stop; its log ends:\n{}", tail(&self.log));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Ends it at once, as `kill -9` does.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended before, or nothing is owed to it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn tail(log: &Path) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or(&[]).join("\n")
}
