//! One row of the report: a load on a server.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::servers::{Cpus, Server, bench_program};

/// What is asked of Steadfast beside ganesha.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Server CPU time a call at most a third of ganesha's.
    ThirdOfCpu,
    /// At least 1.2 times ganesha's calls a second.
    MoreThroughput,
    /// None: the two promise different things, or it is told for completeness.
    None,
}

/// A row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) operation: &'static str,
    pub(super) connections: usize,
    pub(super) depth: usize,
    pub(super) goal: Goal,
}

const fn small(title: &'static str, operation: &'static str, goal: Goal) -> Row {
    Row { title, operation, connections: 16, depth: 8, goal }
}

const fn large(title: &'static str, operation: &'static str, goal: Goal) -> Row {
    Row { title, operation, connections: 4, depth: 2, goal }
}

/// The rows, in the report's order.
pub(super) const ROWS: &[Row] = &[
    small("NULL", "null", Goal::None),
    small("GETATTR", "getattr", Goal::ThirdOfCpu),
    small("LOOKUP", "lookup", Goal::ThirdOfCpu),
    small("ACCESS", "access", Goal::ThirdOfCpu),
    small("READ 4 KiB", "read:4096", Goal::ThirdOfCpu),
    small("WRITE 4 KiB unstable", "write:4096:unstable", Goal::ThirdOfCpu),
    small("WRITE 4 KiB + COMMIT", "write+commit:4096", Goal::ThirdOfCpu),
    large("READ 1 MiB", "read:1048576", Goal::MoreThroughput),
    large("WRITE 1 MiB unstable", "write:1048576:unstable", Goal::None),
    small("WRITE 4 KiB stable", "write:4096:file_sync", Goal::None),
    small("CREATE", "create", Goal::None),
    small("REMOVE", "remove", Goal::None),
];

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) calls_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) server_us: f64,
    pub(super) client_us: f64,
    /// The generator's whole report.
    pub(super) report: Value,
}

/// Runs one row's load.
pub(super) fn measure(server: &Server, row: &Row, seconds: f64, cpus: &Cpus) -> Result<Figures> {
    let output = generator(server, row.operation, row.connections, row.depth, seconds, cpus)
        .stdin(Stdio::null())
        .output()
        .context("cannot run the load generator")?;
    figures(&output)
}

/// The load generator's command line.
pub(super) fn generator(
    server: &Server,
    operation: &str,
    connections: usize,
    depth: usize,
    seconds: f64,
    cpus: &Cpus,
) -> Command {
    let mut command = Cpus::command(cpus.client.as_ref(), &bench_program());
    command
        .arg("op")
        .arg(server.address.to_string())
        .arg(&server.path)
        .args(["--mount-port", &server.mount_port.to_string()])
        .args(["--connections", &connections.to_string(), "--depth", &depth.to_string()])
        .args(["--seconds", &seconds.to_string(), "--pid", &server.pid().to_string()])
        // One client with many connections, as these rows have always been measured.
        .args(["--one-address", "--json", operation]);
    command
}

/// Reads what the load generator said.
pub(super) fn figures(output: &Output) -> Result<Figures> {
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut reports: Value = serde_json::from_slice(&output.stdout)?;
    let report = reports
        .pointer_mut("/reports/0")
        .map(Value::take)
        .context("the load generator reported nothing")?;
    let number = |key: &str| {
        report.get(key).and_then(Value::as_f64).with_context(|| format!("no {key} in the report"))
    };
    Ok(Figures {
        calls_per_second: number("calls_per_second")?,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        server_us: number("server_cpu_us_per_call")?,
        client_us: number("client_cpu_us_per_call")?,
        report,
    })
}
