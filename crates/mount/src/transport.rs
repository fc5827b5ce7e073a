//! Calls of many threads at once, over one or several TCP connections that are made again for as long
//! as the mount stands.
//!
//! Each call keeps its record until it is answered or given up. When a connection is lost, or is
//! silent for too long, it is made again, from the same port if possible, and all its calls are sent
//! again with the same xid, so that the server's duplicate request cache recognises them.

mod connection;
mod flights;
mod window;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_client::{
    ClientError, Identity, Procedure, Reply, RpcConnection, RpcTransport, append_record,
};

use crate::compression::Compression;
use crate::counters::{Counters, index_of};
use crate::document::ConnectionStatus;
use crate::process;
pub(crate) use connection::CONNECTING;
use connection::{Connection, Pending};
use flights::Flights;

/// How often somebody who waits looks whether it is still waited for.
const LOOK: Duration = Duration::from_millis(200);

/// The server has lost what it had acknowledged: this call was not answered, and is not sent to it again.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server has lost changes that it had acknowledged")]
struct Lost;

fn lost() -> ClientError {
    ClientError::Io(std::io::Error::other(Lost))
}

/// Whether a call was given up since the server has lost what it had acknowledged. Nobody knows whether it
/// was executed.
pub(crate) fn is_lost(error: &ClientError) -> bool {
    match error {
        ClientError::Io(error) => {
            error.get_ref().and_then(|error| error.downcast_ref::<Lost>()).is_some()
        }
        _ => false,
    }
}

/// Asks a server on each new connection, before calls are sent on it.
pub(crate) trait Greeter: fmt::Debug + Send + Sync {
    /// Asks whether the server has lost what it had acknowledged, and then holds the link ([`Link::hold`]).
    ///
    /// # Errors
    /// When it does not say: the connection is not used then.
    fn greet(&self, connection: RpcConnection) -> Result<(), ClientError>;

    /// How long an answer is waited for, when calls are sent again after `_timeout`.
    fn patience(&self, _timeout: Duration) -> Duration {
        CONNECTING
    }
}

/// All connections of a mount.
#[derive(Debug)]
pub(crate) struct Link {
    server: SocketAddr,
    from_reserved_port: bool,
    timeout: Duration,
    connections: Vec<Arc<Connection>>,
    next: AtomicUsize,
    next_xid: AtomicU32,
    is_closed: AtomicBool,
    began: Instant,
    /// When a call was given up that nobody has answered, in ms since the beginning, and 1; 0 since the last
    /// answer.
    given_up_ms: AtomicU64,
    greeter: OnceLock<Arc<dyn Greeter>>,
    /// How often the server has lost what it had acknowledged.
    losses: AtomicU64,
    /// WRITEs that are in flight, and that wait for the window, if there is one.
    flights: OnceLock<Arc<Flights>>,
    /// What the mount has done.
    pub(crate) counters: Counters,
    /// How data is compressed on its way, if that is wanted.
    pub(crate) compression: OnceLock<Compression>,
}

/// A call's place for its reply.
#[derive(Debug, Default)]
struct Slot {
    end: Mutex<Option<End>>,
    is_there: Condvar,
}

/// How a call ended.
#[derive(Debug)]
struct End {
    reply: Result<Reply, Lost>,
    /// How often the call was sent.
    times_sent: u32,
}

impl Slot {
    fn fill(&self, end: End) {
        *self.end.lock() = Some(end);
        self.is_there.notify_one();
    }
}

/// Whether the server may have executed a change before the sending that it answered: it may refuse the change
/// then since it is made. All calls of one change share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats(Arc<AtomicBool>);

impl Repeats {
    /// An earlier sending was or may have been executed.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Link {
    /// Opens connections to a server; the first one at once, so that an unreachable server is known.
    pub(crate) fn open(
        server: SocketAddr,
        from_reserved_port: bool,
        timeout: Duration,
        connections: u32,
    ) -> Result<Arc<Self>, ClientError> {
        let link = Arc::new(Self {
            server,
            from_reserved_port,
            timeout,
            connections: (0..connections.max(1)).map(|_| Arc::new(Connection::default())).collect(),
            next: AtomicUsize::new(0),
            next_xid: AtomicU32::new(first_xid()),
            is_closed: AtomicBool::new(false),
            began: Instant::now(),
            given_up_ms: AtomicU64::new(0),
            greeter: OnceLock::new(),
            losses: AtomicU64::new(0),
            flights: OnceLock::new(),
            counters: Counters::default(),
            compression: OnceLock::new(),
        });
        let mut first = Some(connection::open(server, None, from_reserved_port)?);
        for connection in &link.connections {
            Connection::start(connection, &link, first.take())?;
        }
        Ok(link)
    }

    /// Ends the connections' threads. Calls that wait are not answered any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for connection in &self.connections {
            connection.wake();
        }
        if let Some(flights) = self.flights.get() {
            flights.wake();
        }
    }

    /// From now on the server is greeted on each new connection.
    pub(crate) fn greet_with(&self, greeter: Arc<dyn Greeter>) {
        // The first one counts.
        let _ = self.greeter.set(greeter);
    }

    /// How many connections there are; calls go to them in turn.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// How often the server has lost what it had acknowledged. To be taken before a call's arguments are made,
    /// since they may name handles that a recovery replaces.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Gives up all calls, and takes none but those of a recovery, until [`Link::release`].
    pub(crate) fn hold(&self) {
        let losses = self.losses.fetch_add(1, Ordering::AcqRel) + 1;
        for connection in &self.connections {
            connection.hold(losses);
        }
    }

    /// Takes calls again.
    pub(crate) fn release(&self) {
        for connection in &self.connections {
            connection.release();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Whether the server seems not to answer. Either a call in flight was sent this long ago. Or a call was given
    /// up, less than this time ago, and no other call was answered since.
    pub(crate) fn is_silent_for(&self, time: Duration) -> bool {
        let given_up_ms = self.given_up_ms.load(Ordering::Relaxed);
        let since_ms = self.elapsed_ms().saturating_sub(given_up_ms);
        let has_given_up = given_up_ms > 0 && since_ms <= time.as_millis() as u64;
        has_given_up || self.connections.iter().any(|connection| connection.is_silent_for(time))
    }

    fn elapsed_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64 + 1
    }

    fn note_given_up(&self) {
        self.given_up_ms.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    fn note_answer(&self) {
        self.given_up_ms.store(0, Ordering::Relaxed);
    }

    /// Where calls go to.
    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    /// For how long the oldest call in flight has waited, however often it was sent.
    pub(crate) fn oldest_call(&self) -> Option<Duration> {
        self.connections.iter().filter_map(|connection| connection.oldest_call()).max()
    }

    /// How the connections are.
    pub(crate) fn connections(&self) -> Vec<ConnectionStatus> {
        self.connections.iter().map(|connection| connection.told()).collect()
    }
}

fn first_xid() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness any number does that other mounts hardly have.
    if steadfast_sys::process::random_bytes(&mut bytes).is_err() {
        bytes = std::process::id().wrapping_mul(0x9e37_79b9).to_be_bytes();
    }
    u32::from_be_bytes(bytes)
}

/// How long somebody waits for a reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// The thread that waits; it may be killed. 0: nobody, or the kernel.
    pub(crate) pid: u32,
    /// Not beyond this moment. `None`: as long as it takes.
    pub(crate) until: Option<Instant>,
}

impl Patience {
    /// Why it is waited no longer.
    pub(crate) fn end(&self, since: Instant) -> Option<ClientError> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            let waited_ms = since.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
            return Some(ClientError::TimedOut { waited_ms });
        }
        process::is_killed(self.pid)
            .then(|| ClientError::Io(std::io::ErrorKind::Interrupted.into()))
    }

    /// How long to sleep before looking again.
    pub(crate) fn nap(&self) -> Duration {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(LOOK, |left| left.min(LOOK))
    }
}

/// Carries the calls of one request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) link: Arc<Link>,
    pub(crate) patience: Patience,
    /// The losses that the caller knows of ([`Link::losses`]): after one more the call is not sent.
    pub(crate) losses: u64,
    /// The call is part of a recovery: it is sent while others are held.
    pub(crate) is_of_recovery: bool,
    /// Told when a call was sent more than once, or was sent and given up.
    pub(crate) repeats: Repeats,
}

impl RpcTransport for Caller {
    fn exchange(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        let carry = |procedure, arguments: &[u8]| {
            let since = Instant::now();
            let outcome = self.carry(procedure, identity, arguments, since);
            let has_failed = outcome.as_ref().map_or(true, is_failure);
            self.link.counters.note_call(index_of(procedure), since.elapsed(), has_failed);
            outcome
        };
        match self.link.compression.get() {
            Some(compression) => compression.exchange(procedure, arguments, carry),
            None => carry(procedure, arguments),
        }
    }
}

/// Whether a server has not done what it was called for: all results begin with a status, but NULL's, which are
/// empty.
fn is_failure(reply: &Reply) -> bool {
    let Some(results) = reply.results() else { return true };
    results.first_chunk().is_some_and(|status: &[u8; 4]| *status != [0; 4])
}

impl Caller {
    fn carry(
        &self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
        since: Instant,
    ) -> Result<Reply, ClientError> {
        let link = &self.link;
        let xid = link.next_xid.fetch_add(1, Ordering::Relaxed);
        let mut record = Vec::with_capacity(arguments.len() + 256);
        append_record(&mut record, xid, procedure, identity, arguments);
        let slot = Arc::new(Slot::default());
        let index = link.next.fetch_add(1, Ordering::Relaxed) % link.connections.len();
        let connection = link.connections.get(index).ok_or(ClientError::Closed)?;
        let pending = Pending::new(index_of(procedure), record, &slot, link.timeout);
        if !connection.send(xid, pending, self) {
            return Err(lost());
        }
        let mut end = slot.end.lock();
        loop {
            if let Some(End { reply, times_sent }) = end.take() {
                // Nobody knows which sending a reply answers. One that was given up may have been executed.
                let sure = u32::from(reply.is_ok());
                if times_sent > sure {
                    self.repeats.note();
                }
                return reply.map_err(|Lost| lost());
            }
            let has_timed_out = slot.is_there.wait_for(&mut end, self.patience.nap()).timed_out();
            if end.is_some() || !has_timed_out {
                continue;
            }
            let why =
                if link.is_closed() { Some(ClientError::Closed) } else { self.patience.end(since) };
            if let Some(error) = why {
                drop(end);
                connection.forget(xid);
                if matches!(error, ClientError::TimedOut { .. }) {
                    link.note_given_up();
                }
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use steadfast_client::recovery::NULL;

    use super::*;

    /// Takes a call from a stream; returns its xid.
    fn take_call(stream: &mut TcpStream) -> [u8; 4] {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).unwrap();
        *call.first_chunk().unwrap()
    }

    /// Answers it: accepted, without verifier and results.
    fn answer(stream: &mut TcpStream, xid: [u8; 4]) {
        let words = [1_u32, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let reply = [&0x8000_0018_u32.to_be_bytes(), xid.as_slice(), &words].concat();
        stream.write_all(&reply).unwrap();
    }

    #[test]
    fn a_call_is_repeated_if_it_was_sent_on_two_connections() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let xid = take_call(&mut stream);
            answer(&mut stream, xid);
            // Of the next one nobody knows whether it was executed.
            let first = take_call(&mut stream);
            drop(stream);
            let (mut stream, _) = listener.accept().unwrap();
            let again = take_call(&mut stream);
            answer(&mut stream, again);
            (first, again)
        };
        let server_thread = std::thread::spawn(serve);
        let link = Link::open(server, false, Duration::from_secs(60), 1).unwrap();
        let call = || {
            let (patience, repeats) = (Patience::default(), Repeats::default());
            let mut caller = Caller {
                link: Arc::clone(&link),
                patience,
                losses: 0,
                is_of_recovery: false,
                repeats: repeats.clone(),
            };
            caller.exchange(NULL, &Identity::user(0, 0), &[]).unwrap();
            repeats.is_noted()
        };
        assert!(!call());
        assert!(call());
        let (first, again) = server_thread.join().unwrap();
        assert_eq!(first, again);
        link.close();
    }

    #[test]
    fn a_call_that_was_not_sent_is_not_repeated() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let link = Link::open(server, false, Duration::from_secs(60), 1).unwrap();
        link.hold();
        for (losses, is_sent) in [(0, false), (1, true)] {
            let repeats = Repeats::default();
            let mut caller = Caller {
                link: Arc::clone(&link),
                patience: Patience::default(),
                losses,
                is_of_recovery: true,
                repeats: repeats.clone(),
            };
            let call = || caller.exchange(NULL, &Identity::user(0, 0), &[]);
            let lose = || {
                let (mut stream, _) = listener.accept().unwrap();
                take_call(&mut stream);
                link.hold();
            };
            let error = std::thread::scope(|scope| {
                let lost = is_sent.then(|| scope.spawn(lose));
                let outcome = scope.spawn(call).join().unwrap();
                if let Some(lost) = lost {
                    lost.join().unwrap();
                }
                outcome.unwrap_err()
            });
            assert!(is_lost(&error));
            assert_eq!(repeats.is_noted(), is_sent);
        }
        link.close();
    }
}
