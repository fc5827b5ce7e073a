//! Names in rules, and what is known about them when a rule is asked.
//!
//! The rule engine never looks anything up: it asks a [`Names`], which answers from memory at once.
//! "Not known yet" is an answer too; who gives it sees to it that the name is looked up.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Longest host or domain name (RFC 1035 §2.3.4), in bytes.
const HOST_BYTES_MAX: usize = 253;
/// Longest label of a host name, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// Longest name of a netgroup, in bytes.
const NETGROUP_BYTES_MAX: usize = 255;

/// A host's name, in lower case and without the root's dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Arc<str>);

impl HostName {
    /// `None` for what no host can be called. Underscores are let through: they are in use.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= LABEL_BYTES_MAX
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_name = text.len() <= HOST_BYTES_MAX
            && text.split('.').all(is_label)
            && text.bytes().any(|b| b.is_ascii_alphabetic() || b == b'_');
        is_name.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Host names with `*` and `?`, which match dots too (exports(5)), in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainPattern(Arc<str>);

impl DomainPattern {
    /// `None` unless it has a wildcard and is otherwise made of a host name's characters.
    pub fn new(text: &str) -> Option<Self> {
        let is_character =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'*' | b'?');
        let is_pattern = text.len() <= HOST_BYTES_MAX
            && text.contains(['*', '?'])
            && text.bytes().any(|b| b.is_ascii_alphanumeric())
            && text.bytes().all(is_character)
            && !text.starts_with('.')
            && !text.contains("..");
        is_pattern.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a host's name is one of those.
    pub fn matches(&self, host: &HostName) -> bool {
        let (pattern, name) = (self.0.as_bytes(), host.0.as_bytes());
        // After a star that did not fit, it takes one character more and all after it is tried
        // again: each star once, so no pattern takes longer than its length times the name's.
        let (mut p, mut n) = (0, 0);
        let mut star = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(c) if *c == b'?' || name.get(n) == Some(c) => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((at, taken)) = star else { return false };
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
            }
        }
        pattern.get(p..).is_none_or(|rest| rest.iter().all(|c| *c == b'*'))
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a netgroup, without its `@`. Upper and lower case differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetgroupName(Arc<str>);

impl NetgroupName {
    /// `None` for what no netgroup can be called.
    pub fn new(text: &str) -> Option<Self> {
        let is_character = |c: char| !c.is_whitespace() && !c.is_control() && !"(),@".contains(c);
        let is_name =
            !text.is_empty() && text.len() <= NETGROUP_BYTES_MAX && text.chars().all(is_character);
        is_name.then(|| Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NetgroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// What is known about a client and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is the client's.
    Yes,
    /// It is not.
    No,
    /// It is being looked up: there will be an answer soon.
    NotYet,
    /// The name service has not answered for longer than anybody should wait, and never has
    /// before. It goes on being asked.
    Unreachable,
}

/// Who knows about names. Answers at once, from memory.
pub trait Names: Send + Sync {
    /// Whether the client has one of the addresses that the host has.
    fn is_host(&self, host: &HostName, client: IpAddr) -> Known;

    /// Whether the client's name, verified by its address, matches.
    fn is_in_domain(&self, domain: &DomainPattern, client: IpAddr) -> Known;

    /// Whether the client is a host of the netgroup.
    fn is_in_netgroup(&self, netgroup: &NetgroupName, client: IpAddr) -> Known;
}

/// No name service: no name is ever known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn is_host(&self, _: &HostName, _: IpAddr) -> Known {
        Known::Unreachable
    }

    fn is_in_domain(&self, _: &DomainPattern, _: IpAddr) -> Known {
        Known::Unreachable
    }

    fn is_in_netgroup(&self, _: &NetgroupName, _: IpAddr) -> Known {
        Known::Unreachable
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> HostName {
        HostName::new(text).expect("a host name")
    }

    #[test]
    fn host_names_are_told_from_what_is_none() {
        for text in ["a", "Client.Example.", "h-1.example", "_srv.example", "3com.example"] {
            assert!(HostName::new(text).is_some(), "{text}");
        }
        let long = "a".repeat(64);
        for text in ["", ".", "a..b", "-a", "a-", "1.2.3", "a b", "*.x", "@g", "a/b", &long] {
            assert!(HostName::new(text).is_none(), "{text}");
        }
        assert_eq!(host("Client.Example.").as_str(), "client.example");
    }

    #[test]
    fn stars_match_subdomains_too() {
        let domain = DomainPattern::new("*.Cs.example").expect("a pattern");
        for (name, expected) in [
            ("a.cs.example", true),
            ("a.b.cs.example", true),
            ("cs.example", false),
            ("xcs.example", false),
            ("a.cs.example.org", false),
        ] {
            assert_eq!(domain.matches(&host(name)), expected, "{name}");
        }
        for text in ["*", "cs.example", "*..x", ".*", "*.ex ample", "**"] {
            assert!(DomainPattern::new(text).is_none(), "{text}");
        }
    }

    /// The definition, by recursion.
    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => matches(rest, name),
            (Some((b'*', rest)), Some((_, tail))) => matches(rest, name) || matches(pattern, tail),
            (Some((c, rest)), Some((d, tail))) => (*c == b'?' || c == d) && matches(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn wildcards_are_what_their_definition_says(
            pattern in "[ab.*?]{1,10}", name in "[ab]{1,4}(\\.[ab]{1,4}){0,3}",
        ) {
            let (Some(domain), Some(host)) = (DomainPattern::new(&pattern), HostName::new(&name))
                else { return Ok(()) };
            prop_assert_eq!(
                domain.matches(&host),
                matches(pattern.as_bytes(), name.as_bytes())
            );
        }
    }
}
