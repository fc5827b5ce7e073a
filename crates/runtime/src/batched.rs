//! Replies to several connections that go out one right after the other.
//!
//! A send to a peer on the same machine that sleeps wakes it, which is dear, on virtual machines above
//! all, and done again for the next reply when that comes so late that the peer sleeps again. So while
//! others are next at a seat, the replies of small batches are *batched* for a moment: then the first
//! of the sends wakes the peer for all of them. Whose replies may wait for whose calls is
//! [`crate::turns::Turns::company`]'s to say.

use std::sync::Arc;

use crate::batch::{Batch, Outbox};
use crate::connection::Connection;
use crate::send_queue::{SPARE_BUFFERS_MAX, SpareBuffers};
use crate::shared::Shared;
use crate::statistics::{Arrival, Client, Counters};

/// When the first reply has waited for this long, in ns, all are sent as soon as the call
/// that is being executed ends or lends the seat; at the latest when a worker looks at new events,
/// which it does as often.
const WAIT_NS: u64 = 60_000;
/// Of so many batches at most.
const BATCHES_MAX: usize = 64;
// The buffers of all of them are kept once they are sent.
const _: () = assert!(BATCHES_MAX < SPARE_BUFFERS_MAX);
/// Of a batch whose replies are at most so many bytes: larger ones are worth a send of their own.
const BYTES_MAX: usize = 16 << 10;

/// The batched replies of a seat. Whoever occupies the seat sends them before waiting for events, before
/// a call that may well sleep, before large replies, before those of who has no company, and before
/// the end. Who lends the seat for a call that seldom sleeps leaves them, unless they are due or there may be
/// nobody to send: should the call sleep, whoever is sent to the seat instead sends them.
#[derive(Debug, Default)]
pub(crate) struct Batched {
    /// The first `count` are in use; the others keep their memory.
    entries: Vec<BatchedReplies>,
    count: usize,
    /// When the first of them ended, in ns.
    since_ns: u64,
}

/// The replies to one batch of calls.
#[derive(Debug, Default)]
struct BatchedReplies {
    connection: Option<Arc<Connection>>,
    /// Replies only.
    outbox: Outbox,
    arrival: Arrival,
}

impl Batched {
    /// Takes the replies in the outbox, unless that is not worth it: then `false`, and nothing has
    /// changed.
    pub(crate) fn add(&mut self, outbox: &mut Outbox, batch: &Batch, now_ns: u64) -> bool {
        let Some(connection) = batch.connection() else { return false };
        let is_worth_it = is_small(outbox) && !outbox.stream.is_empty() && outbox.parked.is_empty();
        if self.count == BATCHES_MAX || !is_worth_it {
            return false;
        }
        if self.entries.len() == self.count {
            self.entries.push(BatchedReplies::default());
        }
        let Some(place) = self.entries.get_mut(self.count) else { return false };
        if self.count == 0 {
            self.since_ns = now_ns;
        }
        self.count += 1;
        // It must not be closed as one that has nothing to wait for.
        connection.enter();
        place.connection = Some(Arc::clone(connection));
        place.arrival = batch.arrival;
        std::mem::swap(&mut place.outbox, outbox);
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether they have waited for long enough.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.count > 0 && now_ns >= self.since_ns.saturating_add(WAIT_NS)
    }

    /// Sends all of them.
    pub(crate) fn send(&mut self, spare: &mut SpareBuffers, shared: &Shared, counters: &Counters) {
        let now_ms = shared.now_ms();
        counters.held_back.add(self.count as u64);
        for replies in self.entries.iter_mut().take(self.count) {
            let Some(connection) = replies.connection.take() else { continue };
            let Outbox { stream, answered, .. } = &mut replies.outbox;
            counters.bytes_out.add(stream.bytes() as u64);
            connection.send(stream, spare, now_ms);
            let sent_ns = shared.stamp_ns();
            let client = |_| Some(Client::of(&connection.peer));
            let operations = &counters.operations;
            operations.note_sent_together(replies.arrival, answered, sent_ns, client, shared);
            answered.clear();
            connection.leave(1);
        }
        self.count = 0;
    }
}

/// Whether replies take so little time to send that others may wait for it.
pub(crate) fn is_small(outbox: &Outbox) -> bool {
    outbox.stream.bytes() <= BYTES_MAX && !outbox.stream.has_files()
}
