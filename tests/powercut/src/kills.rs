//! `kill -9` at random moments under load: the page cache survives, so everything acknowledged has
//! to be there, stable or not.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::{Check, Findings};
use crate::random::Random;
use crate::recording::{Places, Shape, make};
use crate::report::Tally;
use crate::server::{Setup, address};
use crate::storage::Mounted;
use crate::workload::{Load, Plan};

/// The longest that a server lives under load.
const LIFE_MS: u64 = 900;
/// Rounds whose violations are printed.
const PRINTED_MAX: usize = 10;

/// Kills the server so many times.
pub(crate) fn run(
    kills: usize,
    shape: &Shape,
    places: &Places,
    setup: &Setup,
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
        let findings = kill(seed, shape, setup, tally)
            .with_context(|| format!("kill {round}, --seed {seed}"))?;
        tally.found(&findings);
        let told = tally.points_with_loss + tally.points_with_halves;
        if !findings.violations.is_empty() && told <= PRINTED_MAX {
            println!("--fs {} --kills 1 --seed {seed}:", shape.file_system);
            for violation in findings.violations.iter().take(8) {
                println!("    {violation}");
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

fn kill(seed: u64, shape: &Shape, setup: &Setup, tally: &mut Tally) -> Result<Findings> {
    let server = setup.start()?;
    let (client, root) = server.mount()?;
    drop(client);
    let load = Load::new(root, None, usize::MAX);
    let plan = Plan { server: address(), clients: shape.clients, seed, may_be_killed: true };
    let life = 30 + Random::of(seed, 1 << 34).below(LIFE_MS);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| load.run(&plan));
        std::thread::sleep(Duration::from_millis(life));
        let killed = server.kill();
        load.stop();
        let ended = clients.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        killed.and(ended)
    })?;
    let ledger = load.into_ledger();
    tally.operations += ledger.operations.len();
    tally.surprises += ledger.surprises.len();
    for surprise in ledger.surprises.iter().take(4) {
        eprintln!("  unexpected: {surprise}");
    }
    let server = setup.start()?;
    let (mut client, root) = server.mount()?;
    let under_way: BTreeSet<_> = ledger.under_way().into_iter().collect();
    let check = Check::new(&mut client, &ledger.operations, &under_way);
    let findings = check.run(ledger.state.clone(), &root)?;
    drop(client);
    server.kill()?;
    Ok(findings)
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
