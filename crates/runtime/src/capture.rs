//! Copies of messages as they were read and written, for who captures them.
//!
//! A message is an RPC record, after whatever transport brought it: what a client of the network's sees of it does
//! not matter. Nobody who serves calls waits for a capture. While there is none, a message costs one relaxed load
//! ([`Switch::wants`]). While there is one, it is copied into the *ring* of its pool, a bounded queue without locks;
//! threads that belong to no pool have a ring of their own. What a ring has no room for is dropped, and counted.
//!
//! A server has one capture at a time: two would each slow down the calls, and take the memory twice.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use arc_swap::ArcSwapOption;
use steadfast_engine::{Peer, ReplyBuffer, Transport};

use crate::shared::Shared;
use crate::statistics::Executed;

/// Messages that wait in a ring.
const RING_MESSAGES: usize = 8192;
/// Bytes of such messages that wait in a ring.
const RING_BYTES: usize = 16 << 20;

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
    /// Of a reply: what its call's time was spent on.
    pub spent: Option<CapturedTimes>,
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
    /// From when it came to where it might wait; 0 if it did not.
    pub waited_ns: u64,
    /// From the end of the execution until what was promised was stable.
    pub stable_ns: u64,
    /// Whether it repeats a call that was known.
    pub is_repeat: bool,
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
    rings: Vec<Ring>,
}

#[derive(Debug)]
struct Ring {
    sender: SyncSender<CapturedMessage>,
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// What becomes of a call's messages: looked at once a message.
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

impl Switch {
    /// The one look at a message.
    #[inline]
    pub(crate) fn wants(&self) -> Wanted {
        Wanted(self.state.load(Ordering::Relaxed))
    }

    /// A message that was received; `time_ns` by the stamps' clock.
    #[cold]
    pub(crate) fn received(&self, place: Place, peer: &Peer, time_ns: u64, message: &[u8]) {
        self.note(place, peer, None, |options| CapturedMessage {
            time_ns,
            bytes: start_of(message, options),
            ..blank(peer, false, message.len())
        });
    }

    /// A reply that is about to be sent, of a call that was executed by this thread or another.
    #[cold]
    pub(crate) fn replied(
        &self,
        place: Place,
        peer: &Peer,
        time_ns: u64,
        reply: &ReplyBuffer,
        spent: CapturedTimes,
    ) {
        // Behind the first range of a file nothing stands where it will be.
        let first = reply.files.first().map_or(reply.bytes.len(), |(at, _)| *at);
        let known = reply.bytes.get(..first).unwrap_or(&reply.bytes);
        self.note(place, peer, Some(spent), |options| CapturedMessage {
            time_ns,
            bytes: start_of(known, options),
            ..blank(peer, true, reply.length())
        });
    }

    /// A message that is about to be sent otherwise.
    #[cold]
    pub(crate) fn sent(&self, peer: &Peer, time_ns: u64, message: &[u8]) {
        self.note(Place::Elsewhere, peer, None, |options| CapturedMessage {
            time_ns,
            bytes: start_of(message, options),
            ..blank(peer, true, message.len())
        });
    }

    fn note(
        &self,
        place: Place,
        peer: &Peer,
        spent: Option<CapturedTimes>,
        copy: impl FnOnce(&CaptureOptions) -> CapturedMessage,
    ) {
        let active = self.active.load();
        let Some(active) = active.as_deref() else { return };
        let client = active.options.client;
        if client.is_some_and(|network| !is_in(peer.address.ip(), network)) {
            return;
        }
        let ring = match place {
            Place::Pool(index) => active.rings.get(index),
            Place::Elsewhere => active.rings.last(),
        };
        let Some(ring) = ring else { return };
        if ring.bytes.load(Ordering::Relaxed) >= RING_BYTES {
            ring.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        ring.push(CapturedMessage { spent, ..copy(&active.options) });
    }
}

impl Ring {
    fn push(&self, message: CapturedMessage) {
        let bytes = message.bytes.len();
        // Before it is there, since who takes it subtracts.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.sender.try_send(message) {
            // Or the capture has ended.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn blank(peer: &Peer, is_sent: bool, length: usize) -> CapturedMessage {
    CapturedMessage {
        time_ns: 0,
        peer: peer.address,
        local: peer.local,
        is_datagram: peer.transport == Transport::Udp,
        is_sent,
        spent: None,
        length,
        bytes: Box::default(),
    }
}

fn start_of(message: &[u8], options: &CaptureOptions) -> Box<[u8]> {
    message.get(..options.message_bytes_max).unwrap_or(message).into()
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
            is_repeat: executed.facts.is_repeat,
        }
    }
}

/// A capture. It ends when it is dropped.
pub struct Capture {
    shared: Arc<Shared>,
    active: Arc<Active>,
    messages: Vec<Receiver<CapturedMessage>>,
    /// Taken out of rings, and perhaps later than others that are not taken out yet.
    held: Vec<CapturedMessage>,
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
        let switch = &shared.capture;
        if switch.is_taken.swap(true, Ordering::AcqRel) {
            return Err(CaptureRuns);
        }
        let (rings, messages) = (0..=pools)
            .map(|_| {
                let (sender, receiver) = sync_channel(RING_MESSAGES);
                (Ring { sender, bytes: AtomicUsize::new(0), dropped: AtomicU64::new(0) }, receiver)
            })
            .unzip();
        let active = Arc::new(Active { options, rings });
        switch.active.store(Some(Arc::clone(&active)));
        let contents = if options.with_contents { WITH_CONTENTS } else { 0 };
        switch.state.store(ON | contents, Ordering::Release);
        let shared = Arc::clone(shared);
        Ok(Self { shared, active, messages, held: Vec::new(), start_unix_ns })
    }

    /// What was captured since the last time, in the order of time: a call is never behind its reply. At most what
    /// all rings hold, twice.
    pub fn take(&mut self) -> Vec<CapturedMessage> {
        // Whatever has a time before this, and what led to it, is in a ring by now or was taken. What is later may be
        // a reply whose call is in a ring that was looked at before it.
        let now_ns = self.shared.stamp_ns();
        for (ring, messages) in self.active.rings.iter().zip(&self.messages) {
            for message in messages.try_iter().take(RING_MESSAGES) {
                ring.bytes.fetch_sub(message.bytes.len(), Ordering::Relaxed);
                self.held.push(message);
            }
        }
        self.held.sort_by_key(|message| message.time_ns);
        let count = self.held.partition_point(|message| message.time_ns < now_ns);
        let start = self.start_unix_ns;
        let of_unix = |message: CapturedMessage| CapturedMessage {
            time_ns: start.saturating_add(message.time_ns),
            ..message
        };
        self.held.drain(..count).map(of_unix).collect()
    }

    /// Messages that were dropped so far, since a ring was full.
    pub fn dropped(&self) -> u64 {
        self.active.rings.iter().map(|ring| ring.dropped.load(Ordering::Relaxed)).sum()
    }

    /// Bytes that may wait to be taken, beside what messages need themselves.
    pub fn room_bytes(&self) -> usize {
        self.active.rings.len() * RING_BYTES
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let switch = &self.shared.capture;
        switch.state.store(0, Ordering::Release);
        switch.active.store(None);
        switch.is_taken.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("options", &self.active.options).finish_non_exhaustive()
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

    #[test]
    fn a_ring_drops_what_it_has_no_room_for() {
        let (sender, receiver) = sync_channel(2);
        let ring = Ring { sender, bytes: AtomicUsize::new(0), dropped: AtomicU64::new(0) };
        let address = SocketAddr::from(([192, 0, 2, 1], 700));
        let peer = Peer::new(address, address, Transport::Tcp);
        for _ in 0..5 {
            ring.push(CapturedMessage { bytes: vec![1; 10].into(), ..blank(&peer, false, 10) });
        }
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 3);
        assert_eq!(ring.bytes.load(Ordering::Relaxed), 20);
        assert_eq!(receiver.try_iter().count(), 2);
    }
}
