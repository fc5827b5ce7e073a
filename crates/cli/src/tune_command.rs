//! `steadfast tune`: settings of the kernel for NFS. [`steadfast_observe::tune`] has the table and changes
//! them; here are the arguments and the printing.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use steadfast_control::plain;
use steadfast_observe::Machine;
use steadfast_observe::tune::{
    self, Change, Choice, Outcome, RECORD, SYSCTL_FILE, SettingState, SettingStatus,
};

use crate::output::print_plain;

#[derive(Debug, Args)]
pub(crate) struct TuneArguments {
    /// Change these settings (as sysctl(8) names them) if they are worse than proposed.
    #[arg(value_name = "KEY", conflicts_with_all = ["all", "undo", "list"])]
    keys: Vec<String>,
    /// Tell all settings: what each is, what it should be, and why. What is done without arguments.
    #[arg(long, conflicts_with_all = ["all", "undo"])]
    list: bool,
    /// Change all settings that are worse than proposed.
    #[arg(long, conflicts_with = "undo")]
    all: bool,
    /// Put back what was changed.
    #[arg(long)]
    undo: bool,
    /// Tell what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// For programs: one line of JSON.
    #[arg(long)]
    json: bool,
    /// Take the files below this directory for those of the machine: its proc/sys, etc and var.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Does what was asked for.
///
/// # Errors
/// What is in the way.
pub(crate) fn run(arguments: &TuneArguments) -> Result<()> {
    let machine = Machine::at(&arguments.root);
    if arguments.undo {
        let undone = tune::undo(&machine, arguments.dry_run)?;
        let nothing = "nothing was changed by `steadfast tune`\n";
        tell(arguments, &undone, || {
            let mut text = changes(&undone.changes, nothing);
            if undone.is_file_left {
                let _ = writeln!(
                    text,
                    "{SYSCTL_FILE} is not as `steadfast tune` wrote it, and stays: the machine sets it again when \
                     it is started"
                );
            }
            text
        })?;
        if !undone.is_complete() {
            bail!("not all settings were put back; {RECORD} keeps what they were");
        }
        return Ok(());
    }
    let choice = match (arguments.all, arguments.keys.as_slice()) {
        (true, _) => Choice::All,
        (false, []) => {
            let states = tune::states(&machine);
            return tell(arguments, &states, || list(&states));
        }
        (false, keys) => Choice::Keys(keys.to_vec()),
    };
    let applied = tune::apply(&machine, &choice, arguments.dry_run)?;
    let is_changed = applied.changes.iter().any(|change| change.outcome == Outcome::Changed);
    tell(arguments, &applied, || {
        let mut text = changes(&applied.changes, "no settings\n");
        if is_changed {
            let _ = writeln!(
                text,
                "{SYSCTL_FILE} sets them when the machine is started; `steadfast tune --undo` puts them back"
            );
        }
        text
    })?;
    if !applied.is_complete() {
        bail!("not all settings could be changed");
    }
    Ok(())
}

fn tell(
    arguments: &TuneArguments,
    told: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<()> {
    let text = if arguments.json { plain::json(told)? + "\n" } else { text() };
    print_plain(&text)
}

/// What has tabs in it (`tcp_rmem`), with blanks.
fn one_line(value: Option<&String>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| value.split_whitespace().collect::<Vec<_>>().join(" "),
    )
}

fn list(states: &[SettingState]) -> String {
    let mut text = String::new();
    for state in states {
        let status = match state.status {
            SettingStatus::Good => "good",
            SettingStatus::Worse => "WORSE",
            SettingStatus::NotNeeded => "makes no difference here",
            SettingStatus::Missing => "not there",
            SettingStatus::Odd => "not understood",
        };
        let _ = writeln!(
            text,
            "{}: {status}\n  is       {}\n  proposed {}\n  why      {}\n  source   {}\n",
            state.key,
            one_line(state.present.as_ref()),
            one_line(state.proposed.as_ref()),
            state.reason,
            state.source
        );
    }
    let worse = states.iter().filter(|state| state.status == SettingStatus::Worse).count();
    let _ = writeln!(
        text,
        "{worse} of {} are worse than proposed; `steadfast tune --all --dry-run` tells what would be changed",
        states.len()
    );
    text
}

fn changes(changes: &[Change], nothing: &str) -> String {
    if changes.is_empty() {
        return nothing.to_owned();
    }
    let mut text = String::new();
    for change in changes {
        let before = one_line(change.before.as_ref());
        let after = one_line(change.after.as_ref());
        let why = change.why.as_deref().unwrap_or_default();
        let _ = match change.outcome {
            Outcome::Changed => writeln!(text, "{}: {before} → {after}", change.key),
            Outcome::Would => writeln!(text, "{}: {before} → {after} (not done)", change.key),
            Outcome::Unchanged => writeln!(text, "{}: {before}, unchanged", change.key),
            Outcome::Skipped => writeln!(text, "{}: left out: {why}", change.key),
            Outcome::Failed => writeln!(text, "{}: FAILED: {why}; it is {after}", change.key),
            Outcome::Left => writeln!(text, "{}: left at {before}: {why}", change.key),
        };
    }
    text
}
