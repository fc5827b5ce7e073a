//! The rule sets of some shares, each once.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use steadfast_shares::RuleSet;

use super::ordered::Ordered;

/// Rule sets, each with the number of shares that have it. Sets are one if their rules are: where
/// the server acts as one user, each share has a copy of its own.
#[derive(Clone, Default)]
pub(super) struct RuleCounts(Ordered<(Arc<RuleSet>, u32)>);

fn hash_of(rules: &RuleSet) -> u64 {
    let mut hasher = SipHasher13::new();
    rules.hash(&mut hasher);
    hasher.finish()
}

/// Whether two sets are one.
pub(super) fn is_same(one: &Arc<RuleSet>, other: &Arc<RuleSet>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

impl RuleCounts {
    /// Counts one more share with these rules. Returns whether it is the first.
    pub(super) fn add(&mut self, rules: &Arc<RuleSet>) -> bool {
        let hash = hash_of(rules);
        if let Some((_, count)) = self.0.find_mut(hash, |(known, _)| is_same(known, rules)) {
            *count += 1;
            return false;
        }
        self.0.insert(hash, (Arc::clone(rules), 1));
        true
    }

    /// Counts one share less. Returns whether it was the last.
    pub(super) fn take(&mut self, rules: &Arc<RuleSet>) -> bool {
        let hash = hash_of(rules);
        let is_it = |(known, _): &(Arc<RuleSet>, u32)| is_same(known, rules);
        match self.0.find_mut(hash, is_it) {
            None => false,
            Some((_, count)) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => self.0.remove(hash, is_it).is_some(),
        }
    }

    /// Each set once.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<RuleSet>> {
        self.0.from(0).map(|(_, (rules, _))| rules)
    }

    #[cfg(test)]
    pub(super) fn allocations(&self) -> Vec<(usize, usize)> {
        self.0.allocations()
    }
}
