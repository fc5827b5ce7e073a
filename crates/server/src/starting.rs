//! What is left to do of a start while the server serves.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The thread that does it.
#[derive(Default)]
pub(crate) struct Starting {
    ended: Arc<Ended>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Whether it has ended, be it by a panic.
#[derive(Default)]
struct Ended {
    has_ended: Mutex<bool>,
    told: Condvar,
}

/// Tells when it is dropped.
struct TellsEnd(Arc<Ended>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        *self.0.has_ended.lock() = true;
        self.0.told.notify_all();
    }
}

impl Starting {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(crate) fn begin(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let tells_end = TellsEnd(Arc::clone(&self.ended));
        let thread = std::thread::Builder::new().name("start".to_owned()).spawn(move || {
            let _tells_end = tells_end;
            work();
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Whether the thread is at work.
    pub(crate) fn is_under_way(&self) -> bool {
        self.thread.lock().is_some() && !*self.ended.has_ended.lock()
    }

    /// Waits until it is finished; `false` if that takes longer.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut has_ended = self.ended.has_ended.lock();
        self.ended.told.wait_while_for(&mut has_ended, |has_ended| !*has_ended, time);
        *has_ended
    }

    /// Ends the thread, which is finished. If it ended by a panic, that goes on here.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(Err(panic)) = thread.map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}
