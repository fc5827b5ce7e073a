//! A thread for what is done about sizes without the lock of the shares: see [`crate::sizes`].

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::ShareManager;

/// After a change so long others are waited for before the disk is asked to know of it: a flush of the whole
/// file system each.
const GATHERING: Duration = Duration::from_secs(2);
/// After what could not be done.
const RETRY: Duration = Duration::from_secs(30);

/// The thread.
#[derive(Default)]
pub(super) struct Settler(Arc<Bell>);

#[derive(Default)]
struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Default)]
struct BellState {
    rings: u64,
    /// So many of the rings were answered: limits that were to be taken away then are.
    answered: u64,
    is_stopping: bool,
    is_running: bool,
}

impl Settler {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(super) fn start(&self, manager: &Arc<ShareManager>) -> io::Result<()> {
        let (bell, manager) = (Arc::clone(&self.0), Arc::downgrade(manager));
        self.0.state.lock().is_running = true;
        let started = std::thread::Builder::new().name("sizes".to_owned()).spawn(move || {
            bell.work(&manager);
            bell.state.lock().is_running = false;
            bell.changed.notify_all();
        });
        if started.is_err() {
            self.0.state.lock().is_running = false;
        }
        started.map(drop)
    }

    /// There is something to be done.
    pub(super) fn ring(&self) {
        self.0.state.lock().rings += 1;
        self.0.changed.notify_all();
    }

    /// Waits until limits are taken away that were to be; `false` if that takes longer than `patience`.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let mut state = self.0.state.lock();
        let rings = state.rings;
        let is_due = |state: &mut BellState| state.answered < rings && state.is_running;
        self.0.changed.wait_while_for(&mut state, is_due, patience);
        state.answered >= rings
    }

    /// Ends the thread, unless a disk holds it up for longer than `patience`. What is left the next start does.
    pub(super) fn stop(&self, patience: Duration) {
        let mut state = self.0.state.lock();
        state.is_stopping = true;
        self.0.changed.notify_all();
        self.0.changed.wait_while_for(&mut state, |state| state.is_running, patience);
    }
}

impl Bell {
    fn work(&self, manager: &Weak<ShareManager>) {
        // When the disk is to be asked.
        let mut due: Option<Instant> = None;
        while let Some(rings) = self.rings(due) {
            let Some(manager) = manager.upgrade() else { return };
            let lifts = manager.lock().exports.sizes.take_lifts();
            lifts.perform();
            self.state.lock().answered = rings;
            self.changed.notify_all();
            if due.is_some_and(|due| Instant::now() < due) {
                continue;
            }
            let mut pause = GATHERING;
            if due.take().is_some() {
                let unsettled = manager.lock().exports.sizes.take_unsettled();
                if let Some(unsettled) = unsettled {
                    let settled = unsettled.perform();
                    manager.lock().exports.sizes.note_settled(settled);
                }
                pause = RETRY;
            }
            if manager.lock().exports.sizes.has_work() {
                due = Some(Instant::now() + pause);
            }
        }
    }

    /// Waits until there is something to be done, at most until `due`; how often was rung by then. `None`: it is
    /// time to stop.
    fn rings(&self, due: Option<Instant>) -> Option<u64> {
        let mut state = self.state.lock();
        let is_idle = |state: &mut BellState| state.rings == state.answered && !state.is_stopping;
        match due {
            None => self.changed.wait_while(&mut state, is_idle),
            Some(due) => drop(self.changed.wait_while_until(&mut state, is_idle, due)),
        }
        (!state.is_stopping).then_some(state.rings)
    }
}
