//! What the intent log costs and gains, measured, with tables and plots for `docs/durability.md`:
//! `cargo xtask durability [--section NAME]... [--rounds N] [--seconds S] [--file-system ext4|xfs]
//! [--pinned] [--print]`.
//!
//! Each section measures one promise, by Steadfast with and without its log on the same disk, one
//! after the other in rounds of alternating order; it sets up its own disks and removes them:
//!
//! - `fast`: log and data on this machine's disk, beside bare writes and nfs-ganesha;
//! - `slow`: data on a disk that takes 5 ms a write;
//! - `fast-ext4`, `slow-ext4`: the same two with the data on ext4, whatever `--file-system` says;
//! - `memory`: the log in memory, beside a server that acknowledges without any flush; always on
//!   other CPUs than the load generator;
//! - `figure2`, `figure3`: what Legato's paper showed of Prestoserve, on a disk of 35 writes a second;
//! - `writes`: writes that reach the data's disk;
//! - `streams`: large unstable WRITEs with COMMIT;
//! - `applications`: SQLite and PostgreSQL in the kernel client's guest, on a slow disk.
//!
//! All of it runs in network, mount and process namespaces of its own, which this command enters by
//! running itself under `unshare`; when it ends, however it ends, the kernel takes servers, mounts
//! and loop devices away.

mod applications;
mod figures;
mod rates;
mod streams;
mod writes;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::disk::FileSystem;
use crate::namespace::call;
use crate::report::{Findings, Sections};
use crate::servers::{self, Cpus, Own, Peer, Server, Setup};
use crate::workspace::{self, target};
use crate::{isolation, packages};

/// Set for the copy of this program that runs inside the namespaces.
const INSIDE: &str = "STEADFAST_DURABILITY_INSIDE";
const PACKAGES: &[&str] = &[
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "rpcbind",
    "iproute2",
    "e2fsprogs",
    "xfsprogs",
    "fuse3",
    "util-linux",
    "mount",
];
/// The server that acknowledges without any flush.
const UNSAFE_PROGRAM: &str = "release/steadfast-unsafe-async";

/// A section of the report.
struct Section {
    name: &'static str,
    /// Of the data, whatever is usual.
    file_system: Option<FileSystem>,
    /// Whether servers are always kept from the load generator's CPU.
    is_pinned: bool,
    measure: fn(&Site<'_>) -> Result<Findings>,
}

const SECTIONS: &[Section] = &[
    section("fast", rates::fast),
    Section { file_system: Some(FileSystem::Ext4), ..section("fast-ext4", rates::fast) },
    section("slow", rates::slow),
    Section { file_system: Some(FileSystem::Ext4), ..section("slow-ext4", rates::slow) },
    // What the log costs the server, and not what the kernel does meanwhile with what was written.
    Section { is_pinned: true, ..section("memory", rates::memory) },
    section("figure2", figures::figure2),
    section("figure3", figures::figure3),
    section("writes", writes::measure),
    section("streams", streams::measure),
    section("applications", applications::measure),
];

const fn section(name: &'static str, measure: fn(&Site<'_>) -> Result<Findings>) -> Section {
    Section { name, file_system: None, is_pinned: false, measure }
}

/// What the command line says.
#[derive(Debug)]
struct Options {
    /// Of all sections, if none is named.
    sections: Vec<String>,
    rounds: usize,
    /// How long each row is measured in each round.
    seconds: f64,
    is_pinned: bool,
    /// Of the data, where a section has no other.
    file_system: FileSystem,
    /// The documentation stays as it is.
    prints_only: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            sections: Vec::new(),
            rounds: 5,
            seconds: 2.0,
            is_pinned: false,
            file_system: FileSystem::Xfs,
            prints_only: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--section" => options.sections.push(value()?.clone()),
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
                "--pinned" => options.is_pinned = true,
                "--file-system" => {
                    options.file_system = match value()?.as_str() {
                        "ext4" => FileSystem::Ext4,
                        "xfs" => FileSystem::Xfs,
                        other => bail!("--file-system ext4 or --file-system xfs, not {other:?}"),
                    };
                }
                "--print" => options.prints_only = true,
                _ => bail!(
                    "unknown option {word:?}; there are --section NAME (again for more), \
                     --rounds N, --seconds S, --file-system ext4|xfs, --pinned (servers on other CPUs \
                     than the load generator), --print (leave docs/ as it is)"
                ),
            }
        }
        let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        if let Some(unknown) = options.sections.iter().find(|name| !names.contains(&name.as_str()))
        {
            bail!("no section is called {unknown:?}; there are {}", names.join(", "));
        }
        if !(0.1..=60.0).contains(&options.seconds) || !(1..=99).contains(&options.rounds) {
            bail!("--seconds between 0.1 and 60, --rounds between 1 and 99");
        }
        Ok(options)
    }

    fn sections(&self) -> impl Iterator<Item = &'static Section> {
        SECTIONS.iter().filter(|section| self.wants(section.name))
    }

    fn wants(&self, name: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|wanted| wanted == name)
    }
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    if std::env::var_os(INSIDE).is_some() {
        return inside(&options);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may mount, and make loop devices and namespaces: run this as root");
    }
    packages::ensure(PACKAGES)?;
    if options.wants("applications") {
        packages::ensure(applications::PACKAGES)?;
    }
    build(&options)?;
    isolation::run("durability", arguments, INSIDE, &top()?)
}

fn build(options: &Options) -> Result<()> {
    if options.wants("memory") {
        let unsafe_async = ["-p", "steadfast", "--features", "unsafe-async"];
        workspace::build_release(&unsafe_async)?;
        let target = target()?;
        std::fs::copy(target.join("release/steadfast"), target.join(UNSAFE_PROGRAM))?;
    }
    workspace::build_release(servers::STEADFAST)?;
    workspace::build_release(servers::BENCH)
}

/// The directory for images and logs on this machine's disk.
fn top() -> Result<PathBuf> {
    let top = target()?.join("durability");
    std::fs::create_dir_all(&top)?;
    Ok(top.canonicalize()?)
}

/// Where everything is measured.
struct Site<'o> {
    options: &'o Options,
    /// Of the data, where not both are measured.
    file_system: FileSystem,
    cpus: Cpus,
    /// A directory on this machine's disk.
    top: PathBuf,
    /// A directory in memory, seen by this run only; mounts are there too.
    memory: PathBuf,
}

/// A server, and how it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Steadfast with the log in its state directory, on this machine's disk.
    Log,
    /// The same, whose workers ask for calls a while before they sleep.
    Polling,
    /// Steadfast, flushing.
    Plain,
    /// Steadfast, acknowledging without any flush.
    Unsafe,
    Ganesha,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "with the log",
            Self::Polling => "with the log, `busy_poll_us = 50`",
            Self::Plain => "without the log",
            Self::Unsafe => "unsafe async",
            Self::Ganesha => "nfs-ganesha",
        }
    }
}

impl Site<'_> {
    /// Starts a server on a share; `log` is what is added to its `[log]`.
    fn start(&self, kind: Kind, share: &Path, log: &str) -> Result<Server> {
        self.start_at(Ipv4Addr::LOCALHOST, kind, share, log)
    }

    /// The same, listening elsewhere.
    fn start_at(&self, address: Ipv4Addr, kind: Kind, share: &Path, log: &str) -> Result<Server> {
        let state = self.top.join("state");
        if state.exists() {
            std::fs::remove_dir_all(&state)?;
        }
        let mut own = Own { state: Some(state), ..Own::default() };
        match kind {
            Kind::Log | Kind::Polling => own.tables = format!("[log]\nenabled = true\n{log}"),
            Kind::Plain => own.tables.push_str("[log]\nenabled = false\n"),
            Kind::Unsafe => {
                own.tables.push_str("[log]\nenabled = false\n");
                own.program = Some(target()?.join(UNSAFE_PROGRAM));
                own.arguments = vec!["--unsafe-async".to_owned()];
            }
            Kind::Ganesha => {}
        }
        if kind == Kind::Polling {
            own.server_keys.push_str("busy_poll_us = 50\n");
        }
        let peer = if kind == Kind::Ganesha { Peer::Ganesha } else { Peer::Steadfast };
        servers::start(peer, share, &Setup { address, own, ..Setup::usual(&self.cpus) })
            .with_context(|| format!("the server {}", kind.name()))
    }

    /// Where something is mounted.
    fn mount_point(&self, name: &str) -> PathBuf {
        self.memory.join(name)
    }

    /// On what it is measured, and how.
    fn conditions(&self, rounds: usize) -> Result<String> {
        let commit = workspace::commit().unwrap_or_else(|| "unknown".to_owned());
        let rounds = match rounds {
            1 => "One round".to_owned(),
            rounds => format!("{rounds} rounds of alternating order, medians (least–most)"),
        };
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel: Vec<&str> = release.trim().split('.').take(2).collect();
        let cpus = std::thread::available_parallelism()?;
        let pinning = match (&self.cpus.server, &self.cpus.client) {
            (Some(server), Some(client)) => {
                format!("servers on CPU {server}, the load generator on CPU {client}")
            }
            _ => "shared by servers and the load generator".to_owned(),
        };
        let kernel = kernel.join(".");
        let file_system = self.file_system.name();
        Ok(format!(
            "{rounds}. {file_system}; {cpus} CPUs, {pinning}; Linux {kernel}; commit {commit}."
        ))
    }
}

/// The part that runs inside the namespaces.
fn inside(options: &Options) -> Result<()> {
    isolation::end_with_standard_input()?;
    call("ip", &["link", "set", "lo", "up"])?;
    call("mount", &["-t", "tmpfs", "-o", "size=90%", "tmpfs", "/run"])?;
    std::fs::create_dir_all("/run/ganesha")?;
    call("rpcbind", &["-w"])?;
    let memory = PathBuf::from("/run/durability");
    std::fs::create_dir_all(&memory)?;
    let cpus = Cpus::divide(options.is_pinned)?;
    let file_system = options.file_system;
    let mut site = Site { options, file_system, cpus, top: top()?, memory };
    let mut sections = Sections::new("durability.md", options.prints_only);
    for section in options.sections() {
        site.file_system = section.file_system.unwrap_or(options.file_system);
        site.cpus = Cpus::divide(options.is_pinned || section.is_pinned)?;
        sections.measure(section.name, || (section.measure)(&site))?;
    }
    sections.end("durability.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn sections_are_chosen_by_name() {
        let all = parsed(&[]).expect("no options");
        assert_eq!(all.sections().count(), SECTIONS.len());
        let two = parsed(&["--section", "writes", "--section", "fast", "--rounds", "1"]);
        let two = two.expect("known sections");
        // In the report's order.
        assert_eq!(two.sections().map(|s| s.name).collect::<Vec<_>>(), ["fast", "writes"]);
        assert!(!two.wants("memory"));
        for wrong in [
            &["--section"][..],
            &["--section", "all"],
            &["--rounds", "0"],
            &["--seconds", "1000"],
            &["--file-system", "btrfs"],
            &["--quick"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_documentation_has_a_place_for_each_section() {
        let docs = workspace::root().expect("a workspace").join("docs/durability.md");
        let text = std::fs::read_to_string(docs).expect("the documentation");
        for section in SECTIONS {
            crate::report::replace_section(&text, section.name, "").expect(section.name);
        }
    }
}
