//! The power fails under clients and local processes; then, as it comes, local processes change what the
//! crash left, an older disk is put back, the server starts, clients send calls again, and it crashes a
//! second time: while it replays, soon after, or under load.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::{Broken, Check, Findings, Violation};
use crate::crash::Survival;
use crate::image::Image;
use crate::journal::Journal;
use crate::kills::{AFTER, listing};
use crate::random::Random;
use crate::recording::{Began, Moment, Recorder, Recording, record, write_new};
use crate::report::Tally;
use crate::resend;
use crate::server::{Server, address};
use crate::state::State;
use crate::storage::Mounted;
use crate::workload::{Ledger, Load, Operation, Plan};

use super::gap::Gap;
use super::kills::unchanged;
use super::{Stage, excuse, excuse_under_way, is_changed_locally, not_started};

/// Crash points of one recorded run.
const POINTS: usize = 14;
/// The most that a point is before the end of the run, to be made within 2 s of its last change.
const RECENT_EVENTS: u64 = 60;
/// A state directory is so many checkpoints older than the data: fewer are not told from a crash.
const OLDER_CHECKPOINTS: usize = 3;
/// The longest that a server replays before it is cut off.
const REPLAY_MS: u64 = 40;
/// Operations between two crashes.
const OPERATIONS: usize = 80;
/// So long it goes on after its start, so that a checkpoint is made.
const CHECKPOINT_MS: u64 = 300;
/// Crash points of the second run.
const SECOND_POINTS: u64 = 2;

/// What follows a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Start,
    /// Local processes change something first; with `true` for the numbers of lost objects.
    Gap(bool),
    /// The state directory is older than the data.
    OlderState,
    /// The data is older than the state directory.
    OlderData,
    /// Started, and killed under load.
    Kill,
    /// The power fails again.
    Power(Second),
}

/// When the power fails again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Replay,
    Idle,
    Checkpoint,
    Load,
}

impl Then {
    fn random(stage: &Stage<'_>, random: &mut Random) -> Self {
        let parts = stage.parts;
        let wanted = match random.below(100) {
            0..30 => Self::Gap(false),
            30..42 => Self::Gap(true),
            42..50 => Self::OlderState,
            50..54 => Self::OlderData,
            54..62 => Self::Kill,
            62..66 => Self::Power(Second::Replay),
            66..69 => Self::Power(Second::Idle),
            69..72 => Self::Power(Second::Checkpoint),
            72..77 => Self::Power(Second::Load),
            _ => Self::Start,
        };
        let is_part = match wanted {
            Self::Start => true,
            Self::Gap(is_identity) => {
                if is_identity {
                    parts.identity
                } else {
                    parts.gap
                }
            }
            Self::OlderState | Self::OlderData => parts.restored,
            Self::Kill | Self::Power(_) => parts.double,
        };
        if is_part { wanted } else { Self::Start }
    }
}

/// Cuts the power so many times.
pub(crate) fn run(stage: &Stage<'_>, points: usize, tally: &mut Tally) -> Result<()> {
    let mut shape = *stage.shape;
    let both = stage.parts.local && (stage.parts.gap || stage.parts.identity);
    while tally.points < points && !stage.is_over(tally) {
        let seed = shape.seed;
        // Who changes a directory or file after a crash takes away the evidence of what local processes did
        // before it. So a run has one or the other.
        let mut parts = stage.parts;
        if both && seed.is_multiple_of(2) {
            parts.local = false;
        } else if both {
            (parts.gap, parts.identity) = (false, false);
        }
        shape.mix = parts.mix();
        let one = Stage { shape: &shape, parts, keep: stage.keep.clone(), ..*stage };
        cut(&one, points, tally).with_context(|| format!("--seed {seed}"))?;
        shape.seed += 1;
        if tally.runs.is_multiple_of(5) {
            let (points, losses) = (tally.points, tally.points_with_loss);
            eprintln!("  {}: {points} power cuts, {losses} with loss", shape.file_system);
        }
    }
    Ok(())
}

fn cut(stage: &Stage<'_>, points: usize, tally: &mut Tally) -> Result<()> {
    let shape = stage.shape;
    let started = Instant::now();
    let recording = record(shape, stage.places, stage.setup).context("recording a run")?;
    tally.runs += 1;
    tally.operations += recording.operations.len();
    tally.events += recording.events.len() - recording.start;
    tally.recording_seconds += started.elapsed().as_secs_f64();
    tally.surprises += recording.surprises.len();
    for surprise in recording.surprises.iter().take(4) {
        eprintln!("  unexpected: {surprise}");
    }
    let started = Instant::now();
    let count = POINTS.min(points - tally.points);
    let mut random = Random::of(shape.seed, 1 << 36);
    // The first is right after the last change, and nothing tells what came after the crash.
    let recent = recording.events.len().saturating_sub(random.below(RECENT_EVENTS) as usize);
    let mut all = vec![recent.max(recording.start)];
    all.extend(recording.points(count.saturating_sub(1), &mut random));
    let mut moment = recording.beginning(shape);
    for (index, point) in all.into_iter().enumerate() {
        if index == 0 {
            let mut last = recording.beginning(shape);
            last.advance(point)?;
            one(stage, &recording, &last, index, tally)?;
        } else {
            moment.advance(point)?;
            one(stage, &recording, &moment, index, tally)?;
        }
        if stage.is_over(tally) {
            break;
        }
    }
    tally.checking_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

/// One power cut and what follows.
fn one(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    index: usize,
    tally: &mut Tally,
) -> Result<()> {
    let (shape, places) = (stage.shape, stage.places);
    let mut random = Random::of(shape.seed, (1 << 37) + index as u64);
    let survival = Survival::random(&mut random);
    let mut then = Then::random(stage, &mut random);
    if index == 0 && stage.parts.gap {
        then = Then::Gap(false);
    }
    let mut images = moment.crashed(survival, &mut random);
    let older = match then {
        Then::OlderState | Then::OlderData => older(recording, moment, stage, &mut random)?,
        _ => None,
    };
    match (&older, then) {
        (None, Then::OlderState | Then::OlderData) => then = Then::Start,
        (Some(older), _) => {
            let is_older = |disk: usize| (disk == 0) == (then == Then::OlderData);
            for (disk, image) in images.iter_mut().enumerate().filter(|(disk, _)| is_older(*disk)) {
                if let Some(older) = older.get(disk) {
                    *image = older.clone();
                }
            }
        }
        (None, _) => {}
    }
    for (disk, image) in images.iter().enumerate() {
        write_new(image, &places.image(disk, "point"))?;
    }
    let began = if index == 0 { Began::BeforeTheCut } else { Began::Now };
    places.start_machine(shape.seed, index + 1, began)?;
    let under_way = moment.under_way.iter().map(|number| {
        format!("#{number} {}", moment.action(*number).map(ToString::to_string).unwrap_or_default())
    });
    let mut head = format!(
        "--histories --fs {}{} --seed {}: power cut {index} at event {}, {survival:?}, {} operations \
         acknowledged, under way: [{}], then {then:?}",
        shape.file_system,
        shape.log_words(),
        shape.seed,
        moment.point,
        moment.acknowledged.len(),
        under_way.collect::<Vec<_>>().join("; ")
    );
    if let Then::Power(second) = then {
        return again(stage, recording, moment, images, (second, began), &head, tally);
    }
    let (mounted, is_repaired) = match mount(stage, recording) {
        Ok(mounted) => mounted,
        Err(error) => return stage.tell(&head, &not_started(&error), (&[], &images), tally),
    };
    tally.repaired += usize::from(is_repaired);
    let mut later = None;
    let findings = match then {
        Then::OlderState | Then::OlderData => Ok(unchanged(stage)),
        Then::Kill => {
            let killed = killed(stage, recording, moment, began, &mut random);
            killed.map(|(findings, operations)| {
                later = operations;
                findings
            })
        }
        _ => {
            let said = stage.setup.said();
            started(stage, recording, moment, (then, began, said), &mut head, &mut random)
        }
    };
    let findings = findings.unwrap_or_else(|error| not_started(&error));
    for mounted in mounted.into_iter().rev() {
        mounted.unmount()?;
    }
    let operations = later.as_ref().unwrap_or(&recording.operations);
    stage.tell(&head, &findings, (operations, &images), tally)
}

/// All disks as they were some checkpoints before, as far as they were stable; `None` where there were too few since the
/// start.
fn older(
    recording: &Recording,
    moment: &Moment<'_>,
    stage: &Stage<'_>,
    random: &mut Random,
) -> Result<Option<Vec<Image>>> {
    let marked = recording.marked()?;
    let before = marked.partition_point(|event| *event < moment.point);
    let oldest = before.checked_sub(OLDER_CHECKPOINTS).and_then(|number| marked.get(number));
    let Some(latest) = oldest.copied() else { return Ok(None) };
    let Some(range) = latest.checked_sub(recording.start).filter(|range| *range > 0) else {
        return Ok(None);
    };
    let mut earlier = recording.beginning(stage.shape);
    earlier.advance(recording.start + random.below(range as u64) as usize)?;
    Ok(Some(earlier.crashed(Survival::None, random)))
}

/// Mounts the disks of a point; whether one had to be repaired.
fn mount(stage: &Stage<'_>, recording: &Recording) -> Result<(Vec<Mounted>, bool)> {
    let mut mounted = Vec::new();
    let mut is_repaired = false;
    for (disk, (kind, _)) in stage.shape.disks().into_iter().enumerate() {
        let image = stage.places.image(disk, "point");
        let device = recording.devices.get(disk).map(String::as_str);
        let at = stage.places.mount(disk);
        let attempt = || Mounted::with_device(kind, &image, &at, false, device);
        mounted.push(match attempt() {
            Err(_) if kind.repair_super_block(&image)? => {
                is_repaired = true;
                attempt()?
            }
            outcome => outcome?,
        });
    }
    Ok((mounted, is_repaired))
}

/// The server starts, perhaps after local changes. What was reported counts from a place of its log on.
fn started(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    (then, began, said): (Then, Began, u64),
    head: &mut String,
    random: &mut Random,
) -> Result<Findings> {
    let share = stage.places.share();
    let gap = match then {
        Then::Gap(is_identity) => Gap::make(&share, moment, is_identity, random)?,
        _ => Gap::default(),
    };
    if then != Then::Start {
        head.push_str(": ");
        head.push_str(&gap.told());
    }
    let server = stage.setup.start()?;
    let is_resent = stage.parts.resent && then == Then::Start && random.percent(60);
    let checked = check(stage, &server, recording, moment, is_resent, random);
    let said = server.said_from(said);
    let judged = checked.and_then(|(mut findings, state)| {
        if began == Began::BeforeTheCut {
            excuse_by_clock(&mut findings, recording, moment, &state, &said, &share);
        }
        gap.judge(&share, &said, &recording.operations, &mut findings)?;
        let none = BTreeSet::new();
        let sent_again = if is_resent { &moment.under_way } else { &none };
        excuse(&mut findings, (&recording.operations, sent_again), &state, &said, &share);
        Ok(findings)
    });
    if stage.keep.is_some() && !matches!(&judged, Ok(findings) if findings.violations.is_empty()) {
        std::fs::write(stage.places.top.join(AFTER), listing(&share)?)?;
    }
    server.kill()?;
    judged
}

/// Takes out what the clock does not tell: a local change of the last moments may as well be a client's that was under
/// way, or of after the crash. What was acknowledged wins.
fn excuse_by_clock(
    findings: &mut Findings,
    recording: &Recording,
    moment: &Moment<'_>,
    state: &State,
    said: &str,
    share: &Path,
) {
    let operations = &recording.operations;
    let is_local = |object| is_changed_locally(operations, object);
    let is_reverted = |violation: &Violation| violation.broken == Broken::Reverted;
    let has_reverted = findings.violations.iter().any(is_reverted);
    // An acknowledged name is demanded whoever has changed the object. A name that came back is one link more.
    findings.violations.retain(|violation| {
        let is_name = violation.broken == Broken::Name;
        let is_link = violation.broken == Broken::Attribute && tells_more_links(&violation.text);
        let is_of_them = is_reverted(violation) || has_reverted && is_link;
        let may_be_local = !is_name && violation.object.is_some_and(is_local);
        !is_of_them && !may_be_local
    });
    excuse_under_way(findings, operations, &moment.under_way, state, said, share);
}

/// Whether a violation tells that there are more links than there should be.
fn tells_more_links(text: &str) -> bool {
    let numbers = text.split_once(" links ").and_then(|(_, rest)| {
        let mut words = rest.split([' ', ',']);
        let seen: u32 = words.next()?.parse().ok()?;
        let ("instead", "of") = (words.next()?, words.next()?) else { return None };
        Some((seen, words.next()?.parse::<u32>().ok()?))
    });
    numbers.is_some_and(|(seen, wanted)| seen > wanted)
}

/// What clients see, and what they are answered when they send again.
fn check(
    stage: &Stage<'_>,
    server: &Server,
    recording: &Recording,
    moment: &Moment<'_>,
    sends_under_way: bool,
    random: &mut Random,
) -> Result<(Findings, State)> {
    let operations = &recording.operations;
    let (mut client, root) = server.mount()?;
    let mut sent = Findings::default();
    let (mut state, mut under_way) = (moment.state.clone(), moment.under_way.clone());
    if sends_under_way {
        resend::under_way(&mut client, operations, &mut state, &mut under_way, &mut sent)?;
    }
    let check = Check::new(&mut client, operations, &under_way).of_histories();
    let (mut findings, mut state) = check.run(state, &root)?;
    findings.in_flight = sent.in_flight;
    findings.false_answers = sent.false_answers;
    if stage.parts.resent && !findings.has_loss() {
        let is_kept =
            |operation: &Operation| !operation.call.is_empty() && !operation.reply.is_empty();
        let resendable: Vec<_> = (moment.acknowledged.iter().copied())
            .filter(|number| operations.get(*number as usize).is_some_and(is_kept))
            .collect();
        resend::acknowledged(&mut client, operations, &resendable, random, &mut findings)?;
        let nothing = BTreeSet::new();
        let check = Check::new(&mut client, operations, &nothing).of_histories();
        let (again, now) = check.run(state, &root)?;
        state = now;
        findings.violations.extend(again.violations);
    }
    Ok((findings, state))
}

/// A load that goes on after the server was started.
fn next_load(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    state: State,
) -> Ledger {
    let load = Load::new(recording.root.clone(), None, 0);
    let mut ledger = load.with(stage.parts.mix(), &stage.places.share()).into_ledger();
    ledger.operations.clone_from(&recording.operations);
    // What came after the power cut never was, and is not sent again.
    let acknowledged: BTreeSet<_> = moment.acknowledged.iter().copied().collect();
    for (number, operation) in ledger.operations.iter_mut().enumerate() {
        if !acknowledged.contains(&(number as crate::operation::Number)) {
            operation.reply.clear();
        }
    }
    ledger.resume(state);
    ledger
}

/// Started, and killed under load: what was acknowledged before the power cut and since is there. With
/// all operations, if some were done since.
fn killed(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    began: Began,
    random: &mut Random,
) -> Result<(Findings, Option<Vec<Operation>>)> {
    let said = stage.setup.said();
    let server = stage.setup.start()?;
    let (mut findings, state) = check(stage, &server, recording, moment, false, random)?;
    let share = stage.places.share();
    let none = BTreeSet::new();
    let said = server.said_from(said);
    if began == Began::BeforeTheCut {
        excuse_by_clock(&mut findings, recording, moment, &state, &said, &share);
    }
    excuse(&mut findings, (&recording.operations, &none), &state, &said, &share);
    // Of what is excused the ledger does not know what there is.
    if findings.has_loss() || findings.reported > 0 {
        server.kill()?;
        return Ok((findings, None));
    }
    crate::snapshot::remove_asides(&stage.places.share())?;
    let load = Load::resume(next_load(stage, recording, moment, state), None, usize::MAX);
    let mix = crate::workload::Mix { local: false, ..stage.parts.mix() };
    let load = load.with(mix, &stage.places.share());
    let (clients, seed) = (stage.shape.clients, random.next());
    let plan = Plan { server: address(), clients, holders: 0, seed, may_be_killed: true };
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| load.run(&plan));
        std::thread::sleep(Duration::from_millis(random.below(250)));
        let killed = server.kill();
        load.stop();
        let ended = clients.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        killed.and(ended)
    })?;
    let mut ledger = load.into_ledger();
    let server = stage.setup.start()?;
    let mut second = super::kills::check(stage, &server, &mut ledger, random)?;
    excuse(&mut second, (&ledger.operations, &none), &ledger.state, &server.said(), &share);
    server.kill()?;
    second.replies += findings.replies;
    Ok((second, Some(ledger.operations)))
}

/// The power fails a second time.
fn again(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    images: Vec<Image>,
    (second, began): (Second, Began),
    head: &str,
    tally: &mut Tally,
) -> Result<()> {
    let (shape, places) = (stage.shape, stage.places);
    // What the first start was free to undo is not told from what it had to keep once more was done after it.
    let second =
        if began == Began::BeforeTheCut && second == Second::Load { Second::Idle } else { second };
    let mut random = Random::of(shape.seed, (1 << 38) + moment.point as u64);
    let recorder = match Recorder::open(shape, places, "point", &recording.devices) {
        Ok(recorder) => recorder,
        // A super block that has to be repaired; the other points have that.
        Err(_) if has_torn_super_block(stage, images.len()) => return Ok(()),
        Err(error) => return stage.tell(head, &not_started(&error), (&[], &images), tally),
    };
    let journal = Arc::clone(&recorder.journal);
    let devices = recorder.devices.clone();
    let said = stage.setup.said();
    let lived = live(stage, recording, moment, second, &journal, &mut random);
    let events = journal.events();
    recorder.close()?;
    let Lived { operations, state, is_settled } = match lived {
        Ok(lived) => lived,
        Err(error) => return stage.tell(head, &not_started(&error), (&[], &images), tally),
    };
    let next = Recording {
        operations,
        deeds: recording.deeds.clone(),
        surprises: Vec::new(),
        start: 0,
        events,
        devices,
        root: recording.root.clone(),
        journal,
        images,
        state,
    };
    let mut points = next.points(SECOND_POINTS as usize, &mut random);
    points.sort_unstable();
    let mut later = next.beginning(shape);
    if !is_settled {
        later.under_way.clone_from(&moment.under_way);
    }
    later.acknowledged.clone_from(&moment.acknowledged);
    for point in points {
        later.advance(point)?;
        cut_again(stage, &next, &later, (began, said), head, &mut random, tally)?;
    }
    Ok(())
}

/// Whether the super block of a point's disks was written by halves.
fn has_torn_super_block(stage: &Stage<'_>, disks: usize) -> bool {
    let mut disks = stage.shape.disks().into_iter().take(disks).enumerate();
    disks.any(|(disk, (kind, _))| {
        let file = stage.places.image(disk, "point");
        matches!(kind.repair_super_block(&file), Ok(true))
    })
}

/// What came of the time between two power cuts.
struct Lived {
    operations: Vec<Operation>,
    state: State,
    /// Whether it is known what was done of the operations that the first cut interrupted.
    is_settled: bool,
}

/// The server starts after the first power cut, and goes on until the second.
fn live(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    second: Second,
    journal: &Arc<Journal>,
    random: &mut Random,
) -> Result<Lived> {
    match second {
        Second::Replay => {
            let server = stage.setup.launch()?;
            std::thread::sleep(Duration::from_millis(random.below(REPLAY_MS)));
            server.kill()?;
        }
        Second::Idle => {
            stage.setup.start()?.kill()?;
        }
        Second::Checkpoint => {
            let server = stage.setup.start()?;
            std::thread::sleep(Duration::from_millis(CHECKPOINT_MS));
            server.kill()?;
        }
        Second::Load => return live_under_load(stage, recording, moment, journal, random),
    }
    let (operations, state) = (recording.operations.clone(), moment.state.clone());
    Ok(Lived { operations, state, is_settled: false })
}

/// The same, with a load that goes on.
fn live_under_load(
    stage: &Stage<'_>,
    recording: &Recording,
    moment: &Moment<'_>,
    journal: &Arc<Journal>,
    random: &mut Random,
) -> Result<Lived> {
    let server = stage.setup.start()?;
    let (mut client, root) = server.mount()?;
    let operations = &recording.operations;
    let check = Check::new(&mut client, operations, &moment.under_way).of_histories();
    let (_, state) = check.run(moment.state.clone(), &root)?;
    crate::snapshot::remove_asides(&stage.places.share())?;
    let ledger = next_load(stage, recording, moment, state.clone());
    let load = Load::resume(ledger, Some(Arc::clone(journal)), operations.len() + OPERATIONS);
    let mix = crate::workload::Mix { local: false, ..stage.parts.mix() };
    let load = load.with(mix, &stage.places.share());
    let (clients, seed) = (stage.shape.clients, random.next());
    let plan = Plan { server: address(), clients, holders: 0, seed, may_be_killed: false };
    load.run(&plan)?;
    let operations = load.into_ledger().operations;
    server.kill()?;
    Ok(Lived { operations, state, is_settled: true })
}

/// The second power cut, and the start after it.
fn cut_again(
    stage: &Stage<'_>,
    next: &Recording,
    later: &Moment<'_>,
    (began, said): (Began, u64),
    head: &str,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<()> {
    let (places, point) = (stage.places, later.point);
    let survival = Survival::random(random);
    let images = later.crashed(survival, random);
    for (disk, image) in images.iter().enumerate() {
        write_new(image, &places.image(disk, "point"))?;
    }
    places.start_machine(stage.shape.seed, 1000 + random.below(60_000) as usize, Began::Now)?;
    let mut head = format!("{head}, again at event {point}, {survival:?}");
    // What was recorded began with mounting what the first cut had left, which writes too.
    let Ok((mounted, is_repaired)) = mount(stage, next) else {
        tally.not_mounted += 1;
        return Ok(());
    };
    tally.repaired += usize::from(is_repaired);
    // What the first start was free to undo stays undone.
    let then = (Then::Start, began, said);
    let findings = started(stage, next, later, then, &mut head, random);
    let findings = findings.unwrap_or_else(|error| not_started(&error));
    for mounted in mounted.into_iter().rev() {
        mounted.unmount()?;
    }
    stage.tell(&head, &findings, (&next.operations, &images), tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_links_are_excused() {
        assert!(tells_more_links("#841: links 2 instead of 1, at name-01/name-01"));
        assert!(tells_more_links("#841: mode 644 instead of 600, links 2 instead of 1"));
        for other in ["#841: links 1 instead of 2", "#841: uid 2 instead of 1", "#1: links"] {
            assert!(!tells_more_links(other), "{other}");
        }
    }
}
