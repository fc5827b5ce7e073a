//! What a mount's journal costs and gains, measured, with the paper's figures beside ours, for
//! `docs/journal.md`: `cargo xtask journal-table [--section NAME]... [--rounds N] [--seconds S]
//! [--profile NAME] [--as-built] [--fuse-nfs PROGRAM] [--kinds LETTERS] [--journals-in-memory] [--print]`.
//!
//! - `unlimited`, `limited`: dbench and dd on four kinds of share, on a link without a limit and on
//!   one of 100 Mbit/s; the data is on a disk of 35 writes a second;
//! - `fast`: the same as `unlimited` on a disk whose writes take no time;
//! - `clients`, `clients-reno`, `clients-unlimited`: one, six and twelve clients at one time, and how long a small
//!   call of another one waits, by the clients' congestion control;
//! - `beside`: libnfs' tools and another FUSE client on the same shares;
//! - `recovery`: 10,000 writes that a crash has left in a journal;
//! - `compress`: text that is written and read with and without compression on its way.
//!
//! All of it runs in network, mount and process namespaces of its own ([`crate::isolation`]). Each
//! client has a network of its own, behind a switch; what the link's limit holds up waits there ([`site`]).

mod beside;
mod clients;
mod compress;
mod loads;
mod recovery;
mod site;
mod speed;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::namespace::call;
use crate::report::{Findings, Sections};
use crate::workspace::{self, target};
use crate::{isolation, packages};
use site::{Link, Site};

/// Set for the copy of this program that runs inside the namespaces.
const INSIDE: &str = "STEADFAST_JOURNAL_TABLE_INSIDE";
const PACKAGES: &[&str] =
    &["dbench", "libnfs-utils", "iproute2", "e2fsprogs", "fuse3", "util-linux", "mount"];

/// A section of the report.
struct Section {
    name: &'static str,
    measure: fn(&Site<'_>) -> Result<Findings>,
}

const SECTIONS: &[Section] = &[
    Section { name: "unlimited", measure: |site| speed::measure(site, Link::Unlimited) },
    Section { name: "limited", measure: |site| speed::measure(site, Link::Limited) },
    Section { name: "fast", measure: speed::measure_fast },
    Section { name: "clients", measure: |site| clients::measure(site, Link::Limited, "bbr") },
    Section { name: "clients-reno", measure: |site| clients::measure(site, Link::Limited, "reno") },
    Section {
        name: "clients-unlimited",
        measure: |site| clients::measure(site, Link::Unlimited, "bbr"),
    },
    Section { name: "beside", measure: beside::measure },
    Section { name: "recovery", measure: recovery::measure },
    Section { name: "compress", measure: compress::measure },
];

/// What the command line says.
#[derive(Debug)]
struct Options {
    /// Of all sections, if none is named.
    sections: Vec<String>,
    rounds: usize,
    /// How long loads last that have no end of their own.
    seconds: u32,
    /// How the program is built.
    profile: String,
    /// It is there already.
    is_as_built: bool,
    /// Another FUSE client, which is no Debian package.
    fuse_nfs: Option<PathBuf>,
    /// Letters of the kinds of share that are measured on one client.
    kinds: String,
    /// The journals are in memory, and not on this machine's disk: what is measured is the mount alone.
    has_journals_in_memory: bool,
    /// The documentation stays as it is.
    prints_only: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            sections: Vec::new(),
            rounds: 3,
            seconds: 10,
            profile: "release".to_owned(),
            is_as_built: false,
            fuse_nfs: None,
            kinds: "abcd".to_owned(),
            has_journals_in_memory: false,
            prints_only: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--section" => options.sections.push(value()?.clone()),
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
                "--profile" => options.profile.clone_from(value()?),
                "--as-built" => options.is_as_built = true,
                "--fuse-nfs" => options.fuse_nfs = Some(value()?.into()),
                "--kinds" => options.kinds.clone_from(value()?),
                "--journals-in-memory" => options.has_journals_in_memory = true,
                "--print" => options.prints_only = true,
                _ => bail!(
                    "unknown option {word:?}; there are --section NAME (again for more), --rounds N, \
                     --seconds S, --profile NAME (of the build), --as-built, --fuse-nfs PROGRAM \
                     (another FUSE client), --kinds LETTERS (of the shares: abcd), --journals-in-memory, \
                     --print (leave docs/ as it is)"
                ),
            }
        }
        let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        if let Some(unknown) = options.sections.iter().find(|name| !names.contains(&name.as_str()))
        {
            bail!("no section is called {unknown:?}; there are {}", names.join(", "));
        }
        if !(2..=600).contains(&options.seconds) || !(1..=99).contains(&options.rounds) {
            bail!("--seconds between 2 and 600, --rounds between 1 and 99");
        }
        let is_known = |letter: char| "abcd".contains(letter);
        if options.kinds.is_empty() || !options.kinds.chars().all(is_known) {
            bail!("--kinds has some of the letters a, b, c and d");
        }
        let is_part = options.kinds != "abcd" || options.has_journals_in_memory;
        if is_part && !options.prints_only {
            bail!(
                "--kinds and --journals-in-memory go with --print: the documentation has all kinds, on a disk"
            );
        }
        Ok(options)
    }

    fn sections(&self) -> impl Iterator<Item = &'static Section> {
        SECTIONS.iter().filter(|section| {
            self.sections.is_empty() || self.sections.iter().any(|name| name == section.name)
        })
    }

    /// The server and client that are measured.
    fn program(&self) -> Result<PathBuf> {
        let directory = if self.profile == "dev" { "debug" } else { &self.profile };
        Ok(target()?.join(directory).join("steadfast"))
    }
}

/// Runs the command with the arguments that follow its name.
///
/// # Errors
/// When something cannot be measured, or a goal is missed.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    if std::env::var_os(INSIDE).is_some() {
        return inside(&options);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may mount, and make loop devices and namespaces: run this as root");
    }
    packages::ensure(PACKAGES)?;
    if !options.is_as_built {
        workspace::cargo(&["build", "--profile", &options.profile, "-p", "steadfast"])?;
    }
    isolation::run("journal-table", arguments, INSIDE, &top()?)
}

/// The directory for journals on this machine's disk.
fn top() -> Result<PathBuf> {
    let top = target()?.join("journal-table");
    std::fs::create_dir_all(&top)?;
    Ok(top.canonicalize()?)
}

/// The part that runs inside the namespaces.
fn inside(options: &Options) -> Result<()> {
    isolation::end_with_standard_input()?;
    call("ip", &["link", "set", "lo", "up"])?;
    call("mount", &["-t", "tmpfs", "-o", "size=90%", "tmpfs", "/run"])?;
    let site = Site::new(options, options.program()?, top()?)?;
    let mut sections = Sections::new("journal.md", options.prints_only);
    for section in options.sections() {
        sections.measure(section.name, || (section.measure)(&site))?;
    }
    sections.end("journal-table.json")
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
        assert_eq!(all.sections().count(), SECTIONS.len());
        let two = parsed(&["--section", "limited", "--section", "unlimited", "--profile", "dev"]);
        let two = two.expect("known words");
        // In the report's order.
        let names: Vec<_> = two.sections().map(|section| section.name).collect();
        assert_eq!(names, ["unlimited", "limited"]);
        assert!(two.program().expect("a target").ends_with("debug/steadfast"));
        for wrong in [
            &["--section"][..],
            &["--section", "all"],
            &["--rounds", "0"],
            &["--seconds", "1"],
            &["--kinds", "e", "--print"],
            &["--kinds", "bc"],
            &["--journals-in-memory"],
            &["--quick"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_documentation_has_a_place_for_each_section() {
        let docs = workspace::root().expect("a workspace").join("docs/journal.md");
        let text = std::fs::read_to_string(docs).expect("the documentation");
        for section in SECTIONS {
            crate::report::replace_section(&text, section.name, "").expect(section.name);
        }
    }
}
