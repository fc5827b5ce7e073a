//! What a mount tells of itself, as `steadfast mount status --json` prints it. Fields are only ever added.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The longest answer that is read, in bytes.
pub(crate) const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// The longest question that is read, in bytes, with its newline.
pub(crate) const REQUEST_BYTES_MAX: u64 = 128;

/// What a mount can be asked: one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// How it is.
    Status,
    /// To make everything stable at the server.
    Flush(FlushRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlushRequest {
    pub(crate) timeout_ms: u64,
}

/// What it answers: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Status(Box<MountStatus>),
    Flush(Box<Flushed>),
    Refused(String),
}

/// What became of a flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// Everything that was written before it is stable at the server, and has left the journal.
    pub is_done: bool,
    /// How long it took.
    pub took_ms: u64,
    /// Something was given up meanwhile: the server has refused it, or it is in a conflict file.
    pub has_given_up: bool,
    /// Why it is not done.
    pub reasons: Vec<String>,
    /// What is still pending.
    pub data: DataStatus,
    /// What is still in the journal, if there is one.
    pub journal: Option<JournalStatus>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The server as it was named.
    pub server: String,
    /// The address that calls go to.
    pub address: String,
    /// The share.
    pub share: String,
    /// Where it was mounted. What is not UTF-8 in it, and in other paths, is replaced.
    pub directory: String,
    /// The process that answers.
    pub pid: u32,
    /// The version of NFS.
    pub nfs_version: String,
    /// When it was mounted, in seconds since 1970.
    pub mounted_unix_s: u64,
    /// When this was told, in ms since 1970.
    pub now_unix_ms: u64,
    /// For how long the oldest call in flight has waited for its answer.
    pub oldest_call_ms: Option<u64>,
    /// Whether the server has the recovery program. `None`: it was not asked yet, or has not answered.
    pub has_recovery_program: Option<bool>,
    /// Whether the share is `async` for this client. `None`: nobody says.
    pub is_async: Option<bool>,
    /// The connections.
    pub connections: Vec<ConnectionStatus>,
    /// How much is sent before the server has answered; `None`: the mount does not adapt that.
    #[serde(default)]
    pub flow: Option<FlowStatus>,
    /// The procedures that were called.
    pub procedures: Vec<ProcedureStatus>,
    /// Data that programs have read, beside what the kernel had in its pages.
    pub read_bytes: u64,
    /// Data that programs have written.
    pub written_bytes: u64,
    /// RPC messages that were sent, also those sent again.
    pub sent_bytes: u64,
    /// RPC messages that were received.
    pub received_bytes: u64,
    /// Look-ups and questions for attributes that needed no call.
    pub cache_hits: u64,
    /// Those that needed one.
    pub cache_misses: u64,
    /// Written data on its way to the server.
    pub data: DataStatus,
    /// The journal, if there is one.
    pub journal: Option<JournalStatus>,
    /// Locks at the server, unless all are this host's alone.
    #[serde(default)]
    pub locks: Option<LocksStatus>,
    /// How data is compressed on its way, with the option `compress`.
    #[serde(default)]
    pub compression: Option<CompressionStatus>,
}

/// Data that is compressed on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionStatus {
    /// Whether the server takes it.
    pub is_used: bool,
    /// Why nothing is compressed, if that is so.
    pub why_not: Option<String>,
    /// Data that was sent compressed.
    pub sent_bytes: u64,
    /// As how much.
    pub sent_as_bytes: u64,
    /// Data that was received compressed.
    pub received_bytes: u64,
    /// As how much.
    pub received_as_bytes: u64,
}

/// Locks of programs at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksStatus {
    /// Ranges that are locked.
    pub held: u64,
    /// Requests that wait for others.
    pub waiting: u64,
    /// Ranges that the server has lost since the share was mounted, and that could not be taken again.
    pub lost: u64,
}

/// A connection to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Otherwise it is being made again.
    pub is_up: bool,
    /// Since when, in seconds since 1970.
    pub since_unix_s: u64,
    /// How often it was made.
    pub times_made: u64,
    /// Calls without an answer.
    pub calls_in_flight: u64,
    /// Why it was lost, or could not be made, last.
    pub last_error: Option<String>,
    /// When that was, in seconds since 1970.
    pub last_error_unix_s: Option<u64>,
}

/// How much of written data is in flight, so that others find a short queue on the link (docs/mount.md, Depth).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// So much may be in flight now.
    pub window_bytes: u64,
    /// So much is.
    pub in_flight_bytes: u64,
    /// WRITEs that wait until there is room for them.
    pub waiting: u64,
    /// How long the way to the server and back takes now, as its kernel acknowledges.
    pub round_trip_us: u64,
    /// The least that it took within the last minutes.
    pub lowest_round_trip_us: u64,
}

/// Calls of one procedure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcedureStatus {
    /// `nfs`, `recovery`, or `other`.
    pub program: String,
    /// As its RFC has it.
    pub name: String,
    /// Calls that have ended.
    pub calls: u64,
    /// Of them, those that the server refused, with whatever status, or that have no answer.
    pub errors: u64,
    /// How often calls were sent again.
    pub retries: u64,
    /// The time of all calls together: from the call to its answer, with all that is sent again.
    pub latency_us: u64,
    /// What 99 of 100 calls took less than; at most an eighth too high.
    pub p99_us: u64,
}

/// Written data that is not known to be stable at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataStatus {
    /// Files with such data.
    pub files: u64,
    /// Not sent.
    pub dirty_bytes: u64,
    /// Sent, not answered.
    pub in_flight_bytes: u64,
    /// Answered, and not committed.
    pub unstable_bytes: u64,
    /// Writers wait when there is so much of it.
    pub writers_wait_at_bytes: u64,
    /// Writers that wait now for that.
    pub writers_waiting: u64,
    /// How long writers have waited for that, all together.
    pub writers_waited_ms: u64,
    /// WRITEs and COMMITs that the server has refused, so that their data was given up.
    pub refused_writes: u64,
}

impl DataStatus {
    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.in_flight_bytes).saturating_add(self.unstable_bytes)
    }
}

/// The journal of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Where it is.
    pub directory: String,
    /// The size of its ring. Writers wait when it is full.
    pub ring_bytes: u64,
    /// Of it, what may not be written over.
    pub used_bytes: u64,
    /// When so much is used, everything is committed.
    pub commits_from_bytes: u64,
    /// Records that have not left.
    pub pending_records: u64,
    /// File data in these.
    pub pending_bytes: u64,
    /// When the oldest of them was made, in ms since 1970.
    pub oldest_unix_ms: Option<u64>,
    /// Its sequence.
    pub oldest_sequence: Option<u64>,
    /// The last sequence that was given.
    pub last_sequence: u64,
    /// Up to this sequence everything is on the ring's disk.
    pub stable_sequence: u64,
    /// How often something was written to the ring's disk, and flushed, since the share was mounted.
    #[serde(default)]
    pub flushes: u64,
    /// `always`, `fsync`, or seconds.
    pub sync: String,
    /// Why the ring is not used any more, if that is so.
    pub failed: Option<String>,
    /// Writers that wait for room now.
    pub writers_waiting: u64,
    /// How long writers have waited for room, all together.
    pub writers_waited_ms: u64,
    /// What was brought back to the server while it was mounted.
    pub recoveries: RecoveriesStatus,
}

/// How often the server had lost what it had acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveriesStatus {
    /// Recoveries that were finished since the share was mounted.
    pub count: u64,
    /// Since when one is under way, in ms since 1970.
    pub under_way_since_unix_ms: Option<u64>,
    /// When the last one ended, in ms since 1970.
    pub last_unix_ms: Option<u64>,
    /// How long that took.
    pub last_took_ms: Option<u64>,
    /// Records whose change was made again at the server.
    pub records_made_again: u64,
    /// Changes that were not made again, since others had changed the same, or the server refused.
    pub conflicts: u64,
    /// Records that the mount itself has sent before it served the share.
    pub records_sent_at_mount: u64,
    /// Conflicts that it found then.
    pub conflicts_at_mount: u64,
    /// Where the reports of conflicts and their data are.
    pub conflicts_directory: String,
}

/// A time in ms since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, milliseconds)
}

/// A length of time in ms.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A path for messages: in one line, though it is not UTF-8.
pub(crate) fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_strict() {
        let read = |text: &str| serde_json::from_str::<Request>(text).ok();
        assert_eq!(read("\"status\""), Some(Request::Status));
        let flush = Request::Flush(FlushRequest { timeout_ms: 5 });
        assert_eq!(read("{\"flush\":{\"timeout_ms\":5}}"), Some(flush));
        for wrong in [
            "",
            "status",
            "\"flush\"",
            "{\"flush\":{}}",
            "{\"flush\":{\"timeout_ms\":-1}}",
            "{\"flush\":{\"timeout_ms\":5,\"more\":1}}",
            "{\"flush\":{\"timeout_ms\":5}} \"status\"",
            "{\"status\":{}}",
            "[\"status\"]",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        for request in [Request::Status, Request::Flush(FlushRequest { timeout_ms: u64::MAX })] {
            let text = serde_json::to_string(&request).unwrap();
            assert!((text.len() as u64) < REQUEST_BYTES_MAX, "{text}");
            assert_eq!(read(&text), Some(request));
        }
    }
}
