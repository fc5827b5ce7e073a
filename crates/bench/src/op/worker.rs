//! One client thread: its connections, an epoll, and the closed loop.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use steadfast_sys::epoll::{Epoll, Events, Interest};

use super::script::{Judged, Script, Slot};
use super::tree::{CALL_TIMEOUT, Tree};
use super::{BenchError, Load, Progress};
use crate::records::{Arrival, Inbox, Outbox};
use crate::replies::LongData;

/// How much one receive takes at most: large enough for all replies of a batch, small enough to
/// stay in the CPU's cache.
const RECEIVE_BYTES: usize = 256 << 10;
/// How long a thread sleeps at most before it looks whether it should stop.
const TICK: Duration = Duration::from_millis(20);

/// What one thread, or all, counted while it was measured.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Latencies in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Turns that each slot has ended, warm-up included.
    pub(crate) turns: Vec<u64>,
    /// Replies in all, warm-up included, all checked.
    pub(crate) replies: u64,
    pub(crate) promises: super::script::Promises,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            latencies: Histogram::new_with_bounds(1, 120_000_000_000, 3)
                .unwrap_or_else(|_| unreachable!("the bounds are constants and valid")),
            turns: Vec::new(),
            replies: 0,
            promises: super::script::Promises::default(),
        }
    }

    /// Adds another thread's.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.latencies.add(&other.latencies);
        if self.turns.len() < other.turns.len() {
            self.turns.resize(other.turns.len(), 0);
        }
        for (all, own) in self.turns.iter_mut().zip(&other.turns) {
            *all += own;
        }
        self.replies += other.replies;
        for (all, own) in self.promises.committed.iter_mut().zip(other.promises.committed) {
            *all += own;
        }
        self.promises.verifier_changes += other.promises.verifier_changes;
        self.promises.sampled_data += other.promises.sampled_data;
        self.promises.try_later += other.promises.try_later;
    }
}

struct Connection {
    socket: TcpStream,
    out: Outbox,
    inbox: Inbox,
    /// The long READ whose data is coming, and its slot.
    long: Option<(usize, LongData)>,
    /// How many bytes are to be there before this thread is woken.
    low_water: u32,
}

impl Connection {
    /// Asks to be woken for a bufferful of a long reply, or its end, not for every segment: what
    /// waking costs falls on whoever sends, and would be measured as the server's.
    fn adjust_low_water(&mut self) -> io::Result<()> {
        let wanted = self.inbox.expected().clamp(1, RECEIVE_BYTES) as u32;
        if wanted != self.low_water {
            steadfast_sys::net::set_receive_low_water(&self.socket, wanted)?;
            self.low_water = wanted;
        }
        Ok(())
    }
}

pub(crate) struct Worker {
    script: Script,
    connections: Vec<Connection>,
    slots: Vec<Slot>,
    first_slot: usize,
    all_slots: usize,
    epoll: Epoll,
    clock: Instant,
    next_turn_of_xid: u32,
    tally: Tally,
    /// Slots with a call in flight.
    in_flight: usize,
}

/// Which connections belong to a thread.
fn share(load: &Load, thread: usize) -> std::ops::Range<usize> {
    load.connections * thread / load.threads..load.connections * (thread + 1) / load.threads
}

impl Worker {
    /// Connects this thread's share of the connections.
    pub(crate) fn connect(
        load: &Load,
        tree: &Arc<Tree>,
        thread: usize,
    ) -> Result<Self, BenchError> {
        let own = share(load, thread);
        let epoll = Epoll::new()?;
        let mut connections = Vec::with_capacity(own.len());
        for index in 0..own.len() {
            let socket = TcpStream::connect(load.server)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            epoll.add(&socket, index as u64, Interest::StreamEdges)?;
            let (out, inbox) = (Outbox::default(), Inbox::default());
            connections.push(Connection { socket, out, inbox, long: None, low_water: 1 });
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Self {
            script: Script::new(load, tree, thread),
            slots: vec![Slot::default(); own.len() * load.depth],
            first_slot: own.start * load.depth,
            all_slots: load.connections * load.depth,
            connections,
            epoll,
            clock: Instant::now(),
            // Another run's calls must not look like repetitions to the server's duplicate
            // request cache.
            next_turn_of_xid: now.map_or(0, |now| now.subsec_nanos() >> 8),
            tally: Tally::new(),
            in_flight: 0,
        })
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// The least power of two above all slots' numbers.
    fn xid_step(&self) -> u32 {
        self.all_slots.next_power_of_two() as u32
    }

    /// An xid whose low bits are the slot's number among all.
    fn xid(&mut self, own_slot: usize) -> u32 {
        self.next_turn_of_xid = self.next_turn_of_xid.wrapping_add(1);
        self.next_turn_of_xid.wrapping_mul(self.xid_step()) | (self.first_slot + own_slot) as u32
    }

    /// Keeps the loop going until it is told to stop, then waits for what is in flight.
    pub(crate) fn run(mut self, progress: &Progress) -> Result<Tally, BenchError> {
        let depth = self.slots.len() / self.connections.len().max(1);
        for index in 0..self.connections.len() {
            for slot in index * depth..(index + 1) * depth {
                self.start(index, slot);
            }
            self.flush(index)?;
        }
        let mut events = Events::with_capacity(self.connections.len() + 1);
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut ready = VecDeque::new();
        let (mut heard_at, mut is_stopping) = (Instant::now(), false);
        while self.in_flight > 0 {
            let patience = if ready.is_empty() { TICK } else { Duration::ZERO };
            self.epoll.wait(&mut events, Some(patience))?;
            if !is_stopping && progress.is_stopping() {
                is_stopping = true;
                heard_at = Instant::now();
            }
            let is_measuring = progress.is_measuring();
            let mut was_heard = false;
            for event in events.iter() {
                was_heard = true;
                let index = event.token as usize;
                if event.is_writable {
                    self.flush(index)?;
                }
                if event.is_readable || event.is_hung_up {
                    ready.push_back(index);
                }
            }
            // One buffer a connection a turn: a server that answers as fast as one connection is
            // read must not keep the others waiting.
            for _turn in 0..ready.len() {
                was_heard = true;
                if let Some(index) = ready.pop_front()
                    && self.receive(index, &mut buffer, is_measuring, is_stopping, progress)?
                {
                    ready.push_back(index);
                }
            }
            if was_heard {
                heard_at = Instant::now();
            } else if heard_at.elapsed() > CALL_TIMEOUT {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        self.tally.turns = vec![0; self.all_slots];
        for (all, own) in self.tally.turns.iter_mut().skip(self.first_slot).zip(&self.slots) {
            *all = own.turns;
        }
        self.tally.promises = self.script.promises;
        Ok(self.tally)
    }

    /// Starts a slot's next call.
    fn start(&mut self, connection: usize, own_slot: usize) -> bool {
        let xid = self.xid(own_slot);
        let sent_ns = self.now_ns();
        let (Some(slot), Some(connection)) =
            (self.slots.get_mut(own_slot), self.connections.get_mut(connection))
        else {
            return false;
        };
        slot.xid = xid;
        slot.sent_ns = sent_ns;
        let started = self.script.call(self.first_slot + own_slot, slot, &mut connection.out);
        self.in_flight += usize::from(started);
        started
    }

    fn flush(&mut self, index: usize) -> Result<(), BenchError> {
        if let Some(connection) = self.connections.get_mut(index) {
            connection.out.flush(&connection.socket)?;
        }
        Ok(())
    }

    /// Receives once and answers the replies that came with further calls; true when there may
    /// be more to receive.
    fn receive(
        &mut self,
        index: usize,
        buffer: &mut [u8],
        is_measuring: bool,
        is_stopping: bool,
        progress: &Progress,
    ) -> Result<bool, BenchError> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(false) };
        let carried = connection.inbox.restore(buffer);
        let room = buffer.get_mut(carried..).unwrap_or(&mut []);
        let space = room.len();
        let outcome = steadfast_sys::net::receive(&connection.socket, &mut [IoSliceMut::new(room)]);
        let (count, may_have_more) = match outcome {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => (count, count == space),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, true),
            Err(error) => return Err(error.into()),
        };
        let now_ns = self.now_ns();
        let batch = Batch { index, now_ns, is_measuring, is_stopping };
        let bytes = buffer.get(..carried + count).unwrap_or(&[]);
        if self.digest(&batch, bytes)? {
            progress.finish();
        }
        self.flush(index)?;
        if !may_have_more && let Some(connection) = self.connections.get_mut(index) {
            connection.adjust_low_water()?;
        }
        Ok(may_have_more)
    }

    /// Judges replies and starts the next calls; true when a slot has none left.
    fn digest(&mut self, batch: &Batch, bytes: &[u8]) -> Result<bool, BenchError> {
        let Some(connection) = self.connections.get_mut(batch.index) else { return Ok(false) };
        let mut inbox = std::mem::take(&mut connection.inbox);
        let mut has_run_out = false;
        let outcome = inbox.feed(bytes, |arrival| {
            match arrival {
                Arrival::Record(message) => {
                    let own_slot = self.slot_of(message)?;
                    let Some(slot) = self.slots.get_mut(own_slot) else { return Ok(()) };
                    let judged = self.script.judge(slot, message)?;
                    let is_good = matches!(judged, Judged::Good);
                    has_run_out |= !self.answered(batch, own_slot, is_good);
                }
                Arrival::Head(head, bytes) => {
                    let own_slot = self.slot_of(head)?;
                    let Some(slot) = self.slots.get(own_slot) else { return Ok(()) };
                    let long = self.script.judge_head(slot, head, bytes)?;
                    if let Some(connection) = self.connections.get_mut(batch.index) {
                        connection.long = Some((own_slot, long));
                    }
                }
                Arrival::Piece(at, piece) => {
                    let connection = self.connections.get(batch.index);
                    if let Some((_, long)) = connection.and_then(|one| one.long)
                        && !long.matches(at, piece)
                    {
                        return Err(BenchError::Broken {
                            operation: "read".to_owned(),
                            what: "READ returned other data than was written".to_owned(),
                        });
                    }
                }
                Arrival::End => {
                    let connection = self.connections.get_mut(batch.index);
                    if let Some((own_slot, _)) = connection.and_then(|one| one.long.take()) {
                        if let Some(slot) = self.slots.get_mut(own_slot) {
                            slot.turns += 1;
                        }
                        has_run_out |= !self.answered(batch, own_slot, true);
                    }
                }
            }
            Ok::<_, BenchError>(())
        });
        if let Some(connection) = self.connections.get_mut(batch.index) {
            connection.inbox = inbox;
        }
        outcome.map(|()| has_run_out)
    }

    /// The slot whose call a reply answers.
    fn slot_of(&self, message: &[u8]) -> Result<usize, BenchError> {
        let stray =
            || io::Error::other("a reply to a call that was not made, or a second one to the same");
        let xid = message.first_chunk::<4>().map_or(0, |xid| u32::from_be_bytes(*xid));
        let own_slot =
            ((xid % self.xid_step()) as usize).checked_sub(self.first_slot).ok_or_else(stray)?;
        match self.slots.get(own_slot) {
            Some(slot) if slot.xid == xid => Ok(own_slot),
            _ => Err(stray().into()),
        }
    }

    /// Counts a reply and starts the slot's next call; false when there is none.
    fn answered(&mut self, batch: &Batch, own_slot: usize, is_good: bool) -> bool {
        self.in_flight -= 1;
        self.tally.replies += 1;
        if is_good
            && batch.is_measuring
            && let Some(slot) = self.slots.get(own_slot)
        {
            self.tally.latencies.saturating_record(batch.now_ns.saturating_sub(slot.sent_ns));
        }
        if let Some(slot) = self.slots.get_mut(own_slot) {
            // No second reply to this call can be taken for the next one's.
            slot.xid = !slot.xid;
        }
        batch.is_stopping || self.start(batch.index, own_slot)
    }
}

/// What a batch of received bytes has in common.
struct Batch {
    index: usize,
    now_ns: u64,
    is_measuring: bool,
    is_stopping: bool,
}
