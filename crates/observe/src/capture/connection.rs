//! The conversations of two endpoints, and the calls in them that wait for replies.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::counts::Counts;
use super::handle::{Handle, Names};
use super::messages::{self, Call, Protection, Status, User};
use super::programs::{self, OperationKey};
use super::record::{Framing, Record, RecordSink, Times};
use super::stream::{Next, Placement, Segment, Stream};

/// For how long a reply is waited for.
pub const REPLY_WAIT_NS: u64 = 60_000_000_000;
/// Calls that wait at a time, of all connections.
pub(crate) const WAITING_MAX: u64 = 1 << 18;
/// Bytes that these calls take: one COMPOUND may have hundreds of names.
const WAITING_BYTES_MAX: u64 = 256 << 20;
/// Bytes of incomplete records and early segments, of all connections.
pub(crate) const KEPT_BYTES_MAX: usize = 256 << 20;
/// Calls of either endpoint of a connection whose replies were seen, and that are remembered: a client whose reply was
/// lost behind the place of the capture sends its call again.
const ANSWERED_MAX: usize = 64;
/// For how long an interface has to be silent before another one may show the packets of a connection.
const INTERFACE_SILENCE_NS: u64 = 1_000_000_000;
/// Segments that look like TLS before a connection without one record is taken for such.
const TLS_HINTS: u32 = 3;

/// One operation that was seen: a call, or one operation of a COMPOUND.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// When the call began, in ns since 1970.
    pub time_ns: u64,
    /// Which operation. Those inside a COMPOUND come before it, and [`OperationKey::is_part`] tells them.
    pub key: OperationKey,
    /// The NFS client; also of a callback, which it answers.
    pub client: SocketAddr,
    /// The NFS server.
    pub server: SocketAddr,
    /// On whose behalf.
    pub user: User,
    /// The object it works on; of a COMPOUND the first one.
    pub handle: Option<Handle>,
    /// The name in its arguments.
    pub name: Option<&'a [u8]>,
    /// Bytes of file data that were read; of a COMPOUND the sum of its operations.
    pub read_bytes: u64,
    /// Bytes of file data that were written.
    pub written_bytes: u64,
    /// From the first packet of the call to the last packet of the reply, in ns. Operations of a COMPOUND
    /// have that of the whole. `None` if there was no reply.
    pub latency_ns: Option<u64>,
    /// How it ended.
    pub status: Status,
    /// How often the call was sent again; 1 more if its reply had been seen before it came.
    pub retransmissions: u32,
    /// Whether a reply was waited for in vain.
    pub is_unanswered: bool,
}

/// Who wants to know of calls.
pub trait Observer {
    /// An operation is over.
    fn observe(&mut self, observed: &Observed<'_>);
}

impl<F: FnMut(&Observed<'_>)> Observer for F {
    fn observe(&mut self, observed: &Observed<'_>) {
        self(observed);
    }
}

/// A call that waits for its reply.
#[derive(Debug)]
struct Waiting {
    call: Call,
    begun_ns: u64,
    retransmissions: u32,
}

impl Waiting {
    fn kept_bytes(&self) -> u64 {
        (size_of::<(u32, Self)>() + self.call.kept_bytes()) as u64
    }
}

/// A call whose reply was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    xid: u32,
    program: u32,
    number: u32,
}

/// One direction of a connection.
#[derive(Debug)]
struct Direction {
    stream: Stream,
    framing: Framing,
    /// Where its packets are seen, and when the last one was.
    interface: u32,
    last_ns: u64,
}

impl Direction {
    fn new() -> Self {
        Self {
            stream: Stream::default(),
            framing: Framing::in_the_middle(),
            interface: 0,
            last_ns: 0,
        }
    }

    fn kept_bytes(&self) -> usize {
        self.stream.early_bytes() + self.framing.kept_bytes()
    }
}

/// What all connections share.
pub(crate) struct Shared<'a> {
    pub(crate) counts: &'a mut Counts,
    pub(crate) names: &'a mut Names,
    pub(crate) kept_bytes: &'a mut usize,
    pub(crate) ports: &'a mut Vec<u16>,
    pub(crate) observer: &'a mut dyn Observer,
}

/// A conversation of two endpoints by TCP or UDP.
#[derive(Debug)]
pub(crate) struct Connection {
    endpoints: [SocketAddr; 2],
    directions: [Direction; 2],
    /// Calls of either endpoint that wait, by their xid.
    waiting: [HashMap<u32, Waiting>; 2],
    /// Of either endpoint, the last ones that were answered.
    answered: [VecDeque<Answered>; 2],
    is_tls: bool,
    tls_hints: u32,
    has_records: bool,
    pub(crate) last_ns: u64,
}

impl Connection {
    pub(crate) fn new(endpoints: [SocketAddr; 2]) -> Self {
        Self {
            endpoints,
            directions: [Direction::new(), Direction::new()],
            waiting: [HashMap::new(), HashMap::new()],
            answered: [VecDeque::new(), VecDeque::new()],
            is_tls: false,
            tls_hints: 0,
            has_records: false,
            last_ns: 0,
        }
    }

    /// Bytes that are kept for it.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.directions.iter().map(Direction::kept_bytes).sum()
    }

    /// Takes its calls that wait out of the counts, as it is forgotten.
    pub(crate) fn uncount_calls(&self, counts: &mut Counts) {
        for waiting in self.waiting.iter().flat_map(HashMap::values) {
            uncount(counts, waiting);
        }
    }

    /// Whether a packet is one that was seen already, at another interface.
    pub(crate) fn is_copy(&mut self, from: usize, interface: u32, now_ns: u64) -> bool {
        self.last_ns = now_ns;
        let Some(direction) = self.directions.get_mut(from) else { return false };
        if interface != 0 && interface != direction.interface {
            let silence_ns = now_ns.saturating_sub(direction.last_ns);
            if direction.interface != 0 && silence_ns < INTERFACE_SILENCE_NS {
                return true;
            }
            direction.interface = interface;
        }
        direction.last_ns = now_ns;
        false
    }

    /// A datagram of UDP: one message.
    pub(crate) fn handle_datagram(
        &mut self,
        from: usize,
        bytes: &[u8],
        now_ns: u64,
        shared: &mut Shared<'_>,
    ) {
        let (mut sink, _) = self.split(from, shared);
        sink.handle_record(&Record { bytes, begun_ns: now_ns, ended_ns: now_ns });
    }

    /// A segment of TCP; `acknowledged` is what its sender has of the other direction.
    pub(crate) fn handle_segment(
        &mut self,
        from: usize,
        segment: &Segment<'_>,
        acknowledged: Option<u32>,
        shared: &mut Shared<'_>,
    ) {
        if self.is_tls && !segment.is_syn {
            shared.counts.tls_packets += 1;
            return;
        }
        let before = self.kept_bytes();
        self.place(from, segment, shared);
        self.drain(from, segment.time_ns, shared);
        if let Some(acknowledged) = acknowledged {
            let other = 1 - from;
            if let Some(direction) = self.directions.get_mut(other)
                && direction.stream.early_bytes() > 0
            {
                direction.stream.handle_acknowledged(acknowledged, segment.time_ns);
                self.drain(other, segment.time_ns, shared);
            }
        }
        *shared.kept_bytes = (*shared.kept_bytes + self.kept_bytes()).saturating_sub(before);
        if *shared.kept_bytes > KEPT_BYTES_MAX {
            self.let_go(shared);
        }
    }

    /// The connection was reset.
    pub(crate) fn handle_reset(&mut self, kept_bytes: &mut usize) {
        *kept_bytes = kept_bytes.saturating_sub(self.kept_bytes());
        for direction in &mut self.directions {
            direction.stream = Stream::default();
            direction.framing = Framing::in_the_middle();
        }
        self.is_tls = false;
        self.tls_hints = 0;
        self.has_records = false;
    }

    /// Forgets calls that wait since before this time.
    pub(crate) fn forget_calls(&mut self, before_ns: u64, shared: &mut Shared<'_>) {
        for from in [0, 1] {
            let Some(calls) = self.waiting.get_mut(from) else { continue };
            if calls.is_empty() {
                continue;
            }
            let old: Vec<u32> = calls
                .iter()
                .filter(|(_, waiting)| waiting.begun_ns < before_ns)
                .map(|(xid, _)| *xid)
                .collect();
            for xid in old {
                let (mut sink, _) = self.split(from, shared);
                sink.give_up(xid);
            }
        }
    }

    /// Gives up what is incomplete, to save memory.
    pub(crate) fn let_go(&mut self, shared: &mut Shared<'_>) {
        let before = self.kept_bytes();
        for direction in &mut self.directions {
            direction.framing.let_go();
            direction.stream.drop_early();
        }
        shared.counts.given_up += 1;
        *shared.kept_bytes = (*shared.kept_bytes + self.kept_bytes()).saturating_sub(before);
    }

    fn split<'c>(
        &'c mut self,
        from: usize,
        shared: &'c mut Shared<'_>,
    ) -> (CallSink<'c>, &'c mut [Direction; 2]) {
        let sink = CallSink {
            from,
            endpoints: self.endpoints,
            waiting: &mut self.waiting,
            answered: &mut self.answered,
            is_tls: &mut self.is_tls,
            tls_hints: &mut self.tls_hints,
            has_records: &mut self.has_records,
            counts: &mut *shared.counts,
            names: &mut *shared.names,
            ports: &mut *shared.ports,
            observer: &mut *shared.observer,
        };
        (sink, &mut self.directions)
    }

    /// Uses a segment if it is its turn.
    fn place(&mut self, from: usize, segment: &Segment<'_>, shared: &mut Shared<'_>) {
        let (mut sink, directions) = self.split(from, shared);
        let Some(direction) = directions.get_mut(from) else { return };
        let was_unseen = direction.stream.is_unseen();
        let mut bytes = segment.payload;
        let mut missing = segment.missing;
        match direction.stream.handle(segment) {
            Placement::Begin => {
                direction.framing = Framing::at_begin();
                *sink.is_tls = false;
                *sink.tls_hints = 0;
                *sink.has_records = false;
                return;
            }
            Placement::Old => {
                sink.counts.repeated_segments += u64::from(!bytes.is_empty());
                return;
            }
            Placement::Early => return,
            Placement::Now { skip } => {
                let there = (skip as usize).min(bytes.len());
                bytes = bytes.get(there..).unwrap_or_default();
                missing -= skip - there as u32;
            }
            Placement::Elsewhere => {
                direction.framing = Framing::in_the_middle();
                if !was_unseen {
                    sink.counts.gaps += 1;
                    sink.handle_lost_place();
                }
            }
        }
        use_bytes(direction, bytes, missing, Times::at(segment.time_ns), &mut sink);
    }

    /// Uses what had waited for it.
    fn drain(&mut self, from: usize, now_ns: u64, shared: &mut Shared<'_>) {
        let (mut sink, directions) = self.split(from, shared);
        let Some(direction) = directions.get_mut(from) else { return };
        // What was missing came now, unless it is given up.
        let mut ready_ns = now_ns;
        while let Some(next) = direction.stream.poll_next(now_ns) {
            match next {
                Next::Gap(length) => {
                    ready_ns = 0;
                    sink.counts.gaps += 1;
                    sink.counts.gap_bytes += u64::from(length);
                    direction.framing.handle_gap(length, now_ns, &mut sink);
                }
                Next::Segment(early) => {
                    ready_ns = ready_ns.max(early.time_ns);
                    let times = Times { seen_ns: early.time_ns, ready_ns };
                    use_bytes(direction, &early.payload, early.missing, times, &mut sink);
                }
            }
        }
    }
}

fn use_bytes(
    direction: &mut Direction,
    bytes: &[u8],
    missing: u32,
    times: Times,
    sink: &mut CallSink<'_>,
) {
    direction.framing.handle(bytes, times, sink);
    // A capture that cuts packets is no loss: what is at their beginning is what counts.
    direction.framing.handle_gap(missing, times.ready_ns, sink);
}

/// Makes calls of messages.
struct CallSink<'a> {
    from: usize,
    endpoints: [SocketAddr; 2],
    waiting: &'a mut [HashMap<u32, Waiting>; 2],
    answered: &'a mut [VecDeque<Answered>; 2],
    is_tls: &'a mut bool,
    tls_hints: &'a mut u32,
    has_records: &'a mut bool,
    counts: &'a mut Counts,
    names: &'a mut Names,
    ports: &'a mut Vec<u16>,
    observer: &'a mut dyn Observer,
}

/// A call waits no longer.
fn uncount(counts: &mut Counts, waiting: &Waiting) {
    counts.waiting = counts.waiting.saturating_sub(1);
    counts.waiting_bytes = counts.waiting_bytes.saturating_sub(waiting.kept_bytes());
}

/// Whether it is the server that calls: callbacks, GRANTED of NLM and its answers by calls.
fn is_by_server(key: &OperationKey) -> bool {
    programs::is_callback(key.program, key.version)
        || key.program == steadfast_wire::nlm::PROGRAM && matches!(key.number, 5 | 10..=14)
}

/// Whether nobody answers: the messages of NLM, whose answers are calls.
fn is_one_way(key: &OperationKey) -> bool {
    key.program == steadfast_wire::nlm::PROGRAM && matches!(key.number, 6..=15)
}

impl CallSink<'_> {
    fn calls(&mut self, from: usize) -> Option<&mut HashMap<u32, Waiting>> {
        self.waiting.get_mut(from)
    }

    /// Client and server of a call that this endpoint has made.
    fn sides(&self, from: usize, key: &OperationKey) -> (SocketAddr, SocketAddr) {
        let [first, second] = self.endpoints;
        if (from == 0) == is_by_server(key) { (second, first) } else { (first, second) }
    }

    /// The call as far as it is known without a reply.
    fn observed<'c>(&self, from: usize, waiting: &'c Waiting) -> Observed<'c> {
        let (client, server) = self.sides(from, &waiting.call.key);
        Observed {
            time_ns: waiting.begun_ns,
            key: waiting.call.key,
            client,
            server,
            user: waiting.call.user,
            handle: waiting.call.handle(),
            name: waiting.call.name(),
            read_bytes: 0,
            written_bytes: 0,
            latency_ns: None,
            status: Status::Unknown,
            retransmissions: waiting.retransmissions,
            is_unanswered: false,
        }
    }

    fn give_up(&mut self, xid: u32) {
        let from = self.from;
        let Some(waiting) = self.calls(from).and_then(|calls| calls.remove(&xid)) else { return };
        uncount(self.counts, &waiting);
        self.counts.unanswered += 1;
        let observed = Observed { is_unanswered: true, ..self.observed(from, &waiting) };
        self.observer.observe(&observed);
    }

    fn handle_call(&mut self, record: &Record<'_>) {
        let Some((xid, call)) = messages::call(record.bytes, self.names) else {
            self.counts.unreadable_messages += 1;
            return;
        };
        self.ports.extend(call.port());
        let from = self.from;
        let key = call.key;
        if let Some(there) = self.calls(from).and_then(|calls| calls.get_mut(&xid)) {
            if there.call.key == key {
                // The first call's time stays: this is how long the client has waited.
                there.retransmissions += 1;
                self.counts.retransmissions += 1;
                return;
            }
            self.give_up(xid);
        }
        self.counts.encrypted_calls += u64::from(call.protection == Protection::Privacy);
        let answered = Answered { xid, program: key.program, number: key.number };
        let is_again = self.answered.get(from).is_some_and(|known| known.contains(&answered));
        self.counts.retransmissions += u64::from(is_again);
        let waiting =
            Waiting { call, begun_ns: record.begun_ns, retransmissions: u32::from(is_again) };
        if is_one_way(&key) {
            let observed = self.observed(from, &waiting);
            return self.observer.observe(&observed);
        }
        let kept_bytes = waiting.kept_bytes();
        let is_full = self.counts.waiting_bytes.saturating_add(kept_bytes) > WAITING_BYTES_MAX;
        if is_full || self.counts.waiting >= WAITING_MAX {
            self.counts.not_followed += 1;
            return;
        }
        if let Some(calls) = self.calls(from) {
            calls.insert(xid, waiting);
            self.counts.waiting += 1;
            self.counts.waiting_bytes += kept_bytes;
        }
    }

    fn handle_reply(&mut self, xid: u32, record: &Record<'_>) {
        let caller = 1 - self.from;
        let Some(waiting) = self.calls(caller).and_then(|calls| calls.remove(&xid)) else {
            self.counts.replies_without_call += 1;
            return;
        };
        uncount(self.counts, &waiting);
        if let Some(known) = self.answered.get_mut(caller) {
            if known.len() >= ANSWERED_MAX {
                known.pop_front();
            }
            let key = &waiting.call.key;
            known.push_back(Answered { xid, program: key.program, number: key.number });
        }
        let latency_ns = record.ended_ns.saturating_sub(waiting.begun_ns);
        let whole = Observed { latency_ns: Some(latency_ns), ..self.observed(caller, &waiting) };
        let observer = &mut *self.observer;
        let outcome = messages::reply(record.bytes, &waiting.call, self.names, &mut |part| {
            let key = OperationKey { is_part: true, number: part.number, ..whole.key };
            observer.observe(&Observed {
                key,
                handle: part.handle,
                name: part.name,
                read_bytes: part.read_bytes,
                written_bytes: part.written_bytes,
                status: if part.status == 0 { Status::Ok } else { Status::Failed(part.status) },
                retransmissions: 0,
                ..whole
            });
        });
        let outcome = outcome.unwrap_or_default();
        self.counts.partial_compounds += u64::from(outcome.is_partial);
        self.ports.extend(&outcome.ports);
        observer.observe(&Observed {
            read_bytes: outcome.read_bytes,
            written_bytes: outcome.written_bytes,
            status: outcome.status.unwrap_or(Status::Unknown),
            ..whole
        });
    }
}

impl RecordSink for CallSink<'_> {
    fn is_awaited(&self, xid: u32) -> bool {
        self.waiting.get(1 - self.from).is_some_and(|calls| calls.contains_key(&xid))
    }

    fn handle_record(&mut self, record: &Record<'_>) {
        self.counts.messages += 1;
        *self.has_records = true;
        let word =
            |at: usize| record.bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
        match (word(0), word(4)) {
            (Some(_), Some(0)) => self.handle_call(record),
            (Some(xid), Some(1)) => self.handle_reply(xid, record),
            _ => self.counts.unreadable_messages += 1,
        }
    }

    fn handle_lost_place(&mut self) {
        self.counts.searches += 1;
    }

    fn handle_tls(&mut self, is_certain: bool) {
        *self.tls_hints += 1;
        if !*self.is_tls && (is_certain || !*self.has_records && *self.tls_hints >= TLS_HINTS) {
            *self.is_tls = true;
            self.counts.tls_connections += 1;
        }
    }
}
