//! Whether clients may be sent to a server: what those ask by HTTP who balance clients between servers. Whether it
//! works at all is told by an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For so long a server that is starting waits with new clients for shares that nobody has looked at yet. They are
/// served all the same; a disk that hangs must not keep the others from clients.
const STARTS_FOR: Duration = Duration::from_secs(10);

/// How a server is; shared by it and by who answers for it. A server that can be asked serves clients already.
#[derive(Debug)]
pub struct Health {
    has_started: AtomicBool,
    is_stopping: AtomicBool,
    since: Instant,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            has_started: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            since: Instant::now(),
        }
    }
}

impl Health {
    /// All shares were looked at.
    pub fn note_started(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    /// No client is to come any more.
    pub fn note_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether clients may come.
    ///
    /// # Errors
    /// Why not.
    pub fn is_ready(&self) -> Result<(), &'static str> {
        self.is_ready_at(Instant::now())
    }

    fn is_ready_at(&self, now: Instant) -> Result<(), &'static str> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err("it is stopping");
        }
        let is_young = now.saturating_duration_since(self.since) < STARTS_FOR;
        if is_young && !self.has_started.load(Ordering::Relaxed) {
            return Err("it is starting: not all shares were looked at");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn a_server_is_ready_between_its_start_and_its_end() {
        let health = Health::default();
        let begun = health.since;
        assert!(health.is_ready_at(begun).expect_err("starting").contains("starting"));
        assert_eq!(health.is_ready_at(begun + STARTS_FOR), Ok(()), "a disk hangs");
        health.note_started();
        assert_eq!(health.is_ready_at(begun), Ok(()));
        health.note_stopping();
        assert!(health.is_ready_at(begun).expect_err("stopping").contains("stopping"));
    }
}
