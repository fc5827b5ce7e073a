//! Process ring: what README.md and docs/ tell to type is typed, each page on a machine of its own, which is made of
//! namespaces. CONTRIBUTING.md says how blocks of commands are marked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[path = "../common/mod.rs"]
mod common;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{output, stderr, utf8};
use page::{Block, Kind, Page};

/// For all blocks of a page.
const LIMIT_S: &str = "300";
/// Pages that are tried at a time: most of their time they wait.
const AT_A_TIME: usize = 3;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages() -> Vec<Page> {
    let repository = repository();
    let mut paths = vec![repository.join("README.md")];
    let listed = fs::read_dir(repository.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(listed.filter(|path| path.extension().is_some_and(|it| it == "md")));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = utf8(path.strip_prefix(&repository).unwrap()).to_owned();
        Page::parse(name, &fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// The man pages by their names without `.1`, as plain text.
fn manual() -> BTreeMap<String, String> {
    let place = tempfile::tempdir().unwrap();
    let written = output(&["man", utf8(place.path())]);
    assert!(written.status.success(), "{}", stderr(&written));
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().replace("\\-", "-");
        (utf8(Path::new(path.file_stem().unwrap())).to_owned(), text)
    };
    place.path().read_dir().unwrap().map(read).collect()
}

/// Whether a text has an option, and not as the beginning of another one.
fn has_word(text: &str, option: &str) -> bool {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.match_indices(option).any(|(at, _)| !text[at + option.len()..].starts_with(goes_on))
}

/// What is wrong with a command by what can be told without running it.
fn mistake(command: &str, manual: &BTreeMap<String, String>) -> Option<String> {
    let words: Vec<&str> = command
        .split([' ', '|', '[', ']', '=', '\'', '"'])
        .filter(|word| !word.is_empty())
        .collect();
    let words = words.strip_prefix(&["$"]).unwrap_or(&words);
    let name = match words.first() {
        Some(&"steadfast") => "steadfast".to_owned(),
        Some(&"cargo") if words.get(1) == Some(&"xtask") => {
            let known = fs::read_to_string(repository().join("xtask/src/main.rs")).unwrap();
            let name = format!("\"{}\"", words.get(2)?);
            return (!known.contains(&name)).then(|| format!("cargo xtask has no {name}"));
        }
        _ => return None,
    };
    let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let mut page = name;
    for word in words.iter().skip(1).take_while(is_name) {
        let longer = format!("{page}-{word}");
        if !manual.contains_key(&longer) {
            break;
        }
        page = longer;
    }
    if page == "steadfast" {
        return Some("there is no such command".to_owned());
    }
    let below = format!("{page}-");
    let of_command = |name: &&String| **name == page || name.starts_with(&below);
    let pages: Vec<_> = manual.keys().filter(of_command).map(|name| &manual[name]).collect();
    let options = words.iter().filter(|word| word.starts_with("--"));
    options
        .map(|option| option.trim_end_matches(['.', ',']))
        .find(|option| !pages.iter().any(|text| has_word(text, option)))
        .map(|option| format!("{page} has no {option}"))
}

#[test]
fn each_command_is_one_that_there_is() {
    let manual = manual();
    let mut count = 0;
    let mut mistakes = Vec::new();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.kind.has_commands()) {
            for command in block.commands() {
                count += 1;
                if let Some(mistake) = mistake(&command, &manual) {
                    mistakes.push(format!("{}:{}: {command}: {mistake}", page.name, block.line));
                }
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 120, "{count}");
    for wrong in ["steadfast shares", "steadfast share add --clien", "cargo xtask wrong"] {
        assert!(mistake(wrong, &manual).is_some(), "{wrong}");
    }
}

#[test]
fn each_block_says_what_it_is() {
    let mut unmarked = Vec::new();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.kind == Kind::Unknown) {
            unmarked.push(format!("{}:{}: ```{}", page.name, block.line, block.info));
        }
    }
    assert!(unmarked.is_empty(), "CONTRIBUTING.md has the words:\n{}", unmarked.join("\n"));
}

#[test]
fn what_is_told_to_be_typed_works() {
    let is_root = rustix::process::geteuid().is_root();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(is_root || !must, "CI must be root");
    if !is_root {
        println!("skipped: needs root");
        return;
    }
    let only = std::env::var("STEADFAST_PAGE").ok();
    let is_wanted = |page: &&Page| {
        only.as_ref().is_none_or(|only| page.name == *only) && page.blocks.iter().any(Block::is_run)
    };
    let pages = pages();
    let wanted: Vec<&Page> = pages.iter().filter(is_wanted).collect();
    assert!(wanted.len() > 5 || only.is_some() && wanted.len() == 1, "{} pages", wanted.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        while let Some(page) = wanted.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            failures.extend(try_page(page));
        }
        failures
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What a page's commands printed, if one failed.
fn try_page(page: &Page) -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let part = |name: &str| place.path().join(name);
    for directory in ["root", "disks", "commands"] {
        fs::create_dir(part(directory)).unwrap();
    }
    page.write(&part("commands"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documented/machine.sh");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after", "10", LIMIT_S, "unshare"])
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "bash"])
        .args([&script, &part("root"), &part("disks")])
        .arg(env!("CARGO_BIN_EXE_steadfast"))
        .args([&part("commands"), &repository()])
        .stdin(Stdio::null());
    let done = command.output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    if only_page() {
        println!("{printed}{}", stderr(&done));
    }
    let told = format!("{}: {}\n{printed}\n{}", page.name, done.status, stderr(&done));
    (!done.status.success()).then_some(told)
}

/// One page was asked for, by somebody who wants to see it.
fn only_page() -> bool {
    std::env::var_os("STEADFAST_PAGE").is_some()
}
