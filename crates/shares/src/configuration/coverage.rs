//! Which of a share's rules can never match, since one before them covers all of their clients.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::{Place, Placed};
use crate::clients::masked;
use crate::model::ClientPattern;

/// The patterns of a share's rules so far. A pattern is looked up by its own prefixes, so that a
/// share with thousands of rules costs no comparison of all with all.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    everyone: Option<Place>,
    networks: HashMap<(IpAddr, u8), Place>,
    named: HashMap<ClientPattern, Place>,
    /// Lengths that some network has.
    lengths: BTreeSet<u8>,
}

impl Coverage {
    /// The rule that has all clients of this pattern, if one has.
    pub(super) fn covering(&self, pattern: &ClientPattern) -> Option<Placed<ClientPattern>> {
        if let Some(place) = self.everyone {
            return Some(Placed { value: ClientPattern::Any, place });
        }
        let ClientPattern::Network { network, prefix_bits } = pattern else {
            let place = *self.named.get(pattern)?;
            return Some(Placed { value: pattern.clone(), place });
        };
        self.lengths.range(..=*prefix_bits).find_map(|bits| {
            let network = masked(*network, *bits);
            let place = *self.networks.get(&(network, *bits))?;
            Some(Placed { value: ClientPattern::Network { network, prefix_bits: *bits }, place })
        })
    }

    /// Counts a rule in; of two alike the first is the one that decides.
    pub(super) fn add(&mut self, pattern: &Placed<ClientPattern>) {
        match &pattern.value {
            ClientPattern::Any => {
                self.everyone.get_or_insert(pattern.place);
            }
            ClientPattern::Network { network, prefix_bits } => {
                if let Entry::Vacant(entry) = self.networks.entry((*network, *prefix_bits)) {
                    entry.insert(pattern.place);
                    self.lengths.insert(*prefix_bits);
                }
            }
            named => {
                self.named.entry(named.clone()).or_insert(pattern.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ClientPattern {
        text.parse().expect("a pattern")
    }

    fn coverage(patterns: &[&str]) -> Coverage {
        let mut coverage = Coverage::default();
        for (index, text) in patterns.iter().enumerate() {
            let place = Place { line: index + 1, column: 1 };
            coverage.add(&Placed { value: pattern(text), place });
        }
        coverage
    }

    #[test]
    fn a_network_covers_what_is_within_it() {
        let coverage = coverage(&["10.0.0.0/8", "192.168.1.5", "fd00::/8", "10.0.0.0/8"]);
        let line = |text| coverage.covering(&pattern(text)).map(|first| first.place.line);
        assert_eq!(line("10.1.0.0/16"), Some(1));
        assert_eq!(line("10.0.0.0/8"), Some(1));
        assert_eq!(line("192.168.1.5"), Some(2));
        assert_eq!(line("fd00:1::1"), Some(3));
        for wider_or_beside in ["10.0.0.0/7", "192.168.1.4", "0.0.0.0/0", "::/0", "*"] {
            assert_eq!(line(wider_or_beside), None, "{wider_or_beside}");
        }
    }

    #[test]
    fn all_of_one_family_is_not_everyone() {
        let coverage = coverage(&["0.0.0.0/0"]);
        assert!(coverage.covering(&pattern("10.0.0.1")).is_some());
        assert_eq!(coverage.covering(&pattern("::1")), None);
        assert_eq!(coverage.covering(&pattern("*")), None);
    }

    #[test]
    fn everyone_covers_all() {
        let coverage = coverage(&["10.0.0.1", "*"]);
        for text in ["*", "::/0", "10.0.0.1", "192.168.0.0/16"] {
            let first = coverage.covering(&pattern(text)).expect("covered");
            assert_eq!((first.value, first.place.line), (ClientPattern::Any, 2));
        }
    }
}
