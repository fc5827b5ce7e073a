//! Where events wait for whoever keeps them.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Event;

/// Events that nobody has taken yet. Nothing is ever in it until [`Journal::begin`].
#[derive(Default)]
pub(crate) struct Journal {
    is_kept: AtomicBool,
    has_events: AtomicBool,
    events: Mutex<Vec<u8>>,
}

impl Journal {
    /// From now on events are noted, since somebody takes them.
    pub(crate) fn begin(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Notes an event. The caller holds the lock of what it tells about.
    pub(crate) fn note(&self, event: &Event<'_>) {
        if self.is_kept.load(Ordering::Relaxed) {
            let mut events = self.events.lock();
            event.append(&mut events);
            self.has_events.store(true, Ordering::Release);
        }
    }

    /// Whether there are events.
    pub(crate) fn has_events(&self) -> bool {
        self.has_events.load(Ordering::Acquire)
    }

    /// Moves all events behind those in `taken`.
    pub(crate) fn take(&self, taken: &mut Vec<u8>) {
        let mut events = self.events.lock();
        self.has_events.store(false, Ordering::Release);
        taken.append(&mut events);
    }
}
