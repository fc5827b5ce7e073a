//! `cargo xtask doctor`: `steadfast doctor` on the real Linux NFS client with nfs-ganesha, and beside nfs-ganesha.
//!
//! A user-mode-linux guest mounts the server, once in order and once with each fault. The report has
//! to name the fault, and without the fault not to. `tests/kernel-client/doctor.sh` is the guest's part.
//! Then a guest works all the time, and doctor looks in the server's network, at each fault and after it; where the
//! fault is felt by the client, in the guest, too. With `--healthy` it only looks, again and again, and finds nothing.
//! [`knfsd`] does the like on a server of the kernel's.

mod knfsd;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::disk::{Disk, FileSystem, Journal};
use crate::kernel_client::server::Server;
use crate::namespace::{GUEST_ADDRESS, Janitor, Namespace, SERVER_ADDRESS};
use crate::process::{Process, wait_for};
use crate::uml::{self, Guest, Listener};
use crate::watch;

/// For one guest.
const GUEST_LIMIT: Duration = Duration::from_secs(120);
/// For one look beside a server, of one in a guest that works.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
/// For what makes a fault.
const SHELL_LIMIT: Duration = Duration::from_secs(10);
/// What was begun during a fault has ended then, and what was lost been sent again.
const CALMS: Duration = Duration::from_secs(3);
const DISK_MIB: u64 = 256;

const USAGE: &str = "usage: cargo xtask doctor [OPTIONS]

  --short          a client in order and one fault, a server in order and one fault
  --healthy N      instead: N looks, beside a server and on a client that are in order
  --knfsd          all on a server of the kernel's, in a guest, in place of nfs-ganesha and its client
  --program FILE   a steadfast that is built already
";

/// What is wrong with a client.
struct Fault {
    name: &'static str,
    /// Of the mount, beside those of a mount in order.
    options: &'static str,
    /// Of the client's clock, beside the server's, in seconds.
    clock_ahead_s: i32,
    /// The finding that tells the fault.
    finding: Option<&'static str>,
}

const FAULTS: &[Fault] = &[
    Fault { name: "in order", options: "", clock_ahead_s: 0, finding: None },
    Fault {
        name: "rsize=1024",
        options: ",rsize=1024,wsize=1024",
        clock_ahead_s: 0,
        finding: Some("small-transfers"),
    },
    Fault {
        name: "an hour behind",
        options: "",
        clock_ahead_s: -3600,
        finding: Some("server-clock"),
    },
    Fault { name: "soft", options: ",soft", clock_ahead_s: 0, finding: Some("mount-soft") },
    Fault { name: "noac", options: ",noac", clock_ahead_s: 0, finding: Some("mount-noac") },
];

/// How many of [`FAULTS`], and of [`SERVER_FAULTS`], the short form tries.
const SHORT: usize = 2;

/// What is wrong with the machine of the server. All of it is shell, run in its network.
struct ServerFault {
    name: &'static str,
    /// Before doctor looks.
    begin: &'static str,
    /// Beside it.
    meanwhile: &'static str,
    /// After it.
    end: &'static str,
    /// What each write to the server's disk takes, in ms.
    write_ms: u64,
    /// The findings that tell the fault, as warnings or worse.
    findings: &'static [&'static str],
    /// Those in a client, whose timer is 0.2 s then.
    on_client: &'static [&'static str],
}

impl ServerFault {
    const NONE: Self = Self {
        name: "in order",
        begin: "",
        meanwhile: "",
        end: "",
        write_ms: 0,
        findings: &[],
        on_client: &[],
    };
}

const SERVER_FAULTS: &[ServerFault] = &[
    ServerFault::NONE,
    ServerFault {
        name: "a short queue",
        begin: "tc qdisc add dev tap0 root tbf rate 20mbit burst 4000 limit 20000",
        end: "tc qdisc del dev tap0 root",
        findings: &["queue-drops", "tcp-retransmissions"],
        ..ServerFault::NONE
    },
    // Its datagrams find their buffer full. NULL calls, each with the same number.
    ServerFault {
        name: "a server that hangs",
        meanwhile: "for p in /proc/[0-9]*; do
                [ $(cat $p/comm) = ganesha.nfsd ] && [ $p/ns/net -ef /proc/self/ns/net ] && server=${p#/proc/}
            done 2>/dev/null
            sleep 1; trap 'kill -CONT $server' EXIT; kill -STOP $server; zero='\\0\\0\\0'
            call=\"abcd$zero\\0$zero\\2\\0\\1\\206\\243$zero\\3$zero\\0$zero\\0$zero\\0$zero\\0$zero\\0\"
            exec 3>/dev/udp/10.77.0.1/2049; for i in {1..2000}; do printf \"$call\" >&3; done",
        findings: &["nfs-socket-drops", "udp-receive-drops"],
        ..ServerFault::NONE
    },
    ServerFault {
        name: "a slow disk",
        write_ms: 120,
        findings: &["disk-slow"],
        ..ServerFault::NONE
    },
    ServerFault {
        name: "a full run queue",
        begin: "for i in $(seq $(($(nproc) * 2 + 3))); do timeout 6 sh -c 'while :; do :; done' & done",
        findings: &["run-queue", "cpu-busy"],
        ..ServerFault::NONE
    },
    // Longer than the client's timer. The last one: nfs-ganesha 4.3 was seen to crash some time after such calls.
    ServerFault {
        name: "a disk that stands still",
        write_ms: 300,
        findings: &["disk-slow"],
        on_client: &["nfs-retransmissions"],
        ..ServerFault::NONE
    },
];

/// Fails where no server is.
const CONNECTS: &str = "exec 3<>/dev/tcp/10.77.0.1/2049";

/// Of [`SERVER_FAULTS`], the findings that a machine may have that has other work, too.
const OF_OTHER_WORK: &[&str] = &["run-queue", "cpu-busy"];

/// The short form, for CI, with a program that is built.
pub fn short(program: &str) -> Result<()> {
    run(&["--short", "--program", program].map(str::to_owned))
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let mut program = None;
    let (mut count, mut healthy, mut is_knfsd) = (usize::MAX, 0, false);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--short" => count = SHORT,
            "--knfsd" => is_knfsd = true,
            "--healthy" => healthy = words.next().context(USAGE)?.parse().context(USAGE)?,
            "--program" => program = Some(PathBuf::from(words.next().context(USAGE)?)),
            _ => bail!("{USAGE}"),
        }
    }
    let site = watch::Site::prepare("doctor", program)?;
    if is_knfsd {
        let wrong = knfsd::run(&site, healthy)?;
        return judged(wrong, &site);
    }
    let mut janitor = Janitor::start()?;
    let (image, export) = (site.directory.join("image"), site.directory.join("export"));
    let below = export.with_extension("below");
    janitor.at_end(&format!("umount -l '{}' '{}'", export.display(), below.display()))?;
    let namespace = Namespace::create(&mut janitor)?;
    // Before the server starts, which sees the mounts of that time.
    let disk = Disk::slow(FileSystem::Ext4, Journal::Usual, &image, DISK_MIB, &export)?;
    let server = watch::start_ganesha(&namespace, &site.directory)?;
    let rig = Rig { site, namespace, _server: server, disk };
    let mut wrong = 0;
    if healthy > 0 {
        wrong += rig.beside_the_server(|rig| rig.stay_healthy(healthy), limit(healthy))?;
    } else {
        for fault in FAULTS.iter().take(count) {
            let report = rig.examine(fault).context(fault.name)?;
            let known = FAULTS.iter().filter_map(|fault| fault.finding);
            let found = findings(&report)?;
            wrong += compared(fault.name, &found, fault.finding.as_slice(), known);
        }
        let faults = SERVER_FAULTS.get(..count).unwrap_or(SERVER_FAULTS);
        let each = |rig: &Rig| {
            faults.iter().map(|fault| rig.tried(fault).context(fault.name)).sum::<Result<usize>>()
        };
        wrong += rig.beside_the_server(each, limit(2 * faults.len()))?;
    }
    judged(wrong, &rig.site)
}

fn judged(wrong: usize, site: &watch::Site) -> Result<()> {
    if wrong > 0 {
        bail!("{wrong} findings are not as they should be; see {}", site.directory.display());
    }
    Ok(())
}

/// For a guest beside which doctor looks so often.
fn limit(looks: usize) -> Duration {
    GUEST_LIMIT + LOOK_LIMIT / 2 * looks as u32
}

/// Prints what was found of what is known; how much of it is not as it should be.
fn compared<'a>(
    name: &str,
    found: &[Found],
    wanted: &[&str],
    known: impl Iterator<Item = &'a str>,
) -> usize {
    let mut wrong = 0;
    let mut told = Vec::new();
    for id in known {
        let one = found.iter().find(|one| one.id == id);
        told.extend(one.map(|one| format!("{id}: {}", one.evidence)));
        if one.is_some() != wanted.contains(&id) {
            wrong += 1;
            let how = if one.is_some() { "found" } else { "not found" };
            println!("FAIL {name:<27} {id}: {how}");
        }
    }
    if told.is_empty() {
        told.push("none of these".to_owned());
    }
    for line in told {
        println!("     {name:<27} {line}");
    }
    wrong
}

/// A finding of a report.
struct Found {
    id: String,
    subject: String,
    evidence: String,
    is_warning: bool,
}

/// The findings of a report.
fn findings(report: &Value) -> Result<Vec<Found>> {
    let found = report.get("findings").and_then(Value::as_array).context("no findings")?;
    let text = |one: &Value, name: &str| {
        one.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let all = found.iter().map(|one| Found {
        id: text(one, "id"),
        subject: text(one, "subject"),
        evidence: text(one, "evidence"),
        is_warning: matches!(text(one, "severity").as_str(), "warning" | "critical"),
    });
    Ok(all.collect())
}

/// A server on a disk of its own, and its network.
struct Rig {
    site: watch::Site,
    namespace: Namespace,
    /// Ends before its disk is unmounted.
    _server: Server,
    disk: Disk,
}

impl Rig {
    /// Boots a client with the fault; the report from inside.
    fn examine(&self, fault: &Fault) -> Result<Value> {
        let control: PathBuf = self.site.directory.join(fault.name.replace(' ', "-"));
        let work = [format!("CLOCK_AHEAD_S={}", fault.clock_ahead_s)];
        let (mut guest, mut listener) = self.boot(&control, fault.options, &work)?;
        let end = guest.follow(&mut listener, GUEST_LIMIT, |line| match line {
            "done" => Ok(Some(())),
            other => bail!("the guest: {other}"),
        });
        end.with_context(|| format!("see {}", control.display()))?;
        read_report(&control.join("doctor.json"))
    }

    /// Boots a client that mounts the server; `more` are variables of its script.
    fn boot(&self, control: &Path, options: &str, more: &[String]) -> Result<(Guest, Listener)> {
        std::fs::create_dir_all(control)?;
        let listener = Listener::new(control)?;
        let mut words = vec![
            uml::network(0),
            format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
            format!("CONTROL={}", control.display()),
            format!("STEADFAST={}", self.site.program.display()),
            format!("NFS_SERVER={SERVER_ADDRESS}"),
            format!("NFS_OPTIONS=vers=4.2,tcp,port=2049{options}"),
        ];
        words.extend_from_slice(more);
        let init: &Path = &self.site.root.join("tests/kernel-client/doctor.sh");
        let command = self.namespace.command(uml::PROGRAM);
        let guest = Guest::start(command, "doctor", init, &words, &control.join("guest.log"))?;
        Ok((guest, listener))
    }

    /// The directory through which the client that works is told what to do.
    fn control(&self) -> PathBuf {
        self.site.directory.join("working")
    }

    /// Looks while a client works; how much is not as it should be.
    fn beside_the_server(
        &self,
        look: impl Fn(&Self) -> Result<usize>,
        limit: Duration,
    ) -> Result<usize> {
        let control = self.control();
        let (mut guest, mut listener) = self.boot(&control, "", &["WORKS=yes".to_owned()])?;
        let mut wrong = 0;
        let end = guest.follow(&mut listener, limit, |line| match line {
            "working" => {
                wrong += look(self)?;
                std::fs::write(control.join("stop"), "")?;
                Ok(None)
            }
            "done" => Ok(Some(())),
            other => bail!("the guest: {other}"),
        });
        end.with_context(|| format!("see {}", control.display()))?;
        Ok(wrong)
    }

    /// Looks so often, in order; how many warnings there were.
    fn stay_healthy(&self, looks: usize) -> Result<usize> {
        let (mut wrong, mut other_work) = (0, 0);
        for number in 1..=looks {
            let (server, client) = self.look(&format!("healthy {number}"), "1.5", true)?;
            for found in server.into_iter().chain(client) {
                if OF_OTHER_WORK.contains(&&*found.id) {
                    other_work += 1;
                    continue;
                }
                wrong += 1;
                let Found { id, subject, evidence, .. } = found;
                println!("FAIL healthy {number}: {id} {subject}: {evidence}");
            }
        }
        println!(
            "     {looks} looks: {wrong} warnings; {other_work} on the CPUs of a machine with other work"
        );
        Ok(wrong)
    }

    /// One fault of the server's machine: with it, and after it.
    fn tried(&self, fault: &ServerFault) -> Result<usize> {
        let shell = |text: &str| {
            let mut shell = self.namespace.command("bash");
            shell.args(["-c", text]);
            let log = std::fs::File::create(self.site.directory.join("shell.log"))?;
            Process::start(&mut shell, log)
        };
        let end = |mut shell: Process| {
            let has_ended = shell.has_ended_within(Instant::now(), SHELL_LIMIT);
            let at = || format!("see {}", self.site.directory.join("shell.log").display());
            if has_ended.with_context(at)? {
                Ok(())
            } else {
                bail!("a shell does not end; {}", at())
            }
        };
        let (on_client, hurry) = (!fault.on_client.is_empty(), self.control().join("hurry"));
        // A slow disk has few operations in a short time.
        let seconds = if fault.write_ms > 0 { "5" } else { "2.5" };
        end(shell(fault.begin)?)?;
        self.disk.set_write_time(Duration::from_millis(fault.write_ms));
        if on_client {
            std::fs::write(&hurry, "")?;
        }
        let beside = shell(fault.meanwhile)?;
        let with = self.look(fault.name, seconds, on_client)?;
        end(beside)?;
        end(shell(fault.end)?)?;
        // Findings that are not of this fault are looked for as well, but not those of a machine that has other work.
        let all = SERVER_FAULTS.iter().flat_map(|one| one.findings).copied();
        let known = all.filter(|id| fault.findings.contains(id) || !OF_OTHER_WORK.contains(id));
        let known: BTreeSet<&str> = known.collect();
        let judge = |name: &str, found: (Vec<Found>, Vec<Found>), wanted: &ServerFault| {
            let (server, client) = (format!("server: {name}"), format!("client: {name}"));
            let mut wrong = compared(&server, &found.0, wanted.findings, known.iter().copied());
            if on_client {
                let known = fault.on_client.iter().copied();
                wrong += compared(&client, &found.1, wanted.on_client, known);
            }
            wrong
        };
        let mut wrong = judge(fault.name, with, fault);
        self.disk.set_write_time(Duration::ZERO);
        if !fault.end.is_empty() || !fault.meanwhile.is_empty() || fault.write_ms > 0 {
            std::thread::sleep(CALMS);
            let after = self.look(&format!("after {}", fault.name), seconds, on_client)?;
            wrong += judge("after it", after, &ServerFault::NONE);
            end(shell(CONNECTS)?).context("the server has died")?;
        }
        if on_client {
            std::fs::remove_file(&hurry)?;
        }
        Ok(wrong)
    }

    /// The warnings of a look beside the server, and of one on the client at the same time if that is asked for. What
    /// doctor cannot see of the server has to be named. Disks of others are left out.
    fn look(&self, name: &str, seconds: &str, on_client: bool) -> Result<(Vec<Found>, Vec<Found>)> {
        let (asked, told) = (self.control().join("look"), self.control().join("doctor.json"));
        if on_client {
            std::fs::write(self.control().join("asked"), seconds)?;
            std::fs::rename(self.control().join("asked"), &asked)?;
        }
        let output = self
            .namespace
            .command(&self.site.program.to_string_lossy())
            .args(["doctor", "--json", "--no-names", "--seconds", seconds])
            .output()
            .context("cannot run steadfast doctor")?;
        let file = |side: &str| {
            self.site.directory.join(format!("{side}-{}.json", name.replace(' ', "-")))
        };
        std::fs::write(file("server"), &output.stdout)?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let unseen = report.get("unseen").and_then(Value::as_array).context("nothing unseen")?;
        let what = |one: &Value| one.get("what").and_then(Value::as_str).map(str::to_owned);
        if !unseen.iter().filter_map(what).any(|what| what == "nfs-ganesha's own counters") {
            bail!(
                "{} does not say that nfs-ganesha's counters are not read",
                file("server").display()
            );
        }
        let mut server = findings(&report)?;
        server.retain(|one| {
            let is_of_others = one.id.starts_with("disk-") && one.subject != self.disk.device();
            one.is_warning && !is_of_others
        });
        let mut client = Vec::new();
        if on_client {
            wait_for(LOOK_LIMIT, Duration::from_millis(20), || read_report(&told).map(drop))?;
            std::fs::rename(&told, file("client"))?;
            client = findings(&read_report(&file("client"))?)?;
            client.retain(|one| one.is_warning);
        }
        Ok((server, client))
    }
}

fn read_report(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("no {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("see {}", file.display()))
}
