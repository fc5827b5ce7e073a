//! Callbacks: what clients of NFSv4.1 are told of the server's accord (RFC 8881 §2.10.3.1, §20).
//!
//! A callback takes a slot of one of the client's sessions, and goes out by the connection bound last
//! to its back channel. Its reply comes back as a message of that connection and finds it by its xid.
//! A connection that brings no answer in time is bound no longer; the callback is sent again, as it
//! was, by the next one, or by the first that the client binds. What finds neither slot nor
//! connection waits here for a while.
//!
//! Nothing here waits for a client, or holds its lock while a message is sent.

mod message;
mod questions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use steadfast_state::{
    CallbackEnd, CallbackSlot, Client, ClientId, FileKey, Session, State, StateId,
};
use steadfast_wire::nfs4::NfsStat4;
use steadfast_wire::rpc::ReplyHeader;
use steadfast_xdr::{Decode, Reader};

use self::message::Answer;
pub(crate) use self::message::{Asked, credential};
use crate::peer::Peer;
use crate::{Engine, Shared};

/// A connection that brings no answer for so long, in ms, is not used any more. Counted from when
/// the callback was sent.
const ANSWER_MS: u64 = 5_000;
/// What a client is told is of no use to it after this time, in ms: it has asked itself.
const USEFUL_MS: u64 = 40_000;
/// Who has no time is asked again after this time, in ms.
const DELAY_MS: u64 = 500;
/// A client that does not know the delegation that is recalled, or refuses the callback, is asked again
/// after this time, in ms.
const UNKNOWN_MS: u64 = 5_000;
/// Callbacks that wait for a slot or a connection. Clients make do without what exceeds them.
const WAITING_MAX: usize = 16_384;
/// And those of one client: as many as it may wait for locks.
const WAITING_A_CLIENT_MAX: usize = 64;

/// Sends messages by connections that clients have made.
pub trait CallbackSender: Send + Sync {
    /// Sends one RPC message by the connection of this number ([`Peer::connection`]). Never waits.
    /// `false` if there is no such connection any more.
    fn send(&self, connection: u64, message: &[u8]) -> bool;
}

/// Something that a client is to be told.
#[derive(Clone, Debug)]
struct Notice {
    client: Arc<Client>,
    asked: Asked,
    since_ms: u64,
    /// Not to be sent before.
    due_ms: u64,
}

impl Notice {
    /// Whether the client is told the same.
    fn is_same(&self, other: &Self) -> bool {
        self.client.id() == other.client.id() && self.asked == other.asked
    }

    /// A recall is of use until its client has answered it, or the delegation is gone.
    fn is_useless(&self, state: &State, now_ms: u64) -> bool {
        match &self.asked {
            Asked::LockIsFree { .. } => now_ms.saturating_sub(self.since_ms) > USEFUL_MS,
            Asked::Recall { id, file, .. } => !state.is_recall_unanswered(file, id),
            // If not, there is a recall instead.
            Asked::Attributes { id, file, question, .. } => !state.is_asked((file, id), *question),
        }
    }

    fn is_question(&self) -> bool {
        matches!(self.asked, Asked::Attributes { .. })
    }
}

/// A callback that has its slot.
struct InFlight {
    session: Arc<Session>,
    slot: CallbackSlot,
    notice: Notice,
    message: Arc<[u8]>,
    /// By which connection it was sent, and when; `None` while there is none.
    sent: Option<(u64, u64)>,
    /// There was none, so that other sessions of the client are tried too.
    is_passed_on: bool,
    /// How often it was sent.
    attempts: u32,
}

impl InFlight {
    /// Whether it is to be sent once more, since its client has asked for that.
    fn is_put_off(&self) -> bool {
        self.sent.is_none() && !self.is_passed_on
    }

    /// How its slot ends if it is given up. Whether the client has it nobody will know, unless it was sent once, and put
    /// off.
    fn end(&self) -> CallbackEnd {
        let is_certain = self.is_put_off() && self.attempts <= 1;
        if is_certain { CallbackEnd::NotSequenced } else { CallbackEnd::Unknown }
    }
}

#[derive(Default)]
struct Table {
    /// By xid.
    in_flight: BTreeMap<u32, InFlight>,
    waiting: Waiting,
}

/// What waits for a slot or a connection, by client: never more of one than are looked through.
#[derive(Default)]
struct Waiting {
    by_client: BTreeMap<ClientId, Vec<Notice>>,
    count: usize,
}

impl Waiting {
    /// Keeps something for later, if it is not kept already and there is room.
    fn keep(&mut self, notice: Notice) {
        if self.count >= WAITING_MAX {
            return;
        }
        let of_client = self.by_client.entry(notice.client.id()).or_default();
        let is_known = of_client.iter().any(|other| other.is_same(&notice));
        if !is_known && of_client.len() < WAITING_A_CLIENT_MAX {
            of_client.push(notice);
            self.count += 1;
        }
    }

    /// Forgets what is kept of the same.
    fn forget(&mut self, notice: &Notice) {
        let id = notice.client.id();
        let Some(of_client) = self.by_client.get_mut(&id) else { return };
        let before = of_client.len();
        of_client.retain(|other| !other.is_same(notice));
        self.count -= before - of_client.len();
        if of_client.is_empty() {
            self.by_client.remove(&id);
        }
    }

    /// All of it, of each client in its order.
    fn into_all(self) -> impl Iterator<Item = Notice> {
        self.by_client.into_values().flatten()
    }
}

/// The callbacks under way.
#[derive(Default)]
pub(crate) struct Callbacks {
    sender: RwLock<Option<Arc<dyn CallbackSender>>>,
    next_xid: AtomicU32,
    table: Mutex<Table>,
    /// How many are in the table, so that nobody takes its lock for none.
    count: AtomicUsize,
}

impl Callbacks {
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let changed = change(&mut table);
        self.count.store(table.in_flight.len() + table.waiting.count, Ordering::Relaxed);
        changed
    }

    /// Sends by a connection, if that is there.
    fn send(&self, connection: u64, message: &[u8]) -> bool {
        let sender = self.sender.read().clone();
        sender.is_some_and(|sender| sender.send(connection, message))
    }
}

impl Engine {
    /// Has callbacks sent by this from now on. Before that, clients find out themselves what they
    /// would be told.
    pub fn set_callback_sender(&self, sender: Arc<dyn CallbackSender>) {
        *self.shared.callbacks.sender.write() = Some(sender);
    }

    /// The connection of this peer is closed.
    pub fn closed(&self, peer: &Peer) {
        let sessions = peer.take_back_sessions();
        if !sessions.is_empty() {
            self.shared.state.unbind_back(&sessions, peer.connection());
            self.shared.send_again_from(peer.connection(), self.now_ms.load(Ordering::Relaxed));
        }
    }

    /// A message of type REPLY has come. Whether the peer may send such: its connection is, or was,
    /// bound to a back channel. What is the reply to nothing is ignored: it may have come late.
    pub(crate) fn callback_reply(&self, peer: &Peer, now_ms: u64, record: &[u8]) -> bool {
        if !peer.is_back_bound() {
            return false;
        }
        let mut reader = Reader::new(record);
        if let Ok(header) = ReplyHeader::decode(&mut reader) {
            self.shared.take_answer(peer.connection(), now_ms, header, &mut reader);
            // Who waits for it, or a recall.
            self.shared.send_effects(now_ms);
        }
        true
    }
}

impl Shared {
    /// Tells a client that a lock which it waits for may be asked for again.
    pub(crate) fn tell_of_free_lock(
        &self,
        now_ms: u64,
        client: Arc<Client>,
        owner: Arc<[u8]>,
        handle: Arc<[u8]>,
    ) {
        let asked = Asked::LockIsFree { handle, client: client.id().0, owner };
        let notice = Notice { client, asked, since_ms: now_ms, due_ms: now_ms };
        if let Some(notice) = self.begin_callback(notice, now_ms) {
            self.callbacks.change(|table| table.waiting.keep(notice));
        }
    }

    /// Asks a client to return a delegation, now or from a later time on. What exceeds the bounds of this
    /// table is lost: the state asks for it again.
    pub(crate) fn recall(
        &self,
        (now_ms, not_before_ms): (u64, u64),
        client: Arc<Client>,
        id: StateId,
        file: FileKey,
        handle: Arc<[u8]>,
    ) {
        let asked = Asked::Recall { id, file, handle };
        let due_ms = now_ms.max(not_before_ms);
        let notice = Notice { client, asked, since_ms: now_ms, due_ms };
        let is_under_way = self.callbacks.change(|table| {
            table.in_flight.values().any(|call| call.sent.is_some() && call.notice.is_same(&notice))
        });
        if is_under_way {
            return;
        }
        let kept = if due_ms > now_ms { Some(notice) } else { self.begin_callback(notice, now_ms) };
        if let Some(notice) = kept {
            self.callbacks.change(|table| table.waiting.keep(notice));
        }
    }

    /// A callback was sent.
    fn is_sent(&self, asked: &Asked, now_ms: u64) {
        if let Asked::Recall { id, file, .. } = asked {
            self.state.recall_is_sent(now_ms, file, id);
        }
    }

    /// A callback was executed with this status, or was so before.
    fn is_executed(&self, notice: Notice, status: NfsStat4, now_ms: u64) {
        match (&notice.asked, status) {
            (_, NfsStat4::Delay) => self.keep_for_later(notice, now_ms),
            (Asked::Recall { id, file, .. }, NfsStat4::Ok) => {
                self.state.recall_is_answered(file, id);
            }
            // The client may not have taken the reply yet that grants it.
            (Asked::Recall { .. }, _) => self.keep_for(UNKNOWN_MS, notice, now_ms),
            (Asked::LockIsFree { .. } | Asked::Attributes { .. }, _) => {}
        }
    }

    /// Looks after what is under way; to be called about once a second.
    pub(crate) fn tick_callbacks(&self, now_ms: u64) {
        if self.callbacks.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.give_up_questions(now_ms);
        let (ended, silent, unsent) = self.callbacks.change(|table| {
            let is_useless =
                |notice: &Notice| notice.is_question() && notice.is_useless(&self.state, now_ms);
            let is_over = |call: &InFlight| {
                !call.session.has_back_channel() || call.is_put_off() && is_useless(&call.notice)
            };
            let over = table.in_flight.iter().filter(|(_, call)| is_over(call));
            let over: Vec<u32> = over.map(|(xid, _)| *xid).collect();
            let ended: Vec<InFlight> =
                over.iter().filter_map(|xid| table.in_flight.remove(xid)).collect();
            let (mut silent, mut unsent) = (Vec::new(), Vec::new());
            for (xid, call) in &table.in_flight {
                match call.sent {
                    None => unsent.push(*xid),
                    Some((connection, sent_ms)) => {
                        if now_ms.saturating_sub(sent_ms) > ANSWER_MS {
                            silent.push((*xid, connection, Arc::clone(&call.session)));
                        }
                    }
                }
            }
            (ended, silent, unsent)
        });
        for call in ended {
            call.session.end_callback(call.slot.slot, call.end());
            self.keep_for_later(call.notice, now_ms);
        }
        for (_, connection, session) in &silent {
            session.unbind_back(*connection);
        }
        let silent = silent.into_iter().map(|(xid, ..)| xid);
        for xid in silent.chain(unsent) {
            self.transmit(xid, now_ms);
        }
        self.send_waiting(now_ms);
    }

    /// Sends what waits for a slot or connection, as far as there are some.
    fn send_waiting(&self, now_ms: u64) {
        let waiting = self.callbacks.change(|table| std::mem::take(&mut table.waiting));
        for notice in waiting.into_all() {
            let kept = if notice.is_useless(&self.state, now_ms) {
                None
            } else if notice.due_ms > now_ms {
                Some(notice)
            } else {
                self.begin_callback(notice, now_ms)
            };
            if let Some(notice) = kept {
                self.callbacks.change(|table| table.waiting.keep(notice));
            }
        }
    }

    fn keep_for_later(&self, notice: Notice, now_ms: u64) {
        self.keep_for(DELAY_MS, notice, now_ms);
    }

    fn keep_for(&self, delay_ms: u64, notice: Notice, now_ms: u64) {
        self.is_lost(&notice, now_ms);
        if !notice.is_useless(&self.state, now_ms) {
            let due_ms = now_ms.saturating_add(delay_ms);
            self.callbacks.change(|table| table.waiting.keep(Notice { due_ms, ..notice }));
        }
    }

    /// Makes a callback of what a client is to be told; gives it back if no session has a slot and a
    /// connection for it.
    fn begin_callback(&self, notice: Notice, now_ms: u64) -> Option<Notice> {
        let begun = self.state.sessions_of(notice.client.id()).into_iter().find_map(|session| {
            session.back_connection()?;
            let target = session.callback_target()?;
            let slot = if notice.is_question() {
                session.begin_question()?
            } else {
                session.begin_callback()?
            };
            Some((session, target, slot))
        });
        let Some((session, target, slot)) = begun else { return Some(notice) };
        // The sequence id must be known after a restart.
        self.keep_state();
        let xid = self.callbacks.next_xid.fetch_add(1, Ordering::Relaxed);
        let message: Arc<[u8]> =
            message::call(xid, &target, *session.id(), slot, &notice.asked).into();
        if message.len() as u64 > u64::from(session.back().request_bytes_max) {
            session.end_callback(slot.slot, CallbackEnd::NotSequenced);
            self.is_lost(&notice, now_ms);
            return None;
        }
        let (sent, is_passed_on, attempts) = (None, false, 0);
        let call = InFlight { session, slot, notice, message, sent, is_passed_on, attempts };
        self.callbacks.change(|table| table.in_flight.insert(xid, call));
        self.transmit(xid, now_ms);
        None
    }

    /// Sends a callback by the first connection that takes it. Without one it waits.
    fn transmit(&self, xid: u32, now_ms: u64) {
        loop {
            let (next, lost) = self.callbacks.change(|table| {
                let Some(call) = table.in_flight.get_mut(&xid) else { return (None, None) };
                let connection = call.session.back_connection();
                call.sent = connection.map(|connection| (connection, now_ms));
                call.attempts = call.attempts.saturating_add(u32::from(connection.is_some()));
                let was_passed_on = std::mem::replace(&mut call.is_passed_on, connection.is_none());
                let next = connection.map(|connection| {
                    let asked = call.notice.asked.clone();
                    (connection, Arc::clone(&call.message), Arc::clone(&call.session), asked)
                });
                let mut lost = None;
                if was_passed_on != next.is_none() {
                    let notice = call.notice.clone();
                    // Its other sessions have a try while there is no connection, and none afterwards.
                    table.waiting.forget(&notice);
                    if next.is_none() && notice.is_question() {
                        lost = Some(notice);
                    } else if next.is_none() {
                        table.waiting.keep(notice);
                    }
                }
                (next, lost)
            });
            if let Some(notice) = lost {
                self.is_lost(&notice, now_ms);
            }
            let Some((connection, message, session, asked)) = next else { return };
            if self.callbacks.send(connection, &message) {
                self.is_sent(&asked, now_ms);
                return;
            }
            session.unbind_back(connection);
        }
    }

    /// A connection is gone: what was sent by it is sent by another one.
    fn send_again_from(&self, connection: u64, now_ms: u64) {
        if self.callbacks.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let lost: Vec<u32> = self.callbacks.change(|table| {
            let by = |call: &InFlight| call.sent.is_some_and(|(by, _)| by == connection);
            table.in_flight.iter().filter(|(_, call)| by(call)).map(|(xid, _)| *xid).collect()
        });
        for xid in lost {
            self.transmit(xid, now_ms);
        }
    }

    /// Takes the reply to a callback that was sent by this connection.
    fn take_answer(
        &self,
        connection: u64,
        now_ms: u64,
        header: ReplyHeader<'_>,
        reader: &mut Reader<'_>,
    ) {
        let call = self.callbacks.change(|table| {
            let call = table.in_flight.get(&header.xid)?;
            // Nobody answers for another.
            let is_its = call.sent.is_some_and(|(by, _)| by == connection);
            if is_its { table.in_flight.remove(&header.xid) } else { None }
        });
        let Some(call) = call else { return };
        let (session, number) = (Arc::clone(&call.session), call.slot.slot);
        let not_sequenced = || session.end_callback(number, CallbackEnd::NotSequenced);
        let answer = message::answer(header, reader, *session.id(), call.slot);
        let says = match answer {
            Ok(Answer::Sequenced { status: NfsStat4::Ok, says, .. }) => says,
            _ => None,
        };
        // The holder has not looked at what was asked with these, and is asked that once more.
        if !matches!(answer, Ok(Answer::NotSequenced(NfsStat4::Delay | NfsStat4::SeqMisordered))) {
            self.holder_says(&call.notice.asked, says, now_ms);
        }
        match answer {
            Ok(Answer::Sequenced { target_highest_slot, status, .. }) => {
                session.end_callback(number, CallbackEnd::Sequenced { target_highest_slot });
                self.is_executed(call.notice, status, now_ms);
            }
            Ok(Answer::Repeated) => {
                let target_highest_slot = u32::MAX;
                session.end_callback(number, CallbackEnd::Sequenced { target_highest_slot });
                self.is_executed(call.notice, NfsStat4::Ok, now_ms);
            }
            // The client may be executing it since it was sent first: its sequence id is used.
            // A question does not wait for another slot.
            Ok(Answer::NotSequenced(NfsStat4::Delay))
                if call.attempts > 1 || call.notice.is_question() =>
            {
                let call = InFlight { sent: None, ..call };
                if call.notice.is_useless(&self.state, now_ms) {
                    session.end_callback(number, call.end());
                } else {
                    self.callbacks.change(|table| table.in_flight.insert(header.xid, call));
                }
            }
            Ok(Answer::NotSequenced(NfsStat4::Delay)) => {
                not_sequenced();
                self.keep_for_later(call.notice, now_ms);
            }
            Ok(Answer::NotSequenced(NfsStat4::ConnNotBoundToSession)) => {
                session.unbind_back(connection);
                not_sequenced();
                self.keep_for_later(call.notice, now_ms);
            }
            Ok(Answer::NotSequenced(NfsStat4::SeqMisordered)) => self.reorder(call, now_ms),
            Ok(Answer::NotSequenced(
                NfsStat4::BadSession | NfsStat4::BadSlot | NfsStat4::SeqFalseRetry,
            ))
            | Err(_) => {
                session.fault_callbacks();
                self.keep_for_later(call.notice, now_ms);
            }
            Ok(Answer::NotSequenced(_) | Answer::NotExecuted) => {
                not_sequenced();
                self.keep_recall(call.notice, now_ms);
            }
            Ok(Answer::Refused) => {
                not_sequenced();
                session.refuse_callbacks();
                self.keep_recall(call.notice, now_ms);
            }
        }
        self.keep_state();
        // A slot may be free that others wait for.
        if self.callbacks.count.load(Ordering::Relaxed) > 0 {
            self.send_waiting(now_ms);
        }
    }

    /// What was refused may be taken later, or by another session, if it is worth that.
    fn keep_recall(&self, notice: Notice, now_ms: u64) {
        if matches!(notice.asked, Asked::Recall { .. }) {
            self.keep_for(UNKNOWN_MS, notice, now_ms);
        }
    }

    /// The client says that a callback's sequence id is out of order: after a restart of the server
    /// the one before may be meant.
    fn reorder(&self, call: InFlight, now_ms: u64) {
        let InFlight { session, slot, notice, .. } = call;
        let sequence = session.reorder_callback(slot.slot);
        let (Some(sequence), Some(target)) = (sequence, session.callback_target()) else {
            session.end_callback(slot.slot, CallbackEnd::Unknown);
            self.keep_for_later(notice, now_ms);
            return;
        };
        self.keep_state();
        if notice.is_useless(&self.state, now_ms) {
            return session.end_callback(slot.slot, CallbackEnd::NotSequenced);
        }
        let slot = CallbackSlot { sequence, ..slot };
        let xid = self.callbacks.next_xid.fetch_add(1, Ordering::Relaxed);
        let message = message::call(xid, &target, *session.id(), slot, &notice.asked).into();
        let (sent, is_passed_on, attempts) = (None, false, 0);
        let call = InFlight { session, slot, notice, message, sent, is_passed_on, attempts };
        self.callbacks.change(|table| table.in_flight.insert(xid, call));
        self.transmit(xid, now_ms);
    }
}
