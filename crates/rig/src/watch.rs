//! `cargo xtask watch`: what `steadfast watch` captures beside what the real Linux NFS client says.
//!
//! A user-mode-linux guest mounts nfs-ganesha over a tap device, by each version in turn, and works
//! on the mount. `steadfast watch` captures at the host's end. Its counts have to agree with the
//! client's own, in `/proc/self/mountstats`, and a replay of the recorded file with both.
//! `tests/kernel-client/mountstats.sh` is the guest's part.

mod mountstats;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::kernel_client::server::{Kind, Server};
use crate::namespace::{GUEST_ADDRESS, Janitor, Namespace, SERVER_ADDRESS};
use crate::process::Process;
use crate::uml::{self, Guest, Listener};
use crate::{ganesha, kernel_client, packages, workspace};
use mountstats::{Comparison, Counts};

/// Those of `cargo xtask doctor` among them: its server has a slow disk.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "e2fsprogs",
    "fuse3",
    "gcc",
    "iproute2",
    "kmod",
    "libc6-dev",
    "mount",
    "nfs-common",
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "rpcbind",
    "user-mode-linux",
    "util-linux",
];

const VERSIONS: &[&str] = &["3", "4.0", "4.1", "4.2"];
/// For what `steadfast watch` says next.
const PATIENCE: Duration = Duration::from_secs(60);
/// For a guest's whole work.
const GUEST_LIMIT: Duration = Duration::from_secs(600);

const USAGE: &str = "usage: cargo xtask watch [OPTIONS]

  --nfs VERSION    only this one of 3, 4.0, 4.1 and 4.2; may be repeated
  --short          a few operations of each kind instead of some thousands
  --program FILE   a steadfast that is built already
";

struct Options {
    versions: Vec<String>,
    files: u32,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { versions: Vec::new(), files: 100, program: None };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match word.as_str() {
                "--nfs" => {
                    let version = value()?.clone();
                    if !VERSIONS.contains(&version.as_str()) {
                        bail!("--nfs is 3, 4.0, 4.1 or 4.2\n\n{USAGE}");
                    }
                    options.versions.push(version);
                }
                "--short" => options.files = 20,
                "--program" => options.program = Some(value()?.into()),
                "--help" | "-h" => {
                    print!("{USAGE}");
                    std::process::exit(0);
                }
                other => bail!("no option is called {other:?}\n\n{USAGE}"),
            }
        }
        if options.versions.is_empty() {
            options.versions = VERSIONS.iter().map(|&version| version.to_owned()).collect();
        }
        Ok(options)
    }
}

/// Where a run with a guest and nfs-ganesha works.
pub(crate) struct Site {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// `steadfast`.
    pub(crate) program: PathBuf,
    /// For logs, the share, and what host and guest tell each other.
    pub(crate) directory: PathBuf,
}

impl Site {
    /// Installs what is needed, and builds the program unless there is one already.
    pub(crate) fn prepare(command: &str, program: Option<PathBuf>) -> Result<Self> {
        let root = workspace::root()?;
        packages::ensure(PACKAGES)?;
        packages::ensure_guest_modules()?;
        let program = match program {
            Some(program) => std::path::absolute(program)?,
            None => kernel_client::build_steadfast()?,
        };
        let directory = root.join(format!("target/{command}/{}", std::process::id()));
        std::fs::create_dir_all(directory.join("export"))?;
        println!("logs: {}", directory.display());
        Ok(Self { root: root.to_owned(), program, directory })
    }
}

/// The short form, for CI, with a program that is built.
pub fn short(program: &str) -> Result<()> {
    run(&["--short", "--program", program].map(str::to_owned))
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let site = Site::prepare("watch", options.program.clone())?;
    let Site { root, program, directory } = &site;
    let mut janitor = Janitor::start()?;
    let namespace = Namespace::create(&mut janitor)?;
    let _server = start_ganesha(&namespace, directory)?;
    let mut is_equal = true;
    for version in &options.versions {
        let run = Run { namespace: &namespace, root, program, version, directory };
        let comparison = run.run(options.files).with_context(|| format!("NFS {version}"))?;
        print!("{comparison}");
        is_equal &= comparison.agrees();
    }
    if !is_equal {
        bail!("watch and the client do not agree within 1%");
    }
    Ok(())
}

/// Starts nfs-ganesha, with rpcbind, in the namespace; the janitor ends what is left of it.
pub(crate) fn start_ganesha(namespace: &Namespace, directory: &Path) -> Result<Server> {
    let more = "Mount_Path_Pseudo = true;";
    let mut text = ganesha::Configuration { protocols: "3,4", port: 2049, more }.text();
    text.push_str(ganesha::WARNINGS_ONLY);
    let export = directory.join("export").display().to_string();
    ganesha::export(&mut text, 1, &export, "/export", false, ganesha::Squash::None);
    let mut server = Server::new(Kind::Ganesha, ganesha::PROGRAM.into(), directory, &text)?;
    server.start(namespace)?;
    Ok(server)
}

/// One guest with one mount.
struct Run<'a> {
    namespace: &'a Namespace,
    root: &'a Path,
    program: &'a Path,
    version: &'a str,
    directory: &'a Path,
}

impl Run<'_> {
    fn run(&self, files: u32) -> Result<Comparison> {
        let control = self.directory.join(self.version);
        std::fs::create_dir_all(&control)?;
        let mut listener = Listener::new(&control)?;
        let mut guest = self.start(&control, files)?;
        let recorded = control.join("packets.pcapng");
        let mut watching = None;
        let mut total = None;
        let end = guest.follow(&mut listener, GUEST_LIMIT, |line| {
            match line {
                "before" => watching = Some(self.watch(&recorded)?),
                "after" => {
                    let watching = watching.take().context("the capture has not begun")?;
                    total = Some(watching.end()?);
                }
                "done" => return Ok(Some(())),
                other => bail!("the guest: {other}"),
            }
            std::fs::write(control.join(format!("answer-{line}")), "")?;
            Ok(None)
        });
        end.with_context(|| format!("see {}", control.display()))?;
        let total = total.context("nothing was captured")?;
        let client = |moment: &str| -> Result<Counts> {
            let text = std::fs::read_to_string(control.join(format!("mountstats-{moment}")))?;
            mountstats::parse(&text, "/run/nfs")
        };
        let comparison =
            Comparison::new(self.version, &client("before")?, &client("after")?, &total)?;
        let replayed = self.replay(&recorded)?;
        if mountstats::watched(&replayed)? != mountstats::watched(&total)? {
            bail!("a replay of {} shows other counts than the capture", recorded.display());
        }
        std::fs::remove_file(&recorded)?;
        Ok(comparison)
    }

    fn start(&self, control: &Path, files: u32) -> Result<Guest> {
        let mut options = format!("vers={},tcp,port=2049", self.version);
        if self.version == "3" {
            // Without a lock manager beside it.
            options.push_str(",mountport=20048,mountproto=tcp,nolock");
        }
        let words = [
            uml::network(0),
            format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
            format!("CONTROL={}", control.display()),
            format!("NFS_SERVER={SERVER_ADDRESS}"),
            format!("NFS_OPTIONS={options}"),
            format!("NFS_FILES={files}"),
            format!("NFS_LOCKS={}", if self.version == "3" { "no" } else { "yes" }),
        ];
        let init = self.root.join("tests/kernel-client/mountstats.sh");
        let label = format!("watch-{}", self.version);
        let command = self.namespace.command(uml::PROGRAM);
        Guest::start(command, &label, &init, &words, &control.join("guest.log"))
    }

    fn watch(&self, recorded: &Path) -> Result<Watching> {
        let mut child = self
            .namespace
            .command(&self.program.to_string_lossy())
            .args(["watch", "-i", "tap0", "--json", "--interval", "0.5", "--record"])
            .arg(recorded)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start steadfast watch")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // When nobody wants them any more, the rest is not read.
            let _ = lines.try_for_each(|line| sender.send(line));
        });
        let watching = Watching { child: Process(child), lines };
        // It captures from before its first interval.
        watching.next()?.context("steadfast watch has ended at once")?;
        Ok(watching)
    }

    fn replay(&self, recorded: &Path) -> Result<Value> {
        let output = Command::new(self.program)
            .args(["watch", "--json", "--replay"])
            .arg(recorded)
            .output()
            .context("cannot run steadfast watch")?;
        if !output.status.success() {
            bail!("the replay: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// `steadfast watch`, capturing.
struct Watching {
    child: Process,
    /// What it prints is always read: it drops packets while it waits for its reader.
    lines: Receiver<String>,
}

impl Watching {
    fn next(&self) -> Result<Option<Value>> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(serde_json::from_str(&line)?)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("steadfast watch is silent"),
        }
    }

    /// Interrupts it when an interval without a packet has passed; the total.
    fn end(self) -> Result<Value> {
        while let Some(interval) = self.next()? {
            if interval.pointer("/all/calls").and_then(Value::as_u64) == Some(0) {
                break;
            }
        }
        // `ip netns exec` becomes the program: the child is the program itself.
        self.child.signal(rustix::process::Signal::INT)?;
        let mut last = None;
        while let Some(line) = self.next()? {
            last = Some(line);
        }
        let total = last.context("steadfast watch has told no total")?;
        if total.get("kind").and_then(Value::as_str) != Some("total") {
            bail!("the last line of steadfast watch is no total");
        }
        Ok(total)
    }
}
