//! Packets as the kernel sees them, through a ring of shared memory (packet(7), `TPACKET_V3`).
//!
//! The socket takes packets from their network header on, of one interface or of all, and never makes an
//! interface promiscuous. The kernel fills blocks; [`PacketRing::next_block`] lends one, and its end gives it
//! back. What comes while all blocks are full is dropped and counted ([`PacketRing::statistics`]).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a block: several of the largest packets (BIG TCP makes 512 KiB).
const BLOCK_BYTES: usize = 1 << 20;
/// The ring's own idea of frames, which variable packets do not use; it must divide a block.
const FRAME_BYTES: usize = 2048;
/// After so long a block is lent though it is not full, in ms.
const RETIRE_MS: u32 = 40;
/// All protocols (`ETH_P_ALL`), in the byte order that sockets want.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

// Places in `struct tpacket_block_desc` and `struct tpacket3_hdr` (linux/if_packet.h).
const STATUS_AT: usize = 8;
const COUNT_AT: usize = 12;
const FIRST_AT: usize = 16;
const ADDRESS_AT: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
const _: () = assert!(size_of::<libc::tpacket3_hdr>() == 48);

/// One instruction of a classic BPF program, whose offsets begin at the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterInstruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to skip if a condition holds.
    pub if_true: u8,
    /// How many to skip if it does not.
    pub if_false: u8,
    /// Its number.
    pub value: u32,
}

/// What the kernel has counted since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStatistics {
    /// Packets that passed the filter, with those that were dropped.
    pub received: u64,
    /// Packets that were dropped, since the ring was full.
    pub dropped: u64,
}

/// A packet in the ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPacket<'b> {
    /// When it was seen, in ns since 1970.
    pub time_ns: u64,
    /// Its bytes from the network header on.
    pub bytes: &'b [u8],
    /// Its length before the capture may have cut it, in bytes.
    pub wire_bytes: usize,
    /// Its protocol (`ETH_P_IP` and so on).
    pub protocol: u16,
    /// The number of its interface.
    pub interface: u32,
    /// The kind of the interface (`ARPHRD_ETHER` and so on).
    pub hardware_type: u16,
    /// Whether it goes out, or to whom it came (`PACKET_OUTGOING` and so on).
    pub packet_type: u8,
    /// The sender's hardware address, and how many bytes of it count.
    pub address: ([u8; 8], u8),
}

/// A packet socket with its ring.
#[derive(Debug)]
pub struct PacketRing {
    socket: OwnedFd,
    memory: NonNull<u8>,
    blocks: usize,
    /// The block that the kernel fills next.
    next: usize,
}

impl PacketRing {
    /// Opens a ring of this many MiB (at least 1), for one interface or for all.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`; what the kernel says about the interface, the filter or the
    /// memory.
    pub fn open(
        interface: Option<u32>,
        mebibytes: usize,
        filter: &[FilterInstruction],
    ) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved. With protocol 0 nothing is received before `bind`.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let blocks = mebibytes.max(1);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (BLOCK_BYTES / FRAME_BYTES * blocks) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        attach(&socket, filter)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no memory that Rust knows; the
        // descriptor is open.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK_BYTES * blocks,
                protection,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Self { socket, memory, blocks, next: 0 };
        ring.bind(interface)?;
        Ok(ring)
    }

    fn bind(&self, interface: Option<u32>) -> io::Result<()> {
        // SAFETY: all bytes zero are a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL_PROTOCOLS;
        address.sll_ifindex = interface.unwrap_or(0).cast_signed();
        // SAFETY: address and length are those of a `sockaddr_ll`, which the call only reads.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes another filter in place of the one before, at once.
    ///
    /// # Errors
    /// `InvalidInput` if it is no valid program.
    pub fn set_filter(&self, filter: &[FilterInstruction]) -> io::Result<()> {
        attach(&self.socket, filter)
    }

    /// What the kernel has counted since this was called last.
    ///
    /// # Errors
    /// What `getsockopt` says.
    pub fn statistics(&self) -> io::Result<RingStatistics> {
        let mut counted = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of::<libc::tpacket_stats_v3>() as u32;
        // SAFETY: pointer and length are those of the structure, all bytes of which may be written.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let (received, dropped) = (counted.tp_packets, counted.tp_drops);
        Ok(RingStatistics { received: received.into(), dropped: dropped.into() })
    }

    /// The next block of packets; `None` if there is none in time, or a signal came.
    ///
    /// # Errors
    /// What `poll` says; an error of the interface, such as `NetworkDown`.
    pub fn next_block(&mut self, timeout: Duration) -> io::Result<Option<Block<'_>>> {
        let is_ready = |ring: &Self| {
            ring.status(ring.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
        };
        if !is_ready(self) {
            let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
            let events = PollFlags::IN | PollFlags::ERR;
            match poll(&mut [PollFd::new(&self.socket, events)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !is_ready(self) {
                return self.socket_error().map_or(Ok(None), Err);
            }
        }
        let index = self.next;
        self.next = (index + 1) % self.blocks;
        Ok(Some(Block { ring: self, index }))
    }

    fn socket_error(&self) -> Option<io::Error> {
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Err(error)) => Some(error.into()),
            _ => None,
        }
    }

    /// The word of a block that says whose it is.
    fn status(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index < self.blocks);
        // SAFETY: the block lies within the mapping, which lives as long as `self`; the place is aligned to 4
        // bytes, and both the kernel and we change it by single stores of a word.
        unsafe {
            let place = self.memory.as_ptr().add(index * BLOCK_BYTES + STATUS_AT);
            AtomicU32::from_ptr(place.cast())
        }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, which nobody else unmaps.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_BYTES * self.blocks) };
    }
}

/// A block of packets, lent until it is dropped.
#[derive(Debug)]
pub struct Block<'r> {
    ring: &'r mut PacketRing,
    index: usize,
}

impl Block<'_> {
    /// Its packets in the order in which they were seen.
    pub fn packets(&self) -> impl Iterator<Item = RingPacket<'_>> {
        let bytes = self.bytes();
        let mut left = u32_at(bytes, COUNT_AT).unwrap_or(0);
        let mut at = u32_at(bytes, FIRST_AT).unwrap_or(0) as usize;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (packet, next) = packet_at(bytes.get(at..)?)?;
            at = at.checked_add(next)?;
            // Without a next packet there is none.
            if next == 0 {
                left = 0;
            }
            Some(packet)
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the block lies within the mapping. It was found to be ours (`TP_STATUS_USER`, with `Acquire`),
        // so the kernel does not write to it before `drop` gives it back, which needs the borrow to be over.
        unsafe {
            let place = self.ring.memory.as_ptr().add(self.index * BLOCK_BYTES);
            std::slice::from_raw_parts(place, BLOCK_BYTES)
        }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.ring.status(self.index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}

/// The packet whose header is here, and where the next one is.
fn packet_at(bytes: &[u8]) -> Option<(RingPacket<'_>, usize)> {
    let (next, seconds, nanoseconds) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    let (kept, length) = (u32_at(bytes, 12)? as usize, u32_at(bytes, 16)? as usize);
    let network = usize::from(u16_at(bytes, 26)?);
    let address = bytes.get(ADDRESS_AT..)?;
    let packet = RingPacket {
        time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds),
        bytes: bytes.get(network..)?.get(..kept)?,
        wire_bytes: length,
        protocol: u16::from_be(u16_at(address, 2)?),
        interface: u32_at(address, 4)?,
        hardware_type: u16_at(address, 8)?,
        packet_type: *address.get(10)?,
        address: (*address.get(12..)?.first_chunk()?, *address.get(11)?),
    };
    Some((packet, next as usize))
}

fn attach(socket: &OwnedFd, filter: &[FilterInstruction]) -> io::Result<()> {
    let mut instructions: Vec<libc::sock_filter> = filter
        .iter()
        .map(|each| libc::sock_filter {
            code: each.code,
            jt: each.if_true,
            jf: each.if_false,
            k: each.value,
        })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // The kernel copies the program, and checks it.
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length are those of `value`, which the call only reads; what it points to, in the case
    // of a filter, lives as long as the caller's vector.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    //! Unit ring; the real ring needs `CAP_NET_RAW`.
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::{FilterInstruction, PacketRing};

    /// `ret #value`
    const fn accept(value: u32) -> FilterInstruction {
        FilterInstruction { code: 6, if_true: 0, if_false: 0, value }
    }

    #[test]
    fn packets_of_loopback_are_seen_filtered_and_counted_when_dropped() {
        let loopback = crate::net::interface("lo").expect("loopback");
        let mut ring = match PacketRing::open(Some(loopback), 2, &[accept(u32::MAX)]) {
            Ok(ring) => ring,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                return eprintln!("skipped: no packet socket: {error}");
            }
        };
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let marks: Vec<[u8; 8]> = (0..5000_u64).map(|n| (n + 0x5eed_0000).to_le_bytes()).collect();
        let mut seen = Vec::new();
        let mut look = |ring: &mut PacketRing| {
            let block = ring.next_block(Duration::from_millis(50)).expect("a look")?;
            for packet in block.packets() {
                assert_eq!((packet.interface, packet.hardware_type), (loopback, 772));
                assert!(packet.time_ns > 1_600_000_000_000_000_000);
                if packet.packet_type != 4 && packet.bytes.first() == Some(&0x45) {
                    assert_eq!((packet.protocol, packet.wire_bytes), (0x0800, packet.bytes.len()));
                    seen.extend(packet.bytes.get(28..).and_then(<[u8]>::first_chunk::<8>).copied());
                }
            }
            Some(seen.iter().filter(|mark| marks.contains(mark)).count())
        };
        let begun = Instant::now();
        let mut found = 0;
        for mark in &marks {
            sender.send_to(mark, receiver.local_addr().expect("an address")).expect("sent");
            if mark[0] == 0 {
                found = look(&mut ring).unwrap_or(found);
            }
        }
        while found < marks.len() && begun.elapsed() < Duration::from_secs(30) {
            found = look(&mut ring).unwrap_or(found);
        }
        assert_eq!(found, marks.len());
        let counted = ring.statistics().expect("statistics");
        assert!(counted.received >= 2 * marks.len() as u64 && counted.dropped == 0, "{counted:?}");

        check_drops(&mut ring, &sender, &receiver);

        ring.set_filter(&[accept(0)]).expect("a filter");
        while ring.next_block(Duration::from_millis(100)).expect("a look").is_some() {}
        ring.statistics().expect("statistics");
        sender.send_to(b"unseen", receiver.local_addr().expect("an address")).expect("sent");
        assert_eq!(ring.statistics().expect("statistics").received, 0);
        assert!(ring.set_filter(&[]).is_err(), "an empty program is none");
    }

    /// What nobody takes is counted as dropped, and the ring goes on. No test of its own: every ring on
    /// loopback sees this.
    fn check_drops(ring: &mut PacketRing, sender: &UdpSocket, receiver: &UdpSocket) {
        let address = receiver.local_addr().expect("an address");
        // Several times what two blocks have room for.
        let large = vec![7; 60_000];
        for _ in 0..1000 {
            sender.send_to(&large, address).expect("sent");
        }
        let counted = ring.statistics().expect("statistics");
        assert!(counted.received >= 1000 && counted.dropped > 0, "{counted:?}");
        while ring.next_block(Duration::from_millis(100)).expect("a look").is_some() {}
        ring.statistics().expect("statistics");
        sender.send_to(b"one more", address).expect("sent");
        let begun = Instant::now();
        loop {
            let block = ring.next_block(Duration::from_millis(50)).expect("a look");
            let is_one_more = |bytes: &[u8]| bytes.ends_with(b"one more");
            if block.is_some_and(|block| block.packets().any(|packet| is_one_more(packet.bytes))) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the ring is stuck");
        }
    }
}
