//! What a connection's client may do on the shares it uses, so that the rules are asked once a
//! connection and not once a call (design: access checked on *every* call at the price of a
//! comparison).
//!
//! An entry holds for one version of an export and one epoch of the authority: after a change of
//! the share, or of what is known about names, the rules are asked again at the next call. A
//! change of another share disturbs nobody.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_shares::{Authority, Decision, Flavor, Question, Refusal};

use crate::export::Exported;

/// Shares that one connection remembers. Few clients use more than one by one connection.
const ENTRIES: usize = 8;

/// An entry is one word, so that several workers may use a connection's memo without a lock. From
/// the lowest bit on: decision, flavour and class of port, the authority's epoch, the export's
/// version. Versions and epochs that differ by as much as their bits have are taken for one:
/// that is after millions of changes without a call in between.
const DECISION_BITS: u32 = 10;
const ASKED_BITS: u32 = 4;
const EPOCH_BITS: u32 = 24;
const VERSION_BITS: u32 = 26;
/// Decisions other than grants; grants of higher places than these are not remembered.
const REFUSALS: [(u64, Refusal); 3] = [
    ((1 << DECISION_BITS) - 1, Refusal::Client),
    ((1 << DECISION_BITS) - 2, Refusal::Flavor),
    ((1 << DECISION_BITS) - 3, Refusal::Port),
];

/// The memo of one connection.
#[derive(Debug, Default)]
pub(crate) struct AccessMemo([AtomicU64; ENTRIES]);

impl AccessMemo {
    /// What the authority says about the client on this export. The address and port asked about
    /// must be the same at each call.
    pub(crate) fn decide(
        &self,
        authority: &dyn Authority,
        exported: &Exported,
        question: &Question,
    ) -> Decision {
        let version = exported.version();
        let known = version & ((1 << VERSION_BITS) - 1);
        // Version 0 is that of exports that no engine serves, and of empty entries.
        let entry = if known == 0 { None } else { self.0.get(version as usize % ENTRIES) };
        // Before the rules are asked: what comes to be known meanwhile must not be missed.
        let epoch = authority.epoch() & ((1 << EPOCH_BITS) - 1);
        let asked = asked(question);
        let key = ((known << EPOCH_BITS) | epoch) << ASKED_BITS | asked;
        if let Some(entry) = entry {
            let word = entry.load(Ordering::Relaxed);
            if word >> DECISION_BITS == key {
                return decoded(word & ((1 << DECISION_BITS) - 1));
            }
        }
        let decision = authority.decide(&exported.export.share.rules, question);
        if let (Some(entry), Some(word)) = (entry, encoded(decision)) {
            entry.store((key << DECISION_BITS) | word, Ordering::Relaxed);
        }
        decision
    }
}

fn asked(question: &Question) -> u64 {
    let flavor = match question.flavor {
        Flavor::None => 0,
        Flavor::Sys => 1,
        Flavor::Krb5 => 2,
        Flavor::Krb5i => 3,
        Flavor::Krb5p => 4,
    };
    flavor << 1 | u64::from(question.from_privileged_port)
}

fn encoded(decision: Decision) -> Option<u64> {
    match decision {
        Decision::Granted(place) => {
            let place = u64::from(place);
            REFUSALS.iter().all(|(word, _)| place < *word).then_some(place)
        }
        Decision::Refused(why) => {
            REFUSALS.iter().find(|(_, refusal)| *refusal == why).map(|(word, _)| *word)
        }
        Decision::Pending => None,
    }
}

fn decoded(word: u64) -> Decision {
    REFUSALS.iter().find(|(refused, _)| *refused == word).map_or_else(
        || Decision::Granted(u16::try_from(word).unwrap_or(u16::MAX)),
        |(_, refusal)| Decision::Refused(*refusal),
    )
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use proptest::prelude::*;
    use steadfast_shares::{
        ClientPattern, ClientRule, Flavors, Groups, HostName, Known, Names, NetgroupName, Rights,
        RuleSet, Share, ShareId,
    };
    use steadfast_vfs::model::ModelFs;

    use super::*;
    use crate::export::{Export, ExportTable};

    /// Knows one host's address.
    struct OneHost {
        address: IpAddr,
        epoch: u64,
    }

    impl Names for OneHost {
        fn is_host(&self, _: &HostName, client: IpAddr) -> Known {
            if client == self.address { Known::Yes } else { Known::No }
        }

        fn is_in_domain(&self, _: &steadfast_shares::DomainPattern, _: IpAddr) -> Known {
            Known::NotYet
        }

        fn is_in_netgroup(&self, _: &NetgroupName, _: IpAddr) -> Known {
            Known::Unreachable
        }
    }

    impl Authority for OneHost {
        fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision {
            rules.decide(question, self)
        }

        fn epoch(&self) -> u64 {
            self.epoch
        }

        fn groups(&self, _: u32) -> Groups {
            Groups::NoUser
        }
    }

    fn client(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// Those of the lowest bits.
    fn some_flavors(bits: u8) -> Flavors {
        let all = Flavor::ALL.into_iter().enumerate();
        all.filter(|(place, _)| bits >> place & 1 == 1).map(|(_, flavor)| flavor).collect()
    }

    /// A rule each: for a network, the host, a domain.
    fn share(id: u64, rules: &[(u8, u8, u8)]) -> Export {
        let rules = rules.iter().enumerate().map(|(index, (kind, last, bits))| ClientRule {
            pattern: match kind {
                0 => ClientPattern::Host("h".parse_host()),
                1 => "*.d".parse().expect("a pattern"),
                _ => ClientPattern::Network { network: client(*last), prefix_bits: *bits },
            },
            grants: Arc::new([Rights {
                anonymous_uid: index as u32,
                flavors: some_flavors(*last),
                needs_privileged_port: bits % 2 == 0,
                ..Rights::default()
            }]),
        });
        let share = Share {
            id: ShareId(id),
            path: format!("/{id}").into(),
            elsewhere: None,
            crosses_mounts: false,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: Arc::new(RuleSet::new(rules.collect())),
        };
        Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o755)) }
    }

    trait ParseHost {
        fn parse_host(&self) -> HostName;
    }

    impl ParseHost for str {
        fn parse_host(&self) -> HostName {
            HostName::new(self).expect("a host name")
        }
    }

    type Rules = Vec<Vec<(u8, u8, u8)>>;

    proptest! {
        /// Whatever is asked of whichever table and epoch in whichever order, the memo says what
        /// the rules say.
        #[test]
        fn the_memo_says_what_the_rules_say(
            tables in prop::collection::vec(
                prop::collection::vec(
                    prop::collection::vec((0..5_u8, 0..8_u8, 29..=32_u8), 0..4), 1..9,
                ),
                1..4,
            ),
            last in 0..8_u8,
            questions in prop::collection::vec(
                (0..4_usize, 0..9_u64, 0..8_u8, 0..2_usize, any::<bool>()), 1..200,
            ),
        ) {
            let tables: Vec<Rules> = tables;
            let mut version = 0;
            let tables: Vec<ExportTable> = tables.iter().map(|table| {
                let exports = (0..).zip(table).map(|(id, rules)| share(id, rules)).collect();
                let mut table = ExportTable::new(exports);
                version = table.number(version);
                table
            }).collect();
            let memo = AccessMemo::default();
            for (table, id, host, flavor, from_privileged_port) in questions {
                let table = &tables[table % tables.len()];
                let Some(exported) = table.exported(ShareId(id)) else { continue };
                let authority = OneHost { address: client(host), epoch: u64::from(host) };
                let flavor = [Flavor::None, Flavor::Sys][flavor];
                let question = Question { client: client(last), flavor, from_privileged_port };
                let expected = authority.decide(&exported.export.share.rules, &question);
                prop_assert_eq!(memo.decide(&authority, exported, &question), expected);
            }
        }
    }
}
