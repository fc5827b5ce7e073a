//! dbench and dd on four kinds of share, with the client's usual options and with the paper's (`sync`).

use std::time::Duration;

use anyhow::Result;

use super::loads;
use super::site::{Kind, Link, Site, WRITE_TIME};
use crate::report::{Findings, Goal, Samples, Table, figure};

/// dbench's processes, as many as the paper had clients.
const PROCESSES: usize = 6;
/// What dd writes at the most, by link.
const DD_MB: u64 = 96;
const DD_MB_UNLIMITED: u64 = 256;

/// Of a goal.
const GAIN: &str = "(c) ÷ (a)";

/// A load at a mount.
struct Load {
    row: &'static str,
    /// Of the mount, beside those that all have.
    options: &'static str,
    is_dbench: bool,
    /// What the paper measured of a synchronous and an asynchronous server.
    paper: [&'static str; 2],
}

const LOADS: [Load; 4] = [
    Load { row: "dbench", options: "", is_dbench: true, paper: ["", ""] },
    Load { row: "dd bs=1K", options: "", is_dbench: false, paper: ["", ""] },
    Load {
        row: "dbench, mounted `sync`",
        options: ",sync",
        is_dbench: true,
        paper: ["0.94", "28.72"],
    },
    Load {
        row: "dd bs=1K, mounted `sync`",
        options: ",sync",
        is_dbench: false,
        paper: ["", "7.1"],
    },
];

/// Without a limit, on a disk that takes no time: nothing waits for it.
pub(super) fn measure_fast(site: &Site<'_>) -> Result<Findings> {
    site.set_write_time(Duration::ZERO);
    let findings = measure(site, Link::Unlimited);
    site.set_write_time(WRITE_TIME);
    let mut findings = findings?;
    // What it gains over a slow disk is not to be seen here.
    findings.goals.retain(|goal| !goal.what.contains(GAIN));
    Ok(findings)
}

pub(super) fn measure(site: &Site<'_>, link: Link) -> Result<Findings> {
    Site::set_link(link)?;
    let [mut speed, mut wire, mut cpu] = <[Samples; 3]>::default();
    for round in 0..site.options.rounds {
        let mut kinds = Kind::ALL.to_vec();
        kinds.retain(|kind| site.options.kinds.contains(kind.letter()));
        if round % 2 == 1 {
            kinds.reverse();
        }
        for kind in kinds {
            let server = site.serve(kind)?;
            for load in &LOADS {
                let mount = site.mount(&server, 0, kind, load.options)?;
                let figures = if load.is_dbench {
                    loads::run_dbench(site, &server, &mount.at, PROCESSES)?
                } else {
                    let mb = if link == Link::Limited { DD_MB } else { DD_MB_UNLIMITED };
                    // What is written synchronously is stable whenever dd ends.
                    let limit = (!load.options.is_empty()).then_some(site.options.seconds);
                    loads::run_dd(site, &server, &mount.at, mb, limit)?
                };
                let (row, name) = (load.row, kind.name());
                let (syncs, flushes) = site.flushes(&mount)?;
                eprintln!(
                    "  {name:<20} {row:<26} {:>8.2} MB/s, {syncs} SYNCs, {flushes} flushes of the ring",
                    figures.mb_s
                );
                speed.push(row, name, figures.mb_s);
                wire.push(row, name, figures.wire_bytes_a_byte);
                cpu.push(row, name, figures.cpu_ms_a_mb);
                mount.end()?;
            }
            server.stop()?;
            site.disk.sync()?;
        }
    }
    report(site, link, &speed, &wire, &cpu)
}

fn report(
    site: &Site<'_>,
    link: Link,
    speed: &Samples,
    wire: &Samples,
    cpu: &Samples,
) -> Result<Findings> {
    let [sync, asynchronous, journal, _] = Kind::ALL.map(Kind::name);
    let mut findings = Findings::default();
    findings.say(format!("Link: {}. {}", link.name(), site.conditions()?));
    let mut columns = vec!["MB/s"];
    columns.extend(Kind::ALL.map(Kind::name));
    columns.extend(["(c) ÷ (b)", "(c) ÷ (a)", "paper, sync server", "paper, async server"]);
    let mut table = Table::new(&columns);
    for load in &LOADS {
        let mut cells = vec![load.row.to_owned()];
        cells.extend(Kind::ALL.map(|kind| speed.shown(load.row, kind.name())));
        for other in [asynchronous, sync] {
            let ratio = speed.ratio(load.row, journal, other);
            cells.push(ratio.map_or_else(String::new, figure));
        }
        cells.extend(load.paper.map(str::to_owned));
        table.row(&cells);
    }
    findings.add_table(&table);
    for (title, samples) in [("bytes on the wire a byte", wire), ("server's CPU, ms a MB", cpu)] {
        let mut columns = vec![title];
        columns.extend(Kind::ALL.map(Kind::name));
        let mut table = Table::new(&columns);
        for load in &LOADS {
            let mut cells = vec![load.row.to_owned()];
            cells.extend(Kind::ALL.map(|kind| samples.shown(load.row, kind.name())));
            table.row(&cells);
        }
        findings.add_table(&table);
    }
    for load in &LOADS {
        let row = load.row;
        let near = speed.ratio(row, journal, asynchronous);
        findings.goals.push(Goal::at_least(format!("{row}: (c) ÷ (b)"), 0.9, near));
        let gained = speed.ratio(row, journal, sync);
        findings.goals.push(Goal::at_least(format!("{row}: {GAIN}"), 20.0, gained));
    }
    for samples in [speed, wire, cpu] {
        findings.add_samples(samples);
    }
    Ok(findings)
}
