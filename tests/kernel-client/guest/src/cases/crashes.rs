//! The server killed under load, and the client killed under load: what was acknowledged is
//! there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::children;
use crate::context::Context;
use crate::ledger;

/// Long enough for the client's longest pause between attempts to connect, on a busy machine.
const RESUMED_WITHIN: Duration = Duration::from_secs(90);

/// The server is killed and started again several times while processes work through open
/// files and new names: nothing acknowledged is missing, and no process sees an error.
pub(crate) fn server_killed(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("timeo=50")?;
    let scratch = context.scratch()?;
    let stop = scratch.join("stop");
    let workers = workers(&directory, &scratch, 4)?;
    let mut processes = Vec::new();
    for (number, (place, ledger)) in workers.iter().enumerate() {
        let seed = (context.seed() ^ number as u64).to_string();
        processes.push(children::start(&[
            "load",
            &text(place),
            &text(ledger),
            &seed,
            &text(&stop),
        ])?);
    }
    let model =
        crate::model::Run::start(context, context.seed(), &directory, &directory, 1, 0, &stop)?;
    let kills = context.by_version(3, 25);
    let request = context.ask(&format!("kill-server {kills}"))?;
    let result = loop {
        std::thread::sleep(Duration::from_millis(200));
        match request.answer() {
            Ok(None) => {}
            other => break other,
        }
    };
    let resumed = result.and_then(|_answered| all_go_on(&workers));
    std::fs::write(&stop, "")?;
    let finished = children::finish(processes).and(model.finish());
    resumed?;
    finished?;
    mount.again()?;
    model_and_ledgers(context, &workers)?;
    model.verify()
}

/// The guest is killed while processes work; the next guest finds everything that the first
/// was promised, and can go on. The plan says which of the two this is.
pub(crate) fn client_killed(context: &Context) -> Result<()> {
    let mount = context.mount("main", "")?;
    let round = context.value("round")?;
    let directory = mount.path().join(format!("client-killed-{round}"));
    let ledgers = PathBuf::from(context.value("ledgers")?);
    let ledgers = ledgers.join(format!("round-{round}"));
    if context.value("phase")? == "check" {
        let workers: Vec<_> = (0..4).map(|number| worker(&directory, &ledgers, number)).collect();
        model_and_ledgers(context, &workers)?;
        std::fs::write(directory.join("after"), "the next client works")?;
        std::fs::remove_dir_all(&directory).context("removal of what the killed client left")?;
        return Ok(());
    }
    std::fs::create_dir(&directory)?;
    std::fs::create_dir_all(&ledgers)?;
    let mut processes = Vec::new();
    for (number, (place, ledger)) in workers(&directory, &ledgers, 4)?.iter().enumerate() {
        let seed = (context.seed() ^ number as u64).to_string();
        processes.push(children::start(&[
            "load",
            &text(place),
            &text(ledger),
            &seed,
            "/run/never",
        ])?);
    }
    Ok(children::finish(processes)?)
}

/// Waits until every worker has had operations acknowledged by the server that now runs.
fn all_go_on(workers: &[(PathBuf, PathBuf)]) -> Result<()> {
    let acknowledged = || {
        workers.iter().map(|(_, ledger)| ledger::acknowledged(ledger)).collect::<Result<Vec<_>>>()
    };
    let before = acknowledged()?;
    let begun = Instant::now();
    loop {
        let now = acknowledged()?;
        // One may have been under way at the restart, and been answered before it.
        if before.iter().zip(&now).all(|(before, now)| *now >= before + 3) {
            return Ok(());
        }
        anyhow::ensure!(
            begun.elapsed() < RESUMED_WITHIN,
            "{} s after the last restart the workers had done {now:?} operations, {before:?} at it",
            RESUMED_WITHIN.as_secs()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn model_and_ledgers(context: &Context, workers: &[(PathBuf, PathBuf)]) -> Result<()> {
    let mut total = 0;
    for (place, ledger) in workers {
        let count = ledger::verify(place, ledger)
            .with_context(|| format!("promises made in {}", place.display()))?;
        total += count;
    }
    anyhow::ensure!(total > 3, "only {total} operations were acknowledged");
    context.note(&format!("{total} acknowledged operations are in effect"))
}

fn workers(directory: &Path, ledgers: &Path, count: usize) -> Result<Vec<(PathBuf, PathBuf)>> {
    let workers: Vec<_> = (0..count).map(|number| worker(directory, ledgers, number)).collect();
    for (place, ledger) in &workers {
        std::fs::create_dir(place)?;
        std::fs::write(ledger, "")?;
    }
    Ok(workers)
}

fn worker(directory: &Path, ledgers: &Path, number: usize) -> (PathBuf, PathBuf) {
    (directory.join(format!("worker-{number}")), ledgers.join(format!("ledger-{number}")))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
