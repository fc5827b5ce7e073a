//! `exportfs`: the same shares by the kernel's own server, with the tools of nfs-utils.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use steadfast_catalog::exports;
use steadfast_shares::Share;

use super::command::{Limits, last_line, run};
use super::{Fault, Plugin, PluginShare, Task};

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
fn complaint(line: &str, shares: &[Arc<PluginShare>]) -> Fault {
    let is_said = |word: &str| line.split([':', ' ']).any(|said| said == word);
    let has = |share: &PluginShare| {
        let mut rules = share.share.rules.rules().iter();
        is_said(&share.status.directory) || rules.any(|rule| is_said(&rule.pattern.to_string()))
    };
    let why = last_line(line.as_bytes());
    let paths = shares.iter().filter(|share| has(share)).map(|share| share.status.path.clone());
    Fault { why, paths: paths.collect() }
}

/// The shares as exports(5) has them, and those that cannot be said there as they are: they are
/// left out, as the kernel's server might let in whom we do not.
pub fn exports_text(shares: &[Arc<PluginShare>]) -> (String, Vec<Fault>) {
    let mut text = String::from(
        "# Made by Steadfast, and made anew with every change: see `steadfast share list`.\n",
    );
    let mut faults = Vec::new();
    for PluginShare { status, share } in shares.iter().map(|share| &**share) {
        // As it is written, which may be a symbolic link to what is served. Its size its file system keeps, whoever writes.
        let share = Share { size: None, ..share.of_directory(Path::new(&status.directory)) };
        let exported = exports::export([&share]);
        if exported.warnings.is_empty() {
            text += &exported.text;
        }
        faults.extend(exported.warnings.into_iter().map(|(path, why)| Fault {
            why: format!("not shared by the kernel: {why}"),
            paths: vec![path],
        }));
    }
    (text, faults)
}
