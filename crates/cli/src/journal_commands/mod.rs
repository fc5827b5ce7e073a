//! `steadfast journal`: looks at the journal of a mount, also while the mount runs, and throws away
//! what is in one that nobody uses.

mod report;

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use steadfast_control::plain;
use steadfast_journal::care;

use report::ListReport;

#[derive(Debug, Args)]
pub(crate) struct JournalArguments {
    #[command(subcommand)]
    action: JournalAction,
}

#[derive(Debug, Subcommand)]
enum JournalAction {
    /// List the changes that the server does not have stable yet. Changes nothing; works while the
    /// share is mounted.
    List {
        /// The directory of the journal.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read all of a journal that no mount uses, check every record, and compare it with its
    /// manifest. Changes nothing. Exit status 1 if something is damaged.
    Verify {
        /// The directory of the journal.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Throw away changes that the server does not have. They are lost.
    Discard {
        /// The directory of the journal.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Throw away the changes of this file alone: its path as `list` shows it.
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
        /// Without this nothing is thrown away, and the command says what would be.
        #[arg(long)]
        yes: bool,
    },
}

/// Does what was asked for.
///
/// # Errors
/// What is in the way, or what is damaged.
pub(crate) fn run(arguments: &JournalArguments) -> Result<()> {
    match &arguments.action {
        JournalAction::List { directory, json } => {
            let report = ListReport::of(&care::look(directory)?);
            print(&if *json { plain::json(&report)? + "\n" } else { report.text() })
        }
        JournalAction::Verify { directory } => verify(directory),
        JournalAction::Discard { directory, file, yes } => {
            discard(directory, file.as_deref(), *yes)
        }
    }
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(plain::lines(text).as_bytes()) {
        // Nobody may be reading.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot print")
        }
        _ => Ok(()),
    }
}

fn verify(directory: &Path) -> Result<()> {
    let verified = care::verify(directory)?;
    print(&report::verified(&verified))?;
    if report::is_damaged(&verified) {
        bail!(
            "the journal in {} is damaged; what is whole is sent when the share is mounted again",
            directory.display()
        );
    }
    Ok(())
}

fn discard(directory: &Path, file: Option<&Path>, yes: bool) -> Result<()> {
    let path = file.map(|file| file.as_os_str().as_bytes());
    if !yes {
        let mut pending = care::look(directory)?.pending;
        if let Some(path) = path {
            pending.retain(|one| care::is_path(one, path));
        }
        bail!(
            "nothing was discarded: {} in {} are not stable on the server and would be lost; to \
             lose them, say --yes",
            report::changes(pending.len()),
            directory.display()
        );
    }
    let discarded = care::discard(directory, path)?;
    if discarded.is_empty()
        && let Some(file) = file
    {
        bail!("the journal in {} has no changes of {}", directory.display(), file.display());
    }
    print(&format!("discarded {}\n", report::changes(discarded.len())))
}
