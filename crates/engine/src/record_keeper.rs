//! How the records of clients outlive a loss of all else that the state has.

use std::cell::Cell;
use std::sync::Arc;

use steadfast_state::ClientRecords;

use crate::call::Call;
use crate::{Engine, Shared};

/// Keeps the events of client records ([`steadfast_state::State::take_records`]) on stable storage.
///
/// Any thread may call it. It may wait for a disk.
pub trait RecordKeeper: Send + Sync {
    /// Makes the events stable that `take` appends, one call after the other. When it returns `true`,
    /// all events are stable that were noted before it was called, whoever took them. If they cannot be
    /// made stable it says so, keeps them, and tries again at the next call.
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) -> bool;
}

impl Engine {
    /// Takes up the client records that another process has left, and keeps them from now on. Clients
    /// whose state was lost may reclaim it: until they have done so, for two leases at most, nobody
    /// else gets anything. To be called behind [`Engine::keep_state`], before anybody is served.
    /// Whether the records could be made stable.
    pub fn keep_records(
        &mut self,
        now_ms: u64,
        records: &ClientRecords,
        keeper: Arc<dyn RecordKeeper>,
    ) -> bool {
        let state = &self.shared.state;
        state.restore_records(now_ms, records);
        if self.shared.nfs4.is_none() {
            // They cannot come, and others may get what they had.
            state.end_grace();
        }
        self.shared.record_keeper = Some(keeper);
        self.shared.keep_records()
    }

    /// How many clients of NFSv4 may still reclaim what they had.
    pub fn reclaiming_clients(&self) -> usize {
        self.shared.state.reclaiming_clients()
    }
}

impl Shared {
    /// Makes stable what was noted of client records; whether that could be done. To be called before a
    /// client is told of something that it got.
    pub(crate) fn keep_records(&self) -> bool {
        if !self.state.has_unkept_records() {
            return true;
        }
        let Some(keeper) = &self.record_keeper else { return true };
        let taken = Cell::new(0);
        let is_kept = keeper.keep(&|events| taken.set(self.state.take_records(events)));
        if is_kept {
            self.state.records_are_kept(taken.get());
        }
        is_kept
    }
}

impl Call<'_> {
    /// As [`Shared::keep_records`]: the call may wait for it.
    pub(crate) fn keep_records(&mut self) -> bool {
        if !self.shared.state.has_unkept_records() {
            return true;
        }
        // No place in the log stays unfilled across a wait.
        self.promises.fill();
        self.host.will_block();
        self.shared.keep_records()
    }
}
