//! A worker at a seat: waits, receives, and hands batches to [`crate::execution`].

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use steadfast_engine::StorageId;
use steadfast_sys::epoll::Events;
use steadfast_sys::net::{self, DATAGRAMS_MAX};

use crate::accept;
use crate::batch::{Batch, Origin};
use crate::connection::Connection;
use crate::datagram;
use crate::execution::{Executor, Patience};
use crate::framing::{Framing, FramingError, RecordPlace, Stash};
use crate::log_limit::{LogKind, limited};
use crate::mailbox::Message;
use crate::pool::Pool;
use crate::seat::{Appetite, HandedOver, Ready, Seat, SeatCore, SeatGuard, Token};
use crate::shared::{Phase, Shared};
use crate::statistics::Counters;

/// While this much or more of a record is received directly, no more than this goes into the
/// buffer behind it, in bytes.
const DIRECT_BYTES: usize = 16 << 10;
/// After this time new events are looked at, so that neither who has just called nor who wants
/// to connect waits long, in ns; nor replies that are batched meanwhile.
const LOOK_NS: u64 = 60_000;
const EVENTS: usize = 64;
/// And after this many turns, should the clock stand still.
const TURNS_OF_LOOK: usize = 256;
/// How often the sum of all backlogs is looked at, and for how long a peer must have read
/// nothing to be closed for it, in ms.
const BACKLOG_CHECK_MS: u64 = 100;
const SLOW_MS: u64 = 1_000;
/// How long peers get to close their side at the end, in ms; and all of them together, once none has sent
/// anything for so long.
const LINGER_MS: u64 = 500;
const QUIET_MS: u64 = 100;

pub(crate) struct Worker {
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    counters: Arc<CachePadded<Counters>>,
    events: Events,
    executor: Executor,
    /// Batches to be used again.
    stream_batch: Option<Arc<Batch>>,
    datagram_batch: Option<Arc<Batch>>,
    spare_stashes: Vec<Stash>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pool.counters.leave(&self.counters);
    }
}

/// What a receive from a connection came to.
enum Receipt {
    /// Calls, perhaps none whole yet.
    Calls,
    /// The stream is at its end or broken.
    End,
    /// Framing is lost after the calls received.
    Broken(FramingError),
}

/// A worker's life: at a seat of its pool, or standing by for one.
pub(crate) fn live(pool: &Arc<Pool>) {
    let mut worker = Worker::new(Arc::clone(pool));
    while let Some(index) = pool.stand_by() {
        if let Some(seat) = pool.seats.get(index)
            && let Some(guard) = pool.occupy(seat, None)
        {
            worker.serve(seat, guard);
        }
    }
}

impl Worker {
    fn new(pool: Arc<Pool>) -> Self {
        let counters = pool.counters.join(pool.shared.stamp_ns(), &pool.shared.top_room);
        let shared = Arc::clone(&pool.shared);
        Self {
            executor: Executor::new(Arc::clone(&pool), Arc::clone(&counters)),
            pool,
            shared,
            counters,
            events: Events::with_capacity(EVENTS),
            stream_batch: None,
            datagram_batch: None,
            spare_stashes: Vec::new(),
        }
    }

    /// Serves a seat until another worker has taken it or the server stops.
    fn serve<'s>(&mut self, seat: &'s Seat, guard: SeatGuard<'s>) {
        if let Some(intent_log) = &self.shared.intent_log {
            // Who had the seat before may have held what calls had logged.
            intent_log.rouse();
        }
        self.serve_until_taken(seat, guard);
        self.executor.release();
    }

    fn serve_until_taken<'s>(&mut self, seat: &'s Seat, guard: SeatGuard<'s>) {
        let mut guard = Some(guard);
        loop {
            if let Some(core) = guard.as_deref_mut() {
                self.executor.send_batched(core);
            }
            if seat.open_batches.are_any() {
                self.executor.take_over(seat, &mut guard);
            }
            let Some(core) = guard.as_deref_mut() else { return };
            // Calls that were taken over may have lent the seat to somebody who batched more; and
            // the server may be at its end, which is looked at next.
            self.executor.send_batched(core);
            match self.shared.phase() {
                Phase::Running => {}
                Phase::Draining => stop_receiving(seat, core),
                Phase::Stopped => {
                    self.close_all(seat, core);
                    return;
                }
            }
            if core.turns.is_empty() {
                self.executor.release();
            }
            self.wait(seat, core);
            self.sweep(seat, core);
            self.take_turns(seat, &mut guard);
        }
    }

    /// Serves whose turn it is, until it is time to look for new events.
    fn take_turns<'s>(&mut self, seat: &'s Seat, guard: &mut Option<SeatGuard<'s>>) {
        let looked_ns = self.shared.stamp_ns();
        let mut now_ns = looked_ns;
        for _ in 0..TURNS_OF_LOOK {
            // What was left comes first: it was received before.
            if seat.open_batches.are_any() || now_ns >= looked_ns + LOOK_NS {
                return;
            }
            let Some(core) = guard.as_deref_mut() else { return };
            let Some((client, ready)) = core.turns.next() else { return };
            core.start_serving(client, now_ns);
            match ready {
                Ready::Connection(token) => self.serve_connection(seat, guard, token),
                Ready::Datagrams(index) => self.serve_datagrams(seat, guard, index),
            }
            now_ns = self.shared.stamp_ns();
            if let Some(core) = guard.as_deref_mut() {
                core.stop_serving(now_ns);
            }
        }
    }

    /// Waits for events, accepts connections, queues what is ready.
    fn wait(&mut self, seat: &Seat, core: &mut SeatCore) {
        let now_ms = self.shared.now_ms();
        let timeout = if core.turns.is_empty() {
            let mut wake_ms = core.next_sweep_ms.min(core.listeners_resume_ms.unwrap_or(u64::MAX));
            wake_ms = wake_ms.min(core.suspended.next_look_ms().unwrap_or(u64::MAX));
            let waiting = &self.shared.waiting;
            let is_ending = core.is_draining && waiting.connections.load(Ordering::Relaxed) > 0;
            if is_ending
                || waiting.reply_bytes.load(Ordering::Relaxed)
                    > self.shared.options.waiting_bytes_max
            {
                wake_ms = wake_ms.min(core.next_backlog_check_ms);
            }
            Duration::from_millis(wake_ms.saturating_sub(now_ms))
        } else {
            Duration::ZERO
        };
        if let Err(error) = self.wait_for_events(seat, timeout) {
            limited!(self.shared.log, LogKind::Workers, error, "cannot wait for events: {error}");
        }
        for event in self.events.iter() {
            match Token::from_number(event.token) {
                Token::Listener(index) => {
                    accept::accept_some(&self.pool, &self.counters, seat, core, index);
                }
                Token::Mailbox => {
                    let messages = seat.mailbox.take();
                    for handed_over in seat.take_handed_over() {
                        match handed_over {
                            HandedOver::Connection(connection) => {
                                accept::adopt(&self.pool, seat, core, &connection);
                            }
                            HandedOver::Call(call, ticket) => {
                                core.suspend_for_another(call, &ticket, &self.shared);
                            }
                        }
                    }
                    for message in messages {
                        match message {
                            Message::Look(token) => core.enqueue(token),
                            Message::Wake(number) => {
                                if let Some(call) = core.suspended.for_another.take(number) {
                                    core.go_on(call, &self.shared);
                                }
                            }
                        }
                    }
                }
                Token::Datagrams(index) => core.enqueue_datagrams(index),
                Token::Connection(token) => {
                    if let Some(slot) = core.connections.at(token) {
                        slot.is_readable |= event.is_readable || event.is_hung_up;
                        slot.is_hung_up |= event.is_hung_up;
                        core.enqueue(token);
                    }
                }
            }
        }
    }

    /// Asks for events, again and again for a while if so configured, and then sleeps.
    fn wait_for_events(&mut self, seat: &Seat, timeout: Duration) -> io::Result<()> {
        let poll_ns = self.shared.options.busy_poll_us.saturating_mul(1000);
        if poll_ns > 0 && !timeout.is_zero() {
            let (begun, poll) = (Instant::now(), Duration::from_nanos(poll_ns));
            while begun.elapsed() < poll {
                seat.epoll.wait(&mut self.events, Some(Duration::ZERO))?;
                if self.events.iter().next().is_some() {
                    return Ok(());
                }
            }
        }
        seat.epoll.wait(&mut self.events, Some(timeout))
    }

    fn serve_connection<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        token: u64,
    ) {
        let Some(core) = guard.as_deref_mut() else { return };
        let Some(slot) = core.connections.at(token) else { return };
        slot.is_queued = false;
        let connection = Arc::clone(&slot.connection);
        let now_ms = self.shared.now_ms();
        if connection.backlog_has_files() {
            // What was in memory when it was read may have gone since.
            let mut lent = None;
            if let Some(mut guard) = guard.take() {
                guard.stop_serving(self.shared.stamp_ns());
                self.executor.send_batched(&mut guard);
                lent = Some(seat.lend(guard, Some(StorageId::UNKNOWN)));
                self.pool.note_lent();
            }
            if connection.drain(self.executor.spare(), now_ms).is_err() {
                connection.close();
            }
            *guard = self.pool.occupy(seat, lent);
            if guard.is_none() {
                if let Some(lent) = lent {
                    self.pool.has_come_back(lent);
                }
                seat.mailbox.post(Message::Look(token));
                return;
            }
        } else if connection.drain(self.executor.spare(), now_ms).is_err() {
            connection.close();
        }
        let Some(core) = guard.as_deref_mut() else { return };
        let Some(slot) = core.connections.at(token) else { return };
        if connection.is_closed() {
            accept::close(&self.pool, seat, core, token);
            return;
        }
        if slot.is_ended && slot.due.is_empty() {
            // Replies may be due still; they keep the connection.
            let is_done = || connection.in_flight() == 0 && connection.backlog_bytes() == 0;
            connection.watch();
            if is_done() {
                accept::close(&self.pool, seat, core, token);
            }
            return;
        }
        let options = &self.shared.options;
        // Others may wait for a suspended call: a client that has connected again.
        let is_suspended = |batch: &Arc<Batch>| batch.suspended_since_ms().is_some();
        if !slot.due.front().is_some_and(is_suspended) && !connection.may_send_calls(options) {
            connection.watch();
            if !connection.may_send_calls(options) {
                return;
            }
        }
        if !slot.due.is_empty() {
            if self.executor.begin() {
                if let Some(batch) = slot.due.pop_front() {
                    let kept = batch.kept_bytes();
                    self.shared.waiting.call_bytes.fetch_sub(kept, Ordering::Relaxed);
                    core.enqueue(token);
                    self.executor.run(seat, guard, &batch);
                }
                self.executor.end();
            }
            return;
        }
        if !slot.is_readable || !self.executor.begin() {
            return;
        }
        self.receive(seat, guard, token, &connection);
        self.executor.end();
    }

    fn receive<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        token: u64,
        connection: &Arc<Connection>,
    ) {
        let Some(core) = guard.as_deref_mut() else { return };
        let mut shared_batch =
            self.stream_batch.take().unwrap_or_else(|| Arc::new(Batch::new(Appetite::BYTES_MAX)));
        // A batch that is kept for use again is nobody else's.
        let Some(batch) = Arc::get_mut(&mut shared_batch) else { return };
        batch.reset(&mut self.spare_stashes);
        batch.arrival.begun_ns = self.shared.stamp_ns();
        let receipt = self.receive_into(core, token, connection, batch);
        match receipt {
            Receipt::Calls => {}
            Receipt::End => {
                if let Some(slot) = core.connections.at(token) {
                    slot.is_ended = true;
                    core.enqueue(token);
                }
            }
            Receipt::Broken(error) => {
                if let Some(slot) = core.connections.at(token) {
                    // What follows is no call, whatever it looks like: nobody may receive it
                    // while the calls before it are executed.
                    slot.is_ended = true;
                    // Closed as at a stream's end: when the replies to what was sound are out.
                    core.enqueue(token);
                }
                limited!(
                    self.shared.log,
                    LogKind::Framing,
                    warn,
                    "{} {error}; the connection is closed",
                    connection.peer.address
                );
            }
        }
        self.bound_call_bytes(seat, core);
        if !batch.records.places.is_empty() {
            self.counters.batches.add(1);
            batch.origin = Origin::Stream(Arc::clone(connection));
            self.executor.run(seat, guard, &shared_batch);
        }
        self.stream_batch = used_again(shared_batch);
    }

    /// Receives once from a connection and splits what came.
    fn receive_into(
        &mut self,
        core: &mut SeatCore,
        token: u64,
        connection: &Connection,
        batch: &mut Batch,
    ) -> Receipt {
        let Some(slot) = core.connections.at(token) else { return Receipt::End };
        let stash_before = slot.framing.stash_bytes();
        let room = slot.framing.direct_room(&mut self.spare_stashes);
        let room_bytes = room.len();
        // Behind the rest of a large record comes perhaps another one: it too is better received
        // into its own stash than into the buffer.
        let is_large = room_bytes >= DIRECT_BYTES;
        let length = if is_large { DIRECT_BYTES } else { slot.appetite.bytes() };
        let buffer = batch.buffer.get_mut(..length).unwrap_or(&mut []);
        let asked = room_bytes + buffer.len();
        let result = if room.is_empty() {
            net::receive(&connection.socket, &mut [IoSliceMut::new(buffer)])
        } else {
            let vectors = &mut [IoSliceMut::new(room), IoSliceMut::new(buffer)];
            net::receive(&connection.socket, vectors)
        };
        let receipt = match result {
            Ok(0) => Receipt::End,
            Ok(count) => {
                // A short receive has drained the socket: what comes later makes a new event.
                slot.is_readable = count == asked || slot.is_hung_up;
                batch.arrival.received_ns = self.shared.stamp_ns();
                slot.active_ms = self.shared.now_ms();
                self.counters.bytes_in.add(count as u64);
                let direct = count.min(room_bytes);
                slot.framing.advance(direct, &mut batch.records);
                let rest = batch.buffer.get(..count - direct).unwrap_or(&[]);
                let max_bytes = self.shared.options.record_bytes_max;
                let records = &mut batch.records;
                let split = slot.framing.split(rest, max_bytes, records, &mut self.spare_stashes);
                slot.appetite.learn(records.places.len(), count == asked);
                match split {
                    Ok(()) => {
                        if count < asked {
                            invite_rest(&slot.framing, connection);
                        }
                        Receipt::Calls
                    }
                    Err(error) => Receipt::Broken(error),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slot.is_readable = false;
                invite_rest(&slot.framing, connection);
                Receipt::Calls
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Receipt::Calls,
            Err(_) => Receipt::End,
        };
        let stash_after = slot.framing.stash_bytes();
        if slot.is_readable && matches!(receipt, Receipt::Calls) {
            core.enqueue(token);
        }
        let call_bytes = &self.shared.waiting.call_bytes;
        match stash_after.cmp(&stash_before) {
            std::cmp::Ordering::Greater => {
                call_bytes.fetch_add(stash_after - stash_before, Ordering::Relaxed);
            }
            std::cmp::Ordering::Less => {
                call_bytes.fetch_sub(stash_before - stash_after, Ordering::Relaxed);
            }
            std::cmp::Ordering::Equal => {}
        }
        receipt
    }

    /// Closes connections with half-received calls, the stalest first, until what they use is
    /// within bounds. One that has sent something just now is spared, unless they use far too
    /// much.
    fn bound_call_bytes(&mut self, seat: &Seat, core: &mut SeatCore) {
        let waiting = &self.shared.waiting;
        let bytes_max = self.shared.options.waiting_bytes_max;
        loop {
            let used = waiting.reply_bytes.load(Ordering::Relaxed)
                + waiting.call_bytes.load(Ordering::Relaxed);
            if used <= bytes_max {
                return;
            }
            let now_ms = self.shared.now_ms();
            let is_far_over = used / 2 > bytes_max;
            if !is_far_over && now_ms < core.next_call_bytes_check_ms {
                return;
            }
            let stalest = core
                .connections
                .iter()
                .filter(|(_, slot)| slot.kept_bytes() > 0)
                .filter(|(_, slot)| is_far_over || slot.active_ms + SLOW_MS <= now_ms)
                .min_by_key(|(_, slot)| slot.active_ms)
                .map(|(token, slot)| (token, slot.connection.peer.address));
            let Some((token, address)) = stalest else {
                core.next_call_bytes_check_ms = now_ms + BACKLOG_CHECK_MS;
                return;
            };
            limited!(
                self.shared.log,
                LogKind::Memory,
                warn,
                "calls that were received in part, or are suspended or left to a later turn, use too much memory; \
                 closing the connection of {address}, which has sent nothing for longest"
            );
            accept::close(&self.pool, seat, core, token);
        }
    }

    fn serve_datagrams<'s>(
        &mut self,
        seat: &'s Seat,
        guard: &mut Option<SeatGuard<'s>>,
        index: usize,
    ) {
        let Some(core) = guard.as_deref_mut() else { return };
        let Some(port) = core.datagram_sockets.get_mut(index) else { return };
        port.is_queued = false;
        let socket = Arc::clone(&port.socket);
        if !self.executor.begin() {
            return;
        }
        if let Some(batch) = port.due.pop_front() {
            self.shared.waiting.call_bytes.fetch_sub(batch.kept_bytes(), Ordering::Relaxed);
            // Also for what has come meanwhile, of which no other event tells.
            core.enqueue_datagrams(index);
            self.executor.run(seat, guard, &batch);
            self.executor.end();
            return;
        }
        let mut shared_batch = self
            .datagram_batch
            .take()
            .unwrap_or_else(|| Arc::new(Batch::new(datagram::BUFFER_BYTES)));
        if let Some(batch) = Arc::get_mut(&mut shared_batch) {
            batch.reset(&mut self.spare_stashes);
            batch.arrival.begun_ns = self.shared.stamp_ns();
            let mut received = Vec::new();
            let slot_bytes = datagram::SLOT_BYTES;
            match net::receive_datagrams(
                &socket.socket,
                &mut batch.buffer,
                slot_bytes,
                &mut received,
            ) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    // An earlier reply may have caused it, and more may wait behind it.
                    core.enqueue_datagrams(index);
                    limited!(
                        self.shared.log,
                        LogKind::Datagram,
                        debug,
                        "cannot receive datagrams at {}: {error}",
                        socket.local
                    );
                }
                Ok(()) => {
                    if received.len() == DATAGRAMS_MAX {
                        core.enqueue_datagrams(index);
                    }
                }
            }
            for (slot, datagram) in received.iter().enumerate() {
                let start = slot * slot_bytes;
                batch.records.places.push(RecordPlace::Buffer(start..start + datagram.length));
                self.counters.bytes_in.add(datagram.length as u64);
            }
            self.counters.datagrams.add(received.len() as u64);
            if !received.is_empty() {
                batch.arrival.received_ns = self.shared.stamp_ns();
                self.counters.batches.add(1);
                batch.origin = Origin::Datagrams(socket, received);
                self.executor.run(seat, guard, &shared_batch);
            }
        }
        self.datagram_batch = used_again(shared_batch);
        self.executor.end();
    }

    /// Closes connections whose peers read too slowly, those without progress for longest first,
    /// while all backlogs together are too large, or the server is to end.
    fn bound_backlogs(&mut self, seat: &Seat, core: &mut SeatCore, now_ms: u64) {
        let waiting = &self.shared.waiting;
        while core.is_draining
            || waiting.reply_bytes.load(Ordering::Relaxed) > self.shared.options.waiting_bytes_max
        {
            let slowest = core
                .connections
                .iter()
                .filter(|(_, slot)| slot.connection.backlog_bytes() > 0)
                .filter(|(_, slot)| slot.connection.progress_ms() + SLOW_MS <= now_ms)
                .min_by_key(|(_, slot)| slot.connection.progress_ms())
                .map(|(token, slot)| (token, slot.connection.peer.address));
            let Some((token, address)) = slowest else { return };
            limited!(
                self.shared.log,
                LogKind::Memory,
                warn,
                "unread replies {}; closing the connection of {address}, which has read nothing \
                 for longest",
                if core.is_draining {
                    "keep the server from ending"
                } else {
                    "use too much memory"
                }
            );
            accept::close(&self.pool, seat, core, token);
        }
    }

    /// Has suspended calls go on that may, or that wait no more.
    fn recall(&self, core: &mut SeatCore, now_ms: u64) {
        let expired_ms = Patience::expired_ms(self.shared.options.storage_patience_ms, now_ms);
        let room = |storage| self.pool.blocked.room(storage, self.pool.uncounted(storage), now_ms);
        let ready = core.suspended.for_storage.take_ready(room, expired_ms, now_ms);
        // Each goes before those of its connection that are there already.
        for call in ready.into_iter().rev() {
            core.go_on(call, &self.shared);
        }
        while let Some(call) = core.suspended.for_another.take_expired(now_ms) {
            core.go_on(call, &self.shared);
        }
    }

    /// Closes connections that have been idle, or whose peer has read nothing, for too long;
    /// watches the listeners again.
    fn sweep(&mut self, seat: &Seat, core: &mut SeatCore) {
        let now_ms = self.shared.now_ms();
        self.recall(core, now_ms);
        if core.listeners_resume_ms.is_some_and(|at| at <= now_ms) {
            accept::watch_listeners(seat, core);
        }
        if self.shared.waiting.connections.load(Ordering::Relaxed) > 0
            && now_ms >= core.next_backlog_check_ms
        {
            core.next_backlog_check_ms = now_ms + BACKLOG_CHECK_MS;
            self.bound_backlogs(seat, core, now_ms);
        }
        if core.next_sweep_ms > now_ms {
            return;
        }
        let limit_ms = self.shared.options.idle_timeout_s.saturating_mul(1000);
        core.next_sweep_ms = now_ms + (limit_ms / 4).clamp(1_000, 30_000);
        if limit_ms == 0 {
            return;
        }
        let mut doomed = Vec::new();
        for (token, slot) in core.connections.iter() {
            let connection = &slot.connection;
            if connection.backlog_bytes() > 0 {
                if now_ms.saturating_sub(connection.progress_ms()) > limit_ms {
                    limited!(
                        self.shared.log,
                        LogKind::SlowReader,
                        warn,
                        "{} has read no replies for {} s; the connection is closed",
                        connection.peer.address,
                        limit_ms / 1000
                    );
                    doomed.push(token);
                }
            } else if connection.in_flight() == 0
                && slot.due.is_empty()
                && now_ms.saturating_sub(slot.active_ms) > limit_ms
            {
                doomed.push(token);
            }
        }
        for token in doomed {
            accept::close(&self.pool, seat, core, token);
        }
    }

    /// Last step of the end. A connection that is closed with calls unread is reset, and what
    /// was sent may be lost with it: so the peers are told that no more comes, and what they
    /// send is thrown away until they close, too. Once nothing has come for a while, hardly anything
    /// will: idle clients do not keep the others from being served by the next server.
    fn close_all(&mut self, seat: &Seat, core: &mut SeatCore) {
        seat.mailbox.take();
        for handed_over in seat.take_handed_over() {
            if let HandedOver::Connection(connection) = handed_over {
                connection.close();
            }
        }
        for (_, slot) in core.connections.iter() {
            net::shut_down_sending(&slot.connection.socket);
        }
        let mut scrap = vec![0; Appetite::BYTES_MAX];
        let end_ms = self.shared.now_ms() + LINGER_MS;
        let mut quiet_ms = end_ms;
        let mut readable: Vec<u64> = core.connections.iter().map(|(token, _)| token).collect();
        loop {
            let has_come = !readable.is_empty();
            for token in readable.drain(..) {
                let Some(slot) = core.connections.at(token) else { continue };
                if throw_away(&slot.connection, &mut scrap) {
                    accept::close(&self.pool, seat, core, token);
                }
            }
            if has_come {
                // Of many connections it may have taken long.
                quiet_ms = self.shared.now_ms() + QUIET_MS;
            }
            let left_ms = end_ms.min(quiet_ms).saturating_sub(self.shared.now_ms());
            let is_empty = core.connections.iter().next().is_none();
            let patience = Duration::from_millis(left_ms);
            if is_empty
                || left_ms == 0
                || seat.epoll.wait(&mut self.events, Some(patience)).is_err()
            {
                break;
            }
            readable.extend(self.events.iter().filter_map(|event| {
                match Token::from_number(event.token) {
                    Token::Connection(token) => Some(token),
                    _ => None,
                }
            }));
        }
        let tokens: Vec<u64> = core.connections.iter().map(|(token, _)| token).collect();
        for token in tokens {
            accept::close(&self.pool, seat, core, token);
        }
    }
}

/// Acknowledges at once what was received if it ends within a record and the socket has no more: a
/// client with Nagle's algorithm that sends a record in several pieces sends the next one only then,
/// and the kernel would wait 40 ms for a reply to send the acknowledgement with. There is none to
/// come. Whoever sends whole records is not affected.
fn invite_rest(framing: &Framing, connection: &Connection) {
    if framing.is_partial() {
        // Only a matter of speed.
        let _ = net::acknowledge_now(&connection.socket);
    }
}

/// Receives for nothing until the socket has no more; true at the stream's end.
fn throw_away(connection: &Connection, scrap: &mut [u8]) -> bool {
    loop {
        match net::receive(&connection.socket, &mut [IoSliceMut::new(scrap)]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// The batch, if nobody else works on it, for another receive. It lets go of its connection,
/// whose descriptor could not be closed otherwise.
fn used_again(mut batch: Arc<Batch>) -> Option<Arc<Batch>> {
    Arc::get_mut(&mut batch)?.origin = Origin::Nowhere;
    Some(batch)
}

/// First step of the end: no new connections; what waits in sockets stays there.
fn stop_receiving(seat: &Seat, core: &mut SeatCore) {
    if !core.is_draining {
        core.is_draining = true;
        accept::unwatch_listeners(seat, core);
        core.listeners.clear();
    }
}
