//! nfs-ganesha with a block for each share: all are off and on when its configuration has been
//! changed and it was told to read it again.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::Outcome;
use crate::bench_shares::Site;
use crate::bench_shares::probe::Probe;
use crate::ganesha;
use crate::process::{Process, last_lines};
use crate::servers::Cpus;

const MOUNT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), ganesha::MOUNT_PORT);
/// The number of a share has 16 bits.
const SHARES_MAX: usize = u16::MAX as usize;
/// How often it is asked whether it is done.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Shares and unshares the first so many shares.
pub(super) fn measure(site: &Site<'_>, shares: usize) -> Result<Outcome> {
    if shares > SHARES_MAX {
        return Ok(Outcome::Cannot(format!(
            "it numbers shares with 16 bits, {SHARES_MAX} at most"
        )));
    }
    let limit = site.options.limit;
    let file = site.top.join("ganesha.conf");
    let log = site.top.join("ganesha.log");
    let all = head() + &site.farm.ganesha(shares);
    std::fs::write(&file, &all)?;
    std::fs::create_dir_all("/run/ganesha")?;
    let mut command = Cpus::command(site.cpus.server.as_ref(), Path::new(ganesha::PROGRAM));
    ganesha::arguments(&mut command, &file, &log, Path::new("/run/ganesha/bench.pid"));
    let started = Instant::now();
    let mut process = Process::start(&mut command, File::create(site.top.join("ganesha.output"))?)?;
    let last = site.farm.path(shares - 1);
    let probe = Probe { mount: MOUNT };
    let is_served = || probe.can_mount(&last).unwrap_or(false);
    let Some(start) =
        wait(&mut process, started, limit, is_served).with_context(|| last_lines(&log, 5))?
    else {
        return Ok(Outcome::GaveUp(limit.as_secs_f64()));
    };
    // What it can do while it runs; where it cannot, the start is all there is.
    let mut switch = |text: &str, is_done: &dyn Fn() -> bool| -> Result<Option<Duration>> {
        std::fs::write(&file, text)?;
        let started = Instant::now();
        process.signal(Signal::HUP)?;
        wait(&mut process, started, limit, is_done)
    };
    // Some share has to stay.
    let one = head() + &site.farm.ganesha(1);
    let off = switch(&one, &|| probe.list().is_ok_and(|list| list.shares <= 1))?;
    let on = match off {
        Some(_) => switch(&all, &|| {
            probe.list().is_ok_and(|list| list.shares >= shares as u64) && is_served()
        })?,
        None => None,
    };
    let is_start = on.is_none();
    let on = on.unwrap_or(start).as_secs_f64();
    Ok(Outcome::Took { on, off: off.map(|off| off.as_secs_f64()), is_start })
}

fn head() -> String {
    ganesha::Configuration { protocols: "3", port: 2049, more: "" }.text()
}

/// Waits until something is so; how long that took, if it came before the limit.
fn wait(
    process: &mut Process,
    started: Instant,
    limit: Duration,
    is_done: impl Fn() -> bool,
) -> Result<Option<Duration>> {
    while started.elapsed() < limit {
        if is_done() {
            return Ok(Some(started.elapsed()));
        }
        if let Some(status) = process.ended()? {
            bail!("nfs-ganesha ended with {status}");
        }
        std::thread::sleep(ASK_EVERY);
    }
    Ok(None)
}
