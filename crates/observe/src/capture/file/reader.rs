//! Reading a file, whichever of the two formats it has.

use std::io::{self, Read};

use super::pcap::PcapHeader;
use super::pcapng::{BlockHead, MAGIC_BLOCK, Section};
use super::{BLOCK_BYTES_MAX, Order};
use crate::capture::packet::{LinkType, Packet};

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The disk, or whoever writes the pipe.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is of another format.
    #[error("it is no pcap or pcapng file (it may be compressed: unpack it first)")]
    OtherFormat,
    /// Its own lengths contradict each other.
    #[error("it is damaged at byte {at}")]
    Damaged {
        /// Where.
        at: u64,
    },
    /// The link type of a pcap file is not known here.
    #[error("its packets have the link type {0}, which is not read")]
    OtherLink(u32),
}

enum Format {
    Pcap(PcapHeader),
    Pcapng(Section),
}

/// Where a packet is in the block that was read.
pub(super) struct Found {
    pub(super) time_ns: u64,
    pub(super) link: LinkType,
    pub(super) begin: usize,
    pub(super) length: usize,
    pub(super) wire_bytes: usize,
    pub(super) interface: u32,
}

/// A file of packets.
pub struct PacketFile<R> {
    input: R,
    format: Format,
    block: Vec<u8>,
    at: u64,
    is_cut: bool,
}

impl<R: Read> PacketFile<R> {
    /// Begins to read. The input is best buffered.
    ///
    /// # Errors
    /// When it is of another format, or cannot be read.
    pub fn new(mut input: R) -> Result<Self, FileError> {
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FileError::OtherFormat,
            _ => error.into(),
        })?;
        let mut file = Self {
            input,
            format: Format::Pcapng(Section::default()),
            block: Vec::new(),
            at: 4,
            is_cut: false,
        };
        if magic == MAGIC_BLOCK {
            let mut head = [0; 8];
            file.exactly(&mut head)?;
            let head = BlockHead::of_section(head).ok_or(FileError::OtherFormat)?;
            file.section(head)?;
            return Ok(file);
        }
        let mut rest = [0; 20];
        file.exactly(&mut rest)?;
        let header = PcapHeader::read(magic, &rest).ok_or(FileError::OtherFormat)?;
        if header.link.is_none() {
            return Err(FileError::OtherLink(header.link_number));
        }
        file.format = Format::Pcap(header);
        Ok(file)
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// When the file is damaged or cannot be read.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, FileError> {
        let found = loop {
            let found = match self.format {
                Format::Pcap(header) => self.pcap_packet(header)?,
                Format::Pcapng(_) => self.pcapng_block()?,
            };
            match found {
                Step::Packet(found) => break found,
                Step::Other => {}
                Step::End => return Ok(None),
            }
        };
        let bytes = self.block.get(found.begin..).and_then(|rest| rest.get(..found.length));
        Ok(Some(Packet {
            time_ns: found.time_ns,
            link: found.link,
            bytes: bytes.unwrap_or_default(),
            wire_bytes: found.wire_bytes,
            interface: found.interface,
        }))
    }

    /// Packets that were dropped while the file was made, if it says so.
    pub fn dropped(&self) -> Option<u64> {
        match &self.format {
            Format::Pcap(_) => None,
            Format::Pcapng(section) => section.dropped(),
        }
    }

    /// Packets that were left out, since their link type is not read.
    pub fn left_out(&self) -> u64 {
        match &self.format {
            Format::Pcap(_) => 0,
            Format::Pcapng(section) => section.left_out,
        }
    }

    /// Whether the file ends in the middle of a packet, as that of a killed program does.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), FileError> {
        self.at += bytes.len() as u64;
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FileError::OtherFormat,
            _ => error.into(),
        })
    }

    /// Fills a head; false at the end of the file.
    fn head(&mut self, head: &mut [u8]) -> Result<bool, FileError> {
        let mut there = 0;
        while let Some(rest) = head.get_mut(there..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => {
                    self.is_cut |= there > 0;
                    return Ok(false);
                }
                Ok(length) => there += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at += head.len() as u64;
        Ok(true)
    }

    /// Reads so many bytes; false if the file ends before.
    fn body(&mut self, length: usize) -> Result<bool, FileError> {
        if length > BLOCK_BYTES_MAX {
            return Err(self.damaged());
        }
        self.block.clear();
        let read = (&mut self.input).take(length as u64).read_to_end(&mut self.block)?;
        self.at += read as u64;
        self.is_cut |= read < length;
        Ok(read == length)
    }

    fn damaged(&self) -> FileError {
        FileError::Damaged { at: self.at }
    }

    fn pcap_packet(&mut self, header: PcapHeader) -> Result<Step, FileError> {
        let mut head = [0; 16];
        if !self.head(&mut head)? {
            return Ok(Step::End);
        }
        let Some((found, length)) = header.packet(&head) else { return Err(self.damaged()) };
        Ok(if self.body(length)? { Step::Packet(found) } else { Step::End })
    }

    fn section(&mut self, head: BlockHead) -> Result<bool, FileError> {
        if !self.body(head.rest)? {
            return Ok(false);
        }
        match &mut self.format {
            Format::Pcapng(section) => section.begin(head.order),
            Format::Pcap(_) => {}
        }
        Ok(true)
    }

    fn pcapng_block(&mut self) -> Result<Step, FileError> {
        let Format::Pcapng(section) = &self.format else { return Ok(Step::End) };
        let order = section.order.unwrap_or(Order::Little);
        let mut head = [0; 8];
        if !self.head(&mut head)? {
            return Ok(Step::End);
        }
        if head.starts_with(&MAGIC_BLOCK) {
            let mut magic = [0; 4];
            if !self.head(&mut magic)? {
                self.is_cut = true;
                return Ok(Step::End);
            }
            let [_, _, _, _, length @ ..] = head;
            let both = [length, magic].concat();
            let head = both.first_chunk().copied().and_then(BlockHead::of_section);
            let Some(head) = head else { return Err(self.damaged()) };
            return Ok(if self.section(head)? { Step::Other } else { Step::End });
        }
        let Some(head) = BlockHead::read(order, head) else { return Err(self.damaged()) };
        if !self.body(head.rest)? {
            return Ok(Step::End);
        }
        let Format::Pcapng(section) = &mut self.format else { return Ok(Step::End) };
        // The length is repeated behind the block, and not of interest.
        let body = self.block.get(..self.block.len().saturating_sub(4)).unwrap_or_default();
        match section.block(head.kind, body) {
            Some(step) => Ok(step),
            None => Err(self.damaged()),
        }
    }
}

/// What one block was.
pub(super) enum Step {
    Packet(Found),
    Other,
    End,
}
