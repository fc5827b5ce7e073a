//! `cargo xtask doctor`: `steadfast doctor` on the real Linux NFS client with nfs-ganesha.
//!
//! A user-mode-linux guest mounts the server, once in order and once with each fault. The report has
//! to name the fault, and without the fault not to. `tests/kernel-client/doctor.sh` is the guest's part.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::namespace::{GUEST_ADDRESS, Janitor, Namespace, SERVER_ADDRESS};
use crate::uml::{self, Guest, Listener};
use crate::watch;

/// For one guest.
const GUEST_LIMIT: Duration = Duration::from_secs(120);

const USAGE: &str = "usage: cargo xtask doctor [OPTIONS]

  --short          a client in order, and one fault
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

/// How many of [`FAULTS`] the short form tries.
const SHORT: usize = 2;

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
        let found = findings(&report)?;
        for other in FAULTS.iter().filter_map(|fault| fault.finding) {
            let is_found = found.iter().any(|(id, _)| id == other);
            if is_found != (fault.finding == Some(other)) {
                wrong += 1;
                println!(
                    "FAIL {:<16} {other}: {}",
                    fault.name,
                    if is_found { "found" } else { "not found" }
                );
            }
        }
        let told = found.iter().find(|(id, _)| Some(id.as_str()) == fault.finding);
        let told =
            told.map_or_else(|| "none of these".to_owned(), |(id, why)| format!("{id}: {why}"));
        println!("     {:<16} {told}", fault.name);
    }
    if wrong > 0 {
        bail!("{wrong} findings are not as they should be; see {}", site.directory.display());
    }
    Ok(())
}

/// Identifiers of findings, with what shows them.
fn findings(report: &Value) -> Result<Vec<(String, String)>> {
    let found = report.get("findings").and_then(Value::as_array).context("no findings")?;
    let text = |one: &Value, name: &str| {
        one.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Ok(found.iter().map(|one| (text(one, "id"), text(one, "evidence"))).collect())
}

/// Boots a client with the fault; the report from inside.
fn examine(site: &watch::Site, namespace: &Namespace, fault: &Fault) -> Result<Value> {
    let control: PathBuf = site.directory.join(fault.name.replace(' ', "-"));
    std::fs::create_dir_all(&control)?;
    let mut listener = Listener::new(&control)?;
    let words = [
        uml::network(0),
        format!("GUEST_ADDRESS={GUEST_ADDRESS}/24"),
        format!("CONTROL={}", control.display()),
        format!("STEADFAST={}", site.program.display()),
        format!("NFS_SERVER={SERVER_ADDRESS}"),
        format!("NFS_OPTIONS=vers=4.2,tcp,port=2049{}", fault.options),
        format!("CLOCK_AHEAD_S={}", fault.clock_ahead_s),
    ];
    let init: &Path = &site.root.join("tests/kernel-client/doctor.sh");
    let command = namespace.command(uml::PROGRAM);
    let mut guest = Guest::start(command, "doctor", init, &words, &control.join("guest.log"))?;
    let end = guest.follow(&mut listener, GUEST_LIMIT, |line| match line {
        "done" => Ok(Some(())),
        other => bail!("the guest: {other}"),
    });
    end.with_context(|| format!("see {}", control.display()))?;
    let text = std::fs::read_to_string(control.join("doctor.json"))?;
    serde_json::from_str(&text).with_context(|| format!("see {}", control.display()))
}
