//! TCP's congestion control for all programs in this network namespace.
//!
//! The namespace's default cannot be one that the system's administrator has not allowed to everybody,
//! not even by root; what a route says is obeyed by both ends of a connection over it.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::tcp_congestion;

/// What connections over loopback have that are made meanwhile, until it is dropped.
pub(super) struct CongestionControl {
    after: Option<String>,
}

impl CongestionControl {
    /// The system's, for connections over which no route says another.
    pub(super) fn of_system() -> Result<String> {
        let file = "/proc/sys/net/ipv4/tcp_congestion_control";
        let name = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
        Ok(name.trim().to_owned())
    }

    /// `None` is the system's. `after` is what is had again in the end.
    pub(super) fn become_one(name: Option<&str>, after: Option<&str>) -> Result<Self> {
        let this = Self { after: after.map(str::to_owned) };
        route_by(name)?;
        let wanted = name.map_or_else(Self::of_system, |name| Ok(name.to_owned()))?;
        // Clients have addresses of their own, and those that are alone the usual one.
        for client in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 3, 2, 1)] {
            let listener = TcpListener::bind((client, 0))?;
            let port = listener.local_addr()?.port();
            let connecting = TcpStream::connect(SocketAddrV4::new(client, port))?;
            let (accepted, _) = listener.accept()?;
            for had in [tcp_congestion(&connecting)?, tcp_congestion(&accepted)?] {
                if had != wanted {
                    bail!("TCP over loopback has the congestion control {had}, not {wanted}");
                }
            }
        }
        Ok(this)
    }
}

impl Drop for CongestionControl {
    fn drop(&mut self) {
        if let Err(error) = route_by(self.after.as_deref()) {
            eprintln!("TCP cannot have the congestion control of before: {error:#}");
        }
    }
}

/// Routes to all loopback addresses with one congestion control, or with the system's.
fn route_by(name: Option<&str>) -> Result<()> {
    for to in ["127.0.0.0/8", "127.0.0.1"] {
        let mut command = Command::new("ip");
        command.args(["route", "replace", "local", to, "dev", "lo", "table", "local"]);
        command.args(["proto", "kernel", "scope", "host", "src", "127.0.0.1"]);
        if let Some(name) = name {
            command.args(["congctl", name]);
        }
        let output = command.output().context("cannot run ip")?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("TCP over loopback cannot have the congestion control {name:?}: {}", why.trim());
        }
    }
    Ok(())
}
