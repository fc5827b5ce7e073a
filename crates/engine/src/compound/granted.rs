//! What the operation of a run was granted that is being executed.

use steadfast_state::Granted;
use steadfast_wire::nfs4::NfsStat4;

use super::run::Run;
use crate::reply::ReplyBuffer;

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
