//! What a run's operations were granted, as long as it may fail: then it is taken back. Whoever is told that
//! his OPEN failed must not be kept out by it, nor anybody else.

use steadfast_state::{Granted, OwnerAnswered, OwnerReply, State};

/// What the operations of a run were granted, in their order. Dropped, all of it stays with the client.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// By operation.
    granted: Vec<(u32, Granted)>,
    /// Of minor version 0: operations that were answered to their owners, among these.
    answered: Vec<(u32, OwnerAnswered)>,
}

impl Grants {
    pub(crate) fn add(&mut self, operation: u32, granted: Granted) {
        self.granted.push((operation, granted));
    }

    /// An operation is done by what its owner is told if it comes again.
    pub(crate) fn answered(&mut self, operation: u32, answered: OwnerAnswered) {
        if self.has(operation) {
            self.answered.push((operation, answered));
        }
    }

    /// What was granted.
    pub(crate) fn all(&self) -> Vec<&Granted> {
        self.granted.iter().map(|(_, granted)| granted).collect()
    }

    /// Whether this operation, or one behind it, was granted something.
    pub(crate) fn has(&self, operation: u32) -> bool {
        self.granted.last().is_some_and(|(last, _)| *last >= operation)
    }

    /// Takes back what this operation was granted and those behind it. Its owner is told of this status, should it
    /// send it again; those behind it were not executed.
    pub(crate) fn take_back(&mut self, state: &State, from: u32, status: u32) {
        while let Some((_, granted)) = self.granted.pop_if(|(operation, _)| *operation >= from) {
            state.take_back(granted);
        }
        while let Some((operation, answered)) =
            self.answered.pop_if(|(operation, _)| *operation >= from)
        {
            if operation > from {
                answered.unuse();
                continue;
            }
            answered.answer_otherwise(OwnerReply { status, ..OwnerReply::default() });
        }
    }
}
