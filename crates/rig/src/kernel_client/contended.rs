//! Locks that two guests, local processes and clients of our own contend for (`--contended`).
//!
//! One guest mounts by NFSv3 with NLM and by 4.1, the other by 4.2 and by NFSv3. Local processes lock the same files on
//! the server's machine, where clients of NFSv4.1 and of NLM run, too. All of them are processes of the guest
//! program (`tests/kernel-client/guest/src/contend`), which checks the data under each lock and keeps a
//! log. [`verdict`] reads the logs. At the end nobody may have or wait for anything, though many were
//! interrupted or killed while they waited; that is looked at before anybody unmounts.

mod verdict;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Suite;
use super::guest::{Line, Outcome};
use crate::namespace::{GUEST_ADDRESS, SERVER_ADDRESS, run as run_program};
use crate::process::{Process, wait_for};
use crate::uml::{self, Guest, Listener};
use verdict::Verdict;

/// The case of the guest program.
const CASE: &str = "contended";
/// The stage of it, which has no other.
pub(super) const STAGE: &str = "contended";
/// Name, and by which versions how many processes contend.
const GUESTS: [(&str, &str); 2] = [("one", "3:3,4.1:1"), ("two", "4.2:3,3:1")];
/// By which way how many contend on the server's machine, how long each rests between locks, in µs, and one in how
/// many waits is soon given up.
const HERE: [(&str, u32, u32, u32); 3] =
    [("local", 2, 10_000, 5), ("nfs4", 3, 0, 200), ("nlm", 2, 0, 5)];
/// So long nobody may have had a lock.
const STILL_MAX: Duration = Duration::from_secs(60);
/// After which a guest has to have mounted, and begun.
const BEGIN_LIMIT: Duration = Duration::from_secs(120);
/// For who was told to end.
const END_LIMIT: Duration = Duration::from_secs(90);
/// When who was interrupted has to have left nothing at the server. What is kept for a waiter
/// that does not come is kept for 2 s.
const LEFT_LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// A guest that contends.
struct Contending {
    name: &'static str,
    control: PathBuf,
    guest: Guest,
    listener: Listener,
    count: u64,
    /// The request by which it waits until it may unmount.
    waits: Option<String>,
    outcome: Option<Outcome>,
}

impl Contending {
    fn start(suite: &mut Suite<'_>, number: u32, name: &'static str, who: &str) -> Result<Self> {
        let address = match number {
            0 => GUEST_ADDRESS.to_owned(),
            _ => suite.namespace.add_tap(number)?,
        };
        suite.plan.insert("guest".to_owned(), name.to_owned());
        suite.plan.insert("contenders".to_owned(), who.to_owned());
        suite.plan.insert("party".to_owned(), (100 * (number + 1)).to_string());
        // No short version is long enough for any number.
        suite.plan.insert("version".to_owned(), "long".to_owned());
        let control = suite.write_plan(name, &[CASE.to_owned()])?;
        let words = [
            uml::network(number),
            format!("GUEST_ADDRESS={address}/24"),
            format!("GUEST_NAME=steadfast-{name}"),
            format!("GUEST_PROGRAM={}", suite.program.display()),
            format!("GUEST_PLAN={}", control.join("plan").display()),
        ];
        let listener = Listener::new(&control)?;
        let command = suite.namespace.command(uml::PROGRAM);
        let log = suite.directory.join(format!("guest-{name}.log"));
        let guest = Guest::start(command, name, &suite.init, &words, &log)?;
        Ok(Self { name, control, guest, listener, count: 0, waits: None, outcome: None })
    }

    fn listen(&mut self) -> Result<()> {
        let has_ended = self.guest.has_ended()?;
        for line in self.listener.lines()? {
            match Line::parse(&line)? {
                Line::Begin(_) => {}
                Line::Count(count) => self.count = count,
                Line::Note(text) => println!("     {text}"),
                Line::Request { id, .. } => self.waits = Some(id),
                Line::Ended(outcome) => self.outcome = Some(outcome),
            }
        }
        let failure = self.outcome.as_ref().and_then(|outcome| outcome.failure.as_ref());
        if let Some(why) = failure {
            bail!("guest {}: {why}", self.name);
        }
        ensure!(self.outcome.is_some() || !has_ended, "guest {} ended by itself", self.name);
        Ok(())
    }

    fn answer(&self, answer: &str) -> Result<()> {
        let id = self.waits.as_ref().context("a guest that waits")?;
        Ok(std::fs::write(self.control.join(format!("answer-{id}")), answer)?)
    }
}

/// A process on this machine that contends.
struct Here {
    name: String,
    process: Process,
    output: PathBuf,
}

impl Here {
    fn check(&mut self) -> Result<bool> {
        match self.process.ended()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                let said = std::fs::read_to_string(&self.output).unwrap_or_default();
                bail!("{}: {status}: {}", self.name, said.trim())
            }
        }
    }
}

/// Has them contend until they have had so many locks.
pub(super) fn run(suite: &mut Suite<'_>, locks: u64) -> Outcome {
    let started = Instant::now();
    let failure = contend(suite, locks).err().map(|error| format!("{error:#}"));
    let seconds = started.elapsed().as_secs_f64();
    let outcome = Outcome { name: CASE.to_owned(), failure, seconds };
    println!("{outcome}");
    outcome
}

fn contend(suite: &mut Suite<'_>, locks: u64) -> Result<()> {
    let directory = suite.storage.directory("main")?.join(CASE);
    std::fs::create_dir_all(&directory)?;
    child(suite, &["contend-make", &directory.to_string_lossy()])?;
    let control = suite.directory.join("here");
    std::fs::create_dir_all(&control)?;
    let mut guests = Vec::new();
    for (number, (name, who)) in (0..).zip(GUESTS) {
        guests.push(Contending::start(suite, number, name, who)?);
    }
    let begun = Instant::now();
    while guests.iter().any(|guest| guest.count == 0) {
        ensure!(begun.elapsed() < BEGIN_LIMIT, "a guest has had no lock so far");
        listen(suite, &mut guests)?;
    }
    let mut here = start_here(suite, &directory, &control)?;
    let started = Instant::now();
    let before: u64 = guests.iter().map(|guest| guest.count).sum();
    let had = until(suite, locks, &mut guests, &mut here, &control)?;
    let seconds = started.elapsed().as_secs_f64();
    for place in guests.iter().map(|guest| &guest.control).chain([&control]) {
        std::fs::write(place.join("end"), "")?;
    }
    end(suite, &mut guests, &mut here)?;
    let left = nothing_left(suite, &directory);
    for guest in &guests {
        // What is wrong is told by the host, once.
        guest.answer("ok")?;
    }
    let settled = left?;
    let told = Instant::now();
    while guests.iter().any(|guest| guest.outcome.is_none()) {
        ensure!(told.elapsed() < END_LIMIT, "a guest does not unmount");
        listen(suite, &mut guests)?;
    }
    let numbers = child(suite, &["contend-print", &directory.to_string_lossy()])?;
    let mut verdict = Verdict::new(&numbers)?;
    for place in guests.iter().map(|guest| &guest.control).chain([&control]) {
        verdict.read(place)?;
    }
    print!("{}", verdict.report());
    println!(
        "     {:.0} locks a second; nothing was left {:.1} s after the last",
        (had - before) as f64 / seconds.max(1e-9),
        settled.as_secs_f64()
    );
    verdict.judge()
}

fn listen(suite: &mut Suite<'_>, guests: &mut [Contending]) -> Result<()> {
    suite.server.check_alive()?;
    guests.iter_mut().try_for_each(Contending::listen)?;
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Runs a part of the guest program on this machine, to its end.
fn child(suite: &Suite<'_>, words: &[&str]) -> Result<String> {
    run_program(&suite.program.to_string_lossy(), &[&["child"], words].concat())
}

fn start_here(suite: &Suite<'_>, directory: &Path, control: &Path) -> Result<Vec<Here>> {
    let share = suite.plan.get("share.main").context("a share")?;
    let by_call = format!("{SERVER_ADDRESS}:2049:{share}/{CASE}");
    let mut here = Vec::new();
    for (way, count, pause_us, hasty) in HERE {
        for _ in 0..count {
            let name = format!("{way}-{}", here.len());
            let place =
                if way == "local" { directory.to_string_lossy() } else { (&by_call).into() };
            let output = control.join(format!("{name}.out"));
            let mut command = suite.namespace.command(&suite.program.to_string_lossy());
            command.args(["child", "contend", way, &place]);
            command.arg(control.join(format!("here.{name}.log"))).arg(control.join("end"));
            command.args([here.len() as u32, pause_us, hasty].map(|number| number.to_string()));
            let process = Process::start(&mut command, std::fs::File::create(&output)?)?;
            here.push(Here { name, process, output });
        }
    }
    Ok(here)
}

/// Waits until all together have had so many locks; how many that were.
fn until(
    suite: &mut Suite<'_>,
    locks: u64,
    guests: &mut [Contending],
    here: &mut [Here],
    control: &Path,
) -> Result<u64> {
    let (mut had, mut changed) = (0, Instant::now());
    loop {
        listen(suite, guests)?;
        for one in here.iter_mut() {
            ensure!(!one.check()?, "{} has ended", one.name);
        }
        let counts = (0..here.len()).map(|party| {
            let text = std::fs::read_to_string(control.join(format!("count-{party}")));
            text.ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        });
        let now = counts.sum::<u64>() + guests.iter().map(|guest| guest.count).sum::<u64>();
        if now > had {
            (had, changed) = (now, Instant::now());
        }
        if had >= locks {
            return Ok(had);
        }
        ensure!(changed.elapsed() < STILL_MAX, "nobody gets a lock any more, after {had}");
    }
}

/// Waits until all processes have ended, and the guests ask whether they may unmount.
fn end(suite: &mut Suite<'_>, guests: &mut [Contending], here: &mut [Here]) -> Result<()> {
    let told = Instant::now();
    loop {
        listen(suite, guests)?;
        let mut is_over = guests.iter().all(|guest| guest.waits.is_some());
        for one in here.iter_mut() {
            is_over &= one.check()?;
        }
        if is_over {
            return Ok(());
        }
        ensure!(told.elapsed() < END_LIMIT, "somebody does not end");
    }
}

/// Nobody has a lock or waits for one, nor holds the server one for them. How long that took.
fn nothing_left(suite: &Suite<'_>, directory: &Path) -> Result<Duration> {
    let started = Instant::now();
    wait_for(LEFT_LIMIT, PAUSE, || {
        let text = suite.server.manage(&suite.namespace, &["clients", "--holds", "--json"])?;
        let document: serde_json::Value = serde_json::from_str(&text)?;
        let clients = document.pointer("/clients").and_then(serde_json::Value::as_array);
        let clients = clients.context("a list of clients")?;
        for client in clients {
            let holds = client.pointer("/holds").and_then(serde_json::Value::as_array);
            let held = holds.into_iter().flatten().filter_map(|hold| hold["kind"].as_str());
            let left: Vec<_> = held.filter(|kind| ["lock", "wait"].contains(kind)).collect();
            let has_locks = client["locks"].as_u64() != Some(0);
            ensure!(left.is_empty() && !has_locks, "left at the end: {client}");
        }
        // Both mount still.
        ensure!(clients.len() >= GUESTS.len(), "the guests are not known to the server: {text}");
        child(suite, &["contend-take-all", &directory.to_string_lossy()]).map(drop)
    })?;
    Ok(started.elapsed())
}
