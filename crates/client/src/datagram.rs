//! RPC over UDP, with losses and repetitions that a test steers.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::call::{Identity, Procedure, append_call};
use crate::error::ClientError;
use crate::reply::{Reply, parse_reply};
use crate::reserved;
use crate::stream::first_xid;
use crate::transport::RpcTransport;

/// When a call is sent again, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// The first wait; each further one is twice as long.
    pub first_wait: Duration,
    /// How often a call is sent at most.
    pub attempts: u32,
}

impl Default for Retransmission {
    /// 0.7 s as NFS clients of all times, five times.
    fn default() -> Self {
        Self { first_wait: Duration::from_millis(700), attempts: 5 }
    }
}

/// A UDP socket connected to a server.
#[derive(Debug)]
pub struct RpcDatagram {
    socket: UdpSocket,
    retransmission: Retransmission,
    next_xid: u32,
    buffer: Vec<u8>,
}

impl RpcDatagram {
    /// A socket for this server, at a reserved port if that may be.
    ///
    /// # Errors
    /// The socket's.
    pub fn connect(
        server: SocketAddr,
        retransmission: Retransmission,
    ) -> Result<Self, ClientError> {
        Ok(Self::over(reserved::datagrams(server)?, retransmission))
    }

    /// A socket that was connected already.
    pub fn over(socket: UdpSocket, retransmission: Retransmission) -> Self {
        Self { socket, retransmission, next_xid: first_xid(), buffer: vec![0; 1 << 16] }
    }

    /// Builds a call; nothing is sent. The xid names its reply.
    pub fn prepare(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> (u32, Vec<u8>) {
        self.next_xid = self.next_xid.wrapping_add(1);
        let mut message = Vec::with_capacity(arguments.len() + 128);
        append_call(&mut message, self.next_xid, procedure, identity, arguments);
        (self.next_xid, message)
    }

    /// Sends a datagram once: to lose it, do not call this; to repeat or reorder, call it so.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, message: &[u8]) -> Result<(), ClientError> {
        self.socket.send(message)?;
        Ok(())
    }

    /// Waits for the next reply, whatever call it answers; `None` when none comes in time.
    ///
    /// # Errors
    /// The socket's, or when what comes is no RPC.
    pub fn receive(&mut self, wait: Duration) -> Result<Option<Reply>, ClientError> {
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut self.buffer) {
                Ok(bytes) => {
                    let message = self.buffer.get(..bytes).unwrap_or(&[]).to_vec();
                    let (xid, body) = parse_reply(&message)
                        .map_err(|error| ClientError::Malformed { procedure: "RPC", error })?;
                    return Ok(Some(Reply { xid, body, message }));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    ErrorKind::Interrupted => {}
                    // The server's port was closed when an earlier datagram came; it may open.
                    ErrorKind::ConnectionRefused => {
                        std::thread::sleep(Duration::from_millis(5).min(left));
                    }
                    _ => return Err(ClientError::Io(error)),
                },
            }
        }
    }
}

impl RpcTransport for RpcDatagram {
    fn exchange(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        let (xid, message) = self.prepare(procedure, identity, arguments);
        let started = Instant::now();
        let mut wait = self.retransmission.first_wait;
        for _ in 0..self.retransmission.attempts {
            match self.send(&message) {
                Ok(()) => {}
                Err(ClientError::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
            let deadline = Instant::now() + wait;
            while let Some(reply) =
                self.receive(deadline.saturating_duration_since(Instant::now()))?
            {
                // Others answer calls that were given up or repeated.
                if reply.xid == xid {
                    return Ok(reply);
                }
            }
            wait = wait.saturating_mul(2);
        }
        Err(ClientError::timed_out(started.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_call_is_sent_again_and_a_stray_reply_passed_over() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            let (_, from) = server.recv_from(&mut buffer).unwrap();
            let first = buffer;
            server.recv_from(&mut buffer).unwrap();
            assert_eq!(first[..4], buffer[..4], "the same xid");
            for xid in [[0; 4], buffer[..4].try_into().unwrap()] {
                let mut reply = xid.to_vec();
                for word in [1_u32, 0, 0, 0, 0] {
                    reply.extend_from_slice(&word.to_be_bytes());
                }
                server.send_to(&reply, from).unwrap();
            }
        });
        let retransmission = Retransmission { first_wait: Duration::from_millis(30), attempts: 8 };
        let mut datagram = RpcDatagram::connect(address, retransmission).unwrap();
        let procedure = Procedure { program: 1, version: 1, number: 0, name: "NULL" };
        assert!(datagram.call(procedure, &Identity::None, &[]).unwrap().is_empty());
        thread.join().unwrap();
    }
}
