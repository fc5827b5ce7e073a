//! What can be asked of name services, and what they can answer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::Equivalent;
use steadfast_shares::{AccountKind, AccountName, HostName, NetgroupName};

/// What a name service is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Which addresses a host has. A name with a dot is complete; one without is looked for in the
    /// search domains.
    Host(HostName),
    /// Which names an address has. Not verified: whoever has the address can claim any.
    Client(IpAddr),
    /// Which hosts are in a netgroup.
    Netgroup(NetgroupName),
    /// Which groups a user is in, by his number.
    User(u32),
    /// Which number the user or group of a name has.
    NumberOf(AccountKind, AccountName),
    /// Which name the user or group of a number has.
    NameOf(AccountKind, u32),
}

/// A [`Subject`] of somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked<'a> {
    Host(&'a HostName),
    Client(IpAddr),
    Netgroup(&'a NetgroupName),
    User(u32),
    NumberOf(AccountKind, &'a AccountName),
    NameOf(AccountKind, u32),
}

/// The kinds of [`Subject`], each with a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Subject::Host`]
    Host,
    /// [`Subject::Client`]
    Client,
    /// [`Subject::Netgroup`]
    Netgroup,
    /// [`Subject::User`]
    User,
    /// [`Subject::NumberOf`]
    NumberOf,
    /// [`Subject::NameOf`]
    NameOf,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Host, Self::Client, Self::Netgroup, Self::User, Self::NumberOf, Self::NameOf];
    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// A number below [`Kind::COUNT`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Whether it is of owners: no decision about access is made by what is known of them, and nothing of it is
    /// kept across restarts.
    pub(crate) const fn is_of_owners(self) -> bool {
        matches!(self, Self::NumberOf | Self::NameOf)
    }
}

impl Subject {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        self.asked().kind()
    }

    pub(crate) const fn asked(&self) -> Asked<'_> {
        match self {
            Self::Host(host) => Asked::Host(host),
            Self::Client(client) => Asked::Client(*client),
            Self::Netgroup(netgroup) => Asked::Netgroup(netgroup),
            Self::User(uid) => Asked::User(*uid),
            Self::NumberOf(kind, name) => Asked::NumberOf(*kind, name),
            Self::NameOf(kind, number) => Asked::NameOf(*kind, *number),
        }
    }
}

impl Hash for Subject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the borrowed form, by which it is found.
        self.asked().hash(state);
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "{host}"),
            Self::Client(client) => write!(f, "{client}"),
            Self::Netgroup(netgroup) => write!(f, "{netgroup}"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::NumberOf(kind, name) => write!(f, "number of {kind} {name}"),
            Self::NameOf(kind, number) => write!(f, "name of {kind} {number}"),
        }
    }
}

impl Asked<'_> {
    /// Its kind.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Host(_) => Kind::Host,
            Self::Client(_) => Kind::Client,
            Self::Netgroup(_) => Kind::Netgroup,
            Self::User(_) => Kind::User,
            Self::NumberOf(..) => Kind::NumberOf,
            Self::NameOf(..) => Kind::NameOf,
        }
    }

    pub(crate) fn to_subject(self) -> Subject {
        match self {
            Self::Host(host) => Subject::Host(host.clone()),
            Self::Client(client) => Subject::Client(client),
            Self::Netgroup(netgroup) => Subject::Netgroup(netgroup.clone()),
            Self::User(uid) => Subject::User(uid),
            Self::NumberOf(kind, name) => Subject::NumberOf(kind, name.clone()),
            Self::NameOf(kind, number) => Subject::NameOf(kind, number),
        }
    }
}

impl Equivalent<Subject> for Asked<'_> {
    fn equivalent(&self, key: &Subject) -> bool {
        *self == key.asked()
    }
}

/// Most addresses of one host that count.
pub(crate) const ADDRESSES_MAX: usize = 256;
/// Most names of one address that count.
pub(crate) const NAMES_MAX: usize = 16;
/// Most hosts of one netgroup that count.
pub const MEMBERS_MAX: usize = 200_000;
/// Most groups of one user that count (Linux has no more: `NGROUPS_MAX`).
pub(crate) const GROUPS_MAX: usize = 65_536;

/// The hosts of a netgroup, nested ones included. In order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// By name.
    pub hosts: Vec<HostName>,
    /// By address, where the netgroup has addresses instead of names.
    pub addresses: Vec<IpAddr>,
    /// Whether a triple of it leaves the host empty, which means every host (netgroup(5)).
    pub is_everybody: bool,
}

impl Members {
    /// Takes in the host field of a triple: empty for everybody, `-` for nobody.
    pub fn add(&mut self, host: &str) {
        match host {
            "" => self.is_everybody = true,
            "-" => {}
            _ => {
                if let Ok(address) = host.parse::<IpAddr>() {
                    self.addresses.push(address.to_canonical());
                } else if let Some(host) = HostName::new(host) {
                    self.hosts.push(host);
                }
            }
        }
    }

    /// Takes in all of another netgroup.
    pub fn add_all(&mut self, other: Self) {
        self.hosts.extend(other.hosts);
        self.addresses.extend(other.addresses);
        self.is_everybody |= other.is_everybody;
    }

    /// In order, each once, and no more than [`MEMBERS_MAX`].
    pub(crate) fn put_in_order(&mut self) {
        self.hosts.sort_unstable();
        self.hosts.dedup();
        self.hosts.truncate(MEMBERS_MAX);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self.addresses.truncate(MEMBERS_MAX);
    }
}

/// What is known about a [`Subject`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// There is no such host, netgroup, user or group, or the address or number has no name.
    Absent,
    /// A host's, in order.
    Addresses(Vec<IpAddr>),
    /// An address's, in order. Not verified.
    Names(Vec<HostName>),
    /// A netgroup's.
    Members(Arc<Members>),
    /// A user's, his own group among them.
    Groups(Arc<[u32]>),
    /// Of the user or group of a name.
    Number(u32),
    /// Of the user or group of a number.
    Name(AccountName),
}

impl Fact {
    /// In order, each once, bounded; what has nothing in it is [`Fact::Absent`], but for a
    /// netgroup and a user, who are there with nothing in them.
    #[must_use]
    pub(crate) fn normal(mut self) -> Self {
        match &mut self {
            Self::Addresses(addresses) => {
                for address in &mut *addresses {
                    *address = address.to_canonical();
                }
                addresses.sort_unstable();
                addresses.dedup();
                addresses.truncate(ADDRESSES_MAX);
                if addresses.is_empty() { Self::Absent } else { self }
            }
            Self::Names(names) => {
                names.sort_unstable();
                names.dedup();
                names.truncate(NAMES_MAX);
                if names.is_empty() { Self::Absent } else { self }
            }
            Self::Members(members) => {
                Arc::make_mut(members).put_in_order();
                self
            }
            Self::Groups(groups) if groups.len() > GROUPS_MAX => {
                Self::Groups(groups.iter().copied().take(GROUPS_MAX).collect())
            }
            // -1 is nobody to the kernel.
            Self::Number(u32::MAX) => Self::Absent,
            Self::Absent | Self::Groups(_) | Self::Number(_) | Self::Name(_) => self,
        }
    }

    /// Whether it says something about things of this kind.
    pub(crate) fn is_about(&self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Self::Absent, _)
                | (Self::Addresses(_), Kind::Host)
                | (Self::Names(_), Kind::Client)
                | (Self::Members(_), Kind::Netgroup)
                | (Self::Groups(_), Kind::User)
                | (Self::Number(_), Kind::NumberOf)
                | (Self::Name(_), Kind::NameOf)
        )
    }
}

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The hosts file.
    HostsFile,
    /// A name server.
    Dns,
    /// The netgroup file.
    NetgroupFile,
    /// The system's name service switch.
    System,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostsFile => "hosts file",
            Self::Dns => "DNS",
            Self::NetgroupFile => "netgroup file",
            Self::System => "system",
        })
    }
}
