//! One guest's part in locks that two guests, local processes and other clients contend for
//! (`contend`). The host makes the files, says when it is over, and judges.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::guest_monitor;
use crate::children;
use crate::context::Context;
use crate::mount::{Mount, of_version};
use crate::random::Random;

/// Between two looks whether it is over.
const PAUSE: Duration = Duration::from_millis(100);
/// Processes that wait for a lock are started this often, and killed.
const KILLED_EACH: Duration = Duration::from_millis(900);
/// Milliseconds after which, the least and how many more.
const KILLED_AFTER_MS: (u64, u64) = (60, 300);
/// What has to be told by processes that were told to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Contends with some processes by mounts of several versions, until the host says that it is over.
pub(crate) fn contend(context: &Context) -> Result<()> {
    let scratch = context.scratch()?;
    let (control, guest) = (Path::new(context.value("control")?), context.value("guest")?);
    let first: usize = context.value("party")?.parse()?;
    let (mut mounts, mut places, mut contenders) = (Vec::new(), Vec::new(), Vec::new());
    for word in context.value("contenders")?.split(',') {
        let (version, processes) = word.split_once(':').context("contenders without a number")?;
        let mount = mount(context, version)?;
        let at = mount.path().join("contended").to_string_lossy().into_owned();
        for _ in 0..processes.parse::<u32>()? {
            let number = contenders.len();
            let log = control.join(format!("{guest}.v{version}-{number}.log"));
            let party = (first + number).to_string();
            let end = scratch.join("end").to_string_lossy().into_owned();
            let log = log.to_string_lossy().into_owned();
            contenders.push(children::start(&[
                "contend",
                "mount",
                &at,
                &log,
                &end,
                &party,
                "0",
                hasty(version),
            ])?);
        }
        mounts.push(mount);
        places.push((version.to_owned(), at));
    }
    let outcome = until_end(context, &scratch, &mut contenders, &places);
    std::fs::write(scratch.join("end"), "")?;
    let ended = finish(contenders);
    // Why a contender failed is on its standard error, which is the case's.
    outcome.and(ended)?;
    // While the mounts are there still: what a client has would go with it.
    context.host("nothing-left").map(drop)
}

/// One wait in how many ends by a signal before long. With NLM the client says so, and the next one has the lock. With NFSv4 it
/// cannot: the lock is kept for it for 2 s once it is free.
fn hasty(version: &str) -> &'static str {
    if version == "3" { "5" } else { "200" }
}

fn mount(context: &Context, version: &str) -> Result<Mount> {
    let ports = context.value("port-options")?;
    let more = if version == "3" {
        guest_monitor::ensure(context)?;
        format!("{ports},mountport={},lock", ports.trim_start_matches("port="))
    } else {
        ports.to_owned()
    };
    let device = format!("{}:{}", context.value("server")?, context.value("share.main")?);
    let at = PathBuf::from(format!("/run/nfs/{}/{version}", context.case_name()));
    Mount::new(&device, at, &[of_version(version)?, &more])
}

/// Tells the host how far the contenders are, and kills others that wait beside them.
fn until_end(
    context: &Context,
    scratch: &Path,
    contenders: &mut [Child],
    places: &[(String, String)],
) -> Result<()> {
    let end = Path::new(context.value("control")?).join("end");
    let mut random = context.random();
    let (mut killed, mut told) = (0, 0);
    let mut last_kill = Instant::now();
    while !end.exists() {
        for contender in contenders.iter_mut() {
            let ended = contender.try_wait()?;
            ensure!(ended.is_none(), "a contender ended: {ended:?}");
        }
        if last_kill.elapsed() >= KILLED_EACH {
            last_kill = Instant::now();
            kill_one(&mut random, places)?;
            killed += 1;
        }
        let count = counted(scratch)?;
        if count > told {
            context.tell(&format!("count {count}"))?;
            told = count;
        }
        std::thread::sleep(PAUSE);
    }
    let guest = context.value("guest")?;
    context.note(&format!("guest {guest}: {killed} processes were killed while they waited"))
}

/// What the contenders have written of how often they had a lock.
fn counted(scratch: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(scratch)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("count-") {
            // Empty for a moment when it is written.
            sum += std::fs::read_to_string(entry.path())?.parse().unwrap_or(0);
        }
    }
    Ok(sum)
}

/// Starts a process that waits for locks, and kills it.
fn kill_one(random: &mut Random, places: &[(String, String)]) -> Result<()> {
    // As often as others are hasty.
    let is_nfs3 = random.below(8) != 0;
    let mut of_version = places.iter().filter(|(version, _)| (version == "3") == is_nfs3);
    let (_, place) = of_version.next().context("no mount")?;
    let file = 1 + random.below(2);
    let mut waiting = children::start(&["contend-wait", place, &file.to_string()])?;
    std::thread::sleep(Duration::from_millis(KILLED_AFTER_MS.0 + random.below(KILLED_AFTER_MS.1)));
    let ended = waiting.try_wait()?;
    ensure!(ended.is_none(), "a process that waits has ended: {ended:?}");
    waiting.kill()?;
    waiting.wait()?;
    Ok(())
}

fn finish(mut contenders: Vec<Child>) -> Result<()> {
    let until = Instant::now() + END_LIMIT;
    for (number, contender) in contenders.iter_mut().enumerate() {
        let status = loop {
            match contender.try_wait()? {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
            ensure!(Instant::now() < until, "contender {number} does not end");
        };
        ensure!(status.success(), "contender {number}: {status}");
    }
    Ok(())
}
