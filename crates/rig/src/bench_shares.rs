//! Sun's table of shares measured again, and what else is asked of a server with tens of thousands,
//! for `docs/shares-performance.md`: `cargo xtask bench-shares [--quick] [--section NAME]...
//! [--rounds N] [--limit S] [--without-peers] [--unpinned] [--print]`.
//!
//! - `table`: 100 to 100,000 shares on and off by one command, beside Sun's figures, `exportfs` and
//!   nfs-ganesha; and how long a start takes until the first share, and all, are served;
//! - `changes`: single changes, the list of shares, mounts, memory, and a load beside changes, with
//!   15,150 shares against ten;
//! - `storm`: 2,000 automounters that mount everything;
//! - `names`: what a name server is asked while 2,000 clients come and work, as a picture.
//!
//! Every share is a directory of its own on XFS on a loop device, with hosts, networks and a netgroup
//! in its rules ([`farm`]); what a command says is done is checked by EXPORT and MNT. All of it runs in
//! namespaces of its own ([`crate::isolation`]), which leave nothing behind.

mod api;
mod changes;
mod farm;
mod load;
mod memory;
mod names;
mod paper;
mod probe;
mod rivals;
mod server;
mod storm;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::disk::{Disk, FileSystem};
use crate::namespace::call;
use crate::report::{Findings, Sections};
use crate::servers::{self, Cpus};
use crate::workspace::{self, target};
use crate::{isolation, packages};
use farm::Farm;

/// Set for the copy of this program that runs inside the namespaces.
const INSIDE: &str = "STEADFAST_BENCH_SHARES_INSIDE";
const PACKAGES: &[&str] = &["xfsprogs", "util-linux", "mount", "iproute2"];
/// Sun's sizes, and one more.
const SIZES: [usize; 5] = [100, 2900, 5000, 15_150, 100_000];
const QUICK_SIZES: [usize; 2] = [100, 2900];
/// The disk of the shares: room for the inodes of a hundred thousand directories.
const DISK_MIB: u64 = 2048;

/// A section of the report.
struct Section {
    name: &'static str,
    measure: fn(&Site<'_>) -> Result<Findings>,
}

const SECTIONS: &[Section] = &[
    Section { name: "table", measure: table::measure },
    Section { name: "changes", measure: changes::measure },
    Section { name: "storm", measure: storm::measure },
    Section { name: "names", measure: names::measure },
];

/// What the command line says.
#[derive(Debug)]
struct Options {
    /// Of all sections, if none is named.
    sections: Vec<String>,
    /// Small numbers only; the documentation stays as it is.
    is_quick: bool,
    rounds: usize,
    /// How long others may take for one number of shares.
    limit: Duration,
    without_peers: bool,
    is_pinned: bool,
    /// The documentation stays as it is.
    prints_only: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            sections: Vec::new(),
            is_quick: false,
            rounds: 3,
            limit: Duration::from_secs(180),
            without_peers: false,
            is_pinned: true,
            prints_only: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--section" => options.sections.push(value()?.clone()),
                "--quick" => {
                    options.is_quick = true;
                    options.prints_only = true;
                    options.limit = Duration::from_secs(30);
                }
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--limit" => {
                    options.limit = Duration::from_secs(value()?.parse().context("--limit")?);
                }
                "--without-peers" => options.without_peers = true,
                "--unpinned" => options.is_pinned = false,
                "--print" => options.prints_only = true,
                _ => bail!(
                    "unknown option {word:?}; there are --quick (100 and 2,900 shares, docs/ as it \
                     is), --section NAME (again for more), --rounds N, --limit S (for others, at each \
                     number of shares), --without-peers, --unpinned, --print (leave docs/ as it is)"
                ),
            }
        }
        let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        if let Some(unknown) = options.sections.iter().find(|name| !names.contains(&name.as_str()))
        {
            bail!("no section is called {unknown:?}; there are {}", names.join(", "));
        }
        if !(1..=99).contains(&options.rounds) || options.limit.is_zero() {
            bail!("--rounds between 1 and 99, --limit above 0");
        }
        Ok(options)
    }

    fn sections(&self) -> impl Iterator<Item = &'static Section> {
        SECTIONS.iter().filter(|section| {
            self.sections.is_empty() || self.sections.iter().any(|name| name == section.name)
        })
    }

    /// The numbers of shares of the table.
    fn sizes(&self) -> &'static [usize] {
        if self.is_quick { &QUICK_SIZES } else { &SIZES }
    }

    /// How many shares a server with many has.
    fn many(&self) -> usize {
        if self.is_quick { 2900 } else { 15_150 }
    }
}

/// Where everything is measured.
struct Site<'o> {
    options: &'o Options,
    cpus: Cpus,
    /// A directory on this machine's disk, for configurations and states.
    top: PathBuf,
    farm: Farm,
    /// The disk of the farm's shares.
    disk: Disk,
}

impl Site<'_> {
    /// Where a server's configuration and state are.
    fn home(&self) -> PathBuf {
        self.top.join("home")
    }

    /// On what it is measured, and how.
    fn conditions(&self) -> Result<String> {
        // What was made for the measurement is not to be written during it.
        self.disk.sync()?;
        let commit = workspace::commit().unwrap_or_else(|| "unknown".to_owned());
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel: Vec<&str> = release.trim().split('.').take(2).collect();
        let cpus = std::thread::available_parallelism()?;
        let pinning = match (&self.cpus.server, &self.cpus.client) {
            (Some(server), Some(client)) => {
                format!("the server on CPU {server}, loads on CPU {client}")
            }
            _ => "nothing is pinned".to_owned(),
        };
        Ok(format!(
            "Medians of {} rounds. XFS; {cpus} CPUs, Linux {}, {pinning}; commit {commit}.",
            self.options.rounds,
            kernel.join(".")
        ))
    }
}

/// A number with commas.
fn shown_count(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
    if !options.without_peers {
        packages::ensure(rivals::PACKAGES)?;
    }
    workspace::build_release(servers::STEADFAST)?;
    workspace::build_release(servers::BENCH)?;
    let name_server =
        ["-p", "steadfast-access", "--features", "testing", "--example", "name_server"];
    workspace::build_release(&name_server)?;
    isolation::run("bench-shares", arguments, INSIDE, &top()?)
}

/// The directory for images, configurations and logs on this machine's disk.
fn top() -> Result<PathBuf> {
    let top = target()?.join("bench-shares");
    std::fs::create_dir_all(&top)?;
    Ok(top.canonicalize()?)
}

/// The part that runs inside the namespaces.
fn inside(options: &Options) -> Result<()> {
    isolation::end_with_standard_input()?;
    call("ip", &["link", "set", "lo", "up"])?;
    call("mount", &["-t", "tmpfs", "-o", "size=90%", "tmpfs", "/run"])?;
    if !options.without_peers {
        call("rpcbind", &["-w"])?;
    }
    let top = top()?;
    let at = Path::new("/run/shares");
    let disk = Disk::on_file(FileSystem::Xfs, &top.join("image"), DISK_MIB, false, at)?;
    let cpus = Cpus::divide(options.is_pinned)?;
    let site = Site { options, cpus, top, farm: Farm::new(at)?, disk };
    let mut sections = Sections::new("shares-performance.md", options.prints_only);
    for section in options.sections() {
        sections.measure(section.name, || (section.measure)(&site))?;
    }
    sections.end("bench-shares.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_understood_or_refused() {
        let all = parsed(&[]).expect("no options");
        assert_eq!((all.sections().count(), all.sizes().len()), (SECTIONS.len(), SIZES.len()));
        let quick = parsed(&["--quick", "--section", "storm"]).expect("known words");
        assert_eq!((quick.sections().count(), quick.sizes()), (1, &QUICK_SIZES[..]));
        assert!(quick.prints_only, "figures of few shares are not for the documentation");
        for wrong in [
            &["--section"][..],
            &["--section", "all"],
            &["--rounds", "0"],
            &["--limit", "0"],
            &["--fast"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn counts_have_commas() {
        let shown = [0, 999, 1000, 15_150, 100_000, 1_234_567].map(shown_count);
        assert_eq!(shown, ["0", "999", "1,000", "15,150", "100,000", "1,234,567"]);
    }

    #[test]
    fn the_documentation_has_a_place_for_each_section() {
        let docs = workspace::root().expect("a workspace").join("docs/shares-performance.md");
        let text = std::fs::read_to_string(docs).expect("the documentation");
        for section in SECTIONS {
            crate::report::replace_section(&text, section.name, "").expect(section.name);
        }
    }
}
