//! Settings and bounds.

use crate::delegation_record::DelegationKind;

/// Longest client owner, and longest open-owner (`NFS4_OPAQUE_LIMIT`), in bytes.
pub(crate) const OWNER_BYTES_MAX: usize = 1024;

/// Bounds of what clients can make. What exceeds one gets [`crate::StateError::TryLater`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Confirmed clients; 28,000 at most, whatever is said here. Beside them there are a quarter as
    /// many unconfirmed records, and 16 at least: beyond that, the oldest one makes room. And there
    /// are as many hosts that speak NLM: beyond that, one without locks makes room.
    pub clients_max: u32,
    /// Sessions of one client.
    pub sessions_a_client_max: u32,
    /// Opens of one client.
    pub opens_a_client_max: u32,
    /// Ranges that one client has locked, in all files; and its lock stateids.
    pub ranges_a_client_max: u32,
    /// Opens of all clients together.
    pub opens_max: u32,
    /// Ranges that all clients have locked together, and their lock stateids.
    pub locks_max: u32,
    /// Delegations of one client.
    pub delegations_a_client_max: u32,
    /// Delegations of all clients together.
    pub delegations_max: u32,
    /// Slots of one session, in either direction.
    pub slots_max: u32,
    /// Size of one kept reply in bytes.
    pub reply_bytes_max: u32,
    /// Bytes that the slots of all sessions may have together, with the replies that they keep. A
    /// session reserves its part when it is created. Once half of the bytes are reserved, it gets fewer slots the less
    /// there is left, so that with the default limits there is a session for each client up to `clients_max`. Clients
    /// that have several each leave fewer for others.
    pub slot_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // 10,000 clients with 64 slots, an open and a lock each take some 100 MiB (docs/nfsv4.md, Costs).
            clients_max: 16_384,
            sessions_a_client_max: 16,
            opens_a_client_max: 100_000,
            ranges_a_client_max: 20_000,
            opens_max: 1_000_000,
            locks_max: 1_000_000,
            delegations_a_client_max: 20_000,
            delegations_max: 100_000,
            slots_max: 64,
            reply_bytes_max: 2048,
            slot_bytes_max: 512 << 20,
        }
    }
}

/// Which delegations are granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delegations {
    /// None.
    #[default]
    None,
    /// To read.
    Read,
    /// To read and to write.
    Write,
}

impl Delegations {
    /// Whether delegations of this kind are granted.
    pub fn gives(self, kind: DelegationKind) -> bool {
        match kind {
            DelegationKind::Read => self != Self::None,
            DelegationKind::Write => self == Self::Write,
        }
    }
}

/// What the state needs to know from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of the server's life between two losses of its state. It is part of all ids, so that
    /// ids from before a loss are recognised. It must never be used again.
    pub instance: u32,
    /// A client that sends nothing for so long (in ms) may lose its state.
    pub lease_ms: u64,
    /// Which delegations are granted.
    pub delegations: Delegations,
    /// Whether what was delegated by an earlier process is recalled, since nobody knows what local processes have done
    /// meanwhile.
    pub recalls_restored: bool,
    /// Bounds.
    pub limits: Limits,
}

impl Settings {
    /// A lease of 90 s, no delegations, and the default limits.
    pub fn new(instance: u32) -> Self {
        Self {
            instance,
            lease_ms: 90_000,
            delegations: Delegations::default(),
            recalls_restored: false,
            limits: Limits::default(),
        }
    }
}
