//! Executes the calls of a batch.
//!
//! A worker's turn with a batch is [`Executor::run`]: it executes one call after the other (`call`), whose host lends
//! the seat while one may block (`host`), and gathers the replies (`gathering`). How long the turn lasts and replies are
//! gathered (`turn`), for how long what was logged is held (`log_hold`), and whether a call that has stopped is kept
//! (`suspending`) is decided by values that are told the times.

mod call;
mod gathering;
mod host;
mod log_hold;
mod suspending;
mod turn;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
#[cfg(feature = "unsafe-async")]
use steadfast_engine::Verdict;
use steadfast_engine::{CallHost, ReplyBuffer};

use crate::batch::Batch;
use crate::batched;
use crate::pool::Pool;
use crate::seat::{Seat, SeatCore, SeatGuard};
use crate::send_queue::SpareBuffers;
use crate::shared::Phase;
#[cfg(feature = "unsafe-async")]
use crate::shared::Shared;
use crate::shared::flusher::Flusher;
use crate::shared::parked::ReplySender;
use crate::shared::reply_log::ReplyLog;
use crate::statistics::{Counters, Sampler};
use crate::turns::Company;

use gathering::{Context, Gathering};
use host::Host;
use log_hold::{EndedTurn, LogHold, Step};
pub(crate) use suspending::Patience;

/// A reply buffer larger than this is not kept.
const REPLY_BYTES_KEPT: usize = 2 << 20;

/// One worker's means to execute calls.
pub(crate) struct Executor {
    context: Context,
    gathering: Gathering,
    reply: ReplyBuffer,
    sampler: Sampler,
    /// For what it commits itself.
    commit: Option<Box<ReplySender>>,
    log_hold: LogHold,
    /// The last call showed that its connection must be closed.
    must_hang_up: bool,
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.release();
    }
}

impl Executor {
    pub(crate) fn new(pool: Arc<Pool>, counters: Arc<CachePadded<Counters>>) -> Self {
        let shared = Arc::clone(&pool.shared);
        let sampler = Sampler::new(shared.options.sample_one_in, shared.stamp_ns());
        Self {
            context: Context { pool, shared, counters },
            gathering: Gathering::default(),
            reply: ReplyBuffer::default(),
            sampler,
            commit: None,
            log_hold: LogHold::default(),
            must_hang_up: false,
        }
    }

    pub(crate) fn spare(&mut self) -> &mut SpareBuffers {
        &mut self.gathering.spare
    }

    /// Announces that calls are about to be received and executed; `false`: they must not be,
    /// since the server stops.
    pub(crate) fn begin(&self) -> bool {
        // Pairs with the end's wait: it sees that we are busy, or we see that it has begun.
        self.context.counters.is_busy.store(true, Ordering::SeqCst);
        if self.context.shared.phase() == Phase::Running {
            return true;
        }
        self.end();
        false
    }

    pub(crate) fn end(&self) {
        self.context.counters.is_busy.store(false, Ordering::SeqCst);
    }

    /// Goes on with what former occupants of the seat left: sends their replies, executes
    /// further calls of their batches.
    pub(crate) fn take_over<'s>(&mut self, seat: &'s Seat, guard: &mut Option<SeatGuard<'s>>) {
        self.context.counters.is_busy.store(true, Ordering::SeqCst);
        while guard.is_some() {
            let Some((batch, mut gathered)) = seat.open_batches.take_next() else { break };
            self.gathering.outbox.absorb(&mut gathered, &mut self.gathering.spare);
            if let Some(core) = guard.as_deref_mut()
                && let Some(connection) = batch.connection()
                && let Some(slot) = core.connections.at(connection.token.load(Ordering::Relaxed))
            {
                let client = slot.client;
                core.start_serving(client, self.context.shared.stamp_ns());
            }
            self.run(seat, guard, &batch);
            if let Some(core) = guard.as_deref_mut() {
                core.stop_serving(self.context.shared.stamp_ns());
            }
        }
        self.end();
    }

    /// Executes the calls of a batch that nobody has taken, and sends what they bring. On
    /// return `guard` is `None` if another worker has taken the seat.
    pub(crate) fn run<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        batch: &Arc<Batch>,
    ) {
        self.gathering.begin_turn(&self.context.shared);
        self.must_hang_up = false;
        let (calls, mut full) = self.execute_calls(seat, guard, batch);
        self.context.counters.calls.add(calls as u64);
        if self.must_hang_up || full.is_some() || !self.batch_replies(guard, batch) {
            full = self.gathering.dispatch(batch, &self.context).or(full);
        }
        if self.must_hang_up {
            // Some of the batched replies may be this connection's.
            if let Some(core) = guard.as_deref_mut() {
                self.send_batched(core);
            }
            hang_up(batch);
        }
        self.gathering.leave(batch);
        self.see_to_log(seat, guard, batch, calls);
        if let Some(flusher) = full {
            self.wait_for_flusher(seat, guard, batch, &flusher);
        }
        debug_assert!(self.gathering.outbox.is_empty(), "replies would go to another peer");
        if seat.open_batches.are_any() {
            seat.open_batches.close_finished();
        }
        if self.reply.bytes.capacity() > REPLY_BYTES_KEPT {
            self.reply.bytes = Vec::new();
        }
    }

    /// Executes calls until none is left or the turn is over. How many they were, and a flusher that has too much to
    /// do, if any.
    fn execute_calls<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        batch: &Arc<Batch>,
    ) -> (usize, Option<Arc<Flusher>>) {
        let failures_before = self.context.shared.flushers.failures();
        let (mut calls, mut full) = (0, None);
        while let Some(index) = batch.take_next() {
            calls += 1;
            self.execute(seat, guard, (batch, index), failures_before);
            if guard.is_none() || self.must_hang_up {
                break;
            }
            if let Some(core) = guard.as_deref_mut()
                && core.batched.is_due(self.gathering.turn.mark_ns())
            {
                self.gathering.send_batched_between_calls(&self.context, core);
            }
            if self.gathering.is_to_send() {
                full = self.send_gathered(guard, batch).or(full);
            }
            // When a flusher has too much to do, the rest of the batch is open meanwhile.
            if full.is_some() || self.keep_rest(seat, guard, batch) {
                break;
            }
        }
        (calls, full)
    }

    /// Sends what was gathered before the turn's end. Gives a flusher that has too much to do, if any.
    fn send_gathered(
        &mut self,
        guard: &mut Option<SeatGuard<'_>>,
        batch: &Batch,
    ) -> Option<Arc<Flusher>> {
        if !batched::is_small(&self.gathering.outbox)
            && let Some(core) = guard.as_deref_mut()
        {
            self.gathering.send_batched_between_calls(&self.context, core);
        }
        let full = self.gathering.dispatch_and_rouse(batch, &self.context);
        self.gathering.turn.sent_gathered(self.context.shared.stamp_ns());
        full
    }

    /// Sends the batched replies of a seat.
    pub(crate) fn send_batched(&mut self, core: &mut SeatCore) {
        let _ = self.gathering.send_batched(&self.context, core);
    }

    /// Batches the replies to calls, for those of who is next to go out with them; or, if
    /// nobody's shall or these are too large, sends those that were batched before.
    fn batch_replies(&mut self, guard: &mut Option<SeatGuard<'_>>, batch: &Batch) -> bool {
        let Some(core) = guard.as_deref_mut() else { return false };
        let Gathering { outbox, turn, calls_to_leave, .. } = &mut self.gathering;
        let may_wait = *calls_to_leave == 0 && core.company() == Company::Some;
        if may_wait && core.batched.add(outbox, batch, turn.mark_ns()) {
            return true;
        }
        if core.company() != Company::Itself || !batched::is_small(outbox) {
            self.send_batched(core);
        }
        false
    }

    /// Leaves further calls of a connection to a later turn when this one is over, its peer reads too slowly, or too
    /// many of its calls are parked. Whether there is nothing more to be executed now.
    fn keep_rest(
        &mut self,
        seat: &Seat,
        guard: &mut Option<SeatGuard<'_>>,
        batch: &Arc<Batch>,
    ) -> bool {
        let Some(connection) = batch.connection() else { return false };
        let Context { shared, .. } = &self.context;
        if connection.is_closed() {
            batch.give_up();
            return true;
        }
        let Gathering { outbox, spare, turn, .. } = &mut self.gathering;
        if batch.is_exhausted() || (!turn.is_over() && connection.may_send_calls(&shared.options)) {
            return false;
        }
        let Some(core) = guard.as_deref_mut() else { return true };
        let token = connection.token.load(Ordering::Relaxed);
        let Some(slot) = core.connections.at(token) else {
            batch.give_up();
            return true;
        };
        // What is left to a later turn is not open.
        seat.open_batches.close(batch, outbox, spare);
        let rest = batch.take_rest();
        shared.waiting.call_bytes.fetch_add(rest.kept_bytes(), Ordering::Relaxed);
        // Before later ones.
        slot.due.push_front(rest);
        // Serving it arms the watch, or goes on if there is room already.
        core.enqueue(token);
        true
    }

    /// Has what the calls of a turn logged written: by this thread if nobody else needs it, else by a
    /// committer, together with what those log whose turn is next.
    fn see_to_log<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        batch: &Arc<Batch>,
        calls: usize,
    ) {
        let Some(intent_log) = &self.context.shared.intent_log else { return };
        let is_alone = match (guard.as_deref_mut(), batch.connection()) {
            (Some(core), Some(connection)) => {
                core.is_alone(connection.token.load(Ordering::Relaxed))
            }
            _ => false,
        };
        let turn = EndedTurn {
            now_ns: self.gathering.turn.mark_ns(),
            calls,
            is_alone: is_alone && batch.is_exhausted(),
            others_are_next: guard.as_deref().is_some_and(|core| !core.turns.is_empty()),
        };
        match self.log_hold.turn_ended(turn, || intent_log.is_for_the_taking()) {
            Step::Commit => self.commit(seat, guard, batch, &Arc::clone(intent_log)),
            Step::Rouse => intent_log.rouse(),
            Step::RouseAndRelease => {
                intent_log.rouse();
                intent_log.release();
            }
            Step::Hold => intent_log.hold(),
            Step::HoldFurther => {}
        }
    }

    /// Has what is held written: nobody's turn is next.
    pub(crate) fn release(&mut self) {
        if self.log_hold.release()
            && let Some(intent_log) = &self.context.shared.intent_log
        {
            intent_log.release();
        }
    }

    /// Writes what was logged, with the seat lent.
    fn commit<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        batch: &Arc<Batch>,
        intent_log: &Arc<dyn ReplyLog>,
    ) {
        let sender =
            self.commit.get_or_insert_with(|| Box::new(ReplySender::new(&self.context.shared)));
        let mut host = Host::new(&self.context, &mut self.gathering, seat, guard, batch);
        host.may_block();
        intent_log.commit_once(sender);
        host.regain();
        self.catch_up(batch);
    }

    /// Waits until a flusher takes more, with the seat handed over.
    fn wait_for_flusher<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        batch: &Arc<Batch>,
        flusher: &Flusher,
    ) {
        let Context { pool, shared, .. } = &self.context;
        let is_without_seat = guard.is_none();
        let mut host = Host::new(&self.context, &mut self.gathering, seat, guard, batch);
        let storage = flusher.domain().into();
        host.storage = Some(storage);
        host.will_block();
        if is_without_seat {
            pool.blocked.enter(storage, shared.now_ms());
        }
        flusher.wait_for_space(shared);
        if is_without_seat {
            pool.blocked.leave(storage, shared.now_ms());
        }
        host.regain();
        self.catch_up(batch);
    }

    /// After the seat was lent at a turn's end: what others have gathered meanwhile of the open batch is this worker's
    /// to send.
    fn catch_up(&mut self, batch: &Batch) {
        self.gathering.turn.advance(self.context.shared.now_ms());
        let _ = self.gathering.dispatch_and_rouse(batch, &self.context);
        self.gathering.leave(batch);
    }
}

/// Answers a call that should wait for its flush, if the server was started to be measured so.
#[cfg(feature = "unsafe-async")]
fn answer_unflushed(verdict: Verdict, reply: &mut ReplyBuffer, shared: &Shared) -> Verdict {
    match verdict {
        Verdict::Parked(call) if shared.options.acknowledges_unflushed => {
            reply.bytes.clear();
            shared.service.settle(call, Ok(()), shared.now_ms(), &mut reply.bytes);
            Verdict::Replied
        }
        other => other,
    }
}

/// Ends a batch's connection, if it has one. What came before was executed; its replies may be
/// lost.
fn hang_up(batch: &Batch) {
    if let Some(connection) = batch.connection() {
        batch.give_up();
        connection.close();
    }
}
