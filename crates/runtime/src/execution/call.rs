//! One call of a batch: it is executed, counted, and its reply gathered; or it is suspended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use steadfast_engine::{
    CallFacts, CallSubject, Complaint, CompoundOperation, Peer, StorageId, SuspendedCall, Verdict,
};

use super::Executor;
use super::gathering::Context;
use super::host::Host;
use super::suspending::{self, Stopped, Until};
use crate::batch::{Batch, Origin};
use crate::capture::{CapturedTimes, Place};
use crate::datagram::ReplyAddress;
use crate::log_limit::{LogKind, limited};
use crate::seat::{Seat, SeatGuard};
use crate::shared::parked::{ParkedReply, ReplyTo, note_panic};
use crate::statistics::{Answered, Executed, Spent, StageClock, Waited};
use crate::suspended::for_another::Ticket;

/// A call of a batch that a worker executes.
struct Asked<'b> {
    batch: &'b Arc<Batch>,
    index: usize,
    peer: &'b Peer,
    /// Where it came from, if it is a datagram.
    address: Option<ReplyAddress>,
    /// Flushes that had failed when the turn began.
    failures_before: u64,
}

/// What became of a call, or its panic.
type Outcome = thread::Result<Verdict>;

/// An execution of a call, at its end.
struct Execution {
    /// What had become of its time before, if it was suspended.
    waited: Option<Box<Waited>>,
    begun_ns: u64,
    lent_ns: u64,
    log_room_ns: u64,
    ended_ns: u64,
    longest: Option<(CompoundOperation, u64)>,
    stages: Option<StageClock>,
    /// What it might wait with or for, if it was suspended.
    ticket: Option<Arc<Ticket>>,
    storage: Option<StorageId>,
}

impl Executor {
    /// Executes a call of a batch. Its reply is gathered, unless it is suspended or gets none.
    pub(super) fn execute<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        (batch, index): (&Arc<Batch>, usize),
        failures_before: u64,
    ) {
        let datagram_peer;
        let (peer, address) = match &batch.origin {
            Origin::Stream(connection) => (&connection.peer, None),
            Origin::Datagrams(socket, received) => {
                let Some(received) = received.get(index) else { return };
                let to = ReplyAddress::new(socket, received);
                datagram_peer = to.peer();
                (&datagram_peer, Some(to))
            }
            Origin::Nowhere => return,
        };
        let mut asked = Asked { batch, index, peer, address, failures_before };
        let wanted = self.context.shared.capture.wants();
        if wanted.is_any() {
            self.capture_call(&asked);
        }
        let keeps_contents = wanted.are_contents() && self.context.shared.capture.has_client(peer);
        self.begin_reply(asked.address.is_none() && !keeps_contents);
        let (outcome, mut execution) = self.call(seat, guard, &asked);
        let outcome = match outcome {
            Ok(Verdict::Suspended(call)) => {
                match self.suspend(seat, guard, &asked, &mut execution, call) {
                    Ok(()) => return,
                    Err(call) => Ok(self.refuse_for_now(&asked, call)),
                }
            }
            outcome => outcome,
        };
        let executed = self.count(&asked, &outcome, &mut execution);
        self.log_complaint(peer);
        self.gather(&mut asked, outcome, executed);
    }

    /// Captures a call that was received, when it is executed for the first time.
    fn capture_call(&self, asked: &Asked<'_>) {
        let Context { pool, shared, .. } = &self.context;
        if asked.batch.suspended_since_ms().is_none() {
            let (came_ns, record) =
                (asked.batch.arrival.received_ns, asked.batch.record(asked.index));
            shared.capture.received(Place::Pool(pool.index), asked.peer, came_ns, record);
        }
    }

    /// Empties what a reply is made in.
    fn begin_reply(&mut self, may_place_files: bool) {
        let reply = &mut self.reply;
        reply.bytes.clear();
        reply.files.clear();
        reply.complaint = None;
        reply.facts = CallFacts::default();
        reply.subject = CallSubject::default();
        reply.may_place_files = may_place_files;
    }

    /// Has the engine execute a call, while others may take the seat.
    fn call<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        asked: &Asked<'_>,
    ) -> (Outcome, Execution) {
        let Self { context, gathering, reply, sampler, .. } = self;
        let shared = &context.shared;
        let (begun_ns, now_ms) = (gathering.turn.mark_ns(), gathering.turn.now_ms());
        let waited = asked.batch.waited(begun_ns);
        let mut host = Host::new(context, gathering, seat, guard, asked.batch);
        host.address = asked.address.as_ref();
        host.suspended = asked.batch.take_suspended();
        host.longest = waited.as_ref().and_then(|waited| waited.longest);
        host.stages = sampler.is_next().then(|| StageClock::new(begun_ns));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            shared.service.call(
                &mut host,
                asked.peer,
                now_ms,
                asked.batch.record(asked.index),
                reply,
            )
        }));
        let stages = host.stages.take();
        let (storage, ticket) = (host.storage, host.ticket.take());
        let (lent_ns, longest) = (host.lent_ns, host.longest);
        // Who did not come to where it might wait has not waited.
        let intent_log = shared.intent_log.as_ref().filter(|_| lent_ns != 0);
        let log_room_ns = intent_log.map_or(0, |log| log.take_room_wait_ns());
        // None of this call's time.
        let sending_ns = host.sending_ns;
        host.regain();
        if host.was_lent {
            // It may have taken a while.
            gathering.turn.advance(shared.now_ms());
        }
        #[cfg(feature = "unsafe-async")]
        let outcome = outcome.map(|verdict| super::answer_unflushed(verdict, reply, shared));
        let ended_ns = shared.stamp_ns();
        gathering.turn.call_ended(ended_ns, sending_ns);
        let execution = Execution {
            waited,
            begun_ns: begun_ns + sending_ns,
            lent_ns,
            log_room_ns,
            ended_ns,
            longest,
            stages,
            ticket,
            storage,
        };
        (outcome, execution)
    }

    /// Keeps a call that goes on later.
    ///
    /// # Errors
    /// The call, if it is to be refused for now instead.
    fn suspend(
        &self,
        seat: &Seat,
        guard: &mut Option<SeatGuard<'_>>,
        asked: &Asked<'_>,
        execution: &mut Execution,
        call: SuspendedCall,
    ) -> Result<(), SuspendedCall> {
        let Some(until) = Until::of(&call, execution.ticket.take(), execution.storage) else {
            return Err(call);
        };
        let spent = Spent::new(
            execution.begun_ns,
            execution.lent_ns,
            execution.ended_ns,
            execution.log_room_ns,
        );
        let before = execution.waited.as_deref().copied().unwrap_or_default();
        let waited = Waited { longest: execution.longest, ..before.with(&spent) };
        let Asked { batch, index, .. } = asked;
        let now_ns = execution.ended_ns;
        let stopped = Stopped { batch, index: *index, waited, now_ns };
        suspending::suspend(&self.context, seat, guard.as_deref_mut(), stopped, until, call)
    }

    /// Makes the reply of a call that its client is to make again.
    fn refuse_for_now(&mut self, asked: &Asked<'_>, call: SuspendedCall) -> Verdict {
        self.context.counters.told_later.add(1);
        let bytes = &mut self.reply.bytes;
        let before = bytes.len();
        let is_closed = asked.batch.connection().is_some_and(|connection| connection.is_closed());
        let call = if is_closed { call.of_nobody() } else { call };
        self.context.shared.service.refuse(call, bytes);
        // Who sends datagrams sends them again, and MOUNT has no word for later; nor
        // has NFSv2, which gets nothing.
        let is_silent = asked.address.is_some() || bytes.len() == before;
        if is_silent { Verdict::Silent } else { Verdict::Replied }
    }

    /// Counts a call that has been executed.
    fn count(&self, asked: &Asked<'_>, outcome: &Outcome, execution: &mut Execution) -> Executed {
        let Self { context, reply, .. } = self;
        let stages = execution.stages.take();
        let is_sampled = stages.is_some();
        let (decode_ns, access_ns) =
            stages.map_or((0, 0), |stages| stages.finish(execution.ended_ns));
        let mut executed = Executed {
            facts: reply.facts,
            subject: reply.subject,
            waited: execution.waited.take(),
            is_sampled,
            decode_ns,
            access_ns,
            begun_ns: execution.begun_ns,
            lent_ns: execution.lent_ns,
            log_room_ns: execution.log_room_ns,
            waited_in: execution.longest.map(|(operation, _)| operation),
            ended_ns: execution.ended_ns,
            flushed_ns: 0,
        };
        executed.facts.is_error |= matches!(outcome, Ok(Verdict::HangUp(_)) | Err(_));
        let bytes_out = match outcome {
            Ok(Verdict::Replied) => Some(reply.length()),
            Ok(Verdict::Parked(_)) => None,
            Ok(Verdict::Suspended(_) | Verdict::Silent | Verdict::HangUp(_)) | Err(_) => Some(0),
        };
        let operations = &context.counters.operations;
        operations.note_executed(&executed, asked.batch.record(asked.index).len(), bytes_out);
        if executed.facts.is_repeat && matches!(outcome, Ok(Verdict::Silent)) {
            operations.note_unanswered_repeat(&executed, asked.peer, &context.shared.top_room);
        }
        executed
    }

    fn log_complaint(&mut self, peer: &Peer) {
        let Some(complaint) = self.reply.complaint.take() else { return };
        // Each has a bound of its own: none hides another.
        let kind = match complaint {
            Complaint::MountRefused { .. } => LogKind::Mount,
            Complaint::NoRoom { .. } => LogKind::Room,
            _ => LogKind::Complaint,
        };
        limited!(self.context.shared.log, kind, warn, "{} {complaint}", peer.address);
    }

    /// Gathers what a call leaves to be sent or parked.
    fn gather(&mut self, asked: &mut Asked<'_>, outcome: Outcome, executed: Executed) {
        let Self { context, gathering, reply, must_hang_up, .. } = self;
        let (outbox, log) = (&mut gathering.outbox, &context.shared.log);
        match outcome {
            Ok(Verdict::Replied) => {
                if context.shared.capture.wants().is_any() {
                    let (place, now_ns) =
                        (Place::Pool(context.pool.index), context.shared.stamp_ns());
                    let spent = (CapturedTimes::of(&executed, None), &executed.facts);
                    context.shared.capture.replied(place, asked.peer, now_ns, reply, spent);
                }
                match asked.address.take() {
                    None => outbox.stream.push_record(reply, &mut gathering.spare),
                    Some(address) => outbox.datagrams.push(&reply.bytes, address, log),
                }
                outbox.answered.push(Answered { index: asked.index, executed });
            }
            Ok(Verdict::Parked(call)) => {
                let to = match (asked.address.take(), asked.batch.connection()) {
                    (Some(address), _) => ReplyTo::Datagram(address),
                    (None, Some(connection)) => {
                        connection.enter();
                        ReplyTo::Stream(Arc::clone(connection))
                    }
                    (None, None) => return,
                };
                let (arrival, failures_before) = (asked.batch.arrival, asked.failures_before);
                outbox.parked.push(ParkedReply { call, to, failures_before, arrival, executed });
            }
            Ok(Verdict::Silent | Verdict::Suspended(_)) => {}
            Ok(Verdict::HangUp(reason)) => {
                limited!(log, LogKind::HangUp, warn, "{} {reason}", asked.peer.address);
                *must_hang_up = asked.address.is_none();
            }
            Err(_) => {
                note_panic(&context.shared, &asked.peer.address);
                *must_hang_up = asked.address.is_none();
            }
        }
    }
}
