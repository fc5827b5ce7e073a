//! The files of the state directory that the next start reads besides the log.

use std::io;
use std::path::{Path, PathBuf};

use crate::begun::BegunRings;
use crate::known::{note_given_up, note_known};
use crate::replies::ReplyStore;

use super::noted::NotedUntilStable;

/// The files of the state directory that belong to the log in use.
///
/// They tell the next start which log it needs, which replies were sent, and which calls and changes had
/// begun when the server was killed. They do not depend on the log's device.
pub(super) struct StateFiles {
    directory: PathBuf,
    /// Of the log.
    uuid: [u8; 16],
    /// Keeps replies when the log's tail passes their records.
    replies: ReplyStore,
    /// Without it, a call that a kill has left without a reply is executed again when it is repeated.
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

    /// The directory, for files with records that were set aside.
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

    /// From here on the log may hold operations that are nowhere else: a start without it is refused.
    ///
    /// # Errors
    /// The state directory's.
    pub(super) fn note_open(&self) -> io::Result<()> {
        note_known(&self.directory, &self.uuid, true)
    }

    /// All operations in the log are on the file systems: a start without it is allowed.
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
