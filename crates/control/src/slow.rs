//! The slowest calls: `GET /v1/slow`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Of the document's form.
pub const VERSION: u32 = 1;
/// Most calls of one answer.
pub const CALLS_MAX: usize = 1000;
/// Calls of an answer if nobody says how many.
pub const CALLS_USUAL: usize = 20;

/// Which calls to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowFilter {
    /// Only those from this address. One of IPv4 that is written as one of IPv6 is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Only those of this procedure, or COMPOUNDs with this operation: `WRITE`, in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Only those that were answered during the last so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_s: Option<u64>,
    /// At most so many; [`CALLS_USUAL`] if it is not said, [`CALLS_MAX`] at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
}

/// `GET /v1/slow`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowReport {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// When it was made.
    pub taken_unix_ms: u64,
    /// How many calls there are that were asked for, told or not.
    pub total: usize,
    /// The slowest first.
    pub calls: Vec<SlowCall>,
}

/// A call that was slow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    /// The client's number for it.
    pub xid: u32,
    /// The name of the program, in lower case: `nfs`.
    pub protocol: String,
    /// The version of the program.
    pub version: u32,
    /// The name of the procedure, as its RFC writes it.
    pub name: String,
    /// Whether it failed.
    pub is_error: bool,
    /// Of a COMPOUND: its first operations, as far as they were executed.
    pub operations: Vec<String>,
    /// Of a COMPOUND that came to where it might wait: the operation that took longest from there on. The stages
    /// `file-system` and `log-room` are its time; others are not.
    pub waited_in: Option<String>,
    /// Address of the client, without its port.
    pub client: String,
    /// `tcp` or `udp`.
    pub transport: String,
    /// As which user it acted, after squashing; none if it did not come so far.
    pub uid: Option<u32>,
    /// The path of the share, written as [`SlowCall::path`].
    pub share: Option<String>,
    /// The path of its file, or of the last of several, if it is known. White space, control characters, `%` and
    /// bytes that are no UTF-8 are written as `%` and two hexadecimal digits.
    pub path: Option<String>,
    /// That file's handle in the share's storage, in hexadecimal digits.
    pub file: Option<String>,
    /// When it was received.
    pub received_unix_us: u64,
    /// From then until the reply was handed to the socket.
    pub latency_ns: u64,
    /// Where the time went, in the order of a call's way. The sum is the latency.
    pub stages: Vec<SlowStage>,
    /// Whether a checkpoint of the intent log ran meanwhile.
    pub has_checkpoint: bool,
    /// Whether changes were not logged.
    pub is_log_off: bool,
    /// How full the log was, in percent.
    pub log_fill_percent: u8,
    /// Whether a file system took no changes, since writing to it had failed.
    pub has_fault: bool,
    /// Calls that waited for a flush to begin.
    pub parked: u64,
    /// Bytes of replies that waited for their clients to read.
    pub waiting_bytes: u64,
}

/// A part of a call's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowStage {
    /// `turn`, `names`, `clients`, `storage`, `work`, `file-system`, `log-room`, `flush`, `log` or `send`: see `docs/slow.md`.
    pub stage: String,
    /// How long.
    pub ns: u64,
}

impl SlowCall {
    /// The stages with time in them, the longest first.
    pub fn by_length(&self) -> Vec<&SlowStage> {
        let mut stages: Vec<_> = self.stages.iter().filter(|stage| stage.ns > 0).collect();
        stages.sort_by_key(|stage| std::cmp::Reverse(stage.ns));
        stages
    }
}
