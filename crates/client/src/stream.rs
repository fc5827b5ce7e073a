//! RPC over TCP: many calls in flight, replies in any order.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use steadfast_rpc::record::{MARK_BYTES, Mark, Splitter, Step, TooLarge};

use crate::call::{Identity, Procedure, append_record};
use crate::error::ClientError;
use crate::reply::{Reply, parse_reply};
use crate::reserved;
use crate::transport::RpcTransport;

/// The largest record this client receives, in bytes: a READ of 16 MiB and its head.
pub const RECORD_BYTES_MAX: usize = (16 << 20) + 4096;

/// How many replies are kept for calls that nobody waited for yet.
pub const UNCLAIMED_MAX: usize = 65_536;

/// How many calls of the server's are kept that nobody waited for yet. Further ones are dropped.
const CALLS_MAX: usize = 1024;

/// How much is asked of the socket at once, in bytes.
const RECEIVE_BYTES: usize = 256 << 10;

/// A TCP connection to a server.
#[derive(Debug)]
pub struct RpcConnection {
    stream: TcpStream,
    timeout: Duration,
    next_xid: u32,
    /// Received and not yet consumed: `input[consumed..]`.
    input: Vec<u8>,
    consumed: usize,
    splitter: Splitter,
    /// What has come of a record whose end has not.
    partial: Vec<u8>,
    /// Where the next record begins is not known any more, since a record was too long.
    lost_place: Option<TooLarge>,
    unclaimed: HashMap<u32, Reply>,
    /// Calls of the server's, [`CALLS_MAX`] at most.
    calls: VecDeque<Vec<u8>>,
}

impl RpcConnection {
    /// Connects, from a reserved port if that may be; `timeout` bounds connecting and each wait for
    /// a reply.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn connect(server: SocketAddr, timeout: Duration) -> Result<Self, ClientError> {
        Self::over(reserved::stream(server, timeout)?, timeout)
    }

    /// A connection that was made already; `timeout` bounds each wait for a reply.
    ///
    /// # Errors
    /// The socket's.
    pub fn over(stream: TcpStream, timeout: Duration) -> Result<Self, ClientError> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self {
            stream,
            timeout,
            next_xid: first_xid(),
            input: Vec::new(),
            consumed: 0,
            splitter: Splitter::default(),
            partial: Vec::new(),
            lost_place: None,
            unclaimed: HashMap::new(),
            calls: VecDeque::new(),
        })
    }

    /// Bounds each wait for a reply from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The socket, for tests that treat it badly.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// An xid that this connection has not used.
    pub fn take_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }

    /// Sends a call and does not wait; the xid names its reply.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<u32, ClientError> {
        let xid = self.take_xid();
        let mut record = Vec::with_capacity(arguments.len() + 256);
        append_record(&mut record, xid, procedure, identity, arguments);
        self.send_bytes(&record)?;
        Ok(xid)
    }

    /// Sends a message as one record.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_message(&mut self, message: &[u8]) -> Result<(), ClientError> {
        let mut record = Vec::with_capacity(message.len() + MARK_BYTES);
        record.extend_from_slice(&Mark::whole(message.len()).to_bytes());
        record.extend_from_slice(message);
        self.send_bytes(&record)
    }

    /// Sends a message as one record in fragments of at most `fragment_bytes` (RFC 5531 §11).
    ///
    /// # Errors
    /// The socket's.
    pub fn send_fragmented(
        &mut self,
        message: &[u8],
        fragment_bytes: usize,
    ) -> Result<(), ClientError> {
        let mut record = Vec::with_capacity(message.len() * 2);
        let mut fragments = message.chunks(fragment_bytes.max(1)).peekable();
        while let Some(fragment) = fragments.next() {
            let mark = Mark::new(fragment.len(), fragments.peek().is_none());
            record.extend_from_slice(&mark.to_bytes());
            record.extend_from_slice(fragment);
        }
        self.send_bytes(&record)
    }

    /// Sends bytes as they are: record marks are the caller's business.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match (&self.stream).write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.socket_error(error)),
        }
    }

    /// Waits for the reply to this call; replies to others are kept for their turn.
    ///
    /// # Errors
    /// When none comes in time, or what comes is no RPC.
    pub fn receive(&mut self, xid: u32) -> Result<Reply, ClientError> {
        if let Some(reply) = self.unclaimed.remove(&xid) {
            return Ok(reply);
        }
        let deadline = Instant::now() + self.timeout;
        loop {
            let reply = self.next_record(deadline)?;
            if reply.xid == xid {
                return Ok(reply);
            }
            if self.unclaimed.len() >= UNCLAIMED_MAX {
                return Err(ClientError::TooManyUnclaimed);
            }
            self.unclaimed.insert(reply.xid, reply);
        }
    }

    /// Waits for any reply; those kept by [`RpcConnection::receive`] come first.
    ///
    /// # Errors
    /// As [`RpcConnection::receive`].
    pub fn receive_any(&mut self) -> Result<Reply, ClientError> {
        if let Some(xid) = self.unclaimed.keys().next().copied()
            && let Some(reply) = self.unclaimed.remove(&xid)
        {
            return Ok(reply);
        }
        self.next_record(Instant::now() + self.timeout)
    }

    /// Waits for a call of the server's; replies that come are kept for their turn.
    ///
    /// # Errors
    /// As [`RpcConnection::receive`].
    pub fn receive_call(&mut self) -> Result<Vec<u8>, ClientError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(call) = self.calls.pop_front() {
                return Ok(call);
            }
            match self.take_record()? {
                Some(message) if is_call(&message) => return Ok(message),
                Some(message) => {
                    let (xid, body) = parse_reply(&message)
                        .map_err(|error| ClientError::Malformed { procedure: "RPC", error })?;
                    if self.unclaimed.len() >= UNCLAIMED_MAX {
                        return Err(ClientError::TooManyUnclaimed);
                    }
                    self.unclaimed.insert(xid, Reply { xid, body, message });
                }
                None => self.fill(deadline)?,
            }
        }
    }

    fn next_record(&mut self, deadline: Instant) -> Result<Reply, ClientError> {
        loop {
            if let Some(message) = self.take_record()? {
                if is_call(&message) {
                    if self.calls.len() < CALLS_MAX {
                        self.calls.push_back(message);
                    }
                    continue;
                }
                let (xid, body) = parse_reply(&message)
                    .map_err(|error| ClientError::Malformed { procedure: "RPC", error })?;
                return Ok(Reply { xid, body, message });
            }
            self.fill(deadline)?;
        }
    }

    /// A whole record, if one has come. After one that was too long nothing can be read from the
    /// connection: each further call fails as the first one did.
    fn take_record(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        if let Some(TooLarge { announced_bytes, .. }) = self.lost_place {
            return Err(ClientError::RecordTooLong { bytes: announced_bytes as usize });
        }
        let mut rest = self.input.get(self.consumed..).unwrap_or(&[]);
        let is_whole = loop {
            match self.splitter.step(&mut rest, RECORD_BYTES_MAX) {
                Ok(Step::Piece(piece)) => self.partial.extend_from_slice(piece),
                Ok(Step::End) => break true,
                Ok(Step::Starved) => break false,
                Err(error) => {
                    self.lost_place = Some(error);
                    // Neither is of use any more.
                    (self.input, self.consumed, self.partial) = (Vec::new(), 0, Vec::new());
                    return Err(ClientError::RecordTooLong {
                        bytes: error.announced_bytes as usize,
                    });
                }
            }
        };
        self.consumed = self.input.len() - rest.len();
        Ok(is_whole.then(|| std::mem::take(&mut self.partial)))
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), ClientError> {
        self.input.drain(..self.consumed);
        self.consumed = 0;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientError::timed_out(self.timeout));
        }
        self.stream.set_read_timeout(Some(left))?;
        let start = self.input.len();
        self.input.resize(start + RECEIVE_BYTES, 0);
        let outcome = (&self.stream).read(self.input.get_mut(start..).unwrap_or(&mut []));
        self.input.truncate(start + outcome.as_ref().copied().unwrap_or(0));
        match outcome {
            Ok(0) => Err(ClientError::Closed),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.socket_error(error)),
        }
    }

    fn socket_error(&self, error: std::io::Error) -> ClientError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::timed_out(self.timeout),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ClientError::Closed,
            _ => ClientError::Io(error),
        }
    }
}

/// Whether a message is a call (RFC 5531 §9).
fn is_call(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0; 4])
}

/// Where a connection begins to count. Connections of one process begin far apart, and those of
/// another one elsewhere, since a server's duplicate request cache tells clients apart by address,
/// and ports are used again.
pub(crate) fn first_xid() -> u32 {
    static CONNECTIONS: AtomicU32 = AtomicU32::new(1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let started = now.map_or(0, |now| now.as_nanos() as u64) ^ u64::from(std::process::id()) << 32;
    // Two close times become distant numbers.
    let random = (started.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as u32;
    // A stretch of a million calls each, of which as many as there are begin at different ones.
    let stretch = CONNECTIONS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9);
    stretch.wrapping_add(random)
}

impl RpcTransport for RpcConnection {
    fn exchange(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        let xid = self.send(procedure, identity, arguments)?;
        self.receive(xid)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const NULL: Procedure = Procedure { program: 1, version: 1, number: 0, name: "NULL" };

    fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [xid, 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend_from_slice(results);
        bytes
    }

    fn pair() -> (RpcConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connection = RpcConnection::connect(address, Duration::from_secs(10)).unwrap();
        (connection, listener.accept().unwrap().0)
    }

    #[test]
    fn replies_in_any_order_and_in_fragments_find_their_calls() {
        let (mut connection, mut server) = pair();
        let first = connection.send(NULL, &Identity::None, &[]).unwrap();
        let second = connection.send(NULL, &Identity::None, &[]).unwrap();
        let late = reply(second, &[0, 0, 0, 2]);
        let (head, tail) = late.split_at(9);
        // An empty fragment is one, too.
        server.write_all(&[0; 4]).unwrap();
        server.write_all(&9_u32.to_be_bytes()).unwrap();
        server.write_all(head).unwrap();
        server.write_all(&[0; 4]).unwrap();
        server.write_all(&Mark::whole(tail.len()).to_bytes()).unwrap();
        server.write_all(tail).unwrap();
        let early = reply(first, &[0, 0, 0, 1]);
        server.write_all(&Mark::whole(early.len()).to_bytes()).unwrap();
        server.write_all(&early).unwrap();
        assert_eq!(connection.receive(first).unwrap().results(), Some(&[0, 0, 0, 1][..]));
        assert_eq!(connection.receive(second).unwrap().results(), Some(&[0, 0, 0, 2][..]));
    }

    #[test]
    fn a_record_without_bound_is_refused_and_an_end_is_told() {
        let (mut connection, mut server) = pair();
        // In the second fragment; a whole reply follows, but where it begins nobody can tell.
        let whole = reply(1, &[]);
        server.write_all(&[0, 0, 0, 1, 9]).unwrap();
        server.write_all(&0x7fff_ffff_u32.to_be_bytes()).unwrap();
        server.write_all(&Mark::whole(whole.len()).to_bytes()).unwrap();
        server.write_all(&whole).unwrap();
        for _ in 0..3 {
            let error = connection.receive_any().unwrap_err();
            assert!(matches!(error, ClientError::RecordTooLong { bytes: 0x8000_0000 }), "{error}");
        }
        let (mut connection, server) = pair();
        drop(server);
        assert!(matches!(connection.receive_any(), Err(ClientError::Closed)));
    }

    #[test]
    fn silence_ends_in_a_time_out() {
        let (mut connection, _server) = pair();
        connection.set_timeout(Duration::from_millis(20));
        let error = connection.receive_any().unwrap_err();
        assert!(matches!(error, ClientError::TimedOut { waited_ms: 20 }), "{error}");
    }
}
