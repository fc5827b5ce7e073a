//! How long what name services say is believed, and how much of it is remembered.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::facts::Kind;

/// How long answers live. All in ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Shortest life of an answer.
    pub ttl_min_ms: u64,
    /// Longest life of an answer.
    pub ttl_max_ms: u64,
    /// Life of an answer for which the name service names none: netgroups, users, owners.
    pub ttl_default_ms: u64,
    /// Longest life of the answer that there is none.
    pub negative_ms: u64,
    /// How long after it was confirmed an answer is used while the name service is dead.
    pub stale_max_ms: u64,
    /// How long somebody waits for an answer that was never there.
    pub patience_ms: u64,
    /// First and longest time between a failure and the next try.
    pub retry_ms: (u64, u64),
    /// Most decisions remembered, most names that no rule has, and most names and numbers of owners.
    pub entries_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ttl_min_ms: 30_000,
            ttl_max_ms: 3_600_000,
            ttl_default_ms: 600_000,
            negative_ms: 60_000,
            stale_max_ms: 7 * 86_400_000,
            patience_ms: 5000,
            retry_ms: (1000, 60_000),
            entries_max: 100_000,
        }
    }
}

impl Bounds {
    /// The life of an answer, given what the name service says.
    pub(crate) fn ttl_ms(&self, kind: Kind, ttl_s: Option<u32>) -> u64 {
        match (kind, ttl_s) {
            (Kind::Host | Kind::Client, Some(ttl_s)) => {
                // The least last: it is the one that protects the name server.
                (u64::from(ttl_s) * 1000).min(self.ttl_max_ms).max(self.ttl_min_ms)
            }
            (Kind::Host | Kind::Client, None) => self.ttl_min_ms,
            (Kind::Netgroup | Kind::User | Kind::NumberOf | Kind::NameOf, _) => self.ttl_default_ms,
        }
    }

    /// The life of the answer that there is none.
    pub(crate) fn negative_ms(&self, ttl_s: Option<u32>) -> u64 {
        let said_ms = ttl_s.map_or(u64::MAX, |ttl_s| u64::from(ttl_s) * 1000);
        said_ms.min(self.negative_ms).max(self.ttl_min_ms.min(self.negative_ms))
    }
}

/// All that the name services of a server need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// Name servers; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
    /// Hosts known without a name server.
    pub hosts_file: PathBuf,
    /// Netgroups known without a directory service.
    pub netgroup_file: PathBuf,
    /// How long one question to a name server may take, in ms.
    pub timeout_ms: u64,
    /// How long answers live.
    pub bounds: Bounds,
    /// Program and arguments that run [`crate::helper::serve`] with standard input and output;
    /// `None`: the name service switch is not asked.
    pub helper: Option<Vec<OsString>>,
    /// Where what is known is kept across restarts; `None`: nowhere.
    pub state_file: Option<PathBuf>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            hosts_file: "/etc/hosts".into(),
            netgroup_file: "/etc/netgroup".into(),
            timeout_ms: 2000,
            bounds: Bounds::default(),
            helper: None,
            state_file: None,
        }
    }
}
