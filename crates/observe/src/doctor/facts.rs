//! What is known of a machine at one time: [`Facts`]. They are gathered by `gather`, and judged by
//! `checks`, which does no I/O.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use steadfast_control::clients::ClientsReport;
use steadfast_control::intent_log::LogReport;
use steadfast_control::statistics::Statistics;
use steadfast_sys::netlink::TcpState;

use super::parse::Counters;
use super::parse::host::Exported;
use super::parse::mountstats::NfsMount;
use super::parse::network::{InterfaceCounters, LocalNetwork, Softnet, UdpSocket};
use super::parse::rpc::{Nfsd, RpcClient};
use super::parse::system::{DiskCounters, Pressure, Stat};
use crate::tune::SettingState;

/// Everything. What could not be read is empty or `None`, and named in `unseen`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Seconds since the machine was started.
    pub uptime_s: f64,
    /// What could not be looked at, and why.
    pub unseen: Vec<Unseen>,
    /// The kernel's NFS server, if it is loaded.
    pub nfsd: Option<Nfsd>,
    /// How often a thread of the kernel's server was wanted, and how often none was idle then.
    pub nfsd_queue: Option<(u64, u64)>,
    /// What the kernel's server exports.
    pub exported: Vec<Exported>,
    /// The kernel's NFS client, if it is loaded.
    pub client: Option<RpcClient>,
    /// Its mounts.
    pub mounts: Vec<MountFacts>,
    /// NFS servers in user space, by the names of their processes.
    pub servers: Vec<String>,
    /// Counters of protocols: `Tcp.RetransSegs`, `TcpExt.ListenDrops`, `Udp6RcvbufErrors` …
    pub protocols: Counters,
    /// The queues of received packets.
    pub softnet: Vec<Softnet>,
    /// Interfaces but loopback.
    pub interfaces: Vec<Interface>,
    /// Sockets for datagrams at the port of NFS.
    pub nfs_udp: Vec<UdpSocket>,
    /// TCP connections at the port of NFS.
    pub nfs_tcp: Vec<TcpState>,
    /// Queues of packets that interfaces have to send.
    pub queues: Vec<InterfaceQueue>,
    /// Networks that interfaces are in.
    pub networks: Vec<LocalNetwork>,
    /// Neighbours that the machine knows.
    pub neighbours: u64,
    /// How often their table was full.
    pub neighbour_table_full: u64,
    /// CPUs and tasks.
    pub cpus: Stat,
    /// How long tasks waited for CPUs, disks and memory.
    pub pressure: Option<Pressures>,
    /// `/proc/meminfo`, in KiB.
    pub memory: Counters,
    /// `/proc/vmstat`.
    pub paging: Counters,
    /// Whole disks.
    pub disks: Vec<Disk>,
    /// How packets are paced: `net.ipv4.tcp_congestion_control`, `net.core.default_qdisc`.
    pub congestion_control: String,
    /// The queue discipline that interfaces get.
    pub default_queue: String,
    /// Settings of `steadfast tune`, as they are and as they should be.
    pub settings: Vec<SettingState>,
    /// The machine's clock.
    pub clock: Option<Clock>,
    /// How name servers answered.
    pub name_servers: Vec<NameServer>,
    /// A Steadfast server, if one runs.
    pub steadfast: Option<Steadfast>,
}

/// What could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// A mount, and what its directory says of the server's clock.
#[derive(Clone, Debug, Default)]
pub struct MountFacts {
    /// The kernel's counters.
    pub counters: NfsMount,
    /// By how much the directory was changed in the future, in seconds.
    pub ahead_s: Option<f64>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// What it has carried.
    pub counters: InterfaceCounters,
    /// Packets that the device had no room for.
    pub missed: u64,
    /// In Mbit/s, if it tells.
    pub speed_mbit: Option<u64>,
    /// Whether only one side may send at a time.
    pub is_half_duplex: bool,
    /// How often its carrier came and went.
    pub carrier_changes: u64,
    /// Whether it is a device, not made by software.
    pub is_device: bool,
}

/// The queue of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceQueue {
    /// The interface.
    pub interface: String,
    /// `fq`, `pfifo_fast`, `mq` …
    pub kind: String,
    /// Packets that it dropped, if it is the interface's own.
    pub drops: u64,
}

/// How long tasks waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressures {
    /// For CPUs.
    pub cpu: Pressure,
    /// For disks.
    pub io: Pressure,
    /// For memory.
    pub memory: Pressure,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// What it has done.
    pub counters: DiskCounters,
    /// Whether it turns.
    pub is_rotational: bool,
}

/// The machine's clock, as the kernel knows it (adjtimex(2)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Whether something keeps it right.
    pub is_synchronised: bool,
    /// How far off it may be, in seconds.
    pub error_s: f64,
}

/// What a name server did with a question.
#[derive(Clone, Debug, PartialEq)]
pub struct NameServer {
    /// Its address.
    pub address: SocketAddr,
    /// After how many seconds it answered; `None`: not at all.
    pub answered_s: Option<f64>,
    /// How long it was waited for, in seconds.
    pub waited_s: f64,
    /// How long a look-up waits for it, in seconds.
    pub timeout_s: u64,
    /// Why it cannot be asked at all. That is known at once, and nobody waits for it.
    pub refusal: Option<String>,
}

/// What a running Steadfast server tells.
#[derive(Clone, Debug, Default)]
pub struct Steadfast {
    /// Its counts.
    pub statistics: Statistics,
    /// Its intent log, if it has one.
    pub log: Option<LogReport>,
    /// What the log lies on.
    pub log_device: Option<LogDevice>,
    /// Its clients with state.
    pub clients: Option<ClientsReport>,
    /// Shares that are not served as they should be: path and why.
    pub faulty_shares: Vec<(String, String)>,
    /// Names that were looked for in vain, and why.
    pub failed_names: BTreeMap<String, String>,
}

/// What a log lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogDevice {
    /// Where the log is.
    pub path: String,
    /// The kind of its file system.
    pub file_system: String,
    /// The disk.
    pub disk: String,
    /// Whether that is memory.
    pub is_memory: bool,
    /// Whether it turns.
    pub is_rotational: bool,
    /// Whether it says that it has a cache that a power failure empties.
    pub has_volatile_cache: Option<bool>,
}

/// A quick look, taken many times between two [`Facts`]: what changes faster than these.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds since the machine was started.
    pub uptime_s: f64,
    /// Tasks that run or want to, without this program.
    pub running: u64,
    /// Tasks that wait for disks.
    pub blocked: u64,
    /// What interfaces have carried: name, bytes received, bytes sent.
    pub carried: Vec<(String, u64, u64)>,
    /// Whether a thread of the kernel's server was idle. Nothing where its threads are not seen.
    pub has_idle_nfsd: Option<bool>,
}
