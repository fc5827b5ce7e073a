//! Reads [`Facts`] from a machine, and from a Steadfast server that runs on it.
//!
//! Nothing here changes anything. Whatever could hang (name servers, directories of dead servers) is waited
//! for with a bound.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use steadfast_control::api::{ShareFilter, ShareState};
use steadfast_control::clients::ClientsReport;
use steadfast_control::intent_log::LogReport;
use steadfast_control::statistics::Statistics;
use steadfast_control::{AskError, Client, Patience};
use steadfast_sys::block_device::sysfs_below;
use steadfast_sys::clock;
use steadfast_sys::netlink::{self, TcpState};

use super::facts::{
    Clock, Disk, Facts, Interface, InterfaceQueue, LogDevice, MountFacts, Pressures, Sample,
    Steadfast, Unseen,
};
use super::parse::{Counters, LINES_MAX, host, mountstats, network, rpc, system};
use super::resolving;
use crate::machine::{Machine, why};
use crate::tune;

/// The port of NFS.
const NFS_PORT: u16 = 2049;
/// Entries of one directory of `/proc` or `/sys` that are looked at.
const ENTRIES_MAX: usize = 65_536;
/// How long mounted directories may take to tell its times.
const MOUNT_PATIENCE: Duration = Duration::from_secs(1);
/// Mounted directories that are asked for their times.
const MOUNTS_ASKED_MAX: usize = 16;
/// Threads of the kernel's server whose states are read many times.
const NFSD_THREADS_MAX: usize = 1024;
/// Names of processes that serve NFS in user space (the kernel cuts names to 15 bytes).
const SERVERS: &[&str] = &["ganesha.nfsd", "unfsd"];

/// Whom to ask beside the files of a machine.
#[derive(Debug)]
pub struct Sources {
    /// The machine.
    pub machine: Machine,
    /// The Steadfast server that may run on it.
    pub server: Option<Client>,
    /// Whether name servers are asked: they are elsewhere, and would see it.
    pub asks_names: bool,
}

/// Looks at everything once. `asks`: also at what may not answer, which takes up to some seconds. That comes last, so
/// that all counters are of about one time.
pub(super) fn facts(sources: &Sources, asks: bool) -> Facts {
    let machine = &sources.machine;
    let mut facts = Facts { uptime_s: uptime(machine), ..Facts::default() };
    network(machine, &mut facts);
    nfs(machine, &mut facts);
    host(machine, &mut facts);
    if let Some(client) = &sources.server {
        facts.steadfast = steadfast(client, machine, &mut facts.unseen);
    }
    facts.settings = tune::states(machine);
    if asks {
        ask_mounts(machine, &mut facts.mounts);
        if sources.asks_names {
            facts.name_servers = resolving::ask(machine, &mut facts.unseen);
        }
    }
    facts
}

/// Looks at what changes fast, the threads of the kernel's server among it.
pub(super) fn sample(machine: &Machine, nfsd: &[String]) -> Sample {
    let stat = system::stat(&machine.read("/proc/stat").unwrap_or_default());
    let carried = network::interfaces(&machine.read("/proc/net/dev").unwrap_or_default());
    Sample {
        uptime_s: uptime(machine),
        // This thread runs, too.
        running: stat.running.saturating_sub(1),
        blocked: stat.blocked,
        carried: carried
            .into_iter()
            .filter(|one| one.name != "lo")
            .map(|one| (one.name, one.received_bytes, one.sent_bytes))
            .collect(),
        has_idle_nfsd: has_idle(machine, nfsd),
    }
}

/// Directories of the threads of the kernel's server. It has none in a process namespace of one's own.
pub(super) fn nfsd_threads(machine: &Machine, facts: &Facts) -> Vec<String> {
    if facts.nfsd.as_ref().is_none_or(|nfsd| nfsd.threads == 0) {
        return Vec::new();
    }
    let all = machine.names("/proc", ENTRIES_MAX).into_iter();
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|name| format!("/proc/{name}"))
        .filter(|process| machine.word(&format!("{process}/comm")).as_deref() == Some("nfsd"))
        .take(NFSD_THREADS_MAX)
        .collect()
}

/// Whether one of the threads sleeps for want of work: one that waits for a disk or for a CPU does not.
fn has_idle(machine: &Machine, threads: &[String]) -> Option<bool> {
    let states = threads
        .iter()
        .filter_map(|thread| system::process_state(&machine.read(&format!("{thread}/stat")).ok()?));
    let mut is_seen = false;
    for state in states {
        if matches!(state, 'I' | 'S') {
            return Some(true);
        }
        is_seen = true;
    }
    is_seen.then_some(false)
}

fn uptime(machine: &Machine) -> f64 {
    let word = machine.word("/proc/uptime").unwrap_or_default();
    let told = word.split_whitespace().next().and_then(|word| word.parse().ok());
    // All rates are of the time between two of these: none at all would make each of them huge.
    told.unwrap_or_else(|| {
        let since_start = clock_gettime(ClockId::Boottime);
        since_start.tv_sec as f64 + since_start.tv_nsec as f64 / 1e9
    })
}

/// A file that every machine has; what is missing is told.
fn wanted(machine: &Machine, path: &str, unseen: &mut Vec<Unseen>) -> String {
    machine.read(path).unwrap_or_else(|error| {
        unseen.push(Unseen { what: path.to_owned(), why: why(&error) });
        String::new()
    })
}

fn network(machine: &Machine, facts: &mut Facts) {
    let unseen = &mut facts.unseen;
    let mut protocols = network::paired(&wanted(machine, "/proc/net/snmp", unseen));
    protocols.extend(network::paired(&wanted(machine, "/proc/net/netstat", unseen)));
    // A kernel without IPv6 has none.
    protocols.extend(network::single(&machine.read("/proc/net/snmp6").unwrap_or_default()));
    facts.protocols = protocols;
    facts.softnet = network::softnet(&wanted(machine, "/proc/net/softnet_stat", unseen));
    facts.interfaces = network::interfaces(&wanted(machine, "/proc/net/dev", unseen))
        .into_iter()
        .filter(|one| one.name != "lo")
        .map(|counters| interface(machine, counters))
        .collect();
    for family in ["udp", "udp6"] {
        let text = machine.read(&format!("/proc/net/{family}")).unwrap_or_default();
        let sockets = network::udp_sockets(&text);
        facts.nfs_udp.extend(sockets.into_iter().filter(|socket| socket.port == NFS_PORT));
    }
    // The kernel tells these of the namespace that this program is in, whatever directory stands for the
    // machine.
    if machine.is_this() {
        told_by_netlink(machine, facts);
    }
    let read = |path: &str| machine.read(path).unwrap_or_default();
    facts.networks = network::local_networks(&read("/proc/net/route"));
    facts.neighbours = network::neighbours(&read("/proc/net/arp"));
    facts.neighbour_table_full = network::neighbour_table_full(&read("/proc/net/stat/arp_cache"));
    let setting = |path: &str| machine.word(path).unwrap_or_default();
    facts.congestion_control = setting("/proc/sys/net/ipv4/tcp_congestion_control");
    facts.default_queue = setting("/proc/sys/net/core/default_qdisc");
}

fn told_by_netlink(machine: &Machine, facts: &mut Facts) {
    match netlink::connections() {
        Ok(all) => {
            let is_nfs =
                |one: &TcpState| one.local.port() == NFS_PORT || one.peer.port() == NFS_PORT;
            facts.nfs_tcp = all.into_iter().filter(is_nfs).collect();
        }
        Err(error) => {
            facts.unseen.push(Unseen { what: "TCP connections".to_owned(), why: why(&error) });
        }
    }
    match netlink::queues() {
        Ok(all) => {
            let number_of = |name: &str| machine.number(&format!("/sys/class/net/{name}/ifindex"));
            let names: BTreeMap<u64, String> = facts
                .interfaces
                .iter()
                .filter_map(|one| Some((number_of(&one.counters.name)?, one.counters.name.clone())))
                .collect();
            facts.queues = all
                .into_iter()
                .filter_map(|queue| {
                    Some(InterfaceQueue {
                        interface: names.get(&u64::from(queue.interface))?.clone(),
                        kind: queue.kind,
                        // What an inner one drops is counted in the outer one, too.
                        drops: if queue.is_root { queue.drops } else { 0 },
                    })
                })
                .collect();
        }
        Err(error) => {
            facts.unseen.push(Unseen { what: "queues of interfaces".to_owned(), why: why(&error) });
        }
    }
}

fn interface(machine: &Machine, counters: network::InterfaceCounters) -> Interface {
    let at = format!("/sys/class/net/{}", counters.name);
    let number = |file: &str| machine.number(&format!("{at}/{file}"));
    Interface {
        missed: number("statistics/rx_missed_errors").unwrap_or(0),
        // -1 where nobody knows.
        speed_mbit: number("speed").filter(|speed| *speed > 0),
        is_half_duplex: machine.word(&format!("{at}/duplex")).as_deref() == Some("half"),
        carrier_changes: number("carrier_changes").unwrap_or(0),
        is_device: machine.path(&format!("{at}/device")).exists(),
        counters,
    }
}

fn nfs(machine: &Machine, facts: &mut Facts) {
    facts.nfsd = machine.read("/proc/net/rpc/nfsd").ok().map(|text| rpc::nfsd(&text));
    if facts.nfsd.is_some() {
        match machine.read("/proc/fs/nfsd/pool_stats") {
            Ok(text) => facts.nfsd_queue = Some(network::pool_stats(&text)),
            Err(error) => facts
                .unseen
                .push(Unseen { what: "/proc/fs/nfsd/pool_stats".to_owned(), why: why(&error) }),
        }
        facts.exported = host::exported(&machine.read("/var/lib/nfs/etab").unwrap_or_default());
    }
    facts.client = machine.read("/proc/net/rpc/nfs").ok().map(|text| rpc::client(&text));
    let text = wanted(machine, "/proc/self/mountstats", &mut facts.unseen);
    if text.lines().nth(LINES_MAX).is_some() {
        facts.unseen.push(Unseen {
            what: "some NFS mounts".to_owned(),
            why: format!(
                "/proc/self/mountstats has more than {LINES_MAX} lines; the first were read"
            ),
        });
    }
    let mounts = mountstats::mountstats(&text);
    facts.mounts =
        mounts.into_iter().map(|counters| MountFacts { ahead_s: None, counters }).collect();
    facts.servers = servers(machine);
    if facts.servers.iter().any(|server| server == "ganesha.nfsd") {
        facts.unseen.push(Unseen {
            what: "nfs-ganesha's own counters".to_owned(),
            why: "it tells them by D-Bus alone; its sockets, disks and CPUs were looked at"
                .to_owned(),
        });
    }
}

/// Asks directories by how much they were changed in the future, all at once. Their servers may be dead: nobody waits
/// for them for long, and threads that do end with the program.
fn ask_mounts(machine: &Machine, mounts: &mut [MountFacts]) {
    let (send, receive) = mpsc::channel();
    for (index, mount) in mounts.iter().enumerate().take(MOUNTS_ASKED_MAX) {
        let (path, send) = (machine.path(&mount.counters.mount_point), send.clone());
        let asked = thread::Builder::new().name("mount-times".to_owned()).spawn(move || {
            let _ = send.send((index, ahead_s(&path)));
        });
        if asked.is_err() {
            break;
        }
    }
    drop(send);
    let deadline = Instant::now() + MOUNT_PATIENCE;
    while let Ok((index, ahead_s)) =
        receive.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        if let Some(mount) = mounts.get_mut(index) {
            mount.ahead_s = ahead_s;
        }
    }
}

/// By how many seconds a directory was changed in the future.
fn ahead_s(path: &Path) -> Option<f64> {
    let metadata = path.metadata().ok()?;
    let changed = metadata.ctime() as f64 + metadata.ctime_nsec() as f64 / 1e9;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(changed - now.as_secs_f64())
}

fn servers(machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    for process in machine.names("/proc", ENTRIES_MAX) {
        if !process.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let name = machine.word(&format!("/proc/{process}/comm")).unwrap_or_default();
        if SERVERS.contains(&name.as_str()) && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn host(machine: &Machine, facts: &mut Facts) {
    let unseen = &mut facts.unseen;
    facts.cpus = system::stat(&wanted(machine, "/proc/stat", unseen));
    facts.memory = system::named_numbers(&wanted(machine, "/proc/meminfo", unseen));
    facts.paging = system::named_numbers(&wanted(machine, "/proc/vmstat", unseen));
    facts.pressure = match machine.read("/proc/pressure/cpu") {
        Ok(cpu) => {
            let of = |what: &str| {
                let text = machine.read(&format!("/proc/pressure/{what}")).unwrap_or_default();
                system::pressure(&text)
            };
            Some(Pressures { cpu: system::pressure(&cpu), io: of("io"), memory: of("memory") })
        }
        Err(error) => {
            unseen.push(Unseen { what: "/proc/pressure".to_owned(), why: why(&error) });
            None
        }
    };
    let whole = machine.names("/sys/block", ENTRIES_MAX);
    facts.disks = system::disks(&wanted(machine, "/proc/diskstats", unseen))
        .into_iter()
        // Partitions are counted with their disks; memory is no disk.
        .filter(|disk| whole.contains(&disk.name) && !is_memory(&disk.name))
        .map(|counters| {
            let rotational = format!("/sys/block/{}/queue/rotational", counters.name);
            Disk { is_rotational: machine.number(&rotational) == Some(1), counters }
        })
        .collect();
    // The kernel has one clock, whatever directory stands for the machine.
    facts.clock = if machine.is_this() {
        clock::state().ok().map(|clock| Clock {
            is_synchronised: clock.is_synchronised,
            error_s: clock.max_error_us as f64 / 1e6,
        })
    } else {
        None
    };
}

/// Whether a disk's name is that of memory.
fn is_memory(disk: &str) -> bool {
    disk.starts_with("ram") || disk.starts_with("zram") || disk.starts_with("pmem")
}

/// What is read of `GET /v1/names`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NamesTold {
    look_ups: Vec<LookUpTold>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LookUpTold {
    name: String,
    state: String,
    failures: u32,
    last_failure: Option<serde_json::Value>,
}

/// Asks a Steadfast server; `None` if none runs.
fn steadfast(client: &Client, machine: &Machine, unseen: &mut Vec<Unseen>) -> Option<Steadfast> {
    let answer = match client.ask("GET", "/v1/statistics", Patience::Short) {
        Ok(answer) => answer,
        // A machine may have none: that is no gap.
        Err(AskError::NoServer(_) | AskError::Ended(_)) => return None,
        Err(error) => {
            unseen.push(Unseen { what: "the Steadfast server".to_owned(), why: error.to_string() });
            return None;
        }
    };
    let statistics = match Statistics::read(&answer) {
        Ok(statistics) => statistics,
        Err(error) => {
            unseen.push(Unseen { what: "the Steadfast server".to_owned(), why: error.to_string() });
            return None;
        }
    };
    let mut told = Steadfast { statistics, ..Steadfast::default() };
    // A server without a log refuses to tell of one.
    told.log = client.get::<LogReport>("/v1/log").ok();
    told.log_device = told.log.as_ref().and_then(|log| log_device(machine, &log.path));
    match client.get::<ClientsReport>("/v1/clients") {
        Ok(clients) => told.clients = Some(clients),
        Err(error) => {
            unseen.push(Unseen { what: "the server's clients".to_owned(), why: error.to_string() });
        }
    }
    let filter = ShareFilter { state: Some(ShareState::Faulty), ..ShareFilter::default() };
    match client.shares(&filter, |_, _| {}) {
        Ok(page) => {
            told.faulty_shares = page
                .shares
                .into_iter()
                .map(|share| (share.path, share.why.unwrap_or_default()))
                .collect();
        }
        Err(error) => {
            unseen.push(Unseen { what: "the server's shares".to_owned(), why: error.to_string() });
        }
    }
    let names: NamesTold = client.get("/v1/names").unwrap_or_default();
    told.failed_names = failed(names);
    Some(told)
}

fn failed(names: NamesTold) -> BTreeMap<String, String> {
    let is_failed = |one: &LookUpTold| one.state == "unreachable" || one.failures > 0;
    names
        .look_ups
        .into_iter()
        .filter(is_failed)
        .map(|one| {
            let why =
                one.last_failure.map_or_else(|| "no answer".to_owned(), |why| why.to_string());
            (one.name, why.trim_matches('"').to_owned())
        })
        .collect()
}

/// Finds what a log lies on.
fn log_device(machine: &Machine, path: &str) -> Option<LogDevice> {
    let file = PathBuf::from(path);
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let number = format!("{major}:{minor}");
    let mounts = machine.read("/proc/self/mountinfo").unwrap_or_default();
    let file_system = host::mounted(&mounts, &number).map(|one| one.kind).unwrap_or_default();
    // The link leads to the disk or its partition.
    let link = sysfs_below(&machine.path("/sys"), device).canonicalize().ok();
    let whole = link.map(|link| {
        let is_partition = link.join("partition").exists();
        if is_partition { link.parent().map(PathBuf::from).unwrap_or(link) } else { link }
    });
    let disk = whole.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let disk = disk.unwrap_or_default().to_owned();
    let queue = |file: &str| -> Option<String> {
        let text = std::fs::read_to_string(whole.as_ref()?.join("queue").join(file)).ok()?;
        Some(text.trim().to_owned())
    };
    Some(LogDevice {
        path: path.to_owned(),
        is_memory: matches!(file_system.as_str(), "tmpfs" | "ramfs") || is_memory(&disk),
        is_rotational: queue("rotational").as_deref() == Some("1"),
        has_volatile_cache: queue("write_cache").map(|kind| kind == "write back"),
        file_system,
        disk,
    })
}

/// A counter by its name, or 0.
pub(super) fn count(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
