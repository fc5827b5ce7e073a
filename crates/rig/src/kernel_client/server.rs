//! The server under test: written a configuration, started inside the namespace, killed and
//! started again when a case asks for it.

use std::fmt;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Options;
use super::storage::Storage;
use crate::ganesha::{self, Squash};
use crate::namespace::{Namespace, SERVER_ADDRESS};
use crate::process::{last_lines, wait_for};

const NFS_PORT: u16 = 2049;
/// What stands in for /run and /var/lib/nfs, in the directory of a run.
const DIRECTORY: &str = "server";
const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// The servers that the suite knows how to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ours.
    Steadfast,
    /// Debian's nfs-ganesha, FSAL VFS: shows whether a case is fair.
    Ganesha,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Steadfast => "steadfast",
            Self::Ganesha => "ganesha",
        })
    }
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

/// A server process and how to start it again.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    binary: PathBuf,
    /// Stands in for /run and /var/lib/nfs, so that parallel runs do not meet there.
    directory: PathBuf,
    configuration: PathBuf,
    log: PathBuf,
    running: Option<Child>,
    rpcbind: Option<Child>,
}

impl Server {
    /// The server of a suite, with its shares; starts nothing.
    pub(super) fn of_suite(
        binary: PathBuf,
        run: &Path,
        storage: &Storage,
        options: &Options,
    ) -> Result<Self> {
        let text = match options.server {
            Kind::Steadfast => steadfast_configuration(&run.join(DIRECTORY), storage, options)?,
            Kind::Ganesha => ganesha_configuration(storage)?,
        };
        Self::new(options.server, binary, run, &text)
    }

    /// Writes the configuration; starts nothing.
    pub(crate) fn new(kind: Kind, binary: PathBuf, run: &Path, text: &str) -> Result<Self> {
        let directory = run.join(DIRECTORY);
        for part in ["run/rpcbind", "run/ganesha", "var/ganesha", "state"] {
            std::fs::create_dir_all(directory.join(part))?;
        }
        let name = match kind {
            Kind::Steadfast => "steadfast.toml",
            Kind::Ganesha => "ganesha.conf",
        };
        let configuration = directory.join(name);
        std::fs::write(&configuration, text)?;
        let log = run.join("server.log");
        let (running, rpcbind) = (None, None);
        Ok(Self { kind, binary, directory, configuration, log, running, rpcbind })
    }

    /// Mount options that spare the client the port mapper.
    pub(crate) fn port_options(&self, nfs: &str) -> String {
        // Which has no protocol beside it.
        if !["2", "3"].contains(&nfs) {
            return format!("port={NFS_PORT}");
        }
        let mount_port = match self.kind {
            Kind::Steadfast => NFS_PORT,
            Kind::Ganesha => ganesha::MOUNT_PORT,
        };
        format!("port={NFS_PORT},mountport={mount_port}")
    }

    /// Starts the server and waits until it answers NFSv3's NULL.
    pub(crate) fn start(&mut self, namespace: &Namespace) -> Result<()> {
        self.start_with(namespace, &[])
    }

    fn start_with(&mut self, namespace: &Namespace, arguments: &[&str]) -> Result<()> {
        if self.kind == Kind::Ganesha && self.rpcbind.is_none() {
            self.rpcbind = Some(self.spawn(namespace, "exec rpcbind -w -f")?);
            // Its warm start file and sockets are in the directory that stands in for /run.
            wait_for(START_LIMIT, PAUSE, || namespace.enter(|| connect(111)))
                .context("rpcbind does not listen")?;
        }
        let binary = self.binary.display();
        let configuration = self.configuration.display();
        let command = match self.kind {
            Kind::Steadfast => {
                let words = arguments.join("' '");
                let more = if arguments.is_empty() { words } else { format!("'{words}'") };
                format!("exec '{binary}' serve --config '{configuration}' {more}")
            }
            Kind::Ganesha => {
                format!("exec {binary} -F -f '{configuration}' -L /dev/stderr -p /run/ganesha/pid")
            }
        };
        let mut child = self.spawn(namespace, &command)?;
        let answered = wait_for(START_LIMIT, PAUSE, || {
            if let Some(status) = child.try_wait()? {
                // Not worth waiting for the limit: say what it said.
                return Ok(Err(status));
            }
            namespace.enter(call_null).map(Ok)
        });
        self.running = Some(child);
        match answered {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("the server ended at once: {status}; {}", self.last_words()),
            Err(error) => Err(error.context(format!("no answer; {}", self.last_words()))),
        }
    }

    fn spawn(&self, namespace: &Namespace, command: &str) -> Result<Child> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let directory = self.directory.display();
        let script = match (namespace.has_own_mounts(), self.kind) {
            (true, _) => format!(
                "mount --bind '{directory}/run' /run && mkdir -p /var/lib/nfs && \
                 mount --bind '{directory}/var' /var/lib/nfs && {command}"
            ),
            // It keeps everything in its state directory.
            (false, Kind::Steadfast) => command.to_owned(),
            (false, Kind::Ganesha) => bail!(
                "this root directory is no mount point, so that the server cannot have a /run of \
                 its own: mount --bind DIR DIR before chroot DIR"
            ),
        };
        let mut all = namespace.command("/bin/sh");
        all.args(["-c", &script]).stdin(Stdio::null());
        all.stdout(log.try_clone()?).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut all, 0);
        all.spawn().context("cannot start the server")
    }

    /// Runs `steadfast` with these arguments, for the running server, and returns what it prints.
    pub(crate) fn manage(&self, namespace: &Namespace, arguments: &[&str]) -> Result<String> {
        if self.kind != Kind::Steadfast {
            bail!("only steadfast is managed while it runs");
        }
        let mut command = namespace.command(&self.binary.to_string_lossy());
        command.args(arguments).arg("--state-directory").arg(self.directory.join("state"));
        let output = command.stdin(Stdio::null()).output().context("cannot run steadfast")?;
        if !output.status.success() {
            bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("steadfast prints no text")
    }

    /// A total by its name, as the running server counts it now.
    pub(crate) fn statistic(&self, namespace: &Namespace, name: &str) -> Result<u64> {
        let text = self.manage(namespace, &["statistics", "--json"])?;
        let document: serde_json::Value = serde_json::from_str(&text)?;
        let value =
            document.pointer(&format!("/server/{name}")).and_then(serde_json::Value::as_u64);
        value.with_context(|| format!("the server counts no {name}"))
    }

    /// Ends the server, starts it again with further arguments, and returns the mount lines that it
    /// prints.
    pub(crate) fn serve_with(
        &mut self,
        namespace: &Namespace,
        arguments: &[&str],
    ) -> Result<Vec<String>> {
        if self.kind != Kind::Steadfast {
            bail!("only steadfast prints mount lines");
        }
        self.stop()?;
        let before = std::fs::metadata(&self.log)?.len();
        self.start_with(namespace, arguments)?;
        let printed = wait_for(START_LIMIT, PAUSE, || {
            let log = std::fs::read(&self.log)?;
            let new = String::from_utf8_lossy(log.get(before as usize..).unwrap_or_default());
            // Said after the lines.
            new.contains("serving at").then(|| new.into_owned()).context("it prints no lines")
        })?;
        let lines = printed.lines().map(str::trim).filter(|line| line.starts_with("mount "));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut child = self.running.take().context("the server does not run")?;
        if let Some(status) = child.try_wait()? {
            bail!("the server had ended by itself: {status}; {}", self.last_words());
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Ends it as a crash would, and takes away what only outlives a process and not a power cut.
    pub(crate) fn lose_state(&mut self) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        if self.kind != Kind::Steadfast {
            bail!("only steadfast's state can be taken away");
        }
        self.kill()?;
        let state_directory = self.directory.join("state");
        let found = std::fs::metadata(&state_directory)?;
        let mut taken_away = 0;
        for what in ["state", "begun"] {
            let name = format!("steadfast-{what}-{:x}-{:x}", found.dev(), found.ino());
            let in_memory = [self.directory.join("run"), "/run".into(), "/dev/shm".into()];
            let places = in_memory.iter().map(|place| place.join(&name));
            for place in places.chain([state_directory.join(what)]) {
                if place.is_dir() {
                    std::fs::remove_dir_all(&place)?;
                    taken_away += 1;
                }
            }
        }
        if taken_away == 0 {
            bail!("the server has kept no state of clients");
        }
        Ok(())
    }

    /// What the server has logged of the last lock that it refused for no other's.
    pub(crate) fn refused_lock(&self) -> Result<Option<String>> {
        let bytes = std::fs::read(&self.log).context("the server's log")?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().rfind(|line| line.contains("was refused LOCK")).map(str::to_owned))
    }

    /// Fails when the server has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let status = match self.running.as_mut() {
            Some(child) => child.try_wait()?,
            None => return Ok(()),
        };
        match status {
            Some(status) => bail!("the server ended by itself: {status}; {}", self.last_words()),
            None => Ok(()),
        }
    }

    /// Asks it to end by SIGTERM, and expects that it does.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.check_alive()?;
        let mut child = self.running.take().context("the server does not run")?;
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let ended = wait_for(STOP_LIMIT, PAUSE, || child.try_wait()?.context("it still runs"));
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => bail!("after SIGTERM the server ended with {status}"),
            Err(_) => {
                child.kill()?;
                child.wait()?;
                bail!("the server did not end within {} s of SIGTERM", STOP_LIMIT.as_secs())
            }
        }
    }

    fn last_words(&self) -> String {
        format!("its log, {}, ends with:\n{}", self.log.display(), last_lines(&self.log, 5))
    }
}

fn steadfast_configuration(
    directory: &Path,
    storage: &Storage,
    options: &Options,
) -> Result<String> {
    let Options { nfs, delegations, .. } = options;
    // A guest opens files on the server as a process of this machine, and stands still meanwhile: it would wait for a
    // delegation of its own.
    let local_guard = if options.is_guarded { "required" } else { "none" };
    let (nfs2, nfs4) = (nfs == "2", !["2", "3"].contains(&nfs.as_str()));
    let mut text = format!(
        "[server]\nnfs2 = {nfs2}\nnfs4 = {nfs4}\ndelegations = \"{delegations}\"\nlocal_guard = \"{local_guard}\"\n\
         listen = [\"{SERVER_ADDRESS}:{NFS_PORT}\"]\nstate_directory = \"{}\"\n\
         \n[log]\nsize_mib = 32\n",
        directory.join("state").display()
    );
    for share in storage.shares() {
        let mut options = vec![if share.is_read_only { "ro" } else { "rw" }.to_owned()];
        match share.squash {
            Squash::None => options.push("no_root_squash".to_owned()),
            Squash::Root => options.push("root_squash".to_owned()),
            Squash::All(uid, gid) => {
                options.push("all_squash".to_owned());
                options.push(format!("anonuid={uid}"));
                options.push(format!("anongid={gid}"));
            }
        }
        let options: Vec<String> = options.iter().map(|option| format!("\"{option}\"")).collect();
        write!(
            text,
            "\n[[share]]\npath = \"{}\"\ndirectory = \"{}\"\noptions = [{}]\n\
             clients = [\"10.77.0.0/24\", \"fd77::/64\"]\n",
            share.path,
            share.directory.display(),
            options.join(", ")
        )?;
    }
    Ok(text)
}

fn ganesha_configuration(storage: &Storage) -> Result<String> {
    let more = "Mount_Path_Pseudo = true;";
    let mut text = ganesha::Configuration { protocols: "3", port: NFS_PORT, more }.text();
    text.push_str(ganesha::WARNINGS_ONLY);
    for (index, share) in storage.shares().iter().enumerate() {
        let directory = share.directory.to_str().context("a share's path is not UTF-8")?;
        let (path, is_read_only) = (&share.path, share.is_read_only);
        ganesha::export(&mut text, index + 1, directory, path, is_read_only, share.squash);
    }
    Ok(text)
}

fn connect(port: u16) -> Result<()> {
    TcpStream::connect((SERVER_ADDRESS, port))?;
    Ok(())
}

/// The bit of a record mark that says that no fragment follows (RFC 5531 §11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// One NULL call of NFSv3, written by hand so that a fault in our own client cannot hide one
/// in the server.
fn call_null() -> Result<()> {
    let mut stream = TcpStream::connect((SERVER_ADDRESS, NFS_PORT))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let xid = 0x7374_6561;
    let words: [u32; 11] = [
        LAST_FRAGMENT + 40, // bytes
        xid,
        0, // CALL
        2, // RPC version
        100_003,
        3,
        0, // NULL
        0, // AUTH_NONE, no bytes; twice: credential and verifier
        0,
        0,
        0,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    stream.write_all(&bytes)?;
    let mut reply = [0; 28];
    stream.read_exact(&mut reply)?;
    let words: Vec<u32> = reply
        .chunks_exact(4)
        .map(|chunk| u32::from_be_bytes(chunk.try_into().unwrap_or_default()))
        .collect();
    // Record mark, xid, REPLY, accepted, verifier (two words), SUCCESS.
    if words == [LAST_FRAGMENT + 24, xid, 1, 0, 0, 0, 0] {
        return Ok(());
    }
    bail!("NULL was answered with {words:x?}")
}
