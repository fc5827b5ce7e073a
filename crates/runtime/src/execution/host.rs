//! The engine's host for one call, which lends the seat while the call may block.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::SystemTime;

use steadfast_engine::{
    CallHost, CompoundOperation, ReplySink, Room, Stage, StorageId, SuspendedCall,
};

use crate::batch::Batch;
use crate::datagram::ReplyAddress;
use crate::log_limit::{LogKind, limited};
use crate::seat::{Lent, Seat, SeatGuard};
use crate::shared::parked::{LaterReply, ReplyTo};
use crate::statistics::StageClock;
use crate::suspended::for_another::Ticket;
use crate::turns::ClientId;

use super::gathering::{Context, Gathering};
use super::suspending::Patience;

/// Objects are opened slowly if two take longer than this, in ns, and the second begins within so many
/// ms after the first, since others wait meanwhile; and that is believed for as long.
const SLOW_OPENING_NS: u64 = 300_000;
const SLOW_OPENINGS_MS: u64 = 100;

/// The engine's host for one call.
pub(super) struct Host<'h, 's> {
    context: &'h Context,
    gathering: &'h mut Gathering,
    seat: &'s Seat,
    guard: &'h mut Option<SeatGuard<'s>>,
    batch: &'h Arc<Batch>,
    /// Where the call came from, if it is a datagram.
    pub(super) address: Option<&'h ReplyAddress>,
    /// What the engine left of the call when it was suspended.
    pub(super) suspended: Option<SuspendedCall>,
    /// By which it is woken if it waits for a client, or for a name service.
    pub(super) ticket: Option<Arc<Ticket>>,
    /// Who was served when the seat was lent.
    client: Option<ClientId>,
    /// What the call waits for, if it waits.
    pub(super) storage: Option<StorageId>,
    /// The same if it counts as waiting already.
    counted: Option<StorageId>,
    lent: Option<Lent>,
    pub(super) was_lent: bool,
    /// When the call first came to where it might wait, in ns; 0 if it did not.
    pub(super) lent_ns: u64,
    /// Of a COMPOUND: the operation that took longest from then on, in this execution or an earlier one, and how long it
    /// took, in ns.
    pub(super) longest: Option<(CompoundOperation, u64)>,
    /// When the next one began, in ns.
    next_since_ns: u64,
    is_open: bool,
    is_summoned: bool,
    /// Since when an object is being opened, in ns.
    opening_since_ns: Option<u64>,
    /// How long the replies to others took to send meanwhile.
    pub(super) sending_ns: u64,
    /// If this call's stages are measured.
    pub(super) stages: Option<StageClock>,
    /// Of a COMPOUND whose stages are measured: when its next operation began, in ns.
    part_since_ns: u64,
}

impl<'h, 's> Host<'h, 's> {
    pub(super) fn new(
        context: &'h Context,
        gathering: &'h mut Gathering,
        seat: &'s Seat,
        guard: &'h mut Option<SeatGuard<'s>>,
        batch: &'h Arc<Batch>,
    ) -> Self {
        Self {
            context,
            gathering,
            seat,
            guard,
            batch,
            address: None,
            suspended: None,
            ticket: None,
            client: None,
            storage: None,
            counted: None,
            lent: None,
            was_lent: false,
            lent_ns: 0,
            longest: None,
            next_since_ns: 0,
            is_open: false,
            is_summoned: false,
            opening_since_ns: None,
            sending_ns: 0,
            stages: None,
            part_since_ns: 0,
        }
    }

    /// Sends the batched replies to others, which is none of this call's time.
    fn send_batched(&mut self) {
        let Some(core) = self.guard.as_deref_mut() else { return };
        let Some(sent) = self.gathering.send_batched(self.context, core) else { return };
        self.sending_ns += sent.took_ns();
        if let Some(stages) = &mut self.stages {
            stages.skip(sent.took_ns());
            self.part_since_ns += sent.took_ns();
        }
    }

    /// Gives up the seat, leaving to its next occupant what this batch has gathered and has yet
    /// to do; and the batched replies to others, if they may wait.
    fn lend(&mut self, may_replies_wait: bool) {
        if !may_replies_wait {
            self.send_batched();
        }
        let Some(mut guard) = self.guard.take() else { return };
        let now_ns = self.context.shared.stamp_ns();
        self.client = guard.stop_serving(now_ns);
        if self.lent_ns == 0 {
            (self.lent_ns, self.next_since_ns) = (now_ns, now_ns);
            if let Some(intent_log) = &self.context.shared.intent_log {
                // What this thread has waited for elsewhere is none of this call's time.
                let _ = intent_log.take_room_wait_ns();
            }
        }
        let Gathering { outbox, spare, .. } = &mut *self.gathering;
        self.is_open |= self.seat.open_batches.open(self.batch, outbox, spare);
        if let Some(connection) = self.batch.connection() {
            connection.enter();
        }
        self.was_lent = true;
        self.context.counters.lends.add(1);
        let to_be_counted = self.storage.filter(|_| self.counted.is_none());
        self.lent = Some(self.seat.lend(guard, to_be_counted));
        self.context.pool.note_lent();
    }

    fn patience(&self, patience_ms: u64) -> Patience {
        Patience { since_ms: self.batch.suspended_since_ms(), patience_ms }
    }

    /// Takes the seat back, if it is lent, unless another worker has it: to be called when the call
    /// waits no more.
    pub(super) fn regain(&mut self) {
        if let Some(storage) = self.counted.take() {
            self.context.pool.blocked.leave(storage, self.context.shared.now_ms());
        }
        if self.try_to_regain() {
            return;
        }
        if let Some(own) = self.lent.take() {
            self.context.pool.has_come_back(own);
        }
        self.context.counters.takeovers.add(1);
        if self.batch.connection().is_some() {
            // The new occupant must not think the connection done before our reply is out.
            self.gathering.calls_to_leave += 1;
        }
    }

    /// Takes the seat back, if it is lent: `false` if another worker has it.
    fn try_to_regain(&mut self) -> bool {
        let Some(own) = self.lent else { return true };
        *self.guard = self.context.pool.occupy(self.seat, Some(own));
        let Some(core) = self.guard.as_deref_mut() else { return false };
        self.lent = None;
        if let Some(client) = self.client {
            core.start_serving(client, self.context.shared.stamp_ns());
        }
        if self.is_open {
            let Gathering { outbox, spare, .. } = &mut *self.gathering;
            self.seat.open_batches.take_gathered(self.batch, outbox, spare);
        }
        if let Some(connection) = self.batch.connection() {
            connection.leave(1);
        }
        true
    }
}

impl CallHost for Host<'_, '_> {
    fn will_suspend(&mut self) {
        self.storage.get_or_insert(StorageId::UNKNOWN);
    }

    fn room_to_wait(&mut self, storage: StorageId) -> Room {
        let Context { pool, shared, counters } = self.context;
        // Who has no seat keeps nobody from it.
        let Some(core) = self.guard.as_deref() else { return Room::Free };
        if self.counted.is_some() {
            return Room::Free;
        }
        self.storage = Some(storage);
        if core.suspended.for_storage.is_empty() && pool.blocked.has_room_for_all() {
            return Room::Free;
        }
        let now_ms = shared.now_ms();
        let patience = self.patience(shared.options.storage_patience_ms);
        let uncounted = pool.uncounted(storage);
        // Those who came before are first. Datagrams cannot stand in line.
        let may_stand = patience.since_ms.is_none() && self.address.is_none();
        let is_last = may_stand && core.suspended.for_storage.has_line(storage);
        let room = if is_last {
            match pool.blocked.room(storage, uncounted, now_ms) {
                (Room::Free, _) => Room::Later,
                (room, _) => room,
            }
        } else {
            pool.blocked.admit(storage, uncounted, now_ms)
        };
        let room = patience.bound(room, now_ms);
        match room {
            Room::Free => self.counted = Some(storage),
            Room::Later => limited!(
                shared.log,
                LogKind::Storage,
                info,
                "many calls wait for one disk: further ones to it wait without a worker, so that those to \
                 others find one (workers_max)"
            ),
            Room::None => counters.told_later.add(1),
        }
        room
    }

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, patience_ms: u64) -> Option<Waker> {
        let until_ms = self.patience(patience_ms).until_ms(self.context.shared.now_ms())?;
        let ticket = Ticket::new(&self.seat.mailbox, until_ms);
        self.ticket = Some(Arc::clone(&ticket));
        Some(Waker::from(ticket))
    }

    fn may_block(&mut self) {
        if self.lent.is_none() {
            self.lend(false);
        }
    }

    fn seldom_blocks(&mut self) {
        if self.lent.is_none() {
            let mark_ns = self.gathering.turn.mark_ns();
            let is_due = self.guard.as_deref().is_some_and(|core| core.batched.is_due(mark_ns));
            // Should this call sleep after all, another worker sends what is batched.
            self.lend(!is_due && self.context.pool.has_stand_ins());
        }
    }

    fn opens(&mut self) {
        if self.gathering.turn.now_ms() < self.seat.opens_slowly_until_ms.load(Ordering::Relaxed) {
            self.will_block();
        } else {
            self.seldom_blocks();
            self.opening_since_ns = Some(self.context.shared.stamp_ns());
        }
    }

    fn has_opened(&mut self) {
        let Some(since_ns) = self.opening_since_ns.take() else { return };
        let shared = &self.context.shared;
        let took_ns = shared.stamp_ns().saturating_sub(since_ns);
        if took_ns > SLOW_OPENING_NS {
            let now_ms = shared.now_ms();
            let begun_ms = now_ms.saturating_sub(took_ns / 1_000_000);
            let until_ms = now_ms + SLOW_OPENINGS_MS;
            let one_before_until_ms =
                self.seat.slow_opening_until_ms.swap(until_ms, Ordering::Relaxed);
            // One alone may have lost its CPU for a moment.
            if one_before_until_ms > begun_ms {
                self.seat.opens_slowly_until_ms.store(until_ms, Ordering::Relaxed);
            }
        }
    }

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        let to = match (self.address, self.batch.connection()) {
            (Some(address), _) => ReplyTo::Datagram(address.clone()),
            (None, Some(connection)) => ReplyTo::Stream(Arc::clone(connection)),
            (None, None) => return None,
        };
        Some(Box::new(LaterReply::new(to, &self.context.shared)))
    }

    fn is_gone(&mut self, connection: u64) -> bool {
        // Of datagrams there is nobody who could be.
        let Some(own) = self.batch.connection() else { return true };
        let living = Arc::clone(&self.context.shared.living);
        living.is_gone(connection, own, || self.will_block())
    }

    fn has_left(&mut self) -> bool {
        self.batch.connection().is_some_and(|own| own.is_left())
    }

    fn will_block(&mut self) {
        if self.is_summoned || (self.guard.is_none() && self.lent.is_none()) {
            return;
        }
        self.is_summoned = true;
        // Lent so that others' replies might wait, perhaps. If another worker has it, this one is
        // blocked until the call ends.
        if !self.try_to_regain() {
            return;
        }
        // Sent at once, since the next occupant may have to be started first.
        self.send_batched();
        let _ = self.gathering.dispatch_and_rouse(self.batch, self.context);
        self.lend(false);
        self.context.pool.summon(self.seat.index);
    }

    fn unix_time_s(&self) -> Option<u32> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        // Cut off in 2106, as the protocol has 32 bits.
        Some(since_1970.as_secs() as u32)
    }

    fn stage(&mut self, stage: Stage) {
        if let Some(stages) = &mut self.stages {
            stages.enter(stage, self.context.shared.stamp_ns());
        }
    }

    fn operations_begin(&mut self) {
        if self.stages.is_some() {
            self.part_since_ns = self.context.shared.stamp_ns();
        }
    }

    fn operation_ended(&mut self, operation: CompoundOperation, is_error: bool) {
        // Who does not come to where it might wait costs no look at the clock.
        let now_ns = if self.lent_ns != 0 || self.stages.is_some() {
            self.context.shared.stamp_ns()
        } else {
            0
        };
        if self.lent_ns != 0 {
            let took_ns = now_ns.saturating_sub(self.next_since_ns);
            self.next_since_ns = now_ns;
            if self.longest.is_none_or(|(_, longest_ns)| took_ns > longest_ns) {
                self.longest = Some((operation, took_ns));
            }
        }
        let took_ns = self
            .stages
            .is_some()
            .then(|| now_ns.saturating_sub(std::mem::replace(&mut self.part_since_ns, now_ns)));
        self.context.counters.operations.note_part(operation, is_error, took_ns);
    }
}
