//! What files are for: programs that stay thin, tests that name their ring.

use std::path::Path;

use anyhow::{Context, Result};

/// Sources with the most lines that they may have together, without their tests: what is logic belongs to a crate that
/// others can use, too.
const THIN: &[(&str, usize)] = &[("crates/cli/src", 5000), ("xtask/src", 3000)];

/// What a test may say of itself (CONTRIBUTING.md says what each means).
const RINGS: &[&str] = &["unit ring", "property ring", "simulation ring", "process ring"];

pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (place, most) in THIN {
        let mut lines = 0;
        for_each_source(&root.join(place), &mut |path, text| {
            let is_test = path.file_name().is_some_and(|name| name == "tests.rs");
            lines += if is_test { 0 } else { lines_without_tests(text) };
        })?;
        if lines == 0 {
            faults.push(format!("{place}: there is nothing to count: has it moved?"));
        } else if lines >= *most {
            faults.push(format!("{place}: {lines} lines without tests, less than {most} are due"));
        }
    }
    let mut tests = 0;
    for entry in entries(&root.join("crates"))? {
        for test in entries(&entry.join("tests"))? {
            let file = if test.is_dir() { test.join("main.rs") } else { test };
            if file.extension().is_some_and(|extension| extension == "rs") && file.is_file() {
                tests += 1;
                let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
                if !names_its_ring(&read(&file)?) {
                    faults.push(format!("{name}: its head names none of {}", RINGS.join(", ")));
                }
            }
        }
    }
    if tests == 0 {
        faults.push("crates: no test program was found: have they moved?".to_owned());
    }
    Ok(faults)
}

/// Whether the documentation at the head of a test says of which ring it is.
fn names_its_ring(text: &str) -> bool {
    let head = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let head = head.collect::<Vec<_>>().join(" ").to_lowercase();
    RINGS.iter().any(|ring| head.contains(ring))
}

/// Lines but for those of the file's module of tests.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_head = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", module] if module.starts_with("mod ") && module.ends_with('{'));
    let Some(first) = lines.windows(2).position(is_head) else { return lines.len() };
    let tests = lines.iter().skip(first).position(|line| *line == "}");
    tests.map_or(first, |length| lines.len() - length - 1)
}

fn for_each_source(directory: &Path, visit: &mut impl FnMut(&Path, &str)) -> Result<()> {
    for path in entries(directory)? {
        if path.is_dir() {
            for_each_source(&path, visit)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path, &read(&path)?);
        }
    }
    Ok(())
}

/// What is in a directory; nothing where there is none.
pub(super) fn entries(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let context = || format!("cannot read {}", directory.display());
    let entries = std::fs::read_dir(directory).with_context(context)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().with_context(context)?;
    paths.sort();
    Ok(paths)
}

pub(super) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_file_are_not_counted() {
        assert_eq!(lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nuse x;\nb\n"), 4);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nfn x() {\n}\nb\n"), 5);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests {\n    b\n}\nc\nd\n"), 3);
    }

    #[test]
    fn a_ring_stands_in_the_head() {
        assert!(names_its_ring("//! Process ring: the program.\n"));
        assert!(names_its_ring("//! A model,\n//! property\n//! ring.\n"));
        assert!(!names_its_ring("//! Tests.\n\n// Process ring\n"));
    }
}
