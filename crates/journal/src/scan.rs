//! Reading the ring: every whole frame between the tail and the end, whatever lies between them.
//!
//! After a frame comes the next one, or zeros up to a block boundary and the next batch there. Where
//! neither stands the scan looks at every multiple of 8 bytes for a header that belongs to exactly
//! that place, up to the end of the ring. So a damaged header costs its own record only, and a
//! frame whose payload is damaged is passed by the length that its header tells. What is missing is
//! known by the sequences: each header tells the one before it.

use std::collections::BTreeSet;

use steadfast_intent_log::{BLOCK_BYTES, Block, Medium};

use crate::format::{
    ALIGNMENT, HEADER_BYTES, Header, MAGIC, RING_OFFSET, Sequence, block_after, block_before,
};
use crate::superblock::Superblock;

/// Blocks that are read at a time.
const CHUNK_BLOCKS: usize = 64;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A place where records are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where: bytes written into the ring since it was made.
    pub position: u64,
    /// The last frame before it.
    pub after: Sequence,
    /// The sequences that are missing, both inclusive. After a crash sequences jump, so there may be
    /// fewer. `None`: what begins there cannot be read, and nothing that can follows it.
    pub sequences: Option<(Sequence, Sequence)>,
    /// Whether all of them had been stable in the ring. If not, this may be a write that a crash
    /// cut off before anybody was told that it is stable. Blocks behind the last record that the medium
    /// does not read count as stable: a crash does not do that.
    pub was_stable: bool,
}

/// What a scan has found, beside the frames.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) damage: Vec<Damage>,
    /// Behind everything found, at a block boundary.
    pub(crate) head: u64,
    /// The last sequence found, or known to be missing.
    pub(crate) last: Sequence,
    pub(crate) unreadable_blocks: u64,
}

impl Scanned {
    /// Records before this one may have been superseded by one that is missing.
    pub(crate) fn doubtful_before(&self) -> Sequence {
        let missing = self.damage.iter().map(|damage| match damage.sequences {
            Some((_, last)) => last,
            // Whatever they were, they were newer than all.
            None if damage.was_stable => self.last.next(),
            None => Sequence(0),
        });
        missing.max().unwrap_or_default()
    }
}

/// A frame, as it is given to those who scan. Returns whether it makes sense.
pub(crate) type Take<'a> = dyn FnMut(&Header, &[u8]) -> bool + 'a;

/// Reads the ring by position.
struct RingReader<'a> {
    medium: &'a dyn Medium,
    ring_bytes: u64,
    chunk: Vec<Block>,
    /// Where in the ring the chunk begins, and how many bytes it has.
    chunk_at: u64,
    chunk_bytes: usize,
    /// Where in the ring.
    unreadable_blocks: BTreeSet<u64>,
}

impl<'a> RingReader<'a> {
    fn new(medium: &'a dyn Medium, ring_bytes: u64) -> Self {
        Self {
            medium,
            ring_bytes,
            chunk: vec![Block::ZERO; CHUNK_BLOCKS],
            chunk_at: 0,
            chunk_bytes: 0,
            unreadable_blocks: BTreeSet::new(),
        }
    }

    /// Bytes from this position on: as many as the chunk has, at least 8 if the position is a
    /// multiple of 8. Blocks that cannot be read are zeros.
    fn bytes_at(&mut self, position: u64) -> &[u8] {
        let at = position % self.ring_bytes;
        if !(self.chunk_at..self.chunk_at + self.chunk_bytes as u64).contains(&at) {
            self.load(block_before(at));
        }
        let from = (at - self.chunk_at) as usize;
        Block::bytes_of(&self.chunk).get(from..self.chunk_bytes).unwrap_or_default()
    }

    fn load(&mut self, at: u64) {
        let blocks = ((self.ring_bytes - at) / BLOCK).min(CHUNK_BLOCKS as u64) as usize;
        self.chunk_at = at;
        self.chunk_bytes = blocks * BLOCK_BYTES;
        let chunk = self.chunk.get_mut(..blocks).unwrap_or_default();
        if self.medium.read_at(RING_OFFSET + at, chunk).is_ok() {
            return;
        }
        for (block, number) in chunk.chunks_mut(1).zip(0..) {
            if self.medium.read_at(RING_OFFSET + at + number * BLOCK, block).is_err() {
                block.fill(Block::ZERO);
                self.unreadable_blocks.insert(at + number * BLOCK);
            }
        }
    }

    fn read(&mut self, mut position: u64, bytes: usize, into: &mut Vec<u8>) {
        into.clear();
        while into.len() < bytes {
            let found = self.bytes_at(position);
            let take = found.get(..bytes - into.len()).unwrap_or(found);
            if take.is_empty() {
                return;
            }
            into.extend_from_slice(take);
            position += take.len() as u64;
        }
    }

    fn header_bytes(&mut self, position: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        self.read(position, HEADER_BYTES, &mut bytes);
        bytes.try_into().unwrap_or([0; HEADER_BYTES])
    }
}

struct Scan<'a> {
    reader: RingReader<'a>,
    superblock: &'a Superblock,
    limit: u64,
    damage: Vec<Damage>,
    /// Behind the last frame of which at least the header is whole, and its sequence.
    end: u64,
    last: Sequence,
    stable: Sequence,
}

/// Gives each whole frame to `take`, in order.
pub(crate) fn scan(medium: &dyn Medium, superblock: &Superblock, take: &mut Take<'_>) -> Scanned {
    let limit = if superblock.is_clean {
        superblock.head
    } else {
        block_before(superblock.tail) + superblock.ring_bytes
    };
    let mut scan = Scan {
        reader: RingReader::new(medium, superblock.ring_bytes),
        superblock,
        limit,
        damage: Vec::new(),
        end: superblock.tail,
        last: superblock.tail_previous,
        stable: superblock.last,
    };
    scan.run(take);
    scan.finish()
}

impl Scan<'_> {
    fn run(&mut self, take: &mut Take<'_>) {
        let mut at = self.end;
        let mut payload = Vec::new();
        while at + HEADER_BYTES as u64 <= self.limit {
            let Some(header) = self.header(at) else {
                at = self.next_candidate(at);
                continue;
            };
            self.note_missing(header.previous);
            self.reader.read(at + HEADER_BYTES as u64, header.payload_bytes as usize, &mut payload);
            let is_whole = payload.len() == header.payload_bytes as usize
                && crc32c::crc32c(&payload) == header.payload_crc
                && take(&header, &payload);
            if !is_whole {
                self.note_missing(header.sequence);
            }
            self.stable = self.stable.max(header.stable);
            self.last = header.sequence;
            at += header.frame_bytes();
            self.end = at;
        }
    }

    /// The header at this place, if one belongs here.
    fn header(&mut self, at: u64) -> Option<Header> {
        if !self.reader.bytes_at(at).starts_with(&MAGIC) {
            return None;
        }
        let header = Header::decode(&self.reader.header_bytes(at))?;
        let superblock = self.superblock;
        let is_of_this_epoch = if at < superblock.epoch_position {
            header.epoch < superblock.epoch
        } else {
            header.epoch == superblock.epoch
        };
        let fits = header.position == at
            && header.journal_id == superblock.journal_id()
            && is_of_this_epoch
            && header.sequence > self.last
            && at + header.frame_bytes() <= self.limit;
        fits.then_some(header)
    }

    /// The next place at which a header may stand.
    fn next_candidate(&mut self, at: u64) -> u64 {
        let step = ALIGNMENT as u64;
        let from = at + step;
        let bytes = self.reader.bytes_at(from);
        let found = bytes.chunks_exact(ALIGNMENT).position(|eight| eight.starts_with(&MAGIC));
        let skipped = found.unwrap_or((bytes.len() / ALIGNMENT).max(1)) as u64;
        from + skipped * step
    }

    /// Everything behind the last frame up to this one is missing.
    fn note_missing(&mut self, up_to: Sequence) {
        if up_to <= self.last {
            return;
        }
        self.damage.push(Damage {
            position: self.end,
            after: self.last,
            sequences: Some((self.last.next(), up_to)),
            was_stable: false,
        });
        self.last = up_to;
    }

    /// Whether something that was a header of ours stands where the next frame would.
    fn is_something_at_end(&mut self) -> bool {
        [self.end, block_after(self.end)].into_iter().any(|at| {
            if at + HEADER_BYTES as u64 > self.limit {
                return false;
            }
            let bytes = self.reader.header_bytes(at);
            if Header::decode(&bytes).is_some() {
                // Of an earlier lap or epoch.
                return false;
            }
            let fields = Header::fields(&bytes);
            let signs = [
                bytes.starts_with(&MAGIC),
                fields.journal_id == self.superblock.journal_id(),
                fields.position == at,
                fields.epoch == self.superblock.epoch,
            ];
            signs.into_iter().filter(|sign| *sign).count() >= 3
        })
    }

    /// Whether blocks that come after the last frame cannot be read: there may have been more.
    fn is_end_unreadable(&self) -> bool {
        let from = block_before(self.end);
        let ring_bytes = self.superblock.ring_bytes;
        self.reader.unreadable_blocks.iter().any(|at| {
            let ahead = (at + ring_bytes - from % ring_bytes) % ring_bytes;
            from + ahead < self.limit
        })
    }

    fn finish(mut self) -> Scanned {
        // What the superblock knows to have been there.
        self.note_missing(self.superblock.last);
        if self.is_something_at_end() {
            let (position, after) = (self.end, self.last);
            self.damage.push(Damage { position, after, sequences: None, was_stable: false });
        }
        let is_end_unreadable = self.is_end_unreadable();
        for damage in &mut self.damage {
            damage.was_stable = damage
                .sequences
                .is_some_and(|range| range.1 <= self.stable && !self.superblock.is_cut_off(range));
        }
        if is_end_unreadable {
            let (position, after) = (self.end, self.last);
            self.damage.push(Damage { position, after, sequences: None, was_stable: true });
        }
        Scanned {
            damage: self.damage,
            head: block_after(self.end).max(self.superblock.head),
            last: self.last,
            unreadable_blocks: self.reader.unreadable_blocks.len() as u64,
        }
    }
}
