//! Packets as a network would have had them, of messages that were captured inside a server.
//!
//! A message becomes an Ethernet frame for each 60 KiB: records of a connection with their marks in segments of TCP, whose
//! sequence numbers go on from message to message, and datagrams in UDP. Where only the beginning of a message is
//! known the frames have their true lengths, as those of any capture that keeps the beginnings of packets; checksums
//! are as if what is missing were zeros.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::capture::Message;

/// Bytes of a record in one segment.
const SEGMENT_BYTES: usize = 60 << 10;
/// Longest payload of a datagram: its length in UDP's head is of 16 bits, and so is that of all of it in IPv4's.
const DATAGRAM_BYTES_MAX: usize = 65_527;
const DATAGRAM_BYTES_MAX_V4: usize = DATAGRAM_BYTES_MAX - 20;
/// Connections whose sequence numbers are known; then the older half is forgotten.
const FLOWS_MAX: usize = 1 << 16;

const ETHERNET_BYTES: usize = 14;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;
const PUSH: u8 = 0x08;
/// The mark of a record's last fragment (RFC 5531 §11).
const LAST_FRAGMENT: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Sequence numbers of what the client and the server send next.
    next: [u32; 2],
    used: u64,
}

/// Makes packets.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    flows: HashMap<(SocketAddr, SocketAddr), Flow>,
    /// Counts messages.
    clock: u64,
    /// Identifies packets of IPv4.
    number: u16,
    frame: Vec<u8>,
}

/// What a packet carries: its head, what is known behind it, and the true length of that.
struct Payload<'a> {
    protocol: u8,
    head: &'a [u8],
    known: &'a [&'a [u8]],
    length: usize,
}

impl Packets {
    /// The packets of a message. `write` gets of each what is known of it, its true length, and whether what is known of
    /// the message ends there or did before: that is where it is decoded.
    pub(crate) fn of(
        &mut self,
        message: &Message<'_>,
        is_datagram: bool,
        mut write: impl FnMut(&[u8], usize, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let (client, server) = one_family(message.client, message.server);
        let (from, to) = if message.is_sent { (server, client) } else { (client, server) };
        if is_datagram {
            return self.datagram(from, to, message, &mut write);
        }
        let mark = LAST_FRAGMENT | u32::try_from(message.length).unwrap_or(u32::MAX);
        let mark = mark.to_be_bytes();
        let length = mark.len() + message.length;
        let (mut sequence, acknowledged) = self.advance((client, server), message.is_sent, length);
        let mut start = 0;
        while start < length {
            let end = length.min(start + SEGMENT_BYTES);
            let of_mark = mark.get(start..).unwrap_or_default();
            let from_byte = start.saturating_sub(mark.len()).min(message.bytes.len());
            let to_byte = (end - mark.len().min(end)).min(message.bytes.len());
            let of_message = message.bytes.get(from_byte..to_byte).unwrap_or_default();
            let flags = if end == length { ACK | PUSH } else { ACK };
            let head = tcp_head(from.port(), to.port(), sequence, acknowledged, flags);
            let payload = Payload {
                protocol: TCP,
                head: &head,
                known: &[of_mark, of_message],
                length: end - start,
            };
            self.packet(from.ip(), to.ip(), message.is_sent, &payload);
            let has_end = end >= mark.len() + message.bytes.len();
            write(&self.frame, self.frame.len() + unknown(&payload), has_end)?;
            sequence = sequence.wrapping_add((end - start) as u32);
            start = end;
        }
        Ok(())
    }

    fn datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        message: &Message<'_>,
        write: &mut impl FnMut(&[u8], usize, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let is_v4 = from.is_ipv4() && to.is_ipv4();
        let max = if is_v4 { DATAGRAM_BYTES_MAX_V4 } else { DATAGRAM_BYTES_MAX };
        let length = message.length.min(max);
        let mut head = [0; UDP_BYTES];
        put(&mut head, 0, &from.port().to_be_bytes());
        put(&mut head, 2, &to.port().to_be_bytes());
        put(&mut head, 4, &((UDP_BYTES + length) as u16).to_be_bytes());
        let known = message.bytes.get(..length).unwrap_or(message.bytes);
        let payload = Payload { protocol: UDP, head: &head, known: &[known], length };
        self.packet(from.ip(), to.ip(), message.is_sent, &payload);
        write(&self.frame, self.frame.len() + unknown(&payload), true)
    }

    /// The sequence number of so many bytes of one side, and what it has acknowledged.
    fn advance(
        &mut self,
        key: (SocketAddr, SocketAddr),
        is_sent: bool,
        length: usize,
    ) -> (u32, u32) {
        self.clock += 1;
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&key) {
            let mut used: Vec<u64> = self.flows.values().map(|flow| flow.used).collect();
            let (_, median, _) = used.select_nth_unstable(FLOWS_MAX / 2);
            let median = *median;
            self.flows.retain(|_, flow| flow.used > median);
        }
        let flow = self.flows.entry(key).or_insert(Flow { next: [1; 2], used: 0 });
        flow.used = self.clock;
        let [of_client, of_server] = &mut flow.next;
        let (own, other) = if is_sent { (of_server, of_client) } else { (of_client, of_server) };
        let sequence = *own;
        *own = own.wrapping_add(length as u32);
        (sequence, *other)
    }

    /// Makes a frame, as far as its bytes are known.
    fn packet(&mut self, from: IpAddr, to: IpAddr, is_sent: bool, payload: &Payload<'_>) {
        self.number = self.number.wrapping_add(1);
        let frame = &mut self.frame;
        frame.clear();
        // Addresses that nobody has (locally administered): the first of the client, the second of the server.
        let stations: [u8; 2] = if is_sent { [1, 2] } else { [2, 1] };
        for station in stations {
            frame.extend([2, 0, 0, 0, 0, station]);
        }
        let length = payload.head.len() + payload.length;
        let pseudo = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend(0x0800_u16.to_be_bytes());
                let start = frame.len();
                frame.extend([0x45, 0]);
                frame.extend(((20 + length) as u16).to_be_bytes());
                frame.extend(self.number.to_be_bytes());
                // Not to be fragmented; a time to live, the protocol, and room for the checksum.
                frame.extend([0x40, 0, 64, payload.protocol, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
                let sum = folded(added(0, frame.get(start..).unwrap_or_default()));
                put(frame, start + 10, &sum.to_be_bytes());
                added(added(0, &from.octets()), &to.octets())
            }
            (from, to) => {
                let (from, to) = (mapped(from), mapped(to));
                frame.extend(0x86dd_u16.to_be_bytes());
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((length as u16).to_be_bytes());
                frame.extend([payload.protocol, 64]);
                frame.extend(from);
                frame.extend(to);
                added(added(0, &from), &to)
            }
        };
        let sum = pseudo + u64::from(payload.protocol) + length as u64;
        let start = frame.len();
        frame.extend(payload.head);
        for known in payload.known {
            frame.extend(*known);
        }
        let sum = folded(added(sum, frame.get(start..).unwrap_or_default()));
        let (at, sum) = match (payload.protocol, sum) {
            (TCP, sum) => (16, sum),
            // 0 says that there is none.
            (_, 0) => (6, u16::MAX),
            (_, sum) => (6, sum),
        };
        put(frame, start + at, &sum.to_be_bytes());
    }
}

/// Bytes of a payload that are not known.
fn unknown(payload: &Payload<'_>) -> usize {
    let known: usize = payload.known.iter().map(|known| known.len()).sum();
    payload.length.saturating_sub(known)
}

fn tcp_head(from: u16, to: u16, sequence: u32, acknowledged: u32, flags: u8) -> [u8; TCP_BYTES] {
    let mut head = [0; TCP_BYTES];
    put(&mut head, 0, &from.to_be_bytes());
    put(&mut head, 2, &to.to_be_bytes());
    put(&mut head, 4, &sequence.to_be_bytes());
    put(&mut head, 8, &acknowledged.to_be_bytes());
    // The head's length in words; the window.
    put(&mut head, 12, &[5 << 4, flags, 0xff, 0xff]);
    head
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Adds 16-bit words to a sum (RFC 1071).
fn added(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let of_rest = rest.first().map_or(0, |last| u64::from(*last) << 8);
    words.iter().fold(sum + of_rest, |sum, word| sum + u64::from(u16::from_be_bytes(*word)))
}

/// The checksum that a sum comes to.
fn folded(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & u64::from(u16::MAX));
    }
    !(sum as u16)
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Addresses of IPv4, if both are such, also within IPv6.
fn one_family(client: SocketAddr, server: SocketAddr) -> (SocketAddr, SocketAddr) {
    let plain = |it: SocketAddr| SocketAddr::new(it.ip().to_canonical(), it.port());
    (plain(client), plain(server))
}

/// Bytes that a packet needs beside its payload, at most.
pub(crate) const HEADS_BYTES: usize = ETHERNET_BYTES + 40 + TCP_BYTES;

/// Bytes of a file that a message needs, at most: packets with their blocks, of which the first has a comment.
pub(crate) fn file_bytes(message: &Message<'_>) -> u64 {
    const BLOCK_BYTES: usize = 32 + 4;
    const COMMENT_BYTES: usize = 256;
    let packets = (message.length + 4).div_ceil(SEGMENT_BYTES);
    (message.bytes.len() + 4 + COMMENT_BYTES + packets * (BLOCK_BYTES + HEADS_BYTES)) as u64
}

#[cfg(test)]
#[path = "packets_tests.rs"]
mod tests;
