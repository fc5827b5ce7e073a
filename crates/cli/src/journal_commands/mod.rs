//! `steadfast journal`: looks at the journal of a mount, also while the mount runs; sends what is in one
//! that nobody uses, or throws it away.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use steadfast_control::plain;
use steadfast_journal::care;
use steadfast_journal::report::{self, ListReport};
use steadfast_mount::replay_journal;

use crate::output::print_plain;

/// The exit status of a replay that has not sent all.
const NOT_ALL: u8 = 3;
/// How often a replay tells how far it is.
const PROGRESS: Duration = Duration::from_secs(1);

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
    /// Send the changes to their server, as the next mount with this journal would. What others have
    /// changed meanwhile is not overwritten. Exit status 3 if something was not sent: data of it is kept
    /// in files, which are named.
    Replay {
        /// The directory of the journal.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Options as for a mount, if its own do not lead to the server any more: see mount.steadfast(8).
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: Vec<String>,
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
pub(crate) fn run(arguments: &JournalArguments) -> Result<ExitCode> {
    let done = match &arguments.action {
        JournalAction::List { directory, json } => {
            let report = ListReport::of(&care::look(directory)?);
            print_plain(&if *json { plain::json(&report)? + "\n" } else { report.text() })
        }
        JournalAction::Verify { directory } => verify(directory),
        JournalAction::Replay { directory, options } => return replay(directory, options),
        JournalAction::Discard { directory, file, yes } => {
            discard(directory, file.as_deref(), *yes)
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn replay(directory: &Path, options: &[String]) -> Result<ExitCode> {
    let mut told = Instant::now();
    let mut progress = |done, all| {
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            // The terminal may be gone.
            let _ = writeln!(std::io::stderr(), "{done} of {all} changes");
        }
    };
    let report = replay_journal(directory, &options.join(","), &mut progress)?;
    print_plain(&report.to_string())?;
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL) })
}

fn verify(directory: &Path) -> Result<()> {
    let verified = care::verify(directory)?;
    print_plain(&report::verified(&verified))?;
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
    print_plain(&format!("discarded {}\n", report::changes(discarded.len())))
}
