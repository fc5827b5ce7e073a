//! `[server]`: the process as a whole.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use steadfast_shares::{HostName, nearest, shown};

use super::Placed;
use super::document::{Document, Table};

pub(super) const KEYS: [&str; 32] = [
    "listen",
    "udp",
    "nfs2",
    "nfs4",
    "delegations",
    "local_guard",
    "nfs4_owners",
    "nfs4_domain",
    "rpcbind",
    "share_own_files",
    "state_directory",
    "shares_directory",
    "sharetab",
    "control_socket",
    "control_listen",
    "admin_group",
    "connections_max",
    "idle_timeout_s",
    "share_idle_s",
    "transfer_bytes_max",
    "pools",
    "pool_cpus",
    "busy_poll_us",
    "congestion_control",
    "workers_max",
    "seats_per_pool",
    "descriptors_max",
    "reply_cache_bytes_max",
    "reply_cache_history_s",
    "recovery_wait_s",
    "log",
    "log_filter",
];

/// Most addresses to listen on.
const LISTEN_MAX: usize = 64;
/// Most pools.
const POOLS_MAX: u64 = 64;
/// Most letters of the name of a congestion control (`TCP_CA_NAME_MAX` with its final 0).
const CONGESTION_CONTROL_LETTERS_MAX: usize = 15;
/// Largest CPU number that Linux has.
const CPU_MAX: usize = 8191;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The address; its port is 0 where none was written.
    pub address: SocketAddr,
    /// Whether a port was written.
    pub has_port: bool,
    /// The network interface of a link-local address, by its name or number (RFC 4007 §11).
    pub zone: Option<String>,
}

impl std::str::FromStr for ListenAddress {
    type Err = String;

    /// `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT`; a zone follows a link-local address of IPv6
    /// (`fe80::1%eth0`).
    fn from_str(text: &str) -> Result<Self, String> {
        let (plain, zone) = without_zone(text);
        let address = plain.parse::<SocketAddr>().map(|address| (address, true)).or_else(|_| {
            let bare = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let ip = bare.unwrap_or(&plain).parse::<IpAddr>();
            ip.map(|ip| (SocketAddr::new(ip, 0), false))
        });
        let Ok((address, has_port)) = address else {
            return Err(format!(
                "{} is no address, and no address with a port like 0.0.0.0:2049, [::]:2049 or \
                 [fe80::1%eth0]:2049",
                shown(text)
            ));
        };
        let is_link_local = matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        match (is_link_local, zone) {
            (true, None) => Err(format!(
                "{} is an address that every interface may have: say which, like {}%eth0",
                shown(text),
                address.ip()
            )),
            (false, Some(zone)) => {
                let what = "names an interface, which belongs to link-local addresses alone";
                Err(format!("{} {what}: leave out %{zone}", shown(text)))
            }
            (_, zone) => Ok(Self { address, has_port, zone: zone.map(str::to_owned) }),
        }
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.zone {
            Some(zone) if self.has_port => {
                write!(f, "[{}%{zone}]:{}", self.address.ip(), self.address.port())
            }
            Some(zone) => write!(f, "{}%{zone}", self.address.ip()),
            None if self.has_port => write!(f, "{}", self.address),
            None => write!(f, "{}", self.address.ip()),
        }
    }
}

/// An address as it is written, and its zone.
fn without_zone(text: &str) -> (String, Option<&str>) {
    let Some((before, after)) = text.split_once('%') else { return (text.to_owned(), None) };
    // A zone is in the brackets with its address.
    if before.contains(']') {
        return (text.to_owned(), None);
    }
    let end =
        if before.starts_with('[') { after.find(']').unwrap_or(after.len()) } else { after.len() };
    let (zone, rest) = after.split_at(end);
    (format!("{before}{rest}"), Some(zone))
}

/// Where log messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Lines for people, on standard error.
    Stderr,
    /// The journal of systemd.
    Journald,
}

impl std::str::FromStr for LogTarget {
    type Err = String;

    /// `stderr` or `journald`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stderr" => Ok(Self::Stderr),
            "journald" => Ok(Self::Journald),
            other => Err(format!("log must be \"stderr\" or \"journald\", not {}", shown(other))),
        }
    }
}

/// Which delegations clients are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegations {
    /// None.
    None,
    /// To read.
    Read,
    /// To read and to write.
    Write,
}

impl std::str::FromStr for Delegations {
    type Err = String;

    /// `none`, `read` or `write`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            other => Err(format!(
                "delegations must be \"none\", \"read\" or \"write\", not {}",
                shown(other)
            )),
        }
    }
}

/// Whether files are delegated only if a local process that uses them can be made to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalGuard {
    /// Only those.
    Required,
    /// All: no local process uses them.
    None,
}

impl std::str::FromStr for LocalGuard {
    type Err = String;

    /// `required` or `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "required" => Ok(Self::Required),
            "none" => Ok(Self::None),
            other => {
                Err(format!("local_guard must be \"required\" or \"none\", not {}", shown(other)))
            }
        }
    }
}

/// How NFSv4 tells the owners of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nfs4Owners {
    /// By number.
    Numbers,
    /// By name and domain, where there is a name.
    Names,
}

impl std::str::FromStr for Nfs4Owners {
    type Err = String;

    /// `numbers` or `names`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "numbers" => Ok(Self::Numbers),
            "names" => Ok(Self::Names),
            other => {
                Err(format!("nfs4_owners must be \"numbers\" or \"names\", not {}", shown(other)))
            }
        }
    }
}

/// `[server]`; what is `None` was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// Addresses to serve NFS and MOUNT on.
    pub listen: Option<Vec<ListenAddress>>,
    /// Whether UDP is served too.
    pub udp: Option<bool>,
    /// Whether NFSv2 is served beside NFSv3.
    pub nfs2: Option<bool>,
    /// Whether NFSv4.0, 4.1 and 4.2 are served beside NFSv3.
    pub nfs4: Option<bool>,
    /// Which delegations clients of NFSv4.1 and 4.2 are granted.
    pub delegations: Option<Delegations>,
    /// Whether these need guards from local processes.
    pub local_guard: Option<LocalGuard>,
    /// How NFSv4 tells the owners of files.
    pub nfs4_owners: Option<Nfs4Owners>,
    /// The domain of the names that NFSv4 knows owners by.
    pub nfs4_domain: Option<HostName>,
    /// Whether to register with, or be, the host's rpcbind.
    pub rpcbind: Option<bool>,
    /// Whether a share may contain what the server keeps for itself: its state directory, the files
    /// of groups, the intent log.
    pub share_own_files: Option<bool>,
    /// Where the handle key is kept.
    pub state_directory: Option<Placed<PathBuf>>,
    /// Where the files of groups are (default: `shares.d` beside the configuration file).
    pub shares_directory: Option<Placed<PathBuf>>,
    /// Where other programs read what is shared (sharetab(4)).
    pub sharetab: Option<Placed<PathBuf>>,
    /// A socket at which everybody on this host may ask about the server.
    pub control_socket: Option<Placed<PathBuf>>,
    /// Where to be asked by TCP, by those who have the token.
    pub control_listen: Option<SocketAddr>,
    /// Members of this group may change shares, by `control_socket`: its number or name.
    pub admin_group: Option<Placed<String>>,
    /// Most TCP connections at once.
    pub connections_max: Option<usize>,
    /// After how many seconds without a call a connection is closed.
    pub idle_timeout_s: Option<u64>,
    /// After how many seconds without a call what a share has open is closed, until it is used
    /// again; 0: never.
    pub share_idle_s: Option<u64>,
    /// Largest READ and WRITE, in bytes.
    pub transfer_bytes_max: Option<u32>,
    /// How many pools of workers.
    pub pools: Option<usize>,
    /// The CPUs of each pool.
    pub pool_cpus: Option<Vec<Vec<usize>>>,
    /// How long an idle worker asks for calls before it sleeps, in µs.
    pub busy_poll_us: Option<u64>,
    /// TCP's congestion control for connections of clients, by the kernel's name of it.
    pub congestion_control: Option<String>,
    /// Most worker threads of a pool.
    pub workers_max: Option<usize>,
    /// How many workers of a pool may wait for calls at once.
    pub seats_per_pool: Option<usize>,
    /// Most file descriptors that storage keeps open.
    pub descriptors_max: Option<usize>,
    /// Bound of the duplicate request cache, in bytes.
    pub reply_cache_bytes_max: Option<usize>,
    /// How long the duplicate request cache is to keep a reply, in s.
    pub reply_cache_history_s: Option<u64>,
    /// How long clients that keep a journal are waited for after a crash, in s.
    pub recovery_wait_s: Option<u64>,
    /// Where log messages go.
    pub log: Option<LogTarget>,
    /// Which log messages: level or directives, as `tracing` has them.
    pub log_filter: Option<Placed<String>>,
}

pub(super) fn read(document: &mut Document<'_>, root: Table<'_>) -> ServerSettings {
    let Some(table) = document.table(root, "server") else {
        return ServerSettings::default();
    };
    document.known_keys(table, "[server]", &KEYS);
    let mut bounded = |key, least, most| {
        document.integer(table, key, least, most).and_then(|n| usize::try_from(n.value).ok())
    };
    let connections_max = bounded("connections_max", 1, 1_000_000);
    let pools = bounded("pools", 1, POOLS_MAX);
    let workers_max = bounded("workers_max", 1, 4096);
    let seats_per_pool = bounded("seats_per_pool", 1, 1024);
    let descriptors_max = bounded("descriptors_max", 64, 10_000_000);
    let reply_cache_bytes_max = bounded("reply_cache_bytes_max", 1 << 20, 1 << 36);
    let reply_cache_history_s = document.integer(table, "reply_cache_history_s", 2, 86_400);
    let recovery_wait_s = document.integer(table, "recovery_wait_s", 0, 3600);
    let idle_timeout_s = document.integer(table, "idle_timeout_s", 1, 31_536_000);
    let share_idle_s = document.integer(table, "share_idle_s", 0, 31_536_000);
    let busy_poll_us = document.integer(table, "busy_poll_us", 0, 1_000_000);
    let pool_cpus = pool_cpus(document, table);
    if let (Some(pools), Some(pool_cpus)) = (pools, &pool_cpus)
        && pools != pool_cpus.len()
    {
        let place = document.place_of(table, "pool_cpus");
        let what = format!("pool_cpus names {} pools, pools says {pools}", pool_cpus.len());
        document.refuse(place, what, None);
    }
    ServerSettings {
        listen: listen(document, table),
        udp: document.boolean(table, "udp"),
        nfs2: document.boolean(table, "nfs2"),
        nfs4: document.boolean(table, "nfs4"),
        delegations: word(document, table, "delegations", ["none", "read", "write"]),
        local_guard: word(document, table, "local_guard", ["required", "none"]),
        nfs4_owners: word(document, table, "nfs4_owners", ["numbers", "names"]),
        nfs4_domain: nfs4_domain(document, table),
        rpcbind: document.boolean(table, "rpcbind"),
        share_own_files: document.boolean(table, "share_own_files"),
        state_directory: document
            .string(table, "state_directory")
            .and_then(|path| super::absolute_path(document, "state_directory", &path)),
        shares_directory: document
            .string(table, "shares_directory")
            .and_then(|path| super::absolute_path(document, "shares_directory", &path)),
        sharetab: document
            .string(table, "sharetab")
            .and_then(|path| super::absolute_path(document, "sharetab", &path)),
        control_socket: document
            .string(table, "control_socket")
            .and_then(|path| super::absolute_path(document, "control_socket", &path)),
        control_listen: control_listen(document, table),
        admin_group: admin_group(document, table),
        connections_max,
        idle_timeout_s: idle_timeout_s.map(|n| n.value),
        share_idle_s: share_idle_s.map(|n| n.value),
        transfer_bytes_max: transfer_bytes_max(document, table),
        pools,
        pool_cpus,
        busy_poll_us: busy_poll_us.map(|n| n.value),
        congestion_control: congestion_control(document, table),
        workers_max,
        seats_per_pool,
        descriptors_max,
        reply_cache_bytes_max,
        reply_cache_history_s: reply_cache_history_s.map(|n| n.value),
        recovery_wait_s: recovery_wait_s.map(|n| n.value),
        log: word(document, table, "log", ["stderr", "journald"]),
        log_filter: document
            .string(table, "log_filter")
            .map(|text| Placed { value: text.value.to_owned(), place: text.place }),
    }
}

fn congestion_control(document: &mut Document<'_>, table: Table<'_>) -> Option<String> {
    let Placed { value: name, place } = document.string(table, "congestion_control")?;
    let is_letter =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    if !(1..=CONGESTION_CONTROL_LETTERS_MAX).contains(&name.len()) || !name.chars().all(is_letter) {
        let what = format!(
            "{name:?} is no name of a congestion control (this kernel's: sysctl \
             net.ipv4.tcp_available_congestion_control)"
        );
        document.refuse(place, what, None);
        return None;
    }
    Some(name.to_owned())
}

fn listen(document: &mut Document<'_>, table: Table<'_>) -> Option<Vec<ListenAddress>> {
    let texts = document.placed_strings(table, "listen")?;
    if texts.is_empty() || texts.len() > LISTEN_MAX {
        let place = document.place_of(table, "listen");
        document.refuse(place, format!("listen needs 1 to {LISTEN_MAX} addresses"), None);
    }
    let mut addresses = Vec::new();
    for text in texts {
        match text.value.parse::<ListenAddress>() {
            Ok(address) if addresses.contains(&address) => {
                document.refuse(text.place, format!("listen has {address} twice"), None);
            }
            Ok(address) if address.has_port => addresses.push(address),
            Ok(mut address) => {
                let what = format!("{} is not an address with a port", shown(text.value));
                address.address.set_port(2049);
                address.has_port = true;
                document.refuse(text.place, what, Some(address.to_string()));
            }
            Err(what) => document.refuse(text.place, what, None),
        }
    }
    Some(addresses)
}

fn control_listen(document: &mut Document<'_>, table: Table<'_>) -> Option<SocketAddr> {
    let text = document.string(table, "control_listen")?;
    let address = text.value.parse();
    if address.is_err() {
        let what =
            format!("{} is not an address with a port like \"127.0.0.1:2050\"", shown(text.value));
        document.refuse(text.place, what, None);
    }
    address.ok()
}

fn admin_group(document: &mut Document<'_>, table: Table<'_>) -> Option<Placed<String>> {
    let text = document.string(table, "admin_group")?;
    if !table.entries.contains_key("control_socket") {
        let what = "admin_group needs control_socket: its members cannot reach another one";
        document.refuse(text.place, what.to_owned(), None);
    }
    if text.value.is_empty() || text.value.contains(|c: char| c == ':' || c.is_control()) {
        document.refuse(text.place, format!("{} is no group", shown(text.value)), None);
    }
    Some(Placed { value: text.value.to_owned(), place: text.place })
}

fn transfer_bytes_max(document: &mut Document<'_>, table: Table<'_>) -> Option<u32> {
    let number = document.integer(table, "transfer_bytes_max", 4096, 4 << 20)?;
    if number.value % 4096 != 0 {
        let nearest = number.value.next_multiple_of(4096);
        let what = "transfer_bytes_max must be a multiple of 4096".to_owned();
        document.refuse(number.place, what, Some(nearest.to_string()));
    }
    u32::try_from(number.value).ok()
}

/// One of a few words.
fn word<W: std::str::FromStr<Err = String>, const N: usize>(
    document: &mut Document<'_>,
    table: Table<'_>,
    key: &str,
    words: [&str; N],
) -> Option<W> {
    let text = document.string(table, key)?;
    match text.value.parse() {
        Ok(word) => Some(word),
        Err(what) => {
            let suggestion = nearest(text.value, words).map(String::from);
            document.refuse(text.place, what, suggestion);
            None
        }
    }
}

fn nfs4_domain(document: &mut Document<'_>, table: Table<'_>) -> Option<HostName> {
    let text = document.string(table, "nfs4_domain")?;
    let domain = HostName::new(text.value);
    if domain.is_none() {
        let what = format!("nfs4_domain {} is no domain like \"example.com\"", shown(text.value));
        let without_at = text.value.trim().trim_start_matches('@');
        let suggestion = HostName::new(without_at).map(|domain| domain.as_str().to_owned());
        document.refuse(text.place, what, suggestion);
    }
    domain
}

fn pool_cpus(document: &mut Document<'_>, table: Table<'_>) -> Option<Vec<Vec<usize>>> {
    let texts = document.placed_strings(table, "pool_cpus")?;
    if texts.is_empty() || texts.len() as u64 > POOLS_MAX {
        let place = document.place_of(table, "pool_cpus");
        document.refuse(place, format!("pool_cpus needs 1 to {POOLS_MAX} lists of CPUs"), None);
    }
    let mut pools = Vec::new();
    for text in texts {
        let cpus = cpu_list(text.value);
        if cpus.is_none() {
            let what = format!("{} is not a list of CPUs like \"0-3,8\"", shown(text.value));
            document.refuse(text.place, what, None);
        }
        pools.extend(cpus);
    }
    Some(pools)
}

/// CPUs as the kernel writes them: `0-3,8`.
pub(crate) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) =
            (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
        if cpus.len() > CPU_MAX + 1 {
            return None;
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}
