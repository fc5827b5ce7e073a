//! Options that several loads have.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use steadfast_client::{Identity, StableHow};

use crate::drive::{Arrivals, Pace};
use crate::error::BenchError;
use crate::setup::Target;
use crate::version::NfsVersion;

/// The port of NFS.
const NFS_PORT: u16 = 2049;

/// Which server.
#[derive(Debug, Args)]
pub(super) struct ServerArguments {
    /// The server: HOST, HOST:PORT or `[ADDRESS]:PORT`.
    #[arg(value_name = "SERVER", value_parser = server_address)]
    pub(super) server: SocketAddr,
    /// Where MOUNT answers (default: where NFS does).
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) mount_port: Option<u16>,
    /// The server's process, if it runs here: for its CPU time and memory.
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
    /// The user that calls.
    #[arg(long, value_name = "N", default_value_t = 0)]
    uid: u32,
    /// The group that calls.
    #[arg(long, value_name = "N", default_value_t = 0)]
    gid: u32,
}

/// Over which version of NFS.
#[derive(Debug, Args)]
pub(super) struct VersionArguments {
    /// Version of NFS: 3, 4.1 or 4.2. The server needs no other.
    #[arg(long, value_name = "VERSION", default_value_t)]
    pub(super) nfs: NfsVersion,
}

/// A share of a server.
#[derive(Debug, Args)]
pub(super) struct ShareArguments {
    #[command(flatten)]
    pub(super) server: ServerArguments,
    /// The share.
    #[arg(value_name = "PATH")]
    pub(super) path: String,
}

impl ServerArguments {
    pub(super) fn target(&self) -> Target {
        let mut target = Target::new(self.server);
        if let Some(port) = self.mount_port {
            target.mount_server.set_port(port);
        }
        target.identity = Identity::user(self.uid, self.gid);
        target
    }
}

/// When calls start.
#[derive(Debug, Args)]
pub(super) struct PaceArguments {
    /// Make so many calls a second whatever the server does (an open loop); latencies then count
    /// from when a call should have started. Without, each reply starts the next call.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// How scheduled calls follow each other: exponential or even.
    #[arg(long, value_name = "HOW", default_value = "exponential")]
    arrivals: Arrivals,
}

impl PaceArguments {
    pub(super) fn pace(&self) -> Pace {
        self.rate.map_or(Pace::Closed, |calls_per_second| Pace::Open {
            calls_per_second,
            arrivals: self.arrivals,
        })
    }
}

/// Calls a second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=1e8_f64).contains(&rate) => Ok(rate),
        _ => Err("write calls per second".to_owned()),
    }
}

/// How the report is told.
#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Show progress on standard error even if that is no terminal.
    #[arg(long)]
    pub(super) progress: bool,
}

impl OutputArguments {
    /// Prints a report.
    pub(super) fn print(
        &self,
        report: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<(), BenchError> {
        let text = if self.json {
            serde_json::to_string_pretty(report).map_err(std::io::Error::from)? + "\n"
        } else {
            table()
        };
        // Whoever has read enough may have gone.
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Says that everything is prepared, and waits until somebody says go.
pub(super) fn wait_for_line() {
    eprintln!("prepared");
    // At the end of input there is nobody to wait for.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// An address, or a name that has one.
fn server_address(text: &str) -> Result<SocketAddr, String> {
    let addresses = if let Ok(ip) = text.parse::<std::net::IpAddr>() {
        return Ok((ip, NFS_PORT).into());
    } else if text.contains(':') {
        text.to_socket_addrs()
    } else {
        (text, NFS_PORT).to_socket_addrs()
    };
    match addresses.map(|mut addresses| addresses.next()) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err("the name has no address".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Seconds, with a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds: 2.5".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= Duration::from_secs(1_000_000) => Ok(duration),
        _ => Err("write seconds: 2.5".to_owned()),
    }
}

/// A size in bytes; k, M and G are powers of 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let fault = || "write bytes, or a number with k, M or G: 64k".to_owned();
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (text.get(..text.len() - 1), 10),
        Some('M') => (text.get(..text.len() - 1), 20),
        Some('G') => (text.get(..text.len() - 1), 30),
        _ => (Some(text), 0),
    };
    let number: u64 = digits.unwrap_or_default().parse().map_err(|_| fault())?;
    number.checked_mul(1 << shift).ok_or_else(fault)
}

/// A size that fits a call.
pub(super) fn call_size(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| "too large for one call".to_owned())
}

/// How stable WRITEs are to be.
pub(super) fn stability(text: &str) -> Result<StableHow, String> {
    match text {
        "unstable" => Ok(StableHow::Unstable),
        "data_sync" => Ok(StableHow::DataSync),
        "file_sync" => Ok(StableHow::FileSync),
        _ => Err("write unstable, data_sync or file_sync".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("2G"), Ok(2 << 30));
        for text in ["", "k", "1.5M", "-1", "1T", "99999999999999999999", "18446744073709551615k"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(call_size("8G").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "nan", "x", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn servers_have_ports_or_the_usual_one() {
        assert_eq!(server_address("127.0.0.1").unwrap().port(), NFS_PORT);
        assert_eq!(server_address("127.0.0.1:111").unwrap().port(), 111);
        assert!(server_address("::1").unwrap().is_ipv6());
        assert!(server_address("[::1]:5").unwrap().is_ipv6());
        assert!(server_address("127.0.0.1:").is_err());
    }
}
