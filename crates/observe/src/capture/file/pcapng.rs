//! pcapng (draft-ietf-opsawg-pcapng): blocks, of which those of packets, interfaces and statistics are read.

use super::reader::{Found, Step};
use super::{BLOCK_BYTES_MAX, Order};
use crate::capture::packet::LinkType;

/// Begins a section, in either byte order.
pub(super) const MAGIC_BLOCK: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Says the byte order of a section.
pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(super) const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;
/// `if_tsresol` and `if_tsoffset`
pub(super) const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;
/// `isb_ifrecv`, `isb_ifdrop` and `isb_osdrop`
pub(super) const RECEIVED: u16 = 4;
pub(super) const DROPPED: u16 = 5;
pub(super) const DROPPED_BY_SYSTEM: u16 = 7;
/// Interfaces of one section.
const INTERFACES_MAX: usize = 4096;

/// What stands before a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHead {
    pub(super) order: Order,
    pub(super) kind: u32,
    /// Bytes that follow, with the length that is repeated at the end.
    pub(super) rest: usize,
}

impl BlockHead {
    /// Of a section: length and byte order, behind the magic.
    pub(super) fn of_section(head: [u8; 8]) -> Option<Self> {
        let order = match (Order::Big.u32(&head, 4)?, Order::Little.u32(&head, 4)?) {
            (BYTE_ORDER, _) => Order::Big,
            (_, BYTE_ORDER) => Order::Little,
            _ => return None,
        };
        // Kind, length and byte order are read, and count.
        let rest = (order.u32(&head, 0)? as usize).checked_sub(12)?;
        (rest <= BLOCK_BYTES_MAX).then_some(Self { order, kind: 0, rest })
    }

    /// Of any other block: kind and length.
    pub(super) fn read(order: Order, head: [u8; 8]) -> Option<Self> {
        let rest = (order.u32(&head, 4)? as usize).checked_sub(8)?;
        let is_right = (4..=BLOCK_BYTES_MAX).contains(&rest);
        is_right.then_some(Self { order, kind: order.u32(&head, 0)?, rest })
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Option<LinkType>,
    snap_bytes: usize,
    resolution: Resolution,
    offset_s: i64,
    dropped: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// Ticks a second are this power of ten.
    Decimal(u32),
    /// Or this power of two.
    Binary(u32),
}

impl Interface {
    fn time_ns(&self, ticks: u64) -> u64 {
        let ns = match self.resolution {
            Resolution::Decimal(digits) if digits <= 9 => {
                u128::from(ticks) * 10_u128.pow(9 - digits)
            }
            Resolution::Decimal(digits) => {
                let divisor = 10_u128.checked_pow(digits - 9);
                divisor.map_or(0, |divisor| u128::from(ticks) / divisor)
            }
            Resolution::Binary(bits) => {
                (u128::from(ticks) * 1_000_000_000).checked_shr(bits).unwrap_or(0)
            }
        };
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        let ns = i128::try_from(ns).unwrap_or(0).saturating_add(offset_ns);
        u64::try_from(ns).unwrap_or(0)
    }
}

/// What is known of the section that is being read.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) order: Option<Order>,
    interfaces: Vec<Interface>,
    dropped_before: Option<u64>,
    pub(super) left_out: u64,
}

impl Section {
    /// Another section begins.
    pub(super) fn begin(&mut self, order: Order) {
        self.dropped_before = self.dropped();
        self.order = Some(order);
        self.interfaces.clear();
    }

    /// Packets that were dropped at all interfaces, if one says so.
    pub(super) fn dropped(&self) -> Option<u64> {
        let known = self.interfaces.iter().filter_map(|interface| interface.dropped);
        let known = known.chain(self.dropped_before);
        known.fold(None, |sum, dropped| Some(sum.unwrap_or(0_u64).saturating_add(dropped)))
    }

    /// Reads a block: a packet, or nothing to hand over. `None` if it is damaged.
    pub(super) fn block(&mut self, kind: u32, body: &[u8]) -> Option<Step> {
        let order = self.order?;
        match kind {
            INTERFACE => self.interface(order, body).map(|()| Step::Other),
            PACKET => {
                let (index, ticks) = (order.u32(body, 0)?, ticks(order, body, 4)?);
                self.packet(body, index, ticks, 20, order.u32(body, 12)?, order.u32(body, 16)?)
            }
            OLD_PACKET => {
                let (index, ticks) = (u32::from(order.u16(body, 0)?), ticks(order, body, 4)?);
                self.packet(body, index, ticks, 20, order.u32(body, 12)?, order.u32(body, 16)?)
            }
            SIMPLE_PACKET => {
                let wire_bytes = order.u32(body, 0)?;
                let snap_bytes = self.interfaces.first()?.snap_bytes;
                let kept = (wire_bytes as usize).min(snap_bytes);
                self.packet(body, 0, 0, 4, u32::try_from(kept).ok()?, wire_bytes)
            }
            STATISTICS => self.statistics(order, body).map(|()| Step::Other),
            // Names, secrets, comments and what else there may be.
            _ => Some(Step::Other),
        }
    }

    fn interface(&mut self, order: Order, body: &[u8]) -> Option<()> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return None;
        }
        let snap_bytes = match order.u32(body, 4)? {
            0 => usize::MAX,
            limit => limit as usize,
        };
        let mut interface = Interface {
            link: LinkType::from_number(u32::from(order.u16(body, 0)?)),
            snap_bytes,
            resolution: Resolution::Decimal(6),
            offset_s: 0,
            dropped: None,
        };
        for (code, value) in options(order, body.get(8..)?) {
            match (code, value) {
                (TIME_RESOLUTION, [resolution, ..]) => {
                    let power = u32::from(resolution & 0x7f);
                    interface.resolution = if resolution & 0x80 == 0 {
                        Resolution::Decimal(power)
                    } else {
                        Resolution::Binary(power)
                    };
                }
                (TIME_OFFSET, value) => {
                    interface.offset_s = order.u64(value, 0).unwrap_or(0).cast_signed();
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Some(())
    }

    fn packet(
        &mut self,
        body: &[u8],
        index: u32,
        ticks: u64,
        begin: usize,
        kept: u32,
        wire_bytes: u32,
    ) -> Option<Step> {
        let interface = *self.interfaces.get(index as usize)?;
        let length = kept as usize;
        body.get(begin..)?.get(..length)?;
        let Some(link) = interface.link else {
            self.left_out += 1;
            return Some(Step::Other);
        };
        Some(Step::Packet(Found {
            time_ns: interface.time_ns(ticks),
            link,
            begin,
            length,
            wire_bytes: wire_bytes as usize,
            interface: index.saturating_add(1),
        }))
    }

    fn statistics(&mut self, order: Order, body: &[u8]) -> Option<()> {
        let index = order.u32(body, 0)?;
        let interface = self.interfaces.get_mut(index as usize)?;
        let mut dropped = None;
        for (code, value) in options(order, body.get(12..)?) {
            if matches!(code, DROPPED | DROPPED_BY_SYSTEM) {
                let count = order.u64(value, 0).unwrap_or(0);
                dropped = Some(dropped.unwrap_or(0_u64).saturating_add(count));
            }
        }
        // The last one counts from the beginning.
        interface.dropped = dropped.or(interface.dropped);
        Some(())
    }
}

fn ticks(order: Order, body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(order.u32(body, at)?) << 32 | u64::from(order.u32(body, at + 4)?))
}

/// Options behind the fixed part of a block, each with its value.
fn options(order: Order, bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (code, length) = (order.u16(rest, 0)?, usize::from(order.u16(rest, 2)?));
        if code == 0 {
            return None;
        }
        let value = rest.get(4..)?.get(..length)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}
