//! Disks that could not be flushed, and are well again, come back by themselves: what was
//! acknowledged and may be lost with them is replayed, and their shares take changes again.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_control::api::ShareState;
use steadfast_control::store::Done;
use steadfast_durability::{FaultySince, IntentLogKeeper};
use steadfast_shares::Share;
use steadfast_vfs::StorageSource;

use super::ShareManager;
use super::stopping::Stopping;
use super::told::{StatesBefore, state_served};
use crate::exports::Reopened;

/// Between two looks at whether there is anything to do.
const PAUSE: Duration = Duration::from_secs(1);
/// Until a file system is let go, which calls under way still use.
const LET_GO_PATIENCE: Duration = Duration::from_secs(30);
const LET_GO_PAUSE: Duration = Duration::from_millis(20);
/// Before a tree that could not be opened is tried again; twice as long after each time.
const OPEN_AGAIN: Duration = Duration::from_secs(10);
const OPEN_AGAIN_MAX: Duration = Duration::from_secs(600);

/// A thread that looks after disks that have failed, and has each come back by one of its own: it
/// may hang.
#[derive(Default)]
pub(super) struct Returning {
    stopping: Arc<Stopping>,
    thread: Mutex<Option<JoinHandle<()>>>,
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
            let mut told = HashSet::new();
            let mut returns: Vec<(FaultySince, JoinHandle<()>)> = Vec::new();
            while stopping.wait(PAUSE) {
                let (Some(manager), Some(keeper)) = (manager.upgrade(), keeper.upgrade()) else {
                    break;
                };
                if !(told.is_empty() && keeper.faulty().is_empty()) {
                    manager.tell_of_disks(&mut told);
                }
                returns.retain(|(_, thread)| !thread.is_finished());
                for since in keeper.faulty_to_try() {
                    if returns.iter().any(|(tried, _)| *tried == since) {
                        continue;
                    }
                    let (manager, keeper) = (Arc::clone(&manager), Arc::clone(&keeper));
                    let stopping = Arc::clone(&stopping);
                    let work = move || manager.have_return(&keeper, since, &stopping);
                    // Without a thread it is tried again the next time.
                    let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(work);
                    returns.extend(thread.map(|thread| (since, thread)));
                }
            }
            for (_, thread) in returns {
                let _ = thread.join();
            }
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the threads, unless a disk holds them up for longer than `patience`.
    pub(super) fn stop(&self, patience: Duration) {
        self.stopping.tell();
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
    /// Tells those who watch which shares' disks have failed, and which are back, since the last time.
    /// `told` are those of which it was told that they have.
    fn tell_of_disks(&self, told: &mut HashSet<Arc<str>>) {
        let mut state = self.lock();
        state.exports.note_back();
        let failed: Vec<Arc<Share>> = state.exports.failed().map(Arc::clone).collect();
        let mut before = StatesBefore::new();
        let mut still = HashSet::with_capacity(failed.len());
        for share in failed {
            if !told.remove(&share.path) {
                before.insert(Arc::clone(&share.path), Some(state_served(share.is_draining)));
            }
            still.insert(Arc::clone(&share.path));
        }
        // Who went altogether was told of already.
        let back = std::mem::replace(told, still).into_iter();
        let is_served = |path: &Arc<str>| state.state_of(path).is_some_and(ShareState::is_served);
        before.extend(back.filter(is_served).map(|path| (path, Some(ShareState::Faulty))));
        if !before.is_empty() && self.is_watched() {
            let done = Done { sequence: state.store.sequence(), ..Done::default() };
            self.tell_watchers(&state, &done, &before);
        }
    }

    /// Has the shares of a file system that could not be flushed come back, if it takes changes
    /// again. May take as long as a disk hangs.
    fn have_return(&self, keeper: &IntentLogKeeper, since: FaultySince, stopping: &Stopping) {
        if !keeper.is_well_again(since) || !stopping.wait(Duration::ZERO) {
            return;
        }
        let mut closed = self.close(keeper, since);
        let begun = Instant::now();
        while keeper.is_still_faulty(since) && begun.elapsed() < LET_GO_PATIENCE {
            // Who uses it for longer lets it go later.
            if !stopping.wait(LET_GO_PAUSE) {
                return;
            }
        }
        let (mut interval, mut next) = (OPEN_AGAIN, Instant::now());
        loop {
            let is_time = Instant::now() >= next;
            closed.retain(|closed| !self.is_back(closed, is_time));
            if is_time {
                next = Instant::now() + interval;
                interval = (2 * interval).min(OPEN_AGAIN_MAX);
            }
            if closed.is_empty() || !stopping.wait(PAUSE) {
                return;
            }
        }
    }

    /// Has all shares let go of a file system that is well again; those that did.
    fn close(&self, keeper: &IntentLogKeeper, since: FaultySince) -> Vec<Reopened> {
        let mut state = self.lock();
        let shares = state.exports.users(since.file_system);
        // It may have been let go since it was tried; then these are of another one.
        if shares.is_empty() || !keeper.is_still_faulty(since) {
            return Vec::new();
        }
        let (table, built, closed) = state.exports.reopen(&self.engine.exports(), &shares);
        self.serve_built(&mut state, &[], table, built);
        drop(state);
        let paths: Vec<&str> = shares.iter().map(|share| &*share.path).collect();
        tracing::info!(
            "the disk of {} takes changes again: what it may have lost is replayed",
            paths.join(", ")
        );
        closed
    }

    /// Whether a share that was closed needs nothing more: a client has opened it, or it is opened
    /// here, if it is time to try; or it is served no more.
    fn is_back(&self, closed: &Reopened, is_time: bool) -> bool {
        let Some(tree) = self.lock().exports.still_reopened(closed) else { return true };
        let is_open = if is_time { tree.open().is_ok() } else { tree.tree().is_some() };
        if !is_open {
            return false;
        }
        self.lock().exports.note_opened(closed.share.id);
        true
    }
}
