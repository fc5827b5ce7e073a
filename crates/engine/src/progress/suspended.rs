//! A COMPOUND that waits between two operations.

use steadfast_state::OwnerReply;
use steadfast_wire::nfs4::NfsStat4;

use super::{EndedRun, Progress, Repeated};
use crate::Shared;
use crate::reply_cache::{Execution, ReplyCache};

/// What is left of a COMPOUND that waits for its storage.
#[derive(Debug)]
pub(crate) struct SuspendedRun {
    pub(crate) progress: Progress,
    /// Of the operations that have ended.
    pub(crate) results: Vec<u8>,
    /// Of minor version 0: under which the duplicate request cache has it in progress.
    pub(crate) execution: Option<Execution>,
}

impl SuspendedRun {
    /// Its client is told to try later, by this result.
    pub(crate) fn refuse(
        mut self,
        shared: &Shared,
        repeated: &Repeated,
        replies: &ReplyCache,
        now_ms: u64,
        result: &[u8],
    ) {
        let (owner, locker) = (self.progress.owner.take(), self.progress.locker.take());
        let has_made_state = self.progress.has_made_state;
        let failed = Some((self.progress.done, NfsStat4::Delay as u32));
        let mut ended = EndedRun { failed, ..self.progress.ended(true) };
        ended.take_back_before_reply(shared);
        if let Some(owner) = owner {
            let status = NfsStat4::Delay as u32;
            if let Some((name, seqid)) = locker {
                shared.state.locked(owner.client(), &name, seqid);
            }
            owner.finish(OwnerReply { status, ..OwnerReply::default() });
        }
        shared.keep_state();
        match &self.execution {
            // What it has done is not done again.
            Some(execution) if has_made_state => {
                replies.finish(execution, now_ms, result);
            }
            Some(execution) => replies.forget(execution, result),
            None => {}
        }
        // It may have been granted something by the process before this one.
        ended.finish(shared, repeated, result);
    }
}
