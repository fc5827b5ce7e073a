//! Opens the sockets that a server listens on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use steadfast_sys::net;

use crate::StartError;
use crate::living::KEEPALIVE_AFTER_S;

/// Connections that the kernel completes ahead of accepting (bounded by `net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// Attempts to find a port that is free for both TCP and UDP.
const PORT_ATTEMPTS: usize = 16;
/// What connections have unless told, by the kernel's names.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// What everybody may choose.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// What a UDP socket may hold for a busy server, in bytes (bounded by `net.core.rmem_max`).
const DATAGRAM_BUFFER_BYTES: usize = 4 << 20;

/// The sockets for one address.
#[derive(Debug)]
pub(crate) struct Listening {
    /// The address, its port no longer 0.
    pub(crate) address: SocketAddr,
    /// One listener a pool.
    pub(crate) streams: Vec<OwnedFd>,
    /// One socket a seat.
    pub(crate) datagrams: Vec<OwnedFd>,
}

/// Opens `streams` listeners, whose connections have this congestion control or the system's, and
/// `datagrams` UDP sockets on one address.
pub(crate) fn listen(
    address: SocketAddr,
    streams: usize,
    datagrams: usize,
    congestion_control: Option<&str>,
) -> Result<Listening, StartError> {
    let mut attempts = if address.port() == 0 { PORT_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        match try_listen(address, streams, datagrams, congestion_control) {
            Err(StartError::Listen { source, .. })
                if attempts > 0 && source.kind() == io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
}

fn try_listen(
    address: SocketAddr,
    streams: usize,
    datagrams: usize,
    congestion_control: Option<&str>,
) -> Result<Listening, StartError> {
    let failed = |protocol, source| StartError::Listen { address, protocol, source };
    // Sockets that share a port would also share it with another server that does the same,
    // and each get a part of the calls. So the port must be free for a socket that shares not. That
    // one does not listen: a client that met it would be cut off when it is closed.
    let probe = bound_stream_socket(address, false).map_err(|error| failed("TCP", error))?;
    let port = local_port(&probe).map_err(|error| failed("TCP", error))?;
    if let Some(name) = congestion_control {
        try_congestion_control(&probe, name)?;
    }
    drop(probe);
    // The rest of it stays: an address that is link-local needs its interface.
    let mut address = address;
    address.set_port(port);
    if datagrams > 0 {
        drop(datagram_socket(address, false).map_err(|error| failed("UDP", error))?);
    }
    let streams = (0..streams)
        .map(|_| listening_stream_socket(address, congestion_control))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| failed("TCP", error))?;
    let datagrams = (0..datagrams)
        .map(|_| datagram_socket(address, true).map(OwnedFd::from))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| failed("UDP", error))?;
    Ok(Listening { address, streams, datagrams })
}

fn local_port(socket: &Socket) -> io::Result<u16> {
    Ok(net::local_address(socket)?.port())
}

fn new_socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // IPv4 has its own sockets.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn try_congestion_control(socket: &Socket, name: &str) -> Result<(), StartError> {
    let failed = |source| StartError::CongestionControl { name: name.to_owned(), source };
    socket.set_tcp_congestion(name.as_bytes()).map_err(failed)
}

/// Says so where the system's congestion control may make large replies slow: where no queue of the
/// interface paces (`fq`; loopback has none), TCP itself sets a timer for each part of such a reply.
pub(crate) fn tell_of_pacing() {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    if let Some(advice) = pacing_advice(&read(CONGESTION_CONTROL), &read(ALLOWED)) {
        tracing::info!("{advice}");
    }
}

fn pacing_advice(system: &str, allowed: &str) -> Option<String> {
    let system = system.trim();
    if !system.starts_with("bbr") {
        return None;
    }
    // Every kernel has reno, and lets everybody have it.
    let other =
        if allowed.split_whitespace().any(|name| name == "cubic") { "cubic" } else { "reno" };
    Some(format!(
        "TCP paces what it sends here ({system}); where the interface's queue does not do it (fq), as on \
         loopback, that makes large reads slow: congestion_control = \"{other}\" in [server] is without \
         (over long distances with losses {system} may still be the better one)"
    ))
}

fn listening_stream_socket(
    address: SocketAddr,
    congestion_control: Option<&str>,
) -> io::Result<OwnedFd> {
    let socket = bound_stream_socket(address, true)?;
    if let Some(name) = congestion_control {
        // Accepted sockets inherit it. Later is too late for them: what paces goes on.
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bound_stream_socket(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = new_socket(address, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    // Accepted sockets inherit these.
    net::set_no_delay(&socket)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(KEEPALIVE_AFTER_S.into()))
        .with_interval(Duration::from_secs(15))
        .with_retries(6);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn datagram_socket(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = new_socket(address, Type::DGRAM, Protocol::UDP)?;
    socket.set_reuse_port(is_shared)?;
    net::enable_packet_info(&socket, address.is_ipv6())?;
    // The kernel's own bound is good enough where it is lower.
    let _ = socket.set_recv_buffer_size(DATAGRAM_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(DATAGRAM_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_chosen_by_the_kernel_serves_both_protocols_and_all_sockets() {
        let listening = listen("127.0.0.1:0".parse().unwrap(), 2, 3, None).unwrap();
        assert_ne!(listening.address.port(), 0);
        assert_eq!((listening.streams.len(), listening.datagrams.len()), (2, 3));
        for socket in listening.streams.iter().chain(&listening.datagrams) {
            assert_eq!(net::local_address(socket).unwrap(), listening.address);
        }
    }

    #[test]
    fn nobody_can_connect_before_those_listen_that_stay() {
        let probe = bound_stream_socket("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = net::local_address(&probe).unwrap();
        let refused = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_in_use_is_named_with_advice() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 1, 1, None).unwrap();
        let error = listen(first.address, 1, 1, None).unwrap_err().to_string();
        assert!(error.contains(&first.address.to_string()), "{error}");
        assert!(error.contains("another server uses it"), "{error}");
    }

    #[test]
    fn connections_have_the_congestion_control_that_was_asked_for() {
        let system = std::fs::read_to_string(CONGESTION_CONTROL).unwrap();
        // Every kernel has reno; where it is the system's, so do connections that were not asked for it.
        let wanted = if system.trim() == "reno" { "cubic" } else { "reno" };
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listening = listen(any.parse().unwrap(), 2, 0, Some(wanted)).unwrap();
            let clients: Vec<_> =
                (0..8).map(|_| std::net::TcpStream::connect(listening.address).unwrap()).collect();
            let mut accepted = 0;
            let deadline = std::time::Instant::now() + Duration::from_secs(10);
            while accepted < clients.len() {
                assert!(std::time::Instant::now() < deadline, "{accepted} accepted");
                for listener in &listening.streams {
                    while let Ok((socket, _)) = net::accept(listener) {
                        let name = socket2::SockRef::from(&socket).tcp_congestion().unwrap();
                        assert_eq!(name.split(|byte| *byte == 0).next(), Some(wanted.as_bytes()));
                        accepted += 1;
                    }
                }
            }
        }
        let none = listen("127.0.0.1:0".parse().unwrap(), 1, 0, Some("none-such")).unwrap_err();
        assert!(none.to_string().contains("\"none-such\""), "{none}");
    }

    #[test]
    fn only_who_paces_is_told_and_of_what_may_be_had() {
        assert_eq!(pacing_advice("cubic\n", "reno cubic bbr\n"), None);
        assert!(pacing_advice("bbr\n", "reno bbr cubic\n").unwrap().contains("\"cubic\""));
        assert!(pacing_advice("bbr2\n", "reno bbr2\n").unwrap().contains("\"reno\""));
        assert!(pacing_advice("bbr\n", "").unwrap().contains("\"reno\""));
    }
}
