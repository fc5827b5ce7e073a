//! The state of a journal in use. No I/O: what is to be written comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_intent_log::{BLOCK_BYTES, Medium};

use crate::errors::Failed;
use crate::format::{HEADER_BYTES, Header, Sequence, block_after, block_before, frame_bytes};
use crate::growing::Growing;
use crate::index::{Entry, Index};
use crate::notes::{self, KIND_LEFT, KIND_REFUSED, KIND_SETTLED, KIND_STAMP, RANGES_MAX};
use crate::record::Kind;
use crate::recover::read_ring;
use crate::scan::Damage;
use crate::status::{Recovered, Statistics};
use crate::superblock::{self, Superblock};

/// After a crash sequences go on so far beyond the last one known, so that none is given twice.
const SEQUENCE_JUMP: u64 = 1 << 20;
/// A superblock is written at the latest after so many sequences: what is appended and not written
/// beside that is bounded by [`UNWRITTEN_BYTES_MAX`], and both together are less than the jump.
const SEQUENCES_PER_SUPERBLOCK: u64 = 1 << 18;
/// What is kept in memory before an append writes it: a batch.
pub(crate) const UNWRITTEN_BYTES_MAX: usize = 8 << 20;
const _: () = assert!(
    SEQUENCES_PER_SUPERBLOCK + (2 * UNWRITTEN_BYTES_MAX / HEADER_BYTES) as u64 + 2 < SEQUENCE_JUMP
);
/// Room that stamps leave which are written again.
const CARRY_RESERVE_BYTES: u64 = 3 * BLOCK_BYTES as u64;
/// The tail is moved when it can move by this part of the ring.
const RECLAIM_PART: u64 = 4;

/// What the server did with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It has it on stable storage.
    Stable,
    /// It has refused it for good: the change has no effect.
    Refused,
}

/// Frames, with their sequences.
pub(crate) type Frames = Vec<(Sequence, Arc<Vec<u8>>)>;

/// A position, and the sequence of the frame before it.
pub(crate) type TailAt = (u64, Sequence);

pub(crate) struct State {
    pub(crate) ring_bytes: u64,
    pub(crate) journal_id: u64,
    /// Where the next frame goes.
    pub(crate) head: u64,
    /// Behind the last batch on the medium.
    pub(crate) written_head: u64,
    /// What is before this may be written over: both superblocks agree to it.
    pub(crate) freed: u64,
    /// The last sequence that was given.
    pub(crate) issued: Sequence,
    /// The sequence of the last frame: after a crash it is not the last one that was given.
    pub(crate) last_frame: Sequence,
    /// Up to this one all frames are on the medium.
    pub(crate) stable: Sequence,
    /// The newest record, while it may grow.
    pub(crate) growing: Option<Growing>,
    /// Frames that no batch has taken.
    pub(crate) queue: Frames,
    pub(crate) queue_bytes: usize,
    /// Frames that are not on the medium, in a batch or not.
    pub(crate) unwritten: BTreeMap<Sequence, Arc<Vec<u8>>>,
    pub(crate) index: Index,
    /// What no frame says yet, in the order in which it is to be written: what is settled in part comes
    /// first, so that a replay of the frames never takes more for done than is.
    pub(crate) unsaid: [(u8, Vec<Sequence>); 3],
    /// Damage holds the tail until somebody has read about it.
    pub(crate) held: Option<(u64, Sequence)>,
    /// Records before this one may have been superseded by one that is missing.
    pub(crate) doubtful_before: Sequence,
    /// As it was written last, and the tails of both copies.
    pub(crate) superblock: Superblock,
    pub(crate) tails: [u64; 2],
    pub(crate) has_writer: bool,
    /// Nothing is ever written.
    pub(crate) is_read_only: bool,
    pub(crate) failed: Option<Arc<str>>,
    pub(crate) statistics: Statistics,
    /// Counts changes of what the manifest says.
    pub(crate) version: u64,
}

impl State {
    pub(crate) fn recover(
        medium: &dyn Medium,
        mut found: Superblock,
        is_bypassed: bool,
        recovered: &mut Recovered,
    ) -> Self {
        let mut index = Index::default();
        let scanned = read_ring(medium, &found, &mut index);
        let jump = if found.is_clean && scanned.damage.is_empty() { 0 } else { SEQUENCE_JUMP };
        let highest = found.issued.max(scanned.last);
        let issued = Sequence(highest.0.saturating_add(jump));
        if is_bypassed {
            found.bypassed = issued;
        }
        recovered.was_bypassed = index.iter().any(|(sequence, entry)| {
            sequence <= found.bypassed || index.is_bypassed(sequence, entry)
        });
        recovered.pending_records = index.len() as u64;
        recovered.unreadable_blocks = scanned.unreadable_blocks;
        recovered.damage.clone_from(&scanned.damage);
        let cut_off = scanned
            .damage
            .iter()
            .filter(|damage| !damage.was_stable)
            .filter_map(|damage| damage.sequences);
        let cut_off = superblock::bounded(cut_off.collect());
        // A write that a crash had cut off before was reported then, and holds the tail no more.
        let is_new =
            |damage: &&Damage| damage.sequences.is_none_or(|range| !found.is_cut_off(range));
        let held = scanned.damage.iter().find(is_new);
        let held = held.map(|damage| (damage.position, damage.after));
        Self {
            ring_bytes: found.ring_bytes,
            journal_id: found.journal_id(),
            head: scanned.head,
            written_head: scanned.head,
            freed: block_before(found.tail),
            issued,
            last_frame: scanned.last,
            stable: scanned.last,
            growing: None,
            queue: Vec::new(),
            queue_bytes: 0,
            unwritten: BTreeMap::new(),
            index,
            unsaid: [KIND_SETTLED, KIND_REFUSED, KIND_LEFT].map(|kind| (kind, Vec::new())),
            held,
            doubtful_before: scanned.doubtful_before(),
            tails: [found.tail; 2],
            superblock: Superblock {
                epoch: found.epoch + 1,
                epoch_position: scanned.head,
                is_clean: false,
                cut_off,
                ..found
            },
            has_writer: false,
            is_read_only: false,
            failed: None,
            statistics: Statistics::default(),
            version: 1,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Failed> {
        match &self.failed {
            Some(why) => Err(Failed { why: why.to_string() }),
            None => Ok(()),
        }
    }

    pub(crate) fn fail(&mut self, why: &str) {
        if self.failed.is_none() {
            self.failed = Some(why.into());
        }
    }

    /// Appends a frame, for which there is room.
    pub(crate) fn place(&mut self, frame: Vec<u8>, kind: u8, flags: u8) -> Header {
        debug_assert!(self.growing.is_none(), "what grows comes before it");
        self.issued = self.issued.next();
        self.place_as(self.issued, frame, kind, flags)
    }

    /// As [`State::place`], with the newest sequence.
    pub(crate) fn place_as(
        &mut self,
        sequence: Sequence,
        mut frame: Vec<u8>,
        kind: u8,
        flags: u8,
    ) -> Header {
        let header = Header {
            payload_bytes: (frame.len() - HEADER_BYTES) as u32,
            sequence,
            previous: self.last_frame,
            position: self.head,
            epoch: self.superblock.epoch,
            journal_id: self.journal_id,
            stable: self.stable,
            kind,
            flags,
            payload_crc: crc32c::crc32c(frame.get(HEADER_BYTES..).unwrap_or_default()),
        };
        if let Some(place) = frame.first_chunk_mut() {
            *place = header.encode();
        }
        frame.resize(header.frame_bytes() as usize, 0);
        self.head += header.frame_bytes();
        self.queue_bytes += frame.len();
        self.last_frame = sequence;
        let frame = Arc::new(frame);
        if Kind::of_code(kind).is_some() {
            self.unwritten.insert(sequence, Arc::clone(&frame));
        }
        self.queue.push((sequence, frame));
        header
    }

    /// Frames that say what was settled, as far as there is room.
    pub(crate) fn say_what_left(&mut self) {
        self.close_growing();
        self.forget_said();
        let mut unsaid = std::mem::take(&mut self.unsaid);
        for (kind, sequences) in &mut unsaid {
            sequences.sort_unstable();
            sequences.dedup();
            if !self.say(*kind, sequences) {
                break;
            }
        }
        self.unsaid = unsaid;
    }

    /// The tail on the medium says it for those before it.
    fn forget_said(&mut self) {
        let before = self.superblock.tail_previous;
        for (_, sequences) in &mut self.unsaid {
            sequences.retain(|sequence| *sequence > before);
        }
    }

    /// How many records a crash, or closing, makes pending again.
    pub(crate) fn unsaid_records(&mut self) -> usize {
        self.forget_said();
        self.unsaid.iter().map(|(_, sequences)| sequences.len()).sum()
    }

    /// Says whether there was room for all.
    fn say(&mut self, kind: u8, sequences: &mut Vec<Sequence>) -> bool {
        while !sequences.is_empty() {
            let (mut ranges, mut count) = (Vec::<(Sequence, Sequence)>::new(), 0);
            for sequence in &*sequences {
                let ranges_count = ranges.len();
                match ranges.last_mut() {
                    Some((_, last)) if last.next() == *sequence => *last = *sequence,
                    _ if ranges_count == RANGES_MAX => break,
                    _ => ranges.push((*sequence, *sequence)),
                }
                count += 1;
            }
            let frame = notes::encode_ranges(HEADER_BYTES, &ranges);
            let end = block_after(self.head + frame_bytes(frame.len() - HEADER_BYTES) as u64);
            if end - self.freed > self.ring_bytes {
                return false;
            }
            self.place(frame, kind, 0);
            sequences.drain(..count);
        }
        true
    }

    /// All that was appended and is in no batch; the next frame begins at a block boundary.
    pub(crate) fn take_batch(&mut self) -> Option<(u64, Frames)> {
        self.close_growing();
        if self.queue.is_empty() {
            return None;
        }
        let position = self.head - self.queue_bytes as u64;
        self.queue_bytes = 0;
        self.head = block_after(self.head);
        Some((position, std::mem::take(&mut self.queue)))
    }

    pub(crate) fn note_stable(&mut self, last: Sequence) {
        self.stable = self.stable.max(last);
        self.unwritten = self.unwritten.split_off(&self.stable.next());
    }

    pub(crate) fn settle(&mut self, sequence: Sequence, how: Settled) {
        self.close_growing();
        let was_superseded = self.index.get(sequence).is_none_or(Entry::is_superseded);
        let [(_, in_part), (_, refused), (_, left)] = &mut self.unsaid;
        let left_records = match how {
            Settled::Stable => {
                let gone = self.index.settle(sequence);
                if !was_superseded && !gone.contains(&sequence) {
                    in_part.push(sequence);
                }
                left.extend(&gone);
                gone.len()
            }
            Settled::Refused => {
                let was_there = self.index.refuse(sequence);
                refused.extend(was_there.then_some(sequence));
                usize::from(was_there)
            }
        };
        self.statistics.left_records += left_records as u64;
        self.version += 1;
    }

    /// Where the tail can be, and the sequence of the frame before it.
    pub(crate) fn tail(&self) -> TailAt {
        let oldest = self.index.first().map(|entry| (entry.position, entry.previous));
        let end = (self.written_head, self.stable);
        [oldest, self.held].into_iter().flatten().fold(end, Ord::min)
    }

    pub(crate) fn can_reclaim(&self) -> bool {
        block_before(self.tail().0) > self.freed
    }

    /// Whether the tail would move if what is queued, or being written, were on the medium.
    pub(crate) fn is_queue_in_the_way(&self) -> bool {
        let oldest = self.index.first().map_or(self.head, |entry| entry.position);
        let beyond = self.held.map_or(oldest, |(position, _)| position.min(oldest));
        self.written_head < beyond && self.head > self.written_head
    }

    pub(crate) fn is_superblock_due(&self) -> bool {
        block_before(self.tail().0) - self.freed >= self.ring_bytes / RECLAIM_PART
            || self.issued.0 - self.superblock.issued.0 > SEQUENCES_PER_SUPERBLOCK
    }

    /// Stamps of which all frames are before a position are placed again, as far as records leave room.
    /// The others are forgotten with their frames. Says whether any was placed.
    pub(crate) fn carry_stamps(&mut self, before: u64) -> bool {
        self.close_growing();
        let mut is_any = false;
        for (object, stamp) in self.index.stamps_before(before) {
            let Ok(frame) = notes::encode_stamp(HEADER_BYTES, &object, &stamp) else { continue };
            let end = block_after(self.head + frame_bytes(frame.len() - HEADER_BYTES) as u64);
            if end + CARRY_RESERVE_BYTES - self.freed > self.ring_bytes {
                break;
            }
            let position = self.place(frame, KIND_STAMP, 0).position;
            self.index.stamp_moved(&object, position);
            is_any = true;
        }
        is_any
    }

    /// Whether the object has records that nobody would know to be older than a change around the
    /// journal.
    pub(crate) fn must_note_bypass(&self, object: &[u8]) -> bool {
        self.index.last_unbypassed(object).is_some_and(|last| last > self.superblock.bypassed)
    }

    /// The next superblock, with the mark that all records up to now may be superseded.
    pub(crate) fn superblock_of_bypass(&self) -> Superblock {
        let tail = (self.superblock.tail, self.superblock.tail_previous);
        Superblock { bypassed: self.issued, ..self.next_superblock(false, tail) }
    }

    /// Records before this one may be older than what the server has.
    pub(crate) fn doubtful_before(&self) -> Sequence {
        self.doubtful_before.max(self.superblock.bypassed.next())
    }

    pub(crate) fn next_superblock(&self, is_clean: bool, tail: TailAt) -> Superblock {
        let (tail, tail_previous) = self.tail().min(tail);
        Superblock {
            generation: self.superblock.generation + 1,
            is_clean: is_clean && self.queue.is_empty(),
            tail,
            tail_previous,
            head: self.written_head,
            last: self.stable,
            issued: self.issued,
            ..self.superblock.clone()
        }
    }

    pub(crate) fn superblock_written(&mut self, superblock: Superblock) {
        let slot = (superblock.generation % 2) as usize;
        if let Some(tail) = self.tails.get_mut(slot) {
            *tail = superblock.tail;
        }
        self.freed = block_before(self.tails[0].min(self.tails[1])).max(self.freed);
        self.superblock = superblock;
    }
}
