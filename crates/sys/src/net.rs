//! Sockets: streams received and sent in vectors, datagrams in batches with the address that
//! they were sent to, files sent from the page cache.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

/// The most datagrams that one call receives or sends.
pub const DATAGRAMS_MAX: usize = 16;

/// The largest payload of a UDP datagram over IPv4, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Accepts a connection; its socket does not block.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, address) = rustix::net::acceptfrom_with(listener, flags)?;
    let address = address
        .and_then(|address| SocketAddr::try_from(address).ok())
        .ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok((socket, canonical(address)))
}

/// The address, an IPv4 address mapped into IPv6 told as IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The number of a network interface, by its name, or by its number as text.
///
/// # Errors
/// `NotFound` if there is none.
pub fn interface(zone: &str) -> io::Result<u32> {
    let not_found = || io::Error::from(io::ErrorKind::NotFound);
    if let Ok(number) = zone.parse::<u32>() {
        return if number == 0 { Err(not_found()) } else { Ok(number) };
    }
    let name = std::ffi::CString::new(zone).map_err(|_| not_found())?;
    // SAFETY: the name is a string with a NUL at its end, which the call only reads.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(not_found()),
        number => Ok(number),
    }
}

/// Receives what there is into the buffers, the first filled first.
pub fn receive(socket: impl AsFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    Ok(rustix::io::readv(socket, buffers)?)
}

/// Sends as much as the socket takes at once. With `more`, the kernel may keep an incomplete
/// segment back, since more is about to follow.
pub fn send(socket: impl AsFd, buffers: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if more {
        flags |= SendFlags::MORE;
    }
    Ok(rustix::net::sendmsg(socket, buffers, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Sends from a file's page cache as much as the socket takes at once; 0 at the file's end.
pub fn send_file(
    socket: impl AsFd,
    file: impl AsFd,
    offset: u64,
    count: usize,
) -> io::Result<usize> {
    let mut offset = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), count)?)
}

/// Acknowledges at once what has been received (`TCP_QUICKACK`).
pub fn acknowledge_now(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_quickack(socket, true)?)
}

/// Sends small segments at once (`TCP_NODELAY`).
pub fn set_no_delay(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_nodelay(socket, true)?)
}

/// Ends a connection in both directions; the descriptor stays open.
pub fn shut_down(socket: impl AsFd) {
    // Not connected any more is what was wanted.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Ends the sending direction: the peer reads what was sent, then the end.
pub fn shut_down_sending(socket: impl AsFd) {
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// What the kernel knows of a connection's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLife {
    /// Neither side has closed it, and the peer has not refused it.
    pub is_established: bool,
    /// The peer sent data, or acknowledged some, so many ms ago, as exactly as the kernel's clock
    /// ticks ([`TICK_MS_MAX`]).
    pub heard_ms: u32,
    /// How long a message to the peer and its answer take, in µs.
    pub round_trip_us: u32,
}

/// The coarsest tick of a kernel's clock, in ms (`CONFIG_HZ=100`).
pub const TICK_MS_MAX: u32 = 10;

/// The state of a connection that works (`enum` in `linux/tcp.h`).
const TCP_ESTABLISHED: u8 = 1;

/// What the kernel knows of a connection's peer (`TCP_INFO`).
pub fn peer_life(socket: impl AsFd) -> io::Result<PeerLife> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has as many, and the
    // descriptor is open while it is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerLife {
        is_established: info.tcpi_state == TCP_ESTABLISHED,
        heard_ms: info.tcpi_last_data_recv.min(info.tcpi_last_ack_recv),
        round_trip_us: info.tcpi_rtt,
    })
}

/// What the kernel has measured of a connection, by acknowledgements of the peer's kernel: how busy the peer's
/// process is does not count, but for messages too short to be acknowledged at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTiming {
    /// How long a segment and its acknowledgement take, smoothed, in µs.
    pub round_trip_us: u32,
    /// The least that it took within the last minutes (`net.ipv4.tcp_min_rtt_wlen`), in µs.
    pub lowest_us: u32,
    /// What was sent and is not acknowledged, in bytes, as exactly as whole segments are.
    pub unacknowledged_bytes: u64,
}

/// The beginning of `struct tcp_info` (`linux/tcp.h`), up to what is needed of it: libc has less of it with some C
/// libraries.
#[repr(C)]
struct TcpInfo {
    states: [u8; 8],
    /// `tcpi_rto` and what follows, up to `tcpi_total_retrans`.
    words: [u32; 24],
    /// `tcpi_pacing_rate`, `tcpi_max_pacing_rate`, `tcpi_bytes_acked`, `tcpi_bytes_received`.
    totals: [u64; 4],
    segments_out: u32,
    segments_in: u32,
    not_sent_bytes: u32,
    /// Linux 4.6.
    lowest_us: u32,
}

/// Where [`TcpInfo::words`] has `tcpi_snd_mss`, `tcpi_unacked` and `tcpi_rtt`.
const SEGMENT_BYTES: usize = 2;
const UNACKNOWLEDGED: usize = 4;
const ROUND_TRIP: usize = 15;

/// How long the way to a connection's peer takes (`TCP_INFO`).
///
/// # Errors
/// Those of getsockopt(2); `Unsupported` by a kernel that does not tell the lowest time.
pub fn path_timing(socket: impl AsFd) -> io::Result<PathTiming> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut info: TcpInfo = unsafe { mem::zeroed() };
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has as many, and the
    // descriptor is open while it is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < size_of::<TcpInfo>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let [segment_bytes, unacknowledged, round_trip_us] =
        [SEGMENT_BYTES, UNACKNOWLEDGED, ROUND_TRIP].map(|at| info.words[at]);
    Ok(PathTiming {
        round_trip_us,
        lowest_us: info.lowest_us,
        unacknowledged_bytes: u64::from(unacknowledged) * u64::from(segment_bytes),
    })
}

/// After so many seconds of silence the kernel asks the peer for a sign of life
/// (`TCP_KEEPIDLE`): at once, if it has been silent for longer.
pub fn set_keepalive_after(socket: impl AsFd, seconds: u32) -> io::Result<()> {
    let time = std::time::Duration::from_secs(seconds.into());
    Ok(rustix::net::sockopt::set_tcp_keepidle(socket, time)?)
}

/// Closes a connection without a word to its peer, as if this machine had lost its power
/// (`TCP_REPAIR`). For tests; needs `CAP_NET_ADMIN`.
pub fn vanish(socket: impl Into<OwnedFd>) -> io::Result<()> {
    let socket = socket.into();
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one `int` from `on`, and the descriptor is open while it is owned.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The address a socket is bound to.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map(canonical).map_err(|_| io::ErrorKind::Unsupported.into())
}

/// Lets [`receive_datagrams`] tell to which address a datagram was sent.
pub fn enable_packet_info(socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
    let (level, option) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    set_option(socket.as_fd(), level, option, 1)
}

/// How many bytes are to be there before the kernel says that the socket can be read
/// (`SO_RCVLOWAT`): a reader that knows what is coming is woken once for it.
pub fn set_receive_low_water(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` lives through the call and the length is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Our address that a datagram was sent to, and the interface it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// The interface's index, needed for link-local addresses.
    pub interface: u32,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// How many bytes of its slot it takes.
    pub length: usize,
    /// Who sent it, as the socket tells it (not canonical).
    pub from: SocketAddr,
    /// To where, if the kernel told.
    pub to: Option<LocalAddress>,
    /// It was larger than the slot.
    pub is_truncated: bool,
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its payload.
    pub bytes: &'a [u8],
    /// To whom, as the socket told it.
    pub to: SocketAddr,
    /// From which of our addresses; `None` lets the kernel choose.
    pub from: Option<LocalAddress>,
}

/// Control messages of one datagram: one `in6_pktinfo` with its header, aligned.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control(
    #[expect(dead_code, reason = "read and written by the kernel and the CMSG macros")] [u8; 64],
);

/// Receives up to [`DATAGRAMS_MAX`] datagrams, the i-th into the i-th `slot_bytes` of `buffer`,
/// and tells what came in `received`. Does not block.
pub fn receive_datagrams(
    socket: impl AsFd,
    buffer: &mut [u8],
    slot_bytes: usize,
    received: &mut Vec<Received>,
) -> io::Result<()> {
    received.clear();
    // SAFETY: all-zero bytes are valid for these plain C structures.
    let mut names: [libc::sockaddr_storage; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    let mut controls = [Control([0; 64]); DATAGRAMS_MAX];
    // SAFETY: as above.
    let mut vectors: [libc::iovec; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    let mut count = 0;
    for ((((slot, name), control), vector), header) in buffer
        .chunks_exact_mut(slot_bytes.max(1))
        .zip(&mut names)
        .zip(&mut controls)
        .zip(&mut vectors)
        .zip(&mut headers)
    {
        vector.iov_base = slot.as_mut_ptr().cast();
        vector.iov_len = slot.len();
        let header = &mut header.msg_hdr;
        header.msg_name = (&raw mut *name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut *vector;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut *control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        count += 1;
    }
    // SAFETY: the first `count` headers point to live buffers of the given lengths, each used by
    // one header only, and nothing else touches them during the call.
    let result = unsafe {
        libc::recvmmsg(
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            // Of another type by each C library.
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let count = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    for (header, name) in headers.iter().zip(&names).take(count) {
        // One entry a slot, whatever came in it: of a sender that is no internet address, nothing.
        let from = socket_address(name);
        received.push(Received {
            length: from.map_or(0, |_| header.msg_len as usize),
            from: from.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            to: packet_info(&header.msg_hdr),
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        });
    }
    Ok(())
}

/// Sends up to [`DATAGRAMS_MAX`] of these datagrams without blocking, and tells how many went.
/// An error is that of the first datagram.
pub fn send_datagrams(socket: impl AsFd, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
    let mut names = [MaybeUninit::<libc::sockaddr_storage>::zeroed(); DATAGRAMS_MAX];
    let mut controls = [Control([0; 64]); DATAGRAMS_MAX];
    // SAFETY: all-zero bytes are valid for these plain C structures.
    let mut vectors: [libc::iovec; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; DATAGRAMS_MAX] = unsafe { mem::zeroed() };
    let mut count = 0;
    for ((((datagram, name), control), vector), header) in
        datagrams.iter().zip(&mut names).zip(&mut controls).zip(&mut vectors).zip(&mut headers)
    {
        vector.iov_base = datagram.bytes.as_ptr().cast_mut().cast();
        vector.iov_len = datagram.bytes.len();
        let header = &mut header.msg_hdr;
        header.msg_namelen = write_address(name, datagram.to);
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_iov = &raw mut *vector;
        header.msg_iovlen = 1;
        if let Some(from) = datagram.from {
            header.msg_control = (&raw mut *control).cast();
            header.msg_controllen = size_of::<Control>() as _;
            write_packet_info(header, from);
        }
        count += 1;
    }
    // SAFETY: the first `count` headers point to live buffers of the given lengths, which the
    // kernel only reads.
    let result = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn socket_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: a `sockaddr_storage` is large and aligned enough for every address, and
            // the family says that this is what the kernel wrote.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(name.sin6_addr.s6_addr),
                u16::from_be(name.sin6_port),
                name.sin6_flowinfo,
                name.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

fn write_address(
    name: &mut MaybeUninit<libc::sockaddr_storage>,
    address: SocketAddr,
) -> libc::socklen_t {
    match address {
        SocketAddr::V4(address) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` has room and alignment for a `sockaddr_in`.
            unsafe { name.as_mut_ptr().cast::<libc::sockaddr_in>().write(value) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: a `sockaddr_storage` has room and alignment for a `sockaddr_in6`.
            unsafe { name.as_mut_ptr().cast::<libc::sockaddr_in6>().write(value) };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

fn packet_info(header: &libc::msghdr) -> Option<LocalAddress> {
    // SAFETY: the header is as `recvmmsg` left it, so its control buffer holds well-formed
    // control messages, over which the CMSG macros step within `msg_controllen`.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = message.as_ref() {
            let data = libc::CMSG_DATA(message);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    return Some(LocalAddress {
                        // Ours also when the datagram was sent to a broadcast address.
                        ip: Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into(),
                        interface: info.ipi_ifindex as u32,
                    });
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    return Some(LocalAddress {
                        ip: Ipv6Addr::from(info.ipi6_addr.s6_addr).into(),
                        interface: info.ipi6_ifindex,
                    });
                }
                _ => message = libc::CMSG_NXTHDR(header, message),
            }
        }
    }
    None
}

/// Fills the header's control buffer (zeroed, of [`Control`]'s size) with one packet-info
/// message and sets its length to that.
fn write_packet_info(header: &mut libc::msghdr, from: LocalAddress) {
    // SAFETY: the control buffer is zeroed, aligned and larger than either message, so the first
    // header and its data lie within it.
    unsafe {
        let Some(message) = libc::CMSG_FIRSTHDR(header).as_mut() else {
            return;
        };
        let data = libc::CMSG_DATA(message);
        match from.ip {
            IpAddr::V4(ip) => {
                let size = size_of::<libc::in_pktinfo>() as libc::c_uint;
                message.cmsg_level = libc::IPPROTO_IP;
                message.cmsg_type = libc::IP_PKTINFO;
                message.cmsg_len = libc::CMSG_LEN(size) as _;
                data.cast::<libc::in_pktinfo>().write_unaligned(libc::in_pktinfo {
                    // By route: the interface that the request came by need not lead back.
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from(ip).to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                });
                header.msg_controllen = libc::CMSG_SPACE(size) as _;
            }
            IpAddr::V6(ip) => {
                let size = size_of::<libc::in6_pktinfo>() as libc::c_uint;
                message.cmsg_level = libc::IPPROTO_IPV6;
                message.cmsg_type = libc::IPV6_PKTINFO;
                message.cmsg_len = libc::CMSG_LEN(size) as _;
                let interface = if ip.is_unicast_link_local() { from.interface } else { 0 };
                data.cast::<libc::in6_pktinfo>().write_unaligned(libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    ipi6_ifindex: interface,
                });
                header.msg_controllen = libc::CMSG_SPACE(size) as _;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn round_trip(ours: &str, theirs: &str) {
        let server = UdpSocket::bind(ours).unwrap();
        enable_packet_info(&server, ours.starts_with('[')).unwrap();
        let client = UdpSocket::bind(theirs).unwrap();
        let target =
            SocketAddr::new(client.local_addr().unwrap().ip(), server.local_addr().unwrap().port());
        for message in [&b"one"[..], b"three"] {
            client.send_to(message, target).unwrap();
        }
        let mut buffer = vec![0; 4 * 100];
        let mut received = Vec::new();
        let mut all: Vec<Vec<u8>> = Vec::new();
        while all.len() < 2 {
            match receive_datagrams(&server, &mut buffer, 100, &mut received) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => panic!("{error}"),
            }
            for (datagram, slot) in received.iter().zip(buffer.chunks_exact(100)) {
                assert_eq!(datagram.from, client.local_addr().unwrap());
                assert_eq!(datagram.to.unwrap().ip, target.ip());
                assert!(!datagram.is_truncated);
                all.push(slot[..datagram.length].to_vec());
            }
        }
        assert_eq!(all, [b"one".to_vec(), b"three".to_vec()]);
        let outgoing = Outgoing { bytes: b"reply", to: received[0].from, from: received[0].to };
        assert_eq!(send_datagrams(&server, &[outgoing, outgoing]).unwrap(), 2);
        for _ in 0..2 {
            let (count, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"reply");
            assert_eq!(from, target);
        }
    }

    #[test]
    fn datagrams_are_answered_from_the_address_that_was_asked() {
        round_trip("0.0.0.0:0", "127.0.0.1:0");
        round_trip("127.0.0.1:0", "127.0.0.1:0");
    }

    #[test]
    fn the_same_over_ipv6() {
        round_trip("[::]:0", "[::1]:0");
    }

    #[test]
    fn a_datagram_larger_than_its_slot_is_marked() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(&[1; 50], server.local_addr().unwrap()).unwrap();
        let mut received = Vec::new();
        while let Err(error) = receive_datagrams(&server, &mut [0; 40], 40, &mut received) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        assert_eq!(received.len(), 1);
        assert!(received[0].is_truncated);
        assert_eq!(received[0].to, None);
    }

    #[test]
    fn a_peers_life_is_known_and_can_be_asked_for() {
        use std::time::{Duration, Instant};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let keepalive = |seconds| {
            rustix::net::sockopt::set_socket_keepalive(&server, true).unwrap();
            set_keepalive_after(&server, seconds).unwrap();
        };
        assert!(peer_life(&server).unwrap().is_established);
        std::thread::sleep(Duration::from_millis(1_100));
        assert!(peer_life(&server).unwrap().heard_ms >= 1_000);
        // It answers by itself.
        keepalive(1);
        let begun = Instant::now();
        while peer_life(&server).unwrap().heard_ms > 500 {
            assert!(begun.elapsed() < Duration::from_secs(5), "no sign of life");
            std::thread::sleep(Duration::from_millis(1));
        }
        keepalive(60);
        drop(client);
        while peer_life(&server).unwrap().is_established {
            assert!(begun.elapsed() < Duration::from_secs(5), "its end is not seen");
        }
    }

    #[test]
    fn the_way_to_a_peer_is_timed() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..20 {
            client.write_all(&[1; 4096]).unwrap();
            server.read_exact(&mut [0; 4096]).unwrap();
            server.write_all(&[2]).unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        let timing = path_timing(&client).unwrap();
        assert!(timing.lowest_us > 0 && timing.lowest_us < 1_000_000, "{timing:?}");
        assert!(timing.round_trip_us >= timing.lowest_us, "{timing:?}");
        assert_eq!(timing.unacknowledged_bytes, 0, "{timing:?}");
        // Two views of the same.
        assert_eq!(peer_life(&client).unwrap().round_trip_us, timing.round_trip_us);
        let (pair, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(path_timing(&pair).is_err());
    }

    #[test]
    fn mapped_addresses_are_told_as_ipv4() {
        assert_eq!(
            canonical("[::ffff:10.1.2.3]:9".parse().unwrap()),
            "10.1.2.3:9".parse().unwrap()
        );
        assert_eq!(canonical("[::1]:9".parse().unwrap()), "[::1]:9".parse().unwrap());
    }
}
