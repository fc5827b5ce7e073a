//! `cargo test` of the whole workspace: all of it whatever fails, and then which tests failed, how each
//! is run alone, and which could not run here.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
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
/// So many tests that failed on a busy machine are run once more: with more of them it is not the machine.
const AGAIN_MAX: usize = 3;
/// In the names of programs whose tests show that nothing is lost or forgotten, and of such tests: what fails there
/// once is a fault, however seldom.
const NEVER_AGAIN: [&str; 14] = [
    "crash",
    "fault",
    "ganesha",
    "held",
    "intent_log",
    "journal",
    "kept",
    "kill",
    "knfsd",
    "lose",
    "lost",
    "reclaim",
    "recover",
    "replay",
];

/// Runs the tests of all packages but the program's.
pub(crate) fn run() -> Result<()> {
    // What does not compile is told without the tests' own output around it.
    workspace::cargo(&["test", "--workspace", "--exclude", PROGRAM, "--no-run"])?;
    run_with(&["--workspace", "--exclude", PROGRAM], &[])?.outcome()
}

/// Runs the tests of the program on a machine that is busy with other things, so that none depends on
/// having the CPUs for itself. The few that fail there are run once more, alone, and told of either way.
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
        let outcome = run_with(&["--package", PROGRAM], &[]);
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
    .and_then(run_again)
}

/// Runs once more what may have failed by the machine alone.
fn run_again(mut outcome: Outcome) -> Result<()> {
    for (program, test) in outcome.failures.may_pass_alone() {
        println!("== once more, alone: {test}");
        let words: Vec<&str> = program.split_whitespace().collect();
        if run_with(&words, &["--exact", &test]).and_then(Outcome::outcome).is_ok() {
            println!("NOT STEADY: failed on a busy machine, and passed alone: {test} of {program}");
            outcome.failures.forget(&program, &test);
        }
    }
    outcome.outcome()
}

/// What came of a run.
struct Outcome {
    failures: Failures,
    passed: Passed,
    status: ExitStatus,
}

/// Runs tests; everything that they print is passed on while it comes, but for what those that passed
/// have printed.
fn run_with(words: &[&str], of_tests: &[&str]) -> Result<Outcome> {
    let (from, into) = std::io::pipe().context("no pipe for the tests' output")?;
    let mut tests = Command::new(workspace::cargo_program());
    tests
        .args([&["test"], words, &["--no-fail-fast", "--", "--show-output"], of_tests].concat())
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
    Ok(Outcome { failures, passed, status })
}

impl Outcome {
    fn outcome(self) -> Result<()> {
        let Self { failures, passed, status } = self;
        let alone = failures.commands();
        if !alone.is_empty() {
            bail!("{} failed; each alone:\n{}", alone.len(), alone.join("\n"));
        }
        if !status.success() && !failures.were_run_again {
            bail!("cargo test ended with {status}, and no test is known to have failed");
        }
        if !passed.skipped.is_empty() && std::env::var_os("CI").is_some_and(|value| value == "true")
        {
            bail!("{} tests could not run here, and CI=true wants all", passed.skipped.len());
        }
        Ok(())
    }
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
    /// Whether some failed first and passed then.
    were_run_again: bool,
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

    /// The tests that are run once more, each after the words that choose its program: none if there are many, or one
    /// of them shows a fault whatever the machine does.
    fn may_pass_alone(&self) -> Vec<(String, String)> {
        let of_program = |(program, tests): &(String, Vec<String>)| {
            tests.iter().map(|test| (program.clone(), test.clone())).collect::<Vec<_>>()
        };
        let tests: Vec<_> = self.programs.iter().flat_map(of_program).collect();
        let ended_otherwise = self.programs.iter().any(|(_, tests)| tests.is_empty());
        let is_fault = |(program, test): &(String, String)| {
            NEVER_AGAIN.iter().any(|word| program.contains(word) || test.contains(word))
        };
        if ended_otherwise || tests.len() > AGAIN_MAX || tests.iter().any(is_fault) {
            return Vec::new();
        }
        tests
    }

    /// Forgets a test, which has passed since.
    fn forget(&mut self, program: &str, test: &str) {
        self.were_run_again = true;
        for (words, tests) in &mut self.programs {
            if words == program {
                tests.retain(|known| known != test);
            }
        }
        self.programs.retain(|(_, tests)| !tests.is_empty());
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

    #[test]
    fn few_tests_are_run_once_more_and_none_that_shows_a_loss() {
        let failures = |programs: &[(&str, &[&str])]| Failures {
            programs: programs
                .iter()
                .map(|(words, tests)| {
                    ((*words).to_owned(), tests.iter().map(|test| (*test).to_owned()).collect())
                })
                .collect(),
            ..Failures::default()
        };
        let again = |programs: &[(&str, &[&str])]| failures(programs).may_pass_alone().len();
        assert_eq!(
            again(&[("-p a --test shares", &["one", "two"]), ("-p a --test top", &["t"])]),
            3
        );
        assert_eq!(again(&[("-p a --test shares", &["one", "two", "three", "four"])]), 0);
        assert_eq!(again(&[("-p a --test share_sizes_crashes", &["one"])]), 0);
        assert_eq!(again(&[("-p a --test shares", &["one", "nothing_is_lost"])]), 0);
        // One that ended without saying which.
        assert_eq!(again(&[("-p a --test shares", &["one"]), ("-p a --test top", &[])]), 0);

        let mut failures = failures(&[("-p a --test shares", &["one", "two"])]);
        failures.forget("-p a --test shares", "two");
        assert_eq!(failures.commands(), ["  cargo test -p a --test shares -- --exact one"]);
        failures.forget("-p a --test shares", "one");
        assert!(failures.commands().is_empty() && failures.were_run_again);
    }
}
