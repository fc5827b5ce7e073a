//! Steadfast and nfs-ganesha on the same directory, measured in turn:
//! `cargo xtask peers [--suite calls|nfs4|thousands] [--seconds N] [--rounds N] [--directory DIR]
//! [--unpinned] [--rows TEXT] [--evidence-only] [--only ganesha]`.
//!
//! The suite `calls`, which is meant unless another is named, has the kinds of calls and what
//! they promise; `nfs4` NFSv4.1 beside NFSv3 of the same server; `thousands` ([`thousands`]) many clients, CPU time, overload, streams.
//!
//! Both run in a network, mount and process namespace of their own, which this command enters by
//! running itself under `unshare`; when it ends, however it ends, the kernel ends what is left
//! inside. Each round starts each server once, the order alternating, and measures every row;
//! the report has the medians over the rounds. The load comes from `steadfast-bench`, which
//! checks every reply, as a release build and a process of its own.

mod evidence;
mod load;
mod report;
mod thousands;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::namespace::call;
use crate::servers::{self, Peer, Setup};
use crate::workspace::target;
use crate::{isolation, workspace};
use load::{ROWS, ROWS_OF_4};
use report::{Findings, Measurement};

/// Set for the copy of this program that runs inside the namespaces.
const INSIDE: &str = "STEADFAST_PEERS_INSIDE";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suite {
    Calls,
    Nfs4,
    Thousands,
}

impl Suite {
    /// Its rows, if it has such.
    fn rows(self) -> &'static [load::Row] {
        match self {
            Self::Calls => ROWS,
            Self::Nfs4 => ROWS_OF_4,
            Self::Thousands => &[],
        }
    }

    /// What its reports are called.
    fn name(self) -> &'static str {
        match self {
            Self::Calls => "peers",
            Self::Nfs4 => "peers-nfs4",
            Self::Thousands => "peers-thousands",
        }
    }
}

/// What the command line says.
struct Options {
    suite: Suite,
    seconds: f64,
    rounds: usize,
    directory: Option<PathBuf>,
    is_pinned: bool,
    peers: Vec<Peer>,
    evidence_only: bool,
    /// Only rows whose title contains this.
    rows: String,
    /// Inodes of the tree that is walked.
    inodes: usize,
}

impl Options {
    fn rows(&self) -> impl Iterator<Item = &'static load::Row> {
        self.suite.rows().iter().filter(|row| row.title.contains(&self.rows))
    }
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            suite: Suite::Calls,
            seconds: 2.0,
            rounds: 3,
            directory: None,
            is_pinned: true,
            peers: vec![Peer::Ganesha, Peer::Steadfast],
            evidence_only: false,
            rows: String::new(),
            inodes: 119_000,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--directory" => options.directory = Some(value()?.into()),
                "--unpinned" => options.is_pinned = false,
                "--suite" => {
                    options.suite = match value()?.as_str() {
                        "calls" => Suite::Calls,
                        "nfs4" => Suite::Nfs4,
                        "thousands" => Suite::Thousands,
                        other => bail!("--suite calls, nfs4 or thousands, not {other:?}"),
                    };
                }
                "--inodes" => options.inodes = value()?.parse().context("--inodes")?,
                "--rows" => options.rows.clone_from(value()?),
                "--evidence-only" => options.evidence_only = true,
                "--only" => {
                    options.peers = match value()?.as_str() {
                        "ganesha" => vec![Peer::Ganesha],
                        "steadfast" => vec![Peer::Steadfast],
                        other => bail!("--only ganesha or --only steadfast, not {other:?}"),
                    };
                }
                _ => bail!(
                    "unknown option {word:?}; there are --suite calls|nfs4|thousands, --seconds N, \
                     --rounds N, --directory DIR (on the file system to be measured), --unpinned, \
                     --rows TEXT (in their titles), --only ganesha|steadfast, --evidence-only (of \
                     calls), --inodes N (of the tree of thousands)"
                ),
            }
        }
        if options.inodes < 3 {
            bail!("--inodes at least 3");
        }
        if !(0.1..=600.0).contains(&options.seconds) || !(1..=99).contains(&options.rounds) {
            bail!("--seconds between 0.1 and 600, --rounds between 1 and 99");
        }
        Ok(options)
    }
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    if std::env::var_os(INSIDE).is_some() {
        return inside(&options);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may make namespaces and trace servers: run this as root");
    }
    crate::packages::ensure(&["nfs-ganesha", "nfs-ganesha-vfs", "rpcbind", "strace", "iproute2"])?;
    build(&options)?;
    let mut measuring = isolation::command();
    measuring.arg(std::env::current_exe()?).arg("peers").args(arguments).env(INSIDE, "1");
    isolation::wait_for(&mut measuring, "the measurement")
}

fn build(options: &Options) -> Result<()> {
    workspace::build_release(servers::BENCH)?;
    if options.peers.contains(&Peer::Steadfast) {
        workspace::build_release(servers::STEADFAST)?;
    }
    Ok(())
}

/// The part that runs inside the namespaces.
fn inside(options: &Options) -> Result<()> {
    isolation::end_with_standard_input()?;
    call("ip", &["link", "set", "lo", "up"])?;
    // Sockets and process ids of servers elsewhere on the machine stay theirs.
    call("mount", &["-t", "tmpfs", "tmpfs", "/run"])?;
    std::fs::create_dir_all("/run/ganesha")?;
    call("rpcbind", &["-w"])?;

    let target = target()?;
    let base = options.directory.clone().unwrap_or_else(|| target.join("peers-data"));
    std::fs::create_dir_all(&base)?;
    let base = base.canonicalize()?;
    let cpus = servers::Cpus::divide(options.is_pinned)?;
    match options.suite {
        Suite::Calls | Suite::Nfs4 => calls(options, &base, &cpus),
        Suite::Thousands => thousands::measure(options, &base, &cpus),
    }
}

/// The suites `calls` and `nfs4`.
fn calls(options: &Options, base: &Path, cpus: &servers::Cpus) -> Result<()> {
    let target = target()?;
    let setup = Setup::usual(cpus);
    let mut findings = Findings::new(options, base, cpus)?;
    if !options.evidence_only {
        for round in 0..options.rounds {
            let mut order = options.peers.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for peer in order {
                eprintln!("round {} of {}: {}", round + 1, options.rounds, peer.name());
                let directory = fresh(base, "share")?;
                let server = servers::start(peer, &directory, &setup)?;
                for row in options.rows() {
                    let result = load::measure(&server, row, options.seconds, cpus)
                        .with_context(|| format!("{} by {}", row.title, peer.name()))?;
                    eprintln!(
                        "  {:<28} {:>9.0} calls/s  {:>8.1} server µs",
                        row.title, result.calls_per_second, result.server_us
                    );
                    findings.measurements.push(Measurement { peer, row: row.title, result });
                }
                server.stop()?;
            }
        }
    }
    let is_of_calls = options.suite == Suite::Calls;
    let wants_evidence = is_of_calls && (options.evidence_only || options.rows.is_empty());
    for peer in options.peers.iter().filter(|_| wants_evidence) {
        let directory = fresh(base, "share")?;
        eprintln!("counting sync calls: {}", peer.name());
        let server = servers::start(*peer, &directory, &setup)?;
        findings.evidence.extend(evidence::collect(&server, cpus)?);
        server.stop()?;
    }
    std::fs::remove_dir_all(base.join("share"))?;
    let markdown = findings.markdown();
    let name = options.suite.name();
    std::fs::write(target.join(name).with_extension("md"), &markdown)?;
    std::fs::write(target.join(name).with_extension("json"), findings.json()?)?;
    println!("{markdown}");
    println!("Written to target/{name}.md and target/{name}.json.");
    match findings.misses() {
        0 => Ok(()),
        count => bail!("goals missed: {count}"),
    }
}

/// A directory to be served, empty.
fn fresh(base: &Path, name: &str) -> Result<PathBuf> {
    let directory = base.join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    std::fs::create_dir(&directory)?;
    // ext4 passes over inodes that were freed in the last minutes, one by one, and puts new files
    // into their directory's block group: creating after many removals, of this server or the
    // one before, costs ten times as much. With this flag directories begin in groups of their
    // own. Other file systems need and know no such flag.
    let _ = Command::new("chattr").arg("+T").arg(&directory).stderr(Stdio::null()).status();
    // Nothing that an earlier server left dirty is to be written while this one is measured.
    rustix::fs::sync();
    Ok(directory)
}
