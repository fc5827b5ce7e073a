//! Clients with state: `GET /v1/clients`, and `POST /v1/clients/expire`.

use serde::{Deserialize, Serialize};

/// Of the documents' form.
pub const VERSION: u32 = 1;
/// Most clients of one answer.
pub const CLIENTS_MAX: usize = 10_000;
/// Most opens that one answer tells, and most locks.
pub const HOLDINGS_MAX: usize = 10_000;

/// Which clients to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFilter {
    /// Only this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// With what they hold and wait for.
    #[serde(default)]
    pub holds: bool,
    /// With paths of files: whether who asks may see them. It cannot be asked for.
    #[serde(skip)]
    pub paths: bool,
}

/// Which client to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientNamed {
    /// Its id.
    pub id: String,
}

/// `GET /v1/clients`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsReport {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// Whether clients reclaim what the server has lost, and others wait for them.
    pub is_in_grace: bool,
    /// How many clients there are, told or not.
    pub total: usize,
    /// By id, [`CLIENTS_MAX`] at most.
    pub clients: Vec<ClientStatus>,
}

impl ClientsReport {
    /// For who may not see names of files.
    pub(crate) fn without_paths(mut self) -> Self {
        for holding in self.clients.iter_mut().flat_map(|client| client.holds.iter_mut().flatten())
        {
            holding.path = None;
        }
        self
    }
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// 16 hexadecimal digits; for NFSv4 the client id.
    pub id: String,
    /// Where it calls from.
    pub address: String,
    /// What it calls itself: what is not UTF-8 is replaced.
    pub name: String,
    /// `NFSv4.0`, `NFSv4.1+` (4.1 or later) or `NLM`.
    pub protocol: String,
    /// What it says of its program; empty if nothing.
    pub implementation: String,
    /// `active`; `courteous`: its lease has expired, and it keeps what it has until somebody wants
    /// it; `unconfirmed`: it has nothing yet.
    pub state: String,
    /// Whether it may still reclaim what the server has lost.
    pub is_reclaiming: bool,
    /// Whether it may reclaim what it has if the server loses it.
    pub is_recorded: bool,
    /// Seconds since it was heard last.
    pub silent_s: u64,
    /// Its sessions.
    pub sessions: usize,
    /// Its opens.
    pub opens: usize,
    /// Ranges that it has locked.
    pub locks: usize,
    /// Delegations that it has.
    #[serde(default)]
    pub delegations: usize,
    /// If that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<HoldingStatus>>,
    /// Whether it has more than `holds` tells.
    #[serde(default)]
    pub has_more: bool,
}

/// What a client has at a file, or wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingStatus {
    /// `open`, `lock`, `wait`, `delegation`, `recalled delegation`, or `revoked delegation`.
    pub kind: String,
    /// Paths of the shares on the file's file system.
    pub shares: Vec<String>,
    /// The file's handle there, in hexadecimal digits.
    pub file: String,
    /// Its path, as one word, if it is open in the server's cache: it is not looked for on a disk. Only for who may
    /// change shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Open-owner or lock-owner, in hexadecimal digits.
    pub owner: String,
    /// Of an open: `r`, `w` or `rw`; of a lock or a delegation: `read` or `write`.
    pub access: String,
    /// Of an open, what it forbids others: `r`, `w`, `rw`, or nothing.
    #[serde(default)]
    pub deny: String,
    /// Of a lock: its first byte.
    #[serde(default)]
    pub offset: u64,
    /// Of a lock: how many bytes; none if it reaches to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Of a wait: ids of the clients who come before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<String>,
}

/// The answer to `POST /v1/clients/expire`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientEnded {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// What it was.
    pub client: ClientStatus,
}
