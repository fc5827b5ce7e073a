//! What the measured server uses: CPU time, memory.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

/// CPU time that the process has used in all its threads, those that ended included.
///
/// # Errors
/// When there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    steadfast_sys::cpu_time::of_process(pid)
}

/// The process's resident memory in bytes.
///
/// # Errors
/// When there is no such process.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map(|kib: u64| kib * 1024)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The machine's load average over the last minute.
pub(crate) fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// How many tasks of the machine run or want to, this one apart.
pub(crate) fn running_tasks() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let running: u32 = text.split(' ').nth(3)?.split('/').next()?.parse().ok()?;
    Some(running.saturating_sub(1))
}

/// CPU times at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) at: Instant,
    pub(crate) server: Option<Duration>,
    pub(crate) client: Option<Duration>,
}

impl Snapshot {
    /// Of the server, if its process is known, and of this process.
    pub(crate) fn take(server_pid: Option<u32>) -> Self {
        Self {
            at: Instant::now(),
            server: server_pid.and_then(|pid| cpu_time(pid).ok()),
            client: cpu_time(std::process::id()).ok(),
        }
    }
}

/// What calls cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// The server's CPU time a call in microseconds, if its process is known.
    pub server_cpu_us_per_call: Option<f64>,
    /// The server's CPU time in percent of one CPU.
    pub server_cpu_percent: Option<f64>,
    /// The server's most memory that was seen, in bytes.
    pub server_resident_bytes: Option<u64>,
    /// This program's CPU time a call in microseconds.
    pub client_cpu_us_per_call: Option<f64>,
    /// How many tasks of the machine ran or wanted to, on the mean; the load average without
    /// its delay.
    pub running_tasks: Option<f64>,
    /// The machine's load average over the last minute, at the end.
    pub load_average: Option<f64>,
}

impl Costs {
    /// Between two moments with so many calls.
    pub(crate) fn between(before: &Snapshot, after: &Snapshot, calls: u64) -> Self {
        let used = |before: Option<Duration>, after: Option<Duration>| {
            Some(after?.saturating_sub(before?).as_secs_f64())
        };
        let server = used(before.server, after.server);
        let client = used(before.client, after.client);
        let seconds = (after.at - before.at).as_secs_f64();
        let per_call = |used: f64| (calls > 0).then(|| used * 1e6 / calls as f64);
        Self {
            server_cpu_us_per_call: server.and_then(per_call),
            server_cpu_percent: server.map(|used| used / seconds.max(1e-9) * 100.0),
            server_resident_bytes: None,
            client_cpu_us_per_call: client.and_then(per_call),
            running_tasks: None,
            load_average: load_average(),
        }
    }
}
