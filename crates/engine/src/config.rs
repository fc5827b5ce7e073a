//! What an engine is made of.

use steadfast_shares::HostName;

use crate::delegations::Delegations;
use crate::local_guards::LocalGuard;
use crate::rpcbind::transports::Transports;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Key of the MAC in handles; kept in the state directory, the same after a restart.
    pub handle_key: [u8; 16],
    /// The write verifier to begin with: differs after every restart that may have lost
    /// unstable data.
    pub write_verifier: u64,
    /// Largest READ and WRITE over TCP, in bytes.
    pub transfer_bytes_max: u32,
    /// Bound of the duplicate request cache, in bytes.
    pub reply_cache_bytes_max: usize,
    /// How long the duplicate request cache is to keep a reply, in ms: longer than a client waits
    /// before it asks again.
    pub reply_cache_history_ms: u64,
    /// Port that MOUNT and NFS answer on, for rpcbind replies.
    pub nfs_port: u16,
    /// What MOUNT and NFS are served on, for rpcbind replies.
    pub transports: Transports,
    /// Counts the times that the server lost what it knew of clients: another number each time.
    pub instance: u32,
    /// Whether NFSv2 is served.
    pub nfs2: bool,
    /// Whether NFSv4 is served.
    pub nfs4: bool,
    /// Which delegations are granted.
    pub delegations: Delegations,
    /// Whether only files are delegated that are guarded from local processes.
    pub local_guard: LocalGuard,
    /// How owners have names in NFSv4.
    pub idmapping: IdMapping,
}

/// How users and groups have names in NFSv4 (RFC 8881 §5.9). Without more said, names are of no domain, and
/// numbers are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMapping {
    /// The domain behind the `@` whose users and groups are this host's.
    pub domain: Option<HostName>,
    /// Whether owners are told by name.
    pub tells_names: bool,
}
