//! One, six and twelve clients at one time, each with a journal, and a small call of another client beside them.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use steadfast_client::Identity;

use super::loads;
use super::site::{CLIENTS, Kind, Link, Mount, Site, WRITE_TIME, network_of};
use crate::report::{Findings, Goal, Samples, Table};
use crate::servers::Server;

const COUNTS: [(usize, &str); 3] = [(1, "1 client"), (6, "6 clients"), (12, "12 clients")];
/// Of each mount beside those that all have.
const OPTIONS: &str = ",adaptive_depth";
/// What all clients write together.
const STREAM_MB: u64 = 120;
/// Between small calls.
const BETWEEN: Duration = Duration::from_millis(20);
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Who makes the small calls.
const WATCHER: usize = CLIENTS - 1;
/// As exact as a saturated link can be measured on a busy machine.
const SHARE: f64 = 0.95;

const STREAM: &str = "stream";
const DBENCH: &str = "dbench";
const WAIT_P99: &str = "GETATTR, p99 ms";
const WAIT_MOST: &str = "GETATTR, most ms";

/// `congestion` is the congestion control of the clients. Linux lets a network namespace choose few, and not its
/// usual `cubic`.
pub(super) fn measure(site: &Site<'_>, link: Link, congestion: &str) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.say(site.conditions()?);
    findings.say(format!("Mounted with `{}`.", OPTIONS.trim_start_matches(',')));
    Site::set_link(link)?;
    Site::set_congestion_control(congestion)?;
    let mut samples = Samples::default();
    for _ in 0..site.options.rounds {
        for (count, name) in COUNTS {
            measure_some(site, count, name, &mut samples)?;
        }
    }
    add(&mut findings, link, congestion, &samples);
    Ok(findings)
}

/// So many clients stream at one time; then each runs dbench.
fn measure_some(
    site: &Site<'_>,
    count: usize,
    name: &'static str,
    samples: &mut Samples,
) -> Result<()> {
    let server = site.serve(Kind::Journal)?;
    let mounts: Vec<Mount> = (0..count)
        .map(|client| site.mount(&server, client, Kind::Journal, OPTIONS))
        .collect::<Result<_>>()?;
    // They share a network and a disk, and no file.
    let own = |(client, mount): (usize, &Mount)| {
        let place = mount.at.join(format!("client-{client}"));
        std::fs::create_dir_all(&place).map(|()| place)
    };
    let places: Vec<PathBuf> = mounts.iter().enumerate().map(own).collect::<Result<_, _>>()?;
    let places: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
    site.disk.sync()?;
    site.disk.set_write_time(WRITE_TIME);
    let outcome = beside_small_calls(&server, || stream_each(&places));
    let (streamed, mut waits) = outcome?;
    let (ran, more) =
        beside_small_calls(&server, || loads::run_dbench_each(&places, site.options.seconds))?;
    site.disk.set_write_time(Duration::ZERO);
    waits.extend(more);
    waits.sort_unstable_by(f64::total_cmp);
    let total: f64 = ran.iter().sum();
    let (p99, most) = (waits.get(waits.len() * 99 / 100), waits.last());
    let (p99, most) = p99.copied().zip(most.copied()).context("no small call was made")?;
    eprintln!(
        "  {name:<12} stream {streamed:>7.2} MB/s, dbench {total:>7.2} MB/s in all; p99 {p99:.1} ms, most {most:.1} ms of {}",
        waits.len()
    );
    samples.push(STREAM, name, streamed);
    samples.push(DBENCH, name, total);
    samples.push(WAIT_P99, name, p99);
    samples.push(WAIT_MOST, name, most);
    for mount in mounts {
        mount.end()?;
    }
    server.stop()
}

/// All write as much at one time; megabytes a second of all together, until the last has called fdatasync.
fn stream_each(places: &[&Path]) -> Result<f64> {
    let kibibytes = STREAM_MB * 1000 / places.len() as u64;
    let begun = Instant::now();
    let bytes: u64 = std::thread::scope(|scope| {
        let write = |at: &&Path| loads::dd(&at.join("stream"), "1K", kibibytes, None);
        let threads: Vec<_> = places.iter().map(|at| scope.spawn(move || write(at))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(u64, f64)>>| {
            let (bytes, _) = thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            anyhow::Ok(bytes)
        };
        threads.into_iter().map(join).sum::<Result<u64>>()
    })?;
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// Does something while another client asks for attributes again and again; how long each time took, in ms.
fn beside_small_calls<T>(
    server: &Server,
    act: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<f64>)> {
    let network = File::open(network_of(WATCHER))?;
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(network.as_fd(), kind)?;
            small_calls(server, &has_ended)
        });
        let outcome = act();
        has_ended.store(true, Ordering::Relaxed);
        let waits = watch.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?;
        Ok((outcome?, waits.context("small calls")?))
    })
}

fn small_calls(server: &Server, has_ended: &AtomicBool) -> Result<Vec<f64>> {
    let mut mount = server.address;
    mount.set_port(server.mount_port);
    let (mut client, root) = steadfast_client::Nfs3Client::mount(
        server.address,
        mount,
        server.path.as_bytes(),
        Identity::root(),
        CALL_LIMIT,
    )?;
    let mut waits = Vec::new();
    while !has_ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.getattr(&root)?;
        waits.push(begun.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(BETWEEN);
    }
    Ok(waits)
}

fn add(findings: &mut Findings, link: Link, congestion: &str, samples: &Samples) {
    let link_name = format!("{}, {congestion}", link.name());
    findings.say(format!("Link: {link_name}. MB/s of all clients together:"));
    let mut columns = vec!["clients on (c)"];
    columns.extend(COUNTS.map(|(_, name)| name));
    let mut table = Table::new(&columns);
    for row in [STREAM, DBENCH, WAIT_P99, WAIT_MOST] {
        let mut cells = vec![row.to_owned()];
        cells.extend(COUNTS.map(|(_, name)| samples.shown(row, name)));
        table.row(&cells);
    }
    findings.add_table(&table);
    let one = COUNTS[0].1;
    for (_, name) in COUNTS.into_iter().skip(1) {
        for row in [STREAM, DBENCH] {
            let what = format!("{link_name}, {row}: {name} together ÷ one");
            findings.goals.push(Goal::at_least(what, SHARE, samples.ratio(row, name, one)));
        }
        let what = format!("{link_name}, {name}: a small call of another waits, most ms");
        findings.goals.push(Goal::at_most(what, 50.0, samples.median(WAIT_MOST, name)));
    }
    findings.add_samples(samples);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_shared_without_loss_meets_its_goals() {
        let mut samples = Samples::default();
        for (count, name) in COUNTS {
            samples.push(STREAM, name, 11.0);
            samples.push(DBENCH, name, if count == 12 { 5.0 } else { 10.0 });
            samples.push(WAIT_P99, name, 10.0);
            samples.push(WAIT_MOST, name, if count == 6 { 51.0 } else { 49.0 });
        }
        let mut findings = Findings::default();
        add(&mut findings, Link::Limited, "bbr", &samples);
        let missed: Vec<&str> = findings
            .goals
            .iter()
            .filter(|goal| !goal.is_met())
            .map(|goal| goal.what.as_str())
            .collect();
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(missed[0].contains("6 clients: a small call"), "{missed:?}");
        assert!(missed[1].contains("dbench: 12 clients"), "{missed:?}");
    }
}
