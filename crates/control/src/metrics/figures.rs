//! What a scrape is made of.

use std::time::Duration;

use crate::intent_log::CheckpointReport;
use crate::statistics::Statistics;

/// All numbers of one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What `steadfast statistics` shows, too.
    pub statistics: Statistics,
    /// Shares by state; `None` before they were counted for the first time.
    pub shares: Option<ShareCounts>,
    /// How long ago they were counted: they are not while somebody changes them.
    pub shares_age: Duration,
    /// How long the change has been going on that kept them from being counted now; 0 if they were.
    pub shares_change: Duration,
    /// Clients with state. A pair of protocol and state may come several times: they are added.
    pub clients: Vec<ClientCounts>,
    /// Clients that may still reclaim what the server has lost.
    pub reclaiming: u64,
    /// Whether clients are in their grace period.
    pub is_in_grace: bool,
    /// Calls that wait for a client or a name service.
    pub waiting_calls: u64,
    /// Calls of the reply cache that are executed now, or wait until they are stable.
    pub calls_in_progress: u64,
    /// Whether there is no intent log yet, since no share needs one.
    pub log_is_unmade: bool,
    /// The last checkpoint of the intent log.
    pub last_checkpoint: Option<CheckpointReport>,
    /// Files of records that wait for their file systems; `None` if that is not known.
    pub set_aside: Option<SetAsideCounts>,
    /// Decisions who may use which share.
    pub decisions: DecisionCounts,
    /// Answers of name services used after their life, since there was no newer one.
    pub stale_name_uses: u64,
    /// Look-ups rejected because too many were waiting or known.
    pub refused_names: u64,
    /// Name services by kind of name.
    pub names: Vec<NameCounts>,
    /// The server's process.
    pub process: ProcessFigures,
    /// How long it took to collect all this.
    pub collecting: Duration,
}

/// Shares by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareCounts {
    /// Served.
    pub enabled: u64,
    /// Not to be served.
    pub disabled: u64,
    /// To be served, and not possible.
    pub faulty: u64,
    /// Served to those who use it already.
    pub draining: u64,
    /// Served, with a size that is not enforced, or may not be.
    pub size_faults: u64,
}

/// Clients of one protocol in one state, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// `NFSv4.0`, `NFSv4.1+` or `NLM`.
    pub protocol: &'static str,
    /// `active`, `courteous` or `unconfirmed`.
    pub state: &'static str,
    /// How many clients.
    pub clients: u64,
    /// Their sessions.
    pub sessions: u64,
    /// Their opens.
    pub opens: u64,
    /// Ranges that they have locked.
    pub locks: u64,
    /// Their delegations.
    pub delegations: u64,
}

/// Files of records that wait for their file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAsideCounts {
    /// How many.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
}

/// Remembered decisions who may use which share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// How many are remembered.
    pub entries: u64,
    /// Most that are.
    pub entries_max: u64,
    /// Their memory.
    pub bytes: u64,
    /// Questions answered by one.
    pub hits: u64,
    /// Questions without one.
    pub misses: u64,
    /// Decisions that waited for a name.
    pub pending: u64,
    /// Decisions dropped because there were too many.
    pub evicted: u64,
}

/// What a name service was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// `hosts`, `clients`, `netgroups`, `users`, `owner_numbers` or `owner_names`.
    pub kind: &'static str,
    /// Names with a fresh answer.
    pub fresh: u64,
    /// Names with an old answer and no newer one.
    pub stale: u64,
    /// Names that do not exist.
    pub absent: u64,
    /// Questions sent.
    pub sent: u64,
    /// Answers with something.
    pub found: u64,
    /// Answers with nothing.
    pub answered_absent: u64,
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Questions that failed otherwise.
    pub failed: u64,
    /// Questions without an answer yet.
    pub in_flight: u64,
    /// Questions not sent yet.
    pub waiting: u64,
    /// Upper bounds in ms, and how many answers took so long and longer than the bound before;
    /// `None`: longer than all.
    pub latency: Vec<(Option<u64>, u64)>,
    /// All of them together, in ms.
    pub latency_sum_ms: u64,
}

/// What the server's process uses, as far as the kernel tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// CPU time of all threads.
    pub cpu: Option<Duration>,
    /// Memory in use.
    pub resident_bytes: Option<u64>,
    /// Address space.
    pub virtual_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// File descriptors.
    pub descriptors: Option<u64>,
    /// Most file descriptors that it may have.
    pub descriptors_max: Option<u64>,
}

impl ProcessFigures {
    /// Those of the process that asks.
    pub fn own() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |name| field(&status, name).and_then(|kib| kib.checked_mul(1024));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            cpu: steadfast_sys::cpu_time::of_process(std::process::id()).ok(),
            resident_bytes: kib("VmRSS"),
            virtual_bytes: kib("VmSize"),
            threads: field(&status, "Threads"),
            descriptors: std::fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as u64),
            descriptors_max: limit.current,
        }
    }
}

/// A number of `proc_pid_status(5)`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_this_process() {
        let process = ProcessFigures::own();
        assert!(process.cpu.is_some_and(|time| time > Duration::ZERO), "{process:?}");
        assert!(process.resident_bytes > Some(1 << 20), "{process:?}");
        assert!(process.virtual_bytes >= process.resident_bytes, "{process:?}");
        assert!(process.threads >= Some(1) && process.descriptors >= Some(3), "{process:?}");
        let text = "Name:\tThreads: 9\nVmRSS:\t     2048 kB\nThreads:\t7\n";
        assert_eq!((field(text, "VmRSS"), field(text, "Threads")), (Some(2048), Some(7)));
        assert_eq!(field(text, "VmSize"), None);
    }
}
