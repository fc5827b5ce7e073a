//! `steadfast journal`: looks at the journal of a mount, also while the mount runs, and sends or throws
//! away what is in one that nobody uses.

mod report;

use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget};
use steadfast_control::plain;
use steadfast_journal::care;

use report::ListReport;

/// Exit status of a replay after which something is not at the server.
const NOT_ALL_SENT: u8 = 3;

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
    /// Send the changes of a journal that no mount uses to its server. What others have changed
    /// meanwhile is not overwritten: such data goes to files in DIR/conflicts. Exit status 0 all is
    /// at the server, 3 something is not and was reported, 1 failed: all stays in the journal.
    Replay {
        /// The directory of the journal.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Options as of `steadfast mount`, for reaching the server: port, mountport, proto, hard.
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
        JournalAction::Replay { directory, options } => {
            return replay(directory, &options.join(","));
        }
        JournalAction::List { directory, json } => {
            let report = ListReport::of(&care::look(directory)?);
            print(&if *json { plain::json(&report)? + "\n" } else { report.text() })
        }
        JournalAction::Verify { directory } => verify(directory),
        JournalAction::Discard { directory, file, yes } => {
            discard(directory, file.as_deref(), *yes)
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn replay(directory: &Path, options: &str) -> Result<ExitCode> {
    let bar = ProgressBar::hidden();
    if std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    let report = steadfast_mount::replay_journal(directory, options, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    print(&report.to_string())?;
    if let Some(error) = &report.journal_error {
        bail!("the journal in {} failed: {error}", directory.display());
    }
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL_SENT) })
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
