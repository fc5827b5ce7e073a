//! Everything CI runs, in CI's order: what is quick to tell first.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{kernel_client, packages, powercut, tidy};

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
    // exportfs, which the import of exports(5) is held against.
    "nfs-kernel-server",
];

/// Services of these packages, which nobody wants to run for tests.
const SERVICES: &[&str] = &["nfs-server", "rpcbind"];

/// Time for each fuzz target here; longer runs are `fuzz/run.sh`'s.
const FUZZ_SECONDS: u32 = 5;

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("packages", install),
    ("formatting", tidy::formatting),
    ("rules", tidy::rules),
    ("lints", tidy::lints),
    ("documentation", tidy::documentation),
    ("tests", tests),
    ("fuzzing, briefly", fuzz),
    ("kernel client, short", kernel),
    ("power cuts, 200", powercut::short),
];

const USAGE: &str = "usage: cargo xtask test [--skip STEP]...";

/// Runs the command with the arguments that follow its name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let skipped = skipped(args)?;
    let started = Instant::now();
    let mut times = Vec::new();
    for (name, step) in STEPS {
        if skipped.contains(name) {
            println!("== {name}: skipped");
            continue;
        }
        println!("== {name}");
        let begun = Instant::now();
        step().with_context(|| format!("step {name:?}"))?;
        times.push((name, begun.elapsed()));
    }
    println!("== all passed in {}", shown(started.elapsed()));
    for (name, time) in times {
        println!("   {name:<22} {}", shown(time));
    }
    Ok(())
}

fn skipped(args: &[String]) -> Result<Vec<&'static str>> {
    let mut skipped = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let wanted = args.next().filter(|_| arg == "--skip").context(USAGE)?;
        let Some((name, _)) = STEPS.iter().find(|(name, _)| name == wanted) else {
            let names: Vec<_> = STEPS.iter().map(|(name, _)| *name).collect();
            bail!("no step is called {wanted:?}; there are: {}", names.join("; "));
        };
        skipped.push(*name);
    }
    Ok(skipped)
}

fn shown(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

fn install() -> Result<()> {
    packages::ensure_without_services(PACKAGES, SERVICES)
}

fn tests() -> Result<()> {
    tidy::cargo(&["test", "--workspace"])
}

fn fuzz() -> Result<()> {
    let script = tidy::workspace_root()?.join("fuzz/run.sh");
    let status = Command::new(&script)
        .args(["all", &FUZZ_SECONDS.to_string()])
        .status()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !status.success() {
        bail!("a fuzz target failed; its input is in fuzz/artifacts");
    }
    Ok(())
}

fn kernel() -> Result<()> {
    kernel_client::run(&[])
}

#[cfg(test)]
mod tests {
    use super::{STEPS, skipped};

    #[test]
    fn only_known_steps_are_skipped() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(skipped(&words(&["--skip", "lints"])).expect("known"), ["lints"]);
        assert!(skipped(&words(&["--skip", "nothing"])).is_err());
        assert!(skipped(&words(&["--skip"])).is_err());
        assert!(skipped(&words(&["lints", "--skip"])).is_err());
        assert!(skipped(&[]).expect("nothing").is_empty());
        assert!(!STEPS.is_empty());
    }
}
