//! Sessions, and the requests that run in their slots.

mod back_channel;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use self::back_channel::BackChannel;
pub use self::back_channel::{CallbackEnd, CallbackSlot};
use crate::channel::BackChannelImage;
use crate::image::Event;
use crate::slot::{Begun, Holding, LastRequest, Slot};
use crate::under_way::UnderWay;
use crate::{Channel, Client, SessionId, StateError};

/// Connections that a session remembers. One more, and it forgets the one bound first: that one is
/// bound again by its next SEQUENCE.
const CONNECTIONS_MAX: usize = 256;

/// Bytes that one slot with its kept reply may have.
pub(crate) fn slot_bytes_max(fore: &Channel) -> u64 {
    size_of::<Slot>() as u64 + u64::from(fore.response_bytes_cached_max)
}

/// A SEQUENCE operation, and what is to be judged of the request that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Slot (`sa_slotid`).
    pub slot: u32,
    /// Sequence id (`sa_sequenceid`).
    pub sequence: u32,
    /// Highest slot that the client uses at present (`sa_highest_slotid`).
    pub highest_slot: u32,
    /// Whether the client asks that the reply is kept (`sa_cachethis`).
    pub is_kept: bool,
    /// Size of the request in bytes.
    pub request_bytes: u32,
    /// Operations of the request, with SEQUENCE.
    pub operations: u32,
    /// Digest of the request's bytes after the xid.
    pub digest: u64,
}

/// What the result of a SEQUENCE says of the session (RFC 8881 §18.46.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceTold {
    /// Highest slot that the client may use.
    pub highest_slot: u32,
    /// Highest slot that the client should use.
    pub target_highest_slot: u32,
    /// `SEQ4_STATUS_*`.
    pub status_flags: u32,
}

/// What is to be done about a request that SEQUENCE let in.
#[derive(Debug)]
pub enum Sequenced {
    /// Execute it.
    New(SlotInUse),
    /// It was executed before.
    Replay(Replayed),
    /// It is being executed.
    InProgress,
}

/// What [`SlotInUse::finish`] was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// The reply.
    Kept(Arc<[u8]>),
    /// Nothing, or more than is kept: `NFS4ERR_RETRY_UNCACHED_REP`.
    NotKept,
}

/// A session of a client: its slots, and the connections that requests may come by.
pub struct Session {
    id: SessionId,
    client: Arc<Client>,
    fore: Channel,
    back: Channel,
    slots: Box<[Slot]>,
    pub(crate) back_channel: BackChannel,
    is_ended: AtomicBool,
    connections: Mutex<Vec<u64>>,
}

impl Session {
    /// A session with `fore.requests_max` slots, bound to a connection.
    pub(crate) fn new(
        id: SessionId,
        client: Arc<Client>,
        (fore, back): (Channel, Channel),
        connection: u64,
    ) -> Self {
        Self {
            id,
            client,
            fore,
            back,
            slots: (0..fore.requests_max).map(|_| Slot::new()).collect(),
            back_channel: BackChannel::new(&back),
            is_ended: AtomicBool::new(false),
            connections: Mutex::new(vec![connection]),
        }
    }

    /// A session as it is known after a restart. `last` tells of a slot what must not be executed
    /// again.
    pub(crate) fn restored(
        id: SessionId,
        client: Arc<Client>,
        (fore, back): (Channel, Channel),
        back_channel: BackChannelImage,
        mut last: impl FnMut(u32) -> (Option<LastRequest>, Option<UnderWay>),
    ) -> Self {
        let restored = |slot| {
            let (last, under_way) = last(slot);
            Slot::restored(last, under_way)
        };
        Self {
            id,
            client,
            fore,
            back,
            slots: (0..fore.requests_max).map(restored).collect(),
            back_channel: BackChannel::restored(&back, back_channel),
            is_ended: AtomicBool::new(false),
            connections: Mutex::default(),
        }
    }

    /// Notes the session and what its slots remember.
    pub(crate) fn note(&self) {
        let (id, client) = (self.id, self.client.id());
        let journal = &self.client.journal;
        journal.note(&Event::Session { id, client, fore: self.fore, back: self.back });
        for (slot, number) in self.slots.iter().zip(0..) {
            let note = |last: &LastRequest| self.note_slot(number, last);
            let note_under_way = |request: &UnderWay| self.note_under_way(number, request);
            slot.note_last(&note, &note_under_way);
        }
        self.note_back();
    }

    fn note_slot(&self, slot: u32, last: &LastRequest) {
        self.client.journal.note(&Event::Slot {
            session: self.id,
            slot,
            sequence: last.sequence,
            digest: last.digest,
            reply: last.reply.as_deref(),
        });
    }

    fn note_under_way(&self, slot: u32, request: &UnderWay) {
        self.client.journal.note(&Event::UnderWay {
            session: self.id,
            slot,
            sequence: request.sequence,
            digest: request.digest,
            is_unstable: request.is_unstable,
            done: &request.done,
        });
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Whose it is.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The bounds of requests.
    pub fn fore(&self) -> &Channel {
        &self.fore
    }

    /// The bounds of callbacks.
    pub fn back(&self) -> &Channel {
        &self.back
    }

    /// Bytes that its slots may have.
    pub(crate) fn slot_bytes_max(&self) -> u64 {
        u64::from(self.fore.requests_max) * slot_bytes_max(&self.fore)
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.iter().any(Slot::is_busy)
    }

    /// Whether the client has ever sent a request.
    pub(crate) fn was_used(&self) -> bool {
        self.slots.iter().any(|slot| !slot.is_fresh())
    }

    /// Remembers that requests come by a connection. A connection's number is never used again.
    pub fn bind(&self, connection: u64) {
        let mut connections = self.connections.lock();
        if !connections.contains(&connection) {
            if connections.len() >= CONNECTIONS_MAX {
                connections.remove(0);
            }
            connections.push(connection);
        }
    }

    /// Forgets a connection that is closed.
    pub fn unbind(&self, connection: u64) {
        self.connections.lock().retain(|bound| *bound != connection);
    }

    /// Whether requests come by this connection.
    pub fn is_bound(&self, connection: u64) -> bool {
        self.connections.lock().contains(&connection)
    }

    /// Whether the session was destroyed, or its client is gone.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// From now on no request begins. Requests that are under way end as they would.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.end_back_channel();
    }

    /// What the result of a SEQUENCE says.
    pub fn told(&self) -> SequenceTold {
        let highest_slot = self.fore.requests_max.saturating_sub(1);
        let status_flags = self.callback_status() | self.client().revoked_status();
        SequenceTold { highest_slot, target_highest_slot: highest_slot, status_flags }
    }

    /// SEQUENCE: judges a request, gives it its slot if it is new, and renews the client's lease.
    ///
    /// A request that is refused has changed nothing of its slot. No mutex is taken, if no reply is
    /// kept.
    ///
    /// # Errors
    /// In this order: [`StateError::BadSession`], [`StateError::BadSlot`],
    /// [`StateError::BadHighSlot`], [`StateError::RequestTooBig`],
    /// [`StateError::TooManyOperations`], [`StateError::SequenceMisordered`],
    /// [`StateError::FalseRetry`].
    pub fn begin(
        self: &Arc<Self>,
        now_ms: u64,
        request: &Sequence,
    ) -> Result<Sequenced, StateError> {
        if self.is_ended() {
            return Err(StateError::BadSession);
        }
        let slot = self.slot(request.slot).ok_or(StateError::BadSlot)?;
        if request.highest_slot >= self.fore.requests_max {
            return Err(StateError::BadHighSlot);
        }
        if request.request_bytes > self.fore.request_bytes_max {
            return Err(StateError::RequestTooBig);
        }
        if request.operations > self.fore.operations_max {
            return Err(StateError::TooManyOperations);
        }
        let begun = slot.begin(request.sequence, request.digest)?;
        self.client.renew(now_ms);
        Ok(match begun {
            Begun::New(held) => Sequenced::New(SlotInUse {
                session: Arc::clone(self),
                slot: request.slot,
                held: Some(held),
                sequence: request.sequence,
                is_kept: request.is_kept,
            }),
            Begun::InProgress => Sequenced::InProgress,
            Begun::Kept(reply) => Sequenced::Replay(Replayed::Kept(reply)),
            Begun::NotKept => Sequenced::Replay(Replayed::NotKept),
        })
    }

    fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(slot).ok()?)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:032x} of {:?})", u128::from_be_bytes(self.id.0), self.client)
    }
}

/// A request may always say in so many bytes how far it has come.
pub const UNDER_WAY_BYTES: u32 = 512;

/// A request that has its slot. Dropped without [`SlotInUse::finish`] it frees the slot, and leaves
/// no reply.
#[derive(Debug)]
#[must_use = "dropping it ends the request"]
pub struct SlotInUse {
    session: Arc<Session>,
    slot: u32,
    sequence: u32,
    is_kept: bool,
    /// Until it is finished.
    held: Option<Holding>,
}

impl SlotInUse {
    /// The session. It may have ended meanwhile.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The request's sequence id.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// What tells the request from others of its sequence id.
    pub fn digest(&self) -> u32 {
        self.held.map_or(0, Holding::digest)
    }

    /// Notes what the request has done so far, for who goes on with it if the process is killed; and
    /// whether that may be known before it is stable. More bytes than a kept reply may have are not noted,
    /// but as many as [`UNDER_WAY_BYTES`] always are.
    pub fn note_done(&self, done: &[u8], is_unstable: bool) {
        let bytes_max = self.session.fore.response_bytes_cached_max.max(UNDER_WAY_BYTES);
        if let Some(held) = self.held
            && let Some(slot) = self.session.slot(self.slot)
            && done.len() as u64 <= u64::from(bytes_max)
        {
            let note = |request: &UnderWay| self.session.note_under_way(self.slot, request);
            slot.note_done(held, (done, is_unstable), &note);
        }
    }

    /// Whether the process before this one may have begun the request. It can have done so only for the
    /// first one of a slot that was there.
    pub fn may_be_known(&self) -> bool {
        self.held.is_some_and(Holding::is_first)
    }

    /// What the same request had done when the process before this one was killed.
    pub fn done_before(&self) -> Option<Arc<[u8]>> {
        self.session.slot(self.slot)?.done_before(self.held?)
    }

    /// Whether the client asked that the reply is kept.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Frees the slot, and keeps the reply for retransmissions if it is not larger than the
    /// session's `response_bytes_cached_max`. The client's lease begins anew.
    pub fn finish(mut self, reply: Option<&[u8]>) {
        let bytes_max = u64::from(self.session.fore.response_bytes_cached_max);
        let kept = reply.filter(|reply| reply.len() as u64 <= bytes_max);
        self.end(kept, reply.is_some());
    }

    /// `is_noted`: it must not be executed again, whether or not its reply is kept.
    fn end(&mut self, reply: Option<&[u8]>, is_noted: bool) {
        if let Some(held) = self.held.take()
            && let Some(slot) = self.session.slot(self.slot)
        {
            let note = |last: &LastRequest| self.session.note_slot(self.slot, last);
            slot.finish(held, reply.map(Arc::from), is_noted.then_some(&note as _));
            self.session.client.renew_at_end();
        }
    }
}

impl Drop for SlotInUse {
    fn drop(&mut self) {
        self.end(None, false);
    }
}
