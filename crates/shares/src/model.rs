//! Shares, rules and rights as values.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::names::{DomainPattern, HostName, NetgroupName, NoNames};
use crate::rules::{Decision, Question, RuleSet};

/// Names a share in handles: derived from its path or configured, the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareId(pub u64);

/// Which callers are made anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squash {
    /// The superuser (`root_squash`, the default).
    #[default]
    Root,
    /// Nobody (`no_root_squash`).
    None,
    /// Everybody (`all_squash`).
    All,
}

/// How a caller says who he is (`sec=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Not at all (`AUTH_NONE`).
    None,
    /// By numbers that are believed (`AUTH_SYS`).
    Sys,
    /// By Kerberos.
    Krb5,
    /// By Kerberos, with calls that cannot be changed on their way.
    Krb5i,
    /// By Kerberos, with calls that cannot be read on their way.
    Krb5p,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// As it is written after `sec=`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }
}

bitflags::bitflags! {
    /// Some flavours.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flavors: u8 {
        /// [`Flavor::None`]
        const NONE = 1;
        /// [`Flavor::Sys`]
        const SYS = 2;
        /// [`Flavor::Krb5`]
        const KRB5 = 4;
        /// [`Flavor::Krb5i`]
        const KRB5I = 8;
        /// [`Flavor::Krb5p`]
        const KRB5P = 16;
    }
}

impl Default for Flavors {
    /// As in exports(5).
    fn default() -> Self {
        Self::SYS
    }
}

impl From<Flavor> for Flavors {
    fn from(flavor: Flavor) -> Self {
        match flavor {
            Flavor::None => Self::NONE,
            Flavor::Sys => Self::SYS,
            Flavor::Krb5 => Self::KRB5,
            Flavor::Krb5i => Self::KRB5I,
            Flavor::Krb5p => Self::KRB5P,
        }
    }
}

/// What a client may do with a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// To callers of which flavours they are given.
    pub flavors: Flavors,
    /// Whether calls must come from a port below 1024.
    pub needs_privileged_port: bool,
    /// Whether a user's groups are those that this host knows, not those that the client says.
    pub looks_up_groups: bool,
    /// No changes.
    pub is_read_only: bool,
    /// Changes are acknowledged before they are stable (`async` of exports(5)).
    pub is_async: bool,
    /// Who becomes anonymous.
    pub squash: Squash,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// The anonymous group.
    pub anonymous_gid: u32,
}

impl Default for Rights {
    /// As in exports(5), but that changes are allowed.
    fn default() -> Self {
        Self {
            flavors: Flavors::default(),
            needs_privileged_port: true,
            looks_up_groups: false,
            is_read_only: false,
            is_async: false,
            squash: Squash::Root,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
        }
    }
}

/// Which clients a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// A host by its name.
    Host(HostName),
    /// Hosts by their names, `*.example`.
    Domain(DomainPattern),
    /// Hosts of a netgroup, `@group`.
    Netgroup(NetgroupName),
}

impl ClientPattern {
    /// Whether the pattern has the address without any name being looked up. An IPv4 address
    /// mapped into IPv6 counts as IPv4.
    pub fn has_address(&self, client: IpAddr) -> bool {
        let (network, prefix_bits) = match self {
            Self::Any => return true,
            Self::Network { network, prefix_bits } => (network, prefix_bits),
            Self::Host(_) | Self::Domain(_) | Self::Netgroup(_) => return false,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRule {
    /// For whom.
    pub pattern: ClientPattern,
    /// What they may do: the first that is for the caller's flavour. Most rules have one.
    pub grants: Arc<[Rights]>,
}

/// An exported directory with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name in handles.
    pub id: ShareId,
    /// The absolute path that clients mount.
    pub path: Arc<str>,
    /// The directory that is served (after symbolic links of the configured path are resolved), if
    /// that is another than the path says.
    pub elsewhere: Option<Box<Path>>,
    /// Whether file systems mounted below the directory are served too.
    pub crosses_mounts: bool,
    /// Where file systems have to be mounted for it to be served (`mp`); the empty path is its
    /// directory.
    pub required_mounts: Arc<[Arc<str>]>,
    /// Whether changes are flushed though there is an intent log.
    pub without_log: bool,
    /// Whether it takes no new clients: it is not told to anybody, and not mounted.
    pub is_draining: bool,
    /// Rules, first match decides. No match: no access.
    pub rules: Arc<RuleSet>,
}

impl Share {
    /// The directory that is served.
    pub fn directory(&self) -> &Path {
        self.elsewhere.as_deref().unwrap_or(Path::new(&*self.path))
    }

    /// Where file systems have to be mounted for it to be served.
    pub fn required_mounts(&self) -> impl Iterator<Item = &Path> {
        self.required_mounts
            .iter()
            .map(|mount| if mount.is_empty() { self.directory() } else { Path::new(&**mount) })
    }

    /// The directory's path; the share's own, where it is that, in the same memory.
    pub fn directory_bytes(&self) -> Arc<[u8]> {
        match &self.elsewhere {
            Some(directory) => directory.as_os_str().as_bytes().into(),
            None => Arc::clone(&self.path).into(),
        }
    }

    /// The same share of another directory.
    #[must_use]
    pub fn of_directory(&self, directory: &Path) -> Self {
        let elsewhere = (*directory != *Path::new(&*self.path)).then(|| directory.into());
        Self { elsewhere, ..self.clone() }
    }

    /// What a client may do by `AUTH_SYS`, as far as addresses tell; `None` for nothing at all.
    pub fn rights(&self, client: IpAddr) -> Option<&Rights> {
        let question = Question { client, flavor: Flavor::Sys, from_privileged_port: true };
        match self.rules.decide(&question, &NoNames) {
            Decision::Granted(place) => self.rules.grant(place),
            Decision::Refused(_) | Decision::Pending => None,
        }
    }
}
