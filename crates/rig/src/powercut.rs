//! The power-cut rig: `cargo xtask powercut [--fs NAME] [--points N] [--seed N] …`, and whether it
//! finds what is broken on purpose: `cargo xtask powercut --mutations`.
//!
//! Builds the server and the rig, installs what it needs, and starts it in namespaces of its
//! own (network, mounts, processes): whatever ends the run takes mounts, loop devices and servers
//! with it. The rig itself is `tests/powercut`; `docs/powercut.md` tells about it.

mod mutations;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{ganesha, isolation, packages, workspace};

/// Debian packages for disks and file systems.
const PACKAGES: &[&str] =
    &["fuse3", "e2fsprogs", "xfsprogs", "btrfs-progs", "util-linux", "mount", "iproute2"];

/// Crash points of each file system in CI, without and with an intent log, and what the log's disk
/// has: 200 points all in all.
const CI: &[(&str, &str, &str, &str)] = &[
    ("ext4", "20", "50", "ext4"),
    ("xfs", "20", "45", "ext4-without-journal"),
    ("btrfs", "20", "45", "ext4"),
];

/// What CI runs of histories: on each file system so many power cuts, and so many kills and stops, with what
/// is known to hold in them (docs/powercut.md, Histories).
const CI_HISTORIES: &[&[&str]] = &[
    &["--with", "resent,acls,restored,gap,identity", "--points", "42"],
    // With all parts, also local changes and crashes in a row. On btrfs not all of them hold.
    &["--histories", "--fs", "ext4", "--points", "15"],
    &["--histories", "--fs", "xfs", "--points", "15"],
    &["--histories", "--kills", "10"],
];

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    demand()?;
    if arguments.iter().any(|word| word == "ganesha") {
        packages::ensure(ganesha::PACKAGES)?;
    }
    if let Some(wanted) = mutations::wanted(arguments)? {
        return mutations::run(&wanted);
    }
    run_built(&build("checks")?, arguments)
}

/// Installs what the rig needs, for root.
fn demand() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root may mount, and make loop devices and namespaces: run this as root");
    }
    packages::ensure(PACKAGES)
}

/// Builds server and rig, and says where they are.
fn build(profile: &str) -> Result<PathBuf> {
    // One after the other: together they would be built with each other's features.
    for package in ["steadfast", "steadfast-powercut"] {
        workspace::cargo(&["build", "--profile", profile, "-p", package])?;
    }
    Ok(workspace::target()?.join(if profile == "dev" { "debug" } else { profile }))
}

/// Runs the rig with programs from this directory.
fn run_built(programs: &Path, arguments: &[String]) -> Result<()> {
    let target = workspace::target()?;
    let mut command = rig(programs);
    if !arguments.iter().any(|word| word == "--keep") {
        command.arg("--keep").arg(target.join("powercut"));
    }
    isolation::wait_for(command.args(arguments), "the rig")
}

/// The rig in namespaces of its own, with programs from this directory.
fn rig(programs: &Path) -> Command {
    let mut command = isolation::command();
    command
        .arg(programs.join("steadfast-powercut"))
        .arg("--program")
        .arg(programs.join("steadfast"));
    command
}

/// What CI runs, with programs built as for its tests, so that nothing is built twice.
pub fn short() -> Result<()> {
    demand()?;
    let programs = build("dev")?;
    let with_log = workspace::root()?.join("tests/powercut/with-log.toml");
    let with_log = with_log.to_str().context("a path that is UTF-8")?;
    for (file_system, without, with, log_file_system) in CI {
        let flags = ["--replies", "--allow-halves", "--log-mib", "64", "--configuration", with_log];
        // With clients of NFSv4, too: that costs 30 ms a point.
        let nfs4 = ["--nfs", "4.1"];
        let words = ["--fs", file_system, "--points", with, "--log-fs", log_file_system];
        run_built(
            &programs,
            &words.into_iter().chain(nfs4).chain(flags).map(str::to_owned).collect::<Vec<_>>(),
        )?;
        let words = ["--fs", file_system, "--points", without, "--allow-halves"];
        run_built(&programs, &words.map(str::to_owned))?;
    }
    let with_small_log = workspace::root()?.join("tests/powercut/histories.toml");
    let with_small_log = with_small_log.to_str().context("a path that is UTF-8")?;
    for words in CI_HISTORIES {
        let flags = ["--log-mib", "64", "--configuration", with_small_log];
        run_built(
            &programs,
            &words.iter().copied().chain(flags).map(str::to_owned).collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}
