//! The back channel of a session: the connections that callbacks go out by, and its slots (RFC 8881
//! §2.10.3.1, §2.10.6).
//!
//! The server is the requester here. A slot has one callback in flight; its sequence id rises with
//! each. A callback that was not answered keeps its slot: it is sent again as it was, by another
//! connection, until it is answered or the session ends. So a client never sees two callbacks by one
//! sequence id.
//!
//! The sequence ids outlive the process, the connections do not. After a restart nobody knows whether
//! the last callback of a slot arrived: the next one takes the id after it, and the one before if the
//! client says that this is out of order.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::Session;
use crate::Channel;
use crate::channel::{BackChannelImage, CallbackTarget};
use crate::image::Event;

/// Slots that are used of those that a client offers. Callbacks are few.
const SLOTS_MAX: u32 = 8;
/// Connections that callbacks may go out by. One more, and the one bound first is bound no longer.
const CONNECTIONS_MAX: usize = 16;
/// `CB_SEQUENCE` and one more.
const OPERATIONS: u32 = 2;
/// No connection works by which the client could be called (`SEQ4_STATUS_CB_PATH_DOWN`).
const PATH_DOWN: u32 = 0x1;
/// The session's back channel is of no use (`SEQ4_STATUS_BACKCHANNEL_FAULT`).
const FAULT: u32 = 0x400;

/// A callback that has its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackSlot {
    /// Slot (`csa_slotid`).
    pub slot: u32,
    /// Sequence id (`csa_sequenceid`).
    pub sequence: u32,
    /// The highest slot in use (`csa_highest_slotid`).
    pub highest_slot: u32,
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackEnd {
    /// `CB_SEQUENCE` succeeded.
    Sequenced {
        /// The highest slot that the client wants to be used.
        target_highest_slot: u32,
    },
    /// `CB_SEQUENCE` failed without a change of the slot, and the callback is not sent again.
    NotSequenced,
    /// It is not sent again, and nobody knows whether it has arrived.
    Unknown,
}

#[derive(Debug, Default)]
struct Slot {
    /// Sequence id of the last callback.
    sequence: u32,
    is_busy: bool,
    /// Whether the last callback has arrived is not known: it was given up, or a process before this one
    /// has sent it, if at all.
    is_in_doubt: bool,
}

#[derive(Debug, Default)]
struct Inner {
    /// `None`: no callbacks.
    target: Option<CallbackTarget>,
    is_wanted: bool,
    /// The one bound last is the last.
    connections: Vec<u64>,
    slots: Vec<Slot>,
    /// Slots that the client wants to be used.
    wanted: u32,
}

impl Inner {
    fn image(&self) -> BackChannelImage {
        let mut sequences: Vec<u32> = self.slots.iter().map(|slot| slot.sequence).collect();
        let used = sequences.iter().rposition(|sequence| *sequence != 0);
        sequences.truncate(used.map_or(0, |last| last + 1));
        BackChannelImage { target: self.target.clone(), is_wanted: self.is_wanted, sequences }
    }
}

/// The back channel of a session.
#[derive(Debug)]
pub(crate) struct BackChannel {
    inner: Mutex<Inner>,
    /// [`FAULT`], or nothing.
    status: AtomicU32,
}

impl BackChannel {
    pub(crate) fn new(back: &Channel) -> Self {
        Self::restored(back, BackChannelImage::default())
    }

    pub(crate) fn restored(back: &Channel, image: BackChannelImage) -> Self {
        let count = back.requests_max.min(SLOTS_MAX);
        let mut before = image.sequences.iter().copied();
        let slots = (0..count).map(|_| match before.next() {
            Some(sequence) => Slot { sequence, is_busy: false, is_in_doubt: sequence != 0 },
            None => Slot::default(),
        });
        let slots = slots.collect();
        let BackChannelImage { target, is_wanted, .. } = image;
        let is_wanted = is_wanted && target.is_some();
        let connections = Vec::new();
        let inner = Inner { target, is_wanted, connections, slots, wanted: count };
        Self { inner: Mutex::new(inner), status: AtomicU32::new(0) }
    }
}

impl Session {
    /// `SEQ4_STATUS_*` of the back channel. It takes no lock.
    pub(crate) fn callback_status(&self) -> u32 {
        let down = if self.client().callback_paths.are_down() { PATH_DOWN } else { 0 };
        down | self.back_channel.status.load(Ordering::Relaxed)
    }

    /// Whether callbacks fit in a back channel: it takes two operations at once.
    pub fn takes_callbacks(back: &Channel) -> bool {
        back.operations_max >= OPERATIONS && back.requests_max > 0
    }

    /// Callbacks of this session go to this target from now on. What is under way stays as it was
    /// sent.
    pub fn set_callback_target(&self, target: CallbackTarget) {
        let mut inner = self.back_channel.inner.lock();
        if self.is_ended() {
            return;
        }
        inner.target = Some(target);
        self.note_back_channel(&inner);
    }

    /// Whether callbacks can be made by this session, if not at present, then later.
    pub fn has_back_channel(&self) -> bool {
        let is_faulty = self.back_channel.status.load(Ordering::Relaxed) != 0;
        !self.is_ended() && !is_faulty && self.back_channel.inner.lock().target.is_some()
    }

    /// The target, if callbacks can be made.
    pub fn callback_target(&self) -> Option<CallbackTarget> {
        self.back_channel.inner.lock().target.clone()
    }

    /// The client has refused a callback as a whole: it gets no more by this session.
    pub fn refuse_callbacks(&self) {
        let mut inner = self.back_channel.inner.lock();
        self.unbind_all(&mut inner);
        self.note_back_channel(&inner);
    }

    /// Callbacks may go out by this connection. `false` if none can be made by this session.
    pub fn bind_back(&self, connection: u64) -> bool {
        let mut inner = self.back_channel.inner.lock();
        // Looked at under the lock, so that nothing is bound once the session has ended, or is of no use.
        let is_faulty = self.back_channel.status.load(Ordering::Relaxed) != 0;
        if self.is_ended() || is_faulty || inner.target.is_none() {
            return false;
        }
        if !std::mem::replace(&mut inner.is_wanted, true) {
            self.client().callback_paths.sessions.fetch_add(1, Ordering::Relaxed);
            self.note_back_channel(&inner);
        }
        let paths = &self.client().callback_paths.connections;
        if let Some(place) = inner.connections.iter().position(|bound| *bound == connection) {
            inner.connections.remove(place);
            paths.fetch_sub(1, Ordering::Relaxed);
        } else if inner.connections.len() >= CONNECTIONS_MAX {
            inner.connections.remove(0);
            paths.fetch_sub(1, Ordering::Relaxed);
        }
        inner.connections.push(connection);
        paths.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// No callback goes out by this connection any more: it is closed, or did not bring an answer.
    pub fn unbind_back(&self, connection: u64) {
        let mut inner = self.back_channel.inner.lock();
        let before = inner.connections.len();
        inner.connections.retain(|bound| *bound != connection);
        self.subtract_paths(before - inner.connections.len());
    }

    /// The connection that the next callback goes out by: the one bound last.
    pub fn back_connection(&self) -> Option<u64> {
        self.back_channel.inner.lock().connections.last().copied()
    }

    /// Takes the lowest free slot for a callback; `None` if there is none, or no callbacks can be
    /// made; nor can they before the client has sent a request, since the reply to its
    /// `CREATE_SESSION` may be under way. To be given back by [`Session::end_callback`].
    pub fn begin_callback(&self) -> Option<CallbackSlot> {
        self.begin_with_free(1)
    }

    /// [`Session::begin_callback`] of one that can be done without: if there are several slots, it leaves one free.
    pub fn begin_question(&self) -> Option<CallbackSlot> {
        self.begin_with_free(2)
    }

    fn begin_with_free(&self, free_min: usize) -> Option<CallbackSlot> {
        let mut inner = self.back_channel.inner.lock();
        let is_faulty = self.back_channel.status.load(Ordering::Relaxed) != 0;
        if self.is_ended() || is_faulty || !self.was_used() || inner.target.is_none() {
            return None;
        }
        let wanted = usize::try_from(inner.wanted).unwrap_or(usize::MAX);
        let usable = || inner.slots.iter().take(wanted);
        let free = usable().filter(|slot| !slot.is_busy).count();
        if free < free_min && usable().count() >= free_min {
            return None;
        }
        let place = usable().position(|slot| !slot.is_busy)?;
        let slot = inner.slots.get_mut(place)?;
        slot.is_busy = true;
        slot.sequence = slot.sequence.wrapping_add(1);
        let sequence = slot.sequence;
        let highest = inner.slots.iter().rposition(|slot| slot.is_busy).unwrap_or(place);
        self.note_back_channel(&inner);
        let number = |place| u32::try_from(place).unwrap_or(u32::MAX);
        Some(CallbackSlot { slot: number(place), sequence, highest_slot: number(highest) })
    }

    /// A callback was answered: its slot is free.
    pub fn end_callback(&self, slot: u32, end: CallbackEnd) {
        let mut inner = self.back_channel.inner.lock();
        let Some(of) = slot_of(&mut inner, slot) else { return };
        of.is_busy = false;
        match end {
            CallbackEnd::Sequenced { target_highest_slot } => {
                of.is_in_doubt = false;
                inner.wanted = target_highest_slot.saturating_add(1);
            }
            CallbackEnd::NotSequenced => {
                of.sequence = of.sequence.wrapping_sub(1);
                self.note_back_channel(&inner);
            }
            CallbackEnd::Unknown => of.is_in_doubt = true,
        }
    }

    /// The client says that a callback's sequence id is out of order. The id by which it is to be
    /// sent again, if the one before may be meant; else the back channel is of no use, which the
    /// client is told.
    pub fn reorder_callback(&self, slot: u32) -> Option<u32> {
        let mut inner = self.back_channel.inner.lock();
        let of = slot_of(&mut inner, slot)?;
        if !std::mem::take(&mut of.is_in_doubt) {
            self.fault(&mut inner);
            return None;
        }
        of.sequence = of.sequence.wrapping_sub(1);
        let sequence = of.sequence;
        self.note_back_channel(&inner);
        Some(sequence)
    }

    /// The client does not know the session or the slot: the back channel is of no use, which it is
    /// told.
    pub fn fault_callbacks(&self) {
        self.fault(&mut self.back_channel.inner.lock());
    }

    /// Its connections are no paths to the client any more: were they counted, the client would not be told when
    /// another session of it has none.
    fn fault(&self, inner: &mut Inner) {
        self.back_channel.status.store(FAULT, Ordering::Relaxed);
        let count = std::mem::take(&mut inner.connections).len();
        self.subtract_paths(count);
    }

    /// The session has ended.
    pub(crate) fn end_back_channel(&self) {
        self.unbind_all(&mut self.back_channel.inner.lock());
    }

    /// A session of this client was made again.
    pub(crate) fn count_restored_back_channel(&self) {
        if self.back_channel.inner.lock().is_wanted {
            self.client().callback_paths.sessions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the back channel, if it was ever wanted.
    pub(crate) fn note_back(&self) {
        let inner = self.back_channel.inner.lock();
        if inner.target.is_some() || inner.slots.iter().any(|slot| slot.sequence != 0) {
            self.note_back_channel(&inner);
        }
    }

    fn note_back_channel(&self, inner: &Inner) {
        let channel = inner.image();
        self.client().journal.note(&Event::BackChannel { session: *self.id(), channel });
    }

    fn unbind_all(&self, inner: &mut Inner) {
        inner.target = None;
        if std::mem::take(&mut inner.is_wanted) {
            self.client().callback_paths.sessions.fetch_sub(1, Ordering::Relaxed);
        }
        let count = std::mem::take(&mut inner.connections).len();
        self.subtract_paths(count);
    }

    fn subtract_paths(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.client().callback_paths.connections.fetch_sub(count, Ordering::Relaxed);
    }
}

fn slot_of(inner: &mut Inner, slot: u32) -> Option<&mut Slot> {
    inner.slots.get_mut(usize::try_from(slot).ok()?).filter(|slot| slot.is_busy)
}
