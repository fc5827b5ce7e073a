//! The threads of the log and the server that they work for, from start to close.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_runtime::{ReplySender, ServerLink};

/// Between two looks at whether a thread has ended.
const END_POLL: Duration = Duration::from_millis(1);

/// The server, the threads, and whether the server is about to end.
#[derive(Default)]
pub(super) struct Running {
    /// Empty before the start.
    server: OnceLock<ServerLink>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_closing: AtomicBool,
}

impl Running {
    /// This server's replies wait for the log.
    pub(super) fn begin_for(&self, server: ServerLink) {
        let _ = self.server.set(server);
    }

    /// A sender of replies for one thread; `None` without a server.
    pub(super) fn reply_sender(&self) -> Option<ReplySender> {
        self.server.get().and_then(ServerLink::reply_sender)
    }

    /// Makes clients send unstable data again.
    pub(super) fn note_loss(&self) {
        if let Some(server) = self.server.get() {
            server.note_loss();
        }
    }

    /// Starts threads, with the list locked: no caller sees only some of them.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn spawn(
        &self,
        works: impl Iterator<Item = (String, Box<dyn FnOnce() + Send>)>,
    ) -> io::Result<()> {
        let mut threads = self.threads.lock();
        for (name, work) in works {
            threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        Ok(())
    }

    /// Whether there are threads.
    pub(super) fn has_threads(&self) -> bool {
        !self.threads.lock().is_empty()
    }

    /// The server is about to end.
    pub(super) fn begin_closing(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }

    /// Whether the server is about to end.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Waits for the end of all threads, but not for longer than this.
    pub(super) fn join(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // One that hangs in storage cannot be ended; the process's end is its end.
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(END_POLL);
            }
            if thread.is_finished() {
                // A panic of a thread has been reported when it happened.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    /// Starts a thread.
    fn spawn(running: &Running, work: impl FnOnce() + Send + 'static) {
        let work: Box<dyn FnOnce() + Send> = Box::new(work);
        running.spawn(std::iter::once(("test".to_owned(), work))).unwrap();
    }

    #[test]
    fn the_end_of_threads_is_waited_for_but_not_for_one_that_hangs() {
        const LONG: Duration = Duration::from_secs(60);
        const SHORT: Duration = Duration::from_millis(50);
        let running = Running::default();
        let has_ended = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&has_ended);
        assert!(!running.has_threads());
        spawn(&running, move || {
            std::thread::sleep(SHORT);
            noted.store(true, Ordering::SeqCst);
        });
        assert!(running.has_threads());
        let begun = Instant::now();
        running.join(LONG);
        assert!(has_ended.load(Ordering::SeqCst) && begun.elapsed() < LONG);
        assert!(!running.has_threads());
        let (hold, held) = channel::<()>();
        spawn(&running, move || assert!(held.recv().is_err()));
        let begun = Instant::now();
        running.join(SHORT);
        let took = begun.elapsed();
        assert!(took >= SHORT && took < LONG, "{took:?}");
        assert!(!running.has_threads());
        drop(hold);
    }
}
