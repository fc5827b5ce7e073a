//! A server that knows only one answer: every call gets an empty successful reply. What it
//! costs a call is the floor that sockets alone set.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};

use steadfast_sys::epoll::{Epoll, Events, Interest};

/// Longest call that is taken, in bytes.
const CALL_BYTES_MAX: usize = 2 << 20;
/// Replies that wait for a slow client before it is cut off, in bytes.
const PENDING_BYTES_MAX: usize = 4 << 20;
const CONNECTIONS_MAX: usize = 4096;
const LISTENER: u64 = u64::MAX;

/// One epoll thread's state.
#[derive(Debug)]
pub struct NullServer {
    listener: TcpListener,
    epoll: Epoll,
    connections: HashMap<u64, Connection>,
    next_token: u64,
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    /// Of the call that is coming: what there is of its mark and xid.
    head: Vec<u8>,
    /// Bytes of the call still to come after the head.
    to_skip: usize,
    out: Vec<u8>,
}

impl NullServer {
    /// Listens.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, Interest::Input)?;
        Ok(Self { listener, epoll, connections: HashMap::new(), next_token: 0 })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The socket's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves on this thread, for ever.
    ///
    /// # Errors
    /// When waiting fails; what fails on one connection closes that one.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut buffer = vec![0; 256 << 10];
        loop {
            self.epoll.wait(&mut events, None)?;
            for event in events.iter() {
                if event.token == LISTENER {
                    self.accept()?;
                } else if let Some(connection) = self.connections.get_mut(&event.token)
                    && connection.serve(&mut buffer).is_err()
                {
                    self.connections.remove(&event.token);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        match self.listener.accept() {
            Ok((socket, _)) if self.connections.len() < CONNECTIONS_MAX => {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                self.next_token += 1;
                self.epoll.add(&socket, self.next_token, Interest::StreamEdges)?;
                let connection =
                    Connection { socket, head: Vec::new(), to_skip: 0, out: Vec::new() };
                self.connections.insert(self.next_token, connection);
                Ok(())
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl Connection {
    fn serve(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.flush()?;
        loop {
            let space = buffer.len();
            match steadfast_sys::net::receive(&self.socket, &mut [IoSliceMut::new(buffer)]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.answer(buffer.get(..count).unwrap_or(&[]))?;
                    self.flush()?;
                    if count < space {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (_, rest) = bytes.split_at(self.to_skip.min(bytes.len()));
            self.to_skip -= bytes.len() - rest.len();
            let (head, rest) = rest.split_at((8 - self.head.len()).min(rest.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
            if let Ok([m0, m1, m2, m3, xid @ ..]) = <[u8; 8]>::try_from(self.head.as_slice()) {
                let length = (u32::from_be_bytes([m0, m1, m2, m3]) & 0x7fff_ffff) as usize;
                if !(4..=CALL_BYTES_MAX).contains(&length) || self.out.len() > PENDING_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.to_skip = length - 4;
                self.head.clear();
                // A reply of 24 bytes: accepted, no verifier, success.
                self.out.extend_from_slice(&0x8000_0018_u32.to_be_bytes());
                self.out.extend_from_slice(&xid);
                self.out.extend_from_slice(&1_u32.to_be_bytes());
                self.out.extend_from_slice(&[0; 16]);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match steadfast_sys::net::send(&self.socket, &[IoSlice::new(&self.out)], false) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Load, Operation, run};
    use crate::{Control, Target};
    use std::time::Duration;

    #[test]
    fn the_load_generator_runs_against_it() {
        let mut server = NullServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        std::thread::spawn(move || server.run());
        let load = Load {
            connections: 3,
            depth: 4,
            threads: 2,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(50),
            server_pid: Some(std::process::id()),
            ..Load::new(Target::new(address), "/", Operation::Null)
        };
        let report = run(&load, &Control::default()).unwrap();
        assert!(report.calls > 0 && report.checks.replies >= report.calls);
        assert!(report.costs.server_cpu_us_per_call.is_some());
    }
}
