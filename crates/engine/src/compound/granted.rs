//! What a run's operations were granted, as long as it may fail: then it is taken back. Whoever is told that
//! his OPEN failed must not be kept out by it, nor anybody else.

use steadfast_state::{Granted, OwnerAnswered, OwnerReply, State};
use steadfast_wire::nfs4::NfsStat4;

use super::run::Run;
use crate::reply::ReplyBuffer;

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
    pub(super) fn has(&self, operation: u32) -> bool {
        self.granted.last().is_some_and(|(last, _)| *last >= operation)
    }

    /// Takes back what this operation was granted and those behind it. Its owner is told of this status, should it
    /// send it again; those behind it were not executed.
    pub(super) fn take_back(&mut self, state: &State, from: u32, status: u32) {
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

impl Run<'_, '_> {
    /// Whether the operation that is being executed was granted something already.
    pub(crate) fn has_grants(&self) -> bool {
        self.progress.grants.has(self.progress.done)
    }

    /// The operation that is being executed was granted something, and may still fail.
    pub(crate) fn is_granted(&mut self, granted: Granted) {
        self.progress.has_made_state = true;
        self.progress.grants.add(self.progress.done, granted);
    }

    /// The operation that is being executed has failed: takes back what it was granted. That is kept together
    /// with what else it changes, and with how far the run has come: the operation has not begun.
    ///
    /// What the process before this one has granted stays while the operation waits to be finished.
    pub(crate) fn take_back(&mut self, status: NfsStat4, reply: &ReplyBuffer) {
        let operation = self.progress.done;
        if !self.progress.grants.has(operation)
            || (self.told_before().is_some() && self.is_to_wait(status))
        {
            return;
        }
        self.begin_state();
        self.progress.grants.take_back(&self.nfs4.state, operation, status as u32);
        self.progress.told_before.take_if(|(of, _)| *of == operation);
        if self.together.is_some() {
            self.note_begun(&[], reply);
        }
    }
}
