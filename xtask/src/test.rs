//! Everything CI runs, in CI's order: what is quick to tell first.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use steadfast_rig::{doctor, kernel_client, packages, powercut, root_is_a_mount, watch, workspace};

use crate::{cargo_tests, tidy};

/// Debian packages that unit and property tests use, and what the fuzzer is compiled with, beside
/// those of the kernel-client suite.
const PACKAGES: &[&str] = &[
    "acl",
    "btrfs-progs",
    "e2fsprogs",
    "xfsprogs",
    "util-linux",
    "iproute2",
    "g++",
    "git",
    "python3",
    // A load of the journal's table.
    "dbench",
    // Which checks man pages.
    "mandoc",
    // exportfs, which the import of exports(5) is held against; and, in a guest, one of the two other servers that
    // mounts with a journal are tried with.
    "nfs-kernel-server",
    "user-mode-linux",
    // The other one.
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "rpcbind",
    // What the documentation tells to type.
    "curl",
    "openssl",
    "tcpdump",
    // Which reads what `steadfast capture` writes.
    "tshark",
    // The playbook in examples/.
    "ansible-core",
    // promtool, which reads metrics and alerts as Prometheus does.
    "prometheus",
];

/// Services of these packages, which nobody wants to run for tests.
const SERVICES: &[&str] = &["nfs-ganesha", "nfs-server", "prometheus", "rpcbind"];

/// Time for each fuzz target here; longer runs are `fuzz/run.sh`'s.
const FUZZ_SECONDS: u32 = 5;

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("packages", install),
    ("formatting", tidy::formatting),
    ("rules", tidy::rules),
    ("lints", tidy::lints),
    ("documentation", tidy::documentation),
    ("tests", cargo_tests::run),
    ("tests, machine busy", cargo_tests::run_busy),
    ("fuzzing, briefly", fuzz),
    ("kernel client, short", kernel),
    ("kernel client, NFSv2", kernel_nfs2),
    ("kernel client, NFSv4.1", kernel_nfs4),
    ("kernel client, NFSv4.0", kernel_nfs40),
    ("kernel client, NFSv4.2", kernel_nfs42),
    ("kernel client, delegations", kernel_delegations),
    ("watch beside a client", diagnosis),
    ("power cuts, 200", powercut::short),
];

const USAGE: &str = "usage: cargo xtask test [--skip STEP]... [--only STEP]...";

/// `watch` beside the client's own counts, and `doctor` on a client.
fn diagnosis() -> Result<()> {
    let program = program()?;
    watch::short(&program)?;
    doctor::short(&program)
}

/// The program as its tests have it.
fn program() -> Result<String> {
    let program = workspace::tested_program(cargo_tests::PROGRAM)?;
    program.into_os_string().into_string().ok().context("the path of the workspace is not UTF-8")
}

/// Runs the command with the arguments that follow its name. Every step is run, whatever failed before.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let skipped = skipped(args)?;
    if !root_is_a_mount()? {
        println!(
            "== the root directory is no mount point, as in a chroot, so tests that need mounts of their own will fail: \
             leave it, and do `mount --bind DIRECTORY DIRECTORY` before `chroot DIRECTORY`"
        );
    }
    let started = Instant::now();
    let mut done = Vec::new();
    for (name, step) in STEPS {
        if skipped.contains(name) {
            println!("== {name}: skipped");
            continue;
        }
        println!("== {name}");
        let begun = Instant::now();
        let failure = step().err().map(|error| format!("{error:#}"));
        if let Some(why) = &failure {
            println!("== {name}: failed: {why}");
        }
        done.push(Done { name, time: begun.elapsed(), failure });
    }
    let failed = done.iter().filter(|step| step.failure.is_some()).count();
    println!("== summary, after {}", shown(started.elapsed()));
    print!("{}", summary(&done));
    if failed > 0 {
        bail!("{failed} of {} steps failed: see the summary above", done.len());
    }
    println!("== all passed in {}", shown(started.elapsed()));
    Ok(())
}

/// A step that was run.
struct Done {
    name: &'static str,
    time: Duration,
    /// Why it failed, if it did.
    failure: Option<String>,
}

/// A line a step; of one that failed also why, and how it is run alone.
fn summary(done: &[Done]) -> String {
    let mut text = String::new();
    for Done { name, time, failure } in done {
        let outcome = if failure.is_some() { "FAILED" } else { "ok" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "   {name:<22} {:>12}  {outcome}", shown(*time));
    }
    for step in done {
        let Some(why) = &step.failure else { continue };
        let name = step.name;
        let _ = writeln!(text, "{name}: {why}\n  the step alone: cargo xtask test --only {name:?}");
    }
    text
}

/// The steps that are not wanted.
fn skipped(args: &[String]) -> Result<Vec<&'static str>> {
    let (mut skipped, mut only) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let named = match arg.as_str() {
            "--skip" => &mut skipped,
            "--only" => &mut only,
            _ => bail!("{USAGE}"),
        };
        let wanted = args.next().context(USAGE)?;
        let Some((name, _)) = STEPS.iter().find(|(name, _)| name == wanted) else {
            let names: Vec<_> = STEPS.iter().map(|(name, _)| *name).collect();
            bail!("no step is called {wanted:?}; there are: {}", names.join("; "));
        };
        named.push(*name);
    }
    if !only.is_empty() {
        let others = STEPS.iter().map(|(name, _)| *name).filter(|name| !only.contains(name));
        skipped.extend(others);
    }
    Ok(skipped)
}

fn shown(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

fn install() -> Result<()> {
    packages::ensure_without_services(PACKAGES, SERVICES)?;
    packages::ensure_guest_modules()?;
    // nfs-ganesha knows the file systems of its shares by it. systemd makes it, which a chroot may be without.
    let mtab = Path::new("/etc/mtab");
    if !mtab.try_exists()? {
        println!("making /etc/mtab, a link to /proc/self/mounts");
        std::os::unix::fs::symlink("../proc/self/mounts", mtab)
            .context("/etc/mtab, which nfs-ganesha needs, cannot be made: run this as root")?;
    }
    Ok(())
}

fn fuzz() -> Result<()> {
    fuzz_with("all", FUZZ_SECONDS)
}

/// Runs the command with the arguments that follow its name.
pub(crate) fn fuzz_for(args: &[String]) -> Result<()> {
    const USAGE: &str =
        "usage: cargo xtask fuzz [SECONDS [TARGET]]; fuzz/run.sh list names the targets";
    let (seconds, target) = match args {
        [] => (None, "all"),
        [seconds] => (Some(seconds), "all"),
        [seconds, target] => (Some(seconds), target.as_str()),
        _ => bail!("{USAGE}"),
    };
    let is_target = |target: &str| {
        let source =
            workspace::root().map(|root| root.join("fuzz/src/bin").join(format!("{target}.rs")));
        !["canary", "seeds"].contains(&target) && source.is_ok_and(|source| source.is_file())
    };
    if target != "all" && !is_target(target) {
        bail!("there is no target {target:?}; {USAGE}");
    }
    let seconds = seconds.map_or(Ok(FUZZ_SECONDS), |text| text.parse());
    fuzz_with(target, seconds.ok().filter(|seconds| *seconds > 0).context(USAGE)?)
}

fn fuzz_with(target: &str, seconds: u32) -> Result<()> {
    let script = workspace::root()?.join("fuzz/run.sh");
    let status = Command::new(&script)
        .args([target, &seconds.to_string()])
        .status()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !status.success() {
        bail!(
            "{} failed: {status}; what a target failed by is in fuzz/artifacts",
            script.display()
        );
    }
    Ok(())
}

fn kernel() -> Result<()> {
    kernel_client::run(&["--program".to_owned(), program()?])
}

/// What differs most from NFSv3; `cargo xtask kernel-client --nfs 4.1` is the whole suite.
const CASES_OF_NFS4: [&str; 10] = [
    "mount-lines",
    "names",
    "rename",
    "append",
    "exclusive-create",
    "owner-writes-0444",
    "locks",
    "shares",
    "git",
    "server-killed",
];

/// What differs most from NFSv4.1: owners' sequences, and no sessions.
const CASES_OF_NFS40: [&str; 4] = ["exclusive-create", "locks", "git", "server-killed"];

/// What NFSv2 does otherwise: names, devices, stable writes, the reply cache. Not `times`, which it tells in
/// microseconds; nor `root-squash`, as it has no ACCESS: what a user of the client has read, its root reads
/// from the client's memory.
const CASES_OF_NFS2: [&str; 8] = [
    "links-and-special-files",
    "names",
    "rename",
    "modes-and-owners",
    "open-unlinked",
    "append",
    "read-only-share",
    "server-killed",
];

fn kernel_nfs2() -> Result<()> {
    kernel_cases("2", &CASES_OF_NFS2)
}

fn kernel_nfs4() -> Result<()> {
    kernel_cases("4.1", &CASES_OF_NFS4)
}

fn kernel_nfs40() -> Result<()> {
    kernel_cases("4.0", &CASES_OF_NFS40)
}

fn kernel_cases(nfs: &str, cases: &[&str]) -> Result<()> {
    let program = program()?;
    let only = cases.iter().flat_map(|name| ["--only", name]);
    let words = ["--program", &program, "--nfs", nfs].into_iter().chain(only);
    let words: Vec<String> = words.map(str::to_owned).collect();
    kernel_client::run(&words)
}

fn kernel_delegations() -> Result<()> {
    let program = program()?;
    let words = ["--nfs", "4.2", "--delegations", "write", "--only", "delegations"];
    let words: Vec<String> =
        words.into_iter().chain(["--program", &program]).map(str::to_owned).collect();
    kernel_client::run(&words)
}

/// What NFSv4.2 adds, and what it does otherwise.
const CASES_OF_NFS42: [&str; 6] =
    ["extents", "extended-attributes", "exclusive-create", "sparse-files", "nfs4-acls", "git"];

/// Locks that guests, local processes and other clients contend for, until they have had so many.
const CONTENDED: &str = "5000";

fn kernel_nfs42() -> Result<()> {
    kernel_cases("4.2", &CASES_OF_NFS42)?;
    let words = ["--contended", CONTENDED, "--program", &program()?].map(str::to_owned);
    kernel_client::run(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_steps_are_skipped() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(skipped(&words(&["--skip", "lints"])).expect("known"), ["lints"]);
        assert!(skipped(&words(&["--skip", "nothing"])).is_err());
        assert!(skipped(&words(&["--skip"])).is_err());
        assert!(skipped(&words(&["lints", "--skip"])).is_err());
        assert!(skipped(&[]).expect("nothing").is_empty());
        let others = skipped(&words(&["--only", "tests", "--only", "lints"])).expect("known");
        assert_eq!(others.len(), STEPS.len() - 2);
        assert!(!others.contains(&"tests") && !others.contains(&"lints"));
    }

    #[test]
    fn who_has_no_c_compiler_is_told_so() {
        let linker = workspace::root().expect("a workspace").join(".cargo/cc");
        let told = Command::new("/bin/sh").arg(linker).env("PATH", "/nowhere").output();
        let told = told.expect("a shell");
        assert!(!told.status.success());
        assert!(String::from_utf8_lossy(&told.stderr).contains("apt-get install gcc libc6-dev"));
    }

    /// Before 1.71 it takes no words for `debug`, and says that it cannot read them, not that it is too old.
    #[test]
    fn an_old_cargo_can_read_the_manifest() {
        let manifest = workspace::root().expect("a workspace").join("Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("a manifest");
        let mut debug = text.lines().filter(|line| line.trim_start().starts_with("debug"));
        assert!(debug.all(|line| !line.contains('"')), "say it in .cargo/config.toml");
    }

    #[test]
    fn the_summary_says_what_failed_and_how_it_is_run_alone() {
        let step = |name, failure: Option<&str>| Done {
            name,
            time: Duration::from_secs(61),
            failure: failure.map(str::to_owned),
        };
        let text = summary(&[step("lints", None), step("tests", Some("one failed"))]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("lints") && lines[0].ends_with("1 min 01 s  ok"), "{text}");
        assert!(lines[1].contains("tests") && lines[1].ends_with("FAILED"), "{text}");
        assert_eq!(lines[2], "tests: one failed");
        assert_eq!(lines[3], "  the step alone: cargo xtask test --only \"tests\"");
    }
}
