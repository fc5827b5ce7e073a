//! The journal in use: appending, group commit, what leaves.
//!
//! One lock guards the state, and nobody does I/O under it. Who writes to the medium is the
//! *writer*: a role (`State::has_writer`) that one thread has at a time. Whoever waits for a sequence and
//! finds the role free takes it, writes all that was appended so far, and wakes the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_intent_log::{BLOCK_BYTES, Block, Medium};

use crate::errors::{AppendError, Failed, OpenError};
use crate::file::Place;
use crate::format::{
    HEADER_BYTES, Header, RING_BYTES_MAX, RING_OFFSET, Sequence, block_after, block_before,
    frame_bytes, ring_bytes_of,
};
use crate::index::{Entry, Index};
use crate::manifest;
use crate::record::{self, KIND_LEFT, KIND_OUTCOME, Kind, LEFT_RANGES_MAX, Outcome, Record, Unfit};
use crate::recover::read_ring;
use crate::scan::Damage;
use crate::status::{Recovered, Statistics, Status};
use crate::superblock::{self, CUT_OFF_MAX, Copies, Superblock, SuperblockFault, TEXT_BYTES_MAX};

/// After a crash sequences go on so far beyond the last one known, so that none is given twice.
const SEQUENCE_JUMP: u64 = 1 << 20;
/// A superblock is written at the latest after so many sequences: what is appended and not written
/// beside that is bounded by [`UNWRITTEN_BYTES_MAX`], and both together are less than the jump.
const SEQUENCES_PER_SUPERBLOCK: u64 = 1 << 18;
/// What is kept in memory before an append writes it: a batch.
const UNWRITTEN_BYTES_MAX: usize = 8 << 20;
const _: () = assert!(
    SEQUENCES_PER_SUPERBLOCK + (2 * UNWRITTEN_BYTES_MAX / HEADER_BYTES) as u64 + 2 < SEQUENCE_JUMP
);
/// Room that records leave to frames that say what has left.
const RESERVE_BYTES: u64 = BLOCK_BYTES as u64;
/// The tail is moved when it can move by this part of the ring.
const RECLAIM_PART: u64 = 4;

/// What a journal is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server, as it is named in the mount. At most 1024 bytes, as the two below.
    pub server: Vec<u8>,
    /// The share.
    pub share: Vec<u8>,
    /// The mount options that matter for a replay, as text.
    pub mount_options: Vec<u8>,
    /// The size of a ring that is made. One that is there keeps its own.
    pub ring_bytes: u64,
    /// Whether data is compressed where that makes it smaller.
    pub compress: bool,
    /// The manifest is not written more often. It is written less often if that takes long.
    pub manifest_interval: Duration,
}

impl Options {
    /// The ring of a mount that says nothing about it.
    pub const RING_BYTES: u64 = 256 << 20;

    /// Those of a share of a server.
    pub fn new(server: &str, share: &str) -> Self {
        Self {
            server: server.into(),
            share: share.into(),
            mount_options: Vec::new(),
            ring_bytes: Self::RING_BYTES,
            compress: false,
            manifest_interval: Duration::from_secs(1),
        }
    }
}

/// Frames, with their sequences.
type Frames = Vec<(Sequence, Arc<Vec<u8>>)>;

pub(crate) struct State {
    ring_bytes: u64,
    journal_id: u64,
    /// Where the next frame goes.
    head: u64,
    /// Behind the last batch on the medium.
    written_head: u64,
    /// What is before this may be written over: both superblocks agree to it.
    freed: u64,
    /// The last sequence that was given.
    issued: Sequence,
    /// The sequence of the last frame: after a crash it is not the last one that was given.
    last_frame: Sequence,
    /// Up to this one all frames are on the medium.
    pub(crate) stable: Sequence,
    /// Frames that no batch has taken.
    queue: Frames,
    queue_bytes: usize,
    /// Frames that are not on the medium, in a batch or not.
    pub(crate) unwritten: BTreeMap<Sequence, Arc<Vec<u8>>>,
    pub(crate) index: Index,
    /// Records that have left, which no frame says yet.
    left: Vec<Sequence>,
    /// Records superseded by one that is not on the medium: (by which, which).
    superseded: VecDeque<(Sequence, Sequence)>,
    /// Damage holds the tail until somebody has read about it.
    held: Option<(u64, Sequence)>,
    /// Records before this one may have been superseded by one that is missing.
    pub(crate) doubtful_before: Sequence,
    /// As it was written last, and the tails of both copies.
    superblock: Superblock,
    tails: [u64; 2],
    has_writer: bool,
    pub(crate) failed: Option<Arc<str>>,
    pub(crate) statistics: Statistics,
    /// Counts changes of what the manifest says.
    pub(crate) version: u64,
}

/// A journal. `Send` and `Sync`: every method may be called by many threads.
pub struct Journal {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) state: Mutex<State>,
    /// The writer has finished, or something has left.
    changed: Condvar,
    pub(crate) ring_bytes: u64,
    compress: bool,
    pub(crate) place: Option<Place>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("place", &self.place).finish_non_exhaustive()
    }
}

fn new_superblock(options: &Options, uuid: [u8; 16], ring_bytes: u64) -> Superblock {
    Superblock {
        uuid,
        generation: 0,
        epoch: 0,
        epoch_position: 0,
        is_clean: true,
        ring_bytes,
        tail: 0,
        tail_previous: Sequence(0),
        head: 0,
        last: Sequence(0),
        issued: Sequence(0),
        server: options.server.clone(),
        share: options.share.clone(),
        mount_options: options.mount_options.clone(),
        cut_off: Vec::new(),
    }
}

impl Journal {
    /// Opens the journal on a medium, and makes one there if the medium is empty. For simulations
    /// and tests; a mount calls [`Journal::open`].
    ///
    /// # Errors
    /// When there is something else, or it is of another share, or cannot be read or written.
    pub fn on_medium(
        medium: Arc<dyn Medium>,
        options: &Options,
        uuid: [u8; 16],
    ) -> Result<(Self, Recovered), OpenError> {
        Self::attach(medium, options, uuid, true)
    }

    /// As [`Journal::on_medium`]. A file that was a journal is never made one anew, though its
    /// superblocks may be zeros.
    pub(crate) fn attach(
        medium: Arc<dyn Medium>,
        options: &Options,
        uuid: [u8; 16],
        may_format: bool,
    ) -> Result<(Self, Recovered), OpenError> {
        for text in [&options.server, &options.share, &options.mount_options] {
            if text.len() > TEXT_BYTES_MAX {
                return Err(OpenError::TooLong);
            }
        }
        let ring_bytes = ring_bytes_of(medium.bytes()).ok_or(OpenError::TooSmall)?;
        let ring_bytes = ring_bytes.min(RING_BYTES_MAX);
        let copies = Copies::read(&*medium);
        let (found, is_new) = match copies.newest() {
            Ok(found) => (found.clone(), false),
            Err(SuperblockFault::Empty) if may_format => {
                (new_superblock(options, uuid, ring_bytes), true)
            }
            Err(fault) => return Err(OpenError::Superblock(fault)),
        };
        if found.ring_bytes > ring_bytes || found.is_worn_out() {
            return Err(OpenError::Superblock(SuperblockFault::Damaged));
        }
        if (&found.server, &found.share) != (&options.server, &options.share) {
            let server = String::from_utf8_lossy(&found.server).into_owned();
            let share = String::from_utf8_lossy(&found.share).into_owned();
            return Err(OpenError::OtherShare { server, share });
        }
        let mut recovered = Recovered {
            is_new,
            was_clean: found.is_clean,
            is_superblock_damaged: !is_new && copies.is_one_damaged(),
            previous_mount_options: found.mount_options.clone(),
            ..Recovered::default()
        };
        let mut state = State::recover(&*medium, found, &mut recovered);
        state.superblock.mount_options.clone_from(&options.mount_options);
        let journal = Self {
            medium,
            ring_bytes: state.ring_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            compress: options.compress,
            place: None,
        };
        // Both copies say the new epoch before its first frame is written.
        let mut state = journal.state.lock();
        state.has_writer = true;
        journal.write_superblocks(&mut state, false);
        let failed = state.failed.clone();
        journal.resign(&mut state);
        drop(state);
        match failed {
            Some(why) => Err(OpenError::Medium(why.to_string())),
            None => Ok((journal, recovered)),
        }
    }

    /// Appends a record. It is not stable until [`Journal::sync`] has returned for it; send the
    /// change to the server after this.
    ///
    /// # Errors
    /// [`AppendError::Full`]: nothing was appended, and nothing is dropped; wait with
    /// [`Journal::wait_for_room`]. What is sent around the journal while it has older changes of the
    /// same object is undone by a replay. [`AppendError::Failed`]: from now on everything has to be
    /// sent synchronously, after what is pending.
    pub fn append(&self, record: &Record<'_>) -> Result<Sequence, AppendError> {
        let kind = record.kind();
        let (frame, flags, _) = record.encode(HEADER_BYTES, self.compress)?;
        let decoded = record::decode(kind, flags, frame.get(HEADER_BYTES..).unwrap_or_default());
        let Some(decoded) = decoded else { unreachable!("what was encoded can be decoded") };
        let mut entry = Entry::new(kind, &decoded);
        let data_bytes = decoded.data_bytes;
        let crc = crc32c::crc32c(frame.get(HEADER_BYTES..).unwrap_or_default());
        let mut state = self.state.lock();
        if let Err(error) = self.make_room(&mut state, frame.len()) {
            state.statistics.full_waits += u64::from(matches!(error, AppendError::Full { .. }));
            return Err(error);
        }
        let header = state.place(frame, crc, kind as u8, flags);
        let sequence = header.sequence;
        entry.stands_at(&header);
        let superseded = state.index.insert(sequence, entry);
        state.superseded.extend(superseded.into_iter().map(|which| (sequence, which)));
        state.statistics.records += 1;
        state.statistics.data_bytes += u64::from(data_bytes);
        state.version += 1;
        Ok(sequence)
    }

    /// Notes what the server has answered to a change: the handle of what was made, its order. It is
    /// written with the next records, and leaves with the record that it is about.
    ///
    /// # Errors
    /// As [`Journal::append`]. Without it a replay finds out by the verifier or the name.
    pub fn note_outcome(&self, of: Sequence, outcome: Outcome) -> Result<(), AppendError> {
        let frame = record::encode_outcome(HEADER_BYTES, of, &outcome)?;
        let crc = crc32c::crc32c(frame.get(HEADER_BYTES..).unwrap_or_default());
        let mut state = self.state.lock();
        self.make_room(&mut state, frame.len())?;
        let Some(entry) = state.index.get_mut(of) else { return Ok(()) };
        entry.outcome = Some(outcome);
        state.place(frame, crc, KIND_OUTCOME, 0);
        state.version += 1;
        Ok(())
    }

    /// Returns when everything up to this sequence is on the medium. Callers that wait at the same
    /// time share a flush.
    ///
    /// # Errors
    /// When the medium has failed.
    pub fn sync(&self, up_to: Sequence) -> Result<(), Failed> {
        let mut state = self.state.lock();
        let up_to = up_to.min(state.last_frame);
        while state.stable < up_to {
            state.check()?;
            if state.has_writer {
                self.changed.wait(&mut state);
            } else {
                self.write(&mut state);
            }
        }
        Ok(())
    }

    /// The server has these stable (or a replay has settled them): they leave. In any order; those
    /// that are not there are ignored.
    ///
    /// Sync before the COMMIT is sent: if a crash loses a record that the server has, older records
    /// of the same range are pending again. That a record has left is written with the next batch or by
    /// [`Journal::maintain`]; until then, and while the ring is full to the brim, a crash makes it pending
    /// again, which a replay must be able to bear.
    pub fn stable(&self, sequences: impl IntoIterator<Item = Sequence>) {
        let mut state = self.state.lock();
        for sequence in sequences {
            state.leave(sequence);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until a record with so much data, and a path of the usual length, would find room, or
    /// the time is over. Says whether it would. `false` at once if the medium has failed.
    pub fn wait_for_room(&self, data_bytes: usize, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut state = self.state.lock();
        loop {
            if state.failed.is_some() {
                return false;
            }
            if self.make_room(&mut state, frame_bytes(data_bytes + 1024)).is_ok() {
                return true;
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
    }

    /// What a mount calls about once a second, and need not: says on the medium what has left,
    /// gives room back, and writes the manifest if it is time.
    ///
    /// # Errors
    /// When the medium has failed. A manifest that cannot be written is not an error: it is in
    /// [`Status::manifest_error`].
    pub fn maintain(&self) -> Result<(), Failed> {
        let mut state = self.state.lock();
        state.check()?;
        self.become_writer(&mut state)?;
        self.write_batch(&mut state, true);
        if state.failed.is_none() && state.can_reclaim() {
            self.write_superblocks(&mut state, false);
        }
        self.resign(&mut state);
        let checked = state.check();
        drop(state);
        if let Some(place) = &self.place {
            place.maintain_manifest(self, false);
        }
        checked
    }

    /// Somebody has read about the damage ([`Recovered::damage`]): the ring's tail may pass it.
    pub fn acknowledge_damage(&self) {
        self.state.lock().held = None;
        self.changed.notify_all();
    }

    /// Syncs, and marks the journal as closed. Pending records stay in it.
    ///
    /// # Errors
    /// When the medium has failed.
    pub fn close(self) -> Result<(), Failed> {
        self.finish()
    }

    fn finish(&self) -> Result<(), Failed> {
        let mut state = self.state.lock();
        if state.superblock.is_clean {
            return Ok(());
        }
        self.become_writer(&mut state)?;
        self.write_batch(&mut state, true);
        if state.failed.is_none() {
            self.write_superblocks(&mut state, true);
        }
        self.resign(&mut state);
        let checked = state.check();
        drop(state);
        if let Some(place) = &self.place {
            place.maintain_manifest(self, true);
        }
        checked
    }

    /// What the journal is doing.
    pub fn status(&self) -> Status {
        // Whoever writes the manifest holds it when it asks for the state.
        let manifest_error = self.place.as_ref().and_then(Place::manifest_error);
        let state = self.state.lock();
        let mut statistics = state.statistics;
        statistics.superseded_bytes = state.index.superseded_bytes;
        Status {
            failed: state.failed.as_deref().map(Into::into),
            ring_bytes: state.ring_bytes,
            used_bytes: state.head - state.freed,
            pending_records: state.index.len() as u64,
            pending_objects: state.index.files() as u64,
            last: state.issued,
            stable: state.stable,
            manifest_error,
            statistics,
        }
    }

    /// Changes with what the manifest says.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// The manifest as it is now.
    pub(crate) fn manifest(&self) -> String {
        let superblock = self.state.lock().superblock.clone();
        let (server, share) = (&superblock.server, &superblock.share);
        manifest::write(server, share, &superblock.uuid, &self.pending())
    }

    /// Makes room for a frame, with superblocks or a batch if need be.
    fn make_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        bytes: usize,
    ) -> Result<(), AppendError> {
        let padded = bytes.next_multiple_of(8);
        loop {
            state.check()?;
            let wanted = padded as u64 + RESERVE_BYTES;
            let end = block_after(state.head + padded as u64) + RESERVE_BYTES;
            if end - state.freed <= state.ring_bytes {
                if state.queue_bytes == 0 || state.queue_bytes + padded <= UNWRITTEN_BYTES_MAX {
                    return Ok(());
                }
                self.become_writer(state)?;
                self.write_batch(state, false);
                self.resign(state);
            } else if block_after(wanted) > state.ring_bytes {
                return Err(AppendError::TooLarge { bytes, ring_bytes: state.ring_bytes });
            } else if state.can_reclaim() {
                self.become_writer(state)?;
                self.write_superblocks(state, false);
                self.resign(state);
            } else if state.is_queue_in_the_way() {
                // All of it has left already; the tail can pass it when it is written.
                self.become_writer(state)?;
                self.write_batch(state, false);
                self.resign(state);
            } else {
                return Err(AppendError::Full {
                    wanted_bytes: wanted,
                    must_leave_bytes: end - state.freed - state.ring_bytes,
                });
            }
        }
    }

    fn become_writer(&self, state: &mut MutexGuard<'_, State>) -> Result<(), Failed> {
        while state.has_writer {
            self.changed.wait(state);
        }
        state.check()?;
        state.has_writer = true;
        Ok(())
    }

    fn resign(&self, state: &mut MutexGuard<'_, State>) {
        state.has_writer = false;
        self.changed.notify_all();
    }

    /// Takes the role, which is free, and writes what there is.
    fn write(&self, state: &mut MutexGuard<'_, State>) {
        state.has_writer = true;
        self.write_batch(state, false);
        if state.failed.is_none() && state.is_superblock_due() {
            self.write_superblocks(state, false);
        }
        self.resign(state);
    }

    /// Writes what was appended so far as one batch. For the writer.
    fn write_batch(&self, state: &mut MutexGuard<'_, State>, is_left_due: bool) {
        if is_left_due || !state.queue.is_empty() {
            state.say_what_left();
        }
        let Some((position, frames)) = state.take_batch() else { return };
        let last = frames.last().map_or(state.stable, |(sequence, _)| *sequence);
        let written = MutexGuard::unlocked(state, || self.write_frames(position, &frames));
        match written {
            Ok(bytes) => {
                state.written_head = position + bytes;
                state.statistics.ring_bytes += bytes;
                state.statistics.flushes += 1;
                state.note_stable(last);
            }
            Err(why) => state.fail(&why),
        }
    }

    fn write_frames(
        &self,
        position: u64,
        frames: &[(Sequence, Arc<Vec<u8>>)],
    ) -> Result<u64, String> {
        let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let mut batch = vec![Block::ZERO; blocks];
        let mut rest = Block::bytes_of_mut(&mut batch);
        for (_, frame) in frames {
            let (into, after) = rest.split_at_mut(frame.len());
            into.copy_from_slice(frame);
            rest = after;
        }
        let at = position % self.ring_bytes;
        let before_end = ((self.ring_bytes - at) / BLOCK_BYTES as u64).min(blocks as u64) as usize;
        let (first, second) = batch.split_at(before_end);
        for (offset, piece) in [(RING_OFFSET + at, first), (RING_OFFSET, second)] {
            if !piece.is_empty() {
                self.medium.write_at(offset, piece).map_err(|error| error.to_string())?;
            }
        }
        Ok((blocks * BLOCK_BYTES) as u64)
    }

    /// Writes both superblocks, one after the other: only when both say where the tail is may be
    /// written over what is before it. For the writer.
    fn write_superblocks(&self, state: &mut MutexGuard<'_, State>, is_clean: bool) {
        for _ in 0..2 {
            let superblock = state.next_superblock(is_clean);
            let written = MutexGuard::unlocked(state, || {
                superblock::write(&*self.medium, &superblock).map_err(|error| error.to_string())
            });
            if let Err(why) = written {
                state.fail(&why);
                return;
            }
            state.superblock_written(superblock);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A failure was told to those who synced; what is not marked as closed is scanned.
        let _ = self.finish();
    }
}

impl State {
    fn recover(medium: &dyn Medium, found: Superblock, recovered: &mut Recovered) -> Self {
        let mut index = Index::default();
        let scanned = read_ring(medium, &found, &mut index);
        let jump = if found.is_clean && scanned.damage.is_empty() { 0 } else { SEQUENCE_JUMP };
        let highest = found.issued.max(scanned.last);
        let doubtful_before =
            scanned.damage.iter().filter_map(|damage| damage.sequences).map(|(_, last)| last).max();
        recovered.pending_records = index.len() as u64;
        recovered.unreadable_blocks = scanned.unreadable_blocks;
        recovered.damage.clone_from(&scanned.damage);
        let mut cut_off: Vec<_> = scanned
            .damage
            .iter()
            .filter(|damage| !damage.was_stable)
            .filter_map(|damage| damage.sequences)
            .collect();
        cut_off.drain(..cut_off.len().saturating_sub(CUT_OFF_MAX));
        // A write that a crash had cut off before was reported then, and holds the tail no more.
        let is_new =
            |damage: &&Damage| damage.sequences.is_none_or(|range| !found.cut_off.contains(&range));
        let held = scanned.damage.iter().find(is_new);
        let held = held.map(|damage| (damage.position, damage.after));
        Self {
            ring_bytes: found.ring_bytes,
            journal_id: found.journal_id(),
            head: scanned.head,
            written_head: scanned.head,
            freed: block_before(found.tail),
            issued: Sequence(highest.0.saturating_add(jump)),
            last_frame: scanned.last,
            stable: scanned.last,
            queue: Vec::new(),
            queue_bytes: 0,
            unwritten: BTreeMap::new(),
            index,
            left: Vec::new(),
            superseded: VecDeque::new(),
            held,
            doubtful_before: doubtful_before.unwrap_or_default(),
            tails: [found.tail; 2],
            superblock: Superblock {
                epoch: found.epoch + 1,
                epoch_position: scanned.head,
                is_clean: false,
                cut_off,
                ..found
            },
            has_writer: false,
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

    fn fail(&mut self, why: &str) {
        if self.failed.is_none() {
            self.failed = Some(why.into());
        }
    }

    /// Appends a frame, for which there is room.
    fn place(&mut self, mut frame: Vec<u8>, crc: u32, kind: u8, flags: u8) -> Header {
        self.issued = self.issued.next();
        let header = Header {
            payload_bytes: (frame.len() - HEADER_BYTES) as u32,
            sequence: self.issued,
            previous: self.last_frame,
            position: self.head,
            epoch: self.superblock.epoch,
            journal_id: self.journal_id,
            stable: self.stable,
            kind,
            flags,
            payload_crc: crc,
        };
        if let Some(place) = frame.first_chunk_mut() {
            *place = header.encode();
        }
        frame.resize(header.frame_bytes() as usize, 0);
        self.head += header.frame_bytes();
        self.queue_bytes += frame.len();
        self.last_frame = self.issued;
        let frame = Arc::new(frame);
        if Kind::of_code(kind).is_some() {
            self.unwritten.insert(self.issued, Arc::clone(&frame));
        }
        self.queue.push((self.issued, frame));
        header
    }

    /// Frames that say what has left, as far as there is room.
    fn say_what_left(&mut self) {
        // The tail on the medium says it for those before it.
        let before = self.superblock.tail_previous;
        self.left.retain(|sequence| *sequence > before);
        self.left.sort_unstable();
        while !self.left.is_empty() {
            let (mut ranges, mut count) = (Vec::<(Sequence, Sequence)>::new(), 0);
            for sequence in &self.left {
                let ranges_count = ranges.len();
                match ranges.last_mut() {
                    Some((_, last)) if last.next() == *sequence => *last = *sequence,
                    _ if ranges_count == LEFT_RANGES_MAX => break,
                    _ => ranges.push((*sequence, *sequence)),
                }
                count += 1;
            }
            let frame = record::encode_left(HEADER_BYTES, &ranges);
            let end = block_after(self.head + frame_bytes(frame.len() - HEADER_BYTES) as u64);
            if end - self.freed > self.ring_bytes {
                return;
            }
            let crc = crc32c::crc32c(frame.get(HEADER_BYTES..).unwrap_or_default());
            self.place(frame, crc, KIND_LEFT, 0);
            self.left.drain(..count);
        }
    }

    /// All that was appended and is in no batch; the next frame begins at a block boundary.
    fn take_batch(&mut self) -> Option<(u64, Frames)> {
        if self.queue.is_empty() {
            return None;
        }
        let position = self.head - self.queue_bytes as u64;
        self.queue_bytes = 0;
        self.head = block_after(self.head);
        Some((position, std::mem::take(&mut self.queue)))
    }

    fn note_stable(&mut self, last: Sequence) {
        self.stable = self.stable.max(last);
        self.unwritten = self.unwritten.split_off(&self.stable.next());
        while let Some((by, which)) = self.superseded.front().copied() {
            if by > self.stable {
                break;
            }
            self.superseded.pop_front();
            self.leave(which);
        }
    }

    fn leave(&mut self, sequence: Sequence) {
        if self.index.remove(sequence).is_some() {
            self.left.push(sequence);
            self.statistics.left_records += 1;
            self.version += 1;
        }
    }

    /// Where the tail can be, and the sequence of the frame before it.
    fn tail(&self) -> (u64, Sequence) {
        let oldest = self.index.first().map(|entry| (entry.position, entry.previous));
        let end = (self.written_head, self.stable);
        [oldest, self.held].into_iter().flatten().fold(end, Ord::min)
    }

    fn can_reclaim(&self) -> bool {
        block_before(self.tail().0) > self.freed
    }

    /// Whether the tail would move if what is queued, or being written, were on the medium.
    fn is_queue_in_the_way(&self) -> bool {
        let oldest = self.index.first().map_or(self.head, |entry| entry.position);
        let beyond = self.held.map_or(oldest, |(position, _)| position.min(oldest));
        let would_move = self.written_head < beyond || !self.superseded.is_empty();
        would_move && self.head > self.written_head
    }

    fn is_superblock_due(&self) -> bool {
        block_before(self.tail().0) - self.freed >= self.ring_bytes / RECLAIM_PART
            || self.issued.0 - self.superblock.issued.0 > SEQUENCES_PER_SUPERBLOCK
    }

    fn next_superblock(&self, is_clean: bool) -> Superblock {
        let (tail, tail_previous) = self.tail();
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

    fn superblock_written(&mut self, superblock: Superblock) {
        let slot = (superblock.generation % 2) as usize;
        if let Some(tail) = self.tails.get_mut(slot) {
            *tail = superblock.tail;
        }
        self.freed = block_before(self.tails[0].min(self.tails[1])).max(self.freed);
        self.superblock = superblock;
    }
}

impl From<Unfit> for AppendError {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}
