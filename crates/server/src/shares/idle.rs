//! What shares have open that nobody has used for a while is closed: descriptors, a mount, the root's
//! place in the node cache. A machine that mounts everything needs these for a moment, and a server
//! may have more shares than descriptors for all of them.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::ShareManager;
use super::state::State;
use super::stopping::Stopping;

/// How often it is looked in the time after which a share is idle.
const LOOKS: u32 = 4;

/// The thread that closes.
#[derive(Default)]
pub(super) struct IdleShares {
    stopping: Arc<Stopping>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl IdleShares {
    /// Starts the thread: what nobody has used for `after`, or up to a quarter longer, is closed.
    ///
    /// # Errors
    /// When there can be none.
    pub(super) fn start(&self, manager: &Arc<ShareManager>, after: Duration) -> io::Result<()> {
        let (stopping, manager) = (Arc::clone(&self.stopping), Arc::downgrade(manager));
        let thread = std::thread::Builder::new().name("idle".to_owned()).spawn(move || {
            while stopping.wait(after / LOOKS) {
                let Some(manager) = manager.upgrade() else { break };
                manager.let_idle_go();
            }
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stopping.tell();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl ShareManager {
    fn let_idle_go(&self) {
        // A disk may hold up who has it: then another time.
        let Some(mut state) = self.try_lock(Duration::ZERO) else { return };
        let State { exports, faults, .. } = &mut *state;
        let closed =
            exports.let_idle_go(&self.engine.exports(), LOOKS, |id| faults.contains_key(&id));
        let Some((table, shares)) = closed else { return };
        self.engine.set_exports(table);
        drop(state);
        tracing::debug!("{shares} shares were closed that no client had used for a while");
    }
}
