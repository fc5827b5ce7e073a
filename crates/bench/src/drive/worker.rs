//! One thread: its virtual clients' connections, an epoll, and the loop.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_sys::epoll::{Epoll, Events};

use super::alarm::{self, Alarm};
use super::datagram::{self, Resender};
use super::pace::{Pace, Schedule};
use super::tally::Tally;
use super::{
    CONNECTING, Live, MEASURING, Plan, STOPPING, Script, Shared, Transport, Verdict, sockets,
};
use crate::error::BenchError;
use crate::random::Random;
use crate::records::{Arrival, Inbox, Outbox};
use crate::replies::{LongData, NEVER_WRITTEN};

/// How much one receive takes at most: large enough for all replies of a batch, small enough to
/// stay in the CPU's cache.
const RECEIVE_BYTES: usize = 256 << 10;
/// How long a thread sleeps at most before it looks whether it should stop.
const TICK: Duration = Duration::from_millis(20);
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a lane waits before a call that the server refused for now is made again. Clients wait
/// seconds; here the server is measured, not the wait.
const TRY_LATER_NS: u64 = 50_000_000;
const EVENTS_MAX: usize = 1024;
/// Datagrams that are received from one socket before others have their turn.
const DATAGRAMS_OF_TURN: usize = 16;

/// A virtual client's socket.
enum Link {
    Stream(TcpStream),
    Datagrams(UdpSocket),
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(socket) => socket.as_fd(),
            Self::Datagrams(socket) => socket.as_fd(),
        }
    }
}

/// A virtual client's connection, or what stands for one.
struct Connection {
    link: Link,
    out: Outbox,
    inbox: Inbox,
    /// The lane whose long reply is coming, and what it must hold.
    long: Option<(usize, LongData)>,
    /// How many bytes are to be there before this thread is woken.
    low_water: u32,
    next_xid: u32,
    is_in_ready: bool,
    is_in_dirty: bool,
}

impl Connection {
    /// Asks to be woken for a bufferful of a long reply, or its end, not for every segment: what
    /// waking costs falls on whoever sends, and would be measured as the server's.
    fn adjust_low_water(&mut self) -> io::Result<()> {
        let wanted = self.inbox.expected().clamp(1, RECEIVE_BYTES) as u32;
        if wanted != self.low_water {
            steadfast_sys::net::set_receive_low_water(&self.link, wanted)?;
            self.low_water = wanted;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    xid: u32,
    kind: usize,
    /// On the clock of all threads; of an open loop when it should have been.
    started_ns: u64,
    is_busy: bool,
}

pub(crate) struct Worker<S> {
    script: S,
    shared: Arc<Shared>,
    thread: usize,
    depth: usize,
    epoll: Epoll,
    alarm: Alarm,
    connections: Vec<Connection>,
    lanes: Vec<Lane>,
    /// `None` in a closed loop.
    schedule: Option<Schedule>,
    /// Lanes of an open loop without a call, the one that waits longest first.
    idle: VecDeque<usize>,
    /// Lanes whose call was refused for now, and until when they wait; in that order.
    refused: VecDeque<(u64, usize)>,
    /// Connections with something to send.
    dirty: VecDeque<usize>,
    ready: VecDeque<usize>,
    in_flight: usize,
    /// Of UDP only.
    resender: Option<Resender>,
    tally: Tally,
}

impl<S: Script> Worker<S> {
    /// Connects this thread's virtual clients.
    pub(crate) fn connect(
        plan: &Plan,
        mut script: S,
        thread: usize,
        shared: &Arc<Shared>,
    ) -> Result<Self, BenchError> {
        let clients = plan.clients_of(thread);
        let epoll = Epoll::new()?;
        let (server, first_address) = (plan.server, plan.first_address);
        let links: Vec<Link> = match plan.transport {
            Transport::Tcp => sockets::connect_all(&epoll, server, clients.clone(), first_address)?
                .into_iter()
                .map(Link::Stream)
                .collect(),
            Transport::Udp => sockets::datagrams(&epoll, server, clients.clone(), first_address)?
                .into_iter()
                .map(Link::Datagrams)
                .collect(),
        };
        for (client, link) in links.iter().enumerate() {
            if let Link::Stream(stream) = link {
                script.connected(client, stream)?;
            }
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = now.map_or(0, |now| now.as_nanos() as u64);
        // Where all clients have the same address, a server's duplicate request cache tells them
        // apart by xid: each has its own stretch, which begins elsewhere in every run.
        let (base, stretch) = (Random::new(seed).next() as u32, u32::MAX / plan.clients as u32);
        let connections: Vec<Connection> = links
            .into_iter()
            .zip(clients)
            .map(|(link, client)| Connection {
                link,
                out: Outbox::default(),
                inbox: Inbox::default(),
                long: None,
                low_water: 1,
                next_xid: base.wrapping_add(stretch.wrapping_mul(client as u32)),
                is_in_ready: false,
                is_in_dirty: false,
            })
            .collect();
        let schedule = match plan.pace {
            Pace::Closed => None,
            Pace::Open { calls_per_second, arrivals } => {
                // A thread has its clients' share of the calls.
                let share = connections.len() as f64 / plan.clients as f64;
                let phase = (thread + 1) as f64 / plan.threads as f64;
                Some(Schedule::new(calls_per_second * share, arrivals, phase, seed ^ thread as u64))
            }
        };
        Ok(Self {
            script,
            shared: Arc::clone(shared),
            thread,
            depth: plan.depth,
            alarm: Alarm::new(&epoll)?,
            epoll,
            lanes: vec![Lane::default(); connections.len() * plan.depth],
            connections,
            schedule,
            idle: VecDeque::new(),
            refused: VecDeque::new(),
            dirty: VecDeque::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            resender: (plan.transport == Transport::Udp)
                .then(|| Resender::new(plan.clients_of(thread).len() * plan.depth)),
            tally: Tally::new(plan.kinds),
        })
    }

    fn live(&self) -> Option<&Live> {
        self.shared.threads.get(self.thread)
    }

    fn now_ns(&self) -> u64 {
        self.shared.clock.elapsed().as_nanos() as u64
    }

    /// Keeps the loop going until it is told to stop or nothing is left to do, then waits for
    /// what is in flight.
    pub(crate) fn run(mut self) -> Result<(S, Tally), BenchError> {
        self.shared.connected.fetch_add(1, Ordering::Relaxed);
        while self.shared.phase() == CONNECTING {
            std::thread::sleep(Duration::from_millis(1));
        }
        let now_ns = self.now_ns();
        if let Some(schedule) = &mut self.schedule {
            schedule.begin_at(now_ns);
            // One lane of each client before the second of any.
            let lanes = self.lanes.len();
            self.idle = (0..self.depth).flat_map(|n| (n..lanes).step_by(self.depth)).collect();
        } else if self.shared.phase() != STOPPING {
            for lane in 0..self.lanes.len() {
                self.start(lane, now_ns)?;
            }
        }
        let mut events = Events::with_capacity(self.connections.len().clamp(1, EVENTS_MAX));
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut heard_at = Instant::now();
        self.flush_dirty()?;
        loop {
            let is_stopping = self.shared.phase() == STOPPING;
            if self.in_flight == 0 && (is_stopping || self.has_nothing_left()) {
                return self.finish();
            }
            let patience = self.patience(is_stopping)?;
            self.epoll.wait(&mut events, Some(patience))?;
            let mut was_heard = false;
            for event in events.iter().filter(|event| event.token != alarm::TOKEN) {
                was_heard = true;
                let index = event.token as usize;
                if event.is_writable {
                    self.flush(index)?;
                }
                if event.is_readable || event.is_hung_up {
                    self.make_ready(index);
                }
            }
            // One buffer a connection a turn, so that none keeps the others waiting.
            for _turn in 0..self.ready.len() {
                was_heard = true;
                if let Some(index) = self.ready.pop_front() {
                    if let Some(connection) = self.connections.get_mut(index) {
                        connection.is_in_ready = false;
                    }
                    if self.receive(index, &mut buffer, is_stopping)? {
                        self.make_ready(index);
                    }
                }
            }
            if !is_stopping {
                self.start_due()?;
            }
            self.flush_dirty()?;
            self.send_overdue_again()?;
            if was_heard || self.in_flight == 0 {
                heard_at = Instant::now();
            } else if heard_at.elapsed() > CALL_TIMEOUT {
                return Err(self.silence());
            }
        }
    }

    fn finish(mut self) -> Result<(S, Tally), BenchError> {
        for (client, connection) in self.connections.iter().enumerate() {
            if let Link::Stream(stream) = &connection.link {
                self.script.finished(client, stream)?;
            }
        }
        Ok((self.script, self.tally))
    }

    /// Whom nobody answered.
    fn silence(&self) -> BenchError {
        let lane = self.lanes.iter().position(|lane| lane.is_busy).unwrap_or(0);
        let error = io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no reply within {} s", CALL_TIMEOUT.as_secs()),
        );
        BenchError::Connection { client: lane / self.depth, error }
    }

    /// Whether no lane will ever have another call.
    fn has_nothing_left(&self) -> bool {
        match self.schedule {
            None => self.refused.is_empty(),
            Some(_) => self.idle.is_empty() && self.refused.is_empty(),
        }
    }

    /// How long to wait for something to happen; the alarm is set if it ends before.
    fn patience(&mut self, is_stopping: bool) -> io::Result<Duration> {
        if !self.ready.is_empty() {
            return Ok(Duration::ZERO);
        }
        let mut until = u64::MAX;
        if !is_stopping {
            if let (Some(schedule), false) = (&self.schedule, self.idle.is_empty()) {
                until = schedule.next_ns();
            }
            until = until.min(self.refused.front().map_or(u64::MAX, |(until, _)| *until));
        }
        if until == u64::MAX {
            return Ok(TICK);
        }
        let now_ns = self.now_ns();
        if until <= now_ns {
            return Ok(Duration::ZERO);
        }
        self.alarm.set(until, now_ns)?;
        Ok(TICK)
    }

    fn make_ready(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index)
            && !std::mem::replace(&mut connection.is_in_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    /// Starts the calls whose time has come.
    fn start_due(&mut self) -> Result<(), BenchError> {
        let now_ns = self.now_ns();
        while let Some((until, lane)) = self.refused.front().copied()
            && until <= now_ns
        {
            self.refused.pop_front();
            let started_ns = self.lanes.get(lane).map_or(now_ns, |lane| lane.started_ns);
            self.start(lane, started_ns)?;
        }
        let Some(mut schedule) = self.schedule.take() else { return Ok(()) };
        while let Some(lane) = self.idle.front().copied()
            && let Some(due) = schedule.take_due(now_ns)
        {
            self.idle.pop_front();
            self.start(lane, due)?;
        }
        if let Some(live) = self.live() {
            live.behind_ns.store(now_ns.saturating_sub(schedule.next_ns()), Ordering::Relaxed);
        }
        self.schedule = Some(schedule);
        Ok(())
    }

    /// Starts a lane's next call, if it has one.
    fn start(&mut self, lane: usize, started_ns: u64) -> Result<(), BenchError> {
        let index = lane / self.depth;
        let (Some(slot), Some(connection)) =
            (self.lanes.get_mut(lane), self.connections.get_mut(index))
        else {
            return Ok(());
        };
        // The low bits tell the lane, so that a reply finds it.
        let bits = self.depth.next_power_of_two() as u32;
        connection.next_xid = connection.next_xid.wrapping_add(bits);
        let counter = connection.next_xid / bits * bits + (lane % self.depth) as u32;
        // Sent as Linux sends its own: in the processor's order.
        slot.xid = counter.to_be();
        slot.started_ns = started_ns;
        slot.is_busy = false;
        let Some(kind) = self.script.call(lane, slot.xid, &mut connection.out)? else {
            if self.schedule.is_none() {
                self.shared.has_run_out.store(true, Ordering::Relaxed);
            }
            return Ok(());
        };
        slot.kind = kind;
        slot.is_busy = true;
        self.in_flight += 1;
        if let Some(resender) = &mut self.resender {
            let now_ns = self.shared.clock.elapsed().as_nanos() as u64;
            if let Some(message) = resender.keep(lane, now_ns) {
                connection.out.take_message(message);
                datagram::send(&connection.link, message)
                    .map_err(|error| BenchError::Connection { client: index, error })?;
            }
        } else if !std::mem::replace(&mut connection.is_in_dirty, true) {
            self.dirty.push_back(index);
        }
        Ok(())
    }

    /// Sends calls over UDP again whose replies are overdue.
    fn send_overdue_again(&mut self) -> Result<(), BenchError> {
        if self.resender.is_none() {
            return Ok(());
        }
        let now_ns = self.now_ns();
        let Some(resender) = &mut self.resender else { return Ok(()) };
        while let Some((lane, message)) = resender.next_overdue(now_ns) {
            let index = lane / self.depth;
            if let Some(connection) = self.connections.get(index) {
                self.tally.retransmissions += 1;
                datagram::send(&connection.link, message)
                    .map_err(|error| BenchError::Connection { client: index, error })?;
            }
        }
        Ok(())
    }

    fn flush_dirty(&mut self) -> Result<(), BenchError> {
        while let Some(index) = self.dirty.pop_front() {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.is_in_dirty = false;
            }
            self.flush(index)?;
        }
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<(), BenchError> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        let outcome = connection.out.flush(&connection.link);
        outcome.map_err(|error| BenchError::Connection { client: index, error })
    }

    /// Receives once and answers the replies that came with further calls; true when there may
    /// be more to receive.
    fn receive(
        &mut self,
        index: usize,
        buffer: &mut [u8],
        is_stopping: bool,
    ) -> Result<bool, BenchError> {
        let before = self.tally.replies;
        let may_have_more = if self.resender.is_some() {
            self.receive_datagrams(index, buffer, is_stopping)
        } else {
            self.receive_stream(index, buffer, is_stopping)
        }?;
        if let Some(live) = self.live() {
            live.replies.fetch_add(self.tally.replies - before, Ordering::Relaxed);
        }
        Ok(may_have_more)
    }

    /// What the replies that came now have in common.
    fn batch(&self, index: usize, is_stopping: bool) -> Batch {
        let is_measuring = self.shared.phase() == MEASURING;
        Batch { index, now_ns: self.now_ns(), is_measuring, is_stopping }
    }

    fn receive_stream(
        &mut self,
        index: usize,
        buffer: &mut [u8],
        is_stopping: bool,
    ) -> Result<bool, BenchError> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(false) };
        let failed = |error: io::Error| BenchError::Connection { client: index, error };
        let carried = connection.inbox.restore(buffer);
        let room = buffer.get_mut(carried..).unwrap_or(&mut []);
        let space = room.len();
        let outcome = steadfast_sys::net::receive(&connection.link, &mut [IoSliceMut::new(room)]);
        let (count, may_have_more) = match outcome {
            Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => (count, count == space),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, true),
            Err(error) => return Err(failed(error)),
        };
        // Its calls go as soon as its replies are judged, not when those of all connections are:
        // the server would have nothing to do meanwhile.
        let was_in_dirty = std::mem::replace(&mut connection.is_in_dirty, true);
        let batch = self.batch(index, is_stopping);
        self.digest(&batch, buffer.get(..carried + count).unwrap_or(&[]))?;
        self.flush(index)?;
        if let Some(connection) = self.connections.get_mut(index) {
            connection.is_in_dirty = was_in_dirty;
            if !may_have_more {
                connection.adjust_low_water()?;
            }
        }
        Ok(may_have_more)
    }

    fn receive_datagrams(
        &mut self,
        index: usize,
        buffer: &mut [u8],
        is_stopping: bool,
    ) -> Result<bool, BenchError> {
        for _ in 0..DATAGRAMS_OF_TURN {
            let Some(connection) = self.connections.get(index) else { return Ok(false) };
            let outcome =
                steadfast_sys::net::receive(&connection.link, &mut [IoSliceMut::new(buffer)]);
            let count = match outcome {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if datagram::is_passing(&error) => continue,
                Err(error) => return Err(BenchError::Connection { client: index, error }),
            };
            let message = buffer.get(..count).unwrap_or(&[]);
            let Ok(lane) = self.lane_of(index, message) else {
                // The second reply to a call that was sent twice.
                self.tally.strays += 1;
                continue;
            };
            let verdict = self.script.reply(lane, message)?;
            if let Some(resender) = &mut self.resender {
                resender.forget(lane);
            }
            let batch = self.batch(index, is_stopping);
            self.answered(&batch, lane, verdict)?;
        }
        Ok(true)
    }

    /// Judges replies and starts the next calls.
    fn digest(&mut self, batch: &Batch, bytes: &[u8]) -> Result<(), BenchError> {
        let Some(connection) = self.connections.get_mut(batch.index) else { return Ok(()) };
        let mut inbox = std::mem::take(&mut connection.inbox);
        let outcome = inbox.feed(bytes, |arrival| {
            match arrival {
                Arrival::Record(message) => {
                    let lane = self.lane_of(batch.index, message)?;
                    let verdict = self.script.reply(lane, message)?;
                    self.answered(batch, lane, verdict)?;
                }
                Arrival::Head(head, bytes) => {
                    let lane = self.lane_of(batch.index, head)?;
                    let long = self.script.long_reply(lane, head, bytes)?;
                    if let Some(connection) = self.connections.get_mut(batch.index) {
                        connection.long = Some((lane, long));
                    }
                }
                Arrival::Piece(at, piece) => {
                    let connection = self.connections.get(batch.index);
                    if let Some((_, long)) = connection.and_then(|one| one.long)
                        && !long.matches(at, piece)
                    {
                        return Err(BenchError::broken("read", NEVER_WRITTEN));
                    }
                }
                Arrival::End => {
                    let connection = self.connections.get_mut(batch.index);
                    if let Some((lane, _)) = connection.and_then(|one| one.long.take()) {
                        self.script.long_reply_ended(lane);
                        self.answered(batch, lane, Verdict::Good)?;
                    }
                }
            }
            Ok::<_, BenchError>(())
        });
        if let Some(connection) = self.connections.get_mut(batch.index) {
            connection.inbox = inbox;
        }
        outcome
    }

    /// The lane whose call a reply answers.
    fn lane_of(&self, index: usize, message: &[u8]) -> Result<usize, BenchError> {
        let xid = message.first_chunk::<4>().map_or(0, |xid| u32::from_be_bytes(*xid));
        let bits = self.depth.next_power_of_two() as u32;
        let lane = index * self.depth + (u32::from_be(xid) % bits) as usize;
        match self.lanes.get(lane) {
            Some(known) if known.xid == xid && known.is_busy => Ok(lane),
            _ => {
                let what = "a reply to a call that was not made, or a second one to the same";
                Err(BenchError::broken("any call", what))
            }
        }
    }

    /// Counts a reply and starts what comes next.
    fn answered(&mut self, batch: &Batch, lane: usize, verdict: Verdict) -> Result<(), BenchError> {
        let Some(slot) = self.lanes.get_mut(lane) else { return Ok(()) };
        slot.is_busy = false;
        self.in_flight -= 1;
        self.tally.replies += 1;
        if verdict == Verdict::TryLater {
            self.tally.try_later += 1;
            self.refused.push_back((batch.now_ns + TRY_LATER_NS, lane));
            return Ok(());
        }
        if batch.is_measuring
            && let Some(kind) = self.tally.kinds.get_mut(slot.kind)
        {
            kind.saturating_record(batch.now_ns.saturating_sub(slot.started_ns));
        }
        if batch.is_stopping {
            return Ok(());
        }
        if self.schedule.is_some() {
            self.idle.push_back(lane);
            return Ok(());
        }
        let now_ns = self.now_ns();
        self.start(lane, now_ns)
    }
}

/// What a batch of received bytes has in common.
struct Batch {
    index: usize,
    now_ns: u64,
    is_measuring: bool,
    is_stopping: bool,
}
