//! What the kernel tells of TCP connections and of queues of interfaces, by netlink (rtnetlink(7), `sock_diag(7)`).
//!
//! The readers of its answers are functions of bytes: what is cut short or odd is left out.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

/// `NLM_F_REQUEST | NLM_F_DUMP`
const DUMP: u16 = 0x1 | 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const RTM_GETQDISC: u16 = 38;
const HEADER_BYTES: usize = 16;
/// A kernel that does not answer at once never does.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of all messages of one answer: some 200,000 connections.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// An established TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Segments that were sent again, since it was made.
    pub retransmitted: u64,
    /// How many of those the other end had already, as it said (RFC 2883): the acknowledgement was late, or lost.
    pub needless: u64,
    /// Segments that were sent.
    pub sent: u64,
    /// Segments that came out of order: others were lost or overtaken.
    pub out_of_order: u64,
    /// Segments that came.
    pub received: u64,
    /// The round trip, in µs, smoothed.
    pub round_trip_us: u64,
}

/// The queue of packets to be sent of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// The number of the interface.
    pub interface: u32,
    /// `fq`, `pfifo_fast`, `mq` …
    pub kind: String,
    /// Whether it is the interface's own, not one inside another.
    pub is_root: bool,
    /// Packets that it dropped.
    pub drops: u64,
}

/// Established TCP connections of this network namespace.
///
/// # Errors
/// When the kernel cannot tell.
pub fn connections() -> io::Result<Vec<TcpState>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        // struct inet_diag_req_v2: INET_DIAG_INFO is wanted, of TCP_ESTABLISHED, of any address.
        let mut question = [0_u8; 56];
        question[0] = family;
        question[1] = libc::IPPROTO_TCP as u8;
        question[2] = 1 << 1;
        question[4..8].copy_from_slice(&(1_u32 << 1).to_ne_bytes());
        let answers = dump(Some(SOCK_DIAG), SOCK_DIAG_BY_FAMILY, &question)?;
        all.extend(answers.iter().filter_map(|answer| read_connection(answer)));
    }
    Ok(all)
}

/// Queues of the interfaces of this network namespace.
///
/// # Errors
/// When the kernel cannot tell.
pub fn queues() -> io::Result<Vec<QueueState>> {
    // struct tcmsg
    let answers = dump(None, RTM_GETQDISC, &[0; 20])?;
    Ok(answers.iter().filter_map(|answer| read_queue(answer)).collect())
}

/// All messages that answer a question, without their headers.
fn dump(protocol: Option<Protocol>, kind: u16, question: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let mut message = Vec::with_capacity(HEADER_BYTES + question.len());
    message.extend(((HEADER_BYTES + question.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(DUMP.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(question);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answers = Vec::new();
    let mut bytes = 0;
    let mut buffer = vec![0_u8; 256 << 10];
    loop {
        let (length, _) = recv(&socket, &mut buffer, RecvFlags::empty())?;
        bytes += length;
        if length == 0 || bytes > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the kernel's answer does not end"));
        }
        if read_messages(buffer.get(..length).unwrap_or_default(), &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Takes a datagram apart; true if it was the last one.
fn read_messages(mut datagram: &[u8], answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(datagram, 0), u16_at(datagram, 4)) {
        let length = length as usize;
        let Some(payload) = datagram.get(HEADER_BYTES..length) else { break };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(payload, 0).unwrap_or(0) as i32;
                return match code {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
            }
            _ => answers.push(payload.to_vec()),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Reads `struct inet_diag_msg` with `struct tcp_info` behind it (Linux, `uapi/linux/inet_diag.h`, `tcp.h`).
pub fn read_connection(message: &[u8]) -> Option<TcpState> {
    const INET_DIAG_INFO: u16 = 2;
    let family = i32::from(*message.first()?);
    let port = |at: usize| message.get(at..at + 2)?.first_chunk().copied().map(u16::from_be_bytes);
    let address = |at: usize| -> Option<IpAddr> {
        if family == libc::AF_INET {
            let octets: [u8; 4] = *message.get(at..at + 4)?.first_chunk()?;
            return Some(IpAddr::V4(Ipv4Addr::from(octets)));
        }
        let octets: [u8; 16] = *message.get(at..at + 16)?.first_chunk()?;
        let address = Ipv6Addr::from(octets);
        Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
    };
    let info = attribute(message.get(72..)?, INET_DIAG_INFO)?;
    let count = |at: usize| u32_at(info, at).map_or(0, u64::from);
    Some(TcpState {
        local: SocketAddr::new(address(8)?, port(4)?),
        peer: SocketAddr::new(address(24)?, port(6)?),
        round_trip_us: count(68),
        retransmitted: count(100),
        needless: count(216),
        sent: count(136),
        received: count(140),
        out_of_order: count(224),
    })
}

/// Reads `struct tcmsg` with its attributes (Linux, `uapi/linux/rtnetlink.h`).
pub fn read_queue(message: &[u8]) -> Option<QueueState> {
    const TCA_KIND: u16 = 1;
    const TCA_STATS2: u16 = 7;
    const TCA_STATS_QUEUE: u16 = 3;
    const ROOT: u32 = u32::MAX;
    let attributes = message.get(20..)?;
    let kind = attribute(attributes, TCA_KIND)?;
    let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default();
    let drops = attribute(attributes, TCA_STATS2)
        .and_then(|nested| attribute(nested, TCA_STATS_QUEUE))
        .and_then(|queue| u32_at(queue, 8));
    Some(QueueState {
        interface: u32_at(message, 4)?,
        kind: String::from_utf8_lossy(kind).into_owned(),
        is_root: u32_at(message, 12)? == ROOT,
        drops: drops.map_or(0, u64::from),
    })
}

/// The value of an attribute (`struct rtattr`).
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        let value = attributes.get(4..length)?;
        // The upper two bits are flags.
        if kind & 0x3fff == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().copied().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = stream.local_addr().unwrap();
        let found = match connections() {
            Ok(found) => found,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                println!("skipped: the kernel tells no connections: {error}");
                return;
            }
        };
        let one = found.iter().find(|one| one.local == local).expect("ours");
        assert_eq!(one.peer, listener.local_addr().unwrap());
        assert!(one.sent >= 2 && one.retransmitted == 0, "{one:?}");
    }

    #[test]
    fn queues_are_told() {
        // A namespace may have none, as all its interfaces may be without a queue.
        for queue in queues().unwrap() {
            assert!(!queue.kind.is_empty() && queue.interface > 0, "{queue:?}");
        }
    }

    #[test]
    fn what_is_cut_short_is_left_out() {
        let mut message = vec![0_u8; 72];
        message[0] = libc::AF_INET as u8;
        message.extend([8, 0, 2, 0, 1, 2, 3, 4]);
        assert!(read_connection(&message).is_some());
        for length in 0..message.len() {
            assert_eq!(read_connection(&message[..length]), None);
            assert_eq!(read_queue(&message[..length.min(23)]), None);
        }
        // An attribute that says that it is nothing does not hold anybody up.
        assert_eq!(attribute(&[0, 0, 9, 0, 0, 0, 9, 0], 2), None);
        let mut answers = Vec::new();
        assert!(!read_messages(&[0; 64], &mut answers).unwrap());
    }
}
