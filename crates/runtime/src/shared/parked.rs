//! Replies that leave later than their calls have ended: where they go, and who sends them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use steadfast_engine::{Awaited, CallFacts, ParkedCall, Peer, ReplyBuffer, ReplySink};
use steadfast_vfs::FsError;

use super::Shared;
use crate::capture::{CapturedTimes, Place};
use crate::connection::Connection;
use crate::datagram::{DatagramReplies, ReplyAddress};
use crate::log_limit::{LogKind, limited};
use crate::send_queue::{SendQueue, SpareBuffers};
use crate::statistics::{Arrival, Client, Counters, Ends, Executed};

/// Settled calls that a thread keeps room for; there may have been many more at one time.
const SETTLED_KEPT: usize = 1024;

/// Where a parked call's reply goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    Stream(Arc<Connection>),
    Datagram(ReplyAddress),
}

impl ReplyTo {
    fn with_peer(&self, act: impl FnOnce(&Peer)) {
        match self {
            Self::Stream(connection) => act(&connection.peer),
            Self::Datagram(address) => act(&address.peer()),
        }
    }
}

/// Sends the reply to a repeated call, which the execution of the first one makes, in another thread perhaps.
pub(crate) struct LaterReply {
    /// `None` once it is sent.
    to: Option<ReplyTo>,
    shared: Arc<Shared>,
}

impl LaterReply {
    pub(crate) fn new(to: ReplyTo, shared: &Arc<Shared>) -> Self {
        if let ReplyTo::Stream(connection) = &to {
            connection.enter();
        }
        Self { to: Some(to), shared: Arc::clone(shared) }
    }
}

impl ReplySink for LaterReply {
    fn send(mut self: Box<Self>, reply: &[u8]) {
        let mut spare = SpareBuffers::default();
        if self.shared.capture.wants().is_any()
            && let Some(to) = &self.to
        {
            let now_ns = self.shared.stamp_ns();
            to.with_peer(|peer| self.shared.capture.repeated(peer, now_ns, reply));
        }
        match self.to.take() {
            Some(ReplyTo::Stream(connection)) => {
                let mut replies = SendQueue::default();
                let mut reply = ReplyBuffer { bytes: reply.to_vec(), ..ReplyBuffer::default() };
                replies.push_record(&mut reply, &mut spare);
                connection.send(&mut replies, &mut spare, self.shared.now_ms());
                connection.leave(1);
            }
            Some(ReplyTo::Datagram(address)) => {
                let mut replies = DatagramReplies::default();
                replies.push(reply, address, &self.shared.log);
                replies.send(&self.shared.log);
            }
            None => {}
        }
    }
}

impl Drop for LaterReply {
    fn drop(&mut self) {
        if let Some(ReplyTo::Stream(connection)) = &self.to {
            connection.leave(1);
        }
    }
}

/// A call that waits for its obligation.
#[derive(Debug)]
pub struct ParkedReply {
    pub(crate) call: Box<ParkedCall>,
    pub(crate) to: ReplyTo,
    /// [`super::flusher::Flushers::failures`] when the call began.
    pub(crate) failures_before: u64,
    pub(crate) arrival: Arrival,
    pub(crate) executed: Executed,
}

/// Gathers settled replies by connection, and sends them together; the pointers are keys only.
pub struct ReplySender {
    streams: HashMap<*const Connection, (Arc<Connection>, SendQueue, usize)>,
    datagrams: DatagramReplies,
    reply: ReplyBuffer,
    spare: SpareBuffers,
    settled: Vec<Settled>,
    counters: Arc<CachePadded<Counters>>,
    shared: Weak<Shared>,
}

/// A call whose reply was gathered.
struct Settled {
    arrival: Arrival,
    executed: Executed,
    client: Client,
    is_logged: bool,
}

impl std::fmt::Debug for ReplySender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplySender").finish_non_exhaustive()
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.flushers.counters.leave(&self.counters);
        }
    }
}

impl ReplySender {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            streams: HashMap::new(),
            datagrams: DatagramReplies::default(),
            reply: ReplyBuffer::default(),
            spare: SpareBuffers::default(),
            settled: Vec::new(),
            counters: shared.flushers.counters.join(shared.stamp_ns(), &shared.top_room),
            shared: Arc::downgrade(shared),
        }
    }

    /// Sends the replies to calls that have become stable. Does nothing if the server has ended.
    pub fn send_stable(&mut self, calls: impl Iterator<Item = ParkedReply>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let stable_ns = shared.stamp_ns();
        for call in calls {
            self.settle(call, Ok(()), &shared);
        }
        self.send(stable_ns, &shared);
    }

    pub(crate) fn settle(
        &mut self,
        parked: ParkedReply,
        outcome: Result<(), FsError>,
        shared: &Shared,
    ) {
        let ParkedReply { call, to, arrival, mut executed, .. } = parked;
        let is_logged = matches!(call.awaited, Awaited::Lsn(_));
        let now_ms = shared.now_ms();
        self.reply.bytes.clear();
        let reply = &mut self.reply.bytes;
        let settled = catch_unwind(AssertUnwindSafe(|| {
            shared.service.settle(call, outcome, now_ms, reply);
        }));
        executed.facts.is_error |= outcome.is_err() || settled.is_err();
        let CallFacts { operation, is_error, .. } = executed.facts;
        let bytes_out = reply.len();
        self.counters.operations.note_reply(operation, is_error, bytes_out);
        self.counters.bytes_out.add(bytes_out as u64);
        if shared.capture.wants().is_any() && settled.is_ok() && bytes_out > 0 {
            let now_ns = shared.stamp_ns();
            let spent = (CapturedTimes::of(&executed, Some(now_ns)), &executed.facts);
            to.with_peer(|peer| {
                shared.capture.replied(Place::Elsewhere, peer, now_ns, &self.reply, spent);
            });
        }
        let client = match to {
            ReplyTo::Stream(connection) => {
                let client = Client::of(&connection.peer);
                let stream = self
                    .streams
                    .entry(Arc::as_ptr(&connection))
                    .or_insert_with(|| (connection, SendQueue::default(), 0));
                stream.2 += 1;
                if settled.is_err() {
                    note_panic(shared, &stream.0.peer.address);
                    stream.0.close();
                } else if !self.reply.bytes.is_empty() {
                    stream.1.push_record(&mut self.reply, &mut self.spare);
                }
                client
            }
            ReplyTo::Datagram(address) => {
                let client = Client::of(&address.peer());
                if settled.is_err() {
                    note_panic(shared, &address.to);
                } else if !self.reply.bytes.is_empty() {
                    self.datagrams.push(&self.reply.bytes, address, &shared.log);
                }
                client
            }
        };
        if settled.is_ok() {
            self.settled.push(Settled { arrival, executed, client, is_logged });
        }
    }

    pub(crate) fn send(&mut self, stable_ns: u64, shared: &Shared) {
        let now_ms = shared.now_ms();
        for (_, (connection, mut replies, count)) in self.streams.drain() {
            connection.send(&mut replies, &mut self.spare, now_ms);
            connection.leave(count);
        }
        self.datagrams.send(&shared.log);
        let sent_ns = shared.stamp_ns();
        for Settled { arrival, executed, client, is_logged } in self.settled.drain(..) {
            let sent = Ends { stable_ns: Some(stable_ns), is_logged, sent_ns };
            let operations = &self.counters.operations;
            operations.note_sent_when_stable(arrival, &executed, sent, client, shared);
        }
        if self.settled.capacity() > SETTLED_KEPT {
            self.settled = Vec::new();
        }
    }
}

pub(crate) fn note_panic(shared: &Shared, peer: &std::net::SocketAddr) {
    limited!(
        shared.log,
        LogKind::Panic,
        error,
        "a call from {peer} made the server panic: this is a bug; the call gets no answer"
    );
}
