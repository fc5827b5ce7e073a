//! What a name server gets to hear from a server whose rules need it: the second figure of "NFS Client
//! Authentication" as the paper shows it, drawn from a run. A share names two thousand hosts; the server
//! starts, all of them come at once and work, and in the middle of it the name server says nothing any
//! more for a while.
//!
//! The rules name hosts rather than `*.clients.example`: clients of one machine have addresses of
//! 127.0.0.0/8, whose names no resolver asks a name server for.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::server::{ADDRESS, Home, Running};
use super::{Site, load, shown_count};
use crate::load::number;
use crate::report::median;
use crate::report::{Findings, Goal, figure};
use crate::svg::{Axis, Curve, Plot};
use crate::workspace::target;

/// How long the name server's answers live, in s.
const TTL_S: u32 = 20;
/// Questions that a host takes: its addresses of both kinds.
const QUESTIONS_OF_HOST: u32 = 2;
/// The part of an answer's life after which it is asked for again.
const REFRESHED_AT: f64 = 0.75;
/// Calls a second of all clients.
const RATE: u32 = 4000;
/// When the name server falls silent and when it answers again, and the end, in s.
const SILENT: std::ops::Range<f64> = 60.0..85.0;
const SECONDS: u32 = 120;
/// How often it is asked what it was asked.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// What is averaged for the figure, in samples.
const SAMPLES_A_POINT: usize = 4;

/// Measures it.
pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    let clients = if site.options.is_quick { 200 } else { 2000 };
    let mut server = NameServer::start(clients)?;
    site.farm.make(0..1)?;
    let home = Home::make(&site.home(), &site.farm, 1)?;
    let path = site.farm.path(0);
    // The load generator itself mounts by its address.
    let hosts: Vec<_> = (0..clients).map(|client| format!("{:?}", host_name(client))).collect();
    let hosts = hosts.join(", ");
    home.set_group(&format!("[[share]]\npath = {path:?}\nclients = [{hosts}, \"127.0.0.1\"]\n"))?;
    home.add_names(&format!("servers = [\"{}\"]\nttl_min_s = 1\n", server.address))?;
    let before = server.asked()?;
    let started = Instant::now();
    let (running, _) = Running::start(&home, &site.cpus, &site.farm, 1)?;
    let words = [
        "op".to_owned(),
        ADDRESS.to_string(),
        path,
        "getattr".to_owned(),
        format!("--connections={clients}"),
        format!("--rate={RATE}"),
        "--arrivals=even".to_owned(),
        format!("--seconds={SECONDS}"),
        format!("--pid={}", running.pid()),
        "--json".to_owned(),
    ];
    let (report, samples) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load::run(site, &words));
        let samples = server.watch(started, before, || load.is_finished());
        let report = load.join().ok().context("the thread of the load panicked");
        anyhow::Ok((report??, samples?))
    })?;
    running.stop()?;
    findings(&site.conditions()?, clients, &report, &samples)
}

fn host_name(client: usize) -> String {
    format!("c{client}.clients.example")
}

/// Seconds since the server was started, and questions so far.
type Sample = (f64, u64);

/// The name server, a process of its own.
struct NameServer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: String,
}

impl NameServer {
    /// One that knows the addresses of the load generator's first clients.
    fn start(clients: usize) -> Result<Self> {
        let program = target()?.join("release/examples/name_server");
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run the name server")?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        let mut server = Self { process, input, output, address: String::new() };
        server.address = server.line()?;
        let mut text = format!("ttl {TTL_S}\n");
        for client in 0..clients {
            let address = steadfast_bench::source_address(ADDRESS, client);
            let address = address.context("not on loopback")?;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "host {} {address}", host_name(client));
        }
        server.input.write_all(text.as_bytes())?;
        Ok(server)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn say(&mut self, what: &str) -> Result<()> {
        Ok(writeln!(self.input, "{what}")?)
    }

    fn asked(&mut self) -> Result<u64> {
        self.say("asked")?;
        let line = self.line()?;
        line.parse().with_context(|| format!("the name server says {line:?}"))
    }

    /// Counts questions until it is over, and has the server silent meanwhile.
    fn watch(
        &mut self,
        started: Instant,
        before: u64,
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<Sample>> {
        let mut samples = vec![(0.0, 0)];
        let mut is_silent = false;
        while !is_over() {
            let seconds = started.elapsed().as_secs_f64();
            if SILENT.contains(&seconds) != is_silent {
                is_silent = !is_silent;
                self.say(if is_silent { "silent" } else { "answers" })?;
            }
            samples.push((seconds, self.asked()? - before));
            std::thread::sleep(SAMPLE_EVERY);
        }
        Ok(samples)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Questions a second over time.
fn rates(samples: &[Sample]) -> Vec<(f64, f64)> {
    let ends: Vec<Sample> = samples.iter().step_by(SAMPLES_A_POINT).copied().collect();
    let rate = |pair: &[Sample]| match pair {
        [(from, before), (to, after)] => {
            Some((f64::midpoint(*from, *to), (after - before) as f64 / (to - from)))
        }
        _ => None,
    };
    ends.windows(2).filter_map(rate).collect()
}

fn findings(
    conditions: &str,
    clients: usize,
    report: &Value,
    samples: &[Sample],
) -> Result<Findings> {
    let rates = rates(samples);
    let within = |from: f64, to: f64| {
        let those = rates.iter().filter(|(at, _)| (from..to).contains(at));
        those.map(|(_, rate)| *rate).collect::<Vec<_>>()
    };
    let first = within(0.0, 10.0).into_iter().fold(0.0, f64::max);
    // From the second life of an answer on.
    let mean = |rates: Vec<f64>| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let warm = mean(within(2.0 * f64::from(TTL_S), SILENT.start));
    let silent = median(within(SILENT.start + 5.0, SILENT.end)).unwrap_or(0.0);
    let life_s = f64::from(TTL_S) * REFRESHED_AT;
    let refresh = clients as f64 * f64::from(QUESTIONS_OF_HOST) / life_s;
    let us = |key: &str| number(report, &format!("/reports/0/{key}"));
    let mut findings = Findings::default();
    findings.say(conditions);
    findings.say(format!(
        "{} clients come at once to a share that names each of them: {QUESTIONS_OF_HOST} questions a \
         name, answered for {TTL_S} s. Most questions a second at the start: {}; from the second life \
         of the answers on: {} a second, where asking again after three quarters of their life makes {}. \
         From {} s to {} s the name server says nothing: {} a second then. {} GETATTRs a second of all \
         clients meanwhile: p50 {} µs, p99 {} µs, longest {} ms; {} were refused for now (JUKEBOX).",
        shown_count(clients),
        figure(first),
        figure(warm),
        figure(refresh),
        SILENT.start,
        SILENT.end,
        figure(silent),
        figure(us("calls_per_second")?),
        figure(us("p50_us")?),
        figure(us("p99_us")?),
        figure(us("max_us")? / 1000.0),
        us("checks/try_later")?,
    ));
    findings.goals = vec![Goal::at_most(
        "questions a second once warm, of the refresh rate",
        1.1,
        Some(warm / refresh),
    )];
    let plot = plot(&rates, refresh);
    findings.add_plot("shares-figure2.svg", "Questions to the name server over time", plot.svg());
    findings.add_raw(json!({ "clients": clients, "asked": samples, "load": report }));
    Ok(findings)
}

fn plot(rates: &[(f64, f64)], refresh: f64) -> Plot {
    let end = f64::from(SECONDS);
    Plot {
        title: "Traffic to the name server (silent from 60 s to 85 s)",
        x: Axis {
            label: "seconds since the server was started",
            from: 0.0,
            to: end,
            ticks: (0..=6).map(|tick| f64::from(tick) * 20.0).collect(),
            is_linear: true,
        },
        y: Axis {
            label: "questions a second",
            from: 1.0,
            to: 10_000.0,
            ticks: vec![1.0, 10.0, 100.0, 1000.0, 10_000.0],
            is_linear: false,
        },
        curves: vec![
            Curve {
                name: "Steadfast",
                colour: "#1f77b4",
                is_dashed: false,
                points: rates.to_vec(),
            },
            Curve {
                name: "every answer asked for again after three quarters of its life",
                colour: "#888",
                is_dashed: true,
                points: vec![(0.0, refresh), (end, refresh)],
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_told_with_its_verdict() {
        // 600 at once, then 26 a second: 200 clients, two questions each in 15 s.
        let samples: Vec<Sample> =
            (0..240).map(|n| (f64::from(n) * 0.5, 600 + n as u64 * 13)).collect();
        let mut all = vec![(0.0, 0)];
        all.extend(samples.iter().skip(1));
        let report = json!({ "reports": [{
            "calls_per_second": 4000.0, "p50_us": 100.0, "p99_us": 200.0, "max_us": 3000.0,
            "checks": { "try_later": 7 },
        }]});
        let findings = findings("Here.", 200, &report, &all).expect("complete");
        let text = findings.markdown();
        assert!(text.contains("200 clients come at once"), "{text}");
        assert!(text.contains("26.0 a second, where asking again"), "{text}");
        assert_eq!((findings.misses(), findings.plots.len()), (0, 1));
        let double: Vec<Sample> = samples.iter().map(|(at, asked)| (*at, asked * 2)).collect();
        assert_eq!(super::findings("", 200, &report, &double).expect("complete").misses(), 1);
    }
}
