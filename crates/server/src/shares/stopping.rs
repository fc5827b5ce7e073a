//! Has threads stop that wait for their time.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Whether it is time to stop.
#[derive(Default)]
pub(super) struct Stopping {
    is_stopping: Mutex<bool>,
    told: Condvar,
}

impl Stopping {
    /// Waits for so long; `false` if it is time to stop.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut is_stopping = self.is_stopping.lock();
        self.told.wait_while_for(&mut is_stopping, |is_stopping| !*is_stopping, time);
        !*is_stopping
    }

    /// It is time to stop.
    pub(super) fn tell(&self) {
        *self.is_stopping.lock() = true;
        self.told.notify_all();
    }
}
