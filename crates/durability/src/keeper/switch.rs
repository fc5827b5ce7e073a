//! Leaving the log and coming back to it while the server runs: at the administrator's wish, and
//! after its device has failed and is well again.
//!
//! Both happen with the gate closed, at a moment when no change is half done.
//!
//! *Off*: what has passed the gate is in the log; all file systems are flushed; the superblocks
//! say that the log is closed. A crash before the first of them replays, which is right, as the
//! gate is closed; one after it finds nothing to replay, which is right too, as all is flushed.
//! From then on changes are flushed one by one.
//!
//! *On*: the state directory says that nothing of the epochs so far is to be replayed, whichever
//! superblock a crash may leave; changes that were applied without the log are flushed; the state
//! directory says that this log may have what is nowhere else; the superblocks begin a new epoch.
//! A crash anywhere before the gate opens finds nothing to replay. After it, the log has all
//! changes since, and the file systems all before, by which replay goes.

use steadfast_intent_log::{
    BLOCK_BYTES, Block, Medium, MediumError, WriteSuperblockError, format, inspect,
};
use steadfast_vfs::FsError;

use crate::listing::shown;

use super::left::Left;
use super::superblocks::Writing;
use super::{DRAIN_POLL, IntentLogKeeper, Phase};

/// Pieces of the ring that are written and read before a device that has failed is trusted again,
/// and blocks of each.
const TRIAL_PIECES: u64 = 64;
const TRIAL_BLOCKS: usize = 16;
/// A log that is to be closed and has nothing in it says so at one of so many attempts.
const CLOSE_ATTEMPTS: usize = 3;

/// Why the log was not switched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// It is on.
    #[error("the intent log is on already")]
    IsOn,
    /// It was switched off before.
    #[error("the intent log is off already")]
    IsOffAsAsked,
    /// It is off, but not since it was switched off.
    #[error("the intent log is off already: {0}")]
    IsOff(String),
    /// The server is about to end.
    #[error("the server is stopping")]
    Stopping,
    /// Changes wait for a repair.
    #[error(
        "the intent log cannot be written ({0}), and neither can a file system be flushed: repair \
         both devices and start the server again"
    )]
    Stuck(String),
    /// A file system cannot be flushed, and what it may have lost is in the log.
    #[error(
        "the intent log stays on, since {path} cannot be flushed: {why}; what it may have lost is in the log"
    )]
    Faulty {
        /// A directory of it.
        path: String,
        /// Why.
        why: String,
    },
    /// A file system could not be flushed while the log was off.
    #[error(
        "the intent log stays off, since a file system cannot be flushed: {0}; repair it and start \
         the server again"
    )]
    NotFlushed(String),
    /// The device is not well.
    #[error("the intent log stays off, since its device {path} is not well: {why}")]
    Device {
        /// Where it is.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The log failed while it was switched off.
    #[error("the intent log failed and was left: {0}; all file systems are flushed")]
    Failed(String),
    /// The state directory cannot be written.
    #[error("the intent log stays off, since the state directory cannot be written: {0}")]
    StateDirectory(String),
    /// Nothing needs it.
    #[error(
        "there is no intent log, since no share is on a file system whose changes can be logged \
         (ext4 with a journal, XFS, btrfs): it is made and used when the first such share is added"
    )]
    Unneeded,
    /// It is to be made, and that failed.
    #[error("the intent log {path} cannot be made: {why}; changes are flushed")]
    Unmade {
        /// Where it is to be.
        path: String,
        /// Why.
        why: String,
    },
    /// It changed under way.
    #[error("the intent log was changed meanwhile: look at `steadfast log status`")]
    Changed,
}

/// What came of a flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// File systems that have everything.
    pub flushed: Vec<String>,
    /// Those that have not, and why.
    pub faulty: Vec<(String, String)>,
}

impl IntentLogKeeper {
    /// Lets changes pass again.
    pub(super) fn open_gate(&self, phase: Phase) {
        self.gate.open(phase);
        self.waiting.note_grown();
        // Replies may wait that nothing else sends.
        self.note_complete();
    }

    fn close_gate(&self, from: Phase) -> Result<(), SwitchError> {
        if self.gate.close(from) { Ok(()) } else { Err(SwitchError::Changed) }
    }

    /// Makes all file systems stable, with everything in the log and everything that never was.
    /// What cannot be flushed is told, and stays in the log.
    pub fn flush(&self) -> Flushed {
        if self.phase() == Phase::On {
            self.checkpoint_now();
        }
        let mut flushed = Flushed::default();
        for (index, path) in self.paths_served() {
            let known = self.faulty.why(index);
            let failed = known.or_else(|| {
                let sync = self.file_systems.sync_of(index);
                let _flushing = self.file_systems.flushing();
                let error = sync.and_then(|sync| sync.sync().err())?;
                // The log may have been left or entered meanwhile: what it has must stay in it.
                if self.phase() == Phase::Off {
                    self.note_not_flushed(error);
                } else {
                    self.note_faulty(index, path.as_bytes(), error);
                }
                Some(error.to_string())
            });
            match failed {
                None => flushed.flushed.push(path),
                Some(why) => flushed.faulty.push((path, why)),
            }
        }
        flushed
    }

    /// A directory of a file system that is served.
    pub(super) fn path_served(&self, index: u32) -> String {
        let served = self.paths_served();
        let path = served.into_iter().find(|(known, _)| *known == index);
        path.map(|(_, path)| path).unwrap_or_default()
    }

    /// File systems that are served, with a directory of each.
    fn paths_served(&self) -> Vec<(u32, String)> {
        let served = self.file_systems.indices();
        let usage = self.log.usage().file_systems;
        let served = usage.iter().filter(|usage| served.contains(&usage.entry.index));
        served.map(|usage| (usage.entry.index, shown(&usage.entry))).collect()
    }

    /// Leaves the log, empty and closed, until [`IntentLogKeeper::enable`] or the next start.
    ///
    /// # Errors
    /// Why it stays on, or what happened instead.
    pub fn disable(&self) -> Result<(), SwitchError> {
        let _switching = self.switch.switching();
        match self.phase() {
            Phase::On => {}
            Phase::Off if self.switch.left() == Some(Left::Unmade) => {
                self.switch.note_by_administrator();
                tracing::warn!("no intent log is made, until it is switched on or the next start");
                return Ok(());
            }
            Phase::Off if self.is_off_by_administrator() => return Err(SwitchError::IsOffAsAsked),
            Phase::Off => return Err(SwitchError::IsOff(self.why_off())),
            Phase::Closing => return Err(self.why_closing()),
        }
        // Most of it while changes go on.
        self.checkpoint_now();
        self.refuse_faulty()?;
        self.close_gate(Phase::On)?;
        tracing::info!("the intent log is being switched off: flushing all file systems");
        let left = self.leave_well();
        match &left {
            Ok(()) => {
                self.switch.note_by_administrator();
                self.open_gate(Phase::Off);
                tracing::warn!(
                    "the intent log is off, and empty. Each change is flushed before its reply, until \
                     `steadfast log enable` or the next start of the server"
                );
            }
            // It has been seen to.
            Err(SwitchError::Failed(_) | SwitchError::Stuck(_)) => {}
            Err(why) => {
                tracing::warn!("{why}");
                self.open_gate(Phase::On);
                // If a superblock says that the log is closed.
                self.write_superblocks_if_due();
            }
        }
        left
    }

    /// With the gate closed: empties the log and closes it.
    fn leave_well(&self) -> Result<(), SwitchError> {
        if !self.drain() || !self.wait_written() {
            return Err(SwitchError::Stopping);
        }
        if !self.log.has_failed() && !self.superblocks.has_fault() {
            self.checkpoint();
            self.refuse_faulty()?;
            if let Err((entry, error)) = self.mark_all_flushed() {
                self.note_faulty(entry.index, &entry.path, error);
                self.refuse_faulty()?;
            }
            // The server goes on telling its verifier, and may crash.
            self.log.set_write_verifier(self.settings.untold_write_verifier);
            match self.close_log() {
                Ok(true) => {
                    if let Err(error) = self.state_files.note_closed() {
                        tracing::warn!(
                            "the state directory cannot be written: {error}. The intent log is empty and \
                             closed; that is only not noted there, and no change is lost"
                        );
                    }
                    return Ok(());
                }
                Ok(false) => return Err(SwitchError::Changed),
                Err(error) => {
                    self.superblocks.note_fault(format!("cannot be written: {error}"));
                }
            }
        }
        // Its device has failed meanwhile.
        self.log.failed();
        let why = self.superblocks.take_fault();
        let why = why.unwrap_or_else(|| "cannot be written".to_owned());
        tracing::error!("the intent log {why}: flushing all file systems");
        if self.flush_and_give_up(&why) {
            return Err(SwitchError::Failed(why));
        }
        Err(self.why_closing())
    }

    /// Has both superblocks say that the log is closed; `false` if it is not empty.
    fn close_log(&self) -> Result<bool, WriteSuperblockError> {
        for _ in 0..CLOSE_ATTEMPTS {
            // A checkpoint that began before may just keep replies for some more time. The store
            // has them.
            let _told = self.state_files.replies().flush();
            self.log.retain(None);
            if self.superblocks.lock(&self.log, &self.medium).close()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until what is complete is written; `false` if the server is stopped before.
    fn wait_written(&self) -> bool {
        while self.log.stable() < self.log.last()
            && !self.log.has_failed()
            && !self.superblocks.has_fault()
        {
            if self.wakeup.is_stopping() {
                return false;
            }
            // A file system that was let go just before may have left them due.
            self.write_superblocks_if_due();
            // Workers that would have seen to it may be at the gate.
            self.note_complete();
            std::thread::sleep(DRAIN_POLL);
        }
        true
    }

    fn refuse_faulty(&self) -> Result<(), SwitchError> {
        let Some((index, why)) = self.faulty.first() else { return Ok(()) };
        Err(SwitchError::Faulty { path: self.path_served(index), why })
    }

    fn why_off(&self) -> String {
        match self.switch.left() {
            Some(Left::Failed(why)) => format!("it {why}; it comes back when its device is well"),
            Some(Left::Stuck(why)) => format!("it {why}"),
            Some(Left::Unmade) => "nothing needed it yet".to_owned(),
            _ => "it was switched off".to_owned(),
        }
    }

    fn why_closing(&self) -> SwitchError {
        match self.switch.left() {
            Some(Left::Stuck(why)) => SwitchError::Stuck(why),
            _ if self.running.is_closing() => SwitchError::Stopping,
            _ => SwitchError::Changed,
        }
    }

    /// Comes back to a log that was switched off, or that was left as it failed and is well again.
    ///
    /// # Errors
    /// Why it stays off.
    pub fn enable(&self) -> Result<(), SwitchError> {
        let _switching = self.switch.switching();
        if self.phase() == Phase::Off && self.is_unmade() && self.file_systems.is_empty() {
            self.switch.note_unneeded();
            return Err(SwitchError::Unneeded);
        }
        self.come_back()
    }

    /// To be called by who switches.
    fn come_back(&self) -> Result<(), SwitchError> {
        match self.phase() {
            Phase::Off => {}
            Phase::On => return Err(SwitchError::IsOn),
            Phase::Closing => return Err(self.why_closing()),
        }
        if self.running.is_closing() {
            return Err(SwitchError::Stopping);
        }
        if let Some(why) = self.switch.not_flushed() {
            return Err(SwitchError::NotFlushed(why));
        }
        let was_unmade = self.is_unmade();
        if was_unmade {
            self.make()?;
        }
        // From here on nothing in it may be replayed, whatever its device has kept of what was
        // written to it.
        self.note_given_up().map_err(|error| SwitchError::StateDirectory(error.to_string()))?;
        self.try_device()?;
        // Most of it while changes go on.
        self.flush_unlogged()?;
        self.close_gate(Phase::Off)?;
        let begun = self.begin_anew();
        if begun.is_err() {
            self.open_gate(Phase::Off);
            return begun;
        }
        self.switch.note_on();
        self.open_gate(Phase::On);
        self.write_superblocks_if_due();
        if was_unmade {
            self.time_device();
        }
        // A committer that was late may have told of a failure of before.
        if self.log.has_failed() {
            self.superblocks.note_fault("has failed again".to_owned());
            self.note_complete();
        }
        tracing::info!("the intent log is on: changes are logged from here on");
        Ok(())
    }

    /// With the gate closed: makes stable what was not logged, and begins a new epoch.
    fn begin_anew(&self) -> Result<(), SwitchError> {
        if !self.drain() {
            return Err(SwitchError::Stopping);
        }
        self.flush_unlogged()?;
        let writing = self.superblocks.lock(&self.log, &self.medium);
        self.superblocks.take_fault();
        let renewed = self
            .state_files
            .note_open()
            .map_err(|error| SwitchError::StateDirectory(error.to_string()))
            .and_then(|()| {
                self.log.renew().map_err(|error| self.device_fault(&error))?;
                self.log.retain(Some(self.log.last().next()));
                let written = writing.write();
                written.map_err(|error| self.device_fault(&error))
            });
        if renewed.is_err() {
            self.leave_again(&writing);
        }
        renewed
    }

    /// A new epoch was perhaps begun, and nothing was written in it.
    fn leave_again(&self, writing: &Writing<'_>) {
        self.log.failed();
        self.log.set_write_verifier(self.settings.untold_write_verifier);
        let is_marked = writing.give_up().is_ok();
        // The epochs before are noted already; the new one has no record, and never will: another
        // attempt begins yet another one. So nothing depends on this.
        if !is_marked && let Err(error) = self.note_given_up() {
            tracing::debug!("cannot note that the intent log was given up: {error}");
        }
        if let Err(error) = self.state_files.note_closed() {
            tracing::warn!("cannot note that the intent log is closed: {error}");
        }
    }

    /// Flushes what may have been changed without the log.
    fn flush_unlogged(&self) -> Result<(), SwitchError> {
        let _flushing = self.file_systems.flushing();
        let syncs = self.file_systems.syncs();
        match syncs.iter().find_map(|one| one.sync().err()) {
            None => Ok(()),
            Some(error) => {
                self.note_not_flushed(error);
                Err(SwitchError::NotFlushed(error.to_string()))
            }
        }
    }

    /// A file system could not be flushed while the log was off: clients send again what they have
    /// not committed.
    fn note_not_flushed(&self, error: FsError) {
        self.running.note_loss();
        self.switch.note_not_flushed(error.to_string());
    }

    fn device_fault(&self, why: &dyn std::fmt::Display) -> SwitchError {
        SwitchError::Device { path: self.medium.path().display().to_string(), why: why.to_string() }
    }

    /// Whether what is at the log's place now has our log, and takes and gives what is written to
    /// it. Nothing in its ring is of use while the log is off.
    fn try_device(&self) -> Result<(), SwitchError> {
        self.medium.reopen().map_err(|error| self.device_fault(&error))?;
        self.look_at_device()?;
        self.write_trial().map_err(|error| self.device_fault(&error))
    }

    fn look_at_device(&self) -> Result<(), SwitchError> {
        let facts = inspect(&*self.medium);
        match facts.superblock() {
            Some(found) if self.log.wrote(found) => Ok(()),
            Some(_) => Err(self.device_fault(&"somebody else has used it meanwhile")),
            None => Err(self.device_fault(&"the log's superblocks are not there")),
        }
    }

    /// Writes pieces all over the ring, and reads them back.
    fn write_trial(&self) -> Result<(), MediumError> {
        let ring_blocks = self.log.fill().1 / BLOCK_BYTES as u64;
        let last_piece = ring_blocks.saturating_sub(TRIAL_BLOCKS as u64);
        let mut written = vec![Block::ZERO; TRIAL_BLOCKS];
        for piece in 0..TRIAL_PIECES {
            let block = last_piece * piece / (TRIAL_PIECES - 1);
            let offset = format::RING_OFFSET + block * BLOCK_BYTES as u64;
            Block::bytes_of_mut(&mut written).fill(piece as u8 | 0x80);
            self.medium.write_at(offset, &written)?;
            let mut read = vec![Block::ZERO; TRIAL_BLOCKS];
            self.medium.read_at(offset, &mut read)?;
            if Block::bytes_of(&read) != Block::bytes_of(&written) {
                let why = "what was written is not what is read";
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why).into());
            }
        }
        Ok(())
    }

    /// After the device has failed: tries, every so often, whether it is well again.
    pub(super) fn come_back_if_well(&self) {
        // Who holds this may wait for the thread that calls.
        let Some(_switching) = self.switch.try_switching() else { return };
        if !self.switch.is_due() {
            return;
        }
        match self.come_back() {
            Ok(()) => self.switch.note_came_back(),
            Err(error) => {
                let why = error.to_string();
                if let Some(interval) = self.switch.note_in_vain(&why) {
                    tracing::warn!("{why}; it is tried again every {} s", interval.as_secs());
                }
            }
        }
    }
}
