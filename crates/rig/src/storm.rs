//! A million damaged calls against the real server:
//! `cargo xtask storm [--calls N] [--seed N] [--directory DIR]`.
//!
//! The server is the release build, on a directory in memory (damaged calls that mean something
//! are executed, and a million of them should not wait for a disk). It must answer to the end,
//! keep its memory bounded, and then still serve.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use steadfast_bench::storm::{Storm, run as send};

/// The most memory that the server may use, in bytes: its reply cache, buffers of the few
/// connections, and descriptors' bookkeeping, several times over.
const RESIDENT_BYTES_MAX: u64 = 512 << 20;
/// The most that the server may log, in bytes: lines about bad calls are rate-limited.
const LOG_BYTES_MAX: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

struct Options {
    calls: u64,
    seed: u64,
    directory: PathBuf,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { calls: 1_000_000, seed: 1, directory: "/dev/shm".into() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--calls" => options.calls = value()?.parse().context("--calls")?,
                "--seed" => options.seed = value()?.parse().context("--seed")?,
                "--directory" => options.directory = value()?.into(),
                _ => bail!("unknown option {word:?}; there are --calls, --seed, --directory"),
            }
        }
        Ok(options)
    }
}

/// Ends the server when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which is found out elsewhere.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let program = build()?;
    let scratch = tempfile::tempdir_in(&options.directory)?;
    let share = scratch.path().join("share");
    std::fs::create_dir(&share)?;
    let log = scratch.path().join("log");
    let (mut server, address) = start(&program, &share, scratch.path(), &log)?;
    let storm = Storm {
        server: address,
        path: share.to_str().context("the directory's path is not UTF-8")?.to_owned(),
        calls: options.calls,
        seed: options.seed,
        server_pid: Some(server.0.id()),
        resident_bytes_max: RESIDENT_BYTES_MAX,
    };
    let started = Instant::now();
    let outcome = send(&storm, |report| {
        if report.calls % (BATCHES_OF_PROGRESS * 16_384) < 16_384 {
            eprintln!("  {} calls, server {} MiB", report.calls, report.resident_bytes_peak >> 20);
        }
    });
    if let Some(status) = server.0.try_wait()? {
        bail!("the server ended with {status}:\n{}", tail(&log));
    }
    let report = outcome.with_context(|| format!("the server's log ends:\n{}", tail(&log)))?;
    let log_bytes = std::fs::metadata(&log)?.len();
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
    if std::fs::read_to_string(&log).unwrap_or_default().contains("panicked") {
        bail!("a thread of the server panicked:\n{}", tail(&log));
    }
    if log_bytes > LOG_BYTES_MAX {
        bail!("the server logged {} MiB", log_bytes >> 20);
    }
    Ok(())
}

/// Progress is told once in so many steps of it.
const BATCHES_OF_PROGRESS: u64 = 4;

fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", "steadfast"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    if !status.success() {
        bail!("cargo build -p steadfast failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    Ok(target.join("release/steadfast"))
}

fn start(program: &Path, share: &Path, scratch: &Path, log: &Path) -> Result<(Server, SocketAddr)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let output = File::create(log)?;
    let child = Command::new(program)
        .args(["serve", "--no-rpcbind", "--no-root-squash", "--listen", "127.0.0.1"])
        .args(["--port", &port.to_string(), "--state-directory"])
        .arg(scratch.join("state"))
        .arg(share)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut server = Server(child);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.0.try_wait()? {
            bail!("the server ended with {status}:\n{}", tail(log));
        }
        if started.elapsed() > PATIENCE {
            bail!("the server does not answer:\n{}", tail(log));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((server, address))
}

fn tail(log: &Path) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or(&[]).join("\n")
}
