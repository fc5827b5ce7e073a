//! Processes that are killed when they are dropped, and waiting for what they do.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// A process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts it with nothing to read; what it prints goes to the file.
    pub(crate) fn start(command: &mut Command, output: File) -> Result<Self> {
        let program = command.get_program().to_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(rustix::process::kill_process(Pid::from_child(&self.0), signal)?)
    }

    /// Asks it to end by SIGTERM, and waits; after the limit it is killed, which is an error.
    pub(crate) fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        // It may have ended by itself; waiting tells.
        let _ = self.signal(Signal::TERM);
        let started = Instant::now();
        while started.elapsed() < limit {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("it did not end within {} s of SIGTERM", limit.as_secs())
    }

    /// Waits for its end; whether it came before the limit. It is an error if it fails.
    pub(crate) fn has_ended_within(&mut self, started: Instant, limit: Duration) -> Result<bool> {
        while started.elapsed() < limit {
            if let Some(status) = self.ended()? {
                if !status.success() {
                    bail!("it ended with {status}");
                }
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    /// Calls `attempt` until it succeeds: an error when the process ends before, and after the limit the
    /// last error.
    pub(crate) fn wait_for<T>(
        &mut self,
        limit: Duration,
        pause: Duration,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        wait_for(limit, pause, || {
            if let Some(status) = self.0.try_wait()? {
                // Not worth waiting for the limit.
                return Ok(Err(anyhow::anyhow!("it ended with {status}")));
            }
            attempt().map(Ok)
        })?
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls `attempt` until it succeeds; after the limit its last error.
pub(crate) fn wait_for<T>(
    limit: Duration,
    pause: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(_) if started.elapsed() < limit => std::thread::sleep(pause),
            outcome => return outcome,
        }
    }
}

/// How a log ends; of one that cannot be read, nothing.
pub(crate) fn last_lines(log: &Path, count: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or(&[]).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_millis(1);

    fn shell(script: &str) -> Process {
        let output = tempfile::tempfile().expect("a file");
        Process::start(Command::new("sh").args(["-c", script]), output).expect("sh runs")
    }

    #[test]
    fn who_waits_for_a_process_that_ends_is_told_so_at_once() {
        let error = shell("exit 3").wait_for(LIMIT, PAUSE, || -> Result<()> { bail!("not yet") });
        assert!(error.is_err_and(|error| error.to_string().contains("ended with")));
        let mut attempts = 0;
        let counted = shell("sleep 60").wait_for(LIMIT, PAUSE, || {
            attempts += 1;
            (attempts == 3).then_some(attempts).context("not yet")
        });
        assert_eq!(counted.expect("the third succeeds"), 3);
        let late = wait_for(PAUSE, PAUSE, || -> Result<()> { bail!("the last error") });
        assert_eq!(late.map_err(|error| error.to_string()), Err("the last error".to_owned()));
    }

    #[test]
    fn one_that_stops_tells_how_and_one_that_does_not_is_killed() {
        let status = shell("sleep 60").stop(LIMIT).expect("it ends");
        assert!(!status.success(), "by a signal");
        // Its shell ignores the signal, and so does what it becomes.
        let output = tempfile::NamedTempFile::new().expect("a file");
        let mut deaf = Command::new("sh");
        deaf.args(["-c", "trap '' TERM; echo deaf; exec sleep 60"]);
        let deaf = Process::start(&mut deaf, output.reopen().expect("a file")).expect("sh runs");
        let id = deaf.id();
        let is_deaf = || (last_lines(output.path(), 1) == "deaf").then_some(()).context("not yet");
        wait_for(LIMIT, PAUSE, is_deaf).expect("it says so");
        assert!(deaf.stop(Duration::from_millis(50)).is_err());
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "it is killed");
    }

    #[test]
    fn the_last_lines_are_told() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "one\ntwo\nthree\n").expect("written");
        assert_eq!(last_lines(file.path(), 2), "two\nthree");
        assert_eq!(last_lines(file.path(), 9), "one\ntwo\nthree");
        assert_eq!(last_lines(Path::new("/nowhere/at/all"), 2), "");
    }
}
