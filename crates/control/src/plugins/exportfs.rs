//! `exportfs`: the same shares by the kernel's own server, with the tools of nfs-utils.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use super::command::{Limits, last_line, run};
use super::{Fault, Plugin, Task};
use crate::api::ShareStatus;

/// Words of ours that the kernel's server has too, or that say what it does.
const KNOWN: [&str; 18] = [
    "rw",
    "ro",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "crossmnt",
    "nohide",
    "hide",
    "secure",
    "insecure",
    "sync",
    "no_subtree_check",
    "subtree_check",
    "wdelay",
    "no_wdelay",
    "no_acl",
    "pnfs",
];
/// Those with a value.
const KNOWN_VALUES: [&str; 4] = ["anonuid=", "anongid=", "sec=", "fsid="];
/// Words that say what is so there anyway.
const SAID_ALREADY: [&str; 2] = ["nocrossmnt", "no_manage_gids"];

/// Writes a file of `exports.d` and has it read.
#[derive(Clone, Debug)]
pub struct Exportfs {
    file: PathBuf,
    /// `exportfs`, and what is said to it.
    command: Vec<String>,
    limits: Limits,
    is_loaded: bool,
}

impl Exportfs {
    /// One that writes to this file, which is in `exports.d` unless `command` knows another place.
    pub fn new(file: PathBuf, command: Option<Vec<String>>, limits: Limits) -> Self {
        let command = command.unwrap_or_else(|| vec!["exportfs".to_owned(), "-ra".to_owned()]);
        Self { file, command, limits, is_loaded: false }
    }
}

impl Plugin for Exportfs {
    fn name(&self) -> &'static str {
        "exportfs"
    }

    fn publish(&mut self, task: &Task<'_>) -> Result<(), Vec<Fault>> {
        let (text, mut faults) = exports_text(task.shares);
        let failed = |why: String| vec![Fault::new(why)];
        let is_there = std::fs::read_to_string(&self.file).is_ok_and(|there| there == text);
        if !is_there {
            self.is_loaded = false;
            // exportfs reads files that end in .exports only.
            let mut new = self.file.as_os_str().to_owned();
            new.push(".new");
            std::fs::write(&new, &text)
                .and_then(|()| std::fs::rename(&new, &self.file))
                .map_err(|e| failed(format!("{} cannot be written: {e}", self.file.display())))?;
        }
        if !self.is_loaded {
            let Some((program, arguments)) = self.command.split_first() else {
                return Err(failed("it has no command".to_owned()));
            };
            let mut command = Command::new(program);
            command.args(arguments);
            let said = run(&mut command, Vec::new(), self.limits)
                .map_err(|error| failed(error.to_string()))?;
            // It succeeds, too, when it leaves something out.
            for line in String::from_utf8_lossy(&said.stderr).lines() {
                let fault = complaint(line, task.shares);
                if !line.trim().is_empty() && !faults.contains(&fault) {
                    faults.push(fault);
                }
            }
            self.is_loaded = faults.is_empty();
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// What exportfs complains about, and the shares that have it.
fn complaint(line: &str, shares: &[Arc<ShareStatus>]) -> Fault {
    let is_said = |word: &str| line.split([':', ' ']).any(|said| said == word);
    let has = |share: &ShareStatus| {
        let rules = share.rules.iter().flat_map(|rule| &rule.clients);
        is_said(&share.directory) || rules.chain(&share.clients).any(|one| is_said(one))
    };
    let why = last_line(line.as_bytes());
    let paths = shares.iter().filter(|share| has(share)).map(|share| share.path.clone());
    Fault { why, paths: paths.collect() }
}

/// The shares as exports(5) has them, and what cannot be said there.
pub fn exports_text(shares: &[Arc<ShareStatus>]) -> (String, Vec<Fault>) {
    let mut text = String::from(
        "# Made by Steadfast, and made anew with every change: see `steadfast share list`.\n",
    );
    let mut faults = Vec::new();
    for share in shares {
        match line(share) {
            Ok(line) => text += &line,
            Err(why) => faults.push(Fault { why, paths: vec![share.path.clone()] }),
        }
    }
    (text, faults)
}

fn line(share: &ShareStatus) -> Result<String, String> {
    if share.directory != share.path {
        return Err(format!(
            "the kernel's server serves a directory under its own path only, and this one is {:?}",
            share.directory
        ));
    }
    let mut line = escaped(&share.path);
    let rules = share.rules.iter().map(|rule| (&rule.clients, &rule.options));
    for (clients, options) in rules.chain([(&share.clients, &share.options)]) {
        let options = words(options)?;
        for client in clients {
            let _ = write!(line, " {}({options})", escaped(client));
        }
    }
    line.push('\n');
    Ok(line)
}

/// Option words as exports(5) has them, with what is the default here and not there.
fn words(options: &[String]) -> Result<String, String> {
    let mut words: Vec<&str> = Vec::new();
    for word in options {
        if SAID_ALREADY.contains(&word.as_str()) {
            continue;
        }
        let is_known = KNOWN.contains(&word.as_str())
            || KNOWN_VALUES.iter().any(|known| word.starts_with(known));
        if !is_known {
            return Err(format!("the kernel's server has no option {word:?}"));
        }
        words.push(word);
    }
    let has = |a: &str, b: &str| words.iter().any(|word| *word == a || *word == b);
    let defaults: Vec<&str> = [
        (has("ro", "rw"), "rw"),
        (has("sync", "async"), "sync"),
        (has("secure", "insecure"), "insecure"),
        (has("subtree_check", "no_subtree_check"), "no_subtree_check"),
    ]
    .iter()
    .filter(|(is_said, _)| !is_said)
    .map(|(_, word)| *word)
    .collect();
    words.extend(defaults);
    Ok(words.join(","))
}

/// Blanks and what else means something there, in octal.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_control() || " \\\"#()".contains(character) {
            // Writing to a string does not fail.
            let _ = write!(escaped, "\\{:03o}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}
