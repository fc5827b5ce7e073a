//! Which crate may need which. `table.rs` checks that ARCHITECTURE.md shows it.

use anyhow::{Context, Result};
use serde_json::Value;

const PREFIX: &str = "steadfast-";

/// Each crate with the crates of ours that it may need. A crate that is not here may need none,
/// and a new one has to be entered.
const MAY_NEED: &[(&str, &[&str])] = &[
    ("xdr", &[]),
    ("wire", &["xdr"]),
    ("rpc", &["xdr", "wire"]),
    ("vfs", &[]),
    ("state", &["vfs"]),
    ("recovery", &["vfs"]),
    ("shares", &[]),
    ("catalog", &["shares"]),
    ("intent-log", &[]),
    ("engine", &["xdr", "wire", "rpc", "vfs", "state", "recovery", "shares"]),
    // The engine with a clock, network and disk of its own: no I/O, or a run is no longer its seed.
    ("sim", &["xdr", "wire", "recovery", "vfs", "shares", "engine"]),
    ("sys", &[]),
    ("posixfs", &["vfs", "recovery", "sys"]),
    ("access", &["shares", "sys"]),
    ("control", &["shares", "catalog", "sys"]),
    ("runtime", &["rpc", "engine", "vfs", "sys"]),
    ("durability", &["engine", "runtime", "recovery", "intent-log", "vfs", "sys"]),
    ("client", &["xdr", "wire", "rpc", "sys"]),
    ("mount", &["client", "journal", "xdr", "wire", "rpc", "sys"]),
    ("bench", &["client", "xdr", "wire", "rpc", "sys"]),
    // It reaches a Steadfast server by its documents and lock file alone, so that most of it serves for any server.
    ("observe", &["control", "wire", "rpc", "xdr", "sys"]),
    // The client's: it shares the medium of the server's log, and nothing else of the server.
    ("journal", &["intent-log", "sys"]),
    // Of definitions that it is given.
    ("manual", &[]),
    // Puts the above together; speaks to the host's rpcbind as a client does.
    (
        "server",
        &[
            "xdr",
            "wire",
            "vfs",
            "recovery",
            "shares",
            "catalog",
            "access",
            "control",
            "engine",
            "sys",
            "posixfs",
            "runtime",
            "durability",
            "client",
        ],
    ),
    // The program: arguments, exit codes. It reaches a server by these alone; of the log it
    // looks after one that no server uses.
    (
        "steadfast",
        &[
            "shares",
            "catalog",
            "access",
            "control",
            "durability",
            "server",
            "bench",
            "journal",
            "manual",
            "mount",
            "observe",
            "sys",
        ],
    ),
    // Tests and tools; never the server, so that what they find is true of any server.
    ("guest-tests", &["client", "xdr", "wire", "sys"]),
    ("powercut", &["client", "wire"]),
    ("rig", &["client", "bench", "xdr", "wire", "rpc"]),
    ("xtask", &["rig"]),
];

/// Tests may need more, as long as the bands stay apart.
const TESTS_MAY_NEED: &[(&str, &[&str])] = &[
    // Itself, with what it has for the tests of others.
    ("access", &["access"]),
    ("engine", &["client"]),
    ("runtime", &["client", "shares", "wire", "xdr", "posixfs"]),
    ("client", &["shares"]),
    ("server", &["client"]),
    ("steadfast", &["client", "wire", "xdr"]),
    ("mount", &["intent-log"]),
    ("manual", &["catalog", "mount"]),
    ("powercut", &["xdr"]),
];

/// Crates that do no I/O, and all that they may need from others.
const CORE: &[&str] = &[
    "xdr",
    "wire",
    "rpc",
    "vfs",
    "state",
    "recovery",
    "shares",
    "catalog",
    "intent-log",
    "engine",
    "sim",
];
const CORE_MAY_NEED: &[&str] = &[
    "arc-swap",
    "bitflags",
    "crc32c",
    "crossbeam-utils",
    "hashbrown",
    "indexmap",
    "parking_lot",
    "serde",
    "serde_json",
    "siphasher",
    "smallvec",
    "thiserror",
    "toml",
    "toml_edit",
    "twox-hash",
    "zerocopy",
    // From bytes to bytes: its readers and writers of streams are not used.
    "zstd",
];

pub(super) fn faults(metadata: &Value) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let packages = metadata["packages"].as_array().context("no packages in the metadata")?;
    // Packages with a source come from elsewhere.
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let name = short(package["name"].as_str().context("a package without a name")?);
        let Some(allowed) = row(MAY_NEED, name) else {
            faults.push(format!("{name}: not in the table of xtask/src/tidy/dependencies.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let needed = dependency["name"].as_str().context("a dependency without a name")?;
            let is_for_tests = dependency["kind"] == "dev";
            let is_ours = dependency["source"].is_null();
            faults.extend(fault(name, allowed, needed, is_ours, is_for_tests));
        }
    }
    Ok(faults)
}

fn fault(
    name: &str,
    allowed: &[&str],
    needed: &str,
    is_ours: bool,
    is_for_tests: bool,
) -> Option<String> {
    let needed = short(needed);
    if is_ours {
        let for_tests = row(TESTS_MAY_NEED, name).unwrap_or(&[]);
        let is_allowed = allowed.contains(&needed) || is_for_tests && for_tests.contains(&needed);
        return (!is_allowed).then(|| format!("{name} must not need {needed} (design: the house)"));
    }
    (is_core(name) && !is_for_tests && !CORE_MAY_NEED.contains(&needed))
        .then(|| format!("{name} is a core crate and must not need {needed}"))
}

/// The crates of ours that one may need, but for its tests.
pub(super) fn may_need(name: &str) -> &'static [&'static str] {
    row(MAY_NEED, name).unwrap_or(&[])
}

/// Whether a crate does no I/O.
pub(super) fn is_core(name: &str) -> bool {
    CORE.contains(&name)
}

/// A package's name without what all of ours begin with.
pub(super) fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn row<'a>(table: &[(&str, &'a [&'a str])], name: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(known, _)| *known == name).map(|(_, allowed)| *allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::faults;

    fn package(name: &str, needs: &[(&str, bool, Option<&str>)]) -> serde_json::Value {
        let dependencies: Vec<_> = needs
            .iter()
            .map(|(name, is_ours, kind)| {
                let source = if *is_ours { None } else { Some("registry") };
                json!({"name": name, "source": source, "kind": kind})
            })
            .collect();
        json!({"name": name, "source": null, "dependencies": dependencies})
    }

    fn found(package: &serde_json::Value) -> Vec<String> {
        faults(&json!({"packages": [package]})).expect("metadata")
    }

    #[test]
    fn arrows_point_downwards() {
        assert!(found(&package("steadfast-engine", &[("steadfast-vfs", true, None)])).is_empty());
        let up = package("steadfast-engine", &[("steadfast-posixfs", true, None)]);
        assert_eq!(found(&up).len(), 1);
        let up_in_tests = package("steadfast-engine", &[("steadfast-posixfs", true, Some("dev"))]);
        assert_eq!(found(&up_in_tests).len(), 1);
        let server = package("steadfast-client", &[("steadfast-engine", true, Some("dev"))]);
        assert_eq!(found(&server).len(), 1);
        let program = package("steadfast", &[("steadfast-engine", true, None)]);
        assert_eq!(found(&program).len(), 1);
    }

    #[test]
    fn core_crates_need_nothing_that_does_io() {
        assert_eq!(found(&package("steadfast-engine", &[("rustix", false, None)])).len(), 1);
        assert!(found(&package("steadfast-engine", &[("rustix", false, Some("dev"))])).is_empty());
        assert!(found(&package("steadfast-posixfs", &[("rustix", false, None)])).is_empty());
    }

    #[test]
    fn a_new_crate_has_to_be_entered() {
        assert_eq!(found(&package("steadfast-novelty", &[])).len(), 1);
    }
}
