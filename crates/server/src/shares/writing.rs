//! Writes the groups' files after what changed in them was answered.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_control::store::FileWrite;

use super::ShareManager;

/// How long further changes are waited for, so that many cost one writing.
const GATHERING: Duration = Duration::from_millis(300);
/// Where changes go on, so many times as long as the last writing took is waited after it: calls may
/// have to wait for who writes a file with thousands of shares.
const REST_PER_WRITING: u32 = 1000;
/// At the most.
const REST_MAX: Duration = Duration::from_secs(30);

/// After a file that could not be written: its disk may have room again.
const RETRY: Duration = Duration::from_secs(30);

/// A thread that writes when it is told to.
#[derive(Default)]
pub(super) struct Writer {
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Default)]
struct BellState {
    is_rung: bool,
    is_stopping: bool,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(super) fn start(&self, manager: &Arc<ShareManager>) -> io::Result<()> {
        let (bell, manager) = (Arc::clone(&self.bell), Arc::downgrade(manager));
        let thread = std::thread::Builder::new()
            .name("share-files".to_owned())
            .spawn(move || bell.write(&manager))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// There is something to be written.
    pub(super) fn ring(&self) {
        self.bell.state.lock().is_rung = true;
        self.bell.rung.notify_all();
    }

    /// Ends the thread; what is not written then is left.
    pub(super) fn stop(&self) {
        self.bell.state.lock().is_stopping = true;
        self.bell.rung.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Bell {
    fn write(&self, manager: &Weak<ShareManager>) {
        let mut retry = None;
        let mut rested = Instant::now();
        loop {
            if !self.is_to_write(retry, rested) {
                return;
            }
            let begun = Instant::now();
            let Some(manager) = manager.upgrade() else { return };
            let writes = manager.lock().store.take_writes();
            let written = writes.into_iter().map(FileWrite::perform).collect();
            let mistakes = manager.lock().store.note_writes(written);
            rested = Instant::now() + (begun.elapsed() * REST_PER_WRITING).min(REST_MAX);
            for mistake in &mistakes {
                tracing::warn!("{mistake}");
            }
            // Also when all files are written and the history could not be told: a server that
            // starts would put into them again what people may have taken out since. A file that
            // somebody edited is a mistake once, and costs one look more.
            retry = (!mistakes.is_empty()).then_some(RETRY);
        }
    }

    /// Waits until something is to be written, at most for `retry`, and for more of it for a while,
    /// and not before `rested`; `false`: it is time to stop.
    fn is_to_write(&self, retry: Option<Duration>, rested: Instant) -> bool {
        let mut state = self.state.lock();
        let is_idle = |state: &mut BellState| !state.is_rung && !state.is_stopping;
        match retry {
            None => self.rung.wait_while(&mut state, is_idle),
            Some(retry) => drop(self.rung.wait_while_for(&mut state, is_idle, retry)),
        }
        if !state.is_stopping {
            // Further changes only ring: it ends when there is nothing to gather for.
            let gathered = rested.max(Instant::now() + GATHERING);
            self.rung.wait_while_until(&mut state, |state| !state.is_stopping, gathered);
        }
        state.is_rung = false;
        !state.is_stopping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_written_again_though_nobody_rings() {
        let bell = Bell::default();
        assert!(bell.is_to_write(Some(Duration::from_millis(1)), Instant::now()));
        bell.state.lock().is_stopping = true;
        assert!(!bell.is_to_write(None, Instant::now()));
    }

    #[test]
    fn changes_are_gathered_and_who_has_written_rests() {
        let bell = Bell::default();
        let (begun, rest) = (Instant::now(), 2 * GATHERING);
        for (rested, least) in [(begun, GATHERING), (begun + rest, rest)] {
            bell.state.lock().is_rung = true;
            assert!(bell.is_to_write(None, rested));
            assert!(begun.elapsed() >= least);
        }
    }
}
