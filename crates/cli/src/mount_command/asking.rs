//! `steadfast mount status` and `steadfast mount flush`: ask the processes of mounts, all at one time.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use steadfast_control::plain;
use steadfast_mount::status::{
    self, AskError, Flushed, MountPoint, MountStatus, find, mount_points, prometheus, text,
};

use crate::output::print_plain;

/// How many mounts are asked at one time.
const ASKED_AT_ONCE: usize = 64;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MountAction {
    /// Tell how mounts are: connections, calls, data on its way, the journal and recoveries.
    ///
    /// Reads the kernel's list of mounts, asks their processes, and no server: each mount has less than a second to
    /// answer, and can though its server is gone. Root may ask about all mounts, others about their own. Exit status: 0 told, 1 a mount
    /// does not answer or nothing is mounted there, 2 wrong usage.
    Status(StatusArguments),
    /// Make everything that was written so far stable at the server.
    ///
    /// Ends when the server has it on stable storage, and it has left the journal. Exit status: 0 done, 1 not done
    /// (the mount goes on trying), or data was given up: the message says which; 2 wrong usage.
    Flush(FlushArguments),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArguments {
    /// A mount point (default: all mounts).
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// For programs: one line of JSON, a list of mounts.
    #[arg(long)]
    json: bool,
    /// For Prometheus: metrics in its text format.
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct FlushArguments {
    /// A mount point (default: all mounts).
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "write seconds, from 0 to 86400".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// A mount, for programs.
#[derive(Serialize)]
struct Entry<'a> {
    mount_point: String,
    source: &'a str,
    user: u32,
    /// Why there is no status.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a MountStatus>,
}

impl<'a> Entry<'a> {
    fn of(mount: &'a MountPoint, answer: &'a Result<MountStatus, AskError>) -> Self {
        Self {
            mount_point: mount.directory.to_string_lossy().into_owned(),
            source: &mount.source,
            user: mount.user,
            error: answer.as_ref().err().map(ToString::to_string),
            status: answer.as_ref().ok(),
        }
    }
}

/// Does it.
///
/// # Errors
/// When nothing is mounted there, or the kernel's list of mounts cannot be read.
pub(crate) fn run(action: &MountAction) -> Result<ExitCode> {
    match action {
        MountAction::Status(arguments) => print_status(arguments),
        MountAction::Flush(arguments) => flush(arguments),
    }
}

fn wanted(directory: Option<&Path>) -> Result<Vec<MountPoint>> {
    let mounts = mount_points().context("cannot read which file systems are mounted")?;
    let Some(directory) = directory else {
        // Others' mounts answer their owners, and root.
        let own = rustix::process::geteuid().as_raw();
        return Ok(mounts.into_iter().filter(|mount| own == 0 || mount.user == own).collect());
    };
    match find(&mounts, directory)? {
        Some(found) => Ok(vec![found]),
        None => bail!(
            "{} is not the mount point of a share that steadfast mount has mounted",
            directory.display()
        ),
    }
}

/// Asks all, so that one that hangs holds up no other.
fn ask_all<T: Send>(
    mounts: &[MountPoint],
    ask: impl Fn(&MountPoint) -> Result<T, AskError> + Sync,
) -> Vec<Result<T, AskError>> {
    let mut answers = Vec::with_capacity(mounts.len());
    for some in mounts.chunks(ASKED_AT_ONCE) {
        thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|mount| scope.spawn(|| ask(mount))).collect();
            answers.extend(asked.into_iter().map(|one| {
                one.join()
                    .unwrap_or_else(|_| Err(AskError::Malformed("the question failed".to_owned())))
            }));
        });
    }
    answers
}

fn print_status(arguments: &StatusArguments) -> Result<ExitCode> {
    let mounts = wanted(arguments.directory.as_deref())?;
    let answers = ask_all(&mounts, status::status);
    let is_complete = answers.iter().all(Result::is_ok);
    let told: Vec<_> = mounts.iter().zip(&answers).collect();
    let page = if arguments.prometheus {
        let told: Vec<_> =
            told.iter().map(|(mount, answer)| (*mount, answer.as_ref().ok())).collect();
        prometheus::text(&told)
    } else if arguments.json {
        let entries = told.iter().map(|(mount, answer)| Entry::of(mount, answer));
        plain::json(&entries.collect::<Vec<_>>())? + "\n"
    } else {
        text::mounts(&told)
    };
    print_plain(&page)?;
    if !is_complete && (arguments.json || arguments.prometheus) {
        for (mount, answer) in &told {
            if let Err(error) = answer {
                complain(mount, &error.to_string());
            }
        }
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn flush(arguments: &FlushArguments) -> Result<ExitCode> {
    let mounts = wanted(arguments.directory.as_deref())?;
    let answers = ask_all(&mounts, |mount| status::flush(mount, arguments.timeout));
    let mut is_done = true;
    for (mount, answer) in mounts.iter().zip(&answers) {
        match answer {
            Ok(Flushed { is_done: true, .. }) => {}
            Ok(flushed) => {
                is_done = false;
                complain(mount, &text::not_flushed(flushed));
            }
            Err(error) => {
                is_done = false;
                complain(mount, &error.to_string());
            }
        }
    }
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn complain(mount: &MountPoint, why: &str) {
    let directory = mount.directory.to_string_lossy();
    // The terminal may be gone.
    let _ = writeln!(
        std::io::stderr(),
        "steadfast mount: {}: {}",
        plain::line(&directory),
        plain::line(why)
    );
}
