//! Patterns of clients, and how they are written: `*`, an address, a network, or a name.

use std::net::IpAddr;

use crate::names::{DomainPattern, HostName, NetgroupName};
use crate::quoted::shown;

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

/// Why a client pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// What is wrong with it.
    pub what: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl PatternError {
    fn new(what: String) -> Self {
        Self { what, suggestion: None }
    }
}

impl std::str::FromStr for ClientPattern {
    type Err = PatternError;

    /// `*`, `ADDRESS`, `ADDRESS/BITS`, `ADDRESS/MASK` for IPv4, `HOST`, `*.DOMAIN`, or
    /// `@NETGROUP`. Bits of the address beyond the network's are a mistake.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(netgroup) = text.strip_prefix('@') {
            return NetgroupName::new(netgroup)
                .map(Self::Netgroup)
                .ok_or_else(|| PatternError::new(format!("{} is no netgroup", shown(text))));
        }
        if let Some(host) = HostName::new(text) {
            return Ok(Self::Host(host));
        }
        if let Some(domain) = DomainPattern::new(text) {
            return Ok(Self::Domain(domain));
        }
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(not_an_address(text));
        };
        let bits_max: u8 = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match length {
            None => bits_max,
            Some(length) => prefix(address, length, bits_max).ok_or_else(|| {
                PatternError::new(format!(
                    "the network {} needs a length from 0 to {bits_max} after the slash",
                    shown(text)
                ))
            })?,
        };
        let network = masked(address, prefix_bits);
        if network != address {
            return Err(PatternError {
                what: format!("the network {} has bits set beyond its length", shown(text)),
                suggestion: Some(format!("{network}/{prefix_bits}")),
            });
        }
        canonical(text, network, prefix_bits)
    }
}

impl ClientPattern {
    /// Why the pattern can have no client, if that is so: it looks like addresses with wildcards, and
    /// wildcards are for names.
    pub fn matches_nobody(&self) -> Option<String> {
        let Self::Domain(domain) = self else { return None };
        domain.looks_like_addresses().then(|| {
            let network = network_of_wildcards(domain.as_str());
            let instead = network.map_or_else(
                || "write a network like \"10.0.0.0/8\"".to_owned(),
                |network| format!("write {}", shown(&network)),
            );
            let pattern = shown(domain.as_str());
            format!("{pattern} has no address, since wildcards are for names: {instead}")
        })
    }

    /// Whether all clients of another pattern are known to be among its own, without any name
    /// being looked up.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (
                Self::Network { network, prefix_bits },
                Self::Network { network: within, prefix_bits: bits },
            ) => {
                network.is_ipv4() == within.is_ipv4()
                    && prefix_bits <= bits
                    && masked(*within, *prefix_bits) == *network
            }
            (Self::Domain(domain), Self::Host(host)) => domain.matches(host),
            _ => self == other,
        }
    }
}

impl std::fmt::Display for ClientPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Network { network, prefix_bits } => {
                let is_one = *prefix_bits == if network.is_ipv4() { 32 } else { 128 };
                if is_one { write!(f, "{network}") } else { write!(f, "{network}/{prefix_bits}") }
            }
            Self::Host(host) => write!(f, "{host}"),
            Self::Domain(domain) => write!(f, "{domain}"),
            Self::Netgroup(netgroup) => write!(f, "{netgroup}"),
        }
    }
}

/// The network that `10.1.*` or `10.1.*.*` was meant to be.
fn network_of_wildcards(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    let fixed = parts.iter().take_while(|part| part.parse::<u8>().is_ok()).count();
    let is_plain = (1..=3).contains(&fixed)
        && parts.len() <= 4
        && parts.iter().skip(fixed).all(|part| *part == "*");
    let numbers = parts.iter().take(fixed).copied().chain(std::iter::repeat("0")).take(4);
    is_plain.then(|| format!("{}/{}", numbers.collect::<Vec<_>>().join("."), 8 * fixed))
}

/// Whether an address, or a network's, is one of IPv4 that is written as IPv6.
pub fn spans_mapped(text: &str) -> bool {
    let address = text.split('/').next().unwrap_or(text);
    let address = address.parse::<std::net::Ipv6Addr>();
    address.is_ok_and(|address| IpAddr::from(address).to_canonical().is_ipv4())
}

fn not_an_address(text: &str) -> PatternError {
    PatternError::new(format!(
        "{} is not an address, a network like \"10.0.0.0/8\", a host's name, a domain like \
         \"*.example\", a netgroup like \"@staff\", or \"*\"",
        shown(text)
    ))
}

/// The length of a network: bits, or for IPv4 a mask of leading ones.
fn prefix(address: IpAddr, length: &str, bits_max: u8) -> Option<u8> {
    if let (IpAddr::V4(_), Ok(mask)) = (address, length.parse::<std::net::Ipv4Addr>()) {
        let mask = mask.to_bits();
        let is_contiguous = mask.leading_ones() + mask.trailing_zeros().min(32) >= 32;
        return is_contiguous.then(|| mask.leading_ones() as u8);
    }
    let is_plain = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    length.parse::<u8>().ok().filter(|bits| is_plain && *bits <= bits_max)
}

/// The network of this length that an address is in.
pub(crate) fn masked(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(a.to_bits() & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_bits.min(128))).unwrap_or(0);
            std::net::Ipv6Addr::from_bits(a.to_bits() & mask).into()
        }
    }
}

/// IPv4 addresses are matched as such, so one written as IPv6 becomes one here.
fn canonical(text: &str, network: IpAddr, prefix_bits: u8) -> Result<ClientPattern, PatternError> {
    let is_mapped = network.is_ipv6() && network.to_canonical().is_ipv4();
    if !is_mapped {
        return Ok(ClientPattern::Network { network, prefix_bits });
    }
    match prefix_bits.checked_sub(96) {
        Some(prefix_bits) => {
            Ok(ClientPattern::Network { network: network.to_canonical(), prefix_bits })
        }
        None => Err(PatternError::new(format!(
            "the network {} cuts through the addresses of IPv4: write it as IPv4",
            shown(text)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, prefix_bits: u8) -> ClientPattern {
        ClientPattern::Network { network: text.parse().expect("an address"), prefix_bits }
    }

    #[test]
    fn patterns_are_read() {
        let cases = [
            ("*", ClientPattern::Any),
            ("10.0.0.0/8", network("10.0.0.0", 8)),
            ("10.0.0.0/255.0.0.0", network("10.0.0.0", 8)),
            ("0.0.0.0/0", network("0.0.0.0", 0)),
            ("0.0.0.0/0.0.0.0", network("0.0.0.0", 0)),
            ("192.168.1.5", network("192.168.1.5", 32)),
            ("fd00::/8", network("fd00::", 8)),
            ("::1", network("::1", 128)),
            ("::/0", network("::", 0)),
            ("::ffff:10.1.0.0/112", network("10.1.0.0", 16)),
            ("Client.example", ClientPattern::Host(HostName::new("client.example").expect("one"))),
            ("*.Example", ClientPattern::Domain(DomainPattern::new("*.example").expect("one"))),
            ("@Staff", ClientPattern::Netgroup(NetgroupName::new("Staff").expect("one"))),
        ];
        for (text, pattern) in cases {
            assert_eq!(text.parse(), Ok(pattern), "{text}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "10.0.0.0/8/8",
            "10.0.0.0/255.0.255.0",
            "fd00::/129",
            "fd00::/255.0.0.0",
            "a..example",
            "@",
            "@a b",
            "**",
            "fe80::1%eth0",
            "10.0.0.0 /8",
            "::ffff:0.0.0.0/95",
        ] {
            assert!(text.parse::<ClientPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn bits_beyond_the_network_are_told_with_what_was_meant() {
        let error = "10.1.2.3/8".parse::<ClientPattern>().unwrap_err();
        assert_eq!(error.suggestion.as_deref(), Some("10.0.0.0/8"));
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for text in [
            "*",
            "10.0.0.0/8",
            "192.168.1.5",
            "fd00::/8",
            "::1",
            "0.0.0.0/0",
            "a.example",
            "*.example",
            "@staff",
        ] {
            let pattern: ClientPattern = text.parse().expect("a pattern");
            assert_eq!(pattern.to_string(), text);
        }
    }
}
