//! Licences of everything that is linked: the list of deny.toml, checked also where cargo-deny
//! is not installed.

use anyhow::{Context, Result};
use serde_json::Value;

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(super) fn faults(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("no packages in the metadata")?;
    let mut faults = Vec::new();
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            let (name, version) = (&package["name"], &package["version"]);
            faults.push(format!("{name} {version} has the licence {licence:?}"));
        }
    }
    Ok(faults)
}

/// Whether an SPDX expression can be met with allowed licences.
fn is_allowed(expression: &str) -> bool {
    // Old packages write `MIT/Apache-2.0`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

/// `a OR b`
fn any(rest: &mut &[&str]) -> bool {
    let mut is_met = all(rest);
    while take(rest, "OR") {
        // Both sides have to be read, whatever the first says.
        is_met |= all(rest);
    }
    is_met
}

/// `a AND b`
fn all(rest: &mut &[&str]) -> bool {
    let mut is_met = one(rest);
    while take(rest, "AND") {
        is_met &= one(rest);
    }
    is_met
}

fn one(rest: &mut &[&str]) -> bool {
    if take(rest, "(") {
        let is_met = any(rest);
        return take(rest, ")") && is_met;
    }
    let Some((name, after)) = rest.split_first() else { return false };
    *rest = after;
    if take(rest, "WITH") {
        let Some((exception, after)) = rest.split_first() else { return false };
        *rest = after;
        return ALLOWED.contains(&format!("{name} WITH {exception}").as_str());
    }
    ALLOWED.contains(name)
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if *first == word => {
            *rest = after;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, is_allowed};

    #[test]
    fn expressions_are_evaluated() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(expression), "{expression}");
        }
        for expression in ["", "none", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT WITH x"] {
            assert!(!is_allowed(expression), "{expression}");
        }
    }

    #[test]
    fn the_list_is_that_of_deny_toml() {
        let text = include_str!("../../../deny.toml");
        for licence in ALLOWED {
            assert!(text.contains(&format!("\"{licence}\",")), "{licence}");
        }
        let listed = text.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
        let count = listed.map(|(list, _)| list.matches(',').count());
        assert_eq!(count, Some(ALLOWED.len()));
    }
}
