//! The journal in use: appending, group commit, what leaves.
//!
//! One lock guards the state, and nobody does I/O under it. Who writes to the medium is the
//! *writer*: a role (`State::has_writer`) that one thread has at a time. Whoever waits for a sequence and
//! finds the role free takes it, writes all that was appended so far, and wakes the others.

mod opening;
mod reading;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_intent_log::{BLOCK_BYTES, Block, Medium};

use crate::errors::{AppendError, Failed, OpenError};
use crate::file::Place;
use crate::format::{
    HEADER_BYTES, RING_BYTES_MAX, RING_OFFSET, Sequence, block_after, frame_bytes, ring_bytes_of,
};
use crate::index::Entry;
use crate::manifest;
use crate::notes::{self, KIND_BYPASS, KIND_OUTCOME, Outcome};
use crate::record::{Record, Unfit};
use crate::state::{Settled, State, TailAt, UNWRITTEN_BYTES_MAX};
use crate::status::{Load, Recovered, Status};
use crate::superblock::{self, Copies, Superblock, SuperblockFault, TEXT_BYTES_MAX};

/// So much is written without anybody who waits for it: several times less than an append writes by itself.
const AHEAD_BYTES: usize = 1 << 20;
/// Room that markers of changes around the journal leave: for frames that say what has left.
const RESERVE_BYTES: u64 = BLOCK_BYTES as u64;
/// Room that records leave: for those frames, and for markers.
const RECORD_RESERVE_BYTES: u64 = 2 * RESERVE_BYTES;

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

/// A journal. `Send` and `Sync`: every method may be called by many threads.
pub struct Journal {
    medium: Arc<dyn Medium>,
    state: Mutex<State>,
    /// The writer has finished, or something has left.
    changed: Condvar,
    /// So much was appended that it is written without anybody who waits for it.
    has_much: Condvar,
    ring_bytes: u64,
    compress: bool,
    place: Option<Place>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Names a journal, the same as long as it is there.
pub type JournalId = [u8; 16];

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
        bypassed: Sequence(0),
        server: options.server.clone(),
        share: options.share.clone(),
        mount_options: options.mount_options.clone(),
        cut_off: Vec::new(),
    }
}

/// Where a ring comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// If the medium is empty, a journal is made on it.
    pub(crate) may_be_made: bool,
    /// Nothing is written.
    pub(crate) is_read_only: bool,
    /// Something beside the ring says that changes were sent around it.
    pub(crate) is_bypassed: bool,
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
        Self::attach(
            medium,
            options,
            uuid,
            Origin { may_be_made: true, is_read_only: false, is_bypassed: false },
        )
    }

    /// As [`Journal::on_medium`]. A file that was a journal is never made one anew, though its
    /// superblocks may be zeros.
    pub(crate) fn attach(
        medium: Arc<dyn Medium>,
        options: &Options,
        uuid: [u8; 16],
        origin: Origin,
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
            Err(SuperblockFault::Empty) if origin.may_be_made => {
                (new_superblock(options, uuid, ring_bytes), true)
            }
            Err(fault) => return Err(OpenError::Superblock(fault)),
        };
        let is_too_short = found.ring_bytes > ring_bytes && !origin.is_read_only;
        if is_too_short || found.is_worn_out() {
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
        let before = (found.tail, found.tail_previous);
        let mut state = State::recover(&*medium, found, origin.is_bypassed, &mut recovered);
        state.superblock.mount_options.clone_from(&options.mount_options);
        let journal = Self {
            medium,
            ring_bytes: state.ring_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            has_much: Condvar::new(),
            compress: options.compress,
            place: None,
        };
        if origin.is_read_only {
            let mut state = journal.state.lock();
            state.is_read_only = true;
            state.fail("it was opened for reading alone");
            drop(state);
            return Ok((journal, recovered));
        }
        // Both copies say the new epoch before its first frame is written.
        let mut state = journal.state.lock();
        state.has_writer = true;
        journal.write_superblocks_until(&mut state, false, before);
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
        let (frame, flags, _) = record.encode(HEADER_BYTES, self.compress)?;
        let mut state = self.lock();
        self.make_room_for_record(&mut state, frame.len())?;
        state.issued = state.issued.next();
        let sequence = state.issued;
        state.add_record(sequence, record.kind(), frame, flags)?;
        self.note_appended(&state);
        Ok(sequence)
    }

    /// As [`Journal::append`]. A write that is not long may grow by [`Journal::grow`] until anything else is done with
    /// the journal.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn append_growing(&self, record: &Record<'_>) -> Result<Sequence, AppendError> {
        let (frame, flags, _) = record.encode(HEADER_BYTES, self.compress)?;
        let mut state = self.lock();
        self.make_room_for_record(&mut state, frame.len())?;
        let sequence = state.add_growing(record, (frame, flags), self.compress)?;
        self.note_appended(&state);
        Ok(sequence)
    }

    fn note_appended(&self, state: &State) {
        if state.queue_bytes >= AHEAD_BYTES {
            self.has_much.notify_one();
        }
    }

    /// Adds what was written behind a record of [`Journal::append_growing`], by the same user, to that record. It does no
    /// I/O. False: it was not added, and needs a record of its own. Do not call it for a record that was settled, nor
    /// settle one meanwhile: what was added would leave with it.
    pub fn grow(&self, sequence: Sequence, more: &Record<'_>) -> bool {
        self.state.lock().grow(sequence, more, RECORD_RESERVE_BYTES)
    }

    /// The state, without a record that grows.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.close_growing();
        state
    }

    fn make_room_for_record(
        &self,
        state: &mut MutexGuard<'_, State>,
        frame_bytes: usize,
    ) -> Result<(), AppendError> {
        let room = self.make_room(state, frame_bytes, RECORD_RESERVE_BYTES);
        if matches!(room, Err(AppendError::Full { .. })) {
            state.statistics.full_waits += 1;
        }
        room
    }

    /// Notes what the server has answered to a change: the handle of what was made, its order, the
    /// attributes before and after. It is written with the next records, and leaves with the record that
    /// it is about. May be called again for the same record: a replay that makes an object anew gets
    /// another handle ([`crate::Pending::handles`]).
    ///
    /// # Errors
    /// As [`Journal::append`]. It is known until this host crashes then; a replay after that finds out by the
    /// verifier or the name.
    pub fn note_outcome(&self, of: Sequence, outcome: Outcome) -> Result<(), AppendError> {
        let mut state = self.lock();
        let object = state.index.get(of).and_then(Entry::stamped).cloned();
        let Some(object) = object else { return Ok(()) };
        let frame = notes::encode_outcome(HEADER_BYTES, of, &object, &outcome)?;
        // Without a handle later records of the object cannot be brought to what is made instead of it.
        let reserve = if outcome.handle.is_empty() { RECORD_RESERVE_BYTES } else { RESERVE_BYTES };
        let room = self.make_room(&mut state, frame.len(), reserve);
        let Some(entry) = state.index.get_mut(of) else { return Ok(()) };
        let after = outcome.after;
        entry.note(outcome);
        // Without a frame the stamp is before all: it gets one when there is room again.
        let position = match room {
            Ok(()) => state.place(frame, KIND_OUTCOME, 0).position,
            Err(_) => 0,
        };
        if let Some(stamp) = after {
            state.index.note_stamp(&object, stamp, position);
        }
        state.version += 1;
        room
    }

    /// Names the journal, the same as long as it is there.
    pub fn id(&self) -> JournalId {
        self.state.lock().superblock.uuid
    }

    /// Call this before a change of an object is sent to the server around the journal, as the ring is full
    /// or has failed. When it returns, a replay will find all records of that object up to now marked as
    /// [`crate::Pending::may_be_superseded`], and compare them with the server before it sends them.
    /// Costs nothing if the object has no records, or has none since the last call. Of a change of names,
    /// call it for each directory.
    ///
    /// The mark is a frame in the ring, for which records leave room. If that room is used up, or the
    /// ring has failed, the mark is in a superblock, or in a file beside the ring, and is about all records.
    ///
    /// # Errors
    /// When it could be noted nowhere: then a replay may undo the change.
    pub fn bypass(&self, object: &[u8]) -> Result<(), Failed> {
        let frame = notes::encode_bypass(HEADER_BYTES, object);
        let mut state = self.lock();
        if !state.must_note_bypass(object) {
            return Ok(());
        }
        // A handle that is too long has no records.
        let Ok(frame) = frame else { return Ok(()) };
        if self.make_room(&mut state, frame.len(), RESERVE_BYTES).is_ok() {
            let sequence = state.place(frame, KIND_BYPASS, 0).sequence;
            if self.sync_locked(&mut state, sequence).is_ok() {
                state.index.bypass(object, sequence);
                return Ok(());
            }
        }
        self.note_bypass_of_all(&mut state)
    }

    /// Notes outside the ring that all records up to now may be older than what the server has.
    fn note_bypass_of_all(&self, state: &mut MutexGuard<'_, State>) -> Result<(), Failed> {
        while state.has_writer {
            self.changed.wait(state);
        }
        if state.is_read_only {
            return state.check();
        }
        state.has_writer = true;
        let superblock = state.superblock_of_bypass();
        let up_to = superblock.bypassed;
        // Only one copy: if this write is torn, the other one still serves.
        let (marked, in_file) = MutexGuard::unlocked(state, || {
            let marked = superblock::write(&*self.medium, &superblock);
            let in_file = match (&self.place, &marked) {
                (Some(place), Err(_)) => place.mark_bypassed().is_ok(),
                _ => false,
            };
            (marked.map_err(|error| error.to_string()), in_file)
        });
        let noted = match marked {
            Ok(()) => {
                state.superblock_written(superblock);
                Ok(())
            }
            Err(why) => {
                state.fail(&why);
                if in_file { Ok(()) } else { Err(Failed { why }) }
            }
        };
        if noted.is_ok() {
            state.superblock.bypassed = up_to;
        }
        self.resign(state);
        noted
    }

    /// Returns when everything up to this sequence is on the medium. Callers that wait at the same
    /// time share a flush.
    ///
    /// # Errors
    /// When the medium has failed.
    pub fn sync(&self, up_to: Sequence) -> Result<(), Failed> {
        self.sync_locked(&mut self.lock(), up_to)
    }

    fn sync_locked(
        &self,
        state: &mut MutexGuard<'_, State>,
        up_to: Sequence,
    ) -> Result<(), Failed> {
        state.close_growing();
        if up_to > state.last_frame {
            // One that has no frame, and never gets it.
            state.check()?;
        }
        let up_to = up_to.min(state.last_frame);
        while state.stable < up_to {
            state.check()?;
            if state.has_writer {
                self.changed.wait(state);
            } else {
                self.write(state);
            }
        }
        Ok(())
    }

    /// The server has these stable: they leave. In any order; those that are not there are ignored.
    ///
    /// A write of which later records have superseded a part stays until these are settled, though
    /// nothing of it is pending: if the server refuses them, that part is pending again. Those that are
    /// superseded as a whole leave with the last record that covers them.
    ///
    /// Sync before the COMMIT is sent: if a crash loses a record that the server has, older records
    /// of the same range are pending again. That a record has left is written with the next batch or by
    /// [`Journal::maintain`]; until then, and while the ring is full to the brim, a crash makes it pending
    /// again, which a replay must be able to bear.
    pub fn stable(&self, sequences: impl IntoIterator<Item = Sequence>) {
        self.settled(sequences, Settled::Stable);
    }

    /// As [`Journal::stable`], also for changes that the server has refused.
    pub fn settled(&self, sequences: impl IntoIterator<Item = Sequence>, how: Settled) {
        let mut state = self.lock();
        for sequence in sequences {
            state.settle(sequence, how);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until a record with so much data, and a path of the usual length, would find room, or
    /// the time is over. Says whether it would. `false` at once if the medium has failed.
    pub fn wait_for_room(&self, data_bytes: usize, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return false;
            }
            let bytes = frame_bytes(data_bytes + 1024);
            if self.make_room(&mut state, bytes, RECORD_RESERVE_BYTES).is_ok() {
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
        let mut state = self.lock();
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
            place.maintain_manifest(false, || self.version(), || self.manifest());
        }
        checked
    }

    /// Somebody has read about the damage ([`Recovered::damage`]): the ring's tail may pass it.
    pub fn acknowledge_damage(&self) {
        self.state.lock().held = None;
        self.changed.notify_all();
    }

    /// Waits until much was appended that nobody has written yet, and writes it, so that who syncs later has less to
    /// wait for. For a thread that does nothing else; it returns when that is done or this time is over.
    ///
    /// # Errors
    /// When the medium has failed.
    pub fn write_ahead(&self, at_most: Duration) -> Result<(), Failed> {
        let until = Instant::now() + at_most;
        let mut state = self.state.lock();
        while state.queue_bytes < AHEAD_BYTES {
            state.check()?;
            if self.has_much.wait_until(&mut state, until).timed_out() {
                return Ok(());
            }
        }
        self.become_writer(&mut state)?;
        self.resign_after_write(&mut state);
        state.check()
    }

    /// Syncs, and marks the journal as closed. Pending records stay in it.
    ///
    /// # Errors
    /// When the medium has failed. Or when the ring had no room to note that records have left: then
    /// these are pending again.
    pub fn close(self) -> Result<(), Failed> {
        self.finish()
    }

    fn finish(&self) -> Result<(), Failed> {
        let mut state = self.lock();
        if state.superblock.is_clean || state.is_read_only {
            return Ok(());
        }
        self.become_writer(&mut state)?;
        self.write_batch(&mut state, true);
        // Where the tail moves, there is room to say what has left.
        while state.failed.is_none() && state.unsaid_records() > 0 && state.can_reclaim() {
            self.write_superblocks(&mut state, false);
            self.write_batch(&mut state, true);
        }
        if state.failed.is_none() {
            self.write_superblocks(&mut state, true);
        }
        self.resign(&mut state);
        let unsaid = state.unsaid_records();
        let checked = state.check().and_then(|()| {
            let why = || {
                format!("no room to note that {unsaid} records have left: they are pending again")
            };
            if unsaid == 0 { Ok(()) } else { Err(Failed { why: why() }) }
        });
        drop(state);
        if let Some(place) = &self.place {
            place.maintain_manifest(true, || self.version(), || self.manifest());
        }
        checked
    }

    /// What the journal is doing.
    pub fn status(&self) -> Status {
        // Whoever writes the manifest holds it when it asks for the state.
        let manifest_error = self.place.as_ref().and_then(Place::manifest_error);
        let state = self.lock();
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

    /// What it holds now. Unlike [`Journal::status`] it never waits for the disk, so that it serves when the
    /// disk hangs.
    #[must_use]
    pub fn load(&self) -> Load {
        let state = self.lock();
        let mut statistics = state.statistics;
        statistics.superseded_bytes = state.index.superseded_bytes;
        Load {
            failed: state.failed.as_deref().map(Into::into),
            ring_bytes: state.ring_bytes,
            used_bytes: state.head - state.freed,
            pending_records: state.index.len() as u64,
            pending_bytes: state.index.data_bytes,
            oldest: state.index.oldest(),
            last: state.issued,
            stable: state.stable,
            statistics,
        }
    }

    /// Changes with what the manifest says.
    fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// The manifest as it is now.
    fn manifest(&self) -> String {
        let superblock = self.state.lock().superblock.clone();
        let (server, share) = (&superblock.server, &superblock.share);
        manifest::write(server, share, &superblock.uuid, &self.pending())
    }

    /// Makes room for a frame, with superblocks or a batch if need be.
    fn make_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        bytes: usize,
        reserve: u64,
    ) -> Result<(), AppendError> {
        let padded = bytes.next_multiple_of(8);
        loop {
            state.check()?;
            // While this waited somebody may have begun one.
            state.close_growing();
            let wanted = padded as u64 + reserve;
            let end = block_after(state.head + padded as u64) + reserve;
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
            } else if !state.queue.is_empty() {
                // No record will come soon that takes it along: what the server has said of those that are there
                // must not stay in memory.
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
        self.resign_after_write(state);
    }

    fn resign_after_write(&self, state: &mut MutexGuard<'_, State>) {
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
        // What the tail passes is lost: what is still to be known of it is written again.
        let tail = state.tail();
        if state.carry_stamps(tail.0) {
            self.write_batch(state, false);
        }
        if state.failed.is_none() {
            self.write_superblocks_until(state, is_clean, tail);
        }
    }

    fn write_superblocks_until(
        &self,
        state: &mut MutexGuard<'_, State>,
        is_clean: bool,
        tail: TailAt,
    ) {
        for _ in 0..2 {
            let superblock = state.next_superblock(is_clean, tail);
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

impl From<Unfit> for AppendError {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}
