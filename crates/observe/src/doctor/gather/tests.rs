//! Unit: a machine of texts as the kernel writes them, in a directory, read and judged as a whole.

use std::fs;
use std::path::Path;

use super::*;
use crate::doctor::checks::Severity;
use crate::doctor::{Report, judge};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What a look finds, in numbers that a test changes.
#[derive(Clone)]
struct Texts {
    uptime_s: u64,
    options: String,
    reads: u64,
    sent_again: u64,
    packets: u64,
    receive_errors: u64,
    segments: u64,
    segments_again: u64,
    datagrams: u64,
    datagrams_lost: u64,
    ticks: u64,
    busy_ticks: u64,
    waited_us: u64,
    disk_reads: u64,
    disk_ms: u64,
}

impl Texts {
    fn new(random: &mut Random) -> Self {
        let busy = 1 + random.below(50);
        Self {
            uptime_s: 1000 + random.below(10_000_000),
            options:
                "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,local_lock=none"
                    .to_owned(),
            reads: 10_000 * busy,
            sent_again: 0,
            packets: 1_000_000 * busy,
            receive_errors: random.below(100),
            segments: 1_000_000 * busy,
            segments_again: random.below(300),
            datagrams: 100_000,
            datagrams_lost: random.below(5),
            ticks: 1_000_000,
            busy_ticks: 100_000,
            waited_us: 0,
            disk_reads: 10_000,
            disk_ms: 10_000,
        }
    }

    /// Five seconds of what an office does.
    fn pass(&self, random: &mut Random) -> Self {
        let reads = random.below(1000);
        let disk_reads = random.below(200);
        Self {
            uptime_s: self.uptime_s + 5,
            reads: self.reads + reads,
            packets: self.packets + 8 * reads,
            segments: self.segments + 8 * reads,
            segments_again: self.segments_again + random.below(2),
            datagrams: self.datagrams + random.below(100),
            ticks: self.ticks + 1000,
            busy_ticks: self.busy_ticks + random.below(700),
            waited_us: self.waited_us + random.below(200_000),
            disk_reads: self.disk_reads + disk_reads,
            disk_ms: self.disk_ms + disk_reads * random.below(8),
            ..self.clone()
        }
    }

    fn write(&self, root: &Path) {
        let put = |path: &str, text: String| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        let Self { reads, packets, segments, datagrams, .. } = self;
        put("proc/uptime", format!("{}.00 1.00\n", self.uptime_s));
        put(
            "proc/self/mountstats",
            format!(
                "device /dev/sda mounted on / with fstype ext4\n\
                 device server:/home mounted on /nonexistent/home with fstype nfs4 statvers=1.1\n\topts:\t{}\n\
                 \tage:\t{}\n\tevents:\t1 2 3 4 5 6 7 8\n\tbytes:\t1 2 3 4 5 6 7 8\n\
                 \txprt:\ttcp 812 1 1 0 5 {reads} {reads} 0 9 0 2 0 0\n\tper-op statistics\n\
                 \t  READ: {reads} {} 0 100 200 0 {} {} 0\n",
                self.options,
                self.uptime_s,
                reads + self.sent_again,
                reads * 3,
                reads * 3,
            ),
        );
        put("proc/net/rpc/nfs", format!("rpc {reads} {} 0\n", self.sent_again));
        put(
            "proc/net/snmp",
            format!(
                "Tcp: InSegs OutSegs RetransSegs\nTcp: {segments} {segments} {}\n\
                 Udp: InDatagrams OutDatagrams RcvbufErrors SndbufErrors\nUdp: {datagrams} {datagrams} {} 0\n",
                self.segments_again, self.datagrams_lost
            ),
        );
        put("proc/net/netstat", "TcpExt: ListenDrops PruneCalled\nTcpExt: 0 0\n".to_owned());
        put("proc/net/softnet_stat", format!("{packets:08x} 00000000 00000000\n"));
        put(
            "proc/net/dev",
            format!(
                "Inter-|\n face |\n lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
                 eth0: {} {packets} {} 0 0 0 0 0 {} {packets} 0 0 0 0 0 0\n",
                packets * 1000,
                self.receive_errors,
                packets * 1000
            ),
        );
        for (file, text) in [("speed", "1000"), ("duplex", "full"), ("carrier_changes", "2")] {
            put(&format!("sys/class/net/eth0/{file}"), format!("{text}\n"));
        }
        let (idle, busy) = (self.ticks - self.busy_ticks, self.busy_ticks);
        put(
            "proc/stat",
            format!(
                "cpu  {busy} 0 0 {idle} 0 0 0 0\ncpu0 {busy} 0 0 {idle} 0 0 0 0\nprocs_running 1\n"
            ),
        );
        put("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n".to_owned());
        put("proc/vmstat", "workingset_refault_file 1\n".to_owned());
        for what in ["cpu", "io", "memory"] {
            let text =
                format!("some avg10=0.00 total={}\nfull avg10=0.00 total=0\n", self.waited_us);
            put(&format!("proc/pressure/{what}"), text);
        }
        put(
            "proc/diskstats",
            format!(
                "8 0 sda {} 0 9 {} 0 0 0 0 0 {} {}\n",
                self.disk_reads, self.disk_ms, self.disk_ms, self.disk_ms
            ),
        );
        put("sys/block/sda/queue/rotational", "1\n".to_owned());
        // As good as any proposal.
        for setting in tune::settings() {
            let value = match setting.key {
                "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => "4096 131072 67108864",
                "net.ipv4.tcp_slow_start_after_idle" => "0",
                key if key.starts_with("vm.dirty") => "1",
                "vm.vfs_cache_pressure" => "50",
                _ => "67108864",
            };
            put(&format!("proc/sys/{}", setting.key.replace('.', "/")), format!("{value}\n"));
        }
    }
}

fn examined(before: &Texts, after: &Texts) -> Report {
    let root = tempfile::tempdir().expect("a directory");
    let sources = Sources { machine: Machine::at(root.path()), server: None, asks_names: false };
    before.write(root.path());
    let first = facts(&sources, false);
    after.write(root.path());
    let second = facts(&sources, true);
    judge(&first, &second, &[sample(&sources.machine, &[])])
}

#[test]
fn idle_and_healthy_machines_have_nothing_to_do() {
    for seed in 1..=100 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed) | 1);
        let before = Texts::new(&mut random);
        let report = examined(&before, &before.pass(&mut random));
        let wrong: Vec<_> =
            report.findings.iter().filter(|one| one.severity > Severity::Info).collect();
        assert!(wrong.is_empty(), "{seed}: {wrong:?}");
        assert_eq!(report.unseen, [], "{seed}");
        assert_eq!(report.exit_status(), 0);
    }
}

type Way<'a> = (&'a str, &'a dyn Fn(&mut Texts));

#[test]
fn what_is_wrong_in_the_texts_is_found() {
    let mut random = Random(7);
    let before = Texts::new(&mut random);
    let after = before.pass(&mut random);
    let found = |change: &dyn Fn(&mut Texts)| {
        let mut after = Texts { reads: before.reads + 1000, ..after.clone() };
        change(&mut after);
        let report = examined(&before, &after);
        report.findings.iter().map(|one| one.id).collect::<Vec<_>>()
    };
    let ways: [Way<'_>; 7] = [
        ("small-transfers", &|texts| {
            texts.options = "rw,proto=tcp,rsize=1024,wsize=1024".to_owned();
        }),
        ("nfs-retransmissions", &|texts| texts.sent_again += 30),
        ("interface-errors", &|texts| {
            texts.packets += 10_000;
            texts.receive_errors += 500;
        }),
        ("tcp-retransmissions", &|texts| {
            texts.segments += 10_000;
            texts.segments_again += 100;
        }),
        ("udp-receive-drops", &|texts| texts.datagrams_lost += 500),
        ("cpu-busy", &|texts| texts.busy_ticks = before.busy_ticks + 990),
        ("disk-slow", &|texts| {
            texts.disk_reads = before.disk_reads + 100;
            texts.disk_ms = before.disk_ms + 9000;
        }),
    ];
    for (id, change) in ways {
        let ids = found(change);
        assert!(ids.contains(&id), "{id}: {ids:?}");
    }
}

#[test]
fn threads_of_the_kernels_server_are_seen() {
    let root = tempfile::tempdir().expect("a directory");
    let machine = Machine::at(root.path());
    let put = |process: u32, name: &str, state: char| {
        let process = root.path().join(format!("proc/{process}"));
        fs::create_dir_all(&process).expect("made");
        fs::write(process.join("comm"), format!("{name}\n")).expect("written");
        fs::write(process.join("stat"), format!("7 ({name}) ) {state} 2 0\n")).expect("written");
    };
    put(20, "sh", 'S');
    put(21, "nfsd", 'D');
    put(22, "nfsd", 'R');
    let nfsd = Some(rpc::Nfsd { threads: 2, ..rpc::Nfsd::default() });
    let threads = nfsd_threads(&machine, &Facts { nfsd, ..Facts::default() });
    assert_eq!(threads, ["/proc/21", "/proc/22"]);
    assert_eq!(sample(&machine, &threads).has_idle_nfsd, Some(false));
    put(22, "nfsd", 'I');
    assert_eq!(sample(&machine, &threads).has_idle_nfsd, Some(true));
    assert_eq!(sample(&machine, &["/proc/99".to_owned()]).has_idle_nfsd, None);
    assert_eq!(nfsd_threads(&machine, &Facts::default()), [""; 0]);
}

#[test]
fn what_is_not_there_is_named() {
    let root = tempfile::tempdir().expect("a directory");
    let sources = Sources { machine: Machine::at(root.path()), server: None, asks_names: true };
    let facts = facts(&sources, true);
    for what in ["/proc/net/snmp", "/proc/stat", "/proc/self/mountstats", "/etc/resolv.conf"] {
        let unseen = facts.unseen.iter().find(|one| one.what == what).expect(what);
        assert_eq!(unseen.why, "not there");
    }
    assert_eq!(judge(&facts, &facts, &[]).findings, []);
}

#[test]
fn only_the_second_look_asks_what_may_not_answer() {
    let root = tempfile::tempdir().expect("a directory");
    Texts::new(&mut Random(7)).write(root.path());
    fs::create_dir_all(root.path().join("nonexistent/home")).expect("made");
    fs::create_dir_all(root.path().join("etc")).expect("made");
    // Nobody listens at this address of the test's own network.
    fs::write(root.path().join("etc/resolv.conf"), "nameserver 127.0.0.89\n").expect("written");
    let sources = Sources { machine: Machine::at(root.path()), server: None, asks_names: true };
    let first = facts(&sources, false);
    assert_eq!((first.mounts[0].ahead_s, first.name_servers.len()), (None, 0));
    let second = facts(&sources, true);
    let ahead_s = second.mounts[0].ahead_s.expect("an answer");
    assert!((-60.0..=1.0).contains(&ahead_s), "{ahead_s}");
    assert_eq!(second.name_servers.len(), 1);
}

#[test]
fn a_machine_that_hides_its_uptime_has_no_huge_rates() {
    let root = tempfile::tempdir().expect("a directory");
    let sources = Sources { machine: Machine::at(root.path()), server: None, asks_names: false };
    let mut random = Random(7);
    let before = Texts::new(&mut random);
    let look = |texts: &Texts| {
        texts.write(root.path());
        fs::remove_file(root.path().join("proc/uptime")).expect("removed");
        facts(&sources, false)
    };
    let first = look(&before);
    thread::sleep(Duration::from_millis(200));
    let second = look(&before.pass(&mut random));
    assert!(judge(&first, &second, &[]).seconds >= 0.2);
}

#[test]
fn mounts_that_are_too_many_are_named() {
    let root = tempfile::tempdir().expect("a directory");
    let sources = Sources { machine: Machine::at(root.path()), server: None, asks_names: false };
    fs::create_dir_all(root.path().join("proc/self")).expect("made");
    for (lines, is_named) in [(LINES_MAX, false), (LINES_MAX + 1, true)] {
        fs::write(root.path().join("proc/self/mountstats"), "\t\n".repeat(lines)).expect("written");
        let facts = facts(&sources, false);
        assert_eq!(facts.unseen.iter().any(|one| one.what == "some NFS mounts"), is_named);
    }
}
