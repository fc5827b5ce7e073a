//! A seat: an epoll descriptor, the connections that belong to it and a UDP socket an address.
//!
//! Whoever holds the lock of a seat's [`SeatCore`] occupies the seat: waits at its epoll
//! descriptor and executes what comes. Before a call that may block, the occupant gives up the
//! lock and marks the seat as lent; when the call returns it tries to take the lock back. That
//! nearly always succeeds and costs a few atomic operations. If the call lasted, the pool's
//! monitor has sent another worker to the seat in the meantime, and nothing has waited.
//!
//! Nobody but workers ever takes the lock, and only by trying: so a worker that fails to get it
//! knows that the seat is in good hands.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use steadfast_engine::StorageId;
use steadfast_sys::epoll::{Epoll, Interest};

use crate::batch::Batch;
use crate::batched::Batched;
use crate::connection::Connection;
use crate::datagram::DatagramSocket;
use crate::framing::Framing;
use crate::mailbox::Mailbox;
use crate::open_batches::OpenBatches;
use crate::shared::Shared;
use crate::suspended::for_another::Ticket;
use crate::suspended::{KeptCall, KeptOrigin, Suspended};
use crate::turns::{ClientId, Company, Turns};

/// The right to serve a seat.
pub(crate) type SeatGuard<'a> = MutexGuard<'a, SeatCore>;

/// What another thread hands over to the occupant. Bounded: the number of connections has its limit, and the
/// engine bounds how many calls wait.
#[derive(Debug)]
pub(crate) enum HandedOver {
    /// A new connection is this seat's.
    Connection(Arc<Connection>),
    /// A call waits for a client, or for a name service; who executed it has the seat no more.
    Call(KeptCall, Arc<Ticket>),
}

#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) index: usize,
    core: Mutex<SeatCore>,
    pub(crate) epoll: Epoll,
    pub(crate) mailbox: Arc<Mailbox>,
    handed_over: Mutex<Vec<HandedOver>>,
    pub(crate) open_batches: OpenBatches,
    /// Opening an object was slow; if another one is until then, it is no accident, in ms.
    pub(crate) slow_opening_until_ms: AtomicU64,
    /// Until then opening objects is taken for slow, in ms.
    pub(crate) opens_slowly_until_ms: AtomicU64,
    /// Twice the number of times the seat was lent; odd while it is.
    lent: AtomicU64,
    /// What its lender may wait for; [`NO_STORAGE`] if he need not be counted.
    lent_for: AtomicU64,
    pub(crate) connection_count: AtomicUsize,
}

/// No storage's number.
const NO_STORAGE: u64 = u64::MAX;

/// A time for which a seat was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    /// Tells it from the others of the seat.
    number: u64,
    /// What the lender may wait for, if he is to be counted when he does.
    pub(crate) storage: Option<StorageId>,
}

/// What belongs to the occupant.
#[derive(Debug)]
pub(crate) struct SeatCore {
    pub(crate) connections: Slots,
    pub(crate) datagram_sockets: Vec<DatagramPort>,
    pub(crate) listeners: Vec<Arc<OwnedFd>>,
    /// Listeners are not watched until then, for want of descriptors.
    pub(crate) listeners_resume_ms: Option<u64>,
    /// Whom to serve next.
    pub(crate) turns: Turns<Ready>,
    /// To be sent before anybody waits.
    pub(crate) batched: Batched,
    pub(crate) suspended: Suspended,
    /// Who is served, and since when, in ns.
    serving: Option<(ClientId, u64)>,
    /// The connection whose calls were executed last, and how many batches of it in a row.
    last_served: (u64, u32),
    pub(crate) next_sweep_ms: u64,
    pub(crate) next_backlog_check_ms: u64,
    /// No stale partial call was found; not looked for again before then.
    pub(crate) next_call_bytes_check_ms: u64,
    /// There was no idle connection to be closed; not looked for again before then.
    pub(crate) next_idle_search_ms: u64,
    pub(crate) is_draining: bool,
}

#[derive(Debug)]
pub(crate) struct DatagramPort {
    pub(crate) socket: Arc<DatagramSocket>,
    pub(crate) client: ClientId,
    pub(crate) is_queued: bool,
    /// Suspended calls that go on, to be executed in its next turns.
    pub(crate) due: VecDeque<Arc<Batch>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Connection(u64),
    Datagrams(usize),
}

/// A token of an epoll event, other than a connection's (whose top byte is 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Mailbox,
    Listener(usize),
    Datagrams(usize),
    Connection(u64),
}

const KIND_SHIFT: u32 = 56;
const INDEX_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl Token {
    pub(crate) fn to_number(self) -> u64 {
        match self {
            Self::Connection(number) => number,
            Self::Mailbox => 1 << KIND_SHIFT,
            Self::Listener(index) => (2 << KIND_SHIFT) | index as u64,
            Self::Datagrams(index) => (3 << KIND_SHIFT) | index as u64,
        }
    }

    pub(crate) fn from_number(number: u64) -> Self {
        let index = (number & INDEX_MASK) as usize;
        match number >> KIND_SHIFT {
            1 => Self::Mailbox,
            2 => Self::Listener(index),
            3 => Self::Datagrams(index),
            _ => Self::Connection(number),
        }
    }
}

impl Seat {
    pub(crate) fn new(
        index: usize,
        listeners: Vec<Arc<OwnedFd>>,
        datagram_sockets: Vec<Arc<DatagramSocket>>,
    ) -> std::io::Result<Self> {
        let epoll = Epoll::new()?;
        let mailbox = Mailbox::new()?;
        epoll.add(&mailbox.wake, Token::Mailbox.to_number(), Interest::Input)?;
        for (index, listener) in listeners.iter().enumerate() {
            epoll.add(listener, Token::Listener(index).to_number(), Interest::SharedInput)?;
        }
        for (index, port) in datagram_sockets.iter().enumerate() {
            let token = Token::Datagrams(index).to_number();
            epoll.add(&port.socket, token, Interest::InputEdges)?;
        }
        let mut turns = Turns::default();
        let datagram_sockets = datagram_sockets
            .into_iter()
            .map(|socket| DatagramPort {
                socket,
                client: turns.join_apart(),
                is_queued: false,
                due: VecDeque::new(),
            })
            .collect();
        Ok(Self {
            index,
            core: Mutex::new(SeatCore {
                connections: Slots::default(),
                datagram_sockets,
                listeners,
                listeners_resume_ms: None,
                turns,
                batched: Batched::default(),
                suspended: Suspended::default(),
                serving: None,
                last_served: (u64::MAX, 0),
                next_sweep_ms: 0,
                next_backlog_check_ms: 0,
                next_call_bytes_check_ms: 0,
                next_idle_search_ms: 0,
                is_draining: false,
            }),
            epoll,
            mailbox: Arc::new(mailbox),
            handed_over: Mutex::default(),
            open_batches: OpenBatches::default(),
            slow_opening_until_ms: AtomicU64::new(0),
            opens_slowly_until_ms: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            lent_for: AtomicU64::new(NO_STORAGE),
            connection_count: AtomicUsize::new(0),
        })
    }

    /// Hands something over to whoever occupies the seat, and wakes him.
    pub(crate) fn hand_over(&self, what: HandedOver) {
        let mut handed_over = self.handed_over.lock();
        let is_first = handed_over.is_empty();
        handed_over.push(what);
        drop(handed_over);
        if is_first {
            self.mailbox.wake.notify();
        }
    }

    /// Takes what was handed over. To be called after [`Mailbox::take`], which resets what wakes: else what
    /// comes in between would wake nobody.
    pub(crate) fn take_handed_over(&self) -> Vec<HandedOver> {
        std::mem::take(&mut *self.handed_over.lock())
    }

    /// Takes the seat if it is free. If it was lent, by whom, who has not come back, or has now.
    pub(crate) fn occupy(&self) -> Option<(SeatGuard<'_>, Option<Lent>)> {
        let guard = self.core.try_lock()?;
        let number = self.lent.load(Ordering::Relaxed);
        if number & 1 == 0 {
            return Some((guard, None));
        }
        let storage = self.lender_storage();
        self.lent.store(number + 1, Ordering::SeqCst);
        Some((guard, Some(Lent { number, storage })))
    }

    /// Gives the seat up for the time of a call that may wait for `storage`.
    pub(crate) fn lend(&self, guard: SeatGuard<'_>, storage: Option<StorageId>) -> Lent {
        let number = self.lent.load(Ordering::Relaxed) | 1;
        self.lent_for.store(storage.map_or(NO_STORAGE, |storage| storage.0), Ordering::Relaxed);
        self.lent.store(number, Ordering::SeqCst);
        drop(guard);
        Lent { number, storage }
    }

    fn lender_storage(&self) -> Option<StorageId> {
        match self.lent_for.load(Ordering::Relaxed) {
            NO_STORAGE => None,
            storage => Some(StorageId(storage)),
        }
    }

    /// While the seat is lent, what the lender may wait for, if he is to be counted.
    pub(crate) fn lent_for(&self) -> Option<StorageId> {
        self.lent_since().and_then(|_| self.lender_storage())
    }

    /// While the seat is lent, a number that tells this time from others.
    pub(crate) fn lent_since(&self) -> Option<u64> {
        let lent = self.lent.load(Ordering::SeqCst);
        (lent & 1 == 1).then_some(lent)
    }
}

/// A connection as its seat knows it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) connection: Arc<Connection>,
    pub(crate) client: ClientId,
    pub(crate) framing: Framing,
    /// How much is received at one time.
    pub(crate) appetite: Appetite,
    /// Calls to be executed in its next turns, before any is received: the rests of batches, kept since its turn was
    /// over, the peer reads too slowly, or too many of its calls are parked; and suspended ones that go on.
    pub(crate) due: VecDeque<Arc<Batch>>,
    /// When bytes last came, in ms.
    pub(crate) active_ms: u64,
    pub(crate) is_queued: bool,
    pub(crate) is_readable: bool,
    pub(crate) is_hung_up: bool,
    /// The peer sends no more; replies may still be due.
    pub(crate) is_ended: bool,
}

impl Slot {
    /// Memory used by calls received in part or due, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.framing.stash_bytes() + self.due.iter().map(|batch| batch.kept_bytes()).sum::<usize>()
    }
}

/// How much is received from a connection at one time, in bytes: little while its calls are
/// small, so that its turn does not last long; much while they are large, for the sake of fewer
/// system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appetite(usize);

impl Default for Appetite {
    fn default() -> Self {
        Self(16 << 10)
    }
}

impl Appetite {
    const BYTES_MIN: usize = 8 << 10;
    pub(crate) const BYTES_MAX: usize = 256 << 10;
    /// More calls than this in one receive are many, fewer than that are few.
    const CALLS_MANY: usize = 64;
    const CALLS_FEW: usize = 8;

    pub(crate) fn bytes(self) -> usize {
        self.0
    }

    /// Learns from a receive: how many calls it brought, and whether there may be more.
    pub(crate) fn learn(&mut self, calls: usize, was_full: bool) {
        if calls > Self::CALLS_MANY {
            self.0 = (self.0 / 2).max(Self::BYTES_MIN);
        } else if was_full && calls < Self::CALLS_FEW {
            self.0 = (self.0 * 2).min(Self::BYTES_MAX);
        }
    }
}

/// The connections of a seat, by token. A token is used again only after 2^24 others of its
/// place.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<(u32, Option<Box<Slot>>)>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn insert(
        &mut self,
        connection: Arc<Connection>,
        client: ClientId,
        now_ms: u64,
    ) -> u64 {
        let slot = Box::new(Slot {
            connection,
            client,
            framing: Framing::default(),
            appetite: Appetite::default(),
            due: VecDeque::new(),
            active_ms: now_ms,
            is_queued: false,
            is_readable: false,
            is_hung_up: false,
            is_ended: false,
        });
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let Some((generation, place)) = self.slots.get_mut(index as usize) else {
            return u64::MAX;
        };
        // 24 bits, so that the token's top byte stays 0.
        *generation = (*generation + 1) & 0x00ff_ffff;
        *place = Some(slot);
        (u64::from(*generation) << 32) | u64::from(index)
    }

    fn place(&mut self, token: u64) -> Option<&mut Option<Box<Slot>>> {
        let (generation, place) = self.slots.get_mut((token & 0xffff_ffff) as usize)?;
        (u64::from(*generation) == token >> 32).then_some(place)
    }

    pub(crate) fn at(&mut self, token: u64) -> Option<&mut Slot> {
        self.place(token)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, token: u64) -> Option<Box<Slot>> {
        let slot = self.place(token)?.take()?;
        self.free.push((token & 0xffff_ffff) as u32);
        Some(slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Slot)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, slot))| {
            Some(((u64::from(*generation) << 32) | index as u64, slot.as_deref()?))
        })
    }
}

/// So many batches of one connection in a row, and it is alone.
const ALONE_BATCHES: u32 = 4;

impl SeatCore {
    /// From now on a client is served.
    pub(crate) fn start_serving(&mut self, client: ClientId, now_ns: u64) {
        self.serving = Some((client, now_ns));
    }

    /// Whether a connection is the only one that has been served of late, and no other waits. To be
    /// asked once a batch.
    pub(crate) fn is_alone(&mut self, token: u64) -> bool {
        if self.last_served.0 != token {
            self.last_served = (token, 0);
        }
        self.last_served.1 += 1;
        self.last_served.1 > ALONE_BATCHES && self.turns.is_empty()
    }

    /// With whose replies those of who is served may go out.
    pub(crate) fn company(&self) -> Company {
        self.serving.map_or(Company::None, |(client, _)| self.turns.company(client))
    }

    /// Charges the client that was served; who it was.
    pub(crate) fn stop_serving(&mut self, now_ns: u64) -> Option<ClientId> {
        let (client, since_ns) = self.serving.take()?;
        self.turns.charge(client, now_ns.saturating_sub(since_ns));
        Some(client)
    }

    /// Queues a connection to be served, once.
    pub(crate) fn enqueue(&mut self, token: u64) {
        if let Some(slot) = self.connections.at(token)
            && !slot.is_queued
        {
            slot.is_queued = true;
            self.turns.push(slot.client, Ready::Connection(token));
        }
    }

    /// Keeps a call that waits for a client, or for a name service; or has it go on if it need not wait any more.
    pub(crate) fn suspend_for_another(
        &mut self,
        call: KeptCall,
        ticket: &Arc<Ticket>,
        shared: &Shared,
    ) {
        let is_gone = match call.origin {
            KeptOrigin::Connection(token) => self.connections.at(token).is_none(),
            KeptOrigin::Datagrams(_) => false,
        };
        let woken =
            if is_gone { Some(call) } else { self.suspended.for_another.keep(call, ticket) };
        if let Some(call) = woken {
            self.go_on(call, shared);
        }
    }

    /// Has a call go on that is suspended no more, in its client's turn.
    pub(crate) fn go_on(&mut self, call: KeptCall, shared: &Shared) {
        match call.origin {
            KeptOrigin::Connection(token) => {
                let Some(slot) = self.connections.at(token) else {
                    call.batch.discard(shared);
                    return;
                };
                let connection = Arc::clone(&slot.connection);
                slot.due.push_front(call.batch);
                self.enqueue(token);
                connection.leave(1);
            }
            KeptOrigin::Datagrams(socket) => {
                let is_same = |port: &DatagramPort| Arc::ptr_eq(&port.socket, &socket);
                let index = self.datagram_sockets.iter().position(is_same);
                match index.and_then(|index| Some((index, self.datagram_sockets.get_mut(index)?))) {
                    Some((index, port)) => {
                        port.due.push_back(call.batch);
                        self.enqueue_datagrams(index);
                    }
                    None => call.batch.discard(shared),
                }
            }
        }
    }

    /// Queues a UDP socket to be served, once.
    pub(crate) fn enqueue_datagrams(&mut self, index: usize) {
        if let Some(port) = self.datagram_sockets.get_mut(index)
            && !port.is_queued
        {
            port.is_queued = true;
            self.turns.push(port.client, Ready::Datagrams(index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_way_through_the_kernel() {
        for token in [
            Token::Mailbox,
            Token::Listener(3),
            Token::Datagrams(70_000),
            Token::Connection(0x00ff_ffff_0000_0001),
        ] {
            assert_eq!(Token::from_number(token.to_number()), token);
        }
    }

    #[test]
    fn a_lent_seat_can_be_taken_and_the_lender_notices() {
        let seat = Seat::new(0, Vec::new(), Vec::new()).unwrap();
        let (guard, none) = seat.occupy().unwrap();
        assert!(seat.occupy().is_none() && none.is_none());
        assert_eq!(seat.lent_since(), None);
        let storage = Some(StorageId(7));
        let lent = seat.lend(guard, storage);
        let first = seat.lent_since().unwrap();
        let (guard, by) = seat.occupy().unwrap();
        assert_eq!((by, lent.storage), (Some(lent), storage));
        assert_eq!(seat.lent_since(), None);
        assert!(seat.occupy().is_none(), "the lender has lost it");
        let again = seat.lend(guard, None);
        assert_ne!(seat.lent_since().unwrap(), first);
        assert_ne!(again, lent);
        assert_eq!(seat.occupy().unwrap().1, Some(again));
    }
}
