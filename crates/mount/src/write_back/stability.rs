//! When the server has data on stable storage: it says so in answer to COMMIT, or, if the share is
//! `async` so that COMMIT means nothing, to SYNC of the recovery program (docs/recovery.md).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use steadfast_client::{ClientError, Commit, Identity, NfsStat3};

use super::WriteBack;
use crate::calls::Calls;
use crate::held::Verifier;
use crate::node::Node;
use crate::transport::Patience;

/// What is known of the server, and SYNCs that several files share.
#[derive(Debug)]
pub(super) struct Stability {
    /// What the server answers to COMMIT is not taken for the truth unasked.
    is_asked: bool,
    /// The server does not have the program.
    has_none: AtomicBool,
    /// By the file system at the server: SYNC is about one.
    syncs: Mutex<HashMap<u64, Syncs>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Syncs {
    is_in_flight: bool,
    started: u64,
    /// The last one that was answered, and with what.
    done: u64,
    verifier: Verifier,
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
            drop(all);
            let sync = |nfs: &mut Calls| nfs.recovery_sync(&node.handle());
            let outcome = self.server.call_once(identity, patience, sync);
            all = syncs.lock();
            let state = all.entry(file_system).or_default();
            state.is_in_flight = false;
            changed.notify_all();
            state.verifier = outcome?;
            state.done = number;
        }
    }
}
