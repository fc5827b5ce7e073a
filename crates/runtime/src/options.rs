//! What a server is started with, and why it may not start.

use std::io;
use std::net::SocketAddr;

/// How a server listens, and its limits.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where NFS is served. Port 0 lets the kernel choose one (the same for TCP and UDP).
    pub listen: Vec<SocketAddr>,
    /// Further addresses with the same service, such as port 111.
    pub extra_listen: Vec<SocketAddr>,
    /// Whether to serve UDP beside TCP.
    pub udp: bool,
    /// Pools of workers; 0: one a NUMA node.
    pub pools: usize,
    /// CPUs of each pool; pools without an entry share all CPUs (or have their NUMA node's).
    pub pool_cpus: Vec<Vec<usize>>,
    /// Workers of a pool that run at one time; 0: as many as the pool has CPUs.
    pub seats_per_pool: usize,
    /// How long a worker that has nothing to do asks for events before it sleeps, in µs: on CPUs
    /// of its own it then answers without having to be woken.
    pub busy_poll_us: u64,
    /// TCP's congestion control for connections of clients, by the kernel's name of it (tcp(7),
    /// `TCP_CONGESTION`); `None`: the system's.
    pub congestion_control: Option<String>,
    /// Threads of a pool at the most, those that wait for storage counted; four a CPU at the least.
    pub workers_max: usize,
    /// When so many of a pool's workers wait for one storage that no more may, and none has come
    /// back for this time, in ms, clients whose calls would wait for it are told to try later; and
    /// so is who has not been let to it for as long.
    pub storage_patience_ms: u64,
    /// Connections at the most.
    pub connections_max: usize,
    /// A connection without calls is closed after this time, and so is one whose peer reads no
    /// replies; 0: never.
    pub idle_timeout_s: u64,
    /// The largest record (call) taken, in bytes.
    pub record_bytes_max: usize,
    /// Replies that wait for a connection's peer to read, in bytes; beyond it no further calls
    /// are read from the connection.
    pub reply_backlog_bytes_max: usize,
    /// Replies that wait for peers, and calls half received, over all connections, in bytes;
    /// beyond it the connections that have made no progress for longest are closed.
    pub waiting_bytes_max: usize,
    /// Calls of a connection that wait for stability or have been suspended, half as many of these at
    /// the most; beyond it no further calls are read from the connection.
    pub calls_in_flight_max: usize,
    /// Calls that wait for one file system; beyond it workers wait.
    pub parked_calls_max: usize,
    /// Threads that flush one file system.
    pub flush_threads: usize,
    /// A flush of more objects than this becomes one of the whole file system.
    pub flush_objects_max: usize,
    /// One call in so many has its stages measured; 0: none.
    pub sample_one_in: u32,
    /// A call that takes this long or longer, from its receipt until its reply is sent, is
    /// recorded in any case.
    pub slow_call_ms: u64,
    /// Calls are acknowledged before what they promise is true: what clients believe to be stable
    /// is lost with the power. For measurements only.
    #[cfg(feature = "unsafe-async")]
    pub acknowledges_unflushed: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            extra_listen: Vec::new(),
            udp: true,
            pools: 0,
            pool_cpus: Vec::new(),
            seats_per_pool: 0,
            busy_poll_us: 0,
            congestion_control: None,
            workers_max: 192,
            storage_patience_ms: 2_000,
            connections_max: 65_536,
            idle_timeout_s: 600,
            record_bytes_max: (1 << 20) + (64 << 10),
            reply_backlog_bytes_max: 8 << 20,
            waiting_bytes_max: 1 << 30,
            calls_in_flight_max: 1024,
            parked_calls_max: 65_536,
            flush_threads: 4,
            flush_objects_max: 64,
            sample_one_in: 64,
            // Longer than a flush of a disk that is not too busy.
            slow_call_ms: 50,
            #[cfg(feature = "unsafe-async")]
            acknowledges_unflushed: false,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address to listen on was given.
    #[error("no address to listen on: give at least one, such as 0.0.0.0:2049")]
    NoAddress,
    /// An address could not be used.
    #[error("cannot listen on {address} ({protocol}): {source}; {}", advice(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `TCP` or `UDP`.
        protocol: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not let connections have this congestion control.
    #[error(
        "cannot have the congestion control {name:?} (congestion_control in [server]): {source}; {}",
        congestion_control_advice(.name, .source)
    )]
    CongestionControl {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else that every server needs could not be had.
    #[error("cannot {what}: {source}")]
    Resource {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn congestion_control_advice(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "this kernel has none of that name loaded: `modprobe tcp_{name}` if it has it as a module, or \
             choose one of net.ipv4.tcp_available_congestion_control"
        ),
        io::ErrorKind::PermissionDenied => "without CAP_NET_ADMIN only those of \
             net.ipv4.tcp_allowed_congestion_control may be had: choose one of them (reno is \
             always there), or add to them by sysctl"
            .to_owned(),
        _ => "leave it out to have the system's".to_owned(),
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another server uses it (`ss -lnptu` shows which): stop that one, or set another port \
             (listen in [server] of steadfast.toml, or --port)"
        }
        io::ErrorKind::AddrNotAvailable => {
            "the address is not one of this machine's: choose another or wait until it is up"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE: choose another port or grant it"
        }
        io::ErrorKind::Unsupported => {
            "this kernel does not have the protocol: leave the address out"
        }
        _ => "choose another address",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_have_a_congestion_control_is_told_what_to_do() {
        for (kind, expected) in [
            (io::ErrorKind::NotFound, "modprobe tcp_vegas"),
            (io::ErrorKind::PermissionDenied, "tcp_allowed_congestion_control"),
            (io::ErrorKind::Other, "leave it out"),
        ] {
            let name = "vegas".to_owned();
            let error = StartError::CongestionControl { name, source: kind.into() }.to_string();
            assert!(error.contains(expected) && error.contains("[server]"), "{error}");
        }
    }
}
