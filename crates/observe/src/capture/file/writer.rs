//! Writing pcapng, little-endian: one interface with "cooked" packets or Ethernet frames, and times in ns.

use std::io::{self, Write};

use steadfast_sys::packet_ring::{RingPacket, RingStatistics};

use super::pcapng::{
    BYTE_ORDER, DROPPED, INTERFACE, MAGIC_BLOCK, PACKET, RECEIVED, STATISTICS, TIME_RESOLUTION,
};

const ETHERNET: u16 = 1;
const LINUX_COOKED_2: u16 = 276;
/// `opt_comment`, `shb_userappl`, and `if_name`
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
/// Length of that header in bytes.
const COOKED_BYTES: usize = 20;

/// A file that is being written.
pub struct PacketWriter<W: Write> {
    output: W,
    block: Vec<u8>,
    file_bytes: u64,
}

impl<W: Write> PacketWriter<W> {
    /// Begins a file of "cooked" packets. The output is best buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(output: W) -> io::Result<Self> {
        Self::begin(output, LINUX_COOKED_2, None)
    }

    /// As [`PacketWriter::new`], for Ethernet frames, with the names of the program and of the interface.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn of_ethernet(output: W, program: &str, interface: &str) -> io::Result<Self> {
        Self::begin(output, ETHERNET, Some((program, interface)))
    }

    fn begin(output: W, link: u16, names: Option<(&str, &str)>) -> io::Result<Self> {
        let mut writer = Self { output, block: Vec::new(), file_bytes: 0 };
        writer.block.extend(BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a section of unknown length.
        writer.block.extend([1, 0, 0, 0]);
        writer.block.extend(u64::MAX.to_le_bytes());
        if let Some((program, _)) = names {
            writer.option(APPLICATION, program.as_bytes());
            writer.option(0, &[]);
        }
        writer.end_block(u32::from_le_bytes(MAGIC_BLOCK))?;
        writer.block.extend(link.to_le_bytes());
        writer.block.extend([0; 2]);
        // No limit to the length of packets.
        writer.block.extend(0_u32.to_le_bytes());
        if let Some((_, interface)) = names {
            writer.option(NAME, interface.as_bytes());
        }
        writer.option(TIME_RESOLUTION, &[9]);
        writer.option(0, &[]);
        writer.end_block(INTERFACE)?;
        Ok(writer)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, packet: &RingPacket<'_>) -> io::Result<()> {
        let ticks = packet.time_ns;
        let kept = (packet.bytes.len() + COOKED_BYTES) as u32;
        let length = (packet.wire_bytes.max(packet.bytes.len()) + COOKED_BYTES) as u32;
        for word in [0, (ticks >> 32) as u32, ticks as u32, kept, length] {
            self.block.extend(word.to_le_bytes());
        }
        // The header of the packet is big-endian (LINKTYPE_LINUX_SLL2).
        self.block.extend(packet.protocol.to_be_bytes());
        self.block.extend([0; 2]);
        self.block.extend(packet.interface.to_be_bytes());
        self.block.extend(packet.hardware_type.to_be_bytes());
        self.block.extend([packet.packet_type, packet.address.1]);
        self.block.extend(packet.address.0);
        self.block.extend(packet.bytes);
        self.pad();
        self.end_block(PACKET)
    }

    /// Writes a frame of which so many bytes are known and that is so long, with a comment.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_frame(
        &mut self,
        time_ns: u64,
        bytes: &[u8],
        length: usize,
        comment: Option<&str>,
    ) -> io::Result<()> {
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        for word in [0, high, low, bytes.len() as u32, length.max(bytes.len()) as u32] {
            self.block.extend(word.to_le_bytes());
        }
        self.block.extend(bytes);
        self.pad();
        if let Some(comment) = comment {
            self.option(COMMENT, comment.as_bytes());
            self.option(0, &[]);
        }
        self.end_block(PACKET)
    }

    /// Bytes of the file so far.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Has the output written that is buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Ends the file with what the kernel has counted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, time_ns: u64, counted: RingStatistics) -> io::Result<W> {
        for word in [0, (time_ns >> 32) as u32, time_ns as u32] {
            self.block.extend(word.to_le_bytes());
        }
        self.option(RECEIVED, &counted.received.to_le_bytes());
        self.option(DROPPED, &counted.dropped.to_le_bytes());
        self.option(0, &[]);
        self.end_block(STATISTICS)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn end_block(&mut self, kind: u32) -> io::Result<()> {
        let length = (self.block.len() + 12) as u32;
        self.file_bytes += u64::from(length);
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&length.to_le_bytes())?;
        self.output.write_all(&self.block)?;
        self.block.clear();
        self.output.write_all(&length.to_le_bytes())
    }
}
