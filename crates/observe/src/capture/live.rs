//! Packets of this machine's interfaces, while they come.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use steadfast_sys::net;
use steadfast_sys::packet_ring::{PacketRing, RingPacket, RingStatistics};

use super::filter;
use super::packet::{LinkType, Packet};

/// Memory of the ring in MiB: at 100,000 calls/s of 500 bytes it lasts for some 0.6 s.
const RING_MIB: usize = 64;

/// Why packets cannot be captured.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Not allowed.
    #[error(
        "capturing packets needs root or the capability CAP_NET_RAW \
         (setcap cap_net_raw=ep FILE gives it to a copy of this program): {0}"
    )]
    NotAllowed(#[source] io::Error),
    /// No such interface.
    #[error("there is no network interface {0:?}: `ip link` lists them")]
    NoInterface(String),
    /// The kernel refuses something else.
    #[error("cannot capture packets: {0}")]
    Failed(#[from] io::Error),
}

/// A capture that runs.
#[derive(Debug)]
pub struct Live {
    ring: PacketRing,
    ports: BTreeSet<u16>,
    total: RingStatistics,
}

impl Live {
    /// Begins to capture packets of these ports at one interface, or at all.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW`, and when there is no such interface.
    pub fn open(interface: Option<&str>, ports: BTreeSet<u16>) -> Result<Self, LiveError> {
        let number = match interface {
            None | Some("any") => None,
            Some(name) => {
                let number = net::interface(name);
                Some(number.map_err(|_| LiveError::NoInterface(name.to_owned()))?)
            }
        };
        let ring = PacketRing::open(number, RING_MIB, &filter::of_ports(&ports));
        let ring = ring.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LiveError::NotAllowed(error),
            _ => LiveError::Failed(error),
        })?;
        Ok(Self { ring, ports, total: RingStatistics::default() })
    }

    /// Waits for packets and hands them over. False if none came in time.
    ///
    /// # Errors
    /// When the interface goes.
    pub fn poll(
        &mut self,
        timeout: Duration,
        mut take: impl FnMut(&RingPacket<'_>),
    ) -> Result<bool, LiveError> {
        let Some(block) = self.ring.next_block(timeout)? else { return Ok(false) };
        for packet in block.packets() {
            take(&packet);
        }
        Ok(true)
    }

    /// Captures packets of these ports from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn follow(&mut self, ports: impl Iterator<Item = u16>) -> Result<(), LiveError> {
        let ports: BTreeSet<u16> = ports.collect();
        if ports != self.ports {
            self.ring.set_filter(&filter::of_ports(&ports))?;
            self.ports = ports;
        }
        Ok(())
    }

    /// Packets that the kernel has captured and dropped since the beginning.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn statistics(&mut self) -> Result<RingStatistics, LiveError> {
        let new = self.ring.statistics()?;
        self.total.received += new.received;
        self.total.dropped += new.dropped;
        Ok(self.total)
    }
}

/// A packet of the ring, for the dissector.
pub fn packet<'a>(packet: &RingPacket<'a>) -> Packet<'a> {
    Packet {
        time_ns: packet.time_ns,
        link: LinkType::Ip,
        bytes: packet.bytes,
        wire_bytes: packet.wire_bytes,
        interface: packet.interface,
    }
}
