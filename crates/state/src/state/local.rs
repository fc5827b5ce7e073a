//! What whoever shows the locks of clients to local processes has to know: which ranges of a file are
//! locked by anybody, and of which files that has changed. And hosts that wait for local processes.
//!
//! The state knows nothing of local processes: it does no I/O. Who has asked them tells a host to
//! wait ([`State::nlm_hold_back`]).

use std::sync::Arc;

use super::attempt::Stopped;
use crate::client::lock_owner::LockOwner;
use crate::file_locks::{Asking, Tells};
use crate::host::LOCKS;
use crate::share::Share;
use crate::{FileKey, Host, LockKind, LockRange, NlmError, NlmLock, State, StateError};

/// For how long a host is held back that waits for a local process, in ms: until the next tick.
const HELD_BACK_MS: u64 = 900;

impl State {
    /// From now on [`State::take_changed_locks`] tells which locks change: somebody asks it.
    pub fn watch_locks(&self) {
        self.files.changed.watch();
    }

    /// The files with locks that were taken, freed or changed since this was asked last, each with a
    /// range that has all of it. It costs a look at a flag if there are none.
    pub fn take_changed_locks(&self) -> Vec<(FileKey, LockRange)> {
        let changed = self.files.changed.take();
        changed.into_iter().map(|(file, span)| (file, span.into())).collect()
    }

    /// What of a range is locked by anybody, in order: parts that do not overlap. Where somebody reads
    /// and somebody writes, which cannot be, it is written.
    ///
    /// # Errors
    /// [`StateError::Invalid`] for a range that cannot be locked.
    pub fn locked_parts(
        &self,
        file: &FileKey,
        range: LockRange,
    ) -> Result<Vec<(LockRange, LockKind)>, StateError> {
        let span = range.span()?;
        let parts = self.files.with_locks(file, |locks| locks.parts(span)).unwrap_or_default();
        Ok(parts.into_iter().map(|(span, kind)| (span.into(), kind)).collect())
    }

    /// Whether anybody has a lock of a file, or waits for one.
    pub fn has_locks(&self, file: &FileKey) -> bool {
        self.files.with_locks(file, |locks| !locks.is_empty()) == Some(true)
    }

    /// A host waits for a lock that a local process keeps it from. In a second it is granted the lock, as
    /// far as clients are concerned; and so on, as long as this is called again.
    ///
    /// # Errors
    /// [`NlmError::Blocked`] if it waits, as of [`State::nlm_lock`]; [`StateError::TryLater`] if too
    /// many wait, or the request does not; [`StateError::Invalid`] and [`StateError::Expired`] as of
    /// [`State::nlm_lock`].
    pub fn nlm_hold_back(&self, host: &Host, request: &NlmLock<'_>) -> Result<(), NlmError> {
        let span = request.range.span()?;
        let owner = LockOwner { client: Arc::clone(&host.client), name: request.owner.name()? };
        self.repeated(&host.client, || {
            let mut opens = host.client.opens.lock();
            if opens.is_ended {
                return Err(StateError::Expired.into());
            }
            let file = &request.file;
            let open = match opens.find(LOCKS, file) {
                Some(open) => open,
                None => self.open_of_host(host, &mut opens, LOCKS, file, Share::NONE)?,
            };
            let asking = Asking {
                owner: &owner,
                open,
                span,
                kind: request.kind,
                is_waited_for: request.waits.is_some(),
                tells: request.waits.map(Tells::Granted),
                room: 0,
                time: self.time(&host.client),
            };
            let until_ms = asking.time.now_ms.saturating_add(HELD_BACK_MS);
            let held_back = self.files.lock(file, |locks| locks.hold_back(&asking, until_ms));
            if held_back == Some(true) {
                self.hosts.note_waited_for(file);
                return Err(Stopped::Failed(NlmError::Blocked));
            }
            self.end_unused(host, &mut opens, file);
            Err(StateError::TryLater.into())
        })
    }
}
