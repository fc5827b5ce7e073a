//! `cargo xtask doctor`: `steadfast doctor` on the real Linux NFS client with nfs-ganesha, and beside nfs-ganesha.
//!
//! A user-mode-linux guest mounts the server, once in order and once with each fault. The report has
//! to name the fault, and without the fault not to. `tests/kernel-client/doctor.sh` is the guest's part.
//! Then a guest reads all the time, and doctor looks in the server's network, at each fault and after it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::namespace::{GUEST_ADDRESS, Janitor, Namespace, SERVER_ADDRESS};
use crate::process::Process;
use crate::uml::{self, Guest, Listener};
use crate::watch;

/// For one guest.
const GUEST_LIMIT: Duration = Duration::from_secs(120);
/// For what makes a fault.
const SHELL_LIMIT: Duration = Duration::from_secs(10);

const USAGE: &str = "usage: cargo xtask doctor [OPTIONS]

  --short          a client in order and one fault, a server in order and one fault
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
    /// The findings that tell the fault, as warnings or worse.
    findings: &'static [&'static str],
}

const SERVER_FAULTS: &[ServerFault] = &[
    ServerFault { name: "in order", begin: "", meanwhile: "", end: "", findings: &[] },
    ServerFault {
        name: "a short queue",
        begin: "tc qdisc add dev tap0 root tbf rate 20mbit burst 4000 limit 20000",
        meanwhile: "",
        end: "tc qdisc del dev tap0 root",
        findings: &["queue-drops", "tcp-retransmissions"],
    },
    // Its datagrams find their buffer full. NULL calls, each with the same number.
    ServerFault {
        name: "a server that hangs",
        begin: "",
        meanwhile: "for p in /proc/[0-9]*; do
                [ $(cat $p/comm) = ganesha.nfsd ] && [ $p/ns/net -ef /proc/self/ns/net ] && server=${p#/proc/}
            done 2>/dev/null
            sleep 1; trap 'kill -CONT $server' EXIT; kill -STOP $server; zero='\\0\\0\\0'
            call=\"abcd$zero\\0$zero\\2\\0\\1\\206\\243$zero\\3$zero\\0$zero\\0$zero\\0$zero\\0$zero\\0\"
            exec 3>/dev/udp/10.77.0.1/2049; for i in {1..2000}; do printf \"$call\" >&3; done",
        end: "",
        findings: &["nfs-socket-drops", "udp-receive-drops"],
    },
    ServerFault {
        name: "a full run queue",
        begin: "for i in $(seq $(($(nproc) * 2 + 3))); do timeout 6 sh -c 'while :; do :; done' & done",
        meanwhile: "",
        end: "",
        findings: &["run-queue", "cpu-busy"],
    },
];

/// Of [`SERVER_FAULTS`], the findings that a machine may have that has other work, too.
const OF_OTHER_WORK: &[&str] = &["run-queue", "cpu-busy"];

/// The short form, for CI, with a program that is built.
pub fn short(program: &str) -> Result<()> {
    run(&["--short", "--program", program].map(str::to_owned))
}

/// Runs the command with the arguments that follow its name.
pub fn run(arguments: &[String]) -> Result<()> {
    let mut program = None;
    let mut count = FAULTS.len();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--short" => count = SHORT,
            "--program" => program = Some(PathBuf::from(words.next().context(USAGE)?)),
            _ => bail!("{USAGE}"),
        }
    }
    let site = watch::Site::prepare("doctor", program)?;
    let mut janitor = Janitor::start()?;
    let namespace = Namespace::create(&mut janitor)?;
    let _server = watch::start_ganesha(&namespace, &site.directory)?;
    let mut wrong = 0;
    for fault in FAULTS.iter().take(count) {
        let report = examine(&site, &namespace, fault).context(fault.name)?;
        let known = FAULTS.iter().filter_map(|fault| fault.finding);
        let found = findings(&report)?;
        wrong += compared(fault.name, &found, fault.finding.as_slice(), known);
    }
    wrong += beside_the_server(&site, &namespace, count)?;
    if wrong > 0 {
        bail!("{wrong} findings are not as they should be; see {}", site.directory.display());
    }
    Ok(())
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
        evidence: text(one, "evidence"),
        is_warning: matches!(text(one, "severity").as_str(), "warning" | "critical"),
    });
    Ok(all.collect())
}

/// Boots a client with the fault; the report from inside.
fn examine(site: &watch::Site, namespace: &Namespace, fault: &Fault) -> Result<Value> {
    let control: PathBuf = site.directory.join(fault.name.replace(' ', "-"));
    let work = [format!("CLOCK_AHEAD_S={}", fault.clock_ahead_s)];
    let (mut guest, mut listener) = boot(site, namespace, &control, fault.options, &work)?;
    let end = guest.follow(&mut listener, GUEST_LIMIT, |line| match line {
        "done" => Ok(Some(())),
        other => bail!("the guest: {other}"),
    });
    end.with_context(|| format!("see {}", control.display()))?;
    let text = std::fs::read_to_string(control.join("doctor.json"))?;
    serde_json::from_str(&text).with_context(|| format!("see {}", control.display()))
}

/// Boots a client that mounts the server; `more` are variables of its script.
fn boot(
    site: &watch::Site,
    namespace: &Namespace,
    control: &Path,
    options: &str,
    more: &[String],
) -> Result<(Guest, Listener)> {
    std::fs::create_dir_all(control)?;
    let listener = Listener::new(control)?;
    let mut words = vec![
        uml::network(0),
        format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
        format!("CONTROL={}", control.display()),
        format!("STEADFAST={}", site.program.display()),
        format!("NFS_SERVER={SERVER_ADDRESS}"),
        format!("NFS_OPTIONS=vers=4.2,tcp,port=2049{options}"),
    ];
    words.extend_from_slice(more);
    let init: &Path = &site.root.join("tests/kernel-client/doctor.sh");
    let command = namespace.command(uml::PROGRAM);
    let guest = Guest::start(command, "doctor", init, &words, &control.join("guest.log"))?;
    Ok((guest, listener))
}

/// Looks beside the server while a client reads; how much is not as it should be.
fn beside_the_server(site: &watch::Site, namespace: &Namespace, count: usize) -> Result<usize> {
    let control = site.directory.join("reading");
    let (mut guest, mut listener) = boot(site, namespace, &control, "", &["READS=yes".to_owned()])?;
    let mut wrong = 0;
    let end = guest.follow(&mut listener, GUEST_LIMIT, |line| match line {
        "reading" => {
            for fault in SERVER_FAULTS.iter().take(count) {
                wrong += tried(site, namespace, fault).context(fault.name)?;
            }
            std::fs::write(control.join("stop"), "")?;
            Ok(None)
        }
        "done" => Ok(Some(())),
        other => bail!("the guest: {other}"),
    });
    end.with_context(|| format!("see {}", control.display()))?;
    Ok(wrong)
}

/// One fault of the server's machine: with it, and after it.
fn tried(site: &watch::Site, namespace: &Namespace, fault: &ServerFault) -> Result<usize> {
    let shell = |text: &str| {
        let mut shell = namespace.command("bash");
        shell.args(["-c", text]);
        let log = std::fs::File::create(site.directory.join("shell.log"))?;
        Process::start(&mut shell, log)
    };
    let end = |mut shell: Process| {
        let has_ended = shell.has_ended_within(Instant::now(), SHELL_LIMIT);
        let at = || format!("see {}", site.directory.join("shell.log").display());
        if has_ended.with_context(at)? { Ok(()) } else { bail!("a shell does not end; {}", at()) }
    };
    end(shell(fault.begin)?)?;
    let beside = shell(fault.meanwhile)?;
    let with = look(site, namespace, fault.name)?;
    end(beside)?;
    end(shell(fault.end)?)?;
    // Findings that are not of this fault are looked for as well, but not those of a machine that has other work.
    let all = SERVER_FAULTS.iter().flat_map(|one| one.findings).copied();
    let known = all.filter(|id| fault.findings.contains(id) || !OF_OTHER_WORK.contains(id));
    let mut wrong =
        compared(&format!("server: {}", fault.name), &with, fault.findings, known.clone());
    if !fault.end.is_empty() || !fault.meanwhile.is_empty() {
        let after = look(site, namespace, &format!("after {}", fault.name))?;
        wrong += compared("server: after it", &after, &[], known);
    }
    Ok(wrong)
}

/// The warnings of a look beside the server. What doctor cannot see of it has to be named.
fn look(site: &watch::Site, namespace: &Namespace, name: &str) -> Result<Vec<Found>> {
    let output = namespace
        .command(&site.program.to_string_lossy())
        .args(["doctor", "--json", "--no-names", "--seconds", "2.5"])
        .output()
        .context("cannot run steadfast doctor")?;
    let file = site.directory.join(format!("server-{}.json", name.replace(' ', "-")));
    std::fs::write(&file, &output.stdout)?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let unseen = report.get("unseen").and_then(Value::as_array).context("nothing unseen")?;
    let what = |one: &Value| one.get("what").and_then(Value::as_str).map(str::to_owned);
    if !unseen.iter().filter_map(what).any(|what| what == "nfs-ganesha's own counters") {
        bail!("{} does not say that nfs-ganesha's counters are not read", file.display());
    }
    let mut found = findings(&report)?;
    found.retain(|one| one.is_warning);
    Ok(found)
}
