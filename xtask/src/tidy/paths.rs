//! Sources that documents name.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::shape::read;

/// What stands for the name of something that is yet to be written.
const PLACEHOLDER: &str = "LOAD";

/// Where documents name a source that does not exist, or a line of one: lines move, names of functions stay.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let files = tracked_files(root)?;
    let mut faults = Vec::new();
    for document in files.iter().filter(|file| has_extension(file, "md")) {
        let text = read(&root.join(document))?;
        faults.extend(differences(&text, &files).map(|fault| format!("{document}:{fault}")));
    }
    Ok(faults)
}

fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    // Of one that is removed and not committed yet only the name is left.
    Ok(names.filter(|name| root.join(name).exists()).collect())
}

fn has_extension(file: &str, wanted: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == wanted)
}

/// Faults of a document, each with its line.
fn differences<'text>(
    text: &'text str,
    files: &'text [String],
) -> impl Iterator<Item = String> + 'text {
    text.lines().zip(1..).flat_map(move |(line, number)| {
        let quoted = line.split('`').skip(1).step_by(2);
        quoted.filter_map(move |name| Some(format!("{number}: {}", fault_of(name, files)?)))
    })
}

/// What is wrong with a name in code's letters, if it is that of a source.
fn fault_of(name: &str, files: &[String]) -> Option<String> {
    // Behind the source a function may be named: `tidy.rs::run`.
    let (file, line) = match name.find(".rs:") {
        None => (name, ""),
        Some(dot) => {
            let (file, behind) = name.split_at(dot + ".rs".len());
            (file, behind.trim_start_matches(':'))
        }
    };
    if line.starts_with(|digit: char| digit.is_ascii_digit()) {
        return Some(format!("{file} is named by a line, which moves: name a function"));
    }
    let is_source = has_extension(file, "rs") && !file.contains([' ', '*', '…']);
    if !is_source || file.contains(PLACEHOLDER) {
        return None;
    }
    let is_it = |known: &String| {
        known.strip_suffix(file).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    (!files.iter().any(is_it)).then(|| format!("there is no source {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources_end_the_path_of_one() {
        let files = ["crates/wire/src/nfs4.rs", "xtask/src/tidy.rs"].map(str::to_owned);
        let text = "`wire/src/nfs4.rs`, `nfs4.rs`\nand `fs4.rs`, `a b.rs`, `bench/src/LOAD.rs` `x`\n`tidy.rs:12` here\n`tidy.rs::run`, `nfs4.rs:read`, `idy.rs::run`, `fs4.rs:read`";
        let found: Vec<String> = differences(text, &files).collect();
        assert_eq!(
            found,
            [
                "2: there is no source fs4.rs",
                "3: tidy.rs is named by a line, which moves: name a function",
                "4: there is no source idy.rs",
                "4: there is no source fs4.rs"
            ]
        );
    }
}
