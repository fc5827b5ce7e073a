//! Which sync calls a server makes for calls that promise stability, counted by strace.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load;
use crate::servers::{Cpus, Peer, Server};

/// The system calls that make something stable.
const SYNC_CALLS: [&str; 5] = ["fsync", "fdatasync", "syncfs", "sync_file_range", "sync"];
const SECONDS: f64 = 1.0;
const PATIENCE: Duration = Duration::from_secs(10);

/// What one load made the server do.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) peer: Peer,
    pub(super) operation: &'static str,
    /// Calls that were answered while strace counted.
    pub(super) answered: u64,
    /// Sync calls by name, those that happened.
    pub(super) syncs: Vec<(String, u64)>,
}

impl Evidence {
    /// All sync calls.
    pub(super) fn total(&self) -> u64 {
        self.syncs.iter().map(|(_, count)| count).sum()
    }
}

/// Counts for stable WRITE, CREATE and REMOVE.
pub(super) fn collect(server: &Server, cpus: &Cpus) -> Result<Vec<Evidence>> {
    let mut all = Vec::new();
    for operation in ["write:4096:file_sync", "create", "remove"] {
        // A depth of 1 on one connection leaves no company to share a sync with: one call, one
        // sync, or the promise is not kept.
        let mut generator = load::generator(server, operation, 1, 1, SECONDS, cpus)?
            .args(["--paused", "--keep", "--names", "5000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run the load generator")?;
        // What it made so far is not counted.
        let mut line = String::new();
        let errors = generator.stderr.take().context("no standard error")?;
        let mut errors = BufReader::new(errors);
        errors.read_line(&mut line)?;
        if line.trim() != "prepared" {
            errors.read_to_string(&mut line)?;
            bail!("the load generator did not begin: {line}");
        }
        let trace = Trace::attach(server.pid())?;
        // Closing the pipe says go as well as a line does.
        drop(generator.stdin.take());
        let output = generator.wait_with_output()?;
        let syncs = trace.detach()?;
        let figures = load::figures(&output)?;
        let answered = figures
            .report
            .pointer("/checks/replies")
            .and_then(serde_json::Value::as_u64)
            .context("no count of replies in the report")?;
        all.push(Evidence { peer: server.peer, operation, answered, syncs });
    }
    Ok(all)
}

struct Trace {
    strace: Child,
    output: tempfile::NamedTempFile,
}

impl Trace {
    fn attach(pid: u32) -> Result<Self> {
        let output = tempfile::NamedTempFile::new()?;
        let errors = tempfile::NamedTempFile::new()?;
        let strace = Command::new("strace")
            .args(["-f", "-c", "-U", "name,calls"])
            .args(["-e", &format!("trace={}", SYNC_CALLS.join(","))])
            .args(["-p", &pid.to_string(), "-o"])
            .arg(output.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.reopen()?)
            .spawn()
            .context("cannot run strace")?;
        let mut trace = Self { strace, output };
        let started = Instant::now();
        // It says "Process N attached" for each thread when it is ready.
        while !std::fs::read_to_string(errors.path())?.contains("attached") {
            if trace.strace.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                bail!("strace did not attach: {}", std::fs::read_to_string(errors.path())?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Threads are attached one after another.
        std::thread::sleep(Duration::from_millis(200));
        Ok(trace)
    }

    /// Ends the trace, which lets the server go on, and reads the counts.
    fn detach(mut self) -> Result<Vec<(String, u64)>> {
        let pid = i32::try_from(self.strace.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.context("strace has no process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        self.strace.wait()?;
        Ok(counts(&std::fs::read_to_string(self.output.path())?))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Already ended after `detach`.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

/// Reads the table of `strace -c -U name,calls`.
fn counts(table: &str) -> Vec<(String, u64)> {
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().filter(|name| SYNC_CALLS.contains(name))?;
            Some((name.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read() {
        let table = "syscall              calls\n---------------- ---------\nfsync              1234\n\
                     fdatasync             2\n---------------- ---------\ntotal              1236\n";
        assert_eq!(counts(table), [("fsync".to_owned(), 1234), ("fdatasync".to_owned(), 2)]);
        assert!(counts("").is_empty());
    }
}
