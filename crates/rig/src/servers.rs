//! Starting and stopping the servers on one directory and port.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::ganesha;
use crate::process::{Process, last_lines};
use crate::workspace;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(20);
const NFS_PORT: u16 = 2049;
/// As many as it can be told; its 1024 would keep virtual clients out.
const GANESHA_CONNECTIONS_MAX: u32 = 10_000;

/// Steadfast's state directory, in the server's scratch directory.
const STATE: &str = "state";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Ganesha,
    Steadfast,
    /// `bench null-server`, which knows one answer.
    Canned,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ganesha => "nfs-ganesha",
            Self::Steadfast => "Steadfast",
            Self::Canned => "canned replies",
        }
    }

    /// What the program says about its version.
    pub(crate) fn version(self) -> Result<String> {
        let (program, argument) = match self {
            Self::Ganesha => (PathBuf::from("ganesha.nfsd"), "-v"),
            Self::Steadfast => (steadfast_program()?, "--version"),
            Self::Canned => return Ok("an empty reply to every call".to_owned()),
        };
        let output = Command::new(&program)
            .arg(argument)
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().unwrap_or("of unknown version").trim();
        Ok(match (self, workspace::commit()) {
            (Self::Steadfast, Some(commit)) => format!("{version}, commit {commit}"),
            _ => version.to_owned(),
        })
    }
}

/// What cargo builds the programs of.
pub(crate) const STEADFAST: &[&str] = &["-p", "steadfast"];
pub(crate) const BENCH: &[&str] = &["-p", "steadfast-bench", "--example", "bench"];

/// The release build.
pub(crate) fn steadfast_program() -> Result<PathBuf> {
    Ok(workspace::target()?.join("release/steadfast"))
}

/// The load generators, and the canned server.
pub(crate) fn bench_program() -> Result<PathBuf> {
    Ok(workspace::target()?.join("release/examples/bench"))
}

/// Which CPUs servers and client run on; `None` leaves it to the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    pub(crate) server: Option<String>,
    pub(crate) client: Option<String>,
}

impl Cpus {
    /// The last CPU for the client, the others for the server.
    pub(crate) fn divide(is_pinned: bool) -> Result<Self> {
        let count = std::thread::available_parallelism()?.get();
        if !is_pinned || count < 2 {
            return Ok(Self { server: None, client: None });
        }
        let server = if count == 2 { "0".to_owned() } else { format!("0-{}", count - 2) };
        Ok(Self { server: Some(server), client: Some((count - 1).to_string()) })
    }

    /// Leaves the server's CPUs alone, in the calling thread.
    pub(crate) fn keep_from_server(&self) -> Result<()> {
        let Some(client) = &self.client else { return Ok(()) };
        let mut set = rustix::thread::CpuSet::new();
        set.set(client.parse().context("the client's CPU")?);
        Ok(rustix::thread::sched_setaffinity(None, &set)?)
    }

    /// Does something on each of the server's CPUs, one after the other.
    pub(crate) fn on_each_of_the_servers<T: Send>(
        &self,
        act: impl Fn() -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let client = self.client.as_ref().map(|cpu| cpu.parse().context("the client's CPU"));
        let client: Option<usize> = client.transpose()?;
        let allowed = rustix::thread::sched_getaffinity(None)?;
        let cpus = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu) && Some(*cpu) != client);
        let on = |cpu| {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            let act = || {
                rustix::thread::sched_setaffinity(None, &set)?;
                act()
            };
            std::thread::scope(|scope| scope.spawn(act).join())
                .map_err(|_| anyhow::anyhow!("a thread on CPU {cpu} has panicked"))?
        };
        cpus.map(on).collect()
    }

    /// A command on these CPUs.
    pub(crate) fn command(cpus: Option<&String>, program: &Path) -> Command {
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
pub(crate) struct Server {
    pub(crate) peer: Peer,
    pub(crate) address: SocketAddr,
    pub(crate) mount_port: u16,
    /// The share's path as clients mount it.
    pub(crate) path: String,
    process: Process,
    /// Steadfast's state directory.
    pub(crate) state: PathBuf,
    /// Configuration and log, and the state unless it has another place.
    _scratch: tempfile::TempDir,
    pub(crate) log: PathBuf,
}

impl Server {
    /// The server's process. `taskset` becomes the server by exec, so it is the child itself.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What Steadfast tells of itself by `steadfast statistics --json`.
    pub(crate) fn statistics(&self) -> Result<serde_json::Value> {
        let output = Command::new(steadfast_program()?)
            .args(["statistics", "--json", "--state-directory"])
            .arg(&self.state)
            .output()
            .context("cannot run steadfast statistics")?;
        if !output.status.success() {
            bail!("steadfast statistics: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Has the kernel give each of Steadfast's workers so much CPU time in each period and no more
    /// (deadline scheduling, which needs root).
    pub(crate) fn hold_workers_to(&self, (time, period): (Duration, Duration)) -> Result<()> {
        let tasks = format!("/proc/{}/task", self.pid());
        for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
            let task = task?;
            // Threads may have ended since.
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if !name.starts_with("worker-") {
                continue;
            }
            let [time, period] = [time, period].map(|span| span.as_nanos().to_string());
            // Threads that it starts are not to be held: they could not be started at all.
            let output = Command::new("chrt")
                .args(["--deadline", "--reset-on-fork", "--sched-runtime", &time])
                .args(["--sched-deadline", &period, "--sched-period", &period, "--pid", "0"])
                .arg(task.file_name())
                .output()
                .context("cannot run chrt")?;
            if !output.status.success() && task.path().exists() {
                bail!("chrt: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
        }
        Ok(())
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.ended().is_ok_and(|status| status.is_some())
    }

    /// Asks it to stop, and waits.
    pub(crate) fn stop(self) -> Result<()> {
        self.process.stop(PATIENCE).map(drop).context(self.peer.name())
    }

    fn await_port(&mut self) -> Result<()> {
        let addresses = [self.address, SocketAddr::new(self.address.ip(), self.mount_port)];
        let answers = self.process.wait_for(PATIENCE, Duration::from_millis(20), || {
            for address in addresses {
                TcpStream::connect(address)?;
            }
            Ok(())
        });
        answers.with_context(|| format!("{}:\n{}", self.peer.name(), self.last_lines()))
    }

    /// How its log ends.
    pub(crate) fn last_lines(&self) -> String {
        last_lines(&self.log, 20)
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Where Steadfast listens, and where every server is asked whether it does.
    pub(crate) address: Ipv4Addr,
    /// Where it serves NFS.
    pub(crate) port: u16,
    /// The CPUs that it runs on.
    pub(crate) cpus: Option<String>,
    /// How many of its workers run at one time; as many as there are CPUs unless told.
    pub(crate) workers: Option<usize>,
    /// How many descriptors it keeps for files; its own choice unless told.
    pub(crate) files: Option<usize>,
    /// What only Steadfast gets.
    pub(crate) own: Own,
}

/// What Steadfast is started with beside what all servers get.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// Another program than the release build.
    pub(crate) program: Option<PathBuf>,
    /// Arguments of `serve` after the configuration.
    pub(crate) arguments: Vec<String>,
    /// Its state directory, there and kept; unless told, one that goes with the server.
    pub(crate) state: Option<PathBuf>,
    /// Options of the share, beside those that it always has.
    pub(crate) share_options: Vec<String>,
    /// Lines for `[server]` of its configuration.
    pub(crate) server_keys: String,
    /// Tables at the end of its configuration.
    pub(crate) tables: String,
}

impl Setup {
    /// On loopback at the usual port, on the servers' CPUs.
    pub(crate) fn usual(cpus: &Cpus) -> Self {
        let (cpus, own) = (cpus.server.clone(), Own::default());
        let address = Ipv4Addr::LOCALHOST;
        Self { address, port: NFS_PORT, cpus, workers: None, files: None, own }
    }
}

/// Starts a server on a directory and waits until it answers.
pub(crate) fn start(peer: Peer, directory: &Path, setup: &Setup) -> Result<Server> {
    let scratch = tempfile::tempdir()?;
    let directory = directory.to_str().context("the directory's path is not UTF-8")?;
    let state = setup.own.state.clone().unwrap_or_else(|| scratch.path().join(STATE));
    let address = SocketAddr::from((setup.address, setup.port));
    let log = scratch.path().join(if peer == Peer::Ganesha { "log" } else { "output" });
    let on_cpus = |program: &Path| Cpus::command(setup.cpus.as_ref(), program);
    let mut mount_port = setup.port;
    let mut command = match peer {
        Peer::Ganesha => {
            let configuration = scratch.path().join("ganesha.conf");
            std::fs::write(&configuration, ganesha_configuration(directory, setup.port))?;
            mount_port = ganesha::MOUNT_PORT;
            let mut command = on_cpus(Path::new(ganesha::PROGRAM));
            ganesha::arguments(&mut command, &configuration, &log, &scratch.path().join("pid"));
            command
        }
        Peer::Steadfast => {
            let configuration = scratch.path().join("steadfast.toml");
            std::fs::create_dir_all(&state)?;
            let text = state.to_str().context("the state directory's path is not UTF-8")?;
            std::fs::write(&configuration, steadfast_configuration(directory, text, setup))?;
            let mut command = match &setup.own.program {
                Some(program) => on_cpus(program),
                None => on_cpus(&steadfast_program()?),
            };
            command.args(["serve", "--config"]).arg(configuration).args(&setup.own.arguments);
            command
        }
        Peer::Canned => {
            let mut command = on_cpus(&bench_program()?);
            command.arg("null-server").arg(address.to_string());
            command
        }
    };
    let output = File::create(scratch.path().join("output"))?;
    let process = Process::start(&mut command, output).context(peer.name())?;
    let path = directory.to_owned();
    let mut server =
        Server { peer, address, mount_port, path, process, state, log, _scratch: scratch };
    server.await_port()?;
    Ok(server)
}

/// The protocols that both serve, and room for many clients.
fn ganesha_configuration(directory: &str, port: u16) -> String {
    let more = format!("RPC_Max_Connections = {GANESHA_CONNECTIONS_MAX};");
    let mut text = ganesha::Configuration { protocols: "3, 4", port, more: &more }.text();
    ganesha::export(&mut text, 1, directory, directory, false, ganesha::Squash::None);
    text
}

fn steadfast_configuration(directory: &str, state: &str, setup: &Setup) -> String {
    let address = SocketAddr::from((setup.address, setup.port));
    let line = |key: &str, number: Option<usize>| {
        number.map_or_else(String::new, |number| format!("{key} = {number}\n"))
    };
    let workers = line("pools", setup.workers.map(|_| 1)) + &line("seats_per_pool", setup.workers);
    let files = line("descriptors_max", setup.files);
    let mut options = vec!["no_root_squash"];
    options.extend(setup.own.share_options.iter().map(String::as_str));
    format!(
        "[server]\nlisten = [\"{address}\"]\nrpcbind = false\n{workers}{files}\
         {}state_directory = {state:?}\n\n[[share]]\npath = {directory:?}\n\
         directory = {directory:?}\nclients = [\"*\"]\noptions = {options:?}\n\n{}",
        setup.own.server_keys, setup.own.tables
    )
}
