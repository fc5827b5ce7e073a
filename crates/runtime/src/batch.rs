//! The calls that one receive brought, and the replies gathered from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use steadfast_engine::{Awaited, SuspendedCall};
use steadfast_sys::net::Received;
use steadfast_vfs::FlushDomain;

use crate::connection::Connection;
use crate::datagram::{DatagramReplies, DatagramSocket, ReplyAddress};
use crate::framing::{RecordPlace, Records, Stash};
use crate::send_queue::{SendQueue, SpareBuffers};
use crate::shared::Shared;
use crate::shared::flusher::{Flusher, KnownFlushers};
use crate::shared::parked::ParkedReply;
use crate::statistics::{Answered, Arrival, Client, Counters, Waited};

/// Where a batch came from.
#[derive(Debug, Default)]
pub(crate) enum Origin {
    #[default]
    Nowhere,
    Stream(Arc<Connection>),
    Datagrams(Arc<DatagramSocket>, Vec<Received>),
}

/// Calls to be executed, in any order, by one worker or several: each takes the next one.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Initialised memory that records lie in.
    pub(crate) buffer: Vec<u8>,
    pub(crate) records: Records,
    pub(crate) origin: Origin,
    pub(crate) arrival: Arrival,
    next: AtomicUsize,
    /// It has only what was left of another one.
    is_rest: bool,
    /// If it is one call that was suspended.
    suspension: Option<Suspension>,
}

/// What is known of a call that was suspended.
#[derive(Debug)]
struct Suspension {
    /// When that was first, in ms.
    since_ms: u64,
    /// When it was suspended last, by the stamps' clock, and what had become of its time up to then.
    at_ns: u64,
    waited: Waited,
    waits_for: WaitsFor,
    /// Until it is executed again.
    call: Mutex<Option<SuspendedCall>>,
}

/// What a call that was suspended waits for.
#[derive(Clone, Copy, Debug)]
enum WaitsFor {
    Storage,
    Clients,
    Names,
}

impl WaitsFor {
    fn of(call: &SuspendedCall) -> Self {
        match (call.waits_for_client(), call.waits_for_names()) {
            (_, true) => Self::Names,
            (true, false) => Self::Clients,
            (false, false) => Self::Storage,
        }
    }
}

/// What a call that was suspended needs beside its bytes.
const SUSPENDED_BYTES: usize = 512;

impl Batch {
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        Self {
            buffer: vec![0; buffer_bytes],
            records: Records::default(),
            origin: Origin::Nowhere,
            arrival: Arrival::default(),
            next: AtomicUsize::new(0),
            is_rest: false,
            suspension: None,
        }
    }

    /// Takes all calls that nobody has taken yet, to be kept: in memory of just their size,
    /// while the buffer that they were received into is used again.
    pub(crate) fn take_rest(self: &Arc<Self>) -> Arc<Self> {
        if self.is_rest {
            return Arc::clone(self);
        }
        let mut rest = Self { is_rest: true, arrival: self.arrival, ..Self::new(0) };
        let count = self.records.places.len();
        let first = self.next.swap(count, Ordering::Relaxed).min(count);
        rest.buffer.reserve_exact((first..count).map(|index| self.record(index).len()).sum());
        for index in first..count {
            let start = rest.buffer.len();
            rest.buffer.extend_from_slice(self.record(index));
            rest.records.places.push(RecordPlace::Buffer(start..rest.buffer.len()));
        }
        if let Origin::Stream(connection) = &self.origin {
            rest.origin = Origin::Stream(Arc::clone(connection));
        }
        Arc::new(rest)
    }

    /// One call, taken already, to be kept by itself and executed again: it was suspended.
    /// `waited`: what became of its time up to now, `now_ns` by the stamps' clock.
    pub(crate) fn only(
        &self,
        index: usize,
        call: SuspendedCall,
        now_ms: u64,
        (waited, now_ns): (Waited, u64),
    ) -> Arc<Self> {
        let record = self.record(index);
        let since_ms = self.suspended_since_ms().unwrap_or(now_ms);
        let waits_for = WaitsFor::of(&call);
        let call = Mutex::new(Some(call));
        let suspension = Some(Suspension { since_ms, at_ns: now_ns, waited, waits_for, call });
        let mut only = Self { is_rest: true, arrival: self.arrival, suspension, ..Self::new(0) };
        only.buffer.extend_from_slice(record);
        only.records.places.push(RecordPlace::Buffer(0..record.len()));
        only.origin = match &self.origin {
            Origin::Stream(connection) => Origin::Stream(Arc::clone(connection)),
            Origin::Datagrams(socket, received) => {
                let received = received.get(index).copied().into_iter().collect();
                Origin::Datagrams(Arc::clone(socket), received)
            }
            Origin::Nowhere => Origin::Nowhere,
        };
        Arc::new(only)
    }

    /// Memory used by what is kept of another batch, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let beside = if self.suspension.is_some() { SUSPENDED_BYTES } else { 0 };
        if self.is_rest { self.buffer.capacity() + beside } else { 0 }
    }

    /// Since when the call has been suspended, in ms, if it was.
    pub(crate) fn suspended_since_ms(&self) -> Option<u64> {
        self.suspension.as_ref().map(|suspension| suspension.since_ms)
    }

    /// What became of the call's time, when it is executed again now; `None` if it was not executed before.
    pub(crate) fn waited(&self, now_ns: u64) -> Option<Box<Waited>> {
        let Suspension { at_ns, mut waited, waits_for, .. } = *self.suspension.as_ref()?;
        let place = match waits_for {
            WaitsFor::Storage => &mut waited.storage,
            WaitsFor::Clients => &mut waited.clients,
            WaitsFor::Names => &mut waited.names,
        };
        *place += now_ns.saturating_sub(at_ns);
        Some(Box::new(waited))
    }

    /// Takes out what the engine is to get back if the call is not executed.
    pub(crate) fn take_suspended(&self) -> Option<SuspendedCall> {
        self.suspension.as_ref()?.call.lock().take()
    }

    /// Lets calls go that were kept, and that nobody will execute.
    pub(crate) fn discard(&self, shared: &Shared) {
        shared.waiting.call_bytes.fetch_sub(self.kept_bytes(), Ordering::Relaxed);
        if let Some(call) = self.take_suspended() {
            // It came by other ways too, perhaps: who sent it there is told.
            shared.service.refuse(call.of_nobody(), &mut Vec::new());
        }
    }

    /// The index of a call that nobody has taken yet.
    pub(crate) fn take_next(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.records.places.len()).then_some(index)
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.records.places.len()
    }

    /// Nobody is to take any further call.
    pub(crate) fn give_up(&self) {
        self.next.store(self.records.places.len(), Ordering::Relaxed);
    }

    pub(crate) fn record(&self, index: usize) -> &[u8] {
        match self.records.places.get(index) {
            Some(RecordPlace::Buffer(range)) => self.buffer.get(range.clone()).unwrap_or(&[]),
            Some(RecordPlace::Joined(index)) => {
                self.records.joined.get(*index).map_or(&[], |stash| stash.filled())
            }
            None => &[],
        }
    }

    pub(crate) fn connection(&self) -> Option<&Arc<Connection>> {
        match &self.origin {
            Origin::Stream(connection) => Some(connection),
            Origin::Datagrams(..) | Origin::Nowhere => None,
        }
    }

    /// Who made a call.
    fn client(&self, index: usize) -> Option<Client> {
        match &self.origin {
            Origin::Stream(connection) => Some(Client::of(&connection.peer)),
            Origin::Datagrams(socket, received) => {
                let to = ReplyAddress::new(socket, received.get(index)?);
                Some(Client::of(&to.peer()))
            }
            Origin::Nowhere => None,
        }
    }

    /// For the next receive; `spare` gets the stashes.
    pub(crate) fn reset(&mut self, spare: &mut Vec<Stash>) {
        self.origin = Origin::Nowhere;
        self.arrival = Arrival::default();
        self.records.places.clear();
        for stash in self.records.joined.drain(..) {
            if spare.len() < 4 {
                spare.push(stash.cleared());
            }
        }
        *self.next.get_mut() = 0;
    }
}

/// What calls of one batch left to be sent or parked.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) stream: SendQueue,
    pub(crate) datagrams: DatagramReplies,
    pub(crate) parked: Vec<ParkedReply>,
    pub(crate) answered: Vec<Answered>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.stream.is_empty()
            && self.datagrams.is_empty()
            && self.parked.is_empty()
            && self.answered.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.stream.bytes() + self.datagrams.bytes()
    }

    /// Takes over all of `other`.
    pub(crate) fn absorb(&mut self, other: &mut Self, spare: &mut SpareBuffers) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.stream.append(&mut other.stream, spare);
        self.datagrams.append(&mut other.datagrams);
        self.parked.append(&mut other.parked);
        self.answered.append(&mut other.answered);
    }

    /// Sends the replies and hands the parked calls to their flushers. Gives a flusher that has
    /// too much to do already, if any: the caller should wait for it without its seat.
    pub(crate) fn dispatch(
        &mut self,
        batch: &Batch,
        spare: &mut SpareBuffers,
        flushers: &mut KnownFlushers,
        shared: &Arc<Shared>,
        counters: &Counters,
        now_ms: u64,
    ) -> Option<Arc<Flusher>> {
        if let Some(connection) = batch.connection()
            && !self.stream.is_empty()
        {
            connection.send(&mut self.stream, spare, now_ms);
        }
        if !self.datagrams.is_empty() {
            self.datagrams.send(&shared.log);
        }
        if !self.answered.is_empty() {
            let (answered, sent_ns) = (&self.answered, shared.stamp_ns());
            let client = |index| batch.client(index);
            let (operations, around) = (&counters.operations, shared.as_ref());
            operations.note_sent_together(batch.arrival, answered, sent_ns, client, around);
            self.answered.clear();
        }
        let mut full = None;
        if let Some(intent_log) = &shared.intent_log {
            let lsn = |parked: &ParkedReply| match parked.call.awaited {
                Awaited::Lsn(lsn) => Some(lsn),
                Awaited::Flush(_) => None,
            };
            if self.parked.iter().any(|parked| lsn(parked).is_some()) {
                let logged = self.parked.extract_if(.., |parked| lsn(parked).is_some());
                intent_log.park(&mut logged.filter_map(|parked| Some((lsn(&parked)?, parked))));
            }
        }
        let domain_of = |parked: &ParkedReply| match &parked.call.awaited {
            Awaited::Flush(flush) => flush.domain,
            // Without a log there are none.
            Awaited::Lsn(_) => FlushDomain(u32::MAX),
        };
        while let Some(first) = self.parked.first() {
            let domain = domain_of(first);
            let flusher = flushers.of(domain, shared);
            let is_full = if self.parked.iter().all(|parked| domain_of(parked) == domain) {
                flusher.submit(self.parked.drain(..), shared)
            } else {
                let (here, elsewhere) = std::mem::take(&mut self.parked)
                    .into_iter()
                    .partition(|parked| domain_of(parked) == domain);
                self.parked = elsewhere;
                let here: Vec<ParkedReply> = here;
                flusher.submit(here.into_iter(), shared)
            };
            if is_full {
                full = Some(Arc::clone(flusher));
            }
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_kept_in_its_own_size() {
        let mut batch = Batch::new(1 << 16);
        for (start, end) in [(0, 10), (10, 30), (40, 45)] {
            batch.buffer[start..end].fill(end as u8);
            batch.records.places.push(RecordPlace::Buffer(start..end));
        }
        batch.arrival = Arrival { begun_ns: 5, received_ns: 7 };
        let batch = Arc::new(batch);
        assert_eq!(batch.take_next(), Some(0));
        let rest = batch.take_rest();
        assert_eq!((rest.arrival.begun_ns, rest.arrival.received_ns), (5, 7), "it came then");
        assert!(batch.is_exhausted() && batch.take_next().is_none());
        assert_eq!(rest.kept_bytes(), 25);
        assert_eq!((rest.record(0), rest.record(1)), (&[30; 20][..], &[45; 5][..]));
        assert_eq!(rest.take_next(), Some(0));
        let again = rest.take_rest();
        assert!(Arc::ptr_eq(&again, &rest));
        assert_eq!((again.take_next(), again.take_next()), (Some(1), None));
    }
}
