//! When the server has data on stable storage: it says so in answer to COMMIT, or, if the share is
//! `async` so that COMMIT means nothing, to SYNC of the recovery program (docs/recovery.md).
//!
//! SYNC is about a whole file system. So each one has the data of all files leave the journal that the server had
//! acknowledged before it was sent, whoever has asked for it. Without anybody it is sent by the thread that looks
//! after changes of names (`keeping`). While the journal keeps what the server has acknowledged nobody has to wait
//! for it.
//!
//! It must never have a record leave by a SYNC that was sent before the data was acknowledged.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_client::{ClientError, Commit, Identity, NfsStat3};

use super::WriteBack;
use crate::calls::Calls;
use crate::held::Verifier;
use crate::node::{Node, ROOT};
use crate::transport::Patience;

/// How old a change is before a SYNC is sent for it.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// A SYNC that took long is followed by a pause of so many times that: the server's disk has other work, too.
const PAUSE_TIMES: u32 = 3;
/// But by no longer one than this.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is known of the server, and SYNCs that several files share.
#[derive(Debug)]
pub(super) struct Stability {
    /// What the server answers to COMMIT is not taken for the truth unasked.
    is_asked: bool,
    /// The server does not have the program.
    has_none: AtomicBool,
    /// It has a file system that cannot be flushed as a whole.
    has_unflushable: AtomicBool,
    /// Somebody waits for what is acknowledged to become stable.
    is_hurried: AtomicBool,
    /// By the file system at the server: SYNC is about one.
    syncs: Mutex<HashMap<u64, Syncs>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Syncs {
    is_in_flight: bool,
    started: u64,
    /// When the last one was sent.
    sent: Option<Instant>,
    /// The last one that was answered, and with what.
    done: u64,
    verifier: Verifier,
    /// When the next one may be sent that nobody waits for.
    not_before: Option<Instant>,
}

/// What a file's data is made stable with.
#[derive(Debug)]
pub(super) enum Stabilized {
    /// COMMIT, with its reply.
    Committed(Commit),
    /// A SYNC of the whole share, with the server's verifier.
    Synced(Verifier),
}

impl Stability {
    pub(super) fn new(is_asked: bool) -> Self {
        Self {
            is_asked,
            has_none: AtomicBool::new(false),
            has_unflushable: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
            syncs: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl WriteBack {
    /// Has the server make stable what it has acknowledged of a file.
    pub(super) fn stabilize(
        &self,
        node: &Node,
        identity: &Identity,
    ) -> Result<Stabilized, ClientError> {
        let (file, patience) = (&node.handle(), Patience::default());
        let commit = || self.server.call_once(identity, patience, |nfs| nfs.commit(file, 0, 0));
        if !self.stability.is_asked || self.stability.has_none.load(Ordering::Relaxed) {
            return commit().map(Stabilized::Committed);
        }
        let committed = commit()?;
        // Afterwards, so that a share which became `async` meanwhile is noticed.
        let status = self.server.call_once(identity, patience, |nfs| nfs.recovery_status(file));
        if let (Ok(status), Some(recovery)) = (&status, &self.recovery) {
            recovery.told(*status);
        }
        match status {
            Ok(status) if status.is_async => {
                match self.sync_file_system(node, identity, (patience, Instant::now())) {
                    // A file system that cannot be flushed as a whole.
                    Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                        Ok(Stabilized::Committed(committed))
                    }
                    synced => synced.map(Stabilized::Synced),
                }
            }
            Err(error) if !error.is_program_unavailable() => Err(error),
            outcome => {
                if outcome.is_err() {
                    self.stability.has_none.store(true, Ordering::Relaxed);
                    tracing::info!(
                        "the server has no recovery program: its answers to COMMIT are believed"
                    );
                }
                Ok(Stabilized::Committed(committed))
            }
        }
    }

    /// A SYNC that is sent after this call has begun; those of one file system who come together share
    /// one.
    pub(crate) fn sync_file_system(
        &self,
        node: &Node,
        identity: &Identity,
        (patience, since): (Patience, Instant),
    ) -> Result<Verifier, ClientError> {
        let Stability { syncs, changed, .. } = &self.stability;
        let file_system = node.attributes().fsid;
        let mut all = syncs.lock();
        let wanted = all.entry(file_system).or_default().started + 1;
        loop {
            let state = all.entry(file_system).or_default();
            if state.done >= wanted {
                return Ok(state.verifier);
            }
            if state.is_in_flight {
                let has_timed_out = changed.wait_for(&mut all, patience.nap()).timed_out();
                match patience.end(since) {
                    Some(error) if has_timed_out => return Err(error),
                    _ => continue,
                }
            }
            state.is_in_flight = true;
            state.started += 1;
            let number = state.started;
            let begun = Instant::now();
            state.sent = Some(begun);
            drop(all);
            let outcome = self.sync_now((node, file_system), identity, patience);
            all = syncs.lock();
            let state = all.entry(file_system).or_default();
            state.is_in_flight = false;
            let pause = (begun.elapsed() * PAUSE_TIMES).clamp(SYNC_AFTER, PAUSE_MAX);
            state.not_before = Some(Instant::now() + pause);
            changed.notify_all();
            state.verifier = outcome?;
            state.done = number;
        }
    }

    /// Sends a SYNC, and has those records of data leave that it was for.
    fn sync_now(
        &self,
        (node, file_system): (&Node, u64),
        identity: &Identity,
        patience: Patience,
    ) -> Result<Verifier, ClientError> {
        // Before it is sent.
        let acknowledged = self.acknowledged(file_system);
        // If this host crashed after it with records only in its memory, older ones of the same bytes would be sent
        // again; and what the server has stable then would be taken for somebody else's if its times were only in
        // memory.
        if let Some(journaling) = self.kept_by() {
            journaling.make_stable(journaling.last());
        }
        let losses = self.server.link.losses();
        let sync = |nfs: &mut Calls| nfs.recovery_sync(&node.handle());
        let verifier = match self.server.call_once(identity, patience, sync) {
            Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                self.stability.has_unflushable.store(true, Ordering::Relaxed);
                return Err(error);
            }
            told => told?,
        };
        if let Some(recovery) = &self.recovery {
            // If it is another one, the recovery brings back what is held under the old one.
            recovery.told_verifier(verifier, losses);
        }
        for (node, mark) in acknowledged {
            let mut state = node.data.state.lock();
            let before = state.held.weight();
            state.held.made_stable(mark, verifier);
            self.leave(&mut state);
            self.settle(&node, &mut state, before);
            drop(state);
            node.data.changed.notify_all();
            self.nodes.release(node.number);
        }
        Ok(verifier)
    }

    /// Files of a file system with data that the server has acknowledged, with the mark of what that is.
    fn acknowledged(&self, file_system: u64) -> Vec<(Arc<Node>, u64)> {
        if !self.is_synced_together() {
            return Vec::new();
        }
        let mut marked = self.holders();
        marked.retain(|node| node.attributes().fsid == file_system);
        let mark = |node: Arc<Node>| {
            let mut state = node.data.state.lock();
            // What is acknowledged from now on is for the next one.
            state.unstable_since = state.unstable_since.map(|_| Instant::now());
            let mark = state.held.has_unstable().then(|| state.held.mark());
            drop(state);
            mark.map(|mark| (node, mark))
        };
        marked.into_iter().filter_map(mark).collect()
    }

    /// Whether the server makes the data of all files stable together, and the journal has it until then.
    pub(super) fn is_synced_together(&self) -> bool {
        self.kept_by().is_some()
            && self.has_what_it_acknowledged()
            && !self.stability.has_unflushable.load(Ordering::Relaxed)
    }

    /// Whether what the server acknowledges stays in memory.
    pub(super) fn keeps_bytes(&self) -> bool {
        !self.is_synced_together()
            || self.kept_bytes.load(Ordering::Relaxed) < self.kept_bytes_max.load(Ordering::Relaxed)
    }

    /// What the server acknowledges stays in memory up to so many bytes.
    #[cfg(test)]
    pub(crate) fn keep_at_most(&self, bytes: usize) {
        self.kept_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Has what is acknowledged made stable soon, without waiting for it.
    pub(crate) fn hurry(&self) {
        self.stability.is_hurried.store(true, Ordering::Relaxed);
    }

    /// Whether [`WriteBack::hurry`] was called since the last time.
    pub(crate) fn take_hurry(&self) -> bool {
        self.stability.is_hurried.swap(false, Ordering::Relaxed)
    }

    /// Whether it is time for a SYNC of a file system, the oldest change of which was made then, if nobody waits for it.
    pub(crate) fn is_sync_due(&self, file_system: u64, since: Instant) -> bool {
        let syncs = self.stability.syncs.lock();
        let not_before = syncs.get(&file_system).and_then(|syncs| syncs.not_before);
        since.elapsed() >= SYNC_AFTER && not_before.is_none_or(|at| Instant::now() >= at)
    }

    /// Whether it is time for a SYNC of what the server has acknowledged of files.
    pub(crate) fn is_data_due(&self) -> bool {
        self.is_synced_together()
            && self
                .unstable_file_systems()
                .iter()
                .any(|(which, (since, _))| self.is_sync_due(*which, *since))
    }

    /// Sends a SYNC of each file system with data that the server has acknowledged, and that is not stable; unless one
    /// was sent since it was looked.
    ///
    /// # Errors
    /// The first one.
    pub(crate) fn sync_data(&self, looked: Instant) -> Result<(), ClientError> {
        if !self.is_synced_together() {
            return Ok(());
        }
        let mut outcome = Ok(());
        for (file_system, (_, file)) in self.unstable_file_systems() {
            let sent = self.stability.syncs.lock().get(&file_system).and_then(|one| one.sent);
            if sent >= Some(looked) {
                continue;
            }
            // What lasts longer than a file.
            let is_of = |root: &Arc<Node>| !root.is_dead() && root.attributes().fsid == file_system;
            let root = self.nodes.by_number(ROOT).filter(is_of);
            let node = root.or_else(|| self.nodes.any_of(file_system));
            let node = node.unwrap_or_else(|| Arc::clone(&file));
            let identity = file.data.state.lock().identity.clone().unwrap_or(Identity::None);
            let waiting = (Patience::default(), Instant::now());
            if let Err(error) = self.sync_file_system(&node, &identity, waiting) {
                if error.status() == Some(NfsStat3::Stale) {
                    node.die();
                }
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// File systems with data that the server has acknowledged, and that is not stable: since when about, and a file.
    fn unstable_file_systems(&self) -> HashMap<u64, (Instant, Arc<Node>)> {
        let mut found: HashMap<u64, (Instant, Arc<Node>)> = HashMap::new();
        for node in self.holders() {
            let Some(since) = node.data.state.lock().unstable_since else { continue };
            let known = found.entry(node.attributes().fsid).or_insert_with(|| (since, node));
            known.0 = known.0.min(since);
        }
        found
    }

    /// What the server has acknowledged is nowhere but there and in the journal, in part.
    pub(crate) fn has_bytes_elsewhere(&self) -> bool {
        let is_elsewhere = |node: &Arc<Node>| {
            let state = node.data.state.lock();
            state.held.unstable_bytes() > state.held.weight().acknowledged
        };
        self.holders().iter().any(is_elsewhere)
    }
}
