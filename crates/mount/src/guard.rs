//! Whoever uses a mount whose process was killed gets an error, and does not wait.
//!
//! The kernel ends the connection when its last descriptor is closed. A thread of the process that has the kernel
//! drop pages waits, in the kernel, for a reader whose request is not answered any more, and keeps the descriptor
//! open: then the dead process and all its readers wait for each other. So a second process ends the connection
//! when the first one has died. It also frees what the first one had locked at the server.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::{Pid, Signal};
use steadfast_sys::process::Signals;

use crate::locks::ledger;

/// Where the file system of FUSE's connections is usually mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// Its type.
const FILE_SYSTEM_TYPE: &str = "fusectl";
/// What is written to a connection's file to end it.
const END: &[u8] = b"1";
/// What it means that there is no such process.
pub(crate) const UNGUARDED: &str =
    "if this process is killed, programs that use the mount may wait until umount -f";
/// How often what the parent had locked is freed, and with which pause.
const FREED_TIMES: u32 = 2;
const FREED_AGAIN: Duration = Duration::from_secs(2);
/// For how long a server is asked that does not answer. After that the next mount does it.
const FREEING: Duration = Duration::from_secs(600);
/// How often it is looked whether the parent is dead. It may not be yet when its death is signalled.
const WAIT: Duration = Duration::from_secs(1);

/// The file that ends a connection, by the minor number of its mount's device. Once it is open it is of this
/// connection alone: when that has ended by itself, writing to it does nothing.
fn end_of(minor: u32) -> io::Result<File> {
    let path = format!("{minor}/abort");
    let usual = OpenOptions::new().write(true).open(format!("{CONNECTIONS}/{path}"));
    let Err(error) = usual else { return usual };
    if !rustix::process::geteuid().is_root() {
        return Err(error);
    }
    // It is mounted nowhere, for this process alone.
    let context = rustix::mount::fsopen(FILE_SYSTEM_TYPE, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let (flags, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    let root: OwnedFd = rustix::mount::fsmount(&context, flags, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&root, path, flags, Mode::empty())?.into())
}

/// Starts the second process with a command that calls [`guard`]. To be called by the thread that serves: the
/// kernel tells of its end.
pub(crate) fn start(mut command: Command, minor: u32, ledger: Option<File>) -> io::Result<Child> {
    command
        .stdin(ledger.map_or_else(Stdio::null, Stdio::from))
        .stdout(end_of(minor)?)
        .stderr(Stdio::null());
    // What is told there is about the process that serves.
    command.env_remove("NOTIFY_SOCKET");
    command.spawn()
}

/// Tells when the second process ends, which it does after this one if nobody kills it.
pub(crate) fn watch(mut guard: Child) {
    let wait = move || {
        if let Ok(status) = guard.wait() {
            tracing::warn!(%status, "the process that looks after the mount has ended: {UNGUARDED}");
        }
    };
    // Without this thread it ends unnoticed.
    let _ = std::thread::Builder::new().name("fuse-guard".to_owned()).spawn(wait);
}

/// Waits for the death of a process, which has started this one, and ends its FUSE connection, for which standard
/// output stands.
///
/// # Errors
/// When signals cannot be waited for, or the connection cannot be ended.
pub fn guard(parent: u32) -> io::Result<()> {
    let signals = Signals::block()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // Whoever ends a service sends this signal to all its processes: the mount may still be served then.
    while is_alive(parent) {
        signals.wait(WAIT)?;
    }
    let mut end = io::stdout();
    let ended = end.write_all(END).and_then(|()| end.flush());
    free_locks();
    ended
}

/// Frees what the dead process has locked at the server, which standard input tells. A call of it may still be on its
/// way, so it is done once more.
fn free_locks() {
    let Ok(ledger) = io::stdin().as_fd().try_clone_to_owned().map(File::from) else { return };
    let since = Instant::now();
    let mut freed = 0;
    while freed < FREED_TIMES && since.elapsed() < FREEING {
        match ledger::free(&ledger, false) {
            // There is no ledger, or it is empty, since the mount has ended in order.
            Ok(0) => return,
            Ok(_) => freed += 1,
            Err(_) => {}
        }
        std::thread::sleep(FREED_AGAIN);
    }
    if freed == FREED_TIMES {
        let _ = ledger.set_len(0);
    }
}

/// Whether the process has started this one, and its first thread has not ended.
fn is_alive(parent: u32) -> bool {
    let is_parent = rustix::process::getppid().map(Pid::as_raw_nonzero);
    if is_parent.and_then(|pid| u32::try_from(pid.get()).ok()) != Some(parent) {
        return false;
    }
    may_be_alive(std::fs::read_to_string(format!("/proc/{parent}/stat")).ok().as_deref())
}

/// By what /proc says of a process. If it cannot be read, for lack of memory or by a mount option of /proc, a
/// mount that is served must not end.
fn may_be_alive(stat: Option<&str>) -> bool {
    let state = stat.and_then(|stat| stat.rsplit_once(") "));
    state.is_none_or(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_alive_and_others_are_none() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
        assert!(is_alive(parent));
        assert!(!is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX >> 1));
    }

    #[test]
    fn a_parent_that_cannot_be_looked_at_is_not_dead() {
        assert!(may_be_alive(None));
        assert!(may_be_alive(Some("")));
        assert!(may_be_alive(Some("12 (a) Z) S 1 12")));
        assert!(!may_be_alive(Some("12 (a) S) Z 1 12")));
        assert!(!may_be_alive(Some("12 (steadfast) X 1 12")));
    }
}
