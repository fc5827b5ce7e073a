//! Calls that wait until their records are stable.

use std::collections::VecDeque;

use steadfast_runtime::ParkedReply;

/// There is room for so many from then on.
const KEPT: usize = 1024;

/// Calls that wait for LSNs, in the order of these; of one LSN in that in which they came. Nearly all
/// come in that order, and leave from the front.
pub(super) struct Parked<Call = ParkedReply>(VecDeque<(u64, Call)>);

impl<Call> Default for Parked<Call> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<Call> Parked<Call> {
    pub(super) fn insert(&mut self, lsn: u64, call: Call) {
        let place = match self.0.back() {
            Some((last, _)) if *last > lsn => self.0.partition_point(|(other, _)| *other <= lsn),
            _ => self.0.len(),
        };
        self.0.insert(place, (lsn, call));
    }

    /// The LSN that is waited for first.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.front().map(|(lsn, _)| *lsn)
    }

    /// Those that wait for LSNs up to this one.
    pub(super) fn take(&mut self, stable: u64) -> Vec<Call> {
        let count = self.0.partition_point(|(lsn, _)| *lsn <= stable);
        let ready = self.0.drain(..count).map(|(_, call)| call).collect();
        if self.0.is_empty() && self.0.capacity() > KEPT {
            // The device had stood still.
            self.0.shrink_to(KEPT);
        }
        ready
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::Parked;

    proptest! {
        #[test]
        fn calls_leave_in_the_order_of_what_they_wait_for(
            steps in proptest::collection::vec((0_u64..40, any::<bool>()), 0..200)
        ) {
            let mut parked = Parked::default();
            let mut model: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            for (index, (lsn, comes)) in steps.into_iter().enumerate() {
                if comes {
                    parked.insert(lsn, index);
                    model.entry(lsn).or_default().push(index);
                } else {
                    let later = model.split_off(&(lsn + 1));
                    let ready: Vec<usize> = model.into_values().flatten().collect();
                    prop_assert_eq!(parked.take(lsn), ready);
                    model = later;
                }
                prop_assert_eq!(parked.first(), model.keys().next().copied());
                prop_assert_eq!(parked.len(), model.values().map(Vec::len).sum::<usize>());
            }
        }
    }
}
