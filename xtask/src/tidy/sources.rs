//! What sources may contain.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Longest source file, in lines.
const LINES_MAX: usize = 800;

/// Directories with sources of ours.
const PLACES: &[&str] = &["crates", "xtask", "tests", "fuzz"];
/// Directories that hold what is made or found, not written.
const NOT_OURS: &[&str] = &["target", "corpus", "artifacts", "golden"];

/// The only crate with unsafe code.
const UNSAFE_CRATE: &str = "crates/sys/";
/// Files beside it that read the kernel's own structures, which have the host's byte order.
const HOST_ORDER: &[&str] = &["crates/posixfs/src/mark_file.rs", "crates/posixfs/src/volume.rs"];
/// Crates that do no I/O, and words that would be I/O.
const CORE: &[&str] = &[
    "crates/xdr/src/",
    "crates/wire/src/",
    "crates/rpc/src/",
    "crates/vfs/src/",
    "crates/recovery/src/",
    "crates/shares/src/",
    "crates/catalog/src/",
    "crates/intent-log/src/",
    "crates/engine/src/",
];
const IO_WORDS: &[&str] = &[
    "std::fs",
    "std::thread",
    "std::env",
    "std::process",
    "Instant::now",
    "SystemTime",
    "TcpStream",
    "UdpSocket",
    "println!",
];

pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for place in PLACES {
        let directory = root.join(place);
        if directory.is_dir() {
            visit(root, &directory, &mut faults)?;
        }
    }
    faults.sort();
    Ok(faults)
}

fn visit(root: &Path, directory: &Path, faults: &mut Vec<String>) -> Result<()> {
    let context = || format!("cannot read {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(context)? {
        let path: PathBuf = entry.with_context(context)?.path();
        if path.is_dir() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !NOT_OURS.contains(&name) {
                visit(root, &path, faults)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "sh") {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            check(&name, &text, faults);
        }
    }
    Ok(())
}

fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    let length = text.lines().count();
    if length > LINES_MAX {
        faults.push(format!("{name}: {length} lines, the most is {LINES_MAX}: split it"));
    }
    let is_crate_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
    if is_crate_root && !name.starts_with(UNSAFE_CRATE) {
        let forbids = text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
        // Fuzz targets have what their harness needs.
        if !forbids && !name.starts_with("fuzz/") {
            faults.push(format!("{name}: lacks #![forbid(unsafe_code)]"));
        }
    }
    // This file names what it looks for.
    if name == "xtask/src/tidy/sources.rs" {
        return;
    }
    let is_core = CORE.iter().any(|place| name.starts_with(place));
    let mut is_test = name.contains("/tests") || name.ends_with("tests.rs");
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let mut fault = |what: &str| faults.push(format!("{name}:{}: {what}", index + 1));
        is_test |= line.trim() == "#[cfg(test)]";
        if ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "dbg!("]
            .iter()
            .any(|word| has_word(line, word))
        {
            fault("unfinished");
        }
        let is_unsafe_crate = name.starts_with(UNSAFE_CRATE);
        let has_host_order = is_unsafe_crate || HOST_ORDER.contains(&name);
        if !has_host_order && line.contains("_ne_bytes(") {
            fault("the host's byte order has no place in formats");
        }
        if is_unsafe_crate && opens_unsafe(line) && !is_justified(&lines, index) {
            fault("unsafe without SAFETY:");
        }
        if is_core && !is_test {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = IO_WORDS.iter().find(|word| code.contains(**word)) {
                fault(&format!("{word} in a core crate"));
            }
        }
    }
}

/// Whether the word stands in the line and not within another.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_letter) && (word.ends_with('(') || !after.is_some_and(is_letter))
    })
}

fn opens_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    has_word(code, "unsafe {") || code.trim_start().starts_with("unsafe impl")
}

/// Whether a `SAFETY:` comment stands in the block of lines above, or on the line.
fn is_justified(lines: &[&str], index: usize) -> bool {
    const ABOVE_MAX: usize = 8;
    let start = index.saturating_sub(ABOVE_MAX);
    lines.get(start..=index).into_iter().flatten().any(|line| line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::check;

    fn faults(name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(name, text, &mut faults);
        faults
    }

    #[test]
    fn files_are_bounded() {
        assert!(faults("crates/x/src/a.rs", &"\n".repeat(800)).is_empty());
        assert_eq!(faults("crates/x/src/a.rs", &"\n".repeat(801)).len(), 1);
    }

    #[test]
    fn unsafe_code_is_forbidden_but_in_one_crate() {
        assert_eq!(faults("crates/x/src/lib.rs", "").len(), 1);
        assert!(faults("crates/x/src/lib.rs", "#![forbid(unsafe_code)]").is_empty());
        assert!(faults("crates/sys/src/lib.rs", "").is_empty());
        let block = "let x = unsafe { f() };";
        assert_eq!(faults("crates/sys/src/a.rs", block).len(), 1);
        assert!(faults("crates/sys/src/a.rs", &format!("// SAFETY: so\n{block}")).is_empty());
    }

    #[test]
    fn core_crates_do_no_io_outside_tests() {
        let line = "let now = Instant::now();";
        assert_eq!(faults("crates/engine/src/a.rs", line).len(), 1);
        assert!(faults("crates/engine/src/a.rs", &format!("#[cfg(test)]\n{line}")).is_empty());
        assert!(faults("crates/runtime/src/a.rs", line).is_empty());
    }

    #[test]
    fn unfinished_things_are_found() {
        let mark = ["TO", "DO"].concat();
        assert_eq!(faults("crates/x/src/a.rs", &format!("// {mark}: later")).len(), 1);
        assert!(faults("crates/x/src/a.rs", &format!("// {mark}S and MAS{mark}N")).is_empty());
        assert_eq!(faults("crates/x/src/a.rs", "let y = u32::from_ne_bytes(x);").len(), 1);
    }
}
