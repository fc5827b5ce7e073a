//! A server that knows only one answer: every call gets an empty successful reply. What it
//! costs a call is the floor that sockets alone set. It replies once the whole call has come.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};

use steadfast_rpc::accepted_success;
use steadfast_rpc::record::{Mark, Splitter, Step};
use steadfast_sys::epoll::{Epoll, Events, Interest};
use steadfast_xdr::{Reader, Writer};

/// Longest call that is taken, in bytes.
const CALL_BYTES_MAX: usize = 2 << 20;
/// Replies that wait for a slow client before it is cut off, in bytes.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// A reply: accepted, no verifier, success.
const REPLY_BYTES: usize = 24;
const XID_BYTES: usize = 4;
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
    splitter: Splitter,
    /// Of the call that is coming: what there is of its xid.
    xid: [u8; XID_BYTES],
    xid_bytes: usize,
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
                self.connections.insert(self.next_token, Connection::over(socket));
                Ok(())
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl Connection {
    fn over(socket: TcpStream) -> Self {
        Self {
            socket,
            splitter: Splitter::default(),
            xid: [0; XID_BYTES],
            xid_bytes: 0,
            out: Vec::new(),
        }
    }

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
        loop {
            if let Some((call, rest)) = self.splitter.whole(bytes, CALL_BYTES_MAX) {
                self.reply(call)?;
                bytes = rest;
                continue;
            }
            match self.splitter.step(&mut bytes, CALL_BYTES_MAX) {
                Ok(Step::Piece(piece)) => {
                    let missing = self.xid.iter_mut().skip(self.xid_bytes);
                    for (place, byte) in missing.zip(piece) {
                        *place = *byte;
                        self.xid_bytes += 1;
                    }
                }
                Ok(Step::End) => {
                    let (xid, xid_bytes) = (self.xid, std::mem::take(&mut self.xid_bytes));
                    self.reply(xid.get(..xid_bytes).unwrap_or(&[]))?;
                }
                Ok(Step::Starved) => return Ok(()),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }

    /// Replies to the call that begins with these bytes.
    fn reply(&mut self, call: &[u8]) -> io::Result<()> {
        match Reader::new(call).u32() {
            Ok(xid) if self.out.len() <= PENDING_BYTES_MAX => {
                self.out.extend_from_slice(&Mark::whole(REPLY_BYTES).to_bytes());
                accepted_success(&mut Writer::new(&mut self.out), xid);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
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

    fn connection() -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Connection::over(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    }

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        [&Mark::new(bytes.len(), is_last).to_bytes()[..], bytes].concat()
    }

    #[test]
    fn calls_in_any_pieces_get_their_replies() {
        let mut expected = connection();
        expected.reply(&[1, 2, 3, 4]).unwrap();
        expected.reply(&[5, 6, 7, 8]).unwrap();
        let stream = [
            fragment(&[1, 2], false),
            fragment(&[], false),
            fragment(&[3, 4, 9, 9, 9, 9], true),
            fragment(&[5, 6, 7, 8, 9, 9, 9, 9], true),
        ]
        .concat();
        for size in 1..=stream.len() {
            let mut connection = connection();
            for piece in stream.chunks(size) {
                connection.answer(piece).unwrap();
            }
            assert_eq!(connection.out, expected.out, "{size}");
        }
    }

    #[test]
    fn what_is_no_call_ends_the_connection() {
        let too_long = Mark::whole(CALL_BYTES_MAX + 1).to_bytes();
        let together = [fragment(&[0; 8], false), Mark::whole(CALL_BYTES_MAX).to_bytes().to_vec()];
        for bytes in
            [fragment(&[], true), fragment(&[1, 2, 3], true), too_long.to_vec(), together.concat()]
        {
            for size in [1, bytes.len()] {
                let mut connection = connection();
                let outcome = bytes.chunks(size).try_for_each(|piece| connection.answer(piece));
                assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::InvalidData);
                assert!(connection.out.is_empty());
            }
        }
    }

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
