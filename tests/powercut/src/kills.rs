//! `kill -9` at random moments under load: the page cache survives, so everything acknowledged has
//! to be there, stable or not.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::{Broken, Check, Findings, Violation};
use crate::operation::Number;
use crate::random::Random;
use crate::recording::{Places, Shape, make};
use crate::regain;
use crate::report::Tally;
use crate::server::{Setup, address};
use crate::storage::Mounted;
use crate::workload::{Ledger, Load, Plan};

/// The longest that a server lives under load.
const LIFE_MS: u64 = 900;
/// Rounds whose violations are printed, and of which something is kept.
const PRINTED_MAX: usize = 10;
/// What the log of a run with one is called, on its disk.
const INTENT_LOG: &str = "intent.log";
/// Listings of the share, before and after the replay.
const BEFORE: &str = "before";
pub(crate) const AFTER: &str = "after";

/// Kills the server so many times. `keep`: where something is kept of those that broke a promise.
pub(crate) fn run(
    kills: usize,
    shape: &Shape,
    places: &Places,
    setup: &Setup,
    keep: Option<&Path>,
    tally: &mut Tally,
) -> Result<()> {
    make(shape, places)?;
    let mut mounted = Vec::new();
    for (disk, (kind, _)) in shape.disks().into_iter().enumerate() {
        let image = places.image(disk, "disk");
        mounted.push(Mounted::new(kind, &image, &places.mount(disk), false)?);
    }
    let started = Instant::now();
    tally.runs = 1;
    for round in 0..kills {
        let seed = shape.seed + round as u64;
        let (findings, ledger) = kill(seed, shape, places, setup, tally)
            .with_context(|| format!("kill {round}, --seed {seed}"))?;
        tally.found(&findings);
        let told = tally.points_with_loss + tally.points_with_halves;
        if !findings.violations.is_empty() && told <= PRINTED_MAX {
            println!("--fs {} --kills 1 --seed {seed}:", shape.file_system);
            for violation in findings.violations.iter().take(8) {
                println!("    {violation}");
            }
            if let Some(keep) = keep {
                let directory = keep.join(format!("{}-kill-{seed}", shape.file_system));
                keep_traces(&directory, places, &findings, &ledger)?;
            }
        }
        empty(&places.share())?;
        if round % 20 == 19 {
            eprintln!(
                "  {}: {} kills, {} with loss",
                shape.file_system, tally.points, tally.points_with_loss
            );
        }
    }
    tally.checking_seconds = started.elapsed().as_secs_f64();
    for mounted in mounted.into_iter().rev() {
        mounted.unmount()?;
    }
    Ok(())
}

fn kill(
    seed: u64,
    shape: &Shape,
    places: &Places,
    setup: &Setup,
    tally: &mut Tally,
) -> Result<(Findings, Ledger)> {
    let server = setup.start()?;
    let (client, root) = server.mount()?;
    drop(client);
    let load = Load::new(root, None, usize::MAX).with(shape.mix, &places.share());
    let (clients, holders) = (shape.clients, shape.holders);
    let plan = Plan { server: address(), clients, holders, seed, may_be_killed: true };
    let life = 30 + Random::of(seed, 1 << 34).below(LIFE_MS);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| load.run(&plan));
        std::thread::sleep(Duration::from_millis(life));
        let killed = server.kill();
        load.stop();
        let ended = clients.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        killed.and(ended)
    })?;
    // As the replay finds it.
    let log = places.mount(2).join(INTENT_LOG);
    if log.exists() {
        std::fs::copy(log, places.top.join(INTENT_LOG))?;
    }
    std::fs::write(places.top.join(BEFORE), listing(&places.share())?)?;
    let server = setup.start()?;
    let mut held = Findings::default();
    if holders > 0 {
        let mut random = Random::of(seed, 1 << 35);
        let place = (address(), places.share());
        let place = (place.0, place.1.as_path());
        let resumed = regain::resume(&load, place, setup.is_logged(), &mut random, &mut held);
        if let Err(error) = resumed {
            let text = format!("clients of NFSv4 cannot go on: {error:#}");
            held.violations.push(Violation::of(Broken::Reclaim, text));
        }
    }
    let ledger = load.into_ledger();
    tally.operations += ledger.operations.len();
    tally.surprises += ledger.surprises.len();
    for surprise in ledger.surprises.iter().take(4) {
        eprintln!("  unexpected: {surprise}");
    }
    let (mut client, root) = server.mount()?;
    let under_way: BTreeSet<_> = ledger.under_way().into_iter().collect();
    let check = Check::new(&mut client, &ledger.operations, &under_way);
    let (mut findings, _) = check.run(ledger.state.clone(), &root)?;
    findings.absorb(held);
    drop(client);
    server.kill()?;
    Ok((findings, ledger))
}

/// Keeps what tells how promises were broken: the operations that had to do with it, in the order in
/// which they were sent, the intent log as it was, what was there before and after the replay, and what the
/// server said.
fn keep_traces(
    directory: &Path,
    places: &Places,
    findings: &Findings,
    ledger: &Ledger,
) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut lines: Vec<String> = findings.violations.iter().map(ToString::to_string).collect();
    let concerned: BTreeSet<Number> = (findings.violations.iter())
        .filter_map(|violation| ledger.operations.get(violation.operation? as usize))
        .filter_map(|operation| operation.action.object())
        .collect();
    for (number, operation) in ledger.operations.iter().enumerate() {
        let action = &operation.action;
        let is_of_it = |object: Option<Number>| object.is_some_and(|it| concerned.contains(&it));
        if is_of_it(action.object()) || concerned.contains(&(number as Number)) {
            lines.push(format!("#{number} {action}: {:?}", operation.outcome));
        }
    }
    std::fs::write(directory.join("violations"), lines.join("\n") + "\n")?;
    std::fs::write(places.top.join(AFTER), listing(&places.share())?)?;
    for file in [INTENT_LOG, BEFORE, AFTER, "server.log"] {
        let from = places.top.join(file);
        if from.exists() {
            std::fs::copy(from, directory.join(file))?;
        }
    }
    Ok(())
}

/// What is in a directory and below, a line each: inode, size, mode, owner, group and path.
pub(crate) fn listing(directory: &Path) -> Result<String> {
    let mut lines = String::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (it, path) = (entry.metadata()?, entry.path());
        let (mode, uid, gid) = (it.mode(), it.uid(), it.gid());
        let path_shown = path.display();
        writeln!(lines, "{} {} {mode:o} {uid} {gid} {path_shown}", it.ino(), it.size())?;
        if it.is_dir() {
            lines += &listing(&path)?;
        }
    }
    Ok(lines)
}

/// Removes what is in a directory.
fn empty(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(&path)?;
        } else {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
