//! `/etc/hosts`: an address and its names a line.

use std::collections::HashMap;
use std::net::IpAddr;

use steadfast_shares::HostName;

use crate::facts::{Fact, Subject};

/// What a hosts file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HostsFile {
    hosts: HashMap<HostName, Vec<IpAddr>>,
    clients: HashMap<IpAddr, Vec<HostName>>,
}

impl HostsFile {
    /// Reads the file's text. Lines, and names, that are none are left out, as the C library does.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or("");
            let mut words = line.split_whitespace();
            // An address with a zone is one of this machine's links: no client has it.
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            let address = address.to_canonical();
            for name in words.filter_map(HostName::new) {
                let addresses = file.hosts.entry(name.clone()).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
                let names = file.clients.entry(address).or_default();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        file
    }

    /// What it says about a host or a client.
    pub fn find(&self, subject: &Subject) -> Option<Fact> {
        match subject {
            Subject::Host(host) => self.hosts.get(host).map(|all| Fact::Addresses(all.clone())),
            Subject::Client(client) => self.clients.get(client).map(|all| Fact::Names(all.clone())),
            Subject::Netgroup(_)
            | Subject::User(_)
            | Subject::NumberOf(..)
            | Subject::NameOf(..) => None,
        }
    }

    /// About what two files differ.
    pub fn difference(&self, other: &Self) -> Vec<Subject> {
        let hosts = differing(&self.hosts, &other.hosts).map(Subject::Host);
        hosts.chain(differing(&self.clients, &other.clients).map(Subject::Client)).collect()
    }
}

/// The keys that two maps do not have with the same value.
pub(crate) fn differing<'a, K, V>(
    one: &'a HashMap<K, V>,
    other: &'a HashMap<K, V>,
) -> impl Iterator<Item = K> + 'a
where
    K: Clone + Eq + std::hash::Hash,
    V: PartialEq,
{
    let changed = one.iter().filter(|(key, value)| other.get(*key) != Some(*value));
    let new = other.iter().filter(|(key, _)| !one.contains_key(*key));
    changed.chain(new).map(|(key, _)| key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host_named;

    fn addresses(texts: &[&str]) -> Fact {
        Fact::Addresses(texts.iter().map(|a| a.parse().expect("an address")).collect())
    }

    #[test]
    fn names_and_addresses_are_read() {
        let file = HostsFile::parse(
            "127.0.0.1\tlocalhost\n# 10.0.0.9 commented\n\
             10.0.0.1   A.Example  a # 10.0.0.8\n10.0.0.2 a.example.\n10.0.0.1 a.example\n\
             ::ffff:10.0.0.3 mapped\nfd00::1 six\nfe80::1%eth0 zone\nnonsense here\n10.0.0.4\n\
             10.0.0.5 bad..name good\n",
        );
        assert_eq!(file.find(&host_named("a.example")), Some(addresses(&["10.0.0.1", "10.0.0.2"])));
        assert_eq!(file.find(&host_named("mapped")), Some(addresses(&["10.0.0.3"])));
        assert_eq!(file.find(&host_named("good")), Some(addresses(&["10.0.0.5"])));
        for absent in ["commented", "zone", "here"] {
            assert_eq!(file.find(&host_named(absent)), None, "{absent}");
        }
        let client = |text: &str| Subject::Client(text.parse().expect("an address"));
        let Some(Fact::Names(names)) = file.find(&client("10.0.0.1")) else { panic!("names") };
        let names: Vec<_> = names.iter().map(HostName::as_str).collect();
        assert_eq!(names, ["a.example", "a"]);
        assert_eq!(file.find(&client("10.0.0.4")), None);
    }

    #[test]
    fn differences_are_told() {
        let one = HostsFile::parse("10.0.0.1 a b\n10.0.0.2 c\n");
        let other = HostsFile::parse("10.0.0.1 a\n10.0.0.2 c\n10.0.0.3 d\n");
        let mut differing = one.difference(&other);
        differing.sort();
        let client = |text: &str| Subject::Client(text.parse().expect("an address"));
        assert_eq!(
            differing,
            [host_named("b"), host_named("d"), client("10.0.0.1"), client("10.0.0.3")]
        );
        assert_eq!(one.difference(&one), []);
    }
}
