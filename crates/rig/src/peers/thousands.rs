//! Thousands of clients: CPU time a call beside ganesha and beside canned replies, throughput,
//! held rates on one core, streams beside what loopback reaches, walks, storms of mounts, a client
//! beside a greedy one, the memory of replies kept for duplicates.
//!
//! Both servers run side by side on directories of their own, and each row is measured on one and
//! then on the other, so that what the machine does meanwhile falls on both; the order alternates
//! from row to row and from round to round. The last table has each target with what was
//! measured. Inside: `cases` are the rows, `targets` what is asked.

mod busy_cpus;
mod cases;
mod congestion_control;
mod targets;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Options, fresh, report};
use crate::load;
use crate::servers::{self, Cpus, Peer, Server, Setup, bench_program};
use busy_cpus::BusyCpus;
use cases::{Case, Place};
use congestion_control::CongestionControl;
use targets::Target;

/// Open files that the largest storm needs, of the server and of the generator.
const DESCRIPTORS: u64 = 65_536;
/// What each server listens at.
const PORTS: [(Peer, u16); 3] =
    [(Peer::Ganesha, 2049), (Peer::Steadfast, 2050), (Peer::Canned, 2051)];
/// The generator's share of its CPU in percent: at 100 it is what is measured.
const GENERATOR: &str = "generator CPU %";

type Figures = BTreeMap<String, f64>;

/// One row on one server in one round.
struct Run {
    title: &'static str,
    peer: Peer,
    /// How often it was measured until workers were held.
    attempts: usize,
    /// Or why there are none.
    figures: Result<Figures, String>,
    report: Value,
}

/// Medians over the rounds.
struct Medians<'r>(&'r [Run]);

impl Medians<'_> {
    fn get(&self, title: &str, peer: Peer, figure: &str) -> Option<f64> {
        let runs = self.0.iter().filter(|run| run.title == title && run.peer == peer);
        let figures = runs.filter_map(|run| run.figures.as_ref().ok()?.get(figure).copied());
        crate::report::median(figures.collect())
    }
}

/// Measures, prints the report, and fails when a target was missed.
pub(super) fn measure(options: &Options, base: &Path, cpus: &Cpus) -> Result<()> {
    allow_descriptors();
    let system_tcp = CongestionControl::of_system()?;
    // In this run's own network namespace.
    let usual_tcp = CongestionControl::become_one(Some(USUAL_TCP), None);
    let tcp = match &usual_tcp {
        Ok(_) => format!("{USUAL_TCP}, and {system_tcp} where the system's is said"),
        Err(error) => {
            eprintln!("{error:#}");
            system_tcp
        }
    };
    let all = cases::all(options.inodes, options.seconds);
    let wanted: Vec<Case> =
        all.into_iter().filter(|case| case.title.contains(&options.rows)).collect();
    let mut directories = BTreeMap::new();
    for (peer, _) in PORTS {
        // Kept through all rounds, since large trees are found again.
        directories.insert(peer.name(), fresh(base, peer.name())?);
    }
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for place in cases::PLACES {
            // What was measured before is told in any case.
            let here: Vec<&Case> = wanted.iter().filter(|case| case.place == place).collect();
            if here.is_empty() {
                continue;
            }
            eprintln!("round {} of {}, {place:?}", round + 1, options.rounds);
            let mut site = Site {
                options,
                cpus,
                place,
                directories: &directories,
                servers: vec![],
                has_usual_tcp: usual_tcp.is_ok(),
            };
            if let Err(error) = site.measure_all(&here, round, &mut runs) {
                let why = format!("{error:#}");
                eprintln!("  {place:?} ended: {why}");
                let (title, report) = ("servers", Value::Null);
                let peer = Peer::Steadfast;
                runs.push(Run { title, peer, attempts: 1, figures: Err(why), report });
            }
        }
    }
    for directory in directories.values() {
        std::fs::remove_dir_all(directory)?;
    }
    tell(options, &report::machine(base, cpus)?, &tcp, &wanted, &runs)
}

/// A file system in memory, inside the namespaces.
const MEMORY: &str = "/run";
/// The other client is at full speed after this long.
const RUN_UP: Duration = Duration::from_secs(1);
/// Longer than any row; it is ended by a signal.
const BESIDE_SECONDS: &str = "3600";

/// How long a worker may run, and in what time: a quarter of a CPU. So two workers and the generator
/// that keeps both busy need no more than two CPUs, and do run at the same time on them.
const WORKER_SHARE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));
/// What a server may use for each worker, in percent of one CPU: its share, and what the server's other
/// threads need.
const SHARE_MAX: f64 = 27.0;
/// A worker may have lent its seat just then, and who took it is not held: each attempt is with
/// another server.
const ATTEMPTS_TO_HOLD: usize = 3;

/// TCP's congestion control as kernels have it unless told, for all programs: some systems have
/// another, whose pacing would be what large replies measure.
const USUAL_TCP: &str = "cubic";
/// Descriptors that Steadfast keeps for files where connections are many and files few.
const FILES_OF_CROWD: usize = 1024;

/// Servers and generator need more open files than many systems allow at first. Where they cannot
/// be allowed more, the largest storm needs half of the 20,000 that containers often have.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    if limits.maximum.is_some_and(|maximum| maximum < DESCRIPTORS) {
        let raised = Rlimit { current: limits.current, maximum: Some(DESCRIPTORS) };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Servers that run side by side.
struct Site<'s> {
    options: &'s Options,
    cpus: &'s Cpus,
    place: Place,
    directories: &'s BTreeMap<&'static str, PathBuf>,
    servers: Vec<Server>,
    /// What rows have unless they are to have the system's.
    has_usual_tcp: bool,
}

impl Site<'_> {
    fn is_wanted(&self, peer: Peer) -> bool {
        peer == Peer::Canned || self.options.peers.contains(&peer)
    }

    /// Starts the servers that these cases need.
    fn start(&mut self, cases: &[&Case]) -> Result<()> {
        for (peer, _) in PORTS {
            if self.is_wanted(peer) && cases.iter().any(|case| case.peers.contains(&peer)) {
                self.servers.push(self.start_one(peer)?);
            }
        }
        Ok(())
    }

    fn start_one(&self, peer: Peer) -> Result<Server> {
        let port = PORTS.iter().find(|(known, _)| *known == peer).map_or(0, |(_, port)| *port);
        let mut setup = Setup { port, ..Setup::usual(self.cpus) };
        match self.place {
            Place::Usual | Place::Memory => {}
            Place::Crowd => setup.files = Some(FILES_OF_CROWD),
            Place::OneCore => setup.cpus = Some("0".to_owned()),
            Place::Workers(workers) => (setup.cpus, setup.workers) = (None, Some(workers)),
        }
        if self.place == Place::Memory {
            return servers::start(peer, &fresh(Path::new(MEMORY), peer.name())?, &setup);
        }
        let directory = self.directories.get(peer.name()).context("no directory")?;
        servers::start(peer, directory, &setup)
    }

    /// Measures these rows in one round.
    fn measure_all(&mut self, cases: &[&Case], round: usize, runs: &mut Vec<Run>) -> Result<()> {
        self.start(cases)?;
        for (number, case) in cases.iter().enumerate() {
            let is_reversed = (round + number) % 2 == 1;
            self.measure(case, is_reversed, runs)?;
        }
        self.servers.drain(..).try_for_each(Server::stop)
    }

    /// Measures one row on its servers.
    fn measure(&mut self, case: &Case, is_reversed: bool, runs: &mut Vec<Run>) -> Result<()> {
        let mut order: Vec<Peer> =
            case.peers.iter().copied().filter(|peer| self.is_wanted(*peer)).collect();
        if is_reversed {
            order.reverse();
        }
        for peer in order {
            let Some(index) = self.servers.iter().position(|server| server.peer == peer) else {
                continue;
            };
            let Some(server) = self.servers.get(index) else { continue };
            let mut outcome = self.load(case, server, runs);
            let mut attempts = 1;
            while let Err(why) = &outcome
                && why.is::<NotHeld>()
                && attempts < ATTEMPTS_TO_HOLD
            {
                eprintln!("  {:<52} {:<14} once more: {why:#}", case.title, peer.name());
                attempts += 1;
                self.servers.remove(index).stop()?;
                self.servers.insert(index, self.start_one(peer)?);
                let Some(server) = self.servers.get(index) else { break };
                outcome = self.load(case, server, runs);
            }
            let (figures, report) = match outcome {
                Ok((figures, report)) => (Ok(figures), report),
                Err(error) => (Err(format!("{error:#}")), Value::Null),
            };
            eprintln!("  {:<52} {:<14} {}", case.title, peer.name(), brief(&figures));
            let has_failed = figures.is_err();
            runs.push(Run { title: case.title, peer, attempts, figures, report });
            if has_failed && self.servers.get_mut(index).is_some_and(Server::has_ended) {
                eprintln!("  {} has ended; it is started again", peer.name());
                let again = self.start_one(peer)?;
                if let Some(place) = self.servers.get_mut(index) {
                    *place = again;
                }
            }
        }
        Ok(())
    }

    /// Runs the generator.
    fn load(&self, case: &Case, server: &Server, runs: &[Run]) -> Result<(Figures, Value)> {
        let _tcp = case
            .has_system_tcp
            .then(|| CongestionControl::become_one(None, self.has_usual_tcp.then_some(USUAL_TCP)))
            .transpose()?;
        let cpus = self.cpus.client.as_ref();
        let mut command = Cpus::command(cpus, &bench_program()?);
        command
            .args([case.load, &server.address.to_string(), &server.path])
            .args(&case.arguments)
            .args(["--mount-port", &server.mount_port.to_string()])
            .args(["--pid", &server.pid().to_string(), "--json"])
            .stdin(Stdio::null());
        if let Some(of) = case.load_of {
            let last =
                runs.iter().rev().find(|run| run.title == of.title && run.peer == server.peer);
            let figure = last.and_then(|run| run.figures.as_ref().ok()?.get(of.figure));
            let figure = figure.with_context(|| format!("{} has no result", of.title))?;
            command.args(["--load", &format!("{:.0}", figure * of.share)]);
        }
        let busy = case.has_busy_cpus.then(BusyCpus::start).transpose()?;
        let beside = case.beside.map(|words| Beside::start(words, server, cpus)).transpose()?;
        let report: Value = if matches!(self.place, Place::Workers(_)) {
            run_held(case, server)?
        } else {
            let output = command.output().context("cannot run the load generator")?;
            if !output.status.success() {
                bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
            }
            serde_json::from_slice(&output.stdout)?
        };
        let of_beside = beside.map(Beside::stop).transpose()?;
        busy.map(BusyCpus::stop).transpose()?;
        let mut figures = Figures::new();
        for (name, pointer) in &case.figures {
            let figure = report.pointer(pointer).and_then(Value::as_f64);
            figures.insert(name.clone(), figure.with_context(|| format!("no {pointer}"))?);
        }
        if let Some(calls) = of_beside {
            figures.insert(cases::BESIDE.to_owned(), calls);
        }
        if self.place == Place::Memory {
            let statistics = server.statistics()?;
            let told = |key: &str| {
                let value = statistics.pointer(&format!("/server/{key}")).and_then(Value::as_f64);
                value.with_context(|| format!("the statistics have no {key}"))
            };
            let calls = figures.get(cases::CALLS).copied().unwrap_or(f64::NAN);
            figures.insert(cases::KEPT_MB.to_owned(), told("replies_kept_bytes")? / 1e6);
            figures.insert(cases::KEPT_SECONDS.to_owned(), told("replies_kept")? / calls);
        }
        let (calls, client) = (figures.get(cases::CALLS), figures.get(cases::CLIENT));
        if let Some((calls, client)) = calls.zip(client) {
            figures.insert(GENERATOR.to_owned(), calls * client / 1e4);
        }
        if let Place::Workers(workers) = self.place
            && let Some((calls, cost)) = figures.get(cases::CALLS).zip(figures.get(cases::SERVER))
        {
            let share = calls * cost / 1e4;
            if share > SHARE_MAX * workers as f64 {
                return Err(NotHeld { share }.into());
            }
            figures.insert(cases::SERVER_SHARE.to_owned(), share);
        }
        Ok((figures, report))
    }
}

/// A worker was not held to its share of a CPU.
#[derive(Debug)]
struct NotHeld {
    /// The server's, in percent.
    share: f64,
}

impl std::fmt::Display for NotHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server had {:.1} % of a CPU: a worker was not held to its share", self.share)
    }
}

impl std::error::Error for NotHeld {}

/// Runs the generator with the server's workers held to their share while it measures, and not
/// before: what is prepared has them lend their seats, which others, who are not held, would take.
fn run_held(case: &Case, server: &Server) -> Result<Value> {
    // Where servers choose their CPUs, the generator does too.
    let cpus = Cpus { server: None, client: None };
    let mut words = case.arguments.clone();
    words.extend(["--pid".to_owned(), server.pid().to_string()]);
    let hold = || server.hold_workers_to(WORKER_SHARE);
    load::run(server, &cpus, case.load, &words, hold)
}

/// Another client's load, while a row is measured; ended by its process id when dropped.
struct Beside(Option<Child>);

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Beside {
    /// Starts it, and waits until it is at full speed. It leaves the generator's CPU to the row that
    /// is measured: what that waits for is to be the server.
    fn start(words: &str, server: &Server, cpus: Option<&String>) -> Result<Self> {
        let mut command = Cpus::command(cpus, Path::new("nice"));
        command
            .args(["-n", "19"])
            .arg(bench_program()?)
            .args(["op", &server.address.to_string(), &server.path])
            .args(words.split_whitespace())
            .args(["--mount-port", &server.mount_port.to_string()])
            .args(["--seconds", BESIDE_SECONDS, "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let child = command.spawn().context("cannot run the load generator")?;
        std::thread::sleep(RUN_UP);
        Ok(Self(Some(child)))
    }

    /// Ends it, and says how many calls a second it made.
    fn stop(mut self) -> Result<f64> {
        let child = self.0.take().context("it has ended")?;
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("no process id")?, rustix::process::Signal::INT)?;
        let output = child.wait_with_output()?;
        let report: Value =
            serde_json::from_slice(&output.stdout).context("the load beside has no report")?;
        let calls = report.pointer("/reports/0/calls_per_second").and_then(Value::as_f64);
        calls.context("the load beside has no rate")
    }
}

/// The first figures of a run, or why there are none.
fn brief(figures: &Result<Figures, String>) -> String {
    match figures {
        Ok(figures) => {
            let each = figures.iter().take(4).map(|(name, value)| format!("{name} {value:.1}"));
            each.collect::<Vec<_>>().join(", ")
        }
        Err(why) => format!("failed: {why}"),
    }
}

fn tell(options: &Options, machine: &str, tcp: &str, cases: &[Case], runs: &[Run]) -> Result<()> {
    let medians = Medians(runs);
    let mut text = String::from("# Steadfast beside its peer, with thousands of clients\n\n");
    // Writing to a string cannot fail.
    for (peer, _) in PORTS.iter().filter(|(peer, _)| runs.iter().any(|run| run.peer == *peer)) {
        let _ = writeln!(text, "- {}: {}", peer.name(), peer.version()?);
    }
    let _ = writeln!(
        text,
        "- {}; {} rounds of {} s a row, each row on one server and then on the other, medians \
         over the rounds. Loopback, every virtual client with an address of its own, AUTH_SYS as \
         root, every reply checked. TCP's congestion control: {tcp}.\n",
        machine, options.rounds, options.seconds,
    );
    write_figures(&mut text, cases, runs, &medians);
    let targets = targets::targets(&medians, std::thread::available_parallelism()?.get());
    let _ = writeln!(text, "\n| no. | target | goal | measured | |\n|--:|---|--:|--:|---|");
    for target in &targets {
        let verdict = match (target.is_met, target.measured) {
            (Some(true), _) => "met",
            (Some(false), _) => "**missed**",
            (None, Some(_)) => "not judged",
            (None, None) => "not measured",
        };
        let measured =
            target.measured.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        let Target { number, what, goal, .. } = target;
        let _ = writeln!(text, "| {number} | {what} | {goal} | {measured} | {verdict} |");
    }
    let directory = crate::workspace::target()?;
    std::fs::write(directory.join("peers-thousands.md"), &text)?;
    std::fs::write(directory.join("peers-thousands.json"), as_json(&targets, runs)?)?;
    println!("{text}");
    println!("Written to target/peers-thousands.md and target/peers-thousands.json.");
    let missed = targets.iter().filter(|target| target.is_met == Some(false)).count();
    // A row that fails is not one that was met by the rounds in which it did not.
    let failed =
        runs.iter().filter(|run| run.peer != Peer::Ganesha && run.figures.is_err()).count();
    match (missed, failed) {
        (0, 0) => Ok(()),
        _ => bail!("targets missed: {missed}; rows that failed, over all rounds: {failed}"),
    }
}

/// Every figure of every row.
fn write_figures(text: &mut String, cases: &[Case], runs: &[Run], medians: &Medians<'_>) {
    text.push_str(
        "| load | figure | nfs-ganesha | Steadfast | canned | ganesha ÷ ours |\n\
         |---|---|--:|--:|--:|--:|\n",
    );
    for case in cases {
        let has_generator = case.figures.iter().any(|(name, _)| name == cases::CLIENT);
        let names = case.figures.iter().map(|(name, _)| name.as_str());
        let is_memory = case.place == Place::Memory;
        let more = [
            (has_generator, GENERATOR),
            (case.beside.is_some(), cases::BESIDE),
            (is_memory, cases::KEPT_MB),
            (is_memory, cases::KEPT_SECONDS),
            (matches!(case.place, Place::Workers(_)), cases::SERVER_SHARE),
        ];
        let more = more.into_iter().filter_map(|(has, name)| has.then_some(name));
        for name in names.chain(more) {
            let [theirs, ours, canned] = PORTS.map(|(peer, _)| medians.get(case.title, peer, name));
            let shown = |value: Option<f64>| {
                value.map_or_else(String::new, |value| match value.abs() {
                    value if value >= 1000.0 => format!("{value:.0}"),
                    _ => format!("{value:.2}"),
                })
            };
            let ratio = theirs.zip(ours).filter(|(_, ours)| *ours > 0.0);
            let ratio = shown(ratio.map(|(theirs, ours)| theirs / ours));
            let (theirs, ours, canned) = (shown(theirs), shown(ours), shown(canned));
            let title = case.title;
            let _ = writeln!(text, "| {title} | {name} | {theirs} | {ours} | {canned} | {ratio} |");
        }
    }
    for run in runs {
        if run.attempts > 1 {
            let (name, title, attempts) = (run.peer.name(), run.title, run.attempts);
            let _ = writeln!(text, "\n{name} with {title}: a round took {attempts} attempts");
        }
        if let Err(why) = &run.figures {
            let why = why.replace('\n', " ");
            let _ = writeln!(text, "\n{} failed with {}: {why}", run.peer.name(), run.title);
        }
    }
}

fn as_json(targets: &[Target], runs: &[Run]) -> Result<String> {
    let targets: Vec<Value> = targets
        .iter()
        .map(|target| {
            json!({
                "number": target.number,
                "target": target.what,
                "goal": target.goal,
                "measured": target.measured,
                "is_met": target.is_met,
            })
        })
        .collect();
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| {
            let failure = run.figures.as_ref().err();
            json!({
                "row": run.title,
                "server": run.peer.name(),
                "attempts": run.attempts,
                "failure": failure,
                "report": run.report,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&json!({ "targets": targets, "runs": runs }))?)
}
