//! Loads: `steadfast-bench` as a process of its own, which waits between preparing and measuring,
//! so that the disk becomes what it is to be in between.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::servers::{Cpus, Server, bench_program};

/// Connections, and calls in flight of each.
pub(crate) type Shape = (usize, usize);

/// What one load of a kind of call measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) calls_per_second: f64,
    pub(crate) p50_us: f64,
}

/// Puts one kind of call on a server; `names` are what REMOVE gets to remove.
pub(crate) fn op(
    server: &Server,
    cpus: &Cpus,
    operation: &str,
    (connections, depth): Shape,
    seconds: f64,
    names: usize,
    prepared: impl FnOnce() -> Result<()>,
) -> Result<Figures> {
    let words = [
        operation.to_owned(),
        format!("--connections={connections}"),
        format!("--depth={depth}"),
        format!("--seconds={seconds}"),
        format!("--names={names}"),
    ];
    let report = run(server, cpus, "op", &words, prepared).context(operation.to_owned())?;
    Ok(Figures {
        calls_per_second: number(&report, "/reports/0/calls_per_second")?,
        p50_us: number(&report, "/reports/0/p50_us")?,
    })
}

/// Runs a load that knows `--paused` and `--keep`; its report.
pub(crate) fn run(
    server: &Server,
    cpus: &Cpus,
    load: &str,
    words: &[String],
    prepared: impl FnOnce() -> Result<()>,
) -> Result<Value> {
    let mut generator = Cpus::command(cpus.client.as_ref(), &bench_program()?)
        .args([load, &server.address.to_string(), &server.path])
        .args(["--mount-port", &server.mount_port.to_string()])
        .args(words)
        // What it made goes with the file system.
        .args(["--paused", "--keep", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run the load generator")?;
    let mut errors = BufReader::new(generator.stderr.take().context("no standard error")?);
    let mut said = String::new();
    errors.read_line(&mut said)?;
    let is_prepared = said.trim() == "prepared";
    let outcome = if is_prepared { prepared() } else { Ok(()) };
    if outcome.is_err() {
        // What it would measure is of no use to anybody.
        let _ = generator.kill();
    }
    // Closing the pipe says go as well as a line does.
    drop(generator.stdin.take());
    let output = generator.wait_with_output()?;
    outcome?;
    errors.read_to_string(&mut said)?;
    if !output.status.success() || !is_prepared {
        bail!("the load generator failed: {}", said.trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A number of a report.
pub(crate) fn number(report: &Value, pointer: &str) -> Result<f64> {
    let number = report.pointer(pointer).and_then(Value::as_f64);
    number.with_context(|| format!("no {pointer} in the report"))
}
