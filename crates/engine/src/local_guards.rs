//! Guards of files that clients have delegations of: while one is held, a local process that opens the file in a way
//! that a delegation excludes waits until clients have returned theirs ([`steadfast_vfs::Guard`]).
//!
//! A guard is taken before the delegation is granted, and dropped when nobody has one any more. One guard serves all
//! delegations of a file. One that breaks before the grant finds nobody to ask: so who grants looks again afterwards.
//!
//! The table's lock is held for looking only: a guard is taken without it, since the storage may open files, and dropped
//! without it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use steadfast_state::{DelegationKind, FileKey, State};
use steadfast_vfs::{FlushDomain, FsError, Guard, GuardKind, GuardListener, StorageHandle};

use crate::export::ExportTable;
use crate::local_locks::Place;
use crate::outbound::Outbound;

/// Whether files are delegated only if they can be guarded from local processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalGuard {
    /// Files are delegated without guards: no local process uses them, as the administrator has said.
    #[default]
    None,
    /// Without a guard there is no delegation.
    Required {
        /// How long the kernel lets a local process wait, in ms: a delegation to read that was not returned by then is
        /// revoked.
        patience_ms: u64,
    },
}

/// A file that is guarded, or is about to be.
struct Entry {
    kind: GuardKind,
    /// Of the share by which it was found.
    domain: FlushDomain,
    /// `None` while it is being taken.
    guard: Option<Box<dyn Guard>>,
    /// Grants under way that count on it.
    grants: usize,
}

/// Who is told that local processes wait.
struct Listener {
    state: Arc<State>,
    patience_ms: u64,
    /// At the last tick.
    now_ms: AtomicU64,
    outbound: OnceLock<Arc<dyn Outbound>>,
}

impl Listener {
    fn recall(&self, now_ms: u64, file: &FileKey) {
        self.state.recall_for_local(now_ms, file, now_ms.saturating_add(self.patience_ms));
    }
}

impl GuardListener for Listener {
    fn guard_broken(&self, file_system: u64, object: &StorageHandle) {
        let file = FileKey { file_system, object: *object };
        self.recall(self.now_ms.load(Ordering::Relaxed), &file);
        // The local process waits for that. Without this, clients would be told by the next call or tick.
        if let Some(outbound) = self.outbound.get() {
            outbound.send_effects();
        }
    }
}

/// The files that are guarded.
pub(crate) struct LocalGuards {
    listener: Option<Arc<Listener>>,
    files: Mutex<HashMap<FileKey, Entry>>,
    /// Where files cannot be guarded, as far as that was tried since the exports changed.
    unguarded: Mutex<HashSet<FlushDomain>>,
}

/// What a grant counts on. Once it is dropped the guard stays as long as somebody has a delegation of the file.
pub(crate) struct Guarded<'a> {
    guards: &'a LocalGuards,
    /// `None` if files are not guarded.
    file: Option<FileKey>,
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            self.guards.end_grant(file);
        }
    }
}

impl Guarded<'_> {
    /// The file was delegated. If somebody has come in between it is recalled at once.
    pub(crate) fn is_granted(&self, now_ms: u64) {
        let (Some(listener), Some(file)) = (&self.guards.listener, &self.file) else { return };
        if self.guards.is_broken(file) {
            listener.recall(now_ms, file);
        }
    }
}

impl LocalGuards {
    pub(crate) fn new(wanted: LocalGuard, state: &Arc<State>) -> Self {
        let listener = match wanted {
            LocalGuard::None => None,
            LocalGuard::Required { patience_ms } => {
                state.watch_delegations();
                Some(Arc::new(Listener {
                    state: Arc::clone(state),
                    patience_ms,
                    now_ms: AtomicU64::new(0),
                    outbound: OnceLock::new(),
                }))
            }
        };
        Self { listener, files: Mutex::default(), unguarded: Mutex::default() }
    }

    /// Whether files are delegated with guards only.
    pub(crate) fn are_required(&self) -> bool {
        self.listener.is_some()
    }

    /// A file was delegated without a guard, since its client had a delegation before the server lost it: that is recalled.
    pub(crate) fn recall_unguarded(&self, now_ms: u64, file: &FileKey) {
        if let Some(listener) = &self.listener {
            // Nobody waits for that.
            listener.state.recall_for_local(now_ms, file, u64::MAX);
        }
    }

    /// Whether nothing on this storage can be guarded, as is known already.
    pub(crate) fn cannot_guard(&self, domain: FlushDomain) -> bool {
        self.unguarded.lock().contains(&domain)
    }

    /// Who sends calls to clients; said once.
    pub(crate) fn set_outbound(&self, outbound: &Arc<dyn Outbound>) {
        if let Some(listener) = &self.listener {
            let _ = listener.outbound.set(Arc::clone(outbound));
        }
    }

    pub(crate) fn tick(&self, now_ms: u64) {
        if let Some(listener) = &self.listener {
            listener.now_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Has a file guarded that is about to be delegated, unless files are delegated without guards. May wait for the
    /// file's disk.
    ///
    /// # Errors
    /// As of [`FileSystem::guard`](steadfast_vfs::FileSystem::guard).
    pub(crate) fn guard(
        &self,
        place: &Place<'_>,
        kind: DelegationKind,
    ) -> Result<Guarded<'_>, FsError> {
        let Some(listener) = &self.listener else {
            return Ok(Guarded { guards: self, file: None });
        };
        let kind = match kind {
            DelegationKind::Read => GuardKind::Read,
            DelegationKind::Write => GuardKind::Write,
        };
        // Of a delegation that has just been returned.
        self.forget_unused(&place.file);
        {
            let mut files = self.files.lock();
            if let Some(entry) = files.get_mut(&place.file) {
                let is_enough = entry.kind == kind
                    && kind == GuardKind::Read
                    && entry.guard.as_ref().is_some_and(|guard| !guard.is_broken());
                if !is_enough {
                    return Err(FsError::TryLater);
                }
                entry.grants += 1;
                return Ok(Guarded { guards: self, file: Some(place.file) });
            }
            let domain = place.storage.domain();
            files.insert(place.file, Entry { kind, domain, guard: None, grants: 1 });
        }
        // From here on it ends the entry, whatever comes.
        let guarded = Guarded { guards: self, file: Some(place.file) };
        let told: Arc<dyn GuardListener> = Arc::<Listener>::clone(listener);
        let guard = match place.storage.guard(place.handle, kind, &told) {
            Ok(guard) => guard,
            Err(error) => {
                if error == FsError::NotSupported {
                    self.unguarded.lock().insert(place.storage.domain());
                }
                return Err(error);
            }
        };
        let mut files = self.files.lock();
        let Some(entry) = files.get_mut(&place.file) else {
            // The share is not served any more.
            drop(files);
            drop(guard);
            return Err(FsError::TryLater);
        };
        entry.guard = Some(guard);
        drop(files);
        Ok(guarded)
    }

    fn is_broken(&self, file: &FileKey) -> bool {
        let files = self.files.lock();
        let guard = files.get(file).and_then(|entry| entry.guard.as_ref());
        guard.is_none_or(|guard| guard.is_broken())
    }

    fn end_grant(&self, file: &FileKey) {
        if let Some(entry) = self.files.lock().get_mut(file) {
            entry.grants = entry.grants.saturating_sub(1);
        }
        self.forget_unused(file);
    }

    /// Nobody may have a delegation of a file any more: then its guard goes, and local processes go on.
    pub(crate) fn forget_unused(&self, file: &FileKey) {
        let Some(listener) = &self.listener else { return };
        let gone = {
            let mut files = self.files.lock();
            let is_unused =
                files.get(file).is_some_and(|entry| entry.is_unused(file, &listener.state));
            if is_unused { files.remove(file) } else { None }
        };
        drop(gone);
    }

    /// Lets go of files that were found by shares of which no file system is served any more: those could not be
    /// unmounted. What clients have of them is recalled, since from now on nothing tells of local processes.
    pub(crate) fn forget_beside(&self, exports: &ExportTable) {
        let Some(listener) = &self.listener else { return };
        self.unguarded.lock().clear();
        let served: HashSet<_> =
            exports.sorted().iter().filter_map(|export| export.storage.expected_domain()).collect();
        let gone: Vec<_> = {
            let mut files = self.files.lock();
            files.extract_if(|_, entry| !served.contains(&entry.domain)).collect()
        };
        let now_ms = listener.now_ms.load(Ordering::Relaxed);
        for (file, _) in &gone {
            listener.state.recall_for_local(now_ms, file, u64::MAX);
        }
        drop(gone);
    }
}

impl Entry {
    /// Whether nobody counts on it. To be asked under the table's lock, so that no grant begins meanwhile.
    fn is_unused(&self, file: &FileKey, state: &State) -> bool {
        self.grants == 0 && !state.is_delegated(file)
    }
}
