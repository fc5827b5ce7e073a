//! What the measured server uses: CPU time, memory.

use std::fs;
use std::io;
use std::time::Duration;

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
