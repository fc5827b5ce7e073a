//! Copies of messages as they were read and written, for who captures them.
//!
//! A message is an RPC record, after whatever transport brought it: what a client of the network's sees of it does
//! not matter. Nobody who serves calls waits for a capture. While there is none, a call costs one relaxed load, and so
//! does its reply ([`Switch::wants`]). While there is one, they are copied into the *ring* of their pool, a bounded queue
//! without locks; threads that belong to no pool have a ring of their own. What a ring has no room for is dropped, and
//! counted. The room is taken until the message is handed on ([`Capture::take`]), so all rings together bound what a
//! capture keeps.
//!
//! A server has one capture at a time: two would each slow down the calls, and take the memory twice.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use arc_swap::ArcSwapOption;
use crossbeam_utils::CachePadded;
use steadfast_engine::{CallFacts, OperationId, Peer, ReplyBuffer, Transport};

use crate::shared::Shared;
use crate::statistics::Executed;

/// Messages of a ring.
const RING_MESSAGES: usize = 8192;
/// Room for them in bytes.
const RING_BYTES: usize = 16 << 20;
/// Room that a message takes at least, so that one number bounds both.
const MESSAGE_BYTES_LEAST: usize = RING_BYTES / RING_MESSAGES;

/// Bits of [`Switch::state`].
const ON: u8 = 1;
const WITH_CONTENTS: u8 = 2;

/// What is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Bytes kept of a message.
    pub message_bytes_max: usize,
    /// Replies are made with the contents of files in them, which are sent from the page cache otherwise, and
    /// are no part of what is captured then.
    pub with_contents: bool,
    /// Clients of this network only: an address and the length of its prefix in bits.
    pub client: Option<(IpAddr, u8)>,
}

/// A message that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedMessage {
    /// When it came, or was ready to be sent, in ns since 1970.
    pub time_ns: u64,
    /// The client.
    pub peer: SocketAddr,
    /// The server's address that the client uses.
    pub local: SocketAddr,
    /// Whether it is a datagram.
    pub is_datagram: bool,
    /// Whether the server has sent it.
    pub is_sent: bool,
    /// Whether it answers a call that repeats one which was known.
    pub is_repeat: bool,
    /// Of a reply: what its call's time was spent on. A repeat that waited for the reply to the first call has none.
    pub spent: Option<CapturedTimes>,
    /// Of a reply: what was executed. A repeat that waited for the reply to the first call does not tell.
    pub operation: Option<OperationId>,
    /// Its whole length in bytes.
    pub length: usize,
    /// What was kept of it.
    pub bytes: Box<[u8]>,
}

/// What the time of a call was spent on, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapturedTimes {
    /// Its last execution.
    pub executed_ns: u64,
    /// The part of it behind the place where it might wait for a disk; 0 if it came to none.
    pub waited_ns: u64,
    /// From the end of the execution until what was promised was stable.
    pub stable_ns: u64,
}

/// There is a capture already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a capture runs already")]
pub struct CaptureRuns;

/// Whether messages are captured; a part of what threads share.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    state: AtomicU8,
    is_taken: AtomicBool,
    active: ArcSwapOption<Active>,
}

#[derive(Debug)]
struct Active {
    options: CaptureOptions,
    /// Workers of two pools write to no cache line together.
    rings: Vec<CachePadded<Ring>>,
}

#[derive(Debug)]
struct Ring {
    sender: SyncSender<CapturedMessage>,
    /// Room of messages that have not been handed on: at most [`RING_BYTES`].
    used_bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// What becomes of a call's messages: looked at once for the call, and once for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted(u8);

impl Wanted {
    pub(crate) fn is_any(self) -> bool {
        self.0 & ON != 0
    }

    /// Whether replies are to have the contents of files in them.
    pub(crate) fn are_contents(self) -> bool {
        self.0 & WITH_CONTENTS != 0
    }
}

/// Which ring a thread uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// That of the pool of this index.
    Pool(usize),
    /// That of all threads without a pool.
    Elsewhere,
}

/// What is known of a message beside its bytes.
#[derive(Clone, Copy)]
struct Noted {
    time_ns: u64,
    is_sent: bool,
    is_repeat: bool,
    spent: Option<CapturedTimes>,
    operation: Option<OperationId>,
    length: usize,
}

impl Noted {
    fn sent(time_ns: u64, length: usize) -> Self {
        Self { time_ns, is_sent: true, is_repeat: false, spent: None, operation: None, length }
    }
}

impl Switch {
    /// The look at a call, or at its reply.
    #[inline]
    pub(crate) fn wants(&self) -> Wanted {
        Wanted(self.state.load(Ordering::Relaxed))
    }

    /// Whether messages of this client are captured.
    #[cold]
    pub(crate) fn has_client(&self, peer: &Peer) -> bool {
        self.active.load().as_deref().is_some_and(|active| active.has_client(peer))
    }

    /// A message that was received; `time_ns` by the stamps' clock.
    #[cold]
    pub(crate) fn received(&self, place: Place, peer: &Peer, time_ns: u64, message: &[u8]) {
        let noted = Noted { is_sent: false, ..Noted::sent(time_ns, message.len()) };
        self.note(place, peer, noted, message);
    }

    /// A reply that is about to be sent, of a call that was executed by this thread or another.
    #[cold]
    pub(crate) fn replied(
        &self,
        place: Place,
        peer: &Peer,
        time_ns: u64,
        reply: &ReplyBuffer,
        (spent, facts): (CapturedTimes, &CallFacts),
    ) {
        // Behind the first range of a file nothing stands where it will be.
        let first = reply.files.first().map_or(reply.bytes.len(), |(at, _)| *at);
        let known = reply.bytes.get(..first).unwrap_or(&reply.bytes);
        let noted = Noted {
            is_repeat: facts.is_repeat,
            spent: Some(spent),
            operation: Some(facts.operation),
            ..Noted::sent(time_ns, reply.length())
        };
        self.note(place, peer, noted, known);
    }

    /// A reply that a repeated call gets, which waited for the execution of the first one.
    #[cold]
    pub(crate) fn repeated(&self, peer: &Peer, time_ns: u64, reply: &[u8]) {
        let noted = Noted { is_repeat: true, ..Noted::sent(time_ns, reply.len()) };
        self.note(Place::Elsewhere, peer, noted, reply);
    }

    /// A message that is about to be sent otherwise.
    #[cold]
    pub(crate) fn sent(&self, peer: &Peer, time_ns: u64, message: &[u8]) {
        self.note(Place::Elsewhere, peer, Noted::sent(time_ns, message.len()), message);
    }

    fn note(&self, place: Place, peer: &Peer, noted: Noted, known: &[u8]) {
        let active = self.active.load();
        let Some(active) = active.as_deref().filter(|active| active.has_client(peer)) else {
            return;
        };
        let ring = match place {
            Place::Pool(index) => active.rings.get(index),
            Place::Elsewhere => active.rings.last(),
        };
        let Some(ring) = ring else { return };
        let kept = known.get(..active.options.message_bytes_max).unwrap_or(known);
        if !ring.reserve(kept.len()) {
            return;
        }
        let Noted { time_ns, is_sent, is_repeat, spent, operation, length } = noted;
        ring.push(CapturedMessage {
            time_ns,
            peer: peer.address,
            local: peer.local,
            is_datagram: peer.transport == Transport::Udp,
            is_sent,
            is_repeat,
            spent,
            operation,
            length,
            bytes: kept.into(),
        });
    }

    /// Begins to capture, for so many pools.
    fn begin(&self, pools: usize, options: CaptureOptions) -> Result<Queue, CaptureRuns> {
        if self.is_taken.swap(true, Ordering::AcqRel) {
            return Err(CaptureRuns);
        }
        let (rings, messages) = (0..=pools).map(|_| Ring::new()).unzip();
        let active = Arc::new(Active { options, rings });
        self.active.store(Some(Arc::clone(&active)));
        let contents = if options.with_contents { WITH_CONTENTS } else { 0 };
        self.state.store(ON | contents, Ordering::Release);
        Ok(Queue { active, messages, held: VecDeque::new(), ready: 0 })
    }

    fn end(&self) {
        self.state.store(0, Ordering::Release);
        self.active.store(None);
        self.is_taken.store(false, Ordering::Release);
    }
}

impl Active {
    fn has_client(&self, peer: &Peer) -> bool {
        self.options.client.is_none_or(|network| is_in(peer.address.ip(), network))
    }
}

impl Ring {
    fn new() -> (CachePadded<Self>, Receiver<CapturedMessage>) {
        let (sender, receiver) = sync_channel(RING_MESSAGES);
        let ring = Self { sender, used_bytes: AtomicUsize::new(0), dropped: AtomicU64::new(0) };
        (ring.into(), receiver)
    }

    /// Takes the room of a message of which so many bytes are kept. If there is none the message is dropped.
    fn reserve(&self, kept_bytes: usize) -> bool {
        let room = room_of(kept_bytes);
        let with = |used: usize| used.checked_add(room).filter(|used| *used <= RING_BYTES);
        let order = Ordering::Relaxed;
        let has_room = self.used_bytes.fetch_update(order, order, with).is_ok();
        if !has_room {
            self.dropped.fetch_add(1, order);
        }
        has_room
    }

    fn release(&self, kept_bytes: usize) {
        self.used_bytes.fetch_sub(room_of(kept_bytes), Ordering::Relaxed);
    }

    /// Puts a message in that has its room.
    fn push(&self, message: CapturedMessage) {
        let kept_bytes = message.bytes.len();
        // Not to be expected: there is room for no more messages than the queue has places. A capture that has ended
        // takes none either, and counts no more.
        if let Err(TrySendError::Full(_)) = self.sender.try_send(message) {
            self.release(kept_bytes);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The room of a message of which so many bytes are kept.
fn room_of(kept_bytes: usize) -> usize {
    kept_bytes.max(MESSAGE_BYTES_LEAST)
}

/// Whether an address is of a network. A prefix that is too long means all of the address.
fn is_in(address: IpAddr, (network, prefix): (IpAddr, u8)) -> bool {
    let bits = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(address) => (32_u32, u128::from(address.to_bits())),
        IpAddr::V6(address) => (128, address.to_bits()),
    };
    let ((length, address), (of_network, network)) = (bits(address), bits(network));
    let ignored = length.saturating_sub(u32::from(prefix));
    length == of_network
        && address.checked_shr(ignored).unwrap_or(0) == network.checked_shr(ignored).unwrap_or(0)
}

impl CapturedTimes {
    /// Of a call whose reply is ready now, by the stamps' clock.
    pub(crate) fn of(executed: &Executed, stable_ns: Option<u64>) -> Self {
        Self {
            executed_ns: executed.execution_ns(),
            waited_ns: match executed.lent_ns {
                0 => 0,
                lent_ns => executed.ended_ns.saturating_sub(lent_ns),
            },
            stable_ns: stable_ns.map_or(0, |ns| ns.saturating_sub(executed.ended_ns)),
        }
    }
}

/// What was captured and has not been handed on.
struct Queue {
    active: Arc<Active>,
    messages: Vec<Receiver<CapturedMessage>>,
    /// Taken out of rings, each with the index of its ring, in the order of time.
    held: VecDeque<(usize, CapturedMessage)>,
    /// So many of them are next; the others are perhaps later than some that are still in rings.
    ready: usize,
}

impl Queue {
    /// The next messages, of so many bytes together or a little more.
    fn take(&mut self, bytes_max: usize, now_ns: impl Fn() -> u64) -> Vec<CapturedMessage> {
        if self.ready == 0 {
            self.gather(now_ns());
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while self.ready > 0 && bytes < bytes_max {
            let Some((ring, message)) = self.held.pop_front() else { break };
            self.ready -= 1;
            if let Some(ring) = self.active.rings.get(ring) {
                ring.release(message.bytes.len());
            }
            bytes += size_of::<CapturedMessage>() + message.bytes.len();
            taken.push(message);
        }
        taken
    }

    /// Empties the rings. What has a time before `now_ns`, which is now, can be handed on: a call is put into its ring
    /// before its reply gets its time, so the call of each such reply is here or was handed on. A later reply may have
    /// its call in a ring that was looked at before.
    fn gather(&mut self, now_ns: u64) {
        for (index, messages) in self.messages.iter().enumerate() {
            let messages = messages.try_iter().take(RING_MESSAGES);
            self.held.extend(messages.map(|message| (index, message)));
        }
        self.held.make_contiguous().sort_by_key(|(_, message)| message.time_ns);
        self.ready = self.held.partition_point(|(_, message)| message.time_ns < now_ns);
    }

    /// Whether more should be taken at once.
    fn is_pressing(&self) -> bool {
        let is_filling =
            |ring: &CachePadded<Ring>| ring.used_bytes.load(Ordering::Relaxed) >= RING_BYTES / 4;
        self.ready > 0 || self.active.rings.iter().any(is_filling)
    }

    fn dropped(&self) -> u64 {
        self.active.rings.iter().map(|ring| ring.dropped.load(Ordering::Relaxed)).sum()
    }

    /// Messages that have not been handed on.
    fn waiting(&mut self) -> u64 {
        self.gather(u64::MAX);
        self.held.len() as u64
    }
}

/// A capture. It ends when it is dropped.
pub struct Capture {
    shared: Arc<Shared>,
    queue: Queue,
    /// When the stamps' clock began, in ns since 1970.
    start_unix_ns: u64,
}

impl Capture {
    /// Begins a capture.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        pools: usize,
        options: CaptureOptions,
        start_unix_ns: u64,
    ) -> Result<Self, CaptureRuns> {
        let queue = shared.capture.begin(pools, options)?;
        Ok(Self { shared: Arc::clone(shared), queue, start_unix_ns })
    }

    /// The next messages, of so many bytes together or a little more; none if there are none. A call comes before its
    /// reply; what is otherwise captured at one time may come in another order.
    pub fn take(&mut self, bytes_max: usize) -> Vec<CapturedMessage> {
        let mut messages = self.queue.take(bytes_max, || self.shared.stamp_ns());
        for message in &mut messages {
            message.time_ns = self.start_unix_ns.saturating_add(message.time_ns);
        }
        messages
    }

    /// Whether more should be taken at once, since there is more or a ring may soon be full.
    pub fn is_pressing(&self) -> bool {
        self.queue.is_pressing()
    }

    /// Messages that were dropped so far, since a ring was full.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Bytes of messages that may wait to be taken, beside what messages need themselves.
    pub fn room_bytes(&self) -> usize {
        self.queue.active.rings.len() * RING_BYTES
    }

    /// Ends it. Returns how many messages were dropped, with those that were not taken.
    pub fn end(mut self) -> u64 {
        self.shared.capture.state.store(0, Ordering::Release);
        self.queue.dropped() + self.queue.waiting()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.shared.capture.end();
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture")
            .field("options", &self.queue.active.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use super::*;

    fn network(text: &str, prefix: u8) -> (IpAddr, u8) {
        (text.parse().unwrap(), prefix)
    }

    #[test]
    fn networks_have_their_addresses() {
        let has = |text: &str, network| is_in(text.parse().unwrap(), network);
        assert!(has("192.0.2.77", network("192.0.2.0", 24)));
        assert!(!has("192.0.3.77", network("192.0.2.0", 24)));
        assert!(has("::ffff:192.0.2.7", network("192.0.2.7", 32)));
        assert!(!has("192.0.2.6", network("192.0.2.7", 32)));
        assert!(has("203.0.113.1", network("0.0.0.0", 0)));
        assert!(!has("2001:db8::1", network("0.0.0.0", 0)));
        assert!(has("2001:db8::1", network("2001:db8::", 32)) && has("::1", network("::", 0)));
        assert!(!has("2001:db9::1", network("2001:db8::", 32)));
    }

    const ALL: CaptureOptions =
        CaptureOptions { message_bytes_max: 1024, with_contents: false, client: None };

    fn peer(last: u8) -> Peer {
        let address = |last| SocketAddr::from(([192, 0, 2, last], 700));
        Peer::new(address(last), address(99), Transport::Tcp)
    }

    fn begin(switch: &Switch, pools: usize, options: CaptureOptions) -> Queue {
        switch.begin(pools, options).unwrap()
    }

    #[test]
    fn a_ring_keeps_what_it_has_room_for() {
        for (kept, count) in [(10, RING_MESSAGES), (1024, RING_MESSAGES), (1 << 20, 16)] {
            let switch = Switch::default();
            let options = CaptureOptions { message_bytes_max: kept, ..ALL };
            let mut queue = begin(&switch, 1, options);
            let message = vec![1; 2 << 20];
            for number in 0..count as u64 + 5 {
                switch.received(Place::Pool(0), &peer(1), number, &message);
            }
            // Other threads have their own.
            switch.sent(&peer(1), 0, &message);
            assert_eq!(queue.dropped(), 5, "{kept}");
            // What was taken out of the ring keeps its room until it is handed on.
            assert_eq!(queue.take(1, || u64::MAX).len(), 1);
            assert!(queue.is_pressing());
            for dropped in [5, 6] {
                switch.received(Place::Pool(0), &peer(1), 0, &message);
                assert_eq!(queue.dropped(), dropped, "{kept}");
            }
            let taken = queue.take(usize::MAX, || u64::MAX);
            assert_eq!(taken.len(), count);
            assert!(taken.iter().all(|one| one.bytes.len() == kept && one.length == 2 << 20));
            assert_eq!(queue.take(usize::MAX, || u64::MAX).len(), 1);
            let used = |ring: &CachePadded<Ring>| ring.used_bytes.load(Ordering::Relaxed);
            assert!(queue.active.rings.iter().all(|ring| used(ring) == 0));
            assert!(!queue.is_pressing());
        }
    }

    #[test]
    fn room_is_never_taken_twice() {
        let (ring, _messages) = Ring::new();
        let kept = (1 << 20) + 7;
        let reserved: usize = std::thread::scope(|scope| {
            let reserve = || (0..1000).filter(|_| ring.reserve(kept)).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(reserve)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(reserved, RING_BYTES / kept);
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 8000 - reserved as u64);
    }

    #[test]
    fn messages_come_in_the_order_of_time_and_a_call_before_its_reply() {
        let switch = Switch::default();
        let mut queue = begin(&switch, 2, ALL);
        let times = |messages: Vec<CapturedMessage>| -> Vec<u64> {
            messages.iter().map(|message| message.time_ns).collect()
        };
        switch.received(Place::Pool(1), &peer(1), 30, &[1]);
        switch.sent(&peer(1), 40, &[2]);
        switch.received(Place::Pool(0), &peer(1), 10, &[3]);
        switch.received(Place::Pool(0), &peer(1), 60, &[4]);
        // The rings are looked at, at 50: what is later may have something before it.
        assert_eq!(times(queue.take(1, || 50)), [10]);
        switch.received(Place::Pool(1), &peer(1), 20, &[5]);
        assert_eq!(times(queue.take(usize::MAX, || 70)), [30, 40]);
        assert_eq!(times(queue.take(usize::MAX, || 60)), [20]);
        assert_eq!(times(queue.take(usize::MAX, || 60)), [0; 0]);
        assert_eq!(queue.waiting(), 1);
        assert_eq!(times(queue.take(usize::MAX, || 70)), [60]);
    }

    #[test]
    fn a_reply_says_what_was_executed_whatever_was_dropped_before() {
        let switch = Switch::default();
        let mut queue = begin(&switch, 1, ALL);
        let facts = CallFacts { operation: OperationId::of(100_003, 3, 6), ..CallFacts::default() };
        let reply = ReplyBuffer { bytes: vec![1; 30], ..ReplyBuffer::default() };
        for _ in 0..RING_MESSAGES + 3 {
            switch.received(Place::Pool(0), &peer(1), 0, &[0; 30]);
        }
        let spent = CapturedTimes::default();
        switch.replied(Place::Elsewhere, &peer(1), 1, &reply, (spent, &facts));
        switch.repeated(&peer(1), 2, &reply.bytes);
        let taken = queue.take(usize::MAX, || u64::MAX);
        let told: Vec<_> =
            taken.iter().filter(|one| one.is_sent).map(|one| one.operation).collect();
        assert_eq!((queue.dropped(), told), (3, vec![Some(facts.operation), None]));
    }

    #[test]
    fn only_clients_that_are_asked_for_are_captured() {
        let switch = Switch::default();
        assert!(!switch.wants().is_any() && !switch.has_client(&peer(1)));
        let client = Some(network("192.0.2.1", 32));
        let options = CaptureOptions { client, with_contents: true, ..ALL };
        let mut queue = begin(&switch, 1, options);
        assert!(switch.wants().is_any() && switch.wants().are_contents());
        assert!(switch.has_client(&peer(1)) && !switch.has_client(&peer(2)));
        for last in [1, 2] {
            switch.received(Place::Pool(0), &peer(last), 0, &[last]);
            switch.repeated(&peer(last), 1, &[last]);
        }
        let taken = queue.take(usize::MAX, || u64::MAX);
        let found: Vec<_> = taken.iter().map(|one| (one.peer, one.is_repeat)).collect();
        assert_eq!(found, [(peer(1).address, false), (peer(1).address, true)]);
    }

    #[test]
    fn one_capture_follows_another_while_messages_come() {
        let switch = Switch::default();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for last in 1..3 {
                let (switch, is_over) = (&switch, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        if switch.wants().is_any() {
                            switch.received(Place::Pool(0), &peer(last), 0, &[last; 100]);
                        }
                    }
                });
            }
            for kept in 1..200 {
                let options = CaptureOptions { message_bytes_max: kept.min(100), ..ALL };
                let mut queue = begin(&switch, 1, options);
                assert_eq!(switch.begin(1, ALL).err(), Some(CaptureRuns));
                let mut taken = queue.take(usize::MAX, || u64::MAX);
                while taken.is_empty() {
                    taken = queue.take(usize::MAX, || u64::MAX);
                }
                assert!(taken.iter().all(|one| one.bytes.len() == kept.min(100)));
                switch.end();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
