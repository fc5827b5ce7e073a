//! How far a COMPOUND has come, as a value: what outlives a wait ([`SuspendedRun`]), the process ([`UnderWay`]), and the
//! COMPOUND itself while its reply waits ([`EndedRun`]). Nothing here executes an operation: `compound` does.

mod ended;
mod grants;
mod place;
mod repeated;
mod result_place;
mod suspended;
pub(crate) mod under_way;

pub(crate) use ended::{EndedRun, OpPlace, append_failure};
pub(crate) use grants::Grants;
pub(crate) use place::{Object, Place};
pub(crate) use repeated::{Repeated, Waiting};
pub(crate) use result_place::{OP_HEAD_BYTES, ResultPlace, set, word};
pub(crate) use suspended::SuspendedRun;
pub(crate) use under_way::{Told, UnderWay};

use std::collections::VecDeque;

use steadfast_state::{OwnerInUse, SlotInUse};

use crate::begun_outcomes::DoneOps;
use crate::compound_operation::CompoundOperations;

/// What a run has come to, as far as it outlives a wait.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Of its session.
    pub(crate) slot: Option<SlotInUse>,
    pub(crate) current: Place,
    pub(crate) saved: Place,
    /// Whether it has made state, so that its reply is kept whatever its client asked for.
    pub(crate) has_made_state: bool,
    /// What its operations were granted.
    pub(crate) grants: Grants,
    /// Operations that have ended.
    pub(crate) done: u32,
    /// Which, as far as they are kept.
    pub(crate) operations: CompoundOperations,
    /// Where the next one begins, in bytes from the first.
    pub(crate) at: usize,
    /// Where the results behind SEQUENCE's begin, in bytes from the first result.
    pub(crate) kept_from: usize,
    pub(crate) first_promise: Option<OpPlace>,
    /// The number of the connection that it came by.
    pub(crate) connection: u64,
    /// Of minor version 0: the owner whose operation has to wait.
    pub(crate) owner: Option<OwnerInUse>,
    /// The same: the lock-owner that asks for a lock by an open, and its sequence id.
    pub(crate) locker: Option<(Box<[u8]>, u32)>,
    /// Whether an operation has ended that would tell something else after the next ones.
    pub(crate) depends: bool,
    /// What the process before this one has done of it: operations, and what one of them is to tell.
    pub(crate) before: DoneOps,
    pub(crate) told_before: Option<(u32, Box<[u8]>)>,
    /// Since when it waits so that it may tell that.
    pub(crate) waits_since_ms: Option<u64>,
}

impl Progress {
    /// Its last operation has ended. `is_whole`: all of the result is in the bytes of the reply.
    pub(crate) fn ended(self, is_whole: bool) -> EndedRun {
        EndedRun {
            slot: self.slot,
            must_be_kept: self.has_made_state,
            kept_from: self.kept_from,
            first_promise: self.first_promise,
            grants: self.grants,
            failed: None,
            connection: self.connection,
            is_whole,
            further: VecDeque::new(),
        }
    }
}
