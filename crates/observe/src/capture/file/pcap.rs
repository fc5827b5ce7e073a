//! The format of `tcpdump -w` since 1988: a head, then packets.

use super::reader::Found;
use super::{BLOCK_BYTES_MAX, Order};
use crate::capture::packet::LinkType;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// What the head says.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcapHeader {
    order: Order,
    is_nanoseconds: bool,
    pub(super) link: Option<LinkType>,
    pub(super) link_number: u32,
}

impl PcapHeader {
    /// Reads the head: its first four bytes, and the rest.
    pub(super) fn read(magic: [u8; 4], rest: &[u8; 20]) -> Option<Self> {
        let (order, is_nanoseconds) = match (u32::from_be_bytes(magic), u32::from_le_bytes(magic)) {
            (MICROSECONDS, _) => (Order::Big, false),
            (NANOSECONDS, _) => (Order::Big, true),
            (_, MICROSECONDS) => (Order::Little, false),
            (_, NANOSECONDS) => (Order::Little, true),
            _ => return None,
        };
        // Above are bits about checksums of frames.
        let link_number = order.u32(rest, 16)? & 0x03ff_ffff;
        let link = LinkType::from_number(link_number);
        Some(Self { order, is_nanoseconds, link, link_number })
    }

    /// Reads a packet's head, and says how many bytes it has.
    pub(super) fn packet(self, head: &[u8; 16]) -> Option<(Found, usize)> {
        let word = |at| self.order.u32(head, at);
        let (seconds, fraction) = (u64::from(word(0)?), u64::from(word(4)?));
        let (length, wire_bytes) = (word(8)? as usize, word(12)? as usize);
        if length > BLOCK_BYTES_MAX {
            return None;
        }
        let fraction_ns = if self.is_nanoseconds { fraction } else { fraction * 1000 };
        let found = Found {
            time_ns: seconds * 1_000_000_000 + fraction_ns,
            link: self.link?,
            begin: 0,
            length,
            wire_bytes,
            interface: 0,
        };
        Some((found, length))
    }
}
