//! `cargo xtask doctor --knfsd`: `steadfast doctor` on a server of the kernel's.
//!
//! A user-mode-linux guest serves by knfsd, from a disk that this machine can make slow; `steadfast bench` puts a load
//! on it from outside. Doctor looks inside the guest, with each fault and after it. `tests/kernel-client/knfsd.sh` is
//! the guest's part.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::{CALMS, Found, GUEST_LIMIT, OF_OTHER_WORK, compared, findings, read_report};
use crate::disk::{self, FileSystem, Journal};
use crate::namespace::{GUEST_ADDRESS, Janitor, Namespace};
use crate::packages;
use crate::process::{Process, last_lines, wait_for};
use crate::slow_disk::SlowDisk;
use crate::uml::{self, Guest, Listener};
use crate::watch::Site;

const DISK_MIB: u64 = 1024;
/// What the guest shares.
const SHARE: &str = "/run/export";
const MOUNT_PORT: &str = "20048";
/// For a command in the guest.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// A load has prepared itself then.
const SETTLES: Duration = Duration::from_secs(3);
/// A load has removed what it made then.
const REMOVING: Duration = Duration::from_secs(5);
/// Of one look, in seconds.
const LOOK: &str = "4";

/// A load of clients that are in order: a tenth of their calls change something. With few calls on their way, as the
/// guest has one slow CPU.
const ORDINARY: &[&str] = &[
    "getattr --rate 100 --connections 2 --depth 2",
    "read:16384 --rate 30 --connections 2 --depth 2",
    "write:4096:file_sync --rate 15 --connections 2 --depth 2",
];

/// What is wrong with the server.
struct Fault {
    name: &'static str,
    /// Shell in the guest, before doctor looks.
    begin: &'static str,
    /// Shell in the guest that mends it.
    end: &'static str,
    /// What `steadfast bench op` does meanwhile, each in a process of its own.
    load: &'static [&'static str],
    /// What bash does meanwhile, in the network of the clients.
    beside: &'static str,
    /// What each write to the server's disk takes, in ms.
    write_ms: u64,
    /// The findings that tell the fault.
    findings: &'static [&'static str],
}

impl Fault {
    const NONE: Self = Self {
        name: "in order",
        begin: "",
        end: "",
        load: ORDINARY,
        beside: "",
        write_ms: 0,
        findings: &[],
    };
}

const FAULTS: &[Fault] = &[
    Fault::NONE,
    Fault {
        name: "one thread, 12 writers",
        begin: "rpc.nfsd 1",
        end: "rpc.nfsd 8",
        load: &["write:32768:file_sync --connections 12 --depth 1"],
        findings: &["nfsd-threads"],
        ..Fault::NONE
    },
    Fault { name: "a slow disk", write_ms: 60, findings: &["disk-slow"], ..Fault::NONE },
    Fault {
        name: "a queue that loses",
        begin: "modprobe sch_netem; tc qdisc add dev vec0 root netem loss 3%",
        end: "tc qdisc del dev vec0 root",
        load: &["read:32768 --connections 4 --depth 4"],
        findings: &["queue-drops", "tcp-retransmissions"],
        ..Fault::NONE
    },
    Fault {
        name: "four busy loops",
        begin: "for i in 1 2 3 4; do timeout 8 sh -c 'while :; do :; done' & done",
        end: "sleep 4",
        findings: &["cpu-busy", "run-queue"],
        ..Fault::NONE
    },
    Fault {
        name: "clients that only read",
        load: &[
            "getattr --rate 200 --connections 2 --depth 2",
            "read:16384 --rate 50 --connections 2",
        ],
        findings: &["log-will-not-help"],
        ..Fault::NONE
    },
    Fault {
        name: "WRITEs of 1 KiB",
        load: &["write:1024:file_sync --connections 4 --depth 2"],
        findings: &["small-calls"],
        ..Fault::NONE
    },
    // Over TCP, each call a record of 40 bytes.
    Fault {
        name: "NFS version 9",
        beside: r#"exec 3<>/dev/tcp/10.77.0.2/2049; cat <&3 >/dev/null & zero='\0\0\0'
            call="\200\0\0(abcd$zero\0$zero\2\0\1\206\243$zero\11$zero\0$zero\0$zero\0$zero\0$zero\0"
            for i in {1..100}; do for j in {1..10}; do printf "$call" >&3; done; sleep 0.1; done"#,
        findings: &["bad-calls"],
        ..Fault::NONE
    },
    Fault {
        name: "async,subtree_check",
        begin: "exportfs -o rw,async,no_root_squash,subtree_check,insecure '*:/run/export'",
        end: "exportfs -o rw,sync,no_root_squash,no_subtree_check,insecure '*:/run/export'",
        findings: &["export-async", "export-subtree-check"],
        ..Fault::NONE
    },
];

/// Tries the faults, or looks so often at a server in order; how much is not as it should be.
pub(super) fn run(site: &Site, healthy: usize) -> Result<usize> {
    packages::ensure_without_services(
        &["nfs-kernel-server", "rpcbind"],
        &["nfs-server", "rpcbind"],
    )?;
    let mut janitor = Janitor::start()?;
    let namespace = Namespace::create(&mut janitor)?;
    let (image, below) = (site.directory.join("image"), site.directory.join("below"));
    janitor.at_end(&format!("umount -l '{}'", below.display()))?;
    let disk = disk::slow_device(FileSystem::Ext4, Journal::Usual, &image, DISK_MIB, &below)?;
    let control = site.directory.join("knfsd");
    std::fs::create_dir_all(&control)?;
    let mut listener = Listener::new(&control)?;
    let words = [
        uml::network(0),
        format!("ubd0={}", disk.path().display()),
        format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
        format!("CONTROL={}", control.display()),
        format!("STEADFAST={}", site.program.display()),
    ];
    let init = site.root.join("tests/kernel-client/knfsd.sh");
    let command = namespace.command(uml::PROGRAM);
    let mut guest = Guest::start(command, "knfsd", &init, &words, &control.join("guest.log"))?;
    guest.follow(&mut listener, GUEST_LIMIT, |line| match line {
        "serving" => Ok(Some(())),
        other => bail!("the guest: {other}; see {}", control.display()),
    })?;
    let rig = Rig { site, namespace: &namespace, disk, control };
    rig.in_guest("rpc.nfsd 8")?;
    if healthy > 0 {
        return rig.stay_healthy(healthy);
    }
    FAULTS.iter().map(|fault| rig.tried(fault).context(fault.name)).sum()
}

struct Rig<'a> {
    site: &'a Site,
    namespace: &'a Namespace,
    disk: SlowDisk,
    /// Through which the guest is told what to do. The guest ends after the rig.
    control: PathBuf,
}

impl Rig<'_> {
    /// Has the guest run shell, and waits for it.
    fn in_guest(&self, text: &str) -> Result<()> {
        let file = |name: &str| self.control.join(name);
        std::fs::write(file("run.part"), format!("{text}\necho \"ended with $?\" >&2\n"))?;
        std::fs::rename(file("run.part"), file("run"))?;
        let told = wait_for(COMMAND_LIMIT, Duration::from_millis(20), || {
            std::fs::read_to_string(file("told")).context("the guest does not answer")
        })?;
        std::fs::remove_file(file("told"))?;
        if !told.ends_with("ended with 0\n") {
            bail!("{text}: {told}");
        }
        Ok(())
    }

    /// What doctor finds in the guest.
    fn look(&self, name: &str) -> Result<Vec<Found>> {
        let (report, errors) = (self.control.join("doctor.json"), self.control.join("doctor.err"));
        // Its exit status is that of what it has found.
        self.in_guest(&format!(
            "'{}' doctor --json --no-names --seconds {LOOK} >'{}' 2>'{}' || true",
            self.site.program.display(),
            report.display(),
            errors.display()
        ))?;
        let kept = self.site.directory.join(format!("knfsd-{}.json", name.replace(' ', "-")));
        std::fs::rename(&report, &kept)?;
        findings(&read_report(&kept).with_context(|| last_lines(&errors, 5))?)
    }

    /// Starts what clients do.
    fn load(&self, kinds: &[&str], beside: &str) -> Result<Load> {
        let log = |number: usize| self.site.directory.join(format!("load{number}.log"));
        let mut processes = Vec::new();
        for (number, kind) in kinds.iter().enumerate() {
            let mut command = self.namespace.command(&self.site.program.to_string_lossy());
            command.args(["bench", "op", GUEST_ADDRESS, SHARE, "--mount-port", MOUNT_PORT]);
            command.args(["--seconds", "3600"]).args(kind.split(' '));
            let log = log(number);
            processes.push((Process::start(&mut command, File::create(&log)?)?, log));
        }
        if !beside.is_empty() {
            let log = log(kinds.len());
            let mut shell = self.namespace.command("bash");
            shell.args(["-c", beside]);
            processes.push((Process::start(&mut shell, File::create(&log)?)?, log));
        }
        std::thread::sleep(SETTLES);
        Ok(Load { processes })
    }

    /// One fault: with it, and after it.
    fn tried(&self, fault: &Fault) -> Result<usize> {
        let mut load = self.load(fault.load, fault.beside)?;
        if !fault.begin.is_empty() {
            self.in_guest(fault.begin)?;
        }
        self.disk.set_write_time(Duration::from_millis(fault.write_ms));
        let with = self.look(fault.name)?;
        load.has_gone_on()?;
        self.disk.set_write_time(Duration::ZERO);
        if !fault.end.is_empty() {
            self.in_guest(fault.end)?;
        }
        drop(load);
        if fault.findings.is_empty() {
            let warnings: Vec<Found> = with.into_iter().filter(|found| found.is_warning).collect();
            let known = FAULTS.iter().flat_map(|one| one.findings).copied();
            let known = known.filter(|id| !OF_OTHER_WORK.contains(id));
            return Ok(compared(fault.name, &warnings, &[], known));
        }
        let mut wrong = compared(fault.name, &with, fault.findings, fault.findings.iter().copied());
        std::thread::sleep(CALMS);
        let mut load = self.load(ORDINARY, "")?;
        let after = self.look(&format!("after {}", fault.name))?;
        load.has_gone_on()?;
        // What was an advice with the fault is another one without it; and what happened stays an advice.
        let is_still = |found: &&Found| {
            let was = with.iter().find(|before| before.id == found.id);
            fault.findings.contains(&&*found.id)
                && !OF_OTHER_WORK.contains(&&*found.id)
                && was.is_some_and(|before| before.is_warning == found.is_warning)
        };
        for found in after.iter().filter(is_still) {
            wrong += 1;
            println!("FAIL after {:<21} {}: {}", fault.name, found.id, found.evidence);
        }
        Ok(wrong)
    }

    /// Looks so often, in order; how many warnings there were.
    fn stay_healthy(&self, looks: usize) -> Result<usize> {
        let mut load = self.load(ORDINARY, "")?;
        let (mut wrong, mut other_work) = (0, 0);
        for number in 1..=looks {
            for found in self.look(&format!("healthy {number}"))? {
                if !found.is_warning {
                    continue;
                }
                if OF_OTHER_WORK.contains(&&*found.id) {
                    other_work += 1;
                    continue;
                }
                wrong += 1;
                let Found { id, subject, evidence, .. } = found;
                println!("FAIL healthy {number}: {id} {subject}: {evidence}");
            }
        }
        load.has_gone_on()?;
        println!(
            "     knfsd: {looks} looks: {wrong} warnings; {other_work} on the CPUs of a machine with other work"
        );
        Ok(wrong)
    }
}

/// What clients do; ended when dropped, and what they have made removed if that is soon done.
struct Load {
    processes: Vec<(Process, PathBuf)>,
}

impl Load {
    /// Fails if one of them has ended by an error: then what was looked at had no load.
    fn has_gone_on(&mut self) -> Result<()> {
        for (process, log) in &mut self.processes {
            if let Some(status) = process.ended()?
                && !status.success()
            {
                bail!("a load ended with {status}: {}", last_lines(log, 5));
            }
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for (process, _) in &self.processes {
            // It may have ended already.
            let _ = process.signal(Signal::INT);
        }
        for (process, _) in &mut self.processes {
            // Those that take longer are killed.
            let _ = process.has_ended_within(Instant::now(), REMOVING);
        }
    }
}
