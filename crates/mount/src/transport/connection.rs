//! One connection: a thread that sends, and one that receives and connects again.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use socket2::{Domain, Socket, Type};
use steadfast_client::{ClientError, Reply, RpcConnection, reserved};
use steadfast_sys::net::path_timing;

use super::window::Sample;
use super::{Caller, End, Link, Lost, Slot};
use crate::counters::Counters;
use crate::document::{ConnectionStatus, unix_ms};

/// How long one attempt to connect takes at most.
pub(crate) const CONNECTING: Duration = Duration::from_secs(5);
/// How long is waited between attempts: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How often a receiver looks whether calls have waited too long.
const LOOK: Duration = Duration::from_millis(500);
/// How much is given to the socket at once, in bytes, when many short calls wait.
const BATCH_BYTES: usize = 64 << 10;
/// The longest time before a call is sent again, though `timeo` doubles each time.
const RESEND_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Connection {
    state: Mutex<State>,
    has_work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stream: Option<Arc<TcpStream>>,
    /// Calls without a reply, by xid. Bounded by the threads that call.
    pending: BTreeMap<u32, Pending>,
    /// Those of them that were not sent on this stream.
    queue: VecDeque<u32>,
    /// How often the server has lost what it had acknowledged.
    losses: u64,
    /// Until that is mended only a recovery may call.
    is_held: bool,
    /// When there began to be a stream, or none.
    since: Option<SystemTime>,
    times_made: u64,
    last_error: Option<(String, SystemTime)>,
}

/// A call without a reply.
#[derive(Debug)]
pub(super) struct Pending {
    /// Where its procedure is counted.
    procedure: usize,
    record: Arc<Vec<u8>>,
    slot: Arc<Slot>,
    begun: Instant,
    sent: Instant,
    times_sent: u32,
    resend_after: Duration,
}

impl Pending {
    pub(super) fn new(
        procedure: usize,
        record: Vec<u8>,
        slot: &Arc<Slot>,
        timeout: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            procedure,
            record: Arc::new(record),
            slot: Arc::clone(slot),
            begun: now,
            sent: now,
            times_sent: 0,
            resend_after: timeout,
        }
    }
}

impl Connection {
    pub(super) fn start(
        connection: &Arc<Self>,
        link: &Arc<Link>,
        first: Option<TcpStream>,
    ) -> io::Result<()> {
        let (this, of) = (Arc::clone(connection), Arc::clone(link));
        thread::Builder::new().name("nfs-send".to_owned()).spawn(move || this.run_sender(&of))?;
        let (this, of) = (Arc::clone(connection), Arc::clone(link));
        thread::Builder::new()
            .name("nfs-receive".to_owned())
            .spawn(move || this.run_receiver(&of, first))?;
        Ok(())
    }

    pub(super) fn wake(&self) {
        if let Some(stream) = &self.state.lock().stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.has_work.notify_all();
    }

    /// False: the call is not sent, since the server has lost something that the caller does not know of.
    pub(super) fn send(&self, xid: u32, pending: Pending, caller: &Caller) -> bool {
        let mut state = self.state.lock();
        if state.is_held && !caller.is_of_recovery || caller.losses != state.losses {
            return false;
        }
        state.pending.insert(xid, pending);
        state.queue.push_back(xid);
        drop(state);
        self.has_work.notify_one();
        true
    }

    /// Gives up all calls.
    pub(super) fn hold(&self, losses: u64) {
        let mut state = self.state.lock();
        state.losses = state.losses.max(losses);
        state.is_held = true;
        state.queue.clear();
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        for pending in pending.values() {
            pending.slot.fill(End { reply: Err(Lost), times_sent: pending.times_sent });
        }
    }

    pub(super) fn release(&self) {
        self.state.lock().is_held = false;
    }

    pub(super) fn forget(&self, xid: u32) {
        self.state.lock().pending.remove(&xid);
    }

    pub(super) fn is_silent_for(&self, time: Duration) -> bool {
        let state = self.state.lock();
        state.pending.values().any(|pending| pending.sent.elapsed() >= time)
    }

    pub(super) fn oldest_call(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.pending.values().map(|pending| pending.begun.elapsed()).max()
    }

    pub(super) fn told(&self) -> ConnectionStatus {
        let state = self.state.lock();
        let last_error = state.last_error.clone();
        ConnectionStatus {
            is_up: state.stream.is_some(),
            since_unix_s: state.since.map_or(0, unix_ms) / 1000,
            times_made: state.times_made,
            calls_in_flight: state.pending.len() as u64,
            last_error_unix_s: last_error.as_ref().map(|(_, when)| unix_ms(*when) / 1000),
            last_error: last_error.map(|(error, _)| error),
        }
    }

    /// What the kernel has measured of the way to the server; `None` while there is no connection.
    pub(super) fn sample(&self) -> Option<Sample> {
        let stream = self.state.lock().stream.clone()?;
        let timing = path_timing(&*stream).ok()?;
        let us = |us: u32| Duration::from_micros(us.into());
        Some(Sample {
            round_trip: us(timing.round_trip_us),
            lowest: us(timing.lowest_us),
            unacknowledged_bytes: timing.unacknowledged_bytes,
        })
    }

    fn note_error(&self, error: &dyn std::fmt::Display) {
        self.state.lock().last_error = Some((error.to_string(), SystemTime::now()));
    }

    fn run_sender(&self, link: &Link) {
        loop {
            let (stream, records) = {
                let mut state = self.state.lock();
                loop {
                    if link.is_closed() {
                        return;
                    }
                    if state.stream.is_some() && !state.queue.is_empty() {
                        break;
                    }
                    self.has_work.wait(&mut state);
                }
                let Some(stream) = state.stream.clone() else { continue };
                (stream, state.take_batch(&link.counters))
            };
            let outcome = match records.as_slice() {
                [] => Ok(()),
                [record] => (&*stream).write_all(record),
                _ => {
                    let batch: Vec<u8> =
                        records.iter().flat_map(|one| one.iter().copied()).collect();
                    (&*stream).write_all(&batch)
                }
            };
            if outcome.is_ok() {
                link.counters.sent_bytes.add(records.iter().map(|one| one.len() as u64).sum());
            } else {
                // The receiver sees the end and connects again; nothing more is sent here.
                let _ = stream.shutdown(Shutdown::Both);
                self.state.lock().drop_stream(&stream);
            }
        }
    }

    fn run_receiver(&self, link: &Link, mut first: Option<TcpStream>) {
        let mut local_port = None;
        let mut pause = PAUSE.0;
        let mut is_lost = false;
        while !link.is_closed() {
            let opened = match first.take() {
                Some(stream) => Ok(stream),
                None => open(link.server, local_port, link.from_reserved_port),
            };
            let greeted = opened.and_then(|stream| greet(stream, link));
            let stream = match greeted.and_then(|stream| self.install(stream, link)) {
                Ok(stream) => stream,
                Err(error) => {
                    self.note_error(&error);
                    if !is_lost && pause > PAUSE.0 {
                        is_lost = true;
                        tracing::warn!(server = %link.server, %error, "the server does not answer; trying again");
                    }
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE.1);
                    continue;
                }
            };
            if is_lost {
                is_lost = false;
                tracing::warn!(server = %link.server, "the server answers again");
            }
            local_port = stream.local_addr().ok().map(|address| address.port());
            let connected = Instant::now();
            let error = self.receive(link, &stream);
            let _ = stream.shutdown(Shutdown::Both);
            self.state.lock().drop_stream(&stream);
            if !link.is_closed() {
                self.note_error(&error);
                tracing::debug!(server = %link.server, %error, "connection lost");
            }
            // A server that takes connections and closes them at once is not asked without a pause.
            if connected.elapsed() < PAUSE.1 {
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            } else {
                pause = PAUSE.0;
            }
        }
    }

    /// Makes a stream the one that calls go over: all that wait are sent (again).
    fn install(&self, stream: TcpStream, link: &Link) -> io::Result<Arc<TcpStream>> {
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let mut state = self.state.lock();
        state.stream = Some(Arc::clone(&stream));
        state.since = Some(SystemTime::now());
        state.times_made += 1;
        state.queue = state.pending.keys().copied().collect();
        let now = Instant::now();
        for pending in state.pending.values_mut() {
            pending.sent = now;
            pending.resend_after = pending.resend_after.max(link.timeout);
        }
        drop(state);
        self.has_work.notify_all();
        Ok(stream)
    }

    fn receive(&self, link: &Link, stream: &TcpStream) -> ClientError {
        let receiver = stream.try_clone().map_err(ClientError::from);
        let mut receiver = match receiver.and_then(|clone| RpcConnection::over(clone, LOOK)) {
            Ok(receiver) => receiver,
            Err(error) => return error,
        };
        // The sender may wait as long as a reply may take.
        if let Err(error) = stream.set_write_timeout(Some(link.timeout.max(CONNECTING))) {
            return error.into();
        }
        let mut looked = Instant::now();
        loop {
            match receiver.receive_any() {
                Ok(reply) => {
                    // With its record mark.
                    link.counters.received_bytes.add(reply.message.len() as u64 + 4);
                    link.note_answer();
                    self.deliver(reply);
                }
                Err(ClientError::TimedOut { .. }) => {}
                Err(error) => return error,
            }
            if link.is_closed() {
                return ClientError::Closed;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let overdue = self.state.lock().overdue();
                if let Some(waited) = overdue {
                    let waited_ms = waited.as_millis().try_into().unwrap_or(u64::MAX);
                    return ClientError::TimedOut { waited_ms };
                }
            }
        }
    }

    fn deliver(&self, reply: Reply) {
        // A reply that nobody waits for any more is dropped.
        let Some(pending) = self.state.lock().pending.remove(&reply.xid) else { return };
        pending.slot.fill(End { reply: Ok(reply), times_sent: pending.times_sent });
    }
}

impl State {
    fn take_batch(&mut self, counters: &Counters) -> Vec<Arc<Vec<u8>>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        while let Some(xid) = self.queue.front() {
            // Calls that were given up are in the queue still.
            if let Some(pending) = self.pending.get_mut(xid) {
                if bytes > 0 && bytes + pending.record.len() > BATCH_BYTES {
                    break;
                }
                bytes += pending.record.len();
                pending.sent = Instant::now();
                pending.times_sent = pending.times_sent.saturating_add(1);
                if pending.times_sent > 1 {
                    counters.note_retry(pending.procedure);
                }
                records.push(Arc::clone(&pending.record));
            }
            self.queue.pop_front();
        }
        records
    }

    fn drop_stream(&mut self, stream: &Arc<TcpStream>) {
        if self.stream.as_ref().is_some_and(|current| Arc::ptr_eq(current, stream)) {
            self.stream = None;
            self.since = Some(SystemTime::now());
        }
    }

    /// How long the first call has waited that is to be sent again; the next time it may wait twice as
    /// long, so that a slow server gets to answer.
    fn overdue(&mut self) -> Option<Duration> {
        let mut waited = None;
        for pending in self.pending.values_mut() {
            let since = pending.sent.elapsed();
            if since >= pending.resend_after {
                pending.resend_after = (pending.resend_after * 2).min(RESEND_MAX);
                waited = waited.max(Some(since));
            }
        }
        waited
    }
}

/// Asks the server whether it is the one that calls in flight were meant for.
fn greet(stream: TcpStream, link: &Link) -> io::Result<TcpStream> {
    let Some(greeter) = link.greeter.get() else { return Ok(stream) };
    let connection = RpcConnection::over(stream.try_clone()?, greeter.patience(link.timeout));
    connection.and_then(|connection| greeter.greet(connection)).map_err(io::Error::other)?;
    Ok(stream)
}

/// Connects, from this local port if it is free.
pub(super) fn open(
    server: SocketAddr,
    local_port: Option<u16>,
    from_reserved_port: bool,
) -> io::Result<TcpStream> {
    if let Some(port) = local_port
        && let Ok(stream) = open_from(server, port)
    {
        return Ok(stream);
    }
    let stream = if from_reserved_port {
        reserved::stream(server, CONNECTING)?
    } else {
        TcpStream::connect_timeout(&server, CONNECTING)?
    };
    not_to_itself(stream)
}

/// A socket whose own port is the one that it connects to, on the same host, connects to itself while
/// no server listens there; and keeps the server from its port.
fn not_to_itself(stream: TcpStream) -> io::Result<TcpStream> {
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Servers recognise a client's repeated calls by its port too.
fn open_from(server: SocketAddr, port: u16) -> io::Result<TcpStream> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(any, port).into())?;
    socket.connect_timeout(&server.into(), CONNECTING)?;
    not_to_itself(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_to_itself_is_none() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        assert!(open(server, None, false).is_ok());
        drop(listener);
        let error = open_from(server, server.port()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
