//! What is left to do for a COMPOUND when its last operation has ended.

use std::collections::VecDeque;

use steadfast_state::SlotInUse;
use steadfast_wire::nfs4::{Bitmap4, Op4};
use steadfast_xdr::{Encode, Writer};

use super::grants::Grants;
use super::repeated::Repeated;
use super::result_place::{OP_HEAD_BYTES, ResultPlace, set, word};
use crate::Shared;
use crate::promises::Awaited;

/// A COMPOUND whose result is made, and goes out when what it promises is stable.
#[derive(Debug)]
pub(crate) struct EndedRun {
    /// Of its session.
    pub(super) slot: Option<SlotInUse>,
    /// Whether its reply is kept whatever its client asked for: it cannot be executed again.
    pub(crate) must_be_kept: bool,
    /// Where the results behind SEQUENCE's begin, in bytes from the first result.
    pub(super) kept_from: usize,
    /// The first operation whose result is true only when something is stable.
    pub(super) first_promise: Option<OpPlace>,
    /// What its operations were granted.
    pub(super) grants: Grants,
    /// An operation that has failed after it was granted something, and its status: that is taken back, and
    /// what those behind it were granted.
    pub(super) failed: Option<(u32, u32)>,
    /// The number of the connection that it came by.
    pub(super) connection: u64,
    /// Whether all of the result is in the bytes of the reply, and nothing in a file.
    pub(super) is_whole: bool,
    /// What must be stable next, one after another; the log is the last. A call that changes one
    /// thing has none.
    pub(crate) further: VecDeque<Awaited>,
}

/// Where an operation's result is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpPlace {
    /// How many came before it.
    pub(crate) index: u32,
    /// Where it begins, in bytes from the first result.
    pub(crate) at: usize,
}

impl EndedRun {
    /// Makes a result for success one for failure with this status: what was promised first could not be made stable.
    pub(crate) fn fail(&mut self, result: &mut Vec<u8>, status: u32) {
        let place = ResultPlace::in_result(result);
        let Some(OpPlace { index, at }) = self.first_promise else { return };
        self.failed = Some((index, status));
        let at = place.operations_at() + at;
        result.truncate(at + OP_HEAD_BYTES);
        set(result, at + 4, status);
        append_failure(word(result, at), result);
        place.end(result, status, index + 1);
    }

    /// Without a slot: what has failed is taken back before anybody gets the reply, who may send what follows at
    /// once.
    pub(crate) fn take_back_before_reply(&mut self, shared: &Shared) {
        if self.slot.is_none()
            && let Some((operation, status)) = self.failed.take()
        {
            // Kept whole or not at all: a kill in between must not take what was there before.
            let _together = shared.state.together();
            self.grants.take_back(&shared.state, operation, status);
        }
    }

    /// Ends the use of the slot: the reply is kept if its client asked for that, or must not do
    /// without. Who sent the request again meanwhile gets it too.
    pub(crate) fn finish(mut self, shared: &Shared, repeated: &Repeated, result: &[u8]) {
        // Kept together with the reply: the process after this one must not tell of what is taken back.
        let together = self.failed.and_then(|_| shared.state.together());
        if let Some((operation, status)) = self.failed {
            self.grants.take_back(&shared.state, operation, status);
        }
        let Some(slot) = self.slot else {
            drop(together);
            shared.keep_state();
            return;
        };
        let (session, number) = (*slot.session().id(), slot.slot());
        if slot.is_kept() || self.must_be_kept {
            slot.finish(Some(&kept(result, self.kept_from)));
            drop(together);
            shared.keep_state();
        } else {
            slot.finish(None);
            drop(together);
        }
        for waiting in repeated.take(&session, number) {
            if self.is_whole {
                waiting.answer(self.connection, result);
            }
        }
    }
}

/// Appends what follows the status of an operation that failed, if anything does.
pub(crate) fn append_failure(number: u32, result: &mut Vec<u8>) {
    if number == Op4::SetAttr as u32 {
        // What was set: nothing.
        Bitmap4::EMPTY.encode(&mut Writer::new(result));
    }
}

/// What of a result is kept: status, count, and the results behind SEQUENCE's.
fn kept(result: &[u8], kept_from: usize) -> Vec<u8> {
    let place = ResultPlace::in_result(result);
    let (status, count) = place.ended(result);
    let mut kept = Vec::with_capacity(result.len());
    let mut w = Writer::new(&mut kept);
    w.u32(status);
    w.u32(count);
    let from = place.operations_at() + kept_from;
    kept.extend_from_slice(result.get(from..).unwrap_or(&[]));
    kept
}
