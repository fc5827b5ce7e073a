//! Executes the calls of a batch.

mod host;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use steadfast_engine::{
    CallFacts, CallHost, CallSubject, Complaint, Peer, ReplyBuffer, StorageId, SuspendedCall,
    Verdict,
};

use crate::batch::{Batch, Origin, Outbox};
use crate::batched;
use crate::connection::Connection;
use crate::datagram::ReplyAddress;
use crate::log_limit::{LogKind, limited};
use crate::pool::Pool;
use crate::seat::{HandedOver, Seat, SeatCore, SeatGuard};
use crate::send_queue::SpareBuffers;
use crate::shared::flusher::{Flusher, KnownFlushers};
use crate::shared::parked::{ParkedReply, ReplySender, ReplyTo, note_panic};
use crate::shared::{Phase, Shared};
use crate::statistics::{Answered, Counters, Executed, Sampler, Spent, StageClock, Waited};
use crate::suspended::for_another::Ticket;
use crate::suspended::{KeptCall, KeptOrigin};
use crate::turns::Company;

use host::Host;

/// Gathered replies are sent when they are this many bytes, before the batch's end.
const GATHER_BYTES: usize = 1 << 20;
/// Parked calls are handed over when they are this many, before the batch's end.
const GATHER_PARKED: usize = 32;
/// Replies and parked calls are gathered no longer than about this many ms.
const GATHER_MS: u64 = 1;
/// What calls have logged is written when so many were executed since, though others could be first.
const HELD_CALLS: usize = 32;
/// Or after this time, in ns.
const HELD_NS: u64 = 1_000_000;
/// A connection's turn ends after this time, in ns, though it has further calls: they are put
/// off, so that a batch of large reads does not keep other clients waiting.
const TURN_NS: u64 = 300_000;
/// A reply buffer larger than this is not kept.
const REPLY_BYTES_KEPT: usize = 2 << 20;

/// What a worker executes calls with, apart from what it gathers.
struct Context {
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    counters: Arc<CachePadded<Counters>>,
}

/// What one worker gathers from calls, until it is sent.
#[derive(Default)]
struct Gathering {
    outbox: Outbox,
    spare: SpareBuffers,
    flushers: KnownFlushers,
    /// Calls that ended without the seat and still count as being in flight.
    calls_to_leave: usize,
    /// When the last call ended, or the worker began with the batch.
    mark_ns: u64,
    /// How long the replies to others took to send during calls of the batch.
    sending_ns: u64,
    /// The time for time-outs; advances with the batch, and with calls that might have blocked.
    now_ms: u64,
}

impl Gathering {
    /// To be called when the replies of this worker's calls are out.
    fn leave(&mut self, batch: &Batch) {
        let count = std::mem::take(&mut self.calls_to_leave);
        if let Some(connection) = batch.connection()
            && count > 0
        {
            connection.leave(count);
        }
    }

    /// Sends the batched replies of a seat. Whoever is served there does not pay for it.
    fn send_batched(&mut self, context: &Context, core: &mut SeatCore) {
        if core.batched.is_empty() {
            return;
        }
        let shared = &context.shared;
        let client = core.stop_serving(shared.stamp_ns());
        core.batched.send(&mut self.spare, shared, &context.counters);
        if let Some(client) = client {
            core.start_serving(client, shared.stamp_ns());
        }
    }

    /// Sends the replies and hands the parked calls over. Gives a flusher that has too much to
    /// do already, if any: the caller should wait for it without its seat.
    fn dispatch(&mut self, batch: &Batch, context: &Context) -> Option<Arc<Flusher>> {
        context.counters.bytes_out.add(self.outbox.bytes() as u64);
        context.counters.parked.add(self.outbox.parked.len() as u64);
        let Context { shared, counters, .. } = context;
        let now_ms = self.now_ms;
        self.outbox.dispatch(batch, &mut self.spare, &mut self.flushers, shared, counters, now_ms)
    }

    /// As [`Gathering::dispatch`], and has what the calls logged written.
    fn dispatch_and_rouse(&mut self, batch: &Batch, context: &Context) -> Option<Arc<Flusher>> {
        let full = self.dispatch(batch, context);
        if let Some(intent_log) = &context.shared.intent_log {
            intent_log.rouse();
        }
        full
    }
}

/// One worker's means to execute calls.
pub(crate) struct Executor {
    context: Context,
    gathering: Gathering,
    reply: ReplyBuffer,
    sampler: Sampler,
    /// For what it commits itself.
    commit: Option<Box<ReplySender>>,
    /// Since when it holds what calls have logged, and how many there were.
    held: Option<(u64, usize)>,
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
            held: None,
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
        let failures_before = self.context.shared.flushers.failures();
        self.gathering.mark_ns = self.context.shared.stamp_ns();
        self.gathering.now_ms = self.context.shared.now_ms();
        self.must_hang_up = false;
        let mut gathered_since_ms = self.gathering.now_ms;
        let mut turn_begun_ns = self.gathering.mark_ns;
        let mut full = None;
        let mut calls = 0;
        while let Some(index) = batch.take_next() {
            calls += 1;
            self.execute(seat, guard, batch, index, failures_before);
            turn_begun_ns += std::mem::take(&mut self.gathering.sending_ns);
            if guard.is_none() || self.must_hang_up {
                break;
            }
            if let Some(core) = guard.as_deref_mut()
                && core.batched.is_due(self.gathering.mark_ns)
            {
                let sent_since_ns = self.gathering.mark_ns;
                self.send_batched(core);
                self.gathering.mark_ns = self.context.shared.stamp_ns();
                turn_begun_ns += self.gathering.mark_ns.saturating_sub(sent_since_ns);
            }
            let Gathering { outbox, now_ms, .. } = &self.gathering;
            // The clock advances here only with calls that might have blocked: their company
            // must not wait for many of them.
            let is_late = *now_ms > gathered_since_ms + GATHER_MS && !outbox.is_empty();
            if is_late || outbox.bytes() >= GATHER_BYTES || outbox.parked.len() >= GATHER_PARKED {
                if !batched::is_small(outbox)
                    && let Some(core) = guard.as_deref_mut()
                {
                    let sent_since_ns = self.context.shared.stamp_ns();
                    self.send_batched(core);
                    let sent_ns = self.context.shared.stamp_ns();
                    turn_begun_ns += sent_ns.saturating_sub(sent_since_ns);
                }
                full = self.gathering.dispatch_and_rouse(batch, &self.context).or(full);
                gathered_since_ms = self.gathering.now_ms;
                // Sending is none of the next call's time.
                self.gathering.mark_ns = self.context.shared.stamp_ns();
            }
            let is_over = self.gathering.mark_ns >= turn_begun_ns.saturating_add(TURN_NS);
            // When a flusher has too much to do, the rest of the batch is open meanwhile.
            if full.is_some() || self.keep_rest(seat, guard, batch, is_over) {
                break;
            }
        }
        self.context.counters.calls.add(calls);
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
        self.commit(seat, guard, batch, calls as usize);
        if let Some(flusher) = full {
            let is_without_seat = guard.is_none();
            let mut host = Host::new(&self.context, &mut self.gathering, seat, guard, batch);
            let storage = flusher.domain().into();
            host.storage = Some(storage);
            host.will_block();
            let blocked = &self.context.pool.blocked;
            if is_without_seat {
                blocked.enter(storage, self.context.shared.now_ms());
            }
            flusher.wait_for_space(&self.context.shared);
            if is_without_seat {
                blocked.leave(storage, self.context.shared.now_ms());
            }
            host.regain();
            self.gathering.now_ms = self.context.shared.now_ms();
            // What others have gathered meanwhile of the open batch is this worker's to send.
            let _ = self.gathering.dispatch_and_rouse(batch, &self.context);
            self.gathering.leave(batch);
        }
        debug_assert!(self.gathering.outbox.is_empty(), "replies would go to another peer");
        if seat.open_batches.are_any() {
            seat.open_batches.close_finished();
        }
        if self.reply.bytes.capacity() > REPLY_BYTES_KEPT {
            self.reply.bytes = Vec::new();
        }
    }

    /// Sends the batched replies of a seat.
    pub(crate) fn send_batched(&mut self, core: &mut SeatCore) {
        self.gathering.send_batched(&self.context, core);
    }

    /// Batches the replies to calls, for those of who is next to go out with them; or, if
    /// nobody's shall or these are too large, sends those that were batched before.
    fn batch_replies(&mut self, guard: &mut Option<SeatGuard<'_>>, batch: &Batch) -> bool {
        let Some(core) = guard.as_deref_mut() else { return false };
        let Gathering { outbox, calls_to_leave, mark_ns, .. } = &mut self.gathering;
        let may_hold = *calls_to_leave == 0 && core.company() == Company::Some;
        if may_hold && core.batched.add(outbox, batch, *mark_ns) {
            return true;
        }
        if core.company() != Company::Itself || !batched::is_small(outbox) {
            self.send_batched(core);
        }
        false
    }

    /// Has what is held written: nobody's turn is next.
    pub(crate) fn release(&mut self) {
        if self.held.take().is_some()
            && let Some(intent_log) = &self.context.shared.intent_log
        {
            intent_log.release();
        }
    }

    /// Has what the calls logged written: by this thread if nobody else needs it, else by a
    /// committer, together with what those log whose turn is next.
    fn commit<'s>(
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
        if !is_alone || !batch.is_exhausted() || !intent_log.is_for_the_taking() {
            let now_ns = self.gathering.mark_ns;
            let (since_ns, before) = self.held.unwrap_or((now_ns, 0));
            let others_are_next = guard.as_deref().is_some_and(|core| !core.turns.is_empty());
            let may_hold = before + calls < HELD_CALLS && now_ns < since_ns + HELD_NS;
            if !others_are_next || !may_hold {
                intent_log.rouse();
                self.release();
                return;
            }
            if self.held.is_none() {
                intent_log.hold();
            }
            self.held = Some((since_ns, before + calls));
            return;
        }
        let intent_log = Arc::clone(intent_log);
        let sender =
            self.commit.get_or_insert_with(|| Box::new(ReplySender::new(&self.context.shared)));
        let mut host = Host::new(&self.context, &mut self.gathering, seat, guard, batch);
        host.may_block();
        intent_log.commit_once(sender);
        host.regain();
        self.gathering.now_ms = self.context.shared.now_ms();
        // What others have gathered meanwhile of the open batch is this worker's to send.
        let _ = self.gathering.dispatch_and_rouse(batch, &self.context);
        self.gathering.leave(batch);
    }

    /// Keeps further calls of a connection for later when its turn is over, its peer reads too
    /// slowly, or too many of its calls are parked.
    fn keep_rest(
        &mut self,
        seat: &Seat,
        guard: &mut Option<SeatGuard<'_>>,
        batch: &Arc<Batch>,
        is_turn_over: bool,
    ) -> bool {
        let Some(connection) = batch.connection() else { return false };
        let options = &self.context.shared.options;
        if connection.is_closed() {
            batch.give_up();
            return true;
        }
        if batch.is_exhausted() || (!is_turn_over && connection.may_send_calls(options)) {
            return false;
        }
        let Some(core) = guard.as_deref_mut() else { return true };
        let token = connection.token.load(Ordering::Relaxed);
        let Some(slot) = core.connections.at(token) else {
            batch.give_up();
            return true;
        };
        // What is kept for a later turn is not open.
        let Gathering { outbox, spare, .. } = &mut self.gathering;
        seat.open_batches.close(batch, outbox, spare);
        let rest = batch.take_rest();
        self.context.shared.waiting.call_bytes.fetch_add(rest.kept_bytes(), Ordering::Relaxed);
        // Before later ones.
        slot.due.push_front(rest);
        // Serving it arms the watch, or goes on if there is room already.
        core.enqueue(token);
        true
    }

    fn execute<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        batch: &Arc<Batch>,
        index: usize,
        failures_before: u64,
    ) {
        let Self { context, gathering, reply, sampler, must_hang_up, .. } = self;
        let log = &context.shared.log;
        reply.bytes.clear();
        reply.files.clear();
        reply.complaint = None;
        reply.facts = CallFacts::default();
        reply.subject = CallSubject::default();
        let (datagram_peer, address);
        let peer: &Peer = match &batch.origin {
            Origin::Stream(connection) => {
                reply.may_place_files = true;
                address = None;
                &connection.peer
            }
            Origin::Datagrams(socket, received) => {
                let Some(received) = received.get(index) else { return };
                reply.may_place_files = false;
                let to = ReplyAddress::new(socket, received);
                datagram_peer = to.peer();
                address = Some(to);
                &datagram_peer
            }
            Origin::Nowhere => return,
        };
        let (begun_ns, now_ms) = (gathering.mark_ns, gathering.now_ms);
        let record = batch.record(index);
        let waited = batch.waited(begun_ns);
        let mut host = Host::new(context, gathering, seat, guard, batch);
        host.address = address.as_ref();
        host.suspended = batch.take_suspended();
        host.longest = waited.longest;
        host.stages = sampler.is_next().then(|| StageClock::new(begun_ns));
        let verdict = catch_unwind(AssertUnwindSafe(|| {
            context.shared.service.call(&mut host, peer, now_ms, record, reply)
        }));
        let stages = host.stages.take();
        let (storage, ticket) = (host.storage, host.ticket.take());
        let (lent_ns, longest) = (host.lent_ns, host.longest);
        // Who did not come to where it might wait has not waited.
        let intent_log = context.shared.intent_log.as_ref().filter(|_| lent_ns != 0);
        let log_room_ns = intent_log.map_or(0, |log| log.take_room_wait_ns());
        // None of this call's time.
        let sending_ns = host.sending_ns;
        let begun_ns = begun_ns + sending_ns;
        host.regain();
        if host.was_lent {
            // It may have taken a while.
            gathering.now_ms = context.shared.now_ms();
        }
        #[cfg(feature = "unsafe-async")]
        let verdict = verdict.map(|verdict| answer_unflushed(verdict, reply, &context.shared));
        let ended_ns = context.shared.stamp_ns();
        gathering.mark_ns = ended_ns;
        gathering.sending_ns += sending_ns;
        let verdict = match verdict {
            Ok(Verdict::Suspended(call)) => {
                let core = guard.as_deref_mut();
                let spent = Spent::new(begun_ns, lent_ns, ended_ns, log_room_ns);
                let waited = Waited { longest, ..waited.with(&spent) };
                let only = Only { batch: batch.as_ref(), index, waited, now_ns: ended_ns };
                let kept = match (ticket, storage) {
                    (Some(ticket), _) if call.waits_for_client() => {
                        suspend_for_another(context, seat, core, only, ticket, call)
                    }
                    (_, Some(storage)) => suspend_for_storage(context, core, only, storage, call),
                    (_, None) => Err(call),
                };
                match kept {
                    Ok(()) => return,
                    Err(call) => {
                        context.counters.told_later.add(1);
                        let before = reply.bytes.len();
                        context.shared.service.refuse(call, &mut reply.bytes);
                        // Who sends datagrams sends them again, and MOUNT has no word for later; nor
                        // has NFSv2, which gets nothing.
                        let is_silent = address.is_some() || reply.bytes.len() == before;
                        Ok(if is_silent { Verdict::Silent } else { Verdict::Replied })
                    }
                }
            }
            verdict => verdict,
        };
        let is_sampled = stages.is_some();
        let (decode_ns, access_ns) = stages.map_or((0, 0), |stages| stages.finish(ended_ns));
        let mut executed = Executed {
            facts: reply.facts,
            subject: reply.subject,
            waited,
            is_sampled,
            decode_ns,
            access_ns,
            begun_ns,
            lent_ns,
            log_room_ns,
            waited_in: longest.map(|(operation, _)| operation),
            ended_ns,
            flushed_ns: 0,
        };
        executed.facts.is_error |= matches!(verdict, Ok(Verdict::HangUp(_)) | Err(_));
        let bytes_out = match verdict {
            Ok(Verdict::Replied) => Some(reply.length()),
            Ok(Verdict::Parked(_)) => None,
            Ok(Verdict::Suspended(_) | Verdict::Silent | Verdict::HangUp(_)) | Err(_) => Some(0),
        };
        context.counters.operations.note_executed(&executed, record.len(), bytes_out);
        if executed.facts.is_repeat && matches!(verdict, Ok(Verdict::Silent)) {
            context.counters.operations.note_unanswered_repeat(
                &executed,
                peer,
                &context.shared.top_room,
            );
        }
        if let Some(complaint) = reply.complaint.take() {
            // Each has a bound of its own: none hides another.
            let kind = match complaint {
                Complaint::MountRefused { .. } => LogKind::Mount,
                Complaint::NoRoom { .. } => LogKind::Room,
                _ => LogKind::Complaint,
            };
            limited!(log, kind, warn, "{} {complaint}", peer.address);
        }
        let outbox = &mut gathering.outbox;
        match verdict {
            Ok(Verdict::Replied) => {
                match address {
                    None => outbox.stream.push_record(reply, &mut gathering.spare),
                    Some(address) => outbox.datagrams.push(&reply.bytes, address, log),
                }
                outbox.answered.push(Answered { index, executed });
            }
            Ok(Verdict::Parked(call)) => {
                let to = match (address, batch.connection()) {
                    (Some(address), _) => ReplyTo::Datagram(address),
                    (None, Some(connection)) => {
                        connection.enter();
                        ReplyTo::Stream(Arc::clone(connection))
                    }
                    (None, None) => return,
                };
                let arrival = batch.arrival;
                outbox.parked.push(ParkedReply { call, to, failures_before, arrival, executed });
            }
            Ok(Verdict::Silent | Verdict::Suspended(_)) => {}
            Ok(Verdict::HangUp(reason)) => {
                limited!(log, LogKind::HangUp, warn, "{} {reason}", peer.address);
                *must_hang_up = address.is_none();
            }
            Err(_) => {
                note_panic(&context.shared, &peer.address);
                *must_hang_up = address.is_none();
            }
        }
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

/// A call of a batch that is to be kept by itself.
#[derive(Clone, Copy)]
struct Only<'b> {
    batch: &'b Batch,
    index: usize,
    /// What became of its time up to now, but for its turn.
    waited: Waited,
    /// By the stamps' clock.
    now_ns: u64,
}

impl Only<'_> {
    fn kept(self, call: SuspendedCall, now_ms: u64) -> Arc<Batch> {
        self.batch.only(self.index, call, now_ms, (self.waited, self.now_ns))
    }
}

/// Puts a call off until it may wait for its storage.
///
/// # Errors
/// The call, if its client is to be told to try later instead.
fn suspend_for_storage(
    context: &Context,
    core: Option<&mut SeatCore>,
    only: Only<'_>,
    storage: StorageId,
    call: SuspendedCall,
) -> Result<(), SuspendedCall> {
    let Only { batch, index, .. } = only;
    let (Some(connection), Some(core)) = (batch.connection(), core) else { return Err(call) };
    let options = &context.shared.options;
    let waiting = &context.shared.waiting.call_bytes;
    let token = connection.token.load(Ordering::Relaxed);
    let Some(slot) = core.connections.at(token) else { return Err(call) };
    let client = slot.client;
    // Others of the connection's calls go on.
    let has_many = connection.in_flight() >= options.calls_in_flight_max / 2;
    let has_memory = waiting.load(Ordering::Relaxed) + batch.record(index).len()
        <= options.waiting_bytes_max / 2;
    if has_many || !has_memory || core.suspended.for_storage.is_full() {
        return Err(call);
    }
    let now_ms = context.shared.now_ms();
    let batch = only.kept(call, now_ms);
    waiting.fetch_add(batch.kept_bytes(), Ordering::Relaxed);
    connection.enter();
    let call = KeptCall { origin: KeptOrigin::Connection(token), batch };
    core.suspended.for_storage.push(client, call, storage, now_ms);
    context.counters.put_off.add(1);
    Ok(())
}

/// Keeps a call until its client need not wait for another one any more.
///
/// # Errors
/// The call, if its client is to be told to try later instead.
fn suspend_for_another(
    context: &Context,
    seat: &Seat,
    core: Option<&mut SeatCore>,
    only: Only<'_>,
    ticket: Arc<Ticket>,
    call: SuspendedCall,
) -> Result<(), SuspendedCall> {
    let Only { batch, index, .. } = only;
    let options = &context.shared.options;
    let waiting = &context.shared.waiting.call_bytes;
    let has_memory = waiting.load(Ordering::Relaxed) + batch.record(index).len()
        <= options.waiting_bytes_max / 2;
    // Others of the connection's calls go on.
    let has_room = |connection: &Connection| {
        connection.in_flight() < options.calls_in_flight_max / 2 && !connection.is_closed()
    };
    let origin = match &batch.origin {
        Origin::Stream(connection) if has_memory && has_room(connection) => {
            connection.enter();
            KeptOrigin::Connection(connection.token.load(Ordering::Relaxed))
        }
        Origin::Datagrams(socket, _) if has_memory => KeptOrigin::Datagrams(Arc::clone(socket)),
        _ => return Err(call),
    };
    let batch = only.kept(call, context.shared.now_ms());
    waiting.fetch_add(batch.kept_bytes(), Ordering::Relaxed);
    context.counters.put_off.add(1);
    let call = KeptCall { origin, batch };
    match core {
        Some(core) => core.suspend_for_another(call, ticket, &context.shared),
        // Whoever has the seat keeps it.
        None => seat.hand_over(HandedOver::Call(call, ticket)),
    }
    Ok(())
}

/// Ends a batch's connection, if it has one. What came before was executed; its replies may be
/// lost.
fn hang_up(batch: &Batch) {
    if let Some(connection) = batch.connection() {
        batch.give_up();
        connection.close();
    }
}
