//! The load generator, as a process of its own.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Site;
use super::server::ADDRESS;
use crate::load::number;
use crate::servers::{Cpus, bench_program};

/// GETATTRs a second: far from what the server can do, so that what disturbs them is seen.
pub(super) const RATE: u32 = 2000;
/// How long they are measured: two thousand calls.
const SECONDS: u32 = 1;

/// GETATTR of a share at a held rate; the p99 of its latency in µs.
pub(super) fn getattr(site: &Site<'_>, pid: u32, path: &str) -> Result<f64> {
    let words = [
        "op".to_owned(),
        ADDRESS.to_string(),
        path.to_owned(),
        "getattr".to_owned(),
        format!("--rate={RATE}"),
        "--arrivals=even".to_owned(),
        format!("--seconds={SECONDS}"),
        "--connections=4".to_owned(),
        format!("--pid={pid}"),
        "--json".to_owned(),
    ];
    number(&run(site, &words)?, "/reports/0/p99_us")
}

/// Runs a load to its end; its report.
pub(super) fn run(site: &Site<'_>, words: &[String]) -> Result<Value> {
    let output = Cpus::command(site.cpus.client.as_ref(), &bench_program()?)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("cannot run the load generator")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("the load generator ({}): {}", words.join(" "), said.trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
