//! What a worker gathers from the calls of a turn, and how it leaves.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::turn::{Gathered, SentForOthers, Turn};
use crate::batch::{Batch, Outbox};
use crate::pool::Pool;
use crate::seat::SeatCore;
use crate::send_queue::SpareBuffers;
use crate::shared::Shared;
use crate::shared::flusher::{Flusher, KnownFlushers};
use crate::statistics::Counters;

/// What a worker executes calls with, apart from what it gathers.
pub(super) struct Context {
    pub(super) pool: Arc<Pool>,
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<CachePadded<Counters>>,
}

/// What one worker gathers from calls, until it is sent.
#[derive(Default)]
pub(super) struct Gathering {
    pub(super) outbox: Outbox,
    pub(super) spare: SpareBuffers,
    pub(super) turn: Turn,
    /// Calls that ended without the seat and still count as being in flight.
    pub(super) calls_to_leave: usize,
    flushers: KnownFlushers,
}

impl Gathering {
    /// Begins the turn of a batch.
    pub(super) fn begin_turn(&mut self, shared: &Shared) {
        self.turn = Turn::begin(shared.stamp_ns(), shared.now_ms());
    }

    /// Whether what was gathered is to be sent before the next call.
    pub(super) fn is_to_send(&self) -> bool {
        let Outbox { parked, .. } = &self.outbox;
        self.turn.is_to_send(Gathered {
            is_empty: self.outbox.is_empty(),
            bytes: self.outbox.bytes(),
            parked: parked.len(),
        })
    }

    /// To be called when the replies of this worker's calls are out.
    pub(super) fn leave(&mut self, batch: &Batch) {
        let count = std::mem::take(&mut self.calls_to_leave);
        if let Some(connection) = batch.connection()
            && count > 0
        {
            connection.leave(count);
        }
    }

    /// Sends the batched replies of a seat, if there are any. Whoever is served there does not pay for it.
    pub(super) fn send_batched(
        &mut self,
        context: &Context,
        core: &mut SeatCore,
    ) -> Option<SentForOthers> {
        if core.batched.is_empty() {
            return None;
        }
        let shared = &context.shared;
        let since_ns = shared.stamp_ns();
        let client = core.stop_serving(since_ns);
        core.batched.send(&mut self.spare, shared, &context.counters);
        let until_ns = shared.stamp_ns();
        if let Some(client) = client {
            core.start_serving(client, until_ns);
        }
        Some(SentForOthers { since_ns, until_ns })
    }

    /// The same between two calls of a turn.
    pub(super) fn send_batched_between_calls(&mut self, context: &Context, core: &mut SeatCore) {
        if let Some(sent) = self.send_batched(context, core) {
            self.turn.sent_for_others(sent);
        }
    }

    /// Sends the replies and hands the parked calls over. Gives a flusher that has too much to
    /// do already, if any: the caller should wait for it without its seat.
    pub(super) fn dispatch(&mut self, batch: &Batch, context: &Context) -> Option<Arc<Flusher>> {
        context.counters.bytes_out.add(self.outbox.bytes() as u64);
        context.counters.parked.add(self.outbox.parked.len() as u64);
        let Context { shared, counters, .. } = context;
        let now_ms = self.turn.now_ms();
        self.outbox.dispatch(batch, &mut self.spare, &mut self.flushers, shared, counters, now_ms)
    }

    /// As [`Gathering::dispatch`], and has what the calls logged written.
    pub(super) fn dispatch_and_rouse(
        &mut self,
        batch: &Batch,
        context: &Context,
    ) -> Option<Arc<Flusher>> {
        let full = self.dispatch(batch, context);
        if let Some(intent_log) = &context.shared.intent_log {
            intent_log.rouse();
        }
        full
    }
}
