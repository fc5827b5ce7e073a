//! Who asks: the caller's groups, and whether it still waits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Pid;
use steadfast_client::Identity;

/// AUTH_SYS carries no more groups (RFC 5531 appendix A).
const GROUPS_MAX: usize = 16;
/// How long the groups of a process are believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// How many processes are remembered.
const REMEMBERED_MAX: usize = 1024;

/// A process that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Who {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread; 0 if the kernel itself asks, or one of another process id namespace.
    pub(crate) pid: u32,
}

impl Who {
    pub(crate) fn of(request: &fuser::Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }
}

/// Identities by process, for a short time.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    known: Mutex<HashMap<Who, (Instant, Identity)>>,
}

impl Identities {
    /// The identity that a process's calls carry.
    pub(crate) fn of(&self, who: Who) -> Identity {
        let now = Instant::now();
        if let Some((when, identity)) = self.known.lock().get(&who)
            && now.saturating_duration_since(*when) < BELIEVED
        {
            return identity.clone();
        }
        let gids = groups(who.pid);
        // What could not be read is read the next time; until then the groups give no rights.
        let is_known = gids.is_some() || who.pid == 0;
        let gids = gids.unwrap_or_default();
        let identity = Identity::Sys { uid: who.uid, gid: who.gid, gids };
        if !is_known {
            return identity;
        }
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(who, (now, identity.clone()));
        identity
    }
}

fn groups(pid: u32) -> Option<Vec<u32>> {
    let status = status(pid)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    Some(line.split_whitespace().filter_map(|word| word.parse().ok()).take(GROUPS_MAX).collect())
}

/// Whether there is no such thread any more. That /proc cannot be read (no memory, no descriptor, or
/// `hidepid`) does not mean so.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn status(pid: u32) -> Option<String> {
    if pid == 0 {
        return None;
    }
    std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// Whether a thread has been killed: a deadly signal waits for it, or it is gone. FUSE's own
/// interrupts do not reach us, since fuser answers them; signals that a process handles do not count,
/// as with the kernel's client (nfs(5), `intr`).
pub(crate) fn is_killed(pid: u32) -> bool {
    if pid == 0 {
        return false;
    }
    let Some(status) = status(pid) else { return is_gone(pid) };
    is_killed_by(&status)
}

/// The kernel marks all threads of a process that dies with a pending SIGKILL.
fn is_killed_by(status: &str) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    (signals(status, "SigPnd:") | signals(status, "ShdPnd:")) & SIGKILL != 0
}

/// Signals of a line of the status.
fn signals(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a thread that may be interrupted has got a signal, also one that it handles. While it waits for us the
/// signal stays pending.
pub(crate) fn is_interrupted(pid: u32) -> bool {
    if pid == 0 {
        return false;
    }
    let Some(status) = status(pid) else { return is_gone(pid) };
    is_interrupted_by(&status)
}

fn is_interrupted_by(status: &str) -> bool {
    let pending = signals(status, "SigPnd:") | signals(status, "ShdPnd:");
    pending & !signals(status, "SigBlk:") & !signals(status, "SigIgn:") != 0
}

/// Whether a thread is on its way out: what it closes now, it closes because it dies.
///
/// `/proc/PID/stat` would say so by a flag. But it waits while the thread executes another program, which
/// waits for the answer to what it closes.
pub(crate) fn is_exiting(pid: u32) -> bool {
    if pid == 0 {
        return false;
    }
    let Some(status) = status(pid) else { return is_gone(pid) };
    has_no_files(&status)
}

/// A thread that ends gives its table of open files away before it closes them.
fn has_no_files(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("FDSize:").is_some_and(|size| size.trim() == "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_sigkill_is_seen() {
        let status = |pending: &str, shared: &str| {
            format!("Name:\tx\nSigQ:\t0/1\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t0\n")
        };
        let none = "0000000000000000";
        assert!(!is_killed_by(&status(none, none)));
        assert!(is_killed_by(&status("0000000000000100", none)));
        assert!(is_killed_by(&status(none, "0000000000000102")));
        assert!(!is_killed_by(&status("0000000000000002", "0000000000004000")));
    }

    #[test]
    fn a_signal_interrupts_unless_it_is_blocked_or_ignored() {
        let status = |pending: u64, blocked: u64, ignored: u64| {
            format!(
                "SigPnd:\t{pending:016x}\nShdPnd:\t0\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        assert!(is_interrupted_by(&status(2, 0, 0)));
        assert!(!is_interrupted_by(&status(2, 2, 0)) && !is_interrupted_by(&status(2, 0, 2)));
        assert!(is_interrupted_by(&status(6, 2, 1)));
        assert!(!is_interrupted_by(&status(0, 0, 0)) && !is_interrupted_by(""));
        assert!(!is_interrupted(std::process::id()) && is_interrupted(u32::MAX >> 1));
    }

    #[test]
    fn a_thread_without_files_ends() {
        assert!(has_no_files("Name:\tx\nFDSize:\t0\nGroups:\t\n"));
        assert!(!has_no_files("Name:\tx\nFDSize:\t256\nGroups:\t0\n"));
    }

    #[test]
    fn this_process_lives_and_has_groups() {
        let pid = std::process::id();
        assert!(!is_killed(pid) && !is_exiting(pid));
        assert!(groups(pid).is_some_and(|groups| groups.len() <= GROUPS_MAX));
        assert!(!is_gone(pid) && is_gone(u32::MAX >> 1) && is_gone(u32::MAX));
        assert!(is_killed(u32::MAX >> 1));
    }

    #[test]
    fn a_thread_that_is_not_the_first_of_its_process_lives() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap();
        assert!(!is_gone(line.trim().parse().unwrap()));
    }

    #[test]
    fn groups_that_could_not_be_read_are_not_remembered() {
        let identities = Identities::default();
        identities.of(Who { uid: 1, gid: 1, pid: u32::MAX >> 1 });
        assert!(identities.known.lock().is_empty());
        identities.of(Who { uid: 1, gid: 1, pid: std::process::id() });
        assert_eq!(identities.known.lock().len(), 1);
    }
}
