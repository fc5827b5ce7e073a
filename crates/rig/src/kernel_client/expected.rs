//! Expected failures: one file a server, a reason for each; a new pass counts like a new
//! failure, so that the files stay true.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::guest::Outcome;
use super::server;

/// Reads `tests/kernel-client/expected/SERVER.txt`, or `SERVER-VERSION.txt` for another version of NFS
/// than 3: lines `case: reason`, `#` for comments.
///
/// # Errors
/// When the file is missing, or a line has no reason.
pub(crate) fn read(
    root: &Path,
    server: server::Kind,
    nfs: &str,
) -> Result<BTreeMap<String, String>> {
    let version = if nfs == "3" { String::new() } else { format!("-{nfs}") };
    let path = root.join(format!("tests/kernel-client/expected/{server}{version}.txt"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

fn parse(text: &str) -> Result<BTreeMap<String, String>> {
    let mut expected = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(": ") {
            Some((name, reason)) if !reason.trim().is_empty() => {
                expected.insert(name.trim().to_owned(), reason.trim().to_owned());
            }
            _ => bail!("line {}: expected `case: reason`, found {line:?}", number + 1),
        }
    }
    Ok(expected)
}

/// What a run comes to.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Whether every case did what was expected of it.
    pub(crate) is_as_expected: bool,
    /// For people: the surprises, and the expected failures in one line each.
    pub(crate) report: String,
}

/// Compares what happened with what was expected.
pub(crate) fn judge(outcomes: &[Outcome], expected: &BTreeMap<String, String>) -> Verdict {
    let mut report = String::new();
    let mut is_as_expected = true;
    for outcome in outcomes {
        let line = match (&outcome.failure, expected.get(&outcome.name)) {
            (None, None) => continue,
            (Some(_), Some(reason)) => format!("expected failure {}: {reason}", outcome.name),
            (Some(failure), None) => {
                is_as_expected = false;
                // The whole of it was printed when the case ended.
                let short: String = failure.chars().take(300).collect();
                format!("NEW FAILURE {}: {short}", outcome.name)
            }
            (None, Some(reason)) => {
                is_as_expected = false;
                format!(
                    "NEW PASS {}: was expected to fail ({reason}); take its line out",
                    outcome.name
                )
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(report, "{line}");
    }
    Verdict { is_as_expected, report }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, failure: Option<&str>) -> Outcome {
        Outcome { name: name.to_owned(), failure: failure.map(str::to_owned), seconds: 0.0 }
    }

    #[test]
    fn new_failures_and_new_passes_both_count() {
        let expected = parse("# comment\n\nacl: answers EIO\n").unwrap();
        assert!(
            judge(&[outcome("acl", Some("EIO")), outcome("git", None)], &expected).is_as_expected
        );
        assert!(!judge(&[outcome("acl", None)], &expected).is_as_expected);
        assert!(!judge(&[outcome("git", Some("lost"))], &expected).is_as_expected);
    }

    #[test]
    fn a_failure_needs_a_reason() {
        assert!(parse("acl:\n").is_err());
        assert!(parse("acl\n").is_err());
    }
}
