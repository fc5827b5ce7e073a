//! The plug-ins with the programs that they are for: `cargo xtask plugins`.
//!
//! A server, Debian's `smbd` and its `exportfs` run in namespaces of their own
//! ([`crate::isolation`]), with directories of their own ([`site`]). Shares are added, set, disabled
//! and removed by `steadfast share`, and after each batch it is asked from outside what the others
//! make of it: `testparm` and `smbclient` on one side, `exportfs -s` on the other. One line a check.

mod exportfs;
mod samba;
mod site;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{isolation, packages, process, workspace};
use site::Site;

/// Set for the copy of this program that runs inside the namespaces.
const INSIDE: &str = "STEADFAST_PLUGINS_INSIDE";
const PACKAGES: &[&str] =
    &["samba", "samba-common-bin", "smbclient", "nfs-kernel-server", "iproute2", "util-linux"];
/// What Debian would start of them.
const SERVICES: &[&str] =
    &["smbd", "nmbd", "samba-ad-dc", "nfs-kernel-server", "rpcbind", "rpc-statd"];
/// How long is waited for what programs tell each other by messages.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command; it has no arguments.
pub fn run(arguments: &[String]) -> Result<()> {
    if let Some(word) = arguments.first() {
        bail!("unknown option {word:?}; there are none");
    }
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may make namespaces and install packages: run this as root");
    }
    packages::ensure_without_services(PACKAGES, SERVICES)?;
    workspace::cargo(&["build", "--quiet", "-p", "steadfast"])?;
    let scratch = workspace::target()?.join("plugins");
    std::fs::create_dir_all(&scratch)?;
    isolation::run("plugins", arguments, INSIDE, &scratch.canonicalize()?)
}

/// The part that runs inside the namespaces.
fn inside() -> Result<()> {
    isolation::end_with_standard_input()?;
    let site = Site::start()?;
    println!("{}", site.versions()?);
    let mut checks = Checks::default();
    samba::check(&site, &mut checks)?;
    exportfs::check(&site, &mut checks)?;
    println!("{} checks, {} failed", checks.count, checks.failed.len());
    if checks.failed.is_empty() {
        return Ok(());
    }
    eprintln!("what the programs said is in {}", Site::kept_logs()?.display());
    bail!("failed: {}", checks.failed.join("; "))
}

/// What was checked so far.
#[derive(Default)]
struct Checks {
    count: usize,
    failed: Vec<String>,
}

impl Checks {
    /// Checks something that is so at once, and prints a line.
    fn now(&mut self, what: &str, found: Result<()>) {
        self.count += 1;
        match found {
            Ok(()) => println!("ok      {what}"),
            Err(error) => {
                println!("FAILED  {what}: {error:#}");
                self.failed.push(what.to_owned());
            }
        }
    }

    /// Checks something that is so after a while.
    fn soon(&mut self, what: &str, look: impl Fn() -> Result<()>) {
        self.now(what, process::wait_for(PATIENCE, Duration::from_millis(50), look));
    }
}

/// That two values are the same.
fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<()> {
    if found != expected {
        bail!("found {found:?}, not {expected:?}");
    }
    Ok(())
}

/// The first line of what a program says.
fn first_line(text: &str) -> Result<String> {
    Ok(text.lines().next().context("it says nothing")?.trim().to_owned())
}
