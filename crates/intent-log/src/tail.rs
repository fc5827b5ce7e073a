//! Moving the tail of a running log: what the next superblock says, and what follows when it is
//! written. Closing the log and giving it up are this, too.

use crate::copies::WriteSuperblockError;
use crate::format::{Lsn, Position};
use crate::log::{IntentLog, Phase, State};
use crate::medium::Medium;
use crate::superblock::Superblock;
use crate::superblocks::Saying;

impl IntentLog {
    /// Keeps records from this one on, although no file system needs them: of use is what stands in
    /// them beside what they change. `None`: no longer. A log that retains records is not clean.
    pub fn retain(&self, from: Option<Lsn>) {
        self.lock().retained_from = from;
    }

    /// Whether superblocks are to be written: records wait for it, or there is room to give back.
    pub fn superblock_is_due(&self) -> bool {
        let mut state = self.lock();
        match state.phase {
            Phase::Closed | Phase::GivenUp => false,
            Phase::Running if !state.may_write() => true,
            Phase::Running | Phase::Failed => state.tail().0 > state.ring.tail(),
        }
    }

    /// The superblock to write next, where it says ([`Superblock::offset`]). At most one at a time:
    /// the caller writes it and calls [`IntentLog::superblock_written`], or, if writing failed,
    /// asks again, before anybody else asks.
    ///
    /// If `is_clean` is asked for, it is so if nothing is live, admitted, reserved or being
    /// written; from then on nothing is admitted, until one that is not clean is asked for. Of a
    /// log that was given up it is always clean, of one that has failed otherwise never.
    pub fn superblock(&self, is_clean: bool) -> Superblock {
        let mut state = self.lock();
        if state.phase == Phase::GivenUp {
            let tail = state.ring.head();
            return self.issue(&mut state, true, tail, self.last().next(), self.last());
        }
        let is_clean = is_clean && state.phase != Phase::Failed && state.is_idle();
        if state.phase != Phase::Failed {
            state.phase = if is_clean { Phase::Closed } else { Phase::Running };
        }
        let (tail, tail_lsn) = state.tail();
        self.issue(&mut state, is_clean, tail, tail_lsn, self.stable())
    }

    fn issue(
        &self,
        state: &mut State,
        is_clean: bool,
        tail: Position,
        tail_lsn: Lsn,
        stable: Lsn,
    ) -> Superblock {
        let generation = state.file_systems.generation();
        Superblock {
            uuid: self.uuid,
            host: self.host,
            sequence: state.superblocks.issue(Saying { is_clean, tail, generation }),
            epoch: state.epoch,
            is_clean,
            write_verifier: state.write_verifier,
            ring_bytes: self.ring_bytes,
            tail,
            tail_lsn,
            stable,
            file_systems: state.file_systems.entries(),
            ends_at: None,
        }
    }

    /// The superblock is on the medium.
    pub fn superblock_written(&self, superblock: &Superblock) {
        let mut state = self.lock();
        state.superblocks.note_written(superblock.sequence);
        if let Some(tail) = state.superblocks.tail() {
            state.ring.give_back(tail);
            self.note_taken(&state);
        }
    }

    /// Writes both superblocks, one after the other: then room is given back, and records may be
    /// written. Returns whether they are clean. As [`IntentLog::superblock`], one at a time.
    pub fn write_superblocks(
        &self,
        medium: &dyn Medium,
        is_clean: bool,
    ) -> Result<bool, WriteSuperblockError> {
        let mut are_clean = true;
        for _ in 0..2 {
            let superblock = self.superblock(is_clean);
            medium.write_at(superblock.offset(), &superblock.encode()?)?;
            self.superblock_written(&superblock);
            are_clean &= superblock.is_clean;
        }
        Ok(are_clean)
    }

    /// Marks a failed log as one with nothing to replay. All file systems must have been flushed
    /// since [`IntentLog::failed`], and no write of a batch may be under way. If this fails too,
    /// the caller must remember elsewhere that the log was given up
    /// ([`crate::recovery::Known::GivenUp`]): the file systems go on changing, and to replay the
    /// log over them later would undo changes.
    pub fn give_up(&self, medium: &dyn Medium) -> Result<(), WriteSuperblockError> {
        {
            let mut state = self.lock();
            let last = state.queue.last();
            state.phase = Phase::GivenUp;
            state.in_flight.clear();
            // All have been flushed.
            state.file_systems.begin_epoch(last);
        }
        self.write_superblocks(medium, true).map(|_| ())
    }
}
