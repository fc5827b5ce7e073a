//! `exportfs -ra` and `exportfs -ua`: names are looked up, the list is written to
//! `/var/lib/nfs/etab`. Where the kernel has no NFS server, as often in a virtual machine, handing it
//! the list is not in the figures.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Outcome;
use crate::bench_shares::Site;
use crate::namespace::call;
use crate::process::Process;

const STATE: &str = "/var/lib/nfs";

/// Shares and unshares the first so many shares.
pub(super) fn measure(site: &Site<'_>, shares: usize) -> Result<Outcome> {
    std::fs::write("/etc/exports", site.farm.exports(shares))?;
    let additions = Path::new("/etc/exports.d");
    if additions.exists() {
        std::fs::remove_dir_all(additions)?;
    }
    std::fs::create_dir_all(STATE)?;
    call("mount", &["-t", "tmpfs", "tmpfs", STATE])?;
    let outcome = on_and_off(site, shares);
    call("umount", &[STATE])?;
    outcome
}

fn on_and_off(site: &Site<'_>, shares: usize) -> Result<Outcome> {
    for name in ["etab", "rmtab", "xtab"] {
        std::fs::write(Path::new(STATE).join(name), "")?;
    }
    let limit = site.options.limit;
    let Some(on) = exportfs(site, "-ra", limit)? else {
        return Ok(Outcome::GaveUp(limit.as_secs_f64()));
    };
    let told = shared()?;
    if told != shares {
        bail!("etab has {told} shares instead of {shares}");
    }
    let off = exportfs(site, "-ua", limit)?;
    if off.is_some() && shared()? != 0 {
        bail!("etab is not empty after exportfs -ua");
    }
    let off = off.map(|off| off.as_secs_f64());
    Ok(Outcome::Took { on: on.as_secs_f64(), off, is_start: false })
}

/// How long it took, if it ended in time.
fn exportfs(site: &Site<'_>, option: &str, limit: Duration) -> Result<Option<Duration>> {
    let log = site.top.join("exportfs.log");
    let mut command = Command::new("exportfs");
    command.arg(option);
    let started = Instant::now();
    let mut process = Process::start(&mut command, File::create(&log)?)?;
    let is_done = process.has_ended_within(started, limit);
    let took = started.elapsed();
    let is_done = is_done.with_context(|| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        format!("exportfs {option}: {}", said.lines().take(5).collect::<Vec<_>>().join("; "))
    })?;
    Ok(is_done.then_some(took))
}

/// Shares that `etab` has.
fn shared() -> Result<usize> {
    let text = std::fs::read_to_string(Path::new(STATE).join("etab"))?;
    let paths = text.lines().filter_map(|line| line.split_whitespace().next());
    Ok(paths.collect::<std::collections::HashSet<_>>().len())
}
