//! Shares, rules and rights as values.

use std::net::IpAddr;

/// Names a share in handles: derived from its path or configured, the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareId(pub u64);

/// Which callers are made anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// The superuser (`root_squash`, the default).
    #[default]
    Root,
    /// Nobody (`no_root_squash`).
    None,
    /// Everybody (`all_squash`).
    All,
}

/// What a client may do with a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// No changes.
    pub is_read_only: bool,
    /// Who becomes anonymous.
    pub squash: Squash,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// The anonymous group.
    pub anonymous_gid: u32,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            is_read_only: false,
            squash: Squash::Root,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
        }
    }
}

/// Which clients a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPattern {
    /// Everyone.
    Any,
    /// Addresses whose first `prefix_bits` bits are those of `network`.
    Network {
        /// The network's address.
        network: IpAddr,
        /// How many leading bits count.
        prefix_bits: u8,
    },
}

impl ClientPattern {
    /// Whether the pattern covers the address. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn matches(&self, client: IpAddr) -> bool {
        let Self::Network { network, prefix_bits } = self else {
            return true;
        };
        match (network.to_canonical(), client.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(client)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(*prefix_bits).min(32)).unwrap_or(0);
                network.to_bits() & mask == client.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(client)) => {
                let mask =
                    u128::MAX.checked_shl(128 - u32::from(*prefix_bits).min(128)).unwrap_or(0);
                network.to_bits() & mask == client.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// Rights for some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// For whom.
    pub pattern: ClientPattern,
    /// What they may do.
    pub rights: Rights,
}

/// An exported directory with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name in handles.
    pub id: ShareId,
    /// The absolute path that clients mount.
    pub path: String,
    /// The directory that is served (after symbolic links of the configured path are resolved).
    pub directory: std::path::PathBuf,
    /// Whether file systems mounted below the directory are served too.
    pub crosses_mounts: bool,
    /// Whether changes are flushed though there is an intent log.
    pub without_log: bool,
    /// Rules, first match decides. No match: no access.
    pub rules: Vec<ClientRule>,
}

impl Share {
    /// What a client may do; `None` for nothing at all.
    pub fn rights(&self, client: IpAddr) -> Option<&Rights> {
        self.rules.get(self.deciding_rule(client)?).map(|rule| &rule.rights)
    }

    /// The place in `rules` of the one that decides about a client.
    pub fn deciding_rule(&self, client: IpAddr) -> Option<usize> {
        self.rules.iter().position(|rule| rule.pattern.matches(client))
    }
}
