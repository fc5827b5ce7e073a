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
/// Longest name of a user or group, in bytes (`LOGIN_NAME_MAX`).
const ACCOUNT_BYTES_MAX: usize = 256;

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

/// Host names with `*`, `?` and classes of characters (`[0-9]`, `[^ab]`), which match dots too
/// (exports(5)), in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainPattern(Arc<str>);

impl DomainPattern {
    /// `None` unless it has a wildcard and is otherwise made of a host name's characters.
    pub fn new(text: &str) -> Option<Self> {
        let is_pattern = text.len() <= HOST_BYTES_MAX
            && text.contains(['*', '?', '['])
            && text.bytes().any(|b| b.is_ascii_alphanumeric())
            && !text.starts_with('.')
            && !text.contains("..")
            && Self::has_parts_alone(text.as_bytes());
        is_pattern.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Whether it is made of characters of names, wildcards and classes. A class has such characters
    /// and ranges of digits or of small letters: of large ones exportfs(8) makes something else.
    fn has_parts_alone(mut text: &[u8]) -> bool {
        let is_character = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let is_range_end = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
        while let [first, rest @ ..] = text {
            text = rest;
            if *first != b'[' {
                if !is_character(*first) && !matches!(first, b'*' | b'?') {
                    return false;
                }
                continue;
            }
            let Some(end) = rest.iter().position(|b| *b == b']') else { return false };
            let (class, after) = rest.split_at(end);
            let members = class.strip_prefix(b"^").unwrap_or(class);
            let is_range = |at: &usize| *at > 0 && members.get(*at) == Some(&b'-');
            let has_ranges = (0..members.len()).filter(is_range).all(|at| {
                let before = members.get(at - 1).copied().unwrap_or(0);
                match members.get(at + 1) {
                    Some(next) => is_range_end(before) && is_range_end(*next) && before <= *next,
                    None => true,
                }
            });
            if members.is_empty() || !members.iter().all(|b| is_character(*b)) || !has_ranges {
                return false;
            }
            text = after.get(1..).unwrap_or_default();
        }
        true
    }

    /// The pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it looks like addresses (`10.0.0.*`), of which it has none: names alone are matched.
    pub fn looks_like_addresses(&self) -> bool {
        let mut is_in_class = false;
        let is_number = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'*' | b'?');
        self.0.contains(|c: char| c.is_ascii_digit())
            && self.0.bytes().all(|b| {
                is_in_class = (is_in_class && b != b']') || b == b'[';
                is_number(b) || matches!(b, b'[' | b']') || (is_in_class && b == b'-')
            })
            && self.0.contains('.')
    }

    /// Whether a host's name is one of those.
    pub fn matches(&self, host: &HostName) -> bool {
        let (pattern, name) = (self.0.as_bytes(), host.0.as_bytes());
        // After a star that did not fit, it takes one character more and all after it is tried
        // again: each star once, so no pattern takes longer than its length times the name's.
        let (mut p, mut n) = (0, 0);
        let mut star = None;
        while let Some(c) = name.get(n) {
            if pattern.get(p) == Some(&b'*') {
                star = Some((p, n));
                p += 1;
            } else if let Some(length) = part(pattern.get(p..).unwrap_or_default(), *c) {
                p += length;
                n += 1;
            } else {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
        pattern.get(p..).is_none_or(|rest| rest.iter().all(|c| *c == b'*'))
    }
}

/// How long the pattern's first part is (`?`, a class or a character), if it matches a character.
fn part(pattern: &[u8], c: u8) -> Option<usize> {
    let (first, rest) = pattern.split_first()?;
    if *first != b'[' {
        return (*first == b'?' || *first == c).then_some(1);
    }
    let end = rest.iter().position(|b| *b == b']')?;
    let class = rest.get(..end)?;
    let members = class.strip_prefix(b"^").unwrap_or(class);
    let is_inverted = members.len() < class.len();
    let is_member = (0..members.len()).any(|at| {
        let member = members.get(at).copied();
        let before = at.checked_sub(1).and_then(|before| members.get(before));
        match (member, before, members.get(at + 1)) {
            (Some(b'-'), Some(low), Some(high)) => (*low..=*high).contains(&c),
            _ => member == Some(c),
        }
    });
    (is_member != is_inverted).then_some(end + 2)
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

/// Users and groups have names and numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccountKind {
    /// Of a user.
    User,
    /// Of a group.
    Group,
}

impl fmt::Display for AccountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
        })
    }
}

/// The name of a user or group, as the host knows it. Upper and lower case differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountName(Arc<str>);

impl AccountName {
    /// `None` for what no user or group can be called. Digits alone are a number, which is never looked
    /// up; a sign in front of a name has a meaning of its own in passwd(5).
    pub fn new(text: &str) -> Option<Self> {
        let is_name = !text.is_empty()
            && text.len() <= ACCOUNT_BYTES_MAX
            && !text.starts_with(['-', '+', ' '])
            && !text.chars().any(|c| c.is_control() || matches!(c, ':' | '/'))
            && !text.bytes().all(|b| b.is_ascii_digit());
        is_name.then(|| Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn names_of_accounts_are_told_from_what_is_none() {
        for text in
            ["root", "Jane.Doe", "EXAMPLE\\domain users", "jane@ad.example", "7up", "_x", "ü"]
        {
            assert_eq!(AccountName::new(text).expect(text).as_str(), text);
        }
        let long = "a".repeat(257);
        for text in ["", "0", "01", "-1", "+1", "+@g", " a", "a:b", "a/b", "a\0b", "a\n", &long] {
            assert!(AccountName::new(text).is_none(), "{text:?}");
        }
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

    #[test]
    fn classes_of_characters_are_those_of_exports() {
        let matches = |pattern, name| DomainPattern::new(pattern).unwrap().matches(&host(name));
        for (pattern, name, expected) in [
            ("node[0-9]", "node7", true),
            ("node[0-9]", "NODE7", true),
            ("node[0-9]", "node77", false),
            ("node[0-9]", "nodex", false),
            ("N[A1-3c].x", "n2.x", true),
            ("n[A1-3c].x", "na.x", true),
            ("n[A1-3c].x", "n4.x", false),
            ("n[^0-9]*", "nx.y", true),
            ("n[^0-9]*", "n0.y", false),
            ("n[-a].x", "n-a.x", false),
            ("n[a-]b", "n-b", true),
            ("[a-c-e].x", "d.x", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        for text in ["n[12", "n[]", "n[^]", "n[]a]", "n[A-C]", "n[9-0]", "n[a b]", "n[!a]", "n]"] {
            assert!(DomainPattern::new(text).is_none(), "{text}");
        }
    }

    #[test]
    fn patterns_of_addresses_are_told_from_those_of_names() {
        let looks = |text| DomainPattern::new(text).unwrap().looks_like_addresses();
        for text in ["10.*", "192.168.1.?", "10.0.0.[0-9]"] {
            assert!(looks(text), "{text}");
        }
        for text in ["*.example", "10.*.x", "node[0-9]", "node[0-9].x", "h1?"] {
            assert!(!looks(text), "{text}");
        }
    }

    /// The definition, by recursion.
    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => matches(rest, name),
            (Some((b'*', rest)), Some((_, tail))) => matches(rest, name) || matches(pattern, tail),
            (Some((b'[', rest)), Some((d, tail))) => {
                let end = rest.iter().position(|b| *b == b']').unwrap_or(0);
                let (class, rest) = (&rest[..end], &rest[end + 1..]);
                let is_inverted = class[0] == b'^';
                (class[usize::from(is_inverted)..].contains(d) != is_inverted)
                    && matches(rest, tail)
            }
            (Some((c, rest)), Some((d, tail))) => (*c == b'?' || c == d) && matches(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn wildcards_are_what_their_definition_says(
            pattern in "([ab.*?]|\\[\\^?[ab]{1,2}\\]){1,10}", name in "[ab]{1,4}(\\.[ab]{1,4}){0,3}",
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
