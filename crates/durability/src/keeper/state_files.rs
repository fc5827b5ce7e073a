//! What the state directory has of the log, for the next start.

use std::io;
use std::path::{Path, PathBuf};

use crate::begun::BegunRings;
use crate::known::{note_given_up, note_known};
use crate::replies::ReplyStore;

use super::noted::NotedUntilStable;

/// The state directory, as far as it is about the log that is used.
///
/// Whatever becomes of the log's device, this says at the next start which log is needed, which calls
/// have their replies, and what had begun when the server was killed.
pub(super) struct StateFiles {
    directory: PathBuf,
    /// Of the log.
    uuid: [u8; 16],
    /// Where replies are kept when the log's tail passes them.
    replies: ReplyStore,
    /// Without it the repetition of a call that a kill has left without a reply is executed again.
    begun: Option<BegunRings>,
    noted: NotedUntilStable,
}

impl StateFiles {
    pub(super) fn new(
        directory: PathBuf,
        uuid: [u8; 16],
        replies: ReplyStore,
        begun: Option<BegunRings>,
        noted: NotedUntilStable,
    ) -> Self {
        Self { directory, uuid, replies, begun, noted }
    }

    /// The directory, for what is set aside in it.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Which log is used.
    pub(super) fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// The store of replies.
    pub(super) fn replies(&self) -> &ReplyStore {
        &self.replies
    }

    /// Marks of calls that have begun.
    pub(super) fn begun(&self) -> Option<&BegunRings> {
        self.begun.as_ref()
    }

    /// Changes that are noted as under way.
    pub(super) fn noted(&self) -> &NotedUntilStable {
        &self.noted
    }

    /// From here on the log may have what is nowhere else: no start does without it.
    ///
    /// # Errors
    /// The state directory's.
    pub(super) fn note_open(&self) -> io::Result<()> {
        note_known(&self.directory, &self.uuid, true)
    }

    /// Everything in the log is on the file systems: a start may do without it.
    ///
    /// # Errors
    /// The state directory's.
    pub(super) fn note_closed(&self) -> io::Result<()> {
        note_known(&self.directory, &self.uuid, false)
    }

    /// Nothing of the log's epochs up to this one is to be replayed, whatever its superblocks say.
    ///
    /// # Errors
    /// The state directory's.
    pub(super) fn note_given_up(&self, epoch: u64) -> io::Result<()> {
        note_given_up(&self.directory, &self.uuid, epoch)
    }
}
