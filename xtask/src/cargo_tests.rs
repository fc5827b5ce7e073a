//! `cargo test` of the whole workspace: all of it whatever fails, and then which tests failed and how
//! each is run alone.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tidy;

/// What cargo says after a program of tests has failed, before the words that choose it.
const RERUN: &str = "to rerun pass `";

/// Runs the tests; everything that they print is passed on while it comes.
pub(crate) fn run() -> Result<()> {
    // What does not compile is told without the tests' own output around it.
    tidy::cargo(&["test", "--workspace", "--no-run"])?;
    let (from, into) = std::io::pipe().context("no pipe for the tests' output")?;
    let mut tests = Command::new(tidy::cargo_program());
    tests
        .args(["test", "--workspace", "--no-fail-fast"])
        .current_dir(tidy::workspace_root()?)
        .stdin(Stdio::null())
        // One pipe for both keeps their order: cargo names a program, and the program its tests.
        .stdout(into.try_clone()?)
        .stderr(into);
    let mut child = tests.spawn().context("cannot run cargo test")?;
    // Holds the pipe's other end, so that reading would not end.
    drop(tests);
    let mut failures = Failures::default();
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        failures.line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    let alone = failures.commands();
    if alone.is_empty() {
        bail!("cargo test ended with {status}, and no test is known to have failed");
    }
    bail!("{} failed; each alone:\n{}", alone.len(), alone.join("\n"))
}

/// Which tests failed, by what cargo and the tests print.
#[derive(Debug, Default)]
struct Failures {
    /// Of the program that runs.
    current: Vec<String>,
    /// The words that choose a program, and its tests that failed.
    programs: Vec<(String, Vec<String>)>,
}

impl Failures {
    fn line(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"));
        if let Some(test) = failed {
            self.current.push(test.to_owned());
        }
        let words = line.split_once(RERUN).and_then(|(_, rest)| rest.split_once('`'));
        if let Some((words, _)) = words {
            self.programs.push((words.to_owned(), std::mem::take(&mut self.current)));
        }
    }

    /// The commands that run what failed, one a test; one a program that ended without saying which.
    fn commands(&self) -> Vec<String> {
        let of_program = |(words, tests): &(String, Vec<String>)| {
            if tests.is_empty() {
                return vec![format!("  cargo test {words}")];
            }
            let alone = |test: &String| {
                // The name of a documentation test has blanks and a line's number, which changes.
                let by = if words.contains("--doc") { " #" } else { "-- --exact" };
                format!("  cargo test {words} {by} {test}")
            };
            tests.iter().map(alone).collect()
        };
        self.programs.iter().flat_map(of_program).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_that_failed_has_a_command() {
        let printed = "     Running unittests src/lib.rs (target/debug/deps/a-1)\n\
            test good ... ok\n\
            test exports::tests::bad ... FAILED\n\
            test worse ... FAILED\n\
            test result: FAILED. 1 passed; 2 failed\n\
            error: test failed, to rerun pass `-p a --lib`\n\
            test fine ... ok\n\
            error: test failed, to rerun pass `-p a --test killed`\n\
            test src/lib.rs - thing (line 3) ... FAILED\n\
            error: doctest failed, to rerun pass `-p b --doc`\n\
            error: 3 targets failed:\n    `-p a --lib`\n";
        let mut failures = Failures::default();
        printed.lines().for_each(|line| failures.line(line));
        assert_eq!(
            failures.commands(),
            [
                "  cargo test -p a --lib -- --exact exports::tests::bad",
                "  cargo test -p a --lib -- --exact worse",
                "  cargo test -p a --test killed",
                "  cargo test -p b --doc  # src/lib.rs - thing (line 3)",
            ]
        );
    }
}
