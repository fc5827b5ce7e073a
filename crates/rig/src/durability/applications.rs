//! Applications that write synchronously, in the kernel client's guest: SQLite and PostgreSQL on a
//! slow disk that is the guest's own, and on a mount of a server that has the same slow disk and a
//! log on this machine's.
//!
//! The guest's block device passes each write on to the disk's file, past any cache of this machine's,
//! and waits until it is done. That commits arrive there is checked: transactions that were made
//! without a write are not compared with anything. (User-mode Linux 6.1 drops flushes. Nothing depends
//! on them: a write of the slow disk is stable when it is done, and a flush of it takes no time.)
//! `tests/applications` is what runs in the guest.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Kind, Site};
use crate::disk::{self, Disk, Journal};
use crate::namespace::call;
use crate::namespace::{GUEST_ADDRESS, SERVER_ADDRESS};
use crate::process::last_lines;
use crate::report::{Findings, Goal, Samples, Table, figure};
use crate::servers::{Cpus, Server};
use crate::slow_disk::SlowDisk;
use crate::uml::{self, Guest, Listener};
use crate::{packages, workspace};

/// Beside those of all sections.
pub(super) const PACKAGES: &[&str] = &[
    "busybox-static",
    "iproute2",
    "kmod",
    "netbase",
    "nfs-common",
    "postgresql",
    "python3",
    "user-mode-linux",
];

const DISK_MIB: u64 = 1024;
/// What a write of the slow disk takes: of that of the other sections, and of that of Figure 2.
const WRITE_TIMES: [Duration; 2] = [Duration::from_millis(5), Duration::from_micros(28_571)];
/// More rounds tell nothing new about a disk whose time is ours.
const ROUNDS_MAX: usize = 2;
/// Work of this many times `--seconds`: transactions take long.
const SECONDS_FACTOR: f64 = 5.0;
/// How long a guest may take beside its works.
const GUEST_LIMIT: Duration = Duration::from_secs(180);
/// How much of the guest's log an error shows.
const LOG_LINES: usize = 20;
/// Connections of pgbench, whose transactions may share a write.
const CLIENTS: u64 = 4;

/// How long a reply may wait in the guest until it is seen.
const WAKING_INTERVAL: Duration = Duration::from_millis(1);
/// RFC 863.
const DISCARD_PORT: u16 = 9;

const DIRECT: &str = "the disk in the guest";
const MOUNT: &str = "a mount, with the log";
/// What the guest can do at the most.
const MEMORY: &str = "the guest's memory";

/// What is done in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    /// As `init.sh` calls it.
    name: &'static str,
    title: &'static str,
    /// Transactions that may share one write.
    clients: u64,
}

const WORKS: [Work; 3] = [
    Work { name: "sqlite-delete", title: "SQLite, rollback journal", clients: 1 },
    Work { name: "sqlite-wal", title: "SQLite, write-ahead log", clients: 1 },
    Work { name: "pgbench", title: "PostgreSQL, pgbench", clients: CLIENTS },
];

/// How many times the transactions of the disk in the guest are asked for.
const GOAL: f64 = 10.0;

/// What one work did.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Done {
    work: Work,
    transactions: u64,
    per_second: f64,
    /// Writes of the slow disk meanwhile.
    writes: u64,
    /// What the server did, if there is one.
    calls: Option<Calls>,
}

/// Calls to a server, and how long it had them, one time added to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Calls {
    count: u64,
    seconds: f64,
}

impl Calls {
    /// Of the server's statistics.
    fn of(statistics: &Value) -> Result<Self> {
        let operations = statistics["operations"].as_array().context("no operations")?;
        let mut calls = Self::default();
        for operation in operations {
            calls.count += operation["calls"].as_u64().context("no number of calls")?;
            let time = &operation["latency"]["total_ns"];
            calls.seconds += time.as_f64().context("no times of calls")? / 1e9;
        }
        Ok(calls)
    }

    fn since(self, before: Self) -> Self {
        Self { count: self.count - before.count, seconds: self.seconds - before.seconds }
    }
}

/// The slow disk, as it is given to the guest.
enum Place {
    /// As its first block device.
    Direct(SlowDisk),
    /// By a server.
    Mount { server: Box<Server>, disk: Box<Disk>, _waking: Waking },
    /// Not at all: it works in its memory.
    Memory,
}

impl Place {
    fn slow_disk(&self) -> Option<&SlowDisk> {
        match self {
            Self::Direct(disk) => Some(disk),
            Self::Mount { disk, .. } => disk.slow_disk(),
            Self::Memory => None,
        }
    }

    fn set_write_time(&self, time: Duration) {
        if let Some(disk) = self.slow_disk() {
            disk.set_write_time(time);
        }
    }

    /// Writes of the slow disk so far.
    fn writes(&self) -> u64 {
        self.slow_disk().map_or(0, SlowDisk::writes)
    }

    /// What the server has done so far.
    fn calls(&self) -> Result<Option<Calls>> {
        match self {
            Self::Direct(_) | Self::Memory => Ok(None),
            Self::Mount { server, .. } => Calls::of(&server.statistics()?).map(Some),
        }
    }

    /// Has everything written that the guest has handed over.
    fn sync(&self) -> Result<()> {
        match self {
            Self::Direct(_) | Self::Memory => Ok(()),
            Self::Mount { disk, .. } => disk.sync(),
        }
    }

    /// What the guest is told of it.
    fn words(&self) -> Vec<String> {
        match self {
            Self::Direct(disk) => {
                vec!["DISK=direct".to_owned(), format!("ubd0={}", disk.path().display())]
            }
            Self::Mount { server, .. } => vec![
                "DISK=mount".to_owned(),
                uml::network(0),
                format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
                format!("SERVER={}", server.address.ip()),
                format!("PORT={}", server.address.port()),
                format!("SHARE={}", server.path),
            ],
            Self::Memory => vec!["DISK=memory".to_owned()],
        }
    }
}

pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    packages::ensure_guest_modules()?;
    call("ip", &["tuntap", "add", "tap0", "mode", "tap"])?;
    call("ip", &["addr", "add", &format!("{SERVER_ADDRESS}/24"), "dev", "tap0"])?;
    call("ip", &["link", "set", "tap0", "up"])?;
    let rounds = site.options.rounds.min(ROUNDS_MAX);
    let mut all = Vec::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for write_time in WRITE_TIMES {
            let order = if round % 2 == 0 { [DIRECT, MOUNT] } else { [MOUNT, DIRECT] };
            for name in order {
                measure_on(site, name, write_time, &mut all)?;
            }
        }
    }
    // It is as fast each time.
    measure_on(site, MEMORY, Duration::ZERO, &mut all)?;
    Ok(findings(site.conditions(rounds)?, &all))
}

fn measure_on(
    site: &Site<'_>,
    name: &'static str,
    write_time: Duration,
    all: &mut Vec<(&'static str, Duration, Done)>,
) -> Result<()> {
    let place = place(site, name)?;
    if let Some(disk) = place.slow_disk() {
        disk.join_writes();
    }
    for done in run_guest(site, &place, write_time)? {
        eprintln!("  {:>4.1} ms {}", write_time.as_secs_f64() * 1000.0, told(name, &done));
        all.push((name, write_time, done));
    }
    if let Place::Mount { server, .. } = place {
        server.stop()?;
    }
    Ok(())
}

fn place(site: &Site<'_>, name: &'static str) -> Result<Place> {
    if name == MEMORY {
        return Ok(Place::Memory);
    }
    let (kind, image) = (site.file_system, site.memory.join("slow.img"));
    let at = site.mount_point("slow");
    if name == DIRECT {
        return Ok(Place::Direct(disk::slow_device(kind, Journal::Usual, &image, DISK_MIB, &at)?));
    }
    let disk = Disk::slow(kind, Journal::Usual, &image, DISK_MIB, &at)?;
    let address: Ipv4Addr = SERVER_ADDRESS.parse()?;
    let server = site.start_at(address, Kind::Log, &disk.share("share")?, "")?;
    let (server, disk) = (Box::new(server), Box::new(disk));
    Ok(Place::Mount { server, disk, _waking: Waking::start()? })
}

/// Datagrams to the guest for as long as this lives, to a port where nobody listens.
///
/// A packet that comes while user-mode Linux is about to sleep is now and then not seen before the
/// next one comes: one in a hundred replies waited for its retransmission, 200 ms later, which was
/// most of the time that there was.
struct Waking {
    is_over: Arc<AtomicBool>,
}

impl Waking {
    fn start() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let guest: Ipv4Addr = GUEST_ADDRESS.parse()?;
        let is_over = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_over);
        std::thread::Builder::new().name("waking".to_owned()).spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                // It fails while there is no guest, and when the last one was refused.
                let _ = socket.send_to(&[0], (guest, DISCARD_PORT));
                std::thread::sleep(WAKING_INTERVAL);
            }
        })?;
        Ok(Self { is_over })
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Boots a guest, and does what it asks for until it is done.
fn run_guest(site: &Site<'_>, place: &Place, write_time: Duration) -> Result<Vec<Done>> {
    let (control, log) = (site.top.join("guest"), site.top.join("guest.log"));
    if control.exists() {
        std::fs::remove_dir_all(&control)?;
    }
    std::fs::create_dir_all(&control)?;
    let seconds = (site.options.seconds * SECONDS_FACTOR).ceil();
    let tools = workspace::root()?.join("tests/applications").canonicalize()?;
    let mut words = place.words();
    words.extend([
        // Process ids here are the same from run to run, and so would be the guest's name at the
        // usual place.
        format!("uml_dir={}", control.display()),
        format!("CONTROL={}", control.display()),
        format!("TOOLS={}", tools.display()),
        format!("FILE_SYSTEM={}", site.file_system.kind()),
        format!("SECONDS_EACH={seconds}"),
    ]);
    let mut listener = Listener::new(&control)?;
    let command = Cpus::command(site.cpus.client.as_ref(), Path::new(uml::PROGRAM));
    let mut guest = Guest::start(command, "applications", &tools.join("init.sh"), &words, &log)?;
    let limit = GUEST_LIMIT + Duration::from_secs_f64(seconds * WORKS.len() as f64);
    let mut host = Host { place, write_time, control, before: (0, None), done: Vec::new() };
    let outcome = guest.follow(&mut listener, limit, |line| host.hear(line));
    drop(guest);
    outcome.with_context(|| {
        format!("the guest's console ends with:\n{}", last_lines(&log, LOG_LINES))
    })?;
    Ok(host.done)
}

/// What a guest asks, and what it has done.
struct Host<'p> {
    place: &'p Place,
    write_time: Duration,
    control: PathBuf,
    /// Writes of the disk, and what the server had done, when the disk became slow.
    before: (u64, Option<Calls>),
    done: Vec<Done>,
}

impl Host<'_> {
    /// One line of the guest; whether it is done.
    fn hear(&mut self, line: &str) -> Result<Option<()>> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["done"] => {
                if self.done.len() != WORKS.len() {
                    bail!("the guest has done {} works of {}", self.done.len(), WORKS.len());
                }
                return Ok(Some(()));
            }
            ["request", id, speed, work] => {
                self.serve(speed, work)?;
                std::fs::write(self.control.join(format!("answer-{id}")), "")?;
            }
            _ => bail!("the guest says: {line}"),
        }
        Ok(None)
    }

    fn serve(&mut self, speed: &str, name: &str) -> Result<()> {
        let work = WORKS.into_iter().find(|work| work.name == name);
        let work = work.with_context(|| format!("no work is called {name:?}"))?;
        match speed {
            "slow" => {
                self.place.sync()?;
                self.before = (self.place.writes(), self.place.calls()?);
                self.place.set_write_time(self.write_time);
            }
            "fast" => {
                let writes = self.place.writes() - self.before.0;
                self.place.set_write_time(Duration::ZERO);
                let calls = self.place.calls()?.zip(self.before.1);
                let calls = calls.map(|(now, before)| now.since(before));
                let said = std::fs::read_to_string(self.control.join(name))?;
                let (transactions, per_second) =
                    parse(&said).with_context(|| format!("{name} said:\n{said}"))?;
                let done = Done { work, transactions, per_second, writes, calls };
                if let Place::Direct(_) = self.place {
                    check_writes(&done)?;
                }
                self.done.push(done);
            }
            _ => bail!("the guest asks for a disk that is {speed:?}"),
        }
        Ok(())
    }
}

/// Transactions, and how many a second: of what `sqlite.py` or pgbench has said.
fn parse(said: &str) -> Result<(u64, f64)> {
    for line in said.lines() {
        if let Some((count, rest)) = line.split_once(" transactions in ") {
            let count = count.parse()?;
            let seconds: f64 = rest.strip_suffix(" s").context("no seconds")?.parse()?;
            return Ok((count, count as f64 / seconds));
        }
    }
    let after = |head: &str| {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(head));
        let rest = lines.next().with_context(|| format!("no line begins with {head:?}"))?;
        rest.split_whitespace().next().context("no number")
    };
    let count = after("number of transactions actually processed: ")?.parse()?;
    if after("number of failed transactions: ")? != "0" {
        bail!("transactions failed");
    }
    Ok((count, after("tps = ")?.parse()?))
}

/// What is committed without a write is not stable.
fn check_writes(done: &Done) -> Result<()> {
    if done.writes < done.transactions / done.work.clients {
        bail!(
            "{} made {} transactions with {} writes of the disk: not everything reaches it",
            done.work.title,
            done.transactions,
            done.writes
        );
    }
    Ok(())
}

fn told(name: &str, done: &Done) -> String {
    format!(
        "{name:<24} {:<26} {:>8.1}/s, {:>6} in all; {:>6} writes of the slow disk",
        done.work.title, done.per_second, done.transactions, done.writes
    )
}

fn findings(conditions: String, all: &[(&'static str, Duration, Done)]) -> Findings {
    let mut findings = Findings::default();
    findings.say(conditions);
    for (name, write_time, done) in all {
        findings.add_raw(json!({
            "work": done.work.title,
            "disk": name,
            "write_ms": write_time.as_secs_f64() * 1000.0,
            "transactions": done.transactions,
            "transactions_per_second": done.per_second,
            "disk_writes": done.writes,
            "calls": done.calls.map(|calls| calls.count),
            "seconds_in_server": done.calls.map(|calls| calls.seconds),
        }));
    }
    for write_time in WRITE_TIMES {
        add_table(&mut findings, write_time, all);
    }
    findings
}

/// What was done with a disk as slow as this, and what is asked for.
fn add_table(
    findings: &mut Findings,
    write_time: Duration,
    all: &[(&'static str, Duration, Done)],
) {
    let [mut rates, mut writes, mut calls, mut times] = std::array::from_fn(|_| Samples::default());
    let is_of_it = |(name, of, _): &&(_, _, _)| *name == MEMORY || *of == write_time;
    for (name, _, done) in all.iter().filter(is_of_it) {
        let title = done.work.title;
        rates.push(title, name, done.per_second);
        writes.push(title, name, done.writes as f64 / done.transactions as f64);
        if let Some(of) = done.calls {
            calls.push(title, name, of.count as f64 / done.transactions as f64);
            times.push(title, name, of.seconds * 1000.0 / of.count as f64);
        }
    }
    let shown_time = format!("{} ms a write", figure(write_time.as_secs_f64() * 1000.0));
    let first = format!("transactions/s, {shown_time}");
    let mut table = Table::new(&[
        first.as_str(),
        DIRECT,
        "disk writes each",
        MOUNT,
        "disk writes each",
        "calls each",
        "ms a call in the server",
        "mount ÷ disk",
        MEMORY,
    ]);
    for work in WORKS {
        let row = work.title;
        let ratio = rates.ratio(row, MOUNT, DIRECT);
        table.row(&[
            row.to_owned(),
            rates.shown(row, DIRECT),
            writes.shown(row, DIRECT),
            rates.shown(row, MOUNT),
            writes.shown(row, MOUNT),
            calls.shown(row, MOUNT),
            times.shown(row, MOUNT),
            ratio.map_or_else(String::new, figure),
            rates.shown(row, MEMORY),
        ]);
        let asked = format!("{shown_time}: {row}, mount ÷ disk");
        findings.goals.push(Goal::at_least(asked, GOAL, ratio));
    }
    findings.add_table(&table);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PGBENCH: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 1
number of clients: 4
duration: 10 s
number of transactions actually processed: 1234
number of failed transactions: 0 (0.000%)
latency average = 32.404 ms
initial connection time = 21.902 ms
tps = 123.441500 (without initial connection time)
";

    #[test]
    fn what_the_programs_say_is_read() {
        assert_eq!(parse("500 transactions in 10.000 s\n").expect("SQLite's"), (500, 50.0));
        assert_eq!(parse(PGBENCH).expect("pgbench's"), (1234, 123.4415));
        for wrong in [
            "",
            "x transactions in 10.0 s",
            "5 transactions in 10.0",
            "tps = 12.0",
            &PGBENCH.replace("failed transactions: 0", "failed transactions: 3"),
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn calls_are_those_of_all_operations() {
        let of = |calls, total_ns| json!({ "calls": calls, "latency": { "total_ns": total_ns } });
        let statistics = json!({ "operations": [of(3, 2_000_000), of(1, 500_000_000)] });
        let calls = Calls::of(&statistics).expect("statistics");
        assert_eq!(calls, Calls { count: 4, seconds: 0.502 });
        assert!(Calls::of(&json!({ "operations": [{ "calls": 1 }] })).is_err());
        assert!(Calls::of(&json!({})).is_err());
    }

    fn done(work: usize, per_second: f64, writes: u64) -> Done {
        let calls = (writes == 50).then_some(Calls { count: 400, seconds: 0.1 });
        Done { work: WORKS[work], transactions: 100, per_second, writes, calls }
    }

    #[test]
    fn a_disk_that_is_not_reached_is_not_compared_with() {
        assert!(check_writes(&done(0, 1.0, 100)).is_ok());
        assert!(check_writes(&done(0, 1.0, 99)).is_err());
        // Four clients may share one.
        assert!(check_writes(&done(2, 1.0, 25)).is_ok());
        assert!(check_writes(&done(2, 1.0, 24)).is_err());
    }

    #[test]
    fn the_goal_is_ten_times_the_transactions() {
        let [fast, slow] = WRITE_TIMES;
        let all = [
            (DIRECT, fast, done(0, 20.0, 900)),
            (MOUNT, fast, done(0, 200.0, 50)),
            (MEMORY, Duration::ZERO, done(0, 300.0, 0)),
            (DIRECT, fast, done(2, 100.0, 200)),
            (MOUNT, fast, done(2, 999.0, 50)),
            (DIRECT, slow, done(1, 10.0, 200)),
            (MOUNT, slow, done(1, 120.0, 50)),
        ];
        let findings = findings(String::new(), &all);
        let goals: Vec<_> =
            findings.goals.iter().map(|goal| (goal.measured, goal.is_met())).collect();
        let of_fast = [(Some(10.0), true), (None, false), (Some(9.99), false)];
        let of_slow = [(None, false), (Some(12.0), true), (None, false)];
        assert_eq!(goals, [of_fast, of_slow].concat());
        let text = findings.markdown();
        assert!(text.contains("| 20.0 | 9.00 | 200 | 0.50 | 4.00 | 0.25 | 10.0 | 300 |"), "{text}");
    }
}
