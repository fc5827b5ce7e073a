//! What the journal has of a file's held data.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use steadfast_client::Wcc;
use steadfast_journal::{Sequence, Settled};

use super::{DataState, WriteBack};
use crate::held::Held;
use crate::node::Node;

/// One record: a part of what was written at once.
#[derive(Debug)]
struct Kept {
    sequence: Sequence,
    from: u64,
    to: u64,
}

/// The records of a file that have not left the journal, in order.
#[derive(Debug, Default)]
pub(super) struct Records {
    kept: VecDeque<Kept>,
    last: Option<Sequence>,
    /// Somebody was told that what is up to this one is safe.
    promised: Option<Sequence>,
}

impl Records {
    /// Adds what one write has appended, at most [`steadfast_journal::DATA_BYTES_MAX`] bytes a record.
    pub(super) fn add(&mut self, sequences: Vec<Sequence>, offset: u64, bytes: usize) {
        let end = offset + bytes as u64;
        let mut from = offset;
        for sequence in sequences {
            let to = from.saturating_add(steadfast_journal::DATA_BYTES_MAX as u64).min(end);
            self.kept.push_back(Kept { sequence, from, to });
            self.last = Some(sequence);
            from = to;
        }
    }

    /// The newest record, if it ends here and has not left: what is written next may become a part of it.
    pub(super) fn ends_at(&self, offset: u64) -> Option<Sequence> {
        let newest = self.kept.back().filter(|newest| newest.to == offset);
        newest.map(|newest| newest.sequence)
    }

    /// The newest record has so much more.
    pub(super) fn grow(&mut self, bytes: usize) {
        if let Some(newest) = self.kept.back_mut() {
            newest.to += bytes as u64;
        }
    }

    /// The last one that was added.
    pub(super) fn last(&self) -> Option<Sequence> {
        self.last
    }

    /// The last one with bytes of a range.
    pub(super) fn last_within(&self, range: &Range<u64>) -> Option<Sequence> {
        let mut kept = self.kept.iter().rev();
        let found = kept.find(|kept| kept.from < range.end && range.start < kept.to);
        found.map(|kept| kept.sequence)
    }

    /// Somebody is told that everything up to this one is safe.
    pub(super) fn promise(&mut self, up_to: Option<Sequence>) {
        self.promised = self.promised.max(up_to);
    }

    /// Those with data that the server has not acknowledged.
    pub(super) fn unanswered(&self, held: &Held) -> Vec<Sequence> {
        let is_dirty = |kept: &&Kept| held.has_dirty(kept.from, kept.to);
        self.kept.iter().filter(is_dirty).map(|kept| kept.sequence).collect()
    }

    /// They have left the journal. Whether one of these was among them.
    pub(super) fn forget_all(&mut self, these: &HashSet<Sequence>) -> bool {
        let is_among = self.kept.iter().any(|kept| these.contains(&kept.sequence));
        self.kept.clear();
        is_among
    }

    /// Takes out those of these that have bytes nowhere else, without settling them: a replay has not made them. Whether
    /// there were any.
    pub(super) fn give_up_elsewhere(&mut self, held: &Held, these: &HashSet<Sequence>) -> bool {
        let before = self.kept.len();
        self.kept.retain(|kept| {
            !(these.contains(&kept.sequence) && held.has_elsewhere(kept.from, kept.to))
        });
        self.kept.len() < before
    }

    /// Takes those of which nothing is held any more: the server has it on stable storage, or was to
    /// forget it.
    fn take_settled(&mut self, held: &Held) -> Vec<Sequence> {
        let mut settled = Vec::new();
        self.kept.retain(|kept| {
            let is_held = held.has_some(kept.from, kept.to);
            if !is_held {
                settled.push(kept.sequence);
            }
            is_held
        });
        settled
    }
}

/// What becomes of records whose data the server has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Whoever is not told yet that the data is safe gets the error.
    Told,
    /// They stay: the file may have been lost by the server, or removed by somebody else.
    Kept,
    /// Nobody misses them: this mount has removed the file.
    Unmissed,
}

impl WriteBack {
    /// Notes in the journal what the server has said of a file after a change of ours.
    pub(crate) fn note_attributes(&self, node: &Node, wcc: Option<&Wcc>) {
        let (Some(journaling), Some(wcc)) = (self.kept_by(), wcc) else { return };
        let last = node.data.state.lock().records.last_within(&(0..u64::MAX));
        if let Some(last) = last {
            journaling.note_attributes(last, wcc, None);
        }
    }

    /// What the server has on stable storage leaves the journal; soon, since records that are only in
    /// memory yet have to be on the disk before.
    pub(super) fn leave(&self, state: &mut DataState) {
        if let Some(journaling) = &self.journaling {
            journaling.settle_later(state.records.take_settled(&state.held));
        }
    }

    /// As [`WriteBack::leave`], after the server has refused data of this range, which is not held any
    /// more. How many records stay in the journal, for the next replay.
    pub(super) fn leave_refused(
        &self,
        state: &mut DataState,
        range: Range<u64>,
        refusal: Refusal,
    ) -> usize {
        let Some(journaling) = &self.journaling else { return 0 };
        let Records { kept, promised, .. } = &mut state.records;
        let before = kept.len();
        kept.retain(|kept| {
            let is_touched = kept.from < range.end && range.start < kept.to;
            let stays = match refusal {
                Refusal::Told => Some(kept.sequence) <= *promised,
                Refusal::Kept => true,
                Refusal::Unmissed => false,
            };
            !(is_touched && stays)
        });
        let staying = before - kept.len();
        journaling.settle(state.records.take_settled(&state.held), Settled::Refused);
        staying
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_settled_when_nothing_of_it_is_held() {
        let (mut held, mut records) = (Held::default(), Records::default());
        for (number, offset) in [(1, 0), (2, 10), (3, 5)] {
            held.insert(offset, &[number as u8; 10], 1 << 20);
            records.add(vec![Sequence(number)], offset, 10);
        }
        assert_eq!(records.last(), Some(Sequence(3)));
        assert_eq!(records.take_settled(&held), []);
        let run = held.depart(1 << 20).expect("it is dirty");
        held.acknowledge(&run, 5, None);
        assert_eq!(records.take_settled(&held), []);
        held.truncate(15);
        // Of the second one only what the third one has replaced.
        assert_eq!(records.take_settled(&held), []);
        let run = held.depart(1 << 20).expect("the rest is dirty");
        held.acknowledge(&run, 10, None);
        assert_eq!(records.take_settled(&held), [1, 2, 3].map(Sequence));
    }
}
