//! The superblock: what the journal is of, and where its records begin. Two copies, written in
//! turns; the newer one that is intact counts.

use steadfast_intent_log::{BLOCK_BYTES, Block, Medium, MediumError};
use thiserror::Error;

use crate::format::{
    Fields, NUMBER_MAX, RING_BYTES_MAX, RING_BYTES_MIN, RING_OFFSET, SUPERBLOCK_BYTES, Sequence,
};

/// The version of the format.
pub const FORMAT_VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"SfJrnl\0\0";
/// Bytes of the server's and the share's name and of the mount options, at the most, each.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Ranges of sequences that a superblock keeps: one for each crash that the ring still shows.
pub(crate) const CUT_OFF_MAX: usize = 32;
const _: () = assert!(136 + 3 * (2 + TEXT_BYTES_MAX) + 2 + 16 * CUT_OFF_MAX < SUPERBLOCK_BYTES);

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Names the journal. Random.
    pub(crate) uuid: [u8; 16],
    /// Grows with every copy that is written.
    pub(crate) generation: u64,
    /// Grows each time the journal is opened for writing.
    pub(crate) epoch: u64,
    /// Where the frames of this epoch begin.
    pub(crate) epoch_position: u64,
    /// Whether the journal was closed: then `head` and `last` are exact.
    pub(crate) is_clean: bool,
    /// The size of the ring.
    pub(crate) ring_bytes: u64,
    /// Where the first frame is that counts.
    pub(crate) tail: u64,
    /// The sequence of the frame before that one.
    pub(crate) tail_previous: Sequence,
    /// Behind the last frame that was on the medium when this was written.
    pub(crate) head: u64,
    /// The sequence of that frame.
    pub(crate) last: Sequence,
    /// The highest sequence that was given to a record when this was written.
    pub(crate) issued: Sequence,
    /// Up to this one everything may be older than a change that was sent around the journal.
    pub(crate) bypassed: Sequence,
    /// Sequences that a crash had cut off before anybody was told that they are stable, as far as the
    /// tail has not passed them. So they are not taken for damage later.
    pub(crate) cut_off: Vec<(Sequence, Sequence)>,
    /// The server, as it was named when it was mounted.
    pub(crate) server: Vec<u8>,
    /// The share.
    pub(crate) share: Vec<u8>,
    /// The mount options that matter, as text.
    pub(crate) mount_options: Vec<u8>,
}

/// As many ranges as a superblock has room for: neighbours are joined, and none is dropped.
pub(crate) fn bounded(mut ranges: Vec<(Sequence, Sequence)>) -> Vec<(Sequence, Sequence)> {
    ranges.sort_unstable();
    while ranges.len() > CUT_OFF_MAX {
        let gaps = ranges.windows(2).enumerate().filter_map(|(at, two)| {
            let [before, after] = two else { return None };
            Some((after.0.0.saturating_sub(before.1.0), at))
        });
        let Some((_, at)) = gaps.min() else { break };
        let (_, last) = ranges.remove(at + 1);
        if let Some(joined) = ranges.get_mut(at) {
            joined.1 = joined.1.max(last);
        }
    }
    ranges
}

/// Why there is no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SuperblockFault {
    /// Nothing was ever written.
    #[error("it is empty")]
    Empty,
    /// It does not begin as one.
    #[error("it is no journal")]
    Foreign,
    /// It is of another version.
    #[error("it has format version {0}, and this program reads {FORMAT_VERSION}")]
    OtherVersion(u32),
    /// The checksum is wrong, or what it says cannot be.
    #[error("it is damaged")]
    Damaged,
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable,
}

impl Superblock {
    /// The low 8 bytes of the uuid.
    pub(crate) fn journal_id(&self) -> u64 {
        u64::from_le_bytes(self.uuid.first_chunk().copied().unwrap_or_default())
    }

    /// Whether its numbers leave no room to go on: nobody has ever counted so far.
    pub(crate) fn is_worn_out(&self) -> bool {
        let numbers = [self.generation, self.epoch, self.head, self.issued.0];
        numbers.iter().any(|number| *number >= NUMBER_MAX / 8)
    }

    /// Where this copy is to be written: even ones before the ring, odd ones behind it.
    pub(crate) fn offset(&self) -> u64 {
        if self.generation.is_multiple_of(2) { 0 } else { RING_OFFSET + self.ring_bytes }
    }

    /// Whether these sequences are known as cut off by a crash.
    pub(crate) fn is_cut_off(&self, range: (Sequence, Sequence)) -> bool {
        self.cut_off.iter().any(|(first, last)| *first <= range.0 && range.1 <= *last)
    }

    pub(crate) fn encode(&self) -> Block {
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.is_clean).to_le_bytes());
        bytes.extend_from_slice(&self.uuid);
        let numbers = [
            self.generation,
            self.epoch,
            self.epoch_position,
            self.ring_bytes,
            self.tail,
            self.tail_previous.0,
            self.head,
            self.last.0,
            self.issued.0,
            self.bypassed.0,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for text in [&self.server, &self.share, &self.mount_options] {
            // Bounded by those who set them.
            let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        let cut_off = self.cut_off.get(..CUT_OFF_MAX).unwrap_or(&self.cut_off);
        bytes.extend_from_slice(&(cut_off.len() as u16).to_le_bytes());
        for (first, last) in cut_off {
            bytes.extend_from_slice(&first.0.to_le_bytes());
            bytes.extend_from_slice(&last.0.to_le_bytes());
        }
        bytes.resize(SUPERBLOCK_BYTES - 4, 0);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut block = Block::ZERO;
        Block::bytes_of_mut(std::slice::from_mut(&mut block)).copy_from_slice(&bytes);
        block
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SuperblockFault> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(SuperblockFault::Empty);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(SuperblockFault::Foreign);
        }
        let (checked, crc) =
            bytes.split_at_checked(SUPERBLOCK_BYTES - 4).ok_or(SuperblockFault::Damaged)?;
        if crc32c::crc32c(checked).to_le_bytes() != crc {
            return Err(SuperblockFault::Damaged);
        }
        let mut from = Fields::new(checked);
        let _ = from.take(MAGIC.len());
        let version = from.u32().ok_or(SuperblockFault::Damaged)?;
        if version != FORMAT_VERSION {
            return Err(SuperblockFault::OtherVersion(version));
        }
        Self::decode_rest(&mut from).ok_or(SuperblockFault::Damaged)
    }

    fn decode_rest(from: &mut Fields<'_>) -> Option<Self> {
        let is_clean = match from.u32()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let uuid = from.array()?;
        let mut superblock = Self {
            uuid,
            is_clean,
            generation: from.u64()?,
            epoch: from.u64()?,
            epoch_position: from.u64()?,
            ring_bytes: from.u64()?,
            tail: from.u64()?,
            tail_previous: Sequence(from.u64()?),
            head: from.u64()?,
            last: Sequence(from.u64()?),
            issued: Sequence(from.u64()?),
            bypassed: Sequence(from.u64()?),
            server: from.bytes(TEXT_BYTES_MAX)?.to_vec(),
            share: from.bytes(TEXT_BYTES_MAX)?.to_vec(),
            mount_options: from.bytes(TEXT_BYTES_MAX)?.to_vec(),
            cut_off: Vec::new(),
        };
        let cut_off = usize::from(from.u16()?);
        if cut_off > CUT_OFF_MAX {
            return None;
        }
        for _ in 0..cut_off {
            superblock.cut_off.push((Sequence(from.u64()?), Sequence(from.u64()?)));
        }
        let block = BLOCK_BYTES as u64;
        let numbers = [
            superblock.generation,
            superblock.epoch,
            superblock.epoch_position,
            superblock.ring_bytes,
            superblock.head,
            superblock.issued.0,
        ];
        let can_be = numbers.iter().all(|number| *number < NUMBER_MAX / 2)
            && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&superblock.ring_bytes)
            && superblock.ring_bytes.is_multiple_of(block)
            && superblock.head.is_multiple_of(block)
            && superblock.epoch_position.is_multiple_of(block)
            && superblock.tail.is_multiple_of(8)
            && superblock.tail <= superblock.head
            && superblock.head - superblock.tail <= superblock.ring_bytes
            && superblock.epoch_position <= superblock.head
            && superblock.tail_previous <= superblock.last
            && superblock.last <= superblock.issued
            && superblock.bypassed <= superblock.issued;
        can_be.then_some(superblock)
    }
}

fn read_copy(medium: &dyn Medium, offset: u64) -> Result<Superblock, SuperblockFault> {
    let mut block = [Block::ZERO];
    medium.read_at(offset, &mut block).map_err(|_| SuperblockFault::Unreadable)?;
    let found = Superblock::decode(Block::bytes_of(&block))?;
    if found.offset() == offset { Ok(found) } else { Err(SuperblockFault::Damaged) }
}

/// Both copies, as they were found.
#[derive(Debug)]
pub(crate) struct Copies(pub(crate) [Result<Superblock, SuperblockFault>; 2]);

impl Copies {
    pub(crate) fn read(medium: &dyn Medium) -> Self {
        let first = read_copy(medium, 0);
        // The other one is where the first says; without it, where the medium ends.
        let end = medium.bytes() - medium.bytes() % BLOCK_BYTES as u64;
        let second = match &first {
            Ok(first) => RING_OFFSET + first.ring_bytes,
            Err(_) => end.saturating_sub(SUPERBLOCK_BYTES as u64),
        };
        let second = read_copy(medium, second);
        Self([first, second])
    }

    /// The newer one that is intact, or why there is none.
    pub(crate) fn newest(&self) -> Result<&Superblock, SuperblockFault> {
        let [a, b] = &self.0;
        match (a, b) {
            (Ok(a), Ok(b)) if a.uuid == b.uuid => {
                Ok(if a.generation > b.generation { a } else { b })
            }
            // Somebody has joined two files.
            (Ok(_), Ok(_)) => Err(SuperblockFault::Damaged),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(SuperblockFault::Empty), Err(other)) | (Err(other), Err(_)) => Err(*other),
        }
    }

    /// Whether one copy is not as it was written.
    pub(crate) fn is_one_damaged(&self) -> bool {
        self.0.iter().any(Result::is_err)
    }
}

pub(crate) fn write(medium: &dyn Medium, superblock: &Superblock) -> Result<(), MediumError> {
    medium.write_at(superblock.offset(), &[superblock.encode()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_find_no_room_are_joined_with_their_neighbours() {
        let ranges: Vec<_> = (0..100u64)
            .map(|at| (Sequence(at << 20), Sequence((at << 20) + 5 + 1000 * (at % 7))))
            .collect();
        let kept = bounded(ranges.clone());
        assert_eq!(kept.len(), CUT_OFF_MAX);
        for (first, last) in ranges {
            assert!(kept.iter().any(|one| one.0 <= first && last <= one.1), "{first}");
        }
    }
}
