//! Disks that could not be flushed, and are well again, come back by themselves: what was
//! acknowledged and may be lost with them is replayed, and their shares take changes again.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_control::api::ShareState;
use steadfast_control::store::Done;
use steadfast_posixfs::TreeOnUse;
use steadfast_runtime::intent_log::IntentLogKeeper;
use steadfast_shares::Share;
use steadfast_vfs::{LoggedFileSystem, StorageSource};

use super::ShareManager;
use super::told::{StatesBefore, state_served};

/// Between two looks at whether there is anything to do.
const PAUSE: Duration = Duration::from_secs(1);
/// Until a file system is let go, which calls under way still use.
const LET_GO_PATIENCE: Duration = Duration::from_secs(30);
const LET_GO_PAUSE: Duration = Duration::from_millis(20);
/// Before a tree that could not be opened is tried again; twice as long after each time.
const OPEN_AGAIN: Duration = Duration::from_secs(10);
const OPEN_AGAIN_MAX: Duration = Duration::from_secs(600);

/// A thread that looks after disks that have failed.
#[derive(Default)]
pub(super) struct Returning {
    stopping: Arc<Stopping>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Stopping {
    is_stopping: Mutex<bool>,
    told: Condvar,
}

impl Stopping {
    /// Waits for so long; `false` if it is time to stop.
    fn wait(&self, time: Duration) -> bool {
        let mut is_stopping = self.is_stopping.lock();
        self.told.wait_while_for(&mut is_stopping, |is_stopping| !*is_stopping, time);
        !*is_stopping
    }
}

/// Shares of a file system that is yet to be opened again.
struct Closed {
    shares: Vec<Arc<Share>>,
    trees: Vec<Weak<TreeOnUse>>,
    next: Instant,
    interval: Duration,
}

impl Returning {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(super) fn start(
        &self,
        manager: &Arc<ShareManager>,
        keeper: &Arc<IntentLogKeeper>,
    ) -> io::Result<()> {
        let (stopping, manager) = (Arc::clone(&self.stopping), Arc::downgrade(manager));
        let keeper = Arc::downgrade(keeper);
        let thread = std::thread::Builder::new().name("disks".to_owned()).spawn(move || {
            let mut known = BTreeSet::new();
            let mut closed = Vec::new();
            while stopping.wait(PAUSE) {
                let (Some(manager), Some(keeper)) = (manager.upgrade(), keeper.upgrade()) else {
                    return;
                };
                manager.tell_of_failed_disks(&keeper, &mut known);
                for file_system in keeper.well_again() {
                    closed.extend(manager.close(&keeper, file_system, &stopping));
                }
                closed.retain_mut(|closed| !manager.open_again(closed));
            }
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread, unless a disk holds it up for longer than `patience`.
    pub(super) fn stop(&self, patience: Duration) {
        *self.stopping.is_stopping.lock() = true;
        self.stopping.told.notify_all();
        let Some(thread) = self.thread.lock().take() else { return };
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < patience {
            std::thread::sleep(LET_GO_PAUSE);
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl ShareManager {
    /// Tells those who watch of shares whose disks have failed since the last time.
    fn tell_of_failed_disks(
        &self,
        keeper: &IntentLogKeeper,
        known: &mut BTreeSet<LoggedFileSystem>,
    ) {
        let faulty: BTreeSet<_> = keeper.faulty().into_iter().collect();
        for file_system in faulty.difference(known) {
            let shares = self.lock().exports.users(*file_system);
            self.tell_of_disks(&shares, |share| state_served(share.is_draining));
        }
        *known = faulty;
    }

    fn tell_of_disks(&self, shares: &[Arc<Share>], state_before: impl Fn(&Share) -> ShareState) {
        let state = self.lock();
        let before: StatesBefore =
            shares.iter().map(|share| ((*share.path).into(), Some(state_before(share)))).collect();
        let done = Done { sequence: state.store.sequence(), ..Done::default() };
        self.tell_watchers(&state, &done, &before);
    }

    /// Has a file system let go that is well again, so that it can be opened again.
    fn close(
        &self,
        keeper: &IntentLogKeeper,
        file_system: LoggedFileSystem,
        stopping: &Stopping,
    ) -> Option<Closed> {
        let mut state = self.lock();
        let shares = state.exports.users(file_system);
        if shares.is_empty() {
            return None;
        }
        let (table, built, trees) = state.exports.reopen(&self.engine.exports(), &shares);
        self.serve_built(&mut state, &[], table, built);
        drop(state);
        let names: Vec<&str> = shares.iter().map(|share| &*share.path).collect();
        tracing::info!(
            "the disk of {} takes changes again: what it may have lost is replayed",
            names.join(", ")
        );
        let begun = Instant::now();
        while keeper.is_faulty(file_system) {
            if begun.elapsed() > LET_GO_PATIENCE || !stopping.wait(LET_GO_PAUSE) {
                // Who uses it longer lets it go later; then it is opened by the next one.
                break;
            }
        }
        Some(Closed { shares, trees, next: Instant::now(), interval: OPEN_AGAIN })
    }

    /// Opens trees of a file system that is well again if it is time; `true` if there is nothing
    /// left to do.
    fn open_again(&self, closed: &mut Closed) -> bool {
        if Instant::now() < closed.next {
            return false;
        }
        // Those that are served no more need nothing.
        let Some(tree) = closed.trees.iter().find_map(Weak::upgrade) else { return true };
        if tree.open().is_err() {
            closed.next = Instant::now() + closed.interval;
            closed.interval = (2 * closed.interval).min(OPEN_AGAIN_MAX);
            return false;
        }
        self.lock().exports.note_opened(&tree);
        self.tell_of_disks(&closed.shares, |_| ShareState::Faulty);
        true
    }
}
