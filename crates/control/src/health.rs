//! Whether a server lives, and whether clients may be sent to it: what a service manager asks by HTTP, and who balances
//! clients between servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A server that has done nothing of what it does each second for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// How a server is; shared by it and by who answers for it.
#[derive(Debug)]
pub struct Health {
    has_started: AtomicBool,
    is_stopping: AtomicBool,
    since: Instant,
    /// After `since`, in ms.
    beat_ms: AtomicU64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            has_started: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            since: Instant::now(),
            beat_ms: AtomicU64::new(0),
        }
    }
}

impl Health {
    /// To be called once a second by what serves clients.
    pub fn beat(&self) {
        self.beat_ms.store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// All shares were looked at: from now on it may be said which are not served.
    pub fn note_started(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    /// No client is to come any more.
    pub fn note_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether it works; to start it again helps if it does not.
    ///
    /// # Errors
    /// Why not.
    pub fn lives(&self) -> Result<(), String> {
        self.lives_at(Instant::now())
    }

    fn lives_at(&self, now: Instant) -> Result<(), String> {
        let beat = self.since + Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        let silent = now.saturating_duration_since(beat);
        if silent < HANGS_AFTER {
            return Ok(());
        }
        Err(format!("it has not done for {} s what it does each second", silent.as_secs()))
    }

    /// Whether clients are served.
    ///
    /// # Errors
    /// Why not.
    pub fn is_ready(&self) -> Result<(), String> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err("it is stopping".to_owned());
        }
        if !self.has_started.load(Ordering::Relaxed) {
            return Err("it is starting: not all shares were looked at".to_owned());
        }
        self.lives()
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn a_server_is_ready_between_its_start_and_its_end() {
        let health = Health::default();
        assert_eq!(health.lives(), Ok(()));
        assert!(health.is_ready().expect_err("starting").contains("starting"));
        health.note_started();
        assert_eq!(health.is_ready(), Ok(()));
        health.note_stopping();
        assert!(health.is_ready().expect_err("stopping").contains("stopping"));
        assert_eq!(health.lives(), Ok(()));
    }

    #[test]
    fn a_server_that_does_nothing_any_more_hangs() {
        let health = Health::default();
        health.note_started();
        health.beat();
        let now = Instant::now();
        assert!(health.lives_at(now + HANGS_AFTER).expect_err("silent").contains("30 s"));
        assert_eq!(health.lives_at(now + HANGS_AFTER / 2), Ok(()));
    }
}
