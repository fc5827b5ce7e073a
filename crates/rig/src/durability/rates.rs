//! Rates of single calls: `fast`, `slow`, `memory`.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Kind, Site};
use crate::disk::{Disk, FileSystem, Journal};
use crate::load::{self, Shape};
use crate::namespace::call;
use crate::report::{Findings, Goal, Samples, Table, figure};
use crate::servers::Server;

/// `O_DSYNC`; what `rustix` calls so is `O_SYNC`.
const DATA_SYNC: rustix::fs::OFlags = rustix::fs::OFlags::from_bits_retain(0o10_000);

const ONE: Shape = (1, 1);
const MANY: Shape = (16, 4);

const LATENCY: &str = "stable WRITE of 8 KiB, 1×1, p50 µs";
const WRITE: &str = "stable WRITE of 8 KiB, 16×4";
const CREATE: &str = "CREATE, 16×4";
const REMOVE: &str = "REMOVE, 16×4";
const WRITE_CALL: &str = "write:8192:file_sync";
/// Not a server.
const BARE: &str = "bare write";

/// Bytes of a bare write, and of the file that it goes to.
const BARE_BYTES: usize = 8192;
const BARE_FILE_MIB: u64 = 64;
/// What `O_DIRECT` asks of addresses, at the most.
const ALIGNMENT: usize = 4096;
/// Names for REMOVE beyond what CREATE's rate tells that it may remove.
const SPARE_NAMES: f64 = 1.5;
const NAMES_MAX: f64 = 200_000.0;
/// Sizes of disks.
const FAST_DISK_MIB: u64 = 1536;
const SLOW_DISK_MIB: u64 = 4096;
const LOG_DISK_MIB: u64 = 512;
/// What a write of the slow disk takes.
const SLOW_WRITE: Duration = Duration::from_millis(5);
/// More rounds tell nothing new about a disk whose time is ours.
const SLOW_ROUNDS_MAX: usize = 3;

/// Calls/s of stable WRITE, CREATE and REMOVE, and one client's latency if it is wanted. The disk
/// is as slow as it is to be only while calls are measured.
fn measure_calls(
    site: &Site<'_>,
    server: &Server,
    name: &'static str,
    disk: &Disk,
    write_time: Duration,
    rows: &[&'static str],
    samples: &mut Samples,
) -> Result<()> {
    let seconds = site.options.seconds;
    let measure = |operation: &str, shape, names| {
        let prepared = || {
            disk.sync()?;
            disk.set_write_time(write_time);
            Ok(())
        };
        let figures = load::op(server, &site.cpus, operation, shape, seconds, names, prepared);
        disk.set_write_time(Duration::ZERO);
        figures
    };
    let mut created = 0.0;
    for row in rows {
        let value = match *row {
            LATENCY => measure(WRITE_CALL, ONE, 0)?.p50_us,
            WRITE => measure(WRITE_CALL, MANY, 0)?.calls_per_second,
            CREATE => {
                created = measure("create", MANY, 0)?.calls_per_second;
                created
            }
            _ => {
                let names = (created * seconds * SPARE_NAMES + 1000.0).min(NAMES_MAX);
                measure("remove", MANY, names as usize)?.calls_per_second
            }
        };
        eprintln!("  {name:<34} {row:<36} {value:>10.1}");
        samples.push(row, name, value);
    }
    Ok(())
}

/// The kinds of a round, their order alternating.
fn order(kinds: &[Kind], round: usize) -> Vec<Kind> {
    let mut order = kinds.to_vec();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// A row for each of these, a column for each server, and two servers' ratio.
fn add_rates(
    findings: &mut Findings,
    samples: &Samples,
    rows: &[&'static str],
    names: &[&'static str],
    divided: [&'static str; 2],
) {
    let mut columns = vec!["calls/s".to_owned()];
    columns.extend(names.iter().map(|name| (*name).to_owned()));
    columns.push(format!("{} ÷ {}", divided[0], divided[1]));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&columns);
    for row in rows {
        let mut cells = vec![(*row).to_owned()];
        cells.extend(names.iter().map(|name| samples.shown(row, name)));
        let ratio = samples.ratio(row, divided[0], divided[1]);
        cells.push(ratio.map_or_else(String::new, figure));
        table.row(&cells);
    }
    findings.add_table(&table);
}

/// Log and data on this machine's disk.
pub(super) fn fast(site: &Site<'_>) -> Result<Findings> {
    let mut samples = Samples::default();
    let image = site.top.join("data.img");
    let at = site.mount_point("data");
    let disk = Disk::on_file(site.file_system, &image, FAST_DISK_MIB, true, &at)?;
    let bare = BareFile::make(&site.top.join("bare"))?;
    let kinds = [Kind::Log, Kind::Polling, Kind::Plain, Kind::Ganesha];
    for round in 0..site.options.rounds {
        eprintln!("round {} of {}", round + 1, site.options.rounds);
        for kind in order(&kinds, round) {
            // Before each server, so that the disk has the same mood.
            let time = Duration::from_secs_f64(site.options.seconds / 4.0);
            // The CPU of the server's that is best for it: who waits for the disk is woken at once only
            // on the one that has its interrupts.
            let by_cpu = site.cpus.on_each_of_the_servers(|| bare.p50_us(time))?;
            let p50_us = by_cpu.into_iter().reduce(f64::min).context("no CPU for bare writes")?;
            eprintln!("  {BARE:<34} {LATENCY:<36} {p50_us:>10.1}");
            samples.push(LATENCY, BARE, p50_us);
            let rows: &[_] = match kind {
                Kind::Polling => &[LATENCY],
                Kind::Ganesha => &[LATENCY, WRITE],
                _ => &[LATENCY, WRITE, CREATE, REMOVE],
            };
            let server = site.start(kind, &disk.share("share")?, "")?;
            let zero = Duration::ZERO;
            measure_calls(site, &server, kind.name(), &disk, zero, rows, &mut samples)?;
            server.stop()?;
        }
    }
    Ok(fast_findings(site.conditions(site.options.rounds)?, &samples))
}

fn fast_findings(conditions: String, samples: &Samples) -> Findings {
    let mut findings = Findings::default();
    findings.say(conditions);
    let [log, plain, ganesha] = [Kind::Log, Kind::Plain, Kind::Ganesha].map(Kind::name);
    let polling = Kind::Polling.name();
    let mut table = Table::new(&["one client, one call at a time", "p50 µs"]);
    for name in [BARE, log, polling, plain, ganesha] {
        table.row(&[name.to_owned(), samples.shown(LATENCY, name)]);
    }
    findings.add_table(&table);
    let rows = [WRITE, CREATE, REMOVE];
    add_rates(&mut findings, samples, &rows, &[log, plain, ganesha], [log, plain]);
    let beyond = |name| Some(samples.median(LATENCY, name)? - samples.median(LATENCY, BARE)?);
    let ratio = |row, other| samples.ratio(row, log, other);
    findings.goals = vec![
        Goal::at_most("one client's stable WRITE: p50 µs beyond a bare write's", 60.0, beyond(log)),
        Goal::at_least("WRITE, with ÷ without the log", 2.5, ratio(WRITE, plain)),
        Goal::at_least("CREATE, with ÷ without the log", 2.0, ratio(CREATE, plain)),
        Goal::at_least("REMOVE, with ÷ without the log", 2.0, ratio(REMOVE, plain)),
        Goal::at_least("WRITE, with the log ÷ nfs-ganesha", 3.0, ratio(WRITE, ganesha)),
    ];
    findings.add_samples(samples);
    findings
}

/// The data on a slow disk, the log on this machine's.
pub(super) fn slow(site: &Site<'_>) -> Result<Findings> {
    let mut samples = Samples::default();
    let rounds = site.options.rounds.min(SLOW_ROUNDS_MAX);
    let rows = [WRITE, CREATE, REMOVE];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for kind in order(&[Kind::Log, Kind::Plain], round) {
            let (image, at) = (site.memory.join("slow.img"), site.mount_point("slow"));
            let disk = Disk::slow(site.file_system, Journal::Large, &image, SLOW_DISK_MIB, &at)?;
            let server = site.start(kind, &disk.share("share")?, "")?;
            let name = kind.name();
            measure_calls(site, &server, name, &disk, SLOW_WRITE, &rows, &mut samples)?;
            server.stop()?;
        }
    }
    let mut findings = Findings::default();
    findings.say(site.conditions(rounds)?);
    let [log, plain] = [Kind::Log, Kind::Plain].map(Kind::name);
    add_rates(&mut findings, &samples, &rows, &[log, plain], [log, plain]);
    let ratio = |row| samples.ratio(row, log, plain);
    findings.goals = vec![
        Goal::at_least("WRITE, with ÷ without the log", 30.0, ratio(WRITE)),
        Goal::at_least("CREATE, with ÷ without the log", 30.0, ratio(CREATE)),
        Goal::at_least("REMOVE, with ÷ without the log", 30.0, ratio(REMOVE)),
    ];
    findings.add_samples(&samples);
    Ok(findings)
}

/// The log in memory, beside a server that acknowledges without any flush.
pub(super) fn memory(site: &Site<'_>) -> Result<Findings> {
    let mut samples = Samples::default();
    let (image, at) = (site.top.join("data.img"), site.mount_point("data"));
    let disk = Disk::on_file(site.file_system, &image, FAST_DISK_MIB, true, &at)?;
    let (image, at) = (site.memory.join("log.img"), site.mount_point("log"));
    let log_disk = Disk::on_file(FileSystem::Ext4, &image, LOG_DISK_MIB, false, &at)?;
    let log = log_disk.path().join("intent.log");
    let in_memory = format!("path = {:?}\n", log.to_str().context("a path that is UTF-8")?);
    let rows = [WRITE, CREATE, REMOVE];
    for round in 0..site.options.rounds {
        eprintln!("round {} of {}", round + 1, site.options.rounds);
        for kind in order(&[Kind::Log, Kind::Unsafe], round) {
            if log.exists() {
                std::fs::remove_file(&log)?;
            }
            let server = site.start(kind, &disk.share("share")?, &in_memory)?;
            let zero = Duration::ZERO;
            measure_calls(site, &server, kind.name(), &disk, zero, &rows, &mut samples)?;
            server.stop()?;
        }
    }
    let mut findings = Findings::default();
    findings.say(site.conditions(site.options.rounds)?);
    let [log, unsafe_async] = [Kind::Log, Kind::Unsafe].map(Kind::name);
    add_rates(&mut findings, &samples, &rows, &[log, unsafe_async], [log, unsafe_async]);
    let ratio = |row| samples.ratio(row, log, unsafe_async);
    findings.goals = vec![
        Goal::at_least("WRITE, log in memory ÷ unsafe async", 0.7, ratio(WRITE)),
        Goal::at_least("CREATE, log in memory ÷ unsafe async", 0.7, ratio(CREATE)),
        Goal::at_least("REMOVE, log in memory ÷ unsafe async", 0.7, ratio(REMOVE)),
    ];
    findings.add_samples(&samples);
    Ok(findings)
}

/// A file that was written through, for writes without any server.
struct BareFile(File);

impl BareFile {
    fn make(path: &Path) -> Result<Self> {
        let (to, count) = (format!("of={}", path.display()), format!("count={BARE_FILE_MIB}"));
        let words = ["if=/dev/zero", &to, "bs=1M", &count, "oflag=direct", "conv=fsync"];
        call("dd", &[&words[..], &["status=none"]].concat())?;
        let flags = rustix::fs::OFlags::DIRECT | DATA_SYNC;
        let flags = i32::try_from(flags.bits()).context("flags of open")?;
        Ok(Self(File::options().write(true).custom_flags(flags).open(path)?))
    }

    /// The median of one write after the other, from the file's beginning to its end and again.
    fn p50_us(&self, duration: Duration) -> Result<f64> {
        let room = vec![0x5a; BARE_BYTES + ALIGNMENT];
        let skip = room.as_ptr().align_offset(ALIGNMENT);
        let bytes = room.get(skip..skip + BARE_BYTES).context("no aligned bytes")?;
        let places = (BARE_FILE_MIB << 20) / BARE_BYTES as u64;
        let (started, mut times) = (Instant::now(), Vec::new());
        for number in 0.. {
            let begun = Instant::now();
            self.0.write_all_at(bytes, number % places * BARE_BYTES as u64)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            if started.elapsed() >= duration {
                break;
            }
        }
        crate::report::median(times).context("no write was made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_alternates() {
        let kinds = [Kind::Log, Kind::Plain];
        assert_eq!(order(&kinds, 0), [Kind::Log, Kind::Plain]);
        assert_eq!(order(&kinds, 1), [Kind::Plain, Kind::Log]);
    }

    #[test]
    fn the_goals_of_the_fast_disk_are_the_ratios_of_medians() {
        let mut samples = Samples::default();
        let [log, plain, ganesha] = [Kind::Log, Kind::Plain, Kind::Ganesha].map(Kind::name);
        for (row, name, value) in [
            (LATENCY, BARE, 80.0),
            (LATENCY, log, 130.0),
            (WRITE, log, 30_000.0),
            (WRITE, plain, 10_000.0),
            (WRITE, ganesha, 15_000.0),
            (CREATE, log, 20_000.0),
            (CREATE, plain, 4000.0),
        ] {
            samples.push(row, name, value);
        }
        let findings = fast_findings(String::new(), &samples);
        let goals: Vec<_> =
            findings.goals.iter().map(|goal| (goal.measured, goal.is_met())).collect();
        assert_eq!(
            goals,
            [
                (Some(50.0), true),
                (Some(3.0), true),
                (Some(5.0), true),
                (None, false),
                (Some(2.0), false)
            ]
        );
    }
}
