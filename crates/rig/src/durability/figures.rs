//! Legato's Figures 2 and 3, measured anew: response time by load, and throughput by the share of
//! calls that change something, on a disk as fast as those of that time.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Kind, Site};
use crate::disk::{Disk, Journal};
use crate::load::{self, number};
use crate::report::{Findings, Goal, Samples, Table, figure};
use crate::svg::{Axis, Curve, Plot};

/// 35 writes a second.
const WRITE_TIME: Duration = Duration::from_micros(28_571);
const DISK_MIB: u64 = 1024;

/// Figure 2 of the paper: calls/s, ms/call without its cache and with it. There was no answer any
/// more without from 80 on.
const PAPER: &[(f64, Option<f64>, f64)] = &[
    (10.0, Some(11.0), 9.0),
    (20.0, Some(19.0), 10.0),
    (30.0, Some(27.0), 11.0),
    (40.0, Some(39.0), 15.0),
    (50.0, Some(54.0), 17.0),
    (60.0, Some(71.0), 19.0),
    (70.0, Some(93.0), 22.0),
    (80.0, None, 26.0),
    (90.0, None, 32.0),
    (100.0, None, 35.0),
    (110.0, None, 40.0),
    (120.0, None, 46.0),
];
/// Loads beyond the paper's.
const BEYOND: &[f64] = &[200.0, 500.0, 1000.0, 2000.0];
/// A server whose mean response takes longer than this is taken for saturated: the paper's slowest
/// took 93.
const SATURATED_MS: f64 = 100.0;
/// A schedule that is this late is not held.
const LATE_SECONDS: f64 = 0.1;
/// Each level of Figure 2 has so many times the usual seconds: at 10 calls/s there are few.
const LEVEL_SECONDS_FACTOR: f64 = 3.0;
/// The load that a closed loop's working set is made for.
const FILES_FOR_LOAD: &str = "1000";

/// One level of load, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    wanted: f64,
    achieved: f64,
    mean_ms: f64,
    p50_ms: f64,
    /// Of WRITE alone, if there were any.
    write_mean_ms: Option<f64>,
    behind_seconds: f64,
}

impl Point {
    fn read(level: &Value) -> Result<Self> {
        let operations = level.pointer("/operations").and_then(Value::as_array);
        let is_write =
            |kind: &&Value| kind.pointer("/operation").and_then(Value::as_str) == Some("write");
        let write = operations.into_iter().flatten().find(is_write);
        let mean_us = |kind: &Value| kind.pointer("/mean_us").and_then(Value::as_f64);
        Ok(Self {
            wanted: number(level, "/wanted_calls_per_second")?,
            achieved: number(level, "/calls_per_second")?,
            mean_ms: number(level, "/mean_us")? / 1e3,
            p50_ms: number(level, "/p50_us")? / 1e3,
            write_mean_ms: write.and_then(mean_us).map(|us| us / 1e3),
            behind_seconds: number(level, "/behind_seconds")?,
        })
    }

    fn is_saturated(&self) -> bool {
        self.behind_seconds > LATE_SECONDS || self.mean_ms > SATURATED_MS
    }
}

/// Starts a server on a slow disk, and puts a mix on it.
fn mix(site: &Site<'_>, kind: Kind, words: &[String]) -> Result<Value> {
    let (image, at) = (site.memory.join("slow.img"), site.mount_point("slow"));
    let disk = Disk::slow(site.file_system, Journal::Usual, &image, DISK_MIB, &at)?;
    let server = site.start(kind, &disk.share("share")?, "")?;
    let prepared = || {
        disk.sync()?;
        disk.set_write_time(WRITE_TIME);
        Ok(())
    };
    let report = load::run(&server, &site.cpus, "nhfsstone", words, prepared);
    disk.set_write_time(Duration::ZERO);
    server.stop()?;
    report.with_context(|| format!("nhfsstone {}", kind.name()))
}

/// Response time by load.
pub(super) fn figure2(site: &Site<'_>) -> Result<Findings> {
    let seconds = site.options.seconds * LEVEL_SECONDS_FACTOR;
    let mut curves = Vec::new();
    let mut raw = Vec::new();
    for kind in [Kind::Plain, Kind::Log] {
        let levels = PAPER.iter().map(|(load, _, _)| load).chain(BEYOND);
        let levels: Vec<String> = levels.map(f64::to_string).collect();
        eprintln!("  {}: {} levels of {seconds} s", kind.name(), levels.len());
        let words = [format!("--load={}", levels.join(",")), format!("--seconds={seconds}")];
        let report = mix(site, kind, &words)?;
        let levels = report.pointer("/levels").and_then(Value::as_array);
        let points: Result<Vec<Point>> =
            levels.context("no levels in the report")?.iter().map(Point::read).collect();
        curves.push(points?);
        raw.push(report);
    }
    let [without, with] = curves.try_into().ok().context("two curves")?;
    let mut findings = figure2_findings(&site.conditions(1)?, seconds, &without, &with);
    for report in raw {
        findings.add_raw(report);
    }
    Ok(findings)
}

fn figure2_findings(conditions: &str, seconds: f64, without: &[Point], with: &[Point]) -> Findings {
    let mut findings = Findings::default();
    findings
        .say(format!("{conditions} {seconds:.1} s a level, calls at random times (an open loop)."));
    let mut table = Table::new(&[
        "calls/s",
        "Legato without cache, ms/call",
        "with cache",
        "Steadfast without log, ms/call",
        "p50 ms",
        "WRITE ms",
        "with log, ms/call",
        "p50 ms",
        "WRITE ms",
    ]);
    let of = |points: &[Point], load: f64| {
        points.iter().find(|point| (point.wanted - load).abs() < 1e-6).copied()
    };
    for load in PAPER.iter().map(|(load, _, _)| *load).chain(BEYOND.iter().copied()) {
        let paper = PAPER.iter().find(|(known, _, _)| (known - load).abs() < 1e-6);
        let (old, cached) = paper.map_or((String::new(), String::new()), |(_, old, cached)| {
            (old.map_or_else(|| "∞".to_owned(), |ms| ms.to_string()), cached.to_string())
        });
        let mut cells = vec![load.to_string(), old, cached];
        cells.extend(cells_of(of(without, load)));
        cells.extend(cells_of(of(with, load)));
        table.row(&cells);
    }
    findings.add_table(&table);
    findings.say("∞: the load was not kept up with, or a call took more than 100 ms on average.");
    findings.add_plot(
        "durability-figure2.svg",
        "Response time by load, as in Legato's Figure 2",
        figure2_plot(without, with).svg(),
    );
    let saturation = without.iter().find(|point| point.is_saturated()).map(|point| point.wanted);
    let at_120 = of(with, 120.0).filter(|point| !point.is_saturated()).map(|point| point.p50_ms);
    let slowest = with.iter().map(|point| {
        if point.behind_seconds > LATE_SECONDS { f64::INFINITY } else { point.p50_ms }
    });
    let slowest = (!with.is_empty()).then(|| slowest.fold(0.0, f64::max));
    findings.goals = vec![
        Goal::at_most("without the log: saturated at calls/s", 120.0, saturation),
        Goal::at_most("with it: p50 ms at 120 calls/s", 5.0, at_120),
        Goal::at_most("with it: greatest p50 ms up to 2,000 calls/s", 5.0, slowest),
    ];
    findings
}

fn cells_of(point: Option<Point>) -> [String; 3] {
    let Some(point) = point else { return [const { String::new() }; 3] };
    let mean = figure(point.mean_ms);
    let mean = if point.is_saturated() { format!("∞ ({mean})") } else { mean };
    [mean, figure(point.p50_ms), point.write_mean_ms.map_or_else(String::new, figure)]
}

fn figure2_plot(without: &[Point], with: &[Point]) -> Plot {
    let curve = |name, colour, is_dashed, points| Curve { name, colour, is_dashed, points };
    let means =
        |points: &[Point]| points.iter().map(|point| (point.wanted, point.mean_ms)).collect();
    let old = PAPER.iter().filter_map(|(load, old, _)| Some((*load, (*old)?))).collect();
    let cached = PAPER.iter().map(|(load, _, cached)| (*load, *cached)).collect();
    Plot {
        title: "Response time by load, a disk of 35 writes/s",
        x: Axis {
            label: "calls/s",
            from: 10.0,
            to: 2000.0,
            ticks: vec![10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0],
            is_linear: false,
        },
        y: Axis {
            label: "ms/call, mean",
            from: 0.1,
            to: 10_000.0,
            ticks: vec![0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0],
            is_linear: false,
        },
        curves: vec![
            curve("Steadfast without the log", "#c0392b", false, means(without)),
            curve("Steadfast with the log", "#1f618d", false, means(with)),
            curve("Legato, without its cache", "#c0392b", true, old),
            curve("Legato, with its cache", "#1f618d", true, cached),
        ],
    }
}

/// A row of Figure 3: percent of calls that change something, bytes of a READ or WRITE, and what
/// the paper gained, in percent.
struct Row {
    title: &'static str,
    percent: f64,
    transfer: usize,
    gained: (f64, f64),
}

const ROWS: &[Row] = &[
    Row { title: "5 %", percent: 5.0, transfer: 8192, gained: (10.0, 40.0) },
    Row { title: "10 %", percent: 10.0, transfer: 8192, gained: (30.0, 80.0) },
    Row { title: "15 %", percent: 15.0, transfer: 8192, gained: (60.0, 120.0) },
    Row { title: "20 %", percent: 20.0, transfer: 8192, gained: (80.0, 200.0) },
    Row {
        title: "10 %, WRITEs of 512 bytes",
        percent: 10.0,
        transfer: 512,
        gained: (200.0, 200.0),
    },
];

/// Throughput by the share of calls that change something.
pub(super) fn figure3(site: &Site<'_>) -> Result<Findings> {
    let seconds = site.options.seconds * LEVEL_SECONDS_FACTOR;
    let mut samples = Samples::default();
    for row in ROWS {
        for kind in [Kind::Plain, Kind::Log] {
            let words = [
                "--load=max".to_owned(),
                format!("--load-of-max={FILES_FOR_LOAD}"),
                "--clients=16".to_owned(),
                "--depth=4".to_owned(),
                format!("--changes={}", row.percent),
                format!("--transfer={}", row.transfer),
                format!("--seconds={seconds}"),
            ];
            let report = mix(site, kind, &words)?;
            let rate = number(&report, "/levels/0/calls_per_second")?;
            eprintln!("  {:<34} {:<30} {rate:>10.1} calls/s", kind.name(), row.title);
            samples.push(row.title, kind.name(), rate);
        }
    }
    Ok(figure3_findings(&site.conditions(1)?, seconds, &samples))
}

fn figure3_findings(conditions: &str, seconds: f64, samples: &Samples) -> Findings {
    let mut findings = Findings::default();
    findings
        .say(format!("{conditions} {seconds:.1} s a row, 16 clients with 4 calls in flight each."));
    let [log, plain] = [Kind::Log, Kind::Plain].map(Kind::name);
    let mut table = Table::new(&[
        "calls that change something",
        "calls/s without the log",
        "with it",
        "gained, %",
        "Legato gained, %",
    ]);
    for row in ROWS {
        let gained = samples.ratio(row.title, log, plain).map(|ratio| (ratio - 1.0) * 100.0);
        let (least, most) = row.gained;
        let theirs = if least < most { format!("{least}–{most}") } else { format!("{least}+") };
        table.row(&[
            row.title.to_owned(),
            samples.shown(row.title, plain),
            samples.shown(row.title, log),
            gained.map_or_else(String::new, figure),
            theirs,
        ]);
        findings.goals.push(Goal::at_least(format!("{}: gained, %", row.title), most, gained));
    }
    findings.add_table(&table);
    findings.add_plot(
        "durability-figure3.svg",
        "Throughput by the share of calls that change something",
        figure3_plot(samples).svg(),
    );
    findings.add_samples(samples);
    findings
}

fn figure3_plot(samples: &Samples) -> Plot {
    let points = |kind: Kind| {
        let whole = ROWS.iter().filter(|row| row.transfer == 8192);
        whole
            .filter_map(|row| Some((row.percent, samples.median(row.title, kind.name())?)))
            .collect()
    };
    Plot {
        title: "Throughput, a disk of 35 writes/s",
        x: Axis {
            label: "percent of calls that change something",
            from: 5.0,
            to: 20.0,
            ticks: vec![5.0, 10.0, 15.0, 20.0],
            is_linear: false,
        },
        y: Axis {
            label: "calls/s",
            from: 10.0,
            to: 100_000.0,
            ticks: vec![10.0, 100.0, 1000.0, 10_000.0, 100_000.0],
            is_linear: false,
        },
        curves: vec![
            Curve {
                name: "with the log",
                colour: "#1f618d",
                is_dashed: false,
                points: points(Kind::Log),
            },
            Curve {
                name: "without the log",
                colour: "#c0392b",
                is_dashed: false,
                points: points(Kind::Plain),
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn point(wanted: f64, mean_ms: f64, behind_seconds: f64) -> Point {
        Point {
            wanted,
            achieved: wanted,
            mean_ms,
            p50_ms: 0.2,
            write_mean_ms: Some(1.0),
            behind_seconds,
        }
    }

    #[test]
    fn a_level_of_the_report_is_read() {
        let level = json!({
            "wanted_calls_per_second": 10.0, "calls_per_second": 9.5, "mean_us": 2500.0,
            "p50_us": 300.0, "behind_seconds": 0.0,
            "operations": [
                {"operation": "read", "mean_us": 1.0}, {"operation": "write", "mean_us": 9000.0},
            ],
        });
        let point = Point::read(&level).expect("a level");
        assert_eq!((point.achieved, point.mean_ms, point.p50_ms), (9.5, 2.5, 0.3));
        assert_eq!(point.write_mean_ms, Some(9.0));
        assert!(!point.is_saturated());
        assert!(Point::read(&json!({})).is_err());
    }

    #[test]
    fn saturation_is_a_late_schedule_or_a_slow_mean() {
        let without = [point(50.0, 60.0, 0.0), point(60.0, 101.0, 0.0), point(120.0, 50.0, 3.0)];
        let with = [point(120.0, 2.0, 0.0), point(2000.0, 3.0, 0.0)];
        let findings = figure2_findings("", 1.0, &without, &with);
        assert_eq!(findings.goals[0].measured, Some(60.0));
        assert_eq!(findings.misses(), 0);
        let text = findings.markdown();
        assert!(text.contains("| 60 | 71 | 19 | ∞ (101) | 0.20 | 1.00 |  |  |  |"), "{text}");
        // A load that is not held is no answer, however fast the calls that were made.
        let late = [point(120.0, 2.0, 0.0), point(2000.0, 3.0, 0.5)];
        assert_eq!(figure2_findings("", 1.0, &without, &late).misses(), 1);
        assert_eq!(figure2_findings("", 1.0, &[], &[]).misses(), 3);
    }

    #[test]
    fn gains_are_beside_the_papers() {
        let mut samples = Samples::default();
        samples.push("5 %", Kind::Plain.name(), 100.0);
        samples.push("5 %", Kind::Log.name(), 250.0);
        let findings = figure3_findings("", 1.0, &samples);
        assert_eq!(findings.goals[0].measured, Some(150.0));
        assert!(findings.markdown().contains("| 5 % | 100 | 250 | 150 | 10–40 |"));
        assert_eq!(findings.misses(), ROWS.len() - 1);
    }
}
