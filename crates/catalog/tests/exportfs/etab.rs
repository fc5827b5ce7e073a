//! What the table of exportfs(8) gives to whom, as mountd(8) and the kernel read it, written down
//! a second time and without anything of the importer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_shares::{DomainPattern, Flavor, HostName, Known, Names, NetgroupName};

/// The name service of the test, as /etc/hosts.
pub(crate) const HOSTS: [(&str, &str); 6] = [
    ("127.0.0.1", "localhost"),
    ("10.0.0.1", "h1.x"),
    ("10.1.0.1", "h2.x"),
    ("10.0.0.7", "node7"),
    ("192.0.2.1", "master"),
    ("fd00::1", "h3.x"),
];

/// Hosts of netgroups.
const NETGROUPS: [(&str, &str); 4] =
    [("g", "10.0.0.2"), ("G", "10.1.2.3"), ("staff", "fd00::2"), ("trusted", "198.51.100.1")];

fn name_of(client: IpAddr) -> Option<&'static str> {
    HOSTS.iter().find(|(address, _)| address.parse() == Ok(client)).map(|(_, name)| *name)
}

fn is_in_netgroup(netgroup: &str, client: IpAddr) -> bool {
    NETGROUPS.iter().any(|(name, host)| *name == netgroup && host.parse() == Ok(client))
}

/// The same name service for our rules.
pub(crate) struct Table;

impl Names for Table {
    fn is_host(&self, host: &HostName, client: IpAddr) -> Known {
        known(name_of(client) == Some(host.as_str()))
    }

    fn is_in_domain(&self, domain: &DomainPattern, client: IpAddr) -> Known {
        let name = name_of(client).and_then(HostName::new);
        known(name.is_some_and(|name| domain.matches(&name)))
    }

    fn is_in_netgroup(&self, netgroup: &NetgroupName, client: IpAddr) -> Known {
        known(is_in_netgroup(netgroup.as_str(), client))
    }
}

fn known(is_so: bool) -> Known {
    if is_so { Known::Yes } else { Known::No }
}

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Nothing,
    Rights {
        is_read_only: bool,
        /// 0 nobody, 1 root, 2 everybody.
        squash: u8,
        /// As whom, if somebody is.
        anonymous: Option<(u32, u32)>,
        crosses_mounts: bool,
        /// Whether changes are acknowledged before they are stable.
        is_async: bool,
    },
}

impl Given {
    /// Whether it is no more than another.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, _) => true,
            (_, Self::Nothing) => false,
            (
                Self::Rights { is_read_only, squash, anonymous, crosses_mounts, is_async },
                Self::Rights {
                    is_read_only: only_read,
                    squash: squashed,
                    anonymous: whom,
                    crosses_mounts: crosses,
                    is_async: is_async_there,
                },
            ) => {
                is_read_only >= only_read
                    && squash >= squashed
                    && (anonymous == whom || whom.is_none())
                    && crosses_mounts <= crosses
                    && is_async <= is_async_there
            }
        }
    }
}

/// A line of the table.
pub(crate) struct Entry {
    pub(crate) path: String,
    client: String,
    options: Vec<String>,
}

pub(crate) fn read(text: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let (path, rest) = line.split_once('\t')?;
        let (client, options) = rest.split_once('(')?;
        let options = options.strip_suffix(')')?.split(',').map(str::to_owned).collect();
        Some(Entry { path: decoded(path), client: client.to_owned(), options })
    };
    // A client with a blank or the end of a line in it makes lines that mountd cannot read either.
    text.lines().filter_map(entry).collect()
}

fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let digits = tail.get(..3).filter(|d| *first == b'\\' && d.iter().all(u8::is_ascii_digit));
        if let Some(digits) = digits {
            let number = digits.iter().fold(0_u32, |n, d| n * 8 + u32::from(*d - b'0'));
            bytes.push(number as u8);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            bytes.push(*first);
        }
    }
    // One that is not there keeps its slashes.
    let path = String::from_utf8_lossy(&bytes).into_owned();
    let parts = path.split('/').filter(|part| !part.is_empty());
    let is_absolute = path.starts_with('/');
    let plain: String = parts.flat_map(|part| ["/", part]).collect();
    match is_absolute {
        true if plain.is_empty() => "/".to_owned(),
        true => plain,
        false => path,
    }
}

/// What the first line that has the client gives, in the table's order, which is mountd's.
pub(crate) fn given(
    table: &[Entry],
    path: &str,
    client: IpAddr,
    flavor: Flavor,
    from_privileged_port: bool,
) -> Given {
    let found = table.iter().find(|entry| entry.path == path && entry.has(client));
    found.map_or(Given::Nothing, |entry| entry.given(flavor, from_privileged_port))
}

impl Entry {
    fn has(&self, client: IpAddr) -> bool {
        let text = self.client.as_str();
        if text.is_empty() || text == "*" {
            return true;
        }
        if text.starts_with("gss/") {
            return false;
        }
        if let Some(netgroup) = text.strip_prefix('@') {
            return is_in_netgroup(netgroup, client);
        }
        let wildcard = text.find(['*', '?', '[']);
        let slash = text.find('/');
        match (wildcard, slash) {
            (Some(_), None) => name_of(client).is_some_and(|name| wildmat(name, text)),
            (Some(wildcard), Some(slash)) if wildcard < slash => {
                name_of(client).is_some_and(|name| wildmat(name, text))
            }
            (_, Some(_)) => is_in_network(text, client),
            _ => text.parse() == Ok(client) || name_of(client) == Some(text),
        }
    }

    fn given(&self, flavor: Flavor, from_privileged_port: bool) -> Given {
        let word = |name: &str| self.options.iter().find_map(|word| word.strip_prefix(name));
        let id = |name| word(name).and_then(|n| n.parse::<i32>().ok()).map(|n| n as u32);
        let (Some(uid), Some(gid)) = (id("anonuid="), id("anongid=")) else {
            panic!("no anonymous ids: {:?}", self.options)
        };
        let flavor = if flavor == Flavor::None { ["none", "null"] } else { ["sys", "unix"] };
        let is_for = |word: &&String| {
            let names = word.strip_prefix("sec=");
            names.is_some_and(|names| names.split(':').any(|name| flavor.contains(&name)))
        };
        let Some(start) = self.options.iter().position(|word| is_for(&word)) else {
            return Given::Nothing;
        };
        let own = self.options.get(start + 1..).unwrap_or_default();
        let end = own.iter().position(|word| word.starts_with("sec=")).unwrap_or(own.len());
        let own = own.get(..end).unwrap_or_default();
        let all = self.options.iter().take_while(|word| !word.starts_with("sec="));
        let all: Vec<&String> = all.collect();
        let has = |word: &str| own.iter().any(|known| known == word);
        let whole = |word: &str| all.iter().any(|known| *known == word);
        let is_secure = has("secure") || (!has("insecure") && whole("secure"));
        if is_secure && !from_privileged_port {
            return Given::Nothing;
        }
        let squash = match (has("all_squash"), has("root_squash")) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        Given::Rights {
            is_read_only: has("ro"),
            squash,
            anonymous: (squash > 0).then_some((uid, gid)),
            crosses_mounts: whole("crossmnt"),
            is_async: whole("async"),
        }
    }
}

fn is_in_network(text: &str, client: IpAddr) -> bool {
    let Some((network, length)) = text.split_once('/') else { return false };
    match (network.parse(), client) {
        (Ok(IpAddr::V4(network)), IpAddr::V4(client)) => {
            let mask = match (length.parse::<Ipv4Addr>(), length.trim_start_matches('+').parse()) {
                (Ok(mask), _) => mask.to_bits(),
                (_, Ok(bits @ 0..=32_u32)) => u32::MAX.checked_shl(32 - bits).unwrap_or(0),
                _ => return false,
            };
            network.to_bits() & mask == client.to_bits() & mask
        }
        (Ok(IpAddr::V6(network)), IpAddr::V6(client)) => {
            let mask = match (length.parse::<Ipv6Addr>(), length.parse()) {
                (Ok(mask), _) => mask.to_bits(),
                (_, Ok(bits @ 0..=128_u32)) => u128::MAX.checked_shl(128 - bits).unwrap_or(0),
                _ => return false,
            };
            network.to_bits() & mask == client.to_bits() & mask
        }
        _ => false,
    }
}

/// As `wildmat` of nfs-utils.
fn wildmat(text: &str, pattern: &str) -> bool {
    matches(text.as_bytes(), pattern.as_bytes())
}

fn matches(text: &[u8], pattern: &[u8]) -> bool {
    let Some((p, rest)) = pattern.split_first() else { return text.is_empty() };
    if *p == b'*' {
        return matches(text, rest) || text.split_first().is_some_and(|(_, t)| matches(t, pattern));
    }
    let Some((c, tail)) = text.split_first() else { return false };
    match p {
        b'?' => matches(tail, rest),
        b'\\' => rest
            .split_first()
            .is_some_and(|(p, rest)| p.eq_ignore_ascii_case(c) && matches(tail, rest)),
        b'[' => {
            let (is_inverted, class) = match rest.split_first() {
                Some((b'^', class)) => (true, class),
                _ => (false, rest),
            };
            let mut is_member = false;
            let mut at = 0;
            let mut last = *p;
            if let Some(first @ (b']' | b'-')) = class.first() {
                is_member = first == c;
                (last, at) = (*first, 1);
            }
            while let Some(member) = class.get(at).filter(|member| **member != b']') {
                match class.get(at + 1) {
                    Some(next) if *member == b'-' && *next != b']' => {
                        is_member |= (last..=*next).contains(c);
                        at += 1;
                        last = *next;
                    }
                    _ => {
                        is_member |= member.eq_ignore_ascii_case(c);
                        last = *member;
                    }
                }
                at += 1;
            }
            is_member != is_inverted && class.get(at + 1..).is_some_and(|rest| matches(tail, rest))
        }
        p => p.eq_ignore_ascii_case(c) && matches(tail, rest),
    }
}
