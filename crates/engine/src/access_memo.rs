//! What a connection's client may do on the shares it uses, so that the rules are asked once a
//! connection and not once a call (design: access checked on *every* call at the price of a
//! comparison).
//!
//! An entry holds for one generation of the export table: after a reload, whatever it changed,
//! all connections ask the rules again at their next call.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_shares::Rights;

use crate::export::{Export, ExportTable};

/// Shares that one connection remembers. Few clients use more than one by one connection.
const ENTRIES: usize = 4;

/// An entry is one word, so that several workers may use a connection's memo without a lock:
/// generation, place of the share in the table, rule (from the lowest bit on: 16, 20, 28 bits).
const RULE_BITS: u32 = 16;
const PLACE_BITS: u32 = 20;
const GENERATION_BITS: u32 = 28;
/// Stands for "no rule matches".
const NO_RULE: u64 = (1 << RULE_BITS) - 1;

/// The memo of one connection.
#[derive(Debug, Default)]
pub(crate) struct AccessMemo([AtomicU64; ENTRIES]);

impl AccessMemo {
    /// What the client at `address` may do on the export at `place` of the table; `None` for
    /// nothing at all. The address must be the same at each call.
    pub(crate) fn rights<'t>(
        &self,
        table: &'t ExportTable,
        place: usize,
        export: &'t Export,
        address: std::net::IpAddr,
    ) -> Option<&'t Rights> {
        let rules = &export.share.rules;
        let decide = || export.share.deciding_rule(address);
        let known = table.generation & ((1 << GENERATION_BITS) - 1);
        // Generation 0 is that of tables that no engine serves, and of empty entries.
        let is_memorable = known != 0 && place >> PLACE_BITS == 0 && (rules.len() as u64) < NO_RULE;
        let Some(entry) = self.0.get(place % ENTRIES).filter(|_| is_memorable) else {
            return rules.get(decide()?).map(|rule| &rule.rights);
        };
        let share = (known << PLACE_BITS) | place as u64;
        let word = entry.load(Ordering::Relaxed);
        let rule = if word >> RULE_BITS == share {
            word & NO_RULE
        } else {
            let rule = decide().map_or(NO_RULE, |rule| rule as u64);
            entry.store((share << RULE_BITS) | rule, Ordering::Relaxed);
            rule
        };
        // No share has as many rules as `NO_RULE`.
        rules.get(rule as usize).map(|rule| &rule.rights)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use proptest::prelude::*;
    use steadfast_shares::{ClientPattern, ClientRule, Share, ShareId};
    use steadfast_vfs::model::ModelFs;

    use super::*;

    fn share(id: u64, networks: &[(u8, u8)]) -> Export {
        let rules = networks
            .iter()
            .enumerate()
            .map(|(index, (last, prefix_bits))| ClientRule {
                pattern: ClientPattern::Network {
                    network: Ipv4Addr::new(192, 0, 2, *last).into(),
                    prefix_bits: *prefix_bits,
                },
                rights: Rights { anonymous_uid: index as u32, ..Rights::default() },
            })
            .collect();
        let share = Share {
            id: ShareId(id),
            path: format!("/{id}"),
            directory: "/".into(),
            crosses_mounts: false,
            without_log: false,
            rules,
        };
        Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o755)) }
    }

    proptest! {
        /// Whatever is asked of whichever table in whichever order, the memo says what the rules
        /// say.
        #[test]
        fn the_memo_says_what_the_rules_say(
            tables in prop::collection::vec(
                prop::collection::vec(prop::collection::vec((0..8_u8, 29..=32_u8), 0..4), 1..9),
                1..4,
            ),
            client in 0..8_u8,
            questions in prop::collection::vec((0..4_usize, 0..9_usize), 1..200),
        ) {
            let address = IpAddr::from(Ipv4Addr::new(192, 0, 2, client));
            let tables: Vec<ExportTable> = (1..).zip(&tables).map(|(generation, table)| {
                let exports = (0..).zip(table).map(|(id, rules)| share(id, rules)).collect();
                ExportTable::new(exports).with_generation(generation)
            }).collect();
            let memo = AccessMemo::default();
            for (table, id) in questions {
                let table = &tables[table % tables.len()];
                let Some((place, export)) = table.place(ShareId(id as u64)) else { continue };
                let expected = export.share.rights(address);
                prop_assert_eq!(memo.rights(table, place, export, address), expected);
            }
        }
    }
}
