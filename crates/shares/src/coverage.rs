//! Which of a share's rules can never match, since one before them covers all of their clients.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use crate::clients::{ClientPattern, masked};
use crate::compile::Field;

/// The patterns of a share's rules so far. A pattern is looked up by its own prefixes, so that a
/// share with thousands of rules costs no comparison of all with all.
#[derive(Debug, Default)]
pub struct Coverage {
    everyone: Option<Field>,
    networks: HashMap<(IpAddr, u8), Field>,
    named: HashMap<ClientPattern, Field>,
    /// Lengths that some network has.
    lengths: BTreeSet<u8>,
}

impl Coverage {
    /// The rule that has all clients of this pattern, if one has.
    pub fn covering(&self, pattern: &ClientPattern) -> Option<(ClientPattern, Field)> {
        if let Some(place) = self.everyone {
            return Some((ClientPattern::Any, place));
        }
        let ClientPattern::Network { network, prefix_bits } = pattern else {
            let place = *self.named.get(pattern)?;
            return Some((pattern.clone(), place));
        };
        self.lengths.range(..=*prefix_bits).find_map(|bits| {
            let network = masked(*network, *bits);
            let place = *self.networks.get(&(network, *bits))?;
            Some((ClientPattern::Network { network, prefix_bits: *bits }, place))
        })
    }

    /// Counts a rule in; of two alike the first is the one that decides.
    pub fn add(&mut self, pattern: &ClientPattern, place: Field) {
        match pattern {
            ClientPattern::Any => {
                self.everyone.get_or_insert(place);
            }
            ClientPattern::Network { network, prefix_bits } => {
                if let Entry::Vacant(entry) = self.networks.entry((*network, *prefix_bits)) {
                    entry.insert(place);
                    self.lengths.insert(*prefix_bits);
                }
            }
            named => {
                self.named.entry(named.clone()).or_insert(place);
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
            coverage.add(&pattern(text), Field::Client(index));
        }
        coverage
    }

    #[test]
    fn a_network_covers_what_is_within_it() {
        let coverage = coverage(&["10.0.0.0/8", "192.168.1.5", "fd00::/8", "10.0.0.0/8"]);
        let covering = |text| coverage.covering(&pattern(text)).map(|(_, field)| field);
        assert_eq!(covering("10.1.0.0/16"), Some(Field::Client(0)));
        assert_eq!(covering("10.0.0.0/8"), Some(Field::Client(0)));
        assert_eq!(covering("192.168.1.5"), Some(Field::Client(1)));
        assert_eq!(covering("fd00:1::1"), Some(Field::Client(2)));
        for wider_or_beside in ["10.0.0.0/7", "192.168.1.4", "0.0.0.0/0", "::/0", "*"] {
            assert_eq!(covering(wider_or_beside), None, "{wider_or_beside}");
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
            assert_eq!(first, (ClientPattern::Any, Field::Client(1)));
        }
    }
}
