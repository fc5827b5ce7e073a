//! A batch: records that are written together, laid out as they go to the medium.
//!
//! A batch begins on a block boundary, its records follow each other, and the rest of its last
//! block is zeros. It is not atomic: any part of it may be there after a crash, and the scan takes
//! the records before the first that is not whole.

use std::ops::Range;

use crate::format::{Lsn, Position, pieces};
use crate::medium::{AlignedBuffer, Block, Medium, MediumError, MemoryAdvice};
use crate::queue::Ready;
use crate::record::Header;

/// A batch, to be used again and again by one committer, so that its memory is.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) records: Vec<Ready>,
    pub(crate) number: u64,
    pub(crate) first: Lsn,
    pub(crate) last: Lsn,
    pub(crate) position: Position,
    pub(crate) ring_bytes: u64,
    pub(crate) record_bytes: usize,
    buffer: AlignedBuffer,
    /// Where in the buffer is what stands behind changes.
    behind: Vec<Range<usize>>,
}

impl Batch {
    /// A batch that has its memory told of by `advice` before it is used, in whole pieces of 2 MiB
    /// aligned like that: on huge pages it goes to the device as one piece. (A record of 2 MiB has it
    /// moved, and only the second piece told of.)
    pub fn with_advice(advice: MemoryAdvice) -> Self {
        Self { buffer: AlignedBuffer::with_advice(advice), ..Self::default() }
    }

    /// The LSN of the first record.
    pub fn first(&self) -> Lsn {
        self.first
    }

    /// The LSN of the last record.
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// How many records there are.
    pub fn record_count(&self) -> u64 {
        if self.ring_bytes == 0 { 0 } else { self.last.next().0 - self.first.0 }
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> usize {
        self.buffer.bytes().len()
    }

    /// What stands behind the changes of its records ([`crate::IntentLog::complete_with`]), in their
    /// order.
    pub fn behind(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.buffer.bytes();
        self.behind.iter().filter_map(move |range| bytes.get(range.clone()))
    }

    /// Where to write what: one piece, or two where the batch crosses the end of the ring. They
    /// may be written in any order.
    pub fn writes(&self) -> impl Iterator<Item = (u64, &[Block])> {
        let blocks = self.buffer.blocks();
        // A batch that was never taken has no ring and no blocks.
        pieces(self.position, blocks.len(), self.ring_bytes.max(1))
            .map(|(offset, range)| (offset, blocks.get(range).unwrap_or_default()))
    }

    /// Writes it, one piece after the other.
    pub fn write_to(&self, medium: &dyn Medium) -> Result<(), MediumError> {
        self.writes().try_for_each(|(offset, blocks)| medium.write_at(offset, blocks))
    }

    /// Lays the records out, and lets their payloads go.
    pub(crate) fn lay_out(&mut self, log_id: u64, epoch: u64, stable: Lsn) {
        self.buffer.resize(self.record_bytes);
        self.behind.clear();
        let mut at = 0;
        let mut room = self.buffer.bytes_mut();
        for record in self.records.drain(..) {
            let payload = &record.payload.bytes;
            let header = Header {
                payload_bytes: payload.len() as u32,
                lsn: record.lsn,
                epoch,
                log_id,
                stable,
                file_system: record.file_system,
            };
            if let Some(behind) = record.payload.behind {
                let payload_at = at + crate::record::HEADER_BYTES;
                self.behind.push(payload_at + behind as usize..payload_at + payload.len());
            }
            at += header.record_bytes();
            let (own, rest) = room.split_at_mut(header.record_bytes());
            let (head, body) = own.split_at_mut(crate::record::HEADER_BYTES);
            let (payload_room, padding) = body.split_at_mut(payload.len());
            head.copy_from_slice(&header.encode(record.payload.crc));
            payload_room.copy_from_slice(payload);
            padding.fill(0);
            room = rest;
        }
        room.fill(0);
    }
}
