//! One row of the report: a load on a server.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::servers::{Cpus, Server, bench_program};

/// What is asked of Steadfast beside ganesha.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// Server CPU time a call at most a third of ganesha's.
    ThirdOfCpu,
    /// At least 1.2 times ganesha's calls a second.
    MoreThroughput,
    /// Server CPU time at most so much of another row's, which is Steadfast's too; and of ganesha's for this
    /// row, where that is told.
    Cpu {
        /// The other row's title.
        of: &'static str,
        at_most: f64,
        of_peer: Option<f64>,
    },
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
    /// Over which version of NFS.
    pub(super) nfs: &'static str,
    pub(super) goal: Goal,
}

const fn small(title: &'static str, operation: &'static str, goal: Goal) -> Row {
    Row { title, operation, connections: 16, depth: 8, nfs: "3", goal }
}

const fn large(title: &'static str, operation: &'static str, goal: Goal) -> Row {
    Row { title, operation, connections: 4, depth: 2, nfs: "3", goal }
}

const fn over_4_1(title: &'static str, operation: &'static str, goal: Goal) -> Row {
    Row { nfs: "4.1", ..small(title, operation, goal) }
}

const fn cpu(of: &'static str, at_most: f64, of_peer: Option<f64>) -> Goal {
    Goal::Cpu { of, at_most, of_peer }
}

/// The rows of the suite `nfs4`: NFSv4.1 beside NFSv3 of the same server in the same run.
pub(super) const ROWS_OF_4: &[Row] = &[
    small("GETATTR", "getattr", Goal::None),
    over_4_1("4.1 GETATTR", "getattr", cpu("GETATTR", 1.6, Some(1.0 / 6.0))),
    small("LOOKUP", "lookup", Goal::None),
    over_4_1("4.1 LOOKUP", "lookup", Goal::None),
    small("READ 4 KiB", "read:4096", Goal::None),
    over_4_1("4.1 READ 4 KiB", "read:4096", Goal::None),
    small("WRITE 4 KiB stable", "write:4096:file_sync", Goal::None),
    over_4_1(
        "4.1 WRITE 4 KiB stable",
        "write:4096:file_sync",
        cpu("WRITE 4 KiB stable", 1.3, None),
    ),
    small("MKDIR", "mkdir", Goal::None),
    over_4_1("4.1 CREATE of a directory", "mkdir", cpu("MKDIR", 1.3, None)),
    small("CREATE", "create", Goal::None),
    over_4_1("4.1 OPEN that makes + CLOSE", "create", cpu("CREATE", 1.3, None)),
    over_4_1("4.1 OPEN + CLOSE", "open+close", cpu("", f64::INFINITY, Some(1.0 / 3.0))),
    over_4_1("4.1 LOCK + LOCKU", "lock+unlock", Goal::None),
];

/// The rows of the suite `calls`, in the report's order.
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
    let output = generator(server, row.operation, row.connections, row.depth, seconds, cpus)?
        .args(["--nfs", row.nfs])
        .stdin(Stdio::null())
        .output()
        .context("cannot run the load generator")?;
    let mut figures = figures(&output)?;
    if row.nfs != "3" {
        // Two calls that follow each other are what one is over NFSv3.
        let calls = figures.report.get("calls_per_operation").and_then(Value::as_f64);
        let calls = calls.context("no calls_per_operation in the report")?;
        figures.calls_per_second /= calls;
        figures.server_us *= calls;
        figures.client_us *= calls;
    }
    Ok(figures)
}

/// The load generator's command line.
pub(super) fn generator(
    server: &Server,
    operation: &str,
    connections: usize,
    depth: usize,
    seconds: f64,
    cpus: &Cpus,
) -> Result<Command> {
    let mut command = Cpus::command(cpus.client.as_ref(), &bench_program()?);
    command
        .arg("op")
        .arg(server.address.to_string())
        .arg(&server.path)
        .args(["--mount-port", &server.mount_port.to_string()])
        .args(["--connections", &connections.to_string(), "--depth", &depth.to_string()])
        .args(["--seconds", &seconds.to_string(), "--pid", &server.pid().to_string()])
        // One client with many connections, as these rows have always been measured.
        .args(["--one-address", "--json", operation]);
    Ok(command)
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
