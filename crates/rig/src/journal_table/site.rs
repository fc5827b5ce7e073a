//! Where it is measured: a server with a slow disk, a link that can be limited, and clients behind it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Options;
use crate::disk::{Disk, FileSystem, Journal};
use crate::namespace::{call, run};
use crate::process::{Process, last_lines, wait_for};
use crate::servers::{self, Own, Peer, Server, Setup};
use crate::workspace;

/// 35 writes a second, as a disk of Legato's paper makes (docs/durability.md, figure 3).
pub(super) const WRITE_TIME: Duration = Duration::from_micros(28_571);
const DISK_MIB: u64 = 4096;

/// The server's address.
const SERVER: [u8; 4] = [10, 79, 0, 1];
/// The server's end of the link, and the switch's.
const SERVER_END: &str = "served";
const SWITCH_END: &str = "uplink";
/// The network namespace of the switch.
const SWITCH: &str = "switch";
/// Twelve, and one that looks how they are.
pub(super) const CLIENTS: usize = 13;
/// Of a journal's ring: more than any load writes, so that no writer waits for room.
const RING: &str = "1G";
/// How long a mount may take to stand, or to send what it has when it ends.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(10);

/// What is between the server and the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// 100 Mbit/s in each direction, as the paper's.
    Limited,
    Unlimited,
}

impl Link {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Limited => "100 Mbit/s",
            Self::Unlimited => "no limit",
        }
    }
}

/// What the server promises, and whether the client keeps a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Flushed before it is acknowledged.
    Sync,
    /// Acknowledged from memory, and nobody has a copy.
    Async,
    /// Acknowledged from memory, and in the client's journal.
    Journal,
    /// In the server's intent log before it is acknowledged.
    Logged,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Sync, Self::Async, Self::Journal, Self::Logged];

    /// In `--kinds`.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Sync => 'a',
            Self::Async => 'b',
            Self::Journal => 'c',
            Self::Logged => 'd',
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sync => "(a) sync, no log",
            Self::Async => "(b) async",
            Self::Journal => "(c) async, journal",
            Self::Logged => "(d) sync, log",
        }
    }
}

/// Where everything is measured.
pub(super) struct Site<'o> {
    pub(super) options: &'o Options,
    pub(super) program: PathBuf,
    /// A directory on this machine's disk.
    top: PathBuf,
    /// The disk of the shares.
    pub(super) disk: Disk,
    /// What a write of it takes while something is measured, in nanoseconds.
    write_ns: AtomicU64,
}

/// What is counted of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// Both directions, as the server's interface counts them.
    pub(super) wire_bytes: u64,
    pub(super) cpu_s: f64,
}

impl<'o> Site<'o> {
    pub(super) fn new(options: &'o Options, program: PathBuf, top: PathBuf) -> Result<Self> {
        make_network()?;
        let at = Path::new("/run/data");
        let image = Path::new("/run/data-image");
        let disk = Disk::slow(FileSystem::Ext4, Journal::Large, image, DISK_MIB, at)?;
        let write_ns = AtomicU64::new(WRITE_TIME.as_nanos() as u64);
        Ok(Self { options, program, top, disk, write_ns })
    }

    /// How slow the disk is from now on while something is measured.
    pub(super) fn set_write_time(&self, time: Duration) {
        self.write_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Something is measured now.
    pub(super) fn slow_down(&self) {
        let write_ns = self.write_ns.load(Ordering::Relaxed);
        self.disk.set_write_time(Duration::from_nanos(write_ns));
    }

    /// Limits the link, or does not.
    pub(super) fn set_link(link: Link) -> Result<()> {
        for (network, device) in [(None, SERVER_END), (Some(SWITCH), SWITCH_END)] {
            let tc = |words: &[&str]| match network {
                None => call("tc", words),
                Some(network) => call("ip", &[&["netns", "exec", network, "tc"], words].concat()),
            };
            // There may be none yet.
            let _ = tc(&["qdisc", "del", "dev", device, "root"]);
            if link == Link::Limited {
                let limit = ["tbf", "rate", "100mbit", "burst", "32kb", "latency", "50ms"];
                tc(&[&["qdisc", "add", "dev", device, "root"], &limit[..]].concat())?;
            }
        }
        Ok(())
    }

    /// How the clients' TCP finds out how much a link carries, as Linux calls it: `reno`, `bbr`.
    pub(super) fn set_congestion_control(name: &str) -> Result<()> {
        let set = format!("echo {name} > /proc/sys/net/ipv4/tcp_congestion_control");
        for client in 0..CLIENTS {
            call("ip", &["netns", "exec", &format!("client{client}"), "sh", "-c", &set])?;
        }
        Ok(())
    }

    /// Starts a server for a kind of share, on an empty directory. The disk is fast.
    pub(super) fn serve(&self, kind: Kind) -> Result<Server> {
        self.disk.set_write_time(Duration::ZERO);
        let share = self.disk.share("share")?;
        let state = self.state();
        if state.exists() {
            std::fs::remove_dir_all(&state)?;
        }
        self.serve_again(kind, &share, state)
    }

    /// The server's state directory.
    pub(super) fn state(&self) -> PathBuf {
        self.top.join("state")
    }

    /// Starts a server on a share and a state that are there.
    pub(super) fn serve_again(&self, kind: Kind, share: &Path, state: PathBuf) -> Result<Server> {
        let options = match kind {
            Kind::Async | Kind::Journal => vec!["async".to_owned()],
            Kind::Sync | Kind::Logged => Vec::new(),
        };
        let own = Own {
            program: Some(self.program.clone()),
            state: Some(state),
            share_options: options,
            tables: format!("[log]\nenabled = {}\n", kind == Kind::Logged),
            ..Own::default()
        };
        let setup = Setup {
            address: SERVER.into(),
            port: 2049,
            cpus: None,
            workers: None,
            files: None,
            own,
        };
        servers::start(Peer::Steadfast, share, &setup).with_context(|| kind.name())
    }

    /// Mounts a server's share at a client, with `options` beside those that all have. A journal is new, unless
    /// it is to be one that is there.
    pub(super) fn mount(
        &self,
        server: &Server,
        client: usize,
        kind: Kind,
        options: &str,
    ) -> Result<Mount> {
        let journal = self.journal(client);
        if journal.exists() {
            std::fs::remove_dir_all(&journal)?;
        }
        self.mount_again(server, client, kind, options)
    }

    /// Mounts with the journal that is there.
    pub(super) fn mount_again(
        &self,
        server: &Server,
        client: usize,
        kind: Kind,
        options: &str,
    ) -> Result<Mount> {
        let at = mount_point(&format!("mount{client}"))?;
        let mut words = format!("port=2049,mountport=2049,nolock{options}");
        if kind == Kind::Journal {
            let journal = self.journal(client);
            words = format!("{words},journal_size={RING},journal={}", journal.display());
        }
        let source = format!("{}:{}", server.address.ip(), server.path);
        let mut command = in_client(client, &self.program);
        command.args(["mount", "--foreground", "-o", &words, &source]).arg(&at);
        Mount::start(&mut command, at)
    }

    /// Where a client's journal is.
    pub(super) fn journal(&self, client: usize) -> PathBuf {
        let memory = Path::new("/run");
        let top = if self.options.has_journals_in_memory { memory } else { &self.top };
        top.join(format!("journal{client}"))
    }

    /// What was counted so far.
    pub(super) fn counters(server: &Server) -> Result<Counters> {
        let text = run("ip", &["-j", "-s", "link", "show", "dev", SERVER_END])?;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid()))?;
        Ok(Counters {
            wire_bytes: wire_bytes(&text).context("ip link says something else")?,
            cpu_s: cpu_s(&stat).context("/proc/PID/stat has another form")?,
        })
    }

    /// How often a mount has asked for SYNC, and flushed its ring.
    pub(super) fn flushes(&self, mount: &Mount) -> Result<(u64, u64)> {
        let at = mount.at.display().to_string();
        let program = self.program.display().to_string();
        let text = run(&program, &["mount", "status", &at, "--json"])?;
        flushes(&text).context("steadfast mount status says something else")
    }

    /// On what it is measured, and how.
    pub(super) fn conditions(&self) -> Result<String> {
        let commit = workspace::commit().unwrap_or_else(|| "unknown".to_owned());
        let rounds = match self.options.rounds {
            1 => "One round".to_owned(),
            rounds => format!("{rounds} rounds of alternating order, medians (least–most)"),
        };
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel: Vec<&str> = release.trim().split('.').take(2).collect();
        let cpus = std::thread::available_parallelism()?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').nth(2).unwrap_or("unknown").to_owned();
        let profile = &self.options.profile;
        Ok(format!(
            "{rounds}. Profile `{profile}`; a virtual machine of {cpus} CPUs that server, clients and other work share \
             (load of the last 15 minutes: {load}); ext4; Linux {}; commit {commit}.",
            kernel.join(".")
        ))
    }
}

/// A mount; gone when dropped.
pub(super) struct Mount {
    pub(super) at: PathBuf,
    process: Option<Process>,
    log: PathBuf,
}

impl Mount {
    /// Of a program that stays in the foreground.
    pub(super) fn start(command: &mut Command, at: PathBuf) -> Result<Self> {
        let log = at.with_extension("log");
        let process = Process::start(command, File::create(&log)?)?;
        let mut mount = Self { at, process: Some(process), log };
        let (at, log) = (mount.at.clone(), mount.log.clone());
        if let Some(process) = mount.process.as_mut() {
            let stands = || is_mounted(&at).then_some(()).context("it does not stand");
            process
                .wait_for(PATIENCE, PAUSE, stands)
                .with_context(|| format!("the mount: {}", last_lines(&log, 20)))?;
        }
        Ok(mount)
    }

    /// Of a program that goes to the background, where it ends with its mount.
    pub(super) fn of_daemon(command: &mut Command, at: PathBuf) -> Result<Self> {
        let log = at.with_extension("log");
        let file = File::create(&log)?;
        let status = command.stdout(file.try_clone()?).stderr(file).status()?;
        let mount = Self { at, process: None, log };
        let stands = || is_mounted(&mount.at).then_some(()).context("it does not stand");
        wait_for(PATIENCE, PAUSE, stands)
            .with_context(|| format!("{status}: {}", last_lines(&mount.log, 20)))?;
        Ok(mount)
    }

    /// Unmounts; what it still has is sent before this returns.
    pub(super) fn end(mut self) -> Result<()> {
        let at = self.at.display().to_string();
        wait_for(PATIENCE, PAUSE, || call("umount", &[&at]))?;
        if let Some(mut process) = self.process.take() {
            wait_for(PATIENCE, PAUSE, || process.ended()?.context("the mount's process stays"))?;
        }
        Ok(())
    }

    /// Kills the process, as a crash of the client does.
    pub(super) fn kill(mut self) {
        drop(self.process.take());
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.process.take());
        let _ = run("umount", &["--lazy", "--force", &self.at.display().to_string()]);
    }
}

/// An empty directory to mount at.
pub(super) fn mount_point(name: &str) -> Result<PathBuf> {
    let at = Path::new("/run/mounts").join(name);
    std::fs::create_dir_all(&at)?;
    Ok(at)
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

/// A command in a client's network.
pub(super) fn in_client(client: usize, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network_of(client).display())).arg(program);
    command
}

/// The network of a client.
pub(super) fn network_of(client: usize) -> PathBuf {
    PathBuf::from(format!("/run/netns/client{client}"))
}

/// The server here, a switch, and clients behind it.
fn make_network() -> Result<()> {
    let address = std::net::Ipv4Addr::from(SERVER);
    let lines = |text: String| -> Result<()> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            call("ip", &line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(())
    };
    lines(format!(
        "netns add {SWITCH}
         -n {SWITCH} link add bridge type bridge
         -n {SWITCH} link set bridge up
         link add {SERVER_END} type veth peer name {SWITCH_END} netns {SWITCH}
         addr add {address}/24 dev {SERVER_END}
         link set {SERVER_END} up
         -n {SWITCH} link set {SWITCH_END} master bridge
         -n {SWITCH} link set {SWITCH_END} up"
    ))?;
    for client in 0..CLIENTS {
        lines(format!(
            "netns add client{client}
             link add port{client} netns {SWITCH} type veth peer name eth0 netns client{client}
             -n {SWITCH} link set port{client} master bridge
             -n {SWITCH} link set port{client} up
             -n client{client} link set lo up
             -n client{client} addr add 10.79.0.{}/24 dev eth0
             -n client{client} link set eth0 up",
            client + 10
        ))?;
    }
    Ok(())
}

/// What `ip -j -s link show` counts in both directions.
fn wire_bytes(text: &str) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let count = |way| value.pointer(&format!("/0/stats64/{way}/bytes"))?.as_u64();
    Some(count("rx")? + count("tx")?)
}

/// What `steadfast mount status --json` counts: calls of SYNC, and flushes of the ring.
fn flushes(text: &str) -> Option<(u64, u64)> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let mount = value.get(0)?.get("status")?;
    let procedures = mount.get("procedures")?.as_array()?;
    let syncs = procedures.iter().filter(|one| one["name"] == "SYNC");
    let syncs = syncs.filter_map(|one| one["calls"].as_u64()).sum();
    Some((
        syncs,
        mount.pointer("/journal/flushes").and_then(serde_json::Value::as_u64).unwrap_or(0),
    ))
}

/// Time of all threads in user and kernel mode, of `/proc/PID/stat`: its fields 14 and 15, in hundredths.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some((field(14)? + field(15)?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let text =
            r#"[{"ifname":"link","stats64":{"rx":{"bytes":40,"packets":1},"tx":{"bytes":2}}}]"#;
        assert_eq!(wire_bytes(text), Some(42));
        assert_eq!(wire_bytes("[{}]"), None);
        let procedures = r#""procedures":[{"name":"SYNC","calls":3}]"#;
        let text = format!(r#"[{{"status":{{{procedures},"journal":{{"flushes":9}}}}}}]"#);
        assert_eq!(flushes(&text), Some((3, 9)));
        assert_eq!(flushes(r#"[{"status":{"procedures":[],"journal":null}}]"#), Some((0, 0)));
        assert_eq!(flushes("{}"), None);
        let stat = "7 (a ) name) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 9 9 20 0 1 0";
        assert_eq!(cpu_s(stat), Some(1.75));
        assert_eq!(cpu_s("7"), None);
    }
}
