//! Power cuts: a recorded run, and the server started on what its disks may hold at many moments of
//! it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::check::{Broken, Check, Findings, Violation, replay};
use crate::crash::Survival;
use crate::histories::require_reported;
use crate::random::Random;
use crate::recording::{Began, Moment, Places, Recording, Shape, record};
use crate::regain::{self, View};
use crate::report::Tally;
use crate::server::{Setup, address};
use crate::storage::Mounted;

/// Images of so many crash states that broke a promise are kept of a run.
const KEPT_MAX: usize = 2;
/// Violations of so many points are printed.
const PRINTED_MAX: usize = 12;
/// Violations of one point that are printed.
const LINES_MAX: usize = 6;
/// Calls of each client that are sent again.
const REPLAYED: usize = 4;

/// What is to be done with a run.
#[derive(Clone, Debug)]
pub(crate) struct Cuts {
    pub(crate) points: usize,
    /// Only this one of them.
    pub(crate) only: Option<usize>,
    /// Whether replies have to be remembered.
    pub(crate) is_replayed: bool,
    /// Faults of which the first ends the run.
    pub(crate) expected: Vec<Broken>,
    /// Where crash states that break a promise are kept.
    pub(crate) keep: Option<PathBuf>,
}

/// Records a run and cuts the power of it many times.
pub(crate) fn run(
    cuts: &Cuts,
    shape: &Shape,
    places: &Places,
    setup: &Setup,
    tally: &mut Tally,
) -> Result<()> {
    let started = Instant::now();
    let recording = record(shape, places, setup).context("recording a run")?;
    tally.runs += 1;
    tally.operations += recording.operations.len();
    tally.events += recording.events.len() - recording.start;
    tally.recording_seconds += started.elapsed().as_secs_f64();
    for surprise in recording.surprises.iter().take(LINES_MAX) {
        eprintln!("  unexpected: {surprise}");
    }
    tally.surprises += recording.surprises.len();
    let started = Instant::now();
    // A stream of its own: the points do not depend on what the clients drew.
    let points = recording.points(cuts.points, &mut Random::of(shape.seed, 1 << 32));
    let mut moment = recording.beginning(shape);
    for (index, point) in points.into_iter().enumerate() {
        if cuts.only.is_some_and(|only| only != index) {
            continue;
        }
        let mut clock = Instant::now();
        moment.advance(point)?;
        let mut random = Random::of(shape.seed, (1 << 33) + index as u64);
        let survival = Survival::random(&mut random);
        moment.crash(survival, &mut random, |disk| places.image(disk, "point"))?;
        tally.spent("materialise", &mut clock);
        places.start_machine(shape.seed, index + 1, Began::Now)?;
        let findings = examine(cuts, shape, places, setup, &recording, &moment, tally);
        let findings = findings.unwrap_or_else(|error| Findings {
            violations: vec![Violation::of(Broken::Start, format!("{error:#}"))],
            ..Findings::default()
        });
        tally.add(survival, &findings, moment.unflushed());
        if !findings.violations.is_empty() {
            tell(cuts, shape, places, &moment, survival, index, &findings, tally)?;
        }
        if tally.has_any(&cuts.expected) {
            break;
        }
        if index % 50 == 49 {
            eprintln!(
                "  {}: run {}, {} points, {} with loss",
                shape.file_system, shape.seed, tally.points, tally.points_with_loss
            );
        }
    }
    tally.checking_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

fn examine(
    cuts: &Cuts,
    shape: &Shape,
    places: &Places,
    setup: &Setup,
    recording: &Recording,
    moment: &Moment<'_>,
    tally: &mut Tally,
) -> Result<Findings> {
    let mut clock = Instant::now();
    let mut mounted = Vec::new();
    for (disk, (kind, _)) in shape.disks().into_iter().enumerate() {
        let image = places.image(disk, "point");
        let device = recording.devices.get(disk).map(String::as_str);
        let at = places.mount(disk);
        let mount = || Mounted::with_device(kind, &image, &at, false, device);
        mounted.push(match mount() {
            Err(_) if kind.repair_super_block(&image)? => {
                tally.repaired += 1;
                mount()?
            }
            outcome => outcome?,
        });
    }
    tally.spent("mount", &mut clock);
    let outcome = serve(cuts, setup, recording, moment, tally);
    clock = Instant::now();
    for mounted in mounted.into_iter().rev() {
        mounted.unmount()?;
    }
    tally.spent("unmount", &mut clock);
    outcome
}

fn serve(
    cuts: &Cuts,
    setup: &Setup,
    recording: &Recording,
    moment: &Moment<'_>,
    tally: &mut Tally,
) -> Result<Findings> {
    let mut clock = Instant::now();
    let said = setup.said();
    let mut server = setup.start()?;
    tally.spent("start", &mut clock);
    let checked = (|| {
        let (mut client, root) = server.mount()?;
        let check = Check::new(&mut client, &recording.operations, &moment.under_way);
        let (mut findings, _) = check.of_power_cut().run(moment.state.clone(), &root)?;
        require_reported(&mut findings, &server.said_from(said));
        // Afterwards: a server that has forgotten them does them again.
        if cuts.is_replayed {
            replay(&mut client, &moment.last_replayed(REPLAYED), &mut findings)?;
        }
        tally.spent("check", &mut clock);
        let (state, holdings) = (&moment.state, &moment.holdings);
        let (server, share, deeds) = (address(), setup.share.as_path(), &recording.deeds);
        let operations = &recording.operations;
        let under_way = &moment.under_way;
        let view = View { server, share, operations, state, deeds, holdings, under_way };
        regain::reclaim(view, &mut findings)?;
        tally.spent("reclaim", &mut clock);
        Ok(findings)
    })();
    if checked.is_err() {
        tally.spent("check", &mut clock);
    }
    let ended = server.has_ended();
    server.kill()?;
    tally.spent("kill", &mut clock);
    match (checked, ended) {
        (Err(error), Some(ended)) => Err(anyhow::Error::context(error, ended)),
        (checked, _) => checked,
    }
}

#[allow(clippy::too_many_arguments, reason = "it tells about all of them")]
fn tell(
    cuts: &Cuts,
    shape: &Shape,
    places: &Places,
    moment: &Moment<'_>,
    survival: Survival,
    index: usize,
    findings: &Findings,
    tally: &Tally,
) -> Result<()> {
    let head = format!(
        "--fs {}{} --seed {} --point {index}: {survival:?} of {} unflushed writes at event {}, \
         {} operations acknowledged, under way: {:?}",
        shape.file_system,
        shape.log_words(),
        shape.seed,
        moment.unflushed(),
        moment.point,
        moment.acknowledged.len(),
        moment.under_way
    );
    // What is only there by halves must not hide what is lost.
    let told = if findings.has_loss() { tally.points_with_loss } else { tally.points_with_halves };
    if told <= PRINTED_MAX {
        println!("{head}");
        for violation in findings.violations.iter().take(LINES_MAX) {
            println!("    {violation}");
        }
        let more = findings.violations.len().saturating_sub(LINES_MAX);
        if more > 0 {
            println!("    … and {more} more");
        }
    }
    let Some(keep) = cuts.keep.as_ref().filter(|_| told <= KEPT_MAX) else {
        return Ok(());
    };
    let directory = keep.join(shape.directory(index));
    std::fs::create_dir_all(&directory)?;
    let mut random = Random::of(shape.seed, (1 << 33) + index as u64);
    let _ = Survival::random(&mut random);
    // Written again: the check has used the first ones.
    moment.crash(survival, &mut random, |disk| directory.join(format!("disk-{disk}.img")))?;
    let mut lines = vec![head];
    lines.extend(findings.violations.iter().map(ToString::to_string));
    for number in &moment.under_way {
        lines.extend(moment.action(*number).map(|action| format!("under way: #{number} {action}")));
    }
    for violation in &findings.violations {
        lines.extend(violation.operation.iter().flat_map(|number| moment.history(*number)));
    }
    lines.dedup();
    std::fs::write(directory.join("violations"), lines.join("\n") + "\n")?;
    let log = places.top.join("server.log");
    if log.exists() {
        std::fs::copy(log, directory.join("server.log"))?;
    }
    Ok(())
}
