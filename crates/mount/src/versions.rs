//! Which version of a file or directory the kernel's pages and our names are of, and whether somebody
//! else has changed it since: also while changes of ours are in flight. It does no I/O.
//!
//! Each change of ours that is answered is a step: from the version before it (WCC) to the one after
//! it. Replies come in any order, so that steps are put together as they fit, beginning at the last
//! version that is ours. A step that fits nowhere has somebody else's change before it: that is
//! certain once all changes are answered that were in flight when it came.

use std::collections::{BTreeSet, VecDeque};

use crate::attribute_cache::Version;

/// Versions that are remembered, for replies that were overtaken.
const PAST_MAX: usize = 32;
/// Steps that fit nowhere yet. There are no more than changes in flight, but for a strange server.
const STEPS_MAX: usize = 64;

/// A step of ours, or an observation while changes are in flight (both versions are the same then).
#[derive(Clone, Copy, Debug)]
struct Step {
    before: Version,
    after: Version,
    /// It could fit after changes of ours with a number below this.
    next: u64,
}

/// The versions of one object.
#[derive(Debug)]
pub(crate) struct Versions {
    base: Version,
    past: VecDeque<Version>,
    steps: Vec<Step>,
    in_flight: BTreeSet<u64>,
    next: u64,
    ended: u64,
}

impl Versions {
    pub(crate) fn new(base: Version) -> Self {
        Self {
            base,
            past: VecDeque::new(),
            steps: Vec::new(),
            in_flight: BTreeSet::new(),
            next: 0,
            ended: 0,
        }
    }

    /// How many changes of ours have ended, if none is in flight.
    pub(crate) fn quiet(&self) -> Option<u64> {
        self.in_flight.is_empty().then_some(self.ended)
    }

    /// Begins a change of ours; returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight.insert(number);
        number
    }

    /// Ends a change whose effect is not known. True if an older step shows somebody else's change.
    pub(crate) fn end_unknown(&mut self, number: u64) -> bool {
        self.in_flight.remove(&number);
        self.ended += 1;
        self.settle()
    }

    /// Ends a change that is known to have made one version of another. True if that, or an older
    /// step, shows somebody else's change.
    pub(crate) fn end(&mut self, number: u64, before: Version, after: Version) -> bool {
        self.in_flight.remove(&number);
        self.ended += 1;
        self.steps.push(Step { before, after, next: self.next });
        self.settle()
    }

    /// Ends a change of which the version after it alone is known: if nothing says otherwise, it is
    /// believed to be ours alone, as by the kernel's client.
    pub(crate) fn end_with(&mut self, number: u64, after: Version) -> bool {
        let base = self.base;
        self.end(number, base, after)
    }

    /// The last version that is ours.
    pub(crate) fn base(&self) -> Version {
        self.base
    }

    /// Takes a version that was asked for. `is_quiet`: no change of ours was in flight meanwhile.
    /// True if it shows somebody else's change.
    pub(crate) fn see(&mut self, version: Version, is_quiet: bool) -> bool {
        if !is_quiet {
            self.steps.push(Step { before: version, after: version, next: self.next });
            return self.settle();
        }
        let is_foreign = version != self.base;
        self.steps.clear();
        self.advance(version);
        is_foreign
    }

    fn advance(&mut self, version: Version) {
        if version == self.base {
            return;
        }
        if self.past.len() >= PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(self.base);
        self.base = version;
    }

    /// Puts steps together; true if one is left that nothing can come before any more.
    fn settle(&mut self) -> bool {
        while let Some(index) = self.steps.iter().position(|step| self.is_known(step.before)) {
            let step = self.steps.swap_remove(index);
            // From a version of the past: the server does not tell versions of changes at one time
            // apart. What is newer counts.
            if step.before == self.base || step.after.is_newer_than(&self.base) {
                self.advance(step.after);
            }
        }
        let oldest = self.in_flight.first().copied().unwrap_or(u64::MAX);
        let is_hopeless = |step: &Step| step.next <= oldest;
        if self.steps.len() <= STEPS_MAX && !self.steps.iter().any(is_hopeless) {
            return false;
        }
        let newest = self
            .steps
            .iter()
            .map(|step| step.after)
            .reduce(|one, other| if other.is_newer_than(&one) { other } else { one });
        self.steps.clear();
        if let Some(newest) = newest
            && newest.is_newer_than(&self.base)
        {
            self.advance(newest);
        }
        true
    }

    fn is_known(&self, version: Version) -> bool {
        version == self.base || self.past.contains(&version)
    }
}

#[cfg(test)]
mod tests {
    use steadfast_client::{Time, WccAttributes};

    use super::*;

    fn version(number: u32) -> Version {
        let time = Time { seconds: number, nanoseconds: 0 };
        Version::before(&WccAttributes { size: u64::from(number), mtime: time, ctime: time })
    }

    #[test]
    fn changes_of_ours_in_any_order_are_ours() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut versions = Versions::new(version(1));
            let numbers: Vec<u64> = (0..3).map(|_| versions.begin()).collect();
            for at in order {
                let from = version(1 + at);
                assert!(!versions.end(numbers[at as usize], from, version(2 + at)), "{order:?}");
            }
            assert!(!versions.see(version(4), true), "{order:?}");
        }
    }

    #[test]
    fn a_change_of_others_between_ours_is_seen() {
        for order in [[0, 1], [1, 0]] {
            let mut versions = Versions::new(version(1));
            let numbers = [versions.begin(), versions.begin()];
            // 1 → 2 is ours, 2 → 3 is not, 3 → 4 is ours.
            let steps = [(version(1), version(2)), (version(3), version(4))];
            let told = order.map(|at: usize| versions.end(numbers[at], steps[at].0, steps[at].1));
            assert_eq!(told, [false, true], "{order:?}");
            assert!(!versions.see(version(4), true), "once");
        }
    }

    #[test]
    fn a_change_of_others_is_seen_while_ours_never_stop() {
        let mut versions = Versions::new(version(1));
        let mut in_flight = versions.begin();
        let mut is_seen = false;
        // Somebody else makes 11 of 10.
        for number in (1..40).filter(|number| *number != 10) {
            let next = versions.begin();
            is_seen |= versions.end(in_flight, version(number), version(number + 1));
            in_flight = next;
            assert!(number > 10 || !is_seen, "{number}");
            assert!(number < 13 || is_seen, "{number}");
        }
    }

    #[test]
    fn what_is_seen_while_a_change_is_in_flight_may_be_ours() {
        let mut versions = Versions::new(version(1));
        let number = versions.begin();
        assert!(!versions.see(version(2), false));
        assert!(!versions.end(number, version(1), version(2)));
        assert!(!versions.see(version(1), false), "an overtaken reply");
        let number = versions.begin();
        assert!(!versions.see(version(3), false));
        assert!(versions.end(number, version(3), version(4)), "3 is not ours");
    }

    #[test]
    fn a_change_without_an_answer_is_not_believed_to_be_ours() {
        let mut versions = Versions::new(version(1));
        let number = versions.begin();
        assert!(!versions.end_unknown(number));
        assert!(versions.see(version(2), true));
        assert!(!versions.see(version(2), true));
    }
}
