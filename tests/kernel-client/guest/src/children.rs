//! Processes that a case starts: operations as another user, and parts that must run beside
//! each other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;

use crate::{cases, contend, ledger, model};

/// Exit status for what is not an error of the system.
const OTHER: i32 = 250;

/// Who performs an operation.
#[derive(Debug, Clone)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl User {
    pub(crate) fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new() }
    }

    pub(crate) fn with_groups(mut self, groups: &[u32]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// Performs one operation of [`operate`] as this user.
    pub(crate) fn attempt(&self, words: &[&str]) -> Result<Result<(), Errno>> {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let groups = if groups.is_empty() {
            "--clear-groups".to_owned()
        } else {
            format!("--groups={}", groups.join(","))
        };
        let output = Command::new("setpriv")
            .arg(format!("--reuid={}", self.uid))
            .arg(format!("--regid={}", self.gid))
            .arg(groups)
            .arg(std::env::current_exe()?)
            .args(["child", "operate"])
            .args(words)
            .output()?;
        match output.status.code() {
            Some(0) => Ok(Ok(())),
            Some(code) if code < OTHER && output.stdout == b"errno\n" => {
                Ok(Err(Errno::from_raw_os_error(code)))
            }
            _ => bail!(
                "uid {} {words:?}: {}: {}",
                self.uid,
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }

    /// The operation has to succeed.
    pub(crate) fn can(&self, words: &[&str]) -> Result<()> {
        match self.attempt(words)? {
            Ok(()) => Ok(()),
            Err(errno) => {
                bail!("uid {} groups {:?} {words:?}: {errno}", self.uid, self.groups)
            }
        }
    }

    /// The operation has to fail with `expected`.
    pub(crate) fn cannot(&self, words: &[&str], expected: Errno) -> Result<()> {
        match self.attempt(words)? {
            Err(errno) if errno == expected => Ok(()),
            other => bail!(
                "uid {} groups {:?} {words:?}: expected {expected}, got {other:?}",
                self.uid,
                self.groups
            ),
        }
    }
}

/// Starts `child WORDS` of this program beside the caller.
pub(crate) fn start(words: &[&str]) -> Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("child")
        .args(words)
        .spawn()
        .with_context(|| format!("cannot start {words:?}"))
}

/// Children that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("{failed} processes failed, {killed} of them by SIGKILL")]
pub(crate) struct Failures {
    pub(crate) failed: u64,
    pub(crate) killed: u64,
}

/// Waits for children; all have to succeed. What they said is in the case's own output.
pub(crate) fn finish(children: Vec<Child>) -> Result<(), Failures> {
    let mut failures = Failures { failed: 0, killed: 0 };
    for mut child in children {
        let status = child.wait();
        let is_success = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        let signal = status.ok().and_then(|status| status.signal());
        failures.failed += u64::from(!is_success);
        failures.killed += u64::from(signal == Some(rustix::process::Signal::KILL.as_raw()));
    }
    if failures.failed > 0 { Err(failures) } else { Ok(()) }
}

/// Runs what [`start`] and [`User::attempt`] start.
pub(crate) fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["operate", rest @ ..] => {
            let code = match operate(rest).map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) => 0,
                Err((Some(errno), _)) => {
                    println!("errno");
                    errno
                }
                Err((None, error)) => {
                    eprintln!("{error}");
                    OTHER
                }
            };
            std::process::exit(code);
        }
        ["model", rest @ ..] => model::child(rest),
        ["load", rest @ ..] => ledger::child(rest),
        ["churn", rest @ ..] => cases::directories::churn_child(rest),
        ["exclusive", rest @ ..] => cases::files::exclusive_child(rest),
        ["contend", rest @ ..] => contend::child(rest),
        ["contend-make", at] => contend::make(at),
        ["contend-print", at] => contend::print(at),
        ["contend-take-all", at] => contend::take_all(at),
        ["contend-wait", at, file] => contend::wait_for_all(at, file.parse()?),
        ["lock-and-note", path] => cases::locks::lock_and_note(path),
        ["count-locked", at, turns] => cases::locks::count_locked(at, turns.parse()?),
        other => bail!("no child is called {other:?}"),
    }
}

/// One operation on files, by words.
fn operate(words: &[&str]) -> io::Result<()> {
    let number = |text: &str, radix| {
        u32::from_str_radix(text, radix).map_err(|error| io::Error::other(error.to_string()))
    };
    match words {
        // Creates a new file, writes through the descriptor it was created with, and closes it.
        ["create", path, mode, text] => {
            let mut file =
                File::options().write(true).create_new(true).mode(number(mode, 8)?).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        }
        // The same for a long file, in pieces, so that WRITE calls follow the CREATE.
        ["create-long", path, mode, size] => {
            let mut file =
                File::options().write(true).create_new(true).mode(number(mode, 8)?).open(path)?;
            for _ in 0..number(size, 10)? / 4096 {
                file.write_all(&[0x5a; 4096])?;
            }
            file.sync_all()
        }
        ["read", path, expected] => {
            let mut text = String::new();
            File::open(path)?.read_to_string(&mut text)?;
            if text == *expected {
                return Ok(());
            }
            Err(io::Error::other(format!("found {text:?} instead of {expected:?}")))
        }
        ["write", path, text] => {
            let mut file = File::options().write(true).truncate(true).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        }
        ["mkdir", path] => std::fs::create_dir(path),
        ["rmdir", path] => std::fs::remove_dir(path),
        ["unlink", path] => std::fs::remove_file(path),
        ["symlink", target, path] => std::os::unix::fs::symlink(target, path),
        ["rename", from, to] => std::fs::rename(from, to),
        ["list", path] => std::fs::read_dir(path).map(|entries| {
            let _ = entries.count();
        }),
        ["chmod", path, mode] => {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(number(mode, 8)?))
        }
        ["chown", path, uid, gid] => {
            std::os::unix::fs::chown(path, Some(number(uid, 10)?), Some(number(gid, 10)?))
        }
        other => Err(io::Error::other(format!("no operation {other:?}"))),
    }
}
