//! Ports below 1024, from which servers want calls by default (`secure` of exports(5)). Only root, or
//! who has `CAP_NET_BIND_SERVICE`, may use them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Those that are tried. Below them are more services that somebody may start.
const FIRST: u16 = 600;
const COUNT: u16 = 1024 - FIRST;

/// Where the next socket begins to look: connections that were closed keep their ports for a while.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// The reserved ports, each once, for a socket that takes one of them.
fn ports() -> impl Iterator<Item = u16> {
    let start = match NEXT.fetch_add(1, Ordering::Relaxed) {
        // Processes begin in different places.
        0 => {
            let start = std::process::id() as u16;
            NEXT.store(start.wrapping_add(1), Ordering::Relaxed);
            start
        }
        start => start,
    };
    (0..COUNT).map(move |n| FIRST + (start % COUNT + n) % COUNT)
}

/// Whether another port may do.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable)
}

fn unspecified(server: SocketAddr) -> IpAddr {
    if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// A socket of this kind that `connect` has connected, or has begun to connect, from a reserved port
/// of the `source` address, where there is one that is free and may be used; else from another.
///
/// # Errors
/// The socket's, or those of `connect`.
pub fn connected(
    server: SocketAddr,
    source: Option<IpAddr>,
    kind: Type,
    connect: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<Socket> {
    let address = source.unwrap_or_else(|| unspecified(server));
    let is_stream = kind == Type::STREAM || kind == Type::STREAM.nonblocking();
    let open = || {
        let socket = Socket::new(Domain::for_address(server), kind, None)?;
        // Connections to several servers, and those that are closed, share a port. Datagrams to a
        // shared one would get lost.
        socket.set_reuse_address(is_stream)?;
        Ok::<_, io::Error>(socket)
    };
    let mut socket = open()?;
    for port in ports() {
        match socket.bind(&SocketAddr::new(address, port).into()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            // We may not use them, or the address is not ours, which the last attempt tells.
            Err(_) => break,
        }
        match connect(&socket) {
            Ok(()) => return Ok(socket),
            Err(error) if is_taken(&error) => socket = open()?,
            Err(error) => return Err(error),
        }
    }
    let socket = open()?;
    if source.is_some() || !is_stream {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    connect(&socket)?;
    Ok(socket)
}

/// A connection to a server, from a reserved port if that may be.
///
/// # Errors
/// When the server cannot be reached in this time.
pub fn stream(server: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let connect = |socket: &Socket| socket.connect_timeout(&server.into(), timeout);
    Ok(connected(server, None, Type::STREAM, connect)?.into())
}

/// A UDP socket for a server, at a reserved port if that may be.
///
/// # Errors
/// The socket's.
pub fn datagrams(server: SocketAddr) -> io::Result<UdpSocket> {
    let connect = |socket: &Socket| socket.connect(&server.into());
    Ok(connected(server, None, Type::DGRAM, connect)?.into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::TcpListener;

    use super::*;

    fn is_root() -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
    }

    #[test]
    fn root_connects_from_reserved_ports_until_there_are_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let count = usize::from(COUNT) + 20;
        let mut accepted = Vec::new();
        let streams: Vec<TcpStream> = (0..count)
            .map(|_| {
                let stream = stream(server, Duration::from_secs(10)).unwrap();
                accepted.push(listener.accept().unwrap());
                stream
            })
            .collect();
        let ports: HashSet<u16> =
            streams.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), count, "each its own");
        let reserved = ports.iter().filter(|port| **port < 1024).count();
        // Others on this machine may have some.
        assert_eq!(reserved > usize::from(COUNT) / 2, is_root(), "{reserved} of {count}");
    }

    #[test]
    fn datagrams_come_from_reserved_ports_too() {
        let server = UdpSocket::bind("[::1]:0").unwrap().local_addr().unwrap();
        let [one, other] = [(); 2].map(|()| datagrams(server).unwrap().local_addr().unwrap());
        assert_eq!([one.port() < 1024, other.port() < 1024], [is_root(); 2]);
    }
}
