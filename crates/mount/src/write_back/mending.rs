//! What becomes of held data when the server has lost what it had acknowledged.

use std::collections::HashSet;
use std::sync::Arc;

use steadfast_journal::Sequence;

use super::{DataState, WriteBack};
use crate::errors::Errno;
use crate::node::Node;
use crate::transport::Patience;

impl WriteBack {
    fn all_holders(&self) -> Vec<Arc<Node>> {
        self.holders.lock().values().cloned().collect()
    }

    /// Waits until nothing is in flight; while calls are held that is soon. Returns the records of data
    /// that the server had not acknowledged.
    pub(crate) fn quiesce(&self) -> HashSet<Sequence> {
        let mut unanswered = HashSet::new();
        for node in self.all_holders() {
            let mut state = node.data.state.lock();
            while state.held.flights() > 0 || state.is_committing {
                node.data.changed.wait_for(&mut state, Patience::default().nap());
            }
            unanswered.extend(state.records.unanswered(&state.held));
        }
        unanswered
    }

    /// This mount has removed the last name of a file: nobody misses its data. Were the record of the removal
    /// to leave the journal before those of the data, a replay would take the file for one that others have
    /// removed.
    pub(crate) fn forget_removed(&self, node: &Arc<Node>) {
        node.data.note_removed();
        if let Some(recovery) = &self.recovery {
            recovery.note_removed(&node.handle());
        }
        let mut state = node.data.state.lock();
        if state.held.flights() > 0 || state.is_committing || state.held.is_empty() {
            // What is in flight is answered soon: the server does not know the file then.
            return;
        }
        let before = state.held.weight();
        state.held.truncate(0);
        self.leave(&mut state);
        self.settle(node, &mut state, before);
        drop(state);
        node.data.changed.notify_all();
        self.nodes.release(node.number);
    }

    /// As [`WriteBack::forget_removed`], of all files whose data was in flight then.
    pub(crate) fn forget_all_removed(&self) {
        for node in self.all_holders() {
            if node.data.is_removed() {
                self.forget_removed(&node);
            }
        }
    }

    /// Forgets what the journal alone had. What the replay has not brought to the server of that is lost, unless a
    /// later replay can do it.
    fn forget_elsewhere(&self, not_made: &HashSet<Sequence>) {
        for node in self.all_holders() {
            let mut state = node.data.state.lock();
            let before = state.held.weight();
            let DataState { held, records, .. } = &mut *state;
            if records.give_up_elsewhere(held, not_made) {
                state.errors += 1;
                state.last_error = Some(Errno::EIO);
            }
            state.held.forget_elsewhere();
            self.leave(&mut state);
            self.settle(&node, &mut state, before);
            drop(state);
            node.data.changed.notify_all();
            self.nodes.release(node.number);
        }
    }

    /// What the journal had is stable on the server now, but for what was not made.
    pub(crate) fn recovered(&self, not_made: &HashSet<Sequence>) {
        if self.kept_by().is_none() {
            // Then not all that is held is in the journal. It is written again, but for what only the journal had.
            return self.forget_elsewhere(not_made);
        }
        for node in self.all_holders() {
            let mut state = node.data.state.lock();
            let before = state.held.weight();
            let is_refused = state.records.forget_all(not_made);
            state.held.truncate(0);
            if is_refused {
                state.errors += 1;
                state.last_error = Some(Errno::EIO);
            }
            self.settle(&node, &mut state, before);
            drop(state);
            node.data.changed.notify_all();
            self.nodes.release(node.number);
        }
    }
}
