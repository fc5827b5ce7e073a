//! Connections of virtual clients: an address of its own for each where the server is on
//! loopback, a reserved port where that may be (servers want one by default), many at once, within
//! what the process may have open.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Socket, Type};
use steadfast_client::reserved;
use steadfast_sys::epoll::{Epoll, Events, Interest};

use crate::error::BenchError;

/// Connections that are being made at the same time, of one thread: more than that only fill the
/// server's backlog.
const OPENING_MAX: usize = 512;
/// How long all connections of a thread may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// What a UDP socket may hold of replies that were not received yet, in bytes, if the system's
/// `net.core.rmem_max` allows it: some dozen large READs.
const DATAGRAMS_BYTES: usize = 4 << 20;
/// Descriptors that this process needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// The source address of a virtual client, where the server is at a loopback address of IPv4:
/// 127.16.0.1 and on, two million of them. Elsewhere the kernel chooses.
pub fn source_address(server: SocketAddr, client: usize) -> Option<Ipv4Addr> {
    let IpAddr::V4(address) = server.ip() else { return None };
    if !address.is_loopback() {
        return None;
    }
    // No 0 and no 255 at the end, which look like a network's own and its broadcast address.
    let (rest, last) = (client / 254, client % 254 + 1);
    let (high, middle) = (16 + rest / 256 % 239, rest % 256);
    Some(Ipv4Addr::new(127, high as u8, middle as u8, last as u8))
}

/// Makes sure that so many connections may be open.
pub(crate) fn reserve_descriptors(connections: usize) -> Result<(), BenchError> {
    let needed = connections as u64 + SPARE_DESCRIPTORS;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limits.maximum.is_none_or(|maximum| maximum >= needed) {
        let raised = Rlimit { current: limits.maximum.or(Some(needed)), maximum: limits.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return Ok(());
        }
    }
    let limit = limits.maximum.or(limits.current).unwrap_or(0);
    Err(BenchError::Descriptors { needed, limit })
}

/// A socket of a virtual client; with an `address` it has that client's own, where there are any.
fn socket(
    server: SocketAddr,
    address: Option<usize>,
    kind: Type,
    connect: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<Socket> {
    let source = address.and_then(|client| source_address(server, client)).map(IpAddr::V4);
    reserved::connected(server, source, kind.nonblocking(), connect)
}

/// Starts to connect a virtual client; writability tells that it is done.
pub(crate) fn start_connecting(
    server: SocketAddr,
    address: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = socket(server, address, Type::STREAM, |socket| {
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&server.into()) {
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    })?;
    Ok(socket.into())
}

/// UDP sockets of the virtual clients of this range; see [`connect_all`].
pub(crate) fn datagrams(
    epoll: &Epoll,
    server: SocketAddr,
    clients: std::ops::Range<usize>,
    first_address: Option<usize>,
) -> Result<Vec<UdpSocket>, BenchError> {
    let make = |client: usize, place: u64| -> io::Result<UdpSocket> {
        let address = first_address.map(|first| first + client);
        let socket = socket(server, address, Type::DGRAM, |socket| {
            socket.set_recv_buffer_size(DATAGRAMS_BYTES)?;
            socket.connect(&server.into())
        })?;
        epoll.add(&socket, place, Interest::InputEdges)?;
        Ok(socket.into())
    };
    clients
        .zip(0..)
        .map(|(client, place)| {
            make(client, place).map_err(|error| BenchError::Connection { client, error })
        })
        .collect()
}

/// Connects the virtual clients of this range, edge-triggered, with their places in it as tokens;
/// `first_address` is whose address client 0 has, if they are to have their own.
pub(crate) fn connect_all(
    epoll: &Epoll,
    server: SocketAddr,
    clients: std::ops::Range<usize>,
    first_address: Option<usize>,
) -> Result<Vec<TcpStream>, BenchError> {
    let first = clients.start;
    let failed = |place: usize, error| BenchError::Connection { client: first + place, error };
    let mut sockets: Vec<TcpStream> = Vec::with_capacity(clients.len());
    let mut is_open = vec![false; clients.len()];
    let mut opening = 0;
    let mut events = Events::with_capacity(OPENING_MAX);
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    while opening > 0 || sockets.len() < clients.len() {
        while opening < OPENING_MAX && sockets.len() < clients.len() {
            let place = sockets.len();
            let address = first_address.map(|first_address| first_address + first + place);
            let socket = start_connecting(server, address).map_err(|error| failed(place, error))?;
            epoll.add(&socket, place as u64, Interest::StreamEdges)?;
            sockets.push(socket);
            opening += 1;
        }
        epoll.wait(&mut events, Some(Duration::from_millis(100)))?;
        for event in events.iter() {
            let place = event.token as usize;
            let (Some(socket), Some(is_open)) = (sockets.get(place), is_open.get_mut(place)) else {
                continue;
            };
            if let Some(error) = socket.take_error()? {
                return Err(failed(place, error));
            }
            if event.is_writable && !*is_open {
                *is_open = true;
                opening -= 1;
            }
        }
        if Instant::now() > deadline {
            let place = is_open.iter().position(|is_open| !is_open).unwrap_or(0);
            return Err(failed(place, io::ErrorKind::TimedOut.into()));
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_client_has_an_address_of_its_own_on_loopback_only() {
        let local = "127.0.0.1:2049".parse().unwrap();
        let addresses: HashSet<Ipv4Addr> =
            (0..100_000).map(|client| source_address(local, client).unwrap()).collect();
        assert_eq!(addresses.len(), 100_000);
        assert!(addresses.iter().all(Ipv4Addr::is_loopback));
        assert_eq!(source_address("10.0.0.1:2049".parse().unwrap(), 3), None);
        assert_eq!(source_address("[::1]:2049".parse().unwrap(), 3), None);
    }

    #[test]
    fn more_descriptors_than_there_can_be_are_refused() {
        assert!(reserve_descriptors(10).is_ok());
        let error = reserve_descriptors(usize::MAX / 4).unwrap_err();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }

    #[test]
    fn clients_connect_from_their_addresses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let epoll = Epoll::new().unwrap();
        let sockets = connect_all(&epoll, server, 5..25, Some(100)).unwrap();
        assert_eq!(sockets.len(), 20);
        for (index, socket) in sockets.iter().enumerate() {
            let ours = source_address(server, 105 + index).unwrap();
            assert_eq!(socket.local_addr().unwrap().ip(), IpAddr::V4(ours));
        }
        drop(listener);
        let error = connect_all(&epoll, server, 0..1, None).unwrap_err();
        assert!(matches!(error, BenchError::Connection { client: 0, .. }), "{error}");
    }
}
