//! What a run does so that the process after this one can go on with it: nothing that it has done is done
//! again, though this process is killed before the reply is sent.

use steadfast_state::{StateId, Together};
use steadfast_vfs::{Durable, StorageHandle};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use super::run::Run;
use crate::begun_outcomes::OpOutcome;
use crate::call_mark::CallMark;
use crate::host::Room;
use crate::progress::{Progress, Told, UnderWay, under_way};
use crate::reply::ReplyBuffer;

/// For so long a request waits so that it may tell what it has done, in ms. Names are looked up in a fraction
/// of that; a client with a file system that hangs for longer is to try later.
const UNTOLD_WAITS_MS: u64 = 60_000;

/// Where a run goes on that has its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoesOn {
    /// Behind SEQUENCE: nothing of it was done.
    Here,
    /// Where the process before this one had come.
    Elsewhere,
    /// That process has done something of it, and its results were too long to be kept.
    Nowhere,
}

impl<'c> Run<'_, 'c> {
    /// By which name begun marks of the operation are kept that is being executed, if it has any.
    pub(super) fn mark(&self) -> Option<CallMark> {
        if !self.has_mark {
            return None;
        }
        let operation = self.progress.done;
        match &self.progress.slot {
            Some(slot) => Some(CallMark::of_request(slot, operation)),
            None => self.call.admitted.key().map(|key| CallMark::of_compound(key, operation)),
        }
    }

    /// An operation is about to be executed that changes something, or makes state. Its result begins
    /// at `result_at` in the reply.
    pub(super) fn before_change(&mut self, operation: Op4, result_at: usize, reply: &ReplyBuffer) {
        self.has_mark = under_way::has_mark(operation);
        let depends = self.progress.has_made_state || self.progress.depends;
        if depends && self.progress.slot.is_some() && under_way::changes_storage(operation) {
            let done = (self.progress.done, self.progress.at);
            self.note_done(done, result_at, !self.progress.has_made_state, reply);
            self.call.shared.keep_state();
        }
    }

    /// The changes of the state that follow, in this operation, are kept together with its result.
    pub(crate) fn begin_state(&mut self) {
        if self.together.is_none() {
            self.together = self.nfs4.state.together();
        }
    }

    /// As [`Run::begin_state`], for changes of the state that were made by now.
    pub(crate) fn go_on_with_state(&mut self, together: Option<Together<'c>>) {
        if together.is_some() {
            self.together = together;
        }
    }

    /// An operation was executed. The next one begins there.
    pub(super) fn after_operation(&mut self, is_done: bool, next_at: usize, reply: &ReplyBuffer) {
        self.has_mark = false;
        if let Some(together) = self.together.take() {
            if is_done {
                let done = (self.progress.done + 1, next_at);
                self.note_done(done, reply.bytes.len(), false, reply);
            }
            drop(together);
        }
    }

    /// The operation has changed the state, and goes on with something else: it is to tell what the reply
    /// has from there on. `added`: by this the process after this one can take it back
    /// ([`steadfast_state::Granted::added`]), and the delegation with it.
    pub(crate) fn end_state(
        &mut self,
        (added, delegation): (u32, Option<StateId>),
        told_at: usize,
        reply: &ReplyBuffer,
    ) {
        if let Some(together) = self.together.take() {
            let result = reply.bytes.get(told_at..).unwrap_or(&[]);
            let granted = Some((added, self.progress.current));
            self.note_begun(&Told { granted, delegation, result }.encode(), reply);
            drop(together);
        }
    }

    /// Notes that the run has come to the operation that is being executed, and what that is to tell, if it has
    /// but to be finished.
    pub(super) fn note_begun(&self, told: &[u8], reply: &ReplyBuffer) {
        let results_end = self.place.operations_at() + self.op_at;
        let (current, saved) = self.op_places;
        let (done, at) = (self.progress.done, self.progress.at);
        let results = self.results(results_end, reply);
        self.note(UnderWay { done, at, current, saved, told, results }, false);
    }

    /// Notes how far the run has come: results that end there.
    /// `is_repeatable`: nothing was done that must be done once only.
    fn note_done(
        &self,
        (done, at): (u32, usize),
        results_end: usize,
        is_repeatable: bool,
        reply: &ReplyBuffer,
    ) {
        let Progress { current, saved, .. } = self.progress;
        let results = self.results(results_end, reply);
        self.note(UnderWay { done, at, current, saved, told: &[], results }, is_repeatable);
    }

    /// The results behind SEQUENCE's, up to there in the reply.
    fn results<'r>(&self, end: usize, reply: &'r ReplyBuffer) -> &'r [u8] {
        let begin = self.place.operations_at() + self.progress.kept_from;
        reply.bytes.get(begin..end).unwrap_or(&[])
    }

    fn note(&self, done: UnderWay<'_>, is_repeatable: bool) {
        let Some(slot) = &self.progress.slot else { return };
        let kept_max = slot.session().fore().response_bytes_cached_max as usize;
        let mut bytes = done.encode();
        if bytes.len() > kept_max {
            if is_repeatable {
                return;
            }
            bytes = done.without_results().encode();
        }
        slot.note_done(&bytes, self.progress.first_promise.is_some());
    }

    /// A request has its slot: goes on with what the process before this one has done of it, if it has
    /// done something.
    pub(super) fn go_on(&mut self, reply: &mut ReplyBuffer) -> GoesOn {
        let Some(slot) = self.progress.slot.as_ref().filter(|slot| slot.may_be_known()) else {
            return GoesOn::Here;
        };
        self.progress.before = self.nfs4.outcomes.take_of_request(&CallMark::of_request(slot, 0));
        let Some(bytes) = slot.done_before() else { return GoesOn::Here };
        let Some(before) = UnderWay::decode(&bytes) else { return GoesOn::Here };
        if !before.is_kept() {
            self.progress.has_made_state = true;
            return GoesOn::Nowhere;
        }
        reply.bytes.extend_from_slice(before.results);
        (self.progress.current, self.progress.saved) = (before.current, before.saved);
        (self.progress.done, self.progress.at) = (before.done, before.at);
        self.progress.has_made_state = true;
        if !before.told.is_empty() {
            self.progress.told_before = Some((before.done, before.told.into()));
        }
        GoesOn::Elsewhere
    }

    /// What the process before this one has done by the operation that is being executed, if it has: it
    /// is stable, and must not be done again.
    pub(crate) fn done_before(&mut self) -> Option<OpOutcome> {
        let outcome = self.progress.before.of(self.progress.done)?;
        self.promise(Durable::promising_nothing(()));
        Some(outcome)
    }

    /// Whether the process before this one has made an object by the operation that is being executed.
    pub(crate) fn has_made_before(&self) -> bool {
        matches!(self.progress.before.of(self.progress.done), Some(OpOutcome::Made(_)))
    }

    /// The same of an operation that makes an object.
    pub(crate) fn made_before(&mut self) -> Option<StorageHandle> {
        match self.done_before()? {
            OpOutcome::Made(handle) => Some(handle),
            OpOutcome::Changed => None,
        }
    }

    /// Whether the operation that failed is to be executed again: it has no room to wait; or waits for a client
    /// ([`crate::waits`]); or its client
    /// would send it anew, as another request, and what the process before this one has done would be
    /// done again. What has promised something cannot wait for anything else.
    pub(crate) fn is_to_wait(&mut self, status: NfsStat4) -> bool {
        if !self.call.promises.is_empty() {
            return false;
        }
        if self.call.wait.is_due_again() {
            return status == NfsStat4::Delay;
        }
        if self.call.lacks_room == Some(Room::Later) {
            return true;
        }
        if !matches!(status, NfsStat4::Delay | NfsStat4::Grace) || !self.has_untold() {
            return false;
        }
        let now_ms = self.call.now_ms;
        let since_ms = *self.progress.waits_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) >= UNTOLD_WAITS_MS {
            return false;
        }
        self.call.host.will_suspend();
        self.call.lacks_room = Some(Room::Later);
        true
    }

    /// Whether the process before this one has done something of it that is not told yet.
    fn has_untold(&self) -> bool {
        if self.minor_version == 0 && !self.call.admitted.is_some() {
            let mark = || Some(CallMark::of_compound(self.call.key(), 0));
            return self.nfs4.outcomes.has(mark);
        }
        let Progress { before, told_before, done, .. } = &self.progress;
        before.has_from(*done)
            || told_before.as_ref().is_some_and(|(operation, _)| operation >= done)
    }

    /// What the operation is to tell, if the process before this one has changed the state by it: what
    /// it does after that is left to do.
    pub(crate) fn told_before(&self) -> Option<Box<[u8]>> {
        let (operation, told) = self.progress.told_before.as_ref()?;
        (*operation == self.progress.done).then(|| told.clone())
    }

    /// The operation is executed from its beginning after all: what the process before this one has changed by
    /// it is gone.
    pub(crate) fn forget_told(&mut self) {
        self.progress.told_before = None;
    }
}
