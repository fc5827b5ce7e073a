//! A million damaged calls against the real server:
//! `cargo xtask storm [--calls N] [--seed N] [--directory DIR] [--program FILE]`.
//!
//! The server is the release build, or the program that is named, on a directory in memory: damaged calls
//! that mean something are executed, and a million of them should not wait for a disk. It must answer to the
//! end, keep its memory bounded, and then still serve.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use steadfast_bench::storm::{Storm, run as send};

use crate::servers::{self, Cpus, Own, Peer, Setup};
use crate::workspace;

/// The most memory that the server may use, in bytes: its reply cache, buffers of the few
/// connections, and descriptors' bookkeeping, several times over.
const RESIDENT_BYTES_MAX: u64 = 512 << 20;
/// The most that the server may log, in bytes: lines about bad calls are rate-limited.
const LOG_BYTES_MAX: u64 = 4 << 20;

struct Options {
    calls: u64,
    seed: u64,
    directory: PathBuf,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let directory = "/dev/shm".into();
        let mut options = Self { calls: 1_000_000, seed: 1, directory, program: None };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--calls" => options.calls = value()?.parse().context("--calls")?,
                "--seed" => options.seed = value()?.parse().context("--seed")?,
                "--directory" => options.directory = value()?.into(),
                "--program" => options.program = Some(std::path::absolute(value()?)?),
                _ => bail!(
                    "unknown option {word:?}; there are --calls, --seed, --directory, --program"
                ),
            }
        }
        Ok(options)
    }
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    if options.program.is_none() {
        workspace::build_release(servers::STEADFAST)?;
    }
    let scratch = tempfile::tempdir_in(&options.directory)?;
    let share = scratch.path().join("share");
    std::fs::create_dir(&share)?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let state = Some(scratch.path().join("state"));
    let own = Own { program: options.program.clone(), state, ..Own::default() };
    let setup = Setup { port, own, ..Setup::usual(&Cpus::divide(false)?) };
    let mut server = servers::start(Peer::Steadfast, &share, &setup)?;
    let storm = Storm {
        server: server.address,
        path: server.path.clone(),
        calls: options.calls,
        seed: options.seed,
        server_pid: Some(server.pid()),
        resident_bytes_max: RESIDENT_BYTES_MAX,
    };
    let started = Instant::now();
    let outcome = send(&storm, |report| {
        if report.calls % (BATCHES_OF_PROGRESS * 16_384) < 16_384 {
            eprintln!("  {} calls, server {} MiB", report.calls, report.resident_bytes_peak >> 20);
        }
    });
    if server.has_ended() {
        bail!("the server ended:\n{}", server.last_lines());
    }
    let report =
        outcome.with_context(|| format!("the server's log ends:\n{}", server.last_lines()))?;
    let log_bytes = std::fs::metadata(&server.log)?.len();
    println!("{}", serde_json::to_string_pretty(&report)?);
    println!(
        "{} damaged calls in {:.0} s: the server answers, {} MiB at most ({} at the start, {} at \
         the end), {} KiB of log",
        report.calls,
        started.elapsed().as_secs_f64(),
        report.resident_bytes_peak >> 20,
        report.resident_bytes_start >> 20,
        report.resident_bytes_end >> 20,
        log_bytes >> 10
    );
    if std::fs::read_to_string(&server.log).unwrap_or_default().contains("panicked") {
        bail!("a thread of the server panicked:\n{}", server.last_lines());
    }
    if log_bytes > LOG_BYTES_MAX {
        bail!("the server logged {} MiB", log_bytes >> 20);
    }
    Ok(())
}

/// Progress is told once in so many steps of it.
const BATCHES_OF_PROGRESS: u64 = 4;
