//! `cargo xtask kernel-client`: the real Linux NFS client, in a user-mode-linux guest, against
//! a server in the same network namespace.
//!
//! The work inside the guest is one program (`tests/kernel-client/guest`), which knows the
//! cases; this side makes the file systems, runs the server (and kills it when a case asks),
//! boots the guests and judges the results against the expected failures of that server. A new
//! failure and a new pass both fail the run. `tests/kernel-client/README.md` has the story.

mod contended;
mod expected;
mod guest;
mod libnfs;
pub(crate) mod server;
mod storage;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::namespace::{Janitor, Namespace};
use crate::{ganesha, packages, workspace};
use guest::{Boot, Outcome};
use server::Server;
use storage::Storage;

const PACKAGES: &[&str] = &[
    "acl",
    "btrfs-progs",
    "busybox-static",
    "bzip2",
    "e2fsprogs",
    "gcc",
    "git",
    "iproute2",
    "kmod",
    "libc6-dev",
    "libnfs-utils",
    "make",
    "netbase",
    "nfs-common",
    "nfs4-acl-tools",
    "rpcbind",
    "user-mode-linux",
    "util-linux",
    "xfsprogs",
];
const GANESHA_PACKAGES: &[&str] = &["nfs-ganesha", "nfs-ganesha-vfs", "nfs-ganesha-mem", "rpcbind"];

/// Lines of each log that are printed when a run is not as expected.
const LINES_TOLD: usize = 15;

const USAGE: &str = "usage: cargo xtask kernel-client [OPTIONS]

  --server NAME       steadfast (default) or ganesha
  --nfs VERSION       that mounts are made by: 2, 3 (default), 4.0, 4.1 or 4.2
  --delegations KIND  that Steadfast grants: none (default), read or write
  --guarded           from local processes: cases must not look at a delegated file on the server
  --filesystem NAME   of the main share: ext4 (default), xfs or btrfs
  --only NAME         only cases whose name contains NAME; may be repeated
  --contended N       instead of cases: two guests, local processes and other clients contend for locks, until
                      they have had N
  --long              the long version of every case
  --seed N            of everything random; printed at the start of every run
  --program FILE      a steadfast that is built already
  --list              print the cases and end
  --keep              leave the run's logs and control files behind also when all passed
";

/// What was asked for on the command line.
#[derive(Debug)]
struct Options {
    server: server::Kind,
    nfs: String,
    delegations: String,
    is_guarded: bool,
    filesystem: storage::Kind,
    only: Vec<String>,
    program: Option<PathBuf>,
    is_long: bool,
    is_list: bool,
    contended: Option<u64>,
    is_keep: bool,
    seed: u64,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            server: server::Kind::Steadfast,
            nfs: "3".to_owned(),
            delegations: "none".to_owned(),
            is_guarded: false,
            filesystem: storage::Kind::Ext4,
            only: Vec::new(),
            program: None,
            is_long: false,
            is_list: false,
            contended: None,
            is_keep: false,
            seed: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_nanos() as u64),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value =
                || rest.next().with_context(|| format!("{argument} needs a value\n\n{USAGE}"));
            match argument.as_str() {
                "--server" => options.server = value()?.parse()?,
                "--nfs" => {
                    options.nfs.clone_from(value()?);
                    if !["2", "3", "4.0", "4.1", "4.2"].contains(&options.nfs.as_str()) {
                        bail!("--nfs is 2, 3, 4.0, 4.1 or 4.2\n\n{USAGE}");
                    }
                }
                "--delegations" => {
                    options.delegations.clone_from(value()?);
                    if !["none", "read", "write"].contains(&options.delegations.as_str()) {
                        bail!("--delegations is none, read or write\n\n{USAGE}");
                    }
                }
                "--guarded" => options.is_guarded = true,
                "--filesystem" => options.filesystem = value()?.parse()?,
                "--only" => options.only.push(value()?.clone()),
                "--program" => options.program = Some(std::path::absolute(value()?)?),
                "--seed" => {
                    options.seed = value()?.parse().context("--seed needs a number")?;
                }
                "--contended" => {
                    options.contended =
                        Some(value()?.parse().context("--contended needs a number")?);
                    // With which the server serves all versions.
                    "4.2".clone_into(&mut options.nfs);
                }
                "--long" => options.is_long = true,
                "--list" => options.is_list = true,
                "--keep" => options.is_keep = true,
                "--help" | "-h" => {
                    print!("{USAGE}");
                    std::process::exit(0);
                }
                other => bail!("no option is called {other:?}\n\n{USAGE}"),
            }
        }
        Ok(options)
    }

    fn is_wanted(&self, case: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| case.contains(part.as_str()))
    }
}

/// A case as the guest program describes it.
#[derive(Debug, Clone)]
struct Case {
    name: String,
    stage: String,
    limit: Duration,
}

/// Runs the suite.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let root = workspace::root()?;
    workspace::cargo(&["build", "--package", "steadfast-guest-tests"])?;
    let program = workspace::target()?.join("debug/steadfast-guest-tests");
    let mut cases = guest_cases(&program, options.is_long)?;
    // Not one of the suite: `--contended` runs it.
    cases.retain(|case| case.stage != contended::STAGE);
    if options.is_list {
        for case in &cases {
            println!("{:<28} at most {:>5} s", case.name, case.limit.as_secs());
        }
        for name in libnfs::CASES {
            println!("{name:<28} on this side");
        }
        return Ok(());
    }
    prepare(&options)?;

    let label = format!("{}-{}-{}", options.server, options.nfs, std::process::id());
    let directory = new_directory(&root.join("target/kernel-client"), &label)?;
    println!(
        "kernel-client: server {}, NFS {}, file system {}, {} version, seed {}\nlogs: {}/*.log",
        options.server,
        options.nfs,
        options.filesystem,
        if options.is_long { "long" } else { "short" },
        options.seed,
        directory.display()
    );
    let started = Instant::now();
    let outcomes = {
        let mut janitor = Janitor::start()?;
        let mut suite = Suite::prepare(root, &directory, &options, program, &mut janitor)?;
        match options.contended {
            Some(locks) => vec![contended::run(&mut suite, locks), suite.end_server()],
            None => suite.run(cases, &options)?,
        }
        // The janitor now ends what still runs and unmounts.
    };
    let expected = expected::read(root, options.server, &options.nfs)?;
    let verdict = expected::judge(&outcomes, &expected);
    print!("{}", verdict.report);
    println!("{} cases in {} s", outcomes.len(), started.elapsed().as_secs());
    if verdict.is_as_expected && !options.is_keep {
        storage::remove_images(&directory)?;
    }
    if !verdict.is_as_expected {
        tell_logs(&directory)?;
        bail!("not as expected; logs are in {}", directory.display());
    }
    Ok(())
}

/// Makes a directory of this name, or of one with a number behind it: one process may run the suite several times, and
/// the server's state of another time is of other file systems.
fn new_directory(top: &Path, label: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(top)?;
    let mut number = 1;
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let directory = top.join(format!("{label}{suffix}"));
        match std::fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => {
                return Err(error).with_context(|| directory.display().to_string());
            }
        }
    }
}

/// Prints what the server has warned of, and the ends of the guests' consoles: where the suite runs
/// by itself, nobody sees the files afterwards.
fn tell_logs(directory: &Path) -> Result<()> {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    for path in logs {
        let bytes = std::fs::read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        let is_server = path.file_name().is_some_and(|name| name == "server.log");
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !is_server || [" WARN ", " ERROR "].iter().any(|it| line.contains(it)))
            .collect();
        println!("-- {}, the last lines:", path.display());
        for line in lines.iter().skip(lines.len().saturating_sub(LINES_TOLD)) {
            println!("   {line}");
        }
    }
    Ok(())
}

fn prepare(options: &Options) -> Result<()> {
    packages::ensure(PACKAGES)?;
    if options.server == server::Kind::Ganesha {
        packages::ensure(GANESHA_PACKAGES)?;
    }
    packages::ensure_guest_modules()
}

/// Builds the server as the suite runs it and returns its path.
pub(crate) fn build_steadfast() -> Result<PathBuf> {
    workspace::cargo(&["build", "--profile", "checks", "--package", "steadfast"])?;
    Ok(workspace::target()?.join("checks/steadfast"))
}

fn guest_cases(program: &Path, is_long: bool) -> Result<Vec<Case>> {
    let version = if is_long { "long" } else { "short" };
    let text = crate::namespace::run(&program.to_string_lossy(), &["list", version])?;
    text.lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let (Some(name), Some(stage), Some(limit)) = (words.next(), words.next(), words.next())
            else {
                bail!("the guest program describes a case as {line:?}")
            };
            Ok(Case {
                name: name.to_owned(),
                stage: stage.to_owned(),
                limit: Duration::from_secs(limit.parse()?),
            })
        })
        .collect()
}

/// One server, its file systems, and what is needed to boot guests beside it.
struct Suite<'a> {
    directory: &'a Path,
    namespace: Namespace,
    storage: Storage,
    server: Server,
    program: PathBuf,
    init: PathBuf,
    plan: BTreeMap<String, String>,
    seed: u64,
}

impl<'a> Suite<'a> {
    fn prepare(
        root: &Path,
        directory: &'a Path,
        options: &Options,
        program: PathBuf,
        janitor: &mut Janitor,
    ) -> Result<Self> {
        let storage = Storage::create(directory, options.filesystem, janitor)?;
        let namespace = Namespace::create(janitor)?;
        let binary = match options.server {
            server::Kind::Steadfast => match &options.program {
                Some(program) => program.clone(),
                None => build_steadfast()?,
            },
            server::Kind::Ganesha => PathBuf::from(ganesha::PROGRAM),
        };
        let mut server = Server::of_suite(binary, directory, &storage, options)?;
        server.start(&namespace)?;

        let sources = root.join("target/kernel-client/sources");
        let mut plan = BTreeMap::new();
        if options.is_wanted("source-tree") {
            let mut archives = vec![packages::source_archive("lua5.4", &sources)?];
            if options.is_long {
                archives.push(packages::source_archive("zlib", &sources)?);
            }
            let names: Vec<_> = archives.iter().map(|path| path.to_string_lossy()).collect();
            plan.insert("archives".to_owned(), names.join(","));
        }
        plan.insert("server".to_owned(), crate::namespace::SERVER_ADDRESS.to_owned());
        plan.insert("port-options".to_owned(), server.port_options(&options.nfs));
        plan.insert("nfs".to_owned(), options.nfs.clone());
        plan.insert("delegations".to_owned(), options.delegations.clone());
        for share in storage.shares() {
            plan.insert(format!("share.{}", share.name), share.path.clone());
            let local = share.directory.to_string_lossy().into_owned();
            plan.insert(format!("local.{}", share.name), local);
        }
        let statistics = rustix::fs::statvfs(storage.directory("main")?)?;
        let bytes = statistics.f_blocks * statistics.f_frsize;
        plan.insert("main-bytes".to_owned(), bytes.to_string());
        plan.insert("main-files".to_owned(), statistics.f_files.to_string());
        plan.insert("version".to_owned(), version(options).to_owned());
        plan.insert("seed".to_owned(), options.seed.to_string());
        let init = root.join("tests/kernel-client/init.sh");
        Ok(Self { directory, namespace, storage, server, program, init, plan, seed: options.seed })
    }

    fn run(&mut self, cases: Vec<Case>, options: &Options) -> Result<Vec<Outcome>> {
        let cases: Vec<Case> =
            cases.into_iter().filter(|case| options.is_wanted(&case.name)).collect();
        let stage = |name: &str| -> Vec<Case> {
            cases.iter().filter(|case| case.stage == name).cloned().collect()
        };
        let mut outcomes = Vec::new();
        for name in libnfs::CASES.iter().filter(|name| options.is_wanted(name)) {
            let outcome = libnfs::run(name, &self.namespace, &self.storage, self.directory);
            println!("{outcome}");
            outcomes.push(outcome);
        }
        let main = stage("main");
        if !main.is_empty() {
            outcomes.extend(self.boot("main", &main, None)?);
        }
        let load = stage("killed");
        if !load.is_empty() {
            let rounds = if options.is_long { 6 } else { 1 };
            outcomes.extend(self.kill_clients(&load, rounds)?);
        }
        outcomes.push(self.end_server());
        Ok(outcomes)
    }

    /// Boots a guest that works for ever, kills it at a random moment, and lets a second guest
    /// check what the first was promised; `rounds` times.
    fn kill_clients(&mut self, cases: &[Case], rounds: u32) -> Result<Vec<Outcome>> {
        let mut all: Vec<Outcome> = Vec::new();
        let mut random = Random(self.seed | 1);
        for round in 0..rounds {
            self.plan.insert("round".to_owned(), round.to_string());
            self.plan.insert("phase".to_owned(), "load".to_owned());
            let delay = Duration::from_millis(2000 + random.below(4000));
            self.boot(&format!("killed-{round}"), cases, Some(delay))?;
            self.plan.insert("phase".to_owned(), "check".to_owned());
            let outcomes = self.boot(&format!("killed-{round}-check"), cases, None)?;
            for outcome in outcomes {
                // A case that failed in an earlier round stays failed.
                match all.iter_mut().find(|known| known.name == outcome.name) {
                    Some(known) if known.failure.is_none() => *known = outcome,
                    Some(_) => {}
                    None => all.push(outcome),
                }
            }
        }
        Ok(all)
    }

    fn boot(
        &mut self,
        label: &str,
        cases: &[Case],
        kill_after: Option<Duration>,
    ) -> Result<Vec<Outcome>> {
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        let control = self.write_plan(label, &names)?;
        let limit = cases.iter().map(|case| case.limit).sum::<Duration>() + Duration::from_secs(60);
        let boot = Boot {
            label,
            namespace: &self.namespace,
            init: &self.init,
            program: &self.program,
            control: &control,
            log: self.directory.join(format!("guest-{label}.log")),
            limit,
            kill_after,
        };
        boot.run(&names, &mut self.server, self.seed)
    }

    /// Writes what a guest reads, into the directory where the two talk, which is returned.
    fn write_plan(&self, label: &str, cases: &[String]) -> Result<PathBuf> {
        let control = self.directory.join(label);
        std::fs::create_dir_all(&control)?;
        let mut plan = String::new();
        for (key, value) in &self.plan {
            writeln!(plan, "{key}={value}")?;
        }
        writeln!(plan, "control={}", control.display())?;
        writeln!(plan, "ledgers={}", self.directory.join("ledgers").display())?;
        for name in cases {
            writeln!(plan, "case={name}")?;
        }
        std::fs::create_dir_all(self.directory.join("ledgers"))?;
        std::fs::write(control.join("plan"), plan)?;
        Ok(control)
    }

    /// The server has to be alive still, and to end when it is told to.
    fn end_server(&mut self) -> Outcome {
        let started = Instant::now();
        let failure = self.server.stop().err().map(|error| format!("{error:#}"));
        let outcome = Outcome {
            name: "server-stops".to_owned(),
            failure,
            seconds: started.elapsed().as_secs_f64(),
        };
        println!("{outcome}");
        outcome
    }
}

fn version(options: &Options) -> &'static str {
    if options.is_long { "long" } else { "short" }
}

/// A small generator for moments and delays (xorshift64*): a seed repeats a run.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_directory_of_its_own() {
        let top = tempfile::tempdir().unwrap();
        let names =
            (0..3).map(|_| new_directory(&top.path().join("suites"), "steadfast-4.2-7").unwrap());
        let names: Vec<_> = names.map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["steadfast-4.2-7", "steadfast-4.2-7-2", "steadfast-4.2-7-3"]);
    }
}
