//! Which names the rules have.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use steadfast_shares::{ClientPattern, RuleSet};

use super::NameBook;
use super::driver::Driver;
use crate::facts::Subject;

impl NameBook {
    /// Looks after the names of these rules.
    pub(super) fn watch(&self, driver: &mut Driver, added: Vec<Arc<RuleSet>>, now_ms: u64) {
        for rules in added {
            // The book holds the sets, so two that are in one place are one.
            let place = Arc::as_ptr(&rules).addr();
            let is_new = !driver.rules.contains_key(&place);
            if is_new {
                for subject in subjects(&rules) {
                    self.watch_name(&subject, now_ms);
                }
            }
            driver.rules.entry(place).or_insert((rules, 0)).1 += 1;
        }
    }

    /// No longer looks after the names of these rules, if nobody else has them.
    pub(super) fn unwatch_rules(&self, driver: &mut Driver, removed: &[Arc<RuleSet>]) {
        for rules in removed {
            let Entry::Occupied(mut known) = driver.rules.entry(Arc::as_ptr(rules).addr()) else {
                continue;
            };
            known.get_mut().1 -= 1;
            if known.get().1 == 0 {
                known.remove();
                for subject in subjects(rules) {
                    self.unwatch(&subject);
                }
            }
        }
    }

    fn watch_name(&self, subject: &Subject, now_ms: u64) {
        let (is_queued, _) = self.table.enter(subject.asked(), now_ms, |slot| {
            slot.entry.watchers += 1;
            let is_queued = slot.entry.is_due(now_ms);
            if is_queued {
                slot.entry.begin(now_ms, false);
            }
            is_queued
        });
        if is_queued {
            self.enqueue(subject);
        }
    }
}

/// Names that can be looked up before a client comes.
fn subjects(rules: &RuleSet) -> impl Iterator<Item = Subject> {
    rules.rules().iter().filter_map(|rule| match &rule.pattern {
        ClientPattern::Host(host) => Some(Subject::Host(host.clone())),
        ClientPattern::Netgroup(netgroup) => Some(Subject::Netgroup(netgroup.clone())),
        ClientPattern::Any | ClientPattern::Network { .. } | ClientPattern::Domain(_) => None,
    })
}
