//! The loads: Debian's dbench with its own load file, and dd.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::{Counters, Site};
use crate::servers::Server;

/// Operations of a session of Netbench; Debian has it beside the program.
const LOAD_FILE: &str = "/usr/share/dbench/client.txt";

/// What a load measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Megabytes (10⁶) a second, of the programs' reads and writes.
    pub(super) mb_s: f64,
    /// Bytes on the server's link for each byte that the programs moved.
    pub(super) wire_bytes_a_byte: f64,
    /// Of the server's process, for each megabyte.
    pub(super) cpu_ms_a_mb: f64,
}

/// Figures of so many megabytes that took so long.
fn figures(mb: f64, seconds: f64, before: Counters, after: Counters) -> Figures {
    let wire_mb = (after.wire_bytes - before.wire_bytes) as f64 / 1e6;
    Figures {
        mb_s: mb / seconds,
        wire_bytes_a_byte: wire_mb / mb,
        cpu_ms_a_mb: (after.cpu_s - before.cpu_s) * 1000.0 / mb,
    }
}

/// What dbench replaces by the number of its process, in the whole path and not only in those of its load file: it
/// would write somewhere else.
const REPLACED: &str = "client1";

/// dbench, not yet started.
///
/// # Errors
/// When it would write elsewhere.
fn dbench(at: &Path, processes: usize, seconds: u32) -> Result<Command> {
    if at.to_string_lossy().contains(REPLACED) {
        bail!(
            "dbench replaces {REPLACED:?} in paths: it needs another directory than {}",
            at.display()
        );
    }
    // What it says is to come line by line.
    let mut command = Command::new("stdbuf");
    command
        .args(["--output=L", "dbench", "-c", LOAD_FILE, "-t", &seconds.to_string(), "-D"])
        .arg(at)
        .arg(processes.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Runs dbench while the disk is slow, from its first operation until it cleans up.
pub(super) fn run_dbench(
    site: &Site<'_>,
    server: &Server,
    at: &Path,
    processes: usize,
) -> Result<Figures> {
    let mut command = dbench(at, processes, site.options.seconds)?;
    site.disk.sync()?;
    site.slow_down();
    let outcome = watch_dbench(site, server, &mut command);
    site.disk.set_write_time(Duration::ZERO);
    outcome
}

fn watch_dbench(site: &Site<'_>, server: &Server, command: &mut Command) -> Result<Figures> {
    let mut child = command.spawn().context("cannot run dbench")?;
    let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let (mut begun, mut ended, mut mb_s) = (None, None, None);
    for line in lines {
        let line = line?;
        let now = || anyhow::Ok((Instant::now(), Site::counters(server)?));
        match phase(&line) {
            Some("execute") if begun.is_none() => begun = Some(now()?),
            Some("cleanup") if ended.is_none() => {
                ended = Some(now()?);
                site.disk.set_write_time(Duration::ZERO);
            }
            _ => mb_s = throughput(&line).or(mb_s),
        }
    }
    let status = child.wait()?;
    let (Some((begun, before)), Some((ended, after)), Some(mb_s)) = (begun, ended, mb_s) else {
        bail!("dbench did not tell what it did, and ended with {status}");
    };
    let seconds = ended.duration_since(begun).as_secs_f64();
    // Its megabytes are 2²⁰ bytes.
    Ok(figures(mb_s * seconds * 1.048_576, seconds, before, after))
}

/// Runs dbench on each of several mounts at one time, one process each; megabytes a second of each.
pub(super) fn run_dbench_each(at: &[&Path], seconds: u32) -> Result<Vec<f64>> {
    let start = |at: &&Path| {
        dbench(at, 1, seconds)?.stderr(Stdio::piped()).spawn().context("cannot run dbench")
    };
    let children: Vec<_> = at.iter().map(start).collect::<Result<_>>()?;
    let finish = |child: std::process::Child| {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mb_s = text.lines().find_map(throughput).with_context(|| {
            format!("dbench, {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(mb_s * 1.048_576)
    };
    children.into_iter().map(finish).collect()
}

/// What dbench does, of a line that tells how far it is.
fn phase(line: &str) -> Option<&'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    ["execute", "cleanup"].into_iter().find(|phase| words.contains(phase))
}

/// Of dbench's last line.
fn throughput(line: &str) -> Option<f64> {
    line.strip_prefix("Throughput ")?.split(' ').next()?.parse().ok()
}

/// The paper's `dd bs=1K conv=fdatasync`, while the disk is slow: so many megabytes, or until the limit.
pub(super) fn run_dd(
    site: &Site<'_>,
    server: &Server,
    at: &Path,
    mb: u64,
    limit_s: Option<u32>,
) -> Result<Figures> {
    site.disk.sync()?;
    site.slow_down();
    let before = Site::counters(server)?;
    let outcome = dd(&at.join("dd"), "1K", mb * 1000, limit_s);
    let after = Site::counters(server);
    site.disk.set_write_time(Duration::ZERO);
    let (bytes, seconds) = outcome?;
    Ok(figures(bytes as f64 / 1e6, seconds, before, after?))
}

/// Writes a file of zeros; bytes and seconds, until `fdatasync` has returned. What is ended by the limit has
/// not called that, and only the bytes of mounts that write synchronously count then.
pub(super) fn dd(file: &Path, block: &str, count: u64, limit_s: Option<u32>) -> Result<(u64, f64)> {
    let mut command = Command::new("timeout");
    // Without a limit, 0 is none. In the foreground it signals dd alone: else it signals its group, too, and a
    // second one ends dd before it tells anything.
    command
        .args([
            "--foreground",
            "--signal=INT",
            &limit_s.unwrap_or(0).to_string(),
            "dd",
            "if=/dev/zero",
        ])
        .args([format!("bs={block}"), format!("count={count}"), "conv=fdatasync".to_owned()])
        .arg(format!("of={}", file.display()))
        .env("LC_ALL", "C");
    let output = command.output().context("cannot run dd")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.lines().rev().find_map(copied).with_context(|| format!("dd failed: {said}"))
}

/// `65536000 bytes (66 MB, 62 MiB) copied, 0.5 s, 131 MB/s`.
fn copied(line: &str) -> Option<(u64, f64)> {
    let (bytes, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once(" copied, ")?;
    let (seconds, _) = rest.split_once(" s, ")?;
    Some((bytes.parse().ok()?, seconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dbench_tells_is_understood() {
        let line = "   2     11353   154.93 MB/sec  execute   1 sec  latency 42.814 ms";
        assert_eq!(phase(line), Some("execute"));
        assert_eq!(phase("   2  cleanup   3 sec"), Some("cleanup"));
        assert_eq!(phase("   2     1   154.93 MB/sec  warmup   1 sec  latency 1 ms"), None);
        let last = "Throughput 188.573 MB/sec  2 clients  2 procs  max_latency=46.394 ms";
        assert_eq!(throughput(last), Some(188.573));
        assert_eq!(throughput(line), None);
    }

    #[test]
    fn dd_tells_how_much_it_has_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        let (bytes, seconds) = dd(&file, "1K", 100, Some(60)).expect("dd runs");
        assert_eq!(bytes, 102_400);
        assert!(seconds > 0.0);
        assert_eq!(std::fs::metadata(&file).expect("it is there").len(), bytes);
        assert!(dd(&directory.path().join("no/directory"), "1K", 1, None).is_err());
        assert_eq!(copied("3 records in"), None);
        // More than can be written in that time: what was written by then counts.
        let (bytes, seconds) =
            dd(Path::new("/dev/null"), "1", 1 << 50, Some(1)).expect("it is told");
        assert!(bytes > 0 && seconds < 30.0, "{bytes} in {seconds} s");
    }

    #[test]
    fn dbench_runs_with_its_load_file() {
        let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        if !must && !Path::new(LOAD_FILE).exists() {
            println!("skipped: dbench is not installed");
            return;
        }
        let places = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let speeds = run_dbench_each(&places.each_ref().map(tempfile::TempDir::path), 2);
        let speeds = speeds.expect("dbench runs");
        assert!(speeds.len() == 2 && speeds.iter().all(|speed| *speed > 0.0), "{speeds:?}");
    }

    #[test]
    fn dbench_is_not_let_write_elsewhere() {
        for (at, is_right) in
            [("/run/mounts/client12/client-12", false), ("/run/mounts/mount12", true)]
        {
            assert_eq!(dbench(Path::new(at), 1, 2).is_ok(), is_right, "{at}");
        }
    }

    #[test]
    fn figures_are_for_each_megabyte() {
        let before = Counters { wire_bytes: 1_000_000, cpu_s: 1.0 };
        let after = Counters { wire_bytes: 5_000_000, cpu_s: 1.5 };
        let figures = figures(2.0, 4.0, before, after);
        assert_eq!((figures.mb_s, figures.wire_bytes_a_byte), (0.5, 2.0));
        assert!((figures.cpu_ms_a_mb - 250.0).abs() < 1e-9);
    }
}
