//! What whoever shows the locks of clients to local processes has to know: which ranges of a file are
//! locked by anybody, and of which files that has changed. And hosts that wait for local processes.
//!
//! The state knows nothing of local processes: it does no I/O. Who has asked them tells a host to
//! wait ([`State::nlm_hold_back`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::file_locks::{Asking, FileLocks, LockOwner, Tells};
use crate::nlm::LOCKS;
use crate::opening::Stopped;
use crate::ranges::{LockKind, Span};
use crate::share::Share;
use crate::{FileKey, Host, LockRange, NlmError, NlmLock, State, StateError};

/// For how long a host is held back that waits for a local process, in ms: until the next tick.
const HELD_BACK_MS: u64 = 900;

/// The files of which ranges were locked or freed since somebody asked.
#[derive(Debug, Default)]
pub(crate) struct ChangedLocks {
    is_watched: AtomicBool,
    has_some: AtomicBool,
    /// From the first to the last byte that changed.
    spans: Mutex<HashMap<FileKey, Span>>,
}

impl ChangedLocks {
    /// Takes up what has changed of a file's locks.
    pub(crate) fn collect(&self, file: &FileKey, locks: &mut FileLocks) {
        if let Some(span) = locks.take_changed() {
            self.note(file, span);
        }
    }

    /// Nobody has or wants anything of a file any more.
    pub(crate) fn note_empty(&self, file: &FileKey) {
        self.note(file, Span { start: 0, end: u64::MAX });
    }

    fn note(&self, file: &FileKey, span: Span) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        self.spans
            .lock()
            .entry(*file)
            .and_modify(|known| *known = known.hull(span))
            .or_insert(span);
        self.has_some.store(true, Ordering::Release);
    }
}

impl Span {
    /// All from the first byte of both to the last.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl State {
    /// From now on [`State::take_changed_locks`] tells which locks change: somebody asks it.
    pub fn watch_locks(&self) {
        self.files.changed.is_watched.store(true, Ordering::Relaxed);
    }

    /// The files with locks that were taken, freed or changed since this was asked last, each with a
    /// range that has all of it. It costs a look at a flag if there are none.
    pub fn take_changed_locks(&self) -> Vec<(FileKey, LockRange)> {
        let changed = &self.files.changed;
        if !changed.has_some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut spans = changed.spans.lock();
        changed.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *spans).into_iter().map(|(file, span)| (file, span.into())).collect()
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
