//! The table of settings.

use serde::Serialize;

use crate::machine::Machine;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A setting, whatever machine it is on.
pub struct Setting {
    /// Its name, as sysctl(8) writes it.
    pub key: &'static str,
    /// Why it matters.
    pub reason: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// What it should be; `None` where it does not matter on this machine.
    proposal: fn(&Traits) -> Option<Goal>,
}

/// What is good for a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    AtLeast(u64),
    /// Not 0 either, which means something else in these files.
    AtMost(u64),
    /// The third of three numbers, at least; the others stay.
    ThirdAtLeast(u64),
    Is(&'static str),
}

/// What proposals are made from.
#[derive(Clone, Debug, Default)]
struct Traits {
    memory_bytes: u64,
    /// The fastest interface; 1000 where none tells.
    link_mbit: u64,
    congestion_control: String,
    /// Whether two interfaces are in one network.
    has_shared_network: bool,
    /// Whether `dirty_background_bytes`, `dirty_bytes` are used in place of the ratios.
    dirty_by_bytes: bool,
}

/// How a setting is on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingStatus {
    /// As good as proposed, or better.
    Good,
    /// Worse than proposed.
    Worse,
    /// It does not matter on this machine.
    NotNeeded,
    /// The kernel does not have it, or not in this container.
    Missing,
    /// The file has something that is not understood.
    Odd,
}

/// A setting on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingState {
    /// Its name.
    pub key: String,
    /// Why it matters.
    pub reason: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// What it is, if it is there.
    pub present: Option<String>,
    /// What it should be at least, or at most.
    pub proposed: Option<String>,
    /// How these compare.
    pub status: SettingStatus,
}

const SGI: &str = "SGI, \"Making the Linux NFS server suck faster\", Tunings";

/// Bytes that a connection needs on its way: 10 ms at the speed of the link, which allows for a site's
/// network and a busy server; 16 MiB at the most, and a thousandth of the memory.
fn window_bytes(traits: &Traits) -> u64 {
    let by_link = traits.link_mbit.saturating_mul(1_000_000 / 8 / 100);
    let most = (traits.memory_bytes / 1024).clamp(512 * KIB, 16 * MIB);
    by_link.clamp(512 * KIB, most).next_multiple_of(64 * KIB)
}

/// A percentage of the memory that is so many bytes, within 1 and `most`.
fn percent_of_memory(traits: &Traits, bytes: u64, most: u64) -> u64 {
    (bytes.saturating_mul(100) / traits.memory_bytes.max(1)).clamp(1, most)
}

/// All of them.
pub fn settings() -> &'static [Setting] {
    SETTINGS
}

static SETTINGS: &[Setting] = &[
    Setting {
        key: "net.core.rmem_max",
        reason: "the largest receive buffer that a program may ask for: a burst of datagrams or a window that \
                 does not fit is dropped or slowed",
        source: "SGI (512 KiB); today 10 ms at the speed of the link",
        proposal: |traits| Some(Goal::AtLeast(window_bytes(traits))),
    },
    Setting {
        key: "net.core.wmem_max",
        reason: "the largest send buffer that a program may ask for: replies that do not fit wait",
        source: "SGI (512 KiB); today 10 ms at the speed of the link",
        proposal: |traits| Some(Goal::AtLeast(window_bytes(traits))),
    },
    Setting {
        key: "net.core.rmem_default",
        reason: "the receive buffer of a socket that asks for none: NFS by UDP loses calls that come while it \
                 is full",
        source: "Legato, \"too few Ethernet buffers\"; udp(7)",
        proposal: |traits| (traits.memory_bytes >= GIB).then_some(Goal::AtLeast(512 * KIB)),
    },
    Setting {
        key: "net.ipv4.tcp_rmem",
        reason: "the third number is the largest TCP receive buffer, which decides the scale of the window when \
                 a connection is made",
        source: SGI,
        proposal: |traits| Some(Goal::ThirdAtLeast(window_bytes(traits))),
    },
    Setting {
        key: "net.ipv4.tcp_wmem",
        reason: "the third number is the largest TCP send buffer: a stream of replies is no faster than that a \
                 round trip",
        source: "tcp(7); SGI for the receive side",
        proposal: |traits| Some(Goal::ThirdAtLeast(window_bytes(traits))),
    },
    Setting {
        key: "net.core.netdev_max_backlog",
        reason: "packets that wait for a CPU; more are dropped",
        source: "kernel documentation, admin-guide/sysctl/net; Legato, dropped packets",
        proposal: |traits| {
            Some(Goal::AtLeast(if traits.link_mbit >= 10_000 { 10_000 } else { 2000 }))
        },
    },
    Setting {
        key: "net.core.netdev_budget",
        reason: "packets that a CPU takes from its interfaces before it does something else",
        source: "kernel documentation, admin-guide/sysctl/net; SGI, about 20 frames an interrupt",
        proposal: |traits| (traits.link_mbit >= 10_000).then_some(Goal::AtLeast(600)),
    },
    Setting {
        key: "net.core.somaxconn",
        reason: "connections that wait to be accepted: a storm of mounts makes thousands at once",
        source: "SGI, 2000 mounts at once; listen(2)",
        proposal: |_| Some(Goal::AtLeast(4096)),
    },
    Setting {
        key: "net.ipv4.tcp_max_syn_backlog",
        reason: "connections that are being made: a storm of mounts makes thousands at once",
        source: "SGI, 2000 mounts at once; tcp(7)",
        proposal: |_| Some(Goal::AtLeast(4096)),
    },
    Setting {
        key: "net.ipv4.tcp_slow_start_after_idle",
        reason: "NFS comes in bursts: with 1 each begins as slowly as a new connection",
        source: "kernel documentation, networking/ip-sysctl",
        proposal: |_| Some(Goal::Is("0")),
    },
    Setting {
        key: "net.core.default_qdisc",
        reason: "bbr paces its packets; without fq each connection needs a timer of its own for that",
        source: "kernel, net/ipv4/tcp_bbr.c: \"should preferably be used with fq\"",
        proposal: |traits| (traits.congestion_control == "bbr").then_some(Goal::Is("fq")),
    },
    Setting {
        key: "net.ipv4.neigh.default.gc_thresh1",
        reason: "neighbours up to which the table is never cleaned",
        source: SGI,
        proposal: |_| Some(Goal::AtLeast(1024)),
    },
    Setting {
        key: "net.ipv4.neigh.default.gc_thresh2",
        reason: "neighbours from which the table is cleaned within 5 s",
        source: SGI,
        proposal: |_| Some(Goal::AtLeast(2048)),
    },
    Setting {
        key: "net.ipv4.neigh.default.gc_thresh3",
        reason: "most neighbours: further clients on the server's own network are not reached",
        source: "SGI (2048; the table was full at 1024)",
        proposal: |_| Some(Goal::AtLeast(4096)),
    },
    Setting {
        key: "net.ipv4.conf.all.arp_ignore",
        reason: "two interfaces are in one network: each answers for the other's address, and streams jump \
                 between them",
        source: SGI,
        proposal: |traits| traits.has_shared_network.then_some(Goal::AtLeast(1)),
    },
    Setting {
        key: "net.ipv4.conf.all.arp_announce",
        reason: "two interfaces are in one network: each must announce its own address alone",
        source: SGI,
        proposal: |traits| traits.has_shared_network.then_some(Goal::AtLeast(2)),
    },
    Setting {
        key: "net.ipv4.ipfrag_high_thresh",
        reason: "memory for datagrams that are not complete: NFS by UDP sends each WRITE in pieces",
        source: "Legato, an 8 KB read is 7 packets; kernel documentation, networking/ip-sysctl",
        proposal: |traits| (traits.memory_bytes >= GIB).then_some(Goal::AtLeast(4 * MIB)),
    },
    Setting {
        key: "vm.dirty_background_ratio",
        reason: "per cent of the memory from which changed pages are written: the later, the longer a COMMIT \
                 takes; 1 GiB at the most",
        source: "SGI (10 %)",
        proposal: |traits| {
            (!traits.dirty_by_bytes).then(|| Goal::AtMost(percent_of_memory(traits, GIB, 10)))
        },
    },
    Setting {
        key: "vm.dirty_ratio",
        reason: "per cent of the memory from which writers wait for the disk; 4 GiB at the most",
        source: "kernel documentation, admin-guide/sysctl/vm",
        proposal: |traits| {
            (!traits.dirty_by_bytes)
                .then(|| Goal::AtMost(percent_of_memory(traits, 4 * GIB, 20).max(2)))
        },
    },
    Setting {
        key: "vm.dirty_writeback_centisecs",
        reason: "how often changed pages are written: the more seldom, the longer a COMMIT takes",
        source: "SGI (50)",
        proposal: |_| Some(Goal::AtMost(50)),
    },
    Setting {
        key: "vm.min_free_kbytes",
        reason: "memory that is kept free for packets that come while nobody can wait for memory",
        source: "kernel documentation, admin-guide/sysctl/vm; Legato, packets with no place to go",
        proposal: |traits| {
            let kib = (traits.memory_bytes / 256 / KIB).min(64 * KIB);
            Some(Goal::AtLeast(kib))
        },
    },
    Setting {
        key: "vm.vfs_cache_pressure",
        reason: "names and attributes are dropped from memory later than file data: a walk of a tree asks for \
                 little else",
        source: "SGI, the traversal load; kernel documentation, admin-guide/sysctl/vm",
        proposal: |_| Some(Goal::AtMost(100)),
    },
];

fn traits(machine: &Machine) -> Traits {
    let memory = machine.read("/proc/meminfo").unwrap_or_default();
    let memory = crate::doctor::parse::system::named_numbers(&memory);
    let interfaces = machine.names("/sys/class/net", 4096);
    let speed = |name: &String| {
        // What an interface without a device tells is invented.
        let at = format!("/sys/class/net/{name}");
        let speed = machine.number(&format!("{at}/speed")).filter(|speed| *speed > 0)?;
        machine.path(&format!("{at}/device")).exists().then_some(speed)
    };
    let routes = machine.read("/proc/net/route").unwrap_or_default();
    let networks = crate::doctor::parse::network::local_networks(&routes);
    let bytes = |name: &str| machine.number(&format!("/proc/sys/vm/{name}")).unwrap_or(0);
    Traits {
        memory_bytes: memory.get("MemTotal").copied().unwrap_or(0).saturating_mul(KIB),
        link_mbit: interfaces.iter().filter_map(speed).max().unwrap_or(1000),
        congestion_control: machine
            .word("/proc/sys/net/ipv4/tcp_congestion_control")
            .unwrap_or_default(),
        has_shared_network: networks.iter().enumerate().any(|(index, one)| {
            networks.iter().skip(index + 1).any(|other| {
                other.network == one.network
                    && other.mask == one.mask
                    && other.interface != one.interface
            })
        }),
        dirty_by_bytes: bytes("dirty_background_bytes") > 0 || bytes("dirty_bytes") > 0,
    }
}

/// Where the kernel has a setting, below the machine's root.
pub(super) fn path_of(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

/// All settings on a machine.
pub fn states(machine: &Machine) -> Vec<SettingState> {
    let traits = traits(machine);
    SETTINGS.iter().map(|setting| setting.state(machine, &traits)).collect()
}

/// One setting on a machine, if there is one of this name.
pub fn state(machine: &Machine, key: &str) -> Option<SettingState> {
    let setting = SETTINGS.iter().find(|setting| setting.key == key)?;
    Some(setting.state(machine, &traits(machine)))
}

impl Setting {
    fn state(&self, machine: &Machine, traits: &Traits) -> SettingState {
        let present = machine.word(&path_of(self.key));
        let goal = (self.proposal)(traits);
        let (proposed, status) = match (&goal, &present) {
            (_, None) => (None, SettingStatus::Missing),
            (None, Some(_)) => (None, SettingStatus::NotNeeded),
            (Some(goal), Some(present)) => match goal.judged(present) {
                Some((proposed, true)) => (Some(proposed), SettingStatus::Good),
                Some((proposed, false)) => (Some(proposed), SettingStatus::Worse),
                None => (None, SettingStatus::Odd),
            },
        };
        SettingState {
            key: self.key.to_owned(),
            reason: self.reason,
            source: self.source,
            present,
            proposed,
            status,
        }
    }
}

impl Goal {
    /// What the file should have, and whether what it has is as good; `None` if that is not understood.
    fn judged(&self, present: &str) -> Option<(String, bool)> {
        match self {
            Self::AtLeast(least) => {
                Some((least.to_string(), present.parse::<u64>().ok()? >= *least))
            }
            Self::AtMost(most) => {
                let present = present.parse::<u64>().ok()?;
                Some((most.to_string(), present <= *most && present > 0))
            }
            Self::Is(wanted) => Some(((*wanted).to_owned(), present == *wanted)),
            Self::ThirdAtLeast(least) => {
                let numbers: Vec<u64> =
                    present.split_whitespace().map_while(|word| word.parse().ok()).collect();
                let [first, second, third] = numbers[..] else { return None };
                Some((format!("{first}\t{second}\t{least}"), third >= *least))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(key: &str, traits: &Traits) -> Option<Goal> {
        let setting = SETTINGS.iter().find(|setting| setting.key == key).expect("one");
        (setting.proposal)(traits)
    }

    #[test]
    fn proposals_follow_memory_and_link() {
        let small = Traits { memory_bytes: GIB, link_mbit: 1000, ..Traits::default() };
        let large = Traits { memory_bytes: 256 * GIB, link_mbit: 100_000, ..Traits::default() };
        assert_eq!(proposed("net.core.rmem_max", &small), Some(Goal::AtLeast(MIB)));
        assert_eq!(proposed("net.core.rmem_max", &large), Some(Goal::AtLeast(16 * MIB)));
        assert_eq!(proposed("vm.dirty_background_ratio", &small), Some(Goal::AtMost(10)));
        assert_eq!(proposed("vm.dirty_background_ratio", &large), Some(Goal::AtMost(1)));
        assert_eq!(proposed("net.core.netdev_budget", &small), None);
        assert_eq!(proposed("net.core.default_qdisc", &large), None);
        let paced = Traits { congestion_control: "bbr".to_owned(), ..large };
        assert_eq!(proposed("net.core.default_qdisc", &paced), Some(Goal::Is("fq")));
        // SGI's least holds for any machine.
        assert_eq!(window_bytes(&Traits::default()), 512 * KIB);
    }

    #[test]
    fn what_is_better_is_good() {
        assert_eq!(Goal::AtLeast(5).judged("6"), Some(("5".to_owned(), true)));
        assert_eq!(Goal::AtLeast(5).judged("4"), Some(("5".to_owned(), false)));
        assert_eq!(Goal::AtMost(5).judged("4"), Some(("5".to_owned(), true)));
        assert_eq!(Goal::AtMost(5).judged("0"), Some(("5".to_owned(), false)));
        assert_eq!(Goal::AtMost(5).judged("x"), None);
        assert_eq!(Goal::Is("fq").judged("fq_codel"), Some(("fq".to_owned(), false)));
        let judged = Goal::ThirdAtLeast(900).judged("1\t2\t3");
        assert_eq!(judged, Some(("1\t2\t900".to_owned(), false)));
        assert_eq!(Goal::ThirdAtLeast(900).judged("1 2"), None);
    }

    #[test]
    fn keys_are_files_and_unique() {
        let mut keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), SETTINGS.len());
        assert_eq!(path_of("net.core.rmem_max"), "/proc/sys/net/core/rmem_max");
    }
}
