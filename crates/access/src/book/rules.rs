//! Which names the rules have.

use std::collections::HashMap;
use std::sync::Arc;

use steadfast_shares::{ClientPattern, RuleSet};

use super::NameBook;
use super::driver::Driver;
use crate::facts::Subject;

impl NameBook {
    /// Looks after the names of these rules, and no longer after those of rules that were there
    /// before. Costs what changed, and a look at each set of rules.
    pub(super) fn watch(&self, driver: &mut Driver, rules: Vec<Arc<RuleSet>>, now_ms: u64) {
        // The book holds the sets, so two that are in one place are one.
        let rules: HashMap<_, _> =
            rules.into_iter().map(|rules| (Arc::as_ptr(&rules).addr(), rules)).collect();
        let before = std::mem::take(&mut driver.rules);
        for (place, rules) in &rules {
            if !before.contains_key(place) {
                for subject in subjects(rules) {
                    self.watch_name(&subject, now_ms);
                }
            }
        }
        for (place, gone) in &before {
            if !rules.contains_key(place) {
                for subject in subjects(gone) {
                    self.unwatch(driver, &subject);
                }
            }
        }
        driver.rules = rules;
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
