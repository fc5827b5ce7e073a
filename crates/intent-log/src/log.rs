//! The running log: who may write what where, and what is stable.
//!
//! The way of a record, and which thread does what:
//!
//! 1. [`IntentLog::admit`] before the operation is applied: there will be room. What was admitted
//!    is never refused later, so an operation that took effect is always logged.
//! 2. [`IntentLog::reserve`] under the lock that orders the object: the LSN, and with it the order
//!    of replay.
//! 3. [`IntentLog::complete`] or [`IntentLog::void`] outside that lock, in any order.
//! 4. A committer: [`IntentLog::take_batch`], the writes, [`IntentLog::written`]; the stable LSN
//!    grows, replies leave.
//! 5. When a file system was flushed: [`IntentLog::checkpointed`], then
//!    [`IntentLog::write_superblocks`], which gives the room back.
//!
//! One mutex orders all that. It is held for moves and sums only: checksums and copies are made
//! outside.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;

use crate::admission::{Admission, Refused};
use crate::batch::Batch;
use crate::file_systems::FileSystems;
use crate::format::{
    BATCH_BYTES_MAX, BATCHES_IN_FLIGHT_MAX, Lsn, NUMBER_MAX, PAYLOAD_BYTES_MAX, Position,
};
use crate::mark::MarkPlace;
use crate::medium::BLOCK_BYTES;
use crate::queue::{Payload, Queue};
use crate::record::{HEADER_BYTES, record_bytes};
use crate::ring::Ring;
use crate::scan::Extent;
use crate::superblock::{Identity, Superblock, TableFull, log_id};
use crate::superblocks::Superblocks;
use crate::survey::Survey;
use crate::usage::{Counters, SharedHistogram, Usage};

/// The log has used up its numbers. Does not happen to one that this code wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the intent log's numbers are used up: make it anew with `steadfast log discard`")]
pub struct Exhausted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// A clean superblock was issued.
    Closed,
    Failed,
    /// It failed, and there is nothing to replay.
    GivenUp,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    number: u64,
    first: Lsn,
    last: Lsn,
    is_written: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// Of the records that are written now.
    pub(crate) epoch: u64,
    pub(crate) queue: Queue,
    pub(crate) ring: Ring,
    pub(crate) file_systems: FileSystems,
    pub(crate) superblocks: Superblocks,
    /// In the order of their records; written ones leave when those before them have.
    pub(crate) in_flight: VecDeque<InFlight>,
    pub(crate) batches: u64,
    pub(crate) write_verifier: u64,
    /// Records from this one on stay though no file system needs them.
    pub(crate) retained_from: Option<Lsn>,
    pub(crate) counters: Counters,
}

impl State {
    /// Where the tail can be. Batches that are being written stay behind it even if nobody needs
    /// them: their room must not be written to twice at the same time.
    pub(crate) fn tail(&mut self) -> (Position, Lsn) {
        let next = self.queue.first();
        let in_flight = self.in_flight.front().map(|batch| batch.first);
        // What is no longer in the ring cannot be retained.
        let retained =
            self.retained_from.zip(self.ring.oldest()).map(|(from, oldest)| from.max(oldest));
        let first_live = self.file_systems.first_live();
        let first_live = first_live.into_iter().chain(in_flight).chain(retained).min();
        self.ring.tail_before(first_live.unwrap_or(next), next)
    }

    pub(crate) fn may_write(&self) -> bool {
        self.phase == Phase::Running
            && self.superblocks.allow_records(self.file_systems.generation())
    }

    /// Whether there is nothing that a next start would have to replay.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.queue.is_empty()
            && self.in_flight.is_empty()
            && self.ring.promised_bytes() == 0
            && self.tail().1 == self.queue.first()
    }
}

/// A running log.
#[derive(Debug)]
pub struct IntentLog {
    pub(crate) uuid: [u8; 16],
    pub(crate) host: [u8; 16],
    log_id: u64,
    pub(crate) ring_bytes: u64,
    state: Mutex<State>,
    /// These two are written under the lock, and read without.
    pub(crate) stable: AtomicU64,
    last: AtomicU64,
    /// Bytes of the ring that are in use or promised, as of the last change of that.
    taken_bytes: AtomicU64,
    write_ns: SharedHistogram,
    /// All of these together.
    write_total_ns: AtomicU64,
}

impl IntentLog {
    /// Goes on with a log in a new epoch. All that `survey` found live must have been replayed and
    /// be stable on its file system (or set aside): the new epoch begins with nothing live.
    ///
    /// No record is written before [`IntentLog::write_superblocks`].
    ///
    /// LSNs go on after the last one that can have been reserved. Of a clean log it is known. Of
    /// another one, records may have been reserved or written beyond the last that was found; but
    /// each took at least its header's bytes of the ring from the tail on, so they were no more
    /// than the ring has room for, and as many are left out.
    pub fn resume(
        superblock: &Superblock,
        survey: &Survey,
        host: [u8; 16],
        write_verifier: u64,
    ) -> Result<Self, Exhausted> {
        let ring_bytes = superblock.ring_bytes;
        let found = survey.last.max(superblock.stable).max(superblock.tail_lsn.previous());
        let left_out = if superblock.is_clean { 0 } else { ring_bytes / HEADER_BYTES as u64 };
        let last = Lsn(found.0.saturating_add(left_out));
        let epoch = superblock.epoch.max(survey.epoch_beyond).saturating_add(1);
        let head = survey.position.max(superblock.tail).block_after();
        if [last.0, epoch, head.0, superblock.sequence].into_iter().any(|n| n >= NUMBER_MAX / 2) {
            return Err(Exhausted);
        }
        let ring = Ring::new(ring_bytes, head);
        let mut entries = superblock.file_systems.clone();
        for entry in &mut entries {
            entry.tail = last;
        }
        let state = State {
            phase: Phase::Running,
            epoch,
            queue: Queue::new(last.next()),
            file_systems: FileSystems::new(entries, ring.grain_bytes()),
            ring,
            superblocks: Superblocks::new(superblock.sequence),
            in_flight: VecDeque::with_capacity(BATCHES_IN_FLIGHT_MAX),
            batches: 0,
            write_verifier,
            retained_from: None,
            counters: Counters::default(),
        };
        Ok(Self {
            uuid: superblock.uuid,
            host,
            log_id: log_id(&superblock.uuid),
            ring_bytes,
            state: Mutex::new(state),
            stable: AtomicU64::new(last.0),
            last: AtomicU64::new(last.0),
            taken_bytes: AtomicU64::new(0),
            write_ns: SharedHistogram::default(),
            write_total_ns: AtomicU64::new(0),
        })
    }

    /// The host that it is of.
    pub fn host(&self) -> [u8; 16] {
        self.host
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The index of a file system for [`IntentLog::reserve`]. If it is new, no record of any file
    /// system is written until superblocks are: [`IntentLog::superblock_is_due`].
    pub fn register(&self, identity: Identity, path: &[u8]) -> Result<u32, TableFull> {
        let mut state = self.lock();
        let last = state.queue.last();
        state.file_systems.register(identity, path, last)
    }

    /// Takes a file system out of the table, unless it has live records; whether it did. Nothing may
    /// be reserved for it any more. Superblocks are due then, and only when they are written may the
    /// file system be changed by others: until then a crash replays what it had.
    pub fn forget(&self, file_system: u32) -> bool {
        self.lock().file_systems.forget(file_system)
    }

    /// Clients are told another write verifier from now on. For the next superblock.
    pub fn set_write_verifier(&self, write_verifier: u64) {
        self.lock().write_verifier = write_verifier;
    }

    /// Room for a record with a payload of at most so many bytes.
    pub fn admit(&self, payload_bytes_max: usize) -> Result<Admission, Refused> {
        let too_large = Refused::TooLarge { payload_bytes: payload_bytes_max };
        if payload_bytes_max > PAYLOAD_BYTES_MAX {
            return Err(too_large);
        }
        // At the worst it is alone in its batch.
        let room_bytes = record_bytes(payload_bytes_max).next_multiple_of(BLOCK_BYTES) as u64;
        if room_bytes > self.ring_bytes {
            return Err(too_large);
        }
        let mut state = self.lock();
        match state.phase {
            Phase::Running => {}
            Phase::Closed => return Err(Refused::Closed),
            Phase::Failed | Phase::GivenUp => return Err(Refused::Failed),
        }
        let free_bytes = state.ring.free_bytes();
        if room_bytes > free_bytes {
            state.counters.fullness_refusals += 1;
            return Err(Refused::Full { wanted_bytes: room_bytes, free_bytes });
        }
        state.ring.promise(room_bytes);
        self.note_taken(&state);
        Ok(Admission { payload_bytes_max: payload_bytes_max as u32, room_bytes })
    }

    /// Gives back the room of an operation that is not logged.
    #[allow(clippy::needless_pass_by_value, reason = "it cannot be used again")]
    pub fn cancel(&self, admission: Admission) {
        let mut state = self.lock();
        state.ring.take_back(admission.room_bytes);
        self.note_taken(&state);
    }

    /// Takes the next LSN for an operation on this file system.
    ///
    /// # Panics
    /// If the file system is not registered.
    #[allow(clippy::needless_pass_by_value, reason = "it cannot be used again")]
    pub fn reserve(&self, admission: Admission, file_system: u32) -> Lsn {
        let mut state = self.lock();
        let next = state.queue.last().next();
        state.file_systems.note_reserved(file_system, next);
        let (payload_bytes_max, room_bytes) = (admission.payload_bytes_max, admission.room_bytes);
        let lsn = state.queue.reserve(file_system, payload_bytes_max, room_bytes);
        self.last.store(lsn.0, Ordering::Release);
        lsn
    }

    /// What the record tells. Whether there is something new to write, which somebody must see to.
    ///
    /// # Panics
    /// If the LSN was not reserved or was completed before, or if the payload is larger than was
    /// admitted.
    pub fn complete(&self, lsn: Lsn, payload: Vec<u8>) -> bool {
        let payload = Payload::new(payload);
        self.lock().queue.complete(lsn, payload)
    }

    /// As [`IntentLog::complete`], of a record that has something of its own from `behind` on:
    /// [`Batch::behind`] tells it.
    ///
    /// # Panics
    /// As [`IntentLog::complete`].
    pub fn complete_with(&self, lsn: Lsn, payload: Vec<u8>, behind: usize) -> bool {
        let behind = u32::try_from(behind).ok().filter(|at| (*at as usize) < payload.len());
        let payload = Payload { behind, ..Payload::new(payload) };
        self.lock().queue.complete(lsn, payload)
    }

    /// There is nothing to tell: the operation failed after its LSN was reserved. As
    /// [`IntentLog::complete`] otherwise; a record without payload takes the place, as the scan
    /// would take a gap for the end.
    ///
    /// # Panics
    /// As [`IntentLog::complete`].
    pub fn void(&self, lsn: Lsn) -> bool {
        self.complete(lsn, Vec::new())
    }

    /// Takes the complete records that follow the last batch taken, and lays them out. `false` if
    /// there are none, or if none may be written now: as many batches as may be are in flight, a
    /// write has failed, superblocks are due, or the log is closed.
    ///
    /// Each batch taken is to be written and given to [`IntentLog::written`]; if writing fails,
    /// [`IntentLog::failed`].
    pub fn take_batch(&self, batch: &mut Batch) -> bool {
        // What a write that failed left behind.
        batch.records.clear();
        let (stable, epoch);
        {
            let mut state = self.lock();
            let state = &mut *state;
            if !state.may_write()
                || !state.queue.has_complete()
                || state.in_flight.len() >= BATCHES_IN_FLIGHT_MAX
            {
                return false;
            }
            let (bytes, promised_bytes) = state.queue.take(BATCH_BYTES_MAX, &mut batch.records);
            let (Some(first), Some(last)) = (batch.records.first(), batch.records.last()) else {
                return false;
            };
            (batch.first, batch.last, batch.record_bytes) = (first.lsn, last.lsn, bytes);
            let device_bytes = bytes.next_multiple_of(BLOCK_BYTES) as u64;
            batch.position = state.ring.place(batch.first, device_bytes, promised_bytes);
            self.note_taken(state);
            batch.ring_bytes = self.ring_bytes;
            for record in &batch.records {
                let bytes = record_bytes(record.payload.bytes.len()) as u64;
                state.file_systems.note_taken(record.file_system, record.lsn, bytes);
                state.counters.payload_bytes += record.payload.bytes.len() as u64;
            }
            state.batches += 1;
            batch.number = state.batches;
            let (number, first, last) = (batch.number, batch.first, batch.last);
            state.in_flight.push_back(InFlight { number, first, last, is_written: false });
            let counters = &mut state.counters;
            counters.records += batch.records.len() as u64;
            counters.batches += 1;
            counters.device_bytes += device_bytes;
            counters.records_per_batch.note(batch.records.len() as u64);
            (stable, epoch) = (self.stable(), state.epoch);
        }
        batch.lay_out(self.log_id, epoch, stable);
        true
    }

    /// Whether there is something that [`IntentLog::take_batch`] would take if it may be written.
    pub fn has_complete(&self) -> bool {
        self.lock().queue.has_complete()
    }

    /// The batch is on the medium. Returns the LSN up to which all records are: it grows over
    /// batches in their order, whatever the order in which they were written.
    pub fn written(&self, batch: &Batch) -> Lsn {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Failed | Phase::GivenUp) {
            return self.stable();
        }
        for other in &mut state.in_flight {
            other.is_written |= other.number == batch.number;
        }
        while state.in_flight.front().is_some_and(|batch| batch.is_written) {
            if let Some(batch) = state.in_flight.pop_front() {
                self.stable.store(batch.last.0, Ordering::Release);
            }
        }
        self.stable()
    }

    /// A write has failed. Nothing more becomes stable through this log: what waits for it has to
    /// be made stable by flushes. Afterwards [`IntentLog::give_up`].
    pub fn failed(&self) {
        let mut state = self.lock();
        if state.phase != Phase::GivenUp {
            state.phase = Phase::Failed;
        }
    }

    /// The LSN up to which all records are stable.
    pub fn stable(&self) -> Lsn {
        Lsn(self.stable.load(Ordering::Acquire))
    }

    /// The LSN reserved last.
    pub fn last(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Acquire))
    }

    /// The epoch of the records.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// All of a file system's operations up to this LSN are stable on it. The room comes back when
    /// superblocks say so: [`IntentLog::write_superblocks`]. (Until then a crash replays them.)
    pub fn checkpointed(&self, file_system: u32, up_to: Lsn) {
        let mut state = self.lock();
        let up_to = up_to.min(state.queue.last());
        state.file_systems.checkpointed(file_system, up_to);
    }

    /// A flush has made this mark of the file system stable: the next superblock tells of it.
    pub fn marked(&self, file_system: u32, mark: MarkPlace) {
        self.lock().file_systems.marked(file_system, mark);
    }

    /// The file system does not carry the mark that the log knows of, and is used all the same: what is
    /// known is forgotten. Records of it wait until a superblock says so.
    pub fn unmarked(&self, file_system: u32) {
        self.lock().file_systems.unmarked(file_system);
    }

    /// What there is to read back now: from the tail to what is stable. It stays there until a
    /// superblock with a later tail is written.
    pub fn extent(&self) -> Extent {
        let mut state = self.lock();
        let (tail, tail_lsn) = state.tail();
        Extent {
            log_id: self.log_id,
            epoch: state.epoch,
            ring_bytes: self.ring_bytes,
            tail,
            tail_lsn,
            stable: self.stable(),
            until: Some(self.stable()),
            file_systems: Extent::tails(&state.file_systems.entries()),
        }
    }

    /// A write of a batch took so long.
    pub fn note_write(&self, ns: u64) {
        self.write_ns.note(ns);
        self.write_total_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// How many batches were taken.
    pub fn writes(&self) -> u64 {
        self.lock().batches
    }

    /// Bytes of the ring that are in use, and all of them: cheaper than [`IntentLog::usage`].
    pub fn fill(&self) -> (u64, u64) {
        (self.lock().ring.used_bytes(), self.ring_bytes)
    }

    /// Bytes of the ring that are in use or promised, and all of them, without any lock.
    pub fn taken(&self) -> (u64, u64) {
        (self.taken_bytes.load(Ordering::Relaxed), self.ring_bytes)
    }

    /// To be called with the lock whenever the ring's room has changed.
    pub(crate) fn note_taken(&self, state: &State) {
        let taken_bytes = state.ring.used_bytes() + state.ring.promised_bytes();
        self.taken_bytes.store(taken_bytes, Ordering::Relaxed);
    }

    /// What the log uses, and what it did.
    pub fn usage(&self) -> Usage {
        let state = self.lock();
        Usage {
            ring_bytes: state.ring.bytes(),
            used_bytes: state.ring.used_bytes(),
            promised_bytes: state.ring.promised_bytes(),
            stable: self.stable(),
            last: self.last(),
            batches_in_flight: state.in_flight.len(),
            file_systems: state.file_systems.usage(),
            counters: state.counters,
            write_ns: self.write_ns.load(),
            write_total_ns: self.write_total_ns.load(Ordering::Relaxed),
        }
    }
}
