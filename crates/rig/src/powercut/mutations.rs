//! Whether the rig finds what is broken on purpose: `cargo xtask powercut --mutations`, or
//! `--mutation NAME` for one.
//!
//! The server is built with the feature `powercut-mutations`, which lets the environment break one
//! invariant of the intent log, or of the records of clients of NFSv4 (`durability/src/mutation.rs`). For each there is what the rig
//! must find. The same server with nothing broken comes first: there it must find nothing.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::rig;
use crate::isolation::wait_for;
use crate::workspace;

/// A way to break the server, and what the rig must find then.
#[derive(Debug)]
pub(super) struct Mutation {
    name: &'static str,
    /// Faults of which one must be found; with none, nothing at all may be.
    expected: &'static str,
    /// Of the log's disk.
    log_file_system: &'static str,
    /// Crash points at the most.
    points: &'static str,
    /// Operations of each run: few, so that it is soon judged, unless the log has to fill up.
    operations: &'static str,
    /// Of the protocol that clients speak beside NFSv3; 3 is none.
    nfs: &'static str,
}

const USUAL: Mutation = Mutation {
    name: "",
    expected: "",
    log_file_system: "ext4",
    points: "100",
    operations: "600",
    nfs: "3",
};

/// Crash points are several times what was seen to be needed: one, for what is seen at most points;
/// 7 to 153 for `late-order`; 51 to 63 for `unsynced-checkpoints`, whose log fills up in mid-run; 3 for
/// `unflushed-clients`, and 18 for `unrecorded-departures`.
const MUTATIONS: &[Mutation] = &[
    Mutation { name: "none", expected: "", points: "20", nfs: "4.1", ..USUAL },
    Mutation { name: "early-replies", expected: "names,data,attributes", ..USUAL },
    Mutation {
        name: "late-order",
        expected: "names,handles,data,attributes",
        points: "400",
        ..USUAL
    },
    Mutation { name: "skipped-records", expected: "names,data,attributes", ..USUAL },
    Mutation {
        name: "unsynced-checkpoints",
        expected: "names,data,attributes",
        operations: "3000",
        ..USUAL
    },
    Mutation { name: "forgotten-replies", expected: "replies", ..USUAL },
    Mutation {
        name: "unflushed-device",
        expected: "names,data,attributes",
        log_file_system: "ext4-without-journal",
        ..USUAL
    },
    Mutation { name: "unflushed-clients", expected: "reclaims", nfs: "4.1", ..USUAL },
    Mutation { name: "unrecorded-departures", expected: "strangers", nfs: "4.1", ..USUAL },
];

/// One file system is enough: what is broken is the log's, or in the state directory. A run that is unlucky gives no more than
/// 100 points.
const FLAGS: &[&str] =
    &["--fs", "ext4", "--replies", "--allow-halves", "--log-mib", "64", "--points-of-a-run", "100"];

/// Which mutations are asked for; `None` if the rig is to be used otherwise.
pub(super) fn wanted(arguments: &[String]) -> Result<Option<Vec<&'static Mutation>>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--mutations"] => Ok(Some(MUTATIONS.iter().collect())),
        ["--mutation", name] => {
            let mutation =
                MUTATIONS.iter().find(|known| known.name == *name).with_context(|| {
                    let names: Vec<_> = MUTATIONS.iter().map(|known| known.name).collect();
                    format!("no mutation is called {name:?}; there are: {}", names.join(", "))
                })?;
            Ok(Some(vec![mutation]))
        }
        words if words.iter().any(|word| word.starts_with("--mutation")) => {
            bail!("--mutations and --mutation NAME stand alone")
        }
        _ => Ok(None),
    }
}

/// Runs the rig for each of them; an error with all that the rig did not find.
pub(super) fn run(wanted: &[&Mutation]) -> Result<()> {
    // Not optimised more than for tests, of which most has been built.
    for more in [&["steadfast", "--features", "powercut-mutations"][..], &["steadfast-powercut"]] {
        workspace::cargo(&[&["build", "--quiet", "-p"], more].concat())?;
    }
    let programs = workspace::target()?.join("debug");
    let configuration = workspace::root()?.join("tests/powercut/mutations.toml");
    let configuration = configuration.to_str().context("a path that is UTF-8")?;
    let mut missed = Vec::new();
    for mutation in wanted {
        println!("== mutation {}", mutation.name);
        let begun = Instant::now();
        let mut command = rig(&programs);
        command.args(FLAGS).args(["--configuration", configuration]);
        command.args(["--points", mutation.points, "--operations", mutation.operations]);
        command.args(["--log-fs", mutation.log_file_system, "--nfs", mutation.nfs]);
        if !mutation.expected.is_empty() {
            command.args(["--expect", mutation.expected]).env("STEADFAST_MUTATION", mutation.name);
        }
        if wait_for(&mut command, "the rig").is_err() {
            missed.push(mutation.name);
        }
        println!("== mutation {}: {} s", mutation.name, begun.elapsed().as_secs());
    }
    if !missed.is_empty() {
        bail!("not as expected: {}", missed.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::wanted;

    #[test]
    fn only_known_mutations_are_run() {
        let wanted = |words: &[&str]| {
            wanted(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert!(wanted(&["--points", "3"]).expect("the rig's").is_none());
        assert_eq!(wanted(&["--mutation", "late-order"]).expect("known").map_or(0, |w| w.len()), 1);
        assert!(wanted(&["--mutations"]).expect("all").is_some_and(|all| all.len() > 4));
        assert!(wanted(&["--mutation", "something"]).is_err());
        assert!(wanted(&["--mutation"]).is_err());
        assert!(wanted(&["--mutations", "--points", "3"]).is_err());
    }
}
