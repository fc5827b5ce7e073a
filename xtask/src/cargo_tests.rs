//! `cargo test` of the whole workspace: all of it whatever fails, and then which tests failed, how each
//! is run alone, and which could not run here.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use steadfast_rig::workspace;

/// What cargo says after a program of tests has failed, before the words that choose it.
const RERUN: &str = "to rerun pass `";
/// What a test prints that finds it cannot run here, before it says why.
const SKIPPED: &str = "skipped: ";
/// The package whose tests run the real program, and wait for what it does.
pub(crate) const PROGRAM: &str = "steadfast";
/// Loops that are busy beside them, each on a CPU.
const BUSY_LOOPS: usize = 2;

/// Runs the tests of all packages but the program's.
pub(crate) fn run() -> Result<()> {
    // What does not compile is told without the tests' own output around it.
    workspace::cargo(&["test", "--workspace", "--exclude", PROGRAM, "--no-run"])?;
    run_with(&["--workspace", "--exclude", PROGRAM])
}

/// Runs the tests of the program on a machine that is busy with other things, so that none depends on
/// having the CPUs for itself.
pub(crate) fn run_busy() -> Result<()> {
    workspace::cargo(&["test", "--package", PROGRAM, "--no-run"])?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..BUSY_LOOPS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = run_with(&["--package", PROGRAM]);
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Runs tests; everything that they print is passed on while it comes, but for what those that passed
/// have printed.
fn run_with(words: &[&str]) -> Result<()> {
    let (from, into) = std::io::pipe().context("no pipe for the tests' output")?;
    let mut tests = Command::new(workspace::cargo_program());
    tests
        .args([&["test"], words, &["--no-fail-fast", "--", "--show-output"]].concat())
        .current_dir(workspace::root()?)
        .stdin(Stdio::null())
        // One pipe for both keeps their order: cargo names a program, and the program its tests.
        .stdout(into.try_clone()?)
        .stderr(into);
    let mut child = tests.spawn().context("cannot run cargo test")?;
    // Holds the pipe's other end, so that reading would not end.
    drop(tests);
    let (mut failures, mut passed) = (Failures::default(), Passed::default());
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if !passed.has(text.trim_end()) {
            std::io::stdout().write_all(&line)?;
            failures.line(text.trim_end());
        }
        line.clear();
    }
    let status = child.wait()?;
    for skipped in &passed.skipped {
        println!("could not run here: {skipped}");
    }
    if !status.success() {
        let alone = failures.commands();
        if alone.is_empty() {
            bail!("cargo test ended with {status}, and no test is known to have failed");
        }
        bail!("{} failed; each alone:\n{}", alone.len(), alone.join("\n"));
    }
    if !passed.skipped.is_empty() && std::env::var_os("CI").is_some_and(|value| value == "true") {
        bail!("{} tests could not run here, and CI=true wants all", passed.skipped.len());
    }
    Ok(())
}

/// What tests that passed have printed: it follows the line `successes:`, a test after the other.
#[derive(Debug, Default)]
struct Passed {
    is_within: bool,
    test: String,
    /// Those that could not run, and why.
    skipped: Vec<String>,
}

impl Passed {
    /// Whether a line is of a test that has passed.
    fn has(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.is_within = true,
            "failures:" => self.is_within = false,
            _ if line.starts_with("test result: ") => self.is_within = false,
            _ => {}
        }
        if !self.is_within {
            return false;
        }
        let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(test) = heading {
            test.clone_into(&mut self.test);
        } else if let Some(why) = line.strip_prefix(SKIPPED) {
            let line = format!("{}: {why}", self.test);
            // A test may try several things.
            if self.skipped.last() != Some(&line) {
                self.skipped.push(line);
            }
        }
        true
    }
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
    fn what_passed_is_left_out_but_for_what_could_not_run() {
        let printed = "test good ... ok\nsuccesses:\n\n---- good stdout ----\n\
            skipped: needs root\nskipped: needs root\n---- other stdout ----\nnoise\n\
            skipped: needs a disk\nsuccesses:\n    good\n    other\n\
            failures:\n---- bad stdout ----\nskipped: no\ntest result: FAILED\n";
        let mut passed = Passed::default();
        let shown: Vec<&str> = printed.lines().filter(|line| !passed.has(line)).collect();
        assert_eq!(passed.skipped, ["good: needs root", "other: needs a disk"]);
        let wanted = [
            "test good ... ok",
            "failures:",
            "---- bad stdout ----",
            "skipped: no",
            "test result: FAILED",
        ];
        assert_eq!(shown, wanted);
    }

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
