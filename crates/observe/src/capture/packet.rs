//! A packet from its link header to the payload of IP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the number that 802.1ad had before.
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags that a frame may have one inside the other; more are not read.
const VLAN_TAGS_MAX: usize = 4;
/// Extension headers of IPv6 before the payload; a packet with more is not read.
const IPV6_EXTENSIONS_MAX: usize = 8;
/// `ARPHRD_LOOPBACK`.
const HARDWARE_LOOPBACK: u16 = 772;
/// `PACKET_OUTGOING`.
const PACKET_OUTGOING: u8 = 4;

/// How the bytes of a packet begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet, with VLAN tags or without.
    Ethernet,
    /// Linux "cooked" header, version 1.
    LinuxCooked1,
    /// Linux "cooked" header, version 2.
    LinuxCooked2,
    /// The loopback of BSD: a word with the address family.
    Loopback,
    /// No header: IPv4 or IPv6.
    Ip,
}

impl LinkType {
    /// By the number that pcap and pcapng files use; `None` for one that is not read.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 | 108 => Some(Self::Loopback),
            1 => Some(Self::Ethernet),
            // Three numbers were in use before 101 was registered; 228 and 229 name a version.
            12 | 14 | 101 | 228 | 229 => Some(Self::Ip),
            113 => Some(Self::LinuxCooked1),
            276 => Some(Self::LinuxCooked2),
            _ => None,
        }
    }
}

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it was captured, in ns since 1970.
    pub time_ns: u64,
    /// How its bytes begin.
    pub link: LinkType,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// Its length on the wire in bytes; more than `bytes` has if the capture cut it.
    pub wire_bytes: usize,
    /// Which interface it was seen at; 0 if the capture does not say.
    pub interface: u32,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network<'a> {
    /// An IP payload in one piece.
    Whole(IpPayload<'a>),
    /// A fragment of one.
    Fragment(Fragment<'a>),
    /// The second sight of a packet of the loopback interface.
    LoopbackCopy,
    /// Not IP, or damaged.
    Other,
}

/// The payload of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpPayload<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) bytes: &'a [u8],
    /// Bytes at its end that were not captured.
    pub(crate) missing: usize,
    pub(crate) interface: u32,
}

/// A fragment of an IP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment<'a> {
    pub(crate) id: u32,
    /// Of its first byte in the whole payload.
    pub(crate) offset: usize,
    pub(crate) has_more: bool,
    pub(crate) part: IpPayload<'a>,
}

/// Whether a packet, as a packet socket describes it, is seen a second time: the kernel shows what goes
/// over the loopback interface once on its way out and once on its way in.
pub fn is_loopback_copy(hardware_type: u16, packet_type: u8) -> bool {
    hardware_type == HARDWARE_LOOPBACK && packet_type == PACKET_OUTGOING
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

/// Reads the link and network headers. Checksums are not looked at: those of packets that this host
/// sends are made by the network card, later.
pub(crate) fn network<'a>(packet: &Packet<'a>) -> Network<'a> {
    let bytes = packet.bytes;
    let mut interface = packet.interface;
    let (mut ethertype, mut at) = match packet.link {
        LinkType::Ethernet => (u16_at(bytes, 12), 14),
        LinkType::LinuxCooked1 => {
            let (Some(kind), Some(hardware)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
                return Network::Other;
            };
            if is_loopback_copy(hardware, kind as u8) {
                return Network::LoopbackCopy;
            }
            (u16_at(bytes, 14), 16)
        }
        LinkType::LinuxCooked2 => {
            let (Some(hardware), Some(kind)) = (u16_at(bytes, 8), bytes.get(10)) else {
                return Network::Other;
            };
            if is_loopback_copy(hardware, *kind) {
                return Network::LoopbackCopy;
            }
            interface = u32_at(bytes, 4).unwrap_or(interface);
            (u16_at(bytes, 0), 20)
        }
        LinkType::Loopback => (None, 4),
        LinkType::Ip => (None, 0),
    };
    for _ in 0..VLAN_TAGS_MAX {
        match ethertype {
            Some(tag) if ETHERTYPES_VLAN.contains(&tag) => {
                ethertype = u16_at(bytes, at + 2);
                at += 4;
            }
            _ => break,
        }
    }
    let Some(rest) = bytes.get(at..) else { return Network::Other };
    // A packet on the wire cannot be shorter than what was captured of it.
    let wire_bytes = packet.wire_bytes.max(bytes.len()) - at;
    let version = rest.first().map(|first| first >> 4);
    let found = match (ethertype, version) {
        (None | Some(ETHERTYPE_IPV4), Some(4)) => ipv4(rest, wire_bytes, interface),
        (None | Some(ETHERTYPE_IPV6), Some(6)) => ipv6(rest, wire_bytes, interface),
        _ => None,
    };
    found.unwrap_or(Network::Other)
}

/// The part of a payload that was captured, and how many bytes of it were not.
fn cut(payload: &[u8], announced: usize) -> (&[u8], usize) {
    // What follows the payload is padding of the link.
    match payload.get(..announced) {
        Some(whole) => (whole, 0),
        None => (payload, announced - payload.len()),
    }
}

fn ipv4(bytes: &[u8], wire_bytes: usize, interface: u32) -> Option<Network<'_>> {
    let header = Ipv4HeaderSlice::from_slice(bytes).ok()?;
    let header_bytes = header.slice().len();
    let total = match usize::from(header.total_len()) {
        // Frames that the network card will cut (TSO), or has put together (GRO), may be too large for
        // the field: it is 0 then.
        0 => wire_bytes,
        total => total,
    };
    let announced = total.checked_sub(header_bytes)?;
    let (payload, missing) = cut(bytes.get(header_bytes..)?, announced);
    let part = IpPayload {
        source: IpAddr::V4(header.source_addr()),
        destination: IpAddr::V4(header.destination_addr()),
        protocol: header.protocol().0,
        bytes: payload,
        missing,
        interface,
    };
    let offset = usize::from(header.fragments_offset().value()) * 8;
    if offset == 0 && !header.more_fragments() {
        return Some(Network::Whole(part));
    }
    let id = u32::from(header.identification());
    Some(Network::Fragment(Fragment { id, offset, has_more: header.more_fragments(), part }))
}

fn ipv6(bytes: &[u8], wire_bytes: usize, interface: u32) -> Option<Network<'_>> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let header = Ipv6HeaderSlice::from_slice(bytes).ok()?;
    let header_bytes = header.slice().len();
    let announced = match usize::from(header.payload_length()) {
        // As with IPv4; the length of such a "jumbogram" is in an extension header.
        0 => wire_bytes.checked_sub(header_bytes)?,
        length => length,
    };
    let (mut payload, missing) = cut(bytes.get(header_bytes..)?, announced);
    let mut protocol = header.next_header().0;
    let mut fragment = None;
    for _ in 0..IPV6_EXTENSIONS_MAX {
        let length = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => usize::from(*payload.get(1)?) * 8 + 8,
            FRAGMENT => {
                let found = Ipv6FragmentHeaderSlice::from_slice(payload).ok()?;
                let offset = usize::from(found.fragment_offset().value()) * 8;
                if offset > 0 || found.more_fragments() {
                    fragment = Some((found.identification(), offset, found.more_fragments()));
                }
                8
            }
            _ => break,
        };
        protocol = *payload.first()?;
        payload = payload.get(length..)?;
        // What follows is a header only if this is the first fragment, and belongs to the payload.
        if fragment.is_some() {
            break;
        }
    }
    let part = IpPayload {
        source: IpAddr::V6(Ipv6Addr::from(header.source())),
        destination: IpAddr::V6(Ipv6Addr::from(header.destination())),
        protocol,
        bytes: payload,
        missing,
        interface,
    };
    Some(match fragment {
        None => Network::Whole(part),
        Some((id, offset, has_more)) => Network::Fragment(Fragment { id, offset, has_more, part }),
    })
}

/// What is behind the extension headers that a fragmented packet has inside: those that only its destination reads stand
/// behind the fragment header (RFC 8200 §4.5).
pub(crate) fn unwrapped(payload: IpPayload<'_>) -> IpPayload<'_> {
    const DESTINATION: u8 = 60;
    let mut found = payload;
    if !payload.source.is_ipv6() {
        return payload;
    }
    for _ in 0..IPV6_EXTENSIONS_MAX {
        let [next, length, ..] = *found.bytes else { return found };
        let behind = found.bytes.get(usize::from(length) * 8 + 8..);
        let Some(behind) = behind.filter(|_| found.protocol == DESTINATION) else { return found };
        found = IpPayload { protocol: next, bytes: behind, ..found };
    }
    found
}

/// An address of IPv4 that is written as one of IPv6 is the same host.
pub(crate) fn plain_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, |four: Ipv4Addr| IpAddr::V4(four)),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
