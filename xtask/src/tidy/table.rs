//! The table of crates at the head of ARCHITECTURE.md.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::dependencies::{is_core, may_need, short};
use super::shape::read;

const DOCUMENT: &str = "ARCHITECTURE.md";
const CORE_BAND: &str = "core";
/// Each with whether crates that do no I/O may stand there.
const BANDS: &[(&str, bool)] =
    &[(CORE_BAND, true), ("Linux", false), ("programs", false), ("tests", true)];
/// Crates with a workspace of their own, which the metadata do not have.
const APART: &[&str] = &["fuzz"];

/// A crate of the workspace: its package's short name, and its directory, below `crates` if it is there.
struct Crate {
    package: String,
    place: String,
}

/// A crate as the table has it.
struct Row<'text> {
    band: &'text str,
    place: &'text str,
    /// The crate before it in the same line, if an arrow leads from there.
    arrow_from: Option<&'text str>,
}

/// Where the table differs from the workspace and from what crates may need.
pub(super) fn faults(root: &Path, metadata: &Value) -> Result<Vec<String>> {
    let crates = crates(metadata)?;
    let text = read(&root.join(DOCUMENT))?;
    let differences = differences(&text, &crates).into_iter();
    Ok(differences.map(|fault| format!("{DOCUMENT}, table of crates: {fault}")).collect())
}

fn crates(metadata: &Value) -> Result<Vec<Crate>> {
    let root = metadata["workspace_root"].as_str().context("no workspace in the metadata")?;
    let apart = APART.iter().map(|name| (*name).to_owned());
    let mut crates: Vec<Crate> =
        apart.map(|name| Crate { package: name.clone(), place: name }).collect();
    let packages = metadata["packages"].as_array().context("no packages in the metadata")?;
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().context("a package without a name")?;
        let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
        let directory = Path::new(manifest).parent().context("a manifest without a directory")?;
        let place = directory.strip_prefix(root).context("a package outside the workspace")?;
        let place = place.strip_prefix("crates").unwrap_or(place).display().to_string();
        crates.push(Crate { package: short(name).to_owned(), place });
    }
    Ok(crates)
}

fn differences(text: &str, crates: &[Crate]) -> Vec<String> {
    let rows = rows(text);
    let mut faults = Vec::new();
    for Crate { place, .. } in crates {
        match rows.iter().filter(|row| row.place == place).count() {
            0 => faults.push(format!("{place} is missing")),
            1 => {}
            times => faults.push(format!("{place} stands there {times} times")),
        }
    }
    let package = |place: &str| {
        let found = crates.iter().find(|known| known.place == place);
        found.map(|found| found.package.as_str())
    };
    let mut above = Vec::new();
    for Row { band, place, arrow_from } in rows {
        let Some(name) = package(place) else {
            faults.push(format!("{place} is no crate of the workspace"));
            continue;
        };
        let needs = may_need(name);
        match BANDS.iter().find(|(known, _)| *known == band) {
            None => faults.push(format!("{place} stands in {band:?}, which is no band")),
            Some((_, false)) if is_core(name) => {
                faults.push(format!("{place} does no I/O and stands in the band {band}"));
            }
            Some((CORE_BAND, _)) if !is_core(name) => {
                faults.push(format!("{place} stands in the band {band} and may do I/O"));
            }
            Some(_) => {}
        }
        let is_below = |needed: &&&str| !above.contains(*needed);
        let below = needs.iter().filter(is_below);
        faults
            .extend(below.map(|below| format!("{place} may need {below}, which is not above it")));
        if let Some(from) = arrow_from
            && !package(from).is_some_and(|from| needs.contains(&from))
        {
            faults.push(format!("an arrow leads from {from} to {place}, which must not need it"));
        }
        above.push(name);
    }
    faults
}

/// The crates of the document's first block: in each line the band, if another begins, the crates, and what they are.
fn rows(text: &str) -> Vec<Row<'_>> {
    let block = text.split("```").nth(1).unwrap_or_default();
    let mut rows = Vec::new();
    let mut band = "";
    // What follows the opening ticks in their line is the block's kind.
    for line in block.lines().skip(1) {
        let mut columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
        if !line.starts_with(' ')
            && let Some(first) = columns.next()
            // A remark about the band that began above.
            && !first.starts_with('(')
        {
            band = first;
        }
        let crates = columns.next().unwrap_or_default();
        for list in crates.split(',') {
            let mut arrow_from = None;
            for place in list.split('→').map(str::trim).filter(|place| !place.is_empty()) {
                rows.push(Row { band, place, arrow_from });
                arrow_from = Some(place);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: &str = "# Title\n\n```text\n\
        core       xdr → wire → rpc     messages\n\
        (no I/O)   vfs                  words\n\
        Linux      sys                  system calls\n\
        programs   client               a client\n\
        tests      tests/powercut       power cuts\n           \
                   fuzz                 targets\n```\n\n```\nother  nothing  here\n```\n";

    fn found(text: &str) -> Vec<String> {
        let package = |name: &str, place: &str| {
            let manifest = format!("/house/{place}/Cargo.toml");
            json!({"name": name, "source": null, "manifest_path": manifest})
        };
        let packages = [
            package("steadfast-xdr", "crates/xdr"),
            package("steadfast-wire", "crates/wire"),
            package("steadfast-rpc", "crates/rpc"),
            package("steadfast-vfs", "crates/vfs"),
            package("steadfast-sys", "crates/sys"),
            package("steadfast-client", "crates/client"),
            package("steadfast-powercut", "tests/powercut"),
            json!({"name": "serde", "source": "registry", "manifest_path": "/else/Cargo.toml"}),
        ];
        let metadata = json!({"workspace_root": "/house", "packages": packages});
        differences(text, &crates(&metadata).expect("metadata"))
    }

    #[test]
    fn a_table_that_has_each_crate_once_is_right() {
        assert_eq!(found(TABLE), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_is_missing_unknown_or_there_twice_is_found() {
        let missing = TABLE.replace("(no I/O)   vfs                  words\n", "");
        assert_eq!(found(&missing), ["vfs is missing"]);
        let unknown = TABLE.replace("vfs ", "vfs, novelty ");
        assert_eq!(found(&unknown), ["novelty is no crate of the workspace"]);
        let doubled = TABLE.replace("client ", "client, sys ");
        assert_eq!(found(&doubled), ["sys stands there 2 times"]);
        assert_eq!(found("no table").len(), 8);
    }

    #[test]
    fn a_crate_in_the_wrong_band_is_found() {
        let core_in_linux = TABLE.replace("(no I/O)   vfs                  words\n", "");
        let core_in_linux = core_in_linux.replace("sys ", "sys, vfs ");
        assert_eq!(found(&core_in_linux), ["vfs does no I/O and stands in the band Linux"]);
        let io_in_core = TABLE.replace("Linux      sys", "(no I/O)   sys");
        assert_eq!(found(&io_in_core), ["sys stands in the band core and may do I/O"]);
        let misspelt = TABLE.replace("programs ", "program  ");
        assert_eq!(found(&misspelt), ["client stands in \"program\", which is no band"]);
    }

    #[test]
    fn a_crate_stands_below_those_that_it_may_need() {
        let turned = TABLE.replace("xdr → wire → rpc", "rpc, xdr → wire");
        let expected =
            ["rpc may need xdr, which is not above it", "rpc may need wire, which is not above it"];
        assert_eq!(found(&turned), expected);
    }

    #[test]
    fn an_arrow_leads_to_a_crate_that_may_need_the_other() {
        let wrong = TABLE.replace("xdr → wire → rpc", "xdr → wire → rpc → vfs");
        let wrong = wrong.replace("(no I/O)   vfs                  words\n", "");
        assert_eq!(found(&wrong), ["an arrow leads from rpc to vfs, which must not need it"]);
    }
}
