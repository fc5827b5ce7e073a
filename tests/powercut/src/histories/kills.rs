//! The server ends, again and again, and its file systems go on: by `kill -9` under load, also while it
//! replays, by an orderly stop, or with the file system mounted anew; and once in a while with the state
//! directory of an earlier moment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::{Broken, Check, Findings, Violation};
use crate::operation::Number;
use crate::random::Random;
use crate::recording::make;
use crate::report::Tally;
use crate::server::{Server, address};
use crate::storage::{Mounted, call};
use crate::workload::{Ledger, Load, Plan};
use crate::{resend, snapshot};

use super::{Stage, excuse, not_started};

/// The longest that a server lives under load.
const LIFE_MS: u64 = 600;
/// So long it lives on after its state directory was copied: several checkpoints.
const AFTER_COPY_MS: u64 = 900;
/// The longest that it may replay before it is killed again.
const REPLAY_MS: u64 = 30;
/// Local changes while the server is down.
const GAP_CHANGES: u64 = 12;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    /// And the file system is mounted anew.
    Remount,
    Stop,
}

impl End {
    fn random(random: &mut Random) -> Self {
        match random.below(20) {
            0..12 => Self::Kill,
            12..15 => Self::Remount,
            _ => Self::Stop,
        }
    }
}

/// Ends the server so many times.
pub(crate) fn run(stage: &Stage<'_>, kills: usize, tally: &mut Tally) -> Result<()> {
    let started = Instant::now();
    let mut seed = stage.shape.seed;
    while tally.points < kills && !stage.is_over(tally) {
        history(stage, seed, kills, tally).with_context(|| format!("--seed {seed}"))?;
        tally.runs += 1;
        seed += 1;
        if tally.runs.is_multiple_of(10) {
            let (points, losses) = (tally.points, tally.points_with_loss);
            eprintln!(
                "  {}: {points} kills and stops, {losses} with loss",
                stage.shape.file_system
            );
        }
    }
    tally.checking_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

fn history(stage: &Stage<'_>, seed: u64, kills: usize, tally: &mut Tally) -> Result<()> {
    make(stage.shape, stage.places)?;
    let mut mounted = Vec::new();
    for (disk, (kind, _)) in stage.shape.disks().into_iter().enumerate() {
        let image = stage.places.image(disk, "disk");
        mounted.push(Mounted::new(kind, &image, &stage.places.mount(disk), false)?);
    }
    let outcome = lives(stage, seed, kills, &mut mounted, tally);
    for mounted in mounted.into_iter().rev() {
        mounted.unmount()?;
    }
    outcome
}

fn lives(
    stage: &Stage<'_>,
    seed: u64,
    kills: usize,
    mounted: &mut Vec<Mounted>,
    tally: &mut Tally,
) -> Result<()> {
    let share = stage.places.share();
    let mut random = Random::of(seed, 1 << 35);
    let mut server = stage.setup.start()?;
    let (_, root) = server.mount()?;
    let lives = if stage.parts.double { 2 + random.below(3) } else { 1 };
    let mut ledger: Option<Ledger> = None;
    for life in 0..lives {
        let is_last = life + 1 == lives || tally.points + 1 >= kills;
        let end = End::random(&mut random);
        let is_restored = stage.parts.restored && is_last && random.percent(40);
        let load = match ledger.take() {
            Some(ledger) => Load::resume(ledger, None, usize::MAX),
            None => Load::new(root.clone(), None, usize::MAX),
        };
        let load = load.with(stage.parts.mix(), &share);
        load.ledger().state.keeps_all = true;
        let older = is_restored.then(|| stage.places.top.join("older"));
        let before = load.sent();
        let life_ms = 30 + random.below(LIFE_MS);
        let clients_seed = seed ^ life << 40;
        live(
            stage,
            &load,
            server,
            end,
            Duration::from_millis(life_ms),
            older.as_deref(),
            clients_seed,
        )?;
        tally.operations += load.sent() - before;
        if stage.parts.local {
            for _ in 0..random.below(GAP_CHANGES) {
                load.change_locally(None, &mut random);
            }
        }
        let mut known = load.into_ledger();
        tally.surprises += known.surprises.len();
        for surprise in known.surprises.drain(..).take(4) {
            eprintln!("  unexpected: {surprise}");
        }
        if end == End::Remount {
            let data = mounted.remove(0);
            mounted.insert(0, data.mount_again()?);
        }
        let fs = stage.shape.file_system;
        let head = format!("--histories --kills 1 --fs {fs} --seed {seed}: life {life}, {end:?}");
        if let Some(older) = older {
            let findings = restored(stage, &older)?;
            let head = format!("{head}, with the state directory of an earlier moment");
            return stage.tell(&head, &findings, (&known.operations, &[]), tally);
        }
        let mut again = 0;
        if stage.parts.double && random.percent(35) {
            again = 1 + random.below(2);
            for _ in 0..again {
                let server = stage.setup.launch()?;
                std::thread::sleep(Duration::from_millis(random.below(REPLAY_MS)));
                server.kill()?;
            }
        }
        let head = format!("{head}, killed {again} times while it started");
        server = match stage.setup.start() {
            Ok(server) => server,
            Err(error) => return stage.tell(&head, &not_started(&error), (&[], &[]), tally),
        };
        let checked = check(stage, &server, &mut known, &mut random);
        let mut findings = checked.unwrap_or_else(|error| not_started(&error));
        let share = stage.places.share();
        let none = BTreeSet::new();
        excuse(&mut findings, (&known.operations, &none), &known.state, &server.said(), &share);
        stage.tell(&head, &findings, (&known.operations, &[]), tally)?;
        if findings.has_loss() || tally.points >= kills || stage.is_over(tally) {
            // What follows would be found again and again.
            return server.kill();
        }
        snapshot::remove_asides(&share)?;
        ledger = Some(known);
    }
    server.stop()
}

/// Clients work until the server ends. With `older` its state is copied there on the way.
fn live(
    stage: &Stage<'_>,
    load: &Load,
    server: Server,
    end: End,
    life: Duration,
    older: Option<&Path>,
    seed: u64,
) -> Result<()> {
    let clients = stage.shape.clients;
    let plan = Plan { server: address(), clients, holders: 0, seed, may_be_killed: true };
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| load.run(&plan));
        std::thread::sleep(life);
        let copied = older.map_or(Ok(()), |older| copy_state(stage, older));
        if older.is_some() {
            std::thread::sleep(Duration::from_millis(AFTER_COPY_MS));
        }
        let ended = |clients: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            load.stop();
            clients.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        if end == End::Stop {
            // What was sent is answered first.
            let answered = ended(clients);
            copied.and(answered).and(server.stop())
        } else {
            let killed = server.kill();
            copied.and(ended(clients)).and(killed)
        }
    })
}

/// What clients see, and what they are answered when they send again; the ledger is what follows.
pub(super) fn check(
    stage: &Stage<'_>,
    server: &Server,
    ledger: &mut Ledger,
    random: &mut Random,
) -> Result<Findings> {
    let (mut client, root) = server.mount()?;
    let mut sent = Findings::default();
    let mut under_way: BTreeSet<Number> = ledger.under_way().into_iter().collect();
    let mut state = ledger.state.clone();
    let operations = &ledger.operations;
    if stage.parts.resent && random.percent(60) {
        resend::under_way(&mut client, operations, &mut state, &mut under_way, &mut sent)?;
    }
    let check = Check::new(&mut client, operations, &under_way).of_histories();
    let (mut findings, mut state) = check.run(state, &root)?;
    findings.in_flight = sent.in_flight;
    findings.false_answers = sent.false_answers;
    if stage.parts.resent && !findings.has_loss() {
        let resendable = ledger.resendable();
        resend::acknowledged(&mut client, operations, &resendable, random, &mut findings)?;
        // They changed nothing.
        let nothing = BTreeSet::new();
        let check = Check::new(&mut client, operations, &nothing).of_histories();
        let (again, now) = check.run(state, &root)?;
        state = now;
        findings.violations.extend(again.violations);
    }
    ledger.resume(state);
    Ok(findings)
}

/// The state directory, and the log if it is elsewhere.
fn state_places(stage: &Stage<'_>) -> Vec<PathBuf> {
    let log = stage.places.mount(2).join("intent.log");
    std::iter::once(stage.setup.state.clone()).chain(log.exists().then_some(log)).collect()
}

/// As a backup does that runs beside the server.
fn copy_state(stage: &Stage<'_>, to: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to)?;
    state_places(stage).iter().try_for_each(|place| copy(place, to))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    // Sockets, and files that go away meanwhile, are no matter.
    call("sh", &["-c", "cp -a --sparse=never \"$0\" \"$1\" 2>/dev/null; :", &from, &to])
}

/// Puts the earlier state back, starts the server, and compares what is on the data's disk.
fn restored(stage: &Stage<'_>, older: &Path) -> Result<Findings> {
    for place in state_places(stage) {
        let name = place.file_name().context("a state directory with a name")?;
        let parent = place.parent().context("a state directory that is in another")?;
        if place.is_dir() {
            std::fs::remove_dir_all(&place)?;
        } else {
            std::fs::remove_file(&place)?;
        }
        copy(&older.join(name), parent)?;
    }
    Ok(unchanged(stage))
}

/// A server that is started with a state that does not fit its data changes nothing.
pub(super) fn unchanged(stage: &Stage<'_>) -> Findings {
    let attempt = || -> Result<Findings> {
        let share = stage.places.share();
        let before = snapshot::take(&share)?;
        let (is_started, said) = match stage.setup.start() {
            Ok(server) => {
                // What is replayed when somebody comes is replayed soon.
                let _ = server.mount();
                std::thread::sleep(Duration::from_millis(150));
                let said = server.said();
                server.kill()?;
                (true, said)
            }
            Err(error) => (false, format!("{error:#}")),
        };
        let differences = snapshot::differences(&before, &snapshot::take(&share)?);
        let mut findings = Findings { restored: 1, ..Findings::default() };
        if let Some(first) = differences.first() {
            let what = if is_started { "started" } else { "did not start" };
            let how = if said.contains("WARN") { "with warnings" } else { "without a warning" };
            let count = differences.len();
            let text = format!(
                "the server {what} {how}, and {count} objects are not as they were: {first}"
            );
            findings.violations.push(Violation::of(Broken::Reverted, text));
        }
        Ok(findings)
    };
    attempt().unwrap_or_else(|error| not_started(&error))
}
